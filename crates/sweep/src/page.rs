//! A sweep as a page, as tables, as CSV: published figures beside measured ones, and where the shapes agree.

mod figures;
mod grid;

use crate::findings::{Findings, Group, Growth, joined};
use crate::grid::{SweepSettings, repeats_in_words};
use crate::hosts::WORDS;
use crate::recipe::Recipe;
use figures::{beside, curves, measured};
use paceline_report::csv::Csv;
use paceline_report::page::{Card, Figure, Page, Tone, capitalised};
use paceline_report::table::{Column, Table};
use paceline_stats::repeats::{Repeats, Spread};
use paceline_stats::shape::Direction;
use paceline_stats::words::number;

/// Most measures in one table; more make it too wide to read.
const MOST_MEASURES: usize = 3;
/// Most measures of which the ends are told in words; the tables have all.
const MOST_TOLD: usize = 4;

/// Most rows of a table that is read by the way; a longer one is behind a fold.
const MOST_ROWS: usize = 40;

/// What a dash in a table of settings says.
const DASH: &str = "A dash (–) in the column of a measure: not measured with this setting. As an interval: one measurement has none. \
                    As a published figure or a ratio: none was published for this setting.";

/// The whole page.
#[must_use]
pub fn html(recipe: &Recipe, settings: &SweepSettings, found: &Findings, footer: &str) -> String {
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
    let maps = grid::maps(found);
    if !maps.is_empty() {
        page.section("Two settings at once");
        page.figures(&maps);
    }
    let effects = grid::marginals(found);
    if !effects.is_empty() {
        page.section("What does each setting do on its own?");
        page.paragraph(
            "Every measurement against the mean over this setting, with the others the same: their effects cancel out. \
             Whiskers are 95 % intervals over repeats and the other settings.",
        );
        page.figures(&effects);
    }
    let plain = measured(found);
    if !maps.is_empty() {
        // The maps show the same; these add the spread.
        page.folded_figures("Measurements with their spread", &plain);
    } else if !plain.is_empty() {
        page.section("Measurements");
        page.figures(&plain);
    }
    if let Some(figures) = curves(found) {
        page.section("Scores on the test examples while training");
        page.paragraph("The first repeat of each setting.");
        page.figures(&figures);
    }
    page.section("All settings");
    let tables = tables(found);
    if has_dash(&tables) {
        page.remark(DASH);
    }
    for (title, table) in tables {
        if table.rows.len() > MOST_ROWS {
            let title = title.unwrap_or_else(|| "All measures".to_owned());
            page.folded_table(&format!("{title} of {} settings", table.rows.len()), &table);
            continue;
        }
        if let Some(title) = title {
            page.subsection(&title);
        }
        page.table(&table);
    }
    if !found.remarks.is_empty() {
        page.section("Cells to read with care");
        if found.disturbed > 0 {
            page.paragraph(&disturbed_words(found));
        }
        let table = remarks(found);
        match table.rows.len() {
            many if many > MOST_ROWS => page.folded_table(&format!("{many} remarks"), &table),
            _ => page.table(&table),
        }
    }
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
pub fn markdown(recipe: &Recipe, settings: &SweepSettings, found: &Findings) -> String {
    let mut out = format!("# {}\n\n{}\n\n**{}**\n\n", recipe.title, recipe.about, verdict(found).0);
    points(found).iter().for_each(|point| out.push_str(&format!("- {point}\n")));
    out.push_str("\n## All settings\n");
    let tables = tables(found);
    if has_dash(&tables) {
        out.push_str(&format!("\n{DASH}\n"));
    }
    for (title, table) in tables {
        let title = title.map_or_else(String::new, |title| format!("\n### {title}\n"));
        out.push_str(&format!("{title}\n{}", table.markdown()));
    }
    if !found.remarks.is_empty() {
        out.push_str("\n## Cells to read with care\n\n");
        if found.disturbed > 0 {
            out.push_str(&format!("{}\n\n", disturbed_words(found)));
        }
        out.push_str(&remarks(found).markdown());
    }
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
            "ratio",
            "failed",
            "disturbed",
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
            row.push(found.ratio(group, place).map_or_else(String::new, |ratio| ratio.to_string()));
            row.push(group.failed.to_string());
            row.push(group.disturbed.to_string());
            csv.row(&row);
        }
    }
    csv.finish()
}

/// Every setting with its measures, published figures and the ratio to them beside: one table where it can be read at a glance,
/// else one for each measure, with its title.
#[must_use]
pub fn tables(found: &Findings) -> Vec<(Option<String>, Table)> {
    let all: Vec<usize> = (0..found.measures.len()).collect();
    if all.len() <= MOST_MEASURES {
        return vec![(None, table(found, &all))];
    }
    all.into_iter()
        .map(|place| (Some(capitalised(&found.measures[place].name)), table(found, &[place])))
        .filter(|(_, table)| !table.rows.is_empty())
        .collect()
}

fn has_dash(tables: &[(Option<String>, Table)]) -> bool {
    tables.iter().flat_map(|(_, table)| table.rows.iter().flatten()).any(|cell| cell == "–")
}

