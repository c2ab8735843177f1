//! `versus shaped`: 33 million sparse weights over a link of 1.8 Gbit/s, as in assignment 3 of `docs/sources.md`: everything
//! sent at every iteration, or only the weights that a batch touches; synchronous and asynchronous.
//!
//! Two network namespaces stand for two machines: one with the server and worker 0, one with worker 1. Needs
//! root and `ip`. Where the kernel has no `netem`, a small process carries the packets and delays them.

use super::contest::median;
use super::paceline::Paceline;
use super::{benchmarks, cable};
use crate::environment;
use anyhow::{Context, bail};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The link, both ways.
const RATE: &str = "1800mbit";
const DELAY: &str = "1ms";
/// The same for the cable in user space.
const BYTES_PER_SECOND: f64 = 225e6;
const ONE_WAY: Duration = Duration::from_millis(1);
const NEAR: &str = "10.78.0.1";
const FAR: &str = "10.78.0.2";
/// Rows of the click log, in two files.
const ROWS: &str = "1000000";
/// Rows of a worker's batch.
const BATCH: u64 = 2048;
/// Runs of every mode.
const ROUNDS: usize = 3;

/// What is compared: name, strategy, transfer, updates.
const MODES: &[(&str, &str, &str, &str)] = &[
    ("dense, synchronous", "ps-sync", "dense", "10"),
    ("sparse, synchronous", "ps-sync", "sparse", "400"),
    ("sparse, asynchronous", "ps-async", "sparse", "1600"),
];

/// Two hosts on one shaped cable.
struct Lab {
    names: [String; 2],
    /// Whether the cable is one of ours, because the kernel cannot delay packets.
    relayed: bool,
}

fn ip(words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    environment::run(command.args(words).stderr(Stdio::null()))
}

