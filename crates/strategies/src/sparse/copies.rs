//! Copies of one version, made while updates go on.
//!
//! The chief has every server hold back further updates and say how far it is, then tells all how far the
//! furthest is. Each server makes the updates that it lacks, and its copy begins: that moment is the
//! same version on all of them. From then on updates go on, and one that changes a slot the copy has
//! not come to keeps what was there. So no worker waits for the copy, and no server holds a second table.

use super::{
    message,
    server::{Inbox, SparseTable},
    slots,
    standing::Standing,
};
use crate::{
    protocol::{payload, protocol_error},
    server::{Core, ParameterServer, Presence},
};
use paceline_wire::{Head, Link, LinkError, TaskId};
use std::{
    collections::BTreeMap,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

/// How long a server holds back updates for those that others have and it has not.
pub(super) const CATCH_UP: Duration = Duration::from_secs(2);
/// Slots copied at a time: updates wait for some microseconds at most.
const STRETCH: usize = 1 << 14;

/// What slots held when a copy began, of those that were changed before the copy came to them.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// The first one that is not copied yet, counted from the start of the part.
    next: usize,
    slots: BTreeMap<u32, [f32; 2]>,
}

/// A copy that is being made: the slots that were ever touched, ascending.
struct Copying<'a> {
    table: &'a SparseTable,
    stretch: Vec<[f32; 2]>,
    /// Where the stretch begins, and what of it was given out.
    first: usize,
    given: usize,
}

impl Iterator for Copying<'_> {
    type Item = (u32, [f32; 2]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(slot) = self.stretch.get(self.given) {
                let position = self.first + self.given;
                self.given += 1;
                if *slot != [0.0; 2] {
                    return Some((position as u32, *slot));
                }
            }
            if !self.advance() {
                return None;
            }
        }
    }
}

impl Copying<'_> {
    /// Copies the next stretch; says whether there was one.
    fn advance(&mut self) -> bool {
        let (part, table) = (&self.table.part, self.table.model.table());
        let mut before = self.table.before();
        let Some(before) = before.as_mut().filter(|before| before.next < part.len()) else {
            return false;
        };
        let end = part.len().min(before.next + STRETCH);
        (self.first, self.given) = (before.next, 0);
        self.stretch.clear();
        self.stretch.extend((before.next..end).map(|position| table.get(part.start + position)));
        let later = before.slots.split_off(&(end as u32));
        for (position, slot) in std::mem::replace(&mut before.slots, later) {
            self.stretch[position as usize - self.first] = slot;
        }
        before.next = end;
        true
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        *self.table.before() = None;
    }
}

impl SparseTable {
    /// A copy of the weights as they are now, however they change while it is read.
    pub(super) fn copy(&self) -> impl Iterator<Item = (u32, [f32; 2])> + '_ {
        *self.before() = Some(Before::default());
        Copying { table: self, stretch: Vec::new(), first: 0, given: 0 }
    }

    fn before(&self) -> MutexGuard<'_, Option<Before>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what slots hold that are about to be changed, where a copy has not come to them.
    fn keep(&self, positions: impl Iterator<Item = u32>) {
        let mut before = self.before();
        let Some(before) = before.as_mut() else { return };
        let (table, first) = (self.model.table(), self.part.start);
        for position in positions.filter(|position| *position as usize >= before.next) {
            let now = || table.get(first + position as usize);
            before.slots.entry(position).or_insert_with(now);
        }
    }

    /// What a gradient is about to change.
    pub(super) fn note_slots(&self, inbox: &Inbox, slots: &mut Vec<(u32, [f32; 2])>) {
        let (table, first) = (self.model.table(), self.part.start);
        let note = |position: u32| (position, table.get(first + position as usize));
        slots.clear();
        if inbox.is_dense {
            slots.extend(changed(&inbox.dense).map(note));
        } else {
            slots.extend(inbox.indices.iter().copied().map(note));
        }
    }

    /// Changes the weights by a gradient.
    pub(super) fn apply(&self, inbox: &Inbox, scale: f32) {
        let first = self.part.start;
        if inbox.is_dense {
            self.keep(changed(&inbox.dense));
            self.model.apply_all(first, &inbox.dense, &inbox.sizes, scale);
        } else {
            self.keep(inbox.indices.iter().copied());
            self.model.apply(first, &inbox.indices, &inbox.grads, &inbox.sizes, scale);
        }
    }

    /// Goes as far as `target` without the gradients that never came; false where one of them may still come.
    pub(super) fn go_without(&self, core: &mut Core<Self>, target: &Standing) -> bool {
        // Synchronous, others' gradients of the same update may be here: they are sent again.
        let together = core.ledger.given.contains(&true);
        let returns = |task: TaskId| {
            let rank = core.tasks.iter().position(|worker| *worker == task);
            rank.is_some_and(|rank| match core.presence[rank] {
                Presence::Expected | Presence::Here => true,
                Presence::Gone(since) => together || since.elapsed() < self.options.returning,
                Presence::Left => false,
            })
        };
        let standing = &core.ledger.standing;
        if standing.lacks(target).any(returns) {
            return false;
        }
        // A worker that died in the middle of sending takes the rest along: this part goes without it.
        let missed = |task| target.turn(task) - standing.turn(task);
        let missed: u64 = standing.lacks(target).map(missed).sum();
        if missed > 0 {
            core.undo = None; // what it notes is not the last any more
        }
        let standing = &mut core.ledger.standing;
        if !self.options.synchronous {
            standing.version += missed;
        }
        standing.join(target);
        true
    }
}

impl ParameterServer<SparseTable> {
    /// Makes the updates up to `target`, then sends a copy while the others go on; or says that it is to be
    /// tried again, if a gradient does not come whose worker may still send it.
    pub(super) fn cut(&self, link: &mut Link, head: Head) -> Result<(), LinkError> {
        let body = payload(&mut *link.receiver, head, slots::LONGEST_HEAD)?;
        let Some(target) = Standing::read(&body) else {
            return Err(protocol_error(link, "a damaged standing"));
        };
        let Ok(Some(core)) = self.catch_up(&target) else {
            self.release();
            return link.sender.send(message::LATER, 0, &[]);
        };
        let copy = self.table.copy();
        let (lineage, standing) = (core.ledger.lineage, core.ledger.standing.clone());
        drop(core);
        self.release();
        slots::send(link, lineage, &standing, copy)
    }
}

/// Positions of the weights that a gradient changes.
fn changed(grads: &[f32]) -> impl Iterator<Item = u32> + '_ {
    let changed = grads.iter().enumerate().filter(|(_, grad)| **grad != 0.0);
    changed.map(|(position, _)| position as u32)
}
