//! Training runs as one page: what limits them first, then curves, time, resources, workers.

use crate::comparison::{against_first, caption};
use crate::csv::Csv;
use crate::curves;
use crate::diagnosis::diagnose;
use crate::page::{Card, Page, Tone};
use crate::table::{Column, Table};
use crate::tasks;
use crate::timeline;
use paceline_analysis::scaling::{Rates, Scaling, scaling};
use paceline_analysis::verdict::{Examples, Limit, Verdict};
use paceline_runs::{Event, Machine, Record, Resources, RunState, Status, Summary};
use std::collections::{BTreeMap, BTreeSet};

/// One run, read from its folder.
#[derive(Debug, Clone)]
pub struct RunView {
    /// How it is called in tables and beside curves.
    pub name: String,
    /// How it ended, or as far as it came.
    pub summary: Summary,
    /// Where it ran.
    pub machine: Option<Machine>,
    /// Threads that all replicas of a worker had together.
    pub threads: usize,
    /// What it read.
    pub examples: Examples,
    /// What happened, on the chief's clock.
    pub records: Vec<Record>,
    /// What the machine did meanwhile, per task.
    pub resources: Vec<(String, Resources)>,
}

impl RunView {
    /// Reads a run folder; a run without a summary is shown as far as it came.
    ///
    /// # Errors
    /// When the folder holds no run or its events cannot be read.
    pub fn read(path: &std::path::Path) -> Result<Self, paceline_runs::RunsError> {
        let folder = paceline_runs::RunFolder::open(path)?;
        let (mut records, _) = folder.events()?;
        let ahead = clocks(&records);
        for record in &mut records {
            record.time -= ahead.get(&record.task).copied().unwrap_or(0.0);
        }
        records.sort_by(|a, b| a.time.total_cmp(&b.time));
        let summary = match folder.state() {
            RunState::Ended(summary) => *summary,
            _ => unfinished(&folder.name(), &records),
        };
        // Servers and evaluators write no events of their own, but their machines are recorded.
        let tasks: BTreeSet<String> = records.iter().flat_map(named).collect();
        let resources = tasks
            .into_iter()
            .filter_map(|task| {
                let mut recording = Resources::read(&folder.resources_path(&task)).ok()?;
                recording.set_back(ahead.get(&task).copied().unwrap_or(0.0));
                Some((task, recording))
            })
            .collect();
        let name = format!("{} {}", summary.model, summary.strategy);
        let plan: serde_json::Value = folder.plan().unwrap_or_default();
        let planned = |key: &str| plan.get(key).and_then(serde_json::Value::as_u64).unwrap_or(1);
        let threads = usize::try_from(planned("threads") * planned("replicas")).unwrap_or(1);
        let machine = folder.machine().ok();
        let examples = examples(&plan, &summary.data);
        Ok(Self { name, summary, machine, threads, examples, records, resources })
    }

    /// When it began, in seconds since 1970.
    pub(crate) fn start(&self) -> f64 {
        self.records.first().map_or(0.0, |record| record.time)
    }
}

/// The tasks that an event tells of.
fn named(record: &Record) -> Vec<String> {
    match &record.event {
        Some(Event::TaskJoined(joined)) if !joined.role.is_empty() => {
            vec![record.task.clone(), joined.role.clone()]
        }
        _ => vec![record.task.clone()],
    }
}

/// Seconds by which each task's clock was ahead of the chief's, as measured when it joined.
fn clocks(records: &[Record]) -> BTreeMap<String, f64> {
    let joined = records.iter().filter_map(|record| match &record.event {
        Some(Event::TaskJoined(joined)) => Some((joined.role.clone(), joined.clock_offset?)),
        _ => None,
    });
    joined.collect()
}

/// What a run reads, from its plan.
fn examples(plan: &serde_json::Value, data: &str) -> Examples {
    let features = plan.pointer("/schema/features");
    let of = |key: &str| features.and_then(|features| features.get(key));
    if of("sparse").is_some() || plan.pointer("/spec/hashing").is_some() {
        Examples::Rows
    } else if of("image").is_some_and(|shape| shape["channels"] == 3)
        && !data.starts_with("generated:")
    {
        Examples::Images
    } else {
        Examples::Any
    }
}

/// What the events alone tell.
fn unfinished(run: &str, records: &[Record]) -> Summary {
    let mut summary = Summary { run: run.to_owned(), ..Summary::default() };
    for record in records {
        match &record.event {
            Some(Event::RunStarted(started)) => {
                summary.model.clone_from(&started.model);
                summary.strategy.clone_from(&started.strategy);
                summary.seed = started.seed;
                summary.global_batch = started.global_batch;
            }
            Some(Event::Step(step)) => {
                summary.global_steps = step.step;
                summary.examples += step.examples;
                summary.seconds += step.seconds;
                summary.last.train_loss = step.loss;
            }
            Some(Event::Evaluation(evaluation)) => {
                summary.last.test_loss = evaluation.loss;
                summary.last.test_accuracy = evaluation.accuracy;
            }
            _ => {}
        }
    }
    if summary.seconds > 0.0 {
        summary.examples_per_second = summary.examples as f64 / summary.seconds;
    }
    summary.verdict = "the run has not ended, or ended without a word".to_owned();
    summary
}

