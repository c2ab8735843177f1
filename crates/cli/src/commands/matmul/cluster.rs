//! `paceline matmul --node`: this process is one task of a cluster, described as for `paceline node`.

use super::{Args, advise, document, show};
use crate::terminal::failure::{Exit, job, usage};
use crate::terminal::recorder::record;
use crate::terminal::{JobTerminal, Table, Terminal, Unit, show_bytes, show_seconds};
use paceline_cluster::session::{OnLoss, Rules, Session};
use paceline_jobs::{ExtraTasks, JobError, Meeting, TaskPlacement};
use paceline_matmul::cluster::{ClusterOutcome, TaskResult, shared_settings, take_part};
use paceline_matmul::{MatmulError, MatmulSettings, Placement, Plan};
use paceline_probes::{Detail, Roots, Sampler, Summary, Target, open_all};
use paceline_runs::Machine;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicBool};
use std::time::Duration;

/// The column of a process's peak memory.
const PEAK: &str = "process_peak_rss_bytes";

/// Time between two readings of the machine.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Plays one task's part.
pub(super) fn exec(
    args: &Args,
    mut settings: MatmulSettings,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let placement =
        args.cluster.options(ExtraTasks::default()).place().map_err(job::of_placement)?;
    terminal.tell_placement(&placement);
    terminal.warn_of_insecure(args.cluster.is_insecure());
    let (_, servers) = placement.sizes(args.workers, None).map_err(job::of_placement)?;
    if servers > 0 {
        let what = format!("{} lists {servers} parameter servers", placement.origin);
        return Err(usage(what, "a product has workers alone: leave the servers out"));
    }
    if args.threads.is_none() {
        settings.threads = (settings.threads / placement.neighbours().max(1)).max(1);
    }
    // The chief keeps the state: where tasks share a folder, one that is late must not remove it.
    if placement.is_chief() {
        super::forget(args, &settings)?;
    }
    let stop = terminal.interrupt()?;
    let shown = Arc::new(JobTerminal::of_cluster_task(terminal));
    let session = meet(args, &settings, &placement, Arc::clone(&stop), &shown)
        .map_err(|error| job::explain(error, None, terminal));
    shown.done();
    let session = session?;
    let result = work(args, &session, &settings, &placement, &stop, terminal);
    let result = result.map_err(|error| match error {
        MatmulError::Session(error) => job::explain(JobError::Session(error), None, terminal),
        error => advise(error, args),
    })?;
    tell(&settings, result, terminal)
}

fn meet(
    args: &Args,
    settings: &MatmulSettings,
    placement: &TaskPlacement,
    cancel: Arc<AtomicBool>,
    shown: &Arc<JobTerminal>,
) -> Result<Session, JobError> {
    // What cannot be read here is said by the work itself; others see a task whose settings differ.
    let plan = shared_settings(settings).unwrap_or_default();
    let rules = Rules {
        on_loss: OnLoss::Continue,
        // Links to a lost task are closed; the others need not meet again.
        regroup: false,
        all_finish: false,
        join_timeout: args.join_timeout.duration(),
        patience: args.patience.duration(),
    };
    placement.meet(Meeting {
        run: "matmul".to_owned(),
        plan,
        rules,
        cancel,
        observer: Arc::clone(shown) as _,
    })
}

/// Multiplies with the others, while this machine is watched.
fn work(
    args: &Args,
    session: &Session,
    settings: &MatmulSettings,
    placement: &TaskPlacement,
    stop: &AtomicBool,
    terminal: &Terminal,
) -> Result<TaskResult, MatmulError> {
    let task = placement.own.to_string();
    let _recorder = args.record.as_deref().and_then(|folder| record(folder, &task, terminal));
    let means = Arc::new(Mutex::new(Summary::default()));
    let kept = Arc::clone(&means);
    let sampler = Sampler::start(&Roots::default(), Target::own(), SAMPLE_EVERY, move |reading| {
        kept.lock().unwrap_or_else(PoisonError::into_inner).add(&reading);
    });
    if let Err(error) = &sampler {
        terminal.warn(format!("no resources are recorded: {error}"));
    }
    let sampler = RefCell::new(sampler.ok());
    let bar = terminal.progress("multiplying", None, Unit::Items("blocks"));
    let resources = || {
        // A sampler that ends takes one more reading; of less than its shortest interval there is none.
        drop(sampler.take());
        resources(&means.lock().unwrap_or_else(PoisonError::into_inner))
    };
    let host = Machine::detect().host;
    take_part(session, &host, settings, &resources, stop, &mut |progress| {
        bar.set_total(progress.jobs as u64);
        bar.set(progress.done as u64);
        bar.message(format!("{:.0} GFLOP/s", progress.flops_per_second / 1e9));
    })
}

