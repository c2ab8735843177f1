//! The strategies, and how one is found by name.

mod mirrored;
mod multi_worker;
mod one_device;
mod ps_async;
mod ps_sync;

use crate::{Exchange, Origin, StrategyError, StrategyOptions};
use paceline_cluster::JobMembership;
use paceline_models::{
    Layout,
    names::{UnknownName, spelling},
    optimizer::{Optimizer, OptimizerState},
    split::Split,
    threads::Pool,
};
use paceline_registry::{Named, Registry};
use std::sync::Arc;

/// Every strategy, in the order help texts show them.
pub static ALL: Registry<StrategyEntry> = Registry::new(&[
    &one_device::ENTRY,
    &mirrored::ENTRY,
    &multi_worker::ENTRY,
    &ps_sync::ENTRY,
    &ps_async::ENTRY,
]);

/// One strategy of the registry.
#[derive(Debug)]
pub struct StrategyEntry {
    /// The name users type.
    pub name: &'static str,
    /// One line for help texts.
    pub about: &'static str,
    /// Whether every update uses the gradients of exactly one global batch, so that the result equals
    /// one device at the same global batch.
    pub synchronous: bool,
    /// Whether it needs tasks that only hold parameters.
    pub needs_servers: bool,
    /// Whether its workers are threads of one process.
    pub in_process: bool,
    /// The most replicas in one process; nothing where there is no limit.
    pub most_replicas: Option<usize>,
    /// Whether its workers can share out layers among themselves (see [`paceline_models::split`]).
    pub shares_layers: bool,
    /// Makes one exchange per replica of this process.
    pub connect: Connect,
}

impl Named for StrategyEntry {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Makes one exchange per replica of this process.
pub type Connect = fn(&Setup<'_>) -> Result<Vec<Box<dyn Exchange>>, StrategyError>;

/// What a strategy is told about a run.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Replicas in this process.
    pub replicas: usize,
    /// Names and places of the parameters.
    pub layout: &'a Layout,
    pub optimizer: &'a Optimizer,
    /// Its state, where a run goes on from a checkpoint.
    pub state: Option<&'a OptimizerState>,
    /// The kernels' threads of each replica, idle while gradients are exchanged; may be empty.
    pub pools: Vec<Pool>,
    /// Where the run starts from.
    pub origin: Origin,
    /// Updates of the whole run, where they are known: servers deal no more batches than that.
    pub steps: Option<u64>,
    /// Choices of the strategies that have them.
    pub options: StrategyOptions,
    /// Layers that the workers share out, for strategies that can.
    pub split: Option<Split>,
    /// This task's membership in a job of several processes.
    pub membership: Option<Arc<dyn JobMembership>>,
}

impl<'a> Setup<'a> {
    /// A run from the start, in this process alone.
    #[must_use]
    pub fn alone(replicas: usize, layout: &'a Layout, optimizer: &'a Optimizer) -> Self {
        Self {
            replicas,
            layout,
            optimizer,
            state: None,
            pools: Vec::new(),
            origin: Origin::default(),
            steps: None,
            options: StrategyOptions::default(),
            split: None,
            membership: None,
        }
    }
}

/// A task of a job is one replica.
fn one_replica(entry: &StrategyEntry, setup: &Setup<'_>) -> Result<(), StrategyError> {
    if setup.replicas == 1 {
        return Ok(());
    }
    Err(StrategyError::Replicas {
        strategy: entry.name,
        found: setup.replicas,
        wanted: "exactly 1 in each process",
    })
}

/// Finds a strategy by name; `_` and `-` are the same.
///
/// # Errors
/// [`StrategyError::Unknown`] lists the names there are.
pub fn find(name: &str) -> Result<&'static StrategyEntry, StrategyError> {
    let wanted = spelling(name);
    let found = ALL.named(&wanted);
    let known = ALL.iter().map(|entry| entry.name);
    found.ok_or_else(|| UnknownName::new("strategy", name, known).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_registered() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/strategies");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .filter(|name| name != "mod")
            .map(|name| name.replace('_', "-"))
            .collect();
        files.sort();
        let mut names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        assert_eq!(find("one_device").unwrap().name, "one-device");
        let message = find("telepathy").unwrap_err().to_string();
        assert!(message.contains("mirrored") && message.contains("telepathy"), "{message}");
    }
}
