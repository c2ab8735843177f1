//! Copies of one version, made while updates go on.
//!
//! The chief has every server hold back further updates and say how far it is, then tells all how far the
//! furthest is. Each server makes the updates that it lacks, and its copy begins: that moment is the
//! same version on all of them. From then on updates go on, and one that changes a slot the copy has
//! not come to keeps what was there. So nobody waits for the copy, and no server holds a second table.

use super::{
    desk::odd,
    message,
    server::{Core, Inbox, Interrupted, Presence, SparseServer},
    slots,
    standing::Standing,
};
use paceline_wire::{Head, Link, LinkError, TaskId};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long a server holds back updates for those that others have and it has not.
const CATCH_UP: Duration = Duration::from_secs(2);
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
    server: &'a SparseServer,
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
        let (part, table) = (&self.server.part, self.server.model.table());
        let mut before = self.server.before();
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
        *self.server.before() = None;
    }
}

impl SparseServer {
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
            self.model.apply_all(first, &inbox.dense, scale);
        } else {
            self.keep(inbox.indices.iter().copied());
            self.model.apply(first, &inbox.indices, &inbox.grads, scale);
        }
    }

    /// Makes no update from here on, and says how far it is.
    pub(super) fn hold(&self) -> Result<Standing, Interrupted> {
        let mut core = self.locked();
        core.hold = Some(core.standing.clone());
        // Those that have begun are finished.
        let core = self.wait_while(core, |core| core.applying > 0)?;
        Ok(core.standing.clone())
    }

    /// Updates go on.
    pub(super) fn release(&self, inboxes: &[Mutex<Inbox>]) {
        let mut core = self.locked();
        core.hold = None;
        self.settle(&mut core, &self.seat.workers(), inboxes);
        drop(core);
        self.wake();
    }

    /// Makes the updates up to `target`, then sends a copy while the others go on; or says that it is to be
    /// tried again, if a gradient does not come whose worker may still send it.
    pub(super) fn cut(
        &self,
        link: &mut Link,
        head: Head,
        inboxes: &[Mutex<Inbox>],
    ) -> Result<(), LinkError> {
        let body = slots::payload(&mut *link.receiver, head, slots::LONGEST_HEAD)?;
        let Some(target) = Standing::read(&body) else {
            return Err(odd(link, "a standing that is none".to_owned()));
        };
        let (lineage, standing, copy) = {
            let Some(core) = self.level(&target, inboxes) else {
                self.release(inboxes);
                return link.sender.send(message::LATER, 0, &[]);
            };
            *self.before() = Some(Before::default());
            let copy = Copying { server: self, stretch: Vec::new(), first: 0, given: 0 };
            (core.lineage, core.standing.clone(), copy)
        };
        self.release(inboxes);
        slots::send(link, lineage, &standing, copy)
    }

    /// Waits until it is as far as `target`.
    fn level(&self, target: &Standing, inboxes: &[Mutex<Inbox>]) -> Option<MutexGuard<'_, Core>> {
        let workers = self.seat.workers();
        let mut core = self.locked();
        core.hold = Some(target.clone());
        self.settle(&mut core, &workers, inboxes);
        self.wake();
        let until = Instant::now() + CATCH_UP;
        let core = self.wait_while(core, |core| {
            let lacks = core.standing.lacks(target).next().is_some();
            core.applying > 0 || (lacks && Instant::now() < until)
        });
        let mut core = core.ok()?;
        // In step, others' gradients of the same update may be here: they are sent again.
        let together = core.given.contains(&true);
        let returns = |task: TaskId| {
            let rank = workers.iter().position(|worker| *worker == task);
            rank.is_some_and(|rank| match core.presence[rank] {
                Presence::Expected | Presence::Here => true,
                Presence::Gone(since) => together || since.elapsed() < self.options.returning,
                Presence::Left => false,
            })
        };
        if core.standing.lacks(target).any(returns) {
            return None;
        }
        if core.standing.lacks(target).next().is_some() {
            core.last = None; // what it notes is not the last any more
        }
        // Whoever died in the middle of sending takes the rest along: this part goes without it.
        if !self.options.synchronous {
            let missed = |task| target.turn(task) - core.standing.turn(task);
            let missed: u64 = core.standing.lacks(target).map(missed).sum();
            core.standing.version += missed;
        }
        core.standing.join(target);
        Some(core)
    }
}

/// Positions of the weights that a gradient changes.
fn changed(grads: &[f32]) -> impl Iterator<Item = u32> + '_ {
    let changed = grads.iter().enumerate().filter(|(_, grad)| **grad != 0.0);
    changed.map(|(position, _)| position as u32)
}
