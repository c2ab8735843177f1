//! Softmax and cross entropy in one pass.

#![allow(unsafe_code)] // kernel on raw memory

use super::{
    isa::{Isa, Kernel},
    simd::Simd,
};
use crate::model::{Score, StepLoss};

/// Loss of the examples whose logits are the rows of `logits`, which become
/// `scale * (softmax - one hot)`, the gradient.
///
/// # Panics
/// If a label is no class, or rows and labels differ in number.
pub fn cross_entropy(
    isa: Isa,
    logits: &mut [f32],
    classes: usize,
    labels: &[u32],
    scale: f32,
) -> StepLoss {
    let mut total = StepLoss::default();
    rows(isa, logits, classes, labels, scale, |_, _, hit, loss| {
        total.correct += u64::from(hit);
        total.loss_sum += loss;
        total.examples += 1;
    });
    total
}

/// Adds loss, hits and confusion of the examples to `score`; `logits` are spoilt.
///
/// # Panics
/// As [`cross_entropy`].
pub fn score(isa: Isa, logits: &mut [f32], classes: usize, labels: &[u32], score: &mut Score) {
    rows(isa, logits, classes, labels, 0.0, |label, predicted, hit, loss| {
        score.total.correct += u64::from(hit);
        score.total.loss_sum += loss;
        score.total.examples += 1;
        if let Some(count) = score.confusion.get_mut(label * classes + predicted) {
            *count += 1;
        }
    });
}

fn rows(
    isa: Isa,
    logits: &mut [f32],
    classes: usize,
    labels: &[u32],
    scale: f32,
    mut each: impl FnMut(usize, usize, bool, f64),
) {
    assert!(classes > 0 && logits.len() >= classes * labels.len(), "one row of logits per label");
    for (row, &label) in logits.chunks_exact_mut(classes).zip(labels) {
        let label = label as usize;
        assert!(label < classes, "label {label} of {classes} classes");
        // SAFETY: the kernel stays within the row.
        let (predicted, loss) = unsafe { isa.run(Row { row, label, scale }) };
        each(label, predicted, predicted == label, loss);
    }
}

struct Row<'a> {
    row: &'a mut [f32],
    label: usize,
    scale: f32,
}

impl Kernel for Row<'_> {
    /// The most likely class and the loss.
    type Output = (usize, f64);

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> (usize, f64) {
        let len = self.row.len();
        let row = self.row.as_mut_ptr();
        let tail = len / S::LANES * S::LANES;
        // The ragged end, filled up with values that never count.
        let mut end = [f32::NEG_INFINITY; 16];
        end[..len - tail].copy_from_slice(&self.row[tail..]);
        unsafe {
            let mut top = S::load(end.as_ptr());
            // Stays zero unless a logit is infinite or no number: then the loss must not look healthy.
            let mut health = S::zero();
            for at in (0..tail).step_by(S::LANES) {
                let value = S::load(row.add(at));
                top = S::max(value, top);
                health = S::fma(value, S::zero(), health);
            }
            health = S::fma(S::load_partial(row.add(tail), len - tail), S::zero(), health);
            let top = S::largest(top);
            let predicted = self.row.iter().position(|&value| value == top).unwrap_or_default();
            let at_label = self.row[self.label];
            let shift = S::splat(top);
            let mut sum = S::zero();
            for at in (0..tail).step_by(S::LANES) {
                let value = S::exp(S::sub(S::load(row.add(at)), shift));
                S::store(row.add(at), value);
                sum = S::add(sum, value);
            }
            let value = S::exp(S::sub(S::load(end.as_ptr()), shift));
            S::store_partial(row.add(tail), value, len - tail);
            sum = S::add(sum, value);
            let sum = S::sum(sum);
            let factor = S::splat(self.scale / sum);
            for at in (0..len).step_by(S::LANES) {
                let value = S::mul(S::load_partial(row.add(at), len - at), factor);
                S::store_partial(row.add(at), value, len - at);
            }
            *row.add(self.label) -= self.scale;
            let loss = f64::from(sum.ln()) + f64::from(top) - f64::from(at_label);
            (predicted, loss + f64::from(S::sum(health)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    #[test]
    fn loss_and_gradient_match_double_precision() {
        for isa in Isa::available() {
            for classes in [2, 3, 10, 16, 17, 100] {
                let mut logits: Vec<f32> =
                    noise(classes as u64, 5 * classes).iter().map(|value| value * 30.0).collect();
                let labels: Vec<u32> = (0..5).map(|n| (n * 7 % classes) as u32).collect();
                let before = logits.clone();
                let loss = cross_entropy(isa, &mut logits, classes, &labels, 0.25);
                let (mut truth, mut correct) = (0.0, 0);
                for (n, &label) in labels.iter().enumerate() {
                    let row: Vec<f64> =
                        before[n * classes..][..classes].iter().map(|&x| f64::from(x)).collect();
                    let top = row.iter().copied().fold(f64::MIN, f64::max);
                    let sum: f64 = row.iter().map(|x| (x - top).exp()).sum();
                    truth += sum.ln() + top - row[label as usize];
                    correct += u64::from(row[label as usize] == top);
                    for class in 0..classes {
                        let wanted = 0.25
                            * ((row[class] - top).exp() / sum
                                - f64::from(u8::from(class == label as usize)));
                        let found = f64::from(logits[n * classes + class]);
                        assert!((found - wanted).abs() < 1e-6, "{} {classes}", isa.name());
                    }
                }
                assert!((loss.loss_sum - truth).abs() < 1e-4 * truth.max(1.0));
                assert_eq!((loss.correct, loss.examples), (correct, 5));
            }
        }
    }

    #[test]
    fn huge_and_broken_logits_do_not_pass_as_healthy() {
        for isa in Isa::available() {
            let mut logits = vec![1e30, -1e30, 0.0];
            let loss = cross_entropy(isa, &mut logits, 3, &[0], 1.0);
            assert!(loss.loss_sum.abs() < 1e-6 && logits.iter().all(|value| value.is_finite()));
            for bad in [f32::NAN, f32::INFINITY] {
                let loss = cross_entropy(isa, &mut [bad, 0.0, 1.0], 3, &[2], 1.0);
                assert!(loss.loss_sum.is_nan(), "{} {bad}", isa.name());
            }
        }
    }

    #[test]
    fn confusion_counts_label_by_prediction() {
        let mut total = Score { confusion: vec![0; 9], ..Score::default() };
        let mut logits = vec![0.0, 1.0, 0.5, 3.0, 2.0, 1.0];
        score(Isa::current().unwrap(), &mut logits, 3, &[2, 0], &mut total);
        assert_eq!(total.confusion, [1, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!((total.total.correct, total.total.examples), (1, 2));
    }
}
