//! `paceline advise parallel`: which way of parallelising suits a network and a cluster.

use super::links;
use super::subject::SubjectArgs;
use crate::arguments::paths::local_path;
use crate::arguments::units;
use crate::terminal::failure::{Exit, FailureExt, forecast::explain, usage};
use crate::terminal::{Table, Terminal, show_bytes, show_count, show_seconds};
use anyhow::Context;
use paceline_cluster::spec;
use paceline_forecast::oracle::{
    Answer, Calibration, LayerSource, ParallelForecast, ParallelQuestion, Projection, parallel,
};
use paceline_report::chart::{Axis, Chart, Series};
use paceline_runs::write_atomically;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `paceline advise parallel`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline advise parallel --model alexnet --batch-size 256 --workers 16 --network 10Gbit --latency 50us\n  paceline advise parallel --model alexnet --cluster cluster.toml --check check.json --batch-size 256 --chart oracle.svg"
)]
pub struct Args {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Examples of one update, over all workers
    #[arg(long, default_value_t = 256)]
    batch_size: usize,
    /// Examples of an epoch
    #[arg(long, default_value_t = 60_000)]
    examples: u64,
    /// The cluster: its workers and the hosts they are on
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    cluster: Option<PathBuf>,
    /// Largest number of workers to consider [default: the cluster's, else 16]
    #[arg(long)]
    workers: Option<usize>,
    /// Workers on each host, without a cluster file
    #[arg(long, default_value_t = 1, conflicts_with = "cluster")]
    per_host: usize,
    /// Memory of a host [default: this machine's]
    #[arg(long, value_parser = units::bytes, value_name = "SIZE")]
    memory: Option<f64>,
    #[command(flatten)]
    links: links::LinkArgs,
    /// Share of the backward pass during which gradients already travel
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    overlap: f64,
    /// Threads of each worker [default: its host's cores, divided among the workers there]
    #[arg(long, conflicts_with = "layers")]
    threads: Option<usize>,
    /// Examples of a measured step
    #[arg(long, default_value_t = 32, conflicts_with = "layers")]
    measure_batch: usize,
    /// Layer times measured before, instead of measuring now
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "classes"], value_parser = local_path())]
    layers: Option<PathBuf>,
    /// Keep the layer times in a file
    #[arg(long, value_name = "FILE", conflicts_with = "layers", value_parser = local_path())]
    save_layers: Option<PathBuf>,
    /// Draw seconds over workers into an SVG file
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    chart: Option<PathBuf>,
}

/// Every worker has a place in the projection: so many fit into any memory.
const MOST_WORKERS: usize = links::MOST_WORKERS;

/// Measures, projects, ranks.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    if args.measure_batch < 2 || args.per_host == 0 {
        return Err(usage("--measure-batch needs at least 2, --per-host 1", "leave them out"));
    }
    let asked = [("--workers", args.workers.unwrap_or(1)), ("--per-host", args.per_host)];
    if let Some((flag, workers)) = asked.into_iter().find(|(_, workers)| *workers > MOST_WORKERS) {
        return Err(usage(
            format!("{flag} {workers} is more workers than any cluster has"),
            format!("at most {MOST_WORKERS} workers are considered"),
        ));
    }
    let question = question(args)?;
    if let LayerSource::Measure { threads, .. } = &question.layers {
        terminal.note(format!(
            "measuring `{}` layer by layer on {}",
            question.subject.model,
            show_count(threads.unwrap_or_else(|| paceline_batch::cores().count), "thread")
        ));
    }
    let found = question.answer().map_err(explain)?;
    print_ranking(terminal, &found.answer)?;
    print_epochs(terminal, &found)?;
    print_answer(terminal, &found.answer, args.examples)?;
    let machines = &found.machines;
    terminal.note(format!(
        "between hosts {} and {}/s ({}), inside one {} and {}/s",
        show_seconds(machines.network.latency),
        show_bytes(machines.network.bandwidth),
        links::origin_words(&found.origin),
        show_seconds(machines.local.latency),
        show_bytes(machines.local.bandwidth),
    ));
    if let Some(calibration) = &found.calibration {
        print_calibration(
            terminal,
            calibration,
            machines.places(args.workers.unwrap_or(machines.tasks())).len(),
        )?;
    }
    if let Some(path) = &args.chart {
        let drawing = chart(&found.network.name, &found.answer).standalone();
        write_atomically(path, drawing.as_bytes())?;
        terminal.note(format!("chart in `{}`", path.display()));
    }
    let answer = &found.answer;
    let ranking = answer.ranking.iter().map(|&at| row(&answer.projections[at]));
    terminal.json(&json!({
        "network": found.network,
        "machines": machines,
        "job": found.job,
        "calibration": found.calibration,
        "projections": answer.projections.iter().map(row).collect::<Vec<_>>(),
        "ranking": ranking.collect::<Vec<_>>(),
        "recommended": answer.best().map(row),
    }))?;
    Ok(Exit::Done)
}

fn question(args: &Args) -> anyhow::Result<ParallelQuestion> {
    Ok(ParallelQuestion {
        subject: args.subject.subject(),
        batch: args.batch_size,
        examples: args.examples,
        workers_per_host: hosts(args)?,
        workers: args.workers,
        memory: args.memory,
        links: args.links.settings(),
        overlap: args.overlap,
        measured_steps: args.links.measured_steps.clone(),
        layers: match &args.layers {
            Some(path) => LayerSource::File(path.clone()),
            None => LayerSource::Measure {
                examples: args.measure_batch,
                threads: args.threads,
                save: args.save_layers.clone(),
            },
        },
    })
}

