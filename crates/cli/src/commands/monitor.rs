//! `paceline monitor`: what this machine does, every second; or what a command or process does, and what held it up.

use super::staging::local_path;
use crate::failure::{Exit, FailureExt, usage};
use crate::terminal::{Gauge, Table, Terminal};
use crate::units::{Span, show_seconds, span};
use anyhow::Context;
use paceline_probes::{
    JobVerdict, Layout, Reading, Roots, SHORTEST, Sampler, Summary, Target, Writer, columns, judge,
};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Arguments of `paceline monitor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline monitor --csv machine.csv\n  paceline monitor --every 100ms --csv job.csv -- python train.py\n  paceline monitor --pid 4711"
)]
pub struct Args {
    /// Time between two readings; at least 50ms
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = span)]
    every: Span,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = span)]
    duration: Option<Span>,
    /// Write every column to this file, units in the header
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    csv: Option<PathBuf>,
    /// Write the columns of dstat to this file
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    dstat: Option<PathBuf>,
    /// Write one JSON object per reading to this file, per core, disk and interface too
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    jsonl: Option<PathBuf>,
    /// Show every recorded column in the table, not only those that matter most
    #[arg(long)]
    all: bool,
    /// Watch a process that already runs, and everything it starts, until it ends
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pid: Option<u32>,
    /// Run this command, record it and everything it starts until it ends, and exit with its code
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Time between two looks whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The interval, once the arguments make sense together.
fn checked(args: &Args) -> anyhow::Result<Duration> {
    let every = args.every.duration();
    if every < SHORTEST {
        return Err(usage(
            format!("--every {} is too short", show_seconds(args.every.seconds())),
            format!("the kernel's counters move in ticks; use {}ms or more", SHORTEST.as_millis()),
        ));
    }
    if args.all && args.command.is_empty() && args.pid.is_none() {
        return Err(usage(
            "--all has no effect here: without a command or --pid every column is shown",
            "name a command behind `--`, or a process with `--pid`",
        ));
    }
    if let Some(process) = args.pid.filter(|process| !runs(*process)) {
        return Err(usage(
            format!("--pid {process}: there is no such process"),
            "`pgrep -f train.py` finds the number of a running program",
        ));
    }
    Ok(every)
}

/// Records until the command, the duration or the user ends it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let every = checked(args)?;
    let duration = args.duration.map(Span::duration);
    // Outputs first: a wrong path should not cost a run.
    let mut outputs = Outputs::open(args)?;
    let interrupt = terminal.interrupt()?;
    let mut child = start(&args.command)?;
    let job = child.as_ref().map(Child::id).or(args.pid);
    let target = job.map_or_else(Target::own, Target::tree);
    let (send, readings) = channel();
    let sampler = Sampler::start(&Roots::default(), target, every, move |reading| {
        let _ = send.send(reading); // the other end is gone only when we are ending anyway
    })?;
    let mut summary = Summary::default();
    let live = job.is_none() && !terminal.wants_json();
    let panel = (live && terminal.watched()).then(|| Panel::new(terminal));
    if live && panel.is_none() {
        terminal.data(live_header())?;
    }
    let begin = Instant::now();
    let over = || {
        let late = duration.is_some_and(|limit| begin.elapsed() >= limit);
        // A command got the signal too (same terminal); its own end is what we wait for.
        late || args.command.is_empty() && interrupt.load(Ordering::Relaxed)
            || args.pid.is_some_and(|process| !runs(process))
    };
    let mut status = follow(&readings, &mut child, &over, &mut |reading| {
        summary.add(reading);
        outputs.write(reading)?;
        match &panel {
            Some(panel) => panel.show(reading),
            None if live => terminal.data(live_row(reading))?,
            None => {}
        }
        Ok(())
    })?;
    let cost = sampler.stop();
    drop(panel);
    for reading in readings.try_iter() {
        summary.add(&reading);
        outputs.write(&reading)?;
    }
    if let (Some(child), None) = (&mut child, status) {
        // The time was up before the command ended.
        child.kill().context("cannot end the command")?;
        status = Some(child.wait().context("cannot wait for the command")?);
    }
    let verdict = job.map(|_| {
        let machine = paceline_runs::Machine::detect();
        judge(&summary, machine.cores, machine.host_cpus)
    });
    report(
        terminal,
        &summary,
        &Ended { took: begin.elapsed(), cost, status, verdict, all: args.all },
    )?;
    Ok(status.map_or(Exit::Done, exit_of))
}

/// Shows readings to `each` until the command has ended or it is `over`; says how the command ended, if it did.
fn follow(
    readings: &Receiver<Reading>,
    child: &mut Option<Child>,
    over: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&Reading) -> anyhow::Result<()>,
) -> anyhow::Result<Option<ExitStatus>> {
    loop {
        match readings.recv_timeout(LOOK_EVERY) {
            Ok(reading) => each(&reading)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
        let status = match child {
            Some(child) => child.try_wait().context("cannot wait for the command")?,
            None => None,
        };
        if status.is_some() || over() {
            return Ok(status);
        }
    }
}

fn start(command: &[String]) -> anyhow::Result<Option<Child>> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot start `{program}`"))
        .hint("the command stands behind `--`, its arguments after it")?;
    Ok(Some(child))
}

/// Shells report a signal as 128 plus its number.
pub(super) fn exit_of(status: ExitStatus) -> Exit {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Exit::Of(u8::try_from(code).unwrap_or(1))
}

struct Outputs {
    csv: Vec<Writer<BufWriter<File>>>,
    jsonl: Option<BufWriter<File>>,
}

impl Outputs {
    fn open(args: &Args) -> anyhow::Result<Self> {
        let create = |path: &Path| -> anyhow::Result<BufWriter<File>> {
            let file =
                File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
            Ok(BufWriter::new(file))
        };
        let mut csv = Vec::new();
        for (path, layout) in [(&args.csv, Layout::Full), (&args.dstat, Layout::Dstat)] {
            if let Some(path) = path {
                csv.push(Writer::new(create(path)?, layout)?);
            }
        }
        let jsonl = args.jsonl.as_deref().map(create).transpose()?;
        Ok(Self { csv, jsonl })
    }

    fn write(&mut self, reading: &Reading) -> anyhow::Result<()> {
        for writer in &mut self.csv {
            writer.write(reading).context("cannot write a reading")?;
        }
        if let Some(out) = &mut self.jsonl {
            let mut line = Map::new();
            line.insert("time_seconds".to_owned(), json!(reading.time));
            line.insert("elapsed_seconds".to_owned(), json!(reading.elapsed));
            for (column, value) in columns().zip(&reading.values) {
                line.insert(column.name.to_owned(), json!(value));
            }
            line.insert("detail".to_owned(), json!(reading.detail));
            serde_json::to_writer(&mut *out, &Value::Object(line))
                .context("cannot write a reading")?;
            out.write_all(b"\n").and_then(|()| out.flush()).context("cannot write a reading")?;
        }
        Ok(())
    }
}

/// The live view for a person: gauges that stay in their place.
struct Panel {
    processor: Gauge,
    memory: Gauge,
    disk: Gauge,
    network: Gauge,
}

impl Panel {
    fn new(terminal: &Terminal) -> Panel {
        Panel {
            processor: terminal.gauge("processor"),
            memory: terminal.gauge("memory"),
            disk: terminal.gauge("disk"),
            network: terminal.gauge("network"),
        }
    }

    fn show(&self, reading: &Reading) {
        let value = |name: &str| {
            let at = columns().position(|column| column.name == name);
            at.and_then(|at| reading.values[at]).unwrap_or(0.0)
        };
        let mega = |name: &str| value(name) / 1e6;
        self.processor.set(
            100.0 - value("cpu_idle_percent"),
            format!(
                "user {:.0} %, system {:.0} %, waiting for disks {:.0} %, busiest core {:.0} %, {:.0} in the queue",
                value("cpu_user_percent"),
                value("cpu_system_percent"),
                value("cpu_iowait_percent"),
                value("cpu_busiest_core_percent"),
                value("run_queue_tasks")
            ),
        );
        let limit = value("memory_limit_bytes")
            .max(value("memory_used_bytes") + value("memory_available_bytes"));
        self.memory.set(
            100.0 * value("memory_used_bytes") / limit.max(1.0),
            format!(
                "{:.1} of {:.1} GB used, {:.1} GB cached",
                value("memory_used_bytes") / 1e9,
                limit / 1e9,
                value("memory_cached_bytes") / 1e9
            ),
        );
        self.disk.set(
            value("disk_busiest_percent"),
            format!(
                "read {:.1} MB/s, written {:.1} MB/s",
                mega("disk_read_bytes_per_second"),
                mega("disk_written_bytes_per_second")
            ),
        );
        let most =
            mega("network_received_bytes_per_second").max(mega("network_sent_bytes_per_second"));
        self.network.set(
            // Full at 10 Gbit/s, the square root so that little traffic is seen too.
            100.0 * (most / 1250.0).sqrt().min(1.0),
            format!(
                "received {:.1} MB/s, sent {:.1} MB/s, loopback {:.1} MB/s",
                mega("network_received_bytes_per_second"),
                mega("network_sent_bytes_per_second"),
                mega("loopback_bytes_per_second")
            ),
        );
    }
}

/// What the live view shows: title, column behind it, divisor.
const LIVE: &[(&str, &str, f64)] = &[
    ("usr %", "cpu_user_percent", 1.0),
    ("sys %", "cpu_system_percent", 1.0),
    ("wait %", "cpu_iowait_percent", 1.0),
    ("idle %", "cpu_idle_percent", 1.0),
    ("queue", "run_queue_tasks", 1.0),
    ("used GiB", "memory_used_bytes", (1u64 << 30) as f64),
    ("read MB/s", "disk_read_bytes_per_second", 1e6),
    ("writ MB/s", "disk_written_bytes_per_second", 1e6),
    ("recv MB/s", "network_received_bytes_per_second", 1e6),
    ("send MB/s", "network_sent_bytes_per_second", 1e6),
    ("lo MB/s", "loopback_bytes_per_second", 1e6),
];

fn live_header() -> String {
    let mut line = format!("{:>8}", "time s");
    for (title, ..) in LIVE {
        line.push_str(&format!(" {title:>9}"));
    }
    line
}

fn live_row(reading: &Reading) -> String {
    let mut line = format!("{:>8.1}", reading.elapsed);
    for (_, name, divisor) in LIVE {
        let at = columns().position(|column| column.name == *name);
        let text = at
            .and_then(|at| reading.values[at])
            .map_or_else(|| "–".to_owned(), |value| format!("{:.1}", value / divisor));
        line.push_str(&format!(" {text:>9}"));
    }
    line
}

/// What a person looks at first; `--all` shows the rest.
const FIRST: &[&str] = &[
    "process_cpu_percent",
    "process_waiting_percent",
    "process_threads",
    "process_count",
    "process_rss_bytes",
    "process_read_bytes_per_second",
    "process_written_bytes_per_second",
    "cpu_idle_percent",
    "cpu_steal_percent",
    "cgroup_throttled_percent",
    "memory_available_bytes",
    "disk_busiest_percent",
    "network_received_bytes_per_second",
    "network_sent_bytes_per_second",
];

/// How a recording ended.
struct Ended {
    took: Duration,
    cost: Duration,
    status: Option<ExitStatus>,
    verdict: Option<JobVerdict>,
    all: bool,
}

fn report(terminal: &Terminal, summary: &Summary, ended: &Ended) -> anyhow::Result<()> {
    let mut rows: Vec<_> = summary.rows().collect();
    let document: Map<String, Value> = rows
        .iter()
        .map(|(name, mean, peak)| ((*name).to_owned(), json!({ "mean": mean, "peak": peak })))
        .collect();
    if ended.verdict.is_some() && !ended.all {
        rows = FIRST
            .iter()
            .filter_map(|wanted| rows.iter().find(|(name, ..)| name == wanted).copied())
            .collect();
    }
    let mut table = Table::new(["column", "mean", "peak"]);
    for (name, mean, peak) in rows {
        table.row([name.to_owned(), readable(name, mean), readable(name, peak)]);
    }
    let seconds = ended.took.as_secs_f64();
    let share = 100.0 * ended.cost.as_secs_f64() / seconds.max(1e-9);
    if let Some(verdict) = &ended.verdict {
        terminal.note(format!("\nverdict     {}", verdict.words));
        if !verdict.next.is_empty() {
            terminal.note(format!("next        {}", verdict.next));
        }
    }
    terminal.note(format!(
        "\n{seconds:.1} s recorded; recording itself took {share:.2} % of a core\n{table}"
    ));
    terminal.json(&json!({
        "seconds": seconds,
        "own_cpu_seconds": ended.cost.as_secs_f64(),
        "exit": ended.status.and_then(|status| status.code()),
        "verdict": ended.verdict,
        "columns": document,
    }))
}

/// Whether a process runs; one that has ended and was not waited for does not.
fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].split_ascii_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

fn readable(name: &str, value: f64) -> String {
    if name.contains("bytes") { format!("{:.2} MB", value / 1e6) } else { format!("{value:.2}") }
}
