//! How a server of dense weights answers its workers.

use super::{
    DenseTable,
    message::{self, Form, GrantHead, PushHead},
};
use crate::{
    bytes,
    protocol::{nanoseconds, protocol_error},
    server::{Core, Failure, Next, WorkerSession},
};
use paceline_models::kernels::Buffer;
use paceline_wire::{Head, Link, Window};
use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Instant,
};

/// What a session keeps from one message to the next.
#[derive(Default)]
pub(crate) struct Buffers {
    /// A copy of the weights, so that nothing is locked while they are sent.
    copy: Buffer,
    /// Memory in common with the worker: offered to it, and in use.
    offered: Option<Windows>,
    pub(super) windows: Option<Windows>,
    /// Whether the window has the present weights.
    pub(super) copied: bool,
    pub(super) bytes: Vec<u8>,
}

/// Memory that the worker maps too.
pub(super) struct Windows {
    /// The worker writes it.
    gradient: Arc<Window>,
    /// The server writes it.
    pub(super) weights: Window,
}

impl<'a> WorkerSession<'a, DenseTable> {
    /// A worker has come: nothing of the one before it holds.
    pub(super) fn connected(&mut self, link: &mut Link) {
        let Buffers { offered, windows, copied, .. } = &mut self.buffers;
        (*offered, *windows, *copied) = (None, None, false);
        if self.server.table.follows {
            link.receiver.follow();
        }
    }

    pub(super) fn answer_to(&mut self, link: &mut Link, head: Head) -> Result<Next, Failure> {
        match head.kind {
            message::ASK => self.ask(link)?,
            message::FETCH => self.fetch(link, head.number)?,
            message::PUSH => self.push(link, head)?,
            message::APPLY => self.apply(link, head)?,
            message::SUM => self.sum(link, head)?,
            message::HOLD => self.hold(link)?,
            message::CUT => self.cut(link, head)?,
            message::TALLY => {
                let counts = self.server.locked().ledger.tally.write();
                link.sender.send(message::COUNTS, 0, &[&counts])?;
            }
            message::STOP => {
                self.server.locked().stop = true;
                self.server.wake();
            }
            message::SETTLE => self.server.settle(head.number),
            message::LANDED => {
                self.server.locked().ledger.pulls.landed(self.rank);
                self.server.wake();
            }
            message::MAP => self.map(link)?,
            message::USE => self.buffers.windows = self.buffers.offered.take(),
            message::LEAVE => return Ok(Next::Nothing),
            other => return Err(protocol_error(link, format!("a message of kind {other}")).into()),
        }
        Ok(Next::Request)
    }

    /// Offers memory in common, if the worker is on this machine and there is some.
    fn map(&mut self, link: &mut Link) -> Result<(), Failure> {
        let mut offer = (Vec::new(), Vec::new());
        if link.shares_memory()
            && let Ok((gradient, first)) = Window::create(self.server.table.length)
            && let Ok((weights, second)) = Window::create(self.server.table.length)
        {
            self.buffers.offered = Some(Windows { gradient: Arc::new(gradient), weights });
            offer = (first, second);
        }
        link.sender.send(message::WINDOWS, offer.0.len() as u64, &[&offer.0, &offer.1])?;
        Ok(())
    }

    fn ask(&mut self, link: &mut Link) -> Result<(), Failure> {
        let begun = Instant::now();
        let server = self.server;
        let mut core = server.locked();
        let mut head = GrantHead::default();
        if server.table.first && !server.table.synchronous {
            loop {
                (head.tickets, head.count) = core.top_up(self.rank);
                head.over = core.ledger.tickets.is_over();
                if head.count > 0 || head.over {
                    break;
                }
                server.notify(&core); // what was just given back may be all that is left
                let (outstanding, stop) = (core.ledger.tickets.outstanding().len(), core.stop);
                core = server.wait_while(core, |core| {
                    core.ledger.tickets.outstanding().len() == outstanding
                        && core.stop == stop
                        && !core.ledger.tickets.has_returned()
                        && !core.ledger.tickets.is_over()
                })?;
            }
            if head.over {
                server.notify(&core);
            }
        } else if server.table.synchronous {
            head.over = server.table.is_finished(&core);
        }
        head.version = core.ledger.version;
        head.step_report = core.take_window(self.rank);
        drop(core);
        head.held = nanoseconds(begun);
        link.sender.send(message::GRANT, head.version, &[&head.write()])?;
        Ok(())
    }

