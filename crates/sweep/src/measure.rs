//! What is measured of a cell: a value in the JSON that its command printed, its duration, a resource of the machine or of one of
//! the job's own tasks, the shape of its learning curve.

use crate::journal::{MeanPeak, Row};
use crate::recording::roughness;
use paceline_stats::repeats::Scale;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeSet;
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
    /// Whether charts show it on a logarithmic axis.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub logarithmic: bool,
}

fn one() -> f64 {
    1.0
}

/// Where a quantity is found.
///
/// Written as `/final/test_loss` (a path in the JSON; of a list, `*` sums all elements, `max` and `mean` take their largest and
/// their mean), `wall` (seconds from start to end of the process), `machine:COLUMN:mean` or `:peak` (the whole machine),
/// `task:worker/0:COLUMN:mean` or `:peak` (as that task of a training job recorded it), `curve:loss:roughness` or
/// `curve:accuracy:roughness` (ups and downs of the test scores over their range: 1 where the curve never turns), `figure:NAME`
/// (found in what a program printed), or as two of these with ` per ` between them.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A path in the JSON that the command printed.
    Output(Vec<String>),
    /// Seconds from start to end of the process.
    Wall,
    /// A column of the probes.
    Machine(String, Statistic),
    /// A column of the probes, as a task recorded it.
    Task(String, String, Statistic),
    /// A figure that a program printed or recorded, by its name.
    Figure(String),
    /// How far a curve of test scores goes up and down.
    Roughness(Curve),
    /// One over the other.
    Per(Box<Source>, Box<Source>),
}

/// What is taken of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    Mean,
    Peak,
}

impl Statistic {
    fn parse(text: &str) -> Option<Statistic> {
        match text {
            "mean" => Some(Statistic::Mean),
            "peak" => Some(Statistic::Peak),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::Peak => "peak",
        }
    }

    fn of(self, recorded: &MeanPeak) -> f64 {
        match self {
            Statistic::Mean => recorded.mean,
            Statistic::Peak => recorded.peak,
        }
    }
}

/// A curve of scores on the test examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    Loss,
    Accuracy,
}

impl Source {
    /// Reads the written form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Source> {
        if let Some((first, second)) = text.split_once(" per ") {
            let (first, second) = (Source::parse(first.trim())?, Source::parse(second.trim())?);
            return Some(Source::Per(Box::new(first), Box::new(second)));
        }
        match text {
            "wall" => return Some(Source::Wall),
            "curve:loss:roughness" => return Some(Source::Roughness(Curve::Loss)),
            "curve:accuracy:roughness" => return Some(Source::Roughness(Curve::Accuracy)),
            _ => {}
        }
        if let Some(name) = text.strip_prefix("figure:").filter(|name| !name.is_empty()) {
            return Some(Source::Figure(name.to_owned()));
        }
        if let Some(path) = text.strip_prefix('/') {
            return Some(Source::Output(path.split('/').map(str::to_owned).collect()));
        }
        let (whose, rest) = text.split_once(':')?;
        let (rest, statistic) = rest.rsplit_once(':')?;
        let statistic = Statistic::parse(statistic)?;
        let (task, column) = match (whose, rest.rsplit_once(':')) {
            ("machine", None) => (None, rest),
            ("task", Some((task, column))) if !task.is_empty() => (Some(task), column),
            _ => return None,
        };
        let known = paceline_probes::columns().any(|known| known.name == column);
        let column = column.to_owned();
        known.then(|| match task {
            Some(task) => Source::Task(task.to_owned(), column, statistic),
            None => Source::Machine(column, statistic),
        })
    }

    /// The quantity of one cell, if it is there.
    fn of(&self, row: &Row) -> Option<f64> {
        match self {
            Source::Wall => Some(row.seconds),
            Source::Output(path) => find(&row.output, path),
            Source::Figure(name) => row.figures.get(name).copied(),
            Source::Machine(column, statistic) => {
                row.machine.get(column).map(|recorded| statistic.of(recorded))
            }
            Source::Task(task, column, statistic) => {
                row.tasks.get(task)?.get(column).map(|recorded| statistic.of(recorded))
            }
            Source::Roughness(curve) => {
                let scores = row.curve.iter().map(|score| match curve {
                    Curve::Loss => score.loss,
                    Curve::Accuracy => score.accuracy,
                });
                roughness(&scores.collect::<Vec<_>>())
            }
            Source::Per(first, second) => second
                .of(row)
                .filter(|below| *below != 0.0)
                .and_then(|below| Some(first.of(row)? / below)),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Output(path) => write!(f, "/{}", path.join("/")),
            Source::Wall => f.write_str("wall"),
            Source::Figure(name) => write!(f, "figure:{name}"),
            Source::Machine(column, statistic) => {
                write!(f, "machine:{column}:{}", statistic.name())
            }
            Source::Task(task, column, statistic) => {
                write!(f, "task:{task}:{column}:{}", statistic.name())
            }
            Source::Roughness(Curve::Loss) => f.write_str("curve:loss:roughness"),
            Source::Roughness(Curve::Accuracy) => f.write_str("curve:accuracy:roughness"),
            Source::Per(first, second) => write!(f, "{first} per {second}"),
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
                "`{text}` is not a valid source: use /path/in/the/json, wall, machine:COLUMN:mean or task:worker/0:COLUMN:peak with a column of `paceline list probes`, or A per B"
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
        self.from.of(row).map(|value| value * self.factor).filter(|value| value.is_finite())
    }

    /// Seconds from start to end of the process.
    #[must_use]
    pub fn wall() -> Measure {
        Measure::new("duration", "wall", "s", 1.0)
    }

    /// A figure that a program printed or recorded.
    #[must_use]
    pub fn figure(name: &str) -> Measure {
        let unit = if name == "rate" { "examples/s" } else { "" };
        let from = Source::Figure(name.to_owned());
        Measure { from, ..Measure::new(name, "wall", unit, 1.0) }
    }

    /// A value in the JSON that a program printed.
    #[must_use]
    pub fn output(name: &str, path: &str) -> Option<Measure> {
        let from = Source::parse(path).filter(|from| matches!(from, Source::Output(_)))?;
        Some(Measure { from, ..Measure::new(name, "wall", "", 1.0) })
    }

    fn new(name: &str, from: &str, unit: &str, factor: f64) -> Measure {
        let from = Source::parse(from).expect("places in this file are well formed");
        Measure {
            name: name.to_owned(),
            from,
            unit: unit.to_owned(),
            factor,
            between: None,
            logarithmic: false,
        }
    }
}

