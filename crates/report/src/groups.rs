//! Which runs belong on one chart, and what to call them there.
//!
//! Runs are grouped by what was asked, model and data set: the loss of one model says nothing beside that of another. Within a
//! group a run is called by the settings in which it differs from the others, never by a time stamp.

use crate::theme;
use crate::training::RunView;
use serde_json::Value;
use std::collections::BTreeSet;

/// Most runs in one chart: as many as colours and dashes tell apart.
pub(crate) const MOST_DRAWN: usize = theme::COLOURS * theme::DASHES;

/// Settings that name a run only where nothing else tells it from another.
const LAST_RESORT: &[&str] = &["seed", "threads", "version", "host"];

/// Runs of one model on one data set.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// Model and data set.
    pub(crate) title: String,
    pub(crate) runs: Vec<&'a RunView>,
    /// What each run is called; no two alike.
    pub(crate) labels: Vec<String>,
    /// Settings that all runs share.
    pub(crate) common: Vec<(String, String)>,
    /// Settings in which they differ, with the value of each run.
    pub(crate) differing: Vec<(String, Vec<String>)>,
}

/// The groups, in the order of their first runs.
pub(crate) fn groups(runs: &[RunView]) -> Vec<Group<'_>> {
    let mut found: Vec<(String, String, Vec<&RunView>)> = Vec::new();
    for run in runs {
        let (model, data) = (run.summary.model.clone(), run.summary.data.clone());
        match found.iter_mut().find(|group| group.0 == model && group.1 == data) {
            Some(group) => group.2.push(run),
            None => found.push((model, data, vec![run])),
        }
    }
    found.into_iter().map(|(model, data, runs)| group(&model, &data, runs)).collect()
}

fn group<'a>(model: &str, data: &str, runs: Vec<&'a RunView>) -> Group<'a> {
    let settings: Vec<Vec<(String, String)>> = runs.iter().map(|run| settings(run)).collect();
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
    let title = match (model.is_empty(), data.is_empty()) {
        (false, false) => format!("{model} on {}", short(data)),
        (false, true) => model.to_owned(),
        (true, false) => short(data).to_owned(),
        (true, true) => "Runs".to_owned(),
    };
    let labels = labels(&runs, &differing);
    Group { title, runs, labels, common, differing }
}

/// A path's last part; other names as they are.
fn short(data: &str) -> &str {
    let path = data.trim_end_matches('/');
    if path.contains("://") { data } else { path.rsplit('/').next().unwrap_or(data) }
}

/// What each run is called: the settings in which it differs, those of the last resort only while two are alike.
fn labels(runs: &[&RunView], differing: &[(String, Vec<String>)]) -> Vec<String> {
    let usual = |name: &str| !LAST_RESORT.contains(&name);
    let mut words: Vec<Vec<String>> = vec![Vec::new(); runs.len()];
    let (first, then): (Vec<_>, Vec<_>) = differing.iter().partition(|(name, _)| usual(name));
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
    let mut labels: Vec<String> = words.iter().map(|words| words.join(", ")).collect();
    if let [only] = runs {
        labels[0].clone_from(&only.name);
    }
    // Runs that differ in nothing are told apart by their order.
    let plain = labels.clone();
    for (at, label) in labels.iter_mut().enumerate() {
        let before = plain[..at].iter().filter(|other| *other == &plain[at]).count();
        if plain.iter().filter(|other| *other == &plain[at]).count() > 1 || label.is_empty() {
            let comma = if label.is_empty() { "" } else { ", " };
            label.push_str(&format!("{comma}run {}", before + 1));
        }
    }
    labels
}

/// A setting in a label; none where nothing was asked.
fn worded(name: &str, value: &str) -> Option<String> {
    Some(match (name, value) {
        (_, "–") => return None,
        ("strategy" | "optimizer" | "host", _) => value.to_owned(),
        ("workers" | "servers" | "threads" | "replicas", "1") => {
            format!("1 {}", name.trim_end_matches('s'))
        }
        ("workers" | "servers" | "threads" | "replicas" | "epochs" | "steps", _) => {
            format!("{value} {name}")
        }
        ("learning rate", _) => format!("lr {value}"),
        _ => format!("{name} {value}"),
    })
}

