//! Advice on errors of forecasts: which flag or command would help.

use paceline_advisor::AdvisorError;
use paceline_forecast::ForecastError;
use paceline_runs::RunsError;
use std::path::Path;

/// Adds what helps, if anything does, to an error of `advise` or `simulate`.
pub(crate) fn explain(error: ForecastError) -> anyhow::Error {
    let hint = match &error {
        ForecastError::Model(error) if error.is_usage() => {
            "`paceline list models` lists the models; small ones take --size 28"
        }
        ForecastError::NotAChain { .. } | ForecastError::ImagesOnly => {
            "`paceline list models` lists the models; small ones take --size 28"
        }
        ForecastError::Data(_) => "`paceline data info` says what a folder holds",
        ForecastError::NoExamples => "`paceline data info` says what it holds",
        ForecastError::Runs(error) if !matches!(error, RunsError::Write { .. }) => {
            "`paceline runs` lists run folders"
        }
        ForecastError::NotJson { .. } => "write it with `paceline check --json`",
        ForecastError::NoMeasuredPair { .. } => {
            "run `paceline check --json` while the tasks are up, or give --network and --latency"
        }
        ForecastError::NoLayerTimes { .. } => "write them with `--save-layers FILE`",
        ForecastError::OtherModel { found, .. } => {
            let hint = format!("give `--model {found}`, or leave `--layers` out to measure now");
            return with_hint(error, hint);
        }
        ForecastError::NoRunOf { .. } => {
            "make some with `paceline train`, or leave --runs out to measure now"
        }
        ForecastError::NothingToCompare => "give at least two --sizes, and two or more --gradients",
        ForecastError::Diverged { .. } => "give a smaller --lr",
        ForecastError::NoSignal { .. } | ForecastError::TooFewGradients { .. } => {
            "give more --gradients, a larger --batch-size, or fewer steps of --warm-up"
        }
        ForecastError::TooFewBatchSizes { .. } => "runs of two or more batch sizes are needed",
        ForecastError::TooFewRuns { .. } => {
            "`paceline advise scale --plan` says which runs to make"
        }
        ForecastError::BatchTooSmall { .. } => "give a larger --batch-size, or fewer --workers",
        _ => return error.into(),
    };
    with_hint(error, hint)
}

/// The same where step times may have been taken from runs or measured now, which need different remedies.
pub(crate) fn explain_steps(error: ForecastError, from_runs: bool) -> anyhow::Error {
    let hint = match (&error, from_runs) {
        (ForecastError::StepsDisagree { .. }, true) => {
            "give --runs a folder of runs that differ in batch size only (same threads, same machine, nothing else running), or leave --runs out to measure now"
        }
        (ForecastError::NoLine { .. }, true) => {
            "train at four or more batch sizes with the same threads on an otherwise idle machine, or leave --runs out to measure now"
        }
        (ForecastError::NoLine { .. } | ForecastError::StepsDisagree { .. }, false) => {
            "measure again when nothing else runs here; if the same size stays off, judge --sizes on one side of it"
        }
        // The model's images are those of the data.
        (ForecastError::Model(error), _) if error.is_usage() => {
            "`paceline list models` lists the models"
        }
        _ => return explain(error),
    };
    with_hint(error, hint)
}

/// Adds what helps to an error of a search for machines.
pub(crate) fn explain_search(error: AdvisorError, catalogue: &Path) -> anyhow::Error {
    let hint = match &error {
        AdvisorError::NoSuchMachine { .. } => {
            "add the machine it ran on to the catalogue, or leave the run out".to_owned()
        }
        AdvisorError::NothingComparable { .. } => {
            "name machines as the catalogue does, or say what they have in columns `cores` and `memory_gib`".to_owned()
        }
        AdvisorError::OtherSpace { .. } => {
            "give the --catalog it was begun with, or name another state file".to_owned()
        }
        AdvisorError::NeedsHistory { .. } => {
            "give runs of other jobs with `--history FILE`, or take another `--method`".to_owned()
        }
        AdvisorError::NotInCatalogue { .. } => {
            format!("`{}` lists what there is", catalogue.display())
        }
        AdvisorError::Start { .. } => "the command is run by `sh`".to_owned(),
        _ => return error.into(),
    };
    with_hint(error, hint)
}

fn with_hint(error: impl Into<anyhow::Error>, hint: impl Into<String>) -> anyhow::Error {
    let mut failure = super::with_hint(error.into());
    failure.hint = Some(hint.into());
    failure.into()
}
