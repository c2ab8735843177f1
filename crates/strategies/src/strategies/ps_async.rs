//! Weights on servers, updated by each worker on its own.
//!
//! A worker takes the next global batch, computes its whole gradient and pushes it; the servers make
//! an update of it at once. Weights may have moved on in the meantime: the number of updates in
//! between, the staleness, is counted for every update and can be bounded. Batches are dealt in the
//! order of the run, each to one worker, so that one global step is one update from one global
//! batch, as everywhere else. See [`crate::server`].

use super::{Setup, StrategyEntry};
use crate::{
    Exchange, StrategyError, Ticket,
    client::{Client, Dealing, OnServers},
};

pub(super) const ENTRY: StrategyEntry = StrategyEntry {
    name: "ps-async",
    about: "weights on parameter servers, each worker updates them by itself",
    synchronous: false,
    needs_servers: true,
    in_process: false,
    most_replicas: Some(1),
    shares_layers: false,
    connect,
};

fn connect(setup: &Setup<'_>) -> Result<Vec<Box<dyn Exchange>>, StrategyError> {
    super::one_replica(&ENTRY, setup)?;
    let client = Client::new(setup, &ENTRY)?;
    Ok(vec![Box::new(OnServers { client, dealing: DealtBatches::default() })])
}

/// Batches in the order of the run, as the first server deals them.
#[derive(Default)]
struct DealtBatches {
    /// The one at work.
    batch: u64,
    upcoming: Vec<u64>,
}

impl Dealing for DealtBatches {
    fn in_lockstep(&self) -> bool {
        false
    }

    fn deal(&mut self, client: &mut Client) -> Result<Option<Ticket>, StrategyError> {
        while client.dealt.is_empty() && !client.over {
            client.ask()?;
        }
        let Some(batch) = client.dealt.pop_front() else { return Ok(None) };
        self.batch = batch;
        self.upcoming.clear();
        self.upcoming.extend(&client.dealt);
        Ok(Some(Ticket { batch, share: (0, 1) }))
    }

    fn upcoming(&self) -> &[u64] {
        &self.upcoming
    }

    fn number(&self) -> u64 {
        self.batch
    }
}
