//! Whether every crate can be published: `cargo package --workspace` says it exactly, but builds everything again.
//!
//! A package holds only what lies in its folder (links there are followed), and may only ask for packages that the registry has by
//! then. Both are seen without a build, so every check looks.

use anyhow::Context;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

/// Where the packages are named, in the order in which they are published.
const GUIDE: &str = "CONTRIBUTING.md";
const EMBEDDED: &[&str] = &["include_str!(\"", "include_bytes!(\""];

/// One of our own packages, as far as it matters here.
#[derive(Debug)]
struct Package<'a> {
    name: &'a str,
    folder: &'a Path,
    is_published: bool,
    /// What it needs to be compiled, and what its tests need besides.
    needs: Vec<Need<'a>>,
    missing: Vec<&'static str>,
}

#[derive(Debug)]
struct Need<'a> {
    name: &'a str,
    only_tests: bool,
    has_version: bool,
}

/// Everything that would keep a package out of the registry, or leave it broken there.
pub fn findings(root: &Path, metadata: &Value) -> anyhow::Result<Vec<String>> {
    let packages = own_packages(metadata)?;
    let guide = fs::read_to_string(root.join(GUIDE)).context("cannot read CONTRIBUTING.md")?;
    let mut findings = judge(&packages, &guide);
    for package in packages.iter().filter(|package| package.is_published) {
        let mut sources = Vec::new();
        rust_sources(&package.folder.join("src"), &mut sources)?;
        for source in sources {
            let text = fs::read_to_string(&source)?;
            findings.extend(
                foreign_files(package.folder, &source, &text)
                    .into_iter()
                    .map(|found| format!("{}: {found}", package.name)),
            );
        }
    }
    Ok(findings)
}

fn own_packages(metadata: &Value) -> anyhow::Result<Vec<Package<'_>>> {
    let packages = metadata["packages"].as_array().context("a list of packages")?;
    let own = packages.iter().filter(|package| package["source"].is_null());
    own.map(|package| {
        let manifest = Path::new(package["manifest_path"].as_str().context("a manifest")?);
        let needs = package["dependencies"].as_array().context("a list of dependencies")?;
        let needs = needs.iter().filter(|need| need["path"].is_string()).map(|need| Need {
            name: need["name"].as_str().unwrap_or_default(),
            only_tests: need["kind"].as_str() == Some("dev"),
            has_version: need["req"].as_str() != Some("*"),
        });
        let wanted = ["description", "license", "documentation", "readme"];
        Ok(Package {
            name: package["name"].as_str().context("a package has a name")?,
            folder: manifest.parent().context("a manifest is in a folder")?,
            is_published: package["publish"].is_null(),
            needs: needs.collect(),
            missing: wanted.into_iter().filter(|key| package[key].is_null()).collect(),
        })
    })
    .collect()
}

fn judge(packages: &[Package<'_>], guide: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let known: BTreeMap<&str, &Package<'_>> = packages.iter().map(|it| (it.name, it)).collect();
    let releases = guide.split("\n## Releases").nth(1).unwrap_or_default();
    for package in packages.iter().filter(|package| package.is_published) {
        let name = package.name;
        for key in &package.missing {
            findings.push(format!("{name}: its Cargo.toml has no `{key}`"));
        }
        let place = releases.find(&format!("`{name}`"));
        if place.is_none() {
            findings.push(format!("{GUIDE}: `{name}` is not among the packages of a release"));
        }
        for need in &package.needs {
            let other = need.name;
            let is_published = known.get(other).is_some_and(|other| other.is_published);
            if !(need.only_tests || is_published && need.has_version) {
                findings.push(format!(
                    "{name}: needs `{other}`, which is not published or has no version here"
                ));
            } else if need.only_tests && need.has_version && !is_published {
                findings.push(format!(
                    "{name}: its tests need `{other}`, which is not published: name its path without a version"
                ));
            } else if need.only_tests && need.has_version && builds_on(other, name, &known) {
                findings.push(format!(
                    "{name}: its tests need `{other}`, which is published after it: name its path without a version"
                ));
            }
            let other_place = releases.find(&format!("`{other}`"));
            if !need.only_tests && place.is_some() && other_place > place {
                findings.push(format!("{GUIDE}: `{other}` is published before `{name}`"));
            }
        }
    }
    findings
}

/// Whether one package needs another one to be compiled.
fn builds_on(name: &str, wanted: &str, known: &BTreeMap<&str, &Package<'_>>) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![name]);
    while let Some(name) = next.pop() {
        if name == wanted {
            return true;
        }
        if let Some(package) = known.get(name)
            && seen.insert(name)
        {
            next.extend(package.needs.iter().filter(|it| !it.only_tests).map(|it| it.name));
        }
    }
    false
}

fn rust_sources(folder: &Path, sources: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            rust_sources(&path, sources)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            sources.push(path);
        }
    }
    Ok(())
}

