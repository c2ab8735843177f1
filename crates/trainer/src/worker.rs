//! The step loop of one replica.
//!
//! All replicas run this same loop and come to the same decisions from the same sums, so they meet
//! in every collective call without being told. Only replica 0, the chief, has a [`Chief`]: it
//! writes events and checkpoints and talks to whoever watches.

use crate::{
    Observer, Progress, TrainError,
    checkpoint::{self, Action, Meta, Moment},
    checkpoint_keeper::Keeper,
    evaluate::{Evaluated, Evaluator},
    input::{Feed, first_example},
    meter::{Meter, StepTimes},
    plan::Prepared,
    poison,
    stop::{Check, LossWatch},
};
use paceline_data::order::Position;
use paceline_models::{Model, StepContext, StepLoss, kernels::Buffer};
use paceline_runs::{Evaluation, Event, Reached, Recorder, Step, tensorboard::Histogram};
use paceline_strategies::{Exchange, Snapshot, StepInfo, Vote};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Points a curve should have; more cost time and nobody sees them.
const POINTS: u64 = 500;
/// A watched run shows a sign of life at least this often.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// A state up to this size is copied rather than written when it is the best so far.
const LIGHT_FLOATS: usize = 16 << 20;

/// Where a run begins, or goes on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Origin {
    pub(crate) step: u64,
    pub(crate) position: Position,
    pub(crate) examples: u64,
    /// Seconds of training before this process.
    pub(crate) seconds: f64,
    /// Lowest test loss so far.
    pub(crate) best: Option<f64>,
}

/// One replica.
pub(crate) struct Worker<'a> {
    pub(crate) prepared: &'a Prepared,
    pub(crate) model: Box<dyn Model>,
    pub(crate) exchange: Box<dyn Exchange>,
    pub(crate) feed: Feed,
    pub(crate) evaluator: Option<Evaluator>,
    pub(crate) params: Buffer,
    pub(crate) origin: Origin,
    pub(crate) cancel: &'a AtomicBool,
    /// When training began, for all replicas.
    pub(crate) begun: Instant,
    pub(crate) chief: Option<Chief<'a>>,
}

/// What only replica 0 does.
pub(crate) struct Chief<'a> {
    pub(crate) recorder: &'a Recorder,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) keeper: Keeper<'a>,
}

/// How a replica ended.
pub(crate) struct Done {
    pub(crate) step: u64,
    /// Examples this replica worked on.
    pub(crate) own_examples: u64,
    pub(crate) batch: u64,
    /// Sums over all its steps.
    pub(crate) total: Meter,
    pub(crate) train_loss: f64,
    pub(crate) evaluated: Option<Evaluated>,
    pub(crate) reached: Option<Reached>,
    pub(crate) cancelled: bool,
    pub(crate) warnings: Vec<String>,
}

/// Where the loop stands; the same in every replica.
struct Course {
    step: u64,
    position: Position,
    examples: u64,
    best: f64,
    watch: Option<LossWatch>,
    evaluated: Option<(u64, Evaluated)>,
    saved: Option<u64>,
    /// Sums since the last event, since the last boundary, and over all steps.
    recent: Meter,
    stretch: Meter,
    total: Meter,
    own_examples: u64,
    reported: Instant,
    /// Mean training loss of the last full stretch between two boundaries.
    train_loss: f64,
}

