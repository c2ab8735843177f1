//! One worker's thread of a server: listens, has the table answer, and notices when the worker is gone.

use super::{Interrupted, ParameterServer, Presence, Table};
use paceline_wire::{Channel, Link, LinkError, TaskId, Wait};
use std::{
    sync::{Arc, RwLock, atomic::Ordering},
    time::{Duration, Instant},
};

/// How long a connection is waited for before the thread looks around.
const MOMENT: Duration = Duration::from_millis(500);
/// How long it rests after a failure to get one, which may come at once; longer while the worker is known to be gone.
const REST: Duration = Duration::from_millis(2);
const LONG_REST: Duration = Duration::from_millis(20);

/// The conversation of a server with one worker, and with the process that takes its place.
pub(crate) struct WorkerSession<'a, T: Table> {
    pub(crate) server: &'a ParameterServer<T>,
    pub(crate) rank: usize,
    pub(crate) task: TaskId,
    /// Of all workers.
    pub(crate) inboxes: Arc<[RwLock<T::Inbox>]>,
    pub(crate) buffers: T::Buffers,
}

/// What follows an answer.
pub(crate) enum Next {
    /// The next request.
    Request,
    /// Nothing: the worker has left.
    Nothing,
}

/// Why a conversation cannot go on.
pub(crate) enum Failure {
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

/// How a conversation ended.
enum Ending {
    Left,
    Closing,
    Lost,
}

impl<T: Table> ParameterServer<T> {
    /// The next link of a task; nothing once the server closes. While the task is known to be lost, before it ever
    /// came or after, `gone` is called now and then.
    pub(crate) fn next_link(
        &self,
        task: TaskId,
        channel: Channel,
        gone: impl Fn(),
    ) -> Option<Link> {
        while !self.closing.load(Ordering::Acquire) {
            let wait = Wait::within(MOMENT, "waiting for it to connect").unless(&self.closing);
            if let Ok(link) = self.membership.accept(task, channel, &wait) {
                return Some(link);
            }
            let is_gone = !self.membership.expects(task);
            if is_gone {
                gone();
            }
            std::thread::sleep(if is_gone { LONG_REST } else { REST });
        }
        None
    }
}

impl<'a, T: Table> WorkerSession<'a, T> {
    pub(super) fn new(
        server: &'a ParameterServer<T>,
        rank: usize,
        task: TaskId,
        inboxes: Arc<[RwLock<T::Inbox>]>,
    ) -> Self {
        Self { server, rank, task, inboxes, buffers: T::Buffers::default() }
    }

    /// Serves the worker, and the one that takes its place, until it has left or the server closes.
    pub(super) fn run(mut self) {
        self.serve();
        // This worker is not listened to any more, whatever the reason.
        self.server.session_ended();
    }

    fn serve(&mut self) {
        let server = self.server;
        let (task, channel) = (self.task, Channel::ParameterServer);
        loop {
            let gone = || self.note(Presence::Gone(Instant::now()));
            let Some(mut link) = server.next_link(task, channel, gone) else { return };
            self.note(Presence::Here);
            match self.converse(&mut link) {
                Ending::Left => return self.note(Presence::Left),
                Ending::Closing => return,
                Ending::Lost => self.note(Presence::Gone(Instant::now())),
            }
        }
    }

    /// Notes where the worker is.
    pub(crate) fn note(&self, presence: Presence) {
        self.server.note(self.rank, presence);
    }

    /// Answers until the worker leaves or hangs up, or the server closes.
    fn converse(&mut self, link: &mut Link) -> Ending {
        T::connected(self, link);
        let failure = loop {
            match self.answer(link) {
                Ok(Next::Request) => {}
                Ok(Next::Nothing) => return Ending::Left,
                Err(failure) => break failure,
            }
        };
        let missing = match failure {
            Failure::Interrupted(Interrupted::Lost(task)) => Some(task),
            Failure::Interrupted(_) | Failure::Link(LinkError::Cancelled { .. }) => {
                self.server.missing()
            }
            Failure::Link(_) => return Ending::Lost,
        };
        let name = missing.map(|task| task.to_string()).unwrap_or_default();
        // A worker that cannot hear it any more learns it from its own session.
        let _ = link.sender.send(T::REFUSED, 0, &[name.as_bytes()]);
        Ending::Closing
    }

    fn answer(&mut self, link: &mut Link) -> Result<Next, Failure> {
        let server = self.server;
        let wait = Wait::within(server.table.patience(), "waiting for its next request");
        let head = link.receiver.receive(&wait.unless(&server.closing))?;
        T::answer(self, link, head)
    }
}
