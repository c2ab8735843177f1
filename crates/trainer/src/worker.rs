//! The step loop of one worker: a replica of this process, or a task of several.
//!
//! Where workers keep step, all of them run this same loop and come to the same decisions from the
//! same sums, so they meet in every collective call without being told. Where they do not, each does
//! the batches it is dealt, and only the chief evaluates and saves, from snapshots of one version.
//! The chief ([`Chief`]) is replica 0 or the task that everybody joined at: it writes checkpoints and
//! talks to whoever watches.

use crate::{
    Observer, Progress, TrainError,
    checkpoint_keeper::Keeper,
    course::{Course, Done, Origin},
    crew::Crew,
    evaluate::Evaluator,
    input::{Feed, TicketFeed, first_example},
    meter::StepTimes,
    plan::Prepared,
    poison,
};
use paceline_cluster::session::Beat;
use paceline_data::{Source, order::Position};
use paceline_models::{Model, ModelError, StepContext, StepLoss, kernels::Buffer, split::Together};
use paceline_runs::{Divergence, Event, Recorder, Step, figures::rate as rate_of};
use paceline_strategies::{Exchange, StepInfo, Ticket, Vote};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Points a curve should have; more cost time and nobody sees them.
const POINTS: u64 = 500;
/// A watched run shows a sign of life at least this often.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// One worker.
pub(crate) struct Worker<'a> {
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
    pub(crate) crew: Option<Crew<'a>>,
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

impl<'a> Worker<'a> {
    /// Trains until a stop rule is met, somebody asks to stop, or something fails for good.
    pub(crate) fn run(mut self) -> Result<Done, TrainError> {
        let mut course = Course::new(self.prepared, &self.origin);
        let mut grad = Buffer::zeroed(self.params.len());
        let mut outcome = self.align(&mut course).and_then(|()| self.train(&mut course, &mut grad));
        while let Err(error) = outcome {
            outcome = match self.recover(&mut course, error)? {
                // Lost somebody at the very end: what was left to do is done.
                _ if course.ended() => Ok(()),
                Ok(()) => self.train(&mut course, &mut grad),
                Err(again) => Err(again),
            };
        }
        let warnings = match (self.chief, &self.crew) {
            (Some(chief), Some(crew)) => {
                chief.keeper.warnings.iter().chain(&crew.log.remarks).cloned().collect()
            }
            (Some(chief), None) => chief.keeper.warnings,
            (None, _) => Vec::new(),
        };
        let lost = self.crew.map(|crew| crew.log.lost).unwrap_or_default();
        Ok(course.done(warnings, lost, self.begun.elapsed().as_secs_f64()))
    }

