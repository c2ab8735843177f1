//! `paceline simulate`: what a bigger cluster would do with a job that was measured on a smaller one.

use super::{
    advise::links,
    staging::{Staging, local_path, without_weights},
};
use crate::failure::{Exit, FailureExt, usage};
use crate::idle_flags::{Rule, Typed};
use crate::terminal::{Table, Terminal, Unit};
use crate::units::show_seconds;
use anyhow::Context;
use paceline_data::order::{Batches, LastBatch};
use paceline_forecast::measure::{Measured, local_sums, stepping};
use paceline_forecast::oracle::Link;
use paceline_forecast::simulate::{
    Cluster, Collective, Outcome, Plan, knee, simulate,
    strategies::{self, Entry},
};
use paceline_report::chart::{Axis, Chart, Series};
use paceline_runs::{PhaseTimes, RunFolder, write_atomically};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `paceline simulate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline simulate runs/lenet --workers 64 --network 10Gbit --latency 50us --strategy multi-worker\n  paceline simulate runs/softmax --workers 1000 --ps 4 --strategy ps-async --chart knee.svg\n  paceline simulate runs/softmax --workers 4 --strategy ps-async --one-machine"
)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// A run folder: its step times, message sizes and slow workers are the ground of the simulation
    run: PathBuf,
    /// Workers, the most to consider; smaller numbers are shown, too
    #[arg(long, default_value_t = 16)]
    workers: usize,
    /// Servers [default: 1 per 16 workers, where the strategy has any]
    #[arg(long)]
    ps: Option<usize>,
    /// Strategy [default: the run's own]
    #[arg(long, value_parser = names())]
    strategy: Option<String>,
    /// Examples of one update [default: the run's]
    #[arg(long)]
    batch_size: Option<u64>,
    /// Synchronous servers wait for all workers but so many
    #[arg(long, default_value_t = 0)]
    backup_workers: usize,
    /// Updates to simulate for each number of workers
    #[arg(long, default_value_t = 200)]
    steps: u64,
    /// All tasks on one machine such as the one measured
    #[arg(long, conflicts_with_all = ["network", "latency", "check"])]
    one_machine: bool,
    /// Tasks on each host
    #[arg(long, default_value_t = 1, conflicts_with = "one_machine")]
    per_host: usize,
    /// Cores of each host [default: those of the run's machine]
    #[arg(long)]
    cores: Option<f64>,
    /// Threads of each worker [default: its host's cores, divided among the workers there]
    #[arg(long)]
    threads: Option<usize>,
    #[command(flatten)]
    links: links::LinkArgs,
    /// Take only what the run folder says; do not time the model's layers here
    #[arg(long)]
    no_measure: bool,
    /// Seed of all draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Draw throughput over workers into an SVG file
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    chart: Option<PathBuf>,
}

/// How long sums inside this machine are timed.
const SPAN: Duration = Duration::from_millis(150);
/// Seconds to wake a sleeping thread, where it is not measured.
const WAKE: f64 = 30e-6;

const RULES: &[Rule<&Entry>] = &[
    Rule {
        flags: &["ps"],
        is_met: |strategy| strategy.servers,
        otherwise: "with a strategy without servers",
        instead: "use `--strategy ps-sync` or `--strategy ps-async`",
    },
    Rule {
        flags: &["backup-workers"],
        is_met: |strategy| strategy.servers && strategy.shares_batch,
        otherwise: "where no update waits for all workers",
        instead: "use `--strategy ps-sync`",
    },
];

fn names() -> clap::builder::PossibleValuesParser {
    let values = strategies::ALL
        .iter()
        .map(|entry| clap::builder::PossibleValue::new(entry.name).help(entry.about));
    clap::builder::PossibleValuesParser::new(values)
}

/// Reads the run, simulates, says where the knee is.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    if args.workers == 0 || args.workers > 1_000_000 || args.per_host == 0 {
        return Err(usage("--workers and --per-host are out of range", "use 1 to 1000000 workers"));
    }
    let mut staging = Staging::default();
    let run = staging.input(&args.run, &without_weights)?;
    // Timing a large model's steps takes a while.
    let counts = counts(args.workers);
    let bar = terminal.progress(
        "timing its model here, then simulating",
        Some(counts.len() as u64),
        Unit::Items("numbers of workers"),
    );
    let folder = RunFolder::open(&run).hint("`paceline runs` lists run folders")?;
    let mut measured = Measured::read(&folder, !args.no_measure)?;
    let strategy = match (&args.strategy, strategies::find(&measured.strategy)) {
        (Some(name), _) => strategies::find(name)?,
        (None, Ok(own)) => own,
        (None, Err(_)) => strategies::find("multi-worker")?,
    };
    args.typed.check(&strategy, RULES)?;
    let measured_local = if strategy.servers || args.no_measure {
        measured.local
    } else {
        let numbers = (measured.workload.gradient_bytes / 4.0) as usize;
        let link = local_sums::measure(numbers, SPAN)?;
        // Of two ranks: `2(α + m/2β)`; here a round is both ways at once.
        Link { latency: 2.0 * link.latency, ..link }
    };
    let links = args.links.decide(Some(measured_local))?;
    let per_host = if args.one_machine { usize::MAX } else { args.per_host };
    let mut cluster = Cluster {
        cores: args.cores.unwrap_or(measured.cores),
        per_host,
        network: links.network,
        sums: links.sums,
        local: links.local,
        wake: if args.no_measure { WAKE } else { stepping::wake() },
    };
    let calibrated = measured.calibrate(&mut cluster)?;
    let batch = args.batch_size.unwrap_or(measured.batch);
    let mut outcomes = Vec::new();
    for workers in counts {
        let plan = plan(args, strategy, workers, batch)?;
        outcomes.push(simulate(strategy.name, &measured.workload, &cluster, &plan)?);
        bar.set(outcomes.len() as u64);
    }
    drop(bar);
    print(terminal, strategy, &outcomes)?;
    let mut doubts = measured.doubts(strategy, &cluster, args.workers, batch);
    if args.strategy.is_none() && strategy.name != measured.strategy {
        doubts.insert(
            0,
            format!("the run is of `{}`; simulated is `{}`", measured.strategy, strategy.name),
        );
    }
    // Tasks that all fit on one host send nothing through the network.
    let servers = outcomes.last().map_or(0, |last| last.servers);
    if args.workers + servers > per_host {
        doubts.extend(links.origin.assumed());
    }
    for doubt in &doubts {
        terminal.data(format!("extrapolates: {doubt}"))?;
    }
    if let Some(path) = &args.chart {
        write_atomically(path, chart(strategy, &outcomes).standalone().as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        terminal.note(format!("chart in `{}`", path.display()));
    }
    terminal.json(&json!({
        "strategy": strategy.name,
        "batch_size": batch,
        "cluster": { "cores": cluster.cores, "per_host": cluster.per_host.min(args.workers + 1),
                     "network": cluster.network, "sums": cluster.sums, "local": cluster.local,
                     "wake": cluster.wake },
        "measured": { "workers": measured.workers, "servers": measured.servers,
                      "examples_per_second": measured.examples_per_second, "calibrated": calibrated },
        "outcomes": outcomes,
        "knee": knee(&outcomes).map(|found| found.workers),
        // Seconds of each task of the largest cluster, the first thousand.
        "tasks": outcomes.last().map(|last| &last.tasks[..last.tasks.len().min(1000)]),
        "extrapolates": doubts,
    }))?;
    Ok(Exit::Done)
}

/// Powers of two and the largest.
fn counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1usize), |n| n.checked_mul(2))
        .take_while(|n| *n < most)
        .collect();
    counts.push(most);
    counts
}

/// The plan of one size; shares of a batch are cut by the code that cuts them in training.
fn plan(args: &Args, strategy: &Entry, workers: usize, batch: u64) -> anyhow::Result<Plan> {
    let servers = args.ps.unwrap_or_else(|| workers.div_ceil(16));
    let shares = if strategy.shares_batch {
        if batch < workers as u64 {
            return Err(usage(
                format!("{workers} workers cannot share a batch of {batch}"),
                "give a larger --batch-size, or fewer --workers",
            ));
        }
        let batches = Batches::new(batch, LastBatch::Keep)?;
        let whole = batches.global_batch(0, 0, batch);
        let share = |worker: usize| {
            whole.as_ref().map_or(0, |whole| whole.share(worker as u64, workers as u64).len())
                as f64
        };
        (0..workers).map(share).collect()
    } else {
        vec![batch as f64]
    };
    // Every worker must have its turn several times before a rate means anything.
    let turns = if workers > 1000 { 6 } else { 20 };
    let steps =
        if strategy.shares_batch { args.steps } else { args.steps.max(turns * workers as u64) };
    Ok(Plan {
        workers,
        servers,
        backup: args.backup_workers.min(workers - 1),
        shares,
        steps,
        threads: args.threads.map(|threads| threads as f64),
        collective: Collective::BySize { tree_up_to: paceline_wire::collective::TREE_BYTES as f64 },
        seed: args.seed,
    })
}

fn print(terminal: &Terminal, strategy: &Entry, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let Some(first) = outcomes.first() else { return Ok(()) };
    let mut header =
        vec!["workers", "examples/s", "speed-up", "efficiency", "compute", "exchange", "wait"];
    if strategy.servers {
        header.insert(1, "servers");
        header.extend(["staleness", "busiest server part"]);
    }
    let mut table = Table::new(header);
    for found in outcomes {
        let speedup = found.examples_per_second / first.examples_per_second;
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let mut cells = vec![
            found.workers.to_string(),
            format!("{:.1}", found.examples_per_second),
            format!("{speedup:.2}x"),
            percent(speedup * first.workers as f64 / found.workers as f64),
            percent(found.shares.compute),
            percent(found.shares.exchange),
            percent(found.shares.wait),
        ];
        if strategy.servers {
            cells.insert(1, found.servers.to_string());
            cells.push(found.staleness.as_ref().map_or_else(
                || "–".to_owned(),
                |stale| format!("{:.1} (99 % ≤ {})", stale.mean, stale.p99),
            ));
            cells.push(
                found
                    .server
                    .map_or_else(String::new, |(what, busy)| format!("{what} {}", percent(busy))),
            );
        }
        table.row(cells);
    }
    terminal.data(table)?;
    if let Some(knee) = knee(outcomes) {
        let most = outcomes.iter().map(|found| found.examples_per_second).fold(0.0, f64::max);
        let each = show_seconds(1.0 / knee.updates_per_second.max(f64::MIN_POSITIVE));
        let pace = if strategy.shares_batch {
            format!("a step of theirs takes {each}")
        } else {
            format!("an update comes every {each}")
        };
        terminal.data(format!(
            "knee: {} workers give {:.0} % of the best; {pace}",
            knee.workers,
            100.0 * knee.examples_per_second / most,
        ))?;
    }
    if let Some(last) = outcomes.last().filter(|last| last.workers > 1) {
        let share = |task: &PhaseTimes| task.shares().wait;
        let by_share =
            |a: &usize, b: &usize| share(&last.tasks[*a]).total_cmp(&share(&last.tasks[*b]));
        let least = (0..last.workers).min_by(by_share).unwrap_or(0);
        let most = (0..last.workers).max_by(by_share).unwrap_or(0);
        terminal.data(format!(
            "waiting at {} workers: {:.0} % of its time (worker {least}) to {:.0} % (worker {most})",
            last.workers,
            100.0 * share(&last.tasks[least]),
            100.0 * share(&last.tasks[most]),
        ))?;
    }
    Ok(())
}

fn chart(strategy: &Entry, outcomes: &[Outcome]) -> Chart {
    let points = outcomes.iter().map(|found| (found.workers as f64, found.examples_per_second));
    let ideal =
        outcomes.first().map_or(0.0, |first| first.examples_per_second / first.workers as f64);
    let line = outcomes.iter().map(|found| (found.workers as f64, ideal * found.workers as f64));
    Chart::new(
        format!("{} by simulation", strategy.name),
        Axis::new("workers").logarithmic(),
        Axis::new("throughput").unit("examples/s").logarithmic(),
    )
    .with(Series::line("simulated", points.collect::<Vec<_>>()))
    .with(Series::line("if nothing were lost", line.collect::<Vec<_>>()))
    .sized(720.0, 420.0)
    .described(
        knee(outcomes)
            .map_or_else(String::new, |knee| format!("The knee is at {} workers", knee.workers)),
    )
}
