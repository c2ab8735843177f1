//! A line of the list: what a run was asked to do, what it did, and what people wrote beside it.

use crate::notes::Notes;
use paceline_report::names::ListedRun;
use paceline_runs::{
    Machine, RecordedPlan, RunFolder, RunState, RunView, StartTable, Summary, unix_seconds,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Seconds without an event after which a run is called silent.
const SILENT: f64 = 10.0;
/// Most settings of a run that the list carries.
const MOST_SETTINGS: usize = 48;
/// Longest setting in the list, in bytes; longer ones are left out.
const LONGEST_SETTING: usize = 200;

/// A line of the list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRow {
    pub(crate) name: String,
    /// What it is called among the runs of the list: by the settings in which it differs.
    pub(crate) label: String,
    pub(crate) state: String,
    pub(crate) model: String,
    pub(crate) strategy: String,
    pub(crate) data: String,
    pub(crate) workers: u64,
    pub(crate) batch: u64,
    pub(crate) step: u64,
    pub(crate) planned: Option<u64>,
    pub(crate) train_loss: Option<f64>,
    pub(crate) test_loss: Option<f64>,
    pub(crate) accuracy: Option<f64>,
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) started: f64,
    pub(crate) verdict: String,
    /// Seconds without an event, where a running task should have written one.
    pub(crate) silent: Option<f64>,
    /// Everything that was asked for or decided, by name.
    pub(crate) settings: BTreeMap<String, Value>,
    #[serde(flatten)]
    pub(crate) notes: Notes,
}

impl RunRow {
    /// What its name in the list depends on.
    pub(crate) fn listed(&self) -> ListedRun<'_> {
        let RunRow { model, data, strategy, settings, .. } = self;
        ListedRun { model, data, strategy, settings }
    }

    /// Whether the names of a list are others where this row takes the place of another.
    pub(crate) fn renames(&self, before: &RunRow) -> bool {
        self.notes.archived != before.notes.archived
            || self.settings != before.settings
            || (&self.model, &self.data, &self.strategy)
                != (&before.model, &before.data, &before.strategy)
    }

    /// A run whose summary says all: its events are not read.
    pub(crate) fn of_summary(name: &str, run: &RunFolder, summary: &Summary) -> RunRow {
        let mut row = RunRow { name: name.to_owned(), ..RunRow::default() };
        row.state = summary.status.to_string();
        row.set(&RecordedPlan::read(run, &[]), run.machine().ok().as_ref());
        row.fill(summary);
        row
    }

    /// A run as far as it came.
    pub(crate) fn of_view(name: &str, view: &RunView) -> RunRow {
        let mut row = RunRow { name: name.to_owned(), ..RunRow::default() };
        row.state.clone_from(&view.state);
        row.set(&view.plan, view.machine.as_ref());
        row.fill(&view.summary);
        let last = view.records.last().map_or(row.started, |record| record.time);
        let silent = unix_seconds() - last;
        // In whole parts, so that it is not news at every look.
        let whole = (silent / SILENT).floor() * SILENT;
        row.silent = (view.state == "running" && silent > SILENT).then_some(whole);
        row
    }

    /// A run that cannot be shown.
    pub(crate) fn broken(name: &str, why: String) -> RunRow {
        RunRow {
            name: name.to_owned(),
            state: RunState::Broken(String::new()).word(),
            verdict: why,
            ..RunRow::default()
        }
    }

    /// A run whose tasks are only finding each other.
    pub(crate) fn forming(name: &str, run: &RunFolder) -> RunRow {
        let table = run.start_table().unwrap_or_default();
        let missing: Vec<&str> = table.missing().map(|row| row.task.as_str()).collect();
        RunRow {
            name: name.to_owned(),
            state: forming_state(&table).to_owned(),
            workers: table.tasks.len() as u64,
            started: table.written,
            verdict: format!("waiting for {}", missing.join(", ")),
            model: table.model.clone(),
            strategy: table.strategy.clone(),
            ..RunRow::default()
        }
    }

    /// What the run was going to do.
    fn set(&mut self, plan: &RecordedPlan, machine: Option<&Machine>) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        self.model = text(&plan.model);
        self.strategy = text(&plan.strategy);
        self.data = text(&plan.data);
        self.batch = plan.batch_size.unwrap_or(0);
        self.planned = plan.planned_steps;
        self.settings = settings(plan, machine);
    }

    /// What the run did, as every other output has it.
    fn fill(&mut self, summary: &Summary) {
        self.workers = summary.workers.len().max(1) as u64;
        self.step = summary.global_steps;
        if summary.global_batch > 0 {
            self.batch = summary.global_batch;
        }
        self.train_loss = known(summary.last.train_loss);
        self.test_loss = known(summary.last.test_loss);
        self.accuracy = known(summary.last.test_accuracy);
        self.rate = known(summary.examples_per_second).filter(|rate| *rate > 0.0);
        self.seconds = summary.seconds;
        if summary.started > 0.0 {
            self.started = summary.started;
        }
        self.verdict.clone_from(&summary.verdict);
    }
}

/// Everything that was asked for, and what was decided where nothing was, by the names of the plan.
fn settings(plan: &RecordedPlan, machine: Option<&Machine>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, value: &Value| {
        let short = match value {
            Value::String(text) => !text.is_empty() && text.len() <= LONGEST_SETTING,
            Value::Number(_) | Value::Bool(_) => true,
            _ => false,
        };
        if short && all.len() < MOST_SETTINGS {
            all.insert(name.to_owned(), value.clone());
        }
    };
    let decided = [
        "model",
        "data",
        "strategy",
        "optimizer",
        "schedule",
        "learning_rate",
        "batch_size",
        "seed",
        "workers",
        "threads",
    ];
    for name in decided {
        if let Some(text) = plan.setting(name) {
            // Numbers stay numbers, so that they can be compared.
            let number = text.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            let whole = text.parse::<u64>().ok().map(Value::from);
            add(name, &whole.or(number.map(Value::Number)).unwrap_or(Value::String(text)));
        }
    }
    if let Some(version) = &plan.version {
        add("version", &Value::String(version.clone()));
    }
    if let Some(machine) = machine {
        add("host", &Value::String(machine.host.clone()));
    }
    let spec = plan.whole.get("spec").and_then(Value::as_object);
    for (name, value) in spec.into_iter().flatten() {
        match value {
            Value::Object(inner) => {
                inner.iter().for_each(|(key, value)| add(&format!("{name}.{key}"), value));
            }
            value if !decided.contains(&name.as_str()) => add(name, value),
            _ => {}
        }
    }
    all
}

fn known(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// The state of a run whose tasks have not all joined: the chief updates their table a few times a second.
pub(crate) fn forming_state(table: &StartTable) -> &'static str {
    if unix_seconds() - table.written > SILENT { "died" } else { "forming" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_numbers_where_they_are_and_nested_ones_have_both_names() {
        let plan = RecordedPlan::of(json!({
            "learning_rate": 0.05, "threads": 2,
            "spec": { "model": "lenet", "batch_size": 64, "stop": { "epochs": 3 }, "nothing": null,
                      "freeze": "features", "long": "x".repeat(1000) },
        }));
        let found = settings(&plan, None);
        assert_eq!(found["learning_rate"], json!(0.05));
        assert_eq!((&found["batch_size"], &found["threads"]), (&json!(64), &json!(2)));
        assert_eq!((&found["stop.epochs"], &found["freeze"]), (&json!(3), &json!("features")));
        assert!(!found.contains_key("long") && !found.contains_key("nothing"));
    }
}
