//! What could be done about an error of learning from rows.

use super::{Exit, run_hints, with_advice};
use paceline_data::DataError;
use paceline_runs::RunFolder;
use paceline_training::TrainError;

/// Adds what the user could do about an error.
pub(crate) fn explain(error: TrainError) -> anyhow::Error {
    explain_in(error, None)
}

/// The same for an error of a run whose folder is known.
pub(crate) fn explain_in(error: TrainError, run: Option<&RunFolder>) -> anyhow::Error {
    let advice = match &error {
        TrainError::Session(failed) => Some(run_hints::of_session(failed, run)),
        TrainError::Runs(records) => run_hints::of_records(records),
        _ if error.is_peer() => Some((run_hints::start_again(run), Some(Exit::Retry))),
        TrainError::RowsMemory { fits, .. } => Some((bits_hint(*fits), None)),
        TrainError::CheckpointNewer { .. } => Some((run_hints::NEWER.to_owned(), None)),
        _ => hint(&error).map(|hint| (hint.to_owned(), None)),
    };
    match advice {
        Some((hint, exit)) => with_advice(error, hint, exit),
        None => error.into(),
    }
}

fn bits_hint(fits: Option<u32>) -> String {
    match fits {
        Some(bits) => {
            format!(
                "`--bits {bits}` fits; rows that were hashed beforehand are prepared again with it"
            )
        }
        None => "no number of bits fits: give the process more memory".to_owned(),
    }
}

fn hint(error: &TrainError) -> Option<&'static str> {
    Some(match error {
        TrainError::Data(DataError::TooManyRejected { .. }) => {
            "name the format with --format, or allow more with --max-rejects 10%"
        }
        TrainError::Data(DataError::NoRows { .. }) => "name the format with --format",
        TrainError::ResumeMismatch { .. } => {
            "give --data the files that the run began on, or start a new run without --resume"
        }
        TrainError::NotFinite { .. } => "try a lower learning rate, such as a tenth of it",
        TrainError::NotSparse { .. } => {
            "rows of sparse features are scored by runs of `paceline train --model sparse-logistic`"
        }
        TrainError::Diverged { .. } => {
            "try a lower learning rate, such as a tenth of it, or leave --lr and --optimizer out"
        }
        TrainError::NoCheckpoint { .. } => {
            "name a run folder of `paceline train --model sparse-logistic`"
        }
        TrainError::Data(DataError::NoFilesFor { .. }) => {
            "cut the data into more files, or use fewer --workers"
        }
        _ => return None,
    })
}
