//! From a recipe to the list of cells: the product of the axes, repeated, in a seeded random order.
//!
//! A cell is identified by its command line, so that a resumed sweep finds what is done, and one with more settings or repeats
//! runs only the new cells. Each repeat is shuffled separately: everything once, then everything again, so that a machine that
//! warms up or slows down affects all settings equally.

use crate::error::SweepError;
use crate::process::fill_known;
use crate::recipe::{Axis, Choice, Recipe, Value};
use crate::template::{Names, fill};
use paceline_probes::shell_word;
use paceline_stats::fnv::Fnv;
use paceline_stats::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Letters of a folder's name before its hash.
const MOST_LETTERS: usize = 60;
/// Most cells of a grid; more are taken for a typing error.
const MOST_CELLS: usize = 100_000;
/// Placeholders that are filled when a cell runs: they differ between machines, not between cells.
pub(crate) const LATER: &[&str] = &["cell", "out", "data"];

/// How a recipe is to be run.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepSettings {
    /// Share of the published size, above 0 and at most 1.
    pub scale: f64,
    /// Measurements of each setting, where not the recipe's own.
    pub repeats: Option<u32>,
    /// Decides the order.
    pub seed: u64,
    /// Axes that replace the recipe's of the same name, or add to them.
    pub vary: Vec<Axis>,
    /// Arguments for every cell, after all others.
    pub extra: Vec<String>,
    /// Where the recipe's data set was found; `None` if it is generated.
    pub found_data: Option<PathBuf>,
    /// Whether workers get hosts of their own.
    pub hosts: bool,
}

impl Default for SweepSettings {
    fn default() -> Self {
        Self {
            scale: 1.0,
            repeats: None,
            seed: 1,
            vary: Vec::new(),
            extra: Vec::new(),
            found_data: None,
            hosts: false,
        }
    }
}

/// One command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Unique identifier; also its folder's name.
    pub key: String,
    /// Axis and setting, in the order of the axes.
    pub settings: Vec<(String, String)>,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// The command line after the program's name; `{cell}`, `{out}` and `{data}` still to be filled.
    pub arguments: Vec<String>,
    /// The program, where it is not our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Names of figures, and the patterns that find them in what the program prints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<(String, String)>,
    /// Whether its workers get hosts of their own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hosts: bool,
}

impl Cell {
    /// The settings in words.
    #[must_use]
    pub fn label(&self) -> String {
        let parts: Vec<String> =
            self.settings.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
        format!("{} #{}", parts.join(", "), self.repeat)
    }

    /// The command line as it would be typed.
    #[must_use]
    pub fn typed(&self, arguments: &[String]) -> String {
        let own = if self.hosts { "on-hosts.sh" } else { "paceline" };
        let program = self.program.as_deref().unwrap_or(own);
        let words = std::iter::once(program).chain(arguments.iter().map(String::as_str));
        words.map(shell_word).collect::<Vec<_>>().join(" ")
    }
}

/// `batch-size=10,50,100` as an axis.
///
/// # Errors
/// Without a name or a value.
pub fn parse_vary(text: &str) -> Result<Axis, SweepError> {
    let wrong = || SweepError::Vary { text: text.to_owned() };
    let (name, values) = text.split_once('=').ok_or_else(wrong)?;
    let name = name.trim().trim_start_matches("--");
    let values: Vec<Choice> = values
        .split(',')
        .map(|value| Choice::Plain(Value::Text(value.trim().to_owned())))
        .collect();
    let empty = |choice: &Choice| choice.label().is_empty();
    if name.is_empty() || values.iter().any(empty) {
        return Err(wrong());
    }
    Ok(Axis { name: name.to_owned(), values })
}

