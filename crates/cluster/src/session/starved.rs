//! A worker whose data do not arrive: it answers but makes no step, so no other task can tell why all of them wait.
//!
//! Only reading is watched. Evaluations, checkpoints and long steps are work, and a worker that waits for others
//! is not the cause.

use paceline_wire::TaskId;
use std::{
    fmt,
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant},
};

/// After so long a worker says so for the first time, then whenever the time has doubled. Long for any store or disk that
/// works.
const FIRST: Duration = Duration::from_secs(30);
/// Stands for a worker that does not wait.
const NOT_WAITING: i64 = i64::MIN;

/// A worker makes no step because its own data do not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starved {
    pub task: TaskId,
    /// How long it has waited for them, in seconds.
    pub seconds: u64,
}

impl fmt::Display for Starved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, seconds } = self;
        write!(f, "{task} has made no step for {seconds} s: it waits for its own data")
    }
}

/// Since when a worker has been waiting for its data.
#[derive(Debug)]
pub(super) struct Reading {
    epoch: Instant,
    /// In milliseconds after `epoch`, or before.
    since: AtomicI64,
}

impl Reading {
    pub(super) fn new() -> Self {
        Self { epoch: Instant::now(), since: AtomicI64::new(NOT_WAITING) }
    }

    /// It begins to wait, or has what it waited for. Called twice in every step: one store.
    pub(super) fn note(&self, since: Option<Instant>) {
        let milliseconds = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let after = |since: Instant| match since.checked_duration_since(self.epoch) {
            Some(after) => milliseconds(after),
            None => -milliseconds(self.epoch - since),
        };
        self.since.store(since.map_or(NOT_WAITING, after), Ordering::Relaxed);
    }

    /// How long it has been waiting now.
    fn waited(&self) -> Duration {
        let now = i64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(i64::MAX);
        let waited = match self.since.load(Ordering::Relaxed) {
            NOT_WAITING => 0,
            since => now.saturating_sub(since),
        };
        Duration::from_millis(waited.try_into().unwrap_or(0))
    }
}

/// When it is to be said next.
#[derive(Debug)]
pub(super) struct Telling(Duration);

impl Telling {
    pub(super) fn new() -> Self {
        Self(FIRST)
    }

    /// The whole seconds that a worker has waited for its data, if that is news.
    pub(super) fn news(&mut self, reading: &Reading) -> Option<u64> {
        let waited = reading.waited();
        if waited < FIRST {
            self.0 = FIRST; // the next time counts from the beginning
        }
        if waited < self.0 {
            return None;
        }
        while self.0 <= waited {
            self.0 *= 2;
        }
        Some(waited.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_data_is_said_ever_more_rarely() {
        let (reading, mut telling) = (Reading::new(), Telling::new());
        let mut after = |seconds| {
            reading.note(Some(reading.epoch - Duration::from_secs(seconds)));
            telling.news(&reading).is_some()
        };
        for (seconds, said) in [(1, false), (31, true), (45, false), (70, true), (100, false)] {
            assert_eq!(after(seconds), said, "{seconds} s");
        }
        assert!(after(1000), "what was not asked for in time is said once");
        assert!(!after(1000));
        assert!(!after(1) && after(31), "data came, and others did not");
        reading.note(None);
        assert_eq!(telling.news(&reading), None);
    }
}
