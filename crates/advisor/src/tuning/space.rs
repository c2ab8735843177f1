//! What may be varied: numbers between bounds, values in an order, choices, and conditions under which a setting applies at all.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Values of one dimension at most; more are taken for a mistake.
const MOST_VALUES: usize = 10_000;
/// Numbers are proposed with so many significant digits.
const DIGITS: usize = 4;

/// A value for every dimension of a space, as a command line takes it; nothing where the dimension does not apply.
pub type Point = Vec<Option<String>>;

/// Why a search space makes no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// A dimension on the command line cannot be read.
    #[error(
        "`{text}` is not a setting to search: use NAME=A,B,C or NAME=FROM..TO, with :log behind it for a logarithmic scale"
    )]
    Syntax { text: String },
    /// The file cannot be read.
    #[error("cannot read the search space `{}`", .path.display())]
    Read {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key.
    #[error("`{}` is not a search space in TOML", .path.display())]
    Toml {
        path: PathBuf,
        /// What is wrong, with the line.
        source: toml::de::Error,
    },
    /// What a file says makes no sense.
    #[error("`{}`: {what}", .path.display())]
    InFile { path: PathBuf, what: Box<SpaceError> },
    /// A bound that is a word.
    #[error("`{name}`: `{text}` is not a number; words are `choices`")]
    Bound { name: String, text: String },
    /// Numbers and words in one order, or something that is not a number among them.
    #[error(
        "`{name}`: `{text}` is not a number as the other `values` are; write all as words if they have an order, or call them `choices`"
    )]
    Mixed { name: String, text: String },
    /// Neither bounds nor values, or several of them.
    #[error("`{name}` must have either `from` and `to`, or `values`, or `choices`")]
    Kind { name: String },
    /// Bounds in the wrong order, or not finite.
    #[error("`{name}`: {from} to {to} is not a range; the first bound must be below the second")]
    Bounds { name: String, from: f64, to: f64 },
    /// A logarithmic scale needs positive bounds.
    #[error("`{name}`: a logarithmic scale needs bounds above zero, not {from}")]
    Logarithm { name: String, from: f64 },
    /// Bounds between which there is nothing to choose.
    #[error(
        "`{name}`: there is not one whole number from {from} to {to}; leave out `whole`, or widen the bounds"
    )]
    NoWhole { name: String, from: f64, to: f64 },
    /// A key that belongs to bounds, beside values.
    #[error("`{name}`: `scale` and `whole` belong to `from` and `to`")]
    Misplaced { name: String },
    /// A list that leaves nothing to choose.
    #[error("`{name}` needs at least two values, and at most {MOST_VALUES}; it has {count}")]
    Count { name: String, count: usize },
    /// The same value twice.
    #[error("`{name}`: the value `{value}` is there twice")]
    Repeated { name: String, value: String },
    /// The same dimension twice.
    #[error("`{name}` is in the search space twice")]
    Twice { name: String },
    /// A condition on a dimension that is not there.
    #[error("`{name}` applies when `{on}` has some value, and `{on}` is not in the search space")]
    ConditionName { name: String, on: String },
    /// A condition on a value that the other dimension does not have.
    #[error("`{name}` applies when `{on}` is `{value}`, which is not among its values")]
    ConditionValue { name: String, on: String, value: String },
    /// A condition on a dimension that has one itself, or is a range.
    #[error(
        "`{name}`: a condition must name a list of values that always applies, and `{on}` is not one"
    )]
    ConditionKind { name: String, on: String },
    /// A condition that no value meets.
    #[error("`{name}` applies when `{on}` is one of no values: it would never apply")]
    ConditionEmpty { name: String, on: String },
    /// Nothing to vary.
    #[error("the search space is empty")]
    Empty,
}

/// What one dimension can be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Values {
    /// Any number between two bounds.
    Range { from: f64, to: f64, logarithmic: bool, whole: bool },
    /// Values whose order means something: neighbours behave alike.
    Ordered(Vec<String>),
    /// Values without an order.
    Choices(Vec<String>),
}

/// When a dimension applies: the other one has one of these values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    pub on: String,
    pub is: Vec<String>,
}

/// Something that may be varied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dimension {
    pub name: String,
    pub values: Values,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
}

/// Everything that may be varied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchSpace(Vec<Dimension>);

/// A value in a file: numbers are written as they are.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Whole(i64),
    Number(f64),
    Flag(bool),
    Text(String),
}