impl SweepSettings {
    /// The axes: the recipe's own, some replaced, some narrowed to settings of theirs, some added.
    ///
    /// # Errors
    /// A setting that an axis with named settings does not have: no flag belongs to such a name.
    pub fn axes(&self, recipe: &Recipe) -> Result<Vec<Axis>, SweepError> {
        let mut axes = recipe.axis.clone();
        for axis in &self.vary {
            match axes.iter_mut().find(|known| known.name == axis.name) {
                Some(known)
                    if known.values.iter().any(|value| matches!(value, Choice::Named(_))) =>
                {
                    known.values = select(known, axis)?;
                }
                Some(known) => known.clone_from(axis),
                None => axes.push(axis.clone()),
            }
        }
        Ok(axes)
    }

    /// Every cell, in the order in which they shall run.
    ///
    /// # Errors
    /// A scale out of range, an undefined placeholder, or too many cells.
    pub fn cells(&self, recipe: &Recipe) -> Result<Vec<Cell>, SweepError> {
        if !(self.scale > 0.0 && self.scale <= 1.0) {
            return Err(SweepError::Scale { found: self.scale });
        }
        let axes = self.axes(recipe)?;
        let repeats = self.repeats.unwrap_or(recipe.repeats).max(1);
        let product =
            axes.iter().map(|axis| axis.values.len()).try_fold(1usize, usize::checked_mul);
        let all = product.and_then(|cells| cells.checked_mul(repeats as usize));
        if all.is_none_or(|cells| cells > MOST_CELLS) {
            let cells = all.unwrap_or(usize::MAX);
            return Err(SweepError::TooMany { cells, most: MOST_CELLS });
        }
        let mut cells = Vec::new();
        for repeat in 1..=repeats {
            let mut round = Vec::new();
            for place in 0..product.unwrap_or(0) {
                let chosen = choose(&axes, place);
                if !skipped(recipe, &chosen) {
                    round.push(self.cell(recipe, &chosen, repeat)?);
                }
            }
            Random::after(self.seed.wrapping_add(u64::from(repeat))).shuffle(&mut round);
            cells.append(&mut round);
        }
        Ok(cells)
    }

    /// A name for the folder of a sweep: readable words, then eight digits of a hash of everything that decides what is run.
    /// The same sweep finds its folder again, and different sweeps get different folders.
    #[must_use]
    pub fn folder_name(&self, recipe: &Recipe, cells: &[Cell], data: Option<&Path>) -> String {
        let after = |flag: &str| self.extra.iter().skip_while(move |word| *word != flag).nth(1);
        let words = std::iter::once(recipe.name.as_str())
            .chain(after("--model").map(String::as_str))
            .chain(self.vary.iter().map(|axis| axis.name.as_str()));
        let mut name: String = words
            .collect::<Vec<_>>()
            .join("-")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        name.truncate(MOST_LETTERS);
        let mut keys: Vec<&str> = cells.iter().map(|cell| cell.key.as_str()).collect();
        keys.sort_unstable();
        let (scale, seed) = (self.scale.to_string(), self.seed.to_string());
        let data = data.map_or_else(String::new, |data| data.display().to_string());
        let parts = [scale.as_str(), seed.as_str(), data.as_str()].into_iter().chain(keys);
        format!("{}-{:08x}", name.trim_matches('-'), fnv(parts) >> 32)
    }

