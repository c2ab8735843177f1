//! Which host each task is on, and which servers are simulated.
//!
//! Every worker talks to every server, so the messages of a step grow with the product of both. But servers all see the
//! same workers with the same pieces: beyond a few, one stands for many, with the cards and cores of those behind it, and the
//! work grows with the workers alone.
//!
//! Beyond some thousand asynchronous workers with hosts of their own, one worker stands for several too: none of them waits
//! for the slowest, each only shares servers with the crowd, and what a server has to do for one of ten thousand hardly counts
//! in a step of any of them. Synchronous ones are simulated one by one, since the slowest of all decides.

use super::Setting;
use super::engine::Mode;

/// Servers simulated one by one at most where each has a host of its own.
pub(super) const MOST_SERVERS: usize = 4;
/// The same where hosts have several tasks: which ones share a host then matters as long as they are few.
const MOST_NEIGHBOURS: usize = 16;

/// Asynchronous workers simulated one by one at most.
pub(super) const MOST_WORKERS: usize = 8192;

/// The tasks of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Placement {
    pub(super) servers: usize,
    /// Workers to simulate, and how many each of them stands for.
    pub(super) workers: usize,
    pub(super) standing: f64,
    /// Cards that each of them has of those behind it.
    pub(super) cards: f64,
    /// Servers whose work one core does, one after the other, for one that is simulated; and cores that share it.
    pub(super) lumped: f64,
    pub(super) threads: f64,
    /// Servers that there are.
    of: usize,
    per_host: usize,
    /// Simulated servers of one host.
    servers_per_host: usize,
    /// Tasks before the first worker.
    before: usize,
}

impl Placement {
    pub(super) fn new(setting: &Setting<'_>, mode: Mode) -> Self {
        let (servers, cluster) = (setting.plan.servers, setting.cluster);
        let per_host = cluster.per_host;
        let of_workers = setting.plan.workers;
        let few = mode == Mode::Asynchronous && per_host == 1;
        let workers = if few { of_workers.min(MOST_WORKERS) } else { of_workers };
        let standing = of_workers as f64 / workers as f64;
        let all = Self {
            servers,
            workers,
            standing,
            // One that stands for ten workers sends ten gradients in one.
            cards: 1.0 / standing,
            lumped: 1.0,
            threads: 1.0,
            of: servers,
            per_host,
            servers_per_host: per_host,
            before: servers,
        };
        let most = if per_host == 1 { MOST_SERVERS } else { MOST_NEIGHBOURS };
        if servers <= most {
            return all;
        }
        let hosts = servers as f64 / per_host as f64;
        if hosts <= 1.0 {
            // All beside each other on the first host, and the first workers beside them.
            let behind = servers as f64 / MOST_SERVERS as f64;
            let threads = (cluster.cores / MOST_SERVERS as f64).floor().clamp(1.0, behind);
            return Self { servers: MOST_SERVERS, lumped: behind, threads, ..all };
        }
        // On hosts of their own, but for one that they share with workers and that does not count among so many.
        let simulated = most.min(hosts.ceil() as usize);
        Self {
            servers: simulated,
            cards: hosts / simulated as f64 / standing,
            lumped: if per_host == 1 { 1.0 } else { (per_host as f64 / cluster.cores).max(1.0) },
            servers_per_host: 1,
            before: simulated * per_host,
            ..all
        }
    }

    /// Servers come first: the first worker sits beside the first server, if hosts have room for both.
    pub(super) fn host_of_server(&self, server: usize) -> usize {
        server / self.servers_per_host
    }

    pub(super) fn host_of_worker(&self, worker: usize) -> usize {
        (self.before + worker) / self.per_host
    }

    /// Hosts with servers.
    pub(super) fn server_hosts(&self) -> usize {
        self.servers.div_ceil(self.servers_per_host)
    }

    pub(super) fn hosts(&self) -> usize {
        self.host_of_worker(self.workers - 1) + 1
    }

    /// Whether every host has one task, which no other disturbs.
    pub(super) fn is_apart(&self) -> bool {
        self.per_host == 1
    }

    /// Seconds of a core for one server's part of something that all servers do for each worker behind a simulated one.
    pub(super) fn part(&self, seconds: f64) -> f64 {
        seconds * self.standing / self.of as f64
    }

    /// Whether a server's piece of work stands for many short ones.
    pub(super) fn is_lump(&self) -> bool {
        self.lumped > 1.0 || self.standing > 1.0
    }

    /// How long a simulated server is busy when each one behind it works for `seconds`.
    pub(super) fn lump(&self, seconds: f64) -> f64 {
        seconds * self.lumped / self.threads
    }
}
