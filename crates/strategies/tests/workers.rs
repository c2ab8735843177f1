//! All-reduce between workers: what must be equal, and what happens when one is lost.

#![allow(clippy::unwrap_used)]

mod job;

use job::{BATCH, Job, PATIENCE, assert_close, no_pause, worker};
use paceline_models::kernels::Buffer;
use paceline_strategies::StrategyError;
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
        assert_eq!(outcomes[0].params[1_050], 0.5 + 20.0 * 0.25, "statistics are averaged");
        let state = &outcomes[0].snapshot.as_ref().unwrap().state;
        let wanted = &alone.snapshot.as_ref().unwrap().state;
        assert_close(&state.buffers()[0], &wanted.buffers()[0], 1e-4, "state");
        let again = Job::new("multi-worker", workers, 0, 20).run(no_pause);
        assert_eq!(again[0].params, outcomes[0].params, "the same bits every time");
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
