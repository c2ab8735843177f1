//! `cargo xtask check`: house rules that the compiler cannot check.

use crate::function_length::functions;
use crate::{dependencies, item_docs, markup, names, packages, release, typos, words};
use anyhow::{Context, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Longest source file; beyond that a file is two files.
const MOST_LINES: usize = 600;

/// Longest function of the command line, which is arguments, one library call, and words.
const MOST_LINES_OF_A_FUNCTION: usize = 60;
/// Where that holds.
const COMMAND_LINE: &str = "crates/cli/src/";
/// All that the command line consists of. Anything else is work, and belongs in a library crate.
const OF_THE_COMMAND_LINE: &[&str] = &["arguments", "commands", "terminal", "lib", "main"];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "base", "misc"];

/// Which crate may build on which. Edges point downward only; a new edge is a decision, made here.
const EDGES: &[(&str, &[&str])] = &[
    ("batch", &[]),
    ("kernels", &["stats"]),
    ("models", &["batch", "kernels", "registry"]),
    ("stats", &[]),
    ("store", &[]),
    ("tfrecord", &[]),
    ("runs", &["batch", "stats", "store", "tfrecord"]),
    ("wire", &["batch"]),
    ("forecast", &["batch", "data", "models", "runs", "stats", "wire"]),
    ("advisor", &["forecast", "probes", "registry", "runs", "stats", "store"]),
    ("cluster", &["registry", "wire"]),
    ("report", &["runs", "stats"]),
    ("dashboard", &["report", "runs", "stats"]),
    ("photo", &[]),
    ("data", &["batch", "photo", "registry", "stats", "store", "tfrecord"]),
    ("probes", &["registry"]),
    ("registry", &[]),
    ("strategies", &["batch", "cluster", "models", "registry", "wire"]),
    ("training", &["batch", "cluster", "data", "models", "runs", "store", "strategies", "wire"]),
    ("jobs", &["batch", "cluster", "probes", "runs", "store", "strategies", "training", "wire"]),
    ("cloud", &["probes", "store"]),
    ("matmul", &["cluster", "kernels", "store", "wire"]),
    ("prepare", &["batch", "data", "photo", "stats", "store", "tfrecord"]),
    ("sweep", &["advisor", "batch", "probes", "report", "runs", "stats", "store"]),
    ("testing", &["stats"]),
];

/// Documents whose back-quoted paths must exist.
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Runs every check and lists all findings, not only the first.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let files = tracked_files(root)?;
    let mut findings = Vec::new();
    findings.extend(long_files(root, &files)?);
    findings.extend(long_functions(root, &files)?);
    let commands = fs::read_to_string(root.join(COMMAND_LINE).join("commands/mod.rs"))?;
    findings.extend(strange_modules(&files, &commands));
    findings.extend(empty_names(&files));
    findings.extend(edges(root)?);
    findings.extend(dead_paths(root)?);
    findings.extend(missing_headers(root, &files)?);
    findings.extend(missing_examples(root, &files)?);
    findings.extend(registries(root)?);
    findings.extend(markup::findings(root, &files)?);
    findings.extend(words::findings(root, &files)?);
    findings.extend(item_docs::findings(root, &files)?);
    findings.extend(names::findings(root, &files)?);
    findings.extend(typos::findings(root)?);
    let metadata = dependencies::metadata(root)?;
    findings.extend(dependencies::findings(root, &metadata)?);
    findings.extend(packages::findings(root, &metadata)?);
    findings.extend(release::findings(root)?);
    if findings.is_empty() {
        println!("check: {} files, no findings", files.len());
        return Ok(());
    }
    for finding in &findings {
        println!("{finding}");
    }
    bail!("{} findings", findings.len())
}

fn tracked_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("cannot run git")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.lines().filter(|name| root.join(name).exists()).map(str::to_owned).collect())
}

