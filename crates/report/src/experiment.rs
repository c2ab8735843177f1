//! The findings of an experiment as a page, as tables, as CSV.
//!
//! Verdict and key figures first, then one row of charts per parameter with the groups side by side, then the numbers behind
//! them. It can be read in print and without colours.

use paceline_stats::experiment::{
    Experiment, Findings, Group, GroupFindings, Parameter, ParameterFinding, RatioFinding,
};
use paceline_stats::words::{Evidence, grouped, number, p_equals, p_value, signed};
use paceline_stats::{Doubt, Estimate, Interval, WordedDoubt};
use std::collections::BTreeSet;

use crate::chart::{Axis, Chart, Series, Span};
use crate::csv::Csv;
use crate::page::{Card, Figure, Page, Tone, capitalised};
use crate::table::{Column, Table};

/// What the page says around the findings.
#[derive(Debug, Clone, Default)]
pub struct Context {
    pub title: String,
    /// One line below it: how much was measured, under which conditions.
    pub lead: String,
    /// Key figures beside those of the groups.
    pub cards: Vec<Card>,
    /// How it was measured, in sentences.
    pub method: Vec<String>,
    /// Settings, as (name, value).
    pub settings: Vec<(String, String)>,
    /// Last line of the page.
    pub footer: String,
}

/// The whole page.
pub fn page(experiment: &Experiment, findings: &Findings, context: &Context) -> String {
    let mut page = Page::new(&context.title, &context.lead);
    let (sentence, points) = verdict(findings);
    page.verdict(tone(findings), &sentence, &points);
    let mut cards: Vec<Card> = findings
        .groups
        .iter()
        .enumerate()
        .map(|(place, group)| group_card(group, place, &findings.unit))
        .collect();
    cards.extend(findings.ratios.iter().filter_map(|finding| {
        let ratio = finding.ratio.known()?;
        Some(Card {
            what: capitalised(&format!("{} against {}", finding.first, finding.second)),
            value: format!("{}×", number(ratio.value)),
            unit: String::new(),
            more: format!("95 % interval {}", range(ratio.interval)),
            colour: None,
        })
    }));
    cards.extend(context.cards.iter().cloned());
    page.cards(&cards);
    let mut said = BTreeSet::new();
    page.notes(&notes(&findings.doubts));
    for group in &findings.groups {
        let named: Vec<(String, String)> = notes(&group.doubts)
            .into_iter()
            .map(|(what, advice)| (format!("{}: {what}", group.name), advice))
            .collect();
        page.notes(&named);
    }
    for finding in findings.ratios.iter().filter(|finding| !finding.settings.is_empty()) {
        page.section(&capitalised(&format!("{} against {}", finding.first, finding.second)));
        page.table(&ratio_table(findings, finding));
    }
    for (index, parameter) in findings.parameters.iter().enumerate() {
        page.section(&format!("Speed by {}", parameter.name));
        let mut figures: Vec<Figure> = figures(experiment, findings, index, parameter);
        figures.iter_mut().for_each(|figure| figure.notes = once(&mut said, &figure.notes));
        page.figures(&figures);
        page.table(&averages_table(findings, index));
    }
    page.section("All slopes");
    page.remark(
        "One straight line per parameter. p says how often chance alone would give a slope at least this steep if the parameter \
         had no influence: a small p is evidence of an influence; a large p is a lack of evidence, not evidence of no influence.",
    );
    page.table(&regression_table(findings));
    page.section("All parameters at once");
    page.remark(
        "One regression on all parameters: what each does while the others are held fixed.",
    );
    for group in &findings.groups {
        page.subsection(&capitalised(&group.name));
        page.list(&group.multiple_words.iter().map(|words| capitalised(words)).collect::<Vec<_>>());
        if let Some(table) = multiple_table(group) {
            page.table(&table);
        }
    }
    page.section("How it was measured");
    page.list(&context.method);
    let mut settings = Table::new([Column::words("setting"), Column::words("value")]);
    context.settings.iter().for_each(|(name, value)| settings.row([name, value]));
    page.table(&settings);
    page.footer(&context.footer);
    page.html()
}

