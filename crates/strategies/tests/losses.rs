//! Tasks that go away in every phase, and peers that talk nonsense: an error with a name, or the others
//! go on; never a wait without end.

#![allow(clippy::unwrap_used)]

mod job;

use job::{
    BATCH, Job, PATIENCE, WEIGHTS, assert_close,
    gate::{Gate, gated},
    server, worker,
};
use paceline_cluster::{
    JobMembership,
    membership::{ThreadMembership, ThreadedJob},
};
use paceline_models::kernels::Buffer;
use paceline_strategies::{Server, StepInfo, StrategyError};
use paceline_wire::{Channel, Head, Link, Wait};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// Kinds of messages, as they stand on the wire.
const PUSH: u8 = 4;
const SUM: u8 = 5;
const HOLD: u8 = 6;

/// Runs a job in which worker 1 is `other`; returns what worker 0 and the others got.
fn with_intruder(
    job: &Job,
    intruder: impl FnOnce(Arc<ThreadMembership>) + Send,
) -> Vec<job::Outcome> {
    std::thread::scope(|scope| {
        let servers: Vec<_> = (0..job.servers)
            .map(|index| {
                let server = job.server(index);
                scope.spawn(move || server.serve())
            })
            .collect();
        let honest: Vec<_> = (0..job.workers)
            .filter(|index| *index != 1)
            .map(|index| {
                let membership = job.table.membership(worker(index));
                scope.spawn(move || {
                    let exchange = job.exchange(Some(membership)).unwrap();
                    // A little slow, so that the other one has its say.
                    job.work(exchange, |_| std::thread::sleep(Duration::from_micros(300))).unwrap()
                })
            })
            .collect();
        let membership = job.table.membership(worker(1));
        scope.spawn(move || {
            intruder(membership);
            job.table.miss(worker(1));
        });
        let outcomes = honest.into_iter().map(|worker| worker.join().unwrap()).collect();
        for server in servers {
            server.join().unwrap().unwrap();
        }
        outcomes
    })
}

fn link_to(membership: &ThreadMembership, index: u32) -> Link {
    let wait = Wait::within(PATIENCE, "testing");
    membership.connect(server(index), Channel::ParameterServer, &wait).unwrap()
}

fn check_all_served(job: &Job, outcomes: &[job::Outcome], what: &str) {
    let tally = &outcomes[0].tally;
    assert_eq!(tally.staleness.iter().sum::<u64>(), job.steps, "{what}: one step, one update");
    assert_eq!(outcomes[0].step, job.steps, "{what}");
    assert_eq!(tally.examples, job.steps * BATCH, "{what}: every batch was used once");
}

#[test]
fn without_step_the_others_do_what_a_lost_worker_left() {
    for phase in ["never comes", "asks", "pulls", "pushes once", "in the middle of a push"] {
        for servers in [1, 2] {
            let job = Job::new("ps-async", 3, servers, 60);
            let outcomes = with_intruder(&job, |membership| {
                if phase == "never comes" {
                    return;
                }
                let mut exchange = job.exchange(Some(Arc::clone(&membership))).unwrap();
                let Some(ticket) = exchange.deal(0).unwrap() else { return };
                let mut params = vec![0.0; WEIGHTS];
                let mut grad = Buffer::zeroed(WEIGHTS);
                match phase {
                    "asks" => {}
                    "pulls" => {
                        let info = StepInfo { step: ticket.batch, rate: 0.1, examples: BATCH };
                        exchange.pull(info, &mut params).unwrap();
                    }
                    "pushes once" => {
                        let pushed = job.step(&mut *exchange, ticket, &mut params, &mut grad);
                        assert!(pushed.unwrap().version.0 > 0);
                    }
                    _ => {
                        drop(exchange);
                        let mut link = link_to(&membership, 0);
                        let length = 56 + 4 * WEIGHTS as u64;
                        let head = Head { kind: PUSH, number: ticket.batch, length };
                        link.sender.start(head).unwrap();
                        link.sender.push(&[0; 100]).unwrap();
                    }
                }
            });
            check_all_served(&job, &outcomes, phase);
        }
    }
}