/// Gives runs of the same name different ones, by what tells them apart.
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
    page.section("What was run");
    page.table(&overview(runs, &names));
    page.section("Learning");
    page.figures(&curves::learning(runs, &names));
    page.section("Where the time went");
    page.figures(&curves::time(runs, &names));
    let figures = timeline::resources(runs, &names);
    if !figures.is_empty() {
        page.section("What the machine did");
        page.figures(&figures);
    }
    if let Some(found) = scaling_of(runs) {
        page.section("What more workers bring");
        page.table(&scaling_table(&found));
    }
    if runs.iter().any(|run| run.summary.workers.len() > 1) {
        page.section("Workers");
        page.table(&tasks::workers(runs, &names));
        page.figures(&tasks::staleness(runs, &names).into_iter().collect::<Vec<_>>());
    }
    if runs.iter().any(|run| !run.summary.tasks.is_empty()) {
        page.section("Machines, on average");
        page.table(&tasks::machines(runs, &names));
    }
    let warnings: Vec<String> = runs
        .iter()
        .zip(&names)
        .flat_map(|(run, name)| run.summary.warnings.iter().map(move |w| format!("{name}: {w}")))
        .collect();
    if !warnings.is_empty() {
        page.section("What to know");
        page.list(&warnings);
    }
    if let Some(machine) = runs.iter().find_map(|run| run.machine.as_ref()) {
        page.remark(&format!(
            "Measured on {}: {}, {} cores ({}), {:.1} GiB of memory, {}, Linux {}, Paceline {}. One machine, one measurement each unless \
             repeated: small differences may be noise.",
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
        text.push_str(&format!("- {name}: {}\n", words(run, &diagnose(run))));
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
        ]);
    }
    csv.finish()
}

fn verdicts(page: &mut Page, runs: &[RunView], names: &[String]) {
    let mut points: Vec<String> = Vec::new();
    for (run, name) in runs.iter().zip(names) {
        let verdict = diagnose(run);
        let words = words(run, &verdict);
        if runs.len() == 1 {
            points.push(words);
            points.extend(verdict.evidence);
        } else {
            points.push(format!("{name}: {words}"));
        }
    }
    points.extend(scaling_of(runs).map(|scaling| scaling.words));
    let failed = runs.iter().filter(|run| run.summary.status == Status::Failed).count();
    let sentence =
        if runs.len() == 1 { "Where the time went" } else { "Where the time went, run by run" };
    let tone = if failed > 0 { Tone::Bad } else { Tone::Good };
    page.verdict(tone, sentence, &points);
}

/// The verdict from everything that is known; a run that failed, or left no events, has said its own.
#[must_use]
pub fn words(run: &RunView, verdict: &Verdict) -> String {
    if run.summary.status == Status::Failed || verdict.limit == Limit::Unknown {
        run.summary.verdict.clone()
    } else {
        verdict.words.clone()
    }
}

/// How the runs scale with their workers, where they differ in nothing else that matters.
#[must_use]
pub fn scaling_of(runs: &[RunView]) -> Option<Scaling> {
    let first = runs.first()?;
    let alike = runs.iter().all(|run| run.summary.model == first.summary.model);
    let rates: Vec<Rates> = runs
        .iter()
        .filter(|run| run.summary.status == Status::Done)
        .map(|run| Rates {
            workers: run.summary.workers.len().max(1) as u64,
            rates: vec![run.summary.examples_per_second],
        })
        .collect();
    if alike { scaling(&rates) } else { None }
}

fn scaling_table(found: &Scaling) -> Table {
    let mut table = Table::new([
        Column::numbers("workers"),
        Column::numbers("rate").unit("examples/s"),
        Column::numbers("speed-up"),
        Column::numbers("efficiency").unit("%"),
    ])
    .captioned(&found.words);
    for point in &found.points {
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
        unit: "s in all".to_owned(),
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
    // One run has nobody to be compared with.
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
            Column::numbers("against the first"),
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
            format!("{:?}", summary.status).to_lowercase(),
            summary.workers.len().max(1).to_string(),
            summary.global_batch.to_string(),
            summary.global_steps.to_string(),
            decimal(summary.seconds, 2),
            grouped(summary.examples_per_second),
        ];
        if several {
            row.push(format!("{} x", decimal(against.value, 2)));
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
