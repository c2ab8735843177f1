//! From rows to findings: one group per setting, each published series beside what was measured, scaling over workers.

use crate::grid::{Cell, SweepSettings};
use crate::journal::{Failure, Row};
use crate::measure::{Measure, default_measures, figure_measures};
use crate::recipe::{Axis, Published, Recipe};
use crate::recording::Score;
use paceline_stats::repeats::{Repeats, repeats};
use paceline_stats::scaling::{Rates, Scaling, scaling};
use paceline_stats::shape::{Agreement, Point, Shape, compare_shape};
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
    /// What a reader has to know about single cells, with their settings.
    pub remarks: Vec<(String, String)>,
    /// Cells from which others took cores, by their own verdict.
    pub disturbed: usize,
    /// Scores on the test examples over the steps, of the first repeat of each setting that has some.
    pub curves: Vec<(String, Vec<Score>)>,
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
    /// Repeats from which others took cores.
    pub disturbed: u32,
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
    /// Whether every worker had the same batch, so that that of an update grew with the workers.
    pub batch_per_worker: bool,
    pub scaling: Scaling,
}

impl Findings {
    /// The repeats of a group in one measure; nothing where it has none.
    #[must_use]
    pub fn repeats(&self, group: &Group, measure: usize) -> Option<Repeats> {
        repeats(&group.values[measure], self.measures[measure].scale()).ok()
    }

    /// The typical value of a group in one measure over the published figure, where both are known and positive.
    #[must_use]
    pub fn ratio(&self, group: &Group, measure: usize) -> Option<f64> {
        let published = group.published[measure].filter(|figure| *figure > 0.0)?;
        let centre = self.repeats(group, measure)?.centre;
        (centre > 0.0).then(|| centre / published)
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
pub fn analyse(
    recipe: &Recipe,
    settings: &SweepSettings,
    cells: &[Cell],
    rows: &[Row],
) -> Findings {
    // Cells were made from these axes, so they are valid.
    let axes = settings.axes(recipe).unwrap_or_default();
    let measures = match &recipe.program {
        _ if !recipe.measure.is_empty() => recipe.measure.clone(),
        Some(_) => figure_measures(rows),
        None => default_measures(&recipe.command),
    };
    let mut groups = empty_groups(&axes, cells, measures.len());
    let (mut failures, mut done, mut seconds) = (Vec::new(), 0, 0.0);
    let (mut remarks, mut disturbed, mut curves) = (Vec::new(), 0, Vec::new());
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
        if row.disturbed_by().is_some() {
            group.disturbed += 1;
            disturbed += 1;
        }
        remarks.extend(row.remarks(cell).into_iter().map(|remark| (cell.label(), remark)));
        if cell.repeat == 1 && row.curve.len() > 1 {
            curves.push((joined(&cell.settings), row.curve.clone()));
        }
        for (values, measure) in group.values.iter_mut().zip(&measures) {
            values.extend(measure.of(row));
        }
    }
    // Cells run in a random order.
    let order: Vec<String> = groups.iter().map(|group| joined(&group.settings)).collect();
    curves.sort_by_key(|(name, _)| order.iter().position(|known| known == name));
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
        growth: growth(&measures, &groups, cells),
        measures,
        groups,
        comparisons,
        failures,
        remarks,
        disturbed,
        curves,
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
            disturbed: 0,
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
    // Settings that `--vary` leaves out are not missing.
    if !groups.iter().any(|group| has(group, fixed(published))) {
        return None;
    }
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
        source: published.cited(),
        unit,
        along: published.along.clone(),
        shape: compare_shape(&points, published.tolerance()),
    })
}

/// Axis and setting in words.
pub(crate) fn joined(settings: &[(String, String)]) -> String {
    settings.iter().map(|(axis, value)| format!("{axis} {value}")).collect::<Vec<_>>().join(", ")
}

/// A setting with its workers, its rates, and what it would be with any other number of workers.
struct Sized {
    others: Setting,
    rates: Rates,
    /// The command line without workers, seed and folder.
    command: Vec<String>,
    /// Examples of an update.
    batch: Option<u64>,
}

impl Sized {
    fn of(group: &Group, rate: usize, cells: &[Cell]) -> Option<Sized> {
        let (_, workers) = group.settings.iter().find(|(axis, _)| axis == "workers")?;
        let workers = workers.parse().ok()?;
        let others = group.settings.iter().filter(|(axis, _)| axis != "workers").cloned().collect();
        let cell = cells.iter().find(|cell| cell.settings == group.settings)?;
        let (mut command, mut batch) = (Vec::new(), None);
        let mut words = cell.arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--workers" | "--seed" | "--out" => {
                    words.next();
                }
                "--batch-size" => batch = words.next().and_then(|size| size.parse().ok()),
                _ => command.push(word.clone()),
            }
        }
        let rates = Rates { workers, rates: group.values[rate].clone() };
        Some(Sized { others, rates, command, batch })
    }

    fn batch_of_worker(&self) -> Option<u64> {
        self.batch?.checked_div(self.rates.workers)
    }

    /// Whether the two differ in their workers only; with `per_worker`, also in the batch, which is the same for every worker.
    fn differs_in_workers_only(&self, other: &Sized, per_worker: bool) -> bool {
        let same_batch = if per_worker {
            self.batch.is_some() && self.batch_of_worker() == other.batch_of_worker()
        } else {
            self.batch == other.batch
        };
        self.others == other.others && self.command == other.command && same_batch
    }
}

