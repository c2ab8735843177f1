//! Figures of a program that knows nothing of Paceline: from JSON that it printed, from a run folder that it left, or by a pattern.

use paceline_runs::RunView;
use regex_lite::{Regex, RegexBuilder};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Most numbers of a JSON document that become figures by themselves: a table of more is not read.
const MOST_FIGURES: usize = 16;
/// How much of a log is searched.
const MOST_LOG: u64 = 16 << 20;

/// What was found of a cell.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) values: BTreeMap<String, f64>,
    /// The JSON that it printed: all of its output, or the last line that is an object.
    pub(crate) document: Value,
    /// What it printed, and what it said on stderr.
    text: [String; 2],
}

impl Figures {
    /// Reads what a program printed and what it left in its folder.
    pub(crate) fn read(printed: &[u8], log: &Path, folder: &Path) -> Self {
        let said = fs::File::open(log).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(MOST_LOG).read_to_end(&mut bytes).map(|_| bytes)
        });
        let text = [printed, &said.unwrap_or_default()]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let document = document(&text[0]);
        let mut values = BTreeMap::new();
        if let Value::Object(fields) = &document {
            let numbers =
                fields.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
            values.extend(numbers.take(MOST_FIGURES));
        }
        values.extend(of_run(folder));
        Self { values, document, text }
    }

    /// Adds what patterns find: the last match counts, as the last line of a log is the newest.
    ///
    /// # Errors
    /// A pattern that finds no number, in words.
    pub(crate) fn find(&mut self, patterns: &[(String, String)]) -> Result<(), String> {
        for (name, pattern) in patterns {
            let regex = compile(pattern)?;
            let last = |text: &String| {
                let found = regex.captures_iter(text).last()?;
                found.get(1)?.as_str().trim().parse::<f64>().ok()
            };
            let value = self.text.iter().find_map(last);
            let value = value.filter(|value| value.is_finite()).ok_or_else(|| {
                format!("`{name}` was not found: nothing that it printed matches `{pattern}` with a number")
            })?;
            self.values.insert(name.clone(), value);
        }
        Ok(())
    }
}

/// The rate, loss and accuracy of the one run in a folder.
fn of_run(folder: &Path) -> Vec<(String, f64)> {
    let runs = paceline_runs::list(folder).unwrap_or_default();
    let [run] = runs.as_slice() else { return Vec::new() };
    let Ok(RunView { summary, .. }) = RunView::read(run.path()) else { return Vec::new() };
    let last = &summary.last;
    [
        ("rate", Some(summary.examples_per_second).filter(|rate| *rate > 0.0)),
        ("loss", [last.test_loss, last.train_loss].into_iter().find(|loss| loss.is_finite())),
        ("accuracy", Some(last.test_accuracy).filter(|accuracy| accuracy.is_finite())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

/// The rate of the one run in a folder.
pub(crate) fn rate(folder: &Path) -> Option<f64> {
    of_run(folder).into_iter().find(|(name, _)| name == "rate").map(|(_, rate)| rate)
}

fn document(text: &str) -> Value {
    let object = |text: &str| serde_json::from_str(text).ok().filter(Value::is_object);
    object(text).or_else(|| text.lines().rev().find_map(object)).unwrap_or_default()
}

/// A pattern for lines: `^` and `$` are the ends of one.
fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .multi_line(true)
        .build()
        .map_err(|error| format!("`{pattern}` is not a pattern: {error}"))
}

/// Whether a pattern can find a number: it is valid and has a group in parentheses around it.
///
/// # Errors
/// What is wrong, in words.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    match compile(pattern)?.captures_len() {
        0 | 1 => Err(format!(
            "`{pattern}` has no parentheses around the number, as in 'loss: ([0-9.]+)'"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(printed: &str, said: &str) -> Figures {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log.txt");
        fs::write(&log, said).unwrap();
        Figures::read(printed.as_bytes(), &log, folder.path())
    }

    #[test]
    fn the_last_match_counts_wherever_it_was_printed() {
        let patterns = [("loss".to_owned(), "loss: ([0-9.e-]+)".to_owned())];
        let mut figures = read("loss: 2.5\nloss: 1e-3\n", "loss: 9\n");
        figures.find(&patterns).unwrap();
        assert_eq!(figures.values["loss"], 1e-3);
        let mut figures = read("", "epoch 1 loss: 0.25\n");
        figures.find(&patterns).unwrap();
        assert_eq!(figures.values["loss"], 0.25);
        let error = read("lost: 1", "").find(&patterns).unwrap_err();
        assert!(error.starts_with("`loss` was not found"), "{error}");
    }

    #[test]
    fn numbers_of_a_document_are_figures_even_behind_other_lines() {
        let found =
            read("epoch 1\n{\"loss\": 0.5, \"name\": \"x\", \"of\": {\"a\": 1}}\ndone\n", "");
        assert_eq!(found.values, BTreeMap::from([("loss".to_owned(), 0.5)]));
        assert_eq!(read("{\n\"a\": 1,\n\"b\": 2}\n", "").values.len(), 2);
        assert!(read("[1, 2]\n3\n", "").values.is_empty());
    }

    #[test]
    fn patterns_without_a_group_are_refused() {
        assert!(check_pattern("loss: ([0-9.]+)").is_ok());
        assert!(check_pattern("loss: [0-9.]+").unwrap_err().contains("parentheses"));
        assert!(check_pattern("loss: (").unwrap_err().contains("not a pattern"));
    }
}
