//! `paceline matmul`: trace or product of matrices too large for memory.

mod cluster;
mod spark;

use crate::arguments::{
    cluster::ClusterArgs,
    engine::{Engine, EngineArgs},
    idle_flags::{Rule, Typed},
    paths::local_path,
    train_flags::patience,
    units::{self, Span, span},
};
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::recorder::{record, say};
use crate::terminal::{Table, Terminal, Unit};
use anyhow::Context as _;
use paceline_matmul::{
    Input, MatmulError, MatmulSettings, Order, Placement, Plan, ProductOutcome, Work, obey, run,
};
use paceline_models::kernels::Isa;
use paceline_models::random::mix;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Arguments of `paceline matmul`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  paceline matmul --size 100000 --memory 2GiB     trace(A B) of two generated matrices, 40 GB each
  paceline matmul --size 100000 --identity        the same without a product
  paceline matmul --a left.npy --b right.npy --out product.npy
  paceline matmul --size 100000 --engine spark --workers 4
  paceline matmul --size 100000 --cluster cluster.toml --task worker/0 --key cluster.key
  srun paceline matmul --size 100000 --node --key cluster.key

The trace needs only the block pairs that meet, A(i, k) and B(k, i); worker (i + k) mod workers has both. \
On several machines the same call runs on each, with its own --task, or as Slurm, MPI or TF_CONFIG say which task it is. Each holds its blocks and asks the others for those it lacks; --placement says which holds which. Blocks of a task that is lost are done by the others. \
The same call continues a run that was stopped or killed.")]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// Rows and columns of generated matrices
    #[arg(long, value_name = "N", conflicts_with = "a", required_unless_present_any = ["a", "launched"])]
    size: Option<u64>,
    /// The left matrix, a square .npy file
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    a: Option<PathBuf>,
    /// The right matrix [default: the left one again]
    #[arg(long, value_name = "FILE", requires = "a", conflicts_with = "size", value_parser = local_path())]
    b: Option<PathBuf>,
    /// Multiply the generated matrix by itself
    #[arg(long, conflicts_with = "a")]
    same: bool,
    /// Decides the values of generated matrices
    #[arg(long, default_value_t = 1, conflicts_with = "a")]
    seed: u64,
    /// Use trace(A B) = Σ a(i,j) b(j,i) instead of block products
    #[arg(long)]
    identity: bool,
    /// Compute the whole product, not only its trace
    #[arg(long, conflicts_with = "identity")]
    product: bool,
    /// Write the whole product to this .npy file
    #[arg(long, value_name = "FILE", conflicts_with = "identity", value_parser = local_path())]
    out: Option<PathBuf>,
    /// Rows of a block [default: as memory allows, at most 2048 for a trace, 8192 for a product]
    #[arg(long, value_name = "ROWS")]
    block: Option<usize>,
    /// Memory for all workers together; of a cluster, for each machine
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = units::whole_bytes)]
    memory: u64,
    /// Which worker holds which blocks
    #[arg(long, value_name = "RULE", default_value = "diagonal", value_parser = placement)]
    placement: Placement,
    /// Processes that share the block pairs; of a cluster, the number it has [default: one for each core this process may use]
    #[arg(long, value_name = "N", value_parser = units::task_count)]
    workers: Option<usize>,
    /// Threads of all workers together; of a cluster, of each task [default: all cores this process may use]
    #[arg(long, value_parser = units::task_count)]
    threads: Option<usize>,
    /// Do not check products (Freivalds' method costs a few per cent)
    #[arg(long)]
    no_verify: bool,
    /// File that keeps finished blocks [default: a name made from what is computed, in this folder]
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    state: Option<PathBuf>,
    /// Forget what an earlier run has done
    #[arg(long)]
    fresh: bool,
    /// Time between two writes of the state
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    save_every: Span,
    /// Record what this machine and all workers do meanwhile into this folder, for `paceline report DIR`
    #[arg(long, value_name = "DIR", value_parser = local_path())]
    record: Option<PathBuf>,
    /// This process is one task of a cluster: of --cluster, or as TF_CONFIG, torchrun, MPI or Slurm describes it
    #[arg(long, help_heading = "Cluster", conflicts_with = "engine")]
    node: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// How long to wait for all tasks
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span, help_heading = "Cluster")]
    join_timeout: Span,
    /// How long a task may be silent before it counts as lost; longer where most tasks are late
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = patience, help_heading = "Cluster")]
    patience: Span,
    #[command(flatten)]
    engine: EngineArgs,
    /// One of the processes that this command starts; it is told everything through a pipe
    #[arg(long, hide = true, exclusive = true)]
    launched: bool,
}

