//! A sweep as a page, as tables, as CSV: published figures beside measured ones, and where the shapes agree.

use crate::findings::{Comparison, Findings, Group};
use crate::grid::Settings;
use crate::recipe::Recipe;
use paceline_report::chart::{Axis, Chart, Series, Span};
use paceline_report::csv::Csv;
use paceline_report::page::{Card, Figure, Page, Tone, capitalised};
use paceline_report::table::{Column, Table};
use paceline_stats::repeats::Repeats;
use paceline_stats::shape::{Agreement, Direction, Shape};
use paceline_stats::words::number;

/// Most series in a chart; the table shows the others.
const MOST_SERIES: usize = 6;
/// Beyond this factor between smallest and largest, a logarithmic axis shows more.
const WIDE: f64 = 4.0;

/// The whole page.
#[must_use]
pub fn html(recipe: &Recipe, settings: &Settings, found: &Findings, footer: &str) -> String {
    let mut page = Page::new(&recipe.title, &recipe.about);
    let (sentence, tone) = verdict(found);
    page.verdict(tone, &sentence, &points(found));
    page.cards(&cards(found));
    let figures: Vec<Figure> = found.comparisons.iter().filter_map(beside).collect();
    if !figures.is_empty() {
        page.section("Shape: published and measured");
        page.paragraph(
            "Both are shown relative to their first setting, since the figures come from different machines. \
             Whiskers are 95 % intervals over the repeats, with two repeats their range.",
        );
        page.figures(&figures);
    }
    let plain = measured(found);
    if !plain.is_empty() {
        page.section("Measurements");
        page.figures(&plain);
    }
    page.section("All settings");
    page.table(&table(found));
    if !found.comparisons.is_empty() {
        page.section("Step by step");
        page.table(&steps(found));
    }
    if !found.growth.is_empty() {
        page.section("Scaling with workers");
        page.table(&growth(found));
    }
    if !found.failures.is_empty() {
        page.section("Failed cells");
        page.table(&failures(found));
    }
    page.section("How it was measured");
    page.list(&method(recipe, settings, found));
    page.footer(footer);
    page.html()
}

/// The findings as Markdown.
#[must_use]
pub fn markdown(recipe: &Recipe, settings: &Settings, found: &Findings) -> String {
    let mut out = format!("# {}\n\n{}\n\n**{}**\n\n", recipe.title, recipe.about, verdict(found).0);
    points(found).iter().for_each(|point| out.push_str(&format!("- {point}\n")));
    out.push_str(&format!("\n## All settings\n\n{}", table(found).markdown()));
    if !found.failures.is_empty() {
        out.push_str(&format!("\n## Failed cells\n\n{}", failures(found).markdown()));
    }
    out.push_str("\n## How it was measured\n\n");
    method(recipe, settings, found).iter().for_each(|line| out.push_str(&format!("- {line}\n")));
    out
}

/// One line per setting and measure at full precision, for other programs.
#[must_use]
pub fn csv(found: &Findings) -> String {
    let mut header: Vec<String> = found.axes.clone();
    header.extend(
        [
            "measure",
            "unit",
            "n",
            "centre",
            "low",
            "high",
            "least",
            "most",
            "median",
            "published",
            "failed",
        ]
        .map(str::to_owned),
    );
    let mut csv = Csv::new(&header);
    for group in &found.groups {
        for (place, measure) in found.measures.iter().enumerate() {
            let mut row: Vec<String> =
                group.settings.iter().map(|(_, label)| label.clone()).collect();
            row.extend([measure.name.clone(), measure.unit.clone()]);
            let numbers = match found.repeats(group, place) {
                Some(set) => {
                    let end =
                        |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
                    let interval = set.spread.interval();
                    [
                        set.n.to_string(),
                        set.centre.to_string(),
                        end(interval.map(|ends| ends.low)),
                        end(interval.map(|ends| ends.high)),
                        set.min.to_string(),
                        set.max.to_string(),
                        set.median.to_string(),
                    ]
                }
                None => {
                    std::array::from_fn(|at| if at == 0 { "0".to_owned() } else { String::new() })
                }
            };
            row.extend(numbers);
            row.push(group.published[place].map_or_else(String::new, |figure| figure.to_string()));
            row.push(group.failed.to_string());
            csv.row(&row);
        }
    }
    csv.finish()
}

