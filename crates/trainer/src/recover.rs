//! When another task is lost: forming anew, going back to a checkpoint, and the end of a run.

use crate::{
    TrainError,
    checkpoint::Moment,
    checkpoint_keeper::with_cause,
    course::{Course, Origin},
    evaluate::Evaluator,
    lineage,
    train::{initial_weights, origin_of},
    worker::{Input, Worker},
};
use paceline_models::optimizer::State;

impl Worker<'_> {
    /// Workers that hold weights begin with the same ones: those of the worker that is furthest.
    pub(crate) fn align(&mut self, course: &mut Course) -> Result<(), TrainError> {
        if self.crew.is_none() || self.prepared.plan.servers > 0 {
            return Ok(());
        }
        let version = self.exchange.align(&mut self.params)?.0;
        if version != course.step {
            self.move_to(course, version)?;
        }
        Ok(())
    }

    /// Where workers keep step, all must decide alike; one that is new learns from worker 0 what its
    /// decisions hang on.
    pub(crate) fn agree(&mut self, course: &mut Course) -> Result<(), TrainError> {
        let (rank, _) = self.exchange.place();
        let best = if course.best.is_finite() { [1.0, course.best] } else { [0.0, 0.0] };
        let saved = course.saved.map_or(0.0, |step| step as f64 + 1.0);
        let checked = f64::from(u8::from(course.checked));
        let unscored = f64::from(u8::from(course.unscored));
        let mut values = [best[0], best[1], saved, checked, unscored];
        if rank != 0 {
            values.fill(0.0);
        }
        self.exchange.sum(&mut values)?;
        course.best = if values[0] > 0.0 { values[1] } else { f64::INFINITY };
        course.saved = (values[2] > 0.0).then_some(values[2] as u64).map(|step| step - 1);
        course.checked = values[3] > 0.0;
        course.unscored = values[4] > 0.0;
        Ok(())
    }

    /// The outer error is final; the inner one is another loss while recovering from the first.
    pub(crate) fn recover(
        &mut self,
        course: &mut Course,
        error: TrainError,
    ) -> Result<Result<(), TrainError>, TrainError> {
        let Some(crew) = &mut self.crew else { return Err(error) };
        if !error.is_peer() {
            return Err(error);
        }
        if course.closing && self.exchange.keeps_step() && self.prepared.plan.servers == 0 {
            // All updates are made, and others may have left already: there is nobody to form with.
            course.closed = true;
            self.secure(course)?;
            return Ok(Ok(()));
        }
        crew.session.regroup(error.peer(), &with_cause(&error))?;
        course.reached |= self.hear(course, false);
        Ok(self.go_on(course))
    }

    /// Forms anew with those that are there, at the last completed step, or at the last checkpoint if
    /// servers lost what they held.
    fn go_on(&mut self, course: &mut Course) -> Result<(), TrainError> {
        if let Some(origin) = self.supply()? {
            (course.examples, course.went_back) = (origin.examples, true);
            if let Some(chief) = &mut self.chief {
                chief.keeper.warn(format!(
                    "a server lost what it held: everybody goes on from step {}",
                    origin.step
                ));
            }
        }
        (course.ending, course.closing) = (None, false);
        let version = self.exchange.reform(&mut self.params)?.0;
        if self.chief.is_some() && self.exchange.keeps_step() {
            // The others may have completed a step whose end this worker did not hear of.
            let pace = &self.prepared.pace;
            course.pass_over((course.step..version).map(|step| pace.examples_of(step)).sum());
        }
        self.move_to(course, version)
    }

    fn move_to(&mut self, course: &mut Course, step: u64) -> Result<(), TrainError> {
        let position = self.prepared.pace.position_of(step);
        course.jump(step, step, position);
        self.input =
            Input::new(self.prepared, &self.sources.train, &*self.exchange, step, position)?;
        self.evaluator = evaluator(self)?;
        Ok(())
    }

    /// The chief gives servers that hold nothing the last checkpoint; says which one.
    fn supply(&mut self) -> Result<Option<Origin>, TrainError> {
        let (Some(chief), Some(crew)) = (&mut self.chief, &mut self.crew) else { return Ok(None) };
        if self.prepared.plan.servers == 0 {
            return Ok(None);
        }
        let Some(links) = lineage::ask(&crew.session, crew.lineage)? else { return Ok(None) };
        let (layout, optimizer) = (&self.prepared.layout, &self.prepared.optimizer);
        let (found, _) = chief.keeper.store.latest(layout, optimizer)?;
        let mut state: Option<State> = None;
        let origin = match found {
            Some(checkpoint) => {
                self.params.copy_from_slice(&checkpoint.params);
                let origin = origin_of(&checkpoint);
                state = Some(checkpoint.state);
                origin
            }
            None => {
                let spec = &self.prepared.plan.spec;
                initial_weights(spec, &*self.model, layout, &mut self.params)?;
                Origin::default()
            }
        };
        crew.lineage = crew.session.view().generation;
        lineage::give(links, crew.lineage, &origin, &self.params, state.as_ref())?;
        Ok(Some(origin))
    }

    /// All steps are done: the last evaluation and save.
    pub(crate) fn finish(&mut self, course: &mut Course) -> Result<(), TrainError> {
        course.closing = true;
        let cancelled = course.ending == Some(true);
        course.ending.get_or_insert(false);
        let decides = self.exchange.keeps_step() || self.chief.is_some();
        if let Some(found) = course.guard.at_end().filter(|_| decides && !cancelled) {
            let (_, rate) = self.prepared.pace.at(course.step, course.position);
            return Err(self.diverged(course, found, rate));
        }
        if self.exchange.keeps_step() {
            let moment = Moment { ending: true, ..self.moment(course.step, course) };
            self.checkpoint(course, &moment)?;
            self.exchange.complete(&mut self.params)?;
        } else if self.chief.is_some() {
            self.look_alone(course, (!cancelled, false, true))?;
        }
        self.hear(course, true);
        self.score_last(course)?;
        if let Some(chief) = &mut self.chief {
            chief.keeper.flush();
            course.tally = self.exchange.tally()?;
        }
        self.secure(course)?;
        self.exchange.leave()?;
        course.closed = true;
        Ok(())
    }
}

/// Held-out examples for a worker: its share where all evaluate together, everything for a chief that
/// does it alone.
pub(crate) fn evaluator(worker: &Worker<'_>) -> Result<Option<Evaluator>, TrainError> {
    let plan = &worker.prepared.plan;
    let place = if worker.exchange.keeps_step() && !plan.spec.evaluator {
        worker.exchange.place()
    } else if worker.chief.is_some() {
        (0, 1)
    } else {
        return Ok(None);
    };
    let share = plan.spec.batch_size.div_ceil(place.1 as u64);
    let test = worker.sources.test.as_ref();
    test.map(|test| Evaluator::new(test, share, place, plan.threads)).transpose()
}
