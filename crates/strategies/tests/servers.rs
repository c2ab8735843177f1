//! Parameter servers: what must be equal, what must converge, what must be counted.

#![allow(clippy::unwrap_used)]

mod job;

use job::{BATCH, Job, WEIGHTS, assert_close, best, no_pause};
use paceline_strategies::{Combine, Origin, Transfer};
use std::{collections::BTreeSet, time::Duration};

#[test]
fn in_step_equals_one_device_at_the_same_global_batch() {
    for (workers, servers) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 3), (5, 2)] {
        let job = Job::new("ps-sync", workers, servers, 20);
        let alone = job.alone();
        let outcomes = job.run(no_pause);
        let what = format!("{workers} workers, {servers} servers");
        for outcome in &outcomes {
            assert_close(&outcome.params, &alone.params, 1e-5, &what);
            assert_eq!(outcome.params, outcomes[0].params, "{what}: the same bits everywhere");
            assert_eq!(outcome.counted, 20 * BATCH, "{what}: everybody's examples");
        }
        let snapshot = outcomes[0].snapshot.as_ref().unwrap();
        assert_eq!(snapshot.version.0, 20);
        assert_eq!(**snapshot.params.as_ref().unwrap(), outcomes[0].params[..]);
        let state = &alone.snapshot.as_ref().unwrap().state;
        assert_close(&snapshot.state.buffers()[0], &state.buffers()[0], 1e-4, &what);
        assert_eq!(outcomes[0].params[1_050], 0.5 + 20.0 * 0.25, "statistics are averaged");
        assert_eq!(outcomes[0].tally.examples, outcomes.iter().map(|o| o.examples).sum::<u64>());
        assert_eq!(outcomes[0].tally.staleness, [20]);
        let again = Job::new("ps-sync", workers, servers, 20).run(no_pause);
        assert_eq!(again[0].params, outcomes[0].params, "{what}: the same bits every time");
    }
}

#[test]
fn sums_of_gradients_are_so_many_times_the_mean() {
    let mut job = Job::new("ps-sync", 3, 1, 1);
    job.optimizer = "sgd";
    let mean = job.run(no_pause).swap_remove(0).params;
    let mut job = Job { options: job.options, ..Job::new("ps-sync", 3, 1, 1) };
    job.optimizer = "sgd";
    job.options.combine = Combine::Sum;
    let sum = job.run(no_pause).swap_remove(0).params;
    for weight in [0, 999, 1_500] {
        let (mean, sum) = (mean[weight] - 0.5, sum[weight] - 0.5);
        assert!((sum - 3.0 * mean).abs() < 1e-5, "{sum} against {mean}");
    }
    assert_eq!(mean[1_050], sum[1_050], "statistics are averaged in any case");
}

#[test]
fn sparse_messages_change_nothing_but_their_size() {
    for strategy in ["ps-sync", "ps-async"] {
        let mut results = Vec::new();
        for transfer in [Transfer::Sparse, Transfer::Dense] {
            // One worker, so that the order of updates is the same in all runs.
            let workers = if strategy == "ps-sync" { 3 } else { 1 };
            let mut job = Job::new(strategy, workers, 2, 30);
            (job.optimizer, job.sparse, job.options.transfer) = ("adagrad", true, transfer);
            let alone = job.alone();
            let outcome = job.run(no_pause).swap_remove(0);
            assert_close(&outcome.params, &alone.params, 1e-5, strategy);
            results.push(outcome.params);
        }
        assert_eq!(results[0], results[1], "{strategy}");
    }
}

#[test]
fn each_on_its_own_converges_and_everything_is_counted() {
    for (workers, servers) in [(1, 1), (2, 1), (4, 2), (3, 3)] {
        let mut job = Job::new("ps-async", workers, servers, 400);
        job.optimizer = "sgd";
        let outcomes = job.run(|rank, _| Duration::from_micros(100 * u64::from(rank)));
        let what = format!("{workers} workers, {servers} servers");
        let outcome = &outcomes[0];
        for weight in (0..1_000).chain(1_100..WEIGHTS) {
            let distance = (outcome.params[weight] - best(weight)).abs();
            assert!(distance < 0.35, "{what}: weight {weight} is off by {distance}");
        }
        let tally = &outcome.tally;
        assert_eq!(tally.staleness.iter().sum::<u64>(), 400, "{what}: one step, one update");
        assert_eq!(tally.examples, 400 * BATCH, "{what}");
        assert_eq!(outcomes.iter().map(|o| o.examples).sum::<u64>(), 400 * BATCH, "{what}");
        assert_eq!(tally.dropped, 0);
        let batches: BTreeSet<u64> = job.served.lock().unwrap().iter().map(|s| s.0).collect();
        assert_eq!(batches, (0..400).collect(), "{what}: every batch once");
        for other in &outcomes {
            assert_eq!(other.params, outcome.params, "{what}: final weights are everybody's");
        }
        assert_eq!(outcome.snapshot.as_ref().unwrap().version.0, 400);
    }
}

