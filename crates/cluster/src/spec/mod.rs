//! From environment variables and files to one [`Cluster`].
//!
//! Precedence is the order of [`ALL`], after a file given on the command line. A source that is
//! present but broken is an error, never skipped: falling through to the next one would start a
//! different cluster than the user described. Weaker sources that are present too must agree on who
//! takes part, where, and which task this is, as far as they say; none is silently overruled.

mod cluster_spec;
mod file;
mod mpi;
mod slurm;
mod tf_config;
mod torchrun;

use paceline_registry::{Named, Registry};
use paceline_wire::{Role, TaskId};
use std::collections::BTreeMap;
use std::fmt;

pub use file::{from_toml, workers_per_host};

/// Environment variables, as a function so that tests need not touch the process's own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A convention for describing clusters.
pub struct LauncherConvention {
    /// What to call it when it wins.
    pub name: &'static str,
    /// Whether its variables are there at all.
    pub present: fn(Environment<'_>) -> bool,
    pub read: fn(Environment<'_>) -> Result<Cluster, SpecError>,
}

impl Named for LauncherConvention {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for LauncherConvention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// All conventions, strongest first.
pub static ALL: Registry<LauncherConvention> = Registry::new(&[
    &tf_config::ENTRY,
    &cluster_spec::ENTRY,
    &torchrun::ENTRY,
    &mpi::ENTRY,
    &slurm::ENTRY,
]);

/// Who takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Which convention said so.
    pub origin: String,
    /// The task this process is.
    pub own: TaskId,
    pub members: Members,
}

/// The tasks and how to find them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// Each task's address is known beforehand.
    Listed(BTreeMap<TaskId, String>),
    /// Only the number of workers is known; they meet at the address of worker 0.
    Rendezvous {
        workers: u32,
        /// `host:port` of worker 0.
        coordinator: String,
    },
}

impl Cluster {
    /// All tasks, in order.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskId> {
        match &self.members {
            Members::Listed(addresses) => addresses.keys().copied().collect(),
            Members::Rendezvous { workers, .. } => {
                (0..*workers).map(|index| TaskId::new(Role::Worker, index)).collect()
            }
        }
    }

    /// Which of the ranks this process is. Of listed tasks only workers have an agreed order: whether servers
    /// come before or after them is not defined.
    fn rank(&self) -> Option<u32> {
        let Members::Listed(addresses) = &self.members else { return Some(self.own.index) };
        let works = |task: &TaskId| matches!(task.role, Role::Chief | Role::Worker);
        if !addresses.keys().all(works) {
            return None;
        }
        let rank = addresses.keys().position(|task| *task == self.own)?;
        u32::try_from(rank).ok()
    }

    /// Which task this process is, in the words of the convention.
    fn own_words(&self) -> String {
        match self.members {
            Members::Listed(_) => self.own.to_string(),
            Members::Rendezvous { .. } => format!("rank {}", self.own.index),
        }
    }
}

