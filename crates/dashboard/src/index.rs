//! An index beside the runs: lines of runs that have ended, so that thousands are listed without reading each.
//!
//! It only saves time. A line counts as long as the files it was made of are unchanged; a missing, damaged or outdated index is made
//! again, and one that cannot be written is done without.

use crate::plain_file::{Mark, read_plain};
use crate::rows::RunRow;
use paceline_runs::write_atomically;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// The file's name; hidden, as folders whose names begin so are not searched for runs.
const FILE: &str = ".paceline-index.json";
/// Version of its contents: the program's own, since rows follow it.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Raised when rows get other fields within a version.
const REVISION: u32 = 2;
/// Most bytes of an index.
const MOST_BYTES: u64 = 256 << 20;

/// What a line was made of: summary, plan and notes.
pub(crate) type Marks = [Mark; 3];

#[derive(Debug, Default, Serialize, Deserialize)]
struct Index {
    version: String,
    revision: u32,
    rows: Vec<(Marks, RunRow)>,
}

/// Lines that were made before, by the names of their runs.
pub(crate) fn read(root: &Path) -> HashMap<String, (Marks, RunRow)> {
    let bytes = read_plain(&root.join(FILE), MOST_BYTES).unwrap_or_default();
    let index: Index = serde_json::from_slice(&bytes).unwrap_or_default();
    if index.version != VERSION || index.revision != REVISION {
        return HashMap::new();
    }
    index.rows.into_iter().map(|row| (row.1.name.clone(), row)).collect()
}

/// Keeps lines for the next start.
pub(crate) fn write<'a>(root: &Path, rows: impl Iterator<Item = (&'a Marks, &'a RunRow)>) {
    let rows = rows.map(|(marks, row)| (*marks, row.clone())).collect();
    let index = Index { version: VERSION.to_owned(), revision: REVISION, rows };
    if let Ok(bytes) = serde_json::to_vec(&index) {
        // A folder that cannot be written is read every time.
        let _ = write_atomically(&root.join(FILE), &bytes);
    }
}
