//! A worker's side of the servers: one link to each, all requests on their way before the first answer
//! is awaited.

mod exchange;
mod flow;
mod push;
mod snapshot;
mod windows;

pub(crate) use exchange::{Dealing, OnServers};

use crate::{
    Setup, StepInfo, StepReport, StrategyEntry, StrategyError, StrategyOptions, Tally, Traffic,
    Version,
    dense::{
        is_led,
        message::{self, GrantHead},
    },
    exchange::is_nonfinite,
    protocol::{nanoseconds, payload},
    server_link::ServerLink,
};
use flow::{Coming, Outgoing};
use paceline_cluster::JobMembership;
use paceline_models::optimizer::Optimizer;
use paceline_wire::{Channel, Head};
use std::{
    collections::VecDeque,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};
use windows::Windows;

/// How long a server may take to be there.
const CONNECT: Duration = Duration::from_secs(60);

/// One server.
struct Remote {
    server: ServerLink,
    /// Of the weights it gave us last.
    version: u64,
    /// Memory in common with a server on this machine.
    windows: Option<Windows>,
    grant: GrantHead,
    /// The message to it.
    outgoing: Outgoing,
    /// How far its answer is.
    coming: Coming,
}

impl Remote {
    fn send(&mut self, kind: u8, number: u64, payload: &[&[u8]]) -> Result<(), StrategyError> {
        self.server.send(kind, number, payload, self.version)
    }
}

/// A worker's links to all servers.
pub(crate) struct Client {
    membership: Arc<dyn JobMembership>,
    options: StrategyOptions,
    optimizer: Optimizer,
    length: usize,
    synchronous: bool,
    pub(crate) rank: usize,
    pub(crate) workers: usize,
    remotes: Vec<Remote>,
    /// Whether the first server decides for the others; see [`is_led`].
    led: bool,
    step: StepInfo,
    begun: bool,
    nonfinite: bool,
    /// Whether the weights at hand are the latest this worker was given.
    fresh: bool,
    /// Weights older than this are of no use.
    least: u64,
    /// Whether servers of this machine have been asked for memory in common.
    mapped: bool,
    /// Numbers of the present gradient that are in windows.
    placed: usize,
    /// What went through windows.
    through_windows: Traffic,
    /// Batches dealt to this worker and not begun.
    pub(crate) dealt: VecDeque<u64>,
    /// Nothing is left to do.
    pub(crate) over: bool,
    /// Step reports told outside of a push.
    window: StepReport,
    /// Whose gradients are in the last update, as the first server wrote it.
    taken: Vec<u8>,
    /// Since the last push, in nanoseconds.
    exchange: u64,
    wait: u64,
    told: Traffic,
}

impl Client {
    /// Connects to all servers.
    pub(crate) fn new(setup: &Setup<'_>, strategy: &StrategyEntry) -> Result<Self, StrategyError> {
        let membership = setup.membership.clone().ok_or(StrategyError::NoSeat)?;
        let mut client = Self {
            options: setup.options,
            optimizer: setup.optimizer.clone(),
            length: setup.layout.len(),
            synchronous: strategy.synchronous,
            rank: 0,
            workers: 0,
            remotes: Vec::new(),
            led: false,
            step: StepInfo::NONE,
            begun: false,
            nonfinite: false,
            fresh: false,
            least: 0,
            mapped: false,
            placed: 0,
            through_windows: Traffic::default(),
            dealt: VecDeque::new(),
            over: false,
            window: StepReport::default(),
            taken: Vec::new(),
            exchange: 0,
            wait: 0,
            told: Traffic::default(),
            membership,
        };
        if client.membership.servers().is_empty() {
            return Err(StrategyError::NoServers { strategy: strategy.name });
        }
        client.connect()?;
        Ok(client)
    }

