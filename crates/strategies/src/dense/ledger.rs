//! What a server of dense weights counts, and the weights, behind its lock: who waits for what, what is dealt, what is made.

use super::{
    DenseTable,
    message::MOST_HELD,
    part::ServerPart,
    tickets::{Done, Progress, Pulls, Tickets},
};
use crate::{
    Setup, StepReport, Tally,
    server::{Core, Presence},
};
use std::{collections::BTreeSet, sync::Arc};

/// Stalenesses from here on are counted together.
const MOST_STALENESS: usize = 4096;

/// The counters before the last step; the [`ServerPart`] has its weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Undo {
    examples: u64,
    nonfinite: bool,
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
pub(crate) struct Ledger {
    pub(super) part: ServerPart,
    /// Updates made.
    pub(super) version: u64,
    pub(super) done: Done,
    /// Versions that count updates which this server never made; see [`go_without`](Self::go_without).
    unmade: BTreeSet<u64>,
    pub(super) tickets: Tickets,
    pub(super) pulls: Pulls,
    pub(super) tally: Tally,
    /// Step reports that each worker has not been told of.
    windows: Vec<StepReport>,
    /// The step of the gradient that each worker has given, until it is used.
    pub(super) given: Vec<Option<u64>>,
    /// Whose gradients are in the last step that each worker was part of, until it is told.
    pub(super) taken: Vec<Option<Arc<[usize]>>>,
    /// Workers that wait for the last updates of others, and bring none themselves.
    pub(super) resting: Vec<bool>,
    /// The last batch of each worker that is in the weights; nothing of those that are gone.
    pub(super) brought: Vec<Option<u64>>,
    /// Batches of other servers that are on their way to this one, and whose they are: a copy waits.
    awaited: Vec<(u64, usize)>,
    pub(super) meeting: Meeting,
    /// A gradient with NaN or infinity in it has come.
    nonfinite: bool,
}

impl Ledger {
    pub(super) fn new(setup: &Setup<'_>, synchronous: bool, part: ServerPart) -> Self {
        let version = setup.origin.version;
        Self {
            part,
            version,
            done: if synchronous {
                Done { below: version, ..Done::default() }
            } else {
                Done::new(&setup.origin)
            },
            unmade: BTreeSet::new(),
            tickets: Tickets::new(&setup.origin, setup.steps),
            pulls: Pulls::default(),
            tally: Tally::default(),
            windows: Vec::new(),
            given: Vec::new(),
            taken: Vec::new(),
            resting: Vec::new(),
            brought: Vec::new(),
            awaited: Vec::new(),
            meeting: Meeting::default(),
            nonfinite: false,
        }
    }

    /// Begins a generation of `workers`; weights and counters stay.
    pub(super) fn begin(&mut self, workers: usize, max_staleness: Option<u64>) {
        // What the workers of the generation before held.
        for worker in 0..self.given.len() {
            self.tickets.give_back(worker);
        }
        self.pulls = Pulls::new(max_staleness);
        self.windows = vec![StepReport::default(); workers];
        self.given = vec![None; workers];
        self.taken = vec![None; workers];
        self.resting = vec![false; workers];
        self.brought = vec![None; workers];
        self.awaited.clear();
        self.meeting = Meeting { brought: vec![None; workers], ..Meeting::default() };
    }

    pub(super) fn progress(&self) -> Progress {
        let brought = (0u64..).zip(&self.brought);
        Progress {
            done: self.done.clone(),
            brought: brought.filter_map(|(rank, batch)| Some(((*batch)?, rank))).collect(),
        }
    }

    /// Whether one of them has not come yet.
    pub(super) fn awaits(&self) -> bool {
        self.awaited.iter().any(|(batch, _)| !self.done.contains(*batch))
    }

    /// A worker brings a batch: anything else awaited from it was lost with its earlier link.
    pub(super) fn comes(&mut self, worker: usize, batch: u64) {
        self.awaited.retain(|awaited| awaited.1 != worker || awaited.0 == batch);
    }

    /// Counts batches as made that never will be: their worker died before this server had its part.
    pub(super) fn go_without(&mut self, made: &Done) {
        self.done.add(made);
        let before = self.version;
        self.version = self.done.below + self.done.beyond.len() as u64;
        self.unmade.extend(before + 1..=self.version);
        self.tickets.strike(&self.done);
    }

