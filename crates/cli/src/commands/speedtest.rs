//! `paceline speedtest`: how fast image files and records can be read, and what that depends on.
//!
//! Measuring is `paceline_prepare::speedtest`, the statistics are `paceline_stats`, the page is `paceline_report`; here they
//! meet. All results are written into one folder, so that a test can be stopped and continued.

mod again;
mod results;

use super::prepare::warn_of_rejects;
use crate::arguments::engine::EngineArgs;
use crate::arguments::idle_flags::{Rule, Typed};
use crate::arguments::limits::{parse_limit, parse_pixels};
use crate::arguments::paths::refuse_for_tasks;
use crate::arguments::units::task_count;
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::recorder::{record, recorded_task, say};
use crate::terminal::{Table, Terminal, Unit, spark_job};
use anyhow::Context as _;
use paceline_cluster::launch::spark::{MEASURING, Spark, Work, WorkKind};
use paceline_data::rejects::RejectLimit;
use paceline_data::store::Staging;
use paceline_prepare::speedtest::{
    self, ColdMethod, Distributed, JOURNAL, Opened, PageCache, ReadKind, ReadTarget, Sample,
    SpeedTestError, SpeedTestOutcome, SpeedTestSettings,
};
use paceline_probes::FolderRecorder;
use paceline_report::experiment::{self as page, Context};
use paceline_stats::experiment::{Experiment, Findings, Group, Observation, Parameter, analyse};
use paceline_stats::words::number;
use results::{CSV, PAGE, document, write};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `paceline speedtest`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  paceline speedtest --images flowers --records shards --batch-size 2,4,8 --batches 3,6,9 --repeats 3

The clock runs from asking for the first batch to having the last: reading, decoding, resizing and batching \
on all threads. Opening the data is reported separately. The same call continues an interrupted test.")]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// Folder or URL of photos in class folders
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// Folder or URL of TFRecord shards
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Images per batch
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values_t = [2, 4, 8])]
    batch_size: Vec<u64>,
    /// Batches per measurement
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values_t = [3, 6, 9])]
    batches: Vec<u64>,
    /// Measurements of every setting
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeats: u64,
    /// Drop the page cache before every measurement (whole with root, else file by file)
    #[arg(long)]
    cold: bool,
    /// Keep decoded images from one repetition to the next
    #[arg(long)]
    cache: bool,
    /// Measure everything again for each regression, as an engine does that keeps no results
    #[arg(long)]
    measure_again: bool,
    /// Decides the order of measurements and the choice of images
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that decode [default: all cores this process may use]
    #[arg(long, value_parser = task_count)]
    threads: Option<usize>,
    /// Side in pixels to which all images are resized [default: the records' own, else 224]
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: Option<u32>,
    /// Stop after more than so many rejected photos, a number or a percentage of the set such as 5%
    #[arg(long, value_parser = parse_limit, value_name = "N|P%")]
    max_rejects: Option<RejectLimit>,
    /// Most pixels of a photo, such as 100M; larger ones are rejected [default: 64M]
    #[arg(long, value_parser = parse_pixels, value_name = "N")]
    max_pixels: Option<u64>,
    /// Folder for results, here or in an object store
    #[arg(long, value_name = "DIR", default_value = "speedtest")]
    out: PathBuf,
    /// Forget an earlier test in that folder and begin again
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

const RULES: &[Rule<Args>] = &[
    Rule {
        flags: &["max-rejects", "max-pixels"],
        is_met: |args| args.images.is_some(),
        otherwise: "on records, which hold photos that were found good",
        instead: "measure photos with `--images DIR`",
    },
    Rule {
        flags: &["cache"],
        is_met: |args| args.repeats > 1,
        otherwise: "on the first of all repetitions",
        instead: "use `--repeats 2` or more",
    },
];

/// Measures, analyses, writes the results.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut settings = settings(args)?;
    args.typed.check(args, RULES)?;
    let engine = args.engine.spark()?;
    if let Some(spark) = &engine {
        settings.threads = args.threads.unwrap_or_else(|| spark.task_cores());
        if args.max_rejects.is_some() {
            return Err(usage(
                "--max-rejects does not reach the tasks of Spark",
                "leave it out; `paceline data info` counts bad photos and takes --max-rejects",
            ));
        }
        refuse_for_tasks(&args.out)?;
    }
    let mut staging = Staging::default();
    let out = staging.results(&args.out)?;
    let outcome = test(args, &settings, &out, engine.as_ref(), terminal);
    terminal.settle(staging, outcome)
}

/// Removes a folder that holds nothing but the recording of a test that measured nothing.
fn leave_nothing(out: &Path) {
    if !out.join(JOURNAL).exists() {
        FolderRecorder::forget(out);
        let _ = fs::remove_dir(out); // stays if there is something else in it
    }
}

