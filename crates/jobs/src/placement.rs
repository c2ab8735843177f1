//! Which cluster this process belongs to, which task it is, and how it meets the others.

use crate::{JobError, Work};
use paceline_cluster::{
    Cluster, Members,
    session::chief_of,
    spec::{from_toml, strongest},
};
use paceline_wire::{ClusterKey, Endpoint, Identity, Role, Security, TaskId, endpoint};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket},
    path::PathBuf,
};

/// How a process finds its cluster; the default is what the environment says.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// A file that describes the cluster, and which of its tasks this process is.
    pub file: Option<(PathBuf, TaskId)>,
    /// The file of the cluster key.
    pub key: Option<PathBuf>,
    /// Address to listen on, where it is not the one the cluster names.
    pub listen: Option<String>,
    /// Whether to do without encryption and key.
    pub insecure: bool,
    /// Whether to use the network even between tasks of one host.
    pub no_shared_memory: bool,
    /// Tasks that the description does not have.
    pub extra: ExtraTasks,
}

/// Tasks that are added to what describes the cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExtraTasks {
    /// Of a cluster that only counts ranks, so many hold weights.
    pub servers: usize,
    /// A task scores the model: of ranks the last one; beside a list of tasks one more, if none is listed.
    pub evaluator: bool,
}

/// A task's place in a cluster.
#[derive(Debug)]
pub struct TaskPlacement {
    /// What described the cluster.
    pub origin: String,
    pub own: TaskId,
    /// All tasks, with addresses where they are known beforehand.
    pub tasks: BTreeMap<TaskId, String>,
    /// Where all meet.
    pub chief_address: String,
    /// Whether connections are encrypted.
    pub security: Security,
    bind: String,
    /// Where the others look for this task, if not there.
    known_as: Option<String>,
    key: ClusterKey,
    shared_memory: bool,
}

impl ClusterOptions {
    /// The cluster as described, before anything is looked up.
    ///
    /// # Errors
    /// When nothing describes it, or two descriptions contradict each other.
    pub fn describe(&self) -> Result<Cluster, JobError> {
        let environment = |name: &str| std::env::var(name).ok();
        let given = match &self.file {
            Some((path, task)) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| JobError::ClusterFile { path: path.clone(), source })?;
                let cluster = from_toml(&text, *task).map_err(|source| {
                    JobError::ClusterFileContent { path: path.clone(), source }
                })?;
                Some(cluster)
            }
            None => None,
        };
        strongest(given, &environment)?.ok_or(JobError::NotDescribed)
    }

    /// The key that all tasks hold.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn load_key(&self) -> Result<ClusterKey, JobError> {
        match &self.key {
            Some(path) => ClusterKey::load(path).map_err(JobError::KeyFile),
            None if self.insecure => Ok(ClusterKey::public()),
            None => Err(JobError::NoKey),
        }
    }

    /// Where this process belongs.
    ///
    /// # Errors
    /// When the cluster is not or wrongly described, or has no room for the extra tasks.
    pub fn place(&self) -> Result<TaskPlacement, JobError> {
        let cluster = self.describe()?;
        self.place_in(cluster, || self.load_key())
    }

    /// Where this process belongs in that cluster; `key` is asked for last.
    ///
    /// # Errors
    /// When the cluster has no room for the extra tasks, or its addresses lead nowhere.
    pub fn place_in(
        &self,
        cluster: Cluster,
        key: impl FnOnce() -> Result<ClusterKey, JobError>,
    ) -> Result<TaskPlacement, JobError> {
        let (own, tasks, chief_address) = self.members(&cluster)?;
        let is_chief = chief_of(tasks.keys().copied()) == own;
        let listed = tasks.get(&own).filter(|address| !address.is_empty()).cloned();
        // Where the others look for this task, whatever it listens on.
        let known = listed.or_else(|| is_chief.then(|| chief_address.clone()));
        let (bind, known_as) = match (&self.listen, known) {
            (Some(bind), known) => (bind.clone(), known),
            (None, Some(address)) => (address, None),
            (None, None) => (toward(&chief_address)?, None),
        };
        let loopback = tasks.values().chain([&chief_address]).all(|address| {
            address.is_empty() || resolve(address).is_some_and(|found| found.ip().is_loopback())
        });
        let security = if self.insecure || loopback { Security::Plain } else { Security::Tls };
        Ok(TaskPlacement {
            origin: cluster.origin,
            own,
            tasks,
            chief_address,
            bind,
            known_as,
            security,
            key: key()?,
            shared_memory: !self.no_shared_memory,
        })
    }

    /// This task, all tasks, and where they meet.
    fn members(
        &self,
        cluster: &Cluster,
    ) -> Result<(TaskId, BTreeMap<TaskId, String>, String), JobError> {
        let extra = self.extra;
        match &cluster.members {
            Members::Listed(addresses) => {
                let chief = chief_of(addresses.keys().copied());
                let origin = || cluster.origin.clone();
                let address = addresses
                    .get(&chief)
                    .cloned()
                    .ok_or_else(|| JobError::ChiefNotListed { origin: origin(), chief })?;
                let mut tasks = addresses.clone();
                if extra.evaluator && !tasks.keys().any(|task| task.role == Role::Evaluator) {
                    tasks.insert(TaskId::new(Role::Evaluator, 0), String::new());
                }
                Ok((cluster.own, tasks, address))
            }
            Members::Rendezvous { workers, coordinator } => {
                let servers = u32::try_from(extra.servers).unwrap_or(u32::MAX);
                let taken = servers.saturating_add(u32::from(extra.evaluator));
                if taken >= *workers {
                    return Err(JobError::NoRankLeft {
                        origin: cluster.origin.clone(),
                        ranks: *workers,
                        taken,
                        evaluator: extra.evaluator,
                    });
                }
                let (own, tasks) = ranked(cluster.own.index, *workers, servers, extra.evaluator);
                let tasks = tasks.into_iter().map(|task| (task, String::new())).collect();
                Ok((own, tasks, coordinator.clone()))
            }
        }
    }
}