impl Lab {
    fn new() -> anyhow::Result<Self> {
        let names = ["near", "far"].map(|name| format!("pl-{}-{name}", std::process::id()));
        let mut lab = Self { names, relayed: false };
        let names = lab.names.clone();
        let [a, b] = names.each_ref().map(String::as_str);
        ip(&["netns", "add", a]).context("network namespaces need root")?;
        ip(&["netns", "add", b])?;
        let cable = ["link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns"];
        ip(&[&["-n", a][..], &cable, &[b]].concat())?;
        let shape = |name: &str| {
            let queue = ["tc", "qdisc", "add", "dev", "cable", "root", "netem"];
            let how = ["delay", DELAY, "rate", RATE, "limit", "100000"];
            ip(&[&["netns", "exec", name][..], &queue, &how].concat())
        };
        if shape(a).and_then(|()| shape(b)).is_err() {
            ip(&["-n", a, "link", "del", "cable"])?;
            relay([a, b])?;
            lab.relayed = true;
        }
        for (name, own, other) in [(a, NEAR, FAR), (b, FAR, NEAR)] {
            let whole = [own, "peer", other];
            ip(&[&["-n", name, "addr", "add"][..], &whole, &["dev", "cable"]].concat())?;
            ip(&["-n", name, "link", "set", "cable", "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(lab)
    }

    /// Starts a task on a host.
    fn start(
        &self,
        host: usize,
        task: (&str, u32),
        setting: &Setting,
        mode: usize,
    ) -> anyhow::Result<Child> {
        let (_, strategy, transfer, steps) = MODES[mode];
        let (role, index) = task;
        let cluster = format!(
            r#"{{"cluster":{{"worker":["10.78.0.1:7000","10.78.0.2:7000"],"ps":["10.78.0.1:7001"]}},"task":{{"type":"{role}","index":{index}}}}}"#
        );
        let batch = if strategy == "ps-sync" { 2 * BATCH } else { BATCH };
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.names[host]])
            .arg(&setting.program)
            .args([
                "node",
                "--model",
                "sparse-logistic",
                "--strategy",
                strategy,
                "--transfer",
                transfer,
            ])
            .args(["--steps", steps, "--batch-size", &batch.to_string(), "--epochs", "100"])
            // Namespaces are of one machine; two machines have no memory in common.
            .args([
                "--no-shared-memory",
                "--no-tensorboard",
                "--json",
                "--quiet",
                "--join-timeout",
                "30",
            ])
            .arg("--data")
            .arg(&setting.rows)
            .arg("--out")
            .arg(setting.runs.join(format!("{role}-{index}")))
            .env("TF_CONFIG", cluster)
            .env("PACELINE_KEY_FILE", &setting.key)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        command.spawn().context("cannot start a task")
    }

    /// One run; gives the chief's report.
    fn run(&self, setting: &Setting, mode: usize) -> anyhow::Result<Value> {
        let places = [(0, ("ps", 0)), (0, ("worker", 0)), (1, ("worker", 1))];
        let mut children = Vec::new();
        for (host, task) in places {
            children.push((task, self.start(host, task, setting, mode)?));
        }
        let mut report = None;
        for (task, child) in children {
            let output = child.wait_with_output()?;
            if !output.status.success() {
                bail!("{task:?} failed in mode `{}`", MODES[mode].0);
            }
            if task == ("worker", 0) {
                report = Some(serde_json::from_slice(&output.stdout)?);
            }
        }
        report.context("no report came")
    }
}

/// A cable in user space: two tunnel devices, moved into the namespaces, and threads between them.
fn relay(names: [&str; 2]) -> anyhow::Result<()> {
    let devices = ["a", "b"].map(|end| format!("pl{}{end}", std::process::id()));
    cable::lay([&devices[0], &devices[1]], BYTES_PER_SECOND, ONE_WAY)?;
    for (device, name) in devices.iter().zip(names) {
        ip(&["link", "set", device, "netns", name])?;
        ip(&["-n", name, "link", "set", device, "name", "cable", "mtu", cable::MTU])?;
    }
    Ok(())
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

struct Setting {
    program: PathBuf,
    rows: PathBuf,
    key: PathBuf,
    runs: PathBuf,
}

/// Figures of one mode.
#[derive(Default)]
struct Figures {
    seconds: [Vec<f64>; 2],
    updates: Vec<f64>,
    bytes: f64,
    verdict: String,
}

/// Runs all modes and writes the section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let paceline = Paceline::build(root)?;
    let work = root.join("target/versus/shaped");
    let _ = fs::remove_dir_all(work.join("runs"));
    fs::create_dir_all(&work)?;
    let setting = Setting {
        program: paceline.program().to_owned(),
        rows: work.join("rows"),
        key: work.join("key"),
        runs: work.join("runs"),
    };
    if !setting.rows.exists() {
        let (log, rows) = (work.join("clicks.tsv"), setting.rows.display().to_string());
        let log = log.display().to_string();
        paceline.json(&["data", "synth", "clicks", &log, "--rows", ROWS, "--seed", "1"])?;
        paceline.json(&["prepare", &log, &rows, "--shards", "2"])?;
    }
    if !setting.key.exists() {
        environment::run(Command::new(&setting.program).args(["key", "new"]).arg(&setting.key))?;
    }
    let lab = Lab::new()?;
    let mut all: Vec<Figures> = MODES.iter().map(|_| Figures::default()).collect();
    for round in 0..ROUNDS {
        for (mode, figures) in all.iter_mut().enumerate() {
            let report = lab.run(&setting, mode)?;
            for (worker, seconds) in figures.seconds.iter_mut().enumerate() {
                let pace = &report["exchange"]["tasks"][worker]["seconds_per_iteration"];
                seconds.push(pace.as_f64().context("no pace in the report")?);
            }
            let (steps, seconds) = (&report["global_steps"], &report["seconds"]);
            let rate = steps.as_f64().unwrap_or(0.0) / seconds.as_f64().unwrap_or(f64::NAN);
            figures.updates.push(rate);
            figures.bytes = report["exchange"]["bytes_per_iteration"].as_f64().unwrap_or(0.0);
            report["verdict"].as_str().unwrap_or_default().clone_into(&mut figures.verdict);
            eprintln!("{}, round {}: {rate:.2} updates/s", MODES[mode].0, round + 1);
        }
    }
    benchmarks::write_body(root, "shaped", &section(&all, lab.relayed)?)
}

fn section(all: &[Figures], relayed: bool) -> anyhow::Result<String> {
    let mut text = format!(
        "Sparse logistic regression, 2^25 weights, batches of {BATCH} rows per worker; server and worker 0 on one host, worker 1 on \
         another, with a link of {RATE} and {DELAY} (each way).\n\n"
    );
    writeln!(
        text,
        "| mode | worker on the server's host, s/iteration | worker on the other host, s/iteration | updates/s | MB/iteration | published, s/iteration |"
    )?;
    writeln!(text, "| --- | --- | --- | --- | --- | --- |")?;
    let published = ["7–8", "3–4", "1–1.5 on the server's host, 3–3.5 on the other"];
    for ((mode, figures), published) in MODES.iter().zip(all).zip(published) {
        let [near, far] = figures.seconds.each_ref().map(|seconds| median(seconds));
        writeln!(
            text,
            "| {} | {near:.4} | {far:.4} | {:.2} | {:.2} | {published} |",
            mode.0,
            median(&figures.updates),
            figures.bytes / 1e6
        )?;
    }
    writeln!(text)?;
    for (mode, figures) in MODES.iter().zip(all) {
        writeln!(text, "- {}: \"{}\"", mode.0, figures.verdict)?;
    }
    writeln!(
        text,
        "- Medians of {ROUNDS} runs; iterations of one worker, including waiting. The published batches were larger and the machines older: only the order of the modes is comparable."
    )?;
    if relayed {
        writeln!(
            text,
            "- This kernel has no `netem`: threads on the same two cores forward packets at that rate and with that delay (`xtask/src/versus/cable.rs`)."
        )?;
    }
    Ok(text)
}
