//! From rows to findings: one group per setting, each published series beside what was measured, scaling over workers.

use crate::grid::{Cell, Settings};
use crate::journal::{Failure, Row};
use crate::measure::{Measure, default_measures};
use crate::recipe::{Axis, Published, Recipe};
use paceline_stats::repeats::{Repeats, repeats};
use paceline_stats::scaling::{Rates, Scaling, scaling};
use paceline_stats::shape::{Agreement, Point, Shape, compare_shape, compare_shape_above};
use serde::Serialize;

/// Axis and setting, in the order of the axes.
type Setting = Vec<(String, String)>;

/// The findings of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// Names of the axes.
    pub axes: Vec<String>,
    /// What was measured of the cells.
    pub measures: Vec<Measure>,
    /// One per setting, in the order of the grid.
    pub groups: Vec<Group>,
    /// Published series beside the measured ones.
    pub comparisons: Vec<Comparison>,
    /// How the job scales, where an axis is called `workers`.
    pub growth: Vec<Growth>,
    /// Cells that failed, with their settings.
    pub failures: Vec<(String, Failure)>,
    /// Cells of the grid.
    pub cells: usize,
    /// Cells that have a row.
    pub done: usize,
    /// Seconds in all of them.
    pub seconds: f64,
}

/// What was measured with one setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Axis and setting.
    pub settings: Vec<(String, String)>,
    /// The values of each measure over the repeats.
    pub values: Vec<Vec<f64>>,
    /// The published figure of each measure, where there is one.
    pub published: Vec<Option<f64>>,
    /// Repeats that failed.
    pub failed: u32,
}

/// A published series beside the measured one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub title: String,
    /// Where it was published.
    pub source: String,
    pub unit: String,
    /// The axis, or nothing for a series across measures.
    pub along: Option<String>,
    pub shape: Shape,
}

/// How a job scales with its workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Growth {
    /// The settings of the other axes.
    pub settings: Vec<(String, String)>,
    pub scaling: Scaling,
}

impl Findings {
    /// The repeats of a group in one measure; nothing where it has none.
    #[must_use]
    pub fn repeats(&self, group: &Group, measure: usize) -> Option<Repeats> {
        repeats(&group.values[measure], self.measures[measure].scale()).ok()
    }

    /// Series whose shape agrees, those that differ, and all.
    #[must_use]
    pub fn tally(&self) -> (usize, usize, usize) {
        let count = |wanted: &[Agreement]| {
            self.comparisons.iter().filter(|found| wanted.contains(&found.shape.agreement)).count()
        };
        (
            count(&[Agreement::Agrees, Agreement::Consistent]),
            count(&[Agreement::Differs]),
            self.comparisons.len(),
        )
    }
}

/// Analyses the results of a sweep so far.
#[must_use]
pub fn analyse(recipe: &Recipe, settings: &Settings, cells: &[Cell], rows: &[Row]) -> Findings {
    let axes = settings.axes(recipe);
    let measures = if recipe.measure.is_empty() {
        default_measures(&recipe.command)
    } else {
        recipe.measure.clone()
    };
    let mut groups = empty_groups(&axes, cells, measures.len());
    let (mut failures, mut done, mut seconds) = (Vec::new(), 0, 0.0);
    for cell in cells {
        let Some(row) = rows.iter().find(|row| row.cell == cell.key) else { continue };
        let group = groups.iter_mut().find(|group| group.settings == cell.settings);
        let group = group.expect("there is a group for every cell");
        done += 1;
        seconds += row.seconds;
        if let Some(failure) = &row.failure {
            group.failed += 1;
            failures.push((cell.label(), failure.clone()));
            continue;
        }
        for (values, measure) in group.values.iter_mut().zip(&measures) {
            values.extend(measure.of(row));
        }
    }
    for published in &recipe.published {
        note_published(&mut groups, &measures, published);
    }
    let comparisons = recipe
        .published
        .iter()
        .filter_map(|published| compare(&axes, &measures, &groups, published))
        .collect();
    Findings {
        axes: axes.iter().map(|axis| axis.name.clone()).collect(),
        growth: growth(&measures, &groups),
        measures,
        groups,
        comparisons,
        failures,
        cells: cells.len(),
        done,
        seconds,
    }
}