    fn fetch(&mut self, link: &mut Link, least: u64) -> Result<(), Failure> {
        let begun = Instant::now();
        let server = self.server;
        let rank = self.rank;
        let mut core = server.locked();
        core.ledger.resting[rank] = least > 0;
        server.notify(&core);
        // Asynchronous, an update that its worker's death cut short may be missing here for good.
        let core = server.wait_while(core, |core| {
            core.ledger.version < least && (server.table.synchronous || core.may_grow(rank))
        })?;
        let (core, held) = self.copy_weights(core, begun)?;
        let head = GrantHead {
            version: core.ledger.version,
            held,
            weights: true,
            mapped: self.buffers.windows.is_some(),
            ..GrantHead::default()
        };
        drop(core);
        self.send_grant(link, &head)
    }

    fn send_grant(&self, link: &mut Link, grant: &GrantHead) -> Result<(), Failure> {
        self.send_grant_of(link, grant, &[])
    }

    /// The same with the numbers of those whose gradients are in the update.
    pub(super) fn send_grant_of(
        &self,
        link: &mut Link,
        grant: &GrantHead,
        taken: &[usize],
    ) -> Result<(), Failure> {
        let follow = grant.weights && !grant.mapped;
        let weights = if follow { bytes::of(&self.buffers.copy) } else { &[] };
        let taken = message::write_numbers(taken.iter().map(|rank| *rank as u64));
        link.sender.send(message::GRANT, grant.version, &[&grant.write(), &taken, weights])?;
        Ok(())
    }

    /// Copies the weights for the worker, as soon as it may have them; says how long it waited.
    pub(super) fn copy_weights<'g>(
        &mut self,
        mut core: MutexGuard<'g, Core<DenseTable>>,
        begun: Instant,
    ) -> Result<(MutexGuard<'g, Core<DenseTable>>, u64), Failure>
    where
        'a: 'g,
    {
        let (rank, server) = (self.rank, self.server);
        let works = !server.table.first || core.ledger.tickets.held(rank) > 0;
        let mut core = if works {
            core.ledger.pulls.ask(rank);
            server.wait_while(core, |core| !core.ledger.pulls.may_pull(rank))?
        } else {
            core
        };
        let held = nanoseconds(begun);
        if works {
            let version = core.ledger.version;
            core.ledger.pulls.pulled(rank, version);
        }
        if std::mem::take(&mut self.buffers.copied) {
            // The update has done it already.
        } else if let Some(windows) = &mut self.buffers.windows {
            windows.weights.write().copy_from_slice(&core.ledger.part.params);
        } else {
            self.buffers.copy.reserve(self.server.table.length);
            self.buffers.copy.copy_from_slice(&core.ledger.part.params);
        }
        Ok((core, held))
    }

    /// Reads a gradient into this worker's inbox.
    pub(super) fn receive_gradient(
        &mut self,
        link: &mut Link,
        head: Head,
    ) -> Result<PushHead, Failure> {
        let mut fixed = [0; PushHead::BYTES];
        if head.length < PushHead::BYTES as u64 {
            return Err(protocol_error(link, format!("a push of {} bytes", head.length)).into());
        }
        link.receiver.read(&mut fixed)?;
        let push = PushHead::read(&fixed);
        let body = match push.form {
            Form::None | Form::Mapped => 0,
            Form::Dense => 4 * self.server.table.length as u64,
        };
        if head.length != body + PushHead::BYTES as u64 {
            return Err(protocol_error(link, format!("a push of {} bytes", head.length)).into());
        }
        let inboxes = Arc::clone(&self.inboxes);
        let mut inbox = inboxes[self.rank].write().unwrap_or_else(PoisonError::into_inner);
        inbox.head = push;
        match push.form {
            Form::None => {}
            Form::Mapped => match &self.buffers.windows {
                Some(windows) => inbox.window = Some(Arc::clone(&windows.gradient)),
                None => {
                    return Err(protocol_error(link, "a gradient in no window".to_owned()).into());
                }
            },
            Form::Dense => {
                inbox.dense.reserve(self.server.table.length);
                link.receiver.read(bytes::of_mut(&mut inbox.dense))?;
            }
        }
        Ok(push)
    }
}
