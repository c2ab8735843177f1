//! Columns of a catalogue that nothing here knows: dimensions of the search all the same.
//!
//! Disk kind, provider, region, generation: what a machine type has beside its size may decide what a job costs on it. A column of
//! numbers becomes one coordinate, a column of words one for each word, so that no order is made up.

use crate::catalogue::Machine;
use paceline_forecast::table::{TableError, TablePlace};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a machine type has in a column of the catalogue's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExtraValue {
    Number(f64),
    Word(String),
}

/// More words than this are names or remarks, not kinds.
const MOST_WORDS: usize = 8;
/// Numbers that span this factor multiply rather than add.
const WIDE: f64 = 10.0;

impl ExtraValue {
    /// What a cell holds; nothing where it is empty.
    pub(crate) fn read(
        place: &TablePlace,
        column: &str,
        text: &str,
    ) -> Result<Option<Self>, TableError> {
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(Self::Number(number))),
            Ok(_) => Err(wrong(place, column, text, "a finite number or a word")),
            Err(_) => Ok(Some(Self::Word(text.to_owned()))),
        }
    }

    /// The same in TOML.
    pub(crate) fn from_toml(
        place: &TablePlace,
        key: &str,
        value: &toml::Value,
    ) -> Result<Option<Self>, TableError> {
        match value {
            toml::Value::String(word) => Ok((!word.is_empty()).then(|| Self::Word(word.clone()))),
            toml::Value::Boolean(yes) => Ok(Some(Self::Word(yes.to_string()))),
            toml::Value::Integer(_) | toml::Value::Float(_) => {
                Self::read(place, key, &value.to_string())
            }
            _ => Err(wrong(place, key, &value.to_string(), "a number or a word")),
        }
    }
}

fn wrong(place: &TablePlace, column: &str, text: &str, expected: &'static str) -> TableError {
    let (place, column, text) = (place.clone(), column.to_owned(), text.to_owned());
    TableError::Value { place, column, text, expected }
}

/// Sees to it that a column holds numbers or words, not both.
#[derive(Debug, Default)]
pub(crate) struct ColumnKinds(HashMap<String, bool>);

impl ColumnKinds {
    pub(crate) fn check(
        &mut self,
        place: &TablePlace,
        values: &BTreeMap<String, ExtraValue>,
    ) -> Result<(), TableError> {
        for (column, value) in values {
            let (is_number, text) = match value {
                ExtraValue::Number(number) => (true, number.to_string()),
                ExtraValue::Word(word) => (false, word.clone()),
            };
            let numbers = *self.0.entry(column.clone()).or_insert(is_number);
            if numbers != is_number {
                let expected = if numbers {
                    "a number, as in the rows before it"
                } else {
                    "a word, as in the rows before it"
                };
                return Err(wrong(place, column, &text, expected));
            }
        }
        Ok(())
    }
}

/// What became of the columns that nothing here knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtraColumns {
    /// Dimensions of the search.
    pub used: Vec<String>,
    /// Left out: some machine lacks a value, or nearly every machine has a word of its own.
    pub left_out: Vec<String>,
}

/// The columns as coordinates: for each a value for every machine. A column that does not vary gives none, and is not mentioned.
pub(crate) fn coordinates(machines: &[Machine]) -> (Vec<Vec<f64>>, ExtraColumns) {
    let names: BTreeSet<&String> = machines.iter().flat_map(|found| found.extra.keys()).collect();
    let (mut columns, mut what) = (Vec::new(), ExtraColumns::default());
    for name in names {
        let values: Vec<&ExtraValue> =
            machines.iter().filter_map(|found| found.extra.get(name)).collect();
        let found = if values.len() < machines.len() { None } else { column(&values) };
        match found {
            Some(found) if found.is_empty() => {}
            Some(found) => {
                columns.extend(found);
                what.used.push(name.clone());
            }
            None => what.left_out.push(name.clone()),
        }
    }
    (columns, what)
}

/// One column as coordinates; none where it is constant, `None` where it cannot be one.
fn column(values: &[&ExtraValue]) -> Option<Vec<Vec<f64>>> {
    if values.windows(2).all(|pair| pair[0] == pair[1]) {
        return Some(Vec::new());
    }
    let numbers: Vec<f64> = values
        .iter()
        .filter_map(
            |value| if let ExtraValue::Number(number) = value { Some(*number) } else { None },
        )
        .collect();
    if numbers.len() == values.len() {
        let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let multiplies = low > 0.0 && high / low >= WIDE;
        return Some(vec![
            numbers.iter().map(|&value| if multiplies { value.ln() } else { value }).collect(),
        ]);
    }
    let mut words: Vec<&str> = values
        .iter()
        .filter_map(|value| if let ExtraValue::Word(word) = value { Some(&**word) } else { None })
        .collect();
    words.sort_unstable();
    words.dedup();
    if words.len() > MOST_WORDS {
        return None;
    }
    // Of two words one says it all.
    let told = if words.len() == 2 { &words[1..] } else { &words[..] };
    let has =
        |value: &ExtraValue, word: &str| matches!(value, ExtraValue::Word(own) if own == word);
    Some(
        told.iter()
            .map(|word| values.iter().map(|value| f64::from(has(value, word))).collect())
            .collect(),
    )
}
