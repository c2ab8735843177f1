//! `versus predictions`: predictions of the simulator and the oracle compared with real runs.
//!
//! Every prediction is made before the run it is compared with, from a smaller run or from none. Tasks
//! share this machine's cores, so the model of shared cores is tested too; the parts `links` put every task into
//! a network namespace with a link of a known speed. Parts keep their rows under `target/`, and the table is
//! written from all of them.

use super::benchmarks;
use super::namespaces::{self, Lab};
use super::paceline::{Paceline, shared_data};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// One kind of job on processes of this machine.
struct Work {
    part: &'static str,
    model: &'static str,
    batch: &'static str,
    /// Steps of a run: some seconds.
    steps: &'static str,
    /// Strategies that are simulated: name, workers of the run that the prediction rests on, workers
    /// predicted.
    simulated: &'static [(&'static str, usize, &'static [usize])],
    /// Workers of the oracle's cases.
    oracle: &'static [usize],
}

const STRATEGIES: &[(&str, usize, &[usize])] =
    &[("multi-worker", 2, &[1, 3, 4]), ("ps-async", 1, &[2, 3, 4]), ("ps-sync", 2, &[1, 3, 4])];

const WORKS: &[Work] = &[
    Work {
        part: "softmax",
        model: "softmax",
        batch: "100",
        steps: "30000",
        simulated: STRATEGIES,
        oracle: &[],
    },
    Work {
        part: "lenet",
        model: "lenet",
        batch: "128",
        steps: "1500",
        simulated: STRATEGIES,
        oracle: &[1, 2, 3, 4],
    },
    Work {
        part: "lenet-512",
        model: "lenet",
        batch: "512",
        steps: "400",
        simulated: STRATEGIES,
        oracle: &[1, 2, 3, 4],
    },
    Work {
        part: "alexnet",
        model: "alexnet",
        batch: "32",
        steps: "12",
        simulated: &[("multi-worker", 2, &[3])],
        oracle: &[1, 2, 3],
    },
];

/// Real runs of every case; their mean counts.
const REPEATS: usize = 2;

/// A prediction and its measurement, in examples per second.
#[derive(Serialize, Deserialize)]
struct Row {
    what: String,
    predicted: f64,
    measured: f64,
}

impl Row {
    fn new(what: String, predicted: f64, measured: f64) -> Self {
        let row = Self { what, predicted, measured };
        println!(
            "{}: predicted {predicted:.0}, measured {measured:.0}, {:+.1} %",
            row.what,
            100.0 * (predicted / measured - 1.0)
        );
        row
    }

    fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }
}

/// Rows of one part.
#[derive(Default, Serialize, Deserialize)]
struct Rows {
    simulator: Vec<Row>,
    oracle: Vec<Row>,
}

/// Softmax regression.
pub fn softmax(root: &Path) -> anyhow::Result<()> {
    part(root, &WORKS[0])
}

/// LeNet.
pub fn lenet(root: &Path) -> anyhow::Result<()> {
    part(root, &WORKS[1])
}

/// LeNet with a large batch.
pub fn lenet_large(root: &Path) -> anyhow::Result<()> {
    part(root, &WORKS[2])
}

/// AlexNet.
pub fn alexnet(root: &Path) -> anyhow::Result<()> {
    part(root, &WORKS[3])
}

/// LeNet over cables of 100 Mbit/s.
pub fn slow_links(root: &Path) -> anyhow::Result<()> {
    links(root, "links-100", 100)
}

/// LeNet over cables of 400 Mbit/s.
pub fn fast_links(root: &Path) -> anyhow::Result<()> {
    links(root, "links-400", 400)
}

fn links(root: &Path, part: &str, megabits: u32) -> anyhow::Result<()> {
    if !namespaces::available() {
        println!("skipped: network namespaces need root");
        return Ok(());
    }
    let bench = Bench::new(root, part)?;
    let mut rows = Rows::default();
    bench.cables(megabits, &mut rows)?;
    bench.keep(root, part, &rows)
}

fn part(root: &Path, work: &Work) -> anyhow::Result<()> {
    let bench = Bench::new(root, work.part)?;
    let mut rows = Rows::default();
    for &(strategy, from, to) in work.simulated {
        let found = bench.simulated(work, strategy, from, to);
        rows.simulator.extend(found.with_context(|| format!("{} {strategy}", work.model))?);
    }
    if !work.oracle.is_empty() {
        rows.oracle = bench.oracle(work).with_context(|| format!("oracle {}", work.model))?;
    }
    bench.keep(root, work.part, &rows)
}

