//! Workers and servers as events: the part that both parameter-server strategies share.
//!
//! A worker computes, sends a piece of its gradient to every server, and goes on when every server has
//! sent its piece of the weights back. Messages between hosts share [`cables`](super::cables); a server takes
//! one gradient at a time.

use super::cables::{Cable, Parcel};
use super::due::Due;
use super::host::{Host, Piece, SLICE};
use super::outcome::{Outcome, Staleness, TaskTime};
use super::{HANDOVER, PATIENCE, Setting};
use std::collections::{BinaryHeap, VecDeque};

/// When servers answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// At once.
    Asynchronous,
    /// When so many workers have sent.
    Synchronous {
        /// Workers of one step.
        needed: usize,
    },
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A host's next piece of work ends, if nothing has changed since.
    Host { host: usize, generation: u64 },
    /// Something may be through a host's cable.
    Cable { host: usize, way: Way },
    /// The first byte of a message is at its receiver's host.
    Arriving { message: usize },
    /// The last byte of a message has left its sender, and has had time to travel.
    Left { message: usize },
    /// A worker's thread at a server of its host has woken and told it so.
    Awake { worker: usize },
}

/// A direction of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Out,
    In,
}

/// A message between hosts.
#[derive(Debug, Clone, Copy)]
struct Message {
    /// Cables it is not through yet.
    missing: u8,
    to_host: usize,
    /// For its receiver's cable.
    parcel: Parcel,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Gradient { server: usize, worker: usize },
    Weights { worker: usize },
}

/// A task's piece of work on its host.
#[derive(Debug, Clone, Copy)]
enum Job {
    /// A worker's step in one go: it copies weights from the servers on its host, computes, copies its
    /// gradient to them. Nobody else gets its core in between.
    Step { worker: usize },
    /// A server on the worker's host wakes and takes its message, one thread for each worker; the
    /// worker, looking for the answer, would keep a core no less busy.
    Take { server: usize, worker: usize },
    /// A server makes an update, one after the other.
    Apply { server: usize, worker: usize },
}

impl Job {
    /// Two numbers in one, because a host knows nothing of jobs.
    fn encode(self, workers: usize) -> u64 {
        let (kind, worker, server) = match self {
            Self::Step { worker } => (0, worker, 0),
            Self::Take { server, worker } => (1, worker, server),
            Self::Apply { server, worker } => (2, worker, server),
        };
        kind + 3 * (worker + workers * server) as u64
    }