/// Scaling over the axis `workers`, for every setting of the others: of runs that differ in nothing else.
fn growth(measures: &[Measure], groups: &[Group], cells: &[Cell]) -> Vec<Growth> {
    let Some(rate) = measures.iter().position(|measure| measure.unit.ends_with("/s")) else {
        return Vec::new();
    };
    let all: Vec<Sized> = groups.iter().filter_map(|group| Sized::of(group, rate, cells)).collect();
    let mut found = Vec::new();
    for (at, first) in all.iter().enumerate() {
        for per_worker in [false, true] {
            let like = |other: &&Sized| first.differs_in_workers_only(other, per_worker);
            // Each series once, by its first setting.
            if all[..at].iter().any(|earlier| like(&earlier)) {
                continue;
            }
            let rates: Vec<Rates> =
                all[at..].iter().filter(like).map(|sized| sized.rates.clone()).collect();
            if let Some(scaling) = scaling(&rates) {
                let settings = first.others.clone();
                found.push(Growth { settings, batch_per_worker: per_worker, scaling });
            }
        }
    }
    found
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
        source = "a report"
        measure = "rate"
        where = { mode = "async" }
        along = "workers"
        at = [1, 2, 3]
        is = [14.0, 27.9, 40.5]
    "#;

    #[test]
    fn published_figures_stand_beside_their_settings_and_failures_stay() {
        let recipe = Recipe::parse("t", RECIPE).unwrap();
        let settings = SweepSettings::default();
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

    /// One device, two workers and three workers with their own batches once made one curve.
    #[test]
    fn only_runs_that_differ_in_nothing_but_the_workers_are_pooled() {
        let text = r#"
            title = "t"
            command = ["train"]
            [[axis]]
            name = "workers"
            values = [
                { name = "1", flags = { strategy = "one-device" } },
                { name = "2", flags = { strategy = "multi-worker", workers = 2 } },
                { name = "3", flags = { strategy = "multi-worker", workers = 3 } },
            ]
            [[axis]]
            name = "batch"
            values = [
                { name = "of all", flags = { batch-size = 60 } },
                { name = "of each", flags = { batch-size = "{60*workers}" } },
            ]
            [[measure]]
            name = "rate"
            from = "/examples_per_second"
            unit = "examples/s"
        "#;
        let recipe = Recipe::parse("t", text).unwrap();
        let settings = SweepSettings::default();
        let cells = settings.cells(&recipe).unwrap();
        let row = |cell: &Cell| Row {
            cell: cell.key.clone(),
            output: json!({ "examples_per_second": 100.0 }),
            ..Row::default()
        };
        let rows: Vec<Row> = cells.iter().map(row).collect();
        let found = analyse(&recipe, &settings, &cells, &rows);
        let series: Vec<(&str, bool, Vec<u64>)> = found
            .growth
            .iter()
            .map(|growth| {
                let workers = growth.scaling.points.iter().map(|point| point.workers).collect();
                (growth.settings[0].1.as_str(), growth.batch_per_worker, workers)
            })
            .collect();
        assert_eq!(series, [("of all", false, vec![2, 3]), ("of each", true, vec![2, 3])]);
    }

    #[test]
    fn disturbed_cells_are_counted_and_named() {
        let recipe = Recipe::parse("t", RECIPE).unwrap();
        let settings = SweepSettings::default();
        let cells = settings.cells(&recipe).unwrap();
        let row = Row {
            cell: cells[0].key.clone(),
            output: json!({ "diagnosis": { "limit": "taken-cores", "culprit": "other programs" } }),
            ..Row::default()
        };
        let found = analyse(&recipe, &settings, &cells, &[row]);
        assert_eq!(found.disturbed, 1);
        assert_eq!(found.remarks, [(cells[0].label(), "other programs took cores".to_owned())]);
        assert_eq!(found.groups.iter().map(|group| group.disturbed).sum::<u32>(), 1);
    }

    #[test]
    fn a_narrowed_grid_compares_what_is_left() {
        let recipe = Recipe::parse("t", RECIPE).unwrap();
        let vary = vec![crate::parse_vary("workers=1,2").unwrap()];
        let settings = SweepSettings { vary, ..SweepSettings::default() };
        let cells = settings.cells(&recipe).unwrap();
        let found = analyse(&recipe, &settings, &cells, &[]);
        assert_eq!(found.comparisons[0].shape.points.len(), 2);
        assert_eq!((found.done, found.cells), (0, 8));
    }

    /// It was once said of them that there is nothing to compare, on a page about other settings.
    #[test]
    fn series_of_settings_that_are_not_in_the_grid_are_left_out() {
        let recipe = Recipe::parse("t", RECIPE).unwrap();
        let vary = vec![crate::parse_vary("mode=sync").unwrap()];
        let settings = SweepSettings { vary, ..SweepSettings::default() };
        let cells = settings.cells(&recipe).unwrap();
        let found = analyse(&recipe, &settings, &cells, &[]);
        assert_eq!((found.comparisons.len(), found.cells), (0, 6));
    }
}
