//! `cargo xtask book`: the pages of `docs/book` as HTML, by mdBook, which is installed below `target/` first.

use crate::environment;
use anyhow::{Context, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Pinned, so that a page looks tomorrow as it does today.
const VERSION: &str = "0.5.4";

/// Installs mdBook if it is not there in this version. Without its server and file watcher, and without optimisation: that builds in about
/// 80 CPU-seconds instead of several minutes, and the book takes a second either way.
fn ensure(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = environment::target(root).join("mdbook");
    let program = folder.join("bin/mdbook");
    let found = Command::new(&program).arg("--version").output();
    if found.is_ok_and(|found| String::from_utf8_lossy(&found.stdout).contains(VERSION)) {
        return Ok(program);
    }
    println!("== installing mdBook {VERSION} into {}", folder.display());
    let build = folder.join("build");
    environment::run(
        environment::cargo(root)
            .args(["install", "mdbook", "--version", VERSION, "--locked", "--debug", "--force"])
            .args(["--no-default-features", "--features", "search"])
            .arg("--root")
            .arg(&folder)
            .arg("--target-dir")
            .arg(&build)
            // Outside of this workspace: its profiles are not meant for others.
            .current_dir(std::env::temp_dir())
            .env("CARGO_PROFILE_DEV_DEBUG", "0"),
    )?;
    fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))?;
    Ok(program)
}

/// Builds the book; a warning of mdBook is a failure.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let program = ensure(root)?;
    let pages = environment::target(root).join("book");
    let output = Command::new(&program)
        .arg("build")
        .arg(root.join("docs/book"))
        .arg("--dest-dir")
        .arg(&pages)
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let complains = |line: &&str| line.contains("WARN") || line.contains("ERROR");
    let complaints: Vec<&str> = said.lines().filter(complains).collect();
    if !output.status.success() || !complaints.is_empty() {
        bail!(
            "mdBook: {}",
            if complaints.is_empty() { said.into() } else { complaints.join("\n") }
        );
    }
    println!("{}", pages.join("index.html").display());
    Ok(())
}
