//! Recipes: one TOML file per experiment, with the published figures inside.
//!
//! Unknown keys are errors: a typo must not become a default. Names are checked when the file is read, so that errors in a recipe
//! are found before the first cell runs.

use crate::error::SweepError;
use crate::measure::Measure;
use paceline_stats::shape::Tolerance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// An experiment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Recipe {
    /// Short name: the file's own, without its ending.
    #[serde(skip)]
    pub name: String,
    /// The program, where it is not our own.
    #[serde(skip)]
    pub program: Option<String>,
    /// Names of figures, and the patterns that find them in what another program prints.
    #[serde(skip)]
    pub patterns: Vec<(String, String)>,
    /// What it shows, as a heading.
    pub title: String,
    /// What was done and why, in a sentence or two.
    #[serde(default)]
    pub about: String,
    /// Where it was published, by the names of `docs/sources.md`; the first one is that of figures which name none.
    #[serde(default)]
    pub sources: Vec<String>,
    /// What differs from the published experiment, each in a sentence.
    #[serde(default)]
    pub caveats: Vec<String>,
    /// The command of our own binary, such as `["train"]`.
    pub command: Vec<String>,
    /// Arguments without a name, before the flags.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Flags of every cell.
    #[serde(default)]
    pub flags: BTreeMap<String, Value>,
    /// Measurements of each setting.
    #[serde(default = "one")]
    pub repeats: u32,
    /// Most seconds that a cell may take.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// Numbers that `--scale` shrinks, to be used as `{name}`.
    #[serde(default)]
    pub scaled: BTreeMap<String, Scaled>,
    /// The data set that `{data}` stands for.
    #[serde(default)]
    pub data: Option<DataSet>,
    /// Commands to run once, before the first cell.
    #[serde(default)]
    pub setup: Vec<Setup>,
    /// What is varied; the grid is their product.
    #[serde(default)]
    pub axis: Vec<Axis>,
    /// Settings to leave out of the grid.
    #[serde(default)]
    pub skip: Vec<BTreeMap<String, Value>>,
    /// What is measured of each cell.
    #[serde(default)]
    pub measure: Vec<Measure>,
    /// Published series to compare with.
    #[serde(default)]
    pub published: Vec<Published>,
    /// Names under a cell's folder to remove when it is done: shards, say.
    #[serde(default)]
    pub discard: Vec<String>,
}

fn one() -> u32 {
    1
}

/// A number that `--scale` shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaled {
    /// As published.
    pub full: f64,
    /// Never less than this.
    pub least: f64,
}

impl Scaled {
    /// The number at a scale; whole where both ends are whole.
    #[must_use]
    pub fn at(&self, scale: f64) -> String {
        let value = (self.full * scale).max(self.least).min(self.full.max(self.least));
        let whole = self.full.fract() == 0.0 && self.least.fract() == 0.0;
        if whole { format!("{:.0}", value.round()) } else { format!("{value}") }
    }
}

/// The data set of a recipe: the real one if it is found, otherwise a synthetic one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSet {
    /// Folder's name below the data folder, such as `mnist`.
    pub set: String,
    /// Arguments of `paceline data synth` that generate a substitute in `{data}`.
    pub synth: Vec<String>,
}

/// A command to run once, before the first cell.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// The command of our own binary with its arguments.
    pub command: Vec<String>,
    /// The file that it creates; the command is skipped if that exists.
    pub makes: String,
}

/// Something that is varied.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Its name: the flag, for plain values.
    pub name: String,
    /// Its settings, in the order of the published table.
    pub values: Vec<Choice>,
}

/// One setting of an axis.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Choice {
    /// A value for the flag that has the axis's name.
    Plain(Value),
    /// Several flags under one name.
    Named(NamedChoice),
}

/// Several flags under one name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedChoice {
    /// What tables call it.
    pub name: String,
    pub flags: BTreeMap<String, Value>,
}

impl Choice {
    /// What tables call it.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Choice::Plain(value) => value.to_string(),
            Choice::Named(named) => named.name.clone(),
        }
    }
}

/// A value of a flag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A switch: given or not.
    Switch(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// A text, with `{placeholders}`.
    Text(String),
    /// The flag several times.
    List(Vec<Value>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Switch(on) => f.write_str(if *on { "yes" } else { "no" }),
            Value::Whole(value) => write!(f, "{value}"),
            Value::Number(value) => write!(f, "{value}"),
            Value::Text(text) => f.write_str(text),
            Value::List(values) => {
                let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join("+"))
            }
        }
    }
}

