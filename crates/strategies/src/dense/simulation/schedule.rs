//! What goes wrong around servers, and when: drawn from a seed, and made smaller while it still breaks a promise.

use paceline_stats::random::Random;
use paceline_wire::{Role, TaskId};
use std::fmt;

/// Faults happen within so many ticks from the start.
const STRETCH: usize = 70;
/// Most faults of one schedule.
const MOST_FAULTS: usize = 5;

/// Something that goes wrong. Tasks have numbers: workers first, then servers; 0 is the chief.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A process dies. What it has sent arrives in part.
    Kill(usize),
    /// A process is stopped, and continued so many ticks later.
    Stop(usize, u32),
    /// A worker's messages to a server, and back, take so many ticks longer.
    Slow(usize, usize, u32),
    /// A worker's connection to a server breaks; both ends live.
    Break(usize, usize),
}

impl Fault {
    fn touches(self, task: usize) -> bool {
        match self {
            Self::Kill(of) | Self::Stop(of, _) => of == task,
            Self::Slow(one, other, _) | Self::Break(one, other) => one == task || other == task,
        }
    }

    /// The same for a shorter time, where it takes any.
    fn shorter(self) -> Option<Self> {
        match self {
            Self::Stop(task, ticks) if ticks > 1 => Some(Self::Stop(task, ticks / 2)),
            Self::Slow(one, other, ticks) if ticks > 1 => Some(Self::Slow(one, other, ticks / 2)),
            _ => None,
        }
    }
}

/// A run and what happens to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schedule {
    /// Delays within the run follow from it.
    pub(super) seed: u64,
    pub(super) workers: usize,
    pub(super) servers: usize,
    pub(super) synchronous: bool,
    /// Whether lost workers are started again.
    pub(super) restart: bool,
    /// Asynchronous, with one server.
    pub(super) max_staleness: Option<u64>,
    /// With the tick at which each happens, in order.
    pub(super) faults: Vec<(u32, Fault)>,
}

impl Schedule {
    /// The schedule of a seed.
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 41);
        let workers = 2 + random.below(3);
        let servers = 1 + random.below(3);
        let synchronous = random.below(2) == 0;
        let restart = random.below(2) == 0;
        let bounded = !synchronous && servers == 1 && random.below(2) == 0;
        let max_staleness = bounded.then(|| random.below(4) as u64);
        let mut faults: Vec<(u32, Fault)> = (0..random.below(MOST_FAULTS + 1))
            .map(|_| (random.below(STRETCH) as u32, draw_fault(&mut random, workers, servers)))
            .collect();
        faults.sort_by_key(|(tick, _)| *tick);
        Self { seed, workers, servers, synchronous, restart, max_staleness, faults }
    }

    pub(super) fn tasks(&self) -> usize {
        self.workers + self.servers
    }

    /// The task of a number.
    pub(super) fn task(&self, number: usize) -> TaskId {
        match number.checked_sub(self.workers) {
            None => TaskId::new(Role::Worker, number as u32),
            Some(server) => TaskId::new(Role::Ps, server as u32),
        }
    }

    /// Schedules that are a little simpler.
    fn simpler(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for at in 0..self.faults.len() {
            let mut one = self.clone();
            one.faults.remove(at);
            all.push(one);
        }
        for at in 0..self.faults.len() {
            let (tick, fault) = self.faults[at];
            if let Some(shorter) = fault.shorter() {
                let mut one = self.clone();
                one.faults[at] = (tick, shorter);
                all.push(one);
            }
        }
        let untouched = |task: usize| !self.faults.iter().any(|(_, fault)| fault.touches(task));
        if self.servers > 2 && untouched(self.tasks() - 1) {
            all.push(Self { servers: self.servers - 1, ..self.clone() });
        }
        all
    }

    /// The simplest one found that breaks a promise, with the promise.
    pub(super) fn shrink(
        mut self,
        mut broken: String,
        run: &dyn Fn(&Self) -> Result<(), String>,
    ) -> (Self, String) {
        while let Some((simpler, why)) =
            self.simpler().into_iter().find_map(|one| Some((one.clone(), run(&one).err()?)))
        {
            (self, broken) = (simpler, why);
        }
        (self, broken)
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

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, workers, servers, synchronous, restart, max_staleness, faults } = self;
        let kind = if *synchronous { "synchronous" } else { "asynchronous" };
        let policy = if *restart { "restart" } else { "continue" };
        writeln!(f, "seed {seed}: {workers} workers, {servers} servers, {kind}, {policy}")?;
        if let Some(bound) = max_staleness {
            writeln!(f, "  staleness at most {bound}")?;
        }
        for (tick, fault) in faults {
            writeln!(f, "  tick {tick:3}  {fault:?}")?;
        }
        Ok(())
    }
}
