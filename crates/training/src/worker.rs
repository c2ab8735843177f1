//! The step loop of one worker: a replica of this process, or a task of several.
//!
//! Where workers are in lockstep, all of them run this same loop and come to the same decisions from the
//! same sums, so they meet in every collective call without being told. Where they do not, each does
//! the batches it is dealt, and only the chief evaluates and saves, from snapshots of one version.
//! The chief ([`Chief`]) is replica 0 or the task that all others join at: it writes checkpoints and
//! talks to the observer.

use crate::{
    Observer, Progress, TrainError,
    checkpoint_keeper::Keeper,
    error::Point,
    evaluate::Evaluator,
    input::{Feed, TicketFeed, first_example},
    loop_state::{Done, LoopState, Origin},
    meter::seconds,
    nonfinite,
    peers::Peers,
    plan::{ExamplesPlan, Prepared},
};
use paceline_cluster::session::Beat;
use paceline_data::{Source, order::Position};
use paceline_models::{Model, ModelError, StepContext, StepLoss, kernels::Buffer, split::Together};
use paceline_runs::{Divergence, Event, PhaseTimes, Recorder, Step, figures::rate as rate_of};
use paceline_strategies::{Exchange, StepInfo, StepReport, Ticket};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Points a curve should have; more cost time and cannot be told apart.
const POINTS: u64 = 500;
/// A watched run shows a sign of life at least this often.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// One worker.
pub(crate) struct ExamplesWorker<'a> {
    pub(crate) prepared: &'a Prepared,
    pub(crate) model: Box<dyn Model>,
    pub(crate) exchange: Box<dyn Exchange>,
    /// Training examples, and held-out ones where there are any.
    pub(crate) sources: Sources,
    pub(crate) input: Input,
    pub(crate) evaluator: Option<Evaluator>,
    pub(crate) params: Buffer,
    pub(crate) origin: Origin,
    pub(crate) cancel: &'a AtomicBool,
    /// When training began, for all replicas.
    pub(crate) begun: Instant,
    /// Where this task's steps are written; replicas beside the first have none.
    pub(crate) recorder: Option<&'a Recorder>,
    pub(crate) chief: Option<Chief<'a>>,
    /// The other tasks, where there are any.
    pub(crate) peers: Option<Peers<'a>>,
    /// Where the chief leaves what was done before something failed.
    pub(crate) cut_short: &'a Mutex<Option<Done>>,
}

/// What a worker reads from.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) train: Arc<dyn Source>,
    pub(crate) test: Option<Arc<dyn Source>>,
}

/// How a worker gets its batches.
pub(crate) enum Input {
    /// Its share of every global batch, one after the other.
    Shares(Feed),
    /// The batches it is dealt.
    Tickets(TicketFeed),
}

/// What only the chief does.
pub(crate) struct Chief<'a> {
    pub(crate) observer: &'a dyn Observer,
    pub(crate) keeper: Keeper<'a>,
}

impl<'a> ExamplesWorker<'a> {
    /// Trains until a stop rule is met, a stop is asked for, or something fails for good.
    pub(crate) fn run(mut self) -> Result<Done, TrainError> {
        let mut loop_state = LoopState::new(self.prepared, &self.origin);
        if let Err(error) = self.train_to_the_end(&mut loop_state) {
            if self.chief.is_some() {
                let lost = self.peers.map(|peers| peers.log.lost).unwrap_or_default();
                let done = loop_state.done(Vec::new(), lost, self.begun.elapsed().as_secs_f64());
                *self.cut_short.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            }
            return Err(error);
        }
        let recovery = loop_state.stands.end();
        loop_state.recent.phases.recovery += recovery;
        if recovery > 0.0 {
            // All steps were made; what the last loss cost would be in no record.
            self.report_recovery(&mut loop_state);
        }
        let finished = self.begun.elapsed().as_secs_f64();
        let own_score = self.score_own(&loop_state)?;
        let mut warnings: Vec<String> = match (self.chief, &self.peers) {
            (Some(chief), Some(peers)) => {
                chief.keeper.warnings.iter().chain(&peers.log.remarks).cloned().collect()
            }
            (Some(mut chief), None) => std::mem::take(&mut chief.keeper.warnings),
            (None, _) => Vec::new(),
        };
        warnings.extend(loop_state.losses.idle_words());
        let lost = self.peers.map(|peers| peers.log.lost).unwrap_or_default();
        let mut done = loop_state.done(warnings, lost, finished);
        done.own_score = own_score;
        Ok(done)
    }

