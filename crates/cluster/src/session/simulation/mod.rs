//! A whole run in one thread, thousands of times: random schedules of faults on a virtual clock and network, and after every
//! tick the question whether a promise is broken.
//!
//! Promised is that every update is made once and by tasks that work together, that no task trains alone, that a loss is named
//! within its bound and that no task is lost for nothing, that no generation begins after the chief has done its part, and that all
//! processes end. `paceline_testing::schedules` tries the schedules and says how one that breaks a promise is replayed.

mod promises;
mod schedule;
mod training;
mod world;

use paceline_testing::schedules::{self, Schedule as _};
use schedule::{SECOND, Schedule};
use world::World;

/// Updates of a run.
const STEPS: u64 = 24;
/// By then all processes must have ended.
const LIMIT: u32 = 300 * SECOND;
/// Schedules of an ordinary test: about six CPU-seconds in the dev profile.
const SCHEDULES: u64 = 100_000;

/// Mistakes that were made once, put back to see that they are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutation {
    /// A chief that was stopped with all others takes their silence for their deaths.
    StandstillCounts,
    /// The break of a connection that was replaced counts for the new one.
    StaleBreakCounts,
    /// Tasks form again after the chief has done its part, and no task gives servers their weights.
    FormsAfterTheEnd,
}

fn run(schedule: &Schedule, mutation: Option<Mutation>) -> Result<(), String> {
    let mut world = World::new(schedule, mutation);
    while !world.is_over() {
        if world.tick >= LIMIT {
            let left: Vec<String> = world
                .processes
                .iter()
                .filter(|one| one.alive)
                .map(|one| world::task(schedule, one.task).to_string())
                .collect();
            return Err(format!("{} never end", left.join(", ")));
        }
        world.advance()?;
    }
    world.book.close(world.processes[0].released)
}

#[test]
fn no_schedule_breaks_a_promise() {
    println!("{}", schedules::hold(SCHEDULES, &|schedule| run(schedule, None)));
}

#[test]
fn a_seed_is_the_same_schedule_again() {
    assert_eq!(Schedule::draw(7), Schedule::draw(7));
    assert_ne!(Schedule::draw(7).faults, Schedule::draw(8).faults);
}

/// The smallest schedule in which a mistake that was put back is found.
fn found(mutation: Mutation) -> String {
    let play = |schedule: &Schedule| run(schedule, Some(mutation));
    schedules::find(0..SCHEDULES, "", &play).expect("no schedule finds it").to_string()
}

/// All tasks were lost when a user stopped the whole job for a while and continued it.
#[test]
fn a_chief_that_counts_its_own_standstill_as_silence_is_found_out() {
    let found = found(Mutation::StandstillCounts);
    assert_eq!(found.lines().count(), 3, "one fault is enough: {found}");
    assert!(found.contains("Pause("), "{found}");
}

/// A connection that broke and was replaced took its task with it.
#[test]
fn a_chief_that_takes_an_old_connections_end_for_the_new_ones_is_found_out() {
    let found = found(Mutation::StaleBreakCounts);
    assert!(found.contains("Reset("), "{found}");
}

/// Servers waited up to five minutes for weights that no task would give them.
#[test]
fn tasks_that_form_again_after_the_chief_has_done_its_part_are_found_out() {
    let found = found(Mutation::FormsAfterTheEnd);
    assert!(found.contains("begins after the chief has done its part"), "{found}");
}
