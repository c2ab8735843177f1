//! `paceline sweep` of a program that is not ours.

use crate::terminal::failure::{FailureExt, usage};
use paceline_models::names::UnknownName;
use paceline_sweep::{Measure, Recipe, check_pattern, find_program};

/// A figure that is asked for, and where it is.
#[derive(Debug, Clone)]
pub struct WantedFigure {
    name: String,
    place: FigureSource,
}

#[derive(Debug, Clone)]
enum FigureSource {
    /// A path in the JSON that the program prints.
    Json(Measure),
    /// A pattern for all that it prints.
    Pattern(String),
}

/// Reads `loss='loss: ([0-9.]+)'` or `loss=/final/loss`.
pub(in crate::commands) fn figure(text: &str) -> Result<WantedFigure, String> {
    let parts = text.split_once('=').map(|(name, place)| (name.trim(), place));
    let (name, place) = parts
        .filter(|(name, place)| !name.is_empty() && !place.is_empty())
        .ok_or("expected NAME=PATTERN, such as loss='loss: ([0-9.]+)'")?;
    let place = match Measure::output(name, place).filter(|_| place.starts_with('/')) {
        Some(measure) => FigureSource::Json(measure),
        None => {
            check_pattern(place)?;
            FigureSource::Pattern(place.to_owned())
        }
    };
    Ok(WantedFigure { name: name.to_owned(), place })
}

/// The program that a word names, unless it is a command of ours.
pub(in crate::commands) fn program(word: &str) -> anyhow::Result<Option<String>> {
    let mut ours = crate::command();
    ours.build();
    if ours.find_subcommand(word).is_some() {
        return Ok(None);
    }
    if find_program(word).is_some() {
        return Ok(Some(word.to_owned()));
    }
    let known = ours.get_subcommands().map(clap::Command::get_name);
    Err(UnknownName::new("command", word, known)).hint(
        "behind `--` stands a command of paceline, such as `train --model …`, or a program that can be run, by its path or its name",
    )
}

/// A recipe for a program that is called with these words, and the figures that are asked of it.
pub(in crate::commands) fn recipe(
    program: &str,
    words: &[String],
    figures: &[WantedFigure],
) -> anyhow::Result<Recipe> {
    let mut recipe = Recipe::of_program(program, &words.join(" "));
    for wanted in figures {
        if recipe.measure.iter().any(|known| known.name == wanted.name) {
            return Err(usage(
                format!("`--measure {}=…` was given twice", wanted.name),
                "give each figure a name of its own",
            ));
        }
        recipe.measure.push(match &wanted.place {
            FigureSource::Json(measure) => measure.clone(),
            FigureSource::Pattern(pattern) => {
                recipe.patterns.push((wanted.name.clone(), pattern.clone()));
                Measure::figure(&wanted.name)
            }
        });
    }
    if !recipe.measure.is_empty() {
        recipe.measure.push(Measure::wall());
    }
    Ok(recipe)
}

/// A setting that stands nowhere in the words of a program would change nothing; `flag` is what asked for it.
pub(in crate::commands) fn check_places<'a>(
    words: &[String],
    names: impl Iterator<Item = &'a str>,
    flag: &str,
) -> anyhow::Result<()> {
    for name in names {
        let place = format!("{{{name}}}");
        if !words.iter().any(|word| word.contains(&place)) {
            return Err(usage(
                format!(
                    "`{place}` stands nowhere in the command, so `{flag} {name}=…` would change nothing"
                ),
                format!("put it where the value belongs, such as `--{name} {place}`"),
            ));
        }
    }
    Ok(())
}
