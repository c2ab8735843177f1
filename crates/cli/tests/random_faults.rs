//! Random schedules of faults on real processes: every strategy, dense and sparse, each policy, on this machine and on hosts of their
//! own. What all tasks wrote down is held against what was promised (`random_faults/promises.rs`): every step once, no checkpoint
//! lost, examples that add up, losses named in time, no task that trains alone, no process left, and a run that can be continued.
//!
//! A schedule follows from its seed. `PACELINE_SEED` replays one, `PACELINE_SCHEDULES` sets how many are tried,
//! `PACELINE_FIRST` from which seed on and `PACELINE_ABREAST` how many at a time: most of a schedule is waiting
//! (`cargo xtask faults random N`).

#![allow(clippy::unwrap_used, unreachable_pub)] // modules of a test

#[path = "random_faults/clock.rs"]
mod clock;
mod cluster_support;
#[path = "cluster_support/lab.rs"]
mod lab;
#[path = "random_faults/promises.rs"]
mod promises;
#[path = "random_faults/schedule.rs"]
mod schedule;
#[path = "random_faults/stage.rs"]
mod stage;
mod support;

use cluster_support::steps;
use paceline_testing::lateness::LatenessWatch;
use schedule::Schedule;
use stage::Stage;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Schedules of an ordinary test.
const SCHEDULES: u64 = 20;

/// Plays a schedule; a promise about time allows for how late this machine was meanwhile.
fn play(schedule: &Schedule) {
    let lateness = LatenessWatch::start();
    let Some(mut stage) = Stage::set(schedule) else { return };
    let over = stage.inflict();
    let (outcome, rest) = stage.end(over);
    promises::check(schedule, &outcome, over, lateness.longest());
    let last = steps(&outcome.folder);
    rest.resume(outcome, last);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_faults_break_no_promise() {
    let (first, count) = match number("PACELINE_SEED") {
        Some(seed) => (seed, 1),
        None => (
            number("PACELINE_FIRST").unwrap_or(0),
            number("PACELINE_SCHEDULES").unwrap_or(SCHEDULES),
        ),
    };
    let abreast = number("PACELINE_ABREAST").unwrap_or(2).max(1);
    let (next, broken) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..abreast {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let schedule = Schedule::draw(seed);
                    println!("seed {seed}: {schedule:?}");
                    if catch_unwind(AssertUnwindSafe(|| play(&schedule))).is_err() {
                        println!("broken: PACELINE_SEED={seed} replays {schedule:?}");
                        broken.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{} of {count} schedules break a promise: {broken:?}", broken.len());
}
