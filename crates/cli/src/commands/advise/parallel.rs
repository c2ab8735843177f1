//! `paceline advise parallel`: which way of parallelising suits a network and a cluster.

use super::super::staging::local_path;
use super::links;
use super::subject::SubjectArgs;
use crate::failure::{Exit, FailureExt, usage};
use crate::terminal::{Table, Terminal};
use crate::units::{self, show_bytes, show_seconds};
use anyhow::Context;
use paceline_cluster::spec;
use paceline_forecast::measure::local_sums;
use paceline_forecast::measure::stepping::{self, Stepper};
use paceline_forecast::oracle::{Answer, Job, Link, Machines, Network, Projection, parallel, rank};
use paceline_models::names::spelling;
use paceline_report::chart::{Axis, Chart, Series};
use paceline_runs::write_atomically;
use paceline_wire::{Role, TaskId};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// Layer times as a file keeps them.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    network: Network,
    /// How much longer a step takes when so many tasks share a host.
    sharing: Vec<(usize, f64)>,
    /// Adding up between tasks of one host.
    #[serde(default)]
    local: Option<Link>,
}

/// Workers that are timed at once at most: each needs memory for a network.
const MOST_AT_ONCE: usize = 8;
/// Every worker has a place in the projection: so many fit into any memory.
const MOST_WORKERS: usize = 1 << 20;
/// How long each measurement lasts.
const SPAN: Duration = Duration::from_millis(1500);

/// Measures, projects, ranks.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    if args.measure_batch < 2 || args.per_host == 0 {
        return Err(usage("--measure-batch needs at least 2, --per-host 1", "leave them out"));
    }
    if let Some(workers) = args.workers.filter(|workers| *workers > MOST_WORKERS) {
        return Err(usage(
            format!("--workers {workers} is more than any cluster has"),
            format!("at most {MOST_WORKERS} workers are considered"),
        ));
    }
    let tasks_per_host = hosts(args)?;
    let places: usize = tasks_per_host.iter().sum();
    let most = args.workers.unwrap_or(places).max(1);
    let fullest = tasks_per_host.iter().copied().max().unwrap_or(1).min(most);
    let measured = match &args.layers {
        Some(path) => read(path, &args.subject.model)?,
        None => measure(args, fullest, terminal)?,
    };
    if let Some(path) = &args.save_layers {
        write_atomically(path, serde_json::to_string_pretty(&measured)?.as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    let links = args.links.decide(measured.local)?;
    let machines = Machines {
        tasks_per_host,
        cores: paceline_batch::cores().count as f64,
        sharing: measured.sharing,
        memory: args.memory.unwrap_or_else(|| paceline_runs::Machine::detect().memory_bytes as f64),
        // Nearly all messages of the strategies are sums and exchanges among all.
        network: links.sums.unwrap_or(links.network),
        local: links.local,
    };
    let job = Job {
        examples: args.examples as f64,
        batch: args.batch_size as f64,
        value_bytes: 4.0,
        overlap: args.overlap,
    };
    let counts = counts(most);
    let answer = rank(&measured.network, &machines, job, &counts)?;
    print(terminal, args, &answer, &counts)?;
    terminal.note(format!(
        "between hosts {} and {}/s ({}), inside one {} and {}/s",
        show_seconds(machines.network.latency),
        show_bytes(machines.network.bandwidth),
        links.origin.words(),
        show_seconds(machines.local.latency),
        show_bytes(machines.local.bandwidth),
    ));
    if let Some(path) = &args.chart {
        let drawing = chart(&measured.network.name, &answer).standalone();
        write_atomically(path, drawing.as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        terminal.note(format!("chart in `{}`", path.display()));
    }
    terminal.json(&json!({
        "network": measured.network,
        "machines": machines,
        "job": job,
        "projections": answer.projections.iter().map(row).collect::<Vec<_>>(),
        "ranking": answer.ranking.iter().map(|&at| row(&answer.projections[at])).collect::<Vec<_>>(),
        "recommended": answer.best().map(row),
    }))?;
    Ok(Exit::Done)
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

/// Workers per host: from the cluster file, or as many hosts as it takes.
fn hosts(args: &Args) -> anyhow::Result<Vec<usize>> {
    let Some(path) = &args.cluster else {
        let most = args.workers.unwrap_or(16).max(1);
        return Ok(vec![args.per_host; most.div_ceil(args.per_host)]);
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    // Any task may ask; the file must name at least one worker.
    let own = [TaskId::new(Role::Worker, 0), TaskId::new(Role::Chief, 0)];
    let cluster = spec::from_toml(&text, own[0])
        .or_else(|error| spec::from_toml(&text, own[1]).map_err(|_| error))
        .with_context(|| format!("`{}`", path.display()))
        .hint("a cluster file reads: workers = [\"10.0.0.1:7000\", \"10.0.0.2:7000\"]")?;
    let spec::Members::Listed(addresses) = cluster.members else {
        return Err(usage("the cluster lists no addresses", "list its workers"));
    };
    let mut tasks: BTreeMap<&str, usize> = BTreeMap::new();
    for (task, address) in &addresses {
        if matches!(task.role, Role::Worker | Role::Chief) {
            *tasks.entry(address.rsplit_once(':').map_or(address, |pair| pair.0)).or_default() += 1;
        }
    }
    Ok(tasks.into_values().collect())
}

/// Powers of two and the largest.
fn counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1usize), |n| n.checked_mul(2))
        .take_while(|n| *n < most)
        .collect();
    counts.push(most);
    counts
}

fn read(path: &Path, model: &str) -> anyhow::Result<Measured> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    let measured: Measured = serde_json::from_str(&text)
        .with_context(|| format!("`{}` holds no layer times", path.display()))
        .hint("write them with `--save-layers FILE`")?;
    let name = &measured.network.name;
    if *name != spelling(model) {
        return Err(usage(
            format!("`{}` holds layer times of `{name}`, not of `{model}`", path.display()),
            format!("give `--model {name}`, or leave `--layers` out to measure now"),
        ));
    }
    Ok(measured)
}