    fn cell(
        &self,
        recipe: &Recipe,
        chosen: &[(&Axis, &Choice)],
        repeat: u32,
    ) -> Result<Cell, SweepError> {
        let mut names: Names = self.names(recipe);
        names.insert("repeat".to_owned(), repeat.to_string());
        if let Some(program) = &recipe.program {
            return Ok(self.foreign_cell(recipe, program, chosen, names, repeat));
        }
        let mut flags: BTreeMap<&str, &Value> =
            recipe.flags.iter().map(|(name, value)| (name.as_str(), value)).collect();
        for (axis, choice) in chosen {
            names.insert(axis.name.clone(), choice.label());
            match choice {
                Choice::Plain(value) => {
                    flags.insert(&axis.name, value);
                }
                Choice::Named(named) => {
                    flags.extend(named.flags.iter().map(|(name, value)| (name.as_str(), value)));
                }
            }
        }
        let mut arguments = recipe.command.clone();
        for argument in &recipe.arguments {
            arguments.push(fill(argument, &names, LATER)?);
        }
        for (name, value) in flags {
            push_flag(&mut arguments, name, value, &names)?;
        }
        for argument in &self.extra {
            arguments.push(fill(argument, &names, LATER)?);
        }
        // Commands that leave a folder of results get one of their own.
        let leaves = matches!(recipe.command[0].as_str(), "train" | "speedtest");
        if leaves && !arguments.iter().any(|argument| argument == "--out") {
            arguments.extend(["--out".to_owned(), "{cell}".to_owned()]);
        }
        // The same command elsewhere is another measurement.
        let mut words = arguments.clone();
        words.extend(self.hosts.then(|| "on hosts".to_owned()));
        Ok(Cell {
            key: key(&words, repeat),
            settings: chosen
                .iter()
                .map(|(axis, choice)| (axis.name.clone(), choice.label()))
                .collect(),
            repeat,
            arguments,
            program: None,
            patterns: Vec::new(),
            hosts: self.hosts,
        })
    }

    /// A cell of any program: settings go where the command line has their names in braces, and nowhere else.
    fn foreign_cell(
        &self,
        recipe: &Recipe,
        program: &str,
        chosen: &[(&Axis, &Choice)],
        names: Names,
        repeat: u32,
    ) -> Cell {
        let settings: Vec<(String, String)> =
            chosen.iter().map(|(axis, choice)| (axis.name.clone(), choice.label())).collect();
        let names: Names = names.into_iter().chain(settings.iter().cloned()).collect();
        let arguments: Vec<String> =
            self.extra.iter().map(|argument| fill_known(argument, &names)).collect();
        // A figure that is looked for otherwise is another measurement.
        let patterns = recipe.patterns.iter().map(|(name, pattern)| format!("{name}={pattern}"));
        let mut words = vec![program.to_owned()];
        words.extend(arguments.iter().cloned().chain(patterns));
        Cell {
            key: key(&words, repeat),
            settings,
            repeat,
            arguments,
            program: Some(program.to_owned()),
            patterns: recipe.patterns.clone(),
            hosts: false,
        }
    }

    /// What placeholders stand for at this scale.
    pub(crate) fn names(&self, recipe: &Recipe) -> Names {
        let mut names: Names = recipe
            .scaled
            .iter()
            .map(|(name, scaled)| (name.clone(), scaled.at(self.scale)))
            .collect();
        names.insert("cores".to_owned(), paceline_batch::cores().count.to_string());
        names
    }
}

/// How often every setting is measured.
pub(crate) fn repeats_in_words(repeats: u32) -> String {
    if repeats == 1 { "1 repeat".to_owned() } else { format!("{repeats} repeats") }
}

/// The settings of a recipe's axis that were asked for by name. Names may hold commas, at which the text was split.
fn select(known: &Axis, asked: &Axis) -> Result<Vec<Choice>, SweepError> {
    let words: Vec<String> = asked.values.iter().map(Choice::label).collect();
    let mut selected = Vec::new();
    let mut at = 0;
    while at < words.len() {
        // The longest name first: "sync" must not be found in "sync, 2 workers".
        let found = (at + 1..=words.len()).rev().find_map(|end| {
            let name = words[at..end].join(", ");
            let choice = known.values.iter().find(|choice| choice.label() == name)?;
            Some((choice.clone(), end))
        });
        let Some((choice, end)) = found else {
            return Err(SweepError::Setting {
                axis: known.name.clone(),
                found: words[at].clone(),
                known: known.values.iter().map(Choice::label).collect(),
            });
        };
        selected.push(choice);
        at = end;
    }
    Ok(selected)
}

