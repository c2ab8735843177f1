//! Copies of sparse weights while workers continue, and gradients that only some servers have: every row
//! is in the weights exactly once.
//!
//! Every gradient adds exactly 1 to each weight of its worker, whichever other workers take part: a weight counts the
//! gradients of its worker.

#![allow(clippy::unwrap_used)]

use paceline_cluster::{
    JobMembership,
    membership::{ThreadMembership, ThreadedJob as Job},
};
use paceline_models::sparse_logistic::{RuleSettings, SparseLogistic};
use paceline_strategies::{
    Combine, Transfer,
    sparse::{Beginning, Overseer, Push, SparseClient, SparseOptions, SparseServer},
};
use paceline_wire::{Channel, Head, Link, Role, TaskId, Wait};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const BITS: u32 = 16;
/// The first of two servers has the first half of the weights.
const HALF: usize = 1 << (BITS - 1);

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(900);

/// Kinds of messages, as they stand on the wire, and bytes of the head of a step.
const HELLO: u8 = 32;
const STEP: u8 = 34;
const STEP_HEAD: usize = 88;

fn options(synchronous: bool, transfer: Transfer) -> SparseOptions {
    SparseOptions {
        bits: BITS,
        rule: "sgd",
        settings: RuleSettings { rate: 1.0, l1: 0.0, l2: 0.0, beta: 0.0 },
        synchronous,
        combine: Combine::Mean,
        transfer,
        returning: Duration::ZERO,
        patience: LONG,
    }
}

fn worker(index: u32) -> TaskId {
    TaskId::new(Role::Worker, index)
}

/// The weights of a worker: its own, in all parts.
fn numbers(task: TaskId) -> Vec<u32> {
    (0..200).map(|at| 320 * at + task.index).collect()
}

/// Synchronous updates divide the gradients by their examples: one, as long as the chief is there.
fn examples(task: TaskId) -> u64 {
    u64::from(task.index == 0)
}

fn mark(turn: u64) -> [u64; 6] {
    [turn, 0, 0, 0, 0, 0]
}

/// Raised at the end, however it ends: threads that wait for each other would hide what went wrong.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A server, generation after generation.
fn serve(membership: &Arc<ThreadMembership>, options: SparseOptions, over: &AtomicBool) {
    let server =
        SparseServer::new(Arc::clone(membership) as Arc<dyn JobMembership>, options).unwrap();
    while server.serve(&|| over.load(Ordering::Acquire), None).is_err() {
        membership.alarm().store(false, Ordering::Release);
    }
}

/// Begins new servers of a job with these weights; returns the chief's links to them.
fn begin<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    job: &Arc<Job>,
    servers: u32,
    options: SparseOptions,
    over: &'scope AtomicBool,
    from: Option<&Taken>,
) -> (Arc<ThreadMembership>, Overseer) {
    for index in 0..servers {
        let membership = job.membership(TaskId::new(Role::Ps, index));
        scope.spawn(move || serve(&membership, options, over));
    }
    let chief = job.membership(worker(0));
    let mut overseer = Overseer::connect(chief.clone(), &options).unwrap();
    let model = SparseLogistic::new(BITS, options.rule, options.settings).unwrap();
    for (number, weight) in from.iter().flat_map(|copy| &copy.weights) {
        model.table().set(*number, [*weight, 0.0]);
    }
    let beginning = from.map_or_else(Beginning::default, |copy| copy.beginning.clone());
    overseer.give(1, &beginning, Some(model.table())).unwrap();
    (chief, overseer)
}

/// Pushes gradients until turn `until`, or until it or another worker wants to stop; `lost` is called when the
/// generation was lost.
fn work(
    membership: &Arc<ThreadMembership>,
    options: SparseOptions,
    until: u64,
    stop: &AtomicBool,
    mut lost: impl FnMut(),
) -> SparseClient {
    let me = membership.me();
    let (mut client, mut welcome) =
        SparseClient::connect(membership.clone(), options, "ps").unwrap();
    let touched = numbers(me);
    let grads = vec![-1.0; touched.len()];
    let mut weights = Vec::new();
    loop {
        let mut turn = welcome.mark.map_or(0, |mark| mark[0]);
        let mut stopped = false;
        let result = client.step(None, &touched, &mut weights, false).and_then(|_| {
            while turn < until && !stopped {
                let examples = examples(me);
                let mark = mark(turn + 1);
                let push = Push { touched: &touched, grads: &grads, sizes: &[], examples, mark };
                let wish = stop.load(Ordering::Acquire);
                let answer = client.step(Some(push), &touched, &mut weights, wish)?;
                stopped = wish || answer.stop;
                turn += 1;
            }
            Ok(())
        });
        if result.is_ok() {
            return client;
        }
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < LONG, "{me} does not find the servers again");
            membership.alarm().store(false, Ordering::Release);
            lost();
            if let Ok(again) = client.reconnect() {
                welcome = again;
                break;
            }
        }
    }
}