impl Scalar {
    /// A number that is written as one.
    fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            Self::Flag(_) | Self::Text(_) => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// One value, or several of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(Scalar),
    More(Vec<Scalar>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenScale {
    Linear,
    Log,
}

/// A dimension as a file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    from: Option<Scalar>,
    to: Option<Scalar>,
    scale: Option<WrittenScale>,
    whole: Option<bool>,
    values: Option<Vec<Scalar>>,
    choices: Option<Vec<Scalar>>,
    when: Option<BTreeMap<String, OneOrMore>>,
}

impl Written {
    fn dimension(self, name: String) -> Result<Dimension, SpaceError> {
        let plain = self.scale.is_none() && self.whole.is_none();
        let texts = |list: Vec<Scalar>| list.into_iter().map(Scalar::text).collect();
        let values = match (self.from, self.to, self.values, self.choices) {
            (Some(from), Some(to), None, None) => {
                let whole = [&from, &to].iter().all(|bound| matches!(bound, Scalar::Whole(_)));
                let logarithmic = self.scale == Some(WrittenScale::Log);
                let number = |bound: Scalar| match bound.number() {
                    Some(number) => Ok(number),
                    None => Err(SpaceError::Bound { name: name.clone(), text: bound.text() }),
                };
                let (from, to) = (number(from)?, number(to)?);
                Values::Range { from, to, logarithmic, whole: self.whole.unwrap_or(whole) }
            }
            (None, None, Some(_), None) | (None, None, None, Some(_)) if !plain => {
                return Err(SpaceError::Misplaced { name });
            }
            (None, None, Some(values), None) => {
                let some_number = values.iter().any(|value| value.number().is_some());
                let is_other =
                    |value: &&Scalar| !value.number().is_some_and(f64::is_finite) && some_number;
                if let Some(other) = values.iter().find(is_other) {
                    return Err(SpaceError::Mixed { name, text: other.clone().text() });
                }
                Values::Ordered(texts(values))
            }
            (None, None, None, Some(choices)) => Values::Choices(texts(choices)),
            _ => return Err(SpaceError::Kind { name }),
        };
        let mut when = None;
        for (on, is) in self.when.into_iter().flatten() {
            if when.is_some() {
                return Err(SpaceError::ConditionKind { name, on });
            }
            let is = match is {
                OneOrMore::One(value) => vec![value.text()],
                OneOrMore::More(list) => texts(list),
            };
            when = Some(Condition { on, is });
        }
        Ok(Dimension { name, values, when })
    }
}

/// `lr=0.001..1:log`, `workers=1..8`, `batch-size=16,32,64` or `strategy=mirrored,ps-async`.
fn parse_dimension(text: &str) -> Result<Dimension, SpaceError> {
    let wrong = || SpaceError::Syntax { text: text.to_owned() };
    let (name, values) = text.split_once('=').ok_or_else(wrong)?;
    let name = name.trim().trim_start_matches("--").to_owned();
    let values = values.trim();
    if name.is_empty() || values.is_empty() {
        return Err(wrong());
    }
    let (range, scale) = match values.rsplit_once(':') {
        Some((range, scale)) if range.contains("..") => (range, Some(scale)),
        _ => (values, None),
    };
    if let Some((from, to)) = range.split_once("..") {
        let logarithmic = match scale {
            None | Some("linear") => false,
            Some("log") => true,
            Some(_) => return Err(wrong()),
        };
        let whole = [from, to].iter().all(|bound| bound.trim().parse::<i64>().is_ok());
        let number = |bound: &str| bound.trim().parse::<f64>().map_err(|_| wrong());
        let (from, to) = (number(from)?, number(to)?);
        let values = Values::Range { from, to, logarithmic, whole };
        return Ok(Dimension { name, values, when: None });
    }
    let list: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
    if list.iter().any(String::is_empty) {
        return Err(wrong());
    }
    let numbers = list.iter().all(|value| value.parse::<f64>().is_ok());
    let values = if numbers { Values::Ordered(list) } else { Values::Choices(list) };
    Ok(Dimension { name, values, when: None })
}

impl Dimension {
    fn check(&self) -> Result<(), SpaceError> {
        let name = || self.name.clone();
        match &self.values {
            &Values::Range { from, to, logarithmic, whole } => {
                let span = if logarithmic && from > 0.0 { to / from } else { to - from };
                if !(from.is_finite() && to.is_finite() && from < to && span.is_finite()) {
                    return Err(SpaceError::Bounds { name: name(), from, to });
                }
                if logarithmic && from <= 0.0 {
                    return Err(SpaceError::Logarithm { name: name(), from });
                }
                if whole && from.ceil() > to.floor() {
                    return Err(SpaceError::NoWhole { name: name(), from, to });
                }
                if whole && from.ceil() == to.floor() {
                    return Err(SpaceError::Count { name: name(), count: 1 });
                }
            }
            Values::Ordered(list) | Values::Choices(list) => {
                if !(2..=MOST_VALUES).contains(&list.len()) {
                    return Err(SpaceError::Count { name: name(), count: list.len() });
                }
                let again = |at: &usize| list[..*at].contains(&list[*at]);
                if let Some(at) = (1..list.len()).find(again) {
                    let value = list[at].clone();
                    return Err(SpaceError::Repeated { name: name(), value });
                }
            }
        }
        Ok(())
    }

