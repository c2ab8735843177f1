//! What goes wrong around servers, and who is there.

use paceline_stats::random::Random;
use paceline_testing::schedules::{self, Timeline};
use paceline_wire::{Role, TaskId};
use std::fmt;

/// Faults happen within so many ticks from the start.
const STRETCH: usize = 70;
/// Most faults of one schedule.
const MOST_FAULTS: usize = 5;

/// Something that goes wrong. Tasks have numbers: workers first, then servers; 0 is the chief.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process dies. What it has sent arrives in part.
    Kill(usize),
    /// A process is stopped, and continued so many ticks later.
    Stop(usize, u32),
    /// A worker's messages to a server, and back, take so many ticks longer.
    Slow(usize, usize, u32),
    /// A worker's connection to a server breaks; both ends live.
    Break(usize, usize),
}

impl schedules::Fault for Fault {
    fn touches(self, task: usize) -> bool {
        match self {
            Self::Kill(of) | Self::Stop(of, _) => of == task,
            Self::Slow(one, other, _) | Self::Break(one, other) => one == task || other == task,
        }
    }

    fn shorter(self) -> Option<Self> {
        match self {
            Self::Stop(task, ticks) if ticks > 1 => Some(Self::Stop(task, ticks / 2)),
            Self::Slow(one, other, ticks) if ticks > 1 => Some(Self::Slow(one, other, ticks / 2)),
            _ => None,
        }
    }
}

/// The tasks of a run, and what happens to them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cast {
    /// Delays within the run follow from it.
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) servers: usize,
    pub(crate) synchronous: bool,
    /// Whether lost workers are started again.
    pub(crate) restart: bool,
    pub(crate) faults: Timeline<Fault>,
}

impl Cast {
    /// Of the random numbers of a seed.
    pub(crate) fn draw(seed: u64, random: &mut Random) -> Self {
        let workers = 2 + random.below(3);
        let servers = 1 + random.below(3);
        let synchronous = random.below(2) == 0;
        let restart = random.below(2) == 0;
        let draw = |random: &mut Random| draw_fault(random, workers, servers);
        let faults = Timeline::draw(random, MOST_FAULTS, STRETCH, draw);
        Self { seed, workers, servers, synchronous, restart, faults }
    }

    pub(crate) fn tasks(&self) -> usize {
        self.workers + self.servers
    }

    /// The task of a number.
    pub(crate) fn task(&self, number: usize) -> TaskId {
        match number.checked_sub(self.workers) {
            None => TaskId::new(Role::Worker, number as u32),
            Some(server) => TaskId::new(Role::Ps, server as u32),
        }
    }

    /// Those that are a little simpler.
    pub(crate) fn simpler(&self) -> Vec<Self> {
        let simpler = self.faults.simpler().map(|faults| Self { faults, ..self.clone() });
        let mut all: Vec<Self> = simpler.collect();
        if self.servers > 2 && !self.faults.touches(self.tasks() - 1) {
            all.push(Self { servers: self.servers - 1, ..self.clone() });
        }
        all
    }

    pub(crate) fn has_faults(&self) -> bool {
        self.faults.iter().next().is_some()
    }
}

fn draw_fault(random: &mut Random, workers: usize, servers: usize) -> Fault {
    let task = random.below(workers + servers);
    let (worker, server) = (random.below(workers), workers + random.below(servers));
    // A moment, or long enough to be taken for dead.
    let ticks = if random.below(2) == 0 { 1 + random.below(8) } else { 10 + random.below(60) };
    match random.below(8) {
        0..4 => Fault::Kill(task),
        4 => Fault::Stop(task, ticks as u32),
        5 | 6 => Fault::Slow(worker, server, 1 + random.below(30) as u32),
        _ => Fault::Break(worker, server),
    }
}

impl fmt::Display for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, workers, servers, synchronous, restart, faults } = self;
        let kind = if *synchronous { "synchronous" } else { "asynchronous" };
        let policy = if *restart { "restart" } else { "continue" };
        writeln!(f, "seed {seed}: {workers} workers, {servers} servers, {kind}, {policy}")?;
        for (tick, fault) in faults.iter() {
            writeln!(f, "  tick {tick:3}  {fault:?}")?;
        }
        Ok(())
    }
}