/// Everything a run was asked to do, by name, the settings people look for first. What was not asked is left out.
pub(crate) fn settings(run: &RunView) -> Vec<(String, String)> {
    let plan = &run.plan;
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let workers = (!run.summary.workers.is_empty()).then_some(run.summary.workers.len() as u64);
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let known = [
        ("strategy", plan.strategy.clone().or_else(|| text(&run.summary.strategy))),
        ("workers", number(plan.workers.or(workers))),
        ("servers", number(plan.servers.filter(|servers| *servers > 0))),
        ("replicas", number(plan.replicas.filter(|replicas| *replicas > 1))),
        ("optimizer", plan.optimizer.clone()),
        ("learning rate", plan.learning_rate.map(|rate| rate.to_string())),
        ("schedule", plan.schedule.clone()),
        ("batch", number(plan.batch_size.or(Some(run.summary.global_batch)))),
    ];
    let mut all: Vec<(String, String)> =
        known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    if let Some(spec) = plan.whole.get("spec") {
        others("", spec, &mut all);
    }
    let host = run.machine.as_ref().map(|machine| machine.host.clone());
    let known = [
        ("threads", number(plan.threads)),
        ("seed", number(plan.seed.or(Some(run.summary.seed)))),
        ("version", plan.version.clone()),
        ("host", host.filter(|host| !host.is_empty())),
    ];
    all.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    all
}

/// Names in a plan that have a place of their own above, or in the title.
const PLACED: &[&str] = &[
    "model",
    "data",
    "strategy",
    "workers",
    "servers",
    "replicas",
    "optimizer",
    "learning_rate",
    "schedule",
    "batch_size",
    "threads",
    "seed",
];

/// The other settings of a plan, at any depth, as far as something was asked.
fn others(above: &str, value: &Value, all: &mut Vec<(String, String)>) {
    let Some(fields) = value.as_object() else { return };
    for (name, value) in fields {
        if PLACED.contains(&name.as_str()) {
            continue;
        }
        let name = name.replace('_', " ");
        // When a run stops and how many tasks it has needs no further name.
        let plain = matches!(above, "" | "stop" | "tasks");
        let name = if plain { name } else { format!("{above} {name}") };
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::Object(_) => others(&name, value, all),
            Value::Bool(true) => all.push((name, "yes".to_owned())),
            Value::String(text) => all.push((name, text.clone())),
            other => all.push((name, other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{RecordedPlan, Summary};
    use serde_json::json;

    #[allow(clippy::needless_pass_by_value)] // written in place, where a reference would be noise
    fn run(model: &str, spec: Value) -> RunView {
        RunView {
            name: model.to_owned(),
            summary: Summary {
                run: "20261117-222847-lenet-multi-worker-qrz7".to_owned(),
                model: model.to_owned(),
                data: "/data/sets/digits".to_owned(),
                ..Summary::default()
            },
            plan: RecordedPlan::of(json!({ "spec": spec })),
            ..RunView::default()
        }
    }

    #[test]
    fn runs_are_grouped_by_model_and_data_and_named_by_what_differs() {
        let runs = [
            run("lenet", json!({ "learning_rate": 0.03, "batch_size": 256, "seed": 1 })),
            run("softmax", json!({ "learning_rate": 0.1 })),
            run("lenet", json!({ "learning_rate": 0.1, "batch_size": 64, "seed": 2 })),
        ];
        let found = groups(&runs);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].title, "lenet on digits");
        assert_eq!(found[0].labels, ["lr 0.03, batch 256", "lr 0.1, batch 64"]);
        assert_eq!(found[1].labels, ["softmax"]);
        let names: Vec<&str> = found[0].differing.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["learning rate", "batch", "seed"]);
    }

    #[test]
    fn no_two_runs_have_one_label_and_none_a_time_stamp() {
        let same = json!({ "learning_rate": 0.03, "seed": 1 });
        let runs = [
            run("lenet", same.clone()),
            run("lenet", same),
            run("lenet", json!({ "learning_rate": 0.03, "seed": 2 })),
            run("lenet", json!({ "learning_rate": 0.03, "seed": 2, "stop": { "epochs": 3 } })),
        ];
        let labels = &groups(&runs)[0].labels;
        assert_eq!(*labels, ["seed 1, run 1", "seed 1, run 2", "seed 2", "3 epochs, seed 2",]);
        let runs = [run("lenet", json!({ "stop": { "epochs": 3 } })), run("lenet", json!({}))];
        assert_eq!(groups(&runs)[0].labels, ["3 epochs", "no epochs"]);
        let repeats: Vec<RunView> = (0..30).map(|_| run("lenet", Value::Null)).collect();
        let labels = &groups(&repeats)[0].labels;
        assert_eq!(labels.iter().collect::<BTreeSet<_>>().len(), 30);
        assert!(!labels.iter().any(|label| label.contains("2026")), "{labels:?}");
    }
}
