//! Licences, sources and versions of all dependencies, held against `deny.toml`; and dependencies that no source uses.
//!
//! cargo-deny does more (advisories, whose database no registry has), but takes minutes to build; this needs nothing beyond
//! cargo, so every check does it.

use crate::environment;
use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The rules.
#[derive(Debug, Default)]
struct Rules {
    licences: BTreeSet<String>,
    banned: BTreeSet<String>,
    /// Crates that may be there in several versions.
    several: BTreeSet<String>,
}

/// Everything about dependencies that the rules do not allow.
pub fn findings(root: &Path, metadata: &Value) -> anyhow::Result<Vec<String>> {
    let rules = Rules::read(&std::fs::read_to_string(root.join("deny.toml"))?)?;
    let packages = metadata["packages"].as_array().context("a list of packages")?;
    let mut findings = rules.judge(packages);
    for package in packages.iter().filter(|package| package["source"].is_null()) {
        findings.extend(unused(package)?);
    }
    Ok(findings)
}

/// Dependencies of one of our own packages that its sources never name.
fn unused(package: &Value) -> anyhow::Result<Vec<String>> {
    let manifest = Path::new(package["manifest_path"].as_str().context("a manifest")?);
    let folder = manifest.parent().context("a manifest is in a folder")?;
    let (mut shipped, mut others) = (BTreeSet::new(), BTreeSet::new());
    for place in ["src", "build.rs"] {
        names_in(&folder.join(place), &mut shipped)?;
    }
    for place in ["tests", "examples", "benches"] {
        names_in(&folder.join(place), &mut others)?;
    }
    let mut findings = Vec::new();
    for dependency in package["dependencies"].as_array().context("a list of dependencies")? {
        let name = dependency["rename"].as_str().or(dependency["name"].as_str());
        let name = name.context("a dependency has a name")?.replace('-', "_");
        let only_tests = dependency["kind"].as_str() == Some("dev");
        let is_used = shipped.contains(&name) || only_tests && others.contains(&name);
        if !is_used {
            let manifest = manifest.display();
            findings.push(format!("{manifest}: no source of the package uses `{name}`"));
        }
    }
    Ok(findings)
}

/// Every word of the Rust sources in a folder, or of one.
fn names_in(path: &Path, names: &mut BTreeSet<String>) -> anyhow::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            names_in(&entry?.path(), names)?;
        }
    } else if path.extension().is_some_and(|kind| kind == "rs") && path.is_file() {
        let text = std::fs::read_to_string(path)?;
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        names.extend(words.map(str::to_owned));
    }
    Ok(())
}

/// What `cargo metadata` says of this workspace, as `Cargo.lock` has it.
pub fn metadata(root: &Path) -> anyhow::Result<Value> {
    let mut command = environment::cargo(root);
    command.current_dir(root).args(["metadata", "--format-version", "1", "--locked"]);
    // What other systems would need is neither built here nor downloaded.
    command.arg("--filter-platform").arg(environment::host()?);
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo's metadata is not JSON")
}