struct Bench {
    paceline: Paceline,
    digits: PathBuf,
    out: PathBuf,
}

impl Bench {
    fn new(root: &Path, part: &str) -> anyhow::Result<Self> {
        let digits = shared_data(root).join("mnist");
        anyhow::ensure!(digits.is_dir(), "no MNIST at {}", digits.display());
        let out = root.join("target/predictions").join(part);
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir_all(&out)?;
        Ok(Self { paceline: Paceline::build(root)?, digits, out })
    }

    /// Keeps a part's rows and writes the section from all parts.
    fn keep(&self, root: &Path, part: &str, rows: &Rows) -> anyhow::Result<()> {
        let folder = root.join("target/predictions");
        std::fs::write(folder.join(format!("{part}.json")), serde_json::to_string_pretty(rows)?)?;
        let mut all: Vec<(&str, Rows)> = Vec::new();
        for part in WORKS.iter().map(|work| work.part).chain(["links-100", "links-400"]) {
            let Ok(text) = std::fs::read_to_string(folder.join(format!("{part}.json"))) else {
                continue;
            };
            all.push((part, serde_json::from_str(&text)?));
        }
        let mut body = String::new();
        let intro = "Tasks are single-threaded processes on this machine, in many cases more than it has cores; or network namespaces on links shaped with `tc`. Simulator: `paceline simulate` from a run with fewer workers (in brackets) made just before. Real runs: mean of two, on shaped links one, without evaluations. If other guests slow the machine down between a prediction and its run, that appears as an error here: lenet-512 gave 11 and 19 % with busy neighbours, 4 % without.";
        table(&mut body, intro, all.iter().map(|(part, rows)| (*part, &*rows.simulator)))?;
        let intro = "\nOracle: `paceline advise parallel` from layer times, shared cores and all-reduce times measured here and, on shaped links, from `paceline check`; without any run. Data parallelism compared with real multi-worker runs.";
        table(&mut body, intro, all.iter().map(|(part, rows)| (*part, &*rows.oracle)))?;
        benchmarks::write_body(root, "predictions", &body)
    }

    /// What training has in common in all cases.
    fn flags(&self, model: &str, batch: &str, steps: &str) -> anyhow::Result<Vec<String>> {
        let data = if model == "alexnet" { self.photos()? } else { self.digits.clone() };
        let words = ["--model", model, "--batch-size", batch, "--steps", steps, "--threads", "1"];
        let mut flags: Vec<String> = words.map(str::to_owned).to_vec();
        flags.extend(["--data".to_owned(), data.to_string_lossy().into_owned()]);
        // Evaluations pause the chief, but not asynchronous workers.
        flags.extend(["--eval-every", "1000000000", "--no-tensorboard"].map(str::to_owned));
        flags.extend(["--out".to_owned(), self.out.to_string_lossy().into_owned()]);
        Ok(flags)
    }

    /// Photos as AlexNet wants them, drawn and prepared once.
    fn photos(&self) -> anyhow::Result<PathBuf> {
        let folder = self.out.join("photos");
        let records = self.out.join("records");
        if !records.is_dir() {
            let (from, to) = (folder.to_string_lossy(), records.to_string_lossy());
            self.paceline.json(&["data", "synth", "photos", &from, "--per-class", "14"])?;
            let split = ["--split", "validation=0.1"];
            let words = ["prepare", &from, &to, "--size", "224", "--shards", "2"];
            self.paceline.json(&[&words[..], &split].concat())?;
        }
        Ok(records)
    }

    /// Trains on processes of this machine.
    fn train(&self, work: &Work, strategy: &str, workers: usize) -> anyhow::Result<Value> {
        let flags = self.flags(work.model, work.batch, work.steps)?;
        let mut args = vec!["train"];
        args.extend(flags.iter().map(String::as_str));
        let count = workers.to_string();
        if workers == 1 && strategy == "multi-worker" {
            args.extend(["--strategy", "one-device"]);
        } else {
            args.extend(["--strategy", strategy, "--workers", &count]);
        }
        if strategy.starts_with("ps") {
            args.extend(["--ps", "1"]);
        }
        if strategy == "multi-worker" && workers > 1 && work.model == "alexnet" {
            // Data parallelism and nothing else is what both predict.
            args.extend(["--split-dense", "off"]);
        }
        self.paceline.json(&args)
    }