    fn decode(code: u64, workers: usize) -> Self {
        let rest = (code / 3) as usize;
        let (worker, server) = (rest % workers, rest / workers);
        match code % 3 {
            0 => Self::Step { worker },
            1 => Self::Take { server, worker },
            _ => Self::Apply { server, worker },
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Worker {
    /// Updates that its weights have seen.
    version: u64,
    /// Servers that have not answered yet.
    missing: usize,
    /// When it had everything for its step, and for how long it computes with cores enough.
    begun: f64,
    own: f64,
    /// When it had computed.
    computed: f64,
    /// Seconds of cores it has had since its turn began.
    turn: f64,
    time: TaskTime,
}

#[derive(Debug, Clone, Default)]
struct Server {
    /// Gradients waiting to be taken.
    queue: VecDeque<usize>,
    busy: bool,
    /// Gradients of this step, and workers to answer when it is complete.
    arrived: usize,
    waiting: Vec<usize>,
    /// Steps completed.
    step: u64,
    /// Seconds of taking gradients.
    worked: f64,
}

/// The simulation.
pub(super) struct Engine<'a, 'b> {
    setting: &'a mut Setting<'b>,
    mode: Mode,
    now: f64,
    /// Those of the same time happen in the order in which they were made.
    events: BinaryHeap<Due<Event>>,
    number: u64,
    hosts: Vec<Host>,
    outward: Vec<Cable>,
    inward: Vec<Cable>,
    messages: Vec<Message>,
    /// Places of messages that have come.
    vacant: Vec<usize>,
    workers: Vec<Worker>,
    servers: Vec<Server>,
    threads: f64,
    /// Servers that one simulated server stands for.
    behind: f64,
    updates: u64,
    staleness: Vec<u64>,
    dropped: u64,
    examples: f64,
}

/// Weights of messages lie between this and one more.
const LEAST_WEIGHT: f64 = 0.5;

/// Servers simulated one by one at most: they all see the same workers with the same pieces, so a few
/// stand for many, each with the cards and cores of those behind it.
const MOST_SERVERS: usize = 4;

/// Servers to simulate, and how many each stands for. Only servers with hosts of their own are alike.
fn represented(setting: &Setting<'_>) -> (usize, f64) {
    let servers = setting.plan.servers;
    if setting.cluster.per_host == 1 && servers > MOST_SERVERS {
        (MOST_SERVERS, servers as f64 / MOST_SERVERS as f64)
    } else {
        (servers, 1.0)
    }
}

impl<'a, 'b> Engine<'a, 'b> {
    pub(super) fn new(setting: &'a mut Setting<'b>, mode: Mode) -> Self {
        let workers = setting.plan.workers;
        let (servers, behind) = represented(setting);
        let hosts = (workers + servers).div_ceil(setting.cluster.per_host);
        let threads = setting.threads(servers);
        let cores = setting.cluster.cores;
        Self {
            mode,
            now: 0.0,
            events: BinaryHeap::new(),
            number: 0,
            hosts: (0..hosts).map(|_| Host::new(cores)).collect(),
            outward: vec![Cable::default(); hosts],
            inward: vec![Cable::default(); hosts],
            messages: Vec::new(),
            vacant: Vec::new(),
            workers: vec![Worker::default(); workers],
            servers: vec![Server::default(); servers],
            threads,
            behind,
            updates: 0,
            staleness: Vec::new(),
            dropped: 0,
            examples: 0.0,
            setting,
        }
    }

    /// Servers come first: the first worker sits beside the first server.
    fn host_of_server(&self, server: usize) -> usize {
        server / self.setting.cluster.per_host
    }

    fn host_of_worker(&self, worker: usize) -> usize {
        (self.servers.len() + worker) / self.setting.cluster.per_host
    }

    fn after(&mut self, at: f64, event: Event) {
        self.number += 1;
        self.events.push(Due { at, number: self.number, what: event });
    }

    fn work(&mut self, host: usize, piece: Piece) {
        self.hosts[host].start(self.now, piece);
        self.expect(host);
    }

    fn expect(&mut self, host: usize) {
        if let Some(at) = self.hosts[host].next_end() {
            let generation = self.hosts[host].generation;
            self.after(at, Event::Host { host, generation });
        }
    }

    pub(super) fn run(mut self, name: &'static str) -> Outcome {
        let wanted = self.setting.plan.steps;
        // Workers settle into their rhythm before anything is counted.
        let warm = (wanted / 5).min(4 * self.workers.len() as u64);
        let mut from: Option<(f64, u64, f64)> = None;
        for worker in 0..self.workers.len() {
            self.begin(worker);
        }
        while let Some(Due { at, what: event, .. }) = self.events.pop() {
            self.now = at;
            match event {
                Event::Host { host, generation } => {
                    if self.hosts[host].generation == generation {
                        if let Some(code) = self.hosts[host].finish(at) {
                            self.done(Job::decode(code, self.workers.len()));
                        }
                        self.hosts[host].admit(at);
                        self.expect(host);
                    }
                }
                Event::Cable { host, way } => self.look(host, way),
                Event::Arriving { message } => {
                    let Message { to_host, parcel, .. } = self.messages[message];
                    let next = self.inward[to_host].put(at, message, parcel);
                    self.look_again(to_host, Way::In, next);
                }
                Event::Left { message } => self.through(message),
                Event::Awake { worker } => self.answered(worker),
            }
            if from.is_none() && self.updates >= warm {
                from = Some((self.now, self.updates, self.examples));
            }
            if self.updates >= warm + wanted {
                break;
            }
        }
        let (begun, updates, examples) = from.unwrap_or((0.0, 0, 0.0));
        let seconds = (self.now - begun).max(f64::MIN_POSITIVE);
        let tasks = self.workers.iter().map(|worker| worker.time).collect();
        let mut outcome = Outcome::new(
            name,
            self.setting.plan.servers,
            seconds,
            (self.updates - updates) as f64,
            self.examples - examples,
            tasks,
        );
        outcome.staleness = Staleness::of(&self.staleness);
        outcome.dropped = self.dropped;
        outcome.server = self.busiest();
        outcome.events = self.number;
        outcome
    }

    /// The busiest part of all servers.
    fn busiest(&self) -> Option<(&'static str, f64)> {
        let parts = (0..self.servers.len()).flat_map(|server| {
            let host = self.host_of_server(server);
            [
                ("receiving gradients", self.inward[host].busy),
                ("sending weights", self.outward[host].busy),
                ("updating", self.servers[server].worked),
            ]
        });
        let (what, busy) = parts.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((what, (busy / self.now.max(f64::MIN_POSITIVE)).min(1.0)))
    }

    /// Seconds of a core for a worker's messages to or from the servers on its own host, `bytes` to all.
    fn copies(&self, worker: usize, bytes: f64) -> f64 {
        let servers = self.servers.len();
        let here = self.host_of_worker(worker);
        let near = (0..servers).filter(|&server| self.host_of_server(server) == here).count();
        near as f64 * bytes / servers as f64 / self.setting.cluster.local.bandwidth
    }

    /// A worker has its weights.
    fn begin(&mut self, worker: usize) {
        let (now, host, threads) = (self.now, self.host_of_worker(worker), self.threads);
        let computing = self.setting.draw(worker, threads);
        let state = &mut self.workers[worker];
        (state.begun, state.own) = (now, computing);
        // Servers of its host work for it on its own core, so its turn goes on from step to step until its
        // slice is over. A worker that has to wait for others loses it.
        let has_turn = state.turn > 0.0 && state.turn < SLICE;
        let goes_on = self.mode == Mode::Asynchronous && has_turn;
        state.turn = if goes_on { state.turn + computing } else { computing };
        let workload = self.setting.workload;
        let bytes = [workload.weight_bytes, workload.gradient_bytes];
        // Copies occupy one core, the rest of the step all of the worker's.
        let copies = bytes.map(|bytes| self.copies(worker, bytes)).iter().sum::<f64>();
        let piece = Piece {
            job: Job::Step { worker }.encode(self.workers.len()),
            seconds: computing + copies,
            handover: workload.handover(computing),
            threads,
            first: goes_on && host == self.host_of_server(0),
        };
        self.work(host, piece);
    }

    fn done(&mut self, job: Job) {
        match job {
            Job::Step { worker } => self.push(worker),
            Job::Take { server, worker } => self.received(server, worker),
            Job::Apply { server, worker } => self.applied(server, worker),
        }
    }

    /// A worker has computed: its gradient is with the servers on its host, and on its way to the others.
    fn push(&mut self, worker: usize) {
        let now = self.now;
        let workload = self.setting.workload;
        let copying = self.copies(worker, workload.weight_bytes + workload.gradient_bytes);
        let state = &mut self.workers[worker];
        state.time.compute += state.own;
        state.time.exchange += copying.min(now - state.begun - state.own).max(0.0);
        // Cores that others took meanwhile.
        state.time.wait += (now - state.begun - state.own - copying).max(0.0);
        state.computed = now;
        state.missing = self.servers.len();
        let (host, servers) = (self.host_of_worker(worker), self.servers.len());
        let bytes = workload.gradient_bytes / servers as f64;
        let network = self.setting.cluster.network;
        for server in 0..servers {
            if self.host_of_server(server) == host {
                // It is copied; the server wakes, and will wake the worker. It keeps its core from one to the
                // other if nobody can make it wait for longer than it looks on.
                let apply = self.applying();
                let at_once = apply <= PATIENCE;
                let job = if at_once {
                    Job::Apply { server, worker }
                } else {
                    Job::Take { server, worker }
                };
                if at_once {
                    self.servers[server].worked += apply;
                }
                let seconds =
                    2.0 * self.setting.cluster.local.latency + if at_once { apply } else { 0.0 };
                let job = job.encode(self.workers.len());
                let handover = HANDOVER;
                self.work(host, Piece { job, seconds, handover, threads: 1.0, first: true });
                continue;
            }
            let seconds = bytes / network.bandwidth;
            let there = (self.host_of_server(server), seconds / self.behind);
            self.send((host, seconds), there, What::Gradient { server, worker });
        }
    }

    /// Sends a message: hosts it goes from and to, and seconds of their cables.
    fn send(&mut self, from: (usize, f64), to: (usize, f64), what: What) {
        let weight = self.setting.draws.random.uniform() + LEAST_WEIGHT;
        let parcel = Parcel { seconds: to.1, weight };
        let message = Message { missing: 2, to_host: to.0, parcel, what };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.messages[place] = message;
                place
            }
            None => {
                self.messages.push(message);
                self.messages.len() - 1
            }
        };
        let parcel = Parcel { seconds: from.1, weight };
        let next = self.outward[from.0].put(self.now, place, parcel);
        self.look_again(from.0, Way::Out, next);
        let arrives = self.now + self.setting.cluster.network.latency;
        self.after(arrives, Event::Arriving { message: place });
    }

    fn look_again(&mut self, host: usize, way: Way, at: Option<f64>) {
        if let Some(at) = at {
            self.after(at, Event::Cable { host, way });
        }
    }

    /// Takes what is through a cable.
    fn look(&mut self, host: usize, way: Way) {
        loop {
            let cables = if way == Way::Out { &mut self.outward } else { &mut self.inward };
            match cables[host].take(self.now) {
                Ok(message) if way == Way::Out => {
                    let at = self.now + self.setting.cluster.network.latency;
                    self.after(at, Event::Left { message });
                }
                Ok(message) => self.through(message),
                Err(next) => return self.look_again(host, way, next),
            }
        }
    }

    /// A message is through one of its two cables.
    fn through(&mut self, message: usize) {
        let state = &mut self.messages[message];
        state.missing -= 1;
        if state.missing > 0 {
            return;
        }
        let what = state.what;
        self.vacant.push(message);
        match what {
            What::Gradient { server, worker } => self.received(server, worker),
            What::Weights { worker } => self.answered(worker),
        }
    }

    fn received(&mut self, server: usize, worker: usize) {
        self.servers[server].queue.push_back(worker);
        self.serve(server);
    }

    /// Seconds of a server's core for one gradient.
    fn applying(&self) -> f64 {
        self.setting.workload.apply / self.servers.len() as f64 / self.behind
    }

    fn serve(&mut self, server: usize) {
        if self.servers[server].busy {
            return;
        }
        let Some(worker) = self.servers[server].queue.pop_front() else { return };
        let seconds = self.applying();
        self.servers[server].busy = true;
        self.servers[server].worked += seconds;
        let host = self.host_of_server(server);
        let job = Job::Apply { server, worker }.encode(self.workers.len());
        self.work(host, Piece { job, seconds, handover: HANDOVER, threads: 1.0, first: true });
    }

    /// A server has taken a gradient: it answers now, or when the step is complete.
    fn applied(&mut self, server: usize, worker: usize) {
        self.servers[server].busy = false;
        match self.mode {
            Mode::Asynchronous => {
                if server == 0 {
                    let stale = (self.updates - self.workers[worker].version) as usize;
                    if self.staleness.len() <= stale {
                        self.staleness.resize(stale + 1, 0);
                    }
                    self.staleness[stale] += 1;
                    self.updates += 1;
                    self.examples += self.setting.plan.share(worker);
                }
                self.answer(server, worker);
            }
            Mode::Synchronous { needed } => {
                let state = &mut self.servers[server];
                if self.workers[worker].version < state.step {
                    // The step went on without it; it gets the weights of the next.
                    self.dropped += u64::from(server == 0);
                    self.answer(server, worker);
                } else {
                    state.arrived += 1;
                    state.waiting.push(worker);
                    if state.arrived == needed {
                        (state.arrived, state.step) = (0, state.step + 1);
                        let ready = std::mem::take(&mut state.waiting);
                        if server == 0 {
                            self.updates += 1;
                            let plan = self.setting.plan;
                            self.examples += ready.iter().map(|&at| plan.share(at)).sum::<f64>();
                        }
                        for other in ready {
                            // All but the last one's threads sleep meanwhile.
                            let here = self.host_of_worker(other) == self.host_of_server(server);
                            if here && other != worker {
                                self.note_version(server, other);
                                let at = self.now + self.setting.cluster.wake;
                                self.after(at, Event::Awake { worker: other });
                            } else {
                                self.answer(server, other);
                            }
                        }
                    }
                }
            }
        }
        self.serve(server);
    }

    /// A server sends its piece of the weights.
    fn answer(&mut self, server: usize, worker: usize) {
        self.note_version(server, worker);
        let bytes = self.setting.workload.weight_bytes / self.servers.len() as f64;
        let host = self.host_of_server(server);
        if host == self.host_of_worker(worker) {
            return self.answered(worker);
        }
        let seconds = bytes / self.setting.cluster.network.bandwidth;
        let home = self.host_of_worker(worker);
        self.send((host, seconds / self.behind), (home, seconds), What::Weights { worker });
    }

    /// What a worker will compute with is what the first server has now.
    fn note_version(&mut self, server: usize, worker: usize) {
        if server == 0 {
            self.workers[worker].version = match self.mode {
                Mode::Asynchronous => self.updates,
                Mode::Synchronous { .. } => self.servers[0].step,
            };
        }
    }

    fn answered(&mut self, worker: usize) {
        let state = &mut self.workers[worker];
        state.missing -= 1;
        if state.missing > 0 {
            return;
        }
        let passed = self.now - state.computed;
        let (servers, cluster) = (self.setting.plan.servers as f64, self.setting.cluster);
        let workload = self.setting.workload;
        let here = self.host_of_worker(worker) == self.host_of_server(0);
        // What the exchange would take if nobody else were there; the rest is waiting. Copies inside a
        // host are counted with the step.
        let travel = |bytes: f64| {
            if here { cluster.local.latency } else { cluster.network.message(bytes) }
        };
        let alone = travel(workload.gradient_bytes)
            + travel(workload.weight_bytes)
            + workload.apply / servers;
        let state = &mut self.workers[worker];
        state.time.exchange += passed.min(alone);
        state.time.wait += (passed - alone).max(0.0);
        self.begin(worker);
    }
}
