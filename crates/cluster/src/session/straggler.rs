//! Who holds the others up, from the step times that ride on heartbeats.
//!
//! A worker's own time per step (reading and computing, not waiting) is compared with the median of
//! the others. Three times as long over several steps is a straggler; ten times is named within
//! twenty steps, because workers send an early heartbeat after their first steps and then one
//! every few.

use super::message::Beat;
use crate::TaskId;
use std::collections::BTreeMap;

/// Steps a judgement is based on, at least, and seconds that the accused was busy in them: one step in
/// which the scheduler had other plans makes no straggler.
const STEPS: u64 = 5;
const SECONDS: f64 = 0.15;
/// How much longer than the others' median a straggler takes.
const RATIO: f64 = 3.0;
/// Differences below this, in seconds per step, are noise of the scheduler.
const NOISE_SECONDS: f64 = 0.002;

/// A worker that holds the others up.
#[derive(Debug, Clone, PartialEq)]
pub struct Straggler {
    /// Which one.
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

/// Compares workers.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Per worker: where its present window began, and where it stands.
    windows: BTreeMap<TaskId, (Beat, Beat)>,
    /// Who has been named already; named again only after it had recovered.
    named: BTreeMap<TaskId, bool>,
}

impl Watch {
    /// Takes note of a heartbeat; says who is slow, once.
    pub(super) fn note(&mut self, task: TaskId, beat: Beat) -> Option<Straggler> {
        // A window begins at a heartbeat: the first steps of a process are slow everywhere.
        let window = self.windows.entry(task).or_insert((beat, beat));
        if beat.steps < window.1.steps {
            *window = (beat, beat); // the task began anew
        }
        window.1 = beat;
        let found = self.judge();
        // A window long enough to judge, judged: the next one begins, so that later trouble shows.
        if self.windows.values().all(|(from, to)| to.steps >= from.steps + 4 * STEPS) {
            for (from, to) in self.windows.values_mut() {
                *from = *to;
            }
        }
        found
    }

    /// Forgets a task that left.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.windows.remove(&task);
        self.named.remove(&task);
    }

    fn judge(&mut self) -> Option<Straggler> {
        if self.windows.len() < 2 {
            return None;
        }
        let per_step = |from: &Beat, to: &Beat| {
            let steps = to.steps.saturating_sub(from.steps);
            (steps >= STEPS).then(|| (to.busy_seconds - from.busy_seconds) / steps as f64)
        };
        let times: Option<Vec<(TaskId, f64)>> = self
            .windows
            .iter()
            .map(|(task, (from, to))| Some((*task, per_step(from, to)?)))
            .collect();
        let times = times?;
        for (task, seconds) in &times {
            let mut others: Vec<f64> =
                times.iter().filter(|(other, _)| other != task).map(|(_, time)| *time).collect();
            others.sort_by(f64::total_cmp);
            let median = others[others.len() / 2];
            let busy = self
                .windows
                .get(task)
                .map_or(0.0, |(from, to)| to.busy_seconds - from.busy_seconds);
            let slow =
                *seconds > RATIO * median && *seconds > median + NOISE_SECONDS && busy >= SECONDS;
            let named = self.named.entry(*task).or_insert(false);
            if slow && !*named {
                *named = true;
                let (mut wait, mut whole, mut step) = (0.0, 0.0, 0);
                for (other, (from, to)) in &self.windows {
                    step = step.max(to.step);
                    if other != task {
                        wait += to.wait_seconds - from.wait_seconds;
                        whole += to.step_seconds - from.step_seconds;
                    }
                }
                return Some(Straggler {
                    task: *task,
                    seconds: *seconds,
                    others: median,
                    wait_share: if whole > 0.0 { (wait / whole).clamp(0.0, 1.0) } else { 0.0 },
                    step,
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
    use crate::Role;

    fn worker(index: u32) -> TaskId {
        TaskId::new(Role::Worker, index)
    }

    /// In lockstep, everybody's step takes as long as the slowest.
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

    #[test]
    fn one_worker_alone_is_never_slow() {
        let mut watch = Watch::default();
        assert_eq!(watch.note(worker(0), beat(100, 1.0, 1.0)), None);
        assert_eq!(watch.note(worker(1), beat(2, 0.1, 1.0)), None, "two steps say nothing");
    }
}