/// The finding in one sentence, and what each group adds to it.
pub fn verdict(findings: &Findings) -> (String, Vec<String>) {
    let sentence = match findings.ratios.first() {
        Some(finding) => capitalised(&finding.words),
        None => findings.groups.first().map_or_else(String::new, |group| match &group.summary {
            Estimate::Known(summary) => format!(
                "{}: {} {} in the median of {} measurements",
                capitalised(&group.name),
                number(summary.median),
                findings.unit,
                summary.n
            ),
            Estimate::Unknown { not_estimable } => {
                format!("{}: {not_estimable}", capitalised(&group.name))
            }
        }),
    };
    (
        sentence,
        findings.groups.iter().map(|group| group_verdict(group, &findings.parameters)).collect(),
    )
}

/// Which parameters move a group, in a sentence. Parameters made of others are left to their own section.
fn group_verdict(group: &GroupFindings, parameters: &[Parameter]) -> String {
    let derived = |finding: &ParameterFinding| {
        finding.doubts.iter().any(|worded| matches!(worded.doubt, Doubt::Product { .. }))
    };
    let mut moves = Vec::new();
    let mut weak = Vec::new();
    let mut silent = Vec::new();
    for (finding, parameter) in
        group.parameters.iter().zip(parameters).filter(|(finding, _)| !derived(finding))
    {
        let Some(fit) = finding.line.known() else { continue };
        let way = if fit.slope.value > 0.0 { "rises" } else { "falls" };
        let said = format!("{way} with {} ({})", parameter.name, p_equals(fit.p));
        // The same classes as in the table of all slopes: a headline must not say less or more than its row.
        match Evidence::of(fit.p) {
            Evidence::None => silent.push(parameter.name.clone()),
            Evidence::Weak => weak.push(said),
            Evidence::Some | Evidence::Clear | Evidence::Strong => moves.push(said),
        }
    }
    let mut parts = Vec::new();
    if !moves.is_empty() {
        parts.push(format!("speed {}", moves.join(", ")));
    }
    if !weak.is_empty() {
        parts.push(format!("weak evidence that it {}", weak.join(", ")));
    }
    if !silent.is_empty() {
        parts.push(format!("no evidence that {} matters", or_list(&silent)));
    }
    if parts.is_empty() {
        parts.push("no parameter was varied".to_owned());
    }
    format!("{}: {}", capitalised(&group.name), parts.join("; "))
}

fn or_list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

fn tone(findings: &Findings) -> Tone {
    let decided = findings
        .ratios
        .iter()
        .all(|finding| finding.ratio.known().is_some_and(|ratio| !ratio.interval.contains(1.0)));
    let quiet = findings.groups.iter().all(|group| {
        !group.doubts.iter().any(|worded| {
            matches!(
                worded.doubt,
                Doubt::Drift { .. } | Doubt::Outliers { .. } | Doubt::FewRepeats { .. }
            )
        })
    });
    if decided && quiet { Tone::Good } else { Tone::Doubtful }
}

fn group_card(group: &GroupFindings, place: usize, unit: &str) -> Card {
    let (value, more) = match &group.summary {
        Estimate::Known(summary) => (
            number(summary.median),
            format!("median of {}; {} to {}", summary.n, number(summary.min), number(summary.max)),
        ),
        Estimate::Unknown { not_estimable } => ("–".to_owned(), not_estimable.to_string()),
    };
    Card { what: capitalised(&group.name), value, unit: unit.to_owned(), more, colour: Some(place) }
}

fn notes(doubts: &[WordedDoubt]) -> Vec<(String, String)> {
    doubts.iter().map(|worded| (worded.message.clone(), worded.advice.clone())).collect()
}

/// Caveats that were not made before on the page, and what to do about each kind of them once.
fn once(said: &mut BTreeSet<String>, notes: &[(String, String)]) -> Vec<(String, String)> {
    let mut kept = Vec::new();
    for (what, advice) in notes {
        if said.insert(what.clone()) {
            let new = said.insert(advice.clone());
            kept.push((what.clone(), if new { advice.clone() } else { String::new() }));
        }
    }
    kept
}

