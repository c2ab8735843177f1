//! How gradients become updates: at once, or in lockstep with the other workers'.

use super::{
    DenseTable,
    message::{self, Form, GrantHead, PushHead},
    part::Inbox,
};
use crate::{
    protocol::{nanoseconds, protocol_error},
    server::{Core, Failure, Interrupted, WorkerSession},
};
use paceline_wire::{Head, Link};
use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Instant,
};

impl DenseTable {
    /// Synchronous: whether there is no step left to do.
    pub(super) fn is_finished(&self, core: &Core<Self>) -> bool {
        core.stop || self.steps.is_some_and(|steps| core.ledger.version >= steps)
    }

    /// Synchronous: makes the step of all gradients that are here, unless it is made.
    pub(super) fn complete_step(&self, core: &mut Core<Self>, step: u64) {
        if core.ledger.version != step {
            return;
        }
        let taken =
            (0..core.ledger.given.len()).filter(|rank| core.ledger.given[*rank] == Some(step));
        let taken: Arc<[usize]> = taken.collect();
        self.finish_step(core, &taken);
        if self.led {
            for rank in &*taken {
                core.ledger.taken[*rank] = Some(Arc::clone(&taken));
            }
        }
    }

    /// Makes one update of the gradients of these workers.
    pub(super) fn finish_step(&self, core: &mut Core<Self>, ranks: &[usize]) {
        let inboxes = Arc::clone(&core.inboxes);
        let guards: Vec<_> = ranks
            .iter()
            .map(|rank| inboxes[*rank].read().unwrap_or_else(PoisonError::into_inner))
            .collect();
        let inboxes: Vec<&Inbox> = guards.iter().map(|guard| &**guard).collect();
        let nonfinite = inboxes.iter().any(|inbox| inbox.head.step_report.nonfinite);
        let step = core.ledger.version;
        core.undo = self.rolls_back.then(|| core.ledger.counters());
        // A step with NaN or infinity changes nothing, but counts: there is nothing in it to roll back.
        let gradients = if nonfinite { &[] } else { &inboxes[..] };
        core.ledger.part.apply_together(gradients, self.options.combine, step);
        core.ledger.count(step, 0);
        for inbox in inboxes {
            core.count_vote(&inbox.head.step_report);
        }
        for rank in ranks {
            core.ledger.given[*rank] = None;
        }
    }

    /// Asynchronous: whether an update that is here has to wait for a copy, or for older ones.
    pub(super) fn is_early(&self, core: &Core<Self>, rank: usize, batch: u64) -> bool {
        !core.may_update(batch)
            || (self.first && !core.ledger.pulls.may_push(rank, core.ledger.version))
    }

    /// Asynchronous: makes the update of a gradient whose time has come, or drops it; says whether it changed the weights. The
    /// new ones go to `copy` as well.
    pub(super) fn update(
        &self,
        core: &mut Core<Self>,
        (rank, batch): (usize, u64),
        push: &PushHead,
        copy: Option<&mut [f32]>,
        grant: &mut GrantHead,
    ) -> bool {
        let own = !self.first || core.ledger.tickets.complete(batch, rank);
        let used = own && !core.ledger.done.contains(batch) && !push.step_report.nonfinite;
        if used && self.first && self.led {
            core.ledger.pulls.lands(rank);
        } else {
            core.ledger.pulls.forget(rank);
        }
        if push.step_report.nonfinite {
            core.count_vote(&push.step_report);
        } else if used {
            let inboxes = Arc::clone(&core.inboxes);
            let inbox = inboxes[rank].read().unwrap_or_else(PoisonError::into_inner);
            let version = core.ledger.version;
            core.ledger.part.apply(&inbox, version, copy);
            grant.staleness = core.ledger.made_since(push.pulled);
            core.ledger.count(batch, grant.staleness);
            core.ledger.brought[rank] = Some(batch);
            core.count_vote(&push.step_report);
        } else {
            grant.dropped = true;
            core.drop_vote(&push.step_report);
        }
        if self.first {
            (grant.tickets, grant.count) = core.top_up(rank);
            grant.over = core.ledger.tickets.is_over();
        }
        used
    }
}

impl Core<DenseTable> {
    /// Synchronous: a worker's gradient is here. False if the step it belongs to is over.
    pub(super) fn give(&mut self, rank: usize, pulled: u64, step: u64) -> bool {
        let is_due = pulled == self.ledger.version && step == self.ledger.version;
        if is_due {
            self.ledger.given[rank] = Some(step);
        }
        is_due
    }

    /// Synchronous: how many gradients of a step are here.
    pub(super) fn given(&self, step: u64) -> usize {
        self.ledger.given.iter().filter(|given| **given == Some(step)).count()
    }

    /// Synchronous: whether a step that has all its gradients waits for a copy.
    pub(super) fn is_step_held(&self, step: u64) -> bool {
        self.ledger.version == step && !self.may_update(step)
    }
}

impl<'a> WorkerSession<'a, DenseTable> {
    pub(super) fn push(&mut self, link: &mut Link, head: Head) -> Result<(), Failure> {
        let push = self.receive_gradient(link, head)?;
        let begun = Instant::now();
        if push.kept {
            self.server.locked().ledger.given[self.rank] = Some(head.number);
            self.server.wake();
            return Ok(());
        }
        let mut grant = GrantHead::default();
        let core = if self.server.table.synchronous {
            self.join_step(&push, head.number, &mut grant)?
        } else {
            self.update_at_once(&push, head.number, &mut grant)?
        };
        self.conclude(link, &push, core, grant, begun)
    }

