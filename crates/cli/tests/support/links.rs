//! Links of all Markdown files: what they point to exists, the heading behind `#` included.

#![allow(clippy::unwrap_used)] // only tests are in here

use paceline_testing::workspace;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] = &["target", ".git", "node_modules"];

/// Every Markdown file below a folder, sorted.
pub(crate) fn markdown(folder: &Path) -> Vec<PathBuf> {
    files(folder, "md")
}

/// Every file below a folder whose name ends so, sorted.
pub(crate) fn files(folder: &Path, wanted: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
            found.extend(files(&path, wanted));
        } else if path.extension().is_some_and(|extension| extension == wanted) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The text with mdBook's `{{#include FILE}}` replaced by the file.
fn expanded(path: &Path) -> String {
    let mut text = String::new();
    for line in fs::read_to_string(path).unwrap().lines() {
        let included = line.trim().strip_prefix("{{#include ");
        match included.and_then(|rest| rest.strip_suffix("}}")) {
            Some(name) => {
                let (name, _anchor) = name.split_once(':').unwrap_or((name, ""));
                let file = path.parent().unwrap().join(name);
                let included = fs::read_to_string(&file);
                text.push_str(&included.unwrap_or_else(|error| {
                    panic!("{}: `{}`: {error}", path.display(), file.display())
                }));
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Lines outside of fenced blocks.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut open = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        open ^= fence;
        !open && !fence
    })
}

/// What `#…` names a heading: lower case, hyphens for spaces, without punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Targets of links and pictures of a line; inline code is not a link.
fn targets(line: &str) -> Vec<String> {
    let mut text = String::new();
    for part in line.split('`').step_by(2) {
        text.push_str(part);
    }
    let pieces = text.split("](").skip(1);
    pieces.filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// What is wrong with the links of a file.
fn broken(path: &Path) -> Vec<String> {
    let text = expanded(path);
    let mut findings = Vec::new();
    for target in prose(&text).flat_map(targets) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, fragment) = target.split_once('#').unwrap_or((&target, ""));
        let linked =
            if file.is_empty() { path.to_owned() } else { path.parent().unwrap().join(file) };
        let at = path.display();
        if !linked.exists() {
            findings.push(format!("{at}: `{target}` does not exist"));
        } else if !fragment.is_empty() && !anchors(&expanded(&linked)).contains(fragment) {
            findings.push(format!("{at}: `{target}` has no such heading"));
        }
    }
    findings
}

#[test]
fn every_link_in_markdown_points_to_something() {
    let files = markdown(&workspace());
    let findings: Vec<String> = files.iter().flat_map(|path| broken(path)).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// The book's own table of contents is what mdBook builds: a page that is not in it is not built.
#[test]
fn every_page_of_the_book_is_in_its_table_of_contents() {
    let root = workspace().join("docs/book/src");
    let summary = fs::read_to_string(root.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> =
        summary.lines().flat_map(targets).map(|target| root.join(target)).collect();
    let mut pages: BTreeSet<PathBuf> = markdown(&root).into_iter().collect();
    pages.remove(&root.join("SUMMARY.md"));
    assert_eq!(listed, pages);
}

/// Links that leave the book work in the tree and not on the built pages.
#[test]
fn no_link_leaves_the_book() {
    let root = workspace().join("docs/book/src");
    for path in markdown(&root) {
        let text = fs::read_to_string(&path).unwrap();
        let depth = path.strip_prefix(&root).unwrap().components().count() - 1;
        for target in prose(&text).flat_map(targets) {
            let up = target.matches("../").count();
            assert!(up <= depth, "{}: `{target}` leaves the book", path.display());
        }
    }
}

/// Files of the tree that the book names in back quotes are there.
#[test]
fn every_path_that_the_book_names_exists() {
    let tops = ["crates/", "xtask/", "recipes/", "docs/", "deploy/", "python/", "examples/"];
    for path in markdown(&workspace().join("docs/book/src")) {
        for line in prose(&fs::read_to_string(&path).unwrap()) {
            for quoted in line.split('`').skip(1).step_by(2) {
                let named = tops.iter().any(|top| quoted.starts_with(top))
                    && !quoted.contains([' ', '<', '*', '{', '…']);
                let missing = named && !workspace().join(quoted).exists();
                assert!(!missing, "{}: `{quoted}` does not exist", path.display());
            }
        }
    }
}

#[test]
fn links_are_found_as_readers_see_them() {
    assert_eq!(targets("[a](b.md#c) ![p](p.svg) `[no](x)`"), ["b.md#c", "p.svg"]);
    assert_eq!(anchor("`paceline data fetch`"), "paceline-data-fetch");
    assert_eq!(anchor("Do more workers help?"), "do-more-workers-help");
    let text = "# A\n```\n# no\n```\n## B c\n";
    assert_eq!(anchors(text), ["a", "b-c"].map(str::to_owned).into());
}