#[test]
fn no_update_is_staler_than_the_bound() {
    for bound in [0, 1, 2, 5] {
        let mut job = Job::new("ps-async", 4, 1, 200);
        job.options.max_staleness = Some(bound);
        // One worker is much slower than the rest.
        let slow =
            |rank, batch| Duration::from_micros(if rank == 0 { 3_000 } else { batch % 7 * 30 });
        let outcomes = job.run(slow);
        let tally = &outcomes[0].tally;
        assert_eq!(tally.staleness.iter().sum::<u64>(), 200);
        assert!(tally.staleness.len() as u64 <= bound + 1, "{bound}: {:?}", tally.staleness);
        assert!(outcomes.iter().all(|outcome| outcome.most_stale <= bound));
    }
    let unbounded = Job::new("ps-async", 4, 1, 200);
    let slow = |rank, _| Duration::from_micros(if rank == 0 { 5_000 } else { 20 });
    let tally = unbounded.run(slow).swap_remove(0).tally;
    assert!(tally.staleness.len() > 6, "a slow worker's updates are stale: {:?}", tally.staleness);
}

#[test]
fn late_gradients_are_dropped_and_counted() {
    let mut job = Job::new("ps-sync", 4, 1, 40);
    job.options.backup_workers = 1;
    let slow = |rank, _| Duration::from_millis(if rank == 3 { 25 } else { 1 });
    let outcomes = job.run(slow);
    let tally = &outcomes[0].tally;
    assert!(tally.dropped > 0, "the slow one must have come late");
    assert_eq!(outcomes[0].snapshot.as_ref().unwrap().version.0, 40);
    let processed: u64 = outcomes.iter().map(|outcome| outcome.examples).sum();
    assert_eq!(tally.examples + tally.dropped_examples, processed);
    for weight in (0..1_000).chain(1_100..WEIGHTS) {
        assert!((outcomes[0].params[weight] - best(weight)).abs() < 2.0);
    }
}

#[test]
fn snapshots_hold_one_version_while_everybody_goes_on() {
    for servers in [1, 3] {
        // Every update moves every weight by the same amount, so weights count updates.
        let job = Job { optimizer: "sgd", ..Job::new("ps-async", 3, servers, 1_500) };
        let versions = std::thread::scope(|scope| {
            for index in 0..servers {
                let server = job.server(index);
                scope.spawn(move || server.serve().unwrap());
            }
            let workers: Vec<_> = (0..3)
                .map(|index| {
                    let (job, seat) = (&job, job.table.seat(job::worker(index)));
                    scope.spawn(move || constant_steps(job, seat, index))
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<u64>>()
        });
        assert!(versions.len() >= 10 && versions.is_sorted(), "{versions:?}");
    }
}

/// Trains with a gradient of 1 everywhere; worker 0 looks at a snapshot every few steps.
fn constant_steps(
    job: &Job,
    seat: std::sync::Arc<paceline_cluster::seat::TableSeat>,
    index: u32,
) -> Vec<u64> {
    use paceline_models::{StepLoss, Touched, kernels::Buffer};
    use paceline_strategies::{StepInfo, Vote};
    let mut exchange = job.exchange(Some(seat)).unwrap();
    let mut params = vec![0.0; WEIGHTS];
    let mut grad = Buffer::zeroed(WEIGHTS);
    grad.fill(1.0);
    grad[1_000..1_100].fill(-0.125);
    let mut versions = Vec::new();
    let mut steps = 0;
    while let Some(ticket) = exchange.deal(0).unwrap() {
        let info = StepInfo { step: ticket.batch, rate: 0.125, examples: 1 };
        exchange.pull(info, &Touched::All, &mut params).unwrap();
        exchange.ready(0..WEIGHTS, &mut params, &mut grad);
        let loss = StepLoss { examples: 1, ..StepLoss::default() };
        exchange.push(Vote { loss, ..Vote::default() }, &mut params, &mut grad).unwrap();
        steps += 1;
        if index == 0 && steps % 5 == 0 {
            let snapshot = exchange.snapshot().unwrap().unwrap();
            let wanted = 0.5 - 0.125 * snapshot.version.0 as f32;
            let params = snapshot.params.unwrap();
            assert!(params.iter().all(|value| *value == wanted), "mixed versions");
            assert!(snapshot.outstanding.is_sorted());
            versions.push(snapshot.version.0);
        }
    }
    exchange.sum(&mut [0.0]).unwrap();
    exchange.leave().unwrap();
    versions
}

#[test]
fn a_run_goes_on_from_a_snapshot_with_the_batches_that_were_left() {
    for (strategy, servers) in [("ps-async", 1), ("ps-async", 2), ("ps-sync", 2)] {
        let first = Job::new(strategy, 2, servers, 17);
        let half = first.run(no_pause).swap_remove(0).snapshot.unwrap();
        let mut second = Job::new(strategy, 3, servers, 40);
        second.start = half.params.as_ref().unwrap().to_vec();
        second.origin = Origin { version: half.version.0, outstanding: half.outstanding.clone() };
        second.state = Some(half.state);
        let outcomes = second.run(no_pause);
        assert_eq!(outcomes[0].step, 40, "{strategy}");
        let mut batches: Vec<u64> = second.served.lock().unwrap().iter().map(|s| s.0).collect();
        batches.sort_unstable();
        batches.dedup();
        assert_eq!(batches, (17..40).collect::<Vec<_>>(), "{strategy}");
        if strategy == "ps-sync" {
            let whole = Job::new(strategy, 2, servers, 40).alone();
            assert_close(&outcomes[0].params, &whole.params, 1e-5, strategy);
        }
    }
}
