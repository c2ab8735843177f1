//! A task that holds a part of the sparse weights.

use super::{
    SparseOptions,
    copies::Before,
    desk,
    message::Bookmark,
    slots,
    standing::{Learned, Standing},
};
use crate::{StrategyError, server::parts};
use paceline_cluster::Seat;
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_wire::TaskId;
use std::{
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How often a server looks whether it is still needed.
const LOOK: Duration = Duration::from_millis(10);

/// A server's share of the logits of held-out rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scores {
    /// For each row, the sum over the weights of this part.
    pub logits: Vec<f32>,
    /// The rows' labels, 0 or 1.
    pub labels: Vec<u8>,
}

/// Scores held-out rows beside the weights.
pub trait Score: Sync {
    /// The scores of all rows from the weights in `part` alone; nothing if they cannot be read or `cancel`
    /// was raised meanwhile.
    fn score(
        &self,
        model: &SparseLogistic,
        part: Range<usize>,
        cancel: &AtomicBool,
    ) -> Option<Scores>;
}

/// Where a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// On its way.
    Expected,
    Here,
    /// Lost at that moment; may come back where workers do not keep step.
    Gone(Instant),
    /// Its files have ended.
    Left,
}

/// A worker's gradient of the present step.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) indices: Vec<u32>,
    pub(super) grads: Vec<f32>,
    /// All of the part, where everything travels.
    pub(super) dense: Vec<f32>,
    pub(super) is_dense: bool,
    pub(super) examples: u64,
    pub(super) turn: u64,
    pub(super) mark: Bookmark,
}

/// What the threads of a server share beside the weights.
#[derive(Debug)]
pub(super) struct Core {
    /// Of the weights held; 0 for none.
    pub(super) lineage: u32,
    /// The chief has said in this generation that these weights are the ones.
    pub(super) supplied: bool,
    pub(super) standing: Standing,
    /// Where a copy is wanted: no updates but those up to here.
    pub(super) hold: Option<Standing>,
    /// Updates that have begun and not ended.
    pub(super) applying: usize,
    pub(super) presence: Vec<Presence>,
    /// Whose gradients of the present step are there.
    pub(super) given: Vec<bool>,
    /// When each was answered last.
    pub(super) answered: Vec<Instant>,
    pub(super) lost: Option<TaskId>,
    pub(super) stop: bool,
    /// In step with other servers: how to take the last update back.
    pub(super) last: Option<Undo>,
}

/// What the last update changed. Whoever dies between two servers has its gradient in the update of one and
/// not of the other: that one takes it back, and all make it again with those who are left.
#[derive(Debug, Default)]
pub(super) struct Undo {
    standing: Standing,
    /// Positions and what was there.
    slots: Vec<(u32, [f32; 2])>,
}

impl Core {
    /// Whether a gradient has to wait for a copy.
    pub(super) fn is_held(&self, task: TaskId, turn: u64) -> bool {
        self.hold.as_ref().is_some_and(|most| most.turn(task) < turn)
    }

    /// The least updates that the weights can be had with.
    pub(super) fn earliest(&self) -> u64 {
        self.last.as_ref().map_or(self.standing.version, |last| last.standing.version)
    }

    /// Counts an update by one or several gradients.
    pub(super) fn count(&mut self, gradients: &[(TaskId, &Inbox)]) {
        self.standing.version += 1;
        for (task, inbox) in gradients {
            self.standing.examples += inbox.examples;
            let learned = Learned { turn: inbox.turn, mark: inbox.mark };
            self.standing.workers.insert(*task, learned);
        }
    }
}

/// A task that holds a part of the sparse weights.
#[derive(Debug)]
pub struct SparseServer {
    pub(super) seat: Arc<dyn Seat>,
    pub(super) options: SparseOptions,
    pub(super) part: Range<usize>,
    /// No other server has a part.
    alone: bool,
    /// As wide as the whole model; memory that is never touched costs nothing.
    pub(super) model: SparseLogistic,
    /// While a copy is made.
    pub(super) before: Mutex<Option<Before>>,
    core: Mutex<Core>,
    changed: Condvar,
    /// Everybody goes home.
    pub(super) closing: AtomicBool,
}

/// Why a thread stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interrupted;

