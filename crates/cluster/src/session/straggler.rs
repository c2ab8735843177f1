//! Who holds the others up, from the step times that ride on heartbeats.
//!
//! A worker's own time per step (reading and computing, not waiting) is compared with the median of
//! the others. Three times as long over several steps is a straggler; ten times is named within
//! twenty steps, because workers send an early heartbeat after their first steps and then one
//! every few.
//!
//! Where workers do not wait for each other, these are twenty of its own: the others make ten each while
//! it makes one, and a single step says nothing about anybody. Each worker is therefore judged by its
//! own latest steps, however many the others have made, and without waiting for one that has made none.
//!
//! Heartbeats of different workers arrive at different times. The share of waiting is therefore taken from
//! the steps in which the straggler was slow, once another worker has reported those steps too: its
//! heartbeat of before would say that it hardly waited.

use super::message::Beat;
use paceline_wire::TaskId;
use std::collections::{BTreeMap, VecDeque};

/// Steps a judgement is based on, at least, and seconds that the accused was busy in them: one step in
/// which the scheduler had other plans makes no straggler.
const STEPS: u64 = 5;
const SECONDS: f64 = 0.15;
/// How much longer than the others' median a straggler takes.
const RATIO: f64 = 3.0;
/// Differences below this, in seconds per step, are noise of the scheduler.
const NOISE_SECONDS: f64 = 0.002;
/// Heartbeats kept of each worker, so that windows of several workers can be laid over each other.
const HISTORY: usize = 64;

/// A worker that holds the others up.
#[derive(Debug, Clone, PartialEq)]
pub struct Straggler {
    pub task: TaskId,
    /// Its seconds per step, without waiting.
    pub seconds: f64,
    /// The median of the others'.
    pub others: f64,
    /// Share of the others' time that they spent waiting.
    pub wait_share: f64,
    /// Global step at which it was noticed.
    pub step: u64,
}

impl std::fmt::Display for Straggler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} is slow: {:.1} ms per step, the others {:.1} ms ({:.1}x); they wait {:.0} % of their time (noticed at step {})",
            self.task,
            1e3 * self.seconds,
            1e3 * self.others,
            self.seconds / self.others.max(1e-9),
            100.0 * self.wait_share,
            self.step
        )
    }
}

/// The latest steps of a worker: those since `from`. When enough have been made since `middle`, that
/// takes its place, so that later trouble shows and there is always something to judge by.
#[derive(Debug)]
struct Window {
    from: Beat,
    middle: Beat,
    to: Beat,
    history: VecDeque<Beat>,
}

impl Window {
    fn at(beat: Beat) -> Self {
        Self { from: beat, middle: beat, to: beat, history: VecDeque::from([beat]) }
    }

    fn advance(&mut self, beat: Beat) {
        if beat.steps < self.to.steps {
            *self = Self::at(beat); // the task was restarted
        }
        self.to = beat;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(beat);
        if beat.steps >= self.middle.steps + 3 * STEPS {
            self.from = self.middle;
            self.middle = beat;
        }
    }

    fn busy(&self) -> f64 {
        self.to.busy_seconds - self.from.busy_seconds
    }

    /// Its own seconds per step, once there are enough of them.
    fn per_step(&self) -> Option<f64> {
        let steps = self.to.steps.saturating_sub(self.from.steps);
        (steps >= STEPS).then(|| self.busy() / steps as f64)
    }

    /// Seconds of waiting and of everything since global step `from`, as far as heartbeats tell them apart.
    fn waited_since(&self, from: u64) -> (f64, f64) {
        let past = self.history.iter().rev().find(|beat| beat.step <= from);
        let start = past.or_else(|| self.history.front()).unwrap_or(&self.to);
        (self.to.wait_seconds - start.wait_seconds, self.to.step_seconds - start.step_seconds)
    }
}

/// Compares workers.
#[derive(Debug, Default)]
pub(super) struct Watch {
    windows: BTreeMap<TaskId, Window>,
    /// Who has been named already; named again only after it had recovered.
    named: BTreeMap<TaskId, bool>,
}

impl Watch {
    /// Takes note of a heartbeat; says who is slow, once.
    pub(super) fn note(&mut self, task: TaskId, beat: Beat) -> Option<Straggler> {
        // A window begins at a heartbeat: the first steps of a process are slow everywhere.
        self.windows.entry(task).or_insert_with(|| Window::at(beat)).advance(beat);
        self.judge()
    }

