//! What could be done about an error of training on examples.

use super::{Exit, run_hints, with_advice};
use paceline_data::DataError;
use paceline_models::pretrained::PretrainedError;
use paceline_runs::RunFolder;
use paceline_strategies::StrategyError;
use paceline_training::TrainError;

/// Adds what the user could do about an error.
pub(crate) fn explain(error: TrainError) -> anyhow::Error {
    explain_in(error, None)
}

/// The same for an error of a run whose folder is known.
pub(crate) fn explain_in(error: TrainError, run: Option<&RunFolder>) -> anyhow::Error {
    let advice = of_tasks(&error, run)
        .or_else(|| of_settings(&error).or_else(|| of_data(&error)).map(|hint| (hint, None)));
    match advice {
        Some((hint, exit)) => with_advice(error, hint, exit),
        None => error.into(),
    }
}

/// Where other tasks or the run's records are the trouble.
fn of_tasks(error: &TrainError, run: Option<&RunFolder>) -> Option<(String, Option<Exit>)> {
    match error {
        TrainError::Session(error) => Some(run_hints::of_session(error, run)),
        TrainError::Runs(error) => run_hints::of_records(error),
        TrainError::CheckpointNewer { .. } => Some((run_hints::NEWER.to_owned(), None)),
        TrainError::Link(_)
        | TrainError::Strategy(StrategyError::Link(_) | StrategyError::PeerLost { .. }) => {
            Some((run_hints::start_again(run), Some(Exit::Retry)))
        }
        _ => None,
    }
}

fn of_settings(error: &TrainError) -> Option<String> {
    Some(match error {
        TrainError::NoStop => {
            "say when to stop, for example `--epochs 10` or `--until-loss 0.35`".to_string()
        }
        TrainError::GrowthWithoutEpochs => "say how many, for example `--epochs 10`".to_string(),
        TrainError::Memory { fits: Some(fits), .. } => {
            format!("`--batch-size {fits}` fits; `--accumulate` computes a larger batch in parts")
        }
        TrainError::Memory { fits: None, .. } => {
            "no batch fits: use a smaller model or smaller images".to_string()
        }
        TrainError::BatchTooLarge { examples, .. } => {
            format!("use `--batch-size {examples}` or less")
        }
        TrainError::BatchTooSmall { batch, .. } => {
            format!("use at most {batch} replicas or workers, or a larger `--batch-size`")
        }
        TrainError::NotFinite { rate, .. } => format!(
            "try a lower learning rate, such as `--lr {}`, or a warm-up: `--schedule warmup:1+constant`",
            rate / 10.0
        ),
        TrainError::Diverged { rate, .. } => format!(
            "try a lower learning rate, such as `--lr {}`, a warm-up (`--schedule warmup:1+constant`), or `--optimizer adam` without `--lr`",
            rate / 10.0
        ),
        TrainError::Strategy(_) | TrainError::Alone { .. } => {
            "`paceline list strategies` says how each of them works".to_string()
        }
        _ => return None,
    })
}

fn of_data(error: &TrainError) -> Option<String> {
    let hint = match error {
        TrainError::Data(DataError::Rows { .. }) => {
            "train on rows with `--model sparse-logistic`; `paceline data info` describes them"
        }
        TrainError::Data(DataError::TooManyRejects { .. }) => {
            "look at the reasons; a higher --max-rejects, or none, leaves them out and trains"
        }
        TrainError::Data(DataError::ShardChanged { .. } | DataError::ShardChecksum { .. }) => {
            "`paceline data verify` lists all that is wrong; prepare the data again with --fresh"
        }
        TrainError::Pretrained(
            PretrainedError::Keras { .. }
            | PretrainedError::Format { .. }
            | PretrainedError::Read { .. },
        ) => {
            "wanted are weights with torchvision's or timm's names, as a .pth or .safetensors file, or those of \
             `keras.applications.MobileNetV2`, as a .h5 or .keras file: `paceline data fetch weights \
             mobilenet-v2` gets torchvision's, `mobilenet_v2-b0353104.pth`, whose SHA-256 begins as its name says; other weights are written for PyTorch by `torch.save(model.state_dict(), \"weights.pth\")`"
        }
        TrainError::NothingToResume { .. } => "start the run again without --resume",
        TrainError::ResumeMismatch { what: "the data", .. } => {
            "give --data the data that the run began on, or start a new run; --init takes weights over"
        }
        TrainError::ResumeMismatch { .. } => "start a new run without --resume",
        TrainError::NoTestData { .. } => {
            "stop by --epochs or --steps, or prepare the data with `--split validation=0.1`"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}
