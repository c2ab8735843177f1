//! Markup is written in one crate: elsewhere a page is built of values, and what they hold is text.
//!
//! `crates/report` escapes all that it is given (`docs/book/src/decisions/0011-markup.md`). A tag in a string of another crate
//! would be a page made by hand, in which the next name that is put in may not be escaped.

use std::fs;
use std::path::Path;

/// The crate that writes markup.
const WRITES: &str = "crates/report/";
/// Elements that pages and drawings consist of. Others, such as `<task>`, are how people write placeholders.
const ELEMENTS: &[&str] = &[
    "a", "b", "body", "circle", "code", "details", "div", "figure", "g", "h1", "h2", "h3", "head",
    "html", "i", "img", "li", "line", "main", "p", "path", "pre", "rect", "script", "section",
    "small", "span", "strong", "style", "svg", "table", "tbody", "td", "text", "th", "thead", "tr",
    "ul",
];

/// Tags in strings of sources outside of the crate that writes markup.
pub(crate) fn findings(root: &Path, files: &[String]) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for name in files.iter().filter(|name| is_bound(name)) {
        let source = fs::read_to_string(root.join(name))?;
        findings.extend(tags(&source).into_iter().map(|(line, tag)| {
            format!("{name}:{line}: `<{tag}` in a string; pages are built with `crates/report`")
        }));
    }
    Ok(findings)
}

fn is_bound(name: &str) -> bool {
    let inside = name.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
    let is_source = inside.is_some_and(|(_, file)| file.starts_with("src/"));
    is_source && name.ends_with(".rs") && !name.ends_with("/tests.rs") && !name.starts_with(WRITES)
}

/// Lines, from 1, that begin an element, outside of comments and of the tests at the end of a file.
fn tags(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let code = source.lines().take_while(|line| line.trim() != "#[cfg(test)]");
    for (at, line) in code.enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for (start, _) in line.match_indices('<') {
            // Outside of quotes it compares.
            if line[..start].replace("\\\"", "").matches('"').count() % 2 == 0 {
                continue;
            }
            let part = &line[start + 1..];
            let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
            let (tag, rest) = part.split_at(end);
            if ELEMENTS.contains(&tag) && rest.starts_with([' ', '>']) {
                found.push((at + 1, tag.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_in_a_string_is_found_and_a_placeholder_or_a_comparison_is_not() {
        let source = "let a = \"<p class=x>\";\n// \"<p>\"\nlet b = \"resources-<task>.csv\"; if a <b {}\nlet c = format!(\"</td><td>{}\", x);\n\
                      #[cfg(test)]\nlet d = \"<div>\";\n";
        assert_eq!(tags(source), [(1, "p".to_owned()), (4, "td".to_owned())]);
    }

    #[test]
    fn sources_of_other_crates_are_looked_at() {
        assert!(
            is_bound("crates/sweep/src/page.rs")
                && is_bound("crates/cli/src/commands/quickstart.rs")
        );
        assert!(!is_bound("crates/report/src/page.rs") && !is_bound("crates/sweep/tests/page.rs"));
    }
}
