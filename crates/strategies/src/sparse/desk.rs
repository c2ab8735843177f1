//! One worker's thread of a server, and the chief's.

use super::{
    indices,
    message::{self, Form, StepHead, ValuesHead},
    server::{Core, Inbox, Interrupted, Presence, Score, SparseServer},
    slots,
};
use crate::bytes;
use paceline_wire::{Channel, Head, Link, LinkError, TaskId, Wait};
use std::{
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

/// How long a connection is waited for before the thread looks around.
const MOMENT: Duration = Duration::from_millis(500);

pub(super) struct Desk<'a> {
    server: &'a SparseServer,
    rank: usize,
    task: TaskId,
    inboxes: &'a [Mutex<Inbox>],
    /// Positions of the weights that the worker holds.
    touched: Vec<u32>,
    /// Those that it asks for now.
    wanted: Vec<u32>,
    encoded: Vec<u8>,
    values: Vec<f32>,
    /// Version of the weights that the worker holds.
    pulled: u64,
}

/// Why a conversation ended.
enum Failure {
    Link(LinkError),
    Interrupted,
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<Interrupted> for Failure {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        server: &'a SparseServer,
        rank: usize,
        task: TaskId,
        inboxes: &'a [Mutex<Inbox>],
    ) -> Self {
        let (touched, wanted, encoded, values) = Default::default();
        Self { server, rank, task, inboxes, touched, wanted, encoded, values, pulled: 0 }
    }

    /// Serves the worker, and whoever takes its place, until the server closes.
    pub(super) fn run(mut self) {
        let server = self.server;
        while !server.closing.load(Ordering::Acquire) {
            let wait = Wait::within(MOMENT, "waiting for it to connect").unless(&server.closing);
            let Ok(mut link) = server.seat.accept(self.task, Channel::ParameterServer, &wait)
            else {
                if !server.seat.expects(self.task) {
                    self.note(Presence::Gone(Instant::now()));
                }
                std::thread::sleep(Duration::from_millis(5)); // an error may come at once
                continue;
            };
            self.note(Presence::Here);
            match self.converse(&mut link) {
                Failure::Interrupted | Failure::Link(LinkError::Cancelled { .. }) => {
                    let lost = server.locked().lost.or_else(|| server.seat.lost().last().copied());
                    let name = lost.map(|task| task.to_string()).unwrap_or_default();
                    // Whoever cannot hear it any more learns it from its own session.
                    let _ = link.sender.send(message::REFUSED, 0, &[name.as_bytes()]);
                    return;
                }
                Failure::Link(_) => self.note(Presence::Gone(Instant::now())),
            }
        }
    }

    fn note(&self, presence: Presence) {
        let mut core = self.server.locked();
        let before = core.presence[self.rank];
        match (before, presence) {
            // A worker that has finished hangs up at last; one that is gone is gone since it was noticed.
            (Presence::Left | Presence::Gone(_), Presence::Gone(_)) => return,
            _ => core.presence[self.rank] = presence,
        }
        if let Presence::Gone(_) = presence {
            core.lost = Some(self.task);
        }
        drop(core);
        self.server.wake();
    }

    /// Answers until the worker hangs up or the server closes.
    fn converse(&mut self, link: &mut Link) -> Failure {
        loop {
            if let Err(failure) = self.answer(link) {
                return failure;
            }
        }
    }

    fn answer(&mut self, link: &mut Link) -> Result<(), Failure> {
        let server = self.server;
        let wait = Wait::within(server.options.patience, "waiting for its next request");
        let head = link.receiver.receive(&wait.unless(&server.closing))?;
        match head.kind {
            message::HELLO => {
                let core = server.wait_while(server.locked(), |core| !core.supplied)?;
                let learned = core.standing.workers.get(&self.task).copied();
                let version = core.standing.version;
                drop(core);
                let known = [u8::from(learned.is_some())];
                let learned = learned.unwrap_or_default();
                let mark = message::write_bookmark(&learned.mark);
                let turn = learned.turn.to_le_bytes();
                link.sender.send(message::WELCOME, version, &[&known, &turn, &mark])?;
            }
            message::STEP => self.step(link, head)?,
            message::END => {
                self.note(Presence::Left);
                let mut core = server.locked();
                if server.options.synchronous {
                    let workers = server.seat.workers();
                    server.settle(&mut core, &workers, self.inboxes);
                }
                let returning = server.options.returning;
                let core = server.wait_while(core, |core| {
                    core.presence.iter().any(|presence| match presence {
                        Presence::Expected | Presence::Here => true,
                        Presence::Gone(since) => since.elapsed() < returning,
                        Presence::Left => false,
                    })
                })?;
                let version = core.standing.version;
                drop(core);
                link.sender.send(message::ENDED, version, &[])?;
            }
            other => return Err(odd(link, format!("a message of kind {other}")).into()),
        }
        Ok(())
    }

