//! `versus predictions`: what the simulator and the oracle say, beside what real processes then do.
//!
//! Every prediction is made from a smaller run than the one it is compared with, before that one is
//! made. All tasks share this machine's cores, so the model of shared cores is tested with the rest.

use super::benchmarks;
use super::paceline::{Paceline, shared_data};
use anyhow::Context;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// One kind of job.
struct Job {
    model: &'static str,
    batch: &'static str,
    /// Steps of a run: some seconds.
    steps: &'static str,
    strategy: &'static str,
    /// Workers of the run the prediction rests on.
    from: usize,
    /// Workers predicted.
    to: &'static [usize],
}

const JOBS: &[Job] = &[
    Job {
        model: "softmax",
        batch: "100",
        steps: "20000",
        strategy: "ps-async",
        from: 1,
        to: &[2, 3, 4],
    },
    Job {
        model: "softmax",
        batch: "100",
        steps: "20000",
        strategy: "ps-sync",
        from: 1,
        to: &[2, 3, 4],
    },
    Job {
        model: "lenet",
        batch: "128",
        steps: "1000",
        strategy: "ps-async",
        from: 1,
        to: &[2, 3, 4],
    },
    Job {
        model: "lenet",
        batch: "128",
        steps: "1000",
        strategy: "ps-sync",
        from: 1,
        to: &[2, 3, 4],
    },
    Job {
        model: "lenet",
        batch: "128",
        steps: "1000",
        strategy: "multi-worker",
        from: 2,
        to: &[1, 3, 4],
    },
    Job {
        model: "lenet",
        batch: "512",
        steps: "300",
        strategy: "multi-worker",
        from: 2,
        to: &[1, 3, 4],
    },
];

/// The oracle's cases: model, global batch, steps of the real runs.
const ORACLE: &[(&str, &str, &str)] = &[("lenet", "128", "1000"), ("lenet", "512", "300")];
/// Workers of the oracle's cases.
const WORKERS: [usize; 4] = [1, 2, 3, 4];

/// A prediction and what came of it, in examples per second.
struct Row {
    what: String,
    predicted: f64,
    measured: f64,
}

impl Row {
    fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }
}

/// Predicts, runs, compares, writes the section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let data = shared_data(root).join("mnist");
    anyhow::ensure!(data.is_dir(), "no MNIST at {}", data.display());
    let paceline = Paceline::build(root)?;
    let bench = Bench { paceline, data, out: root.join("target/predictions") };
    let _ = std::fs::remove_dir_all(&bench.out);
    let mut body = String::new();
    let mut simulated = Vec::new();
    for job in JOBS {
        simulated.extend(
            bench.simulated(job).with_context(|| format!("{} {}", job.model, job.strategy))?,
        );
    }
    let intro = "All tasks are processes of this machine and share its cores. Simulator: step times, message costs from a run of fewer workers (given in brackets), then `paceline simulate --one-machine`.";
    table(&mut body, intro, &simulated)?;
    let mut oracle = Vec::new();
    for &(model, batch, steps) in ORACLE {
        oracle
            .extend(bench.oracle(model, batch, steps).with_context(|| format!("oracle {model}"))?);
    }
    table(
        &mut body,
        "\nOracle: layer times and the sharing of cores measured by `paceline advise parallel`, no run at all; data parallelism beside real multi-worker runs.",
        &oracle,
    )?;
    benchmarks::write_body(root, "predictions", &body)
}

struct Bench {
    paceline: Paceline,
    data: PathBuf,
    out: PathBuf,
}

impl Bench {
    fn train(
        &self,
        model: &str,
        batch: &str,
        steps: &str,
        strategy: &str,
        workers: usize,
    ) -> anyhow::Result<Value> {
        let (data, out) = (self.data.to_string_lossy(), self.out.to_string_lossy());
        let workers = workers.to_string();
        let mut args = vec![
            "train",
            "--model",
            model,
            "--data",
            &data,
            "--out",
            &out,
            "--batch-size",
            batch,
            "--steps",
            steps,
            "--strategy",
            strategy,
            "--workers",
            &workers,
        ];
        if strategy.starts_with("ps") {
            args.extend(["--ps", "1"]);
        }
        self.paceline.json(&args)
    }