/// A published series.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where it was published [default: the recipe's first source].
    #[serde(default)]
    pub source: String,
    /// The table, figure or section there.
    #[serde(default, rename = "in")]
    pub part: String,
    /// What is not sure about the figures, such as their place in a scanned chart.
    #[serde(default)]
    pub doubt: String,
    /// Which measure, for a series along an axis.
    #[serde(default)]
    pub measure: Option<String>,
    /// The settings of the other axes; axes not named are pooled.
    #[serde(default, rename = "where")]
    pub fixed: BTreeMap<String, Value>,
    #[serde(default)]
    pub along: Option<String>,
    /// The settings on that axis, in order.
    #[serde(default)]
    pub at: Vec<Value>,
    /// Instead of an axis: the measures that the series compares.
    #[serde(default)]
    pub across: Vec<String>,
    pub is: Vec<f64>,
    /// Figures closer than this fraction of the larger one count as equal [default: 0.02]; smaller for accuracy and the like.
    #[serde(default)]
    pub flat: Option<f64>,
    /// Where figures are equal, measured ones agree if they are known to differ by less than this fraction
    /// [default: five times `flat`].
    #[serde(default)]
    pub margin: Option<f64>,
}

impl Published {
    /// Source and place in it, as pages cite it.
    #[must_use]
    pub fn cited(&self) -> String {
        if self.part.is_empty() {
            self.source.clone()
        } else {
            format!("{}, {}", self.source, self.part)
        }
    }

    /// Which differences are none.
    pub(crate) fn tolerance(&self) -> Tolerance {
        let usual = self.flat.map_or_else(Tolerance::default, Tolerance::of_rounding);
        Tolerance { margin: self.margin.unwrap_or(usual.margin), ..usual }
    }

    /// Which series it is, for errors and headings.
    #[must_use]
    pub fn place(&self) -> String {
        let what = match (&self.measure, &self.along) {
            (Some(measure), Some(along)) => format!("{measure} by {along}"),
            _ => self.across.join(", "),
        };
        let fixed: Vec<String> =
            self.fixed.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
        if fixed.is_empty() { what } else { format!("{what}, {}", fixed.join(", ")) }
    }
}

