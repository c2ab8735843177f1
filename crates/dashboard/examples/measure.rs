//! Measures the live page under load: thousands of runs, long logs, many viewers.
//!
//! `cargo xtask versus pages` runs it and keeps its table in `BENCHMARKS.md`; by itself it is
//! `cargo run --release -p paceline-dashboard --example measure`. It makes everything in a temporary folder. The server is a process of its
//! own, so that its memory is not mixed up with that of its clients: `PACELINE_BIN serve` where that names a build, else this example itself.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use paceline_dashboard::{DashboardOptions, Server};
use paceline_runs::{
    Diagnosis, Event, EventLog, Final, PhaseTimes, RunFolder, RunStarted, Step, Summary,
    WorkerSummary,
};
use paceline_testing::{browser::chromium, devtools::Tab};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
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
/// Measurements of what can be asked again.
const REPEATS: usize = 7;

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("serve") {
        let root = PathBuf::from(args.next().unwrap());
        let server = Server::bind(&DashboardOptions::loopback(root)).unwrap();
        println!("{}", server.address());
        server.run(&AtomicBool::new(false)).unwrap();
        return;
    }
    println!("| what | time | server's memory, most |\n| --- | --- | --- |");
    for part in [many_runs, long_log, ten_million] {
        let root = tempfile::tempdir().unwrap();
        part(root.path());
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!(
        "\n- Load of the machine at the end: {} (1, 5, 15 min). Runs and logs are written for the measurement and are in the page cache; steps are 280 bytes each.",
        load.split_whitespace().take(3).collect::<Vec<_>>().join(", ")
    );
    println!(
        "- Times of several measurements are medians with the least and the most; those of the browser end when the page has been laid out, as seen by a client that asks in a loop."
    );
    println!("- Memory is the peak resident set of the server process up to then.");
}

/// A server in a process of its own.
struct Served {
    child: Child,
    address: SocketAddr,
    /// Open as long as the server is: it would end with an error when it says more.
    _said: BufReader<ChildStdout>,
}

