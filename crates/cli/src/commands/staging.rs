//! Stand-ins for folders in object stores, as commands use them: what they are called, and what is said when a store
//! did not take everything. The stand-ins themselves are [`paceline_data::store::Staging`].

use crate::{
    failure::{Exit, FailureExt, usage},
    terminal::Terminal,
};
use clap::builder::{OsStringValueParser, TypedValueParser};
pub(super) use paceline_data::store::staging::without_weights;
use paceline_data::store::{self, StoreError};
use std::{
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
};

/// The stand-ins of one command.
#[derive(Debug, Default)]
pub(super) struct Staging(store::Staging);

impl Deref for Staging {
    type Target = store::Staging;

    fn deref(&self) -> &store::Staging {
        &self.0
    }
}

impl DerefMut for Staging {
    fn deref_mut(&mut self) -> &mut store::Staging {
        &mut self.0
    }
}

impl Staging {
    /// Lets messages call stand-ins by what they stand for.
    pub(super) fn tell(&self, terminal: &mut Terminal) {
        for (here, there) in self.stand_ins() {
            terminal.call(here, there);
        }
    }

    /// Puts everything where it belongs, whatever came of the command.
    pub(super) fn settle<T>(
        self,
        outcome: anyhow::Result<T>,
        terminal: &Terminal,
    ) -> anyhow::Result<T> {
        let problem = match self.0.finish() {
            Ok(()) => return outcome,
            Err(error) => explain(error),
        };
        match outcome {
            Ok(_) => problem,
            Err(error) => {
                // The command's own error is the one to end with.
                if let Err(problem) = problem {
                    terminal.warn(format!("{problem:#}"));
                }
                Err(error)
            }
        }
    }
}

/// Says where everything is that a store did not take.
fn explain<T>(error: StoreError) -> anyhow::Result<T> {
    let StoreError::NotMirrored { here, source, .. } = &error else { return Err(error.into()) };
    let exit = if source.may_pass() { Exit::Retry } else { Exit::Failed };
    let hint = format!("everything is in `{}`; copy it from there", here.display());
    Err(error).hint(hint).exit(exit)
}

/// Tasks on other machines cannot see the stand-in for a folder in a store.
pub(super) fn refuse_for_tasks(out: &Path) -> anyhow::Result<()> {
    if !store::is_remote(out) {
        return Ok(());
    }
    Err(usage(
        format!("tasks of an engine cannot measure into `{}`", out.display()),
        "results go to a folder that every executor sees; the data may lie in a store",
    ))
}

/// A path of this machine, for what no store can stand in for.
pub(super) fn local_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let path = PathBuf::from(text);
        match store::is_remote(&path) {
            true => Err("an object store does not serve here; name a path of this machine"),
            false => Ok(path),
        }
    })
}