    fn measured(&self, work: &Work, strategy: &str, workers: usize) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for _ in 0..REPEATS {
            sum += rate(&self.train(work, strategy, workers)?)?;
        }
        Ok(sum / REPEATS as f64)
    }

    /// Folder of a run.
    fn folder(&self, summary: &Value) -> anyhow::Result<String> {
        let name = summary["run"].as_str().context("the summary names no run")?;
        Ok(self.out.join(name).to_string_lossy().into_owned())
    }

    /// The simulator's prediction for one number of workers.
    fn simulate(&self, run: &str, workers: usize, words: &[&str]) -> anyhow::Result<f64> {
        let count = workers.to_string();
        let mut args = vec!["simulate", run, "--workers", &count, "--threads", "1"];
        args.extend(["--steps", "2000"]);
        if words.iter().any(|word| word.starts_with("ps-")) {
            args.extend(["--ps", "1"]);
        }
        args.extend(words);
        let found = self.paceline.json(&args)?;
        let outcomes = found["outcomes"].as_array().context("no outcomes")?;
        let outcome =
            outcomes.iter().find(|row| row["workers"] == workers).context("no outcome")?;
        outcome["examples_per_second"].as_f64().context("no rate")
    }

    fn simulated(
        &self,
        work: &Work,
        strategy: &str,
        from: usize,
        to: &[usize],
    ) -> anyhow::Result<Vec<Row>> {
        let run = self.folder(&self.train(work, strategy, from)?)?;
        let mut rows = Vec::new();
        for &workers in to {
            let words = ["--one-machine", "--strategy", strategy, "--batch-size", work.batch];
            let predicted = self.simulate(&run, workers, &words)?;
            let measured = self.measured(work, strategy, workers)?;
            let Work { model, batch, .. } = work;
            let what =
                format!("{model} batch {batch}, {strategy}, {workers} workers (from {from})");
            rows.push(Row::new(what, predicted, measured));
        }
        Ok(rows)
    }

    /// The oracle's prediction of an epoch with data parallelism, as a rate.
    fn project(&self, workers: usize, words: &[&str]) -> anyhow::Result<f64> {
        let count = workers.to_string();
        let mut args = vec!["advise", "parallel", "--examples", "60000", "--threads", "1"];
        args.extend(["--workers", &count]);
        args.extend(words);
        let found = self.paceline.json(&args)?;
        let strategy = if workers == 1 { "serial" } else { "data" };
        let projections = found["projections"].as_array().context("no projections")?;
        let row = projections
            .iter()
            .find(|row| row["strategy"] == strategy && row["workers"] == workers)
            .context("no projection")?;
        Ok(60_000.0 / row["epoch_seconds"].as_f64().context("no time")?)
    }

    fn oracle(&self, work: &Work) -> anyhow::Result<Vec<Row>> {
        let Work { model, batch, .. } = *work;
        let layers = self.out.join("layers.json").to_string_lossy().into_owned();
        let most = work.oracle.iter().max().copied().unwrap_or(1).to_string();
        let job = ["--model", model, "--batch", batch, "--per-host", &most];
        // Measured once, then used for every number of workers.
        let once = ["--measure-batch", batch, "--save-layers", &layers];
        self.project(most.parse()?, &[&job[..], &once].concat())?;
        let mut rows = Vec::new();
        for &workers in work.oracle {
            let predicted = self.project(workers, &[&job[..], &["--layers", &layers]].concat())?;
            let measured = self.measured(work, "multi-worker", workers)?;
            let what = format!("{model} batch {batch}, {workers} workers");
            rows.push(Row::new(what, predicted, measured));
        }
        Ok(rows)
    }

    /// LeNet on hosts of one core each, with cables between them.
    fn cables(&self, megabits: u32, rows: &mut Rows) -> anyhow::Result<()> {
        let work = Work {
            part: "links",
            model: "lenet",
            batch: "128",
            steps: if megabits < 200 { "100" } else { "300" },
            simulated: &[],
            oracle: &[],
        };
        let long = Work { steps: "1000", ..work };
        let flags = self.flags(work.model, work.batch, work.steps)?;
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let layers = self.out.join("layers.json").to_string_lossy().into_owned();
        let job = ["--model", "lenet", "--batch", "128"];
        let once = ["--measure-batch", "128", "--save-layers", &layers];
        self.project(1, &[&job[..], &once].concat())?;
        let lab = |hosts: usize| Lab::new(hosts, megabits, self.paceline.program(), &self.out);
        let check = self.out.join("check.json").to_string_lossy().into_owned();
        for (strategy, from, to) in [
            ("multi-worker", 2, &[2usize, 3, 4][..]),
            ("ps-async", 1, &[1, 2, 3]),
            ("ps-sync", 2, &[1, 2, 3]),
        ] {
            // The run the prediction rests on knows nothing of cables.
            let run = self.folder(&self.train(&long, strategy, from)?)?;
            let servers = usize::from(strategy.starts_with("ps"));
            for &workers in to {
                let lab = lab(workers + servers)?;
                let report = lab.run(workers, &["check"])?;
                std::fs::write(&check, serde_json::to_string(&report)?)?;
                // The namespaces share this machine's two cores. Synchronous workers need them at the same time;
                // asynchronous ones wait for the network most of the time, each at a different moment.
                let crowded = workers > 2 && strategy != "ps-async";
                let cores = if crowded { "0.5" } else { "1" };
                let words = ["--strategy", strategy, "--batch-size", "128", "--check", &check];
                let words = [&words[..], &["--cores", cores]].concat();
                let predicted = self.simulate(&run, workers, &words)?;
                let projected = if strategy == "multi-worker" && workers <= 2 {
                    let words = [&job[..], &["--layers", &layers, "--check", &check]].concat();
                    Some(self.project(workers, &words)?)
                } else {
                    None
                };
                let words = [&["node", "--strategy", strategy], &flags[..]].concat();
                let measured = rate(&lab.run(workers, &words)?)?;
                let what =
                    format!("lenet batch 128, {megabits} Mbit/s, {strategy}, {workers} workers");
                if let Some(projected) = projected {
                    rows.oracle.push(Row::new(what.clone(), projected, measured));
                }
                rows.simulator.push(Row::new(format!("{what} (from {from})"), predicted, measured));
            }
        }
        Ok(())
    }
}

