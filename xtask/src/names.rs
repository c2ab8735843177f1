//! Names that say what a thing is without the module around it, and comments on fields that say more than the field's name.
//!
//! A reader meets a type in a signature, a stack trace or a search, far from the module that gave `Entry` or `State` its meaning.
//! And a comment such as "The file." above `path` costs a line and tells nothing; fields need no comment (see `item_docs`).

use anyhow::Context;
use std::{collections::BTreeSet, fs, path::Path};

/// Names of types that need their module to be understood, or that only this project used.
const UNCLEAR: &[&str] = &[
    "Entry", "Worker", "State", "Place", "Settings", "Desk", "Crew", "Course", "Seat", "Vote",
    "Onlooker", "Watcher", "Word", "Part", "RowsPart",
];

/// A longer comment is taken to say something.
const SHORT_COMMENT: usize = 3;

/// Words that tell nothing of a field by themselves.
const EMPTY_WORDS: &str = "a an the this that these those it its they their them one ones other another first both all each \
    every so as of in on by to for from with at is are was were be been has had have did does do what which who whom whose \
    how why where when many much there here found made done given said told called named happened wrong meant wanted expected \
    asked missing ended end name number size value thing system reason cause error word itself own differ stand hold say \
    happen file folder path place set side record";

/// Findings in all crates. The comments on arguments of commands are their help and are left alone.
pub fn findings(root: &Path, files: &[String]) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    let is_source = |name: &&String| {
        name.starts_with("crates/") && name.contains("/src/") && name.ends_with(".rs")
    };
    for name in files.iter().filter(is_source) {
        let text =
            fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        findings.extend(unclear_types(&text).into_iter().map(|(line, found)| {
            format!("{name}:{line}: `{found}` needs its module to be understood; give it a noun of its own")
        }));
        let is_help = ["crates/cli/src/commands/", "crates/cli/src/arguments/"]
            .iter()
            .any(|folder| name.starts_with(folder));
        if !is_help {
            findings.extend(empty_comments(&text).into_iter().map(|(line, found)| {
                format!(
                    "{name}:{line}: \"{found}\" repeats the field's name; leave it out, or say more"
                )
            }));
        }
    }
    Ok(findings)
}

/// Types whose name says too little, each with its line.
fn unclear_types(text: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !matches!(*word, "" | "pub" | "crate" | "super"));
        let is_type = matches!(words.next(), Some("struct" | "enum" | "trait" | "union"));
        let name = words.next();
        if let (true, Some(unclear)) = (is_type, UNCLEAR.iter().find(|it| name == Some(it))) {
            found.push((index + 1, *unclear));
        }
    }
    found
}

/// Comments of a few words above a field that name and type say already, each with its line.
fn empty_comments(text: &str) -> Vec<(usize, &str)> {
    let empty: BTreeSet<String> = EMPTY_WORDS.split_whitespace().map(stem).collect();
    let lines: Vec<&str> = text.lines().collect();
    let comment_at =
        |at: usize| lines.get(at).and_then(|line| line.trim_start().strip_prefix("///"));
    let mut found = Vec::new();
    for at in 0..lines.len() {
        let Some(comment) = comment_at(at).map(str::trim) else { continue };
        let is_whole = comment_at(at + 1).is_none() && (at == 0 || comment_at(at - 1).is_none());
        let is_short = comment.split_whitespace().count() <= SHORT_COMMENT;
        // Units, code and figures say something.
        let is_plain = !comment.contains(|c: char| c == '`' || c == '[' || c.is_ascii_digit());
        let code = lines[at + 1..].iter().find(|line| !line.trim_start().starts_with("#["));
        let Some((name, kind)) = code.and_then(|line| field(line)) else { continue };
        let message = error_variant(&lines[..=at]);
        let known: BTreeSet<String> = words(name)
            .chain(words(kind))
            .chain(message.iter().flat_map(|text| words(text)))
            .collect();
        let said: Vec<&str> = comment
            .split(|c: char| !c.is_alphanumeric() && c != '\'')
            .filter(|word| !word.is_empty())
            .collect();
        let is_known = |word: &&str| empty.contains(&stem(word)) || known.contains(&stem(word));
        // "The journal." above a path that the message of the error has in its place.
        let is_noun = message.is_some() && said.len() == 2 && said[0] == "The";
        if is_whole && is_short && is_plain && (is_noun || said.iter().all(is_known)) {
            found.push((at + 1, comment));
        }
    }
    found
}

