//! The other tasks of a run, as a worker sees them.

use crate::{
    Observer, Task, TrainError,
    lineage::{as_bytes, as_bytes_mut},
    session_log::{Notices, SessionLog},
};
use paceline_cluster::{
    Link, LinkError, Role, TaskId, Wait,
    session::{Notice, Row, Session, Watcher},
};
use paceline_runs::Recorder;
use serde::{Deserialize, Deserializer, Serialize};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The channel on which the evaluator gets weights.
const EVALUATOR_CHANNEL: u8 = 8;
/// Kind of a frame with weights; its number is the step.
const WEIGHTS: u8 = 1;
/// How long the last evaluation may take.
const LAST_EVALUATION: Duration = Duration::from_secs(600);
/// How long an evaluator that is not busy may take to answer a call: nobody trains meanwhile.
const CALL: Duration = Duration::from_secs(10);
/// Bytes of weights that must come within that time.
const PIECE: usize = 1 << 20;

/// Shown what happens in a session, as it happens.
pub trait Onlooker: Send + Sync {
    /// The table of tasks, a few times a second until everybody is there.
    fn table(&self, _rows: &[Row]) {}
    /// Something changed.
    fn noticed(&self, _notice: &Notice) {}
    /// Another task sent the chief something that is not an evaluation.
    fn told(&self, _by: TaskId, _value: &serde_json::Value) {}
}

/// Takes what a session says: shows it at once, and keeps it for the run's own log.
pub struct Inbox {
    onlooker: Box<dyn Onlooker>,
    notices: Notices,
    /// The evaluator's results.
    scores: Mutex<Vec<Scored>>,
    pending: AtomicBool,
}

/// What the evaluator found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scored {
    pub(crate) step: u64,
    /// JSON has no word for what is not a number; a score that could not be read would be waited for.
    #[serde(deserialize_with = "number")]
    pub(crate) loss: f64,
    pub(crate) accuracy: f64,
    pub(crate) examples: u64,
    pub(crate) seconds: f64,
    pub(crate) confusion: Vec<u64>,
}

fn number<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(input)?.unwrap_or(f64::NAN))
}

impl Inbox {
    /// An inbox that also shows what comes in.
    #[must_use]
    pub fn new(onlooker: Box<dyn Onlooker>) -> Arc<Self> {
        Arc::new(Self {
            onlooker,
            notices: Notices::default(),
            scores: Mutex::default(),
            pending: AtomicBool::new(false),
        })
    }

    fn take(&self) -> (Vec<Notice>, Vec<Scored>) {
        if !self.pending.swap(false, Ordering::Acquire) {
            return Default::default();
        }
        let notices = self.notices.take();
        let scores =
            std::mem::take(&mut *self.scores.lock().unwrap_or_else(PoisonError::into_inner));
        (notices, scores)
    }
}

impl Watcher for Inbox {
    fn table(&self, rows: &[Row]) {
        self.onlooker.table(rows);
    }

    fn noticed(&self, notice: &Notice) {
        self.onlooker.noticed(notice);
        self.notices.push(notice);
        self.pending.store(true, Ordering::Release);
    }

    fn told(&self, by: TaskId, value: &serde_json::Value) {
        // Evaluations are for the run itself; whatever else tasks tell is for those who watch.
        match serde_json::from_value(value.clone()) {
            Ok(scored) => {
                self.scores.lock().unwrap_or_else(PoisonError::into_inner).push(scored);
                self.pending.store(true, Ordering::Release);
            }
            Err(_) => self.onlooker.told(by, value),
        }
    }
}

/// A worker's dealings with the other tasks.
pub(crate) struct Crew<'a> {
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

impl<'a> Crew<'a> {
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
        let (notices, scores) = self.inbox.take();
        self.log.record(self.recorder, step, notices);
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

    /// Whether somebody else scores the model at present. What a process has not scored when it dies,
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
                let mut new = self.session.connect(task, EVALUATOR_CHANNEL, &wait)?;
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
            *link = session.accept(session.chief(), EVALUATOR_CHANNEL, &wait).ok();
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
