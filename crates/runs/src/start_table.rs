//! `tasks.json`: which tasks have joined and which are missing while the tasks of a run find each other.
//!
//! The plan is written only when all tasks have joined; until then this is all that others can see of a run.

use serde::{Deserialize, Serialize};

/// The tasks of a run at its start, as the chief sees them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartTable {
    /// When it was written, in seconds since 1970.
    pub written: f64,
    pub model: String,
    pub strategy: String,
    /// One row per task.
    pub tasks: Vec<StartRow>,
}

/// How a task stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartRow {
    /// Its name, such as `worker/1`.
    pub task: String,
    /// Its address; empty where it is not known before the task is there.
    pub address: String,
    pub host: String,
    /// `waiting`, `joined`, `finished` or `lost`.
    pub state: String,
    /// Seconds since that is so.
    pub seconds: f64,
    /// Why it is not there, as far as is known.
    pub error: Option<String>,
    /// Seconds its clock is ahead of the chief's, where that was measured.
    pub clock_offset: Option<f64>,
}

impl StartTable {
    /// Tasks that have not come yet.
    pub fn missing(&self) -> impl Iterator<Item = &StartRow> {
        self.tasks.iter().filter(|row| row.state == "waiting")
    }
}
