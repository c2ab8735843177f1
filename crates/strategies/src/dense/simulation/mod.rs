//! Servers and their workers with a virtual clock and network, in one thread, thousands of times: random schedules of deaths,
//! stops, slow and broken connections, and after every message the question whether a promise is broken.
//!
//! What servers decide by is the real thing: counters, tickets, presence, holds, rollback and weights behind a server's lock
//! ([`ParameterServer`], [`Ledger`](super::ledger::Ledger)). What threads and sockets do around it is written here a second time, as
//! scripts that wait where threads wait: sessions (`servers.rs`), workers and their chief (`workers.rs`), and a session that sees
//! deaths late and tells of them at other times to everyone (`world.rs`; the real one has a simulation of its own in
//! `crates/cluster`).
//!
//! Promised is (`promises.rs`) that no two servers ever hold parts of different versions where those are read, that an update that
//! only some servers made is rolled back, that what a worker was told is made is never lost but by a server's death, and then only
//! back to the last checkpoint, that a server that comes back has weights of the present lineage, that every batch is in the weights once,
//! that none is staler than its bound, and that the run ends. A schedule follows from a seed; one that breaks a promise is made as
//! small as it can be and printed. `PACELINE_SEED` replays one or is the
//! first, `PACELINE_SCHEDULES` sets how many are tried.

mod promises;
mod schedule;
mod servers;
mod workers;
mod world;

use schedule::Schedule;
use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Waker},
};
use world::World;

/// Updates of a run. Asynchronous, each batch is a bit of an `f32`.
const STEPS: u64 = 16;
/// By then a run must have ended.
const LIMIT: u32 = 3_000;
/// Schedules of an ordinary test.
const SCHEDULES: u64 = 20_000;

/// What a process does.
type Script = Pin<Box<dyn Future<Output = ()>>>;

/// Mistakes put back to see that they are found. All of them are in what this module writes a second time, or keep it from calling the
/// real thing: the product has no switch for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutation {
    /// An update that only one server made is not rolled back.
    KeepsTornUpdates,
    /// Servers take connections of a generation they have not come to. Was so in the table of tests once.
    TakesAnyLink,
    /// The chief lets servers keep what they hold, whatever that is.
    KeepsAnyLineage,
    /// A copy is made without holding updates on the other servers.
    CopiesWithoutHold,
    /// Asynchronous workers that form again wait for updates that a server lacks. Was so once.
    WaitsForCutUpdates,
    /// Weights that came while a worker had nothing to do are used for what it is dealt later. Was so once.
    KeepsUncountedWeights,
}

/// Polls a script once; says whether it has ended.
fn poll(script: &mut Script) -> bool {
    script.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn run(schedule: &Schedule, mutation: Option<Mutation>) -> Result<(), String> {
    let world = Rc::new(World::new(schedule, mutation));
    let mut scripts: Vec<Option<Script>> = Vec::new();
    loop {
        world.advance();
        for process in scripts.len()..world.processes() {
            let script: Script = if world.is_worker(process) {
                Box::pin(workers::work(Rc::clone(&world), process))
            } else {
                Box::pin(servers::hold_weights(Rc::clone(&world), process))
            };
            scripts.push(Some(script));
        }
        for (process, script) in scripts.iter_mut().enumerate() {
            if !world.is_alive(process) {
                *script = None;
            } else if world.is_awake(process)
                && let Some(running) = script
                && poll(running)
            {
                *script = None;
            }
        }
        world.verdict()?;
        if world.is_over() {
            return world.close();
        }
        if world.now() >= LIMIT {
            return Err(format!("the run never ends: {}", world.standing()));
        }
    }
}

/// Tries schedules; the first that breaks a promise, in these words, comes back as small as it can be made.
fn search(
    seeds: impl Iterator<Item = u64>,
    mutation: Option<Mutation>,
    words: &str,
) -> Option<String> {
    let try_out = |schedule: &Schedule| match run(schedule, mutation) {
        Err(broken) if broken.contains(words) => Err(broken),
        _ => Ok(()),
    };
    seeds.map(Schedule::draw).find_map(|schedule| {
        let broken = try_out(&schedule).err()?;
        let (smallest, broken) = schedule.shrink(broken, &try_out);
        Some(format!("{broken}\n{smallest}"))
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_schedule_breaks_a_promise_of_servers() {
    let (first, count) = match number("PACELINE_SEED") {
        Some(seed) => (seed, number("PACELINE_SCHEDULES").unwrap_or(1)),
        None => (0, number("PACELINE_SCHEDULES").unwrap_or(SCHEDULES)),
    };
    if let Some(broken) = search(first..first + count, None, "") {
        panic!("{broken}");
    }
}

/// A mistake put back is found, in these words, and in a small schedule.
fn is_found(mutation: Mutation, words: &str) {
    let found = search(0..SCHEDULES, Some(mutation), words).expect("no schedule finds it");
    println!("{found}");
    assert!(found.lines().count() <= 5, "a few faults are enough: {found}");
}

/// A worker died between two servers, and one had its gradient in an update that the other had not made.
#[test]
fn an_update_of_one_server_that_is_not_rolled_back_is_found_out() {
    is_found(Mutation::KeepsTornUpdates, "different versions");
}

#[test]
fn servers_that_take_connections_of_another_generation_are_found_out() {
    is_found(Mutation::TakesAnyLink, "");
}

#[test]
fn a_server_that_keeps_weights_of_another_lineage_is_found_out() {
    is_found(Mutation::KeepsAnyLineage, "lineage");
}

#[test]
fn a_copy_of_servers_that_go_on_is_found_out() {
    is_found(Mutation::CopiesWithoutHold, "checkpoint has parts of different versions");
}

/// All that was left was dealt to a worker that waited for an update, which only those could bring that waited for work.
#[test]
fn workers_that_wait_for_an_update_that_was_cut_short_are_found_out() {
    is_found(Mutation::WaitsForCutUpdates, "never ends");
}

/// A worker out of work was dealt the batch of one that had died.
#[test]
fn weights_that_count_as_handed_out_to_no_worker_are_found_out() {
    is_found(Mutation::KeepsUncountedWeights, "stale by");
}