/// One group per setting that some cell has, ordered as the axes list their values.
fn empty_groups(axes: &[Axis], cells: &[Cell], measures: usize) -> Vec<Group> {
    let mut all: Vec<&[(String, String)]> = Vec::new();
    for cell in cells {
        if !all.contains(&cell.settings.as_slice()) {
            all.push(&cell.settings);
        }
    }
    all.sort_by_key(|settings| {
        let place = |(axis, (_, label)): (&Axis, &(String, String))| {
            axis.values.iter().position(|choice| choice.label() == *label)
        };
        axes.iter().zip(settings.iter()).map(place).collect::<Vec<_>>()
    });
    all.into_iter()
        .map(|settings| Group {
            settings: settings.to_vec(),
            values: vec![Vec::new(); measures],
            published: vec![None; measures],
            failed: 0,
        })
        .collect()
}

/// Whether a group has these settings.
fn has<'a>(group: &Group, mut wanted: impl Iterator<Item = (&'a String, String)>) -> bool {
    wanted.all(|(axis, label)| {
        group.settings.iter().any(|(name, value)| name == axis && *value == label)
    })
}

fn fixed(published: &Published) -> impl Iterator<Item = (&String, String)> {
    published.fixed.iter().map(|(axis, value)| (axis, value.to_string()))
}

/// Writes published figures beside the settings they belong to.
fn note_published(groups: &mut [Group], measures: &[Measure], published: &Published) {
    let at = |name: &str| measures.iter().position(|measure| measure.name == name);
    for group in groups.iter_mut().filter(|group| has(group, fixed(published))) {
        if let (Some(measure), Some(along)) = (&published.measure, &published.along) {
            for (value, figure) in published.at.iter().zip(&published.is) {
                let here = has(group, std::iter::once((along, value.to_string())));
                if let (true, Some(place)) = (here, at(measure)) {
                    group.published[place] = Some(*figure);
                }
            }
        }
        for (name, figure) in published.across.iter().zip(&published.is) {
            if let Some(place) = at(name) {
                group.published[place] = Some(*figure);
            }
        }
    }
}

/// A published series beside the measured one; `None` if the grid has fewer than two of its settings.
fn compare(
    axes: &[Axis],
    measures: &[Measure],
    groups: &[Group],
    published: &Published,
) -> Option<Comparison> {
    let find = |name: &str| measures.iter().position(|measure| measure.name == name);
    let pooled = |place: usize, extra: Option<(&String, String)>| -> Vec<f64> {
        groups
            .iter()
            .filter(|group| has(group, fixed(published).chain(extra.clone())))
            .flat_map(|group| group.values[place].iter().copied())
            .collect()
    };
    let mut points = Vec::new();
    let unit;
    if let (Some(measure), Some(along)) = (&published.measure, &published.along) {
        let place = find(measure)?;
        unit = measures[place].unit.clone();
        let axis = axes.iter().find(|axis| axis.name == *along)?;
        for (value, figure) in published.at.iter().zip(&published.is) {
            let label = value.to_string();
            if axis.values.iter().any(|choice| choice.label() == label) {
                let measured = pooled(place, Some((along, label.clone())));
                let scale = measures[place].scale();
                points.push(Point { label, published: *figure, measured, scale });
            }
        }
    } else {
        unit = String::new();
        for (name, figure) in published.across.iter().zip(&published.is) {
            let place = find(name)?;
            let (measured, scale) = (pooled(place, None), measures[place].scale());
            points.push(Point { label: name.clone(), published: *figure, measured, scale });
        }
    }
    (points.len() > 1).then(|| Comparison {
        title: published.place(),
        source: published.source.clone(),
        unit,
        along: published.along.clone(),
        shape: published
            .flat
            .map_or_else(|| compare_shape(&points), |flat| compare_shape_above(&points, flat)),
    })
}

