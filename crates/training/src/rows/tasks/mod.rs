//! Several tasks that share the work: workers read files, servers hold the weights.
//!
//! ```text
//! files ──Feed──▶ Portion (rows, the weights they touch) ──Worker──▶ servers
//!                                                           chief ──▶ scores, checkpoints, summary
//!                                                             └─────▶ evaluator, where there is one
//! ```
//!
//! Every file belongs to one worker, dealt by size. The chief is a worker like the others and looks after
//! the rest on a thread of its own, over links of its own, so that training does not wait for it.

mod chief;
mod evaluator;
mod feed;
mod part;
mod serve;
mod worker;

pub use part::{Task, take_part};
pub(crate) use worker::LoopState;

use crate::{
    TrainError,
    rows::{Checkpoint, DataSpec, RowsSpec},
};
use paceline_cluster::session::OnLoss;
use paceline_data::rows::{Dealt, deal};
use paceline_models::sparse_logistic;
use paceline_strategies::{Transfer, find, sparse::SparseOptions};
use paceline_wire::Role;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest wait for a task that lives and does nothing.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// How long the return of a worker that is started again is waited for at the end.
const RETURNING: Duration = Duration::from_secs(30);

/// The tasks of a run, as asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tasks {
    /// How they work together: `ps-sync` or `ps-async`.
    pub strategy: String,
    /// Tasks that read and learn.
    pub workers: usize,
    /// Tasks that hold weights.
    pub servers: usize,
    /// Which weights travel.
    pub transfer: Transfer,
    /// What happens when a worker is lost.
    pub on_loss: OnLoss,
    /// Stop after so many updates.
    pub steps: Option<u64>,
    /// Whether a task of its own scores held-out rows; the servers do otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evaluator: bool,
}

impl Tasks {
    /// Checks what can be checked without reading rows.
    pub(crate) fn check(&self, spec: &RowsSpec) -> Result<(), TrainError> {
        let bad = |setting, found: String, wanted: &str| {
            Err(TrainError::Setting { setting, found, wanted: wanted.to_owned() })
        };
        if !find(&self.strategy)?.needs_servers {
            return bad("the strategy", self.strategy.clone(), "one-device, ps-sync or ps-async");
        }
        if self.workers == 0 || self.servers == 0 {
            let found = format!("{} and {}", self.workers, self.servers);
            return bad("the number of workers and servers", found, "positive");
        }
        if self.synchronous() && spec.batch_size < self.workers as u64 {
            let found = spec.batch_size.to_string();
            return bad("the batch size", found, "at least one row for each worker");
        }
        if spec.data.input()?.is_live() || spec.window != crate::rows::Window::None {
            let found = spec.data.to_string();
            return bad("the data of several workers", found, "files, without a window");
        }
        self.deal(spec).map(|_| ())
    }

    /// Whether all workers make every update together.
    pub(crate) fn synchronous(&self) -> bool {
        find(&self.strategy).is_ok_and(|strategy| strategy.synchronous)
    }

    /// The files of each worker.
    pub(crate) fn deal(&self, spec: &RowsSpec) -> Result<Vec<Dealt>, TrainError> {
        let DataSpec::Read(list) = &spec.data else { return Ok(Vec::new()) };
        Ok(deal(&paceline_data::rows::expand(list)?, self.workers)?)
    }

    /// Rows of one step of a worker: its share of the batch where updates are synchronous, else a whole one.
    pub(crate) fn share(&self, batch_size: u64, rank: usize) -> usize {
        let share = if self.synchronous() {
            let (rank, workers) = (rank as u64, self.workers as u64);
            batch_size * (rank + 1) / workers - batch_size * rank / workers
        } else {
            batch_size
        };
        usize::try_from(share).unwrap_or(usize::MAX)
    }

    /// Whether a worker has updates to make beyond a checkpoint.
    pub(crate) fn is_left(&self, spec: &RowsSpec, kept: &Checkpoint) -> Result<bool, TrainError> {
        if self.steps.is_some_and(|steps| kept.step >= steps) {
            return Ok(false);
        }
        let by_chief = kept.marks.iter().any(|(task, _)| task.role == Role::Chief);
        for (rank, dealt) in self.deal(spec)?.into_iter().enumerate() {
            let mark = kept.marks.iter().find(|(task, _)| {
                rank == match task.role {
                    Role::Worker => task.index as usize + usize::from(by_chief),
                    _ => 0,
                }
            });
            if !feed::is_at_end(spec, dealt.files, mark.map(|(_, mark)| *mark))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What workers and servers must agree on.
    pub(crate) fn options(&self, spec: &RowsSpec) -> Result<SparseOptions, TrainError> {
        let (_, settings) = spec.rule()?;
        Ok(SparseOptions {
            bits: spec.hashing.bits,
            rule: sparse_logistic::rules::find(&spec.optimizer)?.name,
            settings,
            synchronous: self.synchronous(),
            combine: spec.combine,
            transfer: self.transfer,
            returning: if self.on_loss == OnLoss::Restart { RETURNING } else { Duration::ZERO },
            patience: PATIENCE,
        })
    }
}