    /// Forgets a task that left.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.windows.remove(&task);
        self.named.remove(&task);
    }

    fn judge(&mut self) -> Option<Straggler> {
        let judged = |(task, window): (&TaskId, &Window)| Some((*task, window.per_step()?));
        let times: Vec<(TaskId, f64)> = self.windows.iter().filter_map(judged).collect();
        if times.len() < 2 {
            return None;
        }
        for (task, seconds) in &times {
            let mut others: Vec<f64> =
                times.iter().filter(|(other, _)| other != task).map(|(_, time)| *time).collect();
            others.sort_by(f64::total_cmp);
            let median = others[others.len() / 2];
            let Some(accused) = self.windows.get(task) else { continue };
            let slow = *seconds > RATIO * median
                && *seconds > median + NOISE_SECONDS
                && accused.busy() >= SECONDS;
            let named = self.named.entry(*task).or_insert(false);
            if slow && !*named {
                let (from, to) = (accused.from.step, accused.to.step);
                let (mut wait, mut whole) = (0.0, 0.0);
                for (other, window) in &self.windows {
                    if other != task && window.to.step >= to {
                        let (waited, all) = window.waited_since(from);
                        wait += waited;
                        whole += all;
                    }
                }
                if whole <= 0.0 {
                    continue; // no other worker has reported these steps yet
                }
                *named = true;
                return Some(Straggler {
                    task: *task,
                    seconds: *seconds,
                    others: median,
                    wait_share: (wait / whole).clamp(0.0, 1.0),
                    step: self.windows.values().map(|window| window.to.step).max().unwrap_or(to),
                });
            }
            // Recovered for good, not just below the line.
            if *named && *seconds < 0.5 * RATIO * median {
                *named = false;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_wire::Role;

    fn worker(index: u32) -> TaskId {
        TaskId::new(Role::Worker, index)
    }

    /// In lockstep, every worker's step takes as long as the slowest.
    fn beat(steps: u64, busy: f64, slowest: f64) -> Beat {
        let n = steps as f64;
        Beat {
            step: steps,
            steps,
            busy_seconds: n * busy,
            wait_seconds: n * (slowest - busy),
            step_seconds: n * slowest,
        }
    }

    #[test]
    fn a_worker_ten_times_slower_is_named_once_with_the_share_of_waiting() {
        let mut watch = Watch::default();
        let mut found = Vec::new();
        for steps in [3, 6, 9, 12, 15, 30, 60, 90] {
            for index in 0..3 {
                let busy = if index == 1 { 0.1 } else { 0.01 };
                found.extend(watch.note(worker(index), beat(steps, busy, 0.1)));
            }
        }
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].task, worker(1));
        assert!(found[0].step <= 20, "{found:?}");
        assert!((found[0].wait_share - 0.9).abs() < 0.01, "{found:?}");
        assert!(found[0].to_string().contains("worker/1 is slow: 100.0 ms per step"));
    }

    #[test]
    fn trouble_that_comes_later_is_seen_and_equal_workers_are_not_accused() {
        let mut watch = Watch::default();
        for steps in (10..2000).step_by(10) {
            for index in 0..2 {
                assert_eq!(watch.note(worker(index), beat(steps, 0.01, 0.011)), None);
            }
        }
        let slow = |steps: u64| Beat {
            busy_seconds: 20.0 + (steps - 2000) as f64 * 0.1,
            ..beat(steps, 0.01, 0.011)
        };
        let mut named_at = None;
        for steps in (2000..2060).step_by(5) {
            assert_eq!(watch.note(worker(0), beat(steps, 0.01, 0.011)), None);
            if watch.note(worker(1), slow(steps)).is_some() {
                named_at.get_or_insert(steps);
            }
        }
        assert!(named_at.is_some_and(|steps| steps <= 2030), "{named_at:?}");
    }

    /// The heartbeat with its slow steps may come before any other worker has reported that it waited for them.
    #[test]
    fn the_share_of_waiting_is_of_the_steps_in_which_the_worker_was_slow() {
        let mut watch = Watch::default();
        let quick = |steps: u64| beat(steps, 0.01, 0.011);
        for steps in (5..=15).step_by(5) {
            for index in 0..2 {
                assert_eq!(watch.note(worker(index), quick(steps)), None);
            }
        }
        let later = |steps: u64, busy: f64| Beat {
            busy_seconds: quick(15).busy_seconds + (steps - 15) as f64 * busy,
            wait_seconds: quick(15).wait_seconds + (steps - 15) as f64 * (0.1 - busy),
            step_seconds: quick(15).step_seconds + (steps - 15) as f64 * 0.1,
            ..quick(steps)
        };
        assert_eq!(watch.note(worker(1), later(25, 0.1)), None, "not yet reported by the other");
        let found = watch.note(worker(0), later(25, 0.01)).expect("now it has been");
        assert_eq!(found.task, worker(1));
        assert!(found.wait_share > 0.5, "{found:?}");
    }

    /// Workers are asynchronous: while the slow one makes a step, the others make ten each, and one has not
    /// finished its first.
    #[test]
    fn an_asynchronous_straggler_is_named_by_its_own_steps() {
        let mut watch = Watch::default();
        watch.note(worker(3), beat(1, 0.01, 0.01));
        let mut named_at = None;
        for slow in 1..=20 {
            for index in [0, 2] {
                assert_eq!(watch.note(worker(index), beat(10 * slow, 0.01, 0.01)), None);
            }
            if let Some(found) = watch.note(worker(1), beat(slow, 0.1, 0.1)) {
                assert_eq!((found.task, named_at.replace(slow)), (worker(1), None));
                assert!(found.wait_share < 0.01, "{found:?}");
            }
        }
        assert!(named_at.is_some_and(|own| own <= 8), "{named_at:?}");
    }

    /// Steps so short that heartbeats come every ten of them, and never sooner.
    #[test]
    fn short_steps_are_judged_too() {
        let mut watch = Watch::default();
        let mut named = 0;
        for steps in (10..=40).step_by(10) {
            for index in 0..2 {
                let busy = if index == 1 { 0.01 } else { 0.001 };
                named += usize::from(watch.note(worker(index), beat(steps, busy, 0.01)).is_some());
            }
        }
        assert_eq!(named, 1);
    }

    #[test]
    fn one_worker_alone_is_never_slow() {
        let mut watch = Watch::default();
        assert_eq!(watch.note(worker(0), beat(100, 1.0, 1.0)), None);
        assert_eq!(watch.note(worker(1), beat(2, 0.1, 1.0)), None, "two steps say nothing");
    }
}