/// Scaling over the axis `workers`, for every setting of the others.
fn growth(measures: &[Measure], groups: &[Group]) -> Vec<Growth> {
    let Some(rate) = measures.iter().position(|measure| measure.unit.ends_with("/s")) else {
        return Vec::new();
    };
    let mut series: Vec<(Setting, Vec<Rates>)> = Vec::new();
    for group in groups {
        let workers = group.settings.iter().find(|(axis, _)| axis == "workers");
        let Some(workers) = workers.and_then(|(_, count)| count.parse().ok()) else { continue };
        let others: Setting =
            group.settings.iter().filter(|(axis, _)| axis != "workers").cloned().collect();
        let rates = Rates { workers, rates: group.values[rate].clone() };
        match series.iter_mut().find(|(settings, _)| *settings == others) {
            Some((_, all)) => all.push(rates),
            None => series.push((others, vec![rates])),
        }
    }
    series
        .into_iter()
        .filter_map(|(settings, rates)| Some(Growth { settings, scaling: scaling(&rates)? }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RECIPE: &str = r#"
        title = "t"
        command = ["train"]
        repeats = 2
        [[axis]]
        name = "mode"
        values = ["sync", "async"]
        [[axis]]
        name = "workers"
        values = [1, 2, 3]
        [[measure]]
        name = "rate"
        from = "/examples_per_second"
        unit = "examples/s"
        [[published]]
        source = "report 3"
        measure = "rate"
        where = { mode = "async" }
        along = "workers"
        at = [1, 2, 3]
        is = [14.0, 27.9, 40.5]
    "#;

    #[test]
    fn published_figures_stand_beside_their_settings_and_failures_stay() {
        let recipe = Recipe::parse("t", RECIPE).unwrap();
        let settings = Settings::default();
        let cells = settings.cells(&recipe).unwrap();
        let rows: Vec<Row> = cells
            .iter()
            .map(|cell| {
                let workers: f64 = cell.settings[1].1.parse().unwrap();
                let failed = cell.settings[0].1 == "sync" && workers == 3.0;
                Row {
                    cell: cell.key.clone(),
                    output: json!({ "examples_per_second": 100.0 * workers + f64::from(cell.repeat) }),
                    failure: failed.then(|| Failure { exit: Some(75), reason: "lost".to_owned() }),
                    ..Row::default()
                }
            })
            .collect();
        let found = analyse(&recipe, &settings, &cells, &rows);
        assert_eq!((found.cells, found.done, found.failures.len()), (12, 12, 2));
        let last = found.groups.last().unwrap();
        assert_eq!(last.settings[0].1, "async");
        assert_eq!((last.values[0].len(), last.published[0]), (2, Some(40.5)));
        assert_eq!(found.comparisons.len(), 1);
        assert_eq!(found.comparisons[0].shape.agreement, Agreement::Agrees);
        assert_eq!(found.tally(), (1, 0, 1));
        assert_eq!(found.growth.len(), 2);
        assert_eq!(found.growth[1].scaling.points.len(), 3);
        assert_eq!(found.growth[0].scaling.points.len(), 2, "the failed setting has no rate");
    }

    #[test]
    fn a_narrowed_grid_compares_what_is_left() {
        let recipe = Recipe::parse("t", RECIPE).unwrap();
        let vary = vec![crate::parse_vary("workers=1,2").unwrap()];
        let settings = Settings { vary, ..Settings::default() };
        let cells = settings.cells(&recipe).unwrap();
        let found = analyse(&recipe, &settings, &cells, &[]);
        assert_eq!(found.comparisons[0].shape.points.len(), 2);
        assert_eq!((found.done, found.cells), (0, 8));
    }
}
