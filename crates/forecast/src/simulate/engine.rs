//! Workers and servers as events: the part that both parameter-server strategies share.
//!
//! A worker computes, sends a piece of its gradient to every server, and goes on when every server has
//! sent its piece of the weights back. Messages between hosts share [`cables`](super::cables); a server takes
//! one gradient at a time.
//!
//! A worker that has its host to itself shares its cables with no other. What they do follows from what is put on them, so
//! that only the servers' cables, where the messages of all workers meet, are looked at event by event.

use super::agenda::Agenda;
use super::cables::{Cable, Parcel, together};
use super::host::{Host, Piece, SLICE};
use super::outcome::{SimulationOutcome, Staleness};
use super::placement::{MOST_SERVERS, Placement};
use super::tasks::{Event, Job, Message, SimulatedServer, SimulatedWorker, Way, What};
use super::{HANDOVER, PATIENCE, Setting};
use paceline_runs::PhaseTimes;

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

/// The simulation.
pub(super) struct Engine<'a, 'b> {
    setting: &'a mut Setting<'b>,
    mode: Mode,
    now: f64,
    agenda: Agenda<Event>,
    place: Placement,
    hosts: Vec<Host>,
    outward: Vec<Cable>,
    inward: Vec<Cable>,
    messages: Vec<Message>,
    /// Places of messages that have come.
    vacant: Vec<usize>,
    workers: Vec<SimulatedWorker>,
    servers: Vec<SimulatedServer>,
    threads: f64,
    updates: u64,
    staleness: Vec<u64>,
    dropped: u64,
    examples: f64,
}

/// Weights of messages lie between this and one more.
const LEAST_WEIGHT: f64 = 0.5;

impl<'a, 'b> Engine<'a, 'b> {
    pub(super) fn new(setting: &'a mut Setting<'b>, mode: Mode) -> Self {
        let place = Placement::new(setting, mode);
        let (workers, servers) = (place.workers, place.servers);
        // Workers that have their hosts to themselves need none that is simulated.
        let hosts = if place.is_apart() { place.server_hosts() } else { place.hosts() };
        let threads = setting.threads(servers);
        let cores = setting.cluster.cores;
        Self {
            mode,
            now: 0.0,
            agenda: Agenda::new(),
            place,
            hosts: (0..hosts).map(|_| Host::new(cores)).collect(),
            outward: vec![Cable::default(); hosts],
            inward: vec![Cable::default(); hosts],
            messages: Vec::new(),
            vacant: Vec::new(),
            workers: vec![SimulatedWorker::default(); workers],
            servers: vec![SimulatedServer::default(); servers],
            threads,
            updates: 0,
            staleness: Vec::new(),
            dropped: 0,
            examples: 0.0,
            setting,
        }
    }

    fn host_of_server(&self, server: usize) -> usize {
        self.place.host_of_server(server)
    }

    fn host_of_worker(&self, worker: usize) -> usize {
        self.place.host_of_worker(worker)
    }

    /// Notes what happens to a host.
    fn after(&mut self, at: f64, host: usize, event: Event) {
        if host < self.place.server_hosts() {
            self.agenda.add_soon(at, event);
        } else {
            self.agenda.add(at, event);
        }
    }

    /// Notes what happens when a byte that is sent now arrives.
    fn after_latency(&mut self, event: Event) {
        self.agenda.add_delayed(self.now + self.setting.cluster.network.latency, event);
    }

    fn work(&mut self, host: usize, piece: Piece) {
        self.hosts[host].start(self.now, piece);
        self.expect(host);
    }

    fn expect(&mut self, host: usize) {
        if let Some(at) = self.hosts[host].next_end() {
            let generation = self.hosts[host].generation;
            self.after(at, host, Event::Host { host, generation });
        }
    }