fn rust_files(files: &[String]) -> impl Iterator<Item = &String> {
    files.iter().filter(|name| name.ends_with(".rs"))
}

fn long_files(root: &Path, files: &[String]) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for name in rust_files(files) {
        let lines = fs::read_to_string(root.join(name))?.lines().count();
        if lines > MOST_LINES {
            findings.push(format!("{name}: {lines} lines, more than {MOST_LINES}"));
        }
    }
    Ok(findings)
}

fn long_functions(root: &Path, files: &[String]) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for name in rust_files(files).filter(|name| name.starts_with(COMMAND_LINE)) {
        let source = fs::read_to_string(root.join(name))?;
        let long = functions(&source).into_iter();
        findings.extend(long.filter(|it| it.lines > MOST_LINES_OF_A_FUNCTION).map(|it| {
            let (line, lines, function) = (it.line, it.lines, it.name);
            format!("{name}:{line}: `{function}` has {lines} lines, more than {MOST_LINES_OF_A_FUNCTION}")
        }));
    }
    Ok(findings)
}

/// Modules of the command line that are neither arguments nor the terminal nor one of the `commands`.
fn strange_modules(files: &[String], commands: &str) -> Vec<String> {
    let mut findings = BTreeSet::new();
    for name in rust_files(files) {
        let Some(path) = name.strip_prefix(COMMAND_LINE) else { continue };
        let mut parts = path.trim_end_matches(".rs").split('/');
        let (top, below) = (parts.next().unwrap_or_default(), parts.next());
        if !OF_THE_COMMAND_LINE.contains(&top) {
            findings.insert(format!("{COMMAND_LINE}{top}: neither arguments, a command nor the terminal; work belongs in a library crate"));
        }
        if let ("commands", Some(module)) = (top, below)
            && module != "mod"
            && !commands.contains(&format!("=> {module}::exec("))
        {
            findings.insert(format!(
                "{COMMAND_LINE}commands/{module}: not a command; part of one belongs below it"
            ));
        }
    }
    findings.into_iter().collect()
}

fn empty_names(files: &[String]) -> Vec<String> {
    let says_nothing = |name: &&String| {
        name.trim_end_matches(".rs").split('/').any(|part| EMPTY_NAMES.contains(&part))
    };
    rust_files(files)
        .filter(says_nothing)
        .map(|name| format!("{name}: the name says nothing about what is inside"))
        .collect()
}

/// Module headers say why a file exists.
fn missing_headers(root: &Path, files: &[String]) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for name in rust_files(files) {
        if !fs::read_to_string(root.join(name))?.starts_with("//!") {
            findings.push(format!("{name}: no `//!` header that says why it exists"));
        }
    }
    Ok(findings)
}

/// A crate opens with why it exists and an example that runs.
fn missing_examples(root: &Path, files: &[String]) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    let opens = |name: &&String| name.starts_with("crates/") && name.ends_with("/src/lib.rs");
    for name in rust_files(files).filter(opens) {
        if !has_example(&fs::read_to_string(root.join(name))?) {
            findings.push(format!("{name}: the header has no example"));
        }
    }
    Ok(findings)
}

fn has_example(source: &str) -> bool {
    let header = source.lines().take_while(|line| line.starts_with("//!"));
    let runs = ["//! ```", "//! ```rust", "//! ```standalone_crate"];
    // Every second fence ends a block, and may look like one that begins an example.
    let mut fences = header.filter(|line| line.starts_with("//! ```")).step_by(2);
    fences.any(|line| runs.contains(&line))
}

fn edges(root: &Path) -> anyhow::Result<Vec<String>> {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let mut findings = Vec::new();
    for folder in fs::read_dir(root.join("crates"))? {
        let folder = folder?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "cli" || name == "conformance" {
            continue; // they stand above everything
        }
        let manifest = fs::read_to_string(folder.join("Cargo.toml"))
            .with_context(|| format!("crates/{name} has no Cargo.toml"))?;
        let Some(allowed) = allowed.get(name.as_str()) else {
            findings.push(format!("crates/{name}: not in the list of edges in xtask/src/check.rs"));
            continue;
        };
        for used in normal_dependencies(&manifest) {
            if !allowed.contains(&used) {
                findings.push(format!("crates/{name}: must not depend on paceline-{used}"));
            }
        }
    }
    Ok(findings)
}

