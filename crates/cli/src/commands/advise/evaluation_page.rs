//! The page of `paceline advise evaluate`: how methods compare, by runs and by money.

use paceline_advisor::evaluate::Summary;
use paceline_report::chart::{Axis, Chart, Series};
use paceline_report::page::{Figure, Page};
use paceline_report::table::{Column, Table};

/// Two charts and their figures.
pub(super) fn html(summaries: &[Summary]) -> String {
    let (jobs, seeds) = summaries.first().map_or((0, 0), |first| (first.jobs, first.seeds));
    let mut page = Page::new(
        "Advice on recorded jobs",
        format!("{jobs} jobs, {seeds} searches each, no application is its own past"),
    );
    let by_runs = |summary: &Summary| -> Vec<(f64, f64)> {
        summary.regret.iter().map(|(runs, spread)| (*runs as f64, spread.mean)).collect()
    };
    let by_money = |summary: &Summary| -> Vec<(f64, f64)> {
        summary.by_money.iter().map(|(budget, mean, _)| (*budget, *mean)).collect()
    };
    page.section("By runs");
    page.figures(&[figure(
        "Value of the best run over the optimum",
        "runs",
        "Lower is better; 1 is the optimum.",
        summaries,
        &by_runs,
    )]);
    page.section("By money");
    page.figures(&[figure(
        "The same by what was spent",
        "dollars, in runs at the optimum",
        "Failed and ended runs are paid for. A search that could not yet afford a run counts as the worst choice.",
        summaries,
        &by_money,
    )]);
    page.section("In figures");
    let mut table = Table::new([
        Column::words("method"),
        Column::numbers("own stop after").unit("runs"),
        Column::numbers("its value over the optimum"),
        Column::numbers("recorded values inside 90 % intervals"),
    ]);
    for summary in summaries {
        table.row([
            summary.method.clone(),
            format!("{:.1}", summary.own_stop[0]),
            format!("{:.3}", summary.own_stop[1]),
            summary
                .coverage
                .map_or_else(|| "–".to_owned(), |held| format!("{:.0} %", held * 100.0)),
        ]);
    }
    page.table(&table);
    page.html()
}

fn figure(
    title: &str,
    axis: &str,
    words: &str,
    summaries: &[Summary],
    points: &dyn Fn(&Summary) -> Vec<(f64, f64)>,
) -> Figure {
    let mut chart = Chart::new(title, Axis::new(axis).logarithmic(), Axis::new("over the optimum"));
    for summary in summaries {
        chart = chart.with(Series::line(summary.method.as_str(), points(summary)));
    }
    Figure {
        title: title.to_owned(),
        colour: None,
        key: Vec::new(),
        svg: chart.svg(),
        words: words.to_owned(),
        notes: Vec::new(),
    }
}
