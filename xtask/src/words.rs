//! Words the project no longer uses, and what to write instead.
//!
//! Readers know TensorFlow, PyTorch, Horovod and Spark. A phrase of our own for something that has a name in that field, or in plain
//! modern English, costs each of them a second look, so `cargo xtask check` reports it with its replacement.

use anyhow::Context;
use std::{fs, path::Path};

/// This file names the words it looks for.
const SELF: &str = "xtask/src/words.rs";

const EXTENSIONS: &[&str] = &[".rs", ".md", ".toml", ".sh", ".py", ".js", ".html", ".yaml"];

/// A phrase that is out.
struct Rule {
    /// Lower-case words that follow each other; alternatives of one place are separated by `|`.
    phrase: &'static [&'static str],
    instead: &'static str,
    /// Whether the phrase is meant, given what is around it.
    applies: fn(before: &[Token], after: &[Token]) -> bool,
}

fn always(_: &[Token], _: &[Token]) -> bool {
    true
}

const RULES: &[Rule] = &[
    Rule { phrase: &["whoever"], instead: "the task, process or user that …", applies: always },
    Rule { phrase: &["nobody"], instead: "no task, no process, no one", applies: always },
    Rule { phrase: &["everybody"], instead: "all tasks, every process", applies: always },
    Rule { phrase: &["somebody"], instead: "another task, a process, a user", applies: always },
    Rule { phrase: &["anew"], instead: "again, from the start; restarts", applies: always },
    Rule {
        phrase: &["in|keep|keeps|keeping|kept", "step"],
        instead: "synchronous, in lockstep",
        applies: not_a_certain_step,
    },
    Rule { phrase: &["out", "of", "step"], instead: "asynchronous", applies: always },
    Rule {
        phrase: &["that", "is|are", "none"],
        instead: "not a …; NaN or infinity; malformed",
        applies: always,
    },
    Rule {
        phrase: &["is|are", "no"], instead: "is not a …, are not …", applies: denies_a_kind
    },
    Rule {
        phrase: &["mind"],
        instead: "Note:",
        applies: |_, after| after.first() == Some(&Token::Colon),
    },
    Rule { phrase: &["taken", "back"], instead: "rolled back", applies: always },
    Rule { phrase: &["level", "again"], instead: "consistent", applies: always },
    Rule {
        phrase: &["without", "a", "word"],
        instead: "without an error message, silently",
        applies: always,
    },
    Rule {
        phrase: &["go|goes|going|went|gone", "on", "with"],
        instead: "continues with",
        applies: always,
    },
];

/// "in step 40", "in step {step}", `for x in step` and `for _ in step..` are not about lockstep.
fn not_a_certain_step(before: &[Token], after: &[Token]) -> bool {
    let numbered = matches!(after.first(), Some(Token::Number | Token::Brace));
    // The tokens leave out `_`, so that `for` may stand right before `in`.
    let is_for = |token: &Token| matches!(token, Token::Word(word) if word == "for");
    let is_loop = before.iter().rev().take(2).any(is_for);
    !numbered && !is_loop
}

/// "This is no file" is out; "there is no file", "is no longer", "is no worse" and "is no faster than" are plain English.
fn denies_a_kind(before: &[Token], after: &[Token]) -> bool {
    let word = |token: Option<&Token>| match token {
        Some(Token::Word(word)) => word.clone(),
        _ => String::new(),
    };
    let next = word(after.first());
    let compares = ["longer", "more", "less", "fewer", "better", "worse"].contains(&next.as_str())
        || (next.ends_with("er") && word(after.get(1)) == "than");
    !next.is_empty() && !compares && word(before.last()) != "there"
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// In lower case; identifiers are cut into their words.
    Word(String),
    Number,
    Colon,
    Brace,
    /// Any other mark: no phrase reaches across it.
    Mark,
}

/// The words and marks of a text, each with its line. Comment signs, quotes and line breaks do not part a phrase.
fn tokens(text: &str) -> (Vec<Token>, Vec<usize>) {
    let (mut tokens, mut lines) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let body = trimmed.trim_start_matches(['/', '!', '#', '>', '*']);
        let mut rest = body;
        while let Some(first) = rest.chars().next() {
            let (token, length) = next_token(rest, first);
            if let Some(token) = token {
                tokens.push(token);
                lines.push(index + 1);
            }
            rest = &rest[length..];
        }
        let is_comment = body.len() < trimmed.len();
        if body.is_empty() || (!is_comment && line.ends_with(['{', '}', ';', ','])) {
            tokens.push(Token::Mark);
            lines.push(index + 1);
        }
    }
    (tokens, lines)
}

/// The token at the start of a non-empty text, if that is one, and how many bytes it takes.
fn next_token(rest: &str, first: char) -> (Option<Token>, usize) {
    if first.is_alphabetic() {
        return (Some(Token::Word(word_at(rest))), word_at(rest).len());
    }
    let token = match first {
        '0'..='9' => {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            return (Some(Token::Number), digits);
        }
        ':' => Some(Token::Colon),
        '{' => Some(Token::Brace),
        _ if first.is_whitespace() || "_`\"*\\".contains(first) => None,
        _ => Some(Token::Mark),
    };
    (token, first.len_utf8())
}

