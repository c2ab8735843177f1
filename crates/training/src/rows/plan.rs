//! A run on rows after every check, with what was decided filled in: what `plan.json` holds.

use crate::{TrainError, rows::RowsSpec};
use paceline_data::{FileMark, rows::Input};
use paceline_runs::RunKind;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A run over rows as it is going to happen; stored before the first row.
pub type Plan = paceline_runs::RunPlan<RowsSpec, RowsPlan>;

/// What is decided for runs over rows alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowsPlan {
    /// Bytes of all files, where the data has an end.
    pub bytes: Option<u64>,
    /// What identifies the files; absent in runs of 0.1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<FileMark>,
}

impl RowsSpec {
    /// The plan of a process that reads `input` on so many threads.
    pub(crate) fn plan(&self, input: &Input, threads: usize) -> Result<Plan, TrainError> {
        let details = RowsPlan { bytes: bytes_of(input, self.epochs), data: self.marks()? };
        Ok(self.planned(threads, details))
    }

    /// The plan that a task leaves on a host without a shared disk. A server's host need not have the data.
    #[must_use]
    pub fn plan_of_a_task(&self) -> Plan {
        self.planned(1, RowsPlan { bytes: None, data: self.marks().unwrap_or_default() })
    }

    fn planned(&self, threads: usize, details: RowsPlan) -> Plan {
        Plan {
            kind: RunKind::Rows,
            spec: self.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            strategy: self.strategy().to_owned(),
            parameters: (1 << self.hashing.bits) + 1,
            replicas: 1,
            threads,
            planned_steps: None,
            details,
        }
    }
}

/// Bytes of text that will be read, where that is known.
fn bytes_of(input: &Input, epochs: u64) -> Option<u64> {
    let Input::Files(files) = input else { return None };
    // Packed files hold more than they weigh, so their end is not known.
    let packed = |path: &Path| path.extension().is_some_and(|name| name == "gz");
    if files.iter().any(|path| packed(path)) {
        return None;
    }
    let sizes = files.iter().map(|path| std::fs::metadata(path).map(|data| data.len()));
    Some(sizes.sum::<std::io::Result<u64>>().ok()? * epochs)
}