/// Examples per second of step time: the forecasts exclude evaluations and checkpoints.
fn rate(summary: &Value) -> anyhow::Result<f64> {
    let examples = summary["examples"].as_f64().context("the summary has no examples")?;
    let seconds = summary["step_seconds"].as_f64().context("the summary has no time of steps")?;
    anyhow::ensure!(seconds > 0.0, "no step was made");
    Ok(examples / seconds)
}

/// Every case of every part, then how far off each part is on average.
fn table<'a>(
    body: &mut String,
    intro: &str,
    parts: impl Iterator<Item = (&'a str, &'a [Row])>,
) -> anyhow::Result<()> {
    let parts: Vec<(&str, &[Row])> = parts.filter(|(_, rows)| !rows.is_empty()).collect();
    writeln!(body, "{intro}\n")?;
    writeln!(
        body,
        "| case | predicted examples/s | measured | error |\n| --- | --- | --- | --- |"
    )?;
    for row in parts.iter().flat_map(|(_, rows)| *rows) {
        writeln!(
            body,
            "| {} | {:.0} | {:.0} | {:+.0} % |",
            row.what,
            row.predicted,
            row.measured,
            100.0 * (row.predicted / row.measured - 1.0)
        )?;
    }
    let mut line = |what: &str, errors: Vec<f64>| {
        let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        let worst = errors.iter().copied().fold(0.0, f64::max);
        let (count, mean, worst) = (errors.len(), 100.0 * mean, 100.0 * worst);
        writeln!(
            body,
            "| **{what}**: mean of absolute errors (worst), {count} cases | | | **{mean:.1} %** ({worst:.0} %) |"
        )
    };
    for (part, rows) in &parts {
        line(part, rows.iter().map(Row::error).collect())?;
    }
    line("all", parts.iter().flat_map(|(_, rows)| *rows).map(Row::error).collect())?;
    Ok(())
}
