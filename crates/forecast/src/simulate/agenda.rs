//! What is due next, in order of time.
//!
//! Thousands of workers compute at any time, and one heap of all that is due would not fit into a cache. Most of what
//! happens is due soon, though: it concerns a message on its way or one of the few servers. Or it follows after the network's
//! latency. Those have queues of their own, which stay small or need no order. Things of the same time happen in the order
//! in which they were noted.

use super::due::Due;
use std::collections::{BinaryHeap, VecDeque};

/// Everything that is due.
#[derive(Debug)]
pub(super) struct Agenda<T> {
    /// For each worker at most a few.
    later: BinaryHeap<Due<T>>,
    /// For each message on its way and each server at most a few.
    soon: BinaryHeap<Due<T>>,
    /// What follows after a time that is always the same: the first one noted is the first one due.
    delayed: VecDeque<Due<T>>,
    /// Things noted so far.
    pub(super) noted: u64,
}

impl<T: Copy> Agenda<T> {
    pub(super) fn new() -> Self {
        Self {
            later: BinaryHeap::new(),
            soon: BinaryHeap::new(),
            delayed: VecDeque::new(),
            noted: 0,
        }
    }

    fn due(&mut self, at: f64, what: T) -> Due<T> {
        self.noted += 1;
        Due { at, number: self.noted, what }
    }

    /// Notes something.
    pub(super) fn add(&mut self, at: f64, what: T) {
        let due = self.due(at, what);
        self.later.push(due);
    }

    /// Notes something of which there are few at a time.
    pub(super) fn add_soon(&mut self, at: f64, what: T) {
        let due = self.due(at, what);
        self.soon.push(due);
    }

    /// Notes something after a delay that is the same for all that are noted this way.
    pub(super) fn add_delayed(&mut self, at: f64, what: T) {
        let due = self.due(at, what);
        debug_assert!(self.delayed.back().is_none_or(|last| last.at <= at));
        self.delayed.push_back(due);
    }

    /// What is due first, and when.
    pub(super) fn next(&mut self) -> Option<(f64, T)> {
        // The earliest is the greatest.
        let (later, soon, delayed) = (self.later.peek(), self.soon.peek(), self.delayed.front());
        let first = later.max(soon).max(delayed).map(|due| (due.at, due.number, due.what))?;
        let is_first = |due: Option<&Due<T>>| due.is_some_and(|due| due.number == first.1);
        if is_first(later) {
            self.later.pop();
        } else if is_first(soon) {
            self.soon.pop();
        } else {
            self.delayed.pop_front();
        }
        Some((first.0, first.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_time_and_then_of_noting() {
        let mut agenda = Agenda::new();
        agenda.add(3.0, 'd');
        agenda.add_soon(1.0, 'a');
        agenda.add_delayed(1.0, 'b');
        agenda.add(1.0, 'c');
        agenda.add_delayed(3.0, 'e');
        agenda.add_soon(4.0, 'f');
        let order: String = std::iter::from_fn(|| agenda.next()).map(|(_, what)| what).collect();
        assert_eq!(order, "abcdef");
    }
}
