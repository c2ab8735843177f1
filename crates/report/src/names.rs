//! What runs are called: by the settings in which they differ, never by a time stamp.
//!
//! Reports, the live page and its list take the names from here, so that a run has one name everywhere.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Settings that name a run only where nothing else tells it from another: what chance and machine decide.
const LAST_RESORT: &[&str] = &["seed", "threads", "version", "host"];
/// Settings that mostly follow from the strategy: where they do, they say nothing new.
const FOLLOWING: &[&str] = &["workers", "servers", "replicas", "threads"];
/// Settings in the order in which people look for them, by their names in a plan; all others come after these.
const FIRST: &[&str] = &[
    "strategy",
    "workers",
    "servers",
    "replicas",
    "optimizer",
    "learning_rate",
    "schedule",
    "batch_size",
];

/// A setting and its value in each of some runs.
pub(crate) type Differing = (String, Vec<String>);

/// What some runs were asked: in which settings they agree, and in which they differ.
pub(crate) fn compared(
    settings: &[Vec<(String, String)>],
) -> (Vec<(String, String)>, Vec<Differing>) {
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in settings.iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let (mut common, mut differing) = (Vec::new(), Vec::new());
    for name in names {
        let values: Vec<String> = settings
            .iter()
            .map(|of| {
                let value = of.iter().find(|(other, _)| other == name);
                value.map_or_else(|| "–".to_owned(), |(_, value)| value.clone())
            })
            .collect();
        if values.iter().all(|value| *value == values[0]) {
            common.push((name.clone(), values[0].clone()));
        } else {
            differing.push((name.clone(), values));
        }
    }
    (common, differing)
}

/// Settings in which runs differ, without those that follow from the ones before.
pub(crate) fn telling(differing: &[Differing]) -> Vec<&Differing> {
    let mut told: Vec<&Differing> = Vec::new();
    for setting in differing {
        if !(FOLLOWING.contains(&setting.0.as_str()) && follows(&setting.1, &told)) {
            told.push(setting);
        }
    }
    told
}

/// Whether runs that are alike in one of some settings are alike in these values too.
fn follows(values: &[String], told: &[&Differing]) -> bool {
    told.iter().any(|(_, others)| {
        let pairs: BTreeSet<_> = others.iter().zip(values).collect();
        pairs.len() == others.iter().collect::<BTreeSet<_>>().len()
    })
}

/// A path's last part; other names as they are.
pub(crate) fn short(data: &str) -> &str {
    let path = data.trim_end_matches('/');
    if path.contains("://") { data } else { path.rsplit('/').next().unwrap_or(data) }
}

/// What each of some runs is called: the settings in which it differs, those of the last resort only while two are alike.
pub(crate) fn labels(count: usize, differing: &[Differing]) -> Vec<String> {
    let usual = |name: &str| !LAST_RESORT.contains(&name);
    let mut words: Vec<Vec<String>> = vec![Vec::new(); count];
    let (first, then): (Vec<_>, Vec<_>) =
        telling(differing).into_iter().partition(|(name, _)| usual(name));
    for (name, values) in first {
        words.iter_mut().zip(values).for_each(|(words, value)| words.extend(worded(name, value)));
    }
    let alike = |words: &[Vec<String>]| words.iter().collect::<BTreeSet<_>>().len() < words.len();
    for (name, values) in then {
        if alike(&words) {
            words
                .iter_mut()
                .zip(values)
                .for_each(|(words, value)| words.extend(worded(name, value)));
        }
    }
    // A run that was asked for nothing is called by what the others were asked for.
    if let Some((name, _)) = differing.first() {
        let silent = words.iter_mut().filter(|words| words.is_empty());
        silent.for_each(|words| words.push(format!("no {name}")));
    }
    let plain: Vec<String> = words.iter().map(|words| words.join(", ")).collect();
    let mut count_of: HashMap<&str, usize> = HashMap::new();
    plain.iter().for_each(|label| *count_of.entry(label).or_default() += 1);
    // Runs that differ in nothing are told apart by their order.
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let numbered = plain.iter().map(|label| {
        let number = seen.entry(label).or_default();
        *number += 1;
        match (count_of[label.as_str()], label.as_str()) {
            (_, "") => format!("run {number}"),
            (1, _) => label.clone(),
            _ => format!("{label}, run {number}"),
        }
    });
    numbered.collect()
}

/// A setting in a label; none where nothing was asked.
fn worded(name: &str, value: &str) -> Option<String> {
    Some(match (name, value) {
        (_, "–") => return None,
        ("strategy" | "optimizer" | "host", _) => value.to_owned(),
        ("workers" | "servers" | "threads" | "replicas" | "epochs" | "steps", "1") => {
            format!("1 {}", name.trim_end_matches('s'))
        }
        ("workers" | "servers" | "threads" | "replicas" | "epochs" | "steps", _) => {
            format!("{value} {name}")
        }
        ("learning rate", _) => format!("lr {value}"),
        (_, "yes") => name.to_owned(),
        _ => format!("{name} {value}"),
    })
}

/// A run of a list, as far as its name depends on it.
#[derive(Debug, Clone, Copy)]
pub struct ListedRun<'a> {
    pub model: &'a str,
    pub data: &'a str,
    pub strategy: &'a str,
    /// By their names in a plan.
    pub settings: &'a BTreeMap<String, Value>,
}

/// What the runs of a list are called.
#[derive(Debug, Default, PartialEq)]
pub struct ListNames {
    /// The name of each run, in the order of the list.
    pub labels: Vec<String>,
    /// Settings in which runs of one model and data set differ, by their names in a plan, those that people look for first.
    pub differing: Vec<String>,
}

