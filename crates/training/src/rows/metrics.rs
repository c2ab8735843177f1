//! Loss, accuracy, area under the curve and normalised entropy, in one pass and constant memory.

use paceline_models::sparse_logistic::RowLoss;
use serde::{Deserialize, Serialize};

/// Logits are counted in steps of 1/128 between -16 and 16: finer than any ranking one could notice,
/// and beyond 16 a probability is 1 to seven digits.
const STEPS: f32 = 128.0;
const BINS: usize = 4096;

/// Counts over some rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Counts", into = "Counts")]
pub struct Totals {
    pub rows: u64,
    /// Sum of their losses, in nats.
    pub loss: f64,
    /// Rows whose more likely label was right.
    pub correct: u64,
    /// Rows of label 1.
    pub positive: u64,
    /// Rows per step of the logit: label 0 and label 1.
    bins: Box<[[u64; 2]]>,
    kind: RowLoss,
}

impl Default for Totals {
    fn default() -> Self {
        let bins = vec![[0; 2]; BINS].into_boxed_slice();
        Self { rows: 0, loss: 0.0, correct: 0, positive: 0, bins, kind: RowLoss::default() }
    }
}

/// Counts on their way between tasks: only the steps of the logit that occur.
#[derive(Serialize, Deserialize)]
struct Counts {
    rows: u64,
    loss: f64,
    correct: u64,
    positive: u64,
    bins: Vec<(usize, u64, u64)>,
    #[serde(default, skip_serializing_if = "is_false")]
    hinge: bool,
}

impl From<Totals> for Counts {
    fn from(totals: Totals) -> Self {
        let Totals { rows, loss, correct, positive, bins, kind } = totals;
        let bins = bins.iter().enumerate().map(|(at, bin)| (at, bin[0], bin[1]));
        let bins = bins.filter(|(_, no, yes)| no + yes > 0).collect();
        Self { rows, loss, correct, positive, bins, hinge: kind == RowLoss::Hinge }
    }
}

impl From<Counts> for Totals {
    fn from(counts: Counts) -> Self {
        let Counts { rows, loss, correct, positive, bins, hinge } = counts;
        let kind = if hinge { RowLoss::Hinge } else { RowLoss::Logistic };
        let mut totals = Self { rows, loss, correct, positive, ..Self::of(kind) };
        for (at, no, yes) in bins {
            if let Some(bin) = totals.bins.get_mut(at) {
                *bin = [no, yes];
            }
        }
        totals
    }
}

impl Totals {
    /// Counts of rows whose predictions cost this.
    pub fn of(kind: RowLoss) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Adds rows of which these logits were predicted.
    pub fn add(&mut self, logits: &[f32], labels: &[u32]) {
        let step = self.kind.of(logits, labels);
        self.rows += step.examples;
        self.loss += step.loss_sum;
        self.correct += step.correct;
        for (&logit, &label) in logits.iter().zip(labels) {
            // The cast saturates, and takes NaN for 0.
            let bin = ((logit * STEPS) as i32).saturating_add(BINS as i32 / 2);
            let bin = bin.clamp(0, BINS as i32 - 1) as usize;
            self.bins[bin][(label & 1) as usize] += 1;
            self.positive += u64::from(label);
        }
    }

    /// Adds the counts of others.
    pub fn merge(&mut self, other: &Self) {
        if self.rows == 0 {
            self.kind = other.kind;
        }
        self.rows += other.rows;
        self.loss += other.loss;
        self.correct += other.correct;
        self.positive += other.positive;
        for (bin, other) in self.bins.iter_mut().zip(&other.bins) {
            bin[0] += other[0];
            bin[1] += other[1];
        }
    }

    /// Forgets everything, and counts rows whose predictions cost this from now on.
    pub fn begin(&mut self, kind: RowLoss) {
        self.clear();
        self.kind = kind;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.bins.fill([0; 2]);
        (self.rows, self.loss, self.correct, self.positive) = (0, 0.0, 0, 0);
    }