/// Forgets an earlier test in a folder.
fn forget(out: &Path) -> anyhow::Result<()> {
    let journal = out.join(JOURNAL);
    if journal.exists() {
        fs::remove_file(&journal)
            .with_context(|| format!("cannot remove `{}`", journal.display()))?;
    }
    speedtest::forget(out)?;
    FolderRecorder::forget(out);
    Ok(())
}

/// Does it, with results in a folder of this machine.
fn test(
    args: &Args,
    settings: &SpeedTestSettings,
    out: &Path,
    engine: Option<&Spark>,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    if args.fresh {
        forget(out)?;
    }
    if let Some(spark) = engine {
        distribute(settings, out, spark, terminal)?;
    }
    let is_new = !out.exists();
    let recorder = record(out, "speedtest", terminal);
    say(recorder.as_ref(), "measuring");
    let outcome = measure(settings, out, terminal);
    say(recorder.as_ref(), "measured");
    drop(recorder);
    if outcome.is_err() && is_new {
        leave_nothing(out);
    }
    let outcome = outcome?;
    if outcome.resumed > 0 && engine.is_none() {
        terminal.note(format!("{} measurements were there already", outcome.resumed));
    }
    for opened in &outcome.sources {
        for remark in &opened.remarks {
            terminal.note(format!("{}: {remark}", opened.source.name()));
        }
    }
    warn_of_rejects(&outcome.rejects, outcome.photos, terminal);
    if !outcome.complete {
        return stopped(args, settings, &outcome.samples, terminal);
    }
    let experiment = experiment(settings, &outcome.samples);
    let mut findings = analyse(&experiment);
    if args.measure_again
        && let Some(samples) =
            again::measure_for_each(args, settings, out, engine, &mut findings, terminal)?
    {
        return stopped(args, settings, &samples, terminal);
    }
    let context = context(args, settings, &outcome);
    let written = write(out, args, settings, &outcome, &experiment, &findings, &context)?;
    let names = written.iter().filter_map(|path| path.file_name());
    let files: Vec<PathBuf> = names.map(|name| args.out.join(name)).collect();
    show(&findings, terminal)?;
    terminal.json(&document(args, settings, &outcome, &findings, &files))?;
    terminal.note(format!("page: {}", args.out.join(PAGE).display()));
    Ok(Exit::Done)
}

/// Says how far it came, and how to go on.
fn stopped(
    args: &Args,
    settings: &SpeedTestSettings,
    samples: &[Sample],
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    terminal.note(format!(
        "stopped after {} measurements; the same call continues from there",
        samples.len()
    ));
    terminal.json(
        &json!({ "complete": false, "settings": settings, "samples": samples, "out": args.out }),
    )?;
    Ok(Exit::Interrupted)
}

fn settings(args: &Args) -> anyhow::Result<SpeedTestSettings> {
    let mut targets = Vec::new();
    for (kind, path) in [(ReadKind::ImageFiles, &args.images), (ReadKind::Records, &args.records)] {
        if let Some(path) = path {
            // Absolute, so that a test continues from whatever folder the call is repeated in.
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            targets.push(ReadTarget { kind, path });
        }
    }
    if targets.is_empty() {
        return Err(usage(
            "neither `--images` nor `--records` is given",
            "`paceline data synth photos DIR` draws photos, `paceline prepare` makes records of them",
        ));
    }
    let distinct = |values: &[u64]| {
        let mut values = values.to_vec();
        values.sort_unstable();
        values.dedup();
        values
    };
    Ok(SpeedTestSettings {
        targets,
        batch_sizes: distinct(&args.batch_size),
        batches: distinct(&args.batches),
        repeats: args.repeats,
        cold: args.cold,
        cache: args.cache,
        seed: args.seed,
        threads: args.threads.unwrap_or_else(|| paceline_data::LoaderOptions::default().threads),
        size: args.size.map(|side| (side, side)),
        max_pixels: args.max_pixels,
        max_rejects: args.max_rejects,
    })
}

/// Lets tasks of Spark measure what the folder does not hold yet.
fn distribute(
    settings: &SpeedTestSettings,
    out: &Path,
    spark: &Spark,
    terminal: &mut Terminal,
) -> anyhow::Result<()> {
    let stop = terminal.interrupt()?;
    let test = Distributed::open(settings, out).or_else(with_hint)?;
    let mut lines = test.hand_out().or_else(with_hint)?.into_iter();
    let heading = lines.next().unwrap_or_default();
    let pieces = lines.len();
    let work = Work {
        name: "paceline speedtest".into(),
        arguments: recorded_task("speedtest", out),
        settings: MEASURING,
        kind: WorkKind::Slices { heading, slices: lines.collect() },
    };
    if pieces > 0 {
        let bar = terminal.progress("measuring", None, Unit::Items("settings"));
        let spark = spark.with_partitions(pieces);
        let outcome = spark_job::run(&spark, &work, &stop, terminal, &mut || {
            if let Ok((done, total)) = test.progress() {
                bar.set_total(total);
                bar.set(done);
            }
        })?;
        drop(bar);
        spark_job::tell_outcome(&outcome, terminal);
    }
    test.collect().or_else(with_hint)
}

