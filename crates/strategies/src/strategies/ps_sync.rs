//! Weights on servers, updated once per global step from all workers' gradients.
//!
//! Every worker computes the gradient of its share of the global batch and pushes it; the answer comes
//! when the step is over and is the token for the next one. With backup workers a step takes the
//! first gradients that arrive and discards the late ones, and a worker that was late continues with
//! the current step of the others: then workers do not run in lockstep. See [`crate::server`].

use super::{Entry, Setup};
use crate::{
    Exchange, Pushed, Snapshot, StepInfo, StepReport, StrategyError, Tally, Ticket, Version,
    client::Client,
};
use paceline_models::kernels::Buffer;
use std::ops::Range;

pub(super) const ENTRY: Entry = Entry {
    name: "ps-sync",
    about: "weights on parameter servers, one update per global step from all workers' gradients",
    synchronous: true,
    needs_servers: true,
    in_process: false,
    most_replicas: Some(1),
    shares_layers: false,
    connect,
};

fn connect(setup: &Setup<'_>) -> Result<Vec<Box<dyn Exchange>>, StrategyError> {
    super::one_replica(&ENTRY, setup)?;
    let client = Client::new(setup, &ENTRY)?;
    if setup.options.backup_workers >= client.workers {
        return Err(StrategyError::Option {
            option: "the number of backup workers",
            found: setup.options.backup_workers.to_string(),
            wanted: format!("less than the {} workers", client.workers),
        });
    }
    Ok(vec![Box::new(InStep { client, backup: setup.options.backup_workers > 0, version: None })])
}

struct InStep {
    client: Client,
    backup: bool,
    /// Updates made, as far as this worker was told; nothing before it asked.
    version: Option<u64>,
}

impl Exchange for InStep {
    fn place(&self) -> (usize, usize) {
        (self.client.rank, self.client.workers)
    }

    fn in_lockstep(&self) -> bool {
        !self.backup
    }

    fn deal(&mut self, _step: u64) -> Result<Option<Ticket>, StrategyError> {
        if self.version.is_none() {
            self.version = Some(self.client.ask()?);
        }
        if self.client.over {
            return Ok(None);
        }
        Ok(self.version.map(|batch| Ticket { batch, share: self.place() }))
    }

    fn pull(&mut self, step: StepInfo, params: &mut [f32]) -> Result<Version, StrategyError> {
        self.client.pull(step, params)
    }

    fn ready(&mut self, range: Range<usize>, _params: &mut [f32], grad: &mut [f32]) {
        self.client.ready(range, grad);
    }

    fn push(
        &mut self,
        step_report: StepReport,
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<Pushed, StrategyError> {
        let step = self.version.unwrap_or_default();
        let pushed = self.client.push(step, step_report, params, grad)?;
        self.version = Some(pushed.version.0);
        Ok(pushed)
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<(), StrategyError> {
        self.client.sum(values)
    }

    fn snapshot(&mut self) -> Result<Option<Snapshot>, StrategyError> {
        self.client.snapshot()
    }

    fn tally(&mut self) -> Result<Tally, StrategyError> {
        self.client.tally()
    }

    fn reform(&mut self, params: &mut [f32]) -> Result<Version, StrategyError> {
        let version = self.client.reform(params)?;
        self.version = Some(version.0);
        Ok(version)
    }

    fn stop(&mut self) -> Result<(), StrategyError> {
        self.client.stop()
    }

    fn leave(&mut self) -> Result<(), StrategyError> {
        self.client.leave()
    }
}
