//! The weights of one server: its part of the flat buffer, the optimiser's state for it, and how a
//! gradient becomes an update.

use super::message::{Form, PushHead};
use crate::{
    Combine, Setup,
    lockstep::{LockstepSum, SumFactor},
};
use paceline_models::{
    kernels::Buffer,
    optimizer::{Optimizer, OptimizerState},
    threads::Pool,
};
use paceline_wire::Window;
use std::{ops::Range, sync::Arc};

/// Weights updated and copied at a time: they and their gradient stay in the second-level cache.
const COPIED: usize = 64 << 10;

/// A gradient as it came.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(super) head: PushHead,
    pub(super) dense: Buffer,
    /// Where a mapped gradient lies. Kept as long as the gradient may be needed, even if its worker
    /// is gone.
    pub(super) window: Option<Arc<Window>>,
}

impl Inbox {
    /// All values of the part, if that is what came.
    fn values(&self) -> Option<&[f32]> {
        match self.head.form {
            Form::Dense => Some(&self.dense),
            Form::Mapped => self.window.as_deref().map(Window::read),
            Form::None => None,
        }
    }
}

/// One server's weights.
#[derive(Debug)]
pub(super) struct ServerPart {
    pub(super) range: Range<usize>,
    pub(super) params: Buffer,
    /// As long as the whole layout; memory that is never touched costs nothing.
    pub(super) state: OptimizerState,
    optimizer: Optimizer,
    pool: Pool,
    sum: LockstepSum,
    /// How it was before the last step, where that may have to be rolled back.
    before: Option<Before>,
}

/// What a step changed.
#[derive(Debug, Default)]
struct Before {
    /// Whether it changed anything.
    changed: bool,
    params: Vec<f32>,
    /// In the order of the optimiser's slots.
    slots: Vec<Vec<f32>>,
}

impl ServerPart {
    /// This range of `params`; with `rolls_back`, the last step can be rolled back.
    pub(super) fn new(
        setup: &Setup<'_>,
        range: Range<usize>,
        params: &[f32],
        rolls_back: bool,
    ) -> Self {
        let mut own = Buffer::zeroed(range.len());
        own.copy_from_slice(&params[range.clone()]);
        let mut state = setup.optimizer.state();
        if let Some(old) = setup.state {
            for (new, old) in state.buffers_mut().iter_mut().zip(old.buffers()) {
                if !new.is_empty() {
                    new[range.clone()].copy_from_slice(&old[range.clone()]);
                }
            }
        }
        Self {
            range,
            params: own,
            state,
            optimizer: setup.optimizer.clone(),
            pool: setup.pools.first().cloned().unwrap_or_else(|| Pool::new(1)),
            sum: LockstepSum::new(setup.layout),
            before: rolls_back.then(Before::default),
        }
    }

    /// OptimizerState buffers of this part, in the order of the optimiser's slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = &[f32]> {
        let used = self.state.buffers().iter().filter(|buffer| !buffer.is_empty());
        used.map(|buffer| &buffer[self.range.clone()])
    }

    /// One gradient, one update; `step` counts from 0. With a `copy`, the new weights are written there
    /// too, while they are in the cache.
    pub(super) fn apply(&mut self, inbox: &Inbox, step: u64, copy: Option<&mut [f32]>) {
        let rate = inbox.head.rate;
        let Self { range, params, state, optimizer, pool, .. } = self;
        if let (Some(values), Some(copy)) = (inbox.values(), copy) {
            let blocks = params.chunks_mut(COPIED).zip(values.chunks(COPIED));
            for (at, ((params, values), copy)) in blocks.zip(copy.chunks_mut(COPIED)).enumerate() {
                let start = range.start + at * COPIED;
                let block = start..start + params.len();
                optimizer.update_on(pool, block, params, values, state, rate, step);
                copy.copy_from_slice(params);
            }
        } else if let Some(values) = inbox.values() {
            optimizer.update_on(pool, range.clone(), params, values, state, rate, step);
        }
    }

    /// Several gradients, in the order given, one update.
    pub(super) fn apply_together(&mut self, inboxes: &[&Inbox], combine: Combine, step: u64) {
        if let Some(before) = &mut self.before {
            before.changed = false;
        }
        let Some(first) = inboxes.first() else { return };
        let rate = first.head.rate;
        let factor = factor(inboxes, combine);
        let gradients: Vec<&[f32]> = inboxes.iter().filter_map(|inbox| inbox.values()).collect();
        if !gradients.is_empty() {
            self.apply_sum(&gradients, factor, rate, step);
        }
    }

    /// Makes the last step undone, bit by bit. Once.
    pub(super) fn roll_back(&mut self) {
        let Some(before) = &mut self.before else { return };
        if std::mem::take(&mut before.changed) {
            self.params.copy_from_slice(&before.params);
            for (buffer, slot) in self.state.buffers_mut().iter_mut().zip(&before.slots) {
                buffer[self.range.clone()].copy_from_slice(slot);
            }
        }
    }

    fn apply_sum(&mut self, gradients: &[&[f32]], factor: SumFactor, rate: f32, step: u64) {
        let Self { range, params, state, optimizer, sum, before, .. } = self;
        if let Some(before) = before {
            before.make_room(range.len(), state);
        }
        sum.each_block(range, gradients, factor, |block, sums| {
            let start = block.start - range.start;
            let params = &mut params[start..start + block.len()];
            if let Some(before) = before {
                before.keep(start, block.start, params, state);
            }
            optimizer.update(block, params, sums, state, rate, step);
        });
    }
}

impl Before {
    /// All of `length` weights are about to change.
    fn make_room(&mut self, length: usize, state: &OptimizerState) {
        self.changed = true;
        self.params.resize(length, 0.0);
        let used = state.buffers().iter().filter(|buffer| !buffer.is_empty()).count();
        self.slots.resize_with(used, Vec::new);
        self.slots.iter_mut().for_each(|slot| slot.resize(length, 0.0));
    }

    /// Keeps a block that is about to change: `params` at `start` of the part, and the state at `global` of the
    /// layout. Block by block, since the update has them in the cache anyway.
    fn keep(&mut self, start: usize, global: usize, params: &[f32], state: &OptimizerState) {
        let end = start + params.len();
        self.params[start..end].copy_from_slice(params);
        for (slot, buffer) in self.slots.iter_mut().zip(state.buffers()) {
            slot[start..end].copy_from_slice(&buffer[global..global + params.len()]);
        }
    }
}

/// What the sum of the gradients is multiplied with. Gradients are scaled by one over the global
/// batch, so they add up to the mean if all are there; if some are missing, the mean is over the
/// examples of those that came.
fn factor(inboxes: &[&Inbox], combine: Combine) -> SumFactor {
    let came: u64 = inboxes.iter().map(|inbox| inbox.head.step_report.loss.examples).sum();
    let global = inboxes[0].head.global;
    let mean = if came == 0 || came == global { 1.0 } else { global as f32 / came as f32 };
    let times = match combine {
        Combine::Mean => 1.0,
        Combine::Sum => inboxes.len() as f32,
    };
    SumFactor { mean, times }
}