/// Every setting with its measures, published figures beside them.
#[must_use]
pub fn table(found: &Findings) -> Table {
    let mut columns: Vec<Column> = found.axes.iter().map(Column::words).collect();
    for (place, measure) in found.measures.iter().enumerate() {
        columns.push(Column::numbers(&measure.name).unit(&measure.unit));
        columns.push(Column::numbers("95 % interval"));
        if has_published(found, place) {
            columns.push(Column::numbers("published"));
        }
    }
    columns.push(Column::numbers("n"));
    let mut table = Table::new(columns);
    for group in &found.groups {
        let mut row: Vec<String> = group.settings.iter().map(|(_, label)| label.clone()).collect();
        for place in 0..found.measures.len() {
            match found.repeats(group, place) {
                Some(set) => row.extend([number(set.centre), set.spread.words()]),
                None => row.extend(["–".to_owned(), "–".to_owned()]),
            }
            if has_published(found, place) {
                row.push(group.published[place].map_or_else(|| "–".to_owned(), number));
            }
        }
        row.push(count(group));
        table.row(row);
    }
    table
}

fn count(group: &Group) -> String {
    let n = group.values.iter().map(Vec::len).max().unwrap_or(0);
    if group.failed > 0 { format!("{n} ({} failed)", group.failed) } else { n.to_string() }
}

fn has_published(found: &Findings, place: usize) -> bool {
    found.groups.iter().any(|group| group.published[place].is_some())
}

fn verdict(found: &Findings) -> (String, Tone) {
    let (agree, differ, all) = found.tally();
    let missing = found.cells - found.done;
    let tone = if found.failures.len() == found.cells && found.cells > 0 {
        Tone::Bad
    } else if differ > 0 || !found.failures.is_empty() || missing > 0 {
        Tone::Doubtful
    } else {
        Tone::Good
    };
    let mut sentence = match (agree, differ, all) {
        (_, _, 0) => format!("{} settings measured", found.groups.len()),
        (1, 0, 1) => "The shape of the published series is reproduced".to_owned(),
        (agree, 0, all) if agree == all => {
            format!("The shape of all {all} published series is reproduced")
        }
        (agree, differ, all) => format!(
            "The shape of {agree} of {all} published series is reproduced, {differ} differ, {} are not resolved",
            all - agree - differ
        ),
    };
    if !found.failures.is_empty() {
        sentence.push_str(&format!("; {} cells failed", found.failures.len()));
    }
    if missing > 0 {
        sentence.push_str(&format!("; {missing} cells have not run yet"));
    }
    (sentence, tone)
}

fn points(found: &Findings) -> Vec<String> {
    let mut points: Vec<String> = found
        .comparisons
        .iter()
        .map(|series| {
            format!("{} ({}): {}", capitalised(&series.title), series.source, series.shape.words)
        })
        .collect();
    for growth in &found.growth {
        let settings = joined(&growth.settings);
        let of = if settings.is_empty() { String::new() } else { format!("{settings}: ") };
        points.push(format!("{of}{}", growth.scaling.words));
    }
    if found.comparisons.is_empty() {
        points.extend((0..found.measures.len()).filter_map(|place| extremes(found, place)));
    }
    points
}

/// Where a measure was highest and lowest, and whether that may be chance.
fn extremes(found: &Findings, place: usize) -> Option<String> {
    let mut sets: Vec<(&Group, Repeats)> = found
        .groups
        .iter()
        .filter_map(|group| Some((group, found.repeats(group, place)?)))
        .collect();
    sets.sort_by(|a, b| a.1.centre.total_cmp(&b.1.centre));
    let ((low_at, low), (high_at, high)) = (sets.first()?, sets.last()?);
    let measure = &found.measures[place];
    if sets.len() < 2 || low.centre >= high.centre {
        return None;
    }
    let said =
        |set: &Repeats| format!("{} {}", number(set.centre), measure.unit).trim_end().to_owned();
    let sure = match (low.spread.interval(), high.spread.interval()) {
        (Some(low), Some(high)) if low.high < high.low => "",
        (Some(_), Some(_)) => "; their intervals overlap, so this may be chance",
        _ => "; too few repeats to distinguish this from chance",
    };
    Some(format!(
        "{}: highest with {} ({}), lowest with {} ({}){sure}",
        capitalised(&measure.name),
        joined(&high_at.settings),
        said(high),
        joined(&low_at.settings),
        said(low),
    ))
}

fn joined(settings: &[(String, String)]) -> String {
    settings.iter().map(|(axis, value)| format!("{axis} {value}")).collect::<Vec<_>>().join(", ")
}

