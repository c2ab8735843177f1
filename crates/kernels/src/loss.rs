//! Softmax and cross entropy in one pass.

#![allow(unsafe_code)] // kernel on raw memory

use super::{
    isa::{Isa, Kernel},
    simd::Simd,
};

/// Loss over one batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepLoss {
    /// Sum of the examples' losses, in nats.
    pub loss_sum: f64,
    /// Examples whose most likely class was the label.
    pub correct: u64,
    /// Examples in the batch.
    pub examples: u64,
}

/// Accumulated over an evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Score {
    /// Loss and hits so far.
    pub total: StepLoss,
    /// `classes * classes` counts, row = label, column = prediction; left alone when empty.
    pub confusion: Vec<u64>,
    /// The probability of every class, example after example; not collected where there is no list.
    pub probabilities: Option<Vec<f32>>,
}

/// Loss of the examples whose logits are the rows of `logits`, which become
/// `scale * (softmax - one hot)`, the gradient.
///
/// # Panics
/// If a label is not a class, or rows and labels differ in number.
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
    // What becomes of the logits at a scale of 1 are the probabilities, less 1 at the label.
    let scale = if score.probabilities.is_some() { 1.0 } else { 0.0 };
    rows(isa, logits, classes, labels, scale, |label, predicted, hit, loss| {
        score.total.correct += u64::from(hit);
        score.total.loss_sum += loss;
        score.total.examples += 1;
        if let Some(count) = score.confusion.get_mut(label * classes + predicted) {
            *count += 1;
        }
    });
    if let Some(probabilities) = &mut score.probabilities {
        for (row, &label) in logits.chunks_exact(classes).zip(labels) {
            let start = probabilities.len();
            probabilities.extend_from_slice(row);
            probabilities[start + label as usize] += 1.0;
        }
    }
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

