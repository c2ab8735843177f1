//! `paceline check`: examines a cluster before a run.
//!
//! Run it on every host at once, described as `paceline node` would be: what one host can see by
//! itself is checked first, then the tasks meet as they would for a run and measure clocks, round
//! trips and bandwidth between every pair. A task that does not come is named.

use crate::{
    arguments::cluster::ClusterArgs,
    arguments::units::{Span, span},
    terminal::failure::{Exit, Failure, job::of_placement},
    terminal::{Table, Terminal},
};
use paceline_cluster::{
    Cluster, Members,
    session::{
        Notice, OnLoss, Rules, SILENCE, Session, SessionError, SessionObserver, SessionSettings,
        TaskRow, chief_of,
    },
};
use paceline_jobs::{ExtraTasks, NetworkReport, TaskPlacement, measure_network, resolve};
use paceline_runs::Machine;
use paceline_wire::{LinkError, Refusal, Role, TaskId, endpoint};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// Clocks may differ by this, in seconds, before events of different hosts cannot be put in order.
const CLOCKS: f64 = 0.5;

/// Arguments of `paceline check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Tasks that hold the weights, of a cluster that only counts ranks
    #[arg(long, value_name = "SERVERS", default_value_t = 0, help_heading = "Cluster")]
    ps: usize,
    /// There is an evaluator that the cluster does not list; of a cluster that only counts ranks, the last is it
    #[arg(long, help_heading = "Cluster")]
    evaluator: bool,
    /// How long to wait for the other hosts' checks
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = span, help_heading = "Cluster")]
    join_timeout: Span,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    ok: bool,
    found: String,
    /// What to change, where something is wrong.
    change: Option<String>,
}

/// What was heard of the others.
#[derive(Default)]
struct Heard {
    rows: Mutex<Vec<TaskRow>>,
    refused: Mutex<Vec<Finding>>,
}

impl Heard {
    fn refuse(&self, finding: Finding) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(finding);
    }
}

impl SessionObserver for Heard {
    fn table(&self, rows: &[TaskRow]) {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows.to_vec();
    }

    fn noticed(&self, notice: &Notice) {
        if let Notice::Refused { task, reason } = notice {
            self.refuse(wrong("tasks", format!("{task}: {reason}"), DIFFERENT_TASKS));
        }
    }
}

const DIFFERENT_TASKS: &str = "describe the same tasks on every host, and start each of them once";
const TOGETHER: &str =
    "run `paceline check` on every host at the same time, and open the ports between them";

/// Two hosts do not go together.
fn apart(found: String, refusal: &Refusal) -> Finding {
    match refusal {
        Refusal::Key => wrong(
            "key",
            found,
            "copy one key to every host; `paceline key check` shows which one a host has",
        ),
        Refusal::Version { .. } => {
            wrong("version", found, "install the same version of the program on every host")
        }
        Refusal::Suite { .. } => {
            wrong("encryption", found, "build the program with the same features for every host")
        }
        Refusal::Security => wrong("encryption", found, "give --insecure on every host or on none"),
        _ => wrong("tasks", found, DIFFERENT_TASKS),
    }
}

/// Examines the cluster.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    terminal.warn_of_insecure(args.cluster.is_insecure());
    let mut findings = Vec::new();
    let mut network = NetworkReport::default();
    let mut tasks = Vec::new();
    if let Some(placement) = alone(args, &mut findings) {
        meet(args, &placement, cancel, &mut findings, &mut tasks, &mut network);
    }
    let ok = findings.iter().all(|finding| finding.ok);
    show(terminal, &findings, &tasks, &network)?;
    terminal.json(&serde_json::json!({
        "ok": ok, "findings": findings, "tasks": tasks, "pairs": network.pairs, "sums": network.sums,
    }))?;
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

