//! `cargo xtask dist`: what a release needs, in `target/dist`, made from this tree.
//!
//! `--target x86_64-unknown-linux-musl` links everything into the program, so that it runs on any Linux. A program for
//! another processor cannot print its completions and manual pages here: a build for this machine prints them, from the
//! same definitions.

use crate::{dependencies, environment, sbom, wheel};
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
const USAGE: &str = "usage: cargo xtask dist [--target TRIPLE] [--profile PROFILE]";

/// What is asked for.
struct Wanted<'a> {
    /// The system it is for; this machine's unless one is named.
    target: Option<&'a str>,
    /// Cargo's; `release` unless a test of this task says otherwise.
    profile: &'a str,
}

impl<'a> Wanted<'a> {
    fn parse(mut words: &[&'a str]) -> anyhow::Result<Self> {
        let mut wanted = Self { target: None, profile: "release" };
        while let [flag, value, rest @ ..] = words {
            match *flag {
                "--target" => wanted.target = Some(value),
                "--profile" => wanted.profile = value,
                _ => bail!("{USAGE}"),
            }
            words = rest;
        }
        if !words.is_empty() {
            bail!("{USAGE}");
        }
        Ok(wanted)
    }

    /// Builds the program and names the file.
    fn build(&self, root: &Path, target: Option<&str>) -> anyhow::Result<PathBuf> {
        let mut cargo = environment::cargo(root);
        cargo.args(["build", "--locked", "-p", "paceline", "--profile", self.profile]);
        // Symbols are of no use to people who run it.
        cargo.args(["--config", &format!("profile.{}.strip=true", self.profile)]);
        let mut built = environment::target(root);
        if let Some(target) = target {
            cargo.args(["--target", target]);
            built.push(target);
        }
        environment::run(&mut cargo).with_context(|| match target {
            Some(target) => format!(
                "cannot build for {target}; `rustup target add {target}` installs its standard library, \
                 and C code needs a compiler for it (`CC_{}`)",
                target.replace('-', "_")
            ),
            None => "cannot build the program".to_owned(),
        })?;
        built.push(if self.profile == "dev" { "debug" } else { self.profile });
        Ok(built.join("paceline"))
    }
}

/// Builds the program and everything beside it.
pub fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let wanted = Wanted::parse(words)?;
    let started = Instant::now();
    let say = |what: &str| println!("== {what} ({:.0} s)", started.elapsed().as_secs_f64());
    let host = environment::host()?;
    let target = wanted.target.unwrap_or(&host);
    say(&format!("building the program for {target}"));
    let built = wanted.build(root, wanted.target)?;
    let dist = environment::target(root).join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).with_context(|| format!("cannot clear {}", dist.display()))?;
    }
    let name = format!("paceline-{}-{target}", env!("CARGO_PKG_VERSION"));
    let folder = dist.join(&name);
    create(&folder.join("completions"))?;
    let program = folder.join("paceline");
    copy(&built, &program)?;
    let (machine, own) = (processor(target), processor(&host));
    let speaker = if machine == own {
        program.clone()
    } else {
        say(&format!("a program for {machine} cannot be started here: building one that can"));
        wanted.build(root, None)?
    };
    say("completions and manual pages");
    for shell in SHELLS {
        let script = output(Command::new(&speaker).args(["completions", shell]))?;
        write(&folder.join("completions").join(format!("paceline.{shell}")), &script)?;
    }
    let pages = folder.join("man");
    environment::run(Command::new(&speaker).args(["man", "--quiet", "--out"]).arg(&pages))?;
    for document in DOCUMENTS {
        copy(&root.join(document), &folder.join(document))?;
    }
    say("wheel");
    wheel::pack(root, &program, (machine != own).then_some(machine), &dist)?;
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
    // Names of their own for each target, so that the files of several lie side by side in a release.
    let sums = format!("{name}.sha256");
    write(
        &dist.join(&sums),
        &output(Command::new("sha256sum").current_dir(&dist).args(files(&dist)?))?,
    )?;
    say(&format!("done: {}", dist.display()));
    Ok(())
}

/// The processor that a target's name begins with.
fn processor(target: &str) -> &str {
    target.split('-').next().unwrap_or(target)
}

/// Names of the files in a folder, sorted.
fn files(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
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
