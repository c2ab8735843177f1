//! `paceline check`: examines a cluster before a run.
//!
//! Run it on every host at once, described as `paceline node` would be: what one host can see by
//! itself is checked first, then the tasks meet as they would for a run and measure clocks, round
//! trips and bandwidth between every pair. Whoever does not come is named.

use super::{
    check_network::{Report, measure},
    node_place::{ClusterArgs, Place, described, place, resolve},
    train_report::missing,
};
use crate::{
    failure::Exit,
    terminal::{Table, Terminal},
};
use paceline_cluster::{
    Endpoint, Members, TaskId,
    session::{Notice, OnLoss, Row, Rules, Session, SessionError, Settings, Watcher},
};
use paceline_runs::Machine;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
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
    /// Seconds to wait for the other hosts' checks
    #[arg(long, value_name = "SECONDS", default_value_t = 15, help_heading = "Cluster")]
    join_timeout: u64,
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

/// What the others said when they joined.
#[derive(Default)]
struct Heard {
    rows: Mutex<Vec<Row>>,
    refused: Mutex<Vec<String>>,
}

impl Watcher for Heard {
    fn table(&self, rows: &[Row]) {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows.to_vec();
    }

    fn noticed(&self, notice: &Notice) {
        if let Notice::Refused { task, reason } = notice {
            let text = format!("{task}: {reason}");
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }
}

/// Examines the cluster.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let mut findings = Vec::new();
    let mut network = Report::default();
    let mut tasks = Vec::new();
    match described(&args.cluster) {
        Ok(cluster) => {
            let count = cluster.tasks().len();
            good(
                &mut findings,
                "description",
                format!(
                    "{}: this process is {}, one of {count} tasks",
                    cluster.origin, cluster.own
                ),
            );
            if let Members::Listed(addresses) = &cluster.members {
                names(
                    addresses.iter().map(|(task, address)| (*task, address.as_str())),
                    &mut findings,
                );
            }
            match place(&args.cluster, args.ps) {
                Ok(place) => {
                    good(&mut findings, "key", format!("fingerprint {}", place.key.fingerprint()));
                    meet(args, &place, cancel, &mut findings, &mut tasks, &mut network);
                }
                Err(error) => bad(
                    &mut findings,
                    "key",
                    format!("{error:#}"),
                    "make a key with `paceline key new`, copy it to every host, readable by you alone",
                ),
            }
        }
        Err(error) => bad(
            &mut findings,
            "description",
            format!("{error:#}"),
            "correct the description; `paceline node --help` lists the conventions",
        ),
    }
    let ok = findings.iter().all(|finding| finding.ok);
    show(terminal, &findings, &tasks, &network)?;
    terminal.json(&serde_json::json!({
        "ok": ok, "findings": findings, "tasks": tasks, "pairs": network.pairs, "sums": network.sums,
    }))?;
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

fn good(findings: &mut Vec<Finding>, check: &'static str, found: String) {
    findings.push(Finding { check, ok: true, found, change: None });
}

fn bad(findings: &mut Vec<Finding>, check: &'static str, found: String, change: impl Into<String>) {
    findings.push(Finding { check, ok: false, found, change: Some(change.into()) });
}

/// Whether all names resolve, and to addresses that other hosts can reach.
fn names<'a>(addresses: impl Iterator<Item = (TaskId, &'a str)>, findings: &mut Vec<Finding>) {
    let (mut loopback, mut reachable, mut hosts) = (Vec::new(), Vec::new(), BTreeSet::new());
    let mut unresolved = false;
    for (task, address) in addresses {
        match resolve(address) {
            None => {
                unresolved = true;
                bad(
                    findings,
                    "names",
                    format!("{task}: `{address}` does not resolve on this host"),
                    format!("correct the name of {task}, or add it to DNS or /etc/hosts"),
                );
            }
            Some(found) => {
                let ip: IpAddr = found.ip();
                hosts.insert(ip);
                let list = if ip.is_loopback() { &mut loopback } else { &mut reachable };
                list.push(format!("{task} at {address}"));
            }
        }
    }
    if !unresolved {
        good(findings, "names", format!("all resolve, to {} hosts", hosts.len()));
    }
    if !loopback.is_empty() && !reachable.is_empty() {
        bad(
            findings,
            "addresses",
            format!("{}: a loopback address in a cluster of several hosts", loopback.join(", ")),
            "give every task the address that the other hosts reach it by",
        );
    }
}

/// What a task looks like to the others.
#[derive(Debug, Serialize)]
struct Seen {
    task: TaskId,
    address: String,
    host: String,
    clock_offset_ms: Option<f64>,
}

fn meet(
    args: &Args,
    place: &Place,
    cancel: Arc<std::sync::atomic::AtomicBool>,
    findings: &mut Vec<Finding>,
    tasks: &mut Vec<Seen>,
    network: &mut Report,
) {
    let endpoint = match Endpoint::bind(place.identity(), &place.bind) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            return bad(
                findings,
                "port",
                error.to_string(),
                "end what listens there, choose another port, or listen elsewhere with --bind",
            );
        }
    };
    good(findings, "port", format!("listening on {}", endpoint.address()));
    let heard = Arc::new(Heard::default());
    let settings = Settings {
        me: place.own,
        tasks: place.tasks.clone(),
        chief_address: place.chief_address.clone(),
        run: "check".to_owned(),
        plan: serde_json::json!({ "check": true }),
        rules: Rules {
            on_loss: OnLoss::Stop,
            regroup: true,
            all_finish: true,
            join_timeout: Duration::from_secs(args.join_timeout),
        },
        host: Machine::detect().host,
        cancel,
    };
    let watcher = Arc::clone(&heard) as Arc<dyn Watcher>;
    let outcome = Session::start(Arc::new(endpoint), &settings, watcher)
        .and_then(|session| measure(&session));
    let rows = heard.rows.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for text in &*heard.refused.lock().unwrap_or_else(PoisonError::into_inner) {
        bad(
            findings,
            "tasks",
            text.clone(),
            "start the same version with the same settings everywhere",
        );
    }
    tasks.extend(rows.iter().map(|row| Seen {
        task: row.task,
        address: row.address.clone(),
        host: row.host.clone(),
        clock_offset_ms: row.offset.map(|offset| 1e3 * offset.seconds),
    }));
    match outcome {
        Ok(measured) => {
            good(findings, "tasks", format!("all {} are there, same version", place.tasks.len()));
            clocks(&rows, findings);
            *network = measured;
        }
        Err(error) => {
            let lines = missing(&rows).0;
            let found = if lines.is_empty() { error.to_string() } else { lines.join("; ") };
            let change = match &error {
                SessionError::NoChief { .. } | SessionError::NotStarted { .. } => {
                    "run `paceline check` on every host at the same time, and open the ports between them"
                }
                SessionError::Link(_) | SessionError::Refused { .. } => {
                    "use the same key and the same version of the program on every host"
                }
                _ => "run `paceline check` again on every host",
            };
            bad(findings, "tasks", found, change);
        }
    }
}

fn clocks(rows: &[Row], findings: &mut Vec<Finding>) {
    let offsets = rows.iter().filter_map(|row| Some((row.task, row.offset?.seconds)));
    let worst = offsets.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    match worst {
        Some((task, seconds)) if seconds.abs() > CLOCKS => bad(
            findings,
            "clocks",
            format!("the clock of {task} is {seconds:+.2} s off the chief's"),
            format!("run an NTP client on the host of {task}"),
        ),
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
    network: &Report,
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
