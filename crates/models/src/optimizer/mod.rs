//! Optimisers on flat slices.
//!
//! An update is memory-bound, so it is applied by range: the step loop calls it from the model's
//! `ready` callback while weights and gradient of that range are still in cache. Definitions are
//! PyTorch's, so that hyper-parameters carry over; plain multiplications and additions in one
//! fixed order, so that every instruction set gives the same bits.

mod adagrad;
mod adam;
mod dispatch;
mod lamb;
mod lars;
mod mask;
mod momentum;
mod nesterov;
mod sgd;
mod tensors;

use crate::{
    kernels::Buffer,
    layout::Layout,
    names::UnknownName,
    threads::{Pool, SendPtr},
};
pub use mask::Mask;
use mask::Treatment;
use std::{marker::PhantomData, ops::Range};

/// Every optimiser, in the order help texts show them.
pub const ALL: &[&OptimizerEntry] = &[
    &sgd::ENTRY,
    &momentum::ENTRY,
    &nesterov::ENTRY,
    &adagrad::ENTRY,
    &adam::ENTRY,
    &lars::ENTRY,
    &lamb::ENTRY,
];

/// One optimiser of the registry.
#[derive(Debug)]
pub struct OptimizerEntry {
    /// The name users type.
    pub name: &'static str,
    /// One line for help texts.
    pub about: &'static str,
    /// Flags of `paceline train` that it has and not every optimiser, without dashes.
    pub settings: &'static [&'static str],
    /// Names of the state buffers, each as long as the parameters; checkpoints store them so.
    pub slots: &'static [&'static str],
    /// OptimizerSettings that apply unless the user says otherwise.
    pub defaults: OptimizerSettings,
    rule: Rule,
}

impl OptimizerEntry {
    /// Whether an update needs all of a tensor's gradient at once, for its norm: then [`Optimizer::finish`] makes it.
    #[must_use]
    pub const fn whole_tensors(&self) -> bool {
        matches!(self.rule, Rule::Tensors(_))
    }
}

/// What an update hangs on.
#[derive(Debug)]
enum Rule {
    /// Every weight on itself.
    Elements(Apply),
    /// Also on the norms of the tensor it is in.
    Tensors(tensors::ApplyTensor),
}

/// Updates one range: weights, gradient, and the state buffers there.
type Apply = fn(&Pass, &mut [f32], &[f32], [&mut [f32]; MAX_SLOTS]);

/// The most state buffers an optimiser has.
const MAX_SLOTS: usize = 2;

/// Hyper-parameters; an optimiser ignores those it does not have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptimizerSettings {
    /// Learning rate a run starts from.
    pub rate: f32,
    /// Share of the old velocity kept each step (momentum, nesterov), 0..1.
    pub momentum: f32,
    /// Decay of the mean of gradients (adam), 0..1.
    pub beta1: f32,
    /// Decay of the mean of squared gradients (adam), 0..1.
    pub beta2: f32,
    /// Added to the root so that nothing divides by zero (adagrad, adam).
    pub epsilon: f32,
    /// L2 penalty: `weight_decay * w` is added to the gradient.
    pub weight_decay: f32,
    /// Apply the decay to the weights directly instead of through the gradient (adam: AdamW).
    pub decoupled: bool,
}

impl OptimizerSettings {
    const PLAIN: Self = Self {
        rate: 0.01,
        momentum: 0.0,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
    };
}

/// Why an optimiser cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizerError {
    /// No optimiser has that name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// A hyper-parameter is out of range.
    #[error("optimiser `{optimizer}`: {setting} is {found}, must be {wanted}")]
    Setting {
        optimizer: &'static str,
        setting: &'static str,
        found: f32,
        /// What it may be.
        wanted: &'static str,
    },
}

/// Finds an optimiser by name.
///
/// # Errors
/// [`OptimizerError::Unknown`] lists the names there are.
pub fn find(name: &str) -> Result<&'static OptimizerEntry, OptimizerError> {
    let found = ALL.iter().copied().find(|entry| entry.name == name);
    let known = ALL.iter().map(|entry| entry.name);
    found.ok_or_else(|| UnknownName::new("optimiser", name, known).into())
}

/// What one update knows besides its slices.
#[derive(Debug, Clone, Copy)]
struct Pass {
    rate: f32,
    settings: OptimizerSettings,
    /// Updates including this one, from 1: bias correction needs it.
    count: i32,
}

/// The buffers an optimiser keeps between steps: one per slot, each as long as the parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerState {
    buffers: [Buffer; MAX_SLOTS],
    /// The gradient of a step that is not finished, where the optimiser needs whole tensors; no part of what is saved.
    gathered: Buffer,
}

impl OptimizerState {
    /// The buffer of each slot, in the order of [`OptimizerEntry::slots`]; empty for unused slots.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The same, to restore a checkpoint into.
    pub fn buffers_mut(&mut self) -> &mut [Buffer] {
        &mut self.buffers
    }
}

