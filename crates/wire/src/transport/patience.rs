//! How long to look before going to sleep.
//!
//! Waking a sleeping thread costs tens of microseconds, more than a small message takes to arrive.
//! So a waiting thread first looks again and again. That is wasted where the answer takes long, and
//! harmful where the one that shall answer needs this very core: so looking gives way to others, its
//! length follows what paid off lately, and one core alone never looks.

use super::tcp::{Ready, sleep_on};
use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Longest and shortest time to look, in nanoseconds. A loopback round trip with sleeps is about 80 us.
const MOST: u32 = 100_000;
/// The same where every rank has its own core, so that no other rank would gain from a sleep. Ranks that work in lockstep
/// arrive a few per cent of a step apart.
const MOST_APART: u32 = 1_000_000;
const LEAST: u32 = 3_000;
/// So long a thread looks without offering its core to others, in nanoseconds.
const ALONE: u32 = 5_000;

/// One waiting place's experience.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Time to look before sleeping, in nanoseconds; 0 for never.
    budget: u32,
    /// The longest it may be.
    most: u32,
    /// Since when nothing has moved.
    since: Option<Instant>,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self::up_to(MOST)
    }

    /// For one of `ranks` ranks on this machine that work in lockstep.
    pub(crate) fn among(ranks: usize) -> Self {
        Self::up_to(if ranks <= cores() { MOST_APART } else { MOST })
    }

    fn up_to(most: u32) -> Self {
        // On one core, looking only keeps the other side from running.
        let most = if cores() > 1 { most } else { 0 };
        Self { budget: most, most, since: None }
    }

    /// Nothing has moved: true if it pays to look again, false if it is time to sleep.
    pub(crate) fn look_again(&mut self) -> bool {
        if self.budget == 0 {
            return false;
        }
        let spent = self.since.get_or_insert_with(Instant::now).elapsed();
        if spent >= Duration::from_nanos(self.budget.into()) {
            self.since = None;
            self.budget = (self.budget / 2).max(LEAST);
            return false;
        }
        if spent < Duration::from_nanos(ALONE.into()) {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
        true
    }

    /// Something has moved.
    pub(crate) fn moved(&mut self) {
        if self.since.take().is_some() {
            self.budget = (self.budget * 2).min(self.most);
        }
    }

    /// Looks until `ready` or until it no longer pays; tells whether it was ready.
    pub(crate) fn look(&mut self, mut ready: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
        loop {
            if ready()? {
                self.moved();
                return Ok(true);
            }
            if !self.look_again() {
                return Ok(false);
            }
        }
    }

    /// Waits for data on a socket, at most that long: looks until `ready`, and sleeps where that no longer pays. Returns what
    /// it has learnt.
    pub(crate) fn wait_on(
        mut self,
        socket: RawFd,
        limit: Duration,
        ready: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<Self> {
        if !self.look(ready)? {
            let began = Instant::now();
            sleep_on(&[(socket, Ready::Read)], limit)?;
            self.slept(began.elapsed());
        }
        Ok(self)
    }

    /// Tells how long the sleep after a vain look was: a short one would have been worth looking for.
    pub(crate) fn slept(&mut self, time: Duration) {
        if self.budget > 0 && time < Duration::from_nanos(self.most.into()) {
            self.budget = (self.budget * 4).min(self.most);
        }
    }
}

fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| paceline_batch::cores().count)
}
