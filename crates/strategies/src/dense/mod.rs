//! Parameter servers for models whose weights all travel.
//!
//! Weights are cut over the servers by bytes; each server holds its part of them and of the
//! optimiser's state. The first server also counts: it deals batches, notes step reports and wishes to stop, adds up
//! numbers. Sessions, rollback and copies are those of every [`server`](crate::server); this is what is special.
//!
//! **Asynchronous** (`ps-async`) a gradient becomes an update as soon as it is there. With
//! `max_staleness s`, no update is made from weights that have seen more than `s` other updates
//! since: weights are handed out to at most `s + 1` workers at a time, and an update out of turn waits
//! where it would make an older one too stale. With several servers the first decides; see below. A
//! lost worker's batches are dealt again.
//!
//! **Synchronous** (`ps-sync`) the gradients of a global step are kept until all workers' (less the backup
//! workers) are there, and added up in the order of the ranks: the same bits every time. Gradients of a
//! step that is over are thrown away and counted. A loss may leave some servers a step ahead, with a
//! gradient that others never had: they roll that step back, so that every step is made of the
//! same gradients everywhere.
//!
//! **Where order matters, the first server decides** (`is_led`): with a bound on staleness when an update
//! is made and weights are handed out, with backup workers which gradients a step takes. Gradients go to all
//! servers at once, but the others keep theirs until the worker comes with the first one's word, and
//! weights are fetched there after the first one's. That is one more round trip of small messages, and only
//! there.
//!
//! **On one machine** a gradient and the new weights lie in memory that worker and server both map
//! (`Windows`): the worker copies its gradient there while the backward pass goes on, the server
//! updates from there and copies the weights back, and messages only say so.
//!
//! **Copies of one version.** With one server, a copy is made under the lock. With several, all but the
//! first hold their updates, the first makes its copy and says which batches are in it, the others
//! make the updates that are missing from exactly these batches, copy, and go on. Workers do not
//! stop; their answers come a few round trips later. A push that is still on its way is waited for as
//! long as its worker is there, however slow its link; one that its worker's death cut short counts as
//! made: servers it did not reach go without it.

mod copies;
mod ledger;
pub(crate) mod message;
mod part;
mod session;
#[cfg(test)]
mod simulation;
mod steps;
pub(crate) mod tickets;

use crate::{
    Setup, StrategyError, StrategyOptions, Tally,
    server::{Core, Failure, Next, ParameterServer, Table, WorkerSession, own_part},
};
use ledger::{Ledger, Undo};
use paceline_wire::{Head, Link};
use part::{Inbox, ServerPart};
use session::Buffers;
use std::time::{Duration, Instant};
use tickets::Progress;

/// A task that holds a part of the weights.
#[derive(Debug)]
pub struct Server {
    inner: ParameterServer<DenseTable>,
}

/// A part of a model's weights.
#[derive(Debug)]
pub(crate) struct DenseTable {
    options: StrategyOptions,
    synchronous: bool,
    /// Whether this is the server that counts.
    first: bool,
    /// Whether it decides for the others; see [`is_led`].
    led: bool,
    /// Whether threads run on the core of the worker they serve; see [`follows`].
    follows: bool,
    /// Whether another server may be a step behind.
    rolls_back: bool,
    /// Updates of the whole run.
    steps: Option<u64>,
    /// Weights of the part.
    length: usize,
}

/// Whether a worker is served on its own core. It waits anyway, so with one server that costs nothing. The
/// threads of several servers work for it at the same time, which is worth more if there are cores to
/// spare.
fn follows(servers: usize, workers: usize) -> bool {
    servers == 1 || workers >= paceline_batch::cores().count
}

/// Whether the first of several servers decides what the others do: without, gradients of several workers meet in
/// another order on each of them.
pub(crate) fn is_led(options: &StrategyOptions, synchronous: bool, servers: usize) -> bool {
    let matters =
        if synchronous { options.backup_workers > 0 } else { options.max_staleness.is_some() };
    servers > 1 && matters
}

