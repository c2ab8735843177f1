//! Does a measured series have the shape of a published one?
//!
//! Figures taken on other machines cannot be compared as numbers; their order and direction can. A series is compared step by
//! step: does the quantity rise, fall or stay where the published one did? A step counts only where the repeats resolve it
//! (the 95 % interval of the difference leaves out zero), so one measurement per setting never "agrees" with anything.
//!
//! Where the published figures stay the same, staying the same is the finding, and "no difference was seen" does not show it: two
//! noisy means are never seen to differ. Such a step is confirmed by an equivalence test (two one-sided tests at 5 %: the 90 %
//! interval of the difference lies within a margin, which the words state), and contradicted where the difference is beyond it.

use serde::{Deserialize, Serialize};

use crate::compare::{Ratio, ratio};
use crate::describe::{Summary, summary};
use crate::distribution::t_critical;
use crate::estimate::{Estimate, Interval, LEVEL, NotEstimable};
use crate::repeats::{Repeats, Scale, repeats};
use crate::words::number;

/// Published values closer than this share of the larger one are read as equal: tables are rounded.
const FLAT: f64 = 0.02;

/// Measured means are equal within this many times the share that reads as equal in a published table, unless a margin is given.
const MARGIN_OF_FLAT: f64 = 5.0;

/// Level of the interval that lies within the margin if two one-sided tests at 5 % both say so.
const EQUIVALENCE_LEVEL: f64 = 0.9;

/// A ratio whose interval spans more than this factor is not known.
const OPEN: f64 = 30.0;

/// One setting: the published figure and what was measured there.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The setting, as a table shows it.
    pub label: String,
    pub published: f64,
    pub measured: Vec<f64>,
    /// On which scale they vary.
    pub scale: Scale,
}

/// Which differences are none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Published values closer than this share of the larger one are read as equal.
    pub flat: f64,
    /// Measured means are equal if their difference is known to be below this share of the larger one.
    pub margin: f64,
}

impl Tolerance {
    /// With the margin that goes with rounding to `flat`.
    #[must_use]
    pub fn of_rounding(flat: f64) -> Self {
        Self { flat, margin: MARGIN_OF_FLAT * flat }
    }
}

impl Default for Tolerance {
    fn default() -> Self {
        Self::of_rounding(FLAT)
    }
}

/// Which way a quantity goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Upwards.
    Rises,
    /// Downwards.
    Falls,
    /// Published: within rounding. Measured: known to be within the margin, where that was published.
    Flat,
    /// The repeats cannot tell.
    Unresolved,
}

/// From one setting to the next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The setting it starts from.
    pub from: String,
    /// The setting it leads to.
    pub to: String,
    pub published: Direction,
    pub measured: Direction,
    /// Measured difference of the means with its 95 % interval, where there are repeats.
    pub difference: Estimate<Interval>,
}

/// Order of all settings: Kendall's rank correlation of the published figures with the measured means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// Tau-b: 1 same order, -1 reversed.
    pub tau: f64,
    /// Settings it rests on.
    pub n: usize,
    /// Chance of so good an order if there were no relation; only without ties.
    pub p: Option<f64>,
}

/// How well the shapes go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Every published step is measured to go the same way.
    Agrees,
    /// No step contradicts, some are not resolved.
    Consistent,
    /// Some steps go the other way.
    Differs,
    /// Nothing can be said: no repeats, no steps, or none resolved.
    Unresolved,
}

/// The comparison of one series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The settings' labels, published figures and measurements in a few numbers, in the published order.
    pub points: Vec<(String, f64, Estimate<Repeats>)>,
    pub steps: Vec<Step>,
    /// Order of all settings.
    pub rank: Estimate<Rank>,
    /// The last setting over the first: the published ratio, and the measured one with its interval.
    pub ends: Option<(f64, Estimate<Ratio>)>,
    pub agreement: Agreement,
    /// The verdict in a sentence.
    pub words: String,
}

