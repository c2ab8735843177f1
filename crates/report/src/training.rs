//! Training runs as one page: the verdict first, then curves, time, resources, workers.

use crate::chart::Drawing;
use crate::comparison::{against_first, caption};
use crate::csv::Csv;
use crate::curves;
use crate::epochs;
use crate::groups::{Group, groups, settings as asked};
use crate::layers;
use crate::many::{MOST_LISTED, drawn, left_out, listed_places};
use crate::nodes::{self, Recorded};
use crate::page::{Card, Figure, Page};
use crate::repeats;
use crate::settings;
use crate::table::{Column, Table};
use crate::tasks;
use crate::verdicts::verdicts;
use crate::weights;
use paceline_runs::Status;
use paceline_stats::scaling::{Rates, Scaling, scaling};
use std::collections::{BTreeSet, HashMap};

pub use crate::groups::MOST_DRAWN;
pub use crate::many::{MOST_READ, drawn_of, read};
pub use paceline_runs::RunView;

/// Adds everything about some runs to a page.
pub fn describe(page: &mut Page, runs: &[RunView]) {
    let groups = groups(runs);
    verdicts(page, runs, &groups);
    if let [only] = &groups[..] {
        cards(page, only);
    }
    let growth = scaling_of(runs);
    let mut notes = Notes::default();
    for group in &groups {
        notes.heading(page, &groups, &group.title, "Runs");
        describe_group(page, group, groups.len() > 1, &mut notes);
    }
    if !growth.is_empty() {
        page.section("Do more workers help?");
        growth.iter().for_each(|job| page.table(&scaling_table(job)));
    }
    let warnings: Vec<String> = named(&groups)
        .flat_map(|(run, name)| run.summary.warnings.iter().map(move |w| format!("{name}: {w}")))
        .collect();
    if !warnings.is_empty() {
        page.section("Warnings");
        page.list(&warnings);
    }
    if let Some(machine) = runs.iter().find_map(|run| run.machine.as_ref()) {
        let noise = if runs.len() > 1 { " Small differences may be noise." } else { "" };
        page.remark(&format!(
            "Measured on {}: {}, {} cores ({}), {:.1} GiB of memory, {}, Linux {}, Paceline {}.{noise}",
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

/// Every picture of some runs with its title, for papers.
#[must_use]
pub fn pictures(runs: &[RunView]) -> Vec<(String, Drawing)> {
    let mut found = Vec::new();
    for group in groups(runs) {
        let (runs, names) = drawn(&group);
        let mut figures = settings::figures(&group);
        figures.extend(curves::learning(&runs, &names));
        figures.extend(curves::confusion(&runs, &names));
        figures.extend(weights::figures(&runs, &names));
        figures.extend(curves::time(&runs, &names));
        figures.extend(nodes::charts(&recorded(&runs, &names)).figures);
        figures.extend(tasks::staleness(&runs, &names));
        let title = &group.title;
        found.extend(figures.into_iter().map(|it| (format!("{title}: {}", it.title), it.svg)));
    }
    found
}

/// The picture that says at a glance where the time of some runs went.
#[must_use]
pub fn where_the_time_goes(runs: &[RunView]) -> Figure {
    let groups = groups(runs);
    let (runs, names): (Vec<&RunView>, Vec<String>) = named(&groups).unzip();
    Figure {
        title: "This is where the time goes".to_owned(),
        key: curves::whole(&runs),
        ..curves::shares(&runs, &names, 380.0)
    }
}

/// What a page has said already: explanations are given once.
#[derive(Default)]
struct Notes {
    said: BTreeSet<String>,
}

impl Notes {
    /// The sentences of a text that were not said before.
    fn once(&mut self, text: &str) -> String {
        let sentences = text.split_inclusive(". ");
        let new = sentences.filter(|it| self.said.insert(it.trim_end().to_owned()));
        new.collect::<String>().trim_end().to_owned()
    }

    /// Figures whose words were not said before.
    fn figures(&mut self, mut figures: Vec<Figure>) -> Vec<Figure> {
        figures.iter_mut().for_each(|figure| figure.words = self.once(&figure.words));
        figures
    }

    /// A table whose caption was not said before.
    fn table(&mut self, mut table: Table) -> Table {
        table.caption = self.once(&table.caption);
        table
    }

    /// The heading of a group: its own name, where there are several.
    fn heading(&self, page: &mut Page, groups: &[Group<'_>], title: &str, plain: &str) {
        page.section(if groups.len() > 1 { title } else { plain });
    }
}

fn describe_group(page: &mut Page, group: &Group<'_>, several: bool, notes: &mut Notes) {
    let heading = |page: &mut Page, words: &str| {
        if several { page.subsection(words) } else { page.section(words) }
    };
    // What is looked up rather than read is behind a fold where there is more than one run to read about.
    let crowded = several || group.runs.len() > 1;
    let places = listed_places(group);
    let listed = group.of(&places);
    page.table(&overview(group, &places, notes));
    asked_for(page, &listed);
    if let Some(mut table) = repeats::table(group) {
        heading(page, "Which settings differ?");
        table.rows.truncate(MOST_LISTED);
        long_table(page, "Every setting", &notes.table(table), false);
    }
    let (runs, names) = drawn(group);
    if let Some(words) = left_out(group) {
        page.remark(&words);
    }
    let settings = settings::figures(group);
    let (mut learning, time) = (curves::learning(&runs, &names), curves::time(&runs, &names));
    let confusion = curves::confusion(&runs, &names);
    let weights = weights::Maps::of(&runs, &names);
    let epochs = notes.table(epochs::table(&runs, &names));
    if several {
        // The titles say what each is; headings for one or two figures would leave the page half empty.
        let all: Vec<Figure> = [settings, learning, time, confusion].concat();
        page.figures(&notes.figures(all));
        epochs::place(page, &epochs, crowded);
    } else {
        learning.extend(confusion);
        let mut section = |page: &mut Page, words: &str, figures: Vec<Figure>| {
            if !figures.is_empty() {
                heading(page, words);
                page.figures(&notes.figures(figures));
            }
        };
        section(page, "Settings and results", settings);
        section(page, "Learning", learning);
        epochs::place(page, &epochs, crowded);
        section(page, "Time", time);
    }
    weights.place(page, crowded);
    if let Some(layers) = layers::table(&runs) {
        page.folded_table(&format!("Layers of the model ({})", layers.rows.len()), &layers);
    }
    let charts = nodes::charts(&recorded(&runs, &names));
    let means = nodes::means(&recorded(&listed.runs, &listed.labels));
    if !charts.figures.is_empty() || !means.rows.is_empty() {
        heading(page, "Nodes");
        long_table(page, "Means of every node", &notes.table(means), crowded);
        charts.place(page);
    }
    let stale: Vec<Figure> = tasks::staleness(&runs, &names).into_iter().collect();
    if group.runs.iter().any(|run| run.summary.workers.len() > 1) {
        // Of folded tables the fold says what they are.
        if !crowded || !stale.is_empty() {
            heading(page, "Workers");
        }
        long_table(page, "Every worker", &tasks::workers(&listed.runs, &listed.labels), crowded);
        page.figures(&notes.figures(stale));
    }
    if group.runs.iter().any(|run| !run.summary.tasks.is_empty()) {
        if !crowded {
            heading(page, "Processes");
        }
        long_table(page, "Every process", &tasks::machines(&listed.runs, &listed.labels), crowded);
    }
}

/// Most rows of a table that is read by the way; a longer one is behind a fold.
const MOST_ROWS: usize = 16;

fn long_table(page: &mut Page, title: &str, table: &Table, folded: bool) {
    match table.rows.len() {
        0 => {}
        few if few <= MOST_ROWS && !folded => page.table(table),
        many => page.folded_table(&format!("{title} ({many})"), table),
    }
}

/// What the nodes of some runs did, under the names of the runs.
fn recorded<'a>(runs: &[&'a RunView], names: &[String]) -> Vec<Recorded<'a>> {
    runs.iter().zip(names).map(|(run, name)| Recorded::of_run(run, name)).collect()
}

/// Settings that people look for; the others are behind a fold.
const LOOKED_FOR: &[&str] = &[
    "model",
    "data",
    "strategy",
    "workers",
    "servers",
    "replicas",
    "optimizer",
    "learning rate",
    "schedule",
    "batch",
    "epochs",
    "steps",
    "seed",
    "threads",
    "version",
    "host",
    "folder",
    "command",
];

/// What was asked: once for all runs, as far as they agree; the table has the rest.
fn asked_for(page: &mut Page, group: &Group<'_>) {
    let mut all = Vec::new();
    if let Some(run) = group.runs.first() {
        let known = [("model", &run.summary.model), ("data", &run.summary.data)];
        let known = known.into_iter().filter(|(_, value)| !value.is_empty());
        all.extend(known.map(|(name, value)| (name.to_owned(), value.clone())));
    }
    all.extend(group.common.iter().cloned());
    if let [only] = &group.runs[..] {
        all.push(("folder".to_owned(), only.summary.run.clone()));
        all.push(("command".to_owned(), command(only)));
        all.retain(|(_, value)| !value.is_empty());
    }
    let (all, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(name, _)| LOOKED_FOR.contains(&name.as_str()));
    let title = if group.runs.len() > 1 { "Same for all runs" } else { "Settings" };
    page.settings(title, &all);
    page.folded_settings("Other settings", &others);
    if group.runs.len() > 1 {
        // What has no column in the table of runs, such as the workers where the strategy tells them.
        let shown = group.telling();
        let rest = group.differing.iter().filter(|it| !shown.contains(it)).collect::<Vec<_>>();
        let names = ["run", "folder", "command"].into_iter().map(Column::words);
        let mut table = Table::new(names.chain(rest.iter().map(|(name, _)| Column::words(name))));
        for (at, (run, label)) in group.runs.iter().zip(&group.labels).enumerate() {
            let row = [label.clone(), run.summary.run.clone(), command(run)].into_iter();
            table.row(row.chain(rest.iter().map(|(_, values)| values[at].clone())));
        }
        page.folded_table("Folders and commands of the runs", &table);
    }
}

/// The command line that started a run, where it is known.
fn command(run: &RunView) -> String {
    run.machine.as_ref().map_or_else(String::new, |machine| machine.command.clone())
}

/// All runs with a name that tells them apart on the whole page.
pub(crate) fn named<'a>(groups: &'a [Group<'a>]) -> impl Iterator<Item = (&'a RunView, String)> {
    groups.iter().flat_map(move |group| {
        group.runs.iter().zip(&group.labels).map(move |(run, label)| {
            let name = match (groups.len(), group.runs.len()) {
                (1, _) => label.clone(),
                (_, 1) => group.title.clone(),
                _ => format!("{}, {label}", group.title),
            };
            (*run, name)
        })
    })
}

/// Verdicts and the table of runs, for a README or a mail.
#[must_use]
pub fn markdown(runs: &[RunView]) -> String {
    let groups = groups(runs);
    let mut text = String::new();
    for (run, name) in named(&groups) {
        text.push_str(&format!("- {name}: {}\n", run.summary.verdict));
    }
    let mut notes = Notes::default();
    for group in &groups {
        if groups.len() > 1 {
            text.push_str(&format!("\n## {}\n", group.title));
        }
        text.push('\n');
        let all: Vec<usize> = (0..group.runs.len()).collect();
        text.push_str(&overview(group, &all, &mut notes).markdown());
        text.push_str(&epochs::markdown(&group.runs, &group.labels));
    }
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
        "data",
        "optimizer",
        "learning_rate",
        "schedule",
        "threads",
        "version",
        "host",
        "share_recovery",
    ]);
    let number = |value: f64| if value.is_finite() { value.to_string() } else { String::new() };
    let setting = |run: &RunView, name: &str| {
        let found = asked(run).into_iter().find(|(known, _)| known == name);
        found.map_or_else(String::new, |(_, value)| value)
    };
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
            summary.data.clone(),
            setting(run, "optimizer"),
            setting(run, "learning rate"),
            setting(run, "schedule"),
            setting(run, "threads"),
            setting(run, "version"),
            setting(run, "host"),
            number(summary.phases.recovery),
        ]);
    }
    csv.finish()
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
    let mut places: HashMap<&str, usize> = HashMap::new();
    for run in runs.iter().filter(|run| run.summary.status == Status::Done) {
        let place = *places.entry(run.settings.job_key()).or_insert(jobs.len());
        match jobs.get_mut(place) {
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

fn fastest(runs: &[&RunView]) -> Option<usize> {
    (0..runs.len()).max_by(|a, b| {
        let rate = |index: &usize| runs[*index].summary.examples_per_second;
        rate(a).total_cmp(&rate(b))
    })
}

fn cards(page: &mut Page, group: &Group<'_>) {
    let runs = &group.runs;
    // Of one run the page says what it is.
    let several = runs.len() > 1;
    let name = |at: usize| if several { group.labels[at].clone() } else { String::new() };
    let mut cards = Vec::new();
    if let Some(index) = fastest(runs) {
        cards.push(Card {
            what: if several { "Fastest" } else { "Rate" }.to_owned(),
            value: grouped(runs[index].summary.examples_per_second),
            unit: "examples/s".to_owned(),
            more: name(index),
            colour: several.then_some(index),
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
            what: if several { "Most accurate" } else { "Accuracy" }.to_owned(),
            value: format!("{:.2}", 100.0 * runs[index].summary.last.test_accuracy),
            unit: "% of test examples".to_owned(),
            more: name(index),
            colour: several.then_some(index),
        });
    }
    let seconds: f64 = runs.iter().map(|run| run.summary.seconds).sum();
    cards.push(Card {
        what: "Trained for".to_owned(),
        value: format!("{seconds:.1}"),
        unit: if several { "s in total" } else { "s" }.to_owned(),
        more: if several { format!("{} runs", runs.len()) } else { String::new() },
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

/// Most settings that are columns of their own; more would need sideways scrolling, and all are in the settings.
const MOST_COLUMNS: usize = 6;

/// Something that came out of a run: name, unit, decimals, and where it is found.
type Outcome = (&'static str, &'static str, usize, fn(&RunView) -> f64);

const RESULTS: [Outcome; 3] = [
    ("training loss", "", 4, |run| run.summary.last.train_loss),
    ("test loss", "", 4, |run| run.summary.last.test_loss),
    ("test accuracy", "%", 2, |run| 100.0 * run.summary.last.test_accuracy),
];

/// The runs at some places of a group, each against the first.
fn overview(group: &Group<'_>, places: &[usize], notes: &mut Notes) -> Table {
    let runs = &group.runs[..];
    // One run has no other to be compared with.
    let several = runs.len() > 1;
    let mut columns = vec![Column::words("run")];
    // Steps have a column already, and a single difference is in the name.
    let mut differing: Vec<_> = group.telling();
    differing.retain(|it| it.0 != "steps");
    if differing.len() < 2 {
        differing.clear();
    }
    differing.truncate(MOST_COLUMNS);
    for (name, values) in &differing {
        let number = |value: &String| value == "–" || value.parse::<f64>().is_ok();
        let numbers = values.iter().all(number);
        columns.push(if numbers { Column::numbers(name) } else { Column::words(name) });
    }
    let ended = runs.iter().any(|run| run.state != runs[0].state || run.state != "done");
    if ended {
        columns.push(Column::words("ended"));
    }
    columns.extend([
        Column::numbers("steps"),
        Column::numbers("time").unit("s"),
        Column::numbers("rate").unit("examples/s"),
    ]);
    if several {
        columns.extend([
            Column::numbers("relative to the first"),
            Column::numbers("interval").unit("95 %"),
        ]);
    }
    // A result that no run has gets no column: scripts often have no evaluation.
    let known = |of: fn(&RunView) -> f64| runs.iter().any(|run| of(run).is_finite());
    let results = RESULTS.iter().filter(|(_, _, _, of)| known(*of)).collect::<Vec<_>>();
    columns.extend(results.iter().map(|(name, unit, ..)| Column::numbers(*name).unit(*unit)));
    let mut table = Table::new(columns);
    let against = against_first(runs);
    table = table.captioned(notes.once(caption(&against)));
    for at in places.iter().copied() {
        let (run, against) = (runs[at], &against[at]);
        let summary = &run.summary;
        let mut row = vec![group.labels[at].clone()];
        row.extend(differing.iter().map(|(_, values)| values[at].clone()));
        if ended {
            row.push(run.state.clone());
        }
        row.extend([
            summary.global_steps.to_string(),
            decimal(summary.seconds, 2),
            grouped(summary.examples_per_second),
        ]);
        if several {
            row.push(against.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2} x")));
            row.push(match against.interval {
                Some((low, high, _)) => format!("{low:.2} to {high:.2}"),
                None => "–".to_owned(),
            });
        }
        row.extend(results.iter().map(|(_, _, digits, of)| decimal(of(run), *digits)));
        table.rows.push(row);
    }
    table
}