/// A copy, with the weights that are not zero.
#[derive(Clone)]
struct Taken {
    beginning: Beginning,
    weights: BTreeMap<usize, f32>,
}

fn copy(overseer: &mut Overseer) -> Option<Taken> {
    let mut weights = BTreeMap::new();
    let take = |number, slot: [f32; 2]| {
        weights.insert(number, slot[0]);
    };
    let beginning = overseer.copy(take).unwrap()?;
    Some(Taken { beginning, weights })
}

impl Taken {
    fn turn(&self, task: TaskId) -> u64 {
        self.beginning.marks.iter().find(|(of, _)| *of == task).map_or(0, |(_, mark)| mark[0])
    }

    /// Every weight has the gradients of its worker up to the bookmark, and no others.
    fn check(&self, workers: u32, what: &str) {
        let mut touched = 0;
        for task in (0..workers).map(worker) {
            let turn = self.turn(task);
            touched += if turn > 0 { numbers(task).len() } else { 0 };
            for number in numbers(task) {
                let found = self.weights.get(&(number as usize)).copied().unwrap_or(0.0);
                assert_eq!(found, turn as f32, "{what}: {task} has turn {turn}, weight {number}");
            }
        }
        assert_eq!(self.weights.len(), touched, "{what}: nothing else was touched");
        assert_eq!(self.beginning.examples, self.turn(worker(0)), "{what}: {:?}", self.beginning);
    }

    fn updates(&self, workers: u32, synchronous: bool) -> u64 {
        let turns = (0..workers).map(|index| self.turn(worker(index)));
        if synchronous { turns.max().unwrap() } else { turns.sum() }
    }
}

