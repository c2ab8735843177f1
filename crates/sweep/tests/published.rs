//! Every published figure of every recipe stands in the text of the report that the recipe cites.
//!
//! The texts are not part of the repository. They are read from `PACELINE_SOURCES`, else `../shared/seeds`; without them the test says so
//! and passes, in continuous integration too, because they may not be given to everyone who builds this.

#![allow(clippy::unwrap_used)]

use paceline_sweep::{Published, Recipe, recipes};
use std::path::{Path, PathBuf};

/// A source as recipes cite it, and a word that only its text has.
const SOURCES: &[(&str, &str)] = &[
    ("Cloud coursework report 140000067", "140000067"),
    ("Javaheri: Data Processing and Machine Learning in the Cloud", "Javaheri"),
    ("CS744 assignment 2 by Ahuja, Sushma K N and Goel", "Goel"),
    ("Assignment 3 by Bhat and Subramanian", "Subramanian"),
    ("CS744 assignment 2 by Ramesh, Pendyala and Thumbre", "Thumbre"),
    // A paper that the reports build on; its figures are in the notes beside them.
    ("Smith et al.: Don't decay the learning rate, increase the batch size", "WRN-16-4"),
];

fn texts() -> Option<Vec<String>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let folder = std::env::var_os("PACELINE_SOURCES").map_or_else(
        || here.ancestors().map(|it| it.join("shared/seeds")).find(|it| it.is_dir()),
        |folder| Some(PathBuf::from(folder)),
    );
    let folder = folder?;
    let notes = std::fs::read_to_string(folder.join("../advisors.md")).unwrap_or_default();
    let entries = std::fs::read_dir(folder).ok()?;
    let read = |entry: std::fs::DirEntry| std::fs::read(entry.path()).ok();
    let found = entries.flatten().filter_map(read);
    let mut found: Vec<String> =
        found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
    found.push(without_gaps(&notes));
    Some(found)
}

/// A text whose numbers are grouped by spaces ("80 000"), without them.
fn without_gaps(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let digit = |at: usize| letters.get(at).is_some_and(char::is_ascii_digit);
    let gap = |at: usize| {
        let three = (1..=3).all(|next| digit(at + next)) && !digit(at + 4);
        letters[at] == ' ' && at > 0 && digit(at - 1) && three
    };
    (0..letters.len()).filter(|at| !gap(*at)).map(|at| letters[at]).collect()
}

/// All numbers of a text; a comma between digits groups thousands, and a minus before one may be a hyphen.
fn numbers(text: &str) -> Vec<f64> {
    let mut found = Vec::new();
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_ascii_digit() || matches!(letter, '.' | ',') {
            word.push(letter);
            continue;
        }
        let plain = word.replace(',', "");
        found.extend(plain.trim_end_matches('.').parse::<f64>());
        // A comma may also stand between two numbers.
        found.extend(word.split(',').filter_map(|it| it.trim_end_matches('.').parse::<f64>().ok()));
        word.clear();
    }
    found
}

/// Times written as minutes and seconds.
fn minutes(text: &str) -> Vec<f64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let parse = |word: &str| word.parse::<f64>().ok();
    let times = words.windows(4).filter_map(|four| match four {
        [minutes, "min", seconds, unit] if unit.trim_end_matches([',', ';', '.']) == "s" => {
            Some(60.0 * parse(minutes)? + parse(seconds)?)
        }
        _ => None,
    });
    times.collect()
}

/// Whether the text has a figure: as it is, as a fraction of one, in thousands, in minutes, or in a unit a thousand times smaller; where the
/// recipe says that it is the middle of a range, its ends.
fn has(text: &[f64], times: &[f64], figure: f64, published: &Published) -> bool {
    let near = |all: &[f64], wanted: f64| {
        all.iter().any(|known| (known - wanted).abs() <= 1e-9 * wanted.abs().max(1.0))
    };
    let size = figure.abs();
    let written = [size, size / 100.0, size / 1000.0, size * 1000.0, size / 60.0];
    let range = || {
        let both = |width: f64| near(text, size - width) && near(text, size + width);
        published.doubt.contains("middle") && [0.25, 0.5].into_iter().any(both)
    };
    written.into_iter().any(|form| near(text, form)) || near(times, size) || range()
}

#[test]
fn every_published_figure_stands_in_the_text_of_its_source() {
    let Some(texts) = texts() else {
        eprintln!("skipped: the texts of the published reports are not here");
        return;
    };
    let mut checked = 0;
    let mut missing = Vec::new();
    for (name, text) in recipes::ALL {
        let recipe = Recipe::parse(name, text).unwrap();
        for published in &recipe.published {
            let known = SOURCES.iter().find(|(source, _)| *source == published.source);
            let (_, word) = known.unwrap_or_else(|| panic!("{name} cites {}", published.source));
            let source = texts.iter().find(|text| text.contains(word));
            let source = source.unwrap_or_else(|| panic!("no text has the word {word}"));
            let (numbers, times) = (numbers(source), minutes(source));
            for figure in &published.is {
                checked += 1;
                if !has(&numbers, &times, *figure, published) {
                    missing.push(format!("{name}, {}: {figure}", published.place()));
                }
            }
        }
    }
    assert!(checked > 300, "only {checked} figures");
    assert!(missing.is_empty(), "not in the text of their source:\n{}", missing.join("\n"));
}

/// The check itself must be able to fail.
#[test]
fn a_figure_that_was_not_published_is_found_out() {
    assert_eq!(without_gaps("of 80 000 and 6 500, 12 34 567 5"), "of 80000 and 6500, 12 34567 5");
    let text = "Batch 64 took 16 min 33 s, 7,100 steps, accuracy .367; 1 to 1.5 s; -64.13";
    let (numbers, times) = (numbers(text), minutes(text));
    let recipe = Recipe::parse("softmax-batch", recipes::find("softmax-batch").unwrap()).unwrap();
    let plain = Published { doubt: String::new(), ..recipe.published[0].clone() };
    for figure in [993.0, 7100.0, 36.7, -64.13] {
        assert!(has(&numbers, &times, figure, &plain), "{figure}");
    }
    for figure in [994.0, 7101.0, 36.8, 1.25] {
        assert!(!has(&numbers, &times, figure, &plain), "{figure}");
    }
    let middle = Published { doubt: "middles of the ranges".to_owned(), ..plain };
    assert!(has(&numbers, &times, 1.25, &middle));
}
