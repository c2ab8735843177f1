//! From what was typed to arguments: names of earlier versions, negative numbers, times without a unit.
//!
//! The modules are the flags that several commands share, and the checks that clap cannot make: typed first, then checked.
//! CONTRIBUTING.md has the vocabulary of all commands. A name that changed works for one version more, with a note.

pub(crate) mod cluster;
pub(crate) mod engine;
pub(crate) mod idle_flags;
pub(crate) mod limits;
pub(crate) mod paths;
pub(crate) mod rows_flags;
pub(crate) mod rows_tasks;
pub(crate) mod train_flags;
pub(crate) mod train_rules;
pub(crate) mod units;

use crate::{Cli, terminal::failure::Exit};
use clap::{
    ArgMatches, Command, CommandFactory, FromArgMatches, error::ErrorKind, parser::ValueSource,
};
use std::{ffi::OsString, io::Write};
use units::Span;

/// Flags that have another name now: the command, its former flag, the flag.
const RENAMED: &[(&[&str], &str, &str)] = &[
    (&["runs"], "out", "runs"),
    (&["export"], "out", "runs"),
    (&["speedtest"], "repeat", "repeats"),
    (&["node"], "bind", "listen"),
    (&["check"], "bind", "listen"),
    (&["advise", "parallel"], "batch", "batch-size"),
    (&["advise", "cloud"], "runs", "max-runs"),
];

/// Commands that are part of another one now: the former command, and the words for it.
const MOVED: &[(&str, &[&str])] = &[("models", &["list", "models"])];

/// The whole command tree.
pub fn command() -> Command {
    with_negative_numbers(Cli::command())
}

/// The arguments of this process, and what people should know about how they were typed. Ends it where clap has an
/// answer of its own: help, or what is wrong.
pub fn parse() -> (Cli, Vec<String>) {
    let (words, mut notes) = typed(std::env::args_os());
    let matches = command().try_get_matches_from(words).unwrap_or_else(|error| exit(&error));
    without_unit(&matches, &mut notes);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    (cli, notes)
}

/// Ends with clap's own words, except for what the standard library says of numbers.
#[allow(clippy::disallowed_methods)] // nothing has begun that would have to be ended
fn exit(error: &clap::Error) -> ! {
    if error.kind() != ErrorKind::ValueValidation {
        error.exit();
    }
    let text = numbers_in_words(&error.render().ansi().to_string());
    // Where stderr is closed, the exit code still tells.
    let _ = write!(anstream::stderr(), "{text}");
    std::process::exit(i32::from(Exit::Usage.code()))
}

/// What clap says about a value, without the standard library's words for numbers.
pub(crate) fn numbers_in_words(text: &str) -> String {
    let text = text
        .replace("invalid digit found in string", "expected a whole number, 0 or more")
        .replace("invalid float literal", "expected a number such as 0.1");
    range_in_words(&text).unwrap_or(text)
}

/// `0 is not in 1..=100` of clap as people say it. A range without an end has the largest number of its type there.
fn range_in_words(text: &str) -> Option<String> {
    const BETWEEN: &str = " is not in ";
    let at = text.find(BETWEEN)?;
    let (before, after) = (&text[..at], &text[at + BETWEEN.len()..]);
    let number = before.rsplit(' ').next()?;
    let is_bound = |c: char| c.is_ascii_digit() || matches!(c, '.' | '=' | '-');
    let range = &after[..after.find(|c| !is_bound(c)).unwrap_or(after.len())];
    let (from, to) = range.split_once("..")?;
    let endless = |to: &str| to.parse().map_or(true, |to: u64| to >= u64::from(u32::MAX));
    let to = to.strip_prefix('=').unwrap_or(to);
    let below = number.parse::<i128>().ok()? < from.parse::<i128>().ok()?;
    let words = match (endless(to), below) {
        (true, true) => format!("expected at least {from}"),
        (true, false) => format!("expected at most {to}"),
        (false, _) => format!("expected a whole number from {from} to {to}"),
    };
    Some(format!("{}{words}{}", &before[..before.len() - number.len()], &after[range.len()..]))
}