    fn connect(&mut self) -> Result<(), StrategyError> {
        let workers = self.membership.workers();
        let me = self.membership.me();
        let rank = workers.iter().position(|worker| *worker == me);
        self.rank = rank.ok_or(StrategyError::NoWorker { task: me })?;
        self.workers = workers.len();
        self.led = is_led(&self.options, self.synchronous, self.membership.servers().len());
        // What went over links that are gone stays counted.
        let before = self.traffic();
        self.remotes.clear();
        let (channel, refused) = (Channel::ParameterServer, message::REFUSED);
        let servers =
            ServerLink::connect_all(&self.membership, channel, refused, self.length, CONNECT)?;
        self.remotes.extend(servers.into_iter().map(|server| Remote {
            server,
            version: 0,
            windows: None,
            grant: GrantHead::default(),
            outgoing: Outgoing::default(),
            coming: Coming::Nothing,
        }));
        self.mapped = false;
        self.told = Traffic {
            sent: self.told.sent.wrapping_sub(before.sent),
            received: self.told.received.wrapping_sub(before.received),
        };
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        let mut traffic = self.through_windows;
        for remote in &self.remotes {
            let Traffic { sent, received } = remote.server.traffic();
            (traffic.sent, traffic.received) = (traffic.sent + sent, traffic.received + received);
        }
        traffic
    }

    /// Asks the first server what to do; it answers when there is something, or never will be.
    pub(crate) fn ask(&mut self) -> Result<u64, StrategyError> {
        self.remotes[0].send(message::ASK, 0, &[])?;
        let head = self.receive(0, message::GRANT, "waiting for work")?;
        let (grant, rest) = self.grant(0, head)?;
        self.nothing_more(0, rest)?;
        self.take_tickets(&grant);
        // Weights that came while it had nothing to do were not counted as handed out: a bound on staleness does not hold for them.
        self.fresh &= self.synchronous;
        self.window.add(&grant.step_report);
        if self.synchronous {
            self.least = grant.version; // of all servers: the others may be a moment behind the first
        }
        Ok(grant.version)
    }

    fn take_tickets(&mut self, grant: &GrantHead) {
        if grant.step_report.stop || grant.step_report.nonfinite {
            self.dealt.clear(); // the server has taken them back
        }
        self.dealt.extend(&grant.tickets[..usize::from(grant.count)]);
        if grant.over {
            // The last updates of others may not be in the weights at hand.
            self.over = true;
            self.fresh = false;
            self.least = grant.version;
        }
    }

    /// Brings the weights of a step.
    pub(crate) fn pull(
        &mut self,
        step: StepInfo,
        params: &mut [f32],
    ) -> Result<Version, StrategyError> {
        let begun = Instant::now();
        self.step = step;
        self.begun = false;
        self.nonfinite = false;
        self.placed = 0;
        self.map()?;
        if !self.fresh {
            self.fetch(params)?;
        }
        self.exchange += nanoseconds(begun);
        Ok(Version(self.remotes[0].version))
    }

    /// All weights.
    pub(crate) fn fetch(&mut self, params: &mut [f32]) -> Result<(), StrategyError> {
        for servers in self.rounds() {
            self.fetch_from(servers, params)?;
            if self.synchronous {
                self.least = self.remotes[0].version;
            }
        }
        self.fresh = true;
        Ok(())
    }

    /// Which servers are asked for weights at the same time: all, or the first before the others.
    fn rounds(&self) -> [Range<usize>; 2] {
        let (all, first) = (self.remotes.len(), if self.led { 1 } else { self.remotes.len() });
        [0..first, first..all]
    }

    fn fetch_from(
        &mut self,
        servers: Range<usize>,
        params: &mut [f32],
    ) -> Result<(), StrategyError> {
        for remote in &mut self.remotes[servers.clone()] {
            remote.send(message::FETCH, self.least, &[])?;
        }
        self.collect(servers.clone(), message::GRANT, "waiting for the weights", params)?;
        for server in servers.clone() {
            if !self.remotes[server].grant.weights {
                return self.nothing_more(server, 1);
            }
        }
        let held = self.remotes[servers].iter().map(|remote| remote.grant.held).max();
        self.wait += held.unwrap_or(0);
        Ok(())
    }

    /// A range of the gradient is final: it goes into the windows while it is in the cache.
    pub(crate) fn ready(&mut self, range: Range<usize>, grad: &[f32]) {
        if !self.begun {
            self.begun = true;
            self.nonfinite = is_nonfinite(grad);
        }
        self.place(&range, grad);
        self.placed += range.len();
    }

    /// Adds up numbers over all workers, at the first server.
    pub(crate) fn sum(&mut self, values: &mut [f64]) -> Result<(), StrategyError> {
        let sent: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.remotes[0].send(message::SUM, 0, &[&sent])?;
        let head = self.receive(0, message::SUMS, "adding up with the other workers")?;
        if head.length != sent.len() as u64 {
            return Err(self.protocol_error(0, head));
        }
        let mut sums = sent;
        self.remotes[0].server.link.receiver.read(&mut sums)?;
        let (words, _) = sums.as_chunks::<8>();
        for (value, word) in values.iter_mut().zip(words) {
            *value = f64::from_le_bytes(*word);
        }
        Ok(())
    }

