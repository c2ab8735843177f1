//! One worker's thread of a server: listens, answers, and notices when the worker is gone.

mod copies;
mod steps;

use super::{
    Interrupted, Server,
    core::{Core, Presence},
    message::{self, Form, GrantHead, PushHead},
    part::Inbox,
};
use crate::bytes;
use paceline_models::kernels::Buffer;
use paceline_wire::{Channel, Head, Link, LinkError, TaskId, Wait, Window};
use std::{
    sync::{Arc, MutexGuard, PoisonError, RwLock, atomic::Ordering},
    time::{Duration, Instant},
};

pub(super) struct Desk<'a> {
    server: &'a Server,
    rank: usize,
    task: TaskId,
    inboxes: &'a [Arc<RwLock<Inbox>>],
    /// A copy of the weights, so that nothing is locked while they are sent.
    copy: Buffer,
    /// Memory in common with the worker: offered to it, and in use.
    offered: Option<Windows>,
    windows: Option<Windows>,
    /// Whether the window has the present weights.
    copied: bool,
    bytes: Vec<u8>,
    length: usize,
}

/// Memory that the worker maps too.
struct Windows {
    /// The worker writes it.
    gradient: Arc<Window>,
    /// The server writes it.
    weights: Window,
}

/// How a conversation ended.
enum Ending {
    Left,
    Closing,
    Lost,
}

/// Why one did.
enum Failure {
    Link(LinkError),
    Interrupted(Interrupted),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<Interrupted> for Failure {
    fn from(reason: Interrupted) -> Self {
        Self::Interrupted(reason)
    }
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        server: &'a Server,
        rank: usize,
        task: TaskId,
        inboxes: &'a [Arc<RwLock<Inbox>>],
        length: usize,
    ) -> Self {
        Self {
            server,
            rank,
            task,
            inboxes,
            copy: Buffer::default(),
            offered: None,
            windows: None,
            copied: false,
            bytes: Vec::new(),
            length,
        }
    }

    /// Serves the worker, and whoever takes its place, until the server closes.
    pub(super) fn run(mut self) {
        self.serve();
        // Nobody listens to this worker any more, whatever the reason.
        self.server.desks.fetch_sub(1, Ordering::AcqRel);
    }