impl Worker<'_> {
    /// Trains until a stop rule is met, somebody asks to stop, or something fails.
    pub(crate) fn run(mut self) -> Result<Done, TrainError> {
        let prepared = self.prepared;
        let plan = &prepared.plan;
        let total_steps = prepared.pace.total_steps.unwrap_or(u64::MAX);
        let report_every = (prepared.pace.total_steps.unwrap_or(50_000) / POINTS).clamp(1, 100);
        let mut course = Course {
            step: self.origin.step,
            position: self.origin.position,
            examples: self.origin.examples,
            best: self.origin.best.unwrap_or(f64::INFINITY),
            watch: plan.spec.stop.until_loss.map(LossWatch::new),
            evaluated: None,
            saved: (self.origin.step > 0).then_some(self.origin.step),
            recent: Meter::default(),
            stretch: Meter::default(),
            total: Meter::default(),
            own_examples: 0,
            reported: Instant::now(),
            train_loss: f64::NAN,
        };
        let mut grad = Buffer::zeroed(self.params.len());
        let (mut batch, _) = prepared.pace.at(course.step, course.position);
        let mut cancelled = false;
        // A loss to reach may have been reached already, and the first crossing needs a left end.
        let mut finished = course.watch.is_some() && self.boundary(&mut course)?;
        while !finished && course.step < total_steps {
            let rate;
            (batch, rate) = prepared.pace.at(course.step, course.position);
            let vote = self.step(&mut course, &mut grad, batch, rate)?;
            if vote.poisoned || !vote.loss.loss_sum.is_finite() {
                return Err(TrainError::NotFinite {
                    step: course.step - 1,
                    cause: poison::cause(&prepared.layout, &self.params, &grad),
                    rate,
                    epochs: prepared.pace.epochs(course.position),
                });
            }
            cancelled = vote.stop;
            finished = cancelled || course.step >= total_steps;
            let boundary = is_boundary(plan, course.step);
            if course.recent.steps >= report_every
                || finished
                || boundary
                || course.reported.elapsed() >= SIGN_OF_LIFE
            {
                self.report(&mut course, batch, rate);
            }
            if !cancelled && (boundary || finished) {
                finished |= self.boundary(&mut course)?;
            } else if plan.spec.checkpoint_every.is_some() {
                let moment = self.moment(&course);
                self.checkpoint(&mut course, &moment)?;
            }
        }
        if course.stretch.steps > 0 {
            // Stopped between two boundaries: what there is since the last one.
            course.train_loss = course.stretch.mean_loss();
        }
        let moment = Moment { ending: true, ..self.moment(&course) };
        self.checkpoint(&mut course, &moment)?;
        Ok(Done {
            step: course.step,
            own_examples: course.own_examples,
            batch,
            total: course.total,
            train_loss: course.train_loss,
            evaluated: course.evaluated.map(|(_, evaluated)| evaluated),
            reached: course.watch.and_then(|watch| watch.reached()),
            cancelled,
            warnings: self.chief.map(|chief| chief.keeper.warnings).unwrap_or_default(),
        })
    }

    /// One update: input, pull, forward and backward pass, push.
    fn step(
        &mut self,
        course: &mut Course,
        grad: &mut Buffer,
        batch: u64,
        rate: f32,
    ) -> Result<Vote, TrainError> {
        let Self { prepared, model, exchange, feed, params, .. } = self;
        let (rank, of) = exchange.place();
        let (global, next) = prepared.pace.batches.next(course.position, batch);
        let begun = Instant::now();
        let examples = feed.next(batch)?;
        let fed = Instant::now();
        let info = StepInfo { step: course.step, rate, examples: global.len() };
        exchange.pull(info, &model.touched(examples), params)?;
        let context = StepContext {
            seed: prepared.plan.spec.seed,
            step: course.step,
            first_example: first_example(&global, rank, of),
            scale: 1.0 / global.len() as f32,
        };
        let loss = if examples.is_empty() {
            // The last batch of an epoch can be smaller than the number of replicas.
            grad.fill(0.0);
            StepLoss::default()
        } else {
            model.loss_and_grad(params, examples, &context, grad, &mut |range, params, grad| {
                exchange.ready(range, params, grad);
            })?
        };
        let stop = self.cancel.load(Ordering::Relaxed);
        let vote = Vote { loss, stop, poisoned: false };
        let pushed = exchange.push(vote, params, grad)?;
        let ended = Instant::now();
        let elsewhere = pushed.exchange + pushed.wait;
        let times = StepTimes {
            input: nanoseconds(fed - begun),
            compute: nanoseconds(ended - fed).saturating_sub(elsewhere),
            exchange: pushed.exchange,
            wait: pushed.wait,
        };
        course.step = pushed.version.0;
        course.position = next;
        course.examples += pushed.vote.loss.examples;
        course.own_examples += loss.examples;
        course.recent.add(&pushed.vote.loss, &times, pushed.traffic);
        Ok(pushed.vote)
    }

    /// Says what the last few steps were like.
    fn report(&mut self, course: &mut Course, batch: u64, rate: f32) {
        let recent = std::mem::take(&mut course.recent);
        course.stretch.absorb(&recent);
        course.total.absorb(&recent);
        course.reported = Instant::now();
        let Some(chief) = &self.chief else { return };
        let phases = recent.phases();
        let seconds = phases.total();
        chief.recorder.record(Event::Step(Step {
            step: course.step,
            steps: recent.steps,
            examples: recent.loss.examples,
            seconds,
            loss: recent.mean_loss(),
            accuracy: recent.accuracy(),
            learning_rate: f64::from(rate),
            global_batch: batch,
            phases,
        }));
        chief.observer.progressed(&Progress {
            step: course.step,
            planned: self.prepared.pace.total_steps,
            epochs: self.prepared.pace.epochs(course.position),
            loss: recent.mean_loss(),
            accuracy: recent.accuracy(),
            rate,
            examples_per_second: recent.loss.examples as f64 / seconds.max(1e-9),
        });
    }

    /// The end of an epoch, of an evaluation interval or of the run: evaluates, looks at the loss to
    /// reach, saves. Says whether the loss was reached.
    fn boundary(&mut self, course: &mut Course) -> Result<bool, TrainError> {
        let moment = self.moment(course);
        let due = self.chief.as_ref().is_some_and(|chief| chief.keeper.is_due());
        let begun = Instant::now();
        let seconds = self.origin.seconds + self.begun.elapsed().as_secs_f64();
        if course.stretch.steps > 0 {
            course.train_loss = std::mem::take(&mut course.stretch).mean_loss();
        }
        let Some(evaluator) = &mut self.evaluator else {
            // Nobody evaluates, but all must learn whether the chief wants to save.
            let mut wish = [f64::from(u8::from(due))];
            self.exchange.sum(&mut wish)?;
            let since = if wish[0] > 0.0 { f64::INFINITY } else { 0.0 };
            self.checkpoint(course, &Moment { boundary: true, since, ..moment })?;
            return Ok(false);
        };
        let evaluated = evaluator.run(&mut *self.model, &self.params, &mut *self.exchange, due)?;
        let improved = evaluated.loss < course.best;
        course.best = course.best.min(evaluated.loss);
        if let Some(chief) = &self.chief {
            let event = Evaluation {
                step: course.step,
                epochs: self.prepared.pace.epochs(course.position),
                examples: evaluated.examples,
                loss: evaluated.loss,
                accuracy: evaluated.accuracy,
                seconds: begun.elapsed().as_secs_f64(),
                best: improved,
            };
            chief.observer.evaluated(&event);
            chief.recorder.record(Event::Evaluation(event));
            if self.prepared.plan.spec.tensorboard {
                let layout = &self.prepared.layout;
                let histograms = layout
                    .entries()
                    .iter()
                    .map(|entry| (entry.name.clone(), Histogram::of(&self.params[entry.range()])));
                chief.recorder.histograms(course.step, histograms.collect());
            }
        }
        let check = Check { step: course.step, seconds, loss: evaluated.loss };
        let reached = course.watch.as_mut().is_some_and(|watch| watch.check(check));
        let since = if evaluated.save { f64::INFINITY } else { 0.0 };
        course.evaluated = Some((course.step, evaluated));
        // The state before the first step is no achievement worth keeping.
        let improved = improved && course.step > 0;
        self.checkpoint(course, &Moment { boundary: true, since, improved, ..moment })?;
        Ok(reached)
    }

    fn moment(&self, course: &Course) -> Moment {
        let slots = self.prepared.optimizer.entry().slots.len();
        Moment {
            step: course.step,
            saved: course.saved,
            light: self.params.len() * (1 + slots) <= LIGHT_FLOATS,
            ..Moment::default()
        }
    }

    /// Does what the policy says; every replica takes part, the chief writes.
    fn checkpoint(&mut self, course: &mut Course, moment: &Moment) -> Result<(), TrainError> {
        let policy = crate::train::policy(&self.prepared.plan.spec);
        let Some(action) = policy.decide(moment) else { return Ok(()) };
        let snapshot = self.exchange.snapshot()?;
        if let (Some(chief), Some(Snapshot { state, .. })) = (&mut self.chief, snapshot) {
            let spec = &self.prepared.plan.spec;
            let score = course.evaluated.as_ref().filter(|(step, _)| *step == course.step);
            let meta = Meta {
                model: spec.model.clone(),
                optimizer: spec.optimizer.clone(),
                step: course.step,
                position: course.position,
                examples: course.examples,
                seconds: self.origin.seconds + self.begun.elapsed().as_secs_f64(),
                seed: spec.seed,
                plan: self.prepared.plan.hash.clone(),
                evaluation: score.map(|(_, score)| checkpoint::Evaluated {
                    loss: score.loss,
                    accuracy: score.accuracy,
                }),
            };
            if action == Action::Remember {
                chief.keeper.remember(meta, &self.params, state);
            } else {
                chief.keeper.save(&meta, &self.params, &state);
            }
        }
        if action == Action::Save {
            course.saved = Some(course.step);
        }
        Ok(())
    }
}

/// Whether a step ends an evaluation interval or, without evaluation, an epoch.
fn is_boundary(plan: &crate::RunPlan, step: u64) -> bool {
    let every = if plan.eval_every > 0 { plan.eval_every } else { plan.steps_per_epoch };
    step.is_multiple_of(every.max(1))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