/// What the machine did, as far as its probes know.
fn resources(means: &Summary) -> Value {
    let columns = [
        "cpu_user_percent",
        "memory_used_bytes",
        "network_received_bytes_per_second",
        "network_sent_bytes_per_second",
        "disk_read_bytes_per_second",
    ];
    let found = |wanted: &str| means.rows().find(|(name, ..)| *name == wanted);
    let mut known = serde_json::Map::new();
    for name in columns {
        known.insert(name.to_owned(), json!(found(name).map(|(_, mean, _)| mean)));
    }
    known.insert(PEAK.to_owned(), json!(own_peak()));
    Value::Object(known)
}

/// Peak memory of this process, however short the product.
fn own_peak() -> Option<f64> {
    let mut detail = Detail::new();
    open_all(&Roots::default(), Target::own()).into_iter().find_map(|(entry, mut probe)| {
        let at = entry.columns.iter().position(|column| column.name == PEAK)?;
        let mut values = vec![None; entry.columns.len()];
        probe.sample(Duration::ZERO, &mut values, &mut detail);
        values[at]
    })
}

/// The product at the chief, this task's part elsewhere.
fn tell(
    settings: &MatmulSettings,
    result: TaskResult,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    let found = match result {
        TaskResult::Member(report) => {
            terminal.data(format!("{}: done, {} blocks", report.task, report.jobs))?;
            terminal.json(&report)?;
            return Ok(Exit::Done);
        }
        TaskResult::Chief(found) => found,
    };
    let document = cluster_document(settings, &found);
    terminal.json(&document)?;
    if !found.outcome.complete {
        return Ok(super::stopped(settings, &found.outcome, terminal));
    }
    show(&document, terminal)?;
    Ok(Exit::Done)
}

fn cluster_document(settings: &MatmulSettings, found: &ClusterOutcome) -> Value {
    let mut document = document(settings, &found.outcome);
    let plan = &found.outcome.plan;
    let moved: u64 = found.nodes.iter().map(|node| node.bytes_received).sum();
    let planned: serde_json::Map<String, Value> = Placement::ALL
        .into_iter()
        .map(|placement| {
            let bytes = Plan { placement, ..plan.clone() }.moved_bytes();
            (placement.name().to_owned(), bytes.into())
        })
        .collect();
    document["placement"] = plan.placement.name().into();
    document["moved_bytes"] = moved.into();
    document["moved_bytes_by_placement"] = planned.into();
    document["nodes"] = json!(found.nodes);
    document
}

/// Who did what, and what each placement would move.
pub(super) fn show_nodes(document: &Value, terminal: &Terminal) -> anyhow::Result<()> {
    let Some(nodes) = document["nodes"].as_array() else { return Ok(()) };
    let header =
        ["task", "host", "blocks", "computing", "fetching", "received", "sent", "CPU", "memory"];
    let mut table = Table::new(header);
    for node in nodes {
        let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
        let bytes = |key: &str| show_bytes(node[key].as_f64().unwrap_or_default());
        let seconds = |key: &str| show_seconds(node[key].as_f64().unwrap_or_default());
        let blocks = match (node["lost"].as_bool(), node["taken_over"].as_u64()) {
            (Some(true), _) => format!("{}, then lost", node["jobs"]),
            (_, Some(0) | None) => node["jobs"].to_string(),
            (_, Some(others)) => format!("{}, {others} of lost tasks", node["jobs"]),
        };
        let known = |key: &str, words: &dyn Fn(f64) -> String| {
            node["resources"][key].as_f64().map_or_else(|| "–".to_owned(), words)
        };
        table.row([
            text("task"),
            text("host"),
            blocks,
            seconds("computing_seconds"),
            seconds("fetching_seconds"),
            bytes("bytes_received"),
            bytes("bytes_sent"),
            known("cpu_user_percent", &|percent| format!("{percent:.0} %")),
            known(PEAK, &show_bytes),
        ]);
    }
    terminal.data(table)?;
    let planned = document["moved_bytes_by_placement"].as_object();
    let planned = planned
        .into_iter()
        .flatten()
        .map(|(name, bytes)| format!("{name} {}", show_bytes(bytes.as_f64().unwrap_or_default())));
    terminal.data(format!(
        "moved between tasks: {} ({}); factors alone, by placement: {}",
        show_bytes(document["moved_bytes"].as_f64().unwrap_or_default()),
        document["placement"].as_str().unwrap_or_default(),
        planned.collect::<Vec<_>>().join(", ")
    ))
}
