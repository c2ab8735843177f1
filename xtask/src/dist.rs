//! `cargo xtask dist`: what a release needs, in `target/dist`, made from this tree for this machine's target.
//!
//! Another target is another machine, or a cross compiler of your own: what cannot be started here cannot print its
//! completions and manual pages either.

use crate::{dependencies, environment, sbom};
use anyhow::{Context, bail};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

const SHELLS: &[&str] = &["bash", "elvish", "fish", "powershell", "zsh"];
/// Beside the program in every archive.
const DOCUMENTS: &[&str] = &["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Builds the program and everything beside it; `profile` is cargo's, `release` unless a test of this task says otherwise.
pub fn run(root: &Path, profile: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    let say = |what: &str| println!("== {what} ({:.0} s)", started.elapsed().as_secs_f64());
    say("building the program");
    environment::run(environment::cargo(root).args([
        "build",
        "--locked",
        "-p",
        "paceline",
        "--profile",
        profile,
    ]))?;
    let built = environment::target(root).join(if profile == "dev" { "debug" } else { profile });
    let dist = environment::target(root).join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).with_context(|| format!("cannot clear {}", dist.display()))?;
    }
    let name = format!("paceline-{}-{}", env!("CARGO_PKG_VERSION"), environment::host()?);
    let folder = dist.join(&name);
    create(&folder.join("completions"))?;
    let program = folder.join("paceline");
    copy(&built.join("paceline"), &program)?;
    say("stripping it");
    environment::run(Command::new("strip").arg(&program))?;
    say("completions and manual pages");
    for shell in SHELLS {
        let script = output(Command::new(&program).args(["completions", shell]))?;
        write(&folder.join("completions").join(format!("paceline.{shell}")), &script)?;
    }
    let pages = folder.join("man");
    environment::run(Command::new(&program).args(["man", "--quiet", "--out"]).arg(&pages))?;
    for document in DOCUMENTS {
        copy(&root.join(document), &folder.join(document))?;
    }
    say("list of components");
    write(&dist.join(format!("{name}.cdx.json")), &bill_of_materials(root)?)?;
    say("archive and checksums");
    let archive = format!("{name}.tar.gz");
    environment::run(
        Command::new("tar")
            .current_dir(&dist)
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf", &archive])
            .arg(&name),
    )?;
    let sums = output(
        Command::new("sha256sum").current_dir(&dist).args([archive, format!("{name}.cdx.json")]),
    )?;
    write(&dist.join("SHA256SUMS"), &sums)?;
    say(&format!("done: {}", dist.display()));
    Ok(())
}

fn bill_of_materials(root: &Path) -> anyhow::Result<Vec<u8>> {
    let metadata = dependencies::metadata(root)?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let document = sbom::document(&metadata, &lock, "paceline")?;
    Ok(serde_json::to_vec_pretty(&document)?)
}

fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

fn create(folder: &PathBuf) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display()))
}

fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}
