//! What each axis does on its own, and which setting is best, with how sure that is.
//!
//! The effect of a level is its value against the mean of all levels of its axis, in the same settings of the other axes and the same
//! repeat: what the others do cancels out. How sure the best is comes from drawing every setting's typical value from what its repeats
//! leave open (one variance for all settings, as in an analysis of variance) and counting how often it stays the best.

use crate::findings::{Findings, Group};
use crate::measure::Measure;
use paceline_stats::random::Random;
use paceline_stats::repeats::{Repeats, Scale, repeats};
use serde::Serialize;

/// Draws behind a probability: it is known to about one in a hundred.
const DRAWS: usize = 4000;

/// Which end of a measure is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

impl Measure {
    /// Which end is wanted, where name and unit tell: rates and accuracies high, losses and times low.
    #[must_use]
    pub fn better(&self) -> Option<Better> {
        let name = self.name.to_lowercase();
        let rates = ["examples/s", "images/s", "photos/s", "rows/s", "batches/s", "GFLOP/s"];
        if name.contains("accuracy") || rates.contains(&self.unit.as_str()) {
            Some(Better::Higher)
        } else if name.contains("loss") || matches!(self.unit.as_str(), "s" | "ms" | "min") {
            Some(Better::Lower)
        } else {
            None
        }
    }
}

/// What the levels of one axis do to one measure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effect {
    pub axis: String,
    /// Place of the measure.
    pub measure: usize,
    /// Whether values are factors of the mean; otherwise they are differences from it.
    pub factor: bool,
    /// Each level with its effect.
    pub levels: Vec<(String, Repeats)>,
}

/// The best setting in one measure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Best {
    /// Place of the measure.
    pub measure: usize,
    /// Place of the setting among the groups.
    pub group: usize,
    /// Place of the next best one.
    pub next: usize,
    /// How sure it is that it is the best of all; nothing where no setting was repeated.
    pub probability: Option<f64>,
}

/// The different settings of an axis, in the order of the groups.
pub(crate) fn levels(groups: &[Group], axis: usize) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for group in groups {
        if !found.contains(&group.settings[axis].1.as_str()) {
            found.push(&group.settings[axis].1);
        }
    }
    found
}

/// The effect of every axis that has several levels on every measure whose good end is known; nothing where one axis is all there is.
#[must_use]
pub fn effects(found: &Findings) -> Vec<Effect> {
    let several: Vec<usize> =
        (0..found.axes.len()).filter(|axis| levels(&found.groups, *axis).len() > 1).collect();
    if several.len() < 2 {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (measure, asked) in found.measures.iter().enumerate() {
        if asked.better().is_some() {
            all.extend(several.iter().filter_map(|axis| effect(found, measure, *axis)));
        }
    }
    all
}

fn effect(found: &Findings, measure: usize, axis: usize) -> Option<Effect> {
    let levels = levels(&found.groups, axis);
    let mut all = found.groups.iter().flat_map(|group| &group.values[measure]);
    let factor = found.measures[measure].scale() == Scale::Logarithmic && all.all(|it| *it > 0.0);
    let others = |group: &Group| -> Vec<String> {
        let rest = group.settings.iter().enumerate().filter(|(at, _)| *at != axis);
        rest.map(|(_, (_, label))| label.clone()).collect()
    };
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); levels.len()];
    let mut done: Vec<Vec<String>> = Vec::new();
    for group in &found.groups {
        let block = others(group);
        if done.contains(&block) {
            continue;
        }
        let members: Vec<Option<&Group>> = levels
            .iter()
            .map(|level| {
                let mut all = found.groups.iter();
                all.find(|it| it.settings[axis].1 == **level && others(it) == block)
            })
            .collect();
        done.push(block);
        // A level that the grid leaves out would shift the mean of the others.
        let Some(members) = members.into_iter().collect::<Option<Vec<_>>>() else { continue };
        let repeats = members.iter().map(|it| it.values[measure].len()).min().unwrap_or(0);
        for repeat in 0..repeats {
            let of = |it: &&Group| {
                let value = it.values[measure][repeat];
                if factor { value.ln() } else { value }
            };
            let row: Vec<f64> = members.iter().map(of).collect();
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            for (level, value) in values.iter_mut().zip(row) {
                let against = value - mean;
                level.push(if factor { against.exp() } else { against });
            }
        }
    }
    let scale = if factor { Scale::Logarithmic } else { Scale::Linear };
    let known = levels.iter().zip(&values);
    let known =
        known.map(|(level, values)| Some(((*level).to_owned(), repeats(values, scale).ok()?)));
    let levels = known.collect::<Option<Vec<_>>>()?;
    let axis = found.axes[axis].clone();
    Some(Effect { axis, measure, factor, levels })
}

/// The best setting of every measure whose good end is known, where there are several.
#[must_use]
pub fn bests(found: &Findings) -> Vec<Best> {
    (0..found.measures.len()).filter_map(|measure| best(found, measure)).collect()
}