fn figures(
    experiment: &Experiment,
    findings: &Findings,
    index: usize,
    parameter: &Parameter,
) -> Vec<Figure> {
    let tops: Vec<f64> = experiment
        .groups
        .iter()
        .map(|group| {
            group.observations.iter().map(|observation| observation.response).fold(0.0, f64::max)
        })
        .collect();
    let (least, most) = tops
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), &top| (least.min(top), most.max(top)));
    // Groups of similar size share their vertical scale, so that they can be compared; a far slower one would be a flat line.
    let shared = (most < 3.0 * least).then_some(most * 1.06);
    experiment
        .groups
        .iter()
        .zip(&findings.groups)
        .enumerate()
        .map(|(place, (group, found))| {
            let finding = &found.parameters[index];
            let mut chart_notes = notes(&finding.doubts);
            if shared.is_none() && place > 0 {
                let note =
                    "the vertical scale differs from that of the neighbouring chart".to_owned();
                chart_notes.push((note, "compare the numbers, not the heights".to_owned()));
            }
            Figure {
                title: capitalised(&group.name),
                colour: Some(place),
                key: key_numbers(finding, &findings.unit),
                svg: scatter(group, finding, (index, parameter), place, &findings.unit, shared)
                    .svg(),
                words: format!("{}.", capitalised(&finding.words)),
                notes: chart_notes,
            }
        })
        .collect()
}

fn key_numbers(finding: &ParameterFinding, unit: &str) -> Vec<(String, String)> {
    let Some(fit) = finding.line.known() else { return Vec::new() };
    vec![
        ("slope".to_owned(), format!("{} {unit}", signed(fit.slope.value))),
        ("R".to_owned(), signed_two(fit.r)),
        ("p".to_owned(), p_value(fit.p)),
        ("n".to_owned(), fit.n.to_string()),
    ]
}

/// Measurements, their averages with intervals, and the fitted line with its band.
fn scatter(
    group: &Group,
    finding: &ParameterFinding,
    (index, parameter): (usize, &Parameter),
    colour: usize,
    unit: &str,
    top: Option<f64>,
) -> Chart {
    let values: Vec<f64> = finding.levels.iter().map(|level| level.value).collect();
    let span = values.last().copied().unwrap_or(1.0) - values.first().copied().unwrap_or(0.0);
    let points = group.observations.iter().enumerate().map(|(place, observation)| {
        (observation.values[index] + sideways(place) * span, observation.response)
    });
    let mut y = Axis::new("").unit(unit).from_zero();
    y.range = top.map(|top| (0.0, top));
    let mut chart = Chart::new(
        format!("{} by {}", capitalised(&group.name), parameter.name),
        Axis::new(&parameter.name).ticks_at(values.clone()),
        y,
    )
    .described(&finding.words)
    .with(Series::points(&group.name, points).colour(colour).unlabelled());
    if let Some(fit) = finding.line.known() {
        let places = (0..=24).map(|step| {
            fit.range_x.low + (fit.range_x.high - fit.range_x.low) * f64::from(step) / 24.0
        });
        let band = places.map(|x| {
            let Interval { low, high } = fit.band_at(x);
            Span { x, y: fit.at(x), low, high }
        });
        let ends = [fit.range_x.low, fit.range_x.high].map(|x| (x, fit.at(x)));
        chart = chart.with(Series::band(&group.name, band).colour(colour));
        chart = chart.with(Series::line(&group.name, ends).colour(colour).unlabelled());
    }
    let averages = finding.levels.iter().map(|level| {
        let Interval { low, high } = level.repeats.whisker();
        Span { x: level.value, y: level.repeats.centre, low, high }
    });
    chart.with(Series::averages(&group.name, averages).colour(colour).unlabelled())
}

/// A small deterministic jitter (within ±1.5 % of the range), so that equal settings do not hide each other.
fn sideways(place: usize) -> f64 {
    let golden = (place as f64 * 0.618_033_988_749_895).fract();
    (golden - 0.5) * 0.03
}