/// The `place`-th combination; the last axis turns fastest.
fn choose(axes: &[Axis], mut place: usize) -> Vec<(&Axis, &Choice)> {
    let mut chosen: Vec<(&Axis, &Choice)> = axes
        .iter()
        .rev()
        .map(|axis| {
            let choice = &axis.values[place % axis.values.len()];
            place /= axis.values.len();
            (axis, choice)
        })
        .collect();
    chosen.reverse();
    chosen
}

/// Whether the recipe leaves a combination out.
fn skipped(recipe: &Recipe, chosen: &[(&Axis, &Choice)]) -> bool {
    recipe.skip.iter().any(|setting| {
        setting.iter().all(|(name, value)| {
            chosen
                .iter()
                .any(|(axis, choice)| axis.name == *name && choice.label() == value.to_string())
        })
    })
}

fn push_flag(
    arguments: &mut Vec<String>,
    name: &str,
    value: &Value,
    names: &Names,
) -> Result<(), SweepError> {
    match value {
        Value::Switch(false) => {}
        Value::Switch(true) => arguments.push(format!("--{name}")),
        Value::List(values) => {
            values.iter().try_for_each(|value| push_flag(arguments, name, value, names))?;
        }
        other => {
            arguments.push(format!("--{name}"));
            arguments.push(fill(&other.to_string(), names, LATER)?);
        }
    }
    Ok(())
}

/// Sixteen hexadecimal digits that follow from the command line and the repeat.
fn key(arguments: &[String], repeat: u32) -> String {
    let repeat = repeat.to_string();
    let parts = arguments.iter().map(String::as_str).chain([repeat.as_str()]);
    format!("{:016x}", fnv(parts))
}

