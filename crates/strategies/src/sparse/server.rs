//! A task that holds a part of the sparse weights.

use super::{
    SparseOptions,
    copies::{Before, CATCH_UP},
    message::{self, Bookmark},
    oversight,
    session::Buffers,
    slots,
    standing::{Learned, Standing},
};
use crate::{
    StrategyError,
    server::{Core, Failure, Next, ParameterServer, Presence, Table, WorkerSession, own_part},
};
use paceline_cluster::JobMembership;
use paceline_models::sparse_logistic::{Size, SparseLogistic};
use paceline_wire::{Head, Link, TaskId};
use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError, RwLockWriteGuard, atomic::AtomicBool},
    time::{Duration, Instant},
};

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

/// A worker's gradient of the present step.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(super) indices: Vec<u32>,
    pub(super) grads: Vec<f32>,
    /// How large the values behind the gradient were; none where all are 1.
    pub(super) sizes: Vec<Size>,
    /// All of the part, where everything travels.
    pub(super) dense: Vec<f32>,
    pub(super) is_dense: bool,
    pub(super) examples: u64,
    pub(super) turn: u64,
    pub(super) mark: Bookmark,
}

/// What a server counts beside the weights, behind its lock.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Of the weights held; 0 for none.
    pub(super) lineage: u32,
    pub(super) standing: Standing,
    /// Updates that have begun and not ended.
    pub(super) applying: usize,
    /// Whose gradients of the present step are there.
    pub(super) given: Vec<bool>,
    /// When each was answered last.
    pub(super) answered: Vec<Instant>,
    /// From this update on, workers are told to stop.
    pub(super) stops_at: Option<u64>,
}

/// What the last update changed, in lockstep with other servers.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    pub(super) standing: Standing,
    /// Positions and what was there.
    slots: Vec<(u32, [f32; 2])>,
}