fn range(interval: Interval) -> String {
    format!("{} to {}", number(interval.low), number(interval.high))
}

fn signed_two(value: f64) -> String {
    grouped(value, 2)
}

/// Slope, intercept, R, p and interval of every line.
pub fn regression_table(findings: &Findings) -> Table {
    let unit = &findings.unit;
    let mut table = Table::new([
        Column::words("source"),
        Column::words("parameter"),
        Column::numbers("slope").unit(format!("{unit} per step")),
        Column::numbers("95 % interval"),
        Column::numbers("intercept").unit(unit),
        Column::numbers("R"),
        Column::numbers("p"),
        Column::numbers("n"),
        Column::words("evidence of a slope"),
    ]);
    for group in &findings.groups {
        for (finding, parameter) in group.parameters.iter().zip(&findings.parameters) {
            let start = [group.name.clone(), parameter.name.clone()];
            let rest = match &finding.line {
                Estimate::Known(fit) => [
                    signed(fit.slope.value),
                    format!(
                        "{} to {}",
                        signed(fit.slope.interval.low),
                        signed(fit.slope.interval.high)
                    ),
                    number(fit.intercept.value),
                    signed_two(fit.r),
                    p_value(fit.p),
                    fit.n.to_string(),
                    Evidence::of(fit.p).label().to_owned(),
                ],
                Estimate::Unknown { not_estimable } => {
                    let dash = || "–".to_owned();
                    [dash(), dash(), dash(), dash(), dash(), dash(), not_estimable.to_string()]
                }
            };
            table.row(start.into_iter().chain(rest));
        }
    }
    table
}

/// Averages per value of one parameter, groups side by side.
pub fn averages_table(findings: &Findings, parameter: usize) -> Table {
    let mut columns = vec![Column::words(capitalised(&findings.parameters[parameter].name))];
    for group in &findings.groups {
        let typical = format!("{}, geometric mean", group.name);
        columns.push(Column::numbers(typical).unit(&findings.unit));
        columns.push(Column::numbers("95 % interval"));
        columns.push(Column::numbers("median"));
        columns.push(Column::numbers("n"));
    }
    let mut values: Vec<f64> = findings
        .groups
        .iter()
        .flat_map(|group| &group.parameters[parameter].levels)
        .map(|level| level.value)
        .collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let mut table = Table::new(columns);
    for value in values {
        let mut row = vec![plain(value)];
        for group in &findings.groups {
            match group.parameters[parameter].levels.iter().find(|level| level.value == value) {
                Some(level) => row.extend([
                    number(level.repeats.centre),
                    level.repeats.spread.words(),
                    number(level.repeats.median),
                    level.repeats.n.to_string(),
                ]),
                None => row.extend((0..4).map(|_| "–".to_owned())),
            }
        }
        table.row(row);
    }
    table
}

/// How many times faster the first of two groups was, setting by setting.
pub fn ratio_table(findings: &Findings, finding: &RatioFinding) -> Table {
    let mut columns: Vec<Column> = findings
        .parameters
        .iter()
        .filter(|parameter| parameter.setting)
        .map(|parameter| Column::numbers(&parameter.name))
        .collect();
    columns.extend([
        Column::numbers("ratio"),
        Column::numbers("95 % interval"),
        Column::numbers("n"),
    ]);
    let mut table = Table::new(columns).captioned(format!(
        "Speed of {} over that of {}, geometric means of the repeats. Intervals need three repeats of both.",
        finding.first, finding.second
    ));
    for setting in &finding.settings {
        let mut row: Vec<String> = setting.values.iter().copied().map(plain).collect();
        let interval = setting.interval.known();
        row.push(number(setting.value));
        row.push(interval.map_or_else(|| "–".to_owned(), |interval| range(*interval)));
        row.push(format!("{} and {}", setting.n.0, setting.n.1));
        table.row(row);
    }
    table
}

