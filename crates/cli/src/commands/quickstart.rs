//! `paceline quickstart`: everything in miniature, with nothing but this program.
//!
//! Each step is a real command run as a process of its own and shown as it would be typed, so that
//! the tour doubles as a cheat sheet, and what it shows is what users get.

mod belongings;

use super::report;
use crate::arguments::paths::local_path;
use crate::terminal::failure::{Exit, FailureExt};
use crate::terminal::{Terminal, desktop, typed_path};
use anyhow::Context;
use belongings::Belongings;
use paceline_probes::shell_word;
use paceline_report::chart::{Axis, Chart, Series, Span};
use paceline_report::page::{Figure, Page, Tone};
use paceline_report::training;
use paceline_runs::write_atomically;
use paceline_strategies::ALL;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Arguments of `paceline quickstart`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for everything the tour makes; a second tour replaces what the first made, and nothing else
    #[arg(long, default_value = "quickstart", value_parser = local_path())]
    out: PathBuf,
    /// Do not open the report in a browser at the end, which happens on a desktop
    #[arg(long)]
    no_open: bool,
}

/// A training run of the tour.
struct Run {
    model: &'static str,
    strategy: &'static str,
    data: &'static str,
    flags: &'static [&'static str],
}

/// The runs of the tour: a small model under every strategy there is, larger ones under some.
fn runs() -> Vec<Run> {
    let softmax: &[&str] = &["--batch-size", "100", "--epochs", "10", "--lr", "0.1"];
    let lenet: &[&str] =
        &["--batch-size", "64", "--epochs", "3", "--lr", "0.02", "--optimizer", "momentum"];
    let mobilenet: &[&str] = &[
        "--batch-size",
        "20",
        "--epochs",
        "12",
        "--lr",
        "0.01",
        "--optimizer",
        "momentum",
        "--width",
        "0.35",
    ];
    let every = ALL.iter().map(|strategy| Run {
        model: "softmax",
        strategy: strategy.name,
        data: "digits",
        flags: softmax,
    });
    let some = ["one-device", "mirrored", "multi-worker"].map(|strategy| Run {
        model: "lenet",
        strategy,
        data: "digits",
        flags: lenet,
    });
    let last =
        Run { model: "mobilenet-v2", strategy: "one-device", data: "shards", flags: mobilenet };
    every.chain(some).chain([last]).collect()
}

/// Names of what the tour makes inside its folder.
const MADE: &[&str] = &[
    "digits",
    "photos",
    "clicks.tsv",
    "shards",
    "speedtest",
    "runs",
    "stream",
    "sweep",
    "report.html",
    "stream.html",
];

/// Runs the tour.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let start = Instant::now();
    let interrupt = terminal.interrupt()?;
    let belongings = Belongings::start_over(&args.out, MADE)?;
    let mut tour = Tour { out: &args.out, terminal, interrupt: &interrupt, belongings };
    tour.make_data()?;
    let prepared = tour.prepare()?;
    let speed = tour.speed_test()?;
    let summaries = tour.train()?;
    tour.learn_and_sweep()?;

    tour.say("7. The report");
    let findings = findings(&speed, &summaries);
    let path = args.out.join("report.html");
    write_atomically(&args.out.join("stream.html"), stream_page(&args.out)?.as_bytes())?;
    write_atomically(&path, page(&args.out, &speed, &prepared, &findings)?.as_bytes())?;
    tour.belongings.record()?;
    terminal.data(findings.join("\n"))?;
    let whole = std::fs::canonicalize(&path).unwrap_or(path.clone());
    let opened = !args.no_open
        && desktop::open(&whole, terminal.watched(), |name| std::env::var_os(name)).is_some();
    terminal.data(format!(
        "\nreport: {} ({:.0} s){}",
        whole.display(),
        start.elapsed().as_secs_f64(),
        if opened { ", opened in the browser" } else { "" }
    ))?;
    terminal.note(format!(
        "next: `paceline serve {}` shows these runs in a browser, `paceline train --help` makes your own",
        typed_path(&args.out)
    ));
    terminal.json(&json!({
        "report": path, "findings": findings, "seconds": start.elapsed().as_secs_f64(), "runs": summaries,
    }))?;
    Ok(Exit::Done)
}