fn find(value: &Value, path: &[String]) -> Option<f64> {
    let Some((name, rest)) = path.split_first() else { return value.as_f64() };
    match value {
        Value::Array(items) if matches!(name.as_str(), "*" | "max" | "mean") => {
            let found: Vec<f64> =
                items.iter().map(|item| find(item, rest)).collect::<Option<_>>()?;
            let sum = || found.iter().sum::<f64>();
            match name.as_str() {
                "*" => Some(sum()),
                "max" => found.iter().copied().reduce(f64::max),
                _ => (!found.is_empty()).then(|| sum() / found.len() as f64),
            }
        }
        Value::Array(items) => find(items.get(name.parse::<usize>().ok()?)?, rest),
        Value::Object(fields) => find(fields.get(name)?, rest),
        _ => None,
    }
}

/// The default measures of a command without a recipe.
#[must_use]
pub fn default_measures(command: &[String]) -> Vec<Measure> {
    let wall = Measure::wall();
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

/// The measures of a program that is not ours: how long it took, and every figure that some cell has.
pub(crate) fn figure_measures(rows: &[Row]) -> Vec<Measure> {
    let names: BTreeSet<&String> = rows.iter().flat_map(|row| row.figures.keys()).collect();
    std::iter::once(Measure::wall())
        .chain(names.into_iter().map(|name| Measure::figure(name)))
        .collect()
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
        assert_eq!((of("/workers/max/n"), of("/workers/mean/n")), (Some(40.0), Some(35.0)));
        assert_eq!(of("/workers/*/n per wall"), Some(35.0));
        assert_eq!(of("wall per /none"), None);
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
        for wrong in [
            "machine:nonsense:mean",
            "machine:memory_used_bytes:least",
            "seconds",
            "task:process_rss_bytes:peak",
            "task::process_rss_bytes:peak",
            "wall per seconds",
        ] {
            assert_eq!(Source::parse(wrong), None, "{wrong}");
        }
        for good in [
            "wall",
            "/a/*/b per /c",
            "task:ps/0:process_rss_bytes:peak",
            "machine:cpu_idle_percent:mean",
            "curve:loss:roughness",
        ] {
            assert_eq!(Source::parse(good).unwrap().to_string(), good);
        }
    }

    #[test]
    fn resources_of_a_task_are_its_own() {
        let recorded = |peak| [("process_rss_bytes".to_owned(), MeanPeak { mean: 1.0, peak })];
        let tasks = [
            ("worker/0".to_owned(), recorded(5.0).into()),
            ("ps/0".to_owned(), recorded(7.0).into()),
        ];
        let row = Row { tasks: tasks.into(), ..Row::default() };
        let of = |from: &str| Measure::new("m", from, "B", 1.0).of(&row);
        assert_eq!(of("task:ps/0:process_rss_bytes:peak"), Some(7.0));
        assert_eq!(of("task:worker/0:process_rss_bytes:mean"), Some(1.0));
        assert_eq!(of("task:worker/1:process_rss_bytes:mean"), None);
    }
}