    fn step(&mut self, link: &mut Link, message: Head) -> Result<(), Failure> {
        let server = self.server;
        let length = server.part.len();
        let mut fixed = [0; StepHead::BYTES];
        let Some(rest) = message.length.checked_sub(StepHead::BYTES as u64) else {
            return Err(odd(link, "a step without a head".to_owned()).into());
        };
        link.receiver.read(&mut fixed)?;
        let Some(head) = StepHead::read(&fixed) else {
            return Err(odd(link, "a damaged head of a step".to_owned()).into());
        };
        // Five bytes are the most a number takes, and none comes twice.
        let most = 5 * length as u64;
        if u64::from(head.bytes) > most {
            return Err(link.receiver.too_long(head.bytes.into(), most).into());
        }
        let floats = match head.push {
            Form::None => 0,
            Form::Sparse => self.touched.len(),
            Form::Dense => length,
        };
        if rest != 4 * floats as u64 + u64::from(head.bytes) {
            return Err(odd(link, format!("{rest} bytes of gradient and numbers")).into());
        }
        if head.push != Form::None {
            self.gradient(link, &head)?;
        }
        self.encoded.resize(head.bytes as usize, 0);
        link.receiver.read(&mut self.encoded)?;
        let decoded = indices::decode(&self.encoded, head.count as usize, length, &mut self.wanted);
        if head.pull == Form::Sparse && decoded.is_err() {
            return Err(odd(link, "a damaged list of weights".to_owned()).into());
        }
        if head.stop {
            server.locked().stop = true; // before the others are answered
        }
        let mut values = ValuesHead::default();
        let mut core = if head.push == Form::None {
            server.locked()
        } else {
            self.learn(link, head.turn, &mut values)?
        };
        core.answered[self.rank] = Instant::now();
        (values.examples, values.stop) = (core.standing.examples, core.stop);
        self.pulled = core.standing.version;
        drop(core);
        std::mem::swap(&mut self.touched, &mut self.wanted);
        self.values.clear();
        match head.pull {
            Form::None => {}
            Form::Sparse => {
                server.model.gather(server.part.start, &self.touched, &mut self.values);
            }
            Form::Dense => {
                self.values.resize(length, 0.0);
                server.model.read_all(server.part.start, &mut self.values);
            }
        }
        let body = bytes::of(&self.values);
        link.sender.send(message::VALUES, self.pulled, &[&values.write(), body])?;
        Ok(())
    }

    /// Reads a gradient into the inbox.
    fn gradient(&mut self, link: &mut Link, head: &StepHead) -> Result<(), Failure> {
        let mut inbox: MutexGuard<'_, Inbox> =
            self.inboxes[self.rank].lock().unwrap_or_else(PoisonError::into_inner);
        (inbox.examples, inbox.turn, inbox.mark) = (head.examples, head.turn, head.mark);
        inbox.is_dense = head.push == Form::Dense;
        if inbox.is_dense {
            inbox.dense.resize(self.server.part.len(), 0.0);
            link.receiver.read(bytes::of_mut(&mut inbox.dense))?;
        } else {
            inbox.grads.resize(self.touched.len(), 0.0);
            link.receiver.read(bytes::of_mut(&mut inbox.grads))?;
            std::mem::swap(&mut inbox.indices, &mut self.touched);
        }
        Ok(())
    }