impl Args {
    /// Whether this process is one task of several.
    fn is_node(&self) -> bool {
        self.node || self.typed.has("cluster")
    }
}

/// Flags that only a task of a cluster reads.
const RULES: &[Rule<Args>] = &[
    Rule {
        flags: &["key", "listen", "insecure", "no-shared-memory"],
        is_met: Args::is_node,
        otherwise: "on one machine",
        instead: "add `--node` or `--cluster FILE --task TASK`",
    },
    Rule {
        flags: &["join-timeout", "patience"],
        is_met: |args| args.is_node() || args.engine.engine == Engine::Spark,
        otherwise: "on one machine",
        instead: "add `--node`, `--cluster FILE --task TASK` or `--engine spark`",
    },
];

fn placement(name: &str) -> Result<Placement, String> {
    Placement::named(name)
        .ok_or_else(|| format!("must be one of {}", Placement::ALL.map(Placement::name).join(", ")))
}

/// Computes and says what it took.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    if args.launched {
        return launched(terminal);
    }
    args.typed.check(args, RULES)?;
    let engine = args.engine.spark()?;
    let settings = settings(args)?;
    if args.is_node() {
        return cluster::exec(args, settings, terminal);
    }
    forget(args, &settings)?;
    if let Some(spark) = &engine {
        return spark::exec(args, &settings, spark, terminal);
    }
    let resuming = settings.state.as_deref().is_some_and(Path::exists);
    let stop = terminal.interrupt()?;
    let bar = terminal.progress("multiplying", None, Unit::Items("blocks"));
    let recorder = args.record.as_deref().and_then(|folder| record(folder, "matmul", terminal));
    say(recorder.as_ref(), if resuming { "continues" } else { "first block" });
    let mut half = false;
    let result = run(&settings, &stop, &mut |progress| {
        if !half && 2 * progress.done >= progress.jobs {
            half = true;
            say(recorder.as_ref(), "half of the blocks");
        }
        bar.set_total(progress.jobs as u64);
        bar.set(progress.done as u64);
        bar.message(format!("{:.0} GFLOP/s", progress.flops_per_second / 1e9));
    });
    drop((bar, recorder));
    let outcome = result.map_err(|error| advise(error, args))?;
    if resuming && outcome.resumed > 0 {
        terminal.note(format!(
            "{} of {} blocks were done already",
            outcome.resumed,
            outcome.plan.jobs()
        ));
    }
    let document = document(&settings, &outcome);
    terminal.json(&document)?;
    if !outcome.complete {
        return Ok(stopped(&settings, &outcome, terminal));
    }
    show(&document, terminal)?;
    Ok(Exit::Done)
}

/// Forgets what an earlier run has done, where that is asked.
fn forget(args: &Args, settings: &MatmulSettings) -> anyhow::Result<()> {
    match &settings.state {
        Some(state) if args.fresh && state.exists() => {
            fs::remove_file(state).with_context(|| format!("cannot remove `{}`", state.display()))
        }
        _ => Ok(()),
    }
}

/// Says how far it came, and how to go on.
fn stopped(settings: &MatmulSettings, outcome: &ProductOutcome, terminal: &Terminal) -> Exit {
    let jobs = outcome.plan.jobs();
    terminal.note(match settings.state.as_deref().filter(|_| outcome.done > 0) {
        Some(state) => format!(
            "stopped after {} of {jobs} blocks; the same call continues from there (`{}`)",
            outcome.done,
            state.display()
        ),
        None => {
            format!("stopped before the first of {jobs} blocks was done; nothing is left of it")
        }
    });
    terminal.signalled().unwrap_or(Exit::Interrupted)
}

