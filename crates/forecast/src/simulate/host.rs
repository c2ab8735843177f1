//! Cores that several tasks share.
//!
//! A task keeps its core until its piece of work is done or its time slice is over, then the task that has
//! waited longest gets it: most steps of small models are shorter than a slice, so three equal tasks on
//! two cores take two rounds, not one and a half. Short pieces (servers, which sleep mostly) go before long ones, as
//! under a fair scheduler, which prefers tasks that used least. A task that had to wait pays for the
//! context switch: the core's caches are full of another task's data.

use super::due::Due;
use std::collections::{BinaryHeap, VecDeque};

/// Seconds until a core may be taken from a task that does not give it up: one tick of most Linux kernels
/// (250 Hz).
pub(super) const SLICE: f64 = 4e-3;

/// A piece of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Piece {
    pub(super) job: u64,
    /// Seconds it takes with its threads.
    pub(super) seconds: f64,
    /// Seconds more if it has to wait for a core.
    pub(super) handover: f64,
    /// Cores it uses.
    pub(super) threads: f64,
    /// Goes before others that wait.
    pub(super) first: bool,
    /// Keeps its core until it is done, however long: it stands for many short ones.
    pub(super) whole: bool,
}

/// One host.
#[derive(Debug)]
pub(super) struct Host {
    cores: f64,
    free: f64,
    /// Until their slices or their work end. Pieces that end together do so in the order in which they got their cores.
    running: BinaryHeap<Due<Piece>>,
    waiting: VecDeque<Piece>,
    number: u64,
    /// Raised with every change: older predictions of the next end are void.
    pub(super) generation: u64,
}

impl Host {
    pub(super) fn new(cores: f64) -> Self {
        Self {
            cores,
            free: cores,
            running: BinaryHeap::new(),
            waiting: VecDeque::new(),
            number: 0,
            generation: 0,
        }
    }

    /// Begins a piece of work, now or when cores are free.
    pub(super) fn start(&mut self, now: f64, piece: Piece) {
        self.generation += 1;
        // More threads than there are cores take turns: as long as all of them one after the other.
        let fits = piece.threads.min(self.cores);
        let seconds = piece.seconds * piece.threads / fits;
        let piece = Piece { seconds, threads: fits, ..piece };
        if (self.waiting.is_empty() || piece.first) && self.fits(&piece) {
            self.run(now, piece);
            return;
        }
        let piece = Piece { seconds: piece.seconds + piece.handover, ..piece };
        if piece.first {
            let place = self.waiting.iter().take_while(|waiting| waiting.first).count();
            self.waiting.insert(place, piece);
        } else {
            self.waiting.push_back(piece);
        }
        self.admit(now);
    }

    fn fits(&self, piece: &Piece) -> bool {
        // A hair of tolerance: cores are counted in floating point.
        piece.threads <= self.free + 1e-9
    }

    fn run(&mut self, now: f64, piece: Piece) {
        self.number += 1;
        self.free -= piece.threads;
        let until = now + if piece.whole { piece.seconds } else { piece.seconds.min(SLICE) };
        self.running.push(Due { at: until, number: self.number, what: piece });
    }

    /// Gives free cores to waiting tasks. A task that just finished a piece of work may start another one first.
    pub(super) fn admit(&mut self, now: f64) {
        while let Some(next) = self.waiting.front().copied() {
            if !self.fits(&next) {
                return;
            }
            self.waiting.pop_front();
            self.run(now, next);
        }
    }

    /// When something happens next if nothing is started until then.
    pub(super) fn next_end(&self) -> Option<f64> {
        self.running.peek().map(|running| running.at)
    }

    /// Handles the next end of a slice or of a piece; returns the task whose piece is done, if any: its core is then
    /// free until another task is admitted.
    pub(super) fn finish(&mut self, now: f64) -> Option<u64> {
        let Due { what: piece, .. } = self.running.pop()?;
        self.generation += 1;
        self.free += piece.threads;
        if self.running.is_empty() {
            self.free = self.cores;
        }
        let left = piece.seconds - SLICE;
        if left <= 0.0 || piece.whole {
            return Some(piece.job);
        }
        let mut rest = Piece { seconds: left, ..piece };
        if self.waiting.is_empty() {
            self.run(now, rest);
        } else {
            rest.seconds += rest.handover;
            rest.first = false;
            self.waiting.push_back(rest);
            self.admit(now);
        }
        None
    }
}

/// When pieces of work that start together on one host end: `(seconds, handover)` of each.
pub(super) fn together(cores: f64, threads: f64, pieces: &[(f64, f64)]) -> Vec<f64> {
    let mut host = Host::new(cores);
    for (job, &(seconds, handover)) in pieces.iter().enumerate() {
        host.start(
            0.0,
            Piece { job: job as u64, seconds, handover, threads, first: false, whole: false },
        );
    }
    let mut ends = vec![0.0; pieces.len()];
    while let Some(now) = host.next_end() {
        if let Some(job) = host.finish(now) {
            ends[job as usize] = now;
        }
        host.admit(now);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(cores: f64, seconds: &[f64]) -> Vec<f64> {
        let pieces: Vec<(f64, f64)> = seconds.iter().map(|&seconds| (seconds, 0.0)).collect();
        together(cores, 1.0, &pieces)
    }

    #[track_caller]
    fn near(found: &[f64], wanted: &[f64], off: f64) {
        let close = found.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= off);
        assert!(close && found.len() == wanted.len(), "{found:?} is not {wanted:?}");
    }

    #[test]
    fn short_pieces_run_to_their_end() {
        near(&ends(2.0, &[1e-3, 1e-3, 1e-3]), &[1e-3, 1e-3, 2e-3], 1e-12);
        near(&ends(1.0, &[1e-3, 2e-3]), &[1e-3, 3e-3], 1e-12);
        near(&ends(2.0, &[1e-3, 3e-3]), &[1e-3, 3e-3], 1e-12);
    }

    #[test]
    fn long_pieces_share_the_cores_evenly() {
        // Within a few slices of: three on two cores run at two thirds; two on one core at half.
        near(&ends(2.0, &[1.0, 1.0, 1.0]), &[1.5, 1.5, 1.5], 3.0 * SLICE);
        near(&ends(1.0, &[1.0, 3.0]), &[2.0, 4.0], 3.0 * SLICE);
    }

    #[test]
    fn only_a_task_that_waits_pays_for_the_handover() {
        let found = together(1.0, 1.0, &[(1e-3, 5e-4), (1e-3, 5e-4)]);
        near(&found, &[1e-3, 2.5e-3], 1e-12);
        near(&together(2.0, 1.0, &[(1e-3, 5e-4), (1e-3, 5e-4)]), &[1e-3, 1e-3], 1e-12);
    }

    #[test]
    fn first_ones_overtake_those_that_wait_but_not_those_that_run() {
        let mut host = Host::new(1.0);
        let piece = |job, first| Piece {
            job,
            seconds: 1e-3,
            handover: 0.0,
            threads: 1.0,
            first,
            whole: false,
        };
        host.start(0.0, piece(0, false));
        host.start(0.0, piece(1, false));
        host.start(0.0, piece(2, true));
        let mut order = Vec::new();
        while let Some(now) = host.next_end() {
            order.extend(host.finish(now));
            host.admit(now);
        }
        assert_eq!(order, [0, 2, 1]);
    }

    #[test]
    fn more_threads_than_cores_take_as_long_as_one_after_the_other() {
        near(&together(2.0, 4.0, &[(1e-3, 0.0)]), &[2e-3], 1e-12);
    }
}
