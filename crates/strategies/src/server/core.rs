//! What the threads of a server share: weights, counters, who is there, who waits for what.

use super::{
    message::MOST_HELD,
    part::Part,
    tickets::{Done, Progress, Pulls, Tickets},
};
use crate::{Tally, Vote};
use paceline_wire::TaskId;
use std::sync::Arc;

/// Stalenesses from here on are counted together.
const MOST_STALENESS: usize = 4096;

/// Where a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// On its way.
    Expected,
    Here,
    /// Lost; may come back where workers do not keep step.
    Gone,
    /// Has finished.
    Left,
}

/// No updates but those of the batches wanted, until a copy is made.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) by: usize,
    pub(super) target: Option<Done>,
}

/// Counters that go back when a step is taken back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    examples: u64,
    poisoned: bool,
}

/// Sums over all workers.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    pub(super) round: u64,
    pub(super) brought: Vec<Option<Vec<f64>>>,
    /// Of the round before.
    pub(super) sums: Vec<f64>,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) part: Part,
    /// Updates made.
    pub(super) version: u64,
    pub(super) done: Done,
    pub(super) tickets: Tickets,
    pub(super) pulls: Pulls,
    pub(super) tally: Tally,
    /// Votes that each worker has not been told of.
    pub(super) windows: Vec<Vote>,
    pub(super) presence: Vec<Presence>,
    /// The step of the gradient that each worker has given, until it is used.
    pub(super) given: Vec<Option<u64>>,
    /// Whose gradients are in the last step that each worker was part of, until it is told.
    pub(super) taken: Vec<Option<Arc<[usize]>>>,
    /// The counters before the last step.
    pub(super) before: Before,
    /// Nobody has said yet which step all servers have, after a loss.
    pub(super) unsettled: bool,
    /// Workers that wait for the last updates of others, and bring none themselves.
    pub(super) resting: Vec<bool>,
    pub(super) hold: Option<Hold>,
    /// The last batch of each worker that is in the weights; nothing of those that are gone.
    pub(super) brought: Vec<Option<u64>>,
    /// Batches of other servers that are on their way to this one, and whose they are: a copy waits.
    pub(super) awaited: Vec<(u64, usize)>,
    pub(super) meeting: Meeting,
    /// Somebody asked to stop, or sent a poisoned gradient.
    pub(super) stop: bool,
    pub(super) poisoned: bool,
    /// Without this one the generation cannot go on.
    pub(super) lost: Option<TaskId>,
    /// Threads that wait for a change.
    pub(super) waiting: usize,
}

impl Core {
    /// Begins a generation of `workers`; weights and counters stay.
    pub(super) fn seat(&mut self, workers: usize, max_staleness: Option<u64>) {
        for worker in 0..self.presence.len() {
            self.tickets.give_back(worker);
        }
        self.pulls = Pulls::new(max_staleness);
        self.windows = vec![Vote::default(); workers];
        self.presence = vec![Presence::Expected; workers];
        self.given = vec![None; workers];
        self.taken = vec![None; workers];
        self.unsettled = true;
        self.resting = vec![false; workers];
        self.hold = None;
        self.brought = vec![None; workers];
        self.awaited.clear();
        self.meeting = Meeting { brought: vec![None; workers], ..Meeting::default() };
        self.lost = None;
    }

    /// Whether the update of a batch may be made now.
    pub(super) fn may_update(&self, batch: u64) -> bool {
        self.hold
            .as_ref()
            .is_none_or(|hold| hold.target.as_ref().is_some_and(|target| target.contains(batch)))
    }

    pub(super) fn progress(&self) -> Progress {
        let brought = (0u64..).zip(&self.brought);
        Progress {
            done: self.done.clone(),
            brought: brought.filter_map(|(rank, batch)| Some(((*batch)?, rank))).collect(),
        }
    }

    /// Notes which of other servers' batches are still to come: those whose worker is there.
    pub(super) fn await_batches(&mut self, brought: &[(u64, u64)]) {
        let still = |(batch, rank): &(u64, u64)| {
            let rank = usize::try_from(*rank).ok()?;
            let presence = self.presence.get(rank)?;
            let there = matches!(presence, Presence::Expected | Presence::Here);
            (there && !self.done.contains(*batch)).then_some((*batch, rank))
        };
        self.awaited = brought.iter().filter_map(still).collect();
    }

    /// Whether one of them has not come yet.
    pub(super) fn awaits(&self) -> bool {
        self.awaited.iter().any(|(batch, _)| !self.done.contains(*batch))
    }

    /// A worker brings a batch: whatever else of it was awaited went with a link that is no more.
    pub(super) fn comes(&mut self, worker: usize, batch: u64) {
        self.awaited.retain(|awaited| awaited.1 != worker || awaited.0 == batch);
    }