impl SparseServer {
    /// The server of this seat.
    ///
    /// # Errors
    /// A seat that is no server's; settings out of range.
    pub fn new(seat: Arc<dyn Seat>, options: SparseOptions) -> Result<Self, StrategyError> {
        let servers = seat.servers();
        let index = servers.iter().position(|server| *server == seat.me());
        let index = index.ok_or_else(|| StrategyError::NoServer { task: seat.me() })?;
        let part = parts(options.length(), servers.len()).swap_remove(index);
        let model = SparseLogistic::new(options.bits, options.rule, options.settings);
        let model = model.map_err(|error| StrategyError::Option {
            option: "a setting of the model",
            found: error.to_string(),
            wanted: "in range".to_owned(),
        })?;
        let core = Core {
            lineage: 0,
            supplied: false,
            standing: Standing::default(),
            hold: None,
            applying: 0,
            presence: Vec::new(),
            given: Vec::new(),
            answered: Vec::new(),
            lost: None,
            stop: false,
            last: None,
        };
        Ok(Self {
            seat,
            options,
            part,
            alone: servers.len() == 1,
            model,
            before: Mutex::default(),
            core: Mutex::new(core),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
        })
    }

    /// Serves the workers of the seat's present generation until the run is `over`. The weights stay, so
    /// that it may be called again for the next generation.
    ///
    /// # Errors
    /// [`StrategyError::PeerLost`] when the seat's alarm is raised before.
    pub fn serve(
        &self,
        over: &dyn Fn() -> bool,
        scorer: Option<&dyn Score>,
    ) -> Result<(), StrategyError> {
        let workers = self.seat.workers();
        self.closing.store(false, Ordering::Release);
        {
            let mut core = self.locked();
            core.presence = vec![Presence::Expected; workers.len()];
            core.given = vec![false; workers.len()];
            core.answered = vec![Instant::now(); workers.len()];
            (core.supplied, core.lost, core.stop) = (false, None, false);
            core.hold = None;
        }
        let inboxes: Vec<Mutex<Inbox>> = workers.iter().map(|_| Mutex::default()).collect();
        let finished = std::thread::scope(|scope| {
            for (rank, task) in workers.iter().enumerate() {
                let desk = desk::Desk::new(self, rank, *task, &inboxes);
                let thread = std::thread::Builder::new().name(format!("serve-{task}"));
                // Without a thread nobody listens to the worker: its own deadline says so.
                let _ = thread.spawn_scoped(scope, || desk.run());
            }
            if let Some(chief) = workers.first().copied() {
                let thread = std::thread::Builder::new().name("serve-chief".to_owned());
                let inboxes = &inboxes;
                let oversee = move || desk::oversee(self, chief, scorer, inboxes);
                let _ = thread.spawn_scoped(scope, oversee);
            }
            loop {
                std::thread::sleep(LOOK);
                let finished = over();
                if finished || self.seat.alarm().load(Ordering::Acquire) {
                    self.closing.store(true, Ordering::Release);
                    self.changed.notify_all();
                    return finished;
                }
            }
        });
        if finished {
            return Ok(());
        }
        let core = self.locked();
        let missing = core.lost.or_else(|| self.seat.lost().last().copied());
        Err(StrategyError::PeerLost { task: missing, step: core.standing.version })
    }

    pub(super) fn locked(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits while `reason` holds.
    pub(super) fn wait_while<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        reason: impl Fn(&Core) -> bool,
    ) -> Result<MutexGuard<'a, Core>, Interrupted> {
        while reason(&core) {
            if self.closing.load(Ordering::Acquire) {
                return Err(Interrupted);
            }
            let woken = self.changed.wait_timeout(core, Duration::from_millis(50));
            core = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(core)
    }

    /// Workers that live, as far as anybody knows, and have given no gradient for `long`.
    pub(super) fn idle(&self, long: Duration) -> Vec<TaskId> {
        let core = self.locked();
        let owes = |rank: &usize| {
            let here = matches!(core.presence[*rank], Presence::Expected | Presence::Here);
            here && !core.given[*rank] && core.answered[*rank].elapsed() >= long
        };
        let workers = self.seat.workers();
        // The seat may be a generation ahead.
        (0..core.presence.len())
            .filter(owes)
            .filter_map(|rank| workers.get(rank).copied())
            .collect()
    }

    /// Takes over weights that have come from the chief.
    pub(super) fn begin(&self, lineage: u32, standing: Standing) {
        let mut core = self.locked();
        core.standing = standing;
        (core.lineage, core.supplied, core.last) = (lineage, true, None);
        drop(core);
        self.wake();
    }

    /// Keeps the weights it holds; in step as they were after `updates`, which the server said it can.
    pub(super) fn keep_after(&self, updates: u64) {
        let mut core = self.locked();
        let goes_back = !core.supplied && updates < core.standing.version;
        if let Some(last) = core.last.take_if(|_| goes_back) {
            let (table, first) = (self.model.table(), self.part.start);
            for (position, slot) in last.slots {
                table.set(first + position as usize, slot);
            }
            core.standing = last.standing;
        }
        core.supplied = true;
        drop(core);
        self.wake();
    }

