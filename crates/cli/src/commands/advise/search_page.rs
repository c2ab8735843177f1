//! The page of `paceline advise ask --out`: the search so far, and what the model makes of the space.

use crate::terminal::{show_count, show_dollars};
use paceline_advisor::{ExpectedValue, Objective, SearchSession, SearchedRun};
use paceline_report::chart::{Axis, Chart, Series, Span};
use paceline_report::page::{Figure, Page};
use paceline_report::table::{Column, Table};
use paceline_stats::words::number;

/// Configurations shown at most: those with the least expected values.
const MOST: usize = 12;

/// What every run gave, and what is expected of every configuration.
pub(super) fn html(session: &SearchSession) -> anyhow::Result<String> {
    let (runs, space) = (session.progress()?, session.outlook()?);
    let (what, unit) = match session.objective() {
        Objective::Time => ("time", "s"),
        Objective::Cost | Objective::CostUnderDeadline { .. } => ("cost", "$"),
    };
    let spent = runs.iter().fold(0.0, |spent, run| spent + run.usd);
    let about = match runs.len() {
        0 => "no runs yet".to_owned(),
        count => format!("{} so far, {}", show_count(count, "run"), show_dollars(spent)),
    };
    let mut page = Page::new("The search so far", about);
    if !runs.is_empty() {
        page.section("Run by run");
        page.figures(&[progress(&runs, what, unit)]);
    }
    if !space.is_empty() {
        page.section("The space");
        let shown = &space[..space.len().min(MOST)];
        page.figures(&[outlook(shown, space.len(), what, unit)]);
        page.table(&expectations(shown, what, unit));
    }
    Ok(page.html())
}

/// What every run gave, and the best so far.
fn progress(runs: &[SearchedRun], what: &str, unit: &str) -> Figure {
    let place = |at: usize| (at + 1) as f64;
    let points = |completed: bool| {
        let of_kind = runs.iter().enumerate().filter(move |(_, run)| run.completed == completed);
        of_kind.map(|(at, run)| (place(at), run.value)).collect::<Vec<_>>()
    };
    let best = runs.iter().enumerate().filter_map(|(at, run)| Some((place(at), run.best?)));
    let title = format!("The {what} of every run");
    let mut chart = Chart::new(title.as_str(), Axis::new("run"), Axis::new(what).unit(unit))
        .with(Series::points("completed", points(true)))
        .with(Series::line("best so far", best));
    if runs.iter().any(|run| !run.completed) {
        chart = chart.with(Series::points("failed or ended: paid until then", points(false)));
    }
    figure(title, &chart, "The line is the least that a run has taken up to each point.".to_owned())
}

/// What the model expects of every configuration, and what was measured.
fn outlook(shown: &[ExpectedValue], all: usize, what: &str, unit: &str) -> Figure {
    let title = format!("The {what} to expect of each configuration");
    let axis = Axis::categories("configuration", shown.iter().map(|found| found.name.as_str()));
    let expected = shown.iter().enumerate().map(|(at, found)| Span {
        x: at as f64,
        y: found.value,
        low: found.low,
        high: found.high,
    });
    let measured =
        shown.iter().enumerate().filter_map(|(at, found)| Some((at as f64, found.measured?)));
    let chart = Chart::new(title.as_str(), axis, Axis::new(what).unit(unit).logarithmic())
        .with(Series::averages("expected by the model", expected))
        .with(Series::points("measured", measured));
    let mut words = "Nine of ten values lie within the whiskers.".to_owned();
    if all > shown.len() {
        words += &format!(" Shown are the {MOST} of {all} with the least.");
    }
    figure(title, &chart, words)
}

/// The same in figures.
fn expectations(shown: &[ExpectedValue], what: &str, unit: &str) -> Table {
    let in_unit = |name: &str| Column::numbers(name).unit(unit);
    let mut table = Table::new([
        Column::words("configuration"),
        in_unit(&format!("expected {what}")),
        in_unit("low"),
        in_unit("high"),
        in_unit("measured"),
    ]);
    for found in shown {
        let mut row = vec![found.name.clone()];
        row.extend([found.value, found.low, found.high].map(number));
        row.push(found.measured.map_or_else(|| "–".to_owned(), number));
        table.row(row);
    }
    table
}

fn figure(title: String, chart: &Chart, words: String) -> Figure {
    let (colour, key, notes) = (None, Vec::new(), Vec::new());
    Figure { title, colour, key, svg: chart.svg(), words, notes }
}