fn cards(found: &Findings) -> Vec<Card> {
    let card = |what: &str, value: String, unit: &str, more: String| Card {
        what: what.to_owned(),
        value,
        unit: unit.to_owned(),
        more,
        colour: None,
    };
    let (agree, differ, all) = found.tally();
    let mut cards = vec![card(
        "Cells run",
        format!("{}", found.done),
        &format!("of {}", found.cells),
        format!("{} settings, {} failed", found.groups.len(), found.failures.len()),
    )];
    if all > 0 {
        let more = format!("{differ} differ, {} not resolved", all - agree - differ);
        cards.push(card("Shape agrees", agree.to_string(), &format!("of {all} series"), more));
    }
    cards.push(card("Took", number(found.seconds), "s", "in all cells together".to_owned()));
    cards
}

/// Published and measured, relative to their first setting.
fn beside(series: &Comparison) -> Option<Figure> {
    let along = series.along.as_ref()?;
    let shape = &series.shape;
    let (_, first_published, first_measured) = shape.points.first()?;
    let base = first_measured.known()?.centre;
    if *first_published <= 0.0 || base <= 0.0 {
        return None;
    }
    let published = shape
        .points
        .iter()
        .enumerate()
        .map(|(at, (_, figure, _))| (at as f64, figure / first_published));
    let spans: Vec<Span> = shape
        .points
        .iter()
        .enumerate()
        .filter_map(|(at, (_, _, set))| {
            let set = set.known()?;
            let ends = set.whisker();
            let (y, low, high) = (set.centre / base, ends.low / base, ends.high / base);
            Some(Span { x: at as f64, y, low, high })
        })
        .collect();
    let labels: Vec<String> = shape.points.iter().map(|(label, ..)| label.clone()).collect();
    let first = format!("relative to {along} {}", labels[0]);
    let all: Vec<f64> = published
        .clone()
        .map(|(_, y)| y)
        .chain(spans.iter().flat_map(|span| [span.low, span.high]))
        .collect();
    let (low, high) = all
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(*value), high.max(*value)));
    let mut y = Axis::new(first);
    if low > 0.0 && high / low > WIDE {
        y = y.logarithmic();
    }
    let means = spans.iter().map(|span| (span.x, span.y)).collect::<Vec<_>>();
    let chart = Chart::new(&series.title, Axis::categories(along, labels), y)
        .described(&shape.words)
        .with(Series::line("published", published).colour(1))
        .with(Series::line("measured", means).colour(0))
        .with(Series::averages("measured", spans).colour(0).unlabelled());
    Some(Figure {
        title: capitalised(&series.title),
        colour: None,
        key: vec![
            ("shape".to_owned(), label(shape).to_owned()),
            ("published in".to_owned(), series.source.clone()),
        ],
        svg: chart.svg(),
        words: capitalised(&shape.words),
        notes: Vec::new(),
    })
}

fn label(shape: &Shape) -> &'static str {
    match shape.agreement {
        Agreement::Agrees => "agrees",
        Agreement::Consistent => "no contradiction",
        Agreement::Differs => "differs",
        Agreement::Unresolved => "not resolved",
    }
}

/// One chart per measure, along the axis with the most settings, one series per setting of the others.
fn measured(found: &Findings) -> Vec<Figure> {
    let settings = |axis: usize| {
        let mut labels: Vec<&str> = Vec::new();
        for group in &found.groups {
            if !labels.contains(&group.settings[axis].1.as_str()) {
                labels.push(&group.settings[axis].1);
            }
        }
        labels
    };
    let Some(along) = (0..found.axes.len()).rev().max_by_key(|axis| settings(*axis).len()) else {
        return Vec::new();
    };
    let labels = settings(along);
    if labels.len() < 2 {
        return Vec::new();
    }
    let mut figures = Vec::new();
    for (place, measure) in found.measures.iter().enumerate() {
        let mut series: Vec<(String, Vec<Span>)> = Vec::new();
        for group in &found.groups {
            let Some(set) = found.repeats(group, place) else { continue };
            let ends = set.whisker();
            let x = labels.iter().position(|label| *label == group.settings[along].1);
            let x = x.unwrap_or(0) as f64;
            let span = Span { x, y: set.centre, low: ends.low, high: ends.high };
            let others: Vec<&str> = group
                .settings
                .iter()
                .enumerate()
                .filter(|(axis, _)| *axis != along)
                .map(|(_, (_, label))| label.as_str())
                .collect();
            let name = others.join(" ");
            match series.iter_mut().find(|(known, _)| *known == name) {
                Some((_, spans)) => spans.push(span),
                None => series.push((name, vec![span])),
            }
        }
        if series.is_empty() || series.len() > MOST_SERIES {
            continue;
        }
        let names: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut chart = Chart::new(
            &measure.name,
            Axis::categories(&found.axes[along], names),
            Axis::new(&measure.name).unit(&measure.unit),
        );
        for (colour, (name, spans)) in series.into_iter().enumerate() {
            let line = spans.iter().map(|span| (span.x, span.y)).collect::<Vec<_>>();
            chart = chart
                .with(Series::line(&name, line).colour(colour))
                .with(Series::averages(name, spans).colour(colour).unlabelled());
        }
        figures.push(Figure {
            title: capitalised(&measure.name),
            colour: None,
            key: Vec::new(),
            svg: chart.svg(),
            words: String::new(),
            notes: Vec::new(),
        });
    }
    figures
}

