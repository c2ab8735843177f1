//! A task that holds weights.
//!
//! Weights are cut over the servers by bytes; each server holds its part of them and of the
//! optimiser's state, and one thread per worker listens. The first server also counts: it deals
//! batches, notes votes and wishes to stop, adds up numbers. What all threads share is behind one
//! lock that is never held while anybody sends or receives.
//!
//! **Without keeping step** (`ps-async`) a gradient becomes an update as soon as it is there. With
//! `max_staleness s`, no update is made from weights that have seen more than `s` other updates
//! since: weights are handed out to at most `s + 1` workers at a time, and an update out of turn waits
//! where it would make an older one too stale. With several servers the first decides; see below. A
//! lost worker's batches are dealt again.
//!
//! **In step** (`ps-sync`) the gradients of a global step are kept until all workers' (less the backup
//! workers) are there, and added up in the order of the ranks: the same bits every time. Gradients of a
//! step that is over are thrown away and counted. A loss may leave some servers a step ahead, with a
//! gradient that others never had: they take that step back, so that every step is made of the
//! same gradients everywhere.
//!
//! **Where order matters, the first server decides** (`is_led`): with a bound on staleness when an update
//! is made and weights are handed out, with backup workers which gradients a step takes. Gradients go to all
//! servers at once, but the others keep theirs until the worker comes with the first one's word, and
//! weights are fetched there after the first one's. That is one more round trip of small messages, and only
//! there.
//!
//! **On one machine** a dense gradient and the new weights lie in memory that worker and server both map
//! (`Windows`): the worker copies its gradient there while the backward pass goes on, the server
//! updates from there and copies the weights back, and messages only say so.
//!
//! **Copies of one version.** With one server, a copy is made under the lock. With several, all but the
//! first hold their updates, the first makes its copy and says which batches are in it, the others
//! make the updates that are missing from exactly these batches, copy, and go on. Workers do not
//! stop; their answers come a few round trips later. A push that is still on its way is waited for as
//! long as its worker is there, however slow its link; one that its worker's death cut short counts as
//! made: servers it did not reach go without it.

mod core;
mod desk;
pub(crate) mod message;
mod part;
pub(crate) mod tickets;

use crate::{Options, Setup, StrategyError, Tally};
use core::Core;
use paceline_cluster::Seat;
use paceline_wire::TaskId;
pub use part::parts;
use part::{Inbox, Part};
use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tickets::{Done, Pulls, Tickets};

/// How often a server looks whether it is still needed.
const LOOK: Duration = Duration::from_millis(10);

/// A task that holds weights.
#[derive(Debug)]
pub struct Server {
    seat: Arc<dyn Seat>,
    options: Options,
    synchronous: bool,
    /// Whether this is the server that counts.
    first: bool,
    /// Whether it decides for the others; see [`is_led`].
    led: bool,
    /// Whether threads run on the core of the worker they serve; see [`follows`].
    follows: bool,
    /// Updates of the whole run.
    steps: Option<u64>,
    core: Mutex<Core>,
    changed: Condvar,
    /// Everybody goes home.
    closing: AtomicBool,
    inboxes: Mutex<Vec<Arc<RwLock<Inbox>>>>,
    /// Threads that listen to workers.
    desks: AtomicUsize,
}

/// Why a thread stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interrupted {
    /// The server ends.
    Closing,
    /// The generation cannot go on without this one.
    Lost(TaskId),
    /// It took too long.
    Late,
}

/// Whether a worker is served on its own core. It waits anyway, so with one server that costs nothing. The
/// threads of several servers work for it at the same time, which is worth more if there are cores to
/// spare.
fn follows(servers: usize, workers: usize) -> bool {
    servers == 1 || workers >= paceline_batch::cores().count
}

/// Whether the first of several servers decides what the others do: without, gradients of several workers meet in
/// another order on each of them.
pub(crate) fn is_led(options: &Options, synchronous: bool, servers: usize) -> bool {
    let matters =
        if synchronous { options.backup_workers > 0 } else { options.max_staleness.is_some() };
    servers > 1 && matters
}

