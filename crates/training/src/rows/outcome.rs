//! Whether a stream was learned from: the rule is that of all runs (`paceline_runs::Learning`), on what streams measure.

use crate::{
    Point, TrainError,
    rows::{Metrics, RowsSpec},
};
use paceline_runs::{Divergence, Ending, Labels, Learning, Tried};

/// Fewer rows say nothing.
const LEAST_ROWS: u64 = 500;

/// What advice starts from.
pub(crate) fn tried(spec: &RowsSpec) -> Tried<'_> {
    Tried {
        optimizer: &spec.optimizer,
        rate: f64::from(spec.learning_rate),
        sturdier: Some("adagrad"),
        schedules: false,
    }
}

/// Whether a run that ended learned: on held-out rows, else on its own rows before they were learned from.
pub(crate) fn of_end(
    spec: &RowsSpec,
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
pub(crate) fn exploded(
    spec: &RowsSpec,
    rows: u64,
    held_out: Option<&Metrics>,
) -> Option<TrainError> {
    let found = ending(held_out?, 0).divergence()?;
    Some(diverged(spec, rows, found, None))
}

/// The error of a run in which a worker's last rows had an exploded loss.
pub(crate) fn ended_with(spec: &RowsSpec, rows: u64, loss: f64) -> TrainError {
    let found = Divergence { since: 0, loss, reference: std::f64::consts::LN_2 };
    diverged(spec, rows, found, None)
}

/// The error of a loss that exploded and did not come back; `good` is the step of the latest checkpoint before that.
pub(crate) fn diverged(
    spec: &RowsSpec,
    rows: u64,
    found: Divergence,
    good: Option<u64>,
) -> TrainError {
    TrainError::Diverged { at: Point::Rows(rows), found, rate: spec.learning_rate, good }
}

/// The error of a loss that is NaN or infinite.
pub(crate) fn not_finite(spec: &RowsSpec, rows: u64) -> TrainError {
    TrainError::NotFinite {
        at: Point::Rows(rows),
        cause: "the weights have diverged".to_owned(),
        rate: spec.learning_rate,
        epochs: None,
    }
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
