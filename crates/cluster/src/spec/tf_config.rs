//! `TF_CONFIG`: TensorFlow's own description, JSON with every address.

use super::{Cluster, Environment, LauncherConvention, SpecError, listed};
use paceline_wire::{Role, TaskId};
use serde::Deserialize;
use std::collections::BTreeMap;

const NAME: &str = "TF_CONFIG";

/// Registry entry.
pub(super) const ENTRY: LauncherConvention = LauncherConvention {
    name: NAME,
    // An empty object is what some platforms set for one-machine jobs: not a cluster.
    present: |environment| environment(NAME).is_some_and(|text| !matches!(text.trim(), "" | "{}")),
    read,
};

/// TensorFlow tolerates further keys (`environment`, `rpc_layer`), so we do too.
#[derive(Deserialize)]
struct Config {
    cluster: BTreeMap<String, Vec<String>>,
    task: TfTask,
}

#[derive(Deserialize)]
struct TfTask {
    #[serde(rename = "type")]
    role: String,
    #[serde(default)]
    index: Index,
}

/// Some platforms write the index as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Index {
    Number(u32),
    Text(String),
}

impl Default for Index {
    fn default() -> Self {
        Self::Number(0)
    }
}

fn read(environment: Environment<'_>) -> Result<Cluster, SpecError> {
    let text = environment(NAME).unwrap_or_default();
    let config: Config =
        serde_json::from_str(&text).map_err(|source| SpecError::Json { origin: NAME, source })?;
    let role = |name: &str| {
        Role::parse(name).ok_or_else(|| SpecError::Role { origin: NAME, role: name.to_owned() })
    };
    let mut addresses = BTreeMap::new();
    for (name, members) in &config.cluster {
        for (index, address) in (0u32..).zip(members) {
            addresses.insert(TaskId::new(role(name)?, index), address.clone());
        }
    }
    let index = match config.task.index {
        Index::Number(index) => index,
        Index::Text(text) => text.trim().parse().map_err(|_| SpecError::Value {
            origin: NAME,
            variable: "task.index".to_owned(),
            found: text,
            wanted: "a whole number",
        })?,
    };
    let own = TaskId::new(role(&config.task.role)?, index);
    // TensorFlow lets an evaluator run without listing it.
    if own.role == Role::Evaluator && !addresses.contains_key(&own) {
        let cluster = listed(NAME, *addresses.keys().next().unwrap_or(&own), addresses)?;
        return Ok(Cluster { own, ..cluster });
    }
    listed(NAME, own, addresses)
}
