//! A worker's steps: pull the weights of a batch, compute, push the gradient with the next pull.

use super::{
    Task, Tasks,
    chief::Oversight,
    feed::{Feed, Origin, Portion},
};
use crate::{
    TrainError,
    error::with_causes,
    meter::seconds,
    recovery::Standstill,
    rows::{Control, RowsSpec, Totals, checkpoint, outcome},
    session_log::SessionLog,
};
use paceline_cluster::{JobMembership, session::Beat};
use paceline_runs::{
    Divergence, Event, LossGuard, Observed, PhaseTimes, Recorder, Step, figures::rate,
};
use paceline_strategies::{
    Traffic, find,
    sparse::{Answer, Bookmark, Push, SparseClient},
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// Seconds between two records of progress.
const RECORD_SECONDS: f64 = 0.1;
/// Stalenesses from here on are counted together.
const MOST_STALENESS: usize = 1024;

/// One worker.
pub(super) struct RowsWorker<'a> {
    pub(super) spec: &'a RowsSpec,
    pub(super) tasks: &'a Tasks,
    pub(super) task: &'a Task<'a>,
    pub(super) origin: Origin,
    pub(super) recorder: &'a Recorder,
    pub(super) control: &'a Control<'a>,
    /// The chief's care for the whole model.
    pub(super) oversight: Option<&'a Oversight<'a>>,
    pub(super) begun: Instant,
}

/// What a worker did so far.
#[derive(Debug, Default)]
pub(crate) struct LoopState {
    pub(crate) totals: Totals,
    pub(crate) iterations: u64,
    pub(crate) phases: PhaseTimes,
    pub(crate) traffic: Traffic,
    pub(crate) sparse_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) rejected: u64,
    pub(crate) staleness: Vec<u64>,
    /// Updates of the run.
    pub(crate) version: u64,
    /// Seconds from the start until its files had ended.
    pub(crate) finished: f64,
    /// What happened to other tasks.
    pub(crate) log: SessionLog,
    pub(crate) guard: LossGuard,
    recent: Totals,
    recent_phases: PhaseTimes,
    recent_steps: u64,
    /// Since when there are no steps because a task was lost.
    stands: Standstill,
}

/// What a worker holds between two steps.
#[derive(Default)]
struct Hands {
    client: Option<SparseClient>,
    feed: Option<Feed>,
    /// The batch whose weights were asked for.
    current: Option<Portion>,
    /// The one after it.
    next: Option<Portion>,
    /// The last batch that the servers are known to have learned from.
    applied: Option<Bookmark>,
    weights: Vec<f32>,
    logits: Vec<f32>,
}

