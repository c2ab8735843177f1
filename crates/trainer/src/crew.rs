//! The other tasks of a run, as a worker sees them.

use crate::{
    Observer, Task, TrainError,
    lineage::{as_bytes, as_bytes_mut},
};
use paceline_cluster::{
    Link, Role, TaskId, Wait,
    session::{Notice, Row, Session, Watcher},
};
use paceline_runs::{Event, Recorder, TaskJoined, TaskLost, TaskRecovered};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
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
    notices: Mutex<Vec<Notice>>,
    /// The evaluator's results.
    scores: Mutex<Vec<Scored>>,
    pending: AtomicBool,
}

/// What the evaluator found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scored {
    pub(crate) step: u64,
    pub(crate) loss: f64,
    pub(crate) accuracy: f64,
    pub(crate) examples: u64,
    pub(crate) seconds: f64,
    pub(crate) confusion: Vec<u64>,
}

impl Inbox {
    /// An inbox that also shows what comes in.
    #[must_use]
    pub fn new(onlooker: Box<dyn Onlooker>) -> Arc<Self> {
        Arc::new(Self {
            onlooker,
            notices: Mutex::default(),
            scores: Mutex::default(),
            pending: AtomicBool::new(false),
        })
    }

    fn take(&self) -> (Vec<Notice>, Vec<Scored>) {
        if !self.pending.swap(false, Ordering::Acquire) {
            return Default::default();
        }
        let notices =
            std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner));
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
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
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
    evaluator: Option<Evaluations>,
    lost_at: BTreeMap<TaskId, Instant>,
    /// The lineage of the weights that servers hold; see [`crate::lineage`].
    pub(crate) lineage: u32,
    pub(crate) lost: Vec<String>,
    /// What else the summary should say.
    pub(crate) remarks: Vec<String>,
}

/// The chief's side of an evaluator.
struct Evaluations {
    task: TaskId,
    link: Option<Link>,
    /// Steps of the weights that were sent, and how many answers came.
    sent: u64,
    answered: u64,
}

