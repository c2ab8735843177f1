//! `--cluster cluster.toml`: our own file, for plain ssh.
//!
//! ```toml
//! chief = "10.0.0.1:7000"
//! workers = ["10.0.0.2:7000", "10.0.0.3:7000"]
//! ps = ["10.0.0.1:7001"]
//! evaluator = "10.0.0.4:7000"
//! ```

use super::{Cluster, SpecError, listed};
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
