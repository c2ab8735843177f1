//! Which cluster this process belongs to, which task it is, and how it meets the others.

use super::train_flags::Flags;
use crate::{
    failure::{FailureExt, usage},
    terminal::Terminal,
};
use anyhow::Context;
use paceline_cluster::{
    Cluster, ClusterKey, Endpoint, Identity, Members, Role, Security, SpecError, TaskId, endpoint,
    session::chief_of,
    spec::{from_toml, strongest},
};
use paceline_training::RunSpec;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket},
    path::PathBuf,
};

/// Which cluster, and which of its tasks.
#[derive(Debug, clap::Args)]
pub(super) struct ClusterArgs {
    /// The cluster as TOML: chief, workers, ps, evaluator [default: TF_CONFIG, CLUSTER_SPEC, torchrun, MPI, Slurm]
    #[arg(long, value_name = "FILE", requires = "task", help_heading = "Cluster")]
    pub(super) cluster: Option<PathBuf>,
    /// Which task of the cluster file this process is, such as worker/1
    #[arg(long, value_name = "TASK", requires = "cluster", help_heading = "Cluster")]
    pub(super) task: Option<TaskId>,
    /// The cluster key; `paceline key new` makes one
    #[arg(long, value_name = "FILE", env = "PACELINE_KEY_FILE", help_heading = "Cluster")]
    pub(super) key: Option<PathBuf>,
    /// Address to listen on, where it is not the one the cluster names
    #[arg(long, value_name = "HOST:PORT", help_heading = "Cluster")]
    pub(super) listen: Option<String>,
    /// No encryption between hosts and no key needed: anyone on the network can read and join
    #[arg(long, help_heading = "Cluster")]
    pub(super) insecure: bool,
    /// Use the network even between tasks of one host
    #[arg(long, help_heading = "Cluster")]
    pub(super) no_shared_memory: bool,
}

/// A task's place in a cluster.
pub(super) struct Place {
    /// What described the cluster.
    pub(super) origin: String,
    /// This task.
    pub(super) own: TaskId,
    /// All tasks, with addresses where they are known beforehand.
    pub(super) tasks: BTreeMap<TaskId, String>,
    /// Where all meet.
    pub(super) chief_address: String,
    /// Where to listen.
    pub(super) bind: String,
    /// Where the others look for this task, if not there.
    known_as: Option<String>,
    /// Whether connections are encrypted.
    pub(super) security: Security,
    /// What all tasks hold.
    pub(super) key: ClusterKey,
    /// Whether tasks of one host may share memory.
    shared_memory: bool,
}

/// Tasks that the command line adds to what describes the cluster.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extra {
    /// Of a cluster that only counts ranks, so many hold weights.
    pub(super) servers: usize,
    /// Somebody scores the model: of ranks the last one; beside a list of tasks one more, if none is listed.
    pub(super) evaluator: bool,
}

/// The cluster as described, before anything is looked up.
pub(super) fn described(args: &ClusterArgs) -> anyhow::Result<Cluster> {
    let environment = |name: &str| std::env::var(name).ok();
    let given = match (&args.cluster, args.task) {
        (Some(path), Some(task)) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read cluster file `{}`", path.display()))?;
            Some(from_toml(&text, task).with_context(|| format!("`{}`", path.display()))?)
        }
        _ => None,
    };
    let found = strongest(given, &environment);
    let found = match found {
        Err(error @ SpecError::Contradiction { .. }) => Err(error)
            .hint("the first would win: unset the variables of the one that is wrong, or leave out --cluster"),
        found => Ok(found?),
    };
    found?.ok_or_else(|| {
        usage(
            "nothing describes the cluster",
            "set TF_CONFIG or CLUSTER_SPEC, start through torchrun, mpirun or srun, or give --cluster FILE --task TASK; `paceline train` needs none of it on one machine",
        )
    })
}

/// The key that all tasks hold.
pub(super) fn key(args: &ClusterArgs) -> anyhow::Result<ClusterKey> {
    match &args.key {
        Some(path) => ClusterKey::load(path).hint(
            "`paceline key new FILE` makes a key; copy it to every host, readable by you alone",
        ),
        None if args.insecure => Ok(ClusterKey::public()),
        None => Err(usage(
            "no cluster key: tasks prove to each other that they belong together",
            "make one with `paceline key new cluster.key`, copy it to every host, and give --key FILE or PACELINE_KEY_FILE",
        )),
    }
}

/// Where this process belongs.
pub(super) fn place(args: &ClusterArgs, extra: Extra) -> anyhow::Result<Place> {
    let cluster = described(args)?;
    at(args, cluster, extra, || key(args))
}

