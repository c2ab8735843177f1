//! A server's part: holds weights, and scores held-out rows beside them.

use super::{Task, Tasks};
use crate::{
    TrainError,
    error::with_causes,
    rows::{Control, RowsPlace, RowsSpec, Source, Window, source::Parcel},
};
use paceline_cluster::JobMembership;
use paceline_data::rows::{Input, Next, expand};
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_strategies::sparse::{Score, Scores, SparseServer};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Holds weights, generation after generation.
pub(super) fn serve(
    spec: &RowsSpec,
    tasks: &Tasks,
    task: &Task<'_>,
    control: &Control<'_>,
) -> Result<(), TrainError> {
    let session = task.session;
    let server =
        SparseServer::new(Arc::clone(session) as Arc<dyn JobMembership>, tasks.options(spec)?)?;
    let held_out = HeldOut { spec, control };
    let scorer = spec.test.as_ref().map(|_| &held_out as &dyn Score);
    loop {
        let over = || session.released() || session.check().is_err();
        match server.serve(&over, scorer).map_err(TrainError::from) {
            Ok(()) => return Ok(session.check()?),
            Err(error) => {
                if session.regroup(error.peer(), &with_causes(&error))?.is_none() {
                    // All that it held is saved.
                    return Ok(session.wait_for_release().map(drop)?);
                }
            }
        }
    }
}

/// Held-out rows, read again for every score: they may be more than memory holds.
struct HeldOut<'a> {
    spec: &'a RowsSpec,
    control: &'a Control<'a>,
}

impl Score for HeldOut<'_> {
    /// Weights of other parts are zero here, so that the plain score is this part's share.
    fn score(
        &self,
        model: &SparseLogistic,
        _: Range<usize>,
        cancel: &AtomicBool,
    ) -> Option<Scores> {
        let scores = self.read(model, cancel);
        let warn = |error: TrainError| {
            let text = format!("held-out rows cannot be scored: {}", with_causes(&error));
            self.control.observer.warned(&text);
        };
        scores.map_err(warn).ok().flatten()
    }
}

impl HeldOut<'_> {
    fn read(
        &self,
        model: &SparseLogistic,
        cancel: &AtomicBool,
    ) -> Result<Option<Scores>, TrainError> {
        let test = self.spec.test.as_deref().unwrap_or_default();
        let input = Input::Files(expand(test)?);
        let hashing = self.spec.hashing;
        let mut source = Source::open(input, None, hashing, RowsPlace::default(), 1, Window::None)?;
        let (mut parcel, mut logits) = (Parcel::default(), Vec::new());
        let mut scores = Scores::default();
        while source.next(&mut parcel)? == Next::Block {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            parcel.parse();
            model.score(parcel.batch(), &mut logits);
            scores.logits.extend_from_slice(&logits);
            scores.labels.extend(parcel.batch().labels.iter().map(|label| *label as u8));
        }
        if scores.labels.is_empty() {
            return Err(TrainError::NoRows { data: test.to_owned() });
        }
        Ok(Some(scores))
    }
}
