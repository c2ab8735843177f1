//! Training runs as one page: the verdict first, then curves, time, resources, workers.

use crate::comparison::{against_first, caption};
use crate::csv::Csv;
use crate::curves;
use crate::page::{Card, Page, Tone};
use crate::table::{Column, Table};
use crate::tasks;
use crate::timeline;
use paceline_runs::Status;
use paceline_stats::scaling::{Rates, Scaling, scaling};
use std::collections::BTreeSet;

pub use paceline_runs::RunView;

/// Makes the names of runs unique, by the settings in which they differ.
fn distinct(runs: &[RunView]) -> Vec<String> {
    let repeats = |name: &str| runs.iter().filter(|run| run.name == name).count() > 1;
    runs.iter()
        .map(|run| {
            if !repeats(&run.name) {
                return run.name.clone();
            }
            let batches: BTreeSet<u64> = runs
                .iter()
                .filter(|other| other.name == run.name)
                .map(|other| other.summary.global_batch)
                .collect();
            if batches.len() > 1 {
                format!("{} b{}", run.name, run.summary.global_batch)
            } else {
                run.summary.run.clone()
            }
        })
        .collect()
}

/// Adds everything about some runs to a page.
pub fn describe(page: &mut Page, runs: &[RunView]) {
    let names = distinct(runs);
    verdicts(page, runs, &names);
    cards(page, runs, &names);
    page.section("Runs");
    page.table(&overview(runs, &names));
    page.section("Learning");
    page.figures(&curves::learning(runs, &names));
    page.section("Where the time went");
    page.figures(&curves::time(runs, &names));
    let figures = timeline::resources(runs, &names);
    if !figures.is_empty() {
        page.section("Resource use");
        page.figures(&figures);
    }
    let growth = scaling_of(runs);
    if !growth.is_empty() {
        page.section("Scaling with workers");
        growth.iter().for_each(|job| page.table(&scaling_table(job)));
    }
    if runs.iter().any(|run| run.summary.workers.len() > 1) {
        page.section("Workers");
        page.table(&tasks::workers(runs, &names));
        page.figures(&tasks::staleness(runs, &names).into_iter().collect::<Vec<_>>());
    }
    if runs.iter().any(|run| !run.summary.tasks.is_empty()) {
        page.section("Machines (averages)");
        page.table(&tasks::machines(runs, &names));
    }
    let warnings: Vec<String> = runs
        .iter()
        .zip(&names)
        .flat_map(|(run, name)| run.summary.warnings.iter().map(move |w| format!("{name}: {w}")))
        .collect();
    if !warnings.is_empty() {
        page.section("Warnings");
        page.list(&warnings);
    }
    if let Some(machine) = runs.iter().find_map(|run| run.machine.as_ref()) {
        page.remark(&format!(
            "Measured on {}: {}, {} cores ({}), {:.1} GiB of memory, {}, Linux {}, Paceline {}. Unless runs were repeated, small \
             differences may be noise.",
            machine.host,
            machine.cpu,
            machine.cores,
            machine.cores_decided_by,
            machine.memory_bytes as f64 / f64::from(1u32 << 30),
            machine.isa,
            machine.kernel,
            machine.version
        ));
    }
}

/// Verdicts and the table of runs, for a README or a mail.
#[must_use]
pub fn markdown(runs: &[RunView]) -> String {
    let names = distinct(runs);
    let mut text = String::new();
    for (run, name) in runs.iter().zip(&names) {
        text.push_str(&format!("- {name}: {}\n", run.summary.verdict));
    }
    text.push('\n');
    text.push_str(&overview(runs, &names).markdown());
    text
}

/// One line per run at full precision, for other programs; empty cells where nothing is known.
#[must_use]
pub fn csv(runs: &[RunView]) -> String {
    let mut csv = Csv::new(&[
        "run",
        "model",
        "strategy",
        "workers",
        "global_batch",
        "seed",
        "global_steps",
        "examples",
        "seconds",
        "examples_per_second",
        "train_loss",
        "test_loss",
        "test_accuracy",
        "share_input",
        "share_compute",
        "share_exchange",
        "share_wait",
        "sent_bytes",
        "received_bytes",
        "step_seconds",
        "state",
        "verdict",
    ]);
    let number = |value: f64| if value.is_finite() { value.to_string() } else { String::new() };
    for run in runs {
        let summary = &run.summary;
        csv.row(&[
            summary.run.clone(),
            summary.model.clone(),
            summary.strategy.clone(),
            summary.workers.len().max(1).to_string(),
            summary.global_batch.to_string(),
            summary.seed.to_string(),
            summary.global_steps.to_string(),
            summary.examples.to_string(),
            number(summary.seconds),
            number(summary.examples_per_second),
            number(summary.last.train_loss),
            number(summary.last.test_loss),
            number(summary.last.test_accuracy),
            number(summary.phases.input),
            number(summary.phases.compute),
            number(summary.phases.exchange),
            number(summary.phases.wait),
            summary.traffic.sent_bytes.to_string(),
            summary.traffic.received_bytes.to_string(),
            number(summary.step_seconds),
            run.state.clone(),
            summary.verdict.clone(),
        ]);
    }
    csv.finish()
}

fn verdicts(page: &mut Page, runs: &[RunView], names: &[String]) {
    let mut points: Vec<String> = Vec::new();
    for (run, name) in runs.iter().zip(names) {
        let words = &run.summary.verdict;
        if runs.len() == 1 {
            points.push(words.clone());
            points.extend_from_slice(run.evidence());
        } else {
            points.push(format!("{name}: {words}"));
        }
    }
    points.extend(scaling_of(runs).iter().map(Growth::words));
    let failed = runs.iter().filter(|run| run.summary.status == Status::Failed).count();
    let sentence =
        if runs.len() == 1 { "Where the time went" } else { "Where the time went, per run" };
    let tone = if failed > 0 { Tone::Bad } else { Tone::Good };
    page.verdict(tone, sentence, &points);
}

