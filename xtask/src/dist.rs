//! `cargo xtask dist`: what a release needs, in `target/dist`, made from this tree.
//!
//! `--target x86_64-unknown-linux-musl` links everything into the program, so that it runs on any Linux. What a build for another
//! target needs is installed below `target/` (`xtask/src/cross.rs`). A program for another processor cannot print its completions
//! and manual pages here, unless QEMU runs it: a build for this machine prints them, from the same definitions.

use crate::{cross, dependencies, environment, sbom, wheel};
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
/// Makes an image of the archive's contents.
const IMAGE: &str = "deploy/dist.Dockerfile";
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
            cross::prepare(root, target, &mut cargo)?;
        }
        environment::run(&mut cargo).with_context(|| match target {
            Some(target) => format!(
                "cannot build for {target}; a C compiler of your own is used where `CC_{}` names it",
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
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("paceline-{version}-{target}");
    let folder = dist.join(&name);
    clear(&dist, version, target)?;
    create(&folder.join("completions"))?;
    let program = folder.join("paceline");
    copy(&built, &program)?;
    let (machine, own) = (processor(target), processor(&host));
    let runs = machine == own || Command::new(&program).arg("--version").output().is_ok();
    let speaker = if runs {
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
    copy(&root.join(IMAGE), &folder.join("Dockerfile"))?;
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
        &output(Command::new("sha256sum").current_dir(&dist).args(files(&dist, target)?))?,
    )?;
    say(&format!("done: {}", dist.display()));
    Ok(())
}

/// The processor that a target's name begins with.
fn processor(target: &str) -> &str {
    target.split('-').next().unwrap_or(target)
}

/// Whether a file belongs to a target: by its name, or it is the wheel of its processor.
fn is_of(file: &str, target: &str) -> bool {
    file.contains(&format!("-{target}")) || file.ends_with(&format!("_{}.whl", processor(target)))
}

/// Removes what was made for this target, and what is of other versions; other targets of this version stay, so that the files of
/// several lie side by side.
fn clear(dist: &Path, version: &str, target: &str) -> anyhow::Result<()> {
    create(dist)?;
    for entry in fs::read_dir(dist)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&format!("paceline-{version}-")) && !is_of(&name, target) {
            continue;
        }
        let path = entry.path();
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Names of a target's files in a folder, sorted.
fn files(folder: &Path, target: &str) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_file() && is_of(&name, target) {
            names.push(name);
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

fn create(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display()))
}

fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second target took away what the first had made.
    #[test]
    fn targets_of_one_version_lie_side_by_side() {
        let dist = std::env::temp_dir().join(format!("paceline-dist-{}", std::process::id()));
        let (arm, intel) = ("aarch64-unknown-linux-musl", "x86_64-unknown-linux-musl");
        fs::create_dir_all(dist.join(format!("paceline-0.2.0-{arm}"))).unwrap();
        let made = |name: &str| fs::write(dist.join(name), "made").unwrap();
        for target in [arm, intel] {
            made(&format!("paceline-0.2.0-{target}.tar.gz"));
            made(&format!("paceline-0.2.0-py3-none-manylinux_2_17_{}.whl", processor(target)));
        }
        made(&format!("paceline-0.1.0-{arm}.tar.gz"));
        clear(&dist, "0.2.0", intel).unwrap();
        assert_eq!(files(&dist, intel).unwrap(), Vec::<String>::new());
        let kept = [
            format!("paceline-0.2.0-{arm}.tar.gz"),
            "paceline-0.2.0-py3-none-manylinux_2_17_aarch64.whl".to_owned(),
        ];
        assert_eq!(files(&dist, arm).unwrap(), kept, "of this version alone");
        assert!(dist.join(format!("paceline-0.2.0-{arm}")).is_dir());
        fs::remove_dir_all(&dist).unwrap();
    }
}
