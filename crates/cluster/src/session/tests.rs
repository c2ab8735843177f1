//! Sessions of several tasks in one process.

use super::*;

use serde_json::json;
use std::{sync::Mutex, thread};

/// How long to wait for an event before saying that something hangs; never a bound on speed.
const HANG: Duration = Duration::from_secs(900);

fn worker(index: u32) -> TaskId {
    TaskId::new(Role::Worker, index)
}

fn settings(me: TaskId, workers: u32, on_loss: OnLoss, seconds: u64) -> SessionSettings {
    SessionSettings {
        me,
        tasks: (0..workers).map(|index| (worker(index), String::new())).collect(),
        chief_address: "memory:worker/0".to_owned(),
        run: "a run".to_owned(),
        plan: json!({"batch_size": 64}),
        rules: Rules {
            on_loss,
            regroup: true,
            all_finish: false,
            join_timeout: Duration::from_secs(seconds),
            patience: SILENCE,
        },
        host: "here".to_owned(),
        cancel: Arc::default(),
    }
}

/// Starts a task on a thread of its own.
fn task<T: Send + 'static>(
    board: &Switchboard,
    settings: SessionSettings,
    play: impl FnOnce(Result<Session, SessionError>) -> T + Send + 'static,
) -> JoinHandle<T> {
    let gate: Arc<dyn Gate> = Arc::new(board.line(settings.me));
    thread::spawn(move || play(Session::start(gate, &settings, Arc::new(Unobserved))))
}

#[test]
fn all_tasks_join_talk_and_leave_together() {
    let board = Switchboard::default();
    let handles: Vec<_> = (0..3)
        .map(|index| {
            task(&board, settings(worker(index), 3, OnLoss::Stop, 10), move |session| {
                let session = session.unwrap();
                assert_eq!(session.view().members.len(), 3);
                assert_eq!(session.view().run, "a run");
                let wait = Wait::within(HANG, "testing");
                if index == 1 {
                    let mut link = session.connect(worker(2), Channel::Lineage, &wait).unwrap();
                    link.sender.send(9, 1, &[b"hello"]).unwrap();
                    link.receiver.receive(&wait).unwrap();
                } else if index == 2 {
                    let mut link = session.accept(worker(1), Channel::Lineage, &wait).unwrap();
                    let mut buffer = Vec::new();
                    link.receiver.receive_into(&wait, 100, &mut buffer).unwrap();
                    assert_eq!(buffer, b"hello");
                    link.sender.send(9, 2, &[]).unwrap();
                }
                session.finish(json!({"by": index})).unwrap()
            })
        })
        .collect();
    let reports: Vec<_> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
    assert_eq!(reports[0].len(), 3, "the chief has the reports of all tasks");
    assert_eq!(reports[0][2], (worker(2), json!({"by": 2})));
    assert!(reports[1].is_empty());
}

#[test]
fn a_task_that_never_comes_is_named_with_its_address() {
    let board = Switchboard::default();
    let mut chief = settings(worker(0), 3, OnLoss::Stop, 1);
    chief.tasks.insert(worker(2), "10.9.8.7:7000".to_owned());
    let chief = task(&board, chief, |session| session.err().unwrap());
    let other =
        task(&board, settings(worker(1), 3, OnLoss::Stop, 1), |session| session.err().unwrap());
    let error = chief.join().unwrap();
    assert!(error.is_retryable());
    let text = error.to_string();
    assert!(text.contains("worker/2 at 10.9.8.7:7000 is missing"), "{text}");
    assert!(!text.contains("worker/1"), "{text}");
    let text = other.join().unwrap().to_string();
    assert!(text.contains("worker/2 at 10.9.8.7:7000"), "the others learn it too: {text}");
}

#[test]
fn without_a_chief_a_task_ends_with_its_name() {
    let board = Switchboard::default();
    let alone =
        task(&board, settings(worker(1), 2, OnLoss::Stop, 1), |session| session.err().unwrap());
    let error = alone.join().unwrap();
    assert!(matches!(error, SessionError::NoChief { .. }), "{error}");
    assert!(error.to_string().contains("worker/0 at memory:worker/0"), "{error}");
}

