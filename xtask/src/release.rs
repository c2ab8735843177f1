//! `cargo xtask release`: the version in every place that names it, and the changelog's heading, changed together and checked.
//!
//! A release is a commit that this makes and a tag of the same number. The workflow that publishes it asks `release check TAG`
//! first, and every `cargo xtask check` compares the places, so that no tag can name what the program does not say of itself.

use crate::environment;
use anyhow::{Context, bail};
use std::{fs, path::Path, process::Command};

/// Files that name the version, each with what stands before it.
const PLACES: &[(&str, &str)] = &[
    ("crates/cli/python/pyproject.toml", "\nversion = \""),
    ("crates/cli/python/paceline/__init__.py", "\n__version__ = \""),
    ("deploy/kubernetes/jobset.yaml", "image: paceline:"),
    ("deploy/kubernetes/tfjob.yaml", "image: paceline:"),
    ("deploy/kubernetes/trainjob.yaml", "image: paceline:"),
    ("deploy/vertex/job.yaml", "/paceline:"),
    ("docs/openapi.json", "\n  \"version\": \""),
    ("docs/book/src/how-to/kubernetes.md", "REGISTRY/paceline:"),
    ("docs/book/src/how-to/vertex.md", "/paceline/paceline:"),
];
const MANIFEST: &str = "Cargo.toml";
const LOCK: &str = "Cargo.lock";
/// The fuzzing workspace's own: cargo could only write it with that workspace's packages at hand.
const FUZZ_LOCK: &str = "fuzz/Cargo.lock";
/// What each package of a lock file begins with.
const PACKAGE: &str = "[[package]]";
const CHANGELOG: &str = "CHANGELOG.md";
const UNRELEASED: &str = "## Unreleased";

/// `check [TAG]`, or the number of the new version.
pub fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    match words {
        ["check"] => report(&findings(root)?),
        ["check", tag] => {
            let mut found = findings(root)?;
            found.extend(tagged(root, tag)?);
            report(&found)?;
            println!("{tag} is the version of the program and has its section in {CHANGELOG}");
            Ok(())
        }
        [version] if is_version(version) => prepare(root, version),
        _ => {
            bail!("usage: cargo xtask release VERSION | check [TAG], with a version such as 0.2.0")
        }
    }
}

fn report(findings: &[String]) -> anyhow::Result<()> {
    for finding in findings {
        println!("{finding}");
    }
    if findings.is_empty() { Ok(()) } else { bail!("{} findings", findings.len()) }
}

/// Places that do not name the version of the workspace.
pub fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let version = version(root)?;
    let mut findings = Vec::new();
    let mut compare = |file: &str, found: Vec<String>| {
        if found.is_empty() {
            findings.push(format!("{file}: names no version"));
        }
        for other in found.into_iter().filter(|found| *found != version) {
            findings.push(format!(
                "{file}: {other}, but {MANIFEST} has {version}; `cargo xtask release` changes all places"
            ));
        }
    };
    for (file, before) in PLACES {
        compare(file, versions(&read(root, file)?, before));
    }
    let manifest = read(root, MANIFEST)?;
    compare(MANIFEST, own_dependencies(&manifest));
    compare(LOCK, locked(&read(root, LOCK)?));
    compare(FUZZ_LOCK, locked(&read(root, FUZZ_LOCK)?));
    if !read(root, CHANGELOG)?.contains("\n## ") {
        findings.push(format!("{CHANGELOG}: has no section"));
    }
    Ok(findings)
}

/// What keeps a tag from being a release of this tree.
fn tagged(root: &Path, tag: &str) -> anyhow::Result<Vec<String>> {
    let (version, changelog) = (version(root)?, read(root, CHANGELOG)?);
    let mut findings = Vec::new();
    if tag.strip_prefix('v') != Some(version.as_str()) {
        findings.push(format!("the tag {tag} is not v{version}, the version of the program"));
    }
    let newest = changelog.lines().find(|line| line.starts_with("## ")).unwrap_or_default();
    if !newest.starts_with(&format!("## {version} – ")) {
        findings.push(format!(
            "{CHANGELOG}: the newest section is `{newest}`, not `## {version} – DATE`"
        ));
    }
    if section(&changelog, &version).is_none_or(|text| text.trim().is_empty()) {
        findings.push(format!("{CHANGELOG}: says nothing about {version}"));
    }
    Ok(findings)
}

