//! How gradients become updates: at once, or in step with the other workers'.

use super::{Desk, Failure, elapsed};
use crate::server::{
    Interrupted,
    core::Core,
    message::{self, Form, GrantHead, PushHead},
    part::Inbox,
};
use paceline_wire::{Head, Link};
use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Instant,
};

impl<'a> Desk<'a> {
    pub(super) fn push(&mut self, link: &mut Link, head: Head) -> Result<(), Failure> {
        let push = self.receive_gradient(link, head)?;
        let begun = Instant::now();
        if push.kept {
            self.server.locked().given[self.rank] = Some(head.number);
            self.server.wake();
            return Ok(());
        }
        let mut grant = GrantHead::default();
        let core = if self.server.synchronous {
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
        self.bytes.resize(usize::try_from(head.length).unwrap_or(0), 0);
        link.receiver.read(&mut self.bytes)?;
        let numbers = message::read_numbers(&self.bytes).unwrap_or_default();
        let (least, ranks) = numbers.split_first().unwrap_or((&0, &[]));
        let known =
            |rank: &u64| usize::try_from(*rank).ok().filter(|rank| *rank < self.inboxes.len());
        let ranks: Option<Vec<usize>> = ranks.iter().map(known).collect();
        let Some(ranks) = ranks.filter(|_| !numbers.is_empty()) else {
            return Err(self.odd(link, "a set of workers that is none".to_owned()).into());
        };
        let inbox = self.inboxes[self.rank].read().unwrap_or_else(PoisonError::into_inner);
        let push = inbox.head;
        drop(inbox);
        let mut grant = GrantHead::default();
        let core = if self.server.synchronous {
            self.follow_step(head.number, &ranks, *least)?
        } else if self.server.locked().given[self.rank].take() == Some(head.number) {
            self.update_at_once(&push, head.number, &mut grant)?
        } else {
            return Err(self.odd(link, "a word on a gradient that is none".to_owned()).into());
        };
        self.conclude(link, &push, core, grant, begun)
    }

    /// Answers a push.
    fn conclude(
        &mut self,
        link: &mut Link,
        push: &PushHead,
        mut core: MutexGuard<'a, Core>,
        mut grant: GrantHead,
        begun: Instant,
    ) -> Result<(), Failure> {
        grant.held = elapsed(begun);
        grant.vote = core.take_window(self.rank);
        if push.wants_weights {
            let held;
            (core, held) = self.copy_weights(core, Instant::now())?;
            grant.held += held;
            grant.weights = true;
            grant.mapped = self.windows.is_some();
        }
        grant.version = core.version;
        let taken = core.taken[self.rank].take();
        let waiting = core.waiting > 0;
        drop(core);
        if waiting {
            self.server.changed.notify_all();
        }
        let taken = taken.as_deref().unwrap_or_default();
        grant.taken = u16::try_from(taken.len()).unwrap_or(u16::MAX);
        self.send_grant_of(link, &grant, taken)
    }

    /// Not in step: the gradient becomes an update now, or as soon as nobody else suffers.
    fn update_at_once(
        &mut self,
        push: &PushHead,
        batch: u64,
        grant: &mut GrantHead,
    ) -> Result<MutexGuard<'a, Core>, Failure> {
        let (server, rank) = (self.server, self.rank);
        let mut core = server.locked();
        core.resting[rank] = false;
        core.comes(rank, batch);
        let mut core = server.wait_while(core, server.options.patience, |core| {
            !core.may_update(batch) || (server.first && !core.pulls.may_push(rank, core.version))
        })?;
        let own = !server.first || core.tickets.complete(batch, rank);
        let used = own && !core.done.contains(batch) && !push.vote.poisoned;
        if used && server.first && server.led {
            core.pulls.lands(rank);
        } else {
            core.pulls.forget(rank);
        }
        if push.vote.poisoned {
            core.count_vote(&push.vote);
        } else if used {
            let inbox = Arc::clone(&self.inboxes[rank]);
            let inbox = inbox.read().unwrap_or_else(PoisonError::into_inner);
            let version = core.version;
            // Where nobody has to wait for weights, they are copied as they are made.
            let unbounded = server.options.max_staleness.is_none();
            let dense = matches!(push.form, Form::Dense | Form::Mapped);
            let windows = self.windows.as_mut();
            let windows = windows.filter(|_| unbounded && dense && push.wants_weights);
            self.copied = windows.is_some();
            core.part.apply(&inbox, version, windows.map(|windows| windows.weights.write()));
            grant.staleness = version.saturating_sub(push.pulled);
            core.count(batch, grant.staleness);
            core.brought[rank] = Some(batch);
            core.count_vote(&push.vote);
        } else {
            grant.dropped = true;
            core.drop_vote(&push.vote);
        }
        if server.first {
            (grant.tickets, grant.count) = core.top_up(rank);
            grant.over = core.tickets.is_over();
        }
        Ok(core)
    }

