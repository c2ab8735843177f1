//! Whether a stream was learned from: the rule is that of all runs (`paceline_runs::Learning`), on what streams measure.

use crate::rows::{Metrics, Spec, StreamError};
use paceline_runs::{Divergence, Ending, Labels, Learning, Tried};

/// Fewer rows say nothing.
const LEAST_ROWS: u64 = 500;

/// What advice starts from.
fn tried(spec: &Spec) -> Tried<'_> {
    Tried {
        optimizer: &spec.optimizer,
        rate: f64::from(spec.learning_rate),
        sturdier: Some("adagrad"),
        schedules: false,
    }
}

/// Whether a run that ended learned: on held-out rows, else on its own rows before they were learned from.
pub(crate) fn of_end(
    spec: &Spec,
    progressive: &Metrics,
    held_out: Option<&Metrics>,
    updates: u64,
) -> Option<Learning> {
    let metrics = held_out.unwrap_or(progressive);
    if progressive.rows < LEAST_ROWS {
        return None;
    }
    Learning::judge(&ending(metrics, updates), &tried(spec))
}

/// The error of a run that learned from all rows and ended with an exploded loss on held-out ones.
pub(crate) fn exploded(spec: &Spec, rows: u64, held_out: Option<&Metrics>) -> Option<StreamError> {
    let found = ending(held_out?, 0).divergence()?;
    Some(StreamError::Diverged { rows, found, rate: spec.learning_rate })
}

/// The error of a run in which a worker's last rows had an exploded loss.
pub(crate) fn ended_with(spec: &Spec, rows: u64, loss: f64) -> StreamError {
    let found = Divergence { since: 0, loss, reference: std::f64::consts::LN_2 };
    StreamError::Diverged { rows, found, rate: spec.learning_rate }
}

fn ending(metrics: &Metrics, updates: u64) -> Ending<'static> {
    Ending {
        loss: metrics.loss,
        accuracy: metrics.accuracy,
        auc: Some(metrics.auc),
        labels: Labels::Positive(metrics.positive_share),
        updates,
    }
}

/// What a run that failed says about its learning, where that is why it failed.
pub(crate) fn of_failure(spec: &Spec, error: &StreamError) -> Option<Learning> {
    match error {
        StreamError::Diverged { rows, found, .. } => {
            Some(Learning::diverged(format!("{found} after {rows} rows"), &tried(spec)))
        }
        StreamError::NotFinite { rows } => {
            let words = format!("the loss is not finite after {rows} rows");
            Some(Learning::diverged(words, &tried(spec)))
        }
        _ => None,
    }
}
