//! `paceline key`: the key that makes a task one of ours.

use crate::{
    terminal::failure::{Exit, FailureExt},
    terminal::{Terminal, typed_path},
};
use paceline_wire::{ClusterKey, KeyError};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Where a key goes and is looked for unless told.
const DEFAULT: &str = "cluster.key";

/// Arguments of `paceline key`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a new key in a file that only you can read
    New {
        /// The file; it must not exist
        #[arg(default_value = DEFAULT)]
        file: PathBuf,
    },
    /// See whether a file holds a key that others cannot read, and which key it is
    Check {
        /// The file
        #[arg(default_value = DEFAULT)]
        file: PathBuf,
    },
}

/// Makes or checks a key.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let (file, key) = match &args.action {
        Action::New { file } => {
            let key = ClusterKey::generate()?;
            with_hint(key.save(file), file)?;
            terminal.note(
                "copy it to every host of the cluster, over a channel that no one else can read",
            );
            (file, key)
        }
        Action::Check { file } => (file, with_hint(ClusterKey::load(file), file)?),
    };
    let fingerprint = key.fingerprint();
    if terminal.wants_json() {
        terminal.json(&json!({ "file": file, "fingerprint": fingerprint }))?;
    } else {
        terminal.data(format!("{}: key {fingerprint}", file.display()))?;
    }
    Ok(Exit::Done)
}

/// Says what to do about a failure.
fn with_hint<T>(result: Result<T, KeyError>, file: &Path) -> anyhow::Result<T> {
    let hint = match &result {
        Err(KeyError::Exposed { .. }) => {
            format!("if no one else has read it yet: chmod 600 {}", file.display())
        }
        Err(KeyError::DamagedFile { .. }) => {
            String::from("copy it again from a host where `paceline key check` is content")
        }
        Err(KeyError::Exists { .. }) => {
            String::from("give another name; who deletes a key shuts out the tasks that hold it")
        }
        Err(KeyError::Io { action: "read", .. }) => {
            format!("`paceline key new {}` makes one", typed_path(file))
        }
        _ => return Ok(result?),
    };
    result.hint(hint)
}
