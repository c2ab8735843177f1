//! How fast do two processes of this machine add up their numbers?
//!
//! `allreduce_speed shared|fresh|private|tcp|tls FLOATS OPERATIONS` starts a second process and speaks the protocol of
//! `xtask/peers/contest.py`: one line when ready, then one measurement (operations per second, of the slower
//! rank, in the best of five stretches) for every line `go`. `shared` sums buffers that the group gave out, `fresh` such buffers
//! that are written before every sum, inside the clock, as training does; `private` sums ordinary memory through shared memory. With `once` as a fourth word it prints microseconds and bytes per second, five times, and ends.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use paceline_wire::Channel;
use paceline_wire::collective::SharedBuffer;
use paceline_wire::{ClusterKey, Endpoint, Group, Identity, Purpose, Role, Security, TaskId, Wait};
use std::io::{BufRead, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Numbers to add up before a measurement: 20 to 100 ms.
const WARM_UP: usize = 50 << 20;

/// A measurement is the best of so many, as on the peers' sides.
const STRETCHES: usize = 5;

fn wait(phase: &str) -> Wait<'_> {
    Wait::within(Duration::from_secs(3600), phase)
}

fn worker(index: u32) -> TaskId {
    TaskId::new(Role::Worker, index)
}

fn endpoint(index: u32, key: ClusterKey, carrier: &str) -> Endpoint {
    let identity = Identity {
        me: worker(index),
        run: String::from("speed"),
        version: String::from(env!("CARGO_PKG_VERSION")),
        plan: [0; 32],
        key,
        security: if carrier == "tls" { Security::Tls } else { Security::Plain },
        shared_memory: matches!(carrier, "shared" | "fresh" | "private"),
    };
    Endpoint::bind(identity, "127.0.0.1:0").unwrap()
}

/// The numbers of one rank, in memory of the kind that is measured.
enum Numbers {
    Shared(SharedBuffer),
    Private(Vec<f32>),
}

impl Numbers {
    fn slice(&mut self) -> &mut [f32] {
        match self {
            Self::Shared(buffer) => buffer,
            Self::Private(numbers) => numbers,
        }
    }
}

struct Rank {
    group: Group,
    numbers: Numbers,
    /// Whether all numbers are written before every sum.
    fresh: bool,
    operations: usize,
}

impl Rank {
    fn new(mut group: Group, carrier: &str, floats: usize, operations: usize) -> Self {
        let numbers = if matches!(carrier, "shared" | "fresh") {
            Numbers::Shared(group.buffer(floats, &wait("sharing")).unwrap())
        } else {
            Numbers::Private(vec![0.0; floats])
        };
        Self { group, numbers, fresh: carrier == "fresh", operations }
    }

    /// Seconds per operation of the slower rank; known to rank 0.
    fn measure(&mut self) -> f64 {
        let numbers = self.numbers.slice();
        numbers.fill(1.0);
        self.group.all_reduce(numbers, &wait("adding up")).unwrap();
        assert!(numbers.iter().all(|sum| *sum == 2.0), "a wrong sum");
        // A rank that slept wakes up on another rank's core; some milliseconds of work move them apart again.
        for _ in 0..(WARM_UP / (numbers.len() + 2048)).max(1) {
            self.group.all_reduce(numbers, &wait("warming up")).unwrap();
        }
        numbers.fill(1.0);
        self.group.barrier(&wait("the start")).unwrap();
        let began = Instant::now();
        for _ in 0..self.operations {
            if self.fresh {
                numbers.fill(1.0);
            }
            self.group.all_reduce(numbers, &wait("adding up")).unwrap();
        }
        let own = began.elapsed().as_secs_f64() / self.operations as f64;
        let all = self.group.gather(0, &own.to_le_bytes(), 8, &wait("times")).unwrap();
        let times = all.into_iter().flatten().map(|b| f64::from_le_bytes(b.try_into().unwrap()));
        times.fold(0.0, f64::max)
    }

    /// Tells the second process to measure once more, or to end.
    fn command(&mut self, go: bool) -> bool {
        let mut word = [f32::from(u8::from(go))];
        self.group.broadcast(0, &mut word, &wait("the next measurement")).unwrap();
        word[0] > 0.0
    }
}

fn second(address: &str, carrier: &str, floats: usize, operations: usize) {
    let mut key = String::new();
    std::io::stdin().read_to_string(&mut key).unwrap();
    let door = endpoint(1, key.trim().parse().unwrap(), carrier);
    let purpose = Purpose::Data { generation: 0, channel: Channel::AllReduce };
    let link = door.dial(worker(0), address, purpose, &wait("joining")).unwrap();
    let mut rank = Rank::new(Group::new(1, vec![Some(link), None]), carrier, floats, operations);
    while rank.command(false) {
        rank.measure();
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [carrier, floats, operations, rest @ ..] = &words[..] else {
        panic!("usage: allreduce_speed shared|fresh|private|tcp|tls FLOATS OPERATIONS [once]")
    };
    let (floats, operations) = (floats.parse().unwrap(), operations.parse().unwrap());
    if let [word, address] = rest {
        assert_eq!(word, "second");
        return second(address, carrier, floats, operations);
    }
    let key = ClusterKey::generate().unwrap();
    let door = endpoint(0, key.clone(), carrier);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(&words[..3])
        .args(["second", &door.address().to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(key.to_text().as_bytes()).unwrap();
    let (_, link) = door.accept(&wait("the second process")).unwrap();
    let mut rank = Rank::new(Group::new(0, vec![None, Some(link)]), carrier, floats, operations);
    let mut next = || {
        rank.command(true);
        rank.measure()
    };
    for _ in 0..2 {
        next();
    }
    if !rest.is_empty() {
        for _ in 0..5 {
            let seconds = next();
            let speed = floats as f64 * 4.0 / seconds / 1e9;
            println!("{carrier} {floats}: {:.2} us, {speed:.2} GB/s", seconds * 1e6);
        }
    } else {
        println!("{{\"ready\": \"Paceline, {carrier}\"}}");
        for line in std::io::stdin().lock().lines() {
            if line.unwrap().trim() != "go" {
                break;
            }
            let best = (0..STRETCHES).map(|_| next()).fold(f64::INFINITY, f64::min);
            println!("{{\"value\": {}}}", 1.0 / best);
        }
    }
    rank.command(false);
    child.wait().unwrap();
}