    /// All steps, through every loss of another task that the run survives.
    fn train_to_the_end(&mut self, loop_state: &mut LoopState) -> Result<(), TrainError> {
        let mut grad = Buffer::zeroed(self.params.len());
        let mut outcome = self.align(loop_state).and_then(|()| self.train(loop_state, &mut grad));
        while let Err(error) = outcome {
            loop_state.stands.begin();
            outcome = match self.recover(loop_state, error)? {
                // Lost a task at the very end: what was left to do is done.
                _ if loop_state.ended() => Ok(()),
                Ok(()) => self.train(loop_state, &mut grad),
                Err(again) => Err(again),
            };
        }
        Ok(())
    }

    /// All steps from here to the end, and the end itself.
    fn train(&mut self, loop_state: &mut LoopState, grad: &mut Buffer) -> Result<(), TrainError> {
        let in_lockstep = self.exchange.in_lockstep();
        if in_lockstep && self.peers.is_some() {
            self.agree(loop_state)?;
        }
        // A loss to reach may have been reached already, and the first crossing needs a left end.
        if loop_state.losses.has_target()
            && !loop_state.checked
            && (in_lockstep || self.chief.is_some())
        {
            loop_state.checked = true;
            let reached = if in_lockstep {
                self.evaluate_and_checkpoint(loop_state, false)?
            } else {
                // The others are already at work and do not meet.
                self.evaluate_and_checkpoint_alone(loop_state, (true, false, false))?
            };
            loop_state.unscored = false;
            if reached {
                self.end(loop_state, false)?;
            }
        }
        if in_lockstep && std::mem::take(&mut loop_state.unscored) {
            // Without a step nothing else would; workers that are not in lockstep score at the end anyway.
            self.evaluate_and_checkpoint(loop_state, true)?;
        }
        let total_steps = self.prepared.pace.total_steps.unwrap_or(u64::MAX);
        let report_every =
            (self.prepared.pace.total_steps.unwrap_or(50_000) / POINTS).clamp(1, 100);
        while loop_state.ending.is_none() && loop_state.step < total_steps {
            let began = Instant::now();
            loop_state.recent.phases.recovery += loop_state.stands.end();
            loop_state.stands.step(began);
            let Some(ticket) = self.exchange.deal(loop_state.step)? else { break };
            let (step_report, batch, rate) = self.step(loop_state, grad, ticket, began)?;
            loop_state.stands.step_made();
            if step_report.nonfinite || !step_report.loss.loss_sum.is_finite() {
                return Err(TrainError::NotFinite {
                    at: Point::Step(loop_state.step.saturating_sub(1)),
                    cause: nonfinite::cause(&self.prepared.layout, &self.params, grad),
                    rate,
                    epochs: Some(self.prepared.pace.epochs(loop_state.position)),
                });
            }
            // Asynchronous workers by themselves would only be lost; the chief ends the run for all.
            let decides = in_lockstep || self.chief.is_some();
            if let Some(found) = loop_state.diverged.filter(|_| decides) {
                return Err(self.diverged(loop_state, found, rate));
            }
            if step_report.stop {
                // Either it was asked for, or the evaluator's loss was low enough.
                self.end(loop_state, !loop_state.reached)?;
            }
            let last = loop_state.ending.is_some() || loop_state.step >= total_steps;
            let boundary = loop_state.passed(self.interval());
            if loop_state.recent.steps >= report_every
                || last
                || boundary
                || loop_state.reported.elapsed() >= SIGN_OF_LIFE
            {
                self.report(loop_state, batch, rate);
            }
            loop_state.reached |= self.hear(loop_state, false);
            let chief = self.chief.as_mut();
            loop_state.folder_gone |= chief.is_some_and(|chief| chief.keeper.is_folder_gone());
            if in_lockstep {
                self.after_common_step(loop_state, (boundary, last, step_report.stop))?;
            } else if self.chief.is_some() {
                self.after_own_step(loop_state, boundary)?;
            } else if boundary {
                loop_state.end_stretch();
            }
        }
        if loop_state.recent.steps > 0 {
            let (batch, rate) = self.prepared.pace.at(loop_state.step, loop_state.position);
            self.report(loop_state, batch, rate);
        }
        self.finish(loop_state)
    }

