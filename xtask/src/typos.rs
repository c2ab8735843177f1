//! Spelling, by `typos`: it knows common misspellings rather than all words, so identifiers and names do not trip it.

use crate::environment::Environment;
use anyhow::{Context, bail};
use std::{path::Path, process::Command};

const TYPOS: Environment = Environment { folder: "test-env-typos", packages: &["typos==1.51.1"] };

/// What `typos` finds. Words that are right although it doubts them are in `typos.toml`.
pub fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let python = match TYPOS.ensure(root) {
        Ok(python) => python,
        Err(error) if std::env::var("CI").as_deref() == Ok("true") => return Err(error),
        Err(error) => {
            eprintln!("warning: {error:#}; spelling is not checked");
            return Ok(Vec::new());
        }
    };
    let program = python.with_file_name("typos");
    let output = Command::new(&program)
        .current_dir(root)
        .args(["--format", "brief"])
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let found = lines(&String::from_utf8_lossy(&output.stdout));
    // Typos found are a failure too, with a list.
    if !output.status.success() && found.is_empty() {
        bail!("{} failed: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(found)
}

fn lines(output: &str) -> Vec<String> {
    output.lines().map(|line| line.trim_start_matches("./").to_owned()).collect()
}