/// Workers per host: from the cluster file, or as many hosts as it takes.
fn hosts(args: &Args) -> anyhow::Result<Vec<usize>> {
    let Some(path) = &args.cluster else {
        let most = args.workers.unwrap_or(16).max(1);
        return Ok(vec![args.per_host; most.div_ceil(args.per_host)]);
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    spec::workers_per_host(&text)
        .with_context(|| format!("`{}`", path.display()))
        .hint("a cluster file reads: workers = [\"10.0.0.1:7000\", \"10.0.0.2:7000\"]")
}

fn row(found: &Projection) -> serde_json::Value {
    json!({
        "strategy": found.strategy,
        "workers": found.workers,
        "arrangement": found.arrangement,
        "epoch_seconds": found.seconds(),
        "compute_seconds": found.compute,
        "communication_seconds": found.communication,
        "memory_bytes": found.memory,
        "infeasible": found.infeasible,
    })
}

/// What timed steps said, and where the answer leaves them.
fn print_calibration(terminal: &Terminal, found: &Calibration, hosts: usize) -> anyhow::Result<()> {
    let share = match found.share {
        Some(share) => format!("the network gives {:.0} % of its rate", 100.0 * share),
        None => "no step across hosts was timed".to_owned(),
    };
    terminal.data(format!(
        "by the timed steps computing takes {:.2} times as long as the layers' times; {share}",
        found.compute
    ))?;
    if hosts > found.hosts {
        let timed =
            if found.hosts == 1 { "one host".to_owned() } else { format!("{} hosts", found.hosts) };
        terminal.data(format!(
            "extrapolates: timed were steps on {timed}, projected are up to {hosts}"
        ))?;
    }
    Ok(())
}

/// Each strategy at its best.
fn print_ranking(terminal: &Terminal, answer: &Answer) -> anyhow::Result<()> {
    let serial = answer.projections.iter().find(|found| found.strategy == "serial");
    let mut table = Table::new([
        "strategy",
        "best workers",
        "epoch",
        "speed-up",
        "messages",
        "memory",
        "arranged as",
    ]);
    for &at in &answer.ranking {
        let found = &answer.projections[at];
        let speedup = serial.map_or(f64::NAN, |serial| serial.seconds() / found.seconds());
        table.row([
            found.strategy.to_owned(),
            found.workers.to_string(),
            show_seconds(found.seconds()),
            format!("{speedup:.2}x"),
            format!("{:.0} %", 100.0 * found.communication / found.seconds()),
            show_bytes(found.memory),
            found.arrangement.clone().unwrap_or_default(),
        ]);
    }
    terminal.data(table)
}

/// Each strategy on each number of workers.
fn print_epochs(terminal: &Terminal, forecast: &ParallelForecast) -> anyhow::Result<()> {
    let ParallelForecast { counts, answer, .. } = forecast;
    let header = counts.iter().map(|workers| format!("{workers} workers"));
    let mut table = Table::new(std::iter::once("epoch on".to_owned()).chain(header));
    for strategy in parallel::ALL {
        let cells = counts.iter().map(|&workers| {
            let found = answer
                .projections
                .iter()
                .find(|found| found.strategy == strategy.name && found.workers == workers);
            match found {
                None => String::new(),
                Some(found) if found.infeasible.is_some() => "–".to_owned(),
                Some(found) => show_seconds(found.seconds()),
            }
        });
        table.row(std::iter::once(strategy.name.to_owned()).chain(cells));
    }
    terminal.data(table)
}

/// What cannot be done and why, and what to take.
fn print_answer(terminal: &Terminal, answer: &Answer, examples: u64) -> anyhow::Result<()> {
    let mut said = Vec::new();
    for found in answer.projections.iter().filter(|found| found.workers > 1) {
        if let Some(why) = &found.infeasible
            && !said.contains(&found.strategy)
        {
            said.push(found.strategy);
            terminal.data(format!("{} on {} workers: {why}", found.strategy, found.workers))?;
        }
    }
    match answer.best() {
        Some(best) => terminal.data(format!(
            "recommended: {} on {} workers, {} an epoch of {examples} examples; trust the order more than the seconds",
            best.strategy,
            best.workers,
            show_seconds(best.seconds()),
        )),
        None => terminal.data("nothing fits: every strategy needs more memory than there is"),
    }
}

fn chart(name: &str, answer: &Answer) -> Chart {
    let mut chart = Chart::new(
        format!("{name}: an epoch by strategy and workers"),
        Axis::new("workers").logarithmic(),
        Axis::new("epoch").unit("s").logarithmic(),
    )
    .sized(720.0, 420.0);
    let serial = answer.projections.iter().find(|found| found.strategy == "serial");
    for strategy in parallel::ALL.iter().filter(|strategy| strategy.name != "serial") {
        let mine = answer
            .projections
            .iter()
            .filter(|found| found.strategy == strategy.name && found.infeasible.is_none());
        let points = serial
            .into_iter()
            .chain(mine)
            .map(|found| (found.workers as f64, found.seconds()))
            .collect::<Vec<_>>();
        if points.len() > 1 {
            chart = chart.with(Series::line(strategy.name, points));
        }
    }
    match answer.best() {
        Some(best) => chart.described(format!(
            "The fastest is {} on {} workers with {:.1} s",
            best.strategy,
            best.workers,
            best.seconds()
        )),
        None => chart,
    }
}
