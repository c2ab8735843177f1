//! The page of `paceline advise ask --out`: the search so far, and what the model makes of the space.

use crate::terminal::show_dollars;
use paceline_advisor::{ExpectedValue, Objective, SearchSession, SearchedRun};
use paceline_report::chart::{Axis, Chart, Series, Span};
use paceline_report::page::{Figure, Page};

/// Configurations shown at most: those with the least expected values.
const MOST: usize = 20;

/// Two charts: what every run gave, and what is expected of every configuration.
pub(super) fn html(session: &SearchSession) -> anyhow::Result<String> {
    let (runs, space) = (session.progress()?, session.outlook()?);
    let (what, unit) = match session.objective() {
        Objective::Time => ("time", "s"),
        Objective::Cost | Objective::CostUnderDeadline { .. } => ("cost", "$"),
    };
    let spent: f64 = runs.iter().map(|run| run.usd).sum();
    let about = format!("{} runs so far, {}", runs.len(), show_dollars(spent));
    let mut page = Page::new("The search so far", about);
    page.section("Run by run");
    page.figures(&[progress(&runs, what, unit)]);
    if !space.is_empty() {
        page.section("The space");
        page.figures(&[outlook(&space, what, unit)]);
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
        .sized(720.0, 360.0)
        .with(Series::points("completed", points(true)))
        .with(Series::line("best so far", best));
    if runs.iter().any(|run| !run.completed) {
        chart = chart.with(Series::points("failed or ended: paid until then", points(false)));
    }
    figure(title, &chart, "The line is the least that a run has taken up to each point.".to_owned())
}

/// What the model expects of every configuration, and what was measured.
fn outlook(space: &[ExpectedValue], what: &str, unit: &str) -> Figure {
    let title = format!("The {what} to expect of each configuration");
    let shown = &space[..space.len().min(MOST)];
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
        .sized(960.0, 420.0)
        .with(Series::averages("expected by the model", expected))
        .with(Series::points("measured", measured));
    let mut words = "Nine of ten values lie within the whiskers.".to_owned();
    if space.len() > shown.len() {
        words += &format!(" Shown are the {MOST} of {} with the least.", space.len());
    }
    figure(title, &chart, words)
}

fn figure(title: String, chart: &Chart, words: String) -> Figure {
    let (colour, key, notes) = (None, Vec::new(), Vec::new());
    Figure { title, colour, key, svg: chart.svg(), words, notes }
}