/// How one job scales with its workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// The job: model and strategy.
    pub name: String,
    pub scaling: Scaling,
}

impl Growth {
    /// The finding in a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{}: {}", self.name, self.scaling.words)
    }
}

/// How jobs scale with their workers: runs that differ in nothing but workers and seed belong to one job.
#[must_use]
pub fn scaling_of(runs: &[RunView]) -> Vec<Growth> {
    let mut jobs: Vec<Vec<&RunView>> = Vec::new();
    for run in runs.iter().filter(|run| run.summary.status == Status::Done) {
        match jobs.iter_mut().find(|job| job[0].settings.differ_in_workers(&run.settings)) {
            Some(job) => job.push(run),
            None => jobs.push(vec![run]),
        }
    }
    let rates = |run: &&RunView| Rates {
        workers: run.summary.workers.len().max(1) as u64,
        rates: vec![run.summary.examples_per_second],
    };
    jobs.iter()
        .filter_map(|job| {
            let scaling = scaling(&job.iter().map(rates).collect::<Vec<_>>())?;
            Some(Growth { name: job[0].name.clone(), scaling })
        })
        .collect()
}

fn scaling_table(found: &Growth) -> Table {
    let mut table = Table::new([
        Column::numbers("workers"),
        Column::numbers("rate").unit("examples/s"),
        Column::numbers("speed-up"),
        Column::numbers("efficiency").unit("%"),
    ])
    .captioned(found.words());
    for point in &found.scaling.points {
        table.row([
            point.workers.to_string(),
            grouped(point.rate),
            format!("{:.2}", point.speedup),
            format!("{:.0}", 100.0 * point.efficiency),
        ]);
    }
    table
}

fn fastest(runs: &[RunView]) -> Option<usize> {
    (0..runs.len()).max_by(|a, b| {
        let rate = |index: &usize| runs[*index].summary.examples_per_second;
        rate(a).total_cmp(&rate(b))
    })
}

fn cards(page: &mut Page, runs: &[RunView], names: &[String]) {
    let mut cards = Vec::new();
    if let Some(index) = fastest(runs) {
        cards.push(Card {
            what: if runs.len() > 1 { "Fastest" } else { "Rate" }.to_owned(),
            value: grouped(runs[index].summary.examples_per_second),
            unit: "examples/s".to_owned(),
            more: names[index].clone(),
            colour: Some(index),
        });
    }
    let accurate = (0..runs.len())
        .filter(|index| runs[*index].summary.last.test_accuracy.is_finite())
        .max_by(|a, b| {
            let accuracy = |index: &usize| runs[*index].summary.last.test_accuracy;
            accuracy(a).total_cmp(&accuracy(b))
        });
    if let Some(index) = accurate {
        cards.push(Card {
            what: if runs.len() > 1 { "Most accurate" } else { "Accuracy" }.to_owned(),
            value: format!("{:.2}", 100.0 * runs[index].summary.last.test_accuracy),
            unit: "% of held-out examples".to_owned(),
            more: names[index].clone(),
            colour: Some(index),
        });
    }
    let seconds: f64 = runs.iter().map(|run| run.summary.seconds).sum();
    cards.push(Card {
        what: "Trained for".to_owned(),
        value: format!("{seconds:.1}"),
        unit: "s in total".to_owned(),
        more: if runs.len() == 1 { "one run".to_owned() } else { format!("{} runs", runs.len()) },
        colour: None,
    });
    page.cards(&cards);
}

/// A rate as people read it.
fn grouped(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digit.is_ascii_digit() {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn decimal(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { "–".to_owned() }
}

fn overview(runs: &[RunView], names: &[String]) -> Table {
    // One run has no other to be compared with.
    let several = runs.len() > 1;
    let mut columns = vec![
        Column::words("run"),
        Column::words("ended"),
        Column::numbers("workers"),
        Column::numbers("global batch"),
        Column::numbers("steps"),
        Column::numbers("time").unit("s"),
        Column::numbers("rate").unit("examples/s"),
    ];
    if several {
        columns.extend([
            Column::numbers("relative to the first"),
            Column::numbers("interval").unit("95 %"),
        ]);
    }
    columns.extend([
        Column::numbers("training loss"),
        Column::numbers("test loss"),
        Column::numbers("test accuracy").unit("%"),
    ]);
    let mut table = Table::new(columns);
    let against = against_first(runs);
    let words = caption(&against);
    if !words.is_empty() {
        table = table.captioned(words);
    }
    for ((run, name), against) in runs.iter().zip(names).zip(against) {
        let summary = &run.summary;
        let mut row = vec![
            name.clone(),
            run.state.clone(),
            summary.workers.len().max(1).to_string(),
            summary.global_batch.to_string(),
            summary.global_steps.to_string(),
            decimal(summary.seconds, 2),
            grouped(summary.examples_per_second),
        ];
        if several {
            row.push(against.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2} x")));
            row.push(match against.interval {
                Some((low, high, _)) => format!("{low:.2} to {high:.2}"),
                None => "–".to_owned(),
            });
        }
        row.extend([
            decimal(summary.last.train_loss, 4),
            decimal(summary.last.test_loss, 4),
            decimal(100.0 * summary.last.test_accuracy, 2),
        ]);
        table.rows.push(row);
    }
    table
}
