//! The threads of a run: each reads, parses or learns, whichever there is to do.
//!
//! Reading is one at a time and in order; parsing needs no order; learning takes parcels in order, on one
//! thread at a time or, where that is allowed, on several at once. The first threads prefer to learn and
//! the others to parse, so that the weights stay in one core's cache; a thread that finds nothing of its
//! kind does the other. A fixed number of parcels circulates, which bounds memory whatever the source.

use crate::{
    TrainError,
    rows::{
        Source, Totals,
        source::{Parcel, RowsPlace},
    },
};
use paceline_batch::Batch;
use paceline_data::rows::Next;
use paceline_models::sparse_logistic::{Minibatch, SparseLogistic};
use paceline_strategies::Combine;
use std::{
    collections::BTreeMap,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a thread sleeps at most before it looks at the clock and at the wish to stop.
const NAP: Duration = Duration::from_millis(20);
/// The next parcel to learn from, when the run is to stop.
const NO_MORE: u64 = u64::MAX;

/// How the threads share the work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) threads: usize,
    /// Threads that may learn at once.
    pub(crate) learners: usize,
    /// Parcels that circulate.
    pub(crate) parcels: usize,
    pub(crate) batch_size: u64,
    pub(crate) combine: Combine,
}

/// What became of one parcel.
pub(crate) struct Learned<'a> {
    pub(crate) parcel: &'a Parcel,
    /// Progressive validation of its rows.
    pub(crate) totals: &'a Totals,
    pub(crate) seconds: f64,
}

/// What the keeper of the books wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    GoOn,
    /// A checkpoint as soon as no thread learns.
    Save,
    /// No more parcels.
    Stop,
}

/// Keeps the books of a run; called by one thread at a time.
pub(crate) trait Ledger: Send {
    /// A parcel was learned from.
    fn note(&mut self, learned: &Learned<'_>) -> Result<Wish, TrainError>;

    /// No thread learns right now, and everything up to `place` has been learned from.
    fn save(&mut self, place: RowsPlace);

    /// Time has passed.
    fn tick(&mut self) -> Result<(), TrainError>;

    /// No thread learns any more, and everything up to `place` has been learned from.
    fn end(&mut self, place: RowsPlace);
}

struct EngineState<L> {
    ledger: L,
    free: Vec<Parcel>,
    ready: BTreeMap<u64, Parcel>,
    reading: bool,
    parsing: usize,
    learning: usize,
    /// Number of the next parcel to learn from.
    next: u64,
    /// Where the last parcel taken for learning ends.
    place: RowsPlace,
    ended: bool,
    saving: bool,
    /// Ends the run at once.
    failed: Option<TrainError>,
    /// Ends the run when what was read before has been learned from.
    unreadable: Option<TrainError>,
}

impl<L: Ledger> EngineState<L> {
    fn tick(&mut self) {
        if let Err(error) = self.ledger.tick() {
            self.failed.get_or_insert(error);
        }
    }
}

struct Engine<'a, L> {
    state: Mutex<EngineState<L>>,
    changed: Condvar,
    source: Mutex<Source>,
    model: &'a SparseLogistic,
    shape: Shape,
    cancel: &'a AtomicBool,
}

