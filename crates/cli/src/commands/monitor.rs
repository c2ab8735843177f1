//! `paceline monitor`: what this machine does, every second; or what a command or process does, and what held it up.

use crate::arguments::paths::local_path;
use crate::arguments::units::{Span, span};
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::{Gauge, Table, Terminal, show_seconds, typed_path};
use anyhow::Context;
use paceline_probes::{
    JobVerdict, Layout, Reading, RecordingError, SHORTEST, WatchOrder, WatchTarget, Watched,
    Writer, columns, create, is_running, judge, mark, watch,
};
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Arguments of `paceline monitor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline monitor --csv machine.csv\n  paceline monitor --every 100ms --csv job.csv -- python train.py\n  paceline monitor --pid 4711\n  paceline monitor --csv machine.csv --mark \"job submitted\"    marks the running recording\n  paceline report machine.csv other.csv"
)]
pub struct Args {
    /// Time between two readings; at least 50ms
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = span)]
    every: Span,
    /// Stop after this time; a command is ended then, with everything it started
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
    /// Record nothing; put these words at this moment into the recording that is running to `--csv FILE`
    #[arg(long, value_name = "WORDS", requires = "csv", conflicts_with_all = ["every", "duration", "dstat", "jsonl", "all", "pid", "command"])]
    mark: Option<String>,
    /// Run this command, record it and everything it starts until it ends, and exit with its code
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

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
    if let Some(process) = args.pid.filter(|process| !is_running(*process)) {
        return Err(usage(
            format!("--pid {process}: there is no such process"),
            "`pgrep -f train.py` finds the number of a running program",
        ));
    }
    Ok(every)
}

/// Records, or marks a recording.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    match (&args.mark, &args.csv) {
        (Some(words), Some(csv)) => put_mark(csv, words, terminal),
        _ => record(args, terminal),
    }
}

/// Records until the command, the duration or the user ends it.
fn record(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let every = checked(args)?;
    let duration = args.duration.map(Span::duration);
    // Outputs first: a wrong path should not cost a run.
    let mut outputs = Outputs::open(args)?;
    let interrupt = terminal.interrupt()?;
    let mut child = start(&args.command)?;
    let target = match (&mut child, args.pid) {
        (Some(child), _) => WatchTarget::Command(child),
        (None, Some(process)) => WatchTarget::Process(process),
        (None, None) => WatchTarget::Machine,
    };
    let of_job = !matches!(target, WatchTarget::Machine);
    let live = !of_job && !terminal.wants_json();
    let panel = (live && terminal.watched()).then(|| Panel::new(terminal));
    if live && panel.is_none() {
        terminal.data(live_header())?;
    }
    let begun = Instant::now();
    let passed_on = Cell::new(false);
    let order = || {
        let late = duration.is_some_and(|limit| begun.elapsed() >= limit);
        if late || args.command.is_empty() && interrupt.load(Ordering::Relaxed) {
            return WatchOrder::End;
        }
        // A command's own end is what we wait for.
        terminal.signal_to_pass_on(&passed_on).map_or(WatchOrder::Continue, WatchOrder::PassOn)
    };
    let watched = watch(target, every, &order, &mut |reading| -> anyhow::Result<()> {
        if let Err(error) = outputs.write(reading) {
            if !of_job {
                return Err(error);
            }
            // The job is worth more than its record.
            terminal.warn(format!("recording ends here, the job continues: {error:#}"));
            outputs.close();
        }
        match &panel {
            Some(panel) => panel.show(reading),
            None if live => terminal.data(live_row(reading))?,
            None => {}
        }
        Ok(())
    })?;
    drop(panel);
    let verdict = of_job.then(|| {
        let machine = paceline_runs::Machine::detect();
        judge(&watched.summary, machine.cores, machine.host_cpus)
    });
    report(terminal, &watched, verdict.as_ref(), args.all)?;
    Ok(watched.status.map_or(Exit::Done, Exit::of_command))
}

/// Marks a moment in a recording that another process makes.
fn put_mark(csv: &Path, words: &str, terminal: &Terminal) -> anyhow::Result<Exit> {
    let time = paceline_runs::unix_seconds();
    match mark(csv, words, time) {
        Err(RecordingError::Empty) => {
            return Err(usage(
                "--mark has no words",
                "say what happened: `--mark \"job submitted\"`",
            ));
        }
        outcome => {
            outcome.hint(format!("`paceline monitor --csv {}` records there", typed_path(csv)))?;
        }
    }
    terminal.note(format!("marked in `{}`: {words}", csv.display()));
    terminal.json(&json!({ "csv": csv, "mark": words, "time_seconds": time }))?;
    Ok(Exit::Done)
}

fn start(command: &[String]) -> anyhow::Result<Option<Child>> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot start `{program}`"))
        .hint("write the command and its arguments behind `--`, as in a shell")?;
    Ok(Some(child))
}

struct Outputs {
    csv: Vec<(PathBuf, Writer<BufWriter<File>>)>,
    jsonl: Option<(PathBuf, BufWriter<File>)>,
}

