//! How late the machine itself was while a test watched the clock: a promise such as "named within ten seconds" is about the
//! program, and a machine that keeps ready processes from running must not break it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// How often it is looked whether this machine lets a process run.
const LOOK: Duration = Duration::from_millis(20);

/// One look: when it began and ended in seconds since 1970, and by how many of them it came late.
#[derive(Debug, Clone, Copy)]
struct Look {
    from: f64,
    to: f64,
    late: f64,
}

/// A thread that asks to be woken after a moment, again and again, and notes how much later it was.
#[derive(Debug)]
pub struct LatenessWatch {
    looks: Arc<Mutex<Vec<Look>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn unix_seconds() -> f64 {
    // A test that compares with a clock before 1970 fails by itself.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl LatenessWatch {
    /// Watches from now on, until it is dropped.
    #[must_use]
    pub fn start() -> Self {
        let (looks, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (ours, ended) = (Arc::clone(&looks), Arc::clone(&over));
        let thread = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let (from, asked) = (unix_seconds(), Instant::now());
                thread::sleep(LOOK);
                let waited = asked.elapsed();
                let late = waited.saturating_sub(LOOK).as_secs_f64();
                let look = Look { from, to: from + waited.as_secs_f64(), late };
                ours.lock().unwrap_or_else(PoisonError::into_inner).push(look);
            }
        });
        Self { looks, over, thread: Some(thread) }
    }

    /// The longest time for which a ready thread of this process had to wait for a core, in seconds.
    #[must_use]
    pub fn longest(&self) -> f64 {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.iter().map(|look| look.late).fold(0.0, f64::max)
    }

    /// The seconds between two times (since 1970) for which a ready thread of this process had to wait for a core.
    #[must_use]
    pub fn late(&self, from: f64, to: f64) -> f64 {
        late_between(&self.looks.lock().unwrap_or_else(PoisonError::into_inner), from, to)
    }

    /// The seconds between two times that the program answers for: without those for which the machine was late.
    #[must_use]
    pub fn answered_for(&self, from: f64, to: f64) -> f64 {
        to - from - self.late(from, to)
    }
}

impl Drop for LatenessWatch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and a test that fails has more to say.
            let _ = thread.join();
        }
    }
}

/// What came late of the looks between two times; of one that is only partly between them, at most that part.
fn late_between(looks: &[Look], from: f64, to: f64) -> f64 {
    let between = |look: &Look| (look.to.min(to) - look.from.max(from)).max(0.0);
    looks.iter().map(|look| look.late.min(between(look))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_late_between_the_two_times_is_allowed_for() {
        let look = |from: f64, to: f64| Look { from, to, late: to - from - 0.02 };
        let looks = [look(10.0, 10.02), look(10.02, 13.04), look(13.04, 13.06), look(20.0, 25.02)];
        let late = |from, to| late_between(&looks, from, to);
        assert!((late(9.0, 14.0) - 3.0).abs() < 1e-9, "one stall of three seconds");
        assert!((late(12.04, 14.0) - 1.0).abs() < 1e-9, "a second of it");
        assert!(late(13.04, 20.0).abs() < 1e-9, "the machine was prompt");
        assert!(late(25.1, 30.0).abs() < 1e-9 && late(5.0, 9.0).abs() < 1e-9);
    }

    #[test]
    fn a_watch_sees_that_its_process_was_stopped() {
        let watch = LatenessWatch::start();
        let before = unix_seconds();
        // A shell stops this process, and continues it a second later.
        let script = format!("kill -STOP {0}; sleep 1; kill -CONT {0}", std::process::id());
        let shell = std::process::Command::new("sh").args(["-c", &script]).status();
        assert!(shell.is_ok_and(|status| status.success()));
        let begun = Instant::now();
        while watch.longest() < 0.9 {
            assert!(begun.elapsed() < crate::HANG, "a stop of a second was not noticed");
            thread::sleep(LOOK);
        }
        let after = unix_seconds();
        assert!(watch.answered_for(before, after) < after - before - 0.9);
    }
}
