//! Scores held-out rows beside the training: on a thread of its own, on the shared weights as they are.

use crate::{
    TrainError,
    rows::{Metrics, Source, Totals, source::Parcel, spec::RowsSpec},
};
use paceline_data::rows::{Next, expand};
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_runs::Evaluation;
use std::sync::atomic::{AtomicBool, Ordering};

/// Seconds between two scores of held-out rows where no number of rows was asked for.
pub(crate) const EVALUATE_SECONDS: f64 = 5.0;

/// Scores every held-out row; nothing if `cancel` was raised meanwhile.
pub(crate) fn evaluate(
    spec: &RowsSpec,
    test: &str,
    model: &SparseLogistic,
    cancel: &AtomicBool,
) -> Result<Option<Metrics>, TrainError> {
    let input = paceline_data::rows::Input::Files(expand(test)?);
    let mut source = Source::open(
        input,
        None,
        spec.hashing,
        crate::rows::RowsPlace::default(),
        1,
        crate::rows::Window::None,
    )?;
    let (mut parcel, mut logits) = (Parcel::default(), Vec::new());
    let mut totals = Totals::of(spec.row_loss());
    while source.next(&mut parcel)? == Next::Block {
        if cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        parcel.parse();
        model.score(parcel.batch(), &mut logits);
        totals.add(&logits, &parcel.batch().labels);
    }
    if totals.rows == 0 {
        return Err(TrainError::NoRows { data: test.to_owned() });
    }
    Ok(Some(totals.metrics()))
}

/// A score of held-out rows, for the run's log.
pub(crate) fn evaluation(metrics: &Metrics, step: u64, seconds: f64, best: bool) -> Evaluation {
    Evaluation {
        step,
        epochs: 0.0,
        examples: metrics.rows,
        loss: metrics.loss,
        accuracy: metrics.accuracy,
        seconds,
        best,
        auc: Some(metrics.auc).filter(|auc| auc.is_finite()),
        normalised_entropy: Some(metrics.normalised_entropy).filter(|part| part.is_finite()),
        scored_by: None,
    }
}