impl RowsWorker<'_> {
    /// Learns from all files, or until a task wants to stop; again where a server has lost it before the chief has saved it.
    pub(super) fn run(&self, loop_state: &mut LoopState) -> Result<(), TrainError> {
        let mut hands = Hands::default();
        loop {
            let before = loop_state.iterations;
            let done = self.join(&mut hands, loop_state).and_then(|()| {
                self.learn(&mut hands, loop_state)?;
                if loop_state.finished == 0.0 || loop_state.iterations > before {
                    loop_state.finished = self.begun.elapsed().as_secs_f64();
                }
                let client = hands.client.as_mut().expect("joined above");
                loop_state.version = client.end()?;
                Ok(())
            });
            if let Some(client) = &hands.client {
                loop_state.traffic = client.traffic();
            }
            match done {
                Ok(()) if self.oversight.is_some() => break,
                Ok(()) => {
                    if self.task.session.wait_for_chief()?.is_none() {
                        break;
                    }
                }
                Err(error) if error.is_peer() => {
                    loop_state.stands.begin();
                    let next = self.task.session.regroup(error.peer(), &with_causes(&error))?;
                    if next.is_none() {
                        break; // every update is made and saved
                    }
                }
                Err(error) => return Err(error),
            }
        }
        loop_state.end_standstill();
        self.record(loop_state, &Answer::default());
        self.hear(loop_state);
        Ok(())
    }

    fn hear(&self, loop_state: &mut LoopState) {
        let LoopState { version, log, .. } = loop_state;
        self.task.inbox.record(self.recorder, *version, log);
    }

    /// Connects to the servers and finds the batch to continue with.
    fn join(&self, hands: &mut Hands, loop_state: &mut LoopState) -> Result<(), TrainError> {
        if let Some(oversight) = self.oversight {
            oversight.supply()?;
        }
        let welcome = match &mut hands.client {
            Some(client) => client.reconnect()?,
            None => {
                let membership = Arc::clone(self.task.session) as Arc<dyn JobMembership>;
                let strategy = find(&self.tasks.strategy)?.name;
                let options = self.tasks.options(self.spec)?;
                let (client, welcome) = SparseClient::connect(membership, options, strategy)?;
                hands.client = Some(client);
                welcome
            }
        };
        loop_state.version = welcome.version;
        if let (Some(sent), Some(feed)) = (&hands.current, &hands.feed)
            && welcome.mark == Some(sent.mark)
        {
            // Only the answer was lost.
            hands.applied = welcome.mark;
            let answer = Answer { version: welcome.version, ..Answer::default() };
            loop_state.count(sent, &hands.logits, &answer, PhaseTimes::default());
            hands.current =
                hands.next.take().map_or_else(|| self.read(feed), |next| Ok(Some(next)))?;
        } else if hands.feed.is_none() || welcome.mark != hands.applied {
            let feed = Feed::start(self.spec, &self.origin, welcome.mark)?;
            (hands.current, hands.next) = (self.read(&feed)?, None);
            (hands.feed, hands.applied) = (Some(feed), welcome.mark);
        }
        Ok(())
    }

    /// The next batch. If it takes very long to come, the chief says which task holds all others up.
    fn read(&self, feed: &Feed) -> Result<Option<Portion>, TrainError> {
        self.task.session.reading(Some(Instant::now()));
        let next = feed.next();
        self.task.session.reading(None);
        next
    }

    /// Steps until the files end or a task wants to stop.
    fn learn(&self, hands: &mut Hands, loop_state: &mut LoopState) -> Result<(), TrainError> {
        let Hands { client, feed, current, next, applied, weights, logits } = hands;
        let (Some(client), Some(feed)) = (client, feed) else { return Ok(()) };
        let Some(first) = current.as_ref() else { return Ok(()) };
        let begun = Instant::now();
        loop_state.end_standstill();
        loop_state.stands.step(begun);
        let answer = client.step(None, &first.minibatch.touched, weights, false)?;
        loop_state.spend(PhaseTimes {
            exchange: begun.elapsed().as_secs_f64() - seconds(answer.wait),
            wait: seconds(answer.wait),
            ..PhaseTimes::default()
        });
        loop_state.stands.step_made();
        let mut reported = Instant::now();
        let mut stop = answer.stop || self.is_done(answer.version);
        while let (Some(portion), false) = (current.as_mut(), stop) {
            let begun = Instant::now();
            loop_state.stands.step(begun);
            let all = 0..portion.batch.len();
            let measure = (self.spec.row_loss(), 1.0);
            portion.minibatch.gradient(&portion.batch, all, weights, measure, logits);
            let computed = Instant::now();
            if next.is_none() {
                *next = self.read(feed)?;
            }
            let fed = Instant::now();
            let wish = self.control.cancel.load(Ordering::Relaxed)
                || self.oversight.is_some_and(Oversight::wants_end);
            let push = Push {
                touched: &portion.minibatch.touched,
                grads: &portion.minibatch.grads,
                sizes: &portion.minibatch.sizes,
                examples: portion.batch.len() as u64,
                mark: portion.mark,
            };
            let pull = next.as_ref().map_or(&[][..], |next| &next.minibatch.touched);
            let answer = client.step(Some(push), pull, weights, wish)?;
            let phases = PhaseTimes {
                input: (fed - computed).as_secs_f64(),
                compute: (computed - begun).as_secs_f64(),
                exchange: seconds(answer.exchange),
                wait: seconds(answer.wait),
                ..PhaseTimes::default()
            };
            *applied = Some(portion.mark);
            let found = loop_state.count(portion, logits, &answer, phases);
            loop_state.stands.step_made();
            loop_state.traffic = client.traffic();
            if !loop_state.recent.loss.is_finite() {
                return Err(outcome::not_finite(self.spec, loop_state.totals.rows));
            }
            // Workers by themselves would only be lost; the chief ends the run for all.
            if let (Some(found), true) = (found, self.oversight.is_some()) {
                return Err(self.diverged(loop_state, found));
            }
            if let Some(learned) = std::mem::replace(current, next.take()) {
                feed.recycle(learned);
            }
            // The wish has come back with the update that it was sent with, or comes with the next.
            stop = answer.stop || self.is_done(answer.version);
            if let Some(oversight) = self.oversight {
                oversight.rows.store(answer.examples, Ordering::Relaxed);
                let micros = (1e6 * loop_state.phases.stepping()) as u64;
                oversight.step_micros.store(micros, Ordering::Relaxed);
                oversight.suspect.store(loop_state.guard.is_suspect(), Ordering::Relaxed);
            }
            if reported.elapsed().as_secs_f64() >= RECORD_SECONDS {
                reported = Instant::now();
                self.record(loop_state, &answer);
                self.hear(loop_state);
            }
        }
        Ok(())
    }

    fn diverged(&self, loop_state: &LoopState, found: Divergence) -> TrainError {
        let good = checkpoint::latest_step(self.task.run);
        outcome::diverged(self.spec, loop_state.totals.rows, found, good)
    }

    fn is_done(&self, version: u64) -> bool {
        self.tasks.steps.is_some_and(|steps| version >= steps)
    }

    /// Writes down what happened since the last record, and tells the chief how far this worker is.
    fn record(&self, loop_state: &mut LoopState, answer: &Answer) {
        let LoopState { phases, iterations, .. } = *loop_state;
        self.task.session.progress(Beat {
            step: loop_state.version,
            steps: iterations,
            busy_seconds: phases.own(),
            wait_seconds: phases.wait,
            step_seconds: phases.stepping(),
        });
        // Where no step followed a loss, what it cost is told all the same.
        if loop_state.recent.rows == 0 && loop_state.recent_phases.recovery == 0.0 {
            return;
        }
        let metrics = loop_state.recent.metrics();
        let recent = std::mem::take(&mut loop_state.recent_phases);
        self.recorder.record(Event::Step(Step {
            step: loop_state.version,
            steps: std::mem::take(&mut loop_state.recent_steps),
            examples: loop_state.recent.rows,
            seconds: recent.total(),
            loss: metrics.loss,
            accuracy: metrics.accuracy,
            learning_rate: f64::from(self.spec.learning_rate),
            global_batch: self.spec.batch_size,
            phases: recent,
        }));
        if self.oversight.is_some() && loop_state.recent.rows > 0 {
            let speed = rate(loop_state.recent.rows, recent.total());
            let observer = self.control.observer;
            observer.progressed(&metrics, answer.examples, loop_state.bytes, speed);
        }
        loop_state.recent.clear();
    }
}