/// Compares a series with its published figures, in the order given.
#[must_use]
pub fn compare_shape(points: &[Point], tolerance: Tolerance) -> Shape {
    let steps: Vec<Step> =
        points.windows(2).map(|pair| step(&pair[0], &pair[1], tolerance)).collect();
    let rank = rank(points);
    let ends = match points {
        [first, .., last] if first.published > 0.0 && last.published > 0.0 => {
            let measured = ratio(&last.measured, &first.measured);
            Some((last.published / first.published, measured.into()))
        }
        _ => None,
    };
    let agreement = agreement(points, &steps, tolerance);
    let words = words(points, &steps, &rank, ends.as_ref(), agreement, tolerance);
    let points = points
        .iter()
        .map(|point| {
            let set = repeats(&point.measured, point.scale);
            (point.label.clone(), point.published, set.into())
        })
        .collect();
    Shape { points, steps, rank: rank.into(), ends, agreement, words }
}

fn step(from: &Point, to: &Point, tolerance: Tolerance) -> Step {
    let (before, after) = (from.published, to.published);
    let published = if (after - before).abs() <= tolerance.flat * before.abs().max(after.abs()) {
        Direction::Flat
    } else {
        direction(after - before)
    };
    let difference = difference(&to.measured, &from.measured, LEVEL);
    // A step that was published to be none has to go beyond the margin to contradict it.
    let least = match published {
        Direction::Flat => margin(from, to, tolerance),
        _ => 0.0,
    };
    let measured = match &difference {
        _ if published == Direction::Flat && are_equal(from, to, tolerance) => Direction::Flat,
        Ok(interval) if interval.low > least => Direction::Rises,
        Ok(interval) if interval.high < -least => Direction::Falls,
        _ => Direction::Unresolved,
    };
    Step {
        from: from.label.clone(),
        to: to.label.clone(),
        published,
        measured,
        difference: difference.into(),
    }
}

/// The margin between two settings, in their unit.
fn margin(one: &Point, other: &Point, tolerance: Tolerance) -> f64 {
    let mean = |point: &Point| summary(&point.measured).map_or(0.0, |set| set.mean.abs());
    tolerance.margin * mean(one).max(mean(other))
}

/// Whether two settings are known to differ by less than the margin.
fn are_equal(one: &Point, other: &Point, tolerance: Tolerance) -> bool {
    let within = margin(one, other, tolerance);
    difference(&one.measured, &other.measured, EQUIVALENCE_LEVEL)
        .is_ok_and(|interval| -within < interval.low && interval.high < within)
}

fn direction(difference: f64) -> Direction {
    if difference > 0.0 { Direction::Rises } else { Direction::Falls }
}

/// Welch's interval of the difference of two means, first minus second.
fn difference(first: &[f64], second: &[f64], level: f64) -> Result<Interval, NotEstimable> {
    let fewest = first.len().min(second.len());
    if fewest < 2 {
        return Err(NotEstimable::TooFewPoints { found: fewest, needed: 2 });
    }
    let (a, b) = (summary(first)?, summary(second)?);
    let part = |set: &Summary| set.standard_deviation.powi(2) / set.n as f64;
    let (va, vb) = (part(&a), part(&b));
    let centre = a.mean - b.mean;
    if va + vb == 0.0 {
        return Ok(Interval::around(centre, 0.0));
    }
    let freedom = (va + vb).powi(2) / (va * va / (a.n - 1) as f64 + vb * vb / (b.n - 1) as f64);
    Ok(Interval::around(centre, t_critical(1.0 - level, freedom) * (va + vb).sqrt()))
}

/// Kendall's tau-b of published figures and measured means.
fn rank(points: &[Point]) -> Result<Rank, NotEstimable> {
    let pairs: Vec<(f64, f64)> = points
        .iter()
        .filter(|point| !point.measured.is_empty())
        .map(|point| Ok((point.published, summary(&point.measured)?.mean)))
        .collect::<Result<_, NotEstimable>>()?;
    let n = pairs.len();
    if n < 3 {
        return Err(NotEstimable::TooFewPoints { found: n, needed: 3 });
    }
    let (mut same, mut reversed, mut tied_published, mut tied_measured) = (0u64, 0u64, 0u64, 0u64);
    for (at, a) in pairs.iter().enumerate() {
        for b in &pairs[at + 1..] {
            let (published, measured) = ((a.0 - b.0), (a.1 - b.1));
            tied_published += u64::from(published == 0.0);
            tied_measured += u64::from(measured == 0.0);
            same += u64::from(published * measured > 0.0);
            reversed += u64::from(published * measured < 0.0);
        }
    }
    let all = (n * (n - 1) / 2) as f64;
    let spread = ((all - tied_published as f64) * (all - tied_measured as f64)).sqrt();
    if spread == 0.0 {
        return Err(NotEstimable::ConstantResponse { value: pairs[0].0 });
    }
    let p = (tied_published + tied_measured == 0).then(|| kendall_p(n, reversed));
    Ok(Rank { tau: (same as f64 - reversed as f64) / spread, n, p })
}

