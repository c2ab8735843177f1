//! `sweep.jsonl`: one line per finished cell, on disk before the next begins.

use crate::error::SweepError;
use crate::grid::Cell;
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
    /// The machine's resources during the cell, by column.
    pub machine: BTreeMap<String, MeanPeak>,
    /// Host it ran on, where an engine chose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Row {
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