#[test]
fn a_lost_task_is_named_to_all_and_the_rest_form_again() {
    let board = Switchboard::default();
    let handles: Vec<_> = (0..3)
        .map(|index| {
            task(&board, settings(worker(index), 3, OnLoss::Continue, 10), move |session| {
                let session = session.unwrap();
                if index == 2 {
                    return Vec::new(); // gone without a message
                }
                let wait = Wait::within(HANG, "testing").unless(session.interrupted());
                let error = session.accept(worker(2), Channel::ParameterServer, &wait).unwrap_err();
                let view = session.regroup(Some(worker(2)), &error.to_string()).unwrap().unwrap();
                assert_eq!(view.members.len(), 2);
                assert!(!session.interrupted().load(Ordering::Relaxed));
                session.finish(Value::Null).unwrap();
                view.lost
            })
        })
        .collect();
    for (index, handle) in handles.into_iter().enumerate().take(2) {
        let lost = handle.join().unwrap();
        assert_eq!(lost.len(), 1, "{index}");
        assert_eq!(lost[0].task, worker(2));
    }
}

#[test]
fn when_the_chief_dies_the_others_end_with_its_name() {
    let board = Switchboard::default();
    let chief = task(&board, settings(worker(0), 2, OnLoss::Continue, 10), |session| {
        drop(session.unwrap());
    });
    let other = task(&board, settings(worker(1), 2, OnLoss::Continue, 10), |session| {
        let session = session.unwrap();
        let wait = Wait::within(HANG, "testing").unless(session.interrupted());
        let _ = session.accept(worker(0), Channel::ParameterServer, &wait);
        session.regroup(Some(worker(0)), "gone").unwrap_err()
    });
    chief.join().unwrap();
    let error = other.join().unwrap();
    assert!(
        matches!(error, SessionError::ChiefLost { chief, .. } if chief == worker(0)),
        "{error}"
    );
}

#[test]
fn a_chief_that_fails_tells_why() {
    let board = Switchboard::default();
    let chief = task(&board, settings(worker(0), 2, OnLoss::Continue, 10), |session| {
        session.unwrap().fail("the loss is not finite at step 7");
    });
    let other = task(&board, settings(worker(1), 2, OnLoss::Continue, 10), |session| {
        // The chief may be so quick that its word comes with the start.
        session.and_then(|session| session.finish(Value::Null)).unwrap_err().to_string()
    });
    chief.join().unwrap();
    assert_eq!(other.join().unwrap(), "worker/0 failed: the loss is not finite at step 7");
}

/// The chief's last evaluation, or a slow worker's last step, may take longer than the barrier.
#[test]
fn who_has_finished_waits_as_long_as_the_others_live() {
    for late in 0..2 {
        let board = Switchboard::default();
        let handles = [0, 1].map(|index| {
            task(&board, settings(worker(index), 2, OnLoss::Stop, 10), move |session| {
                let mut session = session.unwrap();
                // Two heartbeats long: short enough for a test, and a slow machine may miss one.
                session.exit_barrier = 2 * roster::BEAT + roster::BEAT / 2;
                if index == late {
                    thread::sleep(2 * session.exit_barrier);
                }
                session.finish(Value::Null).map(|_| ())
            })
        });
        for (index, handle) in handles.into_iter().enumerate() {
            assert_eq!(
                handle.join().unwrap().map_err(|error| error.to_string()),
                Ok(()),
                "{index}"
            );
        }
    }
}

/// Keeps what it is told.
#[derive(Default)]
struct Notes(Mutex<Vec<Notice>>);

impl SessionObserver for Notes {
    fn noticed(&self, notice: &Notice) {
        self.0.lock().unwrap().push(notice.clone());
    }
}