fn measure(
    settings: &SpeedTestSettings,
    out: &Path,
    terminal: &mut Terminal,
) -> anyhow::Result<SpeedTestOutcome> {
    let stop = terminal.interrupt()?;
    let bar = terminal.progress("measuring", None, Unit::Items("measurements"));
    let mut tell = |progress: speedtest::Progress<'_>| {
        bar.set_total(progress.total);
        bar.set(progress.done);
        let latest = progress.last.map(|sample| {
            let speed = number(sample.images_per_second);
            format!("{}: {speed} images/s", sample.source.name())
        });
        let left = progress.left.map(|left| format!("{:.0} s left", left.as_secs_f64()));
        bar.message(latest.into_iter().chain(left).collect::<Vec<_>>().join(", "));
    };
    let result = speedtest::run(settings, out, &PageCache::default(), &stop, &mut tell);
    drop(bar);
    result.or_else(with_hint)
}

/// Gives an error its hint and exit code.
pub(super) fn with_hint<T>(error: SpeedTestError) -> anyhow::Result<T> {
    let (hint, exit) = advice(&error);
    Err(error).exit(exit).hint_if_any(hint)
}

/// What to do about an error, and how to exit.
fn advice(error: &SpeedTestError) -> (Option<&'static str>, Exit) {
    match error {
        SpeedTestError::SettingsChanged { .. } => {
            (Some("choose another `--out`, or begin again with `--fresh`"), Exit::Usage)
        }
        SpeedTestError::Damaged { .. } => {
            (Some("begin again with `--fresh`, or choose another `--out`"), Exit::Failed)
        }
        SpeedTestError::InUse { .. } => {
            (Some("wait for it, or choose another folder with --out"), Exit::Retry)
        }
        SpeedTestError::Cold { .. } => (Some("run as root, or leave out `--cold`"), Exit::Failed),
        SpeedTestError::NotPositive { .. }
        | SpeedTestError::NothingToRead
        | SpeedTestError::TooLarge { .. } => (None, Exit::Usage),
        SpeedTestError::FolderUnseen { .. } => (
            Some("data and results must lie where every executor sees them under the same path"),
            Exit::Failed,
        ),
        SpeedTestError::Unmeasured { .. } => {
            (Some("the same call continues from here"), Exit::Retry)
        }
        SpeedTestError::OtherKind { .. } | SpeedTestError::Missing { .. } => {
            (Some("`paceline data info PATH` says what a folder holds"), Exit::Failed)
        }
        _ => (None, Exit::Failed),
    }
}

/// The measurements as an experiment.
fn experiment(settings: &SpeedTestSettings, samples: &[Sample]) -> Experiment {
    let parameter = |key: &str, name: &str, step: &str, setting| Parameter {
        key: key.to_owned(),
        name: name.to_owned(),
        step: step.to_owned(),
        setting,
    };
    let group = |target: &ReadTarget| Group {
        name: target.kind.name().to_owned(),
        observations: samples.iter().filter(|s| s.source == target.kind).map(observation).collect(),
    };
    Experiment {
        verb: "are read".to_owned(),
        unit: "images/s".to_owned(),
        parameters: vec![
            parameter("batch_size", "batch size", "each further image per batch", true),
            parameter("batches", "batch count", "each further batch", true),
            parameter("repetition", "repetition", "each further repetition", false),
            parameter("images", "data set size", "each further image of the set", true),
        ],
        groups: settings.targets.iter().map(group).collect(),
    }
}

fn observation(sample: &Sample) -> Observation {
    let values = [sample.batch_size, sample.batches, sample.repetition, sample.images];
    Observation {
        values: values.iter().map(|&value| value as f64).collect(),
        response: sample.images_per_second,
        order: sample.order,
    }
}

/// Hosts that measured, where tasks of an engine did.
fn hosts(outcome: &SpeedTestOutcome) -> BTreeSet<&str> {
    outcome.samples.iter().filter_map(|sample| sample.host.as_deref()).collect()
}

