//! A thousand browsers on one live page: all of them hear of a new run, and the server reads its log once for all.
//!
//! A program of its own, so that the memory it looks at is not that of other tests.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_runs::{EventLog, RunFolder, unix_seconds};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::{Duration, Instant},
};
use support::{Running, finished, joined, planned, started, step};

const VIEWERS: usize = 1000;
/// Steps of the new run: a log of some megabytes.
const STEPS: u64 = 10_000;
/// What a viewer may cost in this process, which holds both ends of its connection: buffers, no copy of a log.
const BYTES_OF_A_VIEWER: u64 = 64 << 10;
/// What the run itself may cost, however many look at it.
const BYTES_OF_A_RUN: u64 = 64 << 20;

/// Both ends of all connections are files of this process. Whether there may be so many.
fn raise_file_limit() -> bool {
    let (limit, wanted) = (getrlimit(Resource::Nofile), 2 * VIEWERS as u64 + 500);
    if limit.current.is_none_or(|now| now >= wanted) {
        return true;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum }).is_ok()
}

/// Bytes of memory that this process has now.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
}

/// A figure of the server's own page of metrics.
fn metric(server: &Running, name: &str) -> u64 {
    let (status, text) = server.get("/metrics");
    assert_eq!(status, 200);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("{name} is not in {text}")) as u64
}

/// A browser's stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(server: &Running, target: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(paceline_testing::HANG)).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = Self(BufReader::with_capacity(4096, stream));
        stream.until(|kind, _| kind == "hello");
        stream
    }

    /// Reads messages until one of a kind with such data, and gives its kind.
    fn until(&mut self, is_wanted: impl Fn(&str, &str) -> bool) -> String {
        let (mut kind, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(event) = line.strip_prefix("event: ") {
                event.trim_end().clone_into(&mut kind);
            } else if let Some(data) = line.strip_prefix("data: ")
                && is_wanted(&kind, data)
            {
                return kind;
            }
        }
    }
}

fn open_all(server: &Running, target: &str) -> Vec<Stream> {
    let streams = (0..VIEWERS).map(|_| Stream::open(server, target)).collect();
    assert_eq!(metric(server, "paceline_viewers "), VIEWERS as u64);
    streams
}

/// Writes steps of a run; how many bytes its log has then.
fn write(run: &RunFolder, log: &mut EventLog, steps: impl Iterator<Item = u64>) -> u64 {
    steps.for_each(|at| log.write(unix_seconds(), &step(at)).unwrap());
    log.flush().unwrap();
    run.events_path("worker/0").metadata().unwrap().len()
}

#[test]
fn a_thousand_viewers_hear_of_a_new_run_whose_log_is_read_once() {
    if !raise_file_limit() {
        return paceline_testing::missing("so many open files are not allowed").unwrap_or(());
    }
    let root = tempfile::tempdir().unwrap();
    for (name, model) in [("a", "softmax"), ("b", "softmax"), ("c", "lenet"), ("d", "lenet")] {
        finished(root.path(), name, model, 0.9);
    }
    let server = Running::of(root.path());
    let mut list = open_all(&server, "/api/events");
    let (read_before, memory_before) =
        (metric(&server, "paceline_event_log_bytes_total "), resident());

    // The run is there all at once: a look finds it whole or not at all.
    let made = tempfile::tempdir_in(root.path().parent().unwrap()).unwrap();
    let run = planned(made.path(), "new", "lenet");
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    log.write(unix_seconds(), &joined("worker/0")).unwrap();
    log.write(unix_seconds(), &started("lenet")).unwrap();
    let length = write(&run, &mut log, 1..=STEPS);
    let place = root.path().join("new");
    std::fs::rename(run.path(), &place).unwrap();
    let run = RunFolder::open(&place).unwrap();

    let last = format!("\"step\":{STEPS},");
    let tells = |text: &str| text.contains("\"name\":\"new\"") && text.contains(&last);
    let mut resets = 0;
    for viewer in &mut list {
        // One that missed a message is told to fetch the list.
        let kind = viewer.until(|kind, data| kind == "reset" || (kind == "runs" && tells(data)));
        resets += usize::from(kind == "reset");
    }
    assert!(tells(&server.get("/api/runs").1), "the list lacks the run");
    println!("{resets} of {VIEWERS} viewers were told to fetch the list");
    let read = metric(&server, "paceline_event_log_bytes_total ") - read_before;
    assert_eq!(read, length, "{VIEWERS} viewers of the list, and the log is read once");
    drop(list);
    let begun = Instant::now();
    while metric(&server, "paceline_viewers ") > 0 {
        assert!(begun.elapsed() < paceline_testing::HANG, "viewers that have left are not noticed");
        std::thread::sleep(Duration::from_millis(50));
    }

    // The same of those that look at the run itself: they are shown what is known already, and then only what is added is read.
    let mut lookers = open_all(&server, "/api/events?run=new");
    lookers.iter_mut().for_each(|viewer| drop(viewer.until(|kind, _| kind == "run")));
    let longer = write(&run, &mut log, STEPS + 1..=STEPS + 100);
    let shown = format!("\"step\":{}", STEPS + 100);
    for viewer in &mut lookers {
        viewer.until(|kind, data| kind == "run" && data.contains(&shown));
    }
    let read = metric(&server, "paceline_event_log_bytes_total ") - read_before;
    assert_eq!(read, longer, "{VIEWERS} viewers of the run, and what was added is read once");
    let grown = resident().saturating_sub(memory_before);
    println!("{VIEWERS} viewers of a log of {longer} bytes: {grown} bytes more");
    assert!(grown < VIEWERS as u64 * BYTES_OF_A_VIEWER + BYTES_OF_A_RUN, "{grown} bytes");
}
