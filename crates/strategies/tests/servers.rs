//! Parameter servers: what must be equal, what must converge, what must be counted.

#![allow(clippy::unwrap_used)]

mod job;

use job::{
    BATCH, Job, WEIGHTS, assert_close, best,
    gate::{Gate, gated},
    no_pause, server, worker,
};
use paceline_cluster::membership::{ThreadMembership, ThreadedJob};
use paceline_models::{StepLoss, kernels::Buffer};
use paceline_strategies::{Combine, Origin, StepInfo, StepReport};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

#[test]
fn synchronous_equals_one_device_at_the_same_global_batch() {
    for (workers, servers) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 3), (5, 2)] {
        let job = Job::new("ps-sync", workers, servers, 20);
        let alone = job.alone();
        let outcomes = job.run(no_pause);
        let what = format!("{workers} workers, {servers} servers");
        for outcome in &outcomes {
            assert_close(&outcome.params, &alone.params, 1e-5, &what);
            assert_eq!(outcome.params, outcomes[0].params, "{what}: the same bits everywhere");
            assert_eq!(outcome.counted, 20 * BATCH, "{what}: the examples of all workers");
        }
        let snapshot = outcomes[0].snapshot.as_ref().unwrap();
        assert_eq!(snapshot.version.0, 20);
        assert_eq!(**snapshot.params.as_ref().unwrap(), outcomes[0].params[..]);
        let state = &alone.snapshot.as_ref().unwrap().state;
        assert_close(&snapshot.state.buffers()[0], &state.buffers()[0], 1e-4, &what);
        let off = outcomes[0].params[1_050] - (0.5 + 20.0 * 0.25);
        assert!(off.abs() < 1e-5, "statistics are off by {off}");
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
    let off = mean[1_050] - sum[1_050];
    assert!(off.abs() < 1e-5, "statistics are means in any case, and off by {off}");
}

#[test]
fn gradients_that_are_mostly_zeros_end_where_one_worker_does() {
    for strategy in ["ps-sync", "ps-async"] {
        // One worker, so that the order of updates is the same in all runs.
        let workers = if strategy == "ps-sync" { 3 } else { 1 };
        let mut job = Job::new(strategy, workers, 2, 30);
        (job.optimizer, job.sparse) = ("adagrad", true);
        let alone = job.alone();
        let outcome = job.run(no_pause).swap_remove(0);
        assert_close(&outcome.params, &alone.params, 1e-5, strategy);
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
            assert_eq!(other.params, outcome.params, "{what}: all workers have the final weights");
        }
        assert_eq!(outcome.snapshot.as_ref().unwrap().version.0, 400);
    }
}

#[test]
fn no_update_is_staler_than_the_bound() {
    for (servers, bound) in [(1, 0), (1, 1), (1, 2), (1, 5), (2, 0), (2, 3), (3, 0), (3, 1)] {
        for sparse in [false, true] {
            let mut job = Job::new("ps-async", 4, servers, 60);
            (job.options.max_staleness, job.sparse) = (Some(bound), sparse);
            // One worker is much slower than the rest.
            let slow =
                |rank, batch| Duration::from_micros(if rank == 0 { 3_000 } else { batch % 7 * 30 });
            let outcomes = job.run(slow);
            let what = format!("{servers} servers, at most {bound}, sparse {sparse}");
            // Each server counts what its own part of the weights has seen.
            for tally in &*job.tallies.lock().unwrap() {
                assert_eq!(tally.staleness.iter().sum::<u64>(), 60, "{what}");
                assert!(tally.staleness.len() as u64 <= bound + 1, "{what}: {:?}", tally.staleness);
            }
            assert!(outcomes.iter().all(|outcome| outcome.most_stale <= bound), "{what}");
            assert_eq!(outcomes[0].tally.examples, 60 * BATCH, "{what}");
        }
    }
}

#[test]
fn without_a_bound_a_slow_workers_updates_are_stale() {
    let job = Job::new("ps-async", 4, 1, 400);
    let made = |by: Option<usize>| {
        let served = job.served.lock().unwrap();
        served.iter().filter(|(_, rank)| by.is_none_or(|by| by == *rank)).count()
    };
    let pause = || std::thread::sleep(Duration::from_micros(100));
    // The first worker, which has its weights since its update before, takes as long as the others need for
    // twenty; they leave it time to begin.
    let slow = |rank, _| {
        let wanted = (made(None) + 20).min(390);
        while rank == 0 && made(None) < wanted || rank > 0 && made(None) > 100 && made(Some(0)) == 0
        {
            pause();
        }
        Duration::ZERO
    };
    let tally = job.run(slow).swap_remove(0).tally;
    assert!(tally.staleness.len() > 20, "{:?}", tally.staleness);
}

