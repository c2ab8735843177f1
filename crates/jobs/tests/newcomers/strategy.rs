//! One device that updates once the whole gradient is there.

use paceline_models::{
    kernels::Buffer,
    optimizer::{Optimizer, OptimizerState},
};
use paceline_strategies::{
    Exchange, Pushed, Snapshot, StepInfo, StepReport, StrategyEntry, StrategyError, Version,
};
use std::ops::Range;

pub static ENTRY: StrategyEntry = StrategyEntry {
    name: "whole-gradient",
    about: "one device, one update when all gradients are there",
    synchronous: true,
    needs_servers: false,
    in_process: true,
    most_replicas: Some(1),
    shares_layers: false,
    connect: |setup| {
        Ok(vec![Box::new(WholeGradient {
            optimizer: setup.optimizer.clone(),
            state: setup.state.cloned().unwrap_or_else(|| setup.optimizer.state()),
            step: StepInfo { step: setup.origin.version, rate: 0.0, examples: 0 },
        })])
    },
};

struct WholeGradient {
    optimizer: Optimizer,
    state: OptimizerState,
    step: StepInfo,
}

impl Exchange for WholeGradient {
    fn place(&self) -> (usize, usize) {
        (0, 1)
    }

    fn pull(&mut self, step: StepInfo, _params: &mut [f32]) -> Result<Version, StrategyError> {
        self.step = step;
        Ok(Version(step.step))
    }

    fn ready(&mut self, _range: Range<usize>, _params: &mut [f32], _grad: &mut [f32]) {}

    fn push(
        &mut self,
        step_report: StepReport,
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<Pushed, StrategyError> {
        let StepInfo { step, rate, .. } = self.step;
        self.optimizer.update(0..params.len(), params, grad, &mut self.state, rate, step);
        Ok(Pushed { step_report, version: Version(step + 1), ..Pushed::default() })
    }

    fn sum(&mut self, _values: &mut [f64]) -> Result<(), StrategyError> {
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Option<Snapshot>, StrategyError> {
        Ok(Some(Snapshot {
            version: Version(self.step.step + 1),
            params: None,
            state: self.state.clone(),
            outstanding: Vec::new(),
        }))
    }
}
