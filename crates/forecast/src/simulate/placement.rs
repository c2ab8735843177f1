//! Which host each task is on, and which servers are simulated.
//!
//! Every worker talks to every server, so the messages of a step grow with the product of both. But servers all see the
//! same workers with the same pieces: beyond a few, one stands for many, with the cards and cores of those behind it, and the
//! work grows with the workers alone.

use super::Setting;

/// Servers simulated one by one at most where each has a host of its own.
pub(super) const MOST_SERVERS: usize = 4;
/// The same where hosts have several tasks: which ones share a host then matters as long as they are few.
const MOST_NEIGHBOURS: usize = 16;

/// The tasks of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Placement {
    pub(super) servers: usize,
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
    pub(super) fn new(setting: &Setting<'_>) -> Self {
        let (servers, cluster) = (setting.plan.servers, setting.cluster);
        let per_host = cluster.per_host;
        let all = Self {
            servers,
            cards: 1.0,
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
            cards: hosts / simulated as f64,
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

    pub(super) fn hosts(&self, workers: usize) -> usize {
        self.host_of_worker(workers - 1) + 1
    }

    /// Whether every host has one task, which no other disturbs.
    pub(super) fn is_apart(&self) -> bool {
        self.per_host == 1
    }

    /// Seconds of a core for one server's part of something that all servers do.
    pub(super) fn part(&self, seconds: f64) -> f64 {
        seconds / self.of as f64
    }

    /// How long a simulated server is busy when each one behind it works for `seconds`.
    pub(super) fn lump(&self, seconds: f64) -> f64 {
        seconds * self.lumped / self.threads
    }
}