#[test]
fn late_gradients_are_dropped_and_counted() {
    for (servers, sparse) in [(1, false), (2, false), (3, true)] {
        let mut job = Job::new("ps-sync", 4, servers, 40);
        (job.options.backup_workers, job.sparse) = (1, sparse);
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
        // Every server made every step from as many examples.
        for other in &*job.tallies.lock().unwrap() {
            assert_eq!((other.examples, &other.staleness), (tally.examples, &tally.staleness));
        }
    }
}

/// Backup workers, and a first gradient that is not the same on both servers.
#[test]
fn a_step_takes_the_same_gradients_on_all_servers() {
    let gates = [(0, 0), (1, 1)].map(|(w, s)| (worker(w), server(s), Arc::new(Gate::default())));
    let [first, second] = [0, 1].map(|at| Arc::clone(&gates[at].2));
    let mut job = Job { optimizer: "sgd", ..Job::new("ps-sync", 2, 2, 1) };
    job.options.backup_workers = 1;
    job.table = ThreadedJob::over(gated(gates.into()), 2, 2);
    first.close();
    second.close();
    let outcomes = std::thread::scope(|scope| {
        let servers = [0, 1].map(|index| Arc::new(job.server(index)));
        for server in servers.clone() {
            scope.spawn(move || server.serve().unwrap());
        }
        let workers = [0u32, 1].map(|index| {
            let (job, membership) = (&job, job.table.membership(worker(index)));
            scope.spawn(move || one_step(job, membership, index as f32 + 1.0))
        });
        // Worker 1 is the first at server 0, worker 0 at server 1.
        while servers[0].version() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        first.open();
        std::thread::sleep(Duration::from_millis(100));
        second.open();
        workers.map(|worker| worker.join().unwrap())
    });
    for params in outcomes {
        for weight in (0..1_000).chain(1_100..WEIGHTS) {
            // Half a batch that counts as a whole one, from worker 1.
            assert_eq!(params[weight], 0.5 - 0.125 * 2.0 * 2.0, "weight {weight}");
        }
    }
}

/// One step with a gradient that is the same everywhere.
fn one_step(job: &Job, membership: Arc<ThreadMembership>, value: f32) -> Vec<f32> {
    let mut exchange = job.exchange(Some(membership)).unwrap();
    let (mut params, mut grad) = (vec![0.0; WEIGHTS], Buffer::zeroed(WEIGHTS));
    grad.fill(value);
    while let Some(ticket) = exchange.deal(0).unwrap() {
        let info = StepInfo { step: ticket.batch, rate: 0.125, examples: 2 };
        exchange.pull(info, &mut params).unwrap();
        exchange.ready(0..WEIGHTS, &mut params, &mut grad);
        let loss = StepLoss { examples: 1, ..StepLoss::default() };
        exchange
            .push(StepReport { loss, ..StepReport::default() }, &mut params, &mut grad)
            .unwrap();
    }
    let last = StepInfo { step: 1, rate: 0.0, examples: 2 };
    exchange.pull(last, &mut params).unwrap();
    exchange.leave().unwrap();
    params
}

#[test]
fn snapshots_hold_one_version_while_all_workers_continue() {
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
                    let (job, membership) = (&job, job.table.membership(worker(index)));
                    scope.spawn(move || constant_steps(job, membership, index))
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<u64>>()
        });
        assert!(versions.len() >= 10 && versions.is_sorted(), "{versions:?}");
    }
}

/// Trains with a gradient of 1 everywhere; worker 0 looks at a snapshot every few steps.
fn constant_steps(job: &Job, membership: Arc<ThreadMembership>, index: u32) -> Vec<u64> {
    let mut exchange = job.exchange(Some(membership)).unwrap();
    let mut params = vec![0.0; WEIGHTS];
    let mut grad = Buffer::zeroed(WEIGHTS);
    grad.fill(1.0);
    grad[1_000..1_100].fill(-0.125);
    let mut versions = Vec::new();
    let mut steps = 0;
    while let Some(ticket) = exchange.deal(0).unwrap() {
        let info = StepInfo { step: ticket.batch, rate: 0.125, examples: 1 };
        exchange.pull(info, &mut params).unwrap();
        exchange.ready(0..WEIGHTS, &mut params, &mut grad);
        let loss = StepLoss { examples: 1, ..StepLoss::default() };
        exchange
            .push(StepReport { loss, ..StepReport::default() }, &mut params, &mut grad)
            .unwrap();
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
