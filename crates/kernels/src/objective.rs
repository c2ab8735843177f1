//! What training minimises: cross entropy as it is, smoothed, weighted by class, or the hinge loss of a support vector machine.
//!
//! Plain cross entropy has a kernel of its own ([`crate::loss`]); the others are asked for seldom, and cost little beside
//! the layers in front of them.

use crate::{
    isa::Isa,
    loss::{self, Score, StepLoss},
};

/// What training minimises.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objective {
    /// Share of each label that is dealt out among all classes; 0 for none.
    pub smoothing: f32,
    /// What an example of each class counts; 1 where the list is empty.
    pub class_weights: Vec<f32>,
    /// Whether classes shall be apart by a margin of 1, and more of it earns nothing.
    pub hinge: bool,
}

impl Objective {
    fn is_plain(&self) -> bool {
        self.smoothing == 0.0 && self.class_weights.is_empty() && !self.hinge
    }

    /// Loss of the examples whose logits are the rows of `logits`, which become the gradient, times `scale`.
    ///
    /// # Panics
    /// If a label is not a class, or rows and labels differ in number.
    pub fn gradient(
        &self,
        isa: Isa,
        logits: &mut [f32],
        classes: usize,
        labels: &[u32],
        scale: f32,
    ) -> StepLoss {
        if self.is_plain() {
            return loss::cross_entropy(isa, logits, classes, labels, scale);
        }
        assert!(classes > 0 && logits.len() >= classes * labels.len(), "a row for each label");
        let mut total = StepLoss { examples: labels.len() as u64, ..StepLoss::default() };
        for (row, &label) in logits.chunks_exact_mut(classes).zip(labels) {
            let label = label as usize;
            let weight = self.class_weights.get(label).copied().unwrap_or(1.0);
            total.correct += u64::from(largest(row) == Some(label));
            total.loss_sum += f64::from(weight)
                * if self.hinge {
                    let loss = hinge(row, label);
                    hinge_gradient(row, label, weight * scale);
                    loss
                } else {
                    smoothed(row, label, self.smoothing, weight * scale)
                };
        }
        total
    }

    /// Adds loss, hits and confusion of the examples to `score`, unsmoothed and with all classes alike, so that scores can be
    /// compared between runs; `logits` are spoilt.
    ///
    /// # Panics
    /// As [`Objective::gradient`].
    pub fn score(
        &self,
        isa: Isa,
        logits: &mut [f32],
        classes: usize,
        labels: &[u32],
        score: &mut Score,
    ) {
        let own = self.hinge.then(|| {
            let rows = logits.chunks_exact(classes).zip(labels);
            score.total.loss_sum + rows.map(|(row, &label)| hinge(row, label as usize)).sum::<f64>()
        });
        loss::score(isa, logits, classes, labels, score);
        if let Some(sum) = own {
            score.total.loss_sum = sum;
        }
    }
}

/// The first of the largest; none where a value is NaN.
fn largest(row: &[f32]) -> Option<usize> {
    let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|&value| value == top)
}

/// Cross entropy with a label of which a share is dealt out among all classes. The row becomes its gradient.
fn smoothed(row: &mut [f32], label: usize, share: f32, scale: f32) -> f64 {
    let top = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = row.iter().map(|&logit| (f64::from(logit) - top).exp()).sum();
    let log_sum = top + sum.ln();
    let (share, even) = (f64::from(share), f64::from(share) / row.len() as f64);
    let at_label = log_sum - f64::from(row[label]);
    let mean = row.iter().map(|&logit| log_sum - f64::from(logit)).sum::<f64>() * even;
    for (class, value) in row.iter_mut().enumerate() {
        let wanted = even + if class == label { 1.0 - share } else { 0.0 };
        let found = (f64::from(*value) - log_sum).exp();
        *value = (f64::from(scale) * (found - wanted)) as f32;
    }
    (1.0 - share) * at_label + mean
}

/// By how much the other classes come closer to the label's than 1, added up.
fn hinge(row: &[f32], label: usize) -> f64 {
    let own = f64::from(row[label]);
    let others = row.iter().enumerate().filter(|(class, _)| *class != label);
    let loss: f64 = others.map(|(_, &value)| (1.0 + f64::from(value) - own).max(0.0)).sum();
    // `max` hides a logit that is NaN, and a diverged run with it.
    loss + row.iter().map(|&value| f64::from(value) * 0.0).sum::<f64>()
}

