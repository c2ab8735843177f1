//! Our own program, called the way users call it.

use crate::environment;
use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The built program.
pub struct Paceline {
    program: PathBuf,
}

impl Paceline {
    /// Builds it in release mode; `PACELINE_BIN` names another one that is built already.
    pub fn build(root: &Path) -> anyhow::Result<Self> {
        if let Some(program) = std::env::var_os("PACELINE_BIN") {
            return Ok(Self { program: PathBuf::from(program) });
        }
        let build = ["build", "--release", "-p", "paceline"];
        environment::run(environment::cargo(root).args(build))?;
        Ok(Self { program: root.join("target/release/paceline") })
    }

    /// Where it is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs a command and reads what it prints with `--json`.
    pub fn json(&self, args: &[&str]) -> anyhow::Result<Value> {
        let output = Command::new(&self.program)
            .args(args)
            .args(["--json", "--quiet"])
            .output()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("paceline {} failed: {}", args.join(" "), said.trim());
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("paceline {} printed no JSON", args.join(" ")))
    }
}

/// Where the real data are.
pub fn shared_data(root: &Path) -> PathBuf {
    std::env::var_os("PACELINE_DATA").map_or_else(|| root.join("../shared/data"), PathBuf::from)
}