#[test]
fn a_malformed_message_ends_only_its_sender() {
    let messages: [(&str, u8, u64, Vec<u8>); 7] = [
        ("no such kind", 99, 0, vec![1, 2, 3]),
        ("a push without a head", PUSH, 0, vec![0; 10]),
        ("a dense push that is too short", PUSH, 0, {
            let mut push = vec![0; 56];
            push[12] = 1;
            push
        }),
        ("a push in a form that does not exist", PUSH, 0, {
            let mut push = vec![0; 60];
            push[12] = 2;
            push[48..56].fill(0xff);
            push
        }),
        ("a request that only older versions make", 3, 7, vec![0xff; 20]),
        ("numbers of odd length", SUM, 0, vec![0; 13]),
        ("a hold that is never released", HOLD, 0, vec![]),
    ];
    for (what, kind, number, payload) in messages {
        let job = Job::new("ps-async", 3, 2, 30);
        let outcomes = with_intruder(&job, |membership| {
            for index in 0..2 {
                let mut link = link_to(&membership, index);
                link.sender.send(kind, number, &[&payload]).unwrap();
                // Disconnects without a message, once the server has had time to read it.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        check_all_served(&job, &outcomes, what);
    }
}

#[test]
fn a_worker_that_comes_back_is_given_work_again() {
    let job = Job::new("ps-async", 2, 1, 200);
    let outcomes = with_intruder(&job, |membership| {
        let exchange = job.exchange(Some(Arc::clone(&membership))).unwrap();
        drop(exchange);
        let exchange = job.exchange(Some(membership)).unwrap();
        let outcome = job.work(exchange, |_| ()).unwrap();
        assert!(outcome.examples > 0);
        assert_eq!(outcome.step.max(1), outcome.step);
    });
    check_all_served(&job, &outcomes, "came back");
    let workers: BTreeSet<usize> =
        job.served.lock().unwrap().iter().map(|served| served.1).collect();
    assert_eq!(workers.len(), 2, "both had a share");
}

/// Waits until the session has said that a new generation begins.
fn next_generation(membership: &ThreadMembership) {
    let begun = Instant::now();
    while !membership.alarm().swap(false, Ordering::AcqRel) {
        assert!(begun.elapsed() < PATIENCE, "no new generation was announced");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The weights that a worker had with its last answer, when it had nothing more to do, count as handed out to no worker.
#[test]
fn a_lost_workers_batch_is_not_made_from_weights_beyond_the_bound() {
    let mut job = Job::new("ps-async", 2, 1, 4);
    job.options.max_staleness = Some(1);
    let (batch, staleness) = std::thread::scope(|scope| {
        let held = job.server(0);
        scope.spawn(move || held.serve().unwrap());
        let [mut lost, mut other] = [0, 1].map(|index| {
            let membership = job.table.membership(worker(index));
            job.exchange(Some(membership)).unwrap()
        });
        let (mut params, mut grad) = (job.start.clone(), Buffer::zeroed(WEIGHTS));
        let mut ticket = lost.deal(0).unwrap().unwrap(); // and two more
        let last = other.deal(0).unwrap().unwrap();
        job.step(&mut *other, last, &mut params, &mut grad).unwrap();
        for _ in 0..2 {
            job.step(&mut *lost, ticket, &mut params, &mut grad).unwrap();
            ticket = lost.deal(0).unwrap().unwrap();
        }
        drop(lost);
        let again = other.deal(0).unwrap().unwrap();
        let pushed = job.step(&mut *other, again, &mut params, &mut grad).unwrap();
        other.leave().unwrap();
        (again.batch, pushed.staleness)
    });
    assert_eq!(batch, 2, "it was dealt again");
    assert!(staleness <= 1, "stale by {staleness}");
}

/// A worker died between two servers, and all that was left was dealt to one of the others when they formed again: it must not wait
/// for an update that only those could bring that wait for work.
#[test]
fn workers_that_form_again_wait_for_no_update_that_was_cut_short() {
    let gate = Arc::new(Gate::default());
    let mut job = Job::new("ps-async", 3, 2, 4);
    job.table = ThreadedJob::over(gated(vec![(worker(1), server(1), gate.clone())]), 3, 2);
    let job = &job;
    let versions = std::thread::scope(|scope| {
        let servers = [0, 1].map(|index| {
            let membership = job.table.membership(server(index));
            let held = Arc::new(job.server_at(Arc::clone(&membership)));
            let serving = Arc::clone(&held);
            scope.spawn(move || {
                serving.serve().unwrap_err();
                next_generation(&membership);
                serving.serve().unwrap();
            });
            held
        });
        let members = [0, 1, 2].map(|index| job.table.membership(worker(index)));
        let exchanges = members.each_ref().map(|one| job.exchange(Some(Arc::clone(one))).unwrap());
        let [mut first, mut lost, second] = exchanges;
        first.deal(0).unwrap(); // all batches but one
        let last = lost.deal(0).unwrap().unwrap();
        gate.close();
        let dying = scope.spawn(move || {
            let (mut params, mut grad) = (job.start.clone(), Buffer::zeroed(WEIGHTS));
            job.step(&mut *lost, last, &mut params, &mut grad).is_err()
        });
        let begun = Instant::now();
        while servers[0].version() == 0 {
            assert!(begun.elapsed() < PATIENCE, "it has the gradient");
            std::thread::sleep(Duration::from_millis(1));
        }
        gate.break_down();
        assert!(dying.join().unwrap());
        job.table.lose(worker(1));
        let [one, _, two] = members;
        let workers = [(first, one), (second, two)].map(|(mut exchange, membership)| {
            scope.spawn(move || {
                let (mut params, mut grad) = (job.start.clone(), Buffer::zeroed(WEIGHTS));
                next_generation(&membership);
                exchange.reform(&mut params).unwrap();
                while let Some(ticket) = exchange.deal(0).unwrap() {
                    job.step(&mut *exchange, ticket, &mut params, &mut grad).unwrap();
                }
                exchange.leave().unwrap();
            })
        });
        for worker in workers {
            worker.join().unwrap();
        }
        servers.map(|server| server.version())
    });
    assert_eq!(versions, [4, 3], "one never had the gradient of the lost worker");
}

#[test]
fn synchronous_workers_are_all_told_which_worker_was_lost() {
    for phase in ["before its first step", "while the others wait"] {
        let job = Job::new("ps-sync", 3, 2, 20);
        std::thread::scope(|scope| {
            let servers: Vec<_> = (0..2)
                .map(|index| {
                    let server = job.server(index);
                    scope.spawn(move || server.serve().unwrap_err())
                })
                .collect();
            let others: Vec<_> = [0, 2]
                .map(|index| {
                    let (job, membership) = (&job, job.table.membership(worker(index)));
                    scope.spawn(move || {
                        let exchange = job.exchange(Some(membership)).unwrap();
                        job.work(exchange, |_| ()).map(|_| ()).unwrap_err()
                    })
                })
                .into();
            let mut lost = job.exchange(Some(job.table.membership(worker(1)))).unwrap();
            if phase != "before its first step" {
                let ticket = lost.deal(0).unwrap().unwrap();
                let (mut params, mut grad) = (vec![0.0; WEIGHTS], Buffer::zeroed(WEIGHTS));
                job.step(&mut *lost, ticket, &mut params, &mut grad).unwrap();
                std::thread::sleep(Duration::from_millis(30));
            }
            drop(lost);
            let errors = others.into_iter().map(|other| other.join().unwrap());
            let errors = errors.chain(servers.into_iter().map(|server| server.join().unwrap()));
            for error in errors {
                assert_eq!(error.lost(), Some(worker(1)), "{phase}: {error}");
                assert!(error.to_string().contains("worker/1 was lost"), "{error}");
            }
        });
    }
}

#[test]
fn synchronous_workers_continue_at_the_last_completed_step() {
    for (servers, dies_at) in [(1, 0), (1, 6), (2, 6), (3, 1)] {
        let job = Job::new("ps-sync", 3, servers, 20);
        lose_one(
            &job,
            dies_at,
            &format!("{servers} servers, lost at step {dies_at}"),
            |_| (),
            |_| (),
        );
    }
}

/// A worker dies when one server has its last gradient and makes the step, and the other has not.
#[test]
fn a_step_that_only_some_servers_made_is_rolled_back() {
    for (cut_off, sparse) in [(0, false), (1, false), (1, true)] {
        let gate = Arc::new(Gate::default());
        let mut job = Job::new("ps-sync", 3, 2, 20);
        job.table =
            ThreadedJob::over(gated(vec![(worker(1), server(cut_off), gate.clone())]), 3, 2);
        if sparse {
            (job.sparse, job.optimizer) = (true, "adagrad");
        }
        let what = format!("cut off from server {cut_off}, sparse {sparse}");
        let ahead = 1 - cut_off as usize;
        let close = |step| {
            if step == 6 {
                gate.close();
            }
        };
        lose_one(&job, 20, &what, close, |servers| {
            let begun = Instant::now();
            while servers[ahead].version() < 7 {
                assert!(begun.elapsed() < PATIENCE, "{what}: it has all gradients");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(servers[1 - ahead].version(), 6);
            gate.break_down();
        });
    }
}

/// Runs a job in which worker 1, which calls `before` with every step, dies at a step or when its link breaks in the
/// `meantime`; and checks that the rest ends where one worker does.
fn lose_one(
    job: &Job,
    dies_at: u64,
    what: &str,
    before: impl Fn(u64) + Sync,
    meantime: impl FnOnce(&[Arc<Server>]),
) {
    let results: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let mut servers = Vec::new();
        for index in 0..job.servers {
            let membership = job.table.membership(server(index));
            let held = Arc::new(job.server_at(Arc::clone(&membership)));
            servers.push(Arc::clone(&held));
            scope.spawn(move || {
                assert_eq!(held.serve().unwrap_err().lost(), Some(worker(1)));
                next_generation(&membership);
                held.serve().unwrap();
            });
        }
        let before = &before;
        let workers: Vec<_> = [0, 1, 2]
            .map(|index| {
                scope.spawn(move || match index {
                    1 => persevere(job, index, Some(dies_at), before).unwrap(),
                    _ => persevere(job, index, None, |_| ()).unwrap(),
                })
            })
            .into();
        meantime(&servers);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(results[0], results[2], "{what}: the same bits");
    // Nothing was lost but the worker: every completed step used its whole batch.
    assert_close(&results[0], &job.alone().params, 1e-5, what);
}

fn persevere(
    job: &Job,
    index: u32,
    dies_at: Option<u64>,
    before: impl Fn(u64),
) -> Result<Vec<f32>, StrategyError> {
    let membership = job.table.membership(worker(index));
    let mut exchange = job.exchange(Some(Arc::clone(&membership)))?;
    let mut params = job.start.clone();
    let mut grad = Buffer::zeroed(params.len());
    let mut step = 0;
    exchange.sum(&mut [0.0])?; // no worker dies before all are connected
    let die = |exchange| {
        drop(exchange);
        std::thread::sleep(Duration::from_millis(50));
        job.table.lose(worker(index));
    };
    while step < job.steps {
        if dies_at == Some(step) {
            die(exchange);
            return Ok(params);
        }
        before(step);
        let ticket = exchange.deal(step)?.unwrap();
        match job.step(&mut *exchange, ticket, &mut params, &mut grad) {
            Ok(pushed) => step = pushed.version.0,
            Err(_) if dies_at.is_some() => {
                die(exchange);
                return Ok(params);
            }
            Err(error) => {
                assert_eq!(error.lost(), Some(worker(1)), "{error}");
                next_generation(&membership);
                step = exchange.reform(&mut params)?.0;
            }
        }
    }
    let last = StepInfo { step, rate: 0.0, examples: BATCH };
    exchange.pull(last, &mut params)?;
    exchange.leave()?;
    Ok(params)
}

#[test]
fn a_lost_server_is_named_to_every_worker() {
    for strategy in ["ps-sync", "ps-async"] {
        let job = Job::new(strategy, 2, 2, 1_000_000);
        std::thread::scope(|scope| {
            let memberships = [0, 1].map(|index| job.table.membership(server(index)));
            let servers: Vec<_> = memberships
                .iter()
                .map(|membership| {
                    let server = job.server_at(Arc::clone(membership));
                    scope.spawn(move || {
                        // Ends as if its process died: the links go away with it.
                        let _ = server.serve();
                    })
                })
                .collect();
            let workers: Vec<_> = (0..2)
                .map(|index| {
                    let (job, membership) = (&job, job.table.membership(worker(index)));
                    scope.spawn(move || {
                        let exchange = job.exchange(Some(membership)).unwrap();
                        job.work(exchange, |_| ()).map(|_| ()).unwrap_err()
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(50));
            job.table.lose(server(1));
            memberships[1].alarm().store(true, Ordering::Release);
            for worker in workers {
                let error = worker.join().unwrap();
                assert_eq!(error.lost(), Some(server(1)), "{strategy}: {error}");
            }
            for server in servers {
                server.join().unwrap();
            }
        });
    }
}

#[test]
fn a_job_without_servers_or_with_too_many_backups_is_refused() {
    let job = Job::new("ps-async", 2, 0, 10);
    let error = job.exchange(Some(job.table.membership(worker(0)))).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("at least one server"), "{error}");
    let mut job = Job::new("ps-sync", 2, 1, 10);
    job.options.backup_workers = 2;
    let error = job.exchange(Some(job.table.membership(worker(0)))).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("backup workers is 2"), "{error}");
}