/// Sets the version everywhere, dates the changelog, and says what is left to do.
fn prepare(root: &Path, version: &str) -> anyhow::Result<()> {
    let status = git(root, &["status", "--porcelain"])?;
    if !status.trim().is_empty() {
        bail!("the working tree has changes; a release is a commit of its own:\n{status}");
    }
    let before = self::version(root)?;
    if numbers(version) <= numbers(&before) {
        bail!("{version} is not above {before}");
    }
    for (file, prefix) in PLACES {
        let text = read(root, file)?;
        let (old, new) = (format!("{prefix}{before}"), format!("{prefix}{version}"));
        write(root, file, &text.replace(&old, &new))?;
    }
    let manifest = read(root, MANIFEST)?;
    let (old, new) = (format!("version = \"{before}\""), format!("version = \"{version}\""));
    let changed: Vec<String> = manifest
        .lines()
        .map(|line| if is_own(line) { line.replace(&old, &new) } else { line.to_owned() })
        .collect();
    write(root, MANIFEST, &(changed.join("\n") + "\n"))?;
    environment::run(environment::cargo(root).args(["update", "--workspace", "--offline"]))?;
    let lock = read(root, FUZZ_LOCK)?;
    write(root, FUZZ_LOCK, &relocked(&lock, &before, version))?;
    let date =
        Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("cannot run date")?;
    let date = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    let changelog = read(root, CHANGELOG)?;
    write(root, CHANGELOG, &dated(&changelog, version, &date)?)?;
    report(&findings(root)?)?;
    report(&tagged(root, &format!("v{version}"))?)?;
    println!(
        "{before} is now {version} in all places. Next:\n  .ci/run\n  git commit -am 'Version {version}' && git tag -a v{version} -m 'Paceline {version}'\n  \
         cargo xtask release check v{version}"
    );
    Ok(())
}

/// The section without a number gets one. The next change writes a new section without a number above it.
fn dated(changelog: &str, version: &str, date: &str) -> anyhow::Result<String> {
    let (before, after) = changelog
        .split_once(&format!("{UNRELEASED}\n"))
        .with_context(|| format!("{CHANGELOG} has no section `{UNRELEASED}`"))?;
    let text = after.split("\n## ").next().unwrap_or_default();
    if text.trim().is_empty() {
        bail!("{CHANGELOG} says nothing about what is released");
    }
    Ok(format!("{before}## {version} – {date}\n{after}"))
}

/// What the changelog says of a version.
fn section<'a>(changelog: &'a str, version: &str) -> Option<&'a str> {
    let (_, after) = changelog.split_once(&format!("\n## {version} – "))?;
    let (_, text) = after.split_once('\n')?;
    text.split("\n## ").next()
}

/// The version of the workspace.
fn version(root: &Path) -> anyhow::Result<String> {
    let manifest = read(root, MANIFEST)?;
    let found = versions(&manifest, "\nversion = \"").into_iter().next();
    found.with_context(|| format!("{MANIFEST} has no version"))
}

/// Versions of this workspace's crates where they depend on each other.
fn own_dependencies(manifest: &str) -> Vec<String> {
    let own = manifest.lines().filter(|line| line.starts_with("paceline-") && is_own(line));
    own.flat_map(|line| versions(line, "version = \"")).collect()
}

/// Whether a line of the manifest names the version of this workspace.
fn is_own(line: &str) -> bool {
    line.starts_with("version = ") || line.starts_with("paceline-") && line.contains("path = ")
}

/// Versions of this workspace's packages in a lock file.
fn locked(lock: &str) -> Vec<String> {
    let own = lock.split(PACKAGE).filter(|package| is_locked_here(package));
    own.flat_map(|package| versions(package, "\nversion = \"")).collect()
}

/// A lock file in which this workspace's packages have another version.
fn relocked(lock: &str, before: &str, version: &str) -> String {
    let (old, new) = (format!("\nversion = \"{before}\""), format!("\nversion = \"{version}\""));
    let packages = lock.split(PACKAGE).map(|package| {
        if is_locked_here(package) { package.replace(&old, &new) } else { package.to_owned() }
    });
    packages.collect::<Vec<_>>().join(PACKAGE)
}

/// Whether a package of a lock file is one of this workspace, the fuzzing targets' own (which have no version) left out.
fn is_locked_here(package: &str) -> bool {
    let name = package.split("\nname = \"").nth(1).and_then(|rest| rest.split('"').next());
    let name = name.unwrap_or_default();
    (name == "paceline" || name.starts_with("paceline-") || name == "xtask")
        && name != "paceline-fuzz"
        && !package.contains("\nsource = ")
}

