//! A chief and its evaluator in one process: what becomes of weights when the evaluator dies.

use super::*;
use crate::SessionObserver;
use paceline_cluster::session::{
    Gate, OnLoss, Rules, SILENCE, SessionSettings, Switchboard, Unobserved,
};
use paceline_runs::{RecorderSettings, RunFolder};
use std::thread::{self, JoinHandle};

const CHIEF: TaskId = TaskId { role: Role::Worker, index: 0 };
const OTHER: TaskId = TaskId { role: Role::Worker, index: 1 };
const EVALUATOR: TaskId = TaskId { role: Role::Evaluator, index: 0 };
/// Long enough for a loaded machine.
const PATIENCE: Duration = paceline_testing::HANG;

/// A task joins on a thread of its own.
fn join(
    board: &Switchboard,
    me: TaskId,
    tasks: &[TaskId],
    observer: Arc<dyn SessionObserver>,
) -> JoinHandle<Arc<Session>> {
    let settings = SessionSettings {
        me,
        tasks: tasks.iter().map(|task| (*task, String::new())).collect(),
        chief_address: format!("memory:{CHIEF}"),
        run: "a run".to_owned(),
        plan: serde_json::Value::Null,
        rules: Rules {
            on_loss: OnLoss::Continue,
            regroup: true,
            all_finish: false,
            join_timeout: PATIENCE,
            patience: SILENCE,
        },
        host: "here".to_owned(),
        cancel: Arc::default(),
    };
    let gate: Arc<dyn Gate> = Arc::new(board.line(me));
    thread::spawn(move || Arc::new(Session::start(gate, &settings, observer).unwrap()))
}

fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the evaluator is given next; nothing if that does not come.
fn given(session: &Session, link: &mut Option<Link>) -> Option<u64> {
    let cancel = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| next_weights(session, link, &mut [0.0; 3], &cancel).unwrap());
        let begun = Instant::now();
        while !waiter.is_finished() && begun.elapsed() < PATIENCE / 4 {
            thread::sleep(Duration::from_millis(5));
        }
        cancel.store(true, Ordering::Relaxed);
        waiter.join().unwrap()
    })
}

fn recorder(folder: &tempfile::TempDir) -> Recorder {
    let run = RunFolder::create(folder.path(), "softmax", "multi-worker").unwrap();
    let settings = RecorderSettings { tensorboard: false, ..RecorderSettings::default() };
    Recorder::start(&run, "worker/0", &settings).unwrap()
}

#[test]
fn weights_that_went_down_with_an_evaluator_are_not_waited_for() {
    // Whether its death is noticed before another process takes its place.
    for noticed in [true, false] {
        let (board, folder) = (Switchboard::default(), tempfile::tempdir().unwrap());
        let (inbox, recorder) = (Inbox::new(Box::new(Unobserved)), recorder(&folder));
        let tasks = [CHIEF, EVALUATOR];
        let chief = join(&board, CHIEF, &tasks, Arc::clone(&inbox) as Arc<dyn SessionObserver>);
        let first = join(&board, EVALUATOR, &tasks, Arc::new(Unobserved)).join().unwrap();
        let chief = chief.join().unwrap();
        let task = Task { session: &chief, inbox: &inbox };
        let mut peers = Peers::new(task, &recorder, &crate::Silent, 0);
        // The links of the dead stay: memory that processes share does not tell of a death.
        let (mut old, mut new) = (None, None);
        assert!(peers.evaluate(1, &[0.5; 3]));
        assert_eq!(given(&first, &mut old), Some(1));
        assert!(!peers.evaluate(2, &[0.5; 3]), "it is busy");
        drop(first);
        if noticed {
            wait_for("its death to be noticed", || !peers.has_evaluator());
            assert!(peers.is_unscored(1));
            assert!(!peers.evaluate(3, &[0.5; 3]), "there is no evaluator");
        }
        let second = join(&board, EVALUATOR, &tasks, Arc::new(Unobserved)).join().unwrap();
        wait_for("the new one to be asked", || peers.evaluate(4, &[0.5; 3]));
        assert_eq!(given(&second, &mut new), Some(4), "{noticed}");
        let scored = Scored { step: 4, loss: f64::NAN, ..Scored::default() };
        second.tell(serde_json::to_value(&scored).unwrap());
        let scores = peers.last_scores(4);
        assert_eq!(scores.len(), 1, "a loss of NaN is a score too");
        assert!(scores[0].loss.is_nan() && peers.is_unscored(1) && !peers.is_unscored(4));
        assert!(peers.evaluate(5, &[0.5; 3]), "it is not busy any more");
        // At the end no task waits for one that is gone.
        drop(second);
        let begun = Instant::now();
        assert!(peers.last_scores(5).is_empty() && begun.elapsed() < PATIENCE / 2);
        assert!(peers.is_unscored(5));
    }
}