/// An optimiser set up for one layout.
#[derive(Debug, Clone)]
pub struct Optimizer {
    entry: &'static OptimizerEntry,
    settings: OptimizerSettings,
    mask: Mask,
    /// The tensors of the layout, where the optimiser needs them whole.
    tensors: tensors::Tensors,
    unfreeze: Option<Unfreeze>,
}

/// When frozen weights are trained after all.
#[derive(Debug, Clone)]
struct Unfreeze {
    /// The first such step.
    step: u64,
    /// What becomes of them from then on.
    mask: Mask,
}

impl Optimizer {
    /// Checks the settings and notes which ranges of the layout are trained.
    ///
    /// # Errors
    /// [`OptimizerError::Setting`] names the hyper-parameter that is out of range.
    pub fn new(
        entry: &'static OptimizerEntry,
        settings: OptimizerSettings,
        layout: &Layout,
    ) -> Result<Self, OptimizerError> {
        Self::with_mask(entry, settings, layout, Mask::of(layout))
    }

    /// Like [`Optimizer::new`], with some weights frozen by the mask.
    ///
    /// # Errors
    /// [`OptimizerError::Setting`] names the hyper-parameter that is out of range.
    pub fn with_mask(
        entry: &'static OptimizerEntry,
        settings: OptimizerSettings,
        layout: &Layout,
        mask: Mask,
    ) -> Result<Self, OptimizerError> {
        check(entry.name, &settings)?;
        let tensors = tensors::Tensors::of(layout);
        Ok(Self { entry, settings, mask, tensors, unfreeze: None })
    }

    /// Trains what the mask froze from `step` on, as if that were its first: it hangs on the step alone, so that a
    /// resumed run and every server agree.
    #[must_use]
    pub fn unfreezing(mut self, layout: &Layout, step: u64) -> Self {
        self.unfreeze = Some(Unfreeze { step, mask: Mask::of(layout) });
        self
    }

    /// The registry entry it was made from.
    #[must_use]
    pub fn entry(&self) -> &'static OptimizerEntry {
        self.entry
    }

    /// Its hyper-parameters.
    #[must_use]
    pub fn settings(&self) -> &OptimizerSettings {
        &self.settings
    }

    /// Fresh state: all zero.
    #[must_use]
    pub fn state(&self) -> OptimizerState {
        let len = self.mask.len();
        let slots = self.entry.slots.len();
        let len_of = |slot| if slot < slots { len } else { 0 };
        let gathered = if self.entry.whole_tensors() { len } else { 0 };
        OptimizerState {
            buffers: std::array::from_fn(|slot| Buffer::zeroed(len_of(slot))),
            gathered: Buffer::zeroed(gathered),
        }
    }

    /// Applies the gradient of one range.
    ///
    /// `params` and `grad` are the slices of `range`, `state` is whole; `step` counts from 0. Trained
    /// entries follow the optimiser's rule, frozen ones stay, and untrained ones (running
    /// statistics) have their change added. Where the rule needs whole tensors, gradients of trained entries are only
    /// gathered here, and [`Optimizer::finish`] follows when all of them are there.
    ///
    /// # Panics
    /// If the slices are not as long as `range`, or `range` leaves the layout.
    pub fn update(
        &self,
        range: Range<usize>,
        params: &mut [f32],
        grad: &[f32],
        state: &mut OptimizerState,
        rate: f32,
        step: u64,
    ) {
        let slices = Slices::new(&range, params, grad, state);
        self.apply_to(range, &slices, rate, step);
    }

    /// Like [`Optimizer::update`], on several threads where the range is long enough. Elements do not
    /// depend on each other, so the result is the same to the bit.
    ///
    /// # Panics
    /// As [`Optimizer::update`].
    #[allow(clippy::too_many_arguments)] // `update` and where to run it
    pub fn update_on(
        &self,
        pool: &Pool,
        range: Range<usize>,
        params: &mut [f32],
        grad: &[f32],
        state: &mut OptimizerState,
        rate: f32,
        step: u64,
    ) {
        let tasks = (range.len() / TASK_LEN).min(4 * pool.threads());
        if pool.threads() == 1 || tasks <= 1 {
            return self.update(range, params, grad, state, rate, step);
        }
        let slices = Slices::new(&range, params, grad, state);
        // Whole cache lines, so that no two threads write to the same one.
        let each = range.len().div_ceil(tasks).next_multiple_of(16);
        pool.run(tasks, &|task, _| {
            let start = (range.start + task * each).min(range.end);
            let end = (start + each).min(range.end);
            self.apply_to(start..end, &slices, rate, step);
        });
    }

    fn pass(&self, rate: f32, step: u64) -> Pass {
        let count = i32::try_from(step.saturating_add(1)).unwrap_or(i32::MAX);
        Pass { rate, settings: self.settings, count }
    }

    fn apply_to(&self, range: Range<usize>, slices: &Slices<'_>, rate: f32, step: u64) {
        let unfrozen = self.unfreeze.as_ref().filter(|unfreeze| step >= unfreeze.step);
        let pass = self.pass(rate, step);
        for (part, treatment) in self.mask.parts(range) {
            match unfrozen.filter(|_| treatment == Treatment::Freeze) {
                Some(unfreeze) => {
                    // Their state is new: bias is corrected from here.
                    let pass = self.pass(rate, step - unfreeze.step);
                    for (part, treatment) in unfreeze.mask.parts(part) {
                        self.apply_part(part, treatment, slices, &pass);
                    }
                }
                None => self.apply_part(part, treatment, slices, &pass),
            }
        }
    }

    fn apply_part(
        &self,
        part: Range<usize>,
        treatment: Treatment,
        slices: &Slices<'_>,
        pass: &Pass,
    ) {
        // SAFETY: parts of one range, and ranges of different tasks, do not overlap.
        #[allow(unsafe_code)]
        let PartSlices { params, grad, slots, gathered } =
            unsafe { slices.part(part, self.entry.slots.len()) };
        match (treatment, &self.entry.rule) {
            (Treatment::Train, Rule::Elements(apply)) => apply(pass, params, grad, slots),
            (Treatment::Train, Rule::Tensors(_)) => gathered.copy_from_slice(grad),
            (Treatment::Add, _) => {
                for (value, change) in params.iter_mut().zip(grad) {
                    *value += change;
                }
            }
            (Treatment::Freeze, _) => {}
        }
    }
}