/// Classes up to which rows are worked on side by side, one per lane: a row of ten fills no vector, and
/// its maximum and sum cost more than all of its exponentials.
const MOST_ABREAST: usize = 32;

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
        let whole = if len <= MOST_ABREAST { self.labels.len() / S::LANES * S::LANES } else { 0 };
        let (abreast, logits) = self.logits.split_at_mut(whole * len);
        let (labels_abreast, labels) = self.labels.split_at(whole);
        for (rows, labels) in
            abreast.chunks_exact_mut(S::LANES * len).zip(labels_abreast.chunks_exact(S::LANES))
        {
            // SAFETY: as many rows as lanes and labels.
            unsafe { rows_abreast::<S>(rows, len, labels, self.scale, &mut self.each) };
        }
        // Lanes beyond the last class get minus infinity, so that they never count.
        let tail = (len - 1) / S::LANES * S::LANES;
        let mut beyond = [f32::NEG_INFINITY; 16];
        beyond[..len - tail].fill(0.0);
        for (row, &label) in logits.chunks_exact_mut(len).zip(labels) {
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

/// As many rows as there are lanes, each in a lane of its own; they become their gradients.
///
/// # Safety
/// The CPU has `S`. (Rows and labels are indexed with checks.)
#[inline(always)]
unsafe fn rows_abreast<S: Simd>(
    rows: &mut [f32],
    classes: usize,
    labels: &[u32],
    scale: f32,
    each: &mut impl FnMut(usize, usize, bool, f64),
) {
    let mut lanes = [[0f32; 16]; MOST_ABREAST];
    let lanes = &mut lanes[..classes];
    let [mut tops, mut sums, mut ranks, mut healths] = [[0f32; 16]; 4];
    for (lane, row) in rows.chunks_exact(classes).enumerate() {
        for (class, &logit) in row.iter().enumerate() {
            lanes[class][lane] = logit;
        }
    }
    // SAFETY: every array has room for all lanes.
    unsafe {
        let mut top = S::load(lanes[0].as_ptr());
        // Stays zero unless a logit is infinite or no number: then the loss must not look healthy.
        let mut health = S::zero();
        for logits in lanes.iter() {
            let value = S::load(logits.as_ptr());
            top = S::max(value, top);
            health = S::fma(value, S::zero(), health);
        }
        // The first of equal logits has the highest rank; no class has a rank if a logit is NaN.
        let (mut rank, mut best, mut sum) = (S::splat(classes as f32), S::zero(), S::zero());
        for logits in lanes.iter_mut() {
            let value = S::load(logits.as_ptr());
            best = S::max(S::keep_equal(value, top, rank), best);
            rank = S::sub(rank, S::splat(1.0));
            let value = S::exp(S::sub(value, top));
            sum = S::add(sum, value);
            S::store(logits.as_mut_ptr(), value);
        }
        let factor = S::div(S::splat(scale), sum);
        for values in lanes.iter_mut() {
            S::store(values.as_mut_ptr(), S::mul(S::load(values.as_ptr()), factor));
        }
        S::store(tops.as_mut_ptr(), top);
        S::store(sums.as_mut_ptr(), sum);
        S::store(ranks.as_mut_ptr(), best);
        S::store(healths.as_mut_ptr(), health);
    }
    for (lane, (row, &label)) in rows.chunks_exact_mut(classes).zip(labels).enumerate() {
        let label = label as usize;
        assert!(label < classes, "label {label} of {classes} classes");
        let at_label = row[label];
        for (class, value) in row.iter_mut().enumerate() {
            *value = lanes[class][lane];
        }
        row[label] -= scale;
        let predicted = (classes - ranks[lane] as usize) % classes;
        let loss = f64::from(sums[lane].ln()) + f64::from(tops[lane]) - f64::from(at_label);
        each(label, predicted, predicted == label, loss + f64::from(healths[lane]));
    }
}

/// The most likely class and the loss of one row, which becomes its gradient. `tail` is where the last,
/// perhaps ragged, vector begins, and `beyond` what is added to it.
///
/// # Safety
/// The CPU has `S`; `tail` is the last multiple of the lanes below the length, and `label` is below the length.
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
    // SAFETY: whole vectors up to `tail`, then what is left; classes below the length.
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
    use crate::noise;

    #[test]
    fn loss_and_gradient_match_double_precision() {
        for isa in Isa::available() {
            // Few rows go one by one, many side by side with some left over.
            for (rows, classes) in [2, 3, 10, 16, 17, 32, 33, 100]
                .into_iter()
                .flat_map(|classes| [5, 16, 39].map(|rows| (rows, classes)))
            {
                let logits = noise(classes as u64, rows * classes);
                let mut logits: Vec<f32> = logits.iter().map(|value| value * 30.0).collect();
                let labels: Vec<u32> = (0..rows).map(|n| (n * 7 % classes) as u32).collect();
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
                assert_eq!((loss.correct, loss.examples), (correct, rows as u64));
            }
        }
    }

    #[test]
    fn huge_and_broken_logits_do_not_pass_as_healthy() {
        for isa in Isa::available() {
            let mut logits = vec![1e30, -1e30, 0.0];
            let loss = cross_entropy(isa, &mut logits, 3, &[0], 1.0);
            assert!(loss.loss_sum.abs() < 1e-6 && logits.iter().all(|value| value.is_finite()));
            for (bad, rows) in
                [(f32::NAN, 1), (f32::INFINITY, 1), (f32::NAN, 16), (f32::INFINITY, 16)]
            {
                for at in 0..3 {
                    let mut logits = [0.5, 0.0, 1.0].repeat(rows);
                    logits[3 * (rows / 2) + at] = bad;
                    let loss = cross_entropy(isa, &mut logits, 3, &vec![2; rows], 1.0);
                    assert!(loss.loss_sum.is_nan(), "{} {bad}, {rows} rows", isa.name());
                }
            }
        }
    }

    #[test]
    fn the_first_of_equals_is_the_prediction_in_every_lane() {
        for isa in Isa::available() {
            for rows in [1, 16, 33] {
                let mut total = Score { confusion: vec![0; 16], ..Score::default() };
                let mut logits = [1.0, 3.0, 3.0, -2.0].repeat(rows);
                score(isa, &mut logits, 4, &vec![2; rows], &mut total);
                assert_eq!(total.confusion[2 * 4 + 1], rows as u64, "{} {rows}", isa.name());
            }
        }
    }

    #[test]
    fn probabilities_are_those_of_the_softmax_whatever_the_label() {
        for isa in Isa::available() {
            for (rows, classes) in [(1, 3), (33, 3), (5, 40)] {
                let logits: Vec<f32> =
                    noise(7, rows * classes).iter().map(|value| value * 8.0).collect();
                let labels: Vec<u32> = (0..rows).map(|row| (row % classes) as u32).collect();
                let mut total = Score { probabilities: Some(Vec::new()), ..Score::default() };
                score(isa, &mut logits.clone(), classes, &labels, &mut total);
                let found = total.probabilities.unwrap();
                assert_eq!(found.len(), logits.len());
                for (row, found) in logits.chunks(classes).zip(found.chunks(classes)) {
                    let sum: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
                    for (&logit, &found) in row.iter().zip(found) {
                        let wanted = f64::from(logit).exp() / sum;
                        assert!((f64::from(found) - wanted).abs() < 1e-6, "{found} {wanted}");
                    }
                }
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