/// Share of all orders of `n` things with at most `reversed` reversed pairs.
fn kendall_p(n: usize, reversed: u64) -> f64 {
    // Orders of k things by their reversed pairs: the k-th thing adds 0 to k-1.
    let mut counts = vec![1.0_f64];
    for k in 2..=n {
        let mut next = vec![0.0; counts.len() + k - 1];
        for (pairs, count) in counts.iter().enumerate() {
            next[pairs..pairs + k].iter_mut().for_each(|slot| *slot += count);
        }
        counts = next;
    }
    let total: f64 = counts.iter().sum();
    counts
        .iter()
        .take(usize::try_from(reversed).unwrap_or(usize::MAX).saturating_add(1))
        .sum::<f64>()
        / total
}

/// All steps, those measured to go the published way, and those measured to go another.
fn tally(steps: &[Step]) -> (usize, usize, usize) {
    steps.iter().fold((0, 0, 0), |(all, same, other), step| match step.measured {
        Direction::Unresolved => (all + 1, same, other),
        measured if measured == step.published => (all + 1, same + 1, other),
        _ => (all + 1, same, other + 1),
    })
}

fn is_flat(steps: &[Step]) -> bool {
    !steps.is_empty() && steps.iter().all(|step| step.published == Direction::Flat)
}

fn agreement(points: &[Point], steps: &[Step], tolerance: Tolerance) -> Agreement {
    match tally(steps) {
        (_, _, other) if other > 0 => Agreement::Differs,
        (_, 0, _) => Agreement::Unresolved,
        // Small steps in one direction add up: every setting must equal every other.
        (all, same, _) if same == all && is_flat(steps) => {
            let pairs = points.iter().enumerate();
            let mut pairs =
                pairs.flat_map(|(at, one)| points[at + 1..].iter().map(move |o| (one, o)));
            if pairs.all(|(one, other)| are_equal(one, other, tolerance)) {
                Agreement::Agrees
            } else {
                Agreement::Consistent
            }
        }
        (all, same, _) if same == all => Agreement::Agrees,
        _ => Agreement::Consistent,
    }
}

fn words(
    points: &[Point],
    steps: &[Step],
    rank: &Result<Rank, NotEstimable>,
    ends: Option<&(f64, Estimate<Ratio>)>,
    agreement: Agreement,
    tolerance: Tolerance,
) -> String {
    let margin = format!("{} %", number(100.0 * tolerance.margin));
    let mut text = agreement_words(points, steps, agreement, &margin);
    if !is_flat(steps) && steps.iter().any(|step| step.published == Direction::Flat) {
        text.push_str(&format!(" (equal means within {margin})"));
    }
    if let (Ok(rank), false) = (rank, is_flat(steps)) {
        text.push_str(&format!("; rank correlation {:.2} over {} settings", rank.tau, rank.n));
    }
    if let (Some((published, measured)), [first, .., last]) = (ends, points) {
        text.push_str(&ends_words(first, last, *published, measured));
    }
    text
}

/// What was found, in a clause.
fn agreement_words(points: &[Point], steps: &[Step], agreement: Agreement, margin: &str) -> String {
    let (all, same, other) = tally(steps);
    let fewest = points.iter().map(|point| point.measured.len()).min().unwrap_or(0);
    match agreement {
        Agreement::Agrees if is_flat(steps) => {
            format!("agrees: equal within {margin} in all {} settings, as published", points.len())
        }
        Agreement::Agrees if all == 1 => "agrees: the one step goes the published way".to_owned(),
        Agreement::Agrees => format!("agrees: all {all} steps go the published way"),
        Agreement::Consistent if is_flat(steps) => {
            format!(
                "no contradiction: {same} of {all} neighbours are equal within {margin}, as published; not all settings are shown to be"
            )
        }
        Agreement::Consistent => {
            format!(
                "no contradiction: {same} of {all} steps go the published way, the repeats do not resolve the rest"
            )
        }
        Agreement::Differs if is_flat(steps) => {
            format!(
                "differs: published as equal, but {other} of {all} steps are larger than {margin}"
            )
        }
        Agreement::Differs => {
            format!("differs: {other} of {all} steps go against the published way, {same} with it")
        }
        Agreement::Unresolved if fewest == 0 => {
            "nothing to compare: a setting was not measured".to_owned()
        }
        Agreement::Unresolved if fewest < 2 => {
            "not resolved: one measurement of a setting says nothing about noise; repeat it"
                .to_owned()
        }
        Agreement::Unresolved if is_flat(steps) => {
            format!(
                "not resolved: noise is too large to show that the settings are equal within {margin}"
            )
        }
        Agreement::Unresolved => "not resolved: noise hides every step".to_owned(),
    }
}