impl Server {
    /// The server of this seat, for a strategy that is `synchronous` or not. `params` are all initial
    /// weights, of which it takes its part.
    ///
    /// # Errors
    /// No seat, or one that is no server's; options that do not fit.
    pub fn new(
        setup: &Setup<'_>,
        synchronous: bool,
        params: &[f32],
    ) -> Result<Self, StrategyError> {
        let seat = setup.seat.clone().ok_or(StrategyError::NoSeat)?;
        let servers = seat.servers();
        let index = servers.iter().position(|server| *server == seat.me());
        let index = index.ok_or_else(|| StrategyError::NoServer { task: seat.me() })?;
        let range = parts(setup.layout.len(), servers.len()).swap_remove(index);
        let done = Done::new(&setup.origin);
        let core = Core {
            part: Part::new(setup, range, params, synchronous && servers.len() > 1),
            version: setup.origin.version,
            done: if synchronous {
                Done { below: setup.origin.version, ..Done::default() }
            } else {
                done
            },
            tickets: Tickets::new(&setup.origin, setup.steps),
            pulls: Pulls::default(),
            tally: Tally::default(),
            windows: Vec::new(),
            presence: Vec::new(),
            given: Vec::new(),
            taken: Vec::new(),
            before: core::Before::default(),
            unsettled: true,
            resting: Vec::new(),
            hold: None,
            brought: Vec::new(),
            awaited: Vec::new(),
            meeting: core::Meeting::default(),
            stop: false,
            poisoned: false,
            lost: None,
            waiting: 0,
        };
        Ok(Self {
            options: setup.options,
            synchronous,
            first: index == 0,
            led: is_led(&setup.options, synchronous, servers.len()),
            follows: follows(servers.len(), seat.workers().len()),
            steps: setup.steps,
            core: Mutex::new(core),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            inboxes: Mutex::default(),
            desks: AtomicUsize::new(0),
            seat,
        })
    }

    /// Serves the workers of the seat's present generation until all have left. Weights and counters
    /// stay, so that it may be called again for the next generation.
    ///
    /// # Errors
    /// In step: the worker that was lost, as [`StrategyError::PeerLost`]; the others are told. Not in
    /// step: only when the seat's alarm is raised.
    pub fn serve(&self) -> Result<Tally, StrategyError> {
        let workers = self.seat.workers();
        if self.synchronous && self.options.backup_workers >= workers.len().max(1) {
            return Err(StrategyError::Option {
                option: "the number of backup workers",
                found: self.options.backup_workers.to_string(),
                wanted: format!("less than the {} workers", workers.len()),
            });
        }
        self.closing.store(false, Ordering::Release);
        self.locked().seat(workers.len(), self.options.max_staleness.filter(|_| self.first));
        let length = self.locked().part.params.len();
        let inboxes: Vec<_> = {
            let mut all = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
            while all.len() < workers.len() {
                all.push(Arc::default());
            }
            all.iter().take(workers.len()).cloned().collect()
        };
        self.desks.store(workers.len(), Ordering::Release);
        std::thread::scope(|scope| {
            for (rank, task) in workers.iter().enumerate() {
                let inboxes = &inboxes;
                let desk = desk::Desk::new(self, rank, *task, inboxes, length);
                let thread = std::thread::Builder::new().name(format!("serve-{task}"));
                // Without a thread nobody listens to the worker: its own deadline says so.
                if thread.spawn_scoped(scope, || desk.run()).is_err() {
                    self.desks.fetch_sub(1, Ordering::AcqRel);
                }
            }
            loop {
                std::thread::sleep(LOOK);
                let over = {
                    let core = self.locked();
                    core.is_deserted(self.synchronous) || (core.lost.is_some() && core.waiting == 0)
                };
                let nobody = self.desks.load(Ordering::Acquire) == 0;
                if over || nobody || self.seat.alarm().load(Ordering::Acquire) {
                    self.closing.store(true, Ordering::Release);
                    self.wake();
                    break;
                }
            }
        });
        let core = self.locked();
        if core.is_deserted(self.synchronous) && core.lost.is_none() {
            return Ok(core.tally.clone());
        }
        let missing = core.lost.or_else(|| self.seat.lost().last().copied());
        Err(StrategyError::PeerLost { task: missing, step: core.version })
    }

    /// Updates made so far.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.locked().version
    }

    fn locked(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In step: whether there is no step left to do.
    fn is_finished(&self, core: &Core) -> bool {
        core.stop || self.steps.is_some_and(|steps| core.version >= steps)
    }

    /// Lets those that wait look again.
    fn wake(&self) {
        if self.locked().waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits while `reason` holds.
    fn wait_while<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        limit: Duration,
        reason: impl Fn(&Core) -> bool,
    ) -> Result<MutexGuard<'a, Core>, Interrupted> {
        if !reason(&core) {
            return Ok(core);
        }
        let deadline = Instant::now() + limit;
        core.waiting += 1;
        let result = loop {
            if !reason(&core) {
                break Ok(());
            }
            if let Some(task) = core.lost {
                break Err(Interrupted::Lost(task));
            }
            if self.closing.load(Ordering::Acquire) {
                break Err(Interrupted::Closing);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(Interrupted::Late);
            }
            let woken = self.changed.wait_timeout(core, left.min(Duration::from_millis(50)));
            core = woken.unwrap_or_else(PoisonError::into_inner).0;
        };
        core.waiting -= 1;
        result.map(|()| core)
    }
}
