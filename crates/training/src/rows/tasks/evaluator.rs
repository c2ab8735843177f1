//! A task of its own that scores held-out rows, so that the servers' cores are left to training.
//!
//! The chief copies the weights of one version, as for a checkpoint, and hands them over; the score comes back on the same
//! link. Training waits for neither: while the evaluator is busy it is given nothing, and while there is none the servers
//! score beside the weights.

use super::{Task, Tasks};
use crate::{
    TrainError,
    rows::{Control, Metrics, RowsSpec, evaluate::evaluate},
};
use paceline_cluster::session::Session;
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_strategies::sparse::{Beginning, receive_weights, send_weights};
use paceline_wire::{Channel, Head, Link, LinkError, Role, TaskId, Wait};
use serde::{Deserialize, Serialize};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// Kind of a message with a score; its number is the step.
const SCORE: u8 = 1;
/// Bytes of a score at most.
const LONGEST_SCORE: u64 = 1 << 12;
/// How long an evaluator that is not busy may take to answer a call, and a piece of the weights to come.
const CALL: Duration = Duration::from_secs(10);
/// How often an evaluator without work looks whether the run is over.
const LOOK: Duration = Duration::from_millis(200);

/// What the evaluator found.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct RowsScore {
    pub(super) metrics: Metrics,
    /// Seconds that scoring took.
    pub(super) seconds: f64,
}

/// Weights that the evaluator has and has not scored yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandedOver {
    pub(super) step: u64,
    pub(super) rows: u64,
    /// Seconds of training when they were copied.
    pub(super) seconds: f64,
}

/// The chief's side of an evaluator, which may die and come back as another process.
#[derive(Default)]
pub(super) struct EvaluatorLink {
    /// The link to one process of it, and that process's number.
    link: Option<(u32, Link)>,
    handed_over: Option<HandedOver>,
    /// A process that could not be reached. It is not tried again, but another one is.
    given_up: Option<u32>,
}

impl EvaluatorLink {
    /// The evaluator that is there now, and which process of it. What another process had not scored is forgotten.
    pub(super) fn present(&mut self, session: &Session) -> Option<(TaskId, u32)> {
        let view = session.view();
        let found = view.members.iter().find(|member| member.task.role == Role::Evaluator);
        let found = found.map(|member| (member.task, member.process));
        let found = found.filter(|(_, process)| self.given_up != Some(*process));
        if self.link.as_ref().map(|(process, _)| *process) != found.map(|(_, process)| process) {
            (self.link, self.handed_over) = (None, None);
        }
        found
    }

    pub(super) fn is_busy(&self) -> bool {
        self.handed_over.is_some()
    }

    /// Hands weights to the evaluator. One that does not take them is not asked again.
    pub(super) fn hand_over(
        &mut self,
        session: &Session,
        (task, process): (TaskId, u32),
        weights: HandedOver,
        model: &SparseLogistic,
    ) -> Result<(), LinkError> {
        let mut send = || {
            if self.link.is_none() {
                let wait = Wait::within(CALL, "handing weights to the evaluator");
                let mut link = session.connect(task, Channel::Evaluator, &wait)?;
                link.sender.set_stall(CALL);
                self.link = Some((process, link));
            }
            let Some((_, link)) = &mut self.link else { return Ok(()) };
            let HandedOver { step: version, rows: examples, .. } = weights;
            let beginning = Beginning { version, examples, marks: Vec::new() };
            send_weights(link, &beginning, model.table())
        };
        let sent = send();
        match &sent {
            Ok(()) => self.handed_over = Some(weights),
            Err(_) => (self.link, self.given_up) = (None, Some(process)),
        }
        sent
    }

    /// A score that has come back. A link that breaks takes what was handed over with it.
    pub(super) fn score(&mut self) -> Option<(HandedOver, RowsScore)> {
        let (weights, (_, link)) = (self.handed_over?, self.link.as_mut()?);
        link.receiver.expect(&Wait::within(CALL, "reading the evaluator's score"));
        let score = match link.receiver.poll() {
            Ok(None) => return None,
            Ok(Some(head)) => read_score(link, head).filter(|_| head.number == weights.step),
            Err(_) => None,
        };
        self.handed_over = None;
        if score.is_none() {
            self.link = None;
        }
        score.map(|score| (weights, score))
    }
}

fn read_score(link: &mut Link, head: Head) -> Option<RowsScore> {
    if head.kind != SCORE || head.length > LONGEST_SCORE {
        return None;
    }
    let mut body = vec![0; usize::try_from(head.length).ok()?];
    link.receiver.read(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

/// Scores the weights that the chief hands over, until the run is over.
pub(super) fn score_weights(
    spec: &RowsSpec,
    tasks: &Tasks,
    task: &Task<'_>,
    control: &Control<'_>,
) -> Result<(), TrainError> {
    let session = task.session;
    let Some(test) = &spec.test else {
        return session.wait_for_release().map(drop).map_err(Into::into);
    };
    let options = tasks.options(spec)?;
    let mut link: Option<Link> = None;
    loop {
        session.check()?;
        if session.released() || control.cancel.load(Ordering::Relaxed) {
            return Ok(());
        }
        session.follow(); // the chief calls in the generation that it works in
        let wait = Wait::within(LOOK, "waiting for weights to evaluate");
        let Some(open) = &mut link else {
            link = session.accept(session.chief(), Channel::Evaluator, &wait).ok();
            continue;
        };
        let head = match open.receiver.receive(&wait) {
            Ok(head) => head,
            Err(error) if error.is_timeout() => continue,
            Err(_) => {
                link = None; // the session says whether that is the end
                continue;
            }
        };
        // Memory that is never touched costs nothing, and all of it is zero.
        let model = SparseLogistic::new(options.bits, options.rule, options.settings)?;
        let wait = Wait::within(CALL, "reading weights to evaluate");
        let Ok(weights) = receive_weights(open, head, &wait, model.table()) else {
            link = None;
            continue;
        };
        let begun = Instant::now();
        let Some(metrics) = evaluate(spec, test, &model, control.cancel)? else { return Ok(()) };
        let score = RowsScore { metrics, seconds: begun.elapsed().as_secs_f64() };
        let body = serde_json::to_vec(&score).expect("a score is plain data");
        if open.sender.send(SCORE, weights.version, &[&body]).is_err() {
            link = None;
        }
    }
}