    /// All steps from here to the end, and the end itself.
    fn train(&mut self, course: &mut Course, grad: &mut Buffer) -> Result<(), TrainError> {
        let keeps_step = self.exchange.keeps_step();
        if keeps_step && self.crew.is_some() {
            self.agree(course)?;
        }
        // A loss to reach may have been reached already, and the first crossing needs a left end.
        if course.watch.is_some() && !course.checked && (keeps_step || self.chief.is_some()) {
            course.checked = true;
            let reached = if keeps_step {
                self.look(course, false)?
            } else {
                // The others are already at work and meet nobody.
                self.look_alone(course, (true, false, false))?
            };
            course.unscored = false;
            if reached {
                self.end(course, false)?;
            }
        }
        if keeps_step && std::mem::take(&mut course.unscored) {
            // Without a step nothing else would; workers that are not in lockstep score at the end anyway.
            self.look(course, true)?;
        }
        let total_steps = self.prepared.pace.total_steps.unwrap_or(u64::MAX);
        let report_every =
            (self.prepared.pace.total_steps.unwrap_or(50_000) / POINTS).clamp(1, 100);
        while course.ending.is_none() && course.step < total_steps {
            let began = Instant::now();
            let Some(ticket) = self.exchange.deal(course.step)? else { break };
            let (vote, batch, rate) = self.step(course, grad, ticket, began)?;
            if vote.poisoned || !vote.loss.loss_sum.is_finite() {
                return Err(TrainError::NotFinite {
                    step: course.step.saturating_sub(1),
                    cause: poison::cause(&self.prepared.layout, &self.params, grad),
                    rate,
                    epochs: self.prepared.pace.epochs(course.position),
                });
            }
            // Asynchronous workers by themselves would only be lost; the chief ends the run for all.
            let decides = keeps_step || self.chief.is_some();
            if let Some(found) = course.diverged.filter(|_| decides) {
                return Err(self.diverged(course, found, rate));
            }
            if vote.stop {
                // Either somebody asked for it, or the evaluator's loss was low enough.
                self.end(course, !course.reached)?;
            }
            let last = course.ending.is_some() || course.step >= total_steps;
            let boundary = course.passed(self.interval());
            if course.recent.steps >= report_every
                || last
                || boundary
                || course.reported.elapsed() >= SIGN_OF_LIFE
            {
                self.report(course, batch, rate);
            }
            course.reached |= self.hear(course, false);
            let chief = self.chief.as_mut();
            course.folder_gone |= chief.is_some_and(|chief| chief.keeper.is_folder_gone());
            if keeps_step {
                self.after_common_step(course, (boundary, last, vote.stop))?;
            } else if self.chief.is_some() {
                self.after_own_step(course, boundary)?;
            } else if boundary {
                course.end_stretch();
            }
        }
        if course.recent.steps > 0 {
            let (batch, rate) = self.prepared.pace.at(course.step, course.position);
            self.report(course, batch, rate);
        }
        self.finish(course)
    }

    /// All workers are here: evaluate, save.
    fn after_common_step(
        &mut self,
        course: &mut Course,
        (boundary, last, stopped): (bool, bool, bool),
    ) -> Result<(), TrainError> {
        if !stopped && (boundary || last) {
            if self.look(course, last)? {
                self.end(course, false)?;
            }
        } else if self.prepared.plan.spec.checkpoint_every.is_some() {
            let moment = self.moment(course.step, course);
            self.checkpoint(course, &moment)?;
        }
        Ok(())
    }

    /// The chief alone: evaluate, save, hear the others.
    fn after_own_step(&mut self, course: &mut Course, boundary: bool) -> Result<(), TrainError> {
        let save = course.save_due(self.prepared.plan.spec.checkpoint_every);
        let looked = (boundary || save) && self.look_alone(course, (boundary, save, false))?;
        if (looked || course.reached) && course.ending.is_none() {
            self.end(course, false)?;
        }
        Ok(())
    }

    /// The error of a loss that exploded. What was good before it stays on disk.
    pub(crate) fn diverged(&mut self, course: &Course, found: Divergence, rate: f32) -> TrainError {
        let good = self.chief.as_mut().map_or(course.saved, |chief| {
            chief.keeper.flush();
            let kept = chief.keeper.store.kept().unwrap_or_default();
            kept.iter().map(|kept| kept.step).max()
        });
        TrainError::Diverged { step: course.step, found, rate, good }
    }

    /// Stops, and makes the others stop where they would not by themselves.
    fn end(&mut self, course: &mut Course, cancelled: bool) -> Result<(), TrainError> {
        course.ending = Some(cancelled);
        Ok(self.exchange.stop()?)
    }

    /// Steps between two evaluations or, without evaluation, in an epoch.
    pub(crate) fn interval(&self) -> u64 {
        let plan = &self.prepared.plan;
        if plan.eval_every > 0 { plan.eval_every } else { plan.steps_per_epoch.max(1) }
    }