/// The version that follows each place where a text stands.
fn versions(text: &str, before: &str) -> Vec<String> {
    let is_end = |c: char| !(c.is_ascii_digit() || c == '.');
    let found = text.split(before).skip(1).filter_map(|part| part.split(is_end).next());
    found.map(str::to_owned).collect()
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}

fn git(root: &Path, words: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new("git").current_dir(root).args(words).output().context("cannot run git")?;
    if !output.status.success() {
        bail!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read(root: &Path, file: &str) -> anyhow::Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
}

fn write(root: &Path, file: &str, text: &str) -> anyhow::Result<()> {
    fs::write(root.join(file), text).with_context(|| format!("cannot write {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0 – 2026-01-01\n\n- old\n";

    #[test]
    fn the_section_of_a_release_gets_number_and_date() {
        let changed = dated(LOG, "0.2.0", "2026-11-18").unwrap();
        assert!(changed.contains("\n## 0.2.0 – 2026-11-18\n\n- new\n\n## 0.1.0"), "{changed}");
        assert_eq!(section(&changed, "0.2.0").unwrap().trim(), "- new");
        assert_eq!(section(&changed, "0.1.0").unwrap().trim(), "- old");
        assert!(section(&changed, "0.3.0").is_none());
        assert!(dated(&LOG.replace("- new", ""), "0.2.0", "x").is_err(), "nothing to say");
        assert!(dated(&LOG.replace("Unreleased", "0.2.0"), "0.3.0", "x").is_err());
    }

    #[test]
    fn a_place_that_was_forgotten_is_found() {
        let scratch = std::env::temp_dir().join(format!("paceline-release-{}", std::process::id()));
        for (file, before) in PLACES {
            fs::create_dir_all(scratch.join(file).parent().unwrap()).unwrap();
            fs::write(scratch.join(file), format!("\n{before}0.2.0\"\n")).unwrap();
        }
        let manifest = "[workspace.package]\nversion = \"0.2.0\"\n\n[workspace.dependencies]\npaceline-wire = { path = \"w\", version = \"0.2.0\" }\n\
                        paceline-testing = { path = \"t\" }\nserde = { version = \"1.0\" }\n";
        let lock = "[[package]]\nname = \"paceline-wire\"\nversion = \"0.2.0\"\n\n[[package]]\nname = \"serde\"\nversion = \"1.0.1\"\nsource = \"x\"\n";
        let log = dated(LOG, "0.2.0", "2026-11-18").unwrap();
        let put = |file: &str, text: &str| write(&scratch, file, text).unwrap();
        put(MANIFEST, manifest);
        put(LOCK, lock);
        fs::create_dir_all(scratch.join("fuzz")).unwrap();
        put(FUZZ_LOCK, lock);
        put(CHANGELOG, &log);
        assert_eq!(findings(&scratch).unwrap(), Vec::<String>::new());
        assert_eq!(tagged(&scratch, "v0.2.0").unwrap(), Vec::<String>::new());
        assert_eq!(tagged(&scratch, "v0.3.0").unwrap().len(), 1);
        put(LOCK, &lock.replace("0.2.0", "0.1.0"));
        put(PLACES[2].0, &format!("{}0.1.0\n", PLACES[2].1));
        put(CHANGELOG, LOG);
        let found = findings(&scratch).unwrap();
        assert!(found.len() == 2 && found[0].starts_with(PLACES[2].0), "{found:?}");
        assert_eq!(tagged(&scratch, "v0.2.0").unwrap().len(), 2, "no section");
        fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn a_release_does_not_forget_the_lock_of_the_fuzzing_targets() {
        let lock = "version = 4\n\n[[package]]\nname = \"paceline-fuzz\"\nversion = \"0.0.0\"\n\n[[package]]\nname = \"paceline-wire\"\nversion = \"0.1.0\"\n\n\
                    [[package]]\nname = \"serde\"\nversion = \"0.1.0\"\nsource = \"x\"\n";
        let changed = relocked(lock, "0.1.0", "0.2.0");
        assert_eq!(locked(&changed), ["0.2.0"]);
        assert_eq!(changed.matches("0.1.0").count(), 1, "{changed}");
        assert!(changed.contains("\"0.0.0\"") && changed.starts_with("version = 4\n"));
    }

    #[test]
    fn only_three_numbers_are_a_version() {
        assert!(is_version("0.2.0") && is_version("10.0.1"));
        assert!(!is_version("0.2") && !is_version("v0.2.0") && !is_version("0.2.0-rc1"));
        assert!(numbers("0.10.0") > numbers("0.9.9"));
    }
}