impl Recipe {
    /// Reads a recipe file.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or refers to something it does not define.
    pub fn read(path: &Path) -> Result<Recipe, SweepError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SweepError::Read { path: path.to_owned(), source })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Recipe::parse(&name, &text)
    }

    /// Reads a recipe from text.
    ///
    /// # Errors
    /// As [`Recipe::read`].
    pub fn parse(name: &str, text: &str) -> Result<Recipe, SweepError> {
        let recipe: Recipe = toml::from_str(text).map_err(|source| SweepError::Toml {
            recipe: name.to_owned(),
            source: Box::new(source),
        })?;
        let mut recipe = Recipe { name: name.to_owned(), ..recipe };
        let first = recipe.sources.first().cloned().unwrap_or_default();
        for published in recipe.published.iter_mut().filter(|series| series.source.is_empty()) {
            published.source.clone_from(&first);
        }
        recipe.check()?;
        Ok(recipe)
    }

    /// The same with another seed in every repeat: repeats with one seed would only show timing noise.
    #[must_use]
    pub fn seeded(mut self) -> Recipe {
        self.flags.insert("seed".to_owned(), Value::Text("{repeat}".to_owned()));
        self
    }

    /// A recipe without figures, for a command that was typed; its arguments follow with the settings.
    #[must_use]
    pub fn of_command(command: &str, arguments: &str) -> Recipe {
        Recipe {
            name: command.to_owned(),
            program: None,
            patterns: Vec::new(),
            title: format!("Sweep of {command}"),
            about: format!("paceline {command} {arguments}"),
            sources: Vec::new(),
            caveats: Vec::new(),
            command: vec![command.to_owned()],
            arguments: Vec::new(),
            flags: BTreeMap::new(),
            repeats: 1,
            timeout: None,
            scaled: BTreeMap::new(),
            data: None,
            setup: Vec::new(),
            axis: Vec::new(),
            skip: Vec::new(),
            measure: Vec::new(),
            published: Vec::new(),
            discard: Vec::new(),
        }
    }

    /// A recipe for any program, with its arguments as they are to be shown.
    #[must_use]
    pub fn of_program(program: &str, arguments: &str) -> Recipe {
        let name = Path::new(program).file_stem().unwrap_or_default();
        Recipe {
            about: format!("{program} {arguments}"),
            command: vec![program.to_owned()],
            program: Some(program.to_owned()),
            ..Recipe::of_command(&name.to_string_lossy(), arguments)
        }
    }

    fn check(&self) -> Result<(), SweepError> {
        let incomplete = |what| Err(SweepError::Incomplete { recipe: self.name.clone(), what });
        if self.command.is_empty() {
            return incomplete("`command` is empty");
        }
        if self.axis.iter().any(|axis| axis.values.is_empty()) {
            return incomplete("an axis has no values");
        }
        if self.repeats == 0 {
            return incomplete("`repeats` is 0");
        }
        for setting in &self.skip {
            setting.iter().try_for_each(|(axis, value)| self.knows("skip", axis, Some(value)))?;
        }
        self.published.iter().try_for_each(|published| self.check_published(published))
    }

    fn check_published(&self, published: &Published) -> Result<(), SweepError> {
        let place = format!("published {}", published.place());
        if published.source.is_empty() {
            return Err(SweepError::Incomplete {
                recipe: self.name.clone(),
                what: "a published series names no source; add `source` to it, or `sources` to the recipe",
            });
        }
        let margins = published.flat.iter().chain(&published.margin);
        if margins.copied().any(|share| !(share.is_finite() && share >= 0.0)) {
            return Err(SweepError::Incomplete {
                recipe: self.name.clone(),
                what: "`flat` and `margin` of a published series are fractions, such as 0.1",
            });
        }
        let measures = published.measure.iter().chain(&published.across);
        for name in measures {
            if !self.measure.iter().any(|measure| measure.name == *name) {
                return Err(self.undefined(&place, "a measure", name));
            }
        }
        for (axis, value) in &published.fixed {
            self.knows(&place, axis, Some(value))?;
        }
        let wanted = match (&published.along, &published.measure) {
            (Some(axis), Some(_)) if published.across.is_empty() => {
                for value in &published.at {
                    self.knows(&place, axis, Some(value))?;
                }
                published.at.len()
            }
            (None, None) if !published.across.is_empty() => published.across.len(),
            _ => {
                return Err(SweepError::Incomplete {
                    recipe: self.name.clone(),
                    what: "a published series has either `measure`, `along` and `at`, or `across`",
                });
            }
        };
        if wanted == published.is.len() {
            Ok(())
        } else {
            let found = published.is.len();
            Err(SweepError::Lengths { recipe: self.name.clone(), place, found, wanted })
        }
    }

    /// Whether an axis, and a setting on it, exists.
    fn knows(&self, place: &str, axis: &str, value: Option<&Value>) -> Result<(), SweepError> {
        let known = self.axis.iter().find(|known| known.name == axis);
        let known = known.ok_or_else(|| self.undefined(place, "an axis", axis))?;
        if let Some(value) = value {
            let label = value.to_string();
            if !known.values.iter().any(|choice| choice.label() == label) {
                return Err(self.undefined(place, "a setting", &format!("{axis} {label}")));
            }
        }
        Ok(())
    }

    fn undefined(&self, place: &str, what: &'static str, name: &str) -> SweepError {
        SweepError::Undefined {
            recipe: self.name.clone(),
            place: place.to_owned(),
            what,
            name: name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        title = "t"
        command = ["train"]
        [[axis]]
        name = "batch-size"
        values = [10, 50]
        [[axis]]
        name = "mode"
        values = [{ name = "async", flags = { strategy = "ps-async", workers = 3 } }]
        [[measure]]
        name = "time"
        from = "/seconds"
        unit = "s"
        [[published]]
        source = "a report"
        measure = "time"
        along = "batch-size"
        at = [10, 50]
        is = [50.7, 12.0]
    "#;

    #[test]
    fn a_recipe_that_names_what_it_does_not_define_is_refused() {
        assert!(Recipe::parse("good", GOOD).is_ok());
        let cases = [
            ("at = [10, 50]", "at = [10, 51]", "names a setting `batch-size 51`"),
            ("along = \"batch-size\"", "along = \"batch\"", "names an axis `batch`"),
            ("measure = \"time\"", "measure = \"times\"", "names a measure `times`"),
            ("is = [50.7, 12.0]", "is = [50.7]", "has 1 figures for 2 settings"),
            ("title = \"t\"", "titel = \"t\"", "unknown field `titel`"),
            ("values = [10, 50]", "values = []", "an axis has no values"),
            ("source = \"a report\"", "in = \"Table 1\"", "names no source"),
            ("is = [50.7, 12.0]", "is = [50.7, 12.0]\nmargin = -1", "are fractions"),
        ];
        for (old, new, wanted) in cases {
            let error = Recipe::parse("bad", &GOOD.replace(old, new)).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn scaled_numbers_keep_their_kind_and_their_floor() {
        let epochs = Scaled { full: 10.0, least: 1.0 };
        assert_eq!([epochs.at(1.0), epochs.at(0.25), epochs.at(0.01)], ["10", "3", "1"]);
        assert_eq!(Scaled { full: 0.5, least: 0.1 }.at(0.5), "0.25");
    }
}
