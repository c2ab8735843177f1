//! How a server of sparse weights answers its workers.

use super::{
    indices,
    message::{self, Form, StepHead, ValuesHead},
    server::SparseTable,
};
use crate::{
    bytes,
    protocol::{nanoseconds, protocol_error},
    server::{Core, Failure, Next, Presence, WorkerSession},
};
use paceline_models::sparse_logistic::Size;
use paceline_wire::{Head, Link};
use std::{
    sync::{MutexGuard, PoisonError},
    time::Instant,
};

/// What a session keeps from one message to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Positions of the weights that the worker holds.
    touched: Vec<u32>,
    /// Those that it asks for now.
    wanted: Vec<u32>,
    encoded: Vec<u8>,
    values: Vec<f32>,
    /// Version of the weights that the worker holds.
    pulled: u64,
}

impl<'a> WorkerSession<'a, SparseTable> {
    pub(super) fn answer_to(&mut self, link: &mut Link, head: Head) -> Result<Next, Failure> {
        let server = self.server;
        match head.kind {
            message::HELLO => {
                let core = server.wait_while(server.locked(), |core| !core.settled)?;
                let learned = core.ledger.standing.workers.get(&self.task).copied();
                let version = core.ledger.standing.version;
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
                if server.table.options.synchronous {
                    server.table.update_together(&mut core);
                    server.notify(&core);
                }
                let returning = server.table.options.returning;
                let core = server.wait_while(core, |core| {
                    core.presence.iter().any(|presence| match presence {
                        Presence::Expected | Presence::Here => true,
                        Presence::Gone(since) => since.elapsed() < returning,
                        Presence::Left => false,
                    })
                })?;
                let version = core.ledger.standing.version;
                drop(core);
                link.sender.send(message::ENDED, version, &[])?;
            }
            other => return Err(protocol_error(link, format!("a message of kind {other}")).into()),
        }
        Ok(Next::Request)
    }

    fn step(&mut self, link: &mut Link, message: Head) -> Result<(), Failure> {
        let server = self.server;
        let head = self.receive_step(link, message)?;
        if head.stop {
            server.locked().ledger.stop(server.table.options.synchronous); // before the others are answered
        }
        let mut values = ValuesHead::default();
        let mut core = if head.push == Form::None {
            server.locked()
        } else {
            self.learn(link, head.turn, &mut values)?
        };
        core.ledger.answered[self.rank] = Instant::now();
        values.examples = core.ledger.standing.examples;
        values.stop = core.ledger.has_stopped();
        self.buffers.pulled = core.ledger.standing.version;
        drop(core);
        self.gather(head.pull);
        let body = bytes::of(&self.buffers.values);
        link.sender.send(message::VALUES, self.buffers.pulled, &[&values.write(), body])?;
        Ok(())
    }

    /// Reads a step: its gradient into the inbox, and which weights are wanted.
    fn receive_step(&mut self, link: &mut Link, message: Head) -> Result<StepHead, Failure> {
        let length = self.server.table.part.len();
        let mut fixed = [0; StepHead::BYTES];
        let Some(rest) = message.length.checked_sub(StepHead::BYTES as u64) else {
            return Err(protocol_error(link, "a step without a head".to_owned()).into());
        };
        link.receiver.read(&mut fixed)?;
        let Some(head) = StepHead::read(&fixed) else {
            return Err(protocol_error(link, "a damaged head of a step".to_owned()).into());
        };
        // Five bytes are the most a number takes, and none comes twice.
        let most = 5 * length as u64;
        if u64::from(head.bytes) > most {
            return Err(link.receiver.too_long(head.bytes.into(), most).into());
        }
        let floats = match head.push {
            Form::None => 0,
            Form::Sparse => self.buffers.touched.len(),
            Form::Dense => length,
        };
        let each = if head.sized { 6 } else { 4 };
        if rest != each * floats as u64 + u64::from(head.bytes) {
            return Err(
                protocol_error(link, format!("{rest} bytes of gradient and numbers")).into()
            );
        }
        if head.push != Form::None {
            self.gradient(link, &head)?;
        }
        self.buffers.encoded.resize(head.bytes as usize, 0);
        link.receiver.read(&mut self.buffers.encoded)?;
        let decoded = indices::decode(
            &self.buffers.encoded,
            head.count as usize,
            length,
            &mut self.buffers.wanted,
        );
        if head.pull == Form::Sparse && decoded.is_err() {
            return Err(protocol_error(link, "a damaged list of weights".to_owned()).into());
        }
        Ok(head)
    }