/// The terms of a group's multiple regression, if it has one.
pub fn multiple_table(group: &GroupFindings) -> Option<Table> {
    let fit = group.multiple.known()?;
    let mut table = Table::new([
        Column::words("parameter"),
        Column::numbers("coefficient"),
        Column::numbers("95 % interval"),
        Column::numbers("standard error"),
        Column::numbers("t"),
        Column::numbers("p"),
        Column::numbers("variance inflation"),
    ]);
    let row = |name: &str, term: &paceline_stats::Term| {
        [
            name.to_owned(),
            signed(term.coefficient.value),
            format!(
                "{} to {}",
                signed(term.coefficient.interval.low),
                signed(term.coefficient.interval.high)
            ),
            number(term.coefficient.standard_error),
            term.t.map_or_else(|| "–".to_owned(), number),
            p_value(term.p),
            number(term.variance_inflation),
        ]
    };
    for named in &fit.terms {
        match &named.estimate {
            Estimate::Known(term) => table.row(row(&named.name, term)),
            Estimate::Unknown { not_estimable } => {
                table.row([named.name.clone(), not_estimable.to_string()]);
            }
        }
    }
    table.row(row("intercept", &fit.intercept));
    let f = fit.f.map_or_else(String::new, |f| format!(", F = {}", number(f)));
    Some(table.captioned(format!(
        "n = {}, R² = {:.3}, adjusted {:.3}{f}, {}; residual standard error {}",
        fit.n,
        fit.r_squared,
        fit.adjusted_r_squared,
        p_equals(fit.f_p),
        number(fit.residual_standard_error)
    )))
}

/// The findings as Markdown.
pub fn markdown(findings: &Findings, context: &Context) -> String {
    let (sentence, points) = verdict(findings);
    let mut out = format!("# {}\n\n{}\n\n**{sentence}**\n\n", context.title, context.lead);
    points.iter().for_each(|point| out.push_str(&format!("- {point}\n")));
    for finding in findings.ratios.iter().filter(|finding| !finding.settings.is_empty()) {
        out.push_str(&format!(
            "\n## {} against {}\n\n{}",
            capitalised(&finding.first),
            finding.second,
            ratio_table(findings, finding).markdown()
        ));
    }
    out.push_str(&format!("\n## All slopes\n\n{}", regression_table(findings).markdown()));
    for group in &findings.groups {
        if let Some(table) = multiple_table(group) {
            out.push_str(&format!(
                "\n## All parameters at once: {}\n\n{}",
                group.name,
                table.markdown()
            ));
        }
    }
    out.push_str("\n## How it was measured\n\n");
    context.method.iter().for_each(|line| out.push_str(&format!("- {line}\n")));
    out
}

/// Every line's numbers at full precision, for other programs; empty cells where nothing can be estimated.
pub fn regression_csv(findings: &Findings) -> String {
    let mut csv = Csv::new(&[
        "source",
        "parameter",
        "n",
        "slope",
        "slope_standard_error",
        "slope_low",
        "slope_high",
        "intercept",
        "intercept_standard_error",
        "intercept_low",
        "intercept_high",
        "r",
        "p",
        "residual_standard_error",
    ]);
    for group in &findings.groups {
        for finding in &group.parameters {
            let numbers: Vec<String> = match finding.line.known() {
                Some(fit) => {
                    let of = |c: &paceline_stats::Coefficient| {
                        [c.value, c.standard_error, c.interval.low, c.interval.high]
                    };
                    let (slope, intercept) = (of(&fit.slope), of(&fit.intercept));
                    let rest = [fit.r, fit.p, fit.residual_standard_error];
                    let all = slope
                        .iter()
                        .chain(&intercept)
                        .chain(&rest)
                        .map(|value| format!("{value:e}"));
                    std::iter::once(fit.n.to_string()).chain(all).collect()
                }
                None => vec![String::new(); 12],
            };
            let row: Vec<String> = [group.name.clone(), finding.parameter.clone()]
                .into_iter()
                .chain(numbers)
                .collect();
            csv.row(&row);
        }
    }
    csv.finish()
}

/// A parameter's value as it was typed.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value:.0}") } else { number(value) }
}

#[cfg(test)]
mod tests;
