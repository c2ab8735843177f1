//! The other tasks of a run, as a worker sees them.

use crate::{
    Observer, Task, TrainError,
    lineage::{as_bytes, as_bytes_mut},
    session_log::{Inbox, Scored, SessionLog},
};
use paceline_cluster::session::Session;
use paceline_runs::Recorder;
use paceline_wire::{Channel, Link, LinkError, Role, TaskId, Wait};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Kind of a frame with weights; its number is the step.
const WEIGHTS: u8 = 1;
/// How long the last evaluation may take.
const LAST_EVALUATION: Duration = Duration::from_secs(600);
/// How long an evaluator that is not busy may take to answer a call: no task trains meanwhile.
const CALL: Duration = Duration::from_secs(10);
/// Bytes of weights that must come within that time.
const PIECE: usize = 1 << 20;

/// A worker's dealings with the other tasks.
pub(crate) struct Peers<'a> {
    pub(crate) session: Arc<Session>,
    inbox: &'a Inbox,
    recorder: &'a Recorder,
    observer: &'a dyn Observer,
    evaluations: Evaluations,
    /// What happened to other tasks.
    pub(crate) log: SessionLog,
    /// The lineage of the weights that servers hold; see [`crate::lineage`].
    pub(crate) lineage: u32,
}

/// The chief's side of an evaluator, which may die and come back as another process.
#[derive(Default)]
struct Evaluations {
    /// The link to one process of it, and that process's number.
    link: Option<(u32, Link)>,
    /// Steps of the weights that this process has and has not scored yet.
    asked: Vec<u64>,
    /// Steps of weights that went down with their process.
    unscored: Vec<u64>,
    /// A process that could not be reached. It is not tried again, but another one is.
    given_up: Option<u32>,
}

impl<'a> Peers<'a> {
    pub(crate) fn new(
        task: Task<'a>,
        recorder: &'a Recorder,
        observer: &'a dyn Observer,
        lineage: u32,
    ) -> Self {
        let Task { session, inbox } = task;
        Self {
            session: Arc::clone(session),
            inbox,
            recorder,
            observer,
            evaluations: Evaluations::default(),
            log: SessionLog::default(),
            lineage,
        }
    }

    /// Writes what happened into the log; returns what the evaluator found.
    pub(crate) fn hear(&mut self, step: u64) -> Vec<Scored> {
        let scores = self.inbox.record(self.recorder, step, &mut self.log);
        if !scores.is_empty() {
            let scored = |step: &u64| scores.iter().any(|score| score.step == *step);
            self.evaluations.asked.retain(|step| !scored(step));
            self.evaluations.unscored.retain(|step| !scored(step));
        }
        scores
    }

    /// The evaluator that is there now, and which process of it.
    fn evaluator(&self) -> Option<(TaskId, u32)> {
        let view = self.session.view();
        let one = view.members.iter().find(|member| member.task.role == Role::Evaluator)?;
        (self.evaluations.given_up != Some(one.process)).then_some((one.task, one.process))
    }

    /// Whether an evaluator scores the model at present. What a process has not scored when it dies,
    /// or when the connection to it breaks, is not waited for any more.
    pub(crate) fn has_evaluator(&mut self) -> bool {
        let now = self.evaluator().map(|(_, process)| process);
        let Evaluations { link, asked, unscored, .. } = &mut self.evaluations;
        let same = link
            .as_mut()
            .is_some_and(|(process, link)| now == Some(*process) && link.receiver.poll().is_ok());
        if !same {
            *link = None;
            unscored.append(asked);
        }
        now.is_some()
    }

    /// Hands weights to the evaluator, unless it is still busy with earlier ones: training does not
    /// wait for evaluation. Says whether they are on their way.
    pub(crate) fn evaluate(&mut self, step: u64, params: &[f32]) -> bool {
        if !self.has_evaluator() || !self.evaluations.asked.is_empty() {
            return false;
        }
        let Some((task, process)) = self.evaluator() else { return false };
        let Evaluations { link, asked, given_up, .. } = &mut self.evaluations;
        let mut send = || {
            if link.is_none() {
                let wait = Wait::within(CALL, "handing weights to the evaluator");
                let mut new = self.session.connect(task, Channel::Evaluator, &wait)?;
                new.sender.set_stall(CALL);
                *link = Some((process, new));
            }
            let Some((_, link)) = link else { return Ok(()) };
            link.sender.send(WEIGHTS, step, &[as_bytes(params)])
        };
        match send() {
            Ok(()) => {
                asked.push(step);
                true
            }
            Err(error) => {
                // The run does not depend on it; the chief scores the model itself until another comes.
                self.observer.warned(&format!("{error}; the chief evaluates itself"));
                *given_up = Some(process);
                false
            }
        }
    }

    /// Waits until everything that was handed to the evaluator is scored, or it is gone.
    pub(crate) fn last_scores(&mut self, step: u64) -> Vec<Scored> {
        let begun = Instant::now();
        let mut scores = self.hear(step);
        while begun.elapsed() < LAST_EVALUATION
            && self.has_evaluator()
            && !self.evaluations.asked.is_empty()
            && self.session.check().is_ok()
        {
            std::thread::sleep(Duration::from_millis(2));
            scores.extend(self.hear(step));
        }
        scores
    }

    /// Whether the weights of a step were handed over in vain.
    pub(crate) fn is_unscored(&self, step: u64) -> bool {
        self.evaluations.unscored.contains(&step)
    }
}

/// The evaluator's side: the next weights to score, or nothing when the run is over.
pub(crate) fn next_weights(
    session: &Session,
    link: &mut Option<Link>,
    params: &mut [f32],
    cancel: &AtomicBool,
) -> Result<Option<u64>, TrainError> {
    loop {
        session.check()?;
        if session.released() || cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        session.follow(); // the chief calls in the generation that it works in
        let wait = Wait::within(Duration::from_millis(200), "waiting for weights to evaluate");
        let Some(open) = link else {
            *link = session.accept(session.chief(), Channel::Evaluator, &wait).ok();
            continue;
        };
        let whole = 4 * params.len() as u64;
        match open.receiver.receive(&wait) {
            Ok(head) if head.kind == WEIGHTS && head.length == whole => {
                if read_weights(open, params).is_ok() {
                    return Ok(Some(head.number));
                }
                *link = None;
            }
            Ok(_) => *link = None,
            Err(error) if error.is_timeout() => {}
            Err(_) => *link = None, // the session says whether that is the end
        }
    }
}

/// Reads weights that are on their way, however long all of them take.
fn read_weights(link: &mut Link, params: &mut [f32]) -> Result<(), LinkError> {
    for piece in as_bytes_mut(params).chunks_mut(PIECE) {
        link.receiver.expect(&Wait::within(CALL, "reading weights to evaluate"));
        link.receiver.read(piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