/// What is said above the variant of an error whose field the last line is a comment of: its comment and its message.
/// Both have each field in its place, so that its comment need not say again what it is.
fn error_variant(lines: &[&str]) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (own, above) = lines.split_last()?;
    let opens = above.iter().rposition(|line| !line.is_empty() && indent(line) < indent(own))?;
    let is_other = |line: &str| {
        line.is_empty()
            || line.starts_with('}')
            || line.ends_with('{')
            || line.starts_with(|c: char| c.is_ascii_uppercase())
    };
    let said: Vec<&str> = above[..opens]
        .iter()
        .rev()
        .map(|line| line.trim())
        .take_while(|line| !is_other(line))
        .collect();
    said.iter()
        .any(|line| line.starts_with("#[error("))
        .then(|| format!("{} {}", above[opens], said.join(" ")))
}

/// Name and type of the field that a line declares.
fn field(line: &str) -> Option<(&str, &str)> {
    let mut code = line.trim_start();
    for visibility in ["pub(crate) ", "pub(super) ", "pub "] {
        code = code.strip_prefix(visibility).unwrap_or(code);
    }
    let (name, kind) = code.split_once(':').filter(|(_, kind)| !kind.starts_with(':'))?;
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, kind))
}

/// The words of an identifier or a type, as [`stem`] leaves them.
fn words(code: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = Vec::new();
    let mut last_was_lower = false;
    let mut begins = true;
    for letter in code.chars() {
        if !letter.is_ascii_alphanumeric() {
            begins = true;
            continue;
        }
        if begins || (last_was_lower && letter.is_ascii_uppercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(letter);
        }
        last_was_lower = letter.is_ascii_lowercase();
        begins = false;
    }
    words.into_iter().map(|word| stem(&word))
}

/// A word in lower case, without the endings of plural and possessive.
fn stem(word: &str) -> String {
    let word = word.to_ascii_lowercase().replace("optimiser", "optimizer");
    let word = word.strip_suffix("'s").unwrap_or(&word);
    match word.strip_suffix('s') {
        Some(short) if short.len() > 2 => short.to_owned(),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_need_their_module_are_found() {
        let text = "\
pub(crate) struct State<T> {
    entry: Entry,
}
enum Worker {
struct WorkerState;
impl State {
let state = State::new();
";
        assert_eq!(unclear_types(text), [(1, "State"), (4, "Worker")]);
    }

    #[test]
    fn comments_that_repeat_a_field_are_found() {
        let text = "\
/// Its state.
pub struct Machine {
    /// The host's name.
    pub host: String,
    /// Which task.
    #[serde(default)]
    task: TaskId,
    /// Why.
    pub(crate) reason: String,
    /// In bytes.
    pub memory: u64,
    /// From 1.
    pub line: usize,
    /// How many, over
    /// all workers.
    pub count: u64,
}

impl Machine {
    /// The name.
    pub fn name(&self) -> &str {
";
        let found: Vec<usize> = empty_comments(text).iter().map(|(line, _)| *line).collect();
        assert_eq!(found, [3, 5, 8]);
    }

    #[test]
    fn comments_that_repeat_an_errors_message_are_found() {
        let text = "\
enum JournalError {
    /// A line that is not a measurement.
    #[error(\"`{}`, line {line}: {found} measurements, expected {wanted}\", .path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// Measurements found.
        found: usize,
        /// The plan's figure.
        wanted: usize,
    },
}

struct Journal {
    /// The journal.
    path: PathBuf,
    /// The file.
    file: File,
    /// The folder's owner.
    owner: u32,
";
        let found: Vec<usize> = empty_comments(text).iter().map(|(line, _)| *line).collect();
        assert_eq!(found, [5, 9, 19, 21]);
    }
}