    /// Updates made since weights of a version. Those that never will be made have changed nothing.
    pub(super) fn made_since(&self, pulled: u64) -> u64 {
        let all = self.version.saturating_sub(pulled);
        if all == 0 { 0 } else { all - self.unmade.range(pulled + 1..).count() as u64 }
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

    /// The counters as they are before a step.
    pub(super) fn counters(&self) -> Undo {
        Undo { examples: self.tally.examples, nonfinite: self.nonfinite }
    }

    /// Rolls the last step back, as if it had never been made; a wish to stop stays one.
    pub(super) fn roll_back(&mut self, before: Undo) {
        self.part.roll_back();
        self.version -= 1;
        self.done = Done { below: self.version, ..Done::default() };
        self.tally.staleness[0] -= 1;
        (self.tally.examples, self.nonfinite) = (before.examples, before.nonfinite);
    }
}

impl Core<DenseTable> {
    /// Whether the update of a batch may be made now.
    pub(super) fn may_update(&self, batch: u64) -> bool {
        let within = |target: &Progress| target.done.contains(batch);
        self.hold.as_ref().is_none_or(|hold| hold.target.as_ref().is_some_and(within))
    }

    /// Notes which of other servers' batches are still to come: those whose worker is there.
    pub(super) fn await_batches(&mut self, brought: &[(u64, u64)]) {
        let still = |(batch, rank): &(u64, u64)| {
            let rank = usize::try_from(*rank).ok()?;
            let presence = self.presence.get(rank)?;
            (presence.is_there() && !self.ledger.done.contains(*batch)).then_some((*batch, rank))
        };
        self.ledger.awaited = brought.iter().filter_map(still).collect();
    }

    /// Whether another worker may still bring an update.
    pub(super) fn may_grow(&self, worker: usize) -> bool {
        let others = self.presence.iter().zip(&self.ledger.resting).enumerate();
        let mut others = others.filter(|(rank, _)| *rank != worker);
        others.any(|(_, (presence, resting))| presence.is_there() && !resting)
    }

    /// Counts a step report whose gradient was used, and lets all workers know.
    pub(super) fn count_vote(&mut self, step_report: &StepReport) {
        self.ledger.tally.examples += step_report.loss.examples;
        self.stop |= step_report.stop;
        self.ledger.nonfinite |= step_report.nonfinite;
        for window in &mut self.ledger.windows {
            window.add(step_report);
        }
    }

    /// Counts a gradient that came too late; a wish to stop counts in any case.
    pub(super) fn drop_vote(&mut self, step_report: &StepReport) {
        self.ledger.tally.dropped += 1;
        self.ledger.tally.dropped_examples += step_report.loss.examples;
        self.stop |= step_report.stop;
    }

    /// What a worker has not been told yet.
    pub(super) fn take_window(&mut self, worker: usize) -> StepReport {
        let mut step_report = std::mem::take(&mut self.ledger.windows[worker]);
        step_report.stop |= self.stop;
        step_report.nonfinite |= self.ledger.nonfinite;
        step_report
    }

    /// Deals batches until a worker has enough; returns the new ones.
    pub(super) fn top_up(&mut self, worker: usize) -> ([u64; MOST_HELD], u16) {
        let (mut batches, mut count) = ([0; MOST_HELD], 0u16);
        if self.stop || self.ledger.nonfinite {
            self.ledger.tickets.stop();
        }
        if self.ledger.tickets.is_stopping() {
            // It has nothing in progress while it asks, so what it read ahead belongs to no worker now.
            self.ledger.tickets.give_back(worker);
        }
        while self.ledger.tickets.held(worker) < MOST_HELD {
            let Some(batch) = self.ledger.tickets.deal(worker) else { break };
            batches[usize::from(count)] = batch;
            count += 1;
        }
        (batches, count)
    }

    /// A worker is there, gone, or has finished.
    pub(super) fn presence_changed(&mut self, worker: usize, synchronous: bool) {
        self.ledger.resting[worker] = false;
        let presence = self.presence[worker];
        if presence != Presence::Here {
            self.ledger.tickets.give_back(worker);
            self.ledger.pulls.forget(worker);
            self.ledger.brought[worker] = None;
            self.ledger.awaited.retain(|(_, by)| *by != worker);
            self.ledger.meeting.brought[worker] = None;
            self.close_meeting();
        }
        if synchronous && matches!(presence, Presence::Gone(_)) {
            self.lost.get_or_insert(self.tasks[worker]);
        }
    }

    /// Adds up if all workers have brought their numbers.
    pub(super) fn close_meeting(&mut self) {
        let mut all = self.presence.iter().zip(&self.ledger.meeting.brought);
        if all.any(|(presence, brought)| presence.is_there() && brought.is_none()) {
            return;
        }
        let brought = self.ledger.meeting.brought.iter_mut();
        let brought: Vec<Vec<f64>> = brought.filter_map(Option::take).collect();
        let Some(longest) = brought.iter().map(Vec::len).max() else { return };
        let mut sums = vec![0.0; longest];
        for values in &brought {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
        self.ledger.meeting.sums = sums;
        self.ledger.meeting.round += 1;
    }

    /// Whether no worker needs this server any more.
    pub(super) fn is_deserted(&self, synchronous: bool) -> bool {
        self.presence.iter().all(|presence| !presence.is_there())
            && (self.presence.contains(&Presence::Left)
                || (!synchronous && self.ledger.tickets.is_over()))
    }
}
