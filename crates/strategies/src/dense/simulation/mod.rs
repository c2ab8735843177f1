//! Servers of dense weights and their workers with a virtual clock and network, in one thread, thousands of times: random
//! schedules of deaths, stops, slow and broken connections, and after every message the question whether a promise is broken.
//!
//! What servers decide by is the real thing: counters, tickets, presence, holds, rollback and weights behind a server's lock
//! ([`ParameterServer`], [`Ledger`](super::ledger::Ledger)). What threads and sockets do around it is written here a second time, as
//! scripts that wait where threads wait: sessions (`servers.rs`), workers and their chief (`workers.rs`). The session and the
//! network are those of all such simulations (`crates/strategies/src/simulation`).
//!
//! Promised is (`promises.rs`) that no two servers ever hold parts of different versions where gradients that count are computed
//! from them, that an update that only some servers made is rolled back, that what a worker was told is made is never lost but by a
//! server's death, and then only back to the last checkpoint, that a server that comes back has weights of the present lineage, that
//! every batch is in the weights once, that none is staler than its bound, and that the run ends. Servers that a first one leads
//! (a bound on staleness or backup workers, and more servers than one) promise the same. A bound
//! with several servers is tried with slow connections only: an update whose worker is lost while it is on its way from the first
//! server to the others lands there late or never, and may make others staler than the bound by one.

mod message;
mod promises;
mod schedule;
mod servers;
mod workers;

use crate::simulation::{self, Script, Subject, World};
use message::Message;
use paceline_testing::schedules;
use promises::Book;
use schedule::Schedule;
use servers::Materials;
use std::{cell::RefCell, rc::Rc};

/// Updates of a run. Asynchronous, each batch is a bit of an `f32`.
const STEPS: u64 = 16;
/// Schedules of an ordinary test, and those in which a mistake must be found.
const SCHEDULES: u64 = 20_000;

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
    /// Servers that are led make a step of the gradients that they have, not of those that the first one took.
    TakesOwnChoice,
    /// A worker does not say that its update has landed on all servers before weights are handed out: they count as with it.
    LandsAtOnce,
    /// Weights are fetched from all servers at once, where the first one hands them out.
    FetchesAllAtOnce,
}

/// A run with dense weights.
struct DenseRun {
    schedule: Schedule,
    mutation: Option<Mutation>,
    materials: Materials,
    book: RefCell<Book>,
}

type DenseWorld = World<DenseRun>;

impl Subject for DenseRun {
    type Message = Message;

    fn script(world: &Rc<DenseWorld>, process: usize) -> Script {
        if world.is_worker(process) {
            Box::pin(workers::work(Rc::clone(world), process))
        } else {
            Box::pin(servers::hold_weights(Rc::clone(world), process))
        }
    }

    fn verdict(&self) -> Result<(), String> {
        self.book.borrow().verdict()
    }

    fn close(&self, failed: bool) -> Result<(), String> {
        self.book.borrow().close(failed)
    }

    fn takes_any_link(&self) -> bool {
        self.mutation == Some(Mutation::TakesAnyLink)
    }
}

fn run(schedule: &Schedule, mutation: Option<Mutation>) -> Result<(), String> {
    let run = DenseRun {
        schedule: schedule.clone(),
        mutation,
        materials: Materials::new(schedule),
        book: RefCell::new(Book::new(schedule)),
    };
    simulation::play(&schedule.cast, run)
}

#[test]
fn no_schedule_breaks_a_promise_of_servers() {
    println!("{}", schedules::hold(SCHEDULES, &|schedule| run(schedule, None)));
}

/// A mistake put back is found, in these words, and in a small schedule.
fn is_found(mutation: Mutation, words: &str) {
    let play = |schedule: &Schedule| run(schedule, Some(mutation));
    let found = schedules::find(0..SCHEDULES, words, &play).expect("no schedule finds it");
    let found = found.to_string();
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

/// With a backup worker, servers took different gradients for the same step.
#[test]
fn led_servers_that_choose_gradients_themselves_are_found_out() {
    is_found(Mutation::TakesOwnChoice, "different versions");
}

/// Weights were handed out as if an update were in them that another server had not made.
#[test]
fn an_update_that_counts_as_landed_too_early_is_found_out() {
    is_found(Mutation::LandsAtOnce, "stale by");
}

#[test]
fn weights_of_led_servers_that_come_in_any_order_are_found_out() {
    is_found(Mutation::FetchesAllAtOnce, "");
}
