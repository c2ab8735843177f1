//! `CLUSTER_SPEC`: Vertex AI's description, JSON with numbered worker pools.

use super::{Cluster, Environment, LauncherConvention, SpecError, listed};
use paceline_wire::{Role, TaskId};
use serde::Deserialize;
use std::collections::BTreeMap;

const NAME: &str = "CLUSTER_SPEC";

/// Registry entry.
pub(super) const ENTRY: LauncherConvention = LauncherConvention {
    name: NAME,
    present: |environment| environment(NAME).is_some_and(|text| !text.trim().is_empty()),
    read,
};

#[derive(Deserialize)]
struct Spec {
    cluster: BTreeMap<String, Vec<String>>,
    task: Task,
}

#[derive(Deserialize)]
struct Task {
    #[serde(rename = "type")]
    pool: String,
    #[serde(default)]
    index: u32,
}

/// Pool 0 is the primary replica, 1 the workers, 2 parameter servers, 3 evaluators.
fn role(pool: &str) -> Result<Role, SpecError> {
    match pool {
        "workerpool0" => Ok(Role::Chief),
        "workerpool1" => Ok(Role::Worker),
        "workerpool2" => Ok(Role::Ps),
        "workerpool3" => Ok(Role::Evaluator),
        other => Err(SpecError::Value {
            origin: NAME,
            variable: "cluster".to_owned(),
            found: other.to_owned(),
            wanted: "workerpool0 to workerpool3",
        }),
    }
}

fn read(environment: Environment<'_>) -> Result<Cluster, SpecError> {
    let text = environment(NAME).unwrap_or_default();
    let spec: Spec =
        serde_json::from_str(&text).map_err(|source| SpecError::Json { origin: NAME, source })?;
    let mut addresses = BTreeMap::new();
    for (pool, members) in &spec.cluster {
        for (index, address) in (0u32..).zip(members) {
            addresses.insert(TaskId::new(role(pool)?, index), address.clone());
        }
    }
    listed(NAME, TaskId::new(role(&spec.task.pool)?, spec.task.index), addresses)
}