#[test]
fn a_slow_worker_is_named_within_twenty_steps() {
    let board = Switchboard::default();
    let notes = Arc::new(Notes::default());
    let work = |index: u32, session: &Session| {
        let mut beat = Beat::default();
        for step in 1..=20 {
            let busy: f64 = if index == 1 { 0.02 } else { 0.002 };
            beat = Beat {
                step,
                steps: step,
                busy_seconds: beat.busy_seconds + busy,
                wait_seconds: beat.wait_seconds + 0.02 - busy,
                step_seconds: beat.step_seconds + 0.02,
            };
            session.progress(beat);
            // The early heartbeat is asked for at step 8; on a busy machine it goes out when it can.
            while step == 8 && session.shared.steps_told() < step {
                thread::sleep(Duration::from_millis(1));
            }
        }
    };
    let other = task(&board, settings(worker(1), 2, OnLoss::Stop, 10), move |session| {
        let session = session.unwrap();
        work(1, &session);
        session.finish(Value::Null).unwrap();
    });
    let gate: Arc<dyn Gate> = Arc::new(board.line(worker(0)));
    let observer: Arc<dyn SessionObserver> = Arc::clone(&notes) as Arc<dyn SessionObserver>;
    let session =
        Session::start(gate, &settings(worker(0), 2, OnLoss::Stop, 10), observer).unwrap();
    work(0, &session);
    session.finish(Value::Null).unwrap();
    other.join().unwrap();
    let notes = notes.0.lock().unwrap();
    let slow = notes.iter().find_map(|notice| match notice {
        Notice::Straggler(straggler) => Some(straggler.clone()),
        _ => None,
    });
    let slow = slow.expect("no task was named");
    assert_eq!(slow.task, worker(1));
    assert!((0.8..=1.0).contains(&slow.wait_share), "{slow}");
}

/// Waits until the chief has named worker 2, then lets go of the link that its host still holds open.
fn held_by_the_lost(play: impl Fn(&Session) -> LinkError + Send + 'static) -> LinkError {
    let board = Switchboard::default();
    let of = |index| {
        let mut settings = settings(worker(index), 3, OnLoss::Continue, 10);
        settings.rules.regroup = false; // the others go on in the same generation
        settings
    };
    let chief = task(&board, of(0), |session| session.unwrap().finish(Value::Null).map(drop));
    let other = task(&board, of(1), move |session| {
        let session = session.unwrap();
        let error = play(&session);
        assert!(!session.interrupted().load(Ordering::Relaxed));
        session.finish(Value::Null).unwrap();
        error
    });
    let lost = task(&board, of(2), |session| {
        // Its host is cut off: the session is heard no more, but its connections are not closed.
        let wait = Wait::within(HANG, "testing");
        session.unwrap().connect(worker(1), Channel::ParameterServer, &wait).unwrap()
    });
    let held = lost.join().unwrap();
    let error = other.join().unwrap();
    chief.join().unwrap().unwrap();
    drop(held);
    error
}

#[test]
fn no_task_waits_for_a_lost_one_whose_connections_stay_open() {
    let wait = || Wait::within(HANG, "testing");
    let error = held_by_the_lost(move |session| {
        let mut link = session.accept(worker(2), Channel::ParameterServer, &wait()).unwrap();
        link.receiver.receive(&wait()).unwrap_err()
    });
    assert!(error.is_lost(), "receiving: {error}");
    let error = held_by_the_lost(move |session| {
        let mut link = session.accept(worker(2), Channel::ParameterServer, &wait()).unwrap();
        link.sender.send(1, 0, &[&vec![0; 4 << 20]]).unwrap_err()
    });
    assert!(error.is_lost(), "sending: {error}");
}

/// A line on which data connections are not answered.
struct Unanswered(SwitchboardLine);

impl Gate for Unanswered {
    fn address(&self) -> String {
        self.0.address()
    }

    fn dial(
        &self,
        task: TaskId,
        address: &str,
        purpose: Purpose,
        wait: &Wait<'_>,
    ) -> Result<Link, LinkError> {
        if purpose == Purpose::Control {
            return self.0.dial(task, address, purpose, wait);
        }
        while !wait.cancelled() && !wait.left().is_zero() {
            thread::sleep(Duration::from_millis(5));
        }
        let (address, phase) = (address.to_owned(), wait.phase.to_owned());
        Err(LinkError::Cancelled { task, address, phase })
    }

    fn accept(&self, wait: &Wait<'_>) -> Result<(Purpose, Link), LinkError> {
        self.0.accept(wait)
    }

    fn nudge(&self) {
        self.0.nudge();
    }
}