impl Outputs {
    fn open(args: &Args) -> anyhow::Result<Self> {
        let mut csv = Vec::new();
        for (path, layout) in [(&args.csv, Layout::Full), (&args.dstat, Layout::Dstat)] {
            if let Some(path) = path {
                let file = create(path).hint("name another file, or end the other recording")?;
                let writer =
                    Writer::new(BufWriter::new(file), layout).with_context(cannot(path))?;
                csv.push((path.clone(), writer));
            }
        }
        let jsonl = match &args.jsonl {
            Some(path) => {
                let file = File::create(path).with_context(cannot(path))?;
                Some((path.clone(), BufWriter::new(file)))
            }
            None => None,
        };
        Ok(Self { csv, jsonl })
    }

    fn write(&mut self, reading: &Reading) -> anyhow::Result<()> {
        for (path, writer) in &mut self.csv {
            writer.write(reading).with_context(cannot(path))?;
        }
        if let Some((path, out)) = &mut self.jsonl {
            let mut line = Map::new();
            line.insert("time_seconds".to_owned(), json!(reading.time));
            line.insert("elapsed_seconds".to_owned(), json!(reading.elapsed));
            for (column, value) in columns().zip(&reading.values) {
                line.insert(column.name.to_owned(), json!(value));
            }
            line.insert("detail".to_owned(), json!(reading.detail));
            let line = format!("{}\n", Value::Object(line));
            out.write_all(line.as_bytes()).and_then(|()| out.flush()).with_context(cannot(path))?;
        }
        Ok(())
    }

    /// Leaves the files as they are.
    fn close(&mut self) {
        self.csv.clear();
        self.jsonl = None;
    }
}

fn cannot(path: &Path) -> impl FnOnce() -> String {
    let path = path.display().to_string();
    move || format!("cannot write `{path}`")
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
    "gpu_busy_percent",
    "gpu_memory_used_bytes",
    "gpu_power_watts",
    "gpu_throttled_percent",
    "cpu_idle_percent",
    "cpu_steal_percent",
    "cgroup_throttled_percent",
    "memory_available_bytes",
    "disk_busiest_percent",
    "network_received_bytes_per_second",
    "network_sent_bytes_per_second",
];

fn report(
    terminal: &Terminal,
    watched: &Watched,
    verdict: Option<&JobVerdict>,
    all: bool,
) -> anyhow::Result<()> {
    terminal.note(in_words(watched, verdict, all));
    let columns: Map<String, Value> = watched
        .summary
        .rows()
        .map(|(name, mean, peak)| (name.to_owned(), json!({ "mean": mean, "peak": peak })))
        .collect();
    terminal.json(&json!({
        "seconds": watched.took.as_secs_f64(),
        "own_cpu_seconds": watched.cost.as_secs_f64(),
        "exit": watched.status.and_then(|status| status.code()),
        "verdict": verdict,
        "columns": columns,
    }))
}

/// The verdict, what recording cost, and a table of what was recorded.
fn in_words(watched: &Watched, verdict: Option<&JobVerdict>, all: bool) -> String {
    let mut rows: Vec<_> = watched.summary.rows().collect();
    if verdict.is_some() && !all {
        rows = FIRST
            .iter()
            .filter_map(|wanted| rows.iter().find(|(name, ..)| name == wanted).copied())
            .collect();
    }
    let mut table = Table::new(["column", "mean", "peak"]);
    for (name, mean, peak) in rows {
        table.row([name.to_owned(), readable(name, mean), readable(name, peak)]);
    }
    let mut words = String::new();
    if let Some(verdict) = verdict {
        words.push_str(&format!("\nverdict     {}\n", verdict.words));
        if !verdict.next.is_empty() {
            words.push_str(&format!("next        {}\n", verdict.next));
        }
    }
    let seconds = watched.took.as_secs_f64();
    let share = 100.0 * watched.cost.as_secs_f64() / seconds.max(1e-9);
    words.push_str(&format!(
        "\n{seconds:.1} s recorded; recording itself took {share:.2} % of a core\n{table}"
    ));
    words
}

fn readable(name: &str, value: f64) -> String {
    if name.contains("bytes") { format!("{:.2} MB", value / 1e6) } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_probes::{Detail, Summary};

    /// What a person reads of a recording, in `tests/snapshots/monitor.txt`; `PACELINE_BLESS=1` writes it again. It is written
    /// here and not recorded: which columns a machine has, and what a verdict says, is the machine's affair.
    #[test]
    fn a_recording_is_shown_as_is_written_down() {
        let values = columns().zip(1..).map(|(_, number)| Some(f64::from(number) * 1e3)).collect();
        let reading = Reading { time: 0.0, elapsed: 2.0, values, detail: Detail::new() };
        let mut summary = Summary::default();
        summary.add(&reading);
        let (took, cost) = (Duration::from_secs(2), Duration::from_millis(3));
        let watched = Watched { status: None, summary, took, cost };
        let verdict = JobVerdict {
            hold: paceline_probes::Hold::Busy,
            words: "busy with its own work on 1.0 of 2 cores; the rest was free".to_owned(),
            next: "more threads or processes could use the free cores".to_owned(),
        };
        let found = format!(
            "# a command\n{}\n# a command, --all\n{}\n# the machine, live\n{}\n{}\n\n# the machine, at the end\n{}",
            in_words(&watched, Some(&verdict), false),
            in_words(&watched, Some(&verdict), true),
            live_header(),
            live_row(&reading),
            in_words(&watched, None, false),
        );
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/monitor.txt");
        if std::env::var_os("PACELINE_BLESS").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == kept, "PACELINE_BLESS=1 writes it again\n{found}");
    }
}
