//! A run on rows after every check, with what was decided filled in: what `plan.json` holds.

use crate::{TrainError, rows::Spec};
use paceline_data::{FileMark, rows::Input};
use paceline_runs::{Event, RunFolder, RunStarted};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A run as it is going to happen; stored before the first row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Tells these plans from those of other models.
    pub kind: String,
    /// What was asked for.
    pub spec: Spec,
    /// Version of the program.
    pub version: String,
    /// Strategy's name.
    pub strategy: String,
    /// Weights, the bias included.
    pub parameters: u64,
    /// Threads.
    pub threads: usize,
    /// Bytes of all files, where the data has an end.
    pub bytes: Option<u64>,
    /// What identifies the files; absent in runs of 0.1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<FileMark>,
}

impl Plan {
    /// What [`Plan::kind`] says.
    pub const KIND: &'static str = "stream";

    /// The plan of a process that reads `input` on so many threads.
    pub(crate) fn new(spec: &Spec, input: &Input, threads: usize) -> Result<Self, TrainError> {
        Ok(Self {
            kind: Self::KIND.to_owned(),
            spec: spec.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            strategy: spec.strategy().to_owned(),
            parameters: (1 << spec.hashing.bits) + 1,
            threads,
            bytes: bytes_of(input, spec.epochs),
            data: spec.marks()?,
        })
    }

    /// What the log of a task begins with.
    pub(crate) fn started(&self, run: &RunFolder, first_step: u64) -> Event {
        Event::RunStarted(RunStarted {
            run: run.name(),
            model: self.spec.model.clone(),
            strategy: self.strategy.clone(),
            seed: 0,
            version: self.version.clone(),
            parameters: self.parameters,
            global_batch: self.spec.batch_size,
            first_step,
            planned_steps: None,
            ..RunStarted::default()
        })
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