/// Files that a source embeds and its package would not hold.
fn foreign_files(package: &Path, source: &Path, text: &str) -> Vec<String> {
    let shown = source.strip_prefix(package).unwrap_or(source).display();
    let embedded = EMBEDDED.iter().flat_map(|call| text.split(call).skip(1));
    let files = embedded.filter_map(|rest| rest.split('"').next());
    files
        .filter_map(|file| {
            let path = plain(&source.parent()?.join(file));
            if !path.starts_with(package) {
                return Some(format!("{shown} embeds `{file}` from outside the package; a link in its folder would be packaged"));
            }
            (!path.is_file()).then(|| format!("{shown} embeds `{file}`, which is not there"))
        })
        .collect()
}

/// Without `..`, by the names alone: where a link points to does not matter.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, is_published: bool, needs: &Value) -> Value {
        let publish = if is_published { Value::Null } else { json!([]) };
        json!({
            "name": name, "manifest_path": format!("/w/{name}/Cargo.toml"), "publish": publish, "dependencies": needs,
            "description": "d", "license": "l", "documentation": "u", "readme": "r",
        })
    }

    fn need(name: &str, kind: Option<&str>, req: &str) -> Value {
        json!({"name": name, "kind": kind, "req": req, "path": "/w"})
    }

    fn judged(packages: &[Value], guide: &str) -> Vec<String> {
        let metadata = json!({ "packages": packages });
        judge(&own_packages(&metadata).unwrap(), guide)
    }

    #[test]
    fn what_the_registry_would_refuse_is_found() {
        let guide = "\n## Releases\n`leaf`, `top`\n";
        let leaf = |needs: &Value| package("leaf", true, needs);
        let top = package("top", true, &json!([need("leaf", None, "^0.1.0")]));
        let tests = package("tests", false, &json!([]));
        let of = |needs: &Value| judged(&[leaf(needs), top.clone(), tests.clone()], guide);
        assert_eq!(of(&json!([])), Vec::<String>::new());
        assert_eq!(of(&json!([need("tests", Some("dev"), "*")])), Vec::<String>::new());
        assert_eq!(of(&json!([need("top", Some("dev"), "*")])), Vec::<String>::new());
        let refused = [
            (need("top", Some("dev"), "^0.1.0"), "published after"),
            (need("tests", Some("dev"), "^0.1.0"), "not published"),
            (need("tests", None, "*"), "not published"),
        ];
        for (need, word) in refused {
            let found = of(&json!([need]));
            assert!(found.iter().any(|line| line.contains(word)), "{need}: {found:?}");
        }
        let unnamed = judged(&[leaf(&json!([])), top.clone()], "\n## Releases\n`leaf`\n");
        assert!(unnamed.len() == 1 && unnamed[0].contains("`top`"), "{unnamed:?}");
        let turned = judged(&[leaf(&json!([])), top.clone()], "\n## Releases\n`top`, `leaf`\n");
        assert!(turned.len() == 1 && turned[0].contains("before"), "{turned:?}");
        let mut bare = leaf(&json!([]));
        bare["license"] = Value::Null;
        assert_eq!(judged(&[bare], guide), ["leaf: its Cargo.toml has no `license`"]);
    }

    #[test]
    fn a_file_from_outside_is_found_and_a_link_is_not() {
        let folder = std::env::temp_dir().join(format!("paceline-packages-{}", std::process::id()));
        let (package, source) = (folder.join("crate"), folder.join("crate/src/lib.rs"));
        fs::create_dir_all(source.parent().unwrap()).unwrap();
        fs::write(folder.join("page.md"), "text").unwrap();
        std::os::unix::fs::symlink("../../page.md", package.join("src/page.md")).unwrap();
        let of = |file: &str| {
            foreign_files(&package, &source, &format!("const A: &str = include_str!(\"{file}\");"))
        };
        assert_eq!(of("page.md"), Vec::<String>::new());
        assert!(of("../../page.md")[0].contains("outside"));
        assert!(of("absent.md")[0].contains("not there"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
