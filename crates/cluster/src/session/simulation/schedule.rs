//! What goes wrong in a session, and when.

use super::world::task;
use crate::session::{OnLoss, message::Hello};
use paceline_stats::random::Random;
use paceline_testing::schedules::{self, Timeline};
use serde_json::Value;
use std::fmt;

/// Ticks of virtual time in a second.
pub(super) const SECOND: u32 = 5;
/// Faults happen within so many ticks from the start.
const STRETCH: usize = 16 * SECOND as usize;
/// Most faults of one schedule.
const MOST_FAULTS: usize = 6;

/// Something that goes wrong with one task, by its number; 0 is the chief.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its process dies; the kernel closes its connections, unless its host is cut off.
    Kill(usize),
    /// Another process of the same task starts, whether or not the old one is gone.
    Start(usize),
    /// Its process is stopped and continued so many ticks later.
    Stop(usize, u32),
    /// No packet passes to or from its host for so many ticks.
    Cut(usize, u32),
    /// Its control connection breaks; both ends live.
    Reset(usize),
    /// It and another task cannot reach each other for so many ticks, though both reach the chief.
    Apart(usize, usize, u32),
    /// All processes are stopped and continued so many ticks later: a machine that sleeps, Ctrl-Z.
    Pause(u32),
}

impl schedules::Fault for Fault {
    fn touches(self, task: usize) -> bool {
        match self {
            Self::Kill(of) | Self::Start(of) | Self::Stop(of, _) | Self::Cut(of, _) => of == task,
            Self::Reset(of) => of == task,
            Self::Apart(one, other, _) => one == task || other == task,
            Self::Pause(_) => false,
        }
    }

    fn shorter(self) -> Option<Self> {
        let half = |ticks: u32| (ticks > 1).then_some(ticks / 2);
        match self {
            Self::Stop(task, ticks) => Some(Self::Stop(task, half(ticks)?)),
            Self::Cut(task, ticks) => Some(Self::Cut(task, half(ticks)?)),
            Self::Pause(ticks) => Some(Self::Pause(half(ticks)?)),
            Self::Apart(one, other, ticks) => Some(Self::Apart(one, other, half(ticks)?)),
            _ => None,
        }
    }
}

/// A run and what happens to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schedule {
    /// Delays and coin tosses within the run follow from it.
    pub(super) seed: u64,
    pub(super) workers: usize,
    pub(super) servers: usize,
    pub(super) on_loss: OnLoss,
    /// Whether workers are in lockstep.
    pub(super) synchronous: bool,
    pub(super) faults: Timeline<Fault>,
}

impl schedules::Schedule for Schedule {
    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 27);
        let workers = 2 + random.below(3);
        let servers = if random.below(2) == 0 { 0 } else { 1 + random.below(2) };
        let synchronous = servers == 0 || random.below(2) == 0;
        let on_loss = [OnLoss::Stop, OnLoss::Restart, OnLoss::Continue][random.below(3)];
        let draw = |random: &mut Random| draw_fault(random, workers + servers);
        let mut faults = Timeline::draw(&mut random, MOST_FAULTS, STRETCH, draw);
        // Something starts killed processes again, as a rule.
        for (tick, fault) in faults.clone().iter() {
            if let Fault::Kill(task) = fault
                && random.below(3) > 0
            {
                let later = random.below(4 * SECOND as usize) as u32;
                faults.insert(tick + later, Fault::Start(task));
            }
        }
        Self { seed, workers, servers, on_loss, synchronous, faults }
    }

    fn simpler(&self) -> Vec<Self> {
        let simpler = self.faults.simpler().map(|faults| Self { faults, ..self.clone() });
        let mut all: Vec<Self> = simpler.collect();
        if self.servers == 0 && self.workers > 2 && !self.faults.touches(self.workers - 1) {
            all.push(Self { workers: self.workers - 1, ..self.clone() });
        }
        all
    }

    fn has_faults(&self) -> bool {
        self.faults.iter().next().is_some()
    }
}

fn draw_fault(random: &mut Random, tasks: usize) -> Fault {
    let task = random.below(tasks);
    // A few seconds that must be survived, or many that must not.
    let ticks = match random.below(3) {
        0 => 1 + random.below(2 * SECOND as usize),
        1 => 1 + random.below(8 * SECOND as usize),
        _ => (10 + random.below(20)) * SECOND as usize,
    } as u32;
    match random.below(11) {
        0..4 => Fault::Kill(task),
        4 => Fault::Start(task),
        5 => Fault::Stop(task, ticks),
        6 => Fault::Cut(task, ticks),
        7 | 8 => Fault::Reset(task),
        9 => Fault::Pause(1 + random.below(15 * SECOND as usize) as u32),
        _ => Fault::Apart(task, (task + 1) % tasks, ticks),
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, workers, servers, on_loss, synchronous, faults } = self;
        let kind = if *synchronous { "synchronous" } else { "asynchronous" };
        writeln!(f, "seed {seed}: {workers} workers, {servers} servers, {kind}, {on_loss:?}")?;
        for (tick, fault) in faults.iter() {
            writeln!(f, "  {:5.1} s  {fault:?}", f64::from(tick) / f64::from(SECOND))?;
        }
        Ok(())
    }
}

/// How the process of a task introduces itself.
pub(super) fn hello(schedule: &Schedule, number: usize, incarnation: u64) -> Hello {
    Hello {
        task: task(schedule, number),
        address: String::new(),
        host: String::new(),
        process: number as u32,
        incarnation,
        plan: Value::Null,
    }
}