    pub(crate) fn tally(&mut self) -> Result<Tally, StrategyError> {
        self.remotes[0].send(message::TALLY, 0, &[])?;
        let head = self.receive(0, message::COUNTS, "waiting for its counts")?;
        let counts = self.small(0, head)?;
        Tally::read(&counts).map_err(|_| self.protocol_error(0, head))
    }

    pub(crate) fn stop(&mut self) -> Result<(), StrategyError> {
        for remote in &mut self.remotes {
            remote.send(message::STOP, 0, &[])?;
        }
        Ok(())
    }

    /// Stops, gives back the batches that were dealt to this worker, and waits until no other worker has one.
    pub(crate) fn drain(&mut self) -> Result<(), StrategyError> {
        self.stop()?;
        while !self.over {
            self.ask()?;
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) -> Result<(), StrategyError> {
        for remote in &mut self.remotes {
            remote.send(message::LEAVE, 0, &[])?;
        }
        Ok(())
    }

    /// Connects to the servers of the membership's present generation and takes their weights.
    pub(crate) fn reform(&mut self, params: &mut [f32]) -> Result<Version, StrategyError> {
        self.dealt.clear();
        self.over = false;
        self.connect()?;
        let mut versions = Vec::with_capacity(self.remotes.len());
        for server in 0..self.remotes.len() {
            self.remotes[server].send(message::ASK, 0, &[])?;
            let head = self.receive(server, message::GRANT, "forming the group again")?;
            let (grant, rest) = self.grant(server, head)?;
            self.nothing_more(server, rest)?;
            if server == 0 && !self.synchronous {
                self.take_tickets(&grant);
            }
            versions.push(grant.version);
        }
        if self.synchronous {
            // One server may have finished a step that another has not: that step is rolled back. Every worker
            // requests it, since it must receive the weights from after the rollback.
            let common = versions.into_iter().min().unwrap_or(0);
            for remote in &mut self.remotes {
                remote.send(message::SETTLE, common, &[])?;
            }
            self.ask()?;
        } else {
            // What a server lacks was cut short with an earlier link. It may be dealt again or never come, and workers that wait for
            // work bring nothing: none is waited for while there is any.
            let latest = versions.into_iter().max().unwrap_or(0);
            self.least = if self.over { latest } else { 0 };
        }
        self.fetch(params)?;
        Ok(Version(self.remotes[0].version))
    }

    /// Waits for an answer of one server.
    fn receive(&mut self, server: usize, kind: u8, phase: &str) -> Result<Head, StrategyError> {
        let (patience, step) = (self.options.patience, self.step.step);
        self.remotes[server].server.receive(kind, phase, patience, step)
    }

    /// Reads the fixed part of a grant; says how many bytes follow.
    fn grant(&mut self, server: usize, head: Head) -> Result<(GrantHead, u64), StrategyError> {
        let mut fixed = [0; GrantHead::BYTES];
        let Some(rest) = head.length.checked_sub(GrantHead::BYTES as u64) else {
            return Err(self.protocol_error(server, head));
        };
        self.remotes[server].server.link.receiver.read(&mut fixed)?;
        let grant = GrantHead::read(&fixed).map_err(|_| self.protocol_error(server, head))?;
        let Some(rest) = rest.checked_sub(8 * u64::from(grant.taken)) else {
            return Err(self.protocol_error(server, head));
        };
        if grant.taken > 0 {
            self.taken.resize(8 * usize::from(grant.taken), 0);
            self.remotes[server].server.link.receiver.read(&mut self.taken)?;
        }
        Ok((grant, rest))
    }

    fn nothing_more(&self, server: usize, rest: u64) -> Result<(), StrategyError> {
        if rest == 0 {
            return Ok(());
        }
        let head = Head { kind: message::GRANT, number: 0, length: rest };
        Err(self.protocol_error(server, head))
    }

    /// A payload that is small by its nature.
    fn small(&mut self, server: usize, head: Head) -> Result<Vec<u8>, StrategyError> {
        Ok(payload(&mut *self.remotes[server].server.link.receiver, head, message::MOST_SET)?)
    }

    fn protocol_error(&self, server: usize, head: Head) -> StrategyError {
        self.remotes[server].server.protocol_error(head)
    }
}