/// Runs until the source ends, the ledger or the user wants to stop, or something fails. Gives the
/// ledger back.
pub(crate) fn run<L: Ledger>(
    source: Source,
    place: RowsPlace,
    model: &SparseLogistic,
    shape: Shape,
    cancel: &AtomicBool,
    ledger: L,
) -> (L, Result<(), TrainError>) {
    let free = (0..shape.parcels.max(1)).map(|_| Parcel::default()).collect();
    let engine = Engine {
        state: Mutex::new(EngineState {
            ledger,
            free,
            ready: BTreeMap::new(),
            reading: false,
            parsing: 0,
            learning: 0,
            next: 0,
            place,
            ended: false,
            saving: false,
            failed: None,
            unreadable: None,
        }),
        changed: Condvar::new(),
        source: Mutex::new(source),
        model,
        shape,
        cancel,
    };
    let mut trouble = None;
    let shared = &engine;
    std::thread::scope(|scope| {
        let mut helpers = Vec::new();
        for thread in 1..shape.threads {
            let name = format!("stream-{thread}");
            let spawned = std::thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, move || shared.work(thread));
            match spawned {
                Ok(handle) => helpers.push(handle),
                // The threads there are do the work.
                Err(error) => trouble = Some(TrainError::Thread(error)),
            }
        }
        shared.work(0);
        for helper in helpers {
            if helper.join().is_err() {
                trouble = Some(TrainError::Panicked);
            }
        }
    });
    let mut state = engine.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Several learners finish in any order; the last parcel taken is the one that counts.
    state.ledger.end(state.place);
    let panicked = trouble.filter(|error| matches!(error, TrainError::Panicked));
    let result = state.failed.or(state.unreadable).or(panicked).map_or(Ok(()), Err);
    (state.ledger, result)
}

/// What a thread does next.
enum Work {
    Learn(Parcel),
    Read(Parcel),
    Save,
    Wait,
    Leave,
}

impl<L: Ledger> Engine<'_, L> {
    fn lock(&self) -> MutexGuard<'_, EngineState<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until there is nothing left.
    fn work(&self, thread: usize) {
        // If a thread panics, the others must not wait for it.
        let guard = Guard { engine: self };
        let learns_first = thread < self.shape.learners.min(self.shape.threads.div_ceil(2));
        let mut learner = Learner::new(self.shape);
        loop {
            let mut state = self.lock();
            match self.choose(&mut state, learns_first) {
                Work::Leave => break,
                Work::Wait => {
                    let wait = self.changed.wait_timeout(state, NAP);
                    let mut state = wait.unwrap_or_else(PoisonError::into_inner).0;
                    if thread == 0 {
                        state.tick();
                    }
                }
                Work::Save => {
                    let place = state.place;
                    // Held while saving: learning pauses, reading and parsing finish what they have.
                    state.ledger.save(place);
                    state.saving = false;
                    drop(state);
                    self.changed.notify_all();
                }
                Work::Learn(parcel) => {
                    drop(state);
                    self.learn(&mut learner, parcel);
                }
                Work::Read(parcel) => {
                    drop(state);
                    self.read(parcel);
                }
            }
        }
        std::mem::forget(guard);
    }

    fn choose(&self, state: &mut EngineState<L>, learns_first: bool) -> Work {
        if state.failed.is_some() {
            return Work::Leave;
        }
        if self.cancel.load(Ordering::Relaxed) {
            state.ended = true; // what has been read is still learned from
        }
        if state.saving {
            return if state.learning == 0 { Work::Save } else { Work::Wait };
        }
        let parcels = state.ready.len() + state.parsing + usize::from(state.reading);
        if state.ended && parcels == 0 && state.learning == 0 {
            return Work::Leave;
        }
        let can_read = !state.ended && !state.reading && !state.free.is_empty();
        let due = state.ready.first_key_value().is_some_and(|(number, parcel)| {
            // A window that does not fit into memory is learned from early.
            let full = state.free.is_empty() || state.ended;
            *number == state.next && (full || parcel.release.is_none_or(|at| Instant::now() >= at))
        });
        let can_learn = due && state.learning < self.shape.learners;
        if can_learn
            && (learns_first || !can_read)
            && let Some((_, parcel)) = state.ready.pop_first()
        {
            state.next += 1;
            state.learning += 1;
            state.place = parcel.end;
            return Work::Learn(parcel);
        }
        if can_read && let Some(parcel) = state.free.pop() {
            state.reading = true;
            return Work::Read(parcel);
        }
        Work::Wait
    }

    fn read(&self, mut parcel: Parcel) {
        let next = self.source.lock().unwrap_or_else(PoisonError::into_inner).next(&mut parcel);
        let mut state = self.lock();
        state.reading = false;
        match next {
            Ok(Next::Block) => {
                state.parsing += 1;
                drop(state);
                self.changed.notify_all();
                parcel.parse();
                let mut state = self.lock();
                state.parsing -= 1;
                if state.next == NO_MORE {
                    state.free.push(parcel);
                } else {
                    state.ready.insert(parcel.number, parcel);
                }
            }
            Ok(Next::Idle) => {
                state.free.push(parcel);
                state.tick();
            }
            Ok(Next::End) => {
                state.free.push(parcel);
                state.ended = true;
            }
            Err(error) => {
                state.free.push(parcel);
                state.ended = true;
                state.unreadable.get_or_insert(error);
            }
        }
        self.changed.notify_all();
    }

    fn learn(&self, learner: &mut Learner, parcel: Parcel) {
        let begun = Instant::now();
        learner.learn(self.model, parcel.batch());
        let seconds = begun.elapsed().as_secs_f64();
        let learned = Learned { parcel: &parcel, totals: &learner.totals, seconds };
        let mut state = self.lock();
        state.learning -= 1;
        match state.ledger.note(&learned) {
            Ok(Wish::GoOn) => {}
            Ok(Wish::Save) => state.saving = true,
            Ok(Wish::Stop) => {
                state.ended = true;
                let left = std::mem::take(&mut state.ready);
                state.free.extend(left.into_values());
                state.next = NO_MORE;
                state.saving = true;
            }
            Err(error) => {
                state.failed.get_or_insert(error);
            }
        }
        state.free.push(parcel);
        drop(state);
        self.changed.notify_all();
    }
}