fn steps(found: &Findings) -> Table {
    let mut table = Table::new([
        Column::words("series"),
        Column::words("step"),
        Column::words("published"),
        Column::words("measured"),
        Column::numbers("difference, 95 % interval"),
    ]);
    let says = |direction: Direction| match direction {
        Direction::Rises => "rises",
        Direction::Falls => "falls",
        Direction::Flat => "within rounding",
        Direction::Unresolved => "not resolved",
    };
    for series in &found.comparisons {
        for step in &series.shape.steps {
            table.row([
                series.title.clone(),
                format!("{} → {}", step.from, step.to),
                says(step.published).to_owned(),
                says(step.measured).to_owned(),
                step.difference.known().map_or_else(
                    || "–".to_owned(),
                    |interval| format!("{} to {}", number(interval.low), number(interval.high)),
                ),
            ]);
        }
    }
    table
}

fn growth(found: &Findings) -> Table {
    let mut table = Table::new([
        Column::words("setting"),
        Column::numbers("workers"),
        Column::numbers("rate").unit("examples/s"),
        Column::numbers("speed-up"),
        Column::numbers("95 % interval"),
        Column::numbers("efficiency").unit("%"),
    ]);
    for growth in &found.growth {
        for point in &growth.scaling.points {
            table.row([
                joined(&growth.settings),
                point.workers.to_string(),
                number(point.rate),
                number(point.speedup),
                point.ratio.known().map_or_else(
                    || "–".to_owned(),
                    |ratio| {
                        format!("{} to {}", number(ratio.interval.low), number(ratio.interval.high))
                    },
                ),
                format!("{:.0}", 100.0 * point.efficiency),
            ]);
        }
    }
    table
}

fn failures(found: &Findings) -> Table {
    let mut table =
        Table::new([Column::words("cell"), Column::numbers("exit"), Column::words("reason")]);
    for (cell, failure) in &found.failures {
        let exit = failure.exit.map_or_else(|| "signal".to_owned(), |code| code.to_string());
        table.row([cell.clone(), exit, failure.reason.clone()]);
    }
    table
}

/// Whether a scaled number is part of what was run, not only of generating data.
fn used(recipe: &Recipe, name: &str) -> bool {
    let run = format!("{:?} {:?} {:?}", recipe.arguments, recipe.flags, recipe.axis);
    format!("{run} {:?}", recipe.setup).contains(&format!("{{{name}}}"))
}

fn method(recipe: &Recipe, settings: &Settings, found: &Findings) -> Vec<String> {
    let mut lines = vec![format!(
        "Every cell is `paceline {}` in its own process; {} repeats of {} settings, each repeat in a random order with seed {}.",
        recipe.command.join(" "),
        settings.repeats.unwrap_or(recipe.repeats),
        found.groups.len(),
        settings.seed
    )];
    lines.push(
        "Intervals are 95 % of the typical value: rates, times and other amounts on a logarithmic scale, percentages within 0 and 100. \
         With fewer than three repeats the range is shown."
            .to_owned(),
    );
    if settings.scale < 1.0 {
        let numbers: Vec<String> = recipe
            .scaled
            .iter()
            // Sizes of synthetic data mean nothing if real data was found.
            .filter(|(name, _)| settings.found_data.is_none() || used(recipe, name))
            .map(|(name, scaled)| {
                format!("{name} {} instead of {}", scaled.at(settings.scale), scaled.at(1.0))
            })
            .collect();
        if !numbers.is_empty() {
            lines.push(format!("Scaled by {}: {}.", settings.scale, numbers.join(", ")));
        }
    }
    match (&settings.found_data, &recipe.data) {
        (Some(path), _) => lines.push(format!("Data: `{}`.", path.display())),
        (None, Some(_)) => {
            lines.push("Data: synthetic, in place of the published set.".to_owned());
        }
        (None, None) => {}
    }
    lines.extend(recipe.caveats.iter().map(|caveat| capitalised(caveat)));
    if !found.comparisons.is_empty() {
        lines.push(
            "Published figures were measured on other machines: only their shape is compared. A step counts if the 95 % interval of \
             the difference excludes zero; of many steps, one in twenty may do so by chance."
                .to_owned(),
        );
    }
    lines
}