    /// All workers are here: evaluate, save.
    fn after_common_step(
        &mut self,
        loop_state: &mut LoopState,
        (boundary, last, stopped): (bool, bool, bool),
    ) -> Result<(), TrainError> {
        if !stopped && (boundary || last) {
            if self.evaluate_and_checkpoint(loop_state, last)? {
                self.end(loop_state, false)?;
            }
        } else if self.prepared.plan.spec.checkpoint_every.is_some() {
            let moment = self.moment(loop_state.step, loop_state);
            self.checkpoint(loop_state, &moment)?;
        }
        Ok(())
    }

    /// The chief alone: evaluate, save, hear the others.
    fn after_own_step(
        &mut self,
        loop_state: &mut LoopState,
        boundary: bool,
    ) -> Result<(), TrainError> {
        let save = loop_state.save_due(self.prepared.plan.spec.checkpoint_every);
        let looked = (boundary || save)
            && self.evaluate_and_checkpoint_alone(loop_state, (boundary, save, false))?;
        if (looked || loop_state.reached) && loop_state.ending.is_none() {
            self.end(loop_state, false)?;
        }
        Ok(())
    }

    /// The error of a loss that exploded. What was good before it stays on disk.
    pub(crate) fn diverged(
        &mut self,
        loop_state: &LoopState,
        found: Divergence,
        rate: f32,
    ) -> TrainError {
        let good = self.chief.as_mut().map_or(loop_state.saved, |chief| {
            chief.keeper.flush();
            let kept = chief.keeper.store.kept().unwrap_or_default();
            kept.iter().map(|kept| kept.step).max()
        });
        TrainError::Diverged { at: Point::Step(loop_state.step), found, rate, good }
    }

    /// Stops, and makes the others stop where they would not by themselves.
    fn end(&mut self, loop_state: &mut LoopState, cancelled: bool) -> Result<(), TrainError> {
        loop_state.ending = Some(cancelled);
        Ok(self.exchange.stop()?)
    }

    /// Steps between two evaluations or, without evaluation, in an epoch.
    pub(crate) fn interval(&self) -> u64 {
        let plan = &self.prepared.plan;
        let ExamplesPlan { eval_every, steps_per_epoch, .. } = plan.details;
        if eval_every > 0 { eval_every } else { steps_per_epoch.max(1) }
    }

    /// One update: input, pull, forward and backward pass, push.
    fn step(
        &mut self,
        loop_state: &mut LoopState,
        grad: &mut Buffer,
        ticket: Ticket,
        began: Instant,
    ) -> Result<(StepReport, u64, f32), TrainError> {
        if ticket.batch != loop_state.batch && matches!(self.input, Input::Shares(_)) {
            // The others were further than this worker knew: it is new, or the run was resumed.
            let position = self.prepared.pace.position_of(ticket.batch);
            loop_state.jump(ticket.batch, ticket.batch, position);
            let (prepared, train) = (self.prepared, &self.sources.train);
            self.input = Input::new(prepared, train, &*self.exchange, loop_state.step, position)?;
        }
        let Self { prepared, model, exchange, input, params, peers, .. } = self;
        if let Some(step) = prepared.unfreeze_at {
            // Both ways: a run that lost its servers goes back.
            model.set_head_only(loop_state.step < step);
        }
        let pace = &prepared.pace;
        let (rank, of) = ticket.share;
        let position = if ticket.batch == loop_state.batch {
            loop_state.position
        } else {
            pace.position_of(ticket.batch)
        };
        let (batch, rate) = pace.at(loop_state.step, position);
        let (global, next) = pace.batches.next(position, batch);
        let begun = Instant::now();
        let reading = |since| peers.iter().for_each(|peers| peers.session.reading(since));
        reading(Some(begun));
        let examples = match input {
            Input::Shares(feed) => feed.next(batch)?,
            Input::Tickets(feed) => {
                let share = global.share(rank as u64, of as u64);
                let upcoming = exchange.upcoming().iter().map(|number| {
                    let position = pace.position_of(*number);
                    let (batch, _) = pace.at(loop_state.step, position);
                    pace.batches.next(position, batch).0.share(rank as u64, of as u64)
                });
                feed.next(&share, upcoming)?
            }
        };
        let fed = Instant::now();
        reading(None);
        let info = StepInfo { step: loop_state.step, rate, examples: global.len() };
        exchange.pull(info, params)?;
        let context = StepContext {
            seed: prepared.plan.spec.seed,
            step: ticket.batch,
            first_example: first_example(&global, rank, of),
            scale: 1.0 / global.len() as f32,
            keeps_gradient: exchange.keeps_gradient(),
        };
        let mut interrupted = false;
        let loss = if let Some(peers) = exchange.peers() {
            let counts = |worker| global.share(worker as u64, of as u64).len() as usize;
            let counts: Vec<usize> = (0..of).map(counts).collect();
            let mut together = Together { place: (rank, of), examples: &counts, peers };
            match model.loss_and_grad_together(params, examples, &context, grad, &mut together) {
                Err(ModelError::Interrupted) => {
                    interrupted = true;
                    StepLoss::default()
                }
                done => done?,
            }
        } else if examples.is_empty() {
            // The last batch of an epoch can be smaller than the number of replicas.
            grad.fill(0.0);
            StepLoss::default()
        } else {
            model.loss_and_grad(params, examples, &context, grad, &mut |range, params, grad| {
                exchange.ready(range, params, grad);
            })?
        };
        let stop =
            self.cancel.load(Ordering::Relaxed) || loop_state.reached || loop_state.folder_gone;
        let step_report = StepReport { loss, stop, nonfinite: false };
        let pushed = exchange.push(step_report, params, grad)?;
        if interrupted {
            // The exchange knows why and has said so; a step that was not finished must not count.
            return Err(ModelError::Interrupted.into());
        }
        let ended = Instant::now();
        // The exchange counts what it took from dealing to pushing.
        let input = (fed - begun).as_secs_f64();
        let (exchange, wait) = (seconds(pushed.exchange), seconds(pushed.wait));
        let compute = ((ended - began).as_secs_f64() - exchange - wait - input).max(0.0);
        let phases = PhaseTimes { input, compute, exchange, wait, ..PhaseTimes::default() };
        loop_state.advance(&pushed, &loss, phases, (ticket.batch, next));
        loop_state.size = batch;
        if let Some(peers) = &mut self.peers {
            let steps = loop_state.total.steps + loop_state.recent.steps;
            peers.session.progress(Beat {
                step: loop_state.step,
                steps,
                busy_seconds: loop_state.spent.own(),
                wait_seconds: loop_state.spent.wait,
                step_seconds: loop_state.spent.total(),
            });
        }
        Ok((pushed.step_report, batch, rate))
    }