/// The word a text starts with, lower-cased; `isNo` and `IsNo` are two words, `don't` is one.
fn word_at(rest: &str) -> String {
    let mut word = String::new();
    let mut last_was_lower = false;
    for letter in rest.chars() {
        let is_part = letter.is_alphabetic() || (letter == '\'' && !word.is_empty());
        if !is_part || (last_was_lower && letter.is_uppercase()) {
            break;
        }
        last_was_lower = letter.is_lowercase();
        // ASCII only: the length in bytes must stay that of the text.
        word.push(letter.to_ascii_lowercase());
    }
    word
}

/// Every phrase of one text that is out: its line, the phrase, and what to write instead.
fn in_text(text: &str) -> Vec<(usize, String, &'static str)> {
    let (tokens, lines) = tokens(text);
    let mut found = Vec::new();
    for start in 0..tokens.len() {
        for rule in RULES {
            let Some(window) = tokens.get(start..start + rule.phrase.len()) else { continue };
            let matches = window.iter().zip(rule.phrase).all(|(token, wanted)| {
                let Token::Word(word) = token else { return false };
                let word = word.strip_suffix("'s").unwrap_or(word).trim_end_matches('\'');
                wanted.split('|').any(|one| one == word)
            });
            let after = &tokens[start + window.len()..];
            if matches && (rule.applies)(&tokens[..start], after) {
                found.push((lines[start], joined(window), rule.instead));
            }
        }
    }
    found
}

fn joined(window: &[Token]) -> String {
    let words = window.iter().filter_map(|token| match token {
        Token::Word(word) => Some(word.as_str()),
        _ => None,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a file is a text that must keep to the vocabulary.
pub fn is_read(name: &str) -> bool {
    name != SELF && EXTENSIONS.iter().any(|extension| name.ends_with(extension))
}

/// How many phrases of a text are out.
pub fn count(text: &str) -> usize {
    in_text(text).len()
}

/// Findings in all tracked texts.
pub fn findings(root: &Path, files: &[String]) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for name in files.iter().filter(|name| is_read(name)) {
        let text =
            fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        let found = in_text(&text);
        findings.extend(found.into_iter().map(|(line, phrase, instead)| {
            format!("{name}:{line}: \"{phrase}\": write {instead}")
        }));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phrases(text: &str) -> Vec<String> {
        in_text(text).into_iter().map(|(_, phrase, _)| phrase).collect()
    }

    #[test]
    fn words_that_are_out_are_found_with_their_line() {
        let text = "fine\n// Whoever comes last\nlet x = 1; // starts anew\n";
        let found = in_text(text);
        let lines: Vec<_> =
            found.iter().map(|(line, phrase, _)| (*line, phrase.as_str())).collect();
        assert_eq!(lines, [(2, "whoever"), (3, "anew")]);
        assert!(found.iter().all(|(_, _, instead)| !instead.is_empty()));
    }

    #[test]
    fn a_phrase_is_found_across_the_lines_of_a_comment() {
        assert_eq!(phrases("/// A line that is\n/// no row.\n"), ["is no"]);
        assert_eq!(phrases("goes\non with the next"), ["goes on with"]);
        assert_eq!(phrases("/// all in\n///\n/// step"), [] as [&str; 0]);
    }

    #[test]
    fn identifiers_and_quotes_are_read_too() {
        assert_eq!(phrases("fn a_line_that_is_no_row() {}"), ["is no"]);
        assert_eq!(phrases("struct KeepsStep;"), ["keeps step"]);
        assert_eq!(phrases("`--timeout` is no `Duration`"), ["is no"]);
    }

    #[test]
    fn plain_english_is_left_alone() {
        for text in [
            "there is no file, there are no rows",
            "it is no longer there",
            "it is no worse, and is no faster than before",
            "the answer is no.",
            "lost in step 40, in step {step}",
            "for phase in step { }",
            "for _ in step..stop {",
            "this comes to mind, and goes on. With it",
            "nothing is taken. Back again",
        ] {
            assert_eq!(phrases(text), [] as [&str; 0], "{text}");
        }
    }

    #[test]
    fn every_rule_can_be_broken() {
        for text in [
            "whoever",
            "nobody",
            "nobody's",
            "'nobody'",
            "Everybody",
            "SOMEBODY",
            "begins anew",
            "in step",
            "good for all workers in step",
            "keep step",
            "out of step",
            "a number that is none",
            "lines that are none",
            "they are no photos",
            "Mind: this",
            "was taken back",
            "level again",
            "ended without a word",
            "goes on with",
        ] {
            assert_eq!(phrases(text).len(), 1, "{text}");
        }
    }
}
