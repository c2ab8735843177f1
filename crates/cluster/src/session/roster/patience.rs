//! How long a task may be silent: at least what was asked for, longer where hundreds of tasks share too few cores.
//!
//! One silent task among many that speak is lost. Where most of them speak late, the machine or the network is
//! overloaded, and each lost task would make the others' work harder. So the time that most tasks take between two signs of
//! life is measured, and a silence has to be much longer than that.

use super::{Presence, Roster, RosterEntry};
use std::time::{Duration, Instant};

/// A silence this many times as long as usual is a loss.
const UNUSUAL: u32 = 4;
/// Fewer tasks than this say little about the usual.
const ENOUGH: usize = 8;
/// The longest patience, in multiples of what was asked for: a cut that takes most tasks away is a loss in the end.
const MOST: u32 = 4;

/// What one task shows of the usual.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::session) struct Rhythm {
    /// The longest time between two signs of life; fades, so that an overload that is over is forgotten within some tens of seconds.
    longest: Duration,
}

impl Rhythm {
    /// A sign of life, so long after the last one.
    pub(in crate::session) fn heard(&mut self, after: Duration) {
        self.longest = after.max(self.longest.mul_f64(0.9));
    }

    /// A silence that would be unusual, where `asked` was asked for.
    pub(in crate::session) fn unusual(self, asked: Duration) -> Duration {
        unusual(self.longest, asked)
    }
}

fn unusual(usual: Duration, asked: Duration) -> Duration {
    usual.saturating_mul(UNUSUAL).clamp(asked, asked.saturating_mul(MOST))
}

impl RosterEntry {
    /// It gives a sign of life.
    pub(super) fn speaks(&mut self, now: Instant) {
        if self.presence == Presence::Present {
            self.rhythm.heard(now.saturating_duration_since(self.heard));
        }
        self.heard = now;
    }
}

impl Roster {
    /// How long a task may be silent now.
    pub(in crate::session) fn patience(&self, now: Instant) -> Duration {
        let asked = self.rules.patience;
        // Nothing depends yet on a task that is silent while others start; whole machines are busy with that.
        if !self.running {
            return asked.saturating_mul(MOST);
        }
        let mut gaps: Vec<Duration> = self
            .entries
            .iter()
            .filter(|(task, entry)| **task != self.me && entry.presence == Presence::Present)
            .map(|(_, entry)| entry.rhythm.longest.max(now.saturating_duration_since(entry.heard)))
            .collect();
        if gaps.len() < ENOUGH {
            return asked;
        }
        let middle = gaps.len() / 2;
        let usual = *gaps.select_nth_unstable(middle).1;
        unusual(usual, asked)
    }
}