struct Tour<'a> {
    out: &'a Path,
    terminal: &'a Terminal,
    interrupt: &'a AtomicBool,
    belongings: Belongings,
}

impl Tour<'_> {
    /// The name of something that the tour makes, as words of a command.
    fn at(&self, name: &str) -> String {
        self.out.join(name).display().to_string()
    }

    /// Digits, photos and clicks.
    fn make_data(&mut self) -> anyhow::Result<()> {
        self.say(
            "1. Data: digits in MNIST's layout, photos of five kinds of flowers, a log of clicks",
        );
        self.step(&["data", "synth", "digits", &self.at("digits")])?;
        self.step(&["data", "synth", "photos", &self.at("photos"), "--per-class", "60"])?;
        self.step(&["data", "synth", "clicks", &self.at("clicks.tsv"), "--rows", "200000"])?;
        Ok(())
    }

    /// Photos to shards.
    fn prepare(&mut self) -> anyhow::Result<Value> {
        self.say(
            "2. Photos to TFRecord shards: decoded, cropped, resized, encoded again, on all cores",
        );
        let prepared = self.step(&[
            "prepare",
            &self.at("photos"),
            &self.at("shards"),
            "--size",
            "96",
            "--shards",
            "4",
            "--split",
            "validation=0.2",
        ])?;
        if let Some(rate) = prepared["photos_per_second"].as_f64() {
            self.found(format!("{rate:.0} photos a second"));
        }
        Ok(prepared)
    }

    /// Files against records.
    fn speed_test(&mut self) -> anyhow::Result<Value> {
        self.say("3. How fast can they be read: files against records");
        let speed = self.step(&[
            "speedtest",
            "--images",
            &self.at("photos"),
            "--records",
            &self.at("shards"),
            "--batch-size",
            "4,8,16,32",
            "--batches",
            "2,4",
            "--repeats",
            "3",
            "--size",
            "96",
            "--out",
            &self.at("speedtest"),
        ])?;
        if let (Some(files), Some(records)) =
            (mean_rate(&speed, "image_files"), mean_rate(&speed, "records"))
        {
            self.found(format!("{files:.0} photos a second from files, {records:.0} from records"));
        }
        Ok(speed)
    }

    /// Every strategy.
    fn train(&mut self) -> anyhow::Result<Vec<Value>> {
        self.say("4. Train: three models, every strategy, the same order of examples");
        let mut summaries = Vec::new();
        for run in runs() {
            let (data, runs) = (self.at(run.data), self.at("runs"));
            let mut words =
                vec!["train", "--model", run.model, "--data", &data, "--strategy", run.strategy];
            words.extend(run.flags);
            words.extend(["--out", &runs]);
            let summary = self.step(&words)?;
            self.found(in_short(&summary));
            summaries.push(summary);
        }
        Ok(summaries)
    }

    /// A stream of rows, and a sweep.
    fn learn_and_sweep(&mut self) -> anyhow::Result<()> {
        self.say("5. A million weights and a stream of rows: clicks, learned as they come");
        let (clicks, stream) = (self.at("clicks.tsv"), self.at("stream"));
        let words = ["train", "--model", "sparse-logistic", "--data", &clicks, "--bits", "20"];
        let sparse = self.step(&[&words[..], &["--epochs", "1", "--out", &stream]].concat())?;
        if let Some(rate) = sparse["examples_per_second"].as_f64() {
            self.found(format!("{rate:.0} rows a second; {}", verdict(&sparse)));
        }

        self.say("6. A sweep: which batch size? Every setting twice, in random order");
        let sweep = self.at("sweep");
        let words = ["sweep", "--vary", "batch-size=16,64,256", "--repeats", "2", "--out", &sweep];
        let digits = self.at("digits");
        let cell =
            ["train", "--model", "lenet", "--data", &digits, "--epochs", "1", "--lr", "0.02"];
        let cell = [&cell[..], &["--optimizer", "momentum"]].concat();
        self.step_behind(&words, &cell)?;
        self.found(format!("its page: {sweep}/sweep.html"));
        Ok(())
    }

    fn say(&self, text: &str) {
        self.terminal.note(format!("\n{text}"));
    }

    /// What a step showed, below it.
    fn found(&self, text: impl std::fmt::Display) {
        self.terminal.note(format!("    {text}"));
    }

    /// Runs one command of this program and returns its JSON document.
    fn step(&mut self, words: &[&str]) -> anyhow::Result<Value> {
        self.step_behind(words, &[])
    }

    /// The same for a command that takes another behind `--`.
    fn step_behind(&mut self, words: &[&str], behind: &[&str]) -> anyhow::Result<Value> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(anyhow::anyhow!("the tour was interrupted")).exit(Exit::Interrupted);
        }
        let typed = |words: &[&str]| {
            words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
        };
        let mut line = format!("paceline {}", typed(words));
        if !behind.is_empty() {
            line.push_str(&format!(" -- {}", typed(behind)));
        }
        self.terminal.note(format!("  $ {line}"));
        let program = std::env::current_exe().context("cannot find this program")?;
        let watched = self.terminal.watched();
        let mut command = Command::new(program);
        command.args(words).arg("--json").args(if watched { &[][..] } else { &["--quiet"][..] });
        if !behind.is_empty() {
            command.arg("--").args(behind);
        }
        // Its bars are for eyes; its warnings are on its own page, and here only if it fails.
        let talk = if watched { Stdio::inherit() } else { Stdio::piped() };
        let output = command
            .stdin(Stdio::null())
            .stderr(talk)
            .output()
            .with_context(|| format!("cannot start `{line}`"))?;
        self.belongings.record()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(anyhow::anyhow!("{}", said.trim_end()))
                .with_context(|| format!("`{line}` failed: {}", output.status))
                .hint(format!("what it made so far is in `{}`", self.out.display()));
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("`{line}` printed no JSON document"))
    }
}