fn table(found: &Findings, places: &[usize]) -> Table {
    let mut columns: Vec<Column> = found.axes.iter().map(Column::words).collect();
    for &place in places {
        let measure = &found.measures[place];
        columns.push(Column::numbers(&measure.name).unit(&measure.unit));
        columns.push(Column::numbers("95 % interval"));
        if has_published(found, place) {
            columns.push(Column::numbers("published").unit(&measure.unit));
            columns.push(Column::numbers("measured / published"));
        }
    }
    columns.push(Column::numbers("n"));
    let mut table = Table::new(columns);
    let dash = || "–".to_owned();
    for group in &found.groups {
        let is_empty =
            |place: &usize| group.values[*place].is_empty() && group.published[*place].is_none();
        // A setting may not have what a table is about: a third worker, say.
        if found.measures.len() > MOST_MEASURES && group.failed == 0 && places.iter().all(is_empty)
        {
            continue;
        }
        let mut row: Vec<String> = group.settings.iter().map(|(_, label)| label.clone()).collect();
        for &place in places {
            match found.repeats(group, place) {
                Some(set) => row.extend([number(set.centre), set.spread.words()]),
                None => row.extend([dash(), dash()]),
            }
            if has_published(found, place) {
                row.push(group.published[place].map_or_else(dash, number));
                row.push(found.ratio(group, place).map_or_else(dash, number));
            }
        }
        row.push(count(group, places));
        table.row(row);
    }
    table
}

fn count(group: &Group, places: &[usize]) -> String {
    let n = places.iter().map(|place| group.values[*place].len()).max().unwrap_or(0);
    let parts: Vec<String> = [(group.failed, "failed"), (group.disturbed, "disturbed")]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if parts.is_empty() { n.to_string() } else { format!("{n} ({})", parts.join(", ")) }
}

/// What single cells have to say about their figures.
fn remarks(found: &Findings) -> Table {
    let mut table = Table::new([Column::words("cell"), Column::words("remark")]);
    found.remarks.iter().for_each(|(cell, remark)| table.row([cell, remark]));
    table
}

fn disturbed_words(found: &Findings) -> String {
    format!(
        "Others took cores from {} of {} cells while they ran, by the cells' own verdicts: their times say something about those others too. \
         `--retry-disturbed` measures them again.",
        found.disturbed, found.done
    )
}

fn has_published(found: &Findings, place: usize) -> bool {
    found.groups.iter().any(|group| group.published[place].is_some())
}

fn verdict(found: &Findings) -> (String, Tone) {
    let (agree, differ, all) = found.tally();
    let missing = found.cells - found.done;
    let tone = if found.failures.len() == found.cells && found.cells > 0 {
        Tone::Bad
    } else if differ > 0 || !found.failures.is_empty() || missing > 0 || found.disturbed > 0 {
        Tone::Doubtful
    } else {
        Tone::Good
    };
    let mut sentence = match (agree, differ, all) {
        (_, _, 0) => format!("{} settings measured", found.groups.len()),
        (1, 0, 1) => "The shape of the published series is reproduced".to_owned(),
        (2, 0, 2) => "The shape of both published series is reproduced".to_owned(),
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
    if found.disturbed > 0 {
        sentence.push_str(&format!("; {} cells were disturbed by others", found.disturbed));
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
        points.push(growth_words(growth));
    }
    points.extend(grid::best_words(found).into_iter().take(MOST_TOLD));
    if found.comparisons.is_empty() {
        // Where one end is the good one, the best has been named.
        let plain = (0..found.measures.len()).filter(|at| found.measures[*at].better().is_none());
        points.extend(plain.filter_map(|place| extremes(found, place)).take(MOST_TOLD));
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
    // What did not vary over the repeats is known as it is: a count of updates, say.
    let known = |set: &Repeats| {
        matches!(set.spread, Spread::Interval(_) | Spread::Constant).then(|| set.whisker())
    };
    let sure = match (known(low), known(high)) {
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

/// How a job scales, with the settings it is about.
#[must_use]
pub fn growth_words(growth: &Growth) -> String {
    let mut about = joined(&growth.settings);
    if growth.batch_per_worker {
        let each = "the same batch for every worker";
        about = if about.is_empty() { each.to_owned() } else { format!("{about}, {each}") };
    }
    if about.is_empty() {
        growth.scaling.words.clone()
    } else {
        format!("{about}: {}", growth.scaling.words)
    }
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
        Direction::Flat => "stays",
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
            let each = if growth.batch_per_worker { " (batch per worker)" } else { "" };
            table.row([
                format!("{}{each}", joined(&growth.settings)),
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

fn method(recipe: &Recipe, settings: &SweepSettings, found: &Findings) -> Vec<String> {
    let mut lines = vec![format!(
        "Every cell is `{}{}` in its own process; {} of {} settings, each repeat in a random order with seed {}.",
        if recipe.program.is_some() { "" } else { "paceline " },
        recipe.command.join(" "),
        repeats_in_words(settings.repeats.unwrap_or(recipe.repeats)),
        found.groups.len(),
        settings.seed
    )];
    lines.push(
        "Intervals are 95 % of the typical value: rates, times and other amounts on a logarithmic scale, percentages within 0 and 100. \
         With fewer than three repeats the range is shown."
            .to_owned(),
    );
    if settings.hosts {
        lines.push(WORDS.to_owned());
    }
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
    if !recipe.sources.is_empty() {
        lines.push(format!("Published in: {} (see `docs/sources.md`).", recipe.sources.join("; ")));
    }
    for published in recipe.published.iter().filter(|series| !series.doubt.is_empty()) {
        let (place, cited) = (capitalised(&published.place()), published.cited());
        lines.push(format!("{place} ({cited}): {}.", published.doubt));
    }
    if !found.comparisons.is_empty() {
        lines.push(
            "Published figures were measured on other machines: their ratio to ours says how machines differ, and only their shape is compared. \
             A step counts if the 95 % interval of the difference excludes zero; of many steps, one in twenty may do so by chance. Where \
             published figures stay the same, an equivalence test (two one-sided tests at 5 %) asks whether ours do, within the margin that \
             is named."
                .to_owned(),
        );
    }
    lines
}

#[cfg(test)]
mod tests;