    /// Its different values, where they can be counted.
    fn count(&self) -> Option<usize> {
        match &self.values {
            Values::Range { whole: false, .. } => None,
            Values::Range { from, to, .. } => {
                Some(((to.floor() - from.ceil()) as usize).saturating_add(1))
            }
            Values::Ordered(list) | Values::Choices(list) => Some(list.len()),
        }
    }

    /// The value at a place from 0 to 1.
    fn at(&self, share: f64) -> String {
        match &self.values {
            &Values::Range { from, to, logarithmic, whole } => {
                let value = if logarithmic {
                    from * (to / from).powf(share)
                } else {
                    from + (to - from) * share
                };
                if whole {
                    return (value.round().clamp(from.ceil(), to.floor()) as i64).to_string();
                }
                let mut text = String::new();
                // A number that was written with some digits reads back.
                let _ = write!(text, "{value:.*e}", DIGITS - 1);
                text.parse::<f64>().unwrap_or(value).clamp(from, to).to_string()
            }
            Values::Ordered(list) | Values::Choices(list) => {
                let place = (share * list.len() as f64) as usize;
                list[place.min(list.len() - 1)].clone()
            }
        }
    }

    /// Features of a value: between 0 and 1, and so that two different choices are as far apart as the ends of a range.
    fn features(&self, value: Option<&str>, out: &mut Vec<f64>) {
        match &self.values {
            &Values::Range { from, to, logarithmic, .. } => {
                let share = |value: f64| {
                    if logarithmic {
                        (value / from).ln() / (to / from).ln()
                    } else {
                        (value - from) / (to - from)
                    }
                };
                out.push(value.and_then(|text| text.parse().ok()).map_or(0.5, share));
            }
            Values::Ordered(list) => {
                let place = value.and_then(|value| list.iter().position(|known| known == value));
                out.push(place.map_or(0.5, |place| place as f64 / (list.len() - 1) as f64));
            }
            Values::Choices(list) => {
                let is = |known: &String| if value == Some(known) { 0.5f64.sqrt() } else { 0.0 };
                out.extend(list.iter().map(is));
            }
        }
    }

    fn holds(&self, value: &str) -> bool {
        match &self.values {
            Values::Range { from, to, whole, .. } => value.parse::<f64>().is_ok_and(|value| {
                (*from..=*to).contains(&value) && (!whole || value.fract() == 0.0)
            }),
            Values::Ordered(list) | Values::Choices(list) => {
                list.iter().any(|known| known == value)
            }
        }
    }
}

impl SearchSpace {
    /// Reads settings as a command line has them, such as `lr=0.001..1:log` and `batch-size=16,32,64`.
    ///
    /// # Errors
    /// What is wrong with which of them.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, SpaceError> {
        Self::new(texts.into_iter().map(parse_dimension).collect::<Result<_, _>>()?)
    }