/// How it was measured, in sentences.
fn method(settings: &SpeedTestSettings, outcome: &SpeedTestOutcome) -> Vec<String> {
    let mut method = vec![
        "The clock runs from asking for the first batch to having the last: reading, decoding, resizing and batching on all \
         threads. Opening the data and starting threads are not timed."
            .to_owned(),
        if hosts(outcome).is_empty() {
            "Every repetition measures all settings once, sources mixed, in a random order of its own. A warm-up before the \
             first measurement is dropped."
                .to_owned()
        } else {
            "Every setting was measured by a task of Spark, a warm-up first, then all its repetitions in a row; tasks that ran \
             on one host at the same time shared its disk and memory."
                .to_owned()
        },
    ];
    method.extend(outcome.cold.map(|cold| match cold {
        ColdMethod::Whole => "The page cache was dropped as a whole before every measurement.".to_owned(),
        ColdMethod::PerFile => "The page cache was dropped file by file before every measurement; pages in use may have \
                                stayed."
            .to_owned(),
    }));
    if settings.cache {
        method.push(
            "Decoded images stay in memory from the first repetition of a setting on.".to_owned(),
        );
    }
    method
}

/// What the page says around the findings.
fn context(args: &Args, settings: &SpeedTestSettings, outcome: &SpeedTestOutcome) -> Context {
    let cells = settings.batch_sizes.len() * settings.batches.len();
    let conditions = match (settings.cold, settings.cache) {
        (true, true) => "cold page cache, decoded images kept",
        (true, false) => "cold page cache",
        (false, true) => "warm page cache, decoded images kept",
        (false, false) => "warm page cache",
    };
    let list =
        |values: &[u64]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let hosts = hosts(outcome);
    let mut method = method(settings, outcome);
    method.extend(args.measure_again.then(|| again::WORDS.to_owned()));
    let mut rows = vec![
        ("batch sizes".to_owned(), list(&settings.batch_sizes)),
        ("batches".to_owned(), list(&settings.batches)),
        ("repetitions".to_owned(), settings.repeats.to_string()),
        ("threads".to_owned(), settings.threads.to_string()),
        ("seed".to_owned(), settings.seed.to_string()),
    ];
    if !hosts.is_empty() {
        rows.push(("hosts".to_owned(), hosts.into_iter().collect::<Vec<_>>().join(", ")));
    }
    for opened in &outcome.sources {
        rows.push((opened.source.name().to_owned(), about(opened)));
        method.extend(
            opened.remarks.iter().map(|remark| format!("{}: {remark}.", opened.source.name())),
        );
    }
    Context {
        title: "Reading speed test".to_owned(),
        lead: format!(
            "{} · {cells} settings × {} repetitions · {} measurements · {conditions} · {} threads",
            settings
                .targets
                .iter()
                .map(|target| target.kind.name())
                .collect::<Vec<_>>()
                .join(" and "),
            settings.repeats,
            outcome.samples.len(),
            settings.threads,
        ),
        cards: Vec::new(),
        method,
        settings: rows,
        footer: format!(
            "Written by paceline {}. Raw measurements: {CSV}, {JOURNAL}.",
            env!("CARGO_PKG_VERSION")
        ),
    }
}

fn about(opened: &Opened) -> String {
    format!(
        "{} · {} images, read as {} × {} · opened in {} s",
        opened.path.display(),
        opened.examples,
        opened.size.0,
        opened.size.1,
        number(opened.open_seconds)
    )
}

/// The findings on the terminal: verdict, speeds, slopes in words, doubts.
fn show(findings: &Findings, terminal: &Terminal) -> anyhow::Result<()> {
    let (sentence, points) = page::verdict(findings);
    let mut text = format!("{sentence}\n");
    points.iter().for_each(|point| text.push_str(&format!("  {point}\n")));
    // Over all settings: no interval, since these are not repeats of one thing.
    let mut speeds = Table::new(["source", "median images/s", "least", "most", "n"]);
    for group in &findings.groups {
        if let Some(summary) = group.summary.known() {
            speeds.row([
                group.name.clone(),
                number(summary.median),
                number(summary.min),
                number(summary.max),
                summary.n.to_string(),
            ]);
        }
    }
    text.push_str(&format!("\n{speeds}"));
    for finding in findings.ratios.iter().filter(|finding| !finding.settings.is_empty()) {
        text.push_str(&format!("\n{} against {}\n", finding.first, finding.second));
        text.push_str(&plain(&page::ratio_table(findings, finding)));
    }
    text.push_str(&format!("\n{}", plain(&page::regression_table(findings))));
    terminal.data(text)?;
    let general = findings.doubts.iter().map(|doubt| (String::new(), doubt));
    let of_groups = findings.groups.iter().flat_map(|group| {
        group.doubts.iter().map(move |doubt| (format!("{}: ", group.name), doubt))
    });
    for (whose, doubt) in general.chain(of_groups) {
        terminal.warn(format!("{whose}{} ({})", doubt.message, doubt.advice));
    }
    Ok(())
}

/// A table of the page on the terminal.
fn plain(table: &paceline_report::table::Table) -> String {
    let mut shown = Table::new(table.columns.iter().map(|column| column.name.clone()));
    table.rows.iter().for_each(|row| shown.row(row.iter().cloned()));
    shown.to_string()
}
