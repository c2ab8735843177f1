//! What is measured of a cell: a value in the JSON that its command printed, its duration, or a resource of the machine.

use crate::journal::Row;
use paceline_stats::repeats::Scale;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;

/// A quantity measured of every cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// What tables call it.
    pub name: String,
    pub from: Source,
    #[serde(default)]
    pub unit: String,
    /// Factor from what is found to the unit, such as 100 for percentages.
    #[serde(default = "one")]
    pub factor: f64,
    /// Least and most that it can be, where it has such bounds; percentages need not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<[f64; 2]>,
}

fn one() -> f64 {
    1.0
}

/// Where a quantity is found.
///
/// Written as `/final/test_loss` (a path in the JSON; `*` stands for all elements of a list, which are summed),
/// `wall` (seconds from start to end of the process), or `machine:COLUMN:mean` / `machine:COLUMN:peak`.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A path in the JSON that the command printed.
    Output(Vec<String>),
    /// Seconds from start to end of the process.
    Wall,
    /// Mean of a column of the probes.
    MachineMean(String),
    /// Peak of a column of the probes.
    MachinePeak(String),
}

impl Source {
    /// Reads the written form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Source> {
        if text == "wall" {
            return Some(Source::Wall);
        }
        if let Some(path) = text.strip_prefix('/') {
            return Some(Source::Output(path.split('/').map(str::to_owned).collect()));
        }
        let (column, kind) = text.strip_prefix("machine:")?.rsplit_once(':')?;
        let known = paceline_probes::columns().any(|known| known.name == column);
        match kind {
            "mean" if known => Some(Source::MachineMean(column.to_owned())),
            "peak" if known => Some(Source::MachinePeak(column.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Output(path) => write!(f, "/{}", path.join("/")),
            Source::Wall => f.write_str("wall"),
            Source::MachineMean(column) => write!(f, "machine:{column}:mean"),
            Source::MachinePeak(column) => write!(f, "machine:{column}:peak"),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        Source::parse(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "`{text}` is not a valid source: use /path/in/the/json, wall, or machine:COLUMN:mean with a column of `paceline list`"
            ))
        })
    }
}

impl Measure {
    /// The scale on which repeats vary: bounded where it has bounds, logarithmic for amounts.
    #[must_use]
    pub fn scale(&self) -> Scale {
        match (self.between, self.unit.as_str()) {
            (Some([low, high]), _) => Scale::Bounded { low, high },
            (None, "%") => Scale::PERCENT,
            // Slopes and the like: they may be negative.
            (None, "") => Scale::Linear,
            (None, _) => Scale::Logarithmic,
        }
    }

    /// The quantity of one cell, if it is there and finite.
    #[must_use]
    pub fn of(&self, row: &Row) -> Option<f64> {
        let found = match &self.from {
            Source::Wall => Some(row.seconds),
            Source::Output(path) => find(&row.output, path),
            Source::MachineMean(column) => row.machine.get(column).map(|value| value.mean),
            Source::MachinePeak(column) => row.machine.get(column).map(|value| value.peak),
        };
        found.map(|value| value * self.factor).filter(|value| value.is_finite())
    }

    fn new(name: &str, from: &str, unit: &str, factor: f64) -> Measure {
        let from = Source::parse(from).expect("places in this file are well formed");
        Measure { name: name.to_owned(), from, unit: unit.to_owned(), factor, between: None }
    }
}

fn find(value: &Value, path: &[String]) -> Option<f64> {
    let Some((name, rest)) = path.split_first() else { return value.as_f64() };
    match value {
        Value::Array(items) if name == "*" => {
            items.iter().map(|item| find(item, rest)).sum::<Option<f64>>()
        }
        Value::Array(items) => find(items.get(name.parse::<usize>().ok()?)?, rest),
        Value::Object(fields) => find(fields.get(name)?, rest),
        _ => None,
    }
}

/// The default measures of a command without a recipe.
#[must_use]
pub fn default_measures(command: &[String]) -> Vec<Measure> {
    let wall = Measure::new("duration", "wall", "s", 1.0);
    match command.first().map(String::as_str) {
        Some("train") => vec![
            Measure::new("accuracy", "/final/test_accuracy", "%", 100.0),
            Measure::new("test loss", "/final/test_loss", "nats", 1.0),
            Measure::new("time", "/seconds", "s", 1.0),
            Measure::new("rate", "/examples_per_second", "examples/s", 1.0),
        ],
        Some("prepare") => {
            vec![wall, Measure::new("CPU idle", "machine:cpu_idle_percent:mean", "%", 1.0)]
        }
        _ => vec![wall],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_are_followed_through_objects_and_lists() {
        let output =
            json!({ "final": { "loss": 0.5 }, "workers": [{ "n": 3 }, { "n": 4 }], "none": null });
        let row = Row { output, seconds: 2.0, ..Row::default() };
        let of = |from: &str| Measure::new("m", from, "", 10.0).of(&row);
        assert_eq!(of("/final/loss"), Some(5.0));
        assert_eq!(of("/workers/*/n"), Some(70.0));
        assert_eq!(of("/workers/1/n"), Some(40.0));
        assert_eq!(of("wall"), Some(20.0));
        for missing in ["/none", "/workers/7/n", "/workers/*/m", "/final/loss/deeper"] {
            assert_eq!(of(missing), None, "{missing}");
        }
    }

    #[test]
    fn amounts_vary_by_a_percentage_and_shares_within_their_bounds() {
        let scale = |unit: &str| Measure::new("m", "wall", unit, 1.0).scale();
        for unit in ["s", "ms", "examples/s", "nats", "GB"] {
            assert_eq!(scale(unit), Scale::Logarithmic, "{unit}");
        }
        assert_eq!(scale("%"), Scale::PERCENT);
        assert_eq!(scale(""), Scale::Linear);
        let text = "name = \"R\"\nfrom = \"/r\"\nbetween = [-1, 1]";
        let bounded: Measure = toml::from_str(text).unwrap();
        assert_eq!(bounded.scale(), Scale::Bounded { low: -1.0, high: 1.0 });
    }

    #[test]
    fn columns_that_no_probe_has_are_refused() {
        assert!(Source::parse("machine:memory_used_bytes:peak").is_some());
        for wrong in ["machine:nonsense:mean", "machine:memory_used_bytes:least", "seconds"] {
            assert_eq!(Source::parse(wrong), None, "{wrong}");
        }
    }
}