#[test]
fn a_copy_in_mid_run_has_every_row_up_to_the_bookmarks_and_none_beyond() {
    const WORKERS: u32 = 4;
    for (synchronous, transfer) in
        [(false, Transfer::Sparse), (true, Transfer::Sparse), (false, Transfer::Dense)]
    {
        let options = options(synchronous, transfer);
        let what = format!("synchronous: {synchronous}, {transfer}");
        let over = AtomicBool::new(false);
        let (enough, never) = (AtomicBool::new(false), AtomicBool::new(false));
        let job = Job::new(WORKERS, 3);
        let mut copies = Vec::new();
        std::thread::scope(|scope| {
            let _raised = (Raise(&over), Raise(&enough));
            let (chief, mut overseer) = begin(scope, &job, 3, options, &over, None);
            let workers: Vec<_> = (0..WORKERS)
                .map(|index| {
                    let membership =
                        if index == 0 { chief.clone() } else { job.membership(worker(index)) };
                    let enough = &enough;
                    scope.spawn(move || {
                        work(&membership, options, u64::MAX, enough, || panic!()).end().unwrap()
                    })
                })
                .collect();
            let begun = Instant::now();
            while copies.len() < 25 {
                assert!(begun.elapsed() < LONG, "{what}: {} copies", copies.len());
                let copy = copy(&mut overseer).unwrap();
                copy.check(WORKERS, &what);
                assert_eq!(copy.beginning.version, copy.updates(WORKERS, synchronous), "{what}");
                let last = copies.last().map_or(0, |last: &Taken| last.beginning.version);
                if copy.beginning.version > last {
                    copies.push(copy); // the workers went on meanwhile
                }
            }
            enough.store(true, Ordering::Release);
            for worker in workers {
                worker.join().unwrap();
            }
            let last = copy(&mut overseer).unwrap();
            last.check(WORKERS, &what);
        });
        // From one of them, with another number of servers: what was learned later is learned again, once.
        let from = &copies[copies.len() / 2];
        let until = (0..WORKERS).map(|index| from.turn(worker(index))).max().unwrap() + 20;
        let over = AtomicBool::new(false);
        let job = Job::new(WORKERS, 2);
        std::thread::scope(|scope| {
            let _raised = Raise(&over);
            let (chief, mut overseer) = begin(scope, &job, 2, options, &over, Some(from));
            let workers: Vec<_> = (0..WORKERS)
                .map(|index| {
                    let membership =
                        if index == 0 { chief.clone() } else { job.membership(worker(index)) };
                    let never = &never;
                    scope.spawn(move || {
                        work(&membership, options, until, never, || panic!()).end().unwrap()
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap();
            }
            let last = copy(&mut overseer).unwrap();
            last.check(WORKERS, &what);
            for task in (0..WORKERS).map(worker) {
                assert_eq!(last.turn(task), until, "{what}: {task}");
            }
            assert_eq!(last.beginning.version, last.updates(WORKERS, synchronous), "{what}");
        });
    }
}

fn wait() -> Wait<'static> {
    Wait::within(LONG, "testing")
}

/// A link to a server, which has said hello.
fn link_to(membership: &ThreadMembership, server: u32) -> Link {
    let wait = wait();
    let mut link =
        membership.connect(TaskId::new(Role::Ps, server), Channel::ParameterServer, &wait).unwrap();
    link.sender.send(HELLO, 0, &[]).unwrap();
    let mut welcome = Vec::new();
    link.receiver.receive_into(&wait, 64, &mut welcome).unwrap();
    link
}

/// Sends a worker's gradient to the first of two servers, all of its part, and not to the second.
fn push_to_the_first(membership: &ThreadMembership, turn: u64) -> Link {
    let mut link = link_to(membership, 0);
    let mut head = [0; STEP_HEAD];
    head[..8].copy_from_slice(&examples(membership.me()).to_le_bytes());
    head[8] = 2; // everything follows
    head[32..40].copy_from_slice(&turn.to_le_bytes());
    head[40..48].copy_from_slice(&turn.to_le_bytes());
    let mut grads = vec![0_u8; 4 * HALF];
    for number in numbers(membership.me()).into_iter().filter(|number| (*number as usize) < HALF) {
        grads[4 * number as usize..][..4].copy_from_slice(&(-1.0_f32).to_le_bytes());
    }
    link.sender.send(STEP, 0, &[&head, &grads]).unwrap();
    link
}

#[test]
fn a_gradient_that_only_one_server_has_is_sent_again_and_used_once() {
    let never = AtomicBool::new(false);
    let mut options = options(false, Transfer::Sparse);
    options.returning = LONG;
    let (job, over) = (Job::new(2, 2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _raised = Raise(&over);
        let (chief, mut overseer) = begin(scope, &job, 2, options, &over, None);
        let membership = job.membership(worker(1));
        drop(work(&membership, options, 5, &never, || panic!()));
        let mut link = push_to_the_first(&membership, 6);
        link.receiver.receive(&wait()).unwrap();
        drop(link); // died before it came to the second server
        assert!(copy(&mut overseer).is_none(), "no two servers are equally far");
        // The remaining workers continue all the same.
        let first = work(&chief, options, 9, &never, || panic!());
        let second = work(&membership, options, 8, &never, || panic!());
        let ends = [first, second].map(|mut client| scope.spawn(move || client.end().unwrap()));
        assert_eq!(ends.map(|end| end.join().unwrap()), [17, 17]);
        let last = copy(&mut overseer).unwrap();
        last.check(2, "after its return");
        assert_eq!((last.turn(worker(1)), last.beginning.version), (8, 17));
    });
}

#[test]
fn a_gradient_whose_worker_does_not_return_keeps_no_copy_back() {
    let never = AtomicBool::new(false);
    let options = options(false, Transfer::Sparse);
    let (job, over) = (Job::new(2, 2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _raised = Raise(&over);
        let (chief, mut overseer) = begin(scope, &job, 2, options, &over, None);
        let membership = job.membership(worker(1));
        drop(work(&membership, options, 5, &never, || panic!()));
        let mut link = push_to_the_first(&membership, 6);
        link.receiver.receive(&wait()).unwrap();
        drop(link);
        job.miss(worker(1));
        let mut first = work(&chief, options, 9, &never, || panic!());
        first.end().unwrap();
        let last = copy(&mut overseer).unwrap();
        assert_eq!((last.turn(worker(1)), last.beginning.version), (6, 15));
    });
}

#[test]
fn synchronous_servers_are_consistent_after_a_loss_in_mid_update() {
    let never = AtomicBool::new(false);
    // All parts whole: the last gradient of the worker that dies is made by hand.
    let options = options(true, Transfer::Dense);
    let (job, over) = (Job::new(3, 2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _raised = Raise(&over);
        let (chief, overseer) = begin(scope, &job, 2, options, &over, None);
        let never = &never;
        let ended = scope.spawn(move || {
            let mut overseer = Some(overseer);
            let keep = || {
                overseer = None;
                let mut again = Overseer::connect(chief.clone(), &options).unwrap();
                assert!(again.keep(1).unwrap(), "both servers hold what they held");
                overseer = Some(again);
            };
            let updates = work(&chief, options, 20, never, keep).end().unwrap();
            (updates, copy(&mut overseer.unwrap()).unwrap())
        });
        let other = job.membership(worker(1));
        scope.spawn(move || work(&other, options, 20, never, || ()).end().unwrap());
        let dying = job.membership(worker(2));
        drop(work(&dying, options, 5, never, || panic!()));
        let mut link = push_to_the_first(&dying, 6);
        link.receiver.receive(&wait()).unwrap(); // the first server has made the update
        job.lose(worker(2));
        let (updates, last) = ended.join().unwrap();
        assert_eq!((updates, last.beginning.version), (20, 20));
        last.check(3, "the update of only one server was rolled back");
        assert_eq!([0, 1, 2].map(|index| last.turn(worker(index))), [20, 20, 5]);
    });
}

#[test]
fn who_lives_and_gives_nothing_is_named_and_not_who_waits_for_it() {
    let never = AtomicBool::new(false);
    for synchronous in [true, false] {
        let options = options(synchronous, Transfer::Sparse);
        let (job, over) = (Job::new(2, 2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _raised = Raise(&over);
            let (chief, mut overseer) = begin(scope, &job, 2, options, &over, None);
            let (membership, never) = (job.membership(worker(1)), &never);
            let client = work(&membership, options, 0, never, || panic!());
            // A synchronous chief waits for the other worker; an asynchronous one is done.
            let chief = scope.spawn(move || work(&chief, options, 1, never, || panic!()).end());
            let long = Duration::from_millis(300);
            let begun = Instant::now();
            while overseer.idle(long).unwrap() != [worker(1)] {
                assert!(begun.elapsed() < LONG, "no task is named");
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(overseer.idle(long).unwrap(), [worker(1)], "the chief is not to blame");
            assert!(overseer.idle(Duration::from_secs(3600)).unwrap().is_empty());
            drop(client);
            work(&membership, options, 1, never, || panic!()).end().unwrap();
            chief.join().unwrap().unwrap();
            assert!(overseer.idle(Duration::ZERO).unwrap().is_empty(), "both have ended");
        });
    }
}

/// The last update of a run that was stopped lacked the examples of a worker: it had heard of the stop before its last gradient.
#[test]
fn a_stop_is_heard_with_the_update_that_it_came_with() {
    let options = options(true, Transfer::Sparse);
    let (job, over) = (Job::new(2, 2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _raised = Raise(&over);
        let (chief, mut overseer) = begin(scope, &job, 2, options, &over, None);
        let membership = job.membership(worker(1));
        let (stop, never) = (AtomicBool::new(true), AtomicBool::new(false));
        let (mut client, _) = SparseClient::connect(chief, options, "ps").unwrap();
        let touched = numbers(worker(0));
        let (grads, mut weights) = (vec![-1.0; touched.len()], Vec::new());
        let other = scope.spawn(move || {
            let client = work(&membership, options, 1, &never, || panic!());
            drop(client);
            work(&membership, options, 9, &stop, || panic!()).end().unwrap()
        });
        let mut step = |client: &mut SparseClient, turn: Option<u64>| {
            let push = turn.map(|turn| Push {
                touched: &touched,
                grads: &grads,
                sizes: &[],
                examples: 1,
                mark: mark(turn),
            });
            client.step(push, &touched, &mut weights, false).unwrap()
        };
        assert!(!step(&mut client, None).stop);
        assert!(!step(&mut client, Some(1)).stop);
        // The other worker has sent its second gradient, and that it wants to stop.
        let begun = Instant::now();
        while overseer.idle(Duration::ZERO).unwrap() != [worker(0)] {
            assert!(begun.elapsed() < LONG, "the other worker sends nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        let (now, then) = (step(&mut client, None), step(&mut client, Some(2)));
        assert_eq!((now.version, now.stop), (1, false));
        assert_eq!((then.version, then.stop), (2, true));
        assert_eq!((client.end().unwrap(), other.join().unwrap()), (2, 2));
    });
}

#[test]
fn more_numbers_than_a_part_has_weights_are_refused_before_they_are_read() {
    let options = options(false, Transfer::Sparse);
    let (job, over) = (Job::new(2, 2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _raised = Raise(&over);
        let _chief = begin(scope, &job, 2, options, &over, None);
        let membership = job.membership(worker(1));
        let mut link = link_to(&membership, 0);
        // Five bytes are the most a number takes.
        let bytes = 5 * HALF as u32 + 1;
        let mut head = [0; STEP_HEAD];
        head[12] = 1;
        head[20..24].copy_from_slice(&bytes.to_le_bytes());
        let length = STEP_HEAD as u64 + u64::from(bytes);
        link.sender.start(Head { kind: STEP, number: 0, length }).unwrap();
        let mut rest = &head[..];
        while !rest.is_empty() {
            rest = &rest[link.sender.push(rest).unwrap()..];
        }
        let error = link.receiver.receive(&wait()).unwrap_err();
        assert!(error.is_lost() && error.to_string().contains("ps/0"), "{error}");
    });
}