impl LoopState {
    /// Before the first row.
    pub(super) fn new(spec: &RowsSpec) -> Self {
        let kind = spec.row_loss();
        let (totals, recent) = (Totals::of(kind), Totals::of(kind));
        Self { totals, recent, ..Self::default() }
    }

    /// Training goes on, or has ended: time without steps until now becomes part of it.
    fn end_standstill(&mut self) {
        let recovery = self.stands.end();
        self.spend(PhaseTimes { recovery, ..PhaseTimes::default() });
    }

    fn spend(&mut self, phases: PhaseTimes) {
        self.phases += phases;
        self.recent_phases += phases;
    }

    /// Takes a finished step into account; says whether the loss has exploded for good.
    fn count(
        &mut self,
        portion: &Portion,
        logits: &[f32],
        answer: &Answer,
        phases: PhaseTimes,
    ) -> Option<Divergence> {
        self.spend(phases);
        self.iterations += 1;
        self.recent_steps += 1;
        let (loss, correct) = (self.totals.loss, self.totals.correct);
        self.recent.add(logits, &portion.batch.labels);
        self.totals.add(logits, &portion.batch.labels);
        self.guard.set_positive(self.totals.positive as f64 / self.totals.rows.max(1) as f64);
        let found = self.guard.observe(&Observed {
            loss_sum: self.totals.loss - loss,
            correct: self.totals.correct - correct,
            examples: portion.batch.len() as u64,
        });
        self.version = answer.version;
        self.sparse_bytes += answer.sparse_bytes;
        (self.bytes, self.rejected) = (portion.bytes, portion.rejected);
        let place = usize::try_from(answer.staleness).unwrap_or(usize::MAX).min(MOST_STALENESS);
        if self.staleness.len() <= place {
            self.staleness.resize(place + 1, 0);
        }
        self.staleness[place] += 1;
        found
    }
}