#[test]
fn connecting_to_a_task_ends_when_it_is_lost() {
    let board = Switchboard::default();
    let gate: Arc<dyn Gate> = Arc::new(Unanswered(board.line(worker(0))));
    let lost = task(&board, settings(worker(1), 2, OnLoss::Continue, 10), drop);
    let chief = settings(worker(0), 2, OnLoss::Continue, 10);
    let session = Session::start(gate, &chief, Arc::new(Unobserved)).unwrap();
    let wait = Wait::within(HANG, "handing weights over");
    let error = session.connect(worker(1), Channel::ParameterServer, &wait).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(error.task(), Some(worker(1)));
    lost.join().unwrap();
}

#[test]
fn a_message_under_way_is_given_up_when_the_generation_is_over() {
    let board = Switchboard::default();
    let of = |index| settings(worker(index), 4, OnLoss::Continue, 10);
    let wait = || Wait::within(HANG, "testing");
    let leave = |session: &Session| {
        session.regroup(None, "the generation is over").unwrap();
        session.finish(Value::Null).unwrap();
    };
    let chief = task(&board, of(0), move |session| leave(&session.unwrap()));
    let deaf = task(&board, of(1), move |session| {
        let session = session.unwrap();
        let _unread = session.accept(worker(2), Channel::ParameterServer, &wait()).unwrap();
        leave(&session);
    });
    let sender = task(&board, of(2), move |session| {
        let session = session.unwrap();
        let mut link = session.connect(worker(1), Channel::ParameterServer, &wait()).unwrap();
        let error = link.sender.send(1, 0, &[&vec![0; 4 << 20]]).unwrap_err();
        leave(&session);
        error
    });
    task(&board, of(3), drop).join().unwrap();
    let error = sender.join().unwrap();
    assert!(matches!(error, LinkError::Cancelled { .. }), "{error}");
    deaf.join().unwrap();
    chief.join().unwrap();
}

/// The first weights may come after a loss: the others have regrouped, and the evaluator takes no part in that.
#[test]
fn an_evaluator_is_reached_in_every_generation() {
    let board = Switchboard::default();
    let evaluator = TaskId::new(Role::Evaluator, 0);
    let of = |me| {
        let mut settings = settings(me, 2, OnLoss::Continue, 10);
        settings.tasks.insert(evaluator, String::new());
        settings
    };
    let wait = || Wait::within(HANG, "testing");
    let scores = task(&board, of(evaluator), move |session| {
        let session = session.unwrap();
        let mut link = session.accept(worker(0), Channel::Evaluator, &wait()).unwrap();
        link.receiver.receive(&wait()).unwrap().number
    });
    let chief = task(&board, of(worker(0)), move |session| {
        let session = session.unwrap();
        let view = session.regroup(None, "the other is gone").unwrap().unwrap();
        assert_eq!(view.generation, 2);
        let mut link = session.connect(evaluator, Channel::Evaluator, &wait()).unwrap();
        link.sender.send(1, 17, &[]).unwrap();
        session.finish(Value::Null).unwrap();
    });
    task(&board, of(worker(1)), drop).join().unwrap();
    chief.join().unwrap();
    assert_eq!(scores.join().unwrap(), 17);
}

#[test]
fn a_worker_whose_data_do_not_come_is_named() {
    let board = Switchboard::default();
    let notes = Arc::new(Notes::default());
    let since = Instant::now() - Duration::from_secs(100);
    let (told, heard) = mpsc::channel::<()>();
    let other = task(&board, settings(worker(1), 2, OnLoss::Stop, 10), move |session| {
        let session = session.unwrap();
        session.reading(Some(since));
        let _ = heard.recv();
        session.finish(Value::Null).unwrap();
    });
    let gate: Arc<dyn Gate> = Arc::new(board.line(worker(0)));
    let observer: Arc<dyn SessionObserver> = Arc::clone(&notes) as Arc<dyn SessionObserver>;
    let session =
        Session::start(gate, &settings(worker(0), 2, OnLoss::Stop, 10), observer).unwrap();
    let named = || {
        let notes = notes.0.lock().unwrap();
        let starved = notes.iter().filter_map(|notice| match notice {
            Notice::Starved(starved) => Some(starved.clone()),
            _ => None,
        });
        starved.collect::<Vec<_>>()
    };
    while named().is_empty() {
        assert!(since.elapsed() < HANG, "no task was named");
        thread::sleep(Duration::from_millis(10));
    }
    drop(told);
    session.finish(Value::Null).unwrap();
    other.join().unwrap();
    let named = named();
    assert_eq!((named.len(), named[0].task), (1, worker(1)), "the chief has its data");
    assert!(named[0].to_string().contains("worker/1 has made no step for 10"), "{}", named[0]);
}

