//! Stand-ins for folders in object stores, as commands speak of them: what they are called, and what is said when a store
//! did not take everything. The stand-ins themselves are [`paceline_data::store::Staging`].

use super::{
    Terminal,
    failure::{Exit, FailureExt},
};
use paceline_data::store::{Staging, StoreError};

impl Terminal {
    /// Lets messages call stand-ins by what they stand for.
    pub fn call_stand_ins(&mut self, staging: &Staging) {
        for (here, there) in staging.stand_ins() {
            self.call(here, there);
        }
    }

    /// Puts everything where it belongs, whatever came of the command.
    pub fn settle<T>(&self, staging: Staging, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        let problem = match staging.finish() {
            Ok(()) => return outcome,
            Err(error) => explain(error),
        };
        match outcome {
            Ok(_) => problem,
            Err(error) => {
                // The command's own error is the one to end with.
                if let Err(problem) = problem {
                    self.warn(format!("{problem:#}"));
                }
                Err(error)
            }
        }
    }
}

/// Says where everything is that a store did not take.
fn explain<T>(error: StoreError) -> anyhow::Result<T> {
    let StoreError::NotMirrored { here, source, .. } = &error else { return Err(error.into()) };
    let exit = if source.is_transient() { Exit::Retry } else { Exit::Failed };
    let hint = format!("everything is in `{}`; copy it from there", here.display());
    Err(error).hint(hint).exit(exit)
}