/// FNV-1a over texts, each ended by a zero byte.
fn fnv<'a>(parts: impl Iterator<Item = &'a str>) -> u64 {
    let mut hash = Fnv::default();
    for part in parts {
        hash.add(part.as_bytes());
        hash.add(&[0]);
    }
    hash.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn recipe() -> Recipe {
        let text = r#"
            title = "t"
            command = ["train"]
            repeats = 2
            flags = { model = "softmax", seed = "{repeat}", lrn = false, no-tensorboard = true }
            skip = [{ mode = "two", batch-size = 512 }]
            [[axis]]
            name = "mode"
            values = [{ name = "one", flags = { strategy = "one-device" } }, { name = "two", flags = { workers = 2 } }]
            [[axis]]
            name = "batch-size"
            values = [32, 512]
        "#;
        Recipe::parse("t", text).unwrap()
    }

    #[test]
    fn a_cell_says_its_whole_command_line() {
        let cells = SweepSettings::default().cells(&recipe()).unwrap();
        assert_eq!(cells.len(), 6, "two modes, two sizes, one left out, twice");
        let cell = cells.iter().find(|cell| cell.label() == "mode two, batch-size 32 #2").unwrap();
        let wanted = "train --batch-size 32 --model softmax --no-tensorboard --seed 2 --workers 2 --out {cell}";
        assert_eq!(cell.arguments.join(" "), wanted);
        assert!(cells[..3].iter().all(|cell| cell.repeat == 1), "everything once, then again");
    }

    #[test]
    fn varied_axes_replace_the_recipes_own_and_add_to_them() {
        let vary = vec![parse_vary("batch-size=8").unwrap(), parse_vary("--lr=0.1,0.2").unwrap()];
        let cells = SweepSettings { vary, ..SweepSettings::default() }.cells(&recipe()).unwrap();
        assert_eq!(cells.len(), 8);
        for wrong in ["lr", "=1", "lr=", "lr=1,,2"] {
            assert!(parse_vary(wrong).is_err(), "{wrong}");
        }
    }

    /// `--vary mode=single` once ran `train --mode single`.
    #[test]
    fn named_settings_are_selected_by_their_names() {
        let text = r#"
            title = "t"
            command = ["train"]
            [[axis]]
            name = "mode"
            values = [
                { name = "single", flags = { strategy = "one-device" } },
                { name = "sync, 2 workers", flags = { strategy = "ps-sync", workers = 2 } },
                { name = "sync, 3 workers", flags = { strategy = "ps-sync", workers = 3 } },
            ]
        "#;
        let recipe = Recipe::parse("t", text).unwrap();
        let cells = |vary: &str| {
            let vary = vec![parse_vary(vary).unwrap()];
            SweepSettings { vary, ..SweepSettings::default() }.cells(&recipe)
        };
        let one = cells("mode=single").unwrap();
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].arguments.join(" "), "train --strategy one-device --out {cell}");
        let two = cells("mode=sync, 3 workers,single").unwrap();
        let labels: BTreeSet<&str> = two.iter().map(|cell| cell.settings[0].1.as_str()).collect();
        assert_eq!(labels, ["single", "sync, 3 workers"].into());
        let error = cells("mode=double").unwrap_err().to_string();
        assert!(error.contains("`mode` has no setting `double`"), "{error}");
        assert!(error.contains("`sync, 2 workers`"), "{error}");
    }

    /// Every sweep of `train` once went to `sweeps/train` and replaced the page of the last one.
    #[test]
    fn every_sweep_has_a_folder_of_its_own_and_finds_it_again() {
        let typed = |vary: &str, repeats: u32, extra: &str| {
            let recipe = Recipe::of_command("train", extra);
            let settings = SweepSettings {
                repeats: Some(repeats),
                vary: vec![parse_vary(vary).unwrap()],
                extra: extra.split(' ').map(str::to_owned).collect(),
                ..SweepSettings::default()
            };
            let cells = settings.cells(&recipe).unwrap();
            settings.folder_name(&recipe, &cells, None)
        };
        let base = typed("batch-size=10,50", 2, "--model softmax");
        assert_eq!(base, typed("batch-size=10,50", 2, "--model softmax"));
        assert!(base.starts_with("train-softmax-batch-size-"), "{base}");
        let others = [
            typed("batch-size=10,60", 2, "--model softmax"),
            typed("batch-size=10,50", 3, "--model softmax"),
            typed("batch-size=10,50", 2, "--model softmax --epochs 2"),
            typed("lr=10,50", 2, "--model softmax"),
            typed("lr=10,50", 2, "--model ../../etc"),
        ];
        let names: BTreeSet<&String> = others.iter().chain([&base]).collect();
        assert_eq!(names.len(), 6, "{names:?}");
        assert!(others.iter().all(|name| !name.contains(['/', '.'])), "{others:?}");
    }

    #[test]
    fn nonsense_scales_and_huge_grids_are_refused() {
        for scale in [0.0, -1.0, 1.5, f64::NAN] {
            let settings = SweepSettings { scale, ..SweepSettings::default() };
            assert!(matches!(settings.cells(&recipe()), Err(SweepError::Scale { .. })));
        }
        let many: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let vary = ["a", "b", "c"]
            .iter()
            .map(|name| parse_vary(&format!("{name}={}", many.join(","))).unwrap())
            .collect();
        let settings = SweepSettings { vary, ..SweepSettings::default() };
        assert!(matches!(settings.cells(&recipe()), Err(SweepError::TooMany { .. })));
    }

    proptest! {
        #[test]
        fn every_cell_is_there_once_whatever_the_order(seed: u64, repeats in 1u32..4) {
            let settings = SweepSettings { seed, repeats: Some(repeats), ..SweepSettings::default() };
            let cells = settings.cells(&recipe()).unwrap();
            let keys: BTreeSet<&str> = cells.iter().map(|cell| cell.key.as_str()).collect();
            prop_assert_eq!(keys.len(), 3 * repeats as usize);
            prop_assert_eq!(keys.len(), cells.len());
        }
    }
}