/// What this host can see by itself; the place to meet the others from, where there is one.
fn alone(args: &Args, findings: &mut Vec<Finding>) -> Option<TaskPlacement> {
    let options = args.cluster.options(ExtraTasks { servers: args.ps, evaluator: args.evaluator });
    let cluster = match options.describe().map_err(of_placement) {
        Ok(cluster) => cluster,
        Err(error) => {
            let usual = "correct the description; `paceline node --help` lists the conventions";
            findings.push(failed("description", &error, usual));
            return None;
        }
    };
    let count = cluster.tasks().len();
    good(
        findings,
        "description",
        format!("{}: this process is {}, one of {count} tasks", cluster.origin, cluster.own),
    );
    let resolved = names(&cluster, findings);
    let key = match options.load_key().map_err(of_placement) {
        Ok(key) => {
            good(findings, "key", format!("fingerprint {}", key.fingerprint()));
            Some(key)
        }
        Err(error) => {
            let usual =
                "make a key with `paceline key new`, copy it to every host, readable by you alone";
            findings.push(failed("key", &error, usual));
            None
        }
    };
    // Without the place where all meet there is nothing to try.
    let key = key.filter(|_| resolved)?;
    match options.place_in(cluster, || Ok(key)).map_err(of_placement) {
        Ok(placement) => {
            let servers = placement.tasks.keys().filter(|task| task.role == Role::Ps).count();
            if args.ps > 0 && args.ps != servers {
                let found = format!("--ps is {}, but {} has {servers}", args.ps, placement.origin);
                findings.push(wrong("tasks", found, "leave --ps out: the cluster decides"));
                return None;
            }
            Some(placement)
        }
        Err(error) => {
            findings.push(failed("tasks", &error, "correct the description of the cluster"));
            None
        }
    }
}

fn good(findings: &mut Vec<Finding>, check: &'static str, found: String) {
    findings.push(Finding { check, ok: true, found, change: None });
}

fn wrong(check: &'static str, found: String, change: impl Into<String>) -> Finding {
    Finding { check, ok: false, found, change: Some(change.into()) }
}

/// An error with its own hint as the change, where it has one.
fn failed(check: &'static str, error: &anyhow::Error, usual: &str) -> Finding {
    let hint = error.downcast_ref::<Failure>().and_then(|failure| failure.hint.clone());
    wrong(check, format!("{error:#}"), hint.unwrap_or_else(|| usual.to_owned()))
}

/// Whether all names resolve, and to addresses that other hosts can reach. Says whether the one does at which all meet.
fn names(cluster: &Cluster, findings: &mut Vec<Finding>) -> bool {
    let addresses = match &cluster.members {
        Members::Listed(addresses) => addresses,
        Members::Rendezvous { coordinator, .. } => {
            let found = resolve(coordinator).is_some();
            if found {
                good(findings, "names", format!("all meet at `{coordinator}`, which resolves"));
            } else {
                findings.push(wrong(
                    "names",
                    format!("all meet at `{coordinator}`, which does not resolve on this host"),
                    "correct the name of the first rank's host, or add it to DNS or /etc/hosts",
                ));
            }
            return found;
        }
    };
    let chief = chief_of(addresses.keys().copied());
    let (mut loopback, mut reachable, mut hosts) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut unresolved = Vec::new();
    for (task, address) in addresses {
        let Some(found) = resolve(address) else {
            unresolved.push(*task);
            findings.push(wrong(
                "names",
                format!("{task}: `{address}` does not resolve on this host"),
                format!("correct the name of {task}, or add it to DNS or /etc/hosts"),
            ));
            continue;
        };
        let ip: IpAddr = found.ip();
        hosts.insert(ip);
        let list = if ip.is_loopback() { &mut loopback } else { &mut reachable };
        list.push(format!("{task} at {address}"));
    }
    if unresolved.is_empty() {
        let plural = if hosts.len() == 1 { "host" } else { "hosts" };
        good(findings, "names", format!("all resolve, to {} {plural}", hosts.len()));
    }
    if !loopback.is_empty() && !reachable.is_empty() {
        findings.push(wrong(
            "addresses",
            format!("{}: a loopback address in a cluster of several hosts", loopback.join(", ")),
            "give every task the address that the other hosts reach it by",
        ));
    }
    !unresolved.contains(&chief)
}

/// What a task looks like to the others.
#[derive(Debug, Serialize)]
struct Seen {
    task: TaskId,
    address: String,
    host: String,
    clock_offset_ms: Option<f64>,
}

/// Connections of tasks that do not fit become findings.
fn strangers(heard: &Arc<Heard>) -> endpoint::Notify {
    let heard = Arc::clone(heard);
    Arc::new(move |notice| {
        // A connection that does not come as a task is not a finding: the chief itself looks which tasks listen.
        if let Some(refusal) = &notice.refusal {
            heard.refuse(apart(format!("from {}: {refusal}", notice.from.ip()), refusal));
        }
    })
}

