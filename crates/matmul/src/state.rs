//! Which jobs are done, and their results: all that must survive a kill.

use crate::{MatmulError, plan::Plan};
use paceline_store::durable;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// Raised whenever an older program could misread the file.
const VERSION: u32 = 1;

/// What one job gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobResult {
    pub(crate) job: usize,
    /// Its share of the trace.
    pub(crate) trace: f64,
    /// Sum of all elements of its block of the product, and of their squares.
    pub(crate) sum: f64,
    pub(crate) squares: f64,
}

/// The file's contents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProductState {
    version: u32,
    /// What is multiplied.
    left: String,
    right: String,
    work: crate::Work,
    pub(crate) blocks: usize,
    /// Seconds of earlier runs.
    pub(crate) seconds: f64,
    pub(crate) parts: Vec<JobResult>,
}

impl ProductState {
    pub(crate) fn new(plan: &Plan, left: String, right: String) -> Self {
        let (work, blocks) = (plan.work, plan.blocks);
        Self { version: VERSION, left, right, work, blocks, seconds: 0.0, parts: Vec::new() }
    }

    /// The state in a file, if there is one.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, MatmulError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(MatmulError::Read { path: path.to_owned(), source }),
        };
        let damaged = |reason: String| MatmulError::Damaged { path: path.to_owned(), reason };
        let state: Self =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if state.version != VERSION {
            return Err(damaged(format!("version {} instead of {VERSION}", state.version)));
        }
        Ok(Some(state))
    }

    /// Whether the file describes this very work, and nothing twice.
    pub(crate) fn check(&self, fresh: &Self, path: &Path) -> Result<(), MatmulError> {
        let other = |what| MatmulError::Other { path: path.to_owned(), what };
        if self.left != fresh.left {
            return Err(other("the left matrix"));
        }
        if self.right != fresh.right {
            return Err(other("the right matrix"));
        }
        if self.work != fresh.work {
            return Err(other("what is computed"));
        }
        if self.blocks != fresh.blocks {
            return Err(other("the block size"));
        }
        let mut seen = vec![false; fresh.blocks * fresh.blocks];
        for part in &self.parts {
            match seen.get_mut(part.job) {
                Some(seen) if !*seen => *seen = true,
                _ => {
                    let reason = format!("job {} occurs twice or does not exist", part.job);
                    return Err(MatmulError::Damaged { path: path.to_owned(), reason });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), MatmulError> {
        let text = serde_json::to_vec(self).expect("numbers and strings become JSON");
        durable::write_file(path, &text)
            .map_err(|source| MatmulError::Write { path: path.to_owned(), source })
    }
}
