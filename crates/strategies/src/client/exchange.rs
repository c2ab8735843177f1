//! The exchange of workers whose weights are on servers. Both strategies have it; they differ in what a worker works on next.

use super::Client;
use crate::{
    Exchange, Pushed, Snapshot, StepInfo, StepReport, StrategyError, Tally, Ticket, Version,
};
use paceline_models::kernels::Buffer;
use std::ops::Range;

/// What a worker works on next.
pub(crate) trait Dealing: Send {
    /// See [`Exchange::in_lockstep`].
    fn in_lockstep(&self) -> bool;

    /// See [`Exchange::deal`].
    fn deal(&mut self, client: &mut Client) -> Result<Option<Ticket>, StrategyError>;

    /// See [`Exchange::upcoming`].
    fn upcoming(&self) -> &[u64] {
        &[]
    }

    /// The number under which the gradient at work is pushed.
    fn number(&self) -> u64;

    /// The servers have made so many updates.
    fn moved_to(&mut self, _version: Version) {}
}

/// A worker with its links to the servers.
pub(crate) struct OnServers<D> {
    pub(crate) client: Client,
    pub(crate) dealing: D,
}

impl<D: Dealing> Exchange for OnServers<D> {
    fn place(&self) -> (usize, usize) {
        (self.client.rank, self.client.workers)
    }

    fn in_lockstep(&self) -> bool {
        self.dealing.in_lockstep()
    }

    fn deal(&mut self, _step: u64) -> Result<Option<Ticket>, StrategyError> {
        self.dealing.deal(&mut self.client)
    }

    fn upcoming(&self) -> &[u64] {
        self.dealing.upcoming()
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
        let pushed = self.client.push(self.dealing.number(), step_report, params, grad)?;
        self.dealing.moved_to(pushed.version);
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
        self.dealing.moved_to(version);
        Ok(version)
    }

    fn stop(&mut self) -> Result<(), StrategyError> {
        self.client.stop()
    }

    fn drain(&mut self) -> Result<(), StrategyError> {
        if self.in_lockstep() { Ok(()) } else { self.client.drain() }
    }

    fn leave(&mut self) -> Result<(), StrategyError> {
        self.client.leave()
    }
}