/// The command line in the names of this version, and notes on those that were others.
pub fn typed(words: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let mut notes = Vec::new();
    let is_word = |word: &OsString| !word.to_string_lossy().starts_with('-');
    // The flags in front of a command have no values.
    if let Some(at) = words.iter().skip(1).position(is_word).map(|at| at + 1)
        && let Some((old, new)) = MOVED.iter().find(|(old, _)| words[at] == *old)
    {
        words.splice(at..=at, new.iter().map(OsString::from));
        notes.push(format!("note: `paceline {old}` is now `paceline {}`", new.join(" ")));
    }
    // What stands behind `--` is another command's.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let is_name = |word: &&OsString| !word.to_string_lossy().starts_with('-');
    let names: Vec<String> = words[..end]
        .iter()
        .skip(1)
        .filter(is_name)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    for (command, old, new) in RENAMED.iter().filter(|(command, ..)| {
        command.len() <= names.len() && command.iter().zip(&names).all(|(a, b)| a == b)
    }) {
        for word in &mut words[1..end] {
            let Some(flag) = word.to_str().and_then(|word| word.strip_prefix("--")) else {
                continue;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            if name != *old {
                continue;
            }
            *word = value.map_or_else(|| format!("--{new}"), |it| format!("--{new}={it}")).into();
            let command = command.join(" ");
            notes.push(format!("note: --{old} of `paceline {command}` is now --{new}"));
        }
    }
    (words, notes)
}

/// Notes the times that were typed without a unit.
fn without_unit(matches: &ArgMatches, notes: &mut Vec<String>) {
    for id in matches.ids() {
        let is_typed = matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let Ok(Some(spans)) = matches.try_get_many::<Span>(id.as_str()) else { continue };
        for span in spans.filter(|span| is_typed && span.bare) {
            let (flag, seconds) = (id.as_str().replace('_', "-"), span.seconds());
            notes.push(format!("note: --{flag} {seconds} is now written --{flag} {seconds}s"));
        }
    }
    if let Some((_, matches)) = matches.subcommand() {
        without_unit(matches, notes);
    }
}

/// Lets every value be a negative number: `--lr -0.1` is then a rate out of range and not an unknown flag `-0`.
fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|argument| {
            let takes = argument.get_action().takes_values();
            if takes { argument.allow_negative_numbers(true) } else { argument }
        })
        .mut_subcommands(with_negative_numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(line: &str) -> (String, Vec<String>) {
        let (words, notes) = typed(line.split(' ').map(OsString::from));
        let words: Vec<String> =
            words.into_iter().map(|word| word.into_string().unwrap()).collect();
        (words.join(" "), notes)
    }

    #[test]
    fn former_flags_work_with_a_note() {
        let (line, notes) = now("paceline --quiet runs --out elsewhere --json");
        assert_eq!(line, "paceline --quiet runs --runs elsewhere --json");
        assert_eq!(notes, ["note: --out of `paceline runs` is now --runs"]);
        let (line, notes) = now("paceline advise parallel --model lenet --batch=9");
        assert_eq!(line, "paceline advise parallel --model lenet --batch-size=9");
        assert_eq!(notes.len(), 1);
        for same in [
            "paceline train --out x",
            "paceline sweep --vary lr=1,2 -- speedtest --repeat 3",
            "paceline advise batch --runs x",
        ] {
            assert_eq!(now(same), (same.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn a_command_that_moved_works_with_a_note() {
        let (line, notes) = now("paceline --json models --profile lenet");
        assert_eq!(line, "paceline --json list models --profile lenet");
        assert_eq!(notes, ["note: `paceline models` is now `paceline list models`"]);
        assert_eq!(now("paceline list models"), ("paceline list models".to_owned(), vec![]));
        for (old, new) in MOVED {
            assert!(command().find_subcommand(old).is_none(), "{old}");
            assert!(command().find_subcommand(new[0]).is_some(), "{new:?}");
        }
    }

    #[test]
    fn every_present_name_is_a_flag_and_no_former_one_is() {
        for (words, old, new) in RENAMED {
            let mut program = command();
            program.build();
            let mut found = &program;
            for word in *words {
                found = found.find_subcommand(word).unwrap();
            }
            let has = |name: &str| found.get_arguments().any(|it| it.get_long() == Some(name));
            assert!(has(new) && !has(old), "{words:?} {old} {new}");
        }
    }

    #[test]
    fn a_number_out_of_range_is_said_in_words() {
        let said = |text: &str| range_in_words(text).unwrap();
        assert_eq!(
            said("'--top': 0 is not in 1..18446744073709551615"),
            "'--top': expected at least 1"
        );
        assert_eq!(
            said("'--pid': 99999999999 is not in 0..=4294967295\n\nFor more"),
            "'--pid': expected at most 4294967295\n\nFor more"
        );
        assert_eq!(said("x: 0 is not in 1..=100"), "x: expected a whole number from 1 to 100");
        assert_eq!(range_in_words("invalid value 'a' for '--b'"), None);
        let words = ["paceline", "predict", "runs/a", "a.jpg", "--top", "0"];
        let error = command().try_get_matches_from(words).unwrap_err().to_string();
        assert!(said(&error).contains("'--top <N>': expected at least 1"), "{error}");
    }

    #[test]
    fn a_time_without_a_unit_is_noted() {
        let line = ["paceline", "sweep", "--timeout", "5", "softmax-batch"];
        let mut notes = Vec::new();
        without_unit(&command().try_get_matches_from(line).unwrap(), &mut notes);
        assert_eq!(notes, ["note: --timeout 5 is now written --timeout 5s"]);
        let line = ["paceline", "sweep", "--timeout", "5s", "softmax-batch"];
        notes.clear();
        without_unit(&command().try_get_matches_from(line).unwrap(), &mut notes);
        assert!(notes.is_empty(), "{notes:?}");
    }
}