/// The first words of a run's verdict: what limits it.
fn verdict(run: &Value) -> &str {
    let words = run["verdict"].as_str().unwrap_or_default();
    words.split([':', ';']).next().unwrap_or_default()
}

/// A run in a line: how far, how fast, and what held it up.
fn in_short(run: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    format!(
        "{:.1} % of the held-out examples right, {:.0} examples a second; {}",
        100.0 * number(&run["final"]["test_accuracy"]),
        number(&run["examples_per_second"]),
        verdict(run)
    )
}

/// Mean images per second of one source over all samples.
fn mean_rate(speed: &Value, source: &str) -> Option<f64> {
    let samples = speed["samples"].as_array()?;
    let rates: Vec<f64> = samples
        .iter()
        .filter(|sample| sample["source"] == source)
        .filter_map(|sample| sample["images_per_second"].as_f64())
        .collect();
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
}

/// What the tour showed, in three sentences.
fn findings(speed: &Value, runs: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    if let (Some(files), Some(records)) =
        (mean_rate(speed, "image_files"), mean_rate(speed, "records"))
    {
        found.push(format!(
            "Reading: {records:.0} photos a second from prepared records against {files:.0} from the original files, {:.1} times as fast.",
            records / files
        ));
    }
    let of = |model: &str, strategy: &str| {
        runs.iter().find(|run| run["model"] == model && run["strategy"] == strategy)
    };
    let rate = |run: Option<&Value>| run.and_then(|run| run["examples_per_second"].as_f64());
    if let (Some(one), Some(many)) =
        (rate(of("lenet", "one-device")), rate(of("lenet", "mirrored")))
    {
        found.push(format!(
            "Strategy: LeNet trains on {one:.0} examples a second on one device and {many:.0} mirrored ({:.2} times); both saw the same examples in the same order.",
            many / one
        ));
    }
    let lenet = of("lenet", "multi-worker").or_else(|| of("lenet", "one-device"));
    let limit = lenet.map(|run| run["verdict"].as_str().unwrap_or_default()).unwrap_or_default();
    let accuracy =
        |model| of(model, "one-device").and_then(|run| run["final"]["test_accuracy"].as_f64());
    if let (Some(plain), Some(deep)) = (accuracy("softmax"), accuracy("lenet")) {
        found.push(format!(
            "Model: softmax regression gets {:.1} % of the held-out digits right, LeNet {:.1} %; LeNet on two workers is {limit}.",
            100.0 * plain,
            100.0 * deep
        ));
    }
    found
}

