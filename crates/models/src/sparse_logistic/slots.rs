//! Some weights among millions: read for a worker, changed by its gradient.
//!
//! What a parameter server does with the numbers of a batch. The table is far larger than any cache, so
//! the slots ahead are fetched while this one is worked on; the rule is chosen once a call, not once a
//! weight.

use super::{
    Size, SparseLogistic, Table,
    rules::{Rule, Update},
};

/// Slots ahead that are on their way: about as many as a core can wait for at once, twice.
const AHEAD: usize = 24;

impl SparseLogistic {
    /// Appends the weights of `indices`, each counted from `first`.
    pub fn gather(&self, first: usize, indices: &[u32], weights: &mut Vec<f32>) {
        match *self.rule() {
            Rule::Sgd(rule) => gather(self.table(), rule, first, indices, weights),
            Rule::Adagrad(rule) => gather(self.table(), rule, first, indices, weights),
            Rule::ScaledAdagrad(rule) => gather(self.table(), rule, first, indices, weights),
            Rule::Ftrl(rule) => gather(self.table(), rule, first, indices, weights),
        }
    }

    /// Updates the weights of `indices`, each counted from `first`, by `scale` times their gradients; `sizes` are those of the values
    /// behind them, none where all are 1.
    pub fn apply(&self, first: usize, indices: &[u32], grads: &[f32], sizes: &[Size], scale: f32) {
        let touched = Touched { table: self.table(), first, indices, grads, sizes, scale };
        match *self.rule() {
            Rule::Sgd(rule) => touched.apply(rule),
            Rule::Adagrad(rule) => touched.apply(rule),
            Rule::ScaledAdagrad(rule) => touched.apply(rule),
            Rule::Ftrl(rule) => touched.apply(rule),
        }
    }

    /// The weights from number `first` on, as many as `weights` has room for.
    pub fn read_all(&self, first: usize, weights: &mut [f32]) {
        for (at, weight) in weights.iter_mut().enumerate() {
            *weight = self.weight(first + at);
        }
    }

    /// Updates the weights from number `first` on; those whose gradient is exactly zero stay as they are,
    /// as weights that a batch does not touch do.
    pub fn apply_all(&self, first: usize, grads: &[f32], sizes: &[Size], scale: f32) {
        let (table, rule) = (self.table(), self.rule());
        for (at, &grad) in grads.iter().enumerate() {
            if grad != 0.0 {
                let size = sizes.get(at).copied().unwrap_or(Size::ONE);
                let slot = table.get(first + at);
                table.set(first + at, rule.update_sized(slot, grad * scale, size));
            }
        }
    }
}

fn gather<U: Update>(
    table: &Table,
    rule: U,
    first: usize,
    indices: &[u32],
    weights: &mut Vec<f32>,
) {
    weights.reserve(indices.len());
    for &index in indices.iter().take(AHEAD) {
        table.prefetch(first + index as usize);
    }
    // The last ones ask again for themselves: a branch for them would cost more.
    let ahead = indices.iter().skip(AHEAD).chain(indices.iter().rev().take(AHEAD));
    weights.extend(indices.iter().zip(ahead).map(|(&index, &next)| {
        table.prefetch(first + next as usize);
        rule.weight(table.get(first + index as usize))
    }));
}

/// Gradients of some weights.
struct Touched<'a> {
    table: &'a Table,
    first: usize,
    indices: &'a [u32],
    grads: &'a [f32],
    sizes: &'a [Size],
    scale: f32,
}

impl Touched<'_> {
    fn apply<U: Update>(&self, rule: U) {
        if self.sizes.is_empty() {
            self.each(|slot, grad, _| rule.update(slot, grad));
        } else {
            self.each(|slot, grad, at| rule.update_sized(slot, grad, self.sizes[at]));
        }
    }

    #[inline(always)]
    fn each(&self, update: impl Fn([f32; 2], f32, usize) -> [f32; 2]) {
        let (table, indices) = (self.table, self.indices);
        for &index in indices.iter().take(AHEAD) {
            table.prefetch(self.first + index as usize);
        }
        let ahead = indices.iter().skip(AHEAD).chain(indices.iter().rev().take(AHEAD));
        for (at, ((&index, &grad), &next)) in indices.iter().zip(self.grads).zip(ahead).enumerate()
        {
            table.prefetch(self.first + next as usize);
            let index = self.first + index as usize;
            table.set(index, update(table.get(index), grad * self.scale, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Size, SparseLogistic, rules::find};

    #[test]
    fn some_weights_and_all_weights_learn_alike() {
        for name in ["sgd", "adagrad", "scaled-adagrad", "ftrl"] {
            let settings = find(name).unwrap().defaults;
            let [some, all] = [0, 1].map(|_| SparseLogistic::new(8, name, settings).unwrap());
            let indices: Vec<u32> = (0..100).filter(|n| n % 3 == 1).collect();
            for step in 1..4 {
                let grads: Vec<f32> =
                    indices.iter().map(|&n| (n as f32 + step as f32).sin() + 2.0).collect();
                let sizes: Vec<Size> = indices.iter().map(|&n| Size::of(n as f32 - 7.5)).collect();
                some.apply(10, &indices, &grads, &sizes, 0.5);
                let (mut whole, mut measures) = (vec![0.0; 120], vec![Size::default(); 120]);
                for ((&index, &grad), &size) in indices.iter().zip(&grads).zip(&sizes) {
                    (whole[index as usize], measures[index as usize]) = (grad, size);
                }
                all.apply_all(10, &whole, &measures, 0.5);
            }
            let (mut gathered, mut read) = (Vec::new(), vec![0.0; 120]);
            some.gather(10, &indices, &mut gathered);
            all.read_all(10, &mut read);
            for (&index, &weight) in indices.iter().zip(&gathered) {
                assert_ne!(weight, 0.0);
                assert_eq!(weight, read[index as usize], "{name} {index}");
            }
            assert_eq!(read.iter().filter(|weight| **weight != 0.0).count(), indices.len());
        }
    }

    #[test]
    fn short_lists_are_read_whole() {
        let settings = find("sgd").unwrap().defaults;
        let model = SparseLogistic::new(8, "sgd", settings).unwrap();
        for length in [0, 1, 2, 23, 24, 25, 60] {
            let indices: Vec<u32> = (0..length).collect();
            let mut weights = Vec::new();
            model.gather(0, &indices, &mut weights);
            assert_eq!(weights.len(), length as usize);
        }
    }
}
