//! Updates that hang on the norms of whole tensors: large batches keep their learning rate in every layer.
//!
//! Gradients come in pieces, so they are gathered first; the update follows when all are there. A tensor is updated on one
//! thread, in one order, so that the number of threads changes no bit.

use super::{MAX_SLOTS, Optimizer, OptimizerState, PartSlices, Pass, Rule, Slices, Treatment};
use crate::{layout::Layout, threads::Pool};
use std::ops::Range;

/// Updates one tensor: weights, gradient, state, and what it takes over from the tensor before it.
pub(super) type ApplyTensor = fn(&Pass, Tensor<'_>, &mut f32);

/// A tensor at work.
pub(super) struct Tensor<'a> {
    pub(super) weights: &'a mut [f32],
    pub(super) grad: &'a [f32],
    pub(super) slots: [&'a mut [f32]; MAX_SLOTS],
    /// Whether it is a bias, or scale and shift of a normalisation: one dimension.
    pub(super) is_vector: bool,
}

/// Groups of tensors: one of several dimensions and the vectors that follow it.
#[derive(Debug, Clone, Default)]
pub(super) struct Tensors(Vec<Vec<(Range<usize>, bool)>>);

impl Tensors {
    pub(super) fn of(layout: &Layout) -> Self {
        let mut groups: Vec<Vec<(Range<usize>, bool)>> = Vec::new();
        for entry in layout.entries() {
            let is_vector = entry.shape.len() < 2;
            match groups.last_mut() {
                Some(group) if is_vector => group.push((entry.range(), is_vector)),
                _ => groups.push(vec![(entry.range(), is_vector)]),
            }
        }
        Self(groups)
    }

    /// The beginning of the group nearest to `at`: where the parameters may be cut.
    fn nearest(&self, at: usize) -> usize {
        let ends = self.0.iter().filter_map(|group| group.last()).map(|(range, _)| range.end);
        std::iter::once(0).chain(ends).min_by_key(|end| end.abs_diff(at)).unwrap_or(0)
    }
}

impl Optimizer {
    /// Where parameters may be cut among those who update them: at `at`, or at the tensor nearest to it.
    #[must_use]
    pub fn cut(&self, at: usize) -> usize {
        if self.entry.whole_tensors() { self.tensors.nearest(at) } else { at }
    }

    /// Makes the update of a step whose gradients are all gathered; `params` are those of `range`, which cuts no tensor.
    /// Nothing where [`Optimizer::update`] has made it already.
    ///
    /// # Panics
    /// As [`Optimizer::update`], and if `range` cuts a tensor.
    pub fn finish(
        &self,
        pool: &Pool,
        range: Range<usize>,
        params: &mut [f32],
        state: &mut OptimizerState,
        rate: f32,
        step: u64,
    ) {
        let Rule::Tensors(apply) = self.entry.rule else { return };
        let gathered = std::mem::take(&mut state.gathered);
        let slices = Slices::new(&range, params, &gathered[range.clone()], state);
        let inside = |group: &&Vec<(Range<usize>, bool)>| {
            group.iter().any(|(own, _)| own.start < range.end && own.end > range.start)
        };
        let groups: Vec<_> = self.tensors.0.iter().filter(inside).collect();
        let work = |group: &[(Range<usize>, bool)]| {
            let mut carried = 1.0;
            for (own, is_vector) in group.iter().filter(|(own, _)| !own.is_empty()) {
                assert!(range.start <= own.start && own.end <= range.end, "a tensor is cut");
                let Some(pass) = self.pass_of(own, rate, step) else { continue };
                // SAFETY: tensors do not overlap, and each is in one group.
                #[allow(unsafe_code)]
                let PartSlices { params: weights, grad, slots, .. } =
                    unsafe { slices.part(own.clone(), self.entry.slots.len()) };
                let tensor = Tensor { weights, grad, slots, is_vector: *is_vector };
                apply(&pass, tensor, &mut carried);
            }
        };
        if pool.threads() == 1 || range.len() < super::TASK_LEN {
            groups.iter().for_each(|group| work(group));
        } else {
            pool.run(groups.len(), &|task, _| work(groups[task]));
        }
        state.gathered = gathered;
    }

    /// How a tensor is updated; nothing where it is not trained.
    fn pass_of(&self, own: &Range<usize>, rate: f32, step: u64) -> Option<Pass> {
        let treatment = |mask: &super::Mask| mask.parts(own.clone()).next().map(|part| part.1);
        let trained = |treatment| treatment == Some(Treatment::Train);
        if trained(treatment(&self.mask)) {
            return Some(self.pass(rate, step));
        }
        let frozen = treatment(&self.mask) == Some(Treatment::Freeze);
        let unfrozen = self.unfreeze.as_ref().filter(|one| frozen && step >= one.step)?;
        trained(treatment(&unfrozen.mask)).then(|| self.pass(rate, step - unfrozen.step))
    }
}

/// The Euclidean norm, in double precision and in a fixed order, so that every instruction set gives the same bits.
#[inline(always)]
pub(super) fn norm(values: impl Iterator<Item = f32>) -> f64 {
    let mut lanes = [0.0f64; 16];
    let mut lane = 0;
    for value in values {
        lanes[lane] += f64::from(value) * f64::from(value);
        lane = (lane + 1) % 16;
    }
    lanes.iter().sum::<f64>().sqrt()
}
