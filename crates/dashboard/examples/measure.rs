//! Measures the live page under load: thousands of runs, long logs, many viewers.
//!
//! `cargo run -p paceline-dashboard --example measure` makes everything in a temporary folder and prints a table. The server is a
//! process of its own, so that its memory is not mixed up with that of its clients.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use paceline_dashboard::{DashboardOptions, Server};
use paceline_runs::{
    Diagnosis, Event, EventLog, PhaseTimes, RunFolder, RunStarted, Step, Summary, WorkerSummary,
};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Runs in the list.
const RUNS: usize = 5000;
/// Steps of the longest run.
const STEPS: u64 = 10_000_000;
/// Steps of a log of 200 MB.
const STEPS_OF_200_MB: u64 = 780_000;
/// Viewers of the list.
const VIEWERS: usize = 1000;

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("serve") {
        let root = PathBuf::from(args.next().unwrap());
        let server = Server::bind(&DashboardOptions::loopback(root)).unwrap();
        println!("{}", server.address());
        server.run(&AtomicBool::new(false)).unwrap();
        return;
    }
    let root = tempfile::tempdir().unwrap();
    many_runs(root.path());
    let root = tempfile::tempdir().unwrap();
    long_log(root.path());
    let root = tempfile::tempdir().unwrap();
    ten_million(root.path());
}

/// A server in a process of its own.
struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    fn start(root: &Path) -> Served {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("serve")
            .arg(root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Served { child, address: line.trim().parse().unwrap() }
    }

    fn get(&self, target: &str) -> (Duration, usize) {
        let begun = Instant::now();
        let mut stream = self.ask(target);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{target}");
        (begun.elapsed(), answer.len())
    }

    fn ask(&self, target: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Memory in MB: now, and at most.
    fn memory(&self) -> (f64, f64) {
        let status = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(status).unwrap();
        let of = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1e3
        };
        (of("VmRSS"), of("VmHWM"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(what: &str, time: Duration, served: &Served) {
    let (now, most) = served.memory();
    println!(
        "{what}: {:.0} ms, server {now:.0} MB (at most {most:.0} MB)",
        1e3 * time.as_secs_f64()
    );
}

/// Waits until a stream has told of a kind of event.
fn until(reader: &mut impl BufRead, kind: &str) {
    let wanted = format!("event: {kind}\n");
    let mut line = String::new();
    while line != wanted {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
}

fn run(root: &Path, name: &str, steps: u64) -> RunFolder {
    let path = root.join(name);
    std::fs::create_dir_all(&path).unwrap();
    let run = RunFolder::at(&path);
    let spec = json!({ "model": "lenet", "strategy": "one-device", "data": "digits", "batch_size": 64,
        "seed": steps, "optimizer": "sgd", "stop": { "epochs": 3 }, "checkpoints": { "every": 100, "keep": 3 } });
    // As they are: waiting for the disk five thousand times would measure that.
    let plan = json!({ "spec": spec, "learning_rate": 0.1, "threads": 2, "version": "0.1.0", "planned_steps": steps });
    std::fs::write(path.join("plan.json"), plan.to_string()).unwrap();
    run
}

fn many_runs(root: &Path) {
    for number in 0..RUNS {
        let run = run(root, &format!("20260101-{number:06}-lenet-one-device"), number as u64);
        let workers =
            vec![WorkerSummary { task: "worker/0".to_owned(), ..WorkerSummary::default() }; 4];
        let diagnosis =
            Some(Diagnosis { evidence: vec!["a sentence".to_owned(); 4], ..Diagnosis::default() });
        let started = number as f64;
        let summary = serde_json::to_vec_pretty(&Summary {
            started,
            workers,
            diagnosis,
            global_steps: 1,
            ..Summary::default()
        });
        std::fs::write(run.path().join("summary.json"), summary.unwrap()).unwrap();
    }
    let served = Served::start(root);
    let (time, bytes) = served.get("/api/runs");
    said(
        &format!("{RUNS} runs, first list, no index ({:.1} MB)", bytes as f64 / 1e6),
        time,
        &served,
    );
    said("the same again", served.get("/api/runs").0, &served);
    drop(served);
    let served = Served::start(root);
    said("after a restart, with the index", served.get("/api/runs").0, &served);
    let mut viewers: Vec<_> =
        (0..VIEWERS).map(|_| BufReader::new(served.ask("/api/events"))).collect();
    viewers.iter_mut().for_each(|viewer| until(viewer, "hello"));
    until(&mut viewers[0], "reset");
    let begun = Instant::now();
    run(root, "new", 1);
    viewers.iter_mut().for_each(|viewer| until(viewer, "runs"));
    said(&format!("a new run reaches {VIEWERS} viewers"), begun.elapsed(), &served);
}

/// A log of so many steps, one each.
fn write_steps(run: &RunFolder, steps: u64) {
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    log.write(
        0.0,
        &Event::RunStarted(RunStarted { model: "lenet".to_owned(), ..RunStarted::default() }),
    )
    .unwrap();
    for at in 1..=steps {
        log.write(at as f64 * 0.01, &step(at)).unwrap();
    }
    log.flush().unwrap();
}

fn step(at: u64) -> Event {
    let phases = PhaseTimes { input: 0.001, compute: 0.009, ..PhaseTimes::default() };
    let loss = 2.3 / (1.0 + at as f64 / 1e5);
    Event::Step(Step {
        step: at,
        steps: 1,
        examples: 64,
        seconds: 0.01,
        loss,
        learning_rate: 0.1,
        global_batch: 64,
        phases,
        ..Step::default()
    })
}

fn long_log(root: &Path) {
    let run = run(root, "long", STEPS_OF_200_MB);
    write_steps(&run, STEPS_OF_200_MB);
    let size = std::fs::metadata(run.events_path("worker/0")).unwrap().len();
    let served = Served::start(root);
    said(
        &format!("a log of {} MB, first draw", size / 1_000_000),
        served.get("/api/run?name=long").0,
        &served,
    );
    let begun = Instant::now();
    let mut viewers: Vec<_> =
        (0..12).map(|_| BufReader::new(served.ask("/api/events?run=long"))).collect();
    viewers.iter_mut().for_each(|viewer| until(viewer, "run"));
    said("12 viewers have it", begun.elapsed(), &served);
    // The whole is read meanwhile; the page that rests on it follows.
    viewers.iter_mut().for_each(|viewer| until(viewer, "run"));
    said("12 viewers have the page of the whole log", begun.elapsed(), &served);
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    let begun = Instant::now();
    log.write(1e6, &step(STEPS_OF_200_MB + 1)).unwrap();
    log.flush().unwrap();
    viewers.iter_mut().for_each(|viewer| until(viewer, "run"));
    said("one more step reaches them", begun.elapsed(), &served);
}

fn ten_million(root: &Path) {
    let run = run(root, "longest", STEPS);
    write_steps(&run, STEPS);
    let size = std::fs::metadata(run.events_path("worker/0")).unwrap().len();
    let served = Served::start(root);
    let what = format!("{STEPS} steps in {:.1} GB, first draw", size as f64 / 1e9);
    said(&what, served.get("/api/run?name=longest").0, &served);
    let begun = Instant::now();
    let mut viewer = BufReader::new(served.ask("/api/events?run=longest"));
    until(&mut viewer, "run");
    until(&mut viewer, "run");
    said("the whole is read", begun.elapsed(), &served);
    std::fs::write(run.path().join("touched"), "").unwrap();
    said("drawn again", served.get("/api/run?name=longest").0, &served);
}