    /// The first server has taken a gradient that lies here: so does this one, together with the same others'.
    pub(super) fn apply(&mut self, link: &mut Link, head: Head) -> Result<(), Failure> {
        let begun = Instant::now();
        if head.length > message::MOST_SET {
            return Err(link.receiver.too_long(head.length, message::MOST_SET).into());
        }
        self.buffers.bytes.resize(usize::try_from(head.length).unwrap_or(0), 0);
        link.receiver.read(&mut self.buffers.bytes)?;
        let numbers = message::read_numbers(&self.buffers.bytes).unwrap_or_default();
        let (least, ranks) = numbers.split_first().unwrap_or((&0, &[]));
        let known =
            |rank: &u64| usize::try_from(*rank).ok().filter(|rank| *rank < self.inboxes.len());
        let ranks: Option<Vec<usize>> = ranks.iter().map(known).collect();
        let Some(ranks) = ranks.filter(|_| !numbers.is_empty()) else {
            return Err(protocol_error(link, "a damaged set of workers".to_owned()).into());
        };
        let inbox = self.inboxes[self.rank].read().unwrap_or_else(PoisonError::into_inner);
        let push = inbox.head;
        drop(inbox);
        let mut grant = GrantHead::default();
        let core = if self.server.table.synchronous {
            self.follow_step(head.number, &ranks, *least)?
        } else if self.server.locked().ledger.given[self.rank].take() == Some(head.number) {
            self.update_at_once(&push, head.number, &mut grant)?
        } else {
            return Err(protocol_error(
                link,
                "a decision about a gradient that is not here".to_owned(),
            )
            .into());
        };
        self.conclude(link, &push, core, grant, begun)
    }

    /// Answers a push.
    fn conclude(
        &mut self,
        link: &mut Link,
        push: &PushHead,
        mut core: MutexGuard<'a, Core<DenseTable>>,
        mut grant: GrantHead,
        begun: Instant,
    ) -> Result<(), Failure> {
        grant.held = nanoseconds(begun);
        grant.step_report = core.take_window(self.rank);
        if push.wants_weights {
            let held;
            (core, held) = self.copy_weights(core, Instant::now())?;
            grant.held += held;
            grant.weights = true;
            grant.mapped = self.buffers.windows.is_some();
        }
        grant.version = core.ledger.version;
        let taken = core.ledger.taken[self.rank].take();
        self.server.unlock(core);
        let taken = taken.as_deref().unwrap_or_default();
        grant.taken = u16::try_from(taken.len()).unwrap_or(u16::MAX);
        self.send_grant_of(link, &grant, taken)
    }

    /// Asynchronous: the gradient becomes an update now, or as soon as that makes no other too stale.
    fn update_at_once(
        &mut self,
        push: &PushHead,
        batch: u64,
        grant: &mut GrantHead,
    ) -> Result<MutexGuard<'a, Core<DenseTable>>, Failure> {
        let (server, rank) = (self.server, self.rank);
        let mut core = server.locked();
        core.ledger.resting[rank] = false;
        core.ledger.comes(rank, batch);
        let mut core = server.wait_while(core, |core| server.table.is_early(core, rank, batch))?;
        // Where no worker has to wait for weights, they are copied as they are made.
        let unbounded = server.table.options.max_staleness.is_none();
        let dense = matches!(push.form, Form::Dense | Form::Mapped);
        let windows = self.buffers.windows.as_mut();
        let windows = windows.filter(|_| unbounded && dense && push.wants_weights);
        let copies = windows.is_some();
        let copy = windows.map(|windows| windows.weights.write());
        if server.table.update(&mut core, (rank, batch), push, copy, grant) {
            self.buffers.copied = copies;
        }
        Ok(core)
    }

    /// Synchronous: the gradient waits for the others'; the last one to come makes the update.
    fn join_step(
        &mut self,
        push: &PushHead,
        step: u64,
        grant: &mut GrantHead,
    ) -> Result<MutexGuard<'a, Core<DenseTable>>, Failure> {
        let (server, rank) = (self.server, self.rank);
        let mut core = server.locked();
        if let Some(task) = core.lost {
            return Err(Interrupted::Lost(task).into());
        }
        if !core.give(rank, push.pulled, step) {
            grant.dropped = true;
            core.drop_vote(&push.step_report);
            grant.over = server.table.is_finished(&core);
            return Ok(core);
        }
        let needed = self.inboxes.len() - server.table.options.backup_workers;
        if core.given(step) == needed {
            core = server.wait_while(core, |core| core.is_step_held(step))?;
            server.table.complete_step(&mut core, step);
            server.notify(&core);
        } else {
            core = server.wait_while(core, |core| core.ledger.version == step)?;
        }
        grant.over = server.table.is_finished(&core);
        Ok(core)
    }

    /// Synchronous, where the first server decides: makes the update of the gradients that it took, as soon as
    /// they are here; and waits for its version.
    fn follow_step(
        &mut self,
        step: u64,
        ranks: &[usize],
        least: u64,
    ) -> Result<MutexGuard<'a, Core<DenseTable>>, Failure> {
        let server = self.server;
        let missing = |core: &Core<DenseTable>| {
            !core.may_update(step)
                || ranks.iter().any(|rank| core.ledger.given[*rank] != Some(step))
        };
        let mut core = server
            .wait_while(server.locked(), |core| core.ledger.version == step && missing(core))?;
        if core.ledger.version == step {
            server.table.finish_step(&mut core, ranks);
            server.notify(&core);
        }
        Ok(server.wait_while(core, |core| core.ledger.version < least)?)
    }
}
