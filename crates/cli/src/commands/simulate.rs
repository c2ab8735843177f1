//! `paceline simulate`: what a bigger cluster would do with a job that was measured on a smaller one.

mod against;

use super::advise::links;
use crate::arguments::idle_flags::{Rule, Typed};
use crate::arguments::paths::local_path;
use crate::terminal::failure::{Exit, FailureExt, forecast::explain, usage};
use crate::terminal::{Table, Terminal, Unit, show_seconds};
use paceline_data::store::{Staging, staging::without_weights};
use paceline_forecast::Expectation;
use paceline_forecast::measure::StepProfile;
use paceline_forecast::simulate::{
    ClusterForecast, ClusterQuestion, SimulationOutcome, knee,
    strategies::{self, SimulatedStrategy},
};
use paceline_report::chart::{Axis, Chart, Series};
use paceline_runs::{PhaseTimes, RunFolder, write_atomically};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `paceline simulate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline simulate runs/lenet --workers 64 --network 10Gbit --latency 50us --strategy multi-worker\n  paceline simulate runs/softmax --workers 1000 --ps 4 --strategy ps-async --chart knee.svg\n  paceline simulate runs/softmax --workers 4 --strategy ps-async --one-machine\n  paceline simulate runs/one-worker --strategy multi-worker --one-machine --against runs/three-workers\n  paceline simulate --profile resnet50.json --workers 32 --per-host 4 --network 25Gbit --measured-step 8=310ms@512"
)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// A run folder: its step times, message sizes and slow workers are the ground of the simulation
    #[arg(required_unless_present = "profile")]
    run: Option<PathBuf>,
    /// Step times, parameters and messages of one worker, instead of a run; the book's page on the simulator describes the file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "no_measure"], value_parser = local_path())]
    profile: Option<PathBuf>,
    /// Workers, the most to consider; smaller numbers are shown, too [default: 16, or those of --against]
    #[arg(long)]
    workers: Option<usize>,
    /// A run, live or ended, to hold the prediction for its number of workers against: both rates side by side until it ends
    #[arg(long, value_name = "RUN", conflicts_with = "workers", value_parser = local_path())]
    against: Option<PathBuf>,
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
    /// Updates to simulate for each number of workers [default: 200; with servers fewer beyond 1,000 workers]
    #[arg(long)]
    steps: Option<u64>,
    /// All tasks on one machine such as the one measured
    #[arg(long, conflicts_with_all = ["network", "latency", "network_share", "check", "measured_steps"])]
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

const RULES: &[Rule<&SimulatedStrategy>] = &[
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
    let workers = match (&args.against, args.workers) {
        (Some(run), _) => against::workers(run)?,
        (None, workers) => workers.unwrap_or(16),
    };
    if workers == 0 || workers > 1_000_000 || args.per_host == 0 {
        return Err(usage("--workers and --per-host are out of range", "use 1 to 1000000 workers"));
    }
    let question = question(args, workers);
    let mut staging = Staging::default();
    let ground = Ground::read(args, &mut staging)?;
    let strategy = match &ground {
        Ground::Run(folder) => question.strategy(folder),
        Ground::Profile(_) => question.strategy_of_profile(),
    };
    args.typed.check(&strategy.map_err(explain)?, RULES)?;
    // Timing a large model's steps takes a while.
    let what = match &ground {
        Ground::Run(_) => "timing its model here, then simulating",
        Ground::Profile(_) => "simulating",
    };
    let unit = Unit::Items("numbers of workers");
    let stages = terminal.stages();
    let watch = |done: usize, total: usize| {
        stages.set(what, done as u64, Some(total as u64), unit);
    };
    let found = match &ground {
        Ground::Run(folder) => question.answer(folder, &watch),
        Ground::Profile(profile) => question.answer_profile(profile, &watch),
    };
    drop(stages);
    let mut found = found.map_err(explain)?;
    found.doubts.extend(found.network_origin.as_ref().and_then(links::assumed));
    print_table(terminal, found.strategy, &found.outcomes)?;
    print_knee(terminal, found.strategy, &found.outcomes)?;
    print_waiting(terminal, &found.outcomes)?;
    print_start(terminal, &found)?;
    if let Some(share) = found.network_share {
        terminal.data(format!(
            "by the timed steps the network gives {:.0} % of its rate",
            100.0 * share
        ))?;
    }
    for doubt in &found.doubts {
        terminal.data(format!("extrapolates: {doubt}"))?;
    }
    if let Some(path) = &args.chart {
        write_atomically(path, chart(found.strategy, &found.outcomes).standalone().as_bytes())?;
        terminal.note(format!("chart in `{}`", path.display()));
    }
    let mut document = document(&found, workers);
    if let (Some(run), Some(outcome)) = (&args.against, found.outcomes.last()) {
        let stop = terminal.interrupt()?;
        document["against"] = against::follow(run, &Expectation::of(outcome), &stop, terminal)?;
    }
    terminal.json(&document)?;
    Ok(Exit::Done)
}

/// What a simulation rests on.
enum Ground {
    Run(RunFolder),
    Profile(StepProfile),
}

impl Ground {
    fn read(args: &Args, staging: &mut Staging) -> anyhow::Result<Self> {
        let Some(run) = &args.run else {
            let path = args.profile.as_deref().unwrap_or(Path::new(""));
            let profile = StepProfile::read(path).map_err(explain);
            return Ok(Self::Profile(profile?));
        };
        let run = staging.input(run, &without_weights)?;
        let folder = RunFolder::open(&run).hint("`paceline runs` lists run folders")?;
        Ok(Self::Run(folder))
    }
}

fn question(args: &Args, workers: usize) -> ClusterQuestion {
    ClusterQuestion {
        workers,
        servers: args.ps,
        strategy: args.strategy.clone(),
        batch: args.batch_size,
        backup: args.backup_workers,
        steps: args.steps,
        per_host: (!args.one_machine).then_some(args.per_host),
        cores: args.cores,
        threads: args.threads,
        links: args.links.settings(),
        measured_steps: args.links.measured_steps.clone(),
        measure: !args.no_measure,
        seed: args.seed,
    }
}

fn document(found: &ClusterForecast, workers: usize) -> Value {
    let ClusterForecast { cluster, measured, outcomes, .. } = found;
    json!({
        "strategy": found.strategy.name,
        "batch_size": found.batch,
        "cluster": { "cores": cluster.cores, "per_host": cluster.per_host.min(workers + 1),
                     "network": cluster.network, "sums": cluster.sums, "local": cluster.local,
                     "wake": cluster.wake },
        "measured": { "workers": measured.workers, "servers": measured.servers,
                      "examples_per_second": measured.examples_per_second,
                      "start_seconds": measured.start.seconds,
                      "examples_per_second_with_start": measured.rate_with_start(measured.examples_per_second),
                      "calibrated": found.calibrated },
        "network_share": found.network_share,
        "outcomes": outcomes,
        "knee": knee(outcomes).map(|found| found.workers),
        // Seconds of each task of the largest cluster, the first thousand.
        "tasks": outcomes.last().map(|last| &last.tasks[..last.tasks.len().min(1000)]),
        "extrapolates": found.doubts,
    })
}

fn print_table(
    terminal: &Terminal,
    strategy: &SimulatedStrategy,
    outcomes: &[SimulationOutcome],
) -> anyhow::Result<()> {
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
    terminal.data(table)
}

/// From where on more workers bring little.
fn print_knee(
    terminal: &Terminal,
    strategy: &SimulatedStrategy,
    outcomes: &[SimulationOutcome],
) -> anyhow::Result<()> {
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
    Ok(())
}

/// How much of their time workers of the largest cluster wait.
fn print_waiting(terminal: &Terminal, outcomes: &[SimulationOutcome]) -> anyhow::Result<()> {
    if let Some(last) = outcomes.last().filter(|last| last.workers > 1) {
        let share = |task: &PhaseTimes| task.shares().wait;
        let by_share =
            |a: &usize, b: &usize| share(&last.tasks[*a]).total_cmp(&share(&last.tasks[*b]));
        let least = (0..last.tasks.len()).min_by(by_share).unwrap_or(0);
        let most = (0..last.tasks.len()).max_by(by_share).unwrap_or(0);
        // One that was simulated may stand for several.
        let worker = |at: usize| at * last.workers / last.tasks.len();
        terminal.data(format!(
            "waiting at {} workers: {:.0} % of its time (worker {}) to {:.0} % (worker {})",
            last.workers,
            100.0 * share(&last.tasks[least]),
            worker(least),
            100.0 * share(&last.tasks[most]),
            worker(most),
        ))?;
    }
    Ok(())
}

/// What the run's start took, and what that leaves of the rates.
fn print_start(terminal: &Terminal, found: &ClusterForecast) -> anyhow::Result<()> {
    let ClusterForecast { measured, outcomes, .. } = found;
    let with_start = |rate: f64| measured.rate_with_start(rate);
    let (Some(own), Some(last)) = (with_start(measured.examples_per_second), outcomes.last())
    else {
        return Ok(());
    };
    let start = measured.start;
    terminal.data(format!(
        "start: the run's first {} steps took {} longer than others (input {:.0} % of them), which no rate above contains; with it the run made {own:.1} examples/s, and as many examples by {} workers would make {:.1}",
        start.steps,
        show_seconds(start.seconds),
        100.0 * start.input,
        last.workers,
        with_start(last.examples_per_second).unwrap_or(0.0),
    ))
}

fn chart(strategy: &SimulatedStrategy, outcomes: &[SimulationOutcome]) -> Chart {
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
