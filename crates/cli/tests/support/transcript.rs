//! Calls with what they print, kept word for word in a file.
//!
//! The file has a command line after each `$`, what it writes on stdout and stderr, and its exit code. `PACELINE_BLESS=1`
//! writes it again; read the difference before it is committed: would a colleague say it so? Figures, times, sizes and
//! paths are masked: what is kept are words.

#![allow(dead_code)] // every test file uses a part of it

use super::support::run_in;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

/// Makes every call of a file in `folder` and compares what is printed with what is written down.
#[track_caller]
pub(crate) fn replay(name: &str, folder: &Path) {
    let path = kept(name);
    let written = fs::read_to_string(&path).unwrap();
    let mut found = String::new();
    for line in written.lines().filter(|line| line.starts_with("$ paceline")) {
        let words = words(line.trim_start_matches("$ paceline"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        found.push_str(&entry(line, &run_in(folder, &words), folder));
    }
    compare(&path, &found);
}

/// A call and what became of it, as it is kept.
pub(crate) fn entry(line: &str, output: &Output, folder: &Path) -> String {
    let mut found = format!("{line}\n");
    for (stream, bytes) in [("", &output.stdout), ("[stderr]\n", &output.stderr)] {
        let text = String::from_utf8_lossy(bytes).replace(folder.to_str().unwrap(), "FOLDER");
        let text = masked(&text);
        if !text.trim().is_empty() {
            found.push_str(&format!("{stream}{}\n", text.trim_end()));
        }
    }
    let code = output.status.code().unwrap_or(-1);
    found.push_str(&format!("[exit {code}]\n\n"));
    found
}

/// Where a snapshot is kept.
pub(crate) fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name)
}

/// Compares a text with the one that is kept; `PACELINE_BLESS=1` keeps it.
#[track_caller]
pub(crate) fn compare(path: &Path, found: &str) {
    if std::env::var_os("PACELINE_BLESS").is_some() {
        fs::write(path, found).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    let first = found.lines().zip(kept.lines()).find(|(found, kept)| found != kept);
    assert!(
        found == kept,
        "{} differs first at {first:?}; PACELINE_BLESS=1 writes it again\n{found}",
        path.display()
    );
}

/// A command line as a shell would split it; a part in single quotes is one word.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// The same text without what differs from run to run and from machine to machine.
pub(crate) fn masked(text: &str) -> String {
    text.lines().map(masked_line).collect::<Vec<_>>().join("\n")
}

fn masked_line(line: &str) -> String {
    // Columns are as wide as their figures.
    let mut narrow = String::new();
    for word in line.split("  ").map(str::trim).filter(|word| !word.is_empty()) {
        if !narrow.is_empty() {
            narrow.push_str("  ");
        }
        narrow.push_str(word);
    }
    let indent = if line.starts_with(' ') { "  " } else { "" };
    let mut found = format!("{indent}{}", without_numbers(&without_run_names(&narrow)));
    for (unit, same) in [
        ("N ms", "N s"),
        ("N µs", "N s"),
        ("N KiB", "N B"),
        ("N MiB", "N B"),
        ("N GiB", "N B"),
        ("N TiB", "N B"),
        ("N kB", "N B"),
        ("N MB", "N B"),
        ("N GB", "N B"),
        // Said only where it is another time than that of the whole run, as a short run's may be.
        (" (N s in steps)", ""),
    ] {
        found = found.replace(unit, same);
    }
    found
}

/// A run folder is called after the time it was made at, its model and strategy, and a few random letters: `RUN`.
fn without_run_names(text: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut found = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_name) {
        let (before, name) = rest.split_at(start);
        let (name, after) = name.split_at(name.find(|c| !is_name(c)).unwrap_or(name.len()));
        let parts: Vec<&str> = name.split('-').collect();
        let digits = |at: usize, count: usize| {
            parts.get(at).is_some_and(|part| {
                part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        let is_run = parts.len() > 3 && digits(0, 8) && digits(1, 6);
        found.push_str(before);
        found.push_str(if is_run { "RUN" } else { name });
        rest = after;
    }
    found + rest
}

/// Every number is `N`, with its decimals, thousands, date or time; digits that belong to a name stay.
fn without_numbers(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let (mut found, mut at) = (String::new(), 0);
    while at < characters.len() {
        let before = at.checked_sub(1).map(|before| characters[before]);
        let digits = characters[at..].iter().take_while(|c| c.is_ascii_digit()).count();
        // `lenet5`, `worker/0`, `2^10`; but `runs/20261118-010203` is a date.
        let in_name = before
            .is_some_and(|c| c.is_alphanumeric() || c == '_' || "/^".contains(c) && digits <= 2);
        if digits == 0 || in_name {
            found.push(characters[at]);
            at += 1;
            continue;
        }
        let mut end = at;
        while end < characters.len()
            && (characters[end].is_ascii_digit() || ".,:-".contains(characters[end]))
        {
            end += 1;
        }
        // Punctuation behind a number is not part of it.
        while !characters[end - 1].is_ascii_digit() {
            end -= 1;
        }
        found.push('N');
        at = end;
        // `1e-5`
        let exponent = characters.get(at) == Some(&'e')
            && characters.get(at + 1).is_some_and(|c| c.is_ascii_digit() || *c == '-');
        if exponent {
            at += 2;
            while characters.get(at).is_some_and(char::is_ascii_digit) {
                at += 1;
            }
        }
    }
    found
}

#[test]
fn masks_hide_figures_and_keep_names() {
    let text = "worker/0   took 1,234.5 ms of 2 s (99 %), at 2026-11-18 01:02:03; 2^10 in runs/20261118-010203-lenet-ps-sync-1abc.";
    let wanted = "worker/0  took N s of N s (N %), at N N; N^10 in runs/RUN.";
    assert_eq!(masked(text), wanted);
    assert_eq!(words("a 'b c' d"), ["a", "b c", "d"]);
}
