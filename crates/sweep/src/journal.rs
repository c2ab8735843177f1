//! `sweep.jsonl`: one line per finished cell, on disk before the next begins.

use crate::error::SweepError;
use crate::grid::Cell;
use crate::recording::Score;
use paceline_store::durable;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Name of the journal in a sweep's folder.
pub const JOURNAL: &str = "sweep.jsonl";

/// The result of a cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    pub cell: String,
    /// Axis and setting.
    pub settings: Vec<(String, String)>,
    pub repeat: u32,
    /// The data set that `{data}` stood for; empty where none is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// When it began, in seconds since 1970.
    pub started: f64,
    /// Seconds from start to end of the process.
    pub seconds: f64,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// The JSON it printed.
    pub output: Value,
    /// Figures that were found in what another program than ours printed or recorded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// The machine's resources during the cell, by column.
    pub machine: BTreeMap<String, MeanPeak>,
    /// What each task of a training job recorded, by column.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tasks: BTreeMap<String, BTreeMap<String, MeanPeak>>,
    /// Scores on the test examples while it trained.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<Score>,
    /// Host it ran on, where an engine chose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Row {
    /// Whom the cell's own verdict blames for taking the cores away from it, such as `other programs`.
    #[must_use]
    pub fn disturbed_by(&self) -> Option<&str> {
        let diagnosis = self.output.get("diagnosis")?;
        let text = |name: &str| diagnosis.get(name).and_then(Value::as_str);
        let culprit = text("culprit").filter(|_| text("limit") == Some("taken-cores"))?;
        // A quota is the user's own choice and the same in every cell.
        (culprit.starts_with("other programs") || culprit.starts_with("the hypervisor"))
            .then_some(culprit)
    }

    /// What a reader of the figures of a cell has to know: who disturbed it, workers that took no part, an end before the aim.
    #[must_use]
    pub fn remarks(&self, cell: &Cell) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(culprit) = self.disturbed_by() {
            remarks.push(format!("{culprit} took cores"));
        }
        let workers = self.output.get("workers").and_then(Value::as_array);
        let idle = workers.into_iter().flatten().filter(|worker| worker["iterations"] == 0);
        let idle: Vec<&str> = idle.filter_map(|worker| worker["task"].as_str()).collect();
        if !idle.is_empty() {
            remarks.push(format!("{} took no step", idle.join(" and ")));
        }
        let aimed = cell.arguments.iter().any(|argument| argument == "--until-loss");
        if aimed && self.failure.is_none() && self.output.get("reached").is_none_or(Value::is_null)
        {
            let step = self.output.get("global_steps").and_then(Value::as_u64).unwrap_or(0);
            remarks.push(format!("ended after {step} steps without reaching the loss"));
        }
        remarks
    }

    /// The settings in words.
    fn label(&self) -> String {
        let settings: Vec<String> =
            self.settings.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
        format!("`{} #{}`", settings.join(", "), self.repeat)
    }
}

/// Why a cell failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// Exit code; none where a signal ended it.
    pub exit: Option<i32>,
    /// Its last error message.
    pub reason: String,
}

/// A column of the probes over a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MeanPeak {
    pub mean: f64,
    pub peak: f64,
}

/// The journal, held by one sweep at a time.
#[derive(Debug)]
pub struct Journal {
    file: durable::Journal,
    rows: Vec<Row>,
}

impl Journal {
    /// Opens the journal of a folder and reads what is there. A line that was cut off by a crash is
    /// dropped: its cell runs again.
    ///
    /// # Errors
    /// The file cannot be opened, or another sweep holds it.
    pub fn open(folder: &Path) -> Result<Journal, SweepError> {
        let (file, lines) = durable::Journal::open(&folder.join(JOURNAL))?;
        let mut rows: Vec<Row> = Vec::new();
        for row in lines.iter().filter_map(|(_, line)| serde_json::from_slice::<Row>(line).ok()) {
            // A cell that was run again counts by its last run.
            rows.retain(|known| known.cell != row.cell);
            rows.push(row);
        }
        Ok(Journal { file, rows })
    }

    /// Whether all that is known belongs to a sweep of these cells, on this data set (empty where it has none).
    ///
    /// # Errors
    /// A cell of another sweep, or of this one on other data: a page without it would replace the one that has it.
    pub fn check(&self, cells: &[Cell], data: &str) -> Result<(), SweepError> {
        let folder = || self.file.path().parent().map(Path::to_owned).unwrap_or_default();
        let known: BTreeSet<&str> = cells.iter().map(|cell| cell.key.as_str()).collect();
        for row in &self.rows {
            if !known.contains(row.cell.as_str()) {
                return Err(SweepError::OtherSweep { folder: folder(), cell: row.label() });
            }
            if !row.data.is_empty() && row.data != data {
                let (found, wanted) = (row.data.clone(), data.to_owned());
                return Err(SweepError::OtherData { folder: folder(), found, wanted });
            }
        }
        Ok(())
    }