/// Workspace crates under `[dependencies]`; tests may look anywhere.
fn normal_dependencies(manifest: &str) -> Vec<&str> {
    let mut used = Vec::new();
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]"
            && let Some(rest) = line.strip_prefix("paceline-")
        {
            used.extend(rest.split([' ', '=', '.']).next());
        }
    }
    used
}

fn dead_paths(root: &Path) -> anyhow::Result<Vec<String>> {
    let tops = ["crates/", "xtask/", "recipes/", "docs/", "fuzz/", ".ci/", "deploy/"];
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        let text = fs::read_to_string(root.join(document))
            .with_context(|| format!("cannot read {document}"))?;
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = tops.iter().any(|top| quoted.starts_with(top))
                && !quoted.contains([' ', '<', '*', '{', '…']);
            if is_path && !root.join(quoted).exists() {
                findings.push(format!("{document}: `{quoted}` does not exist"));
            }
        }
    }
    Ok(findings)
}

/// Folders of alternatives, and the file that lists them all.
const REGISTRIES: &[(&str, &str)] = &[
    ("crates/store/src/services", "crates/store/src/services.rs"),
    ("crates/data/src/sources", "crates/data/src/sources.rs"),
    ("crates/data/src/rows/formats", "crates/data/src/rows/formats.rs"),
    ("crates/models/src/sparse_logistic/rules", "crates/models/src/sparse_logistic/rules.rs"),
    ("crates/strategies/src/strategies", "crates/strategies/src/strategies/mod.rs"),
    ("crates/probes/src/probes", "crates/probes/src/probes/mod.rs"),
    ("crates/advisor/src/methods", "crates/advisor/src/methods.rs"),
    ("crates/forecast/src/simulate/strategies", "crates/forecast/src/simulate/strategies/mod.rs"),
    ("crates/forecast/src/oracle/parallel", "crates/forecast/src/oracle/parallel/mod.rs"),
];

/// Every file of a folder of alternatives is named in its registry.
fn registries(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for (folder, registry) in REGISTRIES {
        let listed = fs::read_to_string(root.join(registry))
            .with_context(|| format!("cannot read {registry}"))?;
        for file in
            fs::read_dir(root.join(folder)).with_context(|| format!("no folder {folder}"))?
        {
            let path = file?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name != "mod" && !listed.contains(&format!("{name}::ENTRY")) {
                findings.push(format!("{folder}/{name}: not listed in {registry}"));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_neither_a_command_nor_the_terminal_is_found() {
        let commands = "Command::Train(args) => train::exec(args, terminal),";
        let found = |path: &str| strange_modules(&[format!("{COMMAND_LINE}{path}")], commands);
        for fine in ["main.rs", "arguments/mod.rs", "commands/train.rs", "commands/train/show.rs"] {
            assert_eq!(found(fine), Vec::<String>::new(), "{fine}");
        }
        for strange in ["engine.rs", "failure/job.rs", "commands/learn.rs", "commands/staging/a.rs"]
        {
            assert_eq!(found(strange).len(), 1, "{strange}");
        }
    }

    #[test]
    fn an_example_counts_only_in_the_header_and_where_it_runs() {
        assert!(has_example("//! Why.\n//!\n//! ```\n//! f();\n//! ```\n"));
        assert!(!has_example("//! Why.\n\n/// ```\n/// f();\n/// ```\nfn f() {}\n"));
        assert!(!has_example("//! Why.\n//! ```text\n//! no code\n//! ```\n"));
    }
}