/// Names the runs of a list, the oldest first: two of one model and data set never have one name.
#[must_use]
pub fn of_list(runs: &[ListedRun<'_>]) -> ListNames {
    let mut kinds: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        kinds.entry((run.model, run.data)).or_default().push(at);
    }
    let mut sets: HashMap<&str, usize> = HashMap::new();
    kinds.keys().for_each(|(model, _)| *sets.entry(model).or_default() += 1);
    let mut names = ListNames { labels: vec![String::new(); runs.len()], ..ListNames::default() };
    let mut apart: BTreeSet<(usize, &str)> = BTreeSet::new();
    for ((model, data), members) in &kinds {
        let model_name = if model.is_empty() { "?" } else { model };
        let on = if sets[model] > 1 { format!(" on {}", short(data)) } else { String::new() };
        if let [only] = members[..] {
            names.labels[only] =
                format!("{model_name}{on} {}", runs[only].strategy).trim().to_owned();
            continue;
        }
        let settings: Vec<Vec<(String, String)>> =
            members.iter().map(|at| in_words(runs[*at].settings)).collect();
        let (_, differing) = compared(&settings);
        for (at, label) in members.iter().zip(labels(members.len(), &differing)) {
            names.labels[*at] = format!("{model_name}{on}: {label}");
        }
        let told: BTreeSet<&str> =
            telling(&differing).into_iter().map(|(name, _)| name.as_str()).collect();
        let keys = members.iter().flat_map(|at| runs[*at].settings.keys());
        let keys = keys.filter(|key| !LAST_RESORT.contains(&key.as_str()));
        let keys = keys.filter(|key| told.contains(setting_name(key).as_str()));
        apart.extend(keys.map(|key| (place(key), key.as_str())));
    }
    names.differing = apart.into_iter().map(|(_, key)| key.to_owned()).collect();
    names
}

fn place(key: &str) -> usize {
    let first = FIRST.iter().position(|known| *known == key);
    let last = LAST_RESORT.iter().position(|known| *known == key);
    first.or(last.map(|last| 1000 + last)).unwrap_or(100)
}

/// A plan's name of a setting as reports have it.
fn setting_name(key: &str) -> String {
    let plain = key.strip_prefix("stop.").or_else(|| key.strip_prefix("tasks.")).unwrap_or(key);
    match plain {
        "batch_size" => "batch".to_owned(),
        _ => plain.replace(['_', '.'], " "),
    }
}

/// Settings in words, as far as something was asked, those that people look for first.
fn in_words(settings: &BTreeMap<String, Value>) -> Vec<(String, String)> {
    let mut keys: Vec<&String> = settings.keys().collect();
    keys.retain(|key| !["model", "data"].contains(&key.as_str()));
    keys.sort_by_key(|key| place(key));
    let of = |key: &String| Some((setting_name(key), asked(&settings[key])?));
    keys.into_iter().filter_map(of).collect()
}

/// A value as people read it; none where nothing was asked.
pub(crate) fn asked(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some("yes".to_owned()),
        Value::String(text) => Some(text.clone()),
        // Written as 1.0 in the plan, and 1 to people.
        Value::Number(number) => {
            let value = number.as_f64().filter(|value| *value != 0.0)?;
            Some(if number.is_f64() { value.to_string() } else { number.to_string() })
        }
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(value: &Value) -> BTreeMap<String, Value> {
        value.as_object().unwrap().clone().into_iter().collect()
    }

    /// The list and the report once made names in two languages, which had begun to differ.
    #[test]
    fn a_list_names_runs_as_reports_do() {
        let all = [
            ("lenet", "/d/digits", json!({ "learning_rate": 0.03, "stop.epochs": 3.0, "seed": 1 })),
            ("lenet", "/d/digits", json!({ "learning_rate": 0.1, "stop.epochs": 3, "seed": 1 })),
            ("lenet", "/d/digits", json!({ "learning_rate": 0.1, "stop.epochs": 3, "seed": 2 })),
            ("lenet", "/d/photos", json!({ "seed": 1 })),
            ("softmax", "/d/digits", json!({ "seed": 1 })),
            ("", "", json!({})),
        ];
        let all = all.map(|(model, data, of)| (model, data, settings(&of)));
        let listed = all.each_ref().map(|(model, data, settings)| ListedRun {
            model,
            data,
            strategy: "one-device",
            settings,
        });
        let names = of_list(&listed);
        let expected = [
            "lenet on digits: lr 0.03, seed 1",
            "lenet on digits: lr 0.1, seed 1",
            "lenet on digits: lr 0.1, seed 2",
            "lenet on photos one-device",
            "softmax one-device",
            "? one-device",
        ];
        assert_eq!(names.labels, expected);
        assert_eq!(names.differing, ["learning_rate"]);
    }

    #[test]
    fn runs_that_differ_in_nothing_are_numbered_from_the_oldest() {
        let same = settings(&json!({ "batch_size": 64, "augment": true }));
        let run = ListedRun { model: "lenet", data: "", strategy: "", settings: &same };
        assert_eq!(of_list(&[run, run]).labels, ["lenet: run 1", "lenet: run 2"]);
        let other = settings(&json!({ "batch_size": 64, "augment": false }));
        let names = of_list(&[run, ListedRun { settings: &other, ..run }]);
        assert_eq!(names.labels, ["lenet: augment", "lenet: no augment"]);
    }
}
