//! Parameter servers of sparse weights: what must be equal, what must converge, what must survive.

#![allow(clippy::unwrap_used)]

use paceline_batch::{Batch, Features};
use paceline_cluster::{
    JobMembership,
    membership::{ThreadMembership, ThreadedJob as Job},
};
use paceline_conformance::rows::{Over, drawn_rows, push_all};
use paceline_models::sparse_logistic::{Minibatch, SparseLogistic, loss, rules};
use paceline_strategies::{
    Combine, Transfer,
    sparse::{Beginning, Overseer, Score, Scores, SparseClient, SparseOptions, SparseServer},
};
use paceline_wire::{Role, TaskId};
use std::{
    ops::{ControlFlow, Range},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

const BITS: u32 = 10;

fn options(rule: &'static str, synchronous: bool, transfer: Transfer) -> SparseOptions {
    SparseOptions {
        bits: BITS,
        rule,
        settings: rules::find(rule).unwrap().defaults,
        synchronous,
        combine: Combine::Mean,
        transfer,
        returning: Duration::ZERO,
        patience: Duration::from_secs(900),
    }
}

fn rows(seed: u64, count: usize) -> Batch {
    drawn_rows(seed, count, 6, 1000)
}

/// What came out of a run.
struct Outcome {
    slots: Vec<(usize, [f32; 2])>,
    beginning: Beginning,
    bytes: u64,
}

struct NoScore;

impl Score for NoScore {
    fn score(&self, model: &SparseLogistic, _: Range<usize>, _: &AtomicBool) -> Option<Scores> {
        let batch = rows(99, 50);
        let mut logits = Vec::new();
        model.score(&batch, &mut logits);
        Some(Scores { logits, labels: batch.labels.iter().map(|label| *label as u8).collect() })
    }
}

/// Runs workers and servers as threads; each worker learns from its batches in order. `dies` never says
/// goodbye after its first batch.
fn run(options: SparseOptions, servers: u32, data: &[Vec<Batch>], dies: Option<usize>) -> Outcome {
    let job = Job::new(data.len() as u32, servers);
    let over = Over::default();
    let membership = |role, index| job.membership(TaskId::new(role, index));
    std::thread::scope(|scope| {
        let _over = over.at_the_end();
        for index in 0..servers {
            let (membership, over) = (membership(Role::Ps, index), &over);
            scope.spawn(move || {
                let server = SparseServer::new(membership, options).unwrap();
                let scorer = NoScore;
                server.serve(&|| over.is_set(), Some(&scorer)).unwrap();
            });
        }
        let chief = membership(Role::Worker, 0);
        let mut overseer = Overseer::connect(chief.clone(), &options).unwrap();
        assert!(!overseer.keep(0).unwrap(), "new servers hold nothing");
        overseer.give(1, &Beginning::default(), None).unwrap();
        let workers: Vec<_> = data
            .iter()
            .enumerate()
            .map(|(rank, batches)| {
                let membership =
                    if rank == 0 { chief.clone() } else { membership(Role::Worker, rank as u32) };
                let job = &job;
                scope.spawn(move || work(membership, job, options, batches, dies == Some(rank)))
            })
            .collect();
        let bytes = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        let mut slots = Vec::new();
        let copied = overseer.copy(|number, slot| slots.push((number, slot)));
        let beginning = copied.unwrap().unwrap();
        check_scores(&mut overseer, options, &slots);
        Outcome { slots, beginning, bytes }
    })
}

/// Scores from several parts add up to those of the whole.
fn check_scores(overseer: &mut Overseer, options: SparseOptions, slots: &[(usize, [f32; 2])]) {
    let (.., scores) = overseer.score().unwrap().unwrap();
    let whole = SparseLogistic::new(BITS, options.rule, options.settings).unwrap();
    for (number, slot) in slots {
        whole.table().set(*number, *slot);
    }
    let mut logits = Vec::new();
    whole.score(&rows(99, 50), &mut logits);
    for (found, wanted) in scores.logits.iter().zip(&logits) {
        assert!((found - wanted).abs() < 1e-4, "{found} {wanted}");
    }
}

fn work(
    membership: Arc<ThreadMembership>,
    job: &Job,
    options: SparseOptions,
    batches: &[Batch],
    dies: bool,
) -> u64 {
    let me = membership.me();
    let (mut client, welcome) = SparseClient::connect(membership, options, "ps").unwrap();
    assert_eq!(welcome.mark, None, "no worker has read anything");
    let work: Vec<_> = batches.iter().map(|batch| (batch.clone(), 0..batch.len())).collect();
    push_all(&mut client, &work, 0, 1 << BITS, |_, _, _| {
        if dies { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if dies {
        job.miss(me);
        return 0; // the link drops with the client
    }
    client.end().unwrap();
    let traffic = client.traffic();
    traffic.sent + traffic.received
}

/// One process on the same global batches: the workers' rows of each step together.
fn alone(options: SparseOptions, data: &[Vec<Batch>]) -> SparseLogistic {
    let model = SparseLogistic::new(BITS, options.rule, options.settings).unwrap();
    let (mut mini, mut weights, mut logits) = (Minibatch::default(), Vec::new(), Vec::new());
    for step in 0..data.iter().map(Vec::len).max().unwrap() {
        let mut whole = Batch::sparse();
        for batch in data.iter().filter_map(|worker| worker.get(step)) {
            let (
                Features::Sparse { offsets, indices, .. },
                Features::Sparse { offsets: o, indices: i, .. },
            ) = (&mut whole.features, &batch.features)
            else {
                unreachable!()
            };
            let shift = indices.len();
            offsets.extend(o[1..].iter().map(|end| end + shift));
            indices.extend_from_slice(i);
            whole.labels.extend_from_slice(&batch.labels);
        }
        let mean = 1.0 / whole.len() as f32;
        mini.learn(&model, &whole, 0..whole.len(), mean, &mut weights, &mut logits);
    }
    model
}

/// Batches of workers, of different lengths and numbers.
fn data(workers: usize) -> Vec<Vec<Batch>> {
    let batches = |worker: usize| 25 - 3 * worker;
    let batch = |worker: usize, at: usize| rows((100 * worker + at) as u64 + 1, 16 + 5 * worker);
    (0..workers).map(|w| (0..batches(w)).map(|at| batch(w, at)).collect()).collect()
}

#[test]
fn synchronous_equals_one_process_at_the_same_global_batch() {
    for rule in ["sgd", "adagrad", "ftrl"] {
        for (workers, servers) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            let data = data(workers);
            let options = options(rule, true, Transfer::Sparse);
            let wanted = alone(options, &data);
            let outcome = run(options, servers, &data, None);
            let what = format!("{rule}, {workers} workers, {servers} servers");
            assert_eq!(outcome.beginning.version, 25, "{what}");
            let rows: usize = data.iter().flatten().map(Batch::len).sum();
            assert_eq!(outcome.beginning.examples, rows as u64, "{what}");
            assert!(outcome.slots.len() > 500, "{what}");
            for (number, slot) in &outcome.slots {
                let (found, wanted) = (wanted.rule().weight(*slot), wanted.weight(*number));
                assert!((found - wanted).abs() < 1e-5, "{what}, {number}: {found} {wanted}");
            }
            let again = run(options, servers, &data, None);
            assert_eq!(again.slots, outcome.slots, "{what}: the same bits every time");
        }
    }
}

#[test]
fn dense_messages_change_nothing_but_their_size() {
    for synchronous in [true, false] {
        // One worker if asynchronous, so that the order of updates is the same in all runs.
        let data = data(if synchronous { 3 } else { 1 });
        let [sparse, dense] = [Transfer::Sparse, Transfer::Dense]
            .map(|transfer| run(options("ftrl", synchronous, transfer), 2, &data, None));
        assert_eq!(sparse.slots.len(), dense.slots.len());
        for (a, b) in sparse.slots.iter().zip(&dense.slots) {
            assert_eq!(a.0, b.0);
            assert!((a.1[0] - b.1[0]).abs() < 1e-5, "{a:?} {b:?}");
        }
        assert!(dense.bytes > 5 * sparse.bytes, "{} {}", dense.bytes, sparse.bytes);
    }
}

/// Loss on rows that no worker has seen.
fn test_loss(options: SparseOptions, outcome: &Outcome) -> f64 {
    let model = SparseLogistic::new(BITS, options.rule, options.settings).unwrap();
    for (number, slot) in &outcome.slots {
        model.table().set(*number, *slot);
    }
    let test = rows(4_242, 4_000);
    let mut logits = Vec::new();
    model.score(&test, &mut logits);
    loss(&logits, &test.labels).loss_sum / 4_000.0
}

#[test]
fn asynchronous_converges_to_what_one_worker_finds() {
    let many = |workers: usize| -> Vec<Vec<Batch>> {
        let batch = |worker, at| rows((1_000 * worker + at) as u64 + 7, 32);
        (0..workers).map(|w| (0..400 / workers).map(|at| batch(w, at)).collect()).collect()
    };
    let options = options("adagrad", false, Transfer::Sparse);
    let one = test_loss(options, &run(options, 1, &many(1), None));
    let four = run(options, 2, &many(4), None);
    assert_eq!(four.beginning.version, 400, "every batch is one update");
    assert_eq!(four.beginning.marks.len(), 4);
    assert!(four.beginning.marks.iter().all(|(_, mark)| mark[0] == 100));
    let four = test_loss(options, &four);
    // Knowing nothing costs 0.693; the rows' own noise costs about 0.33.
    assert!(one < 0.45, "{one}");
    assert!((four - one).abs() < 0.02, "{four} against {one}");
}

#[test]
fn asynchronous_workers_continue_without_one_that_died() {
    let data = data(3);
    let options = options("adagrad", false, Transfer::Sparse);
    let outcome = run(options, 1, &data, Some(1));
    let updates = data[0].len() + 1 + data[2].len();
    assert_eq!(outcome.beginning.version, updates as u64);
    let marks = outcome.beginning.marks;
    assert_eq!(marks[1], (TaskId::new(Role::Worker, 1), [1, 0, 0, 0, 0, 0]));
}

#[test]
fn servers_begin_with_what_they_are_given() {
    let given = SparseLogistic::new(BITS, "ftrl", rules::find("ftrl").unwrap().defaults).unwrap();
    for number in (0..=1 << BITS).step_by(7) {
        given.table().set(number, [number as f32, 1.0]);
    }
    let options = options("ftrl", false, Transfer::Sparse);
    let job = Job::new(1, 3);
    let over = Over::default();
    let mark = [1, 2, 3, 4, 5, 6];
    std::thread::scope(|scope| {
        let _over = over.at_the_end();
        for index in 0..3 {
            let (membership, over) = (job.membership(TaskId::new(Role::Ps, index)), &over);
            let server = move || {
                let server = SparseServer::new(membership, options).unwrap();
                server.serve(&|| over.is_set(), None).unwrap();
            };
            scope.spawn(server);
        }
        let chief = job.membership(TaskId::new(Role::Worker, 0));
        let mut overseer = Overseer::connect(chief.clone(), &options).unwrap();
        let beginning = Beginning { version: 9, examples: 90, marks: vec![(chief.me(), mark)] };
        overseer.give(5, &beginning, Some(given.table())).unwrap();
        let (mut client, welcome) = SparseClient::connect(chief, options, "ps-async").unwrap();
        assert_eq!((welcome.version, welcome.mark), (9, Some(mark)));
        let mut weights = Vec::new();
        client.step(None, &[0, 7, 8, 1 << BITS], &mut weights, false).unwrap();
        let wanted = [0, 7, 8, 1 << BITS].map(|number| given.weight(number));
        assert_eq!(weights, wanted);
        assert!(overseer.keep(5).unwrap() && !overseer.keep(4).unwrap());
        let mut slots = Vec::new();
        let copied = overseer.copy(|number, slot| slots.push((number, slot))).unwrap();
        assert_eq!(copied, Some(beginning));
        assert!(slots.iter().all(|(number, slot)| given.table().get(*number) == *slot));
        assert_eq!(slots.len(), (1 << BITS) / 7 + 1);
    });
}