/// The last setting over the first, published and measured.
fn ends_words(first: &Point, last: &Point, published: f64, measured: &Estimate<Ratio>) -> String {
    let found = match measured.known() {
        // So wide an interval in figures would only look like knowledge.
        Some(ratio) if ratio.interval.high > OPEN * ratio.interval.low => {
            format!("measured {}, which the repeats leave open", number(ratio.value))
        }
        Some(ratio) => format!(
            "measured {} ({} to {})",
            number(ratio.value),
            number(ratio.interval.low),
            number(ratio.interval.high)
        ),
        // One measurement each has a ratio too, without an interval.
        None => match plain_ratio(last, first) {
            Some(ratio) => format!("measured {}, without an interval", number(ratio)),
            None => "not measured".to_owned(),
        },
    };
    format!("; {} over {}: published {}, {found}", last.label, first.label, number(published))
}

/// The ratio of two typical values, where both are known and positive.
fn plain_ratio(over: &Point, under: &Point) -> Option<f64> {
    let centre = |point: &Point| {
        repeats(&point.measured, point.scale).ok().map(|set| set.centre).filter(|it| *it > 0.0)
    };
    Some(centre(over)? / centre(under)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recipe that is run once has ratios; only their intervals are not known.
    #[test]
    fn one_measurement_each_has_a_ratio_without_an_interval() {
        let once = compare_shape(&series(&[(10.0, &[4.0]), (20.0, &[6.0])]), Tolerance::default());
        assert!(
            once.words.contains("published 2.00, measured 1.50, without an interval"),
            "{}",
            once.words
        );
        let none = compare_shape(&series(&[(10.0, &[4.0]), (20.0, &[])]), Tolerance::default());
        assert!(none.words.contains("published 2.00, not measured"), "{}", none.words);
    }

    fn series(rows: &[(f64, &[f64])]) -> Vec<Point> {
        rows.iter()
            .enumerate()
            .map(|(at, (published, measured))| Point {
                label: format!("batch {at}"),
                published: *published,
                measured: measured.to_vec(),
                scale: Scale::Logarithmic,
            })
            .collect()
    }

    fn shape_of(rows: &[(f64, &[f64])]) -> Shape {
        compare_shape(&series(rows), Tolerance::default())
    }

    #[test]
    fn a_clear_series_agrees_whatever_its_size() {
        let shape = shape_of(&[
            (116.0, &[1.16, 1.18, 1.15]),
            (30.0, &[0.5, 0.52, 0.51]),
            (8.0, &[0.2, 0.21, 0.2]),
        ]);
        assert_eq!(shape.agreement, Agreement::Agrees);
        let rank = shape.rank.known().unwrap();
        assert_eq!((rank.tau, rank.n), (1.0, 3));
        assert!((rank.p.unwrap() - 1.0 / 6.0).abs() < 1e-12);
        assert!(shape.words.starts_with("agrees: all 2 steps"), "{}", shape.words);
    }

    #[test]
    fn one_measurement_never_agrees() {
        let shape = shape_of(&[(10.0, &[1.0]), (20.0, &[2.0]), (30.0, &[3.0])]);
        assert_eq!(shape.agreement, Agreement::Unresolved);
        assert!(shape.words.contains("says nothing about noise"), "{}", shape.words);
    }

    #[test]
    fn noise_is_not_a_contradiction_and_a_contradiction_is_not_hidden() {
        let noisy = shape_of(&[(10.0, &[1.0, 1.1]), (20.0, &[2.0, 2.1]), (21.0, &[1.9, 2.3])]);
        assert_eq!(noisy.agreement, Agreement::Consistent);
        let other = shape_of(&[
            (10.0, &[1.0, 1.1, 1.0]),
            (20.0, &[2.0, 2.1, 2.0]),
            (40.0, &[0.5, 0.5, 0.6]),
        ]);
        assert_eq!(other.agreement, Agreement::Differs);
        assert!(other.words.contains("1 of 2 steps go against"), "{}", other.words);
    }

    /// "7,100 iterations at any batch size" could once be neither confirmed nor contradicted.
    #[test]
    fn a_flat_series_is_confirmed_contradicted_or_left_open() {
        let flat = |last: &[f64]| {
            shape_of(&[
                (7100.0, &[7000.0, 7050.0, 7020.0]),
                (7100.0, &[7100.0, 7060.0, 7110.0]),
                (7100.0, last),
            ])
        };
        let equal = flat(&[6990.0, 7010.0, 7030.0]);
        assert_eq!(equal.agreement, Agreement::Agrees);
        assert_eq!(equal.steps[0].measured, Direction::Flat);
        assert!(
            equal.words.starts_with("agrees: equal within 10.0 % in all 3 settings"),
            "{}",
            equal.words
        );
        let other = flat(&[9000.0, 9100.0, 9050.0]);
        assert_eq!(other.agreement, Agreement::Differs);
        assert!(other.words.contains("1 of 2 steps are larger than 10.0 %"), "{}", other.words);
        let noisy = flat(&[5000.0, 9000.0, 7000.0]);
        assert_eq!(noisy.agreement, Agreement::Consistent);
        let all_noise = shape_of(&[(1.0, &[5.0, 9.0]), (1.0, &[4.0, 11.0])]);
        assert_eq!(all_noise.agreement, Agreement::Unresolved);
        assert!(all_noise.words.contains("equal within 10.0 %"), "{}", all_noise.words);
        // Steps of 8 % each are small, both together are not.
        let drift =
            shape_of(&[(1.0, &[100.0, 100.0]), (1.0, &[108.0, 108.0]), (1.0, &[116.0, 116.0])]);
        assert_eq!(drift.agreement, Agreement::Consistent);
    }

    #[test]
    fn one_measurement_does_not_confirm_a_flat_series() {
        let shape = shape_of(&[(7100.0, &[7100.0]), (7100.0, &[7100.0])]);
        assert_eq!(shape.agreement, Agreement::Unresolved);
    }

    #[test]
    fn small_published_steps_count_where_they_are_meant() {
        let points = series(&[(90.3, &[90.1, 90.2]), (89.1, &[88.0, 88.1])]);
        let wide = compare_shape(&points, Tolerance::default());
        assert_eq!((wide.agreement, wide.steps[0].measured), (Agreement::Agrees, Direction::Flat));
        let fine = compare_shape(&points, Tolerance::of_rounding(0.005));
        assert_eq!((fine.agreement, fine.steps[0].measured), (Agreement::Agrees, Direction::Falls));
        let wild = shape_of(&[(14.0, &[0.5, 16.0]), (7.0, &[0.1, 6.0])]);
        assert!(wild.words.contains("leave open"), "{}", wild.words);
    }

    #[test]
    fn values_that_never_vary_and_missing_settings_are_handled() {
        let exact = shape_of(&[(1.0, &[5.0, 5.0]), (2.0, &[6.0, 6.0])]);
        assert_eq!(exact.agreement, Agreement::Agrees);
        let missing = shape_of(&[(1.0, &[]), (-2.0, &[6.0, 6.0])]);
        assert_eq!(missing.agreement, Agreement::Unresolved);
        assert!(missing.ends.is_none());
        assert_eq!(compare_shape(&[], Tolerance::default()).agreement, Agreement::Unresolved);
    }

    #[test]
    fn kendall_counts_orders_exactly() {
        // Of the 24 orders of four things 1, 3, 5, 6, 5, 3, 1 have 0 to 6 reversed pairs.
        for (reversed, share) in [(0, 1.0), (1, 4.0), (2, 9.0), (6, 24.0)] {
            assert!((kendall_p(4, reversed) - share / 24.0).abs() < 1e-12);
        }
    }
}