fn best(found: &Findings, measure: usize) -> Option<Best> {
    let better = found.measures[measure].better()?;
    let measured: Vec<usize> = (0..found.groups.len())
        .filter(|group| !found.groups[*group].values[measure].is_empty())
        .collect();
    let mut all = measured.iter().flat_map(|group| &found.groups[*group].values[measure]);
    let logarithms =
        found.measures[measure].scale() == Scale::Logarithmic && all.all(|it| *it > 0.0);
    // Always the higher the better, from here on.
    let turned = |value: &f64| {
        let value = if logarithms { value.ln() } else { *value };
        if better == Better::Higher { value } else { -value }
    };
    let values: Vec<Vec<f64>> = measured
        .iter()
        .map(|group| found.groups[*group].values[measure].iter().map(turned).collect())
        .collect();
    let means: Vec<f64> =
        values.iter().map(|of| of.iter().sum::<f64>() / of.len() as f64).collect();
    let mut order: Vec<usize> = (0..means.len()).collect();
    order.sort_by(|a, b| means[*b].total_cmp(&means[*a]));
    let (first, next) = (*order.first()?, *order.get(1)?);
    if !means.iter().all(|mean| mean.is_finite()) || means[first] <= means[next] {
        return None; // all alike, or not numbers
    }
    let probability = probability(&values, &means, first);
    Some(Best { measure, group: measured[first], next: measured[next], probability })
}

/// How often a setting stays the highest when all are drawn from what their repeats leave open.
fn probability(values: &[Vec<f64>], means: &[f64], first: usize) -> Option<f64> {
    let freedom: usize = values.iter().map(|of| of.len() - 1).sum();
    let squares = |(of, mean): (&Vec<f64>, &f64)| -> f64 {
        of.iter().map(|value| (value - mean).powi(2)).sum()
    };
    let squares: f64 = values.iter().zip(means).map(squares).sum();
    if freedom == 0 {
        return None;
    }
    let mut random = Random::new(1, 20);
    let mut stays = 0;
    for _ in 0..DRAWS {
        // The variance is not known either: its estimate has a chi-squared distribution.
        let chi: f64 = (0..freedom).map(|_| normal(&mut random).powi(2)).sum();
        let deviation = (squares / chi.max(f64::MIN_POSITIVE)).sqrt();
        let drawn: Vec<f64> = values
            .iter()
            .zip(means)
            .map(|(of, mean)| mean + deviation * normal(&mut random) / (of.len() as f64).sqrt())
            .collect();
        let highest = drawn.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        stays += usize::from(drawn[first] >= highest);
    }
    Some(stays as f64 / DRAWS as f64)
}

/// A number of the normal distribution, by the method of Box and Muller.
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.uniform()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.uniform()).cos()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Recipe, Row, SweepSettings, analyse};
    use serde_json::json;

    /// Rates of two axes: each doubling of the batch gives a half more, two workers twice as much.
    pub(crate) fn grid(repeats: u32, noise: f64) -> Findings {
        let text = r#"
            title = "t"
            command = ["train"]
            [[axis]]
            name = "batch-size"
            values = [10, 20, 40]
            [[axis]]
            name = "workers"
            values = [1, 2]
            [[measure]]
            name = "rate"
            from = "/rate"
            unit = "examples/s"
            [[measure]]
            name = "packets"
            from = "/rate"
            unit = "packets/s"
        "#;
        let recipe = Recipe::parse("t", text).unwrap();
        let settings = SweepSettings { repeats: Some(repeats), ..SweepSettings::default() };
        let cells = settings.cells(&recipe).unwrap();
        let rows: Vec<Row> = cells
            .iter()
            .enumerate()
            .map(|(at, cell)| {
                let of = |axis: usize| cell.settings[axis].1.parse::<f64>().unwrap();
                let rate = 1.5_f64.powf((of(0) / 10.0).log2()) * of(1);
                let wobble = 1.0 + noise * ((at % 3) as f64 - 1.0);
                let output = json!({ "rate": rate * wobble });
                Row { cell: cell.key.clone(), output, ..Row::default() }
            })
            .collect();
        analyse(&recipe, &settings, &cells, &rows)
    }

    #[test]
    fn an_effect_is_that_of_its_axis_alone() {
        let found = effects(&grid(3, 0.01));
        assert_eq!(found.len(), 2, "of one measure; no one wants more packets");
        let batch = &found[0];
        assert!(batch.factor && batch.axis == "batch-size", "{batch:?}");
        let centres: Vec<f64> = batch.levels.iter().map(|(_, it)| it.centre).collect();
        for (centre, wanted) in centres.iter().zip([1.0 / 1.5, 1.0, 1.5]) {
            assert!((centre / wanted - 1.0).abs() < 0.02, "{centre} for {wanted}");
        }
        let interval = batch.levels[0].1.spread.interval().unwrap();
        assert!(interval.low < 1.0 / 1.5 && 1.0 / 1.5 < interval.high && interval.high < 0.75);
    }

    #[test]
    fn how_sure_the_best_is_depends_on_noise_and_repeats() {
        let [clear] = &bests(&grid(3, 0.01))[..] else { panic!("one measure") };
        assert!(clear.probability.unwrap() > 0.99, "{clear:?}");
        let [noisy] = &bests(&grid(3, 0.6))[..] else { panic!("one measure") };
        let sure = noisy.probability.unwrap();
        assert!(sure > 0.1 && sure < 0.95, "{sure}");
        let [once] = &bests(&grid(1, 0.0))[..] else { panic!("one measure") };
        assert_eq!(once.probability, None, "nothing was repeated");
        let found = grid(3, 0.01);
        let labels: Vec<&str> =
            found.groups[clear.group].settings.iter().map(|it| it.1.as_str()).collect();
        assert_eq!(labels, ["40", "2"]);
        assert_eq!(bests(&grid(3, 0.6)), bests(&grid(3, 0.6)), "the same each time");
    }
}
