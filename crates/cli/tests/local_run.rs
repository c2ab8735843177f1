//! What a run on one machine shows of itself to others: no key, no open door, one log per task.

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::*;
use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
};

/// How every key's text begins.
const KEY: &str = "paceline-key-";

fn holds_key(bytes: &[u8]) -> bool {
    bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Where a process takes connections, as the kernel knows it.
fn listeners(process: u32) -> Vec<SocketAddr> {
    let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let open: Vec<String> = open
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    let ours = |inode: &str| open.contains(&format!("socket:[{inode}]"));
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[3] != "0A" || !ours(words[9]) {
                continue; // not listening, or of another process
            }
            let (host, port) = words[1].split_once(':').unwrap();
            // The kernel writes each 32 bits of an address as this machine's number.
            let pieces = host.as_bytes().chunks(8).flat_map(|piece| {
                let piece = u32::from_str_radix(std::str::from_utf8(piece).unwrap(), 16).unwrap();
                piece.to_ne_bytes()
            });
            let bytes: Vec<u8> = pieces.collect();
            let address: IpAddr = match <[u8; 4]>::try_from(&bytes[..]) {
                Ok(four) => four.into(),
                Err(_) => <[u8; 16]>::try_from(&bytes[..]).unwrap().into(),
            };
            found.push((address, u16::from_str_radix(port, 16).unwrap()).into());
        }
    }
    found
}

fn tasks_with_launcher(run: &Run) -> BTreeMap<String, u32> {
    let mut tasks = processes(&run.folder());
    tasks.insert("launcher".to_owned(), run.child.id());
    tasks
}

#[test]
fn the_key_of_a_local_run_is_nowhere_to_be_read() {
    let key = paceline_wire::ClusterKey::generate().unwrap().to_text();
    assert!(holds_key(key.as_bytes()), "keys look otherwise now: {}", &key[..8]);
    let flags = ["--workers", "2", "--ps", "1", "--steps", ENDLESS, "--checkpoint-every", "50"];
    let mut run = train("ps-sync", &flags);
    run.wait_for_step(60);
    let tasks = tasks_with_launcher(&run);
    assert_eq!(tasks.len(), 4, "{tasks:?}");
    for (task, process) in &tasks {
        for place in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{process}/{place}")).unwrap();
            assert!(!bytes.is_empty(), "{task}: no {place}");
            assert!(!holds_key(&bytes), "{task}: the key is in its {place}");
        }
        if task != "launcher" {
            let input = fs::read_link(format!("/proc/{process}/fd/0")).unwrap();
            assert!(input.to_string_lossy().starts_with("pipe:"), "{task}: {input:?}");
        }
    }
    let files = files(run.out.path());
    assert!(files.len() > 10, "{files:?}");
    for path in files {
        // Some are replaced by newer ones at this moment.
        let bytes = fs::read(&path).unwrap_or_default();
        assert!(!holds_key(&bytes), "the key is in {path:?}");
    }
}

#[test]
fn a_local_run_listens_on_this_machine_only_and_logs_who_was_refused() {
    let mut run = train("ps-async", &["--workers", "2", "--ps", "1", "--steps", ENDLESS]);
    run.wait_for_step(20);
    let (tasks, folder) = (tasks_with_launcher(&run), run.folder());
    for (task, process) in &tasks {
        let doors = listeners(*process);
        assert_eq!(doors.is_empty(), task == "launcher", "{task}: {doors:?}");
        let inside = |door: &SocketAddr| door.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(doors.iter().all(inside), "{task}: {doors:?}");
    }
    for task in ["worker/0", "worker/1", "ps/0"] {
        let door = listeners(tasks[task])[0];
        let mut stranger = TcpStream::connect(door).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may be sent away with a word or without one.
        let _ = stranger.read_to_end(&mut Vec::new());
        let from = stranger.local_addr().unwrap();
        let word = format!("refused a connection from {from}: ");
        wait_for("the task's own log", || log(&folder, task).1.contains(&word));
        wait_for("the terminal", || run.talk().contains(&word));
        assert_eq!(log(&folder, task).1.matches("refused a connection").count(), 1, "{task}");
    }
    let (summary, ended) = end_in_order(run);
    assert_eq!(summary["lost"], serde_json::json!([]), "{}", ended.talk);
}

#[test]
fn the_first_failure_stands_on_top_with_the_lines_of_its_log() {
    let flags = ["--workers", "2", "--steps", "20", "--on-loss", "stop"];
    let ended = train("multi-worker", &flags).end();
    assert_eq!(ended.code(), 0, "{}", ended.talk);
    let folder = ended.out.path().join(ended.json()["run"].as_str().unwrap());
    // What only this task cannot write: it fails by itself, after it has joined.
    let events = folder.join("events-worker-1.jsonl");
    fs::remove_file(&events).unwrap();
    fs::create_dir(&events).unwrap();
    let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let ended = train_in(ended.out, &["--resume", &name, "--steps", "40"]).end();
    assert_ne!(ended.code(), 0, "{}", ended.talk);
    let (_, text) = log(&folder, "worker/1");
    assert!(text.contains("events-worker-1.jsonl"), "{text}");
    let error = &ended.talk;
    let mut lines = error.lines().skip_while(|line| !line.starts_with("error: "));
    let first = lines.next().and_then(|line| line.strip_prefix("error: ")).unwrap();
    assert!(first.starts_with("worker/1: ") && first.contains("events-worker-1"), "{error}");
    let second = lines.next().unwrap();
    let shown =
        second.trim_start().strip_prefix("worker/1 | ").unwrap_or_else(|| panic!("{error}"));
    assert!(text.contains(shown), "{shown} is not in its log: {text}");
    assert!(!log(&folder, "worker/0").1.is_empty(), "the others have logs of their own");
}

/// Each pair of workers took a megabyte of memory at once, and on a busy machine the chief was given up meanwhile.
#[test]
fn a_hundred_workers_on_few_cores_all_take_part() {
    let flags = ["--workers", "100", "--batch-size", "200", "--steps", "5", "--threads", "1"];
    let ended = train("multi-worker", &flags).end();
    assert_eq!(ended.code(), 0, "{}", ended.talk);
    let summary = ended.json();
    assert_eq!(summary["lost"].as_array().unwrap().len(), 0, "{}", ended.talk);
    assert_eq!(summary["workers"].as_array().unwrap().len(), 100, "{}", ended.talk);
    assert_eq!(summary["examples"], 1000, "{}", ended.talk);
}
