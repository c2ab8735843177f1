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
    each: impl FnMut(usize, usize, bool, f64),
) {
    assert!(classes > 0 && logits.len() >= classes * labels.len(), "one row of logits per label");
    // SAFETY: the kernel stays within the rows that the line above found to be there.
    unsafe { isa.run(Rows { logits, classes, labels, scale, each }) }
}

/// All rows in one kernel: at ten classes a call per row would cost as much as the row.
struct Rows<'a, F> {
    logits: &'a mut [f32],
    classes: usize,
    labels: &'a [u32],
    scale: f32,
    each: F,
}

impl<F: FnMut(usize, usize, bool, f64)> Kernel for Rows<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let len = self.classes;
        // Lanes beyond the last class get minus infinity, so that they never count.
        let tail = (len - 1) / S::LANES * S::LANES;
        let mut beyond = [f32::NEG_INFINITY; 16];
        beyond[..len - tail].fill(0.0);
        for (row, &label) in self.logits.chunks_exact_mut(len).zip(self.labels) {
            let label = label as usize;
            assert!(label < len, "label {label} of {len} classes");
            // SAFETY: row and label fit each other, as the two lines above make sure.
            let (predicted, loss) = unsafe {
                let beyond = S::load(beyond.as_ptr());
                one_row::<S>(row, tail, beyond, label, self.scale)
            };
            (self.each)(label, predicted, predicted == label, loss);
        }
    }
}

/// The most likely class and the loss of one row, which becomes its gradient. `tail` is where the last,
/// perhaps ragged, vector begins, and `beyond` what is added to it.
#[inline(always)]
unsafe fn one_row<S: Simd>(
    values: &mut [f32],
    tail: usize,
    beyond: S::V,
    label: usize,
    scale: f32,
) -> (usize, f64) {
    let len = values.len();
    let row = values.as_mut_ptr();
    unsafe {
        let end = S::load_partial(row.add(tail), len - tail);
        // Stays zero unless a logit is infinite or no number: then the loss must not look healthy.
        let mut health = S::mul(end, S::zero());
        let end = S::add(end, beyond);
        let mut top = end;
        for at in (0..tail).step_by(S::LANES) {
            let value = S::load(row.add(at));
            top = S::max(value, top);
            health = S::fma(value, S::zero(), health);
        }
        let top = S::largest(top);
        // Backwards and without a way out, so that the first of equals wins and no branch is guessed.
        let mut predicted = 0;
        for class in (0..len).rev() {
            predicted = if *row.add(class) == top { class } else { predicted };
        }
        let at_label = *row.add(label);
        let shift = S::splat(top);
        let end = S::exp(S::sub(end, shift));
        let mut sum = end;
        for at in (0..tail).step_by(S::LANES) {
            let value = S::exp(S::sub(S::load(row.add(at)), shift));
            S::store(row.add(at), value);
            sum = S::add(sum, value);
        }
        let sum = S::sum(sum);
        let factor = S::splat(scale / sum);
        for at in (0..tail).step_by(S::LANES) {
            S::store(row.add(at), S::mul(S::load(row.add(at)), factor));
        }
        S::store_partial(row.add(tail), S::mul(end, factor), len - tail);
        *row.add(label) -= scale;
        let loss = f64::from(sum.ln()) + f64::from(top) - f64::from(at_label);
        (predicted, loss + f64::from(S::sum(health)))
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