fn hinge_gradient(row: &mut [f32], label: usize, scale: f32) {
    let own = row[label];
    let mut close = 0;
    for (class, value) in row.iter_mut().enumerate() {
        let counts = class != label && 1.0 + *value - own > 0.0;
        close += u32::from(counts);
        *value = if counts { scale } else { 0.0 };
    }
    row[label] = -scale * close as f32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise;

    const CLASSES: usize = 5;

    fn objectives() -> [Objective; 4] {
        let weights = vec![0.5, 1.0, 2.0, 1.0, 3.0];
        [
            Objective { smoothing: 0.1, ..Objective::default() },
            Objective { class_weights: weights.clone(), ..Objective::default() },
            Objective { smoothing: 0.3, class_weights: weights.clone(), hinge: false },
            Objective { class_weights: weights, hinge: true, smoothing: 0.0 },
        ]
    }

    #[test]
    fn gradients_are_those_of_the_loss() {
        let isa = Isa::current().unwrap();
        let labels = [0, 1, 2, 3, 4, 2];
        for objective in objectives() {
            let start: Vec<f32> =
                noise(4, CLASSES * labels.len()).iter().map(|v| v * 2.0).collect();
            let mut grad = start.clone();
            let loss = objective.gradient(isa, &mut grad, CLASSES, &labels, 0.5);
            assert_eq!(loss.examples, 6);
            for at in 0..start.len() {
                let loss_at = |by: f32| {
                    let mut moved = start.clone();
                    moved[at] += by;
                    objective.gradient(isa, &mut moved, CLASSES, &labels, 0.0).loss_sum
                };
                let found = (loss_at(1e-3) - loss_at(-1e-3)) / 2e-3;
                let wanted = f64::from(grad[at]) / 0.5;
                assert!((found - wanted).abs() < 2e-2, "{objective:?} {at}: {found} {wanted}");
            }
        }
    }

    #[test]
    fn without_wishes_it_is_cross_entropy_and_smoothing_costs_the_sure() {
        let isa = Isa::current().unwrap();
        let logits = noise(9, CLASSES * 3);
        let (mut one, mut other) = (logits.clone(), logits.clone());
        let plain = Objective::default().gradient(isa, &mut one, CLASSES, &[1, 2, 3], 1.0);
        let almost = Objective { class_weights: vec![1.0; CLASSES], ..Objective::default() };
        let same = almost.gradient(isa, &mut other, CLASSES, &[1, 2, 3], 1.0);
        assert!((plain.loss_sum - same.loss_sum).abs() < 1e-5 && plain.correct == same.correct);
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-6));
        let smooth = Objective { smoothing: 0.1, ..Objective::default() };
        let sure = smooth.gradient(isa, &mut [20.0, 0.0, 0.0, 0.0, 0.0], CLASSES, &[0], 1.0);
        assert!(sure.loss_sum > 1.0, "{sure:?}");
    }

    #[test]
    fn broken_logits_do_not_pass_as_healthy() {
        let isa = Isa::current().unwrap();
        for objective in objectives() {
            for bad in [f32::NAN, f32::INFINITY] {
                let mut logits = [0.0, bad, 1.0, 2.0, 3.0];
                let loss = objective.gradient(isa, &mut logits, CLASSES, &[0], 1.0);
                assert!(!loss.loss_sum.is_finite(), "{objective:?} {bad}");
            }
        }
    }

    #[test]
    fn scores_are_plain_but_for_the_hinge() {
        let isa = Isa::current().unwrap();
        let logits = noise(2, CLASSES * 4);
        let labels = [0, 1, 2, 3];
        let scored = |objective: &Objective| {
            let mut score = Score::default();
            objective.score(isa, &mut logits.clone(), CLASSES, &labels, &mut score);
            score.total
        };
        let [smooth, weighted, both, apart] = objectives();
        let plain = scored(&Objective::default());
        for other in [smooth, weighted, both] {
            assert_eq!(scored(&other), plain);
        }
        let apart = scored(&apart);
        assert_eq!(apart.correct, plain.correct);
        let wanted: f64 =
            logits.chunks(CLASSES).zip(labels).map(|(row, label)| hinge(row, label as usize)).sum();
        assert!((apart.loss_sum - wanted).abs() < 1e-9);
    }
}