/// Ranks as tasks: workers first, then servers, then the evaluator.
fn ranked(rank: u32, ranks: u32, servers: u32, evaluator: bool) -> (TaskId, Vec<TaskId>) {
    let workers = ranks - servers - u32::from(evaluator);
    let name = |rank: u32| {
        if rank < workers {
            TaskId::new(Role::Worker, rank)
        } else if rank < workers + servers {
            TaskId::new(Role::Ps, rank - workers)
        } else {
            TaskId::new(Role::Evaluator, 0)
        }
    };
    (name(rank), (0..ranks).map(name).collect())
}

/// The first address of a name.
#[must_use]
pub fn resolve(address: &str) -> Option<SocketAddr> {
    address.to_socket_addrs().ok()?.next()
}

/// A free port on the interface that leads to an address.
fn toward(address: &str) -> Result<String, JobError> {
    let to =
        resolve(address).ok_or_else(|| JobError::Unresolved { address: address.to_owned() })?;
    let any: SocketAddr = if to.is_ipv4() {
        SocketAddr::from(([0, 0, 0, 0], 0))
    } else {
        SocketAddr::from(([0u16; 8], 0))
    };
    // Connecting a datagram socket sends nothing; it only asks the routing table.
    let socket = UdpSocket::bind(any).and_then(|socket| socket.connect(to).map(|()| socket));
    let local: IpAddr = socket
        .and_then(|socket| socket.local_addr())
        .map_err(|source| JobError::NoRoute { address: address.to_owned(), source })?
        .ip();
    Ok(SocketAddr::new(local, 0).to_string())
}

impl TaskPlacement {
    /// Whether this task is the one that all join at.
    #[must_use]
    pub fn is_chief(&self) -> bool {
        chief_of(self.tasks.keys().copied()) == self.own
    }