/// Why a description of a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// JSON that cannot be read.
    #[error("{origin} is not valid JSON")]
    Json {
        origin: &'static str,
        /// Where it broke.
        source: serde_json::Error,
    },
    /// TOML that cannot be read.
    #[error("cluster file is not valid")]
    Toml(#[source] toml::de::Error),
    /// A variable is needed and not there.
    #[error("{origin}: `{variable}` is not set, but {because}")]
    Missing {
        origin: &'static str,
        variable: &'static str,
        /// Which other variable asks for it.
        because: &'static str,
    },
    /// A value that cannot be read.
    #[error("{origin}: `{variable}` is `{found}`, expected {wanted}")]
    Value {
        origin: &'static str,
        /// The variable or key.
        variable: String,
        found: String,
        /// What it should hold.
        wanted: &'static str,
    },
    /// An unknown role.
    #[error("{origin}: `{role}` is not a role: expected chief, master, worker, ps or evaluator")]
    Role { origin: &'static str, role: String },
    /// The own task is not one of the cluster's.
    #[error("{origin}: this process is {own}, but the cluster lists only {listed}")]
    OwnTask { origin: &'static str, own: TaskId, listed: String },
    /// Two tasks at one address.
    #[error("{origin}: {first} and {second} have the same address `{address}`")]
    Duplicate { origin: &'static str, first: TaskId, second: TaskId, address: String },
    /// Two conventions describe different clusters.
    #[error("{first} and {second} contradict each other: {what}")]
    Contradiction {
        /// The stronger convention.
        first: String,
        /// The weaker one.
        second: String,
        /// In what they differ.
        what: String,
    },
}

/// The cluster this process belongs to, if the environment describes one.
pub fn from_environment(environment: Environment<'_>) -> Result<Option<Cluster>, SpecError> {
    strongest(None, environment)
}

/// The cluster that was given by other means, else the one that the environment describes. Whatever else the environment
/// says must be the same.
pub fn strongest(
    given: Option<Cluster>,
    environment: Environment<'_>,
) -> Result<Option<Cluster>, SpecError> {
    let mut winner = given;
    for entry in ALL.iter().filter(|entry| (entry.present)(environment)) {
        let found = match (entry.read)(environment) {
            // What says too little to be used cannot contradict what says everything.
            Err(SpecError::Missing { .. }) if winner.is_some() => continue,
            found => found?,
        };
        match &winner {
            None => winner = Some(found),
            Some(_) if torchrun::was_started_by(&found, environment) => {}
            Some(first) => agree(first, &found)?,
        }
    }
    Ok(winner)
}

/// Launchers may be nested (torchrun inside Slurm), and platforms describe one cluster in several ways; then all must mean
/// the same.
fn agree(first: &Cluster, second: &Cluster) -> Result<(), SpecError> {
    let differ = |what: String| {
        Err(SpecError::Contradiction {
            first: first.origin.clone(),
            second: second.origin.clone(),
            what,
        })
    };
    if let (Members::Listed(ours), Members::Listed(theirs)) = (&first.members, &second.members) {
        let place = |address: Option<&String>| {
            address.map_or_else(|| "not listed".to_owned(), |address| format!("at {address}"))
        };
        for task in ours.keys().chain(theirs.keys()) {
            let (here, there) = (ours.get(task), theirs.get(task));
            // TensorFlow leaves the evaluator out, others do not.
            let left_out = task.role == Role::Evaluator && (here.is_none() || there.is_none());
            if here != there && !left_out {
                return differ(format!("{task} is {} and {}", place(here), place(there)));
            }
        }
    } else {
        // A job of one rank is only the shell that something else was started from.
        if matches!(second.members, Members::Rendezvous { workers: 1, .. }) {
            return Ok(());
        }
        let (tasks, others) = (first.tasks().len(), second.tasks().len());
        if tasks != others {
            return differ(format!("{tasks} tasks and {others} tasks"));
        }
    }
    let same = match (&first.members, &second.members) {
        (Members::Listed(_), Members::Listed(_)) => first.own == second.own,
        _ => match (first.rank(), second.rank()) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        },
    };
    if same {
        return Ok(());
    }
    differ(format!("this process is {} and {}", first.own_words(), second.own_words()))
}

/// Checks a listed cluster: addresses well formed and different, own task among them.
fn listed(
    origin: &'static str,
    own: TaskId,
    addresses: BTreeMap<TaskId, String>,
) -> Result<Cluster, SpecError> {
    let mut seen: BTreeMap<&str, TaskId> = BTreeMap::new();
    for (task, address) in &addresses {
        check_address(origin, &task.to_string(), address)?;
        if let Some(first) = seen.insert(address, *task) {
            return Err(SpecError::Duplicate {
                origin,
                first,
                second: *task,
                address: address.clone(),
            });
        }
    }
    if !addresses.contains_key(&own) {
        let listed = addresses.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(SpecError::OwnTask { origin, own, listed });
    }
    Ok(Cluster { origin: origin.to_owned(), own, members: Members::Listed(addresses) })
}

/// A cluster of ranks that meet at one address.
fn ranked(
    origin: &'static str,
    rank: u32,
    workers: u32,
    coordinator: String,
) -> Result<Cluster, SpecError> {
    if rank >= workers {
        return Err(SpecError::OwnTask {
            origin,
            own: TaskId::new(Role::Worker, rank),
            listed: format!("{workers} workers"),
        });
    }
    check_address(origin, "coordinator", &coordinator)?;
    Ok(Cluster {
        origin: origin.to_owned(),
        own: TaskId::new(Role::Worker, rank),
        members: Members::Rendezvous { workers, coordinator },
    })
}

/// `host:port`, IPv6 hosts in brackets.
fn check_address(origin: &'static str, variable: &str, address: &str) -> Result<(), SpecError> {
    let good = address.rsplit_once(':').is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let host_good = !host.is_empty() && (bracketed || !host.contains(':'));
        host_good && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if good {
        return Ok(());
    }
    Err(SpecError::Value {
        origin,
        variable: variable.to_owned(),
        found: address.to_owned(),
        wanted: "host:port",
    })
}

/// A whole number from a variable that must be there.
fn number(
    environment: Environment<'_>,
    origin: &'static str,
    variable: &'static str,
    because: &'static str,
) -> Result<u32, SpecError> {
    let found = environment(variable).ok_or(SpecError::Missing { origin, variable, because })?;
    found.trim().parse().map_err(|_| SpecError::Value {
        origin,
        variable: variable.to_owned(),
        found,
        wanted: "a whole number",
    })
}

#[cfg(test)]
mod tests;
