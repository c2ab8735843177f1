//! Which runs belong on one chart, and what to call them there.
//!
//! Runs are grouped by what was asked, model and data set: the loss of one model says nothing beside that of another. Within a
//! group a run is called by the settings in which it differs from the others, never by a time stamp.

use crate::names::{asked, compared, labels, short, telling};
use crate::theme;
use crate::training::RunView;
use serde_json::Value;

/// Most runs in one chart: as many as colours and dashes tell apart.
pub const MOST_DRAWN: usize = theme::COLOURS * theme::DASHES;

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

impl<'a> Group<'a> {
    /// The runs at some places, under the same names.
    pub(crate) fn of(&self, places: &[usize]) -> Group<'a> {
        let chosen = |values: &[String]| places.iter().map(|at| values[*at].clone()).collect();
        let differing = self.differing.iter().map(|(name, values)| (name.clone(), chosen(values)));
        Group {
            title: self.title.clone(),
            runs: places.iter().map(|at| self.runs[*at]).collect(),
            labels: chosen(&self.labels),
            common: self.common.clone(),
            differing: differing.collect(),
        }
    }

    /// Settings in which the runs differ, without those that follow from the ones before.
    pub(crate) fn telling(&self) -> Vec<&(String, Vec<String>)> {
        telling(&self.differing)
    }
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
    let (common, differing) = compared(&settings);
    let title = match (model.is_empty(), data.is_empty()) {
        (false, false) => format!("{model} on {}", short(data)),
        (false, true) => model.to_owned(),
        (true, false) => short(data).to_owned(),
        (true, true) => "Runs".to_owned(),
    };
    let labels = match &runs[..] {
        [only] => vec![only.name.clone()],
        _ => labels(runs.len(), &differing),
    };
    Group { title, runs, labels, common, differing }
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
            Value::Object(_) => others(&name, value, all),
            value => all.extend(asked(value).map(|value| (name, value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{RecordedPlan, Summary};
    use serde_json::json;
    use std::collections::BTreeSet;

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

    /// Names had `ps-async, 2 workers, 1 server, 1.0 epochs` where the strategy alone told the runs apart.
    #[test]
    fn what_follows_from_the_strategy_is_left_out_of_names() {
        let spec = |strategy: &str, workers: u64, servers: u64| {
            json!({ "strategy": strategy, "workers": workers, "servers": servers,
                    "stop": { "epochs": workers as f64 } })
        };
        let runs = [
            run("lenet", spec("one-device", 1, 0)),
            run("lenet", spec("ps-async", 2, 1)),
            run("lenet", spec("multi-worker", 2, 0)),
        ];
        let labels = &groups(&runs)[0].labels;
        assert_eq!(
            *labels,
            ["one-device, 1 epoch", "ps-async, 2 epochs", "multi-worker, 2 epochs"]
        );
        let runs = [
            run("lenet", spec("ps-async", 2, 1)),
            run("lenet", spec("ps-async", 4, 1)),
            run("lenet", spec("multi-worker", 2, 0)),
        ];
        let labels = &groups(&runs)[0].labels;
        assert!(labels[1].starts_with("ps-async, 4 workers"), "{labels:?}");
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