/// Ends the run for all threads if the thread that holds it panics.
struct Guard<'e, 'a, L: Ledger> {
    engine: &'e Engine<'a, L>,
}

impl<L: Ledger> Drop for Guard<'_, '_, L> {
    fn drop(&mut self) {
        self.engine.lock().failed.get_or_insert(TrainError::Panicked);
        self.engine.changed.notify_all();
    }
}

/// A thread's own memory for learning.
struct Learner {
    batch_size: usize,
    combine: Combine,
    logits: Vec<f32>,
    all: Vec<f32>,
    weights: Vec<f32>,
    minibatch: Minibatch,
    totals: Totals,
}

impl Learner {
    fn new(shape: Shape) -> Self {
        Self {
            batch_size: usize::try_from(shape.batch_size).unwrap_or(usize::MAX),
            combine: shape.combine,
            logits: Vec::new(),
            all: Vec::new(),
            weights: Vec::new(),
            minibatch: Minibatch::default(),
            totals: Totals::default(),
        }
    }

    /// Learns from rows; `totals` then hold how they were predicted before.
    fn learn(&mut self, model: &SparseLogistic, batch: &Batch) {
        self.totals.begin(model.loss());
        if self.batch_size == 1 {
            model.learn(batch, &mut self.logits);
            self.totals.add(&self.logits, &batch.labels);
            return;
        }
        // Batches do not span parcels, so that a checkpoint lies between two of them; the rows of a
        // parcel are shared evenly, into batches as near to the size asked for as that allows.
        let rows = batch.len();
        let count = match rows {
            0 => 0,
            _ => ((rows as f64 / self.batch_size as f64).round() as usize).max(1),
        };
        self.all.clear();
        for number in 0..count {
            let range = rows * number / count..rows * (number + 1) / count;
            let scale = self.combine.scale_of_sum(range.len() as u64);
            let Self { minibatch, weights, logits, .. } = self;
            minibatch.learn(model, batch, range, scale, weights, logits);
            self.all.extend_from_slice(&self.logits);
        }
        self.totals.add(&self.all, &batch.labels);
    }
}