impl Ledger {
    /// A worker wants all to stop. In lockstep it said so with its gradient of the next update: no other worker hears of it
    /// before that update, or it would leave while its gradient is waited for, and the last update would lack its examples.
    pub(super) fn stop(&mut self, synchronous: bool) {
        let at = self.standing.version + u64::from(synchronous);
        self.stops_at = Some(self.stops_at.map_or(at, |earlier| earlier.min(at)));
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stops_at.is_some_and(|at| self.standing.version >= at)
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

impl Core<SparseTable> {
    /// Whether a gradient has to wait for a copy.
    pub(super) fn is_held(&self, task: TaskId, turn: u64) -> bool {
        let beyond = |most: &Standing| most.turn(task) < turn;
        self.hold.as_ref().is_some_and(|hold| hold.target.as_ref().is_none_or(beyond))
    }

    /// The least updates that the weights can be had with.
    pub(super) fn earliest(&self) -> u64 {
        self.undo.as_ref().map_or(&self.ledger.standing, |undo| &undo.standing).version
    }

    /// Workers that live, as far as is known, and have given no gradient for `long`.
    pub(super) fn idle(&self, long: Duration) -> Vec<TaskId> {
        let Ledger { given, answered, .. } = &self.ledger;
        let owes = |rank: &usize| {
            self.presence[*rank].is_there() && !given[*rank] && answered[*rank].elapsed() >= long
        };
        (0..self.presence.len()).filter(owes).map(|rank| self.tasks[rank]).collect()
    }
}

/// A part of the sparse weights.
#[derive(Debug)]
pub(crate) struct SparseTable {
    pub(super) options: SparseOptions,
    pub(super) part: Range<usize>,
    /// No other server has a part.
    alone: bool,
    /// As wide as the whole model; memory that is never touched costs nothing.
    pub(super) model: SparseLogistic,
    /// While a copy is made.
    pub(super) before: Mutex<Option<Before>>,
}

/// A task that holds a part of the sparse weights.
#[derive(Debug)]
pub struct SparseServer {
    inner: ParameterServer<SparseTable>,
}

impl SparseServer {
    /// The server of this membership.
    ///
    /// # Errors
    /// A membership that does not belong to a server; settings out of range.
    pub fn new(
        membership: Arc<dyn JobMembership>,
        options: SparseOptions,
    ) -> Result<Self, StrategyError> {
        let (_, part) = own_part(&*membership, options.length())?;
        let SparseOptions { bits, rule, settings, .. } = options;
        let model = SparseLogistic::holding(bits, rule, settings, part.clone());
        let model = model.map_err(|error| StrategyError::Option {
            option: "a setting of the model",
            found: error.to_string(),
            wanted: "in range".to_owned(),
        })?;
        let alone = membership.servers().len() == 1;
        let table = SparseTable { options, part, alone, model, before: Mutex::default() };
        Ok(Self { inner: ParameterServer::new(membership, table, Ledger::default()) })
    }

    /// Serves the workers of the membership's present generation until the run is `over`. The weights stay, so
    /// that it may be called again for the next generation.
    ///
    /// # Errors
    /// [`StrategyError::PeerLost`] when the membership's alarm is raised before.
    pub fn serve(
        &self,
        over: &dyn Fn() -> bool,
        scorer: Option<&dyn Score>,
    ) -> Result<(), StrategyError> {
        let server = &self.inner;
        let workers = server.membership.workers();
        let chief = workers.first().copied();
        let oversee = || {
            if let Some(chief) = chief {
                oversight::serve_chief(server, chief, scorer);
            }
        };
        if server.serve(workers, over, Some(("serve-chief", &oversee))) {
            return Ok(());
        }
        let step = server.locked().ledger.standing.version;
        Err(StrategyError::PeerLost { task: server.missing(), step })
    }
}

impl ParameterServer<SparseTable> {
    /// Takes over weights that have come from the chief.
    pub(super) fn begin(&self, lineage: u32, standing: Standing) {
        let mut core = self.locked();
        (core.ledger.standing, core.ledger.lineage) = (standing, lineage);
        (core.settled, core.undo) = (true, None);
        self.unlock(core);
    }
}

impl SparseTable {
    /// Forgets all weights.
    pub(super) fn clear(&self) {
        let table = self.model.table();
        let held: Vec<u32> =
            slots::touched(table, self.part.clone()).map(|(number, _)| number).collect();
        for number in held {
            table.set(self.part.start + number as usize, [0.0; 2]);
        }
    }

    /// Synchronous: makes the update if all workers that are left have given a gradient.
    pub(super) fn update_together(&self, core: &mut Core<Self>) {
        let given = &core.ledger.given;
        let missing = core
            .presence
            .iter()
            .zip(given)
            .any(|(presence, given)| *presence != Presence::Left && !given);
        let mut givers = core.tasks.iter().zip(given).filter(|(_, given)| **given);
        // A copy waits for what another server has; the rest waits for the copy.
        let held = |task: TaskId| core.is_held(task, core.ledger.standing.turn(task) + 1);
        if missing || givers.all(|(task, _)| held(*task)) {
            return;
        }
        let inboxes = Arc::clone(&core.inboxes);
        let mut all: Vec<RwLockWriteGuard<'_, Inbox>> = Vec::with_capacity(inboxes.len());
        for (inbox, given) in inboxes.iter().zip(given) {
            if *given {
                all.push(inbox.write().unwrap_or_else(PoisonError::into_inner));
            }
        }
        let tasks = core.tasks.iter().zip(given).filter_map(|(task, given)| given.then_some(*task));
        let gradients: Vec<(TaskId, &Inbox)> =
            tasks.zip(all.iter().map(|inbox| &**inbox)).collect();
        let before = (!self.alone).then(|| core.ledger.standing.clone());
        core.ledger.count(&gradients);
        let examples: u64 = all.iter().map(|inbox| inbox.examples).sum();
        if all.iter().any(|inbox| inbox.is_dense) {
            add_dense(&mut all);
        } else {
            add_sparse(&mut all);
        }
        core.undo = before.map(|standing| {
            let mut undo = core.undo.take().unwrap_or_default();
            undo.standing = standing;
            self.note_slots(&all[0], &mut undo.slots);
            undo
        });
        self.apply(&all[0], self.options.scale(examples));
        core.ledger.given.fill(false);
    }
}

impl Table for SparseTable {
    type Ledger = Ledger;
    type Inbox = Inbox;
    type Buffers = Buffers;
    type Progress = Standing;
    type Undo = Undo;

    const REFUSED: u8 = message::REFUSED;
    /// A worker that is lost may come back, and the others wait for it: the session decides how long.
    const LOSS_ENDS_WAITS: bool = false;

    fn patience(&self) -> Duration {
        self.options.patience
    }

    /// A worker whose files have ended waits for all others, however long theirs are.
    fn longest_wait(&self) -> Option<Duration> {
        None
    }

    fn begin(&self, core: &mut Core<Self>) {
        let workers = core.tasks.len();
        core.ledger.given = vec![false; workers];
        core.ledger.answered = vec![Instant::now(); workers];
        core.ledger.stops_at = None;
    }

    fn presence_changed(&self, core: &mut Core<Self>, rank: usize) {
        if let Presence::Gone(_) = core.presence[rank] {
            core.lost = Some(core.tasks[rank]);
        }
    }

    fn connected(_session: &mut WorkerSession<'_, Self>, _link: &mut Link) {}

    fn answer(
        session: &mut WorkerSession<'_, Self>,
        link: &mut Link,
        head: Head,
    ) -> Result<Next, Failure> {
        session.answer_to(link, head)
    }

    fn version(ledger: &Ledger) -> u64 {
        ledger.standing.version
    }

    fn roll_back(&self, ledger: &mut Ledger, undo: Undo) {
        let (table, first) = (self.model.table(), self.part.start);
        for (position, slot) in undo.slots {
            table.set(first + position as usize, slot);
        }
        ledger.standing = undo.standing;
    }

    fn progress(&self, ledger: &Ledger) -> Standing {
        ledger.standing.clone()
    }

    fn is_updating(ledger: &Ledger) -> bool {
        ledger.applying > 0
    }

    fn resume(&self, core: &mut Core<Self>, _target: Option<&Standing>) {
        self.update_together(core);
    }

    fn lags(&self, core: &Core<Self>, target: &Standing, since: Instant) -> bool {
        let lacks = core.ledger.standing.lacks(target).next().is_some();
        core.ledger.applying > 0 || (lacks && since.elapsed() < CATCH_UP)
    }

    fn go_without(&self, core: &mut Core<Self>, target: &Standing) -> bool {
        self.go_without(core, target)
    }
}

/// Adds all gradients up into the first, in the order of the ranks.
fn add_dense(all: &mut [RwLockWriteGuard<'_, Inbox>]) {
    measure_all(all);
    let Some((first, others)) = all.split_first_mut() else { return };
    for other in others {
        for (sum, grad) in first.dense.iter_mut().zip(&other.dense) {
            *sum += grad;
        }
        for (size, more) in first.sizes.iter_mut().zip(&other.sizes) {
            *size = size.join(*more);
        }
    }
}

/// Where one gradient has sizes, all have: values that are not told are 1.
fn measure_all(all: &mut [RwLockWriteGuard<'_, Inbox>]) {
    if all.iter().all(|inbox| inbox.sizes.is_empty()) {
        return;
    }
    for inbox in all.iter_mut().filter(|inbox| inbox.sizes.is_empty()) {
        let touched = |grad: &f32| if *grad == 0.0 { Size::default() } else { Size::ONE };
        inbox.sizes = if inbox.is_dense {
            inbox.dense.iter().map(touched).collect()
        } else {
            vec![Size::ONE; inbox.grads.len()]
        };
    }
}

/// As [`add_dense`], for lists of ascending numbers.
fn add_sparse(all: &mut [RwLockWriteGuard<'_, Inbox>]) {
    measure_all(all);
    let Some((first, others)) = all.split_first_mut() else { return };
    let (mut indices, mut grads, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for other in others {
        indices.clear();
        grads.clear();
        sizes.clear();
        indices.reserve(first.indices.len() + other.indices.len());
        grads.reserve(first.indices.len() + other.indices.len());
        let is_sized = !first.sizes.is_empty() || !other.sizes.is_empty();
        let (mut a, mut b) = (0, 0);
        // A number beyond all others stands for the end of a list.
        let at = |list: &[u32], place: usize| list.get(place).copied().unwrap_or(u32::MAX);
        while a < first.indices.len() || b < other.indices.len() {
            let (left, right) = (at(&first.indices, a), at(&other.indices, b));
            let (takes_left, takes_right) = (left <= right, right <= left);
            let (mut sum, mut size) = (0.0, Size::default());
            if takes_left {
                sum += first.grads[a];
                size = first.sizes.get(a).copied().unwrap_or_default();
                a += 1;
            }
            if takes_right {
                sum += other.grads[b];
                size = size.join(other.sizes.get(b).copied().unwrap_or_default());
                b += 1;
            }
            indices.push(left.min(right));
            grads.push(sum);
            if is_sized {
                sizes.push(size);
            }
        }
        std::mem::swap(&mut first.indices, &mut indices);
        std::mem::swap(&mut first.grads, &mut grads);
        std::mem::swap(&mut first.sizes, &mut sizes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::RwLock;

    #[test]
    fn gradients_add_up_where_they_meet() {
        let inbox = |indices: &[u32], grads: &[f32]| {
            RwLock::new(Inbox {
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
        let mut held: Vec<_> = all.iter().map(|inbox| inbox.write().unwrap()).collect();
        add_sparse(&mut held);
        assert_eq!(held[0].indices, [0, 1, 5, 9, 10]);
        assert_eq!(held[0].grads, [4.0, 1.0, 2.5, 4.0, 1.0]);
        assert_eq!(held[0].sizes, []);
    }

    #[test]
    fn sizes_join_where_gradients_meet_and_untold_ones_are_one() {
        for is_dense in [false, true] {
            let inbox = |numbers: &[u32], sizes: &[f32]| {
                let mut inbox = Inbox { is_dense, ..Inbox::default() };
                if is_dense {
                    inbox.dense = vec![0.0; 4];
                    inbox.sizes = vec![Size::default(); if sizes.is_empty() { 0 } else { 4 }];
                    for (at, number) in numbers.iter().enumerate() {
                        inbox.dense[*number as usize] = 1.0;
                        if let Some(size) = sizes.get(at) {
                            inbox.sizes[*number as usize] = Size::of(*size);
                        }
                    }
                } else {
                    (inbox.indices, inbox.grads) = (numbers.to_vec(), vec![1.0; numbers.len()]);
                    inbox.sizes = sizes.iter().map(|size| Size::of(*size)).collect();
                }
                RwLock::new(inbox)
            };
            let all = [inbox(&[1, 3], &[]), inbox(&[0, 1], &[8.0, 3.0]), inbox(&[1], &[2.0])];
            let mut held: Vec<_> = all.iter().map(|inbox| inbox.write().unwrap()).collect();
            if is_dense {
                add_dense(&mut held);
                assert_eq!(held[0].dense, [1.0, 3.0, 0.0, 1.0]);
                assert_eq!(held[0].sizes.remove(2), Size::default());
            } else {
                add_sparse(&mut held);
                assert_eq!(held[0].grads, [1.0, 3.0, 1.0]);
            }
            let [eight, two, one] = held[0].sizes[..] else { panic!("{:?}", held[0].sizes) };
            assert_eq!((eight, one), (Size::of(8.0), Size::ONE), "{is_dense}");
            assert_eq!((two.count(), two.mean()), (3, 2.0), "{is_dense}");
        }
    }
}