    /// Counts batches as made that never will be: their worker died before this server had its part.
    pub(super) fn go_without(&mut self, made: &Done) {
        self.done.add(made);
        self.version = self.done.below + self.done.beyond.len() as u64;
        self.tickets.strike(&self.done);
    }

    /// Counts an update that has just been made.
    pub(super) fn count(&mut self, batch: u64, staleness: u64) {
        self.version += 1;
        self.done.insert(batch);
        let place = usize::try_from(staleness).unwrap_or(usize::MAX).min(MOST_STALENESS);
        if self.tally.staleness.len() <= place {
            self.tally.staleness.resize(place + 1, 0);
        }
        self.tally.staleness[place] += 1;
    }

    /// Notes what counts before a step is made.
    pub(super) fn begin_step(&mut self) {
        self.before = Before { examples: self.tally.examples, poisoned: self.poisoned };
    }

    /// Takes the last step back, as if it had never been made; a wish to stop stays one.
    pub(super) fn take_back(&mut self) {
        self.part.take_back();
        self.version -= 1;
        self.done = Done { below: self.version, ..Done::default() };
        self.tally.staleness[0] -= 1;
        (self.tally.examples, self.poisoned) = (self.before.examples, self.before.poisoned);
    }

    /// Whether another worker may still bring an update.
    pub(super) fn may_grow(&self, worker: usize) -> bool {
        let others = self.presence.iter().zip(&self.resting).enumerate();
        others.filter(|(rank, _)| *rank != worker).any(|(_, (presence, resting))| {
            matches!(presence, Presence::Expected | Presence::Here) && !resting
        })
    }

    /// Counts a vote whose gradient was used, and lets everybody know.
    pub(super) fn count_vote(&mut self, vote: &Vote) {
        self.tally.examples += vote.loss.examples;
        self.stop |= vote.stop;
        self.poisoned |= vote.poisoned;
        for window in &mut self.windows {
            window.add(vote);
        }
    }

    /// Counts a gradient that came too late; a wish to stop counts in any case.
    pub(super) fn drop_vote(&mut self, vote: &Vote) {
        self.tally.dropped += 1;
        self.tally.dropped_examples += vote.loss.examples;
        self.stop |= vote.stop;
    }

    /// What a worker has not been told yet.
    pub(super) fn take_window(&mut self, worker: usize) -> Vote {
        let mut vote = std::mem::take(&mut self.windows[worker]);
        vote.stop |= self.stop;
        vote.poisoned |= self.poisoned;
        vote
    }

    /// Deals batches until a worker has enough; returns the new ones.
    pub(super) fn top_up(&mut self, worker: usize) -> ([u64; MOST_HELD], u16) {
        let (mut batches, mut count) = ([0; MOST_HELD], 0u16);
        if self.stop || self.poisoned {
            self.tickets.stop();
        }
        if self.tickets.is_stopping() {
            // It has nothing in progress while it asks, so what it read ahead is nobody's now.
            self.tickets.give_back(worker);
        }
        while self.tickets.held(worker) < MOST_HELD {
            let Some(batch) = self.tickets.deal(worker) else { break };
            batches[usize::from(count)] = batch;
            count += 1;
        }
        (batches, count)
    }

    /// A worker is there, gone, or has finished.
    pub(super) fn note(&mut self, worker: usize, presence: Presence) {
        self.presence[worker] = presence;
        self.resting[worker] = false;
        if presence != Presence::Here {
            self.tickets.give_back(worker);
            self.pulls.forget(worker);
            if self.hold.as_ref().is_some_and(|hold| hold.by == worker) {
                self.hold = None;
            }
            self.brought[worker] = None;
            self.awaited.retain(|(_, by)| *by != worker);
            self.meeting.brought[worker] = None;
            self.close_meeting();
        }
    }

    /// Adds up if everybody has brought their numbers.
    pub(super) fn close_meeting(&mut self) {
        let missing = self.presence.iter().zip(&self.meeting.brought).any(|(presence, brought)| {
            matches!(presence, Presence::Expected | Presence::Here) && brought.is_none()
        });
        let brought: Vec<Vec<f64>> = if missing {
            return;
        } else {
            self.meeting.brought.iter_mut().filter_map(Option::take).collect()
        };
        let Some(longest) = brought.iter().map(Vec::len).max() else { return };
        let mut sums = vec![0.0; longest];
        for values in &brought {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
        self.meeting.sums = sums;
        self.meeting.round += 1;
    }

    /// Whether nobody needs this server any more.
    pub(super) fn is_deserted(&self, synchronous: bool) -> bool {
        let nobody = |presence: &Presence| matches!(presence, Presence::Gone | Presence::Left);
        self.presence.iter().all(nobody)
            && (self.presence.contains(&Presence::Left) || (!synchronous && self.tickets.is_over()))
    }
}