    /// What the counts say.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let rows = self.rows as f64;
        let share = self.positive as f64 / rows;
        let entropy: f64 =
            [share, 1.0 - share].iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        let loss = self.loss / rows;
        let hinge = self.kind == RowLoss::Hinge;
        Metrics {
            rows: self.rows,
            loss,
            accuracy: self.correct as f64 / rows,
            auc: self.auc(),
            // A margin is not a probability.
            normalised_entropy: if hinge { f64::NAN } else { loss / entropy },
            positive_share: share,
            hinge,
        }
    }

    /// The chance that a row of label 1 is ranked above one of label 0; rows of one bin are a draw.
    fn auc(&self) -> f64 {
        let mut below = 0.0;
        let mut wins = 0.0;
        for &[negative, positive] in &self.bins {
            wins += positive as f64 * (below + 0.5 * negative as f64);
            below += negative as f64;
        }
        wins / (below * self.positive as f64)
    }
}

/// How good predictions were. Not a number where there is nothing to divide by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    pub rows: u64,
    /// Mean loss: log loss in nats, or hinge loss.
    #[serde(with = "nullable")]
    pub loss: f64,
    /// Share of rows whose more likely label was right.
    #[serde(with = "nullable")]
    pub accuracy: f64,
    /// Area under the receiver operating characteristic: 0.5 is guessing, 1 is perfect.
    #[serde(with = "nullable")]
    pub auc: f64,
    /// Log loss over that of always predicting the mean: 1 is knowing nothing.
    #[serde(with = "nullable")]
    pub normalised_entropy: f64,
    /// Share of rows of label 1.
    #[serde(with = "nullable")]
    pub positive_share: f64,
    /// Whether the loss is that of a support vector machine.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hinge: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(value: &bool) -> bool {
    !value
}

/// Numbers that may be NaN: `null` in JSON.
mod nullable {
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
    pub(super) fn serialize<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { out.serialize_f64(*value) } else { out.serialize_none() }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(input)?.unwrap_or(f64::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranking_is_measured_exactly_where_bins_tell_rows_apart() {
        let logits = [-3.0, -1.0, 0.0, 0.5, 2.0, 100.0, -100.0];
        let labels = [0, 1, 0, 1, 1, 1, 0];
        let mut totals = Totals::default();
        totals.add(&logits, &labels);
        // Of 4 x 3 pairs, only (-1 of label 1, 0 of label 0) is the wrong way round.
        assert!((totals.metrics().auc - 11.0 / 12.0).abs() < 1e-12);
        assert_eq!(totals.metrics().positive_share, 4.0 / 7.0);
    }

    #[test]
    fn guessing_is_half_and_knowing_nothing_is_one() {
        let mut totals = Totals::default();
        let labels: Vec<u32> = (0..1000).map(|n| u32::from(n % 5 == 0)).collect();
        let base = (0.2_f32 / 0.8).ln();
        totals.add(&vec![base; 1000], &labels);
        let metrics = totals.metrics();
        assert!((metrics.auc - 0.5).abs() < 1e-12);
        assert!((metrics.normalised_entropy - 1.0).abs() < 1e-6);
        assert_eq!(metrics.accuracy, 0.8);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let logits: Vec<f32> = (0..500).map(|n| (n as f32 * 0.7).sin() * 3.0).collect();
        let labels: Vec<u32> = (0..500).map(|n| u32::from(n % 3 == 0)).collect();
        let mut whole = Totals::default();
        whole.add(&logits, &labels);
        let (mut first, mut second) = (Totals::default(), Totals::default());
        first.add(&logits[..123], &labels[..123]);
        second.add(&logits[123..], &labels[123..]);
        first.merge(&second);
        assert_eq!(first.metrics().auc, whole.metrics().auc);
        assert!((first.metrics().loss - whole.metrics().loss).abs() < 1e-12);
        let text = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Totals>(&text).unwrap(), whole, "{text}");
        assert!(Totals::default().metrics().loss.is_nan());
    }
}
