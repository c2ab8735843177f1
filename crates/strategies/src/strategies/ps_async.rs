//! Weights on servers, updated by each worker on its own.
//!
//! A worker takes the next global batch, computes its whole gradient and pushes it; the servers make
//! an update of it at once. Weights may have moved on in the meantime: the number of updates in
//! between, the staleness, is counted for every update and can be bounded. Batches are dealt in the
//! order of the run, each to one worker, so that one global step is one update from one global
//! batch, as everywhere else. See [`crate::server`].

use super::{Entry, Setup};
use crate::{
    Exchange, Pushed, Snapshot, StepInfo, StepReport, StrategyError, Tally, Ticket, Version,
    client::Client,
};
use paceline_models::kernels::Buffer;
use std::ops::Range;

pub(super) const ENTRY: Entry = Entry {
    name: "ps-async",
    about: "weights on parameter servers, each worker updates them by itself",
    synchronous: false,
    needs_servers: true,
    in_process: false,
    most_replicas: Some(1),
    shares_layers: false,
    connect,
};

fn connect(setup: &Setup<'_>) -> Result<Vec<Box<dyn Exchange>>, StrategyError> {
    super::one_replica(&ENTRY, setup)?;
    let client = Client::new(setup, &ENTRY)?;
    Ok(vec![Box::new(Free { client, batch: 0, upcoming: Vec::new() })])
}

struct Free {
    client: Client,
    /// The one at work.
    batch: u64,
    upcoming: Vec<u64>,
}

impl Exchange for Free {
    fn place(&self) -> (usize, usize) {
        (self.client.rank, self.client.workers)
    }

    fn in_lockstep(&self) -> bool {
        false
    }

    fn deal(&mut self, _step: u64) -> Result<Option<Ticket>, StrategyError> {
        while self.client.dealt.is_empty() && !self.client.over {
            self.client.ask()?;
        }
        let Some(batch) = self.client.dealt.pop_front() else { return Ok(None) };
        self.batch = batch;
        self.upcoming.clear();
        self.upcoming.extend(&self.client.dealt);
        Ok(Some(Ticket { batch, share: (0, 1) }))
    }

    fn upcoming(&self) -> &[u64] {
        &self.upcoming
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
        self.client.push(self.batch, step_report, params, grad)
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
        self.client.reform(params)
    }

    fn stop(&mut self) -> Result<(), StrategyError> {
        self.client.stop()
    }

    fn leave(&mut self) -> Result<(), StrategyError> {
        self.client.leave()
    }
}
