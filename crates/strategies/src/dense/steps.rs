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
        let mut core = server.wait_while(core, |core| {
            !core.may_update(batch)
                || (server.table.first && !core.ledger.pulls.may_push(rank, core.ledger.version))
        })?;
        let own = !server.table.first || core.ledger.tickets.complete(batch, rank);
        let used = own && !core.ledger.done.contains(batch) && !push.step_report.nonfinite;
        if used && server.table.first && server.table.led {
            core.ledger.pulls.lands(rank);
        } else {
            core.ledger.pulls.forget(rank);
        }
        if push.step_report.nonfinite {
            core.count_vote(&push.step_report);
        } else if used {
            let inboxes = Arc::clone(&self.inboxes);
            let inbox = inboxes[rank].read().unwrap_or_else(PoisonError::into_inner);
            let version = core.ledger.version;
            // Where no worker has to wait for weights, they are copied as they are made.
            let unbounded = server.table.options.max_staleness.is_none();
            let dense = matches!(push.form, Form::Dense | Form::Mapped);
            let windows = self.buffers.windows.as_mut();
            let windows = windows.filter(|_| unbounded && dense && push.wants_weights);
            self.buffers.copied = windows.is_some();
            core.ledger.part.apply(&inbox, version, windows.map(|windows| windows.weights.write()));
            grant.staleness = version.saturating_sub(push.pulled);
            core.ledger.count(batch, grant.staleness);
            core.ledger.brought[rank] = Some(batch);
            core.count_vote(&push.step_report);
        } else {
            grant.dropped = true;
            core.drop_vote(&push.step_report);
        }
        if server.table.first {
            (grant.tickets, grant.count) = core.top_up(rank);
            grant.over = core.ledger.tickets.is_over();
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
        if push.pulled != core.ledger.version || step != core.ledger.version {
            grant.dropped = true;
            core.drop_vote(&push.step_report);
            grant.over = server.table.is_finished(&core);
            return Ok(core);
        }
        core.ledger.given[rank] = Some(step);
        let needed = self.inboxes.len() - server.table.options.backup_workers;
        let here = core.ledger.given.iter().filter(|given| **given == Some(step)).count();
        if here == needed {
            core = server
                .wait_while(core, |core| core.ledger.version == step && !core.may_update(step))?;
            if core.ledger.version == step {
                let taken = (0..core.ledger.given.len())
                    .filter(|rank| core.ledger.given[*rank] == Some(step));
                let taken: Arc<[usize]> = taken.collect();
                self.finish_step(&mut core, &taken);
                if server.table.led {
                    for rank in &*taken {
                        core.ledger.taken[*rank] = Some(Arc::clone(&taken));
                    }
                }
                server.notify(&core);
            }
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
            self.finish_step(&mut core, ranks);
            server.notify(&core);
        }
        Ok(server.wait_while(core, |core| core.ledger.version < least)?)
    }

    /// Makes one update of the gradients of these workers.
    fn finish_step(&self, core: &mut Core<DenseTable>, ranks: &[usize]) {
        let guards: Vec<_> = ranks
            .iter()
            .map(|rank| self.inboxes[*rank].read().unwrap_or_else(PoisonError::into_inner))
            .collect();
        let inboxes: Vec<&Inbox> = guards.iter().map(|guard| &**guard).collect();
        let nonfinite = inboxes.iter().any(|inbox| inbox.head.step_report.nonfinite);
        let step = core.ledger.version;
        core.undo = self.server.table.rolls_back.then(|| core.ledger.counters());
        // A step with NaN or infinity changes nothing, but counts: there is nothing in it to roll back.
        let gradients = if nonfinite { &[] } else { &inboxes[..] };
        core.ledger.part.apply_together(gradients, self.server.table.options.combine, step);
        core.ledger.count(step, 0);
        for inbox in inboxes {
            core.count_vote(&inbox.head.step_report);
        }
        for rank in ranks {
            core.ledger.given[*rank] = None;
        }
    }
}