    /// What is known so far.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of a cell.
    #[must_use]
    pub fn find(&self, cell: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.cell == cell)
    }

    /// Puts a row on disk.
    ///
    /// # Errors
    /// The disk is full, for example; the journal is then unchanged.
    pub fn add(&mut self, row: Row) -> Result<(), SweepError> {
        self.file.append(&row)?;
        self.rows.retain(|known| known.cell != row.cell);
        self.rows.push(row);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;

    fn row(cell: &str, seconds: f64) -> Row {
        Row { cell: cell.to_owned(), seconds, ..Row::default() }
    }

    #[test]
    fn a_torn_line_is_dropped_and_the_last_run_of_a_cell_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        journal.add(row("a", 1.0)).unwrap();
        journal.add(row("b", 2.0)).unwrap();
        journal.add(row("a", 3.0)).unwrap();
        drop(journal);
        let path = folder.path().join(JOURNAL);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"cell\":\"c\",\"sec").unwrap();
        drop(file);
        let mut journal = Journal::open(folder.path()).unwrap();
        assert_eq!(journal.find("a").unwrap().seconds, 3.0);
        assert_eq!(journal.rows().len(), 2);
        journal.add(row("c", 4.0)).unwrap();
        drop(journal);
        assert_eq!(Journal::open(folder.path()).unwrap().rows().len(), 3);
    }

    /// One worker once did all steps of every cell, and the page did not say so.
    #[test]
    fn what_spoils_a_figure_is_said() {
        let cell = |argument: &str| Cell {
            key: String::new(),
            settings: Vec::new(),
            repeat: 1,
            arguments: vec![argument.to_owned()],
            program: None,
            patterns: Vec::new(),
            hosts: false,
        };
        let of = |output: Value| Row { output, ..Row::default() }.remarks(&cell("train"));
        let taken = |culprit: &str| serde_json::json!({ "diagnosis": { "limit": "taken-cores", "culprit": culprit } });
        assert_eq!(of(taken("other programs on here")), ["other programs on here took cores"]);
        assert!(of(taken("the cgroup's quota")).is_empty());
        let compute = serde_json::json!({ "diagnosis": { "limit": "compute", "culprit": null } });
        assert!(of(compute).is_empty() && of(Value::Null).is_empty());
        let workers = serde_json::json!({ "workers": [
            { "task": "worker/0", "iterations": 9 }, { "task": "worker/1", "iterations": 0 },
        ] });
        assert_eq!(of(workers), ["worker/1 took no step"]);
        let aimed = |output: Value| Row { output, ..Row::default() }.remarks(&cell("--until-loss"));
        let early = serde_json::json!({ "reached": null, "global_steps": 6600 });
        assert_eq!(aimed(early), ["ended after 6600 steps without reaching the loss"]);
        assert!(aimed(serde_json::json!({ "reached": { "step": 7.0 } })).is_empty());
    }

    /// Another sweep in the same folder once replaced its page.
    #[test]
    fn a_folder_with_cells_of_another_sweep_or_other_data_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        let cell = |key: &str| Cell {
            key: key.to_owned(),
            settings: Vec::new(),
            repeat: 1,
            arguments: Vec::new(),
            program: None,
            patterns: Vec::new(),
            hosts: false,
        };
        journal.check(&[cell("a")], "").unwrap();
        journal.add(Row { data: "/data/mnist".to_owned(), ..row("a", 1.0) }).unwrap();
        // The same sweep, and one with further settings.
        journal.check(&[cell("a")], "/data/mnist").unwrap();
        journal.check(&[cell("b"), cell("a")], "/data/mnist").unwrap();
        let refused = journal.check(&[cell("b")], "/data/mnist");
        assert!(matches!(refused, Err(SweepError::OtherSweep { .. })));
        let refused = journal.check(&[cell("a")], "drawn").unwrap_err().to_string();
        assert!(refused.contains("`/data/mnist`, not on `drawn`"), "{refused}");
    }

    #[test]
    fn two_sweeps_do_not_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = Journal::open(folder.path()).unwrap();
        assert!(matches!(Journal::open(folder.path()), Err(SweepError::Busy { .. })));
        drop(first);
        assert!(Journal::open(folder.path()).is_ok());
    }
}
