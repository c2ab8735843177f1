//! `--cluster cluster.toml`: our own file, for plain ssh.
//!
//! ```toml
//! chief = "10.0.0.1:7000"
//! workers = ["10.0.0.2:7000", "10.0.0.3:7000"]
//! ps = ["10.0.0.1:7001"]
//! evaluator = "10.0.0.4:7000"
//! ```

use super::{Cluster, Members, SpecError, listed};
use paceline_wire::{Role, TaskId};
use serde::Deserialize;
use std::collections::BTreeMap;

const NAME: &str = "cluster file";

/// A typo must not become an empty list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    chief: Option<String>,
    #[serde(default)]
    workers: Vec<String>,
    #[serde(default)]
    ps: Vec<String>,
    evaluator: Option<String>,
}

/// Reads a cluster file; which task this is must be said beside it.
pub fn from_toml(text: &str, own: TaskId) -> Result<Cluster, SpecError> {
    let file: File = toml::from_str(text).map_err(SpecError::Toml)?;
    let groups = [
        (Role::Chief, file.chief.into_iter().collect()),
        (Role::Worker, file.workers),
        (Role::Ps, file.ps),
        (Role::Evaluator, file.evaluator.into_iter().collect()),
    ];
    let mut addresses = BTreeMap::new();
    for (role, members) in groups {
        for (index, address) in (0u32..).zip(members) {
            addresses.insert(TaskId::new(role, index), address);
        }
    }
    listed(NAME, own, addresses)
}

/// How many workers each host of a cluster file has, the chief among them, for questions about a cluster that no task of
/// it asks.
pub fn workers_per_host(text: &str) -> Result<Vec<usize>, SpecError> {
    // Any task may ask; the file must name at least one worker.
    let own = [TaskId::new(Role::Worker, 0), TaskId::new(Role::Chief, 0)];
    let cluster =
        from_toml(text, own[0]).or_else(|error| from_toml(text, own[1]).map_err(|_| error))?;
    let addresses = match cluster.members {
        Members::Listed(addresses) => addresses,
        Members::Rendezvous { workers, .. } => return Ok(vec![1; workers as usize]),
    };
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    for (task, address) in &addresses {
        if matches!(task.role, Role::Worker | Role::Chief) {
            *hosts.entry(address.rsplit_once(':').map_or(address, |pair| pair.0)).or_default() += 1;
        }
    }
    Ok(hosts.into_values().collect())
}
