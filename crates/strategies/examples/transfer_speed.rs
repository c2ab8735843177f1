//! How fast do all weights travel to a worker and its gradient back, next to a plain copy of memory?
//!
//! `transfer_speed exchange|copy FLOATS` speaks the protocol of `xtask/peers/contest.py`: one line when ready,
//! then one measurement (steps per second) for every line `go`. `exchange` is a worker that starts a
//! server as a second process: a push of the gradient, the update, a pull of the new weights. `copy` copies as many bytes:
//! all numbers once each way, between two buffers of one process. Says nothing about a network.

#![allow(clippy::print_stdout, clippy::unwrap_used)] // a measurement

use paceline_cluster::JobMembership;
use paceline_models::{
    Layout, StepLoss,
    kernels::Buffer,
    optimizer::{self, Optimizer},
};
use paceline_strategies::{Exchange, Server, Setup, StepInfo, StepReport, find};
use paceline_wire::{
    Channel, ClusterKey, Endpoint, Identity, Link, LinkError, Purpose, Role, Security, TaskId, Wait,
};
use std::{
    io::{BufRead, Read, Write},
    process::{Command, Stdio},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

/// Steps of one measurement.
const STEPS: u32 = 4;
const PURPOSE: Purpose = Purpose::Data { generation: 0, channel: Channel::ParameterServer };

/// A worker and a server, each a process.
#[derive(Debug)]
struct Duo {
    door: Endpoint,
    /// Where the server is.
    address: Option<String>,
    alarm: AtomicBool,
}

const WORKER: TaskId = TaskId::new(Role::Worker, 0);
const SERVER: TaskId = TaskId::new(Role::Ps, 0);

impl Duo {
    fn new(me: TaskId, key: ClusterKey, address: Option<String>) -> Arc<Self> {
        let identity = Identity {
            me,
            run: "transfer".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            plan: [0; 32],
            key,
            security: Security::Plain,
            shared_memory: true,
        };
        let door = Endpoint::bind(identity, "127.0.0.1:0").unwrap();
        Arc::new(Self { door, address, alarm: AtomicBool::new(false) })
    }
}

impl JobMembership for Duo {
    fn me(&self) -> TaskId {
        self.door.identity().me
    }
    fn workers(&self) -> Vec<TaskId> {
        vec![WORKER]
    }
    fn servers(&self) -> Vec<TaskId> {
        vec![SERVER]
    }
    fn generation(&self) -> u32 {
        0
    }
    fn connect(&self, to: TaskId, _channel: Channel, wait: &Wait<'_>) -> Result<Link, LinkError> {
        self.door.dial(to, self.address.as_deref().unwrap(), PURPOSE, wait)
    }
    fn accept(&self, _from: TaskId, _channel: Channel, wait: &Wait<'_>) -> Result<Link, LinkError> {
        self.door.accept(wait).map(|(_, link)| link)
    }
    fn alarm(&self) -> &AtomicBool {
        &self.alarm
    }
    fn lost(&self) -> Vec<TaskId> {
        Vec::new()
    }
}

fn model(floats: usize) -> (Layout, Optimizer) {
    let mut layout = Layout::default();
    layout.push("weight", &[floats], true);
    let entry = optimizer::find("sgd").unwrap();
    let optimizer = Optimizer::new(entry, entry.defaults, &layout).unwrap();
    (layout, optimizer)
}

/// The second process: holds weights until the worker has left.
fn serve(floats: usize) {
    let mut key = String::new();
    std::io::stdin().read_line(&mut key).unwrap();
    let membership = Duo::new(SERVER, key.trim().parse().unwrap(), None);
    println!("{}", membership.door.address());
    let (layout, optimizer) = model(floats);
    let setup = Setup {
        membership: Some(membership as Arc<dyn JobMembership>),
        ..Setup::alone(1, &layout, &optimizer)
    };
    let server = Server::new(&setup, false, &vec![0.5; floats]).unwrap();
    server.serve().unwrap();
}

struct Worker {
    exchange: Box<dyn Exchange>,
    params: Buffer,
    grad: Buffer,
}

impl Worker {
    /// Seconds of one step's exchange, from the final gradient to the next weights.
    fn step(&mut self) -> f64 {
        let ticket = self.exchange.deal(0).unwrap().unwrap();
        let info = StepInfo { step: ticket.batch, rate: 0.1, examples: 1 };
        self.exchange.pull(info, &mut self.params).unwrap();
        let before = self.params[7];
        self.grad.fill(0.25);
        let loss = StepLoss { examples: 1, ..StepLoss::default() };
        let begun = Instant::now();
        self.exchange.ready(0..self.grad.len(), &mut self.params, &mut self.grad);
        // The answer brings the next weights: a push and a pull in one.
        self.exchange
            .push(StepReport { loss, ..StepReport::default() }, &mut self.params, &mut self.grad)
            .unwrap();
        let seconds = begun.elapsed().as_secs_f64();
        let moved = before - self.params[7];
        assert!((moved - 0.025).abs() < 1e-4, "one update from this gradient, not {moved}");
        seconds
    }
}

fn exchange(floats: usize) {
    let key = ClusterKey::generate().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["server", &floats.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{}", key.to_text()).unwrap();
    let mut address = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    said.read_line(&mut address).unwrap();
    let membership = Duo::new(WORKER, key, Some(address.trim().to_owned()));
    let (layout, optimizer) = model(floats);
    let setup = Setup {
        membership: Some(membership as Arc<dyn JobMembership>),
        ..Setup::alone(1, &layout, &optimizer)
    };
    let connect = find("ps-async").unwrap().connect;
    let exchange = connect(&setup).unwrap().swap_remove(0);
    let (params, grad) = (Buffer::zeroed(floats), Buffer::zeroed(floats));
    let mut worker = Worker { exchange, params, grad };
    contest("Paceline ps-async, pull + update + push", || {
        let seconds: f64 = (0..STEPS).map(|_| worker.step()).sum();
        f64::from(STEPS) / seconds
    });
    worker.exchange.leave().unwrap();
    said.read_to_string(&mut address).unwrap();
    child.wait().unwrap();
}

fn copy(floats: usize) {
    let (mut a, mut b) = (Buffer::zeroed(floats), Buffer::zeroed(floats));
    a.fill(1.5);
    contest("memory copy of the same bytes", || {
        let begun = Instant::now();
        for _ in 0..STEPS {
            b.copy_from_slice(std::hint::black_box(&a));
            a.copy_from_slice(std::hint::black_box(&b));
        }
        f64::from(STEPS) / begun.elapsed().as_secs_f64()
    });
}

fn contest(name: &str, mut measure: impl FnMut() -> f64) {
    for _ in 0..2 {
        measure();
    }
    println!("{{\"ready\": \"{name}\"}}");
    for line in std::io::stdin().lock().lines() {
        if line.unwrap().trim() != "go" {
            break;
        }
        println!("{{\"value\": {}}}", measure());
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, floats] = &words[..] else { panic!("usage: transfer_speed exchange|copy FLOATS") };
    let floats = floats.parse().unwrap();
    match what.as_str() {
        "exchange" => exchange(floats),
        "copy" => copy(floats),
        "server" => serve(floats),
        other => panic!("no such measurement: {other}"),
    }
}
