//! Scores rows with a checkpoint: one line out for each line in, in order, as soon as it can be.

use crate::{
    TrainError,
    rows::{Metrics, RowsPlace, Source, Totals, Window, source::Parcel},
};
use paceline_data::rows::{Hashing, Input, Next};
use paceline_models::sparse_logistic::{RowLoss, SparseLogistic, probability};
use serde::Serialize;
use std::{
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
};

/// What was scored.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Predicted {
    pub rows: u64,
    /// Malformed lines; each is `nan` in the output.
    pub rejected: u64,
    /// How good the predictions were, where rows have labels.
    pub metrics: Option<Metrics>,
}

/// Writes the probability of label 1 for every row of `input` (the score, where the model is a support vector machine), until it ends or `cancel` is raised.
///
/// # Errors
/// Rows that cannot be read, or an output that cannot be written.
pub fn predict(
    model: &SparseLogistic,
    input: Input,
    format: Option<&str>,
    hashing: Hashing,
    out: &mut dyn Write,
    cancel: &AtomicBool,
) -> Result<Predicted, TrainError> {
    let live = input.is_live();
    let hinge = model.loss() == RowLoss::Hinge;
    let mut source = Source::open(input, format, hashing, RowsPlace::default(), 1, Window::None)?;
    let (mut parcel, mut logits) = (Parcel::default(), Vec::new());
    let mut totals = Totals::of(model.loss());
    let mut rejected = 0;
    let mut text = Vec::new();
    while !cancel.load(Ordering::Relaxed) {
        match source.next(&mut parcel)? {
            Next::End => break,
            Next::Idle => continue,
            Next::Block => parcel.parse(),
        }
        model.score(parcel.batch(), &mut logits);
        totals.add(&logits, &parcel.batch().labels);
        text.clear();
        if parcel.block.too_long.is_some() {
            rejected += 1;
            text.extend_from_slice(b"nan\n");
        }
        let mut refused = parcel.refused().iter().peekable();
        for (row, &logit) in logits.iter().enumerate() {
            while refused.next_if(|line| line.after <= row).is_some() {
                rejected += 1;
                text.extend_from_slice(b"nan\n");
            }
            // A support vector machine gives a side and a distance, not a probability.
            let told = if hinge { logit } else { probability(logit) };
            writeln!(text, "{told:.6}").map_err(TrainError::Output)?;
        }
        for _ in refused {
            rejected += 1;
            text.extend_from_slice(b"nan\n");
        }
        out.write_all(&text).map_err(TrainError::Output)?;
        if live {
            out.flush().map_err(TrainError::Output)?;
        }
    }
    out.flush().map_err(TrainError::Output)?;
    let metrics = (hashing.labelled && totals.rows > 0).then(|| totals.metrics());
    Ok(Predicted { rows: totals.rows, rejected, metrics })
}