/// Where this process belongs in that cluster.
pub(super) fn at(
    args: &ClusterArgs,
    cluster: Cluster,
    extra: Extra,
    key: impl FnOnce() -> anyhow::Result<ClusterKey>,
) -> anyhow::Result<Place> {
    let (own, tasks, chief_address) = match &cluster.members {
        Members::Listed(addresses) => {
            let chief = chief_of(addresses.keys().copied());
            let address = addresses.get(&chief).cloned();
            let address = address
                .with_context(|| format!("{}: there is no {chief} to meet at", cluster.origin))?;
            let mut tasks = addresses.clone();
            if extra.evaluator && !tasks.keys().any(|task| task.role == Role::Evaluator) {
                tasks.insert(TaskId::new(Role::Evaluator, 0), String::new());
            }
            (cluster.own, tasks, address)
        }
        Members::Rendezvous { workers, coordinator } => {
            let servers = u32::try_from(extra.servers).unwrap_or(u32::MAX);
            let others = servers.saturating_add(u32::from(extra.evaluator));
            if others >= *workers {
                let scored = if extra.evaluator { " and --evaluator" } else { "" };
                return Err(usage(
                    format!(
                        "{} has {workers} tasks, and --ps{scored} takes {others} of them",
                        cluster.origin
                    ),
                    "at least one task must be left to train",
                ));
            }
            let (own, tasks) = ranked(cluster.own.index, *workers, servers, extra.evaluator);
            let tasks = tasks.into_iter().map(|task| (task, String::new())).collect();
            (own, tasks, coordinator.clone())
        }
    };
    let is_chief = chief_of(tasks.keys().copied()) == own;
    let listed = tasks.get(&own).filter(|address| !address.is_empty()).cloned();
    // Where the others look for this task, whatever it listens on.
    let known = listed.or_else(|| is_chief.then(|| chief_address.clone()));
    let (bind, known_as) = match (&args.listen, known) {
        (Some(bind), known) => (bind.clone(), known),
        (None, Some(address)) => (address, None),
        (None, None) => (toward(&chief_address)?, None),
    };
    let loopback = tasks.values().chain([&chief_address]).all(|address| {
        address.is_empty() || resolve(address).is_some_and(|found| found.ip().is_loopback())
    });
    let security = if args.insecure || loopback { Security::Plain } else { Security::Tls };
    Ok(Place {
        origin: cluster.origin,
        own,
        tasks,
        chief_address,
        bind,
        known_as,
        security,
        key: key()?,
        shared_memory: !args.no_shared_memory,
    })
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
pub(super) fn resolve(address: &str) -> Option<SocketAddr> {
    address.to_socket_addrs().ok()?.next()
}

/// A free port on the interface that leads to an address.
fn toward(address: &str) -> anyhow::Result<String> {
    let to = resolve(address).with_context(|| format!("`{address}` does not resolve"))?;
    let any: SocketAddr = if to.is_ipv4() {
        SocketAddr::from(([0, 0, 0, 0], 0))
    } else {
        SocketAddr::from(([0u16; 8], 0))
    };
    // Connecting a datagram socket sends nothing; it only asks the routing table.
    let socket = UdpSocket::bind(any).and_then(|socket| socket.connect(to).map(|()| socket));
    let local: IpAddr = socket
        .and_then(|socket| socket.local_addr())
        .with_context(|| format!("no way leads to `{address}`"))?
        .ip();
    Ok(SocketAddr::new(local, 0).to_string())
}

impl ClusterArgs {
    /// Says aloud what --insecure means.
    pub(super) fn warn(&self, terminal: &Terminal) {
        if self.insecure {
            terminal
                .warn("--insecure: anyone on the network can read this run and take part in it");
        }
    }
}

impl Place {
    /// Who wins and what follows, in a line.
    pub(super) fn words(&self) -> String {
        let security = match self.security {
            Security::Tls => "encrypted",
            Security::Plain => "not encrypted",
        };
        format!(
            "{} of {} tasks, as {} says; meeting at {}, {security}",
            self.own,
            self.tasks.len(),
            self.origin,
            self.chief_address
        )
    }

    /// Listens where the others look for this task, or on the socket that whoever started it kept for it.
    pub(super) fn listen(&self, strangers: endpoint::Notify) -> anyhow::Result<Endpoint> {
        let inherited = endpoint::inherited()
            .context("cannot take over the socket of whoever started this task")?;
        let endpoint = match inherited {
            Some(listener) => Endpoint::listening(self.identity(), listener, strangers)?,
            None => Endpoint::bind_with(self.identity(), &self.bind, strangers)
                .hint("--listen HOST:PORT listens elsewhere")?,
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

    /// How many workers and servers there are; flags that say otherwise are refused.
    pub(super) fn sizes(&self, flags: &Flags) -> anyhow::Result<(usize, usize)> {
        let workers = self.count(|role| matches!(role, Role::Chief | Role::Worker));
        let servers = self.count(|role| role == Role::Ps);
        for (given, found, flag) in
            [(flags.workers, workers, "--workers"), (flags.ps, servers, "--ps")]
        {
            if let Some(given) = given.filter(|given| *given != found) {
                return Err(usage(
                    format!("{flag} is {given}, but {} has {found}", self.origin),
                    format!("leave {flag} out: the cluster decides"),
                ));
            }
        }
        Ok((workers, servers))
    }

    /// Fills in what the cluster decides: numbers of tasks, threads.
    pub(super) fn fit(&self, flags: &Flags, spec: &mut RunSpec) -> anyhow::Result<()> {
        (spec.workers, spec.servers) = self.sizes(flags)?;
        spec.evaluator = self.count(|role| role == Role::Evaluator) > 0;
        if spec.threads.is_none() {
            let cores = paceline_batch::cores().count;
            spec.threads = Some((cores / self.neighbours().max(1)).max(1));
        }
        Ok(())
    }

    /// Workers on this task's host, as far as the addresses tell.
    fn neighbours(&self) -> usize {
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
pub(super) fn program_version() -> String {
    #[cfg(debug_assertions)]
    if let Ok(other) = std::env::var("PACELINE_PRETEND_VERSION") {
        return other;
    }
    paceline_cluster::version(env!("CARGO_PKG_VERSION"))
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
