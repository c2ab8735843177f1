//! Python environments under `target/`, made once and kept while their package list stays the same.

use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A named set of packages.
pub struct Environment {
    /// Folder below `target/`.
    pub folder: &'static str,
    /// What pip installs, with versions, so that a figure can be repeated.
    pub packages: &'static [&'static str],
}

/// Spark, and what the usual PySpark job on photos needs: for tests and benchmarks alike, because it is large.
pub const SPARK: Environment = Environment {
    folder: "test-spark",
    packages: &["pyspark==4.3.0", "pillow==13.0.0", "google-crc32c==1.9.0"],
};

impl Environment {
    /// Makes sure the environment is there and returns its interpreter.
    pub fn ensure(&self, root: &Path) -> anyhow::Result<PathBuf> {
        let folder = root.join("target").join(self.folder);
        let python = folder.join("bin/python");
        let stamp = folder.join("paceline-packages.txt");
        let wanted = self.packages.join("\n");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) && python.exists() {
            return Ok(python);
        }
        eprintln!("installing {} into {}", self.packages.join(" "), folder.display());
        ensure_python()?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(self.packages))?;
        fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(python)
    }
}

/// Python with `venv`; Debian ships the module apart from the interpreter.
fn ensure_python() -> anyhow::Result<()> {
    let works = |module: &str| {
        Command::new("python3")
            .args(["-c", &format!("import {module}")])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if works("venv, ensurepip") {
        return Ok(());
    }
    apt_install(&["python3", "python3-venv"])
}

/// A Java for Spark.
pub fn ensure_java() -> anyhow::Result<()> {
    let java = Command::new("java").arg("-version").output();
    if java.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    apt_install(&["default-jre-headless"])
}

/// Installs Debian packages; a machine without apt or root rights gets a clear error.
pub fn apt_install(packages: &[&str]) -> anyhow::Result<()> {
    if Command::new("apt-get").arg("--version").output().is_err() {
        bail!("{} needed, and there is no apt-get to install them", packages.join(", "));
    }
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    run(Command::new("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Runs a command, its output on the terminal; failure names it.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