impl Served {
    fn start(root: &Path) -> Served {
        let mut command = match std::env::var_os("PACELINE_BIN") {
            Some(program) => {
                let mut command = Command::new(program);
                command.args(["serve", "--listen", "127.0.0.1:0", "--json", "--quiet"]);
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.arg("serve");
                command
            }
        };
        let mut child = command.arg(root).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "the server says where it listens");
            // The bare address, or one in JSON.
            let words = line.trim().trim_end_matches(',').trim_start_matches("\"address\": ");
            if let Ok(address) = words.trim_matches('"').parse() {
                break address;
            }
        };
        Served { child, address, _said: said }
    }

    fn get(&self, target: &str) -> (Duration, usize) {
        let begun = Instant::now();
        let mut stream = self.ask(target);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{target}");
        (begun.elapsed(), answer.len())
    }

    fn post(&self, target: &str, body: &str) -> (Duration, usize) {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(self.address).unwrap();
        let (host, length) = (self.address, body.len());
        let head =
            format!("POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
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

    /// Most memory in MB.
    fn memory(&self) -> f64 {
        let status = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(status).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1e3
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(what: &str, time: Duration, served: &Served) {
    row(what, &[time], served);
}

/// The same several times.
fn often(what: &str, served: &Served, mut measured: impl FnMut() -> Duration) {
    let times: Vec<Duration> = (0..REPEATS).map(|_| measured()).collect();
    row(what, &times, served);
}

fn row(what: &str, times: &[Duration], served: &Served) {
    let mut times: Vec<f64> = times.iter().map(|time| 1e3 * time.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    let middle = times[times.len() / 2];
    let spread = match times.len() {
        1 => String::new(),
        n => format!(" ({:.0}–{:.0}, n = {n})", times[0], times[n - 1]),
    };
    println!("| {what} | {middle:.0} ms{spread} | {:.0} MB |", served.memory());
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

/// Waits until a stream has told of something by these words: what was told of before may be told of again.
fn until_told(reader: &mut impl BufRead, words: &str) {
    let mut line = String::new();
    while !(line.starts_with("data: ") && line.contains(words)) {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
}

fn run(root: &Path, name: &str, number: u64) -> RunFolder {
    let path = root.join(name);
    std::fs::create_dir_all(&path).unwrap();
    let run = RunFolder::at(&path);
    let spec = json!({ "model": "lenet", "strategy": "one-device", "data": "digits", "batch_size": 64,
        "learning_rate": (1 + number % 50) as f64 / 100.0, "momentum": (number / 50 % 10) as f64 / 10.0,
        "seed": number, "optimizer": "sgd", "stop": { "epochs": 3 }, "checkpoints": { "every": 100, "keep": 3 } });
    // As they are: waiting for the disk five thousand times would measure that.
    let plan = json!({ "spec": spec, "learning_rate": 0.1, "threads": 2, "version": "0.1.0", "planned_steps": number });
    std::fs::write(path.join("plan.json"), plan.to_string()).unwrap();
    run
}

fn name_of(number: usize) -> String {
    format!("20260101-{number:06}-lenet-one-device")
}

fn many_runs(root: &Path) {
    for number in 0..RUNS {
        let run = run(root, &name_of(number), number as u64);
        let workers =
            vec![WorkerSummary { task: "worker/0".to_owned(), ..WorkerSummary::default() }; 4];
        let diagnosis =
            Some(Diagnosis { evidence: vec!["a sentence".to_owned(); 4], ..Diagnosis::default() });
        let loss = 0.1 + (number * 7919 % 1000) as f64 / 1000.0;
        let summary = serde_json::to_vec_pretty(&Summary {
            started: number as f64,
            workers,
            diagnosis,
            global_steps: 1,
            model: "lenet".to_owned(),
            data: "digits".to_owned(),
            examples_per_second: 1000.0 + (number % 77) as f64,
            last: Final { train_loss: loss, test_loss: loss, test_accuracy: 1.0 - loss / 2.0 },
            ..Summary::default()
        });
        std::fs::write(run.path().join("summary.json"), summary.unwrap()).unwrap();
        write_steps(&run, 100);
    }
    let served = Served::start(root);
    let (time, bytes) = served.get("/api/runs");
    let size = bytes as f64 / 1e6;
    said(&format!("{RUNS} runs, first list without index ({size:.1} MB)"), time, &served);
    often("the same again", &served, || served.get("/api/runs").0);
    drop(served);
    let served = Served::start(root);
    said("after a restart, with the index", served.get("/api/runs").0, &served);
    in_the_browser(&served);
    for count in [1000, RUNS] {
        let names: Vec<String> = (0..count).map(name_of).collect();
        let body = json!({ "names": names }).to_string();
        let size = served.post("/api/compare/many", &body).1 as f64 / 1e6;
        let what = format!("{count} runs compared ({size:.1} MB)");
        often(&what, &served, || served.post("/api/compare/many", &body).0);
    }
    let mut viewers: Vec<_> =
        (0..VIEWERS).map(|_| BufReader::new(served.ask("/api/events"))).collect();
    viewers.iter_mut().for_each(|viewer| until(viewer, "hello"));
    until(&mut viewers[0], "reset");
    let mut number = RUNS;
    often(&format!("a new run reaches {VIEWERS} viewers"), &served, || {
        let begun = Instant::now();
        number += 1;
        let name = name_of(number);
        run(root, &name, 1);
        viewers.iter_mut().for_each(|viewer| until_told(viewer, &name));
        begun.elapsed()
    });
}

/// What a person waits for: from the address to the table, and from a click to the comparison of all runs.
fn in_the_browser(served: &Served) {
    let Some(browser) = chromium() else { return };
    let profile = tempfile::tempdir().unwrap();
    let address = format!("http://{}/", served.address);
    let rows = "document.querySelectorAll('tbody tr[data-run]').length > 900";
    let mut tab = Tab::open(&browser, &address, profile.path());
    tab.wait_for(rows);
    often(
        &format!("the list of {RUNS} in Chromium, from the address to the table"),
        served,
        || {
            tab.evaluate("globalThis.before = true");
            tab.call("Page.navigate", &json!({ "url": address }));
            tab.wait_for(&format!("!globalThis.before && {rows}"));
            Duration::from_secs_f64(tab.evaluate("performance.now()").as_f64().unwrap() / 1e3)
        },
    );
    tab.click("thead .all");
    often(&format!("{RUNS} compared in Chromium, from the click to the charts"), served, || {
        let begun = Instant::now();
        tab.click(".compare");
        tab.wait_for("document.querySelector('figure svg[data-live]')");
        let time = begun.elapsed();
        tab.evaluate("location.hash = '#'");
        tab.wait_for(rows);
        time
    });
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
    let mut at = STEPS_OF_200_MB;
    often("one more step reaches them", &served, || {
        let begun = Instant::now();
        at += 1;
        log.write(1e6, &step(at)).unwrap();
        log.flush().unwrap();
        viewers.iter_mut().for_each(|viewer| until_told(viewer, &at.to_string()));
        begun.elapsed()
    });
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
    let mut at = 0;
    often("drawn again after a change", &served, || {
        at += 1;
        std::fs::write(run.path().join(format!("touched-{at}")), "").unwrap();
        served.get("/api/run?name=longest").0
    });
}