impl Rules {
    fn read(text: &str) -> anyhow::Result<Self> {
        let mut rules = Self::default();
        let mut list = None;
        for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
            if let Some((name, _)) = line.split_once(" = [") {
                list = Some(name.to_owned());
            } else if line == "]" {
                list = None;
            } else if let (Some(list), Some(word)) = (&list, line.split('"').nth(1)) {
                let into = match list.as_str() {
                    "allow" => &mut rules.licences,
                    "deny" => &mut rules.banned,
                    "skip" => &mut rules.several,
                    other => bail!("deny.toml: `{other}` is not understood here"),
                };
                into.insert(word.to_owned());
            }
        }
        if rules.licences.is_empty() {
            bail!("deny.toml allows no licence");
        }
        Ok(rules)
    }

    fn judge(&self, packages: &[Value]) -> Vec<String> {
        let mut findings = Vec::new();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for package in packages {
            let word = |key: &str| package[key].as_str().unwrap_or_default();
            let (name, version, source) = (word("name"), word("version"), word("source"));
            if source.is_empty() {
                continue; // one of our own
            }
            versions.entry(name).or_default().insert(version);
            if !source.starts_with("registry+") {
                findings.push(format!("Cargo.lock: {name} {version} comes from {source}"));
            }
            if self.banned.contains(name) {
                findings.push(format!("Cargo.lock: {name} is banned by deny.toml"));
            }
            let licence = word("license");
            if !self.allows(licence) {
                findings.push(format!("Cargo.lock: {name} {version} has the licence `{licence}`"));
            }
        }
        for (name, versions) in versions {
            if versions.len() > 1 && !self.several.contains(name) {
                let versions: Vec<&str> = versions.into_iter().collect();
                findings.push(format!("Cargo.lock: {name} in versions {}", versions.join(", ")));
            }
        }
        findings
    }

    /// Whether an expression such as `(MIT OR Apache-2.0) AND ISC` can be satisfied.
    fn allows(&self, expression: &str) -> bool {
        let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = &words[..];
        self.either(&mut rest) && rest.is_empty()
    }

    fn either(&self, words: &mut &[&str]) -> bool {
        let mut found = self.both(words);
        while let Some(("OR", rest)) = words.split_first().map(|(first, rest)| (*first, rest)) {
            *words = rest;
            found |= self.both(words);
        }
        found
    }

    fn both(&self, words: &mut &[&str]) -> bool {
        let mut found = self.one(words);
        while let Some(("AND", rest)) = words.split_first().map(|(first, rest)| (*first, rest)) {
            *words = rest;
            found &= self.one(words);
        }
        found
    }

    fn one(&self, words: &mut &[&str]) -> bool {
        match **words {
            ["(", ref rest @ ..] => {
                *words = rest;
                let found = self.either(words);
                let closed = words.first() == Some(&")");
                *words = words.get(1..).unwrap_or_default();
                found && closed
            }
            [licence, "WITH", exception, ref rest @ ..] => {
                *words = rest;
                self.licences.contains(&format!("{licence} WITH {exception}"))
            }
            [licence, ref rest @ ..] => {
                *words = rest;
                self.licences.contains(licence)
            }
            [] => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = "[licenses]\nallow = [\n  \"MIT\", # why\n  \"ISC\",\n]\n[bans]\ndeny = [\n  { crate = \"bad\" },\n]\nskip = [\n  { crate = \"twice\" },\n]\n";

    #[test]
    fn expressions_are_satisfied_by_allowed_licences_alone() {
        let rules = Rules::read(TEXT).unwrap();
        for (expression, allowed) in [
            ("MIT", true),
            ("GPL-3.0 OR MIT", true),
            ("Unlicense/MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("(MIT OR GPL-3.0) AND ISC", true),
            ("(MIT OR ISC) AND GPL-3.0", false),
            ("MIT WITH exception", false),
            ("", false),
            ("(MIT", false),
        ] {
            assert_eq!(rules.allows(expression), allowed, "{expression}");
        }
    }

    #[test]
    fn strange_sources_bans_and_second_versions_are_found() {
        let rules = Rules::read(TEXT).unwrap();
        let package = |name: &str, version: &str, source: &str| json!({"name": name, "version": version, "license": "MIT", "source": source});
        let packages = [
            package("own", "1", ""),
            package("good", "1", "registry+x"),
            package("bad", "1", "registry+x"),
            package("elsewhere", "1", "git+x"),
            package("twice", "1", "registry+x"),
            package("twice", "2", "registry+x"),
            package("double", "1", "registry+x"),
            package("double", "2", "registry+x"),
        ];
        let found = rules.judge(&packages);
        assert_eq!(found.len(), 3, "{found:?}");
        for (finding, word) in
            found.iter().zip(["bad is banned", "elsewhere", "double in versions"])
        {
            assert!(finding.contains(word), "{finding}");
        }
    }
}
