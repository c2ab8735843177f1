//! What a failing command adds to an error: an exit code and a hint.
//!
//! Both travel inside `anyhow::Error`, so that a command attaches them where it knows best and `?`
//! carries them up unchanged. The modules below hold the advice on errors of training, which several commands share.

pub(crate) mod forecast;
pub(crate) mod job;
pub(crate) mod rows;
mod run_hints;
pub(crate) mod spark;
pub(crate) mod training;

use paceline_data::DataError;
use paceline_forecast::ForecastError;
use paceline_models::{
    ModelError, names::UnknownName, optimizer::OptimizerError, schedule::ScheduleError,
};
use paceline_runs::RunsError;
use paceline_strategies::StrategyError;
use paceline_training::TrainError;
use std::{fmt, io::ErrorKind, os::unix::process::ExitStatusExt, process::ExitStatus};

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All was done.
    Done,
    /// Something failed, or a check found something.
    Failed,
    /// The call itself was wrong.
    Usage,
    /// Failed in a way that may pass: a peer was lost, a mirror did not answer.
    Retry,
    /// Ctrl-C.
    Interrupted,
    /// SIGTERM.
    Terminated,
    /// SIGHUP: the terminal or connection is gone.
    HungUp,
    /// The exit code of a command we ran for the user.
    Of(u8),
}

impl Exit {
    /// The number a shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Retry => 75,
            Self::HungUp => 129,
            Self::Interrupted => 130,
            Self::Terminated => 143,
            Self::Of(code) => code,
        }
    }

    /// How a command ended that we ran; shells report a signal as 128 plus its number.
    pub(crate) fn of_command(status: ExitStatus) -> Self {
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Self::Of(u8::try_from(code).unwrap_or(1))
    }
}

/// An error dressed for the terminal.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    /// What the user could do about it.
    pub hint: Option<String>,
    /// The exit code, where it is not plain failure.
    pub exit: Option<Exit>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Adds hints and exit codes to results.
pub trait FailureExt<T> {
    /// Says what the user could do.
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T>;
    /// The same where something is known to help.
    fn hint_if_any(self, hint: Option<impl Into<String>>) -> anyhow::Result<T>;
    /// Sets the exit code.
    fn exit(self, exit: Exit) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> FailureExt<T> for Result<T, E> {
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T> {
        self.map_err(|error| {
            let mut failure = with_hint(error.into());
            failure.hint = Some(hint.into());
            failure.into()
        })
    }

    fn hint_if_any(self, hint: Option<impl Into<String>>) -> anyhow::Result<T> {
        match hint {
            Some(hint) => self.hint(hint),
            None => self.map_err(Into::into),
        }
    }

    fn exit(self, exit: Exit) -> anyhow::Result<T> {
        self.map_err(|error| {
            let mut failure = with_hint(error.into());
            failure.exit = Some(exit);
            failure.into()
        })
    }
}

/// A wrong call that clap cannot see, such as two flags that do not go together.
pub fn usage(message: impl fmt::Display, hint: impl Into<String>) -> anyhow::Error {
    Failure {
        error: anyhow::anyhow!("{message}"),
        hint: Some(hint.into()),
        exit: Some(Exit::Usage),
    }
    .into()
}

/// The exit code of an error: as attached to it, else by its kind. What was typed wrong ends with 2 whichever command
/// finds it out.
pub fn exit_of(error: &anyhow::Error) -> Option<Exit> {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.exit.or_else(|| exit_of(&failure.error));
    }
    let is_usage = error.chain().any(|cause| {
        cause.is::<UnknownName>()
            || cause.is::<OptimizerError>()
            || cause.is::<ScheduleError>()
            || cause.downcast_ref::<DataError>().is_some_and(DataError::is_usage)
            || cause.downcast_ref::<ModelError>().is_some_and(ModelError::is_usage)
            || cause.downcast_ref::<ForecastError>().is_some_and(ForecastError::is_usage)
            || cause.downcast_ref::<StrategyError>().is_some_and(StrategyError::is_usage)
            || cause.downcast_ref::<TrainError>().is_some_and(TrainError::is_usage)
    });
    is_usage.then_some(Exit::Usage)
}

/// Whether a run could not be read because a later version made it, whichever command found that out.
pub fn is_of_later_version(error: &anyhow::Error) -> bool {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return is_of_later_version(&failure.error);
    }
    error.chain().any(|cause| {
        let runs = cause.downcast_ref::<RunsError>();
        let runs = runs.or_else(|| match cause.downcast_ref::<ForecastError>()? {
            ForecastError::Runs(error) => Some(error),
            _ => None,
        });
        let runs = runs.or_else(|| match cause.downcast_ref::<TrainError>()? {
            TrainError::Runs(error) => Some(error),
            _ => None,
        });
        matches!(runs, Some(RunsError::LaterFormat { .. }))
    })
}

/// Advice where the data that were named are not there, whichever command looked for them.
pub fn of_missing_data(error: &anyhow::Error) -> Option<&'static str> {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return of_missing_data(&failure.error);
    }
    let is_missing = error.chain().any(|cause| {
        let data = cause.downcast_ref::<DataError>();
        let data = data.or_else(|| match cause.downcast_ref::<TrainError>()? {
            TrainError::Data(error) => Some(error),
            _ => None,
        });
        matches!(data, Some(DataError::Read { source, .. }) if source.kind() == ErrorKind::NotFound)
    });
    is_missing.then_some(
        "`paceline data synth digits DIR` draws a small data set, `paceline data fetch mnist` downloads one",
    )
}

/// Adds a hint, and an exit code where one is known.
fn with_advice(error: impl Into<anyhow::Error>, hint: String, exit: Option<Exit>) -> anyhow::Error {
    let mut failure = with_hint(error.into());
    failure.hint = Some(hint);
    failure.exit = exit.or(failure.exit);
    failure.into()
}

/// Sets the exit code.
fn with_exit(error: anyhow::Error, exit: Exit) -> anyhow::Error {
    let mut failure = with_hint(error);
    failure.exit = Some(exit);
    failure.into()
}

fn with_hint(error: anyhow::Error) -> Failure {
    error.downcast::<Failure>().unwrap_or_else(|error| Failure { error, hint: None, exit: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_and_exit_survive_each_other_and_keep_the_chain() {
        let inner: Result<(), _> = Err(std::io::Error::other("disk on fire"));
        let error = anyhow::Context::context(inner, "cannot write `x`")
            .hint("buy a new one")
            .exit(Exit::Retry);
        let error = error.unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert_eq!(failure.hint.as_deref(), Some("buy a new one"));
        assert_eq!(failure.exit, Some(Exit::Retry));
        let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
        assert_eq!(chain, ["cannot write `x`", "disk on fire"]);
    }

    #[test]
    fn what_was_typed_wrong_ends_with_2_hint_or_not() {
        let unknown = || Err::<(), _>(UnknownName::new("model", "gpt", ["lenet"]));
        assert_eq!(exit_of(&unknown().hint("try lenet").unwrap_err()), Some(Exit::Usage));
        let train: Result<(), TrainError> = Err(TrainError::NoStop);
        assert_eq!(exit_of(&anyhow::Context::context(train, "x").unwrap_err()), Some(Exit::Usage));
        assert_eq!(exit_of(&unknown().exit(Exit::Retry).unwrap_err()), Some(Exit::Retry));
        assert_eq!(exit_of(&anyhow::anyhow!("disk on fire")), None);
    }
}
