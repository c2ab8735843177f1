//! Run folders written by the real recorder's own parts, a server on a free port, and plain requests.

#![allow(dead_code)] // each test file uses some

use paceline_dashboard::{DashboardOptions, Server};
use paceline_runs::{
    Evaluation, Event, EventLog, Final, PhaseTimes, RunFolder, RunStarted, StartRow, StartTable,
    Status, Step, Summary, TaskJoined, WorkerSummary, unix_seconds,
};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A server that stops with this value.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(options: &DashboardOptions) -> Running {
        let server = Server::bind(options).unwrap();
        let (address, url) = (server.address(), server.url());
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || server.run(&flag).unwrap());
        Running { address, url, stop, thread: Some(thread) }
    }

    pub(crate) fn of(root: &Path) -> Running {
        Running::start(&DashboardOptions::loopback(root.to_owned()))
    }

    /// Sends bytes as they are; the answer as text.
    pub(crate) fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(crate) fn get(&self, target: &str) -> (u16, String) {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        parts(&self.raw(request.as_bytes()))
    }
}

pub(crate) fn parts(answer: &str) -> (u16, String) {
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A run with its plan, still without events.
pub(crate) fn planned(root: &Path, name: &str, model: &str) -> RunFolder {
    let path = root.join(name);
    std::fs::create_dir_all(&path).unwrap();
    let plan = json!({
        "spec": { "model": model, "strategy": "one-device", "data": "digits", "batch_size": 64 }, "planned_steps": 1000,
    });
    std::fs::write(path.join("plan.json"), plan.to_string()).unwrap();
    RunFolder::open(&path).unwrap()
}

/// A run of two tasks of which the second is in `state`; there is no plan yet.
pub(crate) fn forming(root: &Path, name: &str, state: &str) -> RunFolder {
    let path = root.join(name);
    std::fs::create_dir_all(&path).unwrap();
    let run = RunFolder::at(&path);
    let row = |task: &str, port: u16, state: &str| StartRow {
        task: task.to_owned(),
        address: format!("127.0.0.1:{port}"),
        state: state.to_owned(),
        seconds: 3.0,
        error: (state == "waiting").then(|| "connection refused".to_owned()),
        ..StartRow::default()
    };
    let table = StartTable {
        written: unix_seconds(),
        model: "lenet".to_owned(),
        strategy: "multi-worker".to_owned(),
        tasks: vec![row("worker/0", 1, "joined"), row("worker/1", 2, state)],
    };
    run.write_start_table(&table).unwrap();
    run
}

pub(crate) fn step(step: u64) -> Event {
    Event::Step(Step {
        step,
        steps: 10,
        examples: 640,
        seconds: 0.1,
        loss: 2.3 / (1.0 + step as f64 / 100.0),
        accuracy: 0.9,
        learning_rate: 0.1,
        global_batch: 64,
        phases: PhaseTimes {
            input: 0.01,
            compute: 0.08,
            exchange: 0.005,
            wait: 0.005,
            ..PhaseTimes::default()
        },
    })
}

pub(crate) fn started(model: &str) -> Event {
    Event::RunStarted(RunStarted {
        model: model.to_owned(),
        strategy: "one-device".to_owned(),
        ..RunStarted::default()
    })
}

pub(crate) fn joined(role: &str) -> Event {
    Event::TaskJoined(TaskJoined {
        role: role.to_owned(),
        address: Some("127.0.0.1:4000".to_owned()),
        process: 7,
        ..TaskJoined::default()
    })
}

/// A run that has ended, with curves.
pub(crate) fn finished(root: &Path, name: &str, model: &str, accuracy: f64) -> RunFolder {
    let run = planned(root, name, model);
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    let begin = unix_seconds() - 60.0;
    log.write(begin, &started(model)).unwrap();
    for at in 1..=100 {
        log.write(begin + 0.5 * at as f64, &step(10 * at)).unwrap();
        if at % 20 == 0 {
            let evaluation =
                Evaluation { step: 10 * at, loss: 0.4, accuracy, ..Evaluation::default() };
            log.write(begin + 0.5 * at as f64, &Event::Evaluation(evaluation)).unwrap();
        }
    }
    log.flush().unwrap();
    run.write_summary(&Summary {
        run: name.to_owned(),
        status: Status::Done,
        model: model.to_owned(),
        strategy: "one-device".to_owned(),
        started: begin,
        global_batch: 64,
        global_steps: 1000,
        examples: 64_000,
        seconds: 50.0,
        examples_per_second: 1280.0,
        last: Final { train_loss: 0.2, test_loss: 0.4, test_accuracy: accuracy },
        phases: PhaseTimes {
            input: 0.1,
            compute: 0.8,
            exchange: 0.05,
            wait: 0.05,
            ..PhaseTimes::default()
        },
        workers: vec![WorkerSummary {
            task: "worker/0".to_owned(),
            iterations: 1000,
            examples: 64_000,
            seconds: 50.0,
            ..WorkerSummary::default()
        }],
        verdict: "compute-bound: 80 % of the time went into the model itself".to_owned(),
        ..Summary::default()
    })
    .unwrap();
    run
}
