//! Cores that several tasks share.
//!
//! While tasks want more threads than there are cores, all of them slow down alike, as under a fair
//! scheduler. In a time that runs slower by that factor every piece of work simply ends after its own
//! length, so starting or ending one costs a heap operation however many there are.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Work in progress: when it ends in the host's own time, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Work {
    ends: f64,
    threads: f64,
    job: u64,
}

impl Eq for Work {}

impl Ord for Work {
    /// The earliest end is the greatest, so that a heap yields it first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.ends.total_cmp(&self.ends).then_with(|| other.job.cmp(&self.job))
    }
}

impl PartialOrd for Work {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One host.
#[derive(Debug)]
pub(super) struct Host {
    cores: f64,
    /// Threads wanted by all work in progress.
    wanted: f64,
    /// The host's own time, and the clock at which it was that.
    own: f64,
    clock: f64,
    work: BinaryHeap<Work>,
    /// Raised with every change: older predictions of the next end are void.
    pub(super) generation: u64,
    /// Seconds of cores used.
    pub(super) busy: f64,
}

impl Host {
    pub(super) fn new(cores: f64) -> Self {
        Self {
            cores,
            wanted: 0.0,
            own: 0.0,
            clock: 0.0,
            work: BinaryHeap::new(),
            generation: 0,
            busy: 0.0,
        }
    }

    fn speed(&self) -> f64 {
        if self.wanted > self.cores { self.cores / self.wanted } else { 1.0 }
    }

    fn advance(&mut self, now: f64) {
        let passed = now - self.clock;
        self.own += passed * self.speed();
        self.busy += passed * self.wanted.min(self.cores);
        self.clock = now;
    }

    /// Begins work of `seconds` on `threads` of its own.
    pub(super) fn start(&mut self, now: f64, seconds: f64, threads: f64, job: u64) {
        self.advance(now);
        self.wanted += threads;
        self.generation += 1;
        self.work.push(Work { ends: self.own + seconds, threads, job });
    }

    /// When the next piece ends if nothing changes until then.
    pub(super) fn next_end(&self) -> Option<f64> {
        let next = self.work.peek()?;
        Some(self.clock + (next.ends - self.own).max(0.0) / self.speed())
    }

    /// Ends the next piece of work; answers whose it was.
    pub(super) fn finish(&mut self, now: f64) -> Option<u64> {
        self.advance(now);
        let done = self.work.pop()?;
        // Rounding must not let the host's time run behind what has ended.
        self.own = self.own.max(done.ends);
        self.wanted = if self.work.is_empty() { 0.0 } else { self.wanted - done.threads };
        self.generation += 1;
        Some(done.job)
    }
}

/// When pieces of work that start together on one host end: the same rule, without events.
pub(super) fn together(cores: f64, threads: f64, seconds: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..seconds.len()).collect();
    order.sort_by(|&a, &b| seconds[a].total_cmp(&seconds[b]));
    let mut ends = vec![0.0; seconds.len()];
    let (mut clock, mut own) = (0.0, 0.0);
    for (done, &at) in order.iter().enumerate() {
        let wanted = threads * (seconds.len() - done) as f64;
        let speed = if wanted > cores { cores / wanted } else { 1.0 };
        clock += (seconds[at] - own) / speed;
        own = seconds[at];
        ends[at] = clock;
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_on_one_core_take_twice_as_long_until_one_is_done() {
        assert_eq!(together(1.0, 1.0, &[1.0, 3.0]), [2.0, 4.0]);
        assert_eq!(together(2.0, 1.0, &[1.0, 3.0]), [1.0, 3.0]);
        // Three on two cores run at two thirds: 1.5 each, the last alone from there.
        assert_eq!(together(2.0, 1.0, &[1.0, 1.0, 2.0]), [1.5, 1.5, 2.5]);
    }

    #[test]
    fn events_and_the_closed_form_agree() {
        let seconds = [0.3, 1.1, 0.2, 2.0, 0.7];
        let mut host = Host::new(2.0);
        for (job, &s) in seconds.iter().enumerate() {
            host.start(0.0, s, 1.0, job as u64);
        }
        let mut ends = [0.0; 5];
        while let Some(now) = host.next_end() {
            let job = host.finish(now).unwrap();
            ends[job as usize] = now;
        }
        for (found, wanted) in ends.iter().zip(together(2.0, 1.0, &seconds)) {
            assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
        }
        // Nothing is lost or made up: all work was done by the cores.
        assert!((host.busy - seconds.iter().sum::<f64>()).abs() < 1e-12);
    }
}
