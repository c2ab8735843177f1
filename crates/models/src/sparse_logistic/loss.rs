//! What a prediction of a row costs: logistic regression, or a linear support vector machine.

use super::probability;
use crate::model::StepLoss;

/// The loss of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RowLoss {
    /// How surprising the label is: a score becomes a probability.
    #[default]
    Logistic,
    /// By how much a row comes closer to the other side than a margin of 1; rows beyond it teach nothing.
    Hinge,
}

impl RowLoss {
    /// How the loss of a row changes with its score.
    #[inline(always)]
    #[must_use]
    pub fn slope(self, score: f32, label: u32) -> f32 {
        match self {
            Self::Logistic => probability(score) - label as f32,
            Self::Hinge if label == 1 => -f32::from(u8::from(score < 1.0)),
            Self::Hinge => f32::from(u8::from(score > -1.0)),
        }
    }

    /// The loss of a row whose score is so far on its label's side.
    fn of_margin(self, margin: f32) -> f32 {
        match self {
            // `ln(1 + e^-m)` without overflow for margins far below zero.
            Self::Logistic if margin < -15.0 => -margin,
            Self::Logistic => (-margin).exp().ln_1p(),
            Self::Hinge => (1.0 - margin).max(0.0),
        }
    }

    /// Loss, hits and number of rows with these scores.
    #[must_use]
    pub fn of(self, scores: &[f32], labels: &[u32]) -> StepLoss {
        let mut total = StepLoss { examples: labels.len() as u64, ..StepLoss::default() };
        for (&score, &label) in scores.iter().zip(labels) {
            let margin = if label == 1 { score } else { -score };
            total.loss_sum += f64::from(self.of_margin(margin));
            total.correct += u64::from((score > 0.0) == (label == 1));
        }
        total
    }
}

/// Logistic loss, hits and number of rows with these logits.
#[must_use]
pub fn loss(logits: &[f32], labels: &[u32]) -> StepLoss {
    RowLoss::Logistic.of(logits, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slopes are those of the losses, away from the kink of the hinge.
    #[test]
    fn slopes_are_those_of_the_loss() {
        for kind in [RowLoss::Logistic, RowLoss::Hinge] {
            for label in [0, 1] {
                for score in [-3.0_f32, -0.5, 0.25, 2.5] {
                    let at = |score: f32| kind.of(&[score], &[label]).loss_sum;
                    let slope = (at(score + 0.01) - at(score - 0.01)) / 0.02;
                    let found = f64::from(kind.slope(score, label));
                    assert!(
                        (slope - found).abs() < 1e-3,
                        "{kind:?} {label} {score}: {slope} {found}"
                    );
                }
            }
        }
        assert_eq!(RowLoss::Hinge.of(&[2.0, -0.5], &[1, 1]).loss_sum, 1.5);
    }
}