fn page(
    out: &Path,
    speed: &Value,
    prepared: &Value,
    findings: &[String],
) -> anyhow::Result<String> {
    let mut page = Page::new(
        "Paceline quickstart",
        "Data made, prepared, read and trained on, on this machine; every figure was measured just now",
    );
    let runs = report::read(&[out.join("runs")], training::MOST_READ)?;
    page.verdict(Tone::Good, "What the tour found", findings);
    page.hero(&training::where_the_time_goes(&runs));
    page.section("What the tour made");
    page.links(&[
        ("speedtest/speedtest.html", "Speed test", "files against records, with regressions and what their p-values mean"),
        ("sweep/sweep.html", "Sweep", "three batch sizes, each twice: which is best, and how surely"),
        ("stream.html", "Stream", "a million weights learned from a log of clicks as it is read"),
        ("runs", "Run folders", "every run below with its events, recordings and checkpoints; `paceline serve` shows them live"),
        ("shards/manifest.json", "Shards", "what became of every photo: counts, sizes, hashes"),
    ]);
    page.section("Reading: files against records");
    if let (Some(photos), Some(rate)) =
        (prepared["photos"].as_u64(), prepared["photos_per_second"].as_f64())
    {
        page.paragraph(&format!(
            "{photos} photos were prepared into shards of 96 x 96 pixels, {rate:.0} a second."
        ));
    }
    page.figures(&[reading(speed)]);
    training::describe(&mut page, &runs);
    page.footer(&format!("Written by Paceline {}", env!("CARGO_PKG_VERSION")));
    Ok(page.html())
}

/// The page of the run that learned from a stream.
fn stream_page(out: &Path) -> anyhow::Result<String> {
    let mut page = Page::new(
        "Paceline quickstart: a stream of clicks",
        "Sparse logistic regression, learned from a log as it was read",
    );
    training::describe(&mut page, &report::read(&[out.join("stream")], training::MOST_READ)?);
    page.footer(&format!("Written by Paceline {}", env!("CARGO_PKG_VERSION")));
    Ok(page.html())
}

/// Mean rate by batch size, both sources.
fn reading(speed: &Value) -> Figure {
    let mut chart = Chart::new(
        "Photos read, decoded and batched per second",
        Axis::new("batch size").unit("photos"),
        Axis::new("rate").unit("photos/s").from_zero(),
    );
    let samples = speed["samples"].as_array().cloned().unwrap_or_default();
    for (colour, (source, name)) in
        [("image_files", "files"), ("records", "records")].into_iter().enumerate()
    {
        let mut by_size: std::collections::BTreeMap<u64, Vec<f64>> =
            std::collections::BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample["source"] == source) {
            if let (Some(size), Some(rate)) =
                (sample["batch_size"].as_u64(), sample["images_per_second"].as_f64())
            {
                by_size.entry(size).or_default().push(rate);
            }
        }
        let spans = by_size.into_iter().map(|(size, rates)| Span {
            x: size as f64,
            y: rates.iter().sum::<f64>() / rates.len() as f64,
            low: rates.iter().copied().fold(f64::INFINITY, f64::min),
            high: rates.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        });
        chart = chart.with(Series::averages(name, spans).colour(colour));
    }
    Figure {
        title: "Photos read, decoded and batched per second".to_owned(),
        colour: None,
        key: Vec::new(),
        svg: chart.svg(),
        words: "Mean of the repetitions; whiskers from the slowest to the fastest.".to_owned(),
        notes: Vec::new(),
    }
}