    /// In step: the gradient waits for the others'; the last one to come makes the update.
    fn join_step(
        &mut self,
        push: &PushHead,
        step: u64,
        grant: &mut GrantHead,
    ) -> Result<MutexGuard<'a, Core>, Failure> {
        let (server, rank) = (self.server, self.rank);
        let mut core = server.locked();
        if let Some(task) = core.lost {
            return Err(Interrupted::Lost(task).into());
        }
        if push.pulled != core.version || step != core.version {
            grant.dropped = true;
            core.drop_vote(&push.vote);
            grant.over = server.is_finished(&core);
            return Ok(core);
        }
        core.given[rank] = Some(step);
        let needed = self.inboxes.len() - server.options.backup_workers;
        let here = core.given.iter().filter(|given| **given == Some(step)).count();
        if here == needed {
            core = server.wait_while(core, server.options.patience, |core| {
                core.version == step && !core.may_update(step)
            })?;
            if core.version == step {
                let taken = (0..core.given.len()).filter(|rank| core.given[*rank] == Some(step));
                let taken: Arc<[usize]> = taken.collect();
                self.finish_step(&mut core, &taken);
                if server.led {
                    for rank in &*taken {
                        core.taken[*rank] = Some(Arc::clone(&taken));
                    }
                }
                server.changed.notify_all();
            }
        } else {
            core = server.wait_while(core, server.options.patience, |core| core.version == step)?;
        }
        grant.over = server.is_finished(&core);
        Ok(core)
    }

    /// In step, where the first server decides: makes the update of the gradients that it took, as soon as
    /// they are here; and waits for its version.
    fn follow_step(
        &mut self,
        step: u64,
        ranks: &[usize],
        least: u64,
    ) -> Result<MutexGuard<'a, Core>, Failure> {
        let server = self.server;
        let missing = |core: &Core| {
            !core.may_update(step) || ranks.iter().any(|rank| core.given[*rank] != Some(step))
        };
        let patience = server.options.patience;
        let mut core = server
            .wait_while(server.locked(), patience, |core| core.version == step && missing(core))?;
        if core.version == step {
            self.finish_step(&mut core, ranks);
            server.changed.notify_all();
        }
        Ok(server.wait_while(core, patience, |core| core.version < least)?)
    }

    /// Makes one update of the gradients of these workers.
    fn finish_step(&self, core: &mut Core, ranks: &[usize]) {
        let guards: Vec<_> = ranks
            .iter()
            .map(|rank| self.inboxes[*rank].read().unwrap_or_else(PoisonError::into_inner))
            .collect();
        let inboxes: Vec<&Inbox> = guards.iter().map(|guard| &**guard).collect();
        let poisoned = inboxes.iter().any(|inbox| inbox.head.vote.poisoned);
        let step = core.version;
        core.begin_step();
        // One that is poisoned is none, but counts: there is nothing in it to take back.
        let gradients = if poisoned { &[] } else { &inboxes[..] };
        core.part.apply_together(gradients, self.server.options.combine, step);
        core.count(step, 0);
        for inbox in inboxes {
            core.count_vote(&inbox.head.vote);
        }
        for rank in ranks {
            core.given[*rank] = None;
        }
    }

    /// After a loss: takes a step back that not all servers have made. Those that have not never had
    /// all its gradients, so nobody was told that it is over.
    pub(super) fn settle(&mut self, version: u64) {
        let mut core = self.server.locked();
        let first = std::mem::take(&mut core.unsettled);
        if self.server.synchronous && first && core.version == version + 1 {
            core.take_back();
        }
        drop(core);
        self.server.wake();
    }
}
