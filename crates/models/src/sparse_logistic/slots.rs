//! Some weights among millions: read for a worker, changed by its gradient.
//!
//! What a parameter server does with the numbers of a batch. The table is far larger than any cache, so
//! the slots ahead are fetched while this one is worked on; the rule is chosen once a call, not once a
//! weight.

use super::{
    SparseLogistic, Table,
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
            Rule::Ftrl(rule) => gather(self.table(), rule, first, indices, weights),
        }
    }

    /// Updates the weights of `indices`, each counted from `first`, by `scale` times their gradients.
    pub fn apply(&self, first: usize, indices: &[u32], grads: &[f32], scale: f32) {
        match *self.rule() {
            Rule::Sgd(rule) => apply(self.table(), rule, first, indices, grads, scale),
            Rule::Adagrad(rule) => apply(self.table(), rule, first, indices, grads, scale),
            Rule::Ftrl(rule) => apply(self.table(), rule, first, indices, grads, scale),
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
    pub fn apply_all(&self, first: usize, grads: &[f32], scale: f32) {
        let (table, rule) = (self.table(), self.rule());
        for (at, &grad) in grads.iter().enumerate() {
            if grad != 0.0 {
                table.set(first + at, rule.update(table.get(first + at), grad * scale));
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

fn apply<U: Update>(
    table: &Table,
    rule: U,
    first: usize,
    indices: &[u32],
    grads: &[f32],
    scale: f32,
) {
    for &index in indices.iter().take(AHEAD) {
        table.prefetch(first + index as usize);
    }
    let ahead = indices.iter().skip(AHEAD).chain(indices.iter().rev().take(AHEAD));
    for ((&index, &grad), &next) in indices.iter().zip(grads).zip(ahead) {
        table.prefetch(first + next as usize);
        let index = first + index as usize;
        table.set(index, rule.update(table.get(index), grad * scale));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SparseLogistic, rules::find};

    #[test]
    fn some_weights_and_all_weights_learn_alike() {
        for name in ["sgd", "adagrad", "ftrl"] {
            let settings = find(name).unwrap().defaults;
            let [some, all] = [0, 1].map(|_| SparseLogistic::new(8, name, settings).unwrap());
            let indices: Vec<u32> = (0..100).filter(|n| n % 3 == 1).collect();
            for step in 1..4 {
                let grads: Vec<f32> =
                    indices.iter().map(|&n| (n as f32 + step as f32).sin() + 2.0).collect();
                some.apply(10, &indices, &grads, 0.5);
                let mut whole = vec![0.0; 120];
                for (&index, &grad) in indices.iter().zip(&grads) {
                    whole[index as usize] = grad;
                }
                all.apply_all(10, &whole, 0.5);
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
