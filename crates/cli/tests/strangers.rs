//! Strangers at the doors of real runs: every task is knocked at in every wrong way while it trains. Nothing of it may be
//! felt: steps go on, memory stays where it was, and each kind of stranger is a line and no more.

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::*;
use paceline_wire::{
    ClusterKey, Endpoint, Identity, LinkError, Purpose, Refusal, Security, TaskId, Wait,
};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};
use support::paceline;

/// Most memory, in KiB, that clients without the key may cost a task: 64 handshakes with their threads need far less.
const BOUND: u64 = 64 << 10;

/// Where a task of a run listens.
struct Door {
    task: TaskId,
    process: u32,
    address: SocketAddr,
}

fn doors(folder: &Path) -> Vec<Door> {
    let joined = events(folder, "task_joined");
    let doors = joined.iter().map(|event| {
        let data = &event["data"];
        Door {
            task: data["role"].as_str().unwrap().parse().unwrap(),
            process: u32::try_from(data["process"].as_u64().unwrap()).unwrap(),
            address: data["address"].as_str().unwrap().parse().unwrap(),
        }
    });
    doors.collect()
}

impl Door {
    /// A line of the process's status, in KiB.
    fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process)).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn knock(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Says all of it and waits until the door is shut; how many bytes came back.
    fn say(&self, words: &[&[u8]]) -> usize {
        let mut stream = self.knock();
        for word in words {
            stream.write_all(word).ok(); // the door may be shut before all is said
        }
        stream.shutdown(Shutdown::Write).ok();
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer)); // a reset is an ending too
        answer.len()
    }

    /// Comes as one who has a key, but another one.
    fn try_key(&self, run: &str) {
        let identity = Identity {
            me: "worker/1".parse().unwrap(),
            run: run.to_owned(),
            version: String::from("any"),
            plan: [0; 32],
            key: ClusterKey::generate().unwrap(),
            security: Security::Plain,
            shared_memory: true,
        };
        let stranger = Endpoint::bind(identity, "127.0.0.1:0").unwrap();
        let wait = Wait::within(PATIENCE, "trying a key");
        let dialled = stranger.dial(self.task, &self.address.to_string(), Purpose::Control, &wait);
        let refused = matches!(dialled, Err(LinkError::Refused { reason: Refusal::Key, .. }));
        assert!(refused, "{}: {dialled:?}", self.task);
    }

    /// A thousand connections at once that say nothing, or little, and stay.
    fn crowd(&self) -> Vec<TcpStream> {
        let some = |first: usize| {
            let come = |number: usize| {
                let mut stream = self.knock();
                stream.write_all(&PREAMBLE[..number % PREAMBLE.len()]).ok();
                stream
            };
            (first..first + 50).map(come).collect::<Vec<_>>()
        };
        thread::scope(|scope| {
            let some = &some;
            let threads: Vec<_> = (0..20).map(|at| scope.spawn(move || some(50 * at))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    }
}

/// How every task begins a connection that is not encrypted.
const PREAMBLE: &[u8] = b"PLNK\x00\x01\x00P";

/// Every kind of stranger at one door, with what is said about it.
fn attack(door: &Door, run: &str) {
    // Not our protocol: HTTP, noise, and a frame of 2^63 bytes before any authentication.
    let frame = [&b"\x01PL1\0\0\0\0\0\0\0\0\0\0\0\0"[..], &(1u64 << 63).to_le_bytes()].concat();
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 5000], &frame[..]] {
        assert_eq!(door.say(&[noise]), 0, "{}: a stranger was answered", door.task);
    }
    // Our protocol without the key: the status, the nonce and "no", whatever the hello would be.
    let hello = format!(r#"{{"task":"worker/1","run":"{run}"}}"#);
    let length = u16::try_from(hello.len()).unwrap().to_le_bytes();
    let proof = [PREAMBLE, &[9; 32], &length, hello.as_bytes(), &[0; 32]];
    assert_eq!(door.say(&proof), 34, "{}", door.task);
    door.try_key(run);
    // The longest length there is where the hello's stands, and 2^63 behind it.
    let huge = [PREAMBLE, &[9; 32], &[0xff; 2], &(1u64 << 63).to_le_bytes()];
    assert!(door.say(&huge) <= 33, "{}", door.task);
}

/// Lines about strangers.
fn refusals(talk: &str) -> Vec<&str> {
    talk.lines().filter(|line| line.contains("refused a connection")).collect()
}

/// What tasks say of what they are sure to see, each once.
const CERTAIN: [&str; 4] = [
    "bytes that no Paceline task sends",
    "the cluster keys differ",
    "a hello longer than any",
    "too many connections that say nothing",
];
/// What depends on when the last silent ones leave.
const POSSIBLE: [&str; 2] = ["did not finish the handshake in time", "went away during"];

#[test]
fn a_run_does_not_feel_strangers_at_any_of_its_doors() {
    for (strategy, tasks, flags) in [("ps-async", 3, &["--ps", "1"][..]), ("multi-worker", 2, &[])]
    {
        let endless = ["--workers", "2", "--steps", "100000000", "--batch-size", "20"];
        let mut run = train(strategy, &[&endless, flags].concat());
        run.wait_for_step(50);
        let folder = run.folder();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let doors = doors(&folder);
        assert_eq!(doors.len(), tasks, "{strategy}");
        for door in &doors {
            let before = door.memory("VmRSS:");
            attack(door, &name);
            let crowd = door.crowd();
            assert_eq!(crowd.len(), 1000);
            let now = steps(&folder);
            run.wait_for_step(now + 50);
            let peak = door.memory("VmHWM:");
            assert!(peak < before + BOUND, "{strategy}, {}: {before} KiB, {peak}", door.task);
        }
        for words in CERTAIN {
            wait_for(words, || run.talk().matches(words).count() >= tasks);
        }
        let now = steps(&folder);
        run.wait_for_step(now + 50);
        signal(run.child.id(), "-INT");
        let ended = run.end();
        assert_eq!(ended.code(), 130, "{strategy}: {}", ended.talk);
        let summary = ended.json();
        assert_eq!(summary["lost"].as_array().unwrap().len(), 0, "{strategy}: {summary}");
        assert_eq!(summary["workers"].as_array().unwrap().len(), 2, "{strategy}: {summary}");
        let lines = refusals(&ended.talk);
        for words in CERTAIN {
            let count = lines.iter().filter(|line| line.contains(words)).count();
            assert_eq!(count, tasks, "{strategy}, one line of each task: {lines:#?}");
        }
        for words in POSSIBLE {
            let count = lines.iter().filter(|line| line.contains(words)).count();
            assert!(count <= tasks, "{strategy}, one line of each task at most: {lines:#?}");
        }
        let known = |line: &&str| CERTAIN.iter().chain(&POSSIBLE).any(|words| line.contains(words));
        assert!(lines.iter().all(known), "{strategy}: {lines:#?}");
    }
}

/// Stands between a task and the chief and keeps what the task says at first.
fn tap(chief: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = middle.local_addr().unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&said);
    thread::spawn(move || {
        while let Ok((mut client, _)) = middle.accept() {
            // The chief may not be there yet; the task tries again.
            let Ok(mut server) = TcpStream::connect(chief) else { continue };
            let (mut back, mut forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || drop(std::io::copy(&mut back, &mut forth)));
            let ear = Arc::clone(&ear);
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = client.read(&mut buffer) {
                    ear.lock().unwrap().extend_from_slice(&buffer[..count]);
                    if server.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, said)
}

#[test]
fn a_replayed_join_is_refused() {
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("key");
    ClusterKey::generate().unwrap().save(&key).unwrap();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (chief, other) = (free(), free());
    let (middle, said) = tap(chief);
    let node = |index: u32, chief: SocketAddr| {
        let out = tempfile::tempdir().unwrap();
        let config = format!(
            r#"{{"cluster":{{"worker":["{chief}","{other}"]}},"task":{{"type":"worker","index":{index}}}}}"#
        );
        let mut command = paceline();
        command
            .args([
                "node",
                "--join-timeout",
                JOINS,
                "--model",
                "softmax",
                "--data",
                DIGITS,
                "--strategy",
                "multi-worker",
            ])
            .args(["--steps", "100000000", "--no-tensorboard", "--json", "--threads", "1"])
            .arg("--out")
            .arg(out.path())
            .env("TF_CONFIG", config)
            .env("PACELINE_KEY_FILE", &key);
        spawn(command, out)
    };
    let (mut first, second) = (node(0, chief), node(1, middle));
    first.wait_for_step(50);
    let recorded = said.lock().unwrap().clone();
    assert!(recorded.starts_with(PREAMBLE), "nothing was recorded");
    let folder = first.folder();
    for door in doors(&folder) {
        for _ in 0..3 {
            // The nonce and "no"; what else was recorded is not read any more.
            assert!(door.say(&[&recorded]) <= 34, "{}", door.task);
        }
    }
    for run in [&first, &second] {
        wait_for("a word about it", || run.talk().contains("the cluster keys differ"));
    }
    let now = steps(&folder);
    first.wait_for_step(now + 50);
    thread::sleep(Duration::from_millis(50)); // a second line would follow the first at once
    signal(first.child.id(), "-INT");
    let ended = [first.end(), second.end()];
    assert_eq!((ended[0].code(), ended[1].code()), (130, 0), "{}", ended[1].talk);
    assert_eq!(ended[0].json()["lost"].as_array().unwrap().len(), 0, "{}", ended[0].talk);
    for task in &ended {
        assert_eq!(refusals(&task.talk).len(), 1, "one line: {}", task.talk);
    }
}