/// Times layers with the threads one worker alone on a host has, then common steps of several workers
/// there with what each has then.
fn measure(args: &Args, fullest: usize, terminal: &Terminal) -> anyhow::Result<Measured> {
    let cores = paceline_batch::cores().count;
    let threads = |tasks: usize| args.threads.unwrap_or_else(|| (cores / tasks).max(1));
    terminal.note(format!(
        "measuring `{}` layer by layer on {} threads",
        args.subject.model,
        threads(1)
    ));
    let network = stepping::network(&args.subject.subject(), args.measure_batch, threads(1), SPAN)
        .hint("`paceline list models` lists the models; small ones take --size 28")?;
    let mut sharing = vec![(1, 1.0)];
    let mut local = None;
    // Beyond twice the cores nothing new is learned: the time grows with the number of tasks.
    for tasks in 2..=fullest.min(2 * cores).min(MOST_AT_ONCE) {
        let examples = (args.measure_batch / tasks).max(1);
        let own = threads(tasks);
        let common = stepping::sharing(&args.subject.subject(), examples, tasks, own, SPAN)?;
        // The layers were timed with the threads of one worker alone.
        let alone = if own == threads(1) {
            1.0
        } else {
            let time =
                |threads| Stepper::new(&args.subject.subject(), examples, threads)?.time(SPAN);
            time(own)?.whole / time(threads(1))?.whole
        };
        sharing.push((tasks, (common * alone).max(1.0)));
    }
    if fullest > 1 {
        local = Some(local_sums::measure(network.parameters() as usize, SPAN / 4)?);
    }
    Ok(Measured { network, sharing, local })
}

fn print(
    terminal: &Terminal,
    args: &Args,
    answer: &Answer,
    counts: &[usize],
) -> anyhow::Result<()> {
    let serial = answer.projections.iter().find(|found| found.strategy == "serial");
    let mut table = Table::new(
        ["strategy", "best workers", "epoch", "speed-up", "messages", "memory", "arranged as"]
            .map(str::to_owned),
    );
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
    terminal.data(table)?;
    let mut table = Table::new(
        std::iter::once("epoch on".to_owned()).chain(counts.iter().map(|n| format!("{n} workers"))),
    );
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
        table.row(std::iter::once(strategy.name.to_owned()).chain(cells.collect::<Vec<_>>()));
    }
    terminal.data(table)?;
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
            "recommended: {} on {} workers, {} an epoch of {} examples; trust the order more than the seconds",
            best.strategy,
            best.workers,
            show_seconds(best.seconds()),
            args.examples
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