    pub(super) fn run(mut self, name: &'static str) -> SimulationOutcome {
        let standing = self.place.standing;
        let wanted = (self.setting.plan.steps as f64 / standing).ceil() as u64;
        // Workers settle into their rhythm before anything is counted; the first update alone would count the way of a gradient
        // to the servers, but not the way of the weights back.
        let warm = (wanted / 5).clamp(1, 4 * self.workers.len() as u64);
        let mut from: Option<(f64, u64, f64)> = None;
        for worker in 0..self.workers.len() {
            self.begin(worker);
        }
        while let Some((at, event)) = self.agenda.next() {
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
                Event::Cable { host, way } => {
                    if self.cable(host, way).is_due(at) {
                        self.look(host, way);
                    }
                }
                Event::Arriving { message } => {
                    let Message { to_host, parcel, .. } = self.messages[message];
                    let next = self.inward[to_host].put(at, message, parcel);
                    self.look_again(to_host, Way::In, next);
                }
                Event::Left { message } => self.through(message),
                Event::Computed { worker } => self.push(worker),
                Event::Awake { worker } => self.answered(worker),
            }
            if from.is_none() && self.updates >= warm {
                from = Some((self.now, self.updates, self.examples));
                if self.mode != Mode::Asynchronous {
                    // Counted from one update to another: the last one leaves every worker in the middle of a step.
                    self.workers.iter_mut().for_each(|worker| worker.time = PhaseTimes::default());
                }
            }
            if self.updates >= warm + wanted {
                break;
            }
        }
        let (begun, updates, examples) = from.unwrap_or((0.0, 0, 0.0));
        let seconds = (self.now - begun).max(f64::MIN_POSITIVE);
        let tasks = self.workers.iter().map(|worker| worker.time).collect();
        let mut outcome = SimulationOutcome::new(
            name,
            self.setting.plan.servers,
            seconds,
            standing * (self.updates - updates) as f64,
            standing * (self.examples - examples),
            tasks,
        );
        outcome.workers = self.setting.plan.workers;
        outcome.slowest = (standing * outcome.slowest as f64) as usize;
        outcome.staleness = Staleness::of(&self.staleness).map(|found| found.times(standing));
        outcome.dropped = self.dropped;
        outcome.server = self.busiest();
        outcome.events = self.agenda.noted;
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
        if self.place.is_apart() {
            // More threads than there are cores take turns.
            let turns = (threads / self.setting.cluster.cores).max(1.0);
            return self.agenda.add(now + computing * turns, Event::Computed { worker });
        }
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
            whole: false,
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
        let bytes = workload.weight_bytes + workload.gradient_bytes;
        let copying = if self.place.is_apart() { 0.0 } else { self.copies(worker, bytes) };
        let state = &mut self.workers[worker];
        state.time.compute += state.own;
        state.time.exchange += copying.min(now - state.begun - state.own).max(0.0);
        // Cores that others took meanwhile.
        state.time.wait += (now - state.begun - state.own - copying).max(0.0);
        state.computed = now;
        state.missing = self.servers.len();
        if self.place.is_apart() {
            return self.push_apart(worker);
        }
        let (host, servers) = (self.host_of_worker(worker), self.servers.len());
        let bytes = workload.gradient_bytes / servers as f64;
        let network = self.setting.cluster.network;
        for server in 0..servers {
            if self.host_of_server(server) == host {
                // The gradient is copied; the server wakes, and will wake the worker. The server keeps its core for
                // both if applying takes no longer than a waiting task polls.
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
                self.work(host, self.server_piece(job, seconds));
                continue;
            }
            let seconds = bytes / network.bandwidth;
            let there = (self.host_of_server(server), seconds / self.place.cards);
            self.send((host, seconds), there, What::Gradient { server, worker });
        }
    }

    /// The same where the worker has its host to itself: the pieces go out together over a free cable, and when each of them
    /// will have left is known at once.
    fn push_apart(&mut self, worker: usize) {
        let servers = self.servers.len();
        let network = self.setting.cluster.network;
        let seconds = self.setting.workload.gradient_bytes / servers as f64 / network.bandwidth;
        let mut weights = [0.0; MOST_SERVERS];
        let weights = &mut weights[..servers];
        weights.fill_with(|| self.setting.draws.random.uniform() + LEAST_WEIGHT);
        let ends = together::<MOST_SERVERS>(seconds, weights);
        for (server, (&weight, end)) in weights.iter().zip(ends).enumerate() {
            let message = self.keep(Message {
                missing: 2,
                left: Some(self.now + end + network.latency),
                to_host: self.host_of_server(server),
                parcel: Parcel { seconds: seconds / self.place.cards, weight },
                what: What::Gradient { server, worker },
            });
            self.after_latency(Event::Arriving { message });
        }
    }

    /// A server's piece of work on its host.
    fn server_piece(&self, job: Job, seconds: f64) -> Piece {
        Piece {
            job: job.encode(self.workers.len()),
            seconds: self.place.lump(seconds),
            handover: self.place.standing * self.place.lump(HANDOVER),
            threads: self.place.threads,
            first: true,
            whole: self.place.is_lump(),
        }
    }

    /// Sends a message: hosts it goes from and to, and seconds of their cables.
    fn send(&mut self, from: (usize, f64), to: (usize, f64), what: What) {
        let weight = self.setting.draws.random.uniform() + LEAST_WEIGHT;
        let parcel = Parcel { seconds: to.1, weight };
        let message = self.keep(Message { missing: 2, left: None, to_host: to.0, parcel, what });
        self.put_out(from, message, weight);
        self.after_latency(Event::Arriving { message });
    }

    fn put_out(&mut self, (host, seconds): (usize, f64), message: usize, weight: f64) {
        let next = self.outward[host].put(self.now, message, Parcel { seconds, weight });
        self.look_again(host, Way::Out, next);
    }

    fn keep(&mut self, message: Message) -> usize {
        match self.vacant.pop() {
            Some(place) => {
                self.messages[place] = message;
                place
            }
            None => {
                self.messages.push(message);
                self.messages.len() - 1
            }
        }
    }

    fn cable(&mut self, host: usize, way: Way) -> &mut Cable {
        match way {
            Way::Out => &mut self.outward[host],
            Way::In => &mut self.inward[host],
        }
    }

    fn look_again(&mut self, host: usize, way: Way, at: Option<f64>) {
        if let Some(at) = at {
            self.after(at, host, Event::Cable { host, way });
        }
    }

    /// Takes what is through a cable.
    fn look(&mut self, host: usize, way: Way) {
        loop {
            let now = self.now;
            match self.cable(host, way).take(now) {
                Ok(message) if way == Way::In => self.through(message),
                Ok(message) => match self.messages[message].what {
                    What::Weights { worker } if self.place.is_apart() => {
                        self.vacant.push(message);
                        self.sent(worker);
                    }
                    _ => self.after_latency(Event::Left { message }),
                },
                Err(next) => return self.look_again(host, way, next),
            }
        }
    }

    /// A message is through one of its two cables.
    fn through(&mut self, message: usize) {
        let state = &mut self.messages[message];
        state.missing -= 1;
        if let Some(left) = state.left.take() {
            if left > self.now {
                return self.agenda.add_soon(left, Event::Left { message });
            }
            state.missing = 0;
        }
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

    /// A server has sent all of its piece to a worker that has its host to itself. The worker begins when the last of them
    /// has arrived and is through its own cable.
    fn sent(&mut self, worker: usize) {
        let arrives = self.now + self.setting.cluster.network.latency;
        let state = &mut self.workers[worker];
        state.left_by = state.left_by.max(arrives);
        if state.missing > 1 {
            state.missing -= 1;
        } else {
            let at = state.left_by.max(state.inward_until);
            self.agenda.add_soon(at, Event::Awake { worker });
        }
    }

    fn received(&mut self, server: usize, worker: usize) {
        self.servers[server].queue.push_back(worker);
        self.serve(server);
    }

    /// Seconds of a server's core for one gradient.
    fn applying(&self) -> f64 {
        self.place.part(self.setting.workload.apply)
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
        self.work(host, self.server_piece(Job::Apply { server, worker }, seconds));
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
                                self.agenda.add(at, Event::Awake { worker: other });
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
        let from = (host, seconds / self.place.cards);
        let home = self.host_of_worker(worker);
        if !self.place.is_apart() {
            return self.send(from, (home, seconds), What::Weights { worker });
        }
        // Whatever shares a cable with what: it is free when as much has gone through as was put on it.
        let arrives = self.now + self.setting.cluster.network.latency;
        let state = &mut self.workers[worker];
        state.inward_until = state.inward_until.max(arrives) + seconds;
        let weight = self.setting.draws.random.uniform() + LEAST_WEIGHT;
        let parcel = Parcel { seconds, weight };
        let what = What::Weights { worker };
        let message = self.keep(Message { missing: 1, left: None, to_host: home, parcel, what });
        self.put_out(from, message, weight);
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
        // What the exchange would take for a single worker; the rest is waiting. Copies inside a
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
