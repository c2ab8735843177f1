//! Cells whose workers have hosts of their own: network namespaces of this machine, made by the script that comes with the recipes.
//!
//! Published experiments ran on several machines. Workers of one machine exchange through its memory and are equally near to the
//! server; in namespaces everything between them goes through the kernel's network, and each one's traffic is counted apart.

use crate::error::SweepError;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The script, as it lies among the recipes.
const SCRIPT: &str = include_str!("../recipes/on-hosts.sh");
/// What a page says of it.
pub(crate) const WORDS: &str = "Every worker had a host of its own, a network namespace of this machine; the server and a task that scores shared that of worker 0.";
/// Its name in the folder of a sweep.
const NAME: &str = "on-hosts.sh";

/// The command line of a cell, to be run with hosts of its own; what they record goes below `folder`.
pub(crate) fn command(
    program: &Path,
    arguments: &[String],
    out: &Path,
    folder: &Path,
) -> Result<Command, SweepError> {
    let mut command = Command::new("sh");
    command.arg(script(out)?).args(arguments).arg("--json");
    command.env("NO_COLOR", "1").env("PACELINE", program).env("PACELINE_CELL", folder);
    Ok(command)
}

/// Finds out whether this machine can have hosts, before the first cell does.
///
/// # Errors
/// It cannot, with the reason; or the script cannot be written.
pub fn check_hosts(out: &Path) -> Result<(), SweepError> {
    fs::create_dir_all(out).map_err(|source| SweepError::Write { path: out.to_owned(), source })?;
    let mut command = Command::new("sh");
    command.arg(script(out)?).arg("check").stdin(Stdio::null()).stdout(Stdio::null());
    let found = command
        .output()
        .map_err(|source| SweepError::Start { program: PathBuf::from("sh"), source })?;
    if found.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&found.stderr);
    let reason = said.trim().trim_start_matches("error: ").to_owned();
    Err(SweepError::Hosts { reason })
}

/// Writes the script where it can be run, and looked at.
fn script(out: &Path) -> Result<PathBuf, SweepError> {
    let path = out.join(NAME);
    if fs::read_to_string(&path).is_ok_and(|there| there == SCRIPT) {
        return Ok(path);
    }
    fs::write(&path, SCRIPT).map_err(|source| SweepError::Write { path: path.clone(), source })?;
    Ok(path)
}
