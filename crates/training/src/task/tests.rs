//! The end of a run with parameter servers, all tasks threads of this process.

use super::*;
use crate::{Inbox, SessionObserver, Silent, Stop};
use paceline_cluster::session::{
    Gate, OnLoss, Rules, SILENCE, Session, SessionSettings, Switchboard, Unobserved,
};
use paceline_runs::{RunFolder, Status};
use paceline_wire::TaskId;
use std::{sync::atomic::AtomicBool, thread};

const CHIEF: TaskId = TaskId { role: Role::Worker, index: 0 };
const OTHER: TaskId = TaskId { role: Role::Worker, index: 1 };
const SERVER: TaskId = TaskId { role: Role::Ps, index: 0 };

fn join(board: &Switchboard, me: TaskId, observer: Arc<dyn SessionObserver>) -> Arc<Session> {
    let settings = SessionSettings {
        me,
        tasks: [CHIEF, OTHER, SERVER].map(|task| (task, String::new())).into(),
        chief_address: format!("memory:{CHIEF}"),
        run: "a run".to_owned(),
        plan: serde_json::Value::Null,
        rules: Rules {
            on_loss: OnLoss::Continue,
            regroup: false,
            all_finish: false,
            join_timeout: paceline_testing::HANG,
            patience: SILENCE,
        },
        host: "here".to_owned(),
        cancel: Arc::default(),
    };
    let gate: Arc<dyn Gate> = Arc::new(board.line(me));
    Arc::new(Session::start(gate, &settings, observer).unwrap())
}

/// A worker is late and cannot reach the server: the tasks formed again, and the server waited for weights from a chief that had
/// done its part.
#[test]
fn a_server_ends_with_the_run_even_if_a_task_is_late() {
    let (board, folder) = (Switchboard::default(), tempfile::tempdir().unwrap());
    let spec = RunSpec {
        strategy: "ps-async".to_owned(),
        workers: 2,
        servers: 1,
        threads: Some(1),
        tensorboard: false,
        stop: Stop { steps: Some(20), ..Stop::default() },
        ..RunSpec::new("softmax", "generated:digits?examples=600")
    };
    let run = RunFolder::create(folder.path(), "softmax", "ps-async").unwrap();
    let play = |me| {
        let inbox = Inbox::new(Box::new(Unobserved));
        let session = join(&board, me, Arc::clone(&inbox) as Arc<dyn SessionObserver>);
        let parts = Parts::open(&spec).unwrap();
        let (start, cancel) = (Start::In { run: run.clone() }, AtomicBool::new(false));
        let control = Control { cancel: &cancel, observer: &Silent };
        train_task(&spec, &parts, &start, &control, Task { session: &session, inbox: &inbox })
    };
    thread::scope(|scope| {
        let (chief, server) = (scope.spawn(|| play(CHIEF)), scope.spawn(|| play(SERVER)));
        let late = join(&board, OTHER, Arc::new(Unobserved));
        let begun = Instant::now();
        while late.view().concluded.is_none() {
            late.check().unwrap();
            assert!(begun.elapsed() < paceline_testing::HANG, "the chief does not end");
            thread::sleep(LOOK);
        }
        assert_eq!(late.regroup(Some(SERVER), "connection reset").unwrap(), None);
        late.finish(serde_json::Value::Null).unwrap();
        assert!(server.join().unwrap().unwrap().is_none());
        let summary = chief.join().unwrap().unwrap().unwrap();
        assert_eq!((summary.status, summary.global_steps), (Status::Done, 20));
        assert!(summary.lost.is_empty(), "{:?}", summary.lost);
    });
}
