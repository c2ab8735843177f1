//! Updates of a few weights among many.
//!
//! The weights a sparse batch touches are gathered into a small block, updated by the same loop as
//! dense ones and put back, so there is one definition of every optimiser. Weights without a
//! gradient stay as they are, and so does their state: the same as a dense update with zeros for
//! sgd and adagrad without decay, the usual lazy form for the others.

use super::{MAX_SLOTS, Optimizer, State, mask::Treatment};

/// Weights gathered at a time; they and their state fit the first-level cache.
const BLOCK: usize = 512;

impl Optimizer {
    /// Applies the gradients of some weights.
    ///
    /// `params` are the weights from number `first` of the layout on, `indices` ascending positions
    /// among them, `grads` one value for each; `state` is whole; `step` counts from 0.
    ///
    /// # Panics
    /// If an index leaves `params` or the layout, or the lengths differ.
    #[allow(clippy::too_many_arguments)] // `update` and which weights
    pub fn update_sparse(
        &self,
        first: usize,
        indices: &[u32],
        grads: &[f32],
        params: &mut [f32],
        state: &mut State,
        rate: f32,
        step: u64,
    ) {
        assert_eq!(indices.len(), grads.len(), "one gradient per index");
        let pass = self.pass(rate, step);
        let slots = self.entry.slots.len();
        let mut block = [0.0f32; BLOCK];
        let mut kept = [[0.0f32; BLOCK]; MAX_SLOTS];
        for (indices, grads) in indices.chunks(BLOCK).zip(grads.chunks(BLOCK)) {
            let (Some(low), Some(high)) = (indices.first(), indices.last()) else { continue };
            let range = first + *low as usize..first + *high as usize + 1;
            for (part, treatment) in self.mask.parts(range) {
                let from = indices.partition_point(|index| first + (*index as usize) < part.start);
                let to = indices.partition_point(|index| first + (*index as usize) < part.end);
                let (indices, grads) = (&indices[from..to], &grads[from..to]);
                match treatment {
                    Treatment::Freeze => {}
                    Treatment::Add => {
                        for (index, change) in indices.iter().zip(grads) {
                            params[*index as usize] += change;
                        }
                    }
                    Treatment::Train => {
                        for (to, index) in block.iter_mut().zip(indices) {
                            *to = params[*index as usize];
                        }
                        for (kept, buffer) in kept.iter_mut().zip(&state.buffers).take(slots) {
                            for (to, index) in kept.iter_mut().zip(indices) {
                                *to = buffer[first + *index as usize];
                            }
                        }
                        let mut used = 0;
                        let views = kept.each_mut().map(|kept| {
                            used += 1;
                            if used <= slots { &mut kept[..indices.len()] } else { &mut [][..] }
                        });
                        (self.entry.apply)(&pass, &mut block[..indices.len()], grads, views);
                        for (from, index) in block.iter().zip(indices) {
                            params[*index as usize] = *from;
                        }
                        for (kept, buffer) in kept.iter().zip(&mut state.buffers).take(slots) {
                            for (from, index) in kept.iter().zip(indices) {
                                buffer[first + *index as usize] = *from;
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        layout::Layout,
        optimizer::{self, Mask, Optimizer},
    };

    #[test]
    fn some_weights_move_as_if_all_others_had_no_gradient() {
        let mut layout = Layout::default();
        layout.push("a", &[900], true);
        layout.push("frozen", &[60], true);
        layout.push("running", &[40], false);
        layout.push("b", &[1_000], true);
        let indices: Vec<u32> =
            (0..2_000).filter(|i| i % 3 == 0 || (900..1_000).contains(i)).collect();
        for name in ["sgd", "adagrad"] {
            let entry = optimizer::find(name).unwrap();
            let mask = Mask::freezing(&layout, |name| name == "frozen");
            let optimizer = Optimizer::with_mask(entry, entry.defaults, mask).unwrap();
            let (mut dense, mut sparse) = (vec![0.5f32; 2_000], vec![0.5f32; 2_000]);
            let (mut dense_state, mut sparse_state) = (optimizer.state(), optimizer.state());
            for step in 0..3 {
                let grads: Vec<f32> =
                    indices.iter().map(|i| (*i as f32 * 0.37 + step as f32).sin()).collect();
                let mut whole = vec![0.0; 2_000];
                for (index, grad) in indices.iter().zip(&grads) {
                    whole[*index as usize] = *grad;
                }
                optimizer.update(0..2_000, &mut dense, &whole, &mut dense_state, 0.1, step);
                // In two pieces, as two servers would.
                let (low, high) = sparse.split_at_mut(800);
                let cut = indices.partition_point(|index| *index < 800);
                let above: Vec<u32> = indices[cut..].iter().map(|index| index - 800).collect();
                let state = &mut sparse_state;
                optimizer.update_sparse(0, &indices[..cut], &grads[..cut], low, state, 0.1, step);
                optimizer.update_sparse(800, &above, &grads[cut..], high, state, 0.1, step);
            }
            assert_eq!(dense, sparse, "{name}");
            assert_eq!(dense_state, sparse_state, "{name}");
            assert_eq!(dense[930], 0.5, "frozen");
            assert_ne!(dense[961], 0.5, "statistics move");
        }
    }
}