/// They waited for weights from a chief that was done, up to five minutes, and for each other up to an hour.
#[test]
fn a_generation_that_the_chief_is_too_late_for_ends_when_the_chief_has_done_its_part() {
    let server = TaskId::new(Role::Ps, 0);
    let settings = move |me| {
        let mut settings = settings(me, 3, OnLoss::Continue, 60);
        settings.tasks.insert(server, String::new());
        settings
    };
    let board = Switchboard::default();
    let (formed, others_formed) = mpsc::channel();
    let chief = task(&board, settings(worker(0)), move |session| {
        let session = session.unwrap();
        (0..2).for_each(|_| others_formed.recv_timeout(HANG).unwrap());
        let reports = session.finish(json!("done")).unwrap();
        (reports, session.view().generation)
    });
    let lost = task(&board, settings(worker(2)), |session| drop(session.unwrap()));
    let others: Vec<_> = [(worker(1), server), (server, worker(0))]
        .into_iter()
        .map(|(me, to)| {
            let formed = formed.clone();
            task(&board, settings(me), move |session| {
                let session = session.unwrap();
                let view = session.regroup(None, "worker/2 is gone").unwrap().unwrap();
                assert_eq!((view.generation, view.concluded), (2, None));
                formed.send(()).unwrap();
                let wait = Wait::within(HANG, "testing").unless(session.interrupted());
                let mut link = session.connect(to, Channel::Lineage, &wait).unwrap();
                let error = link.receiver.receive(&wait).unwrap_err();
                assert!(matches!(error, LinkError::Cancelled { .. }), "{error}");
                assert_eq!(session.regroup(Some(to), &error.to_string()).unwrap(), None);
                if me == server {
                    session.wait_for_release().unwrap();
                } else {
                    session.finish(json!("done too")).unwrap();
                }
            })
        })
        .collect();
    lost.join().unwrap();
    others.into_iter().for_each(|one| one.join().unwrap());
    let (reports, generation) = chief.join().unwrap();
    assert_eq!((reports.len(), generation), (2, 1));
}

/// A worker that had left could not do again what a server lost just before the chief was done: its rows since the last checkpoint were missing,
/// and the run said it was done.
#[test]
fn a_worker_that_is_done_is_there_until_the_chief_has_saved_what_it_did() {
    let server = TaskId::new(Role::Ps, 0);
    let settings = move |me| {
        let mut settings = settings(me, 2, OnLoss::Restart, 900);
        settings.tasks.insert(server, String::new());
        settings
    };
    let board = Switchboard::default();
    let (done, worker_is_done) = mpsc::channel();
    let (formed, worker_formed) = mpsc::channel();
    let chief = task(&board, settings(worker(0)), move |session| {
        let session = session.unwrap();
        let view = session.regroup(Some(server), "it is gone").unwrap().unwrap();
        assert_eq!(worker_formed.recv_timeout(HANG).unwrap(), view.generation);
        session.finish(json!("done")).unwrap().len()
    });
    let other = task(&board, settings(worker(1)), move |session| {
        let session = session.unwrap();
        done.send(()).unwrap();
        let view = session.wait_for_chief().unwrap().expect("nothing is saved yet");
        assert_eq!((view.restored, view.complete), (view.generation, true));
        formed.send(view.generation).unwrap();
        assert_eq!(session.wait_for_chief().unwrap(), None);
        session.finish(json!("done too")).unwrap();
    });
    let lost = task(&board, settings(server), move |session| {
        let session = session.unwrap();
        worker_is_done.recv_timeout(HANG).unwrap();
        drop(session);
    });
    lost.join().unwrap();
    let again = task(&board, settings(server), |session| {
        session.unwrap().wait_for_release().unwrap();
    });
    assert_eq!(chief.join().unwrap(), 2);
    other.join().unwrap();
    again.join().unwrap();
}