impl Server {
    /// The server of this membership, for a strategy that is `synchronous` or not. `params` are all initial
    /// weights, of which it takes its part.
    ///
    /// # Errors
    /// No membership, or one that does not belong to a server; options that do not fit.
    pub fn new(
        setup: &Setup<'_>,
        synchronous: bool,
        params: &[f32],
    ) -> Result<Self, StrategyError> {
        let membership = setup.membership.clone().ok_or(StrategyError::NoSeat)?;
        let (index, range) = own_part(&*membership, setup.layout.len())?;
        let servers = membership.servers().len();
        let rolls_back = synchronous && servers > 1;
        let table = DenseTable {
            options: setup.options,
            synchronous,
            first: index == 0,
            led: is_led(&setup.options, synchronous, servers),
            follows: follows(servers, membership.workers().len()),
            rolls_back,
            steps: setup.steps,
            length: range.len(),
        };
        let part = ServerPart::new(setup, range, params, rolls_back);
        let ledger = Ledger::new(setup, synchronous, part);
        Ok(Self { inner: ParameterServer::new(membership, table, ledger) })
    }

    /// Serves the workers of the membership's present generation until all have left. Weights and counters
    /// stay, so that it may be called again for the next generation.
    ///
    /// # Errors
    /// Synchronous: the worker that was lost, as [`StrategyError::PeerLost`]; the others are told. Asynchronous: only when
    /// the membership's alarm is raised.
    pub fn serve(&self) -> Result<Tally, StrategyError> {
        let server = &self.inner;
        let DenseTable { options, synchronous, .. } = &server.table;
        let workers = server.membership.workers();
        if *synchronous && options.backup_workers >= workers.len().max(1) {
            return Err(StrategyError::Option {
                option: "the number of backup workers",
                found: options.backup_workers.to_string(),
                wanted: format!("less than the {} workers", workers.len()),
            });
        }
        let over = || {
            let core = server.locked();
            core.is_deserted(*synchronous) || (core.lost.is_some() && core.waiting == 0)
        };
        server.serve(workers, || over() || server.is_deaf(), None);
        let core = server.locked();
        if core.is_deserted(*synchronous) && core.lost.is_none() {
            return Ok(core.ledger.tally.clone());
        }
        let step = core.ledger.version;
        drop(core);
        Err(StrategyError::PeerLost { task: server.missing(), step })
    }

    /// Updates made so far.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.inner.locked().ledger.version
    }
}

impl Table for DenseTable {
    type Ledger = Ledger;
    type Inbox = Inbox;
    type Buffers = Buffers;
    type Progress = Progress;
    type Undo = Undo;

    const REFUSED: u8 = message::REFUSED;
    const LOSS_ENDS_WAITS: bool = true;

    fn patience(&self) -> Duration {
        self.options.patience
    }

    fn longest_wait(&self) -> Option<Duration> {
        Some(self.options.patience)
    }

    fn begin(&self, core: &mut Core<Self>) {
        core.ledger.begin(core.tasks.len(), self.options.max_staleness.filter(|_| self.first));
    }

    fn presence_changed(&self, core: &mut Core<Self>, rank: usize) {
        core.presence_changed(rank, self.synchronous);
    }

    fn connected(session: &mut WorkerSession<'_, Self>, link: &mut Link) {
        session.connected(link);
    }

    fn answer(
        session: &mut WorkerSession<'_, Self>,
        link: &mut Link,
        head: Head,
    ) -> Result<Next, Failure> {
        session.answer_to(link, head)
    }

    fn version(ledger: &Ledger) -> u64 {
        ledger.version
    }

    fn roll_back(&self, ledger: &mut Ledger, undo: Undo) {
        ledger.roll_back(undo);
    }

    fn progress(&self, ledger: &Ledger) -> Progress {
        ledger.progress()
    }

    fn resume(&self, core: &mut Core<Self>, target: Option<&Progress>) {
        if let Some(target) = target {
            core.await_batches(&target.brought);
        }
    }

    /// Synchronous, no gradient can be missing for good: a loss ends the generation.
    fn lags(&self, core: &Core<Self>, target: &Progress, _since: Instant) -> bool {
        if self.synchronous { !core.ledger.done.covers(&target.done) } else { core.ledger.awaits() }
    }

    fn go_without(&self, core: &mut Core<Self>, target: &Progress) -> bool {
        if !core.ledger.done.covers(&target.done) {
            core.ledger.go_without(&target.done);
        }
        true
    }
}