    fn simulated(&self, job: &Job) -> anyhow::Result<Vec<Row>> {
        let base = self.train(job.model, job.batch, job.steps, job.strategy, job.from)?;
        let run = self.out.join(base["run"].as_str().context("the summary names no run")?);
        let run = run.to_string_lossy().into_owned();
        let mut rows = Vec::new();
        for &workers in job.to {
            let count = workers.to_string();
            let found = self.paceline.json(&[
                "simulate",
                &run,
                "--one-machine",
                "--workers",
                &count,
                "--ps",
                "1",
                "--strategy",
                job.strategy,
                "--batch-size",
                job.batch,
                "--steps",
                "2000",
            ])?;
            let outcomes = found["outcomes"].as_array().context("no outcomes")?;
            let outcome =
                outcomes.iter().find(|row| row["workers"] == workers).context("no outcome")?;
            let predicted = outcome["examples_per_second"].as_f64().context("no rate")?;
            let real = self.train(job.model, job.batch, job.steps, job.strategy, workers)?;
            let measured = real["examples_per_second"].as_f64().context("no rate")?;
            let what = format!(
                "{} batch {}, {}, {workers} workers (from {})",
                job.model, job.batch, job.strategy, job.from
            );
            println!("{what}: predicted {predicted:.0}, measured {measured:.0}");
            rows.push(Row { what, predicted, measured });
        }
        Ok(rows)
    }

    fn oracle(&self, model: &str, batch: &str, steps: &str) -> anyhow::Result<Vec<Row>> {
        let most = WORKERS[WORKERS.len() - 1];
        let cluster = self.out.join("cluster.toml");
        let tasks: Vec<String> =
            (0..most).map(|task| format!("\"127.0.0.1:{}\"", 7000 + task)).collect();
        std::fs::write(&cluster, format!("workers = [{}]\n", tasks.join(", ")))?;
        let layers = self.out.join(format!("{model}-{batch}-layers.json"));
        let (cluster, layers) = (cluster.to_string_lossy(), layers.to_string_lossy());
        let mut rows = Vec::new();
        for workers in WORKERS {
            let count = workers.to_string();
            let mut args = vec![
                "advise",
                "parallel",
                "--model",
                model,
                "--batch",
                batch,
                "--examples",
                "60000",
                "--cluster",
                &cluster,
                "--measure-batch",
                batch,
            ];
            // Measured once, with all four tasks, then used for every number of workers.
            if workers == WORKERS[0] {
                args.extend(["--save-layers", &layers]);
            } else {
                args.extend(["--layers", &layers, "--workers", &count]);
            }
            let found = self.paceline.json(&args)?;
            let strategy = if workers == 1 { "serial" } else { "data" };
            let projections = found["projections"].as_array().context("no projections")?;
            let row = projections
                .iter()
                .find(|row| row["strategy"] == strategy && row["workers"] == workers)
                .context("no projection")?;
            let predicted = 60_000.0 / row["epoch_seconds"].as_f64().context("no time")?;
            let real = self.train(model, batch, steps, "multi-worker", workers)?;
            let measured = real["examples_per_second"].as_f64().context("no rate")?;
            let what = format!("{model} batch {batch}, data parallel, {workers} workers");
            println!("{what}: predicted {predicted:.0}, measured {measured:.0}");
            rows.push(Row { what, predicted, measured });
        }
        Ok(rows)
    }
}

fn table(body: &mut String, intro: &str, rows: &[Row]) -> anyhow::Result<()> {
    writeln!(body, "{intro}\n")?;
    writeln!(
        body,
        "| case | predicted examples/s | measured | error |\n| --- | --- | --- | --- |"
    )?;
    for row in rows {
        writeln!(
            body,
            "| {} | {:.0} | {:.0} | {:.0} % |",
            row.what,
            row.predicted,
            row.measured,
            100.0 * row.error()
        )?;
    }
    let mean = rows.iter().map(Row::error).sum::<f64>() / rows.len().max(1) as f64;
    let worst = rows.iter().map(Row::error).fold(0.0, f64::max);
    writeln!(
        body,
        "| **mean** (worst) | | | **{:.1} %** ({:.0} %) |",
        100.0 * mean,
        100.0 * worst
    )?;
    Ok(())
}