/// Starts this program again as one worker.
fn launch(_: &Order) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["matmul", "--launched"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// One worker: its order comes in, a line for each job goes out.
fn launched(terminal: &mut Terminal) -> anyhow::Result<Exit> {
    // Ctrl-C reaches all processes of a terminal; the parent process says when to stop.
    let stop = terminal.interrupt()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("the launcher sent no order")?;
    let order: Order = serde_json::from_str(&line).context("the order cannot be read")?;
    std::thread::Builder::new().name("orders".into()).spawn(orphaned)?;
    let mut out = io::stdout();
    obey(&order, Isa::current().exit(Exit::Usage)?, &stop, &mut |line| {
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()
    })?;
    Ok(Exit::Done)
}

/// Exits at the end of standard input, because then the parent process is gone.
#[allow(clippy::disallowed_methods)] // from a thread there is no other way, and nothing is lost
fn orphaned() {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    std::process::exit(i32::from(Exit::Retry.code()));
}

fn settings(args: &Args) -> anyhow::Result<MatmulSettings> {
    let (left, right) = match (&args.a, args.size) {
        (Some(a), _) => {
            (Input::File(a.clone()), Input::File(args.b.clone().unwrap_or_else(|| a.clone())))
        }
        (None, Some(size)) => {
            let generated = |matrix| Input::Generated { size, seed: args.seed, matrix };
            (generated(0), generated(u64::from(!args.same)))
        }
        (None, None) => {
            return Err(usage("neither `--size` nor `--a` is given", "try `--size 10000`"));
        }
    };
    let work = if args.identity {
        Work::Identity
    } else if args.product || args.out.is_some() {
        Work::Product
    } else {
        Work::Trace
    };
    let cores = paceline_batch::cores().count;
    let workers = args.workers.unwrap_or(cores);
    let state = match &args.state {
        Some(path) => path.clone(),
        None => PathBuf::from(state_name(&left, &right, work, args)?),
    };
    Ok(MatmulSettings {
        left,
        right,
        work,
        block: args.block,
        memory: args.memory,
        workers,
        threads: args.threads.unwrap_or(cores),
        isa: Isa::current().exit(Exit::Usage)?,
        verify: !args.no_verify,
        output: args.out.clone(),
        launch: (workers > 1).then_some(launch),
        state: Some(state),
        save_every: args.save_every.duration(),
        placement: args.placement,
    })
}

/// Other work, another name: runs side by side in one folder do not meet.
fn state_name(left: &Input, right: &Input, work: Work, args: &Args) -> anyhow::Result<String> {
    let text = format!(
        "{} | {} | {work:?} | {:?} | {:?}",
        left.describe().map_err(|error| advise(error, args))?,
        right.describe().map_err(|error| advise(error, args))?,
        args.block,
        args.out
    );
    let hash = text.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
    Ok(format!("matmul-{hash:016x}.state.json"))
}

/// What to do about an error, and how to exit.
fn advise(error: MatmulError, args: &Args) -> anyhow::Error {
    let (hint, exit) = match &error {
        MatmulError::Memory { needed, workers, .. } => {
            let least = needed.div_ceil(1 << 20);
            (format!("give `--memory {least}MiB`, fewer than {workers} `--workers`, or a smaller `--block`"), Exit::Usage)
        }
        MatmulError::Size { .. } | MatmulError::None { .. } => {
            ("see `paceline matmul --help`".to_owned(), Exit::Usage)
        }
        MatmulError::Damaged { .. } | MatmulError::Other { .. } | MatmulError::OutputLost { .. } => {
            ("begin again with `--fresh`, or choose another `--state`".to_owned(), Exit::Failed)
        }
        MatmulError::Npy { .. } | MatmulError::Length { .. } => {
            ("write it with `numpy.save(path, matrix.astype('<f4'))`".to_owned(), Exit::Failed)
        }
        MatmulError::Busy { .. } => {
            ("wait for it, or choose another file with --out".to_owned(), Exit::Retry)
        }
        MatmulError::Worker { .. } => {
            ("the same command continues with the blocks that are left".to_owned(), Exit::Retry)
        }
        MatmulError::Wrong { .. } => (
            "run it again: the state holds what was right; if it stays, suspect memory or CPU, or compare with PACELINE_ISA=portable".to_owned(),
            Exit::Retry,
        ),
        MatmulError::Write { .. } if args.out.is_some() => {
            ("is there room on the disk? The whole product takes 4 bytes an element".to_owned(), Exit::Failed)
        }
        _ => return error.into(),
    };
    let dressed: anyhow::Result<()> = Err(error).hint(hint).exit(exit);
    dressed.expect_err("made of an error")
}

/// Multiplications and additions of the other ways to the same result.
#[allow(clippy::cast_precision_loss)]
fn other_ways(plan: &Plan) -> (f64, f64) {
    let size = plan.size as f64;
    (2.0 * size * size * size, 2.0 * size * size)
}

/// The result as a table, from the same document that `--json` prints.
fn show(document: &Value, terminal: &Terminal) -> anyhow::Result<()> {
    let number = |key: &str| document[key].as_f64().unwrap_or_default();
    let (flops, identity) = (number("flops"), number("identity_flops"));
    let mut table = Table::new(["trace(A B)", &format!("{:.6}", number("trace"))]);
    if document["work"] == "product" {
        table.row(["sum of elements", &format!("{:.4}", number("sum"))]);
        table.row(["Frobenius norm", &format!("{:.4}", number("norm"))]);
    }
    table.row([
        "matrices",
        &format!(
            "{0} x {0}, {1} x {1} blocks of {2} rows",
            document["size"], document["blocks"], document["block_rows"]
        ),
    ]);
    let memory = document["memory_bytes"].as_u64().unwrap_or_default() >> 20;
    table.row(["memory", &format!("{memory} MiB at most, {} workers", document["workers"])]);
    let (seconds, rate) = (number("seconds_in_all"), number("flops_per_second") / 1e9);
    table.row(["time", &format!("{seconds:.2} s, {rate:.1} GFLOP/s")]);
    let times =
        |other: f64| format!("{:.4} TFLOP, {:.1} times as much", other / 1e12, other / flops);
    table.row(["work", &format!("{:.4} TFLOP", flops / 1e12)]);
    match document["work"].as_str() {
        Some("trace") => {
            table.row(["whole product", &times(number("whole_product_flops"))]);
            let less = format!("{:.4} TFLOP, {:.0} times less", identity / 1e12, flops / identity);
            table.row(["with --identity", &less]);
        }
        Some("identity") => {
            table.row(["by block products", &times(identity * number("block_rows"))]);
            table.row(["whole product", &times(number("whole_product_flops"))]);
        }
        _ => {}
    }
    table.row(["checked", document["verified"].as_str().unwrap_or_default()]);
    terminal.data(table)?;
    cluster::show_nodes(document, terminal)
}

fn checked(settings: &MatmulSettings, work: Work) -> &'static str {
    match (settings.verify, work) {
        (false, _) => "no",
        (true, Work::Identity) => "the first corner against its product",
        (true, _) => "every block, by Freivalds' method with two vectors",
    }
}

fn document(settings: &MatmulSettings, outcome: &ProductOutcome) -> Value {
    let plan = &outcome.plan;
    let (whole, identity) = other_ways(plan);
    let flops = plan.flops();
    let whole_only = |value: f64| (plan.work == Work::Product).then_some(value);
    json!({
        "work": plan.work,
        "size": plan.size,
        "blocks": plan.blocks,
        "block_rows": plan.block_rows(),
        "jobs": plan.jobs(),
        "workers": plan.workers,
        "threads": settings.threads,
        "memory_bytes": plan.bytes(),
        "complete": outcome.complete,
        "done": outcome.done,
        "resumed": outcome.resumed,
        "trace": outcome.complete.then_some(outcome.trace),
        "sum": whole_only(outcome.sum),
        "norm": whole_only(outcome.norm),
        "seconds": outcome.seconds,
        "seconds_in_all": outcome.seconds_in_all,
        "flops": flops,
        "flops_per_second": outcome.flops / outcome.seconds.max(1e-9),
        "whole_product_flops": whole,
        "identity_flops": identity,
        "verified": checked(settings, plan.work),
        "output": settings.output,
    })
}