    /// Says that time went by without steps, where no step follows that would.
    fn report_recovery(&self, loop_state: &mut LoopState) {
        let recent = loop_state.take_recent();
        if let Some(recorder) = self.recorder {
            recorder.record(Event::Step(Step {
                step: loop_state.step,
                seconds: recent.phases.total(),
                loss: f64::NAN,
                accuracy: f64::NAN,
                phases: recent.phases,
                ..Step::default()
            }));
        }
    }

    /// Says what the last few steps were like.
    fn report(&mut self, loop_state: &mut LoopState, batch: u64, rate: f32) {
        let recent = loop_state.take_recent();
        let phases = recent.phases;
        let seconds = phases.total();
        // Every task counts its own examples, so that those of all tasks add up; the first replica speaks for its process.
        let examples = if self.peers.is_some() { recent.own } else { recent.loss.examples };
        if let Some(recorder) = self.recorder {
            recorder.record(Event::Step(Step {
                step: loop_state.step,
                steps: recent.steps,
                examples,
                seconds,
                loss: recent.mean_loss(),
                accuracy: recent.accuracy(),
                learning_rate: f64::from(rate),
                global_batch: batch,
                phases,
            }));
        }
        if let Some(chief) = &self.chief {
            chief.observer.progressed(&Progress {
                step: loop_state.step,
                planned: self.prepared.pace.total_steps,
                epochs: self.prepared.pace.epochs(loop_state.position),
                loss: recent.mean_loss(),
                accuracy: recent.accuracy(),
                rate,
                examples_per_second: rate_of(recent.loss.examples, seconds),
            });
        }
    }
}

impl Input {
    /// What suits an exchange: shares in order where workers are in lockstep, else tickets.
    pub(crate) fn new(
        prepared: &Prepared,
        train: &Arc<dyn Source>,
        exchange: &dyn Exchange,
        step: u64,
        position: Position,
    ) -> Result<Self, TrainError> {
        let plan = &prepared.plan;
        let chance = (plan.spec.seed, plan.spec.augment);
        if !exchange.in_lockstep() {
            return Ok(Self::Tickets(TicketFeed::new(train, chance, plan.threads)?));
        }
        let (batch, _) = prepared.pace.at(step, position);
        let size = (batch, !plan.spec.grow_batch);
        let feed = Feed::new(train, chance, size, position, exchange.place(), plan.threads)?;
        Ok(Self::Shares(feed))
    }
}