/// Elements that are worth a task: below, handing work to another thread costs more than it saves.
const TASK_LEN: usize = 32 * 1024;

/// The slices of a part of an update.
struct PartSlices<'a> {
    params: &'a mut [f32],
    grad: &'a [f32],
    slots: [&'a mut [f32]; MAX_SLOTS],
    /// Empty where nothing is gathered.
    gathered: &'a mut [f32],
}

/// The slices of one update, to be cut up among threads.
struct Slices<'a> {
    /// Position of the first parameter in the whole buffer.
    start: usize,
    params: SendPtr<f32>,
    grad: &'a [f32],
    /// Start and length of each state buffer; whole, unlike the parameters.
    slots: [(SendPtr<f32>, usize); MAX_SLOTS],
    /// The gathered gradient, whole or empty.
    gathered: (SendPtr<f32>, usize),
    borrowed: PhantomData<&'a mut f32>,
}

impl<'a> Slices<'a> {
    fn new(
        range: &Range<usize>,
        params: &'a mut [f32],
        grad: &'a [f32],
        state: &'a mut OptimizerState,
    ) -> Self {
        assert_eq!(params.len(), range.len(), "one parameter per element of the range");
        assert_eq!(grad.len(), range.len(), "one gradient per element of the range");
        let slots =
            state.buffers.each_mut().map(|buffer| (SendPtr(buffer.as_mut_ptr()), buffer.len()));
        let params = SendPtr(params.as_mut_ptr());
        let gathered = (SendPtr(state.gathered.as_mut_ptr()), state.gathered.len());
        Self { start: range.start, params, grad, slots, gathered, borrowed: PhantomData }
    }

    /// The slices of `part`, which is within the range of the update.
    ///
    /// # Safety
    /// No two parts in use at the same time overlap.
    #[allow(unsafe_code)]
    unsafe fn part(&self, part: Range<usize>, used: usize) -> PartSlices<'a> {
        let at = part.start - self.start;
        let grad = &self.grad[at..at + part.len()];
        // SAFETY: as long as the gradient, whose slice was just checked; not overlapping, as the
        // caller promises.
        let params =
            unsafe { std::slice::from_raw_parts_mut(self.params.get().add(at), part.len()) };
        let of_state = |(start, len): (SendPtr<f32>, usize)| {
            assert!(part.end <= len, "optimiser state of {len} elements is for another layout");
            // SAFETY: within the buffer, as just checked; not overlapping, as the caller promises.
            unsafe { std::slice::from_raw_parts_mut(start.get().add(part.start), part.len()) }
        };
        let mut slot = 0;
        let slots = self.slots.map(|buffer| {
            slot += 1;
            if slot > used { &mut [][..] } else { of_state(buffer) }
        });
        let gathered = if self.gathered.1 == 0 { &mut [][..] } else { of_state(self.gathered) };
        PartSlices { params, grad, slots, gathered }
    }
}

fn check(optimizer: &'static str, settings: &OptimizerSettings) -> Result<(), OptimizerError> {
    let wrong =
        |setting, found, wanted| Err(OptimizerError::Setting { optimizer, setting, found, wanted });
    let share = 0.0..1.0;
    if !(settings.rate > 0.0 && settings.rate.is_finite()) {
        return wrong("learning rate", settings.rate, "positive and finite");
    }
    if !share.contains(&settings.momentum) {
        return wrong("momentum", settings.momentum, "at least 0 and below 1");
    }
    if !share.contains(&settings.beta1) {
        return wrong("beta1", settings.beta1, "at least 0 and below 1");
    }
    if !share.contains(&settings.beta2) {
        return wrong("beta2", settings.beta2, "at least 0 and below 1");
    }
    if !(settings.epsilon > 0.0 && settings.epsilon.is_finite()) {
        return wrong("epsilon", settings.epsilon, "positive and finite");
    }
    if !(settings.weight_decay >= 0.0 && settings.weight_decay.is_finite()) {
        return wrong("weight decay", settings.weight_decay, "at least 0 and finite");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