/// Meets the other tasks as for a run, and measures the way to them.
fn meet(
    args: &Args,
    placement: &TaskPlacement,
    cancel: Arc<std::sync::atomic::AtomicBool>,
    findings: &mut Vec<Finding>,
    tasks: &mut Vec<Seen>,
    network: &mut NetworkReport,
) {
    let heard = Arc::new(Heard::default());
    let endpoint = match placement.listen(strangers(&heard)).map_err(of_placement) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            findings.push(wrong(
                "port",
                format!("{error:#}"),
                "end what listens there, choose another port, or listen elsewhere with --listen",
            ));
            return;
        }
    };
    good(findings, "port", format!("listening on {}", endpoint.address()));
    let settings = SessionSettings {
        me: placement.own,
        tasks: placement.tasks.clone(),
        chief_address: placement.chief_address.clone(),
        run: "check".to_owned(),
        plan: serde_json::json!({ "check": true }),
        rules: rules(args),
        host: Machine::detect().host,
        cancel,
    };
    let observer = Arc::clone(&heard) as Arc<dyn SessionObserver>;
    let outcome = Session::start(Arc::new(endpoint), &settings, observer)
        .and_then(|session| measure_network(&session));
    let rows = heard.rows.lock().unwrap_or_else(PoisonError::into_inner).clone();
    findings.append(&mut heard.refused.lock().unwrap_or_else(PoisonError::into_inner));
    tasks.extend(rows.iter().map(|row| Seen {
        task: row.task,
        address: row.address.clone(),
        host: row.host.clone(),
        clock_offset_ms: row.offset.map(|offset| 1e3 * offset.seconds),
    }));
    match outcome {
        Ok(measured) => {
            good(
                findings,
                "tasks",
                format!("all {} are there, same version", placement.tasks.len()),
            );
            clocks(&rows, findings);
            *network = measured;
        }
        Err(error) => findings.push(not_met(&error)),
    }
}

/// All tasks are needed, and all end by themselves.
fn rules(args: &Args) -> Rules {
    Rules {
        on_loss: OnLoss::Stop,
        regroup: true,
        all_finish: true,
        join_timeout: args.join_timeout.duration(),
        patience: SILENCE,
    }
}

/// Why the tasks did not meet.
fn not_met(error: &SessionError) -> Finding {
    let found = error.to_string();
    match error {
        SessionError::Link(link) => match &**link {
            LinkError::Refused { reason, .. } => apart(found, reason),
            _ => wrong("network", found, TOGETHER),
        },
        SessionError::NoChief { .. }
        | SessionError::NotStarted { .. }
        | SessionError::Failed { .. } => wrong("tasks", found, TOGETHER),
        SessionError::Refused { .. } => wrong("tasks", found, DIFFERENT_TASKS),
        _ => wrong("tasks", found, "run `paceline check` again on every host"),
    }
}

fn clocks(rows: &[TaskRow], findings: &mut Vec<Finding>) {
    let offsets = rows.iter().filter_map(|row| Some((row.task, row.offset?.seconds)));
    let worst = offsets.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    match worst {
        Some((task, seconds)) if seconds.abs() > CLOCKS => findings.push(wrong(
            "clocks",
            format!("the clock of {task} is {seconds:+.2} s off the chief's"),
            format!("run an NTP client on the host of {task}"),
        )),
        Some((_, seconds)) => {
            good(
                findings,
                "clocks",
                format!("within {:.1} ms of the chief's", 1e3 * seconds.abs()),
            );
        }
        None => {}
    }
}

fn show(
    terminal: &Terminal,
    findings: &[Finding],
    tasks: &[Seen],
    network: &NetworkReport,
) -> anyhow::Result<()> {
    let mut table = Table::new(["check", "", "found"]);
    for finding in findings {
        let mark = if finding.ok { "ok" } else { "WRONG" };
        table.row([finding.check, mark, &finding.found]);
        if let Some(change) = &finding.change {
            table.row(["", "", &format!("-> {change}")]);
        }
    }
    terminal.data(table)?;
    if !tasks.is_empty() {
        let mut table = Table::new(["task", "address", "host", "clock offset"]);
        for seen in tasks {
            let offset =
                seen.clock_offset_ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms:+.2} ms"));
            table.row([seen.task.to_string(), seen.address.clone(), seen.host.clone(), offset]);
        }
        terminal.data(table)?;
    }
    if !network.pairs.is_empty() {
        let mut table = Table::new(["from", "to", "round trip", "bandwidth", "over"]);
        for pair in &network.pairs {
            table.row([
                pair.from.to_string(),
                pair.to.to_string(),
                format!("{:.3} ms", pair.round_trip_ms),
                format!("{:.0} MiB/s", pair.mib_per_second),
                pair.carrier.clone(),
            ]);
        }
        terminal.data(table)?;
    }
    if let Some(sums) = network.sums {
        terminal.data(format!(
            "all {} workers at once: {:.3} ms a round and {:.0} MiB/s in and out of each",
            sums.workers, sums.latency_ms, sums.mib_per_second
        ))?;
    }
    Ok(())
}