    /// Reads a TOML file: a table for each dimension.
    ///
    /// # Errors
    /// The file cannot be read, or what is wrong with which dimension.
    pub fn read(path: &Path) -> Result<Self, SpaceError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SpaceError::Read { path: path.to_owned(), source })?;
        let written: BTreeMap<String, Written> = toml::from_str(&text)
            .map_err(|source| SpaceError::Toml { path: path.to_owned(), source })?;
        let dimensions = written.into_iter().map(|(name, written)| written.dimension(name));
        let found = dimensions.collect::<Result<_, _>>().and_then(Self::new);
        found.map_err(|what| SpaceError::InFile { path: path.to_owned(), what: Box::new(what) })
    }

    /// A space of these dimensions.
    ///
    /// # Errors
    /// What is wrong with which of them.
    pub fn new(dimensions: Vec<Dimension>) -> Result<Self, SpaceError> {
        if dimensions.is_empty() {
            return Err(SpaceError::Empty);
        }
        for (at, dimension) in dimensions.iter().enumerate() {
            dimension.check()?;
            if dimensions[..at].iter().any(|known| known.name == dimension.name) {
                return Err(SpaceError::Twice { name: dimension.name.clone() });
            }
            let Some(Condition { on, is }) = &dimension.when else { continue };
            let (name, on) = (dimension.name.clone(), on.clone());
            let Some(other) = dimensions.iter().find(|known| known.name == on) else {
                return Err(SpaceError::ConditionName { name, on });
            };
            if other.when.is_some()
                || other.name == name
                || matches!(other.values, Values::Range { .. })
            {
                return Err(SpaceError::ConditionKind { name, on });
            }
            if is.is_empty() {
                return Err(SpaceError::ConditionEmpty { name, on });
            }
            if let Some(value) = is.iter().find(|value| !other.holds(value)) {
                return Err(SpaceError::ConditionValue { name, on, value: value.clone() });
            }
        }
        Ok(Self(dimensions))
    }

    /// In their order, which is that of every [`Point`].
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.0
    }

    /// The point at a place in the unit cube.
    pub(super) fn at(&self, shares: &[f64]) -> Point {
        let all: Vec<String> =
            self.0.iter().zip(shares).map(|(dimension, share)| dimension.at(*share)).collect();
        let applies = |dimension: &Dimension| {
            dimension.when.as_ref().is_none_or(|Condition { on, is }| {
                let other = self.0.iter().position(|known| known.name == *on);
                other.is_some_and(|other| is.contains(&all[other]))
            })
        };
        self.0.iter().zip(&all).map(|(own, value)| applies(own).then(|| value.clone())).collect()
    }

    /// A point of the space from settings by name; nothing where one of them is not of this space.
    #[must_use]
    pub fn point<'a>(
        &self,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Option<Point> {
        let settings: BTreeMap<&str, &str> = settings.into_iter().collect();
        let known = |name: &&str| self.0.iter().any(|dimension| dimension.name == **name);
        if !settings.keys().all(known) {
            return None;
        }
        let value = |dimension: &Dimension| match settings.get(dimension.name.as_str()) {
            Some(value) if dimension.holds(value) => Some(Some((*value).to_owned())),
            Some(_) => None,
            None => dimension.when.is_some().then_some(None),
        };
        self.0.iter().map(value).collect()
    }

    /// Features of a point for a model.
    pub(super) fn features(&self, point: &Point) -> Vec<f64> {
        let mut out = Vec::new();
        for (dimension, value) in self.0.iter().zip(point) {
            dimension.features(value.as_deref(), &mut out);
        }
        out
    }

    /// All points, if there are at most so many.
    pub(super) fn all(&self, most: usize) -> Option<Vec<Point>> {
        let counts: Vec<usize> = self.0.iter().map(Dimension::count).collect::<Option<_>>()?;
        let product = counts.iter().try_fold(1usize, |all, count| all.checked_mul(*count))?;
        if product > most {
            return None;
        }
        let mut points: Vec<Point> = Vec::with_capacity(product);
        for mut place in 0..product {
            let shares: Vec<f64> = self
                .0
                .iter()
                .zip(&counts)
                .map(|(dimension, count)| {
                    let own = place % count;
                    place /= count;
                    dimension.share(own, *count)
                })
                .collect();
            let point = self.at(&shares);
            if !points.contains(&point) {
                points.push(point);
            }
        }
        Some(points)
    }

    /// Points that differ from one in the value of one list: of each list the first `most` values.
    pub(super) fn siblings(&self, centre: &[f64], most: usize) -> Vec<Point> {
        let mut points = Vec::new();
        for (at, dimension) in self.0.iter().enumerate() {
            let (Values::Ordered(list) | Values::Choices(list)) = &dimension.values else {
                continue;
            };
            for place in 0..list.len().min(most) {
                let mut shares = centre.to_vec();
                shares[at] = dimension.share(place, list.len());
                points.push(self.at(&shares));
            }
        }
        points
    }

    /// Where a point lies in the unit cube; the middle where a dimension does not apply.
    pub(super) fn shares(&self, point: &Point) -> Vec<f64> {
        let share = |(dimension, value): (&Dimension, &Option<String>)| match &dimension.values {
            Values::Choices(list) | Values::Ordered(list) => {
                let place =
                    value.as_ref().and_then(|value| list.iter().position(|known| known == value));
                place.map_or(0.5, |place| (place as f64 + 0.5) / list.len() as f64)
            }
            Values::Range { .. } => {
                let mut out = Vec::new();
                dimension.features(value.as_deref(), &mut out);
                out[0]
            }
        };
        self.0.iter().zip(point).map(share).collect()
    }
}

impl Dimension {
    /// The place from 0 to 1 of the value of this number.
    fn share(&self, number: usize, count: usize) -> f64 {
        match &self.values {
            &Values::Range { from, to, logarithmic, .. } => {
                let value = from.ceil() + number as f64;
                if logarithmic {
                    (value / from).ln() / (to / from).ln()
                } else {
                    (value - from) / (to - from)
                }
            }
            _ => (number as f64 + 0.5) / count as f64,
        }
    }
}

#[cfg(test)]
mod tests;