    /// Forgets all weights.
    pub(super) fn clear(&self) {
        let table = self.model.table();
        let held: Vec<u32> =
            slots::touched(table, self.part.clone()).map(|(number, _)| number).collect();
        for number in held {
            table.set(self.part.start + number as usize, [0.0; 2]);
        }
    }

    /// In step: makes the update if everybody that is left has given a gradient.
    pub(super) fn settle(&self, core: &mut Core, workers: &[TaskId], inboxes: &[Mutex<Inbox>]) {
        let missing = core
            .presence
            .iter()
            .zip(&core.given)
            .any(|(presence, given)| *presence != Presence::Left && !given);
        let mut given = workers.iter().zip(&core.given).filter(|(_, given)| **given);
        // A copy waits for what another server has; the rest waits for the copy.
        let held = |task: TaskId| core.is_held(task, core.standing.turn(task) + 1);
        if missing || given.all(|(task, _)| held(*task)) {
            return;
        }
        let mut all: Vec<MutexGuard<'_, Inbox>> = Vec::with_capacity(inboxes.len());
        for inbox in
            inboxes.iter().zip(&core.given).filter_map(|(inbox, given)| given.then_some(inbox))
        {
            all.push(inbox.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let tasks =
            workers.iter().zip(&core.given).filter_map(|(task, given)| given.then_some(*task));
        let gradients: Vec<(TaskId, &Inbox)> =
            tasks.zip(all.iter().map(|inbox| &**inbox)).collect();
        let before = (!self.alone).then(|| core.standing.clone());
        core.count(&gradients);
        let examples: u64 = all.iter().map(|inbox| inbox.examples).sum();
        if all.iter().any(|inbox| inbox.is_dense) {
            add_dense(&mut all);
        } else {
            add_sparse(&mut all);
        }
        core.last = before.map(|standing| {
            let mut last = core.last.take().unwrap_or_default();
            last.standing = standing;
            self.note_slots(&all[0], &mut last.slots);
            last
        });
        self.apply(&all[0], self.options.scale(examples));
        core.given.fill(false);
        self.wake();
    }
}

/// Adds all gradients up into the first, in the order of the ranks.
fn add_dense(all: &mut [MutexGuard<'_, Inbox>]) {
    let Some((first, others)) = all.split_first_mut() else { return };
    for other in others {
        for (sum, grad) in first.dense.iter_mut().zip(&other.dense) {
            *sum += grad;
        }
    }
}

/// As [`add_dense`], for lists of ascending numbers.
fn add_sparse(all: &mut [MutexGuard<'_, Inbox>]) {
    let Some((first, others)) = all.split_first_mut() else { return };
    let (mut indices, mut grads) = (Vec::new(), Vec::new());
    for other in others {
        indices.clear();
        grads.clear();
        indices.reserve(first.indices.len() + other.indices.len());
        grads.reserve(first.indices.len() + other.indices.len());
        let (mut a, mut b) = (0, 0);
        // A number beyond all others stands for the end of a list.
        let at = |list: &[u32], place: usize| list.get(place).copied().unwrap_or(u32::MAX);
        while a < first.indices.len() || b < other.indices.len() {
            let (left, right) = (at(&first.indices, a), at(&other.indices, b));
            let (takes_left, takes_right) = (left <= right, right <= left);
            let mut sum = 0.0;
            if takes_left {
                sum += first.grads[a];
                a += 1;
            }
            if takes_right {
                sum += other.grads[b];
                b += 1;
            }
            indices.push(left.min(right));
            grads.push(sum);
        }
        std::mem::swap(&mut first.indices, &mut indices);
        std::mem::swap(&mut first.grads, &mut grads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_add_up_where_they_meet() {
        let inbox = |indices: &[u32], grads: &[f32]| {
            Mutex::new(Inbox {
                indices: indices.to_vec(),
                grads: grads.to_vec(),
                ..Inbox::default()
            })
        };
        let all = [
            inbox(&[1, 5, 9], &[1.0, 2.0, 3.0]),
            inbox(&[0, 5], &[4.0, 0.5]),
            inbox(&[], &[]),
            inbox(&[9, 10], &[1.0, 1.0]),
        ];
        let mut held: Vec<_> = all.iter().map(|inbox| inbox.lock().unwrap()).collect();
        add_sparse(&mut held);
        assert_eq!(held[0].indices, [0, 1, 5, 9, 10]);
        assert_eq!(held[0].grads, [4.0, 1.0, 2.5, 4.0, 1.0]);
    }
}