    /// Listens where the others look for this task, or on the socket that its launcher opened for it.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn listen(&self, strangers: endpoint::Notify) -> Result<Endpoint, JobError> {
        let inherited = endpoint::inherited().map_err(JobError::InheritedSocket)?;
        let endpoint = match inherited {
            Some(listener) => Endpoint::listening(self.identity(), listener, strangers)
                .map_err(JobError::Endpoint)?,
            None => Endpoint::bind_with(self.identity(), &self.bind, strangers)
                .map_err(JobError::Listen)?,
        };
        Ok(match &self.known_as {
            Some(address) => endpoint.known_as(address.clone()),
            None => endpoint,
        })
    }

    /// Who this task is to the others.
    fn identity(&self) -> Identity {
        let names: Vec<String> = self.tasks.keys().map(ToString::to_string).collect();
        Identity {
            me: self.own,
            run: names.join(" "),
            version: program_version(),
            plan: [0; 32], // settings are compared one by one when a task joins
            key: self.key.clone(),
            security: self.security,
            shared_memory: self.shared_memory,
        }
    }

    /// Tasks of a role.
    fn count(&self, wanted: fn(Role) -> bool) -> usize {
        self.tasks.keys().filter(|task| wanted(task.role)).count()
    }

    /// How many workers and servers the cluster has; other numbers that were asked for are refused.
    ///
    /// # Errors
    /// When it has another number than `workers` or `servers`, where these are given.
    pub fn sizes(
        &self,
        workers: Option<usize>,
        servers: Option<usize>,
    ) -> Result<(usize, usize), JobError> {
        let found_workers = self.count(|role| matches!(role, Role::Chief | Role::Worker));
        let found_servers = self.count(|role| role == Role::Ps);
        for (given, found, role) in
            [(workers, found_workers, Role::Worker), (servers, found_servers, Role::Ps)]
        {
            if let Some(given) = given.filter(|given| *given != found) {
                return Err(JobError::OtherSize {
                    role,
                    given,
                    found,
                    origin: self.origin.clone(),
                });
            }
        }
        Ok((found_workers, found_servers))
    }

    /// Fills in what the cluster decides: numbers of tasks, and threads of a worker on examples.
    pub(crate) fn fit(&self, work: &mut Work) -> Result<(), JobError> {
        let sizes = self.sizes(None, None)?;
        match work {
            Work::Examples(spec) => {
                (spec.workers, spec.servers) = sizes;
                spec.evaluator = self.count(|role| role == Role::Evaluator) > 0;
                if spec.threads.is_none() {
                    let cores = paceline_batch::cores().count;
                    spec.threads = Some((cores / self.neighbours().max(1)).max(1));
                }
            }
            Work::Rows(spec) => {
                if let Some(tasks) = &mut spec.tasks {
                    (tasks.workers, tasks.servers) = sizes;
                    tasks.evaluator = self.count(|role| role == Role::Evaluator) > 0;
                }
            }
        }
        Ok(())
    }

    /// Workers on this task's host, as far as the addresses tell.
    #[must_use]
    pub fn neighbours(&self) -> usize {
        let host = |address: &str| address.rsplit_once(':').map(|(host, _)| host.to_owned());
        let Some(own) = self.tasks.get(&self.own).and_then(|address| host(address)) else {
            return 1;
        };
        self.tasks
            .iter()
            .filter(|(task, _)| matches!(task.role, Role::Chief | Role::Worker))
            .filter(|(_, address)| host(address).as_deref() == Some(&own))
            .count()
    }
}

/// The version that tasks compare. A build for debugging can pretend to be another one, so that a test can
/// show what the others then say.
pub(crate) fn program_version() -> String {
    #[cfg(debug_assertions)]
    if let Ok(other) = std::env::var("PACELINE_PRETEND_VERSION") {
        return other;
    }
    paceline_wire::version(env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ranks_hold_weights() {
        let names = |tasks: Vec<TaskId>| {
            tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let (own, tasks) = ranked(3, 5, 2, false);
        assert_eq!(own, TaskId::new(Role::Ps, 0));
        assert_eq!(names(tasks), "worker/0 worker/1 worker/2 ps/0 ps/1");
        assert_eq!(ranked(0, 1, 0, false).0, TaskId::new(Role::Worker, 0));
        let (own, tasks) = ranked(3, 4, 1, true);
        assert_eq!(own, TaskId::new(Role::Evaluator, 0));
        assert_eq!(names(tasks), "worker/0 worker/1 ps/0 evaluator/0");
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        assert!(toward("127.0.0.1:9").unwrap().starts_with("127.0.0.1:0"));
        assert!(toward("no-such-host.invalid:9").is_err());
    }
}
