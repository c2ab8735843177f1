//! All-reduce between workers: what must be equal, and what happens when one is lost.

#![allow(clippy::unwrap_used)]

mod job;

use job::{BATCH, Job, PATIENCE, assert_close, no_pause, worker};
use paceline_models::kernels::Buffer;
use paceline_strategies::{Compression, StrategyError, StrategyOptions};
use std::{sync::atomic::Ordering, time::Instant};

#[test]
fn workers_equal_one_device_at_the_same_global_batch() {
    for workers in [1, 2, 3, 4] {
        let job = Job::new("multi-worker", workers, 0, 20);
        let alone = job.alone();
        let outcomes = job.run(no_pause);
        for outcome in &outcomes {
            assert_close(&outcome.params, &alone.params, 1e-5, &format!("{workers} workers"));
            assert_eq!(outcome.params, outcomes[0].params, "{workers}: the same bits everywhere");
            assert_eq!(outcome.counted, 20 * BATCH);
        }
        let off = outcomes[0].params[1_050] - (0.5 + 20.0 * 0.25);
        assert!(off.abs() < 1e-5, "statistics are off by {off}");
        let state = &outcomes[0].snapshot.as_ref().unwrap().state;
        let wanted = &alone.snapshot.as_ref().unwrap().state;
        assert_close(&state.buffers()[0], &wanted.buffers()[0], 1e-4, "state");
        let again = Job::new("multi-worker", workers, 0, 20).run(no_pause);
        assert_eq!(again[0].params, outcomes[0].params, "the same bits every time");
    }
}

#[test]
fn optimisers_that_need_whole_tensors_equal_one_device_too() {
    for optimizer in ["lars", "lamb"] {
        let job = Job { optimizer, ..Job::new("multi-worker", 3, 0, 12) };
        let alone = job.alone();
        assert_ne!(alone.params, job.start, "{optimizer} moves");
        for outcome in job.run(no_pause) {
            assert_close(&outcome.params, &alone.params, 1e-4, optimizer);
        }
    }
}

/// Error feedback: what a step leaves out comes later, so that the weights end where they would without compression.
#[test]
fn compressed_gradients_lead_to_the_same_weights_with_fewer_bytes() {
    for workers in [2, 3] {
        let of = |compression| {
            let job = Job { optimizer: "sgd", ..Job::new("multi-worker", workers, 0, 60) };
            Job { options: StrategyOptions { compression, ..job.options }, ..job }
        };
        let alone = of(Compression::None).alone();
        for (compression, off) in [(Compression::Fp16, 1e-3), (Compression::Int8, 0.02)] {
            let outcomes = of(compression).run(no_pause);
            for outcome in &outcomes {
                assert_eq!(outcome.params, outcomes[0].params, "{compression}: the same bits");
                assert_eq!(outcome.counted, 60 * BATCH);
            }
            let what = format!("{compression}, {workers} workers");
            assert_close(&outcomes[0].params, &alone.params, off, &what);
            assert_eq!(outcomes[0].params[1_050], 0.5 + 60.0 * 0.25, "statistics are exact");
            assert_eq!(of(compression).run(no_pause)[0].params, outcomes[0].params, "{what}");
        }
        // One step of the largest hundredth: few weights move, the same at every worker.
        let job = Job { steps: 1, ..of(Compression::TopK) };
        let outcomes = job.run(no_pause);
        let moved = |params: &[f32]| params.iter().filter(|value| **value != 0.5).count() - 100;
        assert!((1..=24).contains(&moved(&outcomes[0].params)), "{}", moved(&outcomes[0].params));
        assert!(outcomes.iter().all(|outcome| outcome.params == outcomes[0].params));
    }
}

/// Trains until `steps`; the remaining workers form the group again when one is lost.
fn persevere(
    job: &Job,
    index: u32,
    dies_at: Option<u64>,
) -> Result<(Vec<f32>, usize), StrategyError> {
    let membership = job.table.membership(worker(index));
    let mut exchange = job.exchange(Some(std::sync::Arc::clone(&membership)))?;
    let mut params = job.start.clone();
    let mut grad = Buffer::zeroed(params.len());
    let mut step = 0;
    exchange.sum(&mut [0.0])?; // no worker dies before all are connected
    while step < job.steps {
        if dies_at == Some(step) {
            drop(exchange);
            job.table.lose(worker(index));
            return Ok((params, 0));
        }
        let ticket = exchange.deal(step)?.unwrap();
        match job.step(&mut *exchange, ticket, &mut params, &mut grad) {
            Ok(pushed) => step = pushed.version.0,
            Err(error) => {
                // The worker that noticed first hangs up, so others may name it; the membership knows better.
                assert!(error.lost().is_some(), "{error}");
                // The session lowers the alarm when the next generation is ready.
                let begun = Instant::now();
                while !paceline_cluster::JobMembership::alarm(&*membership)
                    .swap(false, Ordering::AcqRel)
                {
                    assert!(begun.elapsed() < PATIENCE, "no alarm was raised");
                    std::thread::yield_now();
                }
                step = exchange.reform(&mut params)?.0;
            }
        }
    }
    let place = exchange.place().1;
    exchange.sum(&mut [0.0])?;
    Ok((params, place))
}

#[test]
fn the_rest_goes_on_from_the_last_completed_step() {
    for dies_at in [0, 1, 7] {
        let job = Job::new("multi-worker", 3, 0, 20);
        let results: Vec<_> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..3)
                .map(|index| {
                    let job = &job;
                    scope.spawn(move || {
                        persevere(job, index, (index == 1).then_some(dies_at)).unwrap()
                    })
                })
                .collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).collect()
        });
        let alone = job.alone();
        for (params, workers) in [&results[0], &results[2]] {
            assert_eq!(*workers, 2, "two are left");
            // The statistics' mean does not depend on the number either.
            assert_close(params, &alone.params, 1e-5, &format!("lost at step {dies_at}"));
        }
        assert_eq!(results[0].0, results[2].0, "the same bits");
    }
}

#[test]
fn without_a_seat_there_is_no_group() {
    let job = Job::new("multi-worker", 2, 0, 1);
    let error = job.exchange(None).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("several processes"), "{error}");
}