#[test]
fn a_broken_connection_to_an_evaluator_is_made_again() {
    let (board, folder) = (Switchboard::default(), tempfile::tempdir().unwrap());
    let (inbox, recorder) = (Inbox::new(Box::new(Unobserved)), recorder(&folder));
    let tasks = [CHIEF, EVALUATOR];
    let chief = join(&board, CHIEF, &tasks, Arc::clone(&inbox) as Arc<dyn SessionObserver>);
    let evaluator = join(&board, EVALUATOR, &tasks, Arc::new(Unobserved)).join().unwrap();
    let chief = chief.join().unwrap();
    let task = Task { session: &chief, inbox: &inbox };
    let mut peers = Peers::new(task, &recorder, &crate::Silent, 0);
    let mut link = None;
    assert!(peers.evaluate(1, &[0.5; 3]));
    assert_eq!(given(&evaluator, &mut link), Some(1));
    link = None;
    assert!(peers.evaluate(2, &[0.5; 3]), "the first weights may have been on their way");
    assert_eq!(given(&evaluator, &mut link), Some(2));
}

/// It takes no part when workers form again, but must answer the chief's call of the new generation.
#[test]
fn an_evaluator_follows_the_workers_that_formed_again() {
    let (board, folder) = (Switchboard::default(), tempfile::tempdir().unwrap());
    let (inbox, recorder) = (Inbox::new(Box::new(Unobserved)), recorder(&folder));
    let tasks = [CHIEF, OTHER, EVALUATOR];
    let chief = join(&board, CHIEF, &tasks, Arc::clone(&inbox) as Arc<dyn SessionObserver>);
    let other = join(&board, OTHER, &tasks, Arc::new(Unobserved));
    let evaluator = join(&board, EVALUATOR, &tasks, Arc::new(Unobserved)).join().unwrap();
    let chief = chief.join().unwrap();
    drop(other.join().unwrap());
    assert_eq!(chief.regroup(Some(OTHER), "gone").unwrap().unwrap().generation, 2);
    let task = Task { session: &chief, inbox: &inbox };
    let mut peers = Peers::new(task, &recorder, &crate::Silent, 0);
    assert!(peers.evaluate(7, &[0.5; 3]));
    assert_eq!(given(&evaluator, &mut None), Some(7));
}

/// Hundreds of megabytes over a network take longer than the evaluator's looks at its flags are apart.
#[test]
fn weights_may_take_their_time() {
    let board = Switchboard::default();
    let tasks = [CHIEF, EVALUATOR];
    let chief = join(&board, CHIEF, &tasks, Arc::new(Unobserved));
    let evaluator = join(&board, EVALUATOR, &tasks, Arc::new(Unobserved)).join().unwrap();
    let chief = chief.join().unwrap();
    let wait = Wait::within(PATIENCE, "testing");
    let mut link = chief.connect(EVALUATOR, Channel::Evaluator, &wait).unwrap();
    let head = paceline_wire::Head { kind: WEIGHTS, number: 9, length: 12 };
    thread::scope(|scope| {
        let found = scope.spawn(|| given(&evaluator, &mut None));
        link.sender.start(head).unwrap();
        assert_eq!(link.sender.push(&[0; 4]).unwrap(), 4);
        thread::sleep(Duration::from_millis(700));
        assert_eq!(link.sender.push(&[0; 8]).unwrap(), 8);
        assert_eq!(found.join().unwrap(), Some(9));
    });
}