impl<'a> Crew<'a> {
    pub(crate) fn new(
        task: Task<'a>,
        recorder: &'a Recorder,
        observer: &'a dyn Observer,
        lineage: u32,
    ) -> Self {
        let Task { session, inbox } = task;
        let view = session.view();
        let evaluator = view
            .circle
            .iter()
            .find(|task| task.role == Role::Evaluator)
            .filter(|_| session.is_chief())
            .map(|task| Evaluations { task: *task, link: None, sent: 0, answered: 0 });
        Self {
            session: Arc::clone(session),
            inbox,
            recorder,
            observer,
            evaluator,
            lost_at: BTreeMap::new(),
            lineage,
            lost: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Writes what happened into the log; returns what the evaluator found.
    pub(crate) fn hear(&mut self, step: u64) -> Vec<Scored> {
        let (notices, scores) = self.inbox.take();
        for notice in notices {
            match notice {
                Notice::Joined { task, address, host, process, offset, returned } => {
                    self.recorder.record(Event::TaskJoined(TaskJoined {
                        role: task.to_string(),
                        address: Some(address),
                        process,
                        host,
                        clock_offset: offset.map(|offset| offset.seconds),
                    }));
                    if returned {
                        let since = self.lost_at.remove(&task);
                        self.recorder.record(Event::TaskRecovered(TaskRecovered {
                            recovered: task.to_string(),
                            step,
                            seconds: since.map_or(0.0, |since| since.elapsed().as_secs_f64()),
                        }));
                    }
                }
                Notice::Lost(loss) => {
                    self.lost_at.insert(loss.task, Instant::now());
                    self.lost.push(loss.to_string());
                    self.recorder.record(Event::TaskLost(TaskLost {
                        lost: loss.task.to_string(),
                        address: Some(loss.address),
                        step,
                        reason: loss.reason,
                    }));
                }
                Notice::Straggler(straggler) => self.remarks.push(straggler.to_string()),
                Notice::Starved(starved) => self.remarks.push(starved.to_string()),
                _ => {}
            }
        }
        if let Some(evaluator) = &mut self.evaluator {
            evaluator.answered += scores.len() as u64;
        }
        scores
    }

    /// Whether somebody else scores the model.
    pub(crate) fn has_evaluator(&self) -> bool {
        let Some(evaluator) = &self.evaluator else { return false };
        !self.session.view().lost.iter().any(|loss| loss.task == evaluator.task)
    }

    /// Hands weights to the evaluator, unless it is still busy with earlier ones: training does not
    /// wait for evaluation. `last` waits for room and is always handed over.
    pub(crate) fn evaluate(
        &mut self,
        step: u64,
        params: &[f32],
        last: bool,
    ) -> Result<bool, TrainError> {
        let Some(evaluator) = &mut self.evaluator else { return Ok(false) };
        if !last && evaluator.sent > evaluator.answered {
            return Ok(false);
        }
        let wait = Wait::within(LAST_EVALUATION, "handing weights to the evaluator");
        let send = |evaluator: &mut Evaluations| {
            if evaluator.link.is_none() {
                evaluator.link =
                    Some(self.session.connect(evaluator.task, EVALUATOR_CHANNEL, &wait)?);
            }
            let Some(link) = &mut evaluator.link else { return Ok(()) };
            link.sender.send(WEIGHTS, step, &[as_bytes(params)])
        };
        match send(evaluator) {
            Ok(()) => {
                evaluator.sent += 1;
                Ok(true)
            }
            Err(error) => {
                // The run does not depend on it; the chief scores the model itself from now on.
                self.observer.warned(&format!("{error}; the chief evaluates itself"));
                self.evaluator = None;
                Ok(false)
            }
        }
    }

    /// Waits for the evaluator's last word.
    pub(crate) fn last_scores(&mut self, step: u64) -> Vec<Scored> {
        let begun = Instant::now();
        let mut scores = self.hear(step);
        while begun.elapsed() < LAST_EVALUATION
            && self.has_evaluator()
            && self.evaluator.as_ref().is_some_and(|one| one.sent > one.answered)
            && self.session.check().is_ok()
        {
            std::thread::sleep(Duration::from_millis(2));
            scores.extend(self.hear(step));
        }
        scores
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
        let wait = Wait::within(Duration::from_millis(200), "waiting for weights to evaluate");
        let Some(open) = link else {
            *link = session.accept(session.chief(), EVALUATOR_CHANNEL, &wait).ok();
            continue;
        };
        let whole = 4 * params.len() as u64;
        match open.receiver.receive(&wait) {
            Ok(head) if head.kind == WEIGHTS && head.length == whole => {
                // Large weights take longer than the wait for them may.
                open.receiver
                    .expect(&Wait::within(LAST_EVALUATION, "receiving weights to evaluate"));
                if open.receiver.read(as_bytes_mut(params)).is_ok() {
                    return Ok(Some(head.number));
                }
                *link = None; // the session says whether that is the end
            }
            Ok(_) => *link = None,
            Err(error) if error.is_timeout() => {}
            Err(_) => *link = None, // the session says whether that is the end
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_cluster::{
        Head,
        session::{Gate, OnLoss, Rules, Settings, Switchboard, Unwatched},
    };

    fn join(board: &Switchboard, me: TaskId, tasks: &[TaskId]) -> Session {
        let settings = Settings {
            me,
            tasks: tasks.iter().map(|task| (*task, String::new())).collect(),
            chief_address: "memory:worker/0".to_owned(),
            run: "a run".to_owned(),
            plan: serde_json::Value::Null,
            rules: Rules {
                on_loss: OnLoss::Continue,
                regroup: true,
                all_finish: false,
                join_timeout: Duration::from_secs(20),
            },
            host: "here".to_owned(),
            cancel: Arc::default(),
        };
        let gate: Arc<dyn Gate> = Arc::new(board.line(me));
        Session::start(gate, &settings, Arc::new(Unwatched)).unwrap()
    }

    #[test]
    fn weights_that_take_longer_than_a_look_for_them_are_evaluated() {
        let board = Switchboard::default();
        let tasks = [(Role::Worker, 0), (Role::Evaluator, 0)];
        let [chief, evaluator] = tasks.map(|(role, index)| TaskId::new(role, index));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let session = join(&board, chief, &[chief, evaluator]);
                let wait = Wait::within(Duration::from_secs(20), "testing");
                let mut link = session.connect(evaluator, EVALUATOR_CHANNEL, &wait).unwrap();
                link.sender.start(Head { kind: WEIGHTS, number: 7, length: 8 }).unwrap();
                for number in [1.0f32, 2.0] {
                    link.sender.push(&number.to_le_bytes()).unwrap();
                    std::thread::sleep(Duration::from_millis(400));
                }
            });
            let session = join(&board, evaluator, &[chief, evaluator]);
            let mut params = [0.0; 2];
            let cancel = AtomicBool::new(false);
            let step = next_weights(&session, &mut None, &mut params, &cancel).unwrap();
            assert_eq!((step, params), (Some(7), [1.0, 2.0]));
        });
    }
}
