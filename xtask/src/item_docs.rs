//! Public items are documented; fields and variants need not be.
//!
//! rustc's `missing_docs` makes no difference between them, and a comment that every field must have mostly repeats the field's
//! name. This scan asks only for what the reader of an interface needs: functions, types, traits with their methods, constants.
//! It reads lines, which is enough for code that rustfmt has laid out.

use anyhow::Context;
use std::{fs, path::Path};

/// Findings in the library crates and the binary; tests and examples export nothing.
pub fn findings(root: &Path, files: &[String]) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    let exports = |name: &&String| {
        name.starts_with("crates/") && name.contains("/src/") && name.ends_with(".rs")
    };
    for name in files.iter().filter(exports) {
        let text =
            fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        findings.extend(
            undocumented(&text)
                .into_iter()
                .map(|(line, item)| format!("{name}:{line}: public `{item}` without a comment")),
        );
    }
    Ok(findings)
}

/// The public items of a file that have no `///`, each with its line.
fn undocumented(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut documented = false;
    // Brackets of an attribute that are still open.
    let mut open = 0;
    // The line that closes the public trait we are in.
    let mut trait_end: Option<String> = None;
    for (index, line) in text.lines().enumerate() {
        let words = line.trim_start();
        let indent = &line[..line.len() - words.len()];
        if open > 0 || words.starts_with("#[") {
            documented |= words.starts_with("#[doc");
            open += words.matches('[').count();
            open -= words.matches(']').count().min(open);
            continue;
        }
        // A macro passes on the comments of whatever it makes.
        if words.starts_with("///") || words.starts_with("$(#[") {
            documented = true;
            continue;
        }
        let public = words.strip_prefix("pub ");
        let in_trait = trait_end.as_ref().is_some_and(|end| indent.len() == end.len() + 3);
        if let Some(item) = public.or(in_trait.then_some(words)).and_then(item)
            && !documented
        {
            found.push((index + 1, item));
        }
        if trait_end.as_deref() == Some(line) {
            trait_end = None;
        } else if public.is_some_and(|rest| rest.starts_with("trait ")) && !words.ends_with('}') {
            trait_end = Some(format!("{indent}}}"));
        }
        documented = false;
    }
    found
}

/// Kind and name of the item that a line begins, if it begins one. A module in a file of its own has its header there.
fn item(line: &str) -> Option<String> {
    let mut words =
        line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty());
    let mut kind = words.next()?;
    let mut name = words.next()?;
    while ["unsafe", "async", "extern", "C", "const"].contains(&kind)
        && ["unsafe", "async", "extern", "C", "const", "fn", "trait"].contains(&name)
    {
        kind = name;
        name = words.next()?;
    }
    let is_item = match kind {
        "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => true,
        "mod" => !line.ends_with(';'),
        _ => false,
    };
    is_item.then(|| format!("{kind} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        undocumented(text).into_iter().map(|(_, item)| item).collect()
    }

    #[test]
    fn fields_variants_and_private_items_need_no_comment() {
        let text = "\
/// Documented.
#[derive(
    Debug, Clone,
)]
#[allow(dead_code)] // a reason
pub struct Machine {
    pub name: String,
}

/// Documented.
pub enum Kind {
    Small,
}

fn private() {}

pub(crate) fn inside() {}

pub mod elsewhere;

pub use elsewhere::thing;
";
        assert_eq!(names(text), [] as [&str; 0]);
    }

    #[test]
    fn items_without_a_comment_are_found() {
        let text = "\
pub struct Machine;

impl Machine {
    // Not a documentation comment.
    #[inline]
    pub const unsafe fn raw(&self) {}
}

/// Documented.
pub trait Probe {
    /// Documented.
    fn name(&self) -> &str;

    fn sample(&mut self) {
        fn inner() {}
    }
}

pub const LIMIT: usize = 3;
";
        assert_eq!(names(text), ["struct Machine", "fn raw", "fn sample", "const LIMIT"]);
    }
}