    fn serve(&mut self) {
        let server = self.server;
        while !server.closing.load(Ordering::Acquire) {
            let wait = Wait::within(Duration::from_millis(500), "waiting for it to connect");
            let wait = wait.unless(&server.closing);
            let link = match server.seat.accept(self.task, Channel::ParameterServer, &wait) {
                Ok(link) => link,
                Err(_) if server.seat.expects(self.task) => {
                    std::thread::sleep(Duration::from_millis(2)); // an error may come at once
                    continue;
                }
                Err(_) => {
                    // Lost before it ever came, or after; the seat knows.
                    self.gone();
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
            };
            self.note(Presence::Here);
            match self.converse(link) {
                Ending::Left => {
                    self.note(Presence::Left);
                    return;
                }
                Ending::Closing => return,
                Ending::Lost => self.gone(),
            }
        }
    }

    fn note(&self, presence: Presence) {
        let mut core = self.server.locked();
        if core.presence[self.rank] != presence {
            core.note(self.rank, presence);
        }
        drop(core);
        self.server.wake();
    }

    fn gone(&self) {
        self.note(Presence::Gone);
        if self.server.synchronous {
            let mut core = self.server.locked();
            core.lost.get_or_insert(self.task);
            drop(core);
            self.server.wake();
        }
    }

    fn converse(&mut self, mut link: Link) -> Ending {
        (self.offered, self.windows, self.copied) = (None, None, false);
        if self.server.follows {
            link.receiver.follow();
        }
        loop {
            let failure = match self.answer(&mut link) {
                Ok(true) => continue,
                Ok(false) => return Ending::Left,
                Err(failure) => failure,
            };
            let refuse = |link: &mut Link, name: &str| {
                // Whoever cannot hear it any more learns it from its own session.
                let _ = link.sender.send(message::REFUSED, 0, &[name.as_bytes()]);
            };
            match failure {
                Failure::Interrupted(Interrupted::Lost(task)) => {
                    refuse(&mut link, &task.to_string());
                    return Ending::Closing;
                }
                Failure::Interrupted(Interrupted::Closing | Interrupted::Late) => {
                    let lost = self.server.seat.lost().last().map(ToString::to_string);
                    refuse(&mut link, &lost.unwrap_or_default());
                    return Ending::Closing;
                }
                Failure::Link(LinkError::Cancelled { .. }) => {
                    let lost =
                        self.server.locked().lost.or(self.server.seat.lost().last().copied());
                    refuse(&mut link, &lost.map(|task| task.to_string()).unwrap_or_default());
                    return Ending::Closing;
                }
                Failure::Link(_) => return Ending::Lost,
            }
        }
    }

    /// Receives and answers one message; `false` when the worker has left.
    fn answer(&mut self, link: &mut Link) -> Result<bool, Failure> {
        let wait = Wait::within(self.server.options.patience, "waiting for its next request");
        let wait = wait.unless(&self.server.closing);
        let head = link.receiver.receive(&wait)?;
        match head.kind {
            message::ASK => self.ask(link)?,
            message::FETCH => self.fetch(link, head.number)?,
            message::PUSH => self.push(link, head)?,
            message::APPLY => self.apply(link, head)?,
            message::SUM => self.sum(link, head)?,
            message::HOLD => self.hold(link)?,
            message::CUT => self.cut(link, head)?,
            message::TALLY => {
                let counts = self.server.locked().tally.write();
                link.sender.send(message::COUNTS, 0, &[&counts])?;
            }
            message::STOP => {
                self.server.locked().stop = true;
                self.server.wake();
            }
            message::SETTLE => self.settle(head.number),
            message::LANDED => {
                self.server.locked().pulls.landed(self.rank);
                self.server.wake();
            }
            message::MAP => self.map(link)?,
            message::USE => self.windows = self.offered.take(),
            message::LEAVE => return Ok(false),
            other => return Err(self.odd(link, format!("a message of kind {other}")).into()),
        }
        Ok(true)
    }

    fn odd(&self, link: &Link, found: String) -> LinkError {
        LinkError::Protocol {
            task: self.task,
            address: link.address.clone(),
            found,
            expected: "a request that fits this server's weights".to_owned(),
        }
    }

    /// Offers memory in common, if the worker is on this machine and there is some.
    fn map(&mut self, link: &mut Link) -> Result<(), Failure> {
        let mut offer = (Vec::new(), Vec::new());
        if link.shares_memory()
            && let Ok((gradient, first)) = Window::create(self.length)
            && let Ok((weights, second)) = Window::create(self.length)
        {
            self.offered = Some(Windows { gradient: Arc::new(gradient), weights });
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
        if server.first && !server.synchronous {
            loop {
                (head.tickets, head.count) = core.top_up(self.rank);
                head.over = core.tickets.is_over();
                if head.count > 0 || head.over {
                    break;
                }
                if core.waiting > 0 {
                    server.changed.notify_all(); // what was just given back may be all that is left
                }
                let (outstanding, stop) = (core.tickets.outstanding().len(), core.stop);
                core = server.wait_while(core, server.options.patience, |core| {
                    core.tickets.outstanding().len() == outstanding
                        && core.stop == stop
                        && !core.tickets.has_returned()
                        && !core.tickets.is_over()
                })?;
            }
            if head.over && core.waiting > 0 {
                server.changed.notify_all();
            }
        } else if server.synchronous {
            head.over = server.is_finished(&core);
        }
        head.version = core.version;
        head.vote = core.take_window(self.rank);
        drop(core);
        head.held = elapsed(begun);
        link.sender.send(message::GRANT, head.version, &[&head.write()])?;
        Ok(())
    }

    fn fetch(&mut self, link: &mut Link, least: u64) -> Result<(), Failure> {
        let begun = Instant::now();
        let server = self.server;
        let rank = self.rank;
        let mut core = server.locked();
        core.resting[rank] = least > 0;
        if core.waiting > 0 {
            server.changed.notify_all();
        }
        // Not in step, an update that its worker's death cut short may be missing here for good.
        let core = server.wait_while(core, server.options.patience, |core| {
            core.version < least && (server.synchronous || core.may_grow(rank))
        })?;
        let (core, held) = self.copy_weights(core, begun)?;
        let head = GrantHead {
            version: core.version,
            held,
            weights: true,
            mapped: self.windows.is_some(),
            ..GrantHead::default()
        };
        drop(core);
        self.send_grant(link, &head)
    }

    fn send_grant(&self, link: &mut Link, grant: &GrantHead) -> Result<(), Failure> {
        self.send_grant_of(link, grant, &[])
    }

    /// The same with the numbers of those whose gradients are in the update.
    fn send_grant_of(
        &self,
        link: &mut Link,
        grant: &GrantHead,
        taken: &[usize],
    ) -> Result<(), Failure> {
        let follow = grant.weights && !grant.mapped;
        let weights = if follow { bytes::of(&self.copy) } else { &[] };
        let taken = message::write_numbers(taken.iter().map(|rank| *rank as u64));
        link.sender.send(message::GRANT, grant.version, &[&grant.write(), &taken, weights])?;
        Ok(())
    }

    /// Copies the weights for the worker, as soon as it may have them; says how long it waited.
    fn copy_weights<'g>(
        &mut self,
        mut core: MutexGuard<'g, Core>,
        begun: Instant,
    ) -> Result<(MutexGuard<'g, Core>, u64), Failure>
    where
        'a: 'g,
    {
        let (rank, server) = (self.rank, self.server);
        let works = !server.first || core.tickets.held(rank) > 0;
        let mut core = if works {
            core.pulls.ask(rank);
            server.wait_while(core, server.options.patience, |core| !core.pulls.may_pull(rank))?
        } else {
            core
        };
        let held = elapsed(begun);
        if works {
            let version = core.version;
            core.pulls.pulled(rank, version);
        }
        if std::mem::take(&mut self.copied) {
            // The update has done it already.
        } else if let Some(windows) = &mut self.windows {
            windows.weights.write().copy_from_slice(&core.part.params);
        } else {
            self.copy.reserve(self.length);
            self.copy.copy_from_slice(&core.part.params);
        }
        Ok((core, held))
    }

    /// Reads a gradient into this worker's inbox.
    fn receive_gradient(&mut self, link: &mut Link, head: Head) -> Result<PushHead, Failure> {
        let mut fixed = [0; PushHead::BYTES];
        if head.length < PushHead::BYTES as u64 {
            return Err(self.odd(link, format!("a push of {} bytes", head.length)).into());
        }
        link.receiver.read(&mut fixed)?;
        let push = PushHead::read(&fixed);
        let body = match push.form {
            Form::None | Form::Mapped => 0,
            Form::Dense => 4 * self.length as u64,
        };
        if head.length != body + PushHead::BYTES as u64 {
            return Err(self.odd(link, format!("a push of {} bytes", head.length)).into());
        }
        let inbox = Arc::clone(&self.inboxes[self.rank]);
        let mut inbox = inbox.write().unwrap_or_else(PoisonError::into_inner);
        inbox.head = push;
        match push.form {
            Form::None => {}
            Form::Mapped => match &self.windows {
                Some(windows) => inbox.window = Some(Arc::clone(&windows.gradient)),
                None => {
                    return Err(self.odd(link, "a gradient in no window".to_owned()).into());
                }
            },
            Form::Dense => {
                inbox.dense.reserve(self.length);
                link.receiver.read(bytes::of_mut(&mut inbox.dense))?;
            }
        }
        Ok(push)
    }
}

fn elapsed(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