    /// One update: input, pull, forward and backward pass, push.
    fn step(
        &mut self,
        course: &mut Course,
        grad: &mut Buffer,
        ticket: Ticket,
        began: Instant,
    ) -> Result<(Vote, u64, f32), TrainError> {
        if ticket.batch != course.batch && matches!(self.input, Input::Shares(_)) {
            // The others were further than this worker knew: it is new, or the run was resumed.
            let position = self.prepared.pace.position_of(ticket.batch);
            course.jump(ticket.batch, ticket.batch, position);
            let (prepared, train) = (self.prepared, &self.sources.train);
            self.input = Input::new(prepared, train, &*self.exchange, course.step, position)?;
        }
        let Self { prepared, model, exchange, input, params, crew, .. } = self;
        let pace = &prepared.pace;
        let (rank, of) = ticket.share;
        let position = if ticket.batch == course.batch {
            course.position
        } else {
            pace.position_of(ticket.batch)
        };
        let (batch, rate) = pace.at(course.step, position);
        let (global, next) = pace.batches.next(position, batch);
        let begun = Instant::now();
        let reading = |since| crew.iter().for_each(|crew| crew.session.reading(since));
        reading(Some(begun));
        let examples = match input {
            Input::Shares(feed) => feed.next(batch)?,
            Input::Tickets(feed) => {
                let share = global.share(rank as u64, of as u64);
                let upcoming = exchange.upcoming().iter().map(|number| {
                    let position = pace.position_of(*number);
                    let (batch, _) = pace.at(course.step, position);
                    pace.batches.next(position, batch).0.share(rank as u64, of as u64)
                });
                feed.next(&share, upcoming)?
            }
        };
        let fed = Instant::now();
        reading(None);
        let info = StepInfo { step: course.step, rate, examples: global.len() };
        exchange.pull(info, &model.touched(examples), params)?;
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
        let stop = self.cancel.load(Ordering::Relaxed) || course.reached || course.folder_gone;
        let vote = Vote { loss, stop, poisoned: false };
        let pushed = exchange.push(vote, params, grad)?;
        if interrupted {
            // The exchange knows why and has said so; a step that was not finished must not count.
            return Err(ModelError::Interrupted.into());
        }
        let ended = Instant::now();
        // The exchange counts what it took from dealing to pushing.
        let input = nanoseconds(fed - begun);
        let elsewhere = pushed.exchange + pushed.wait + input;
        let times = StepTimes {
            input,
            compute: nanoseconds(ended - began).saturating_sub(elsewhere),
            exchange: pushed.exchange,
            wait: pushed.wait,
        };
        course.advance(&pushed, &loss, &times, (ticket.batch, next));
        course.size = batch;
        if let Some(crew) = &mut self.crew {
            let steps = course.total.steps + course.recent.steps;
            crew.session.progress(Beat {
                step: course.step,
                steps,
                busy_seconds: course.busy.as_secs_f64(),
                wait_seconds: course.waited.as_secs_f64(),
                step_seconds: course.stepped.as_secs_f64(),
            });
        }
        Ok((pushed.vote, batch, rate))
    }

    /// Says what the last few steps were like.
    fn report(&mut self, course: &mut Course, batch: u64, rate: f32) {
        let recent = course.take_recent();
        let phases = recent.phases();
        let seconds = phases.total();
        // Every task counts its own examples, so that those of all tasks add up; the first replica speaks for its process.
        let examples = if self.crew.is_some() { recent.own } else { recent.loss.examples };
        if let Some(recorder) = self.recorder {
            recorder.record(Event::Step(Step {
                step: course.step,
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
                step: course.step,
                planned: self.prepared.pace.total_steps,
                epochs: self.prepared.pace.epochs(course.position),
                loss: recent.mean_loss(),
                accuracy: recent.accuracy(),
                rate,
                examples_per_second: rate_of(recent.loss.examples, seconds),
            });
        }
    }
}

impl Input {
    /// What suits an exchange: shares in order where workers keep step, else tickets.
    pub(crate) fn new(
        prepared: &Prepared,
        train: &Arc<dyn Source>,
        exchange: &dyn Exchange,
        step: u64,
        position: Position,
    ) -> Result<Self, TrainError> {
        let plan = &prepared.plan;
        let seed = plan.spec.seed;
        if !exchange.keeps_step() {
            return Ok(Self::Tickets(TicketFeed::new(train, seed, plan.threads)?));
        }
        let (batch, _) = prepared.pace.at(step, position);
        let size = (batch, !plan.spec.grow_batch);
        let feed = Feed::new(train, seed, size, position, exchange.place(), plan.threads)?;
        Ok(Self::Shares(feed))
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
