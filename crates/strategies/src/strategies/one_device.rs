//! One model on all cores of one process: no exchange at all.
//!
//! The update happens inside `ready`, while weights and gradient of the range are still in cache: a
//! separate pass over a large model's weights would cost as much memory traffic as a whole layer.

use super::{Setup, StrategyEntry};
use crate::{
    Exchange, Pushed, Snapshot, StepInfo, StepReport, StrategyError, Version,
    exchange::is_nonfinite,
};
use paceline_models::{
    kernels::Buffer,
    optimizer::{Optimizer, OptimizerState},
    threads::Pool,
};
use std::ops::Range;

pub(super) const ENTRY: StrategyEntry = StrategyEntry {
    name: "one-device",
    about: "one model on all cores of this machine",
    synchronous: true,
    needs_servers: false,
    in_process: true,
    most_replicas: Some(1),
    shares_layers: false,
    connect,
};

fn connect(setup: &Setup<'_>) -> Result<Vec<Box<dyn Exchange>>, StrategyError> {
    if setup.replicas != 1 {
        return Err(StrategyError::Replicas {
            strategy: ENTRY.name,
            found: setup.replicas,
            wanted: "exactly 1",
        });
    }
    let state = setup.state.cloned().unwrap_or_else(|| setup.optimizer.state());
    Ok(vec![Box::new(OneDevice {
        optimizer: setup.optimizer.clone(),
        state,
        pool: setup.pools.first().cloned().unwrap_or_else(|| Pool::new(1)),
        step: StepInfo::NONE,
        version: Version(setup.origin.version),
        begun: false,
        nonfinite: false,
    })])
}

struct OneDevice {
    optimizer: Optimizer,
    state: OptimizerState,
    pool: Pool,
    step: StepInfo,
    version: Version,
    /// Whether a range of this step has been seen.
    begun: bool,
    nonfinite: bool,
}

impl Exchange for OneDevice {
    fn place(&self) -> (usize, usize) {
        (0, 1)
    }

    fn keeps_gradient(&self) -> bool {
        false
    }

    fn pull(&mut self, step: StepInfo, _params: &mut [f32]) -> Result<Version, StrategyError> {
        self.step = step;
        self.begun = false;
        self.nonfinite = false;
        Ok(Version(step.step))
    }

    fn ready(&mut self, range: Range<usize>, params: &mut [f32], grad: &mut [f32]) {
        if !self.begun {
            self.begun = true;
            self.nonfinite = is_nonfinite(grad);
        }
        if !self.nonfinite {
            let StepInfo { step, rate, .. } = self.step;
            let Self { optimizer, state, pool, .. } = self;
            optimizer.update_on(pool, range, params, grad, state, rate, step);
        }
    }

    fn push(
        &mut self,
        mut step_report: StepReport,
        params: &mut [f32],
        _grad: &mut Buffer,
    ) -> Result<Pushed, StrategyError> {
        step_report.nonfinite |= self.nonfinite;
        if !self.nonfinite {
            let StepInfo { step, rate, .. } = self.step;
            let Self { optimizer, state, pool, .. } = self;
            optimizer.finish(pool, 0..params.len(), params, state, rate, step);
        }
        self.version = Version(self.step.step + 1);
        Ok(Pushed { step_report, version: self.version, ..Pushed::default() })
    }

    fn sum(&mut self, _values: &mut [f64]) -> Result<(), StrategyError> {
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Option<Snapshot>, StrategyError> {
        Ok(Some(Snapshot {
            version: self.version,
            params: None,
            state: self.state.clone(),
            outstanding: Vec::new(),
        }))
    }
}
