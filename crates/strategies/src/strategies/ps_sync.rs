//! Weights on servers, updated once per global step from all workers' gradients.
//!
//! Every worker computes the gradient of its share of the global batch and pushes it; the answer comes
//! when the step is over and is the token for the next one. With backup workers a step takes the
//! first gradients that arrive and discards the late ones, and a worker that was late continues with
//! the current step of the others: then workers do not run in lockstep. See [`crate::server`].

use super::{Setup, StrategyEntry};
use crate::{
    Exchange, StrategyError, Ticket, Version,
    client::{Client, Dealing, OnServers},
};

pub(super) const ENTRY: StrategyEntry = StrategyEntry {
    name: "ps-sync",
    about: "weights on parameter servers, one update per global step from all workers' gradients",
    synchronous: true,
    needs_servers: true,
    in_process: false,
    most_replicas: Some(1),
    shares_layers: false,
    connect,
};

fn connect(setup: &Setup<'_>) -> Result<Vec<Box<dyn Exchange>>, StrategyError> {
    super::one_replica(&ENTRY, setup)?;
    let client = Client::new(setup, &ENTRY)?;
    if setup.options.backup_workers >= client.workers {
        return Err(StrategyError::Option {
            option: "the number of backup workers",
            found: setup.options.backup_workers.to_string(),
            wanted: format!("less than the {} workers", client.workers),
        });
    }
    let dealing = GlobalSteps { backup: setup.options.backup_workers > 0, version: None };
    Ok(vec![Box::new(OnServers { client, dealing })])
}

/// A share of every global step.
struct GlobalSteps {
    backup: bool,
    /// Updates made, as far as this worker was told; nothing before it asked.
    version: Option<u64>,
}

impl Dealing for GlobalSteps {
    fn in_lockstep(&self) -> bool {
        !self.backup
    }

    fn deal(&mut self, client: &mut Client) -> Result<Option<Ticket>, StrategyError> {
        if self.version.is_none() {
            self.version = Some(client.ask()?);
        }
        if client.over {
            return Ok(None);
        }
        Ok(self.version.map(|batch| Ticket { batch, share: (client.rank, client.workers) }))
    }

    fn number(&self) -> u64 {
        self.version.unwrap_or_default()
    }

    fn moved_to(&mut self, version: Version) {
        self.version = Some(version.0);
    }
}