    /// Learns from the gradient in the inbox, unless it did so before the worker sent it again: together with
    /// the others' in step, at once otherwise.
    fn learn(
        &self,
        link: &Link,
        turn: u64,
        values: &mut ValuesHead,
    ) -> Result<MutexGuard<'a, Core>, Failure> {
        let (server, task) = (self.server, self.task);
        let begun = Instant::now();
        let mut core = server.locked();
        let before = core.standing.turn(task);
        if turn <= before {
            return Ok(core);
        }
        if turn != before + 1 {
            let found = format!("gradient {turn} after gradient {before}");
            return Err(odd(link, found).into());
        }
        if server.options.synchronous {
            let version = core.standing.version;
            core.given[self.rank] = true;
            server.settle(&mut core, &server.seat.workers(), self.inboxes);
            core = server.wait_while(core, |core| core.standing.version == version)?;
            values.held = elapsed(begun);
            return Ok(core);
        }
        core = server.wait_while(core, |core| core.is_held(task, turn))?;
        core.applying += 1;
        drop(core);
        values.held = elapsed(begun);
        let inbox = self.inboxes[self.rank].lock().unwrap_or_else(PoisonError::into_inner);
        server.apply(&inbox, server.options.scale(inbox.examples));
        let mut core = server.locked();
        core.applying -= 1;
        values.staleness = core.standing.version.saturating_sub(self.pulled);
        core.count(&[(task, &*inbox)]);
        if core.hold.is_some() {
            server.wake();
        }
        Ok(core)
    }
}

pub(super) fn odd(link: &Link, found: String) -> LinkError {
    slots::odd(&(link.peer, link.address.clone()), found)
}

fn elapsed(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Serves the chief until the server closes.
pub(super) fn oversee(
    server: &SparseServer,
    chief: TaskId,
    scorer: Option<&dyn Score>,
    inboxes: &[Mutex<Inbox>],
) {
    while !server.closing.load(Ordering::Acquire) {
        let wait = Wait::within(MOMENT, "waiting for the chief").unless(&server.closing);
        let Ok(mut link) = server.seat.accept(chief, Channel::Oversight, &wait) else {
            std::thread::sleep(Duration::from_millis(5)); // an error may come at once
            continue;
        };
        // A chief that is gone is the session's to notice.
        while answer_chief(server, &mut link, scorer, inboxes).is_ok() {}
        server.release(inboxes);
    }
}

fn answer_chief(
    server: &SparseServer,
    link: &mut Link,
    scorer: Option<&dyn Score>,
    inboxes: &[Mutex<Inbox>],
) -> Result<(), LinkError> {
    let wait = Wait::within(server.options.patience, "waiting for the chief's next request");
    let wait = wait.unless(&server.closing);
    let head = link.receiver.receive(&wait)?;
    match head.kind {
        message::ASK => {
            let (lineage, versions) = {
                let core = server.locked();
                (core.lineage, [core.standing.version, core.earliest()].map(u64::to_le_bytes))
            };
            link.sender.send(message::HOLDS, lineage.into(), &[&versions[0], &versions[1]])
        }
        message::KEEP => {
            server.keep_after(head.number);
            Ok(())
        }
        message::BEGIN => {
            let lineage = u32::try_from(head.number).unwrap_or(u32::MAX);
            server.clear();
            let (table, first) = (server.model.table(), server.part.start);
            let standing = slots::receive(link, head, server.part.len(), &wait, |at, slot| {
                table.set(first + at as usize, slot);
            })?;
            server.begin(lineage, standing);
            Ok(())
        }
        message::HOLD => {
            // Who is interrupted closes: so does the link.
            let Ok(standing) = server.hold() else { return Ok(()) };
            link.sender.send(message::HELD, 0, &[&standing.write()])
        }
        message::CUT => server.cut(link, head, inboxes),
        message::RELEASE => {
            server.release(inboxes);
            Ok(())
        }
        message::IDLE => {
            let idle = server.idle(Duration::from_millis(head.number));
            let names: Vec<String> = idle.iter().map(ToString::to_string).collect();
            link.sender.send(message::IDLERS, 0, &[names.join("\n").as_bytes()])
        }
        message::SCORE => {
            let (version, examples) = {
                let core = server.locked();
                (core.standing.version, core.standing.examples)
            };
            let scores = scorer
                .and_then(|scorer| {
                    scorer.score(&server.model, server.part.clone(), &server.closing)
                })
                .unwrap_or_default();
            let body = [&examples.to_le_bytes()[..], bytes::of(&scores.logits), &scores.labels];
            link.sender.send(message::SCORES, version, &body)
        }
        other => Err(odd(link, format!("a message of kind {other}"))),
    }
}