    /// Brings the weights together that are wanted, which the next gradient will be of.
    fn gather(&mut self, pull: Form) {
        let (model, part) = (&self.server.table.model, &self.server.table.part);
        let Buffers { touched, wanted, values, .. } = &mut self.buffers;
        std::mem::swap(touched, wanted);
        values.clear();
        match pull {
            Form::None => {}
            Form::Sparse => model.gather(part.start, touched, values),
            Form::Dense => {
                values.resize(part.len(), 0.0);
                model.read_all(part.start, values);
            }
        }
    }

    /// Reads a gradient into the inbox.
    fn gradient(&mut self, link: &mut Link, head: &StepHead) -> Result<(), Failure> {
        let mut inbox = self.inboxes[self.rank].write().unwrap_or_else(PoisonError::into_inner);
        (inbox.examples, inbox.turn, inbox.mark) = (head.examples, head.turn, head.mark);
        inbox.is_dense = head.push == Form::Dense;
        if inbox.is_dense {
            inbox.dense.resize(self.server.table.part.len(), 0.0);
            link.receiver.read(bytes::of_mut(&mut inbox.dense))?;
        } else {
            inbox.grads.resize(self.buffers.touched.len(), 0.0);
            link.receiver.read(bytes::of_mut(&mut inbox.grads))?;
            std::mem::swap(&mut inbox.indices, &mut self.buffers.touched);
        }
        inbox.sizes.clear();
        if head.sized {
            let count = if inbox.is_dense { inbox.dense.len() } else { inbox.grads.len() };
            self.buffers.encoded.resize(2 * count, 0);
            link.receiver.read(&mut self.buffers.encoded)?;
            let pairs = self.buffers.encoded.as_chunks::<2>().0.iter();
            inbox.sizes.extend(pairs.map(|pair| Size::from_bits(u16::from_le_bytes(*pair))));
        }
        Ok(())
    }

    /// Learns from the gradient in the inbox, unless it did so before the worker sent it again: together with
    /// those of the other workers in synchronous training, at once otherwise.
    fn learn(
        &self,
        link: &Link,
        turn: u64,
        values: &mut ValuesHead,
    ) -> Result<MutexGuard<'a, Core<SparseTable>>, Failure> {
        let (server, task) = (self.server, self.task);
        let begun = Instant::now();
        let mut core = server.locked();
        let before = core.ledger.standing.turn(task);
        if turn <= before {
            return Ok(core);
        }
        if turn != before + 1 {
            let found = format!("gradient {turn} after gradient {before}");
            return Err(protocol_error(link, found).into());
        }
        if server.table.options.synchronous {
            let version = core.ledger.standing.version;
            core.ledger.given[self.rank] = true;
            server.table.update_together(&mut core);
            server.notify(&core);
            core = server.wait_while(core, |core| core.ledger.standing.version == version)?;
            values.held = nanoseconds(begun);
            return Ok(core);
        }
        core = server.wait_while(core, |core| core.is_held(task, turn))?;
        core.ledger.applying += 1;
        drop(core);
        values.held = nanoseconds(begun);
        let inbox = self.inboxes[self.rank].read().unwrap_or_else(PoisonError::into_inner);
        server.table.apply(&inbox, server.table.options.scale(inbox.examples));
        let mut core = server.locked();
        core.ledger.applying -= 1;
        values.staleness = core.ledger.standing.version.saturating_sub(self.buffers.pulled);
        core.ledger.count(&[(task, &*inbox)]);
        if core.hold.is_some() {
            server.notify(&core);
        }
        Ok(core)
    }
}
