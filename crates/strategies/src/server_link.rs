//! A link to one server, as every client of servers has it: a worker's, whichever weights it trains, and the chief's.

use crate::{
    StrategyError, Traffic,
    protocol::{explain_send, refusal, unexpected},
    server::parts,
};
use paceline_cluster::JobMembership;
use paceline_wire::{Channel, Head, Link, LinkError, Wait};
use std::{ops::Range, sync::Arc, time::Duration};

/// A link to a server, with its part of the weights.
#[derive(Debug)]
pub(crate) struct ServerLink {
    pub(crate) link: Link,
    pub(crate) part: Range<usize>,
    membership: Arc<dyn JobMembership>,
    /// The kind of message by which the server ends the conversation.
    refused: u8,
}

impl ServerLink {
    /// Connects to all servers of the membership's present generation, which share out `length` weights.
    pub(crate) fn connect_all(
        membership: &Arc<dyn JobMembership>,
        channel: Channel,
        refused: u8,
        length: usize,
        patience: Duration,
    ) -> Result<Vec<Self>, StrategyError> {
        let servers = membership.servers();
        let wait = Wait::within(patience, "connecting to the servers").unless(membership.alarm());
        let connect = |(server, part)| {
            let link = membership.connect(server, channel, &wait);
            let link = link.map_err(|error| StrategyError::explain(error, &**membership, 0))?;
            Ok(Self { link, part, membership: Arc::clone(membership), refused })
        };
        let parts = parts(length, servers.len());
        servers.into_iter().zip(parts).map(connect).collect()
    }

    /// Sends a message at this step.
    pub(crate) fn send(
        &mut self,
        kind: u8,
        number: u64,
        payload: &[&[u8]],
        step: u64,
    ) -> Result<(), StrategyError> {
        let sent = self.link.sender.send(kind, number, payload);
        sent.map_err(|error| self.explain_send(error, step))
    }

    /// What a message means that could not be sent.
    pub(crate) fn explain_send(&mut self, error: LinkError, step: u64) -> StrategyError {
        explain_send(error, &mut self.link, self.refused, &*self.membership, step)
    }

    /// What it means that nothing comes.
    pub(crate) fn explain(&self, error: LinkError, step: u64) -> StrategyError {
        StrategyError::explain(error, &*self.membership, step)
    }

    /// Waits for the next message, whatever it is.
    pub(crate) fn receive_any(
        &mut self,
        phase: &str,
        patience: Duration,
        step: u64,
    ) -> Result<Head, StrategyError> {
        let wait = Wait::within(patience, phase).unless(self.membership.alarm());
        let head = self.link.receiver.receive(&wait);
        head.map_err(|error| StrategyError::explain(error, &*self.membership, step))
    }

    /// Waits for an answer of this kind.
    pub(crate) fn receive(
        &mut self,
        kind: u8,
        phase: &str,
        patience: Duration,
        step: u64,
    ) -> Result<Head, StrategyError> {
        let head = self.receive_any(phase, patience, step)?;
        self.expected(head, kind, step)
    }

    /// Checks that an answer is what it should be.
    pub(crate) fn expected(
        &mut self,
        head: Head,
        kind: u8,
        step: u64,
    ) -> Result<Head, StrategyError> {
        if head.kind == self.refused {
            return Err(refusal(&mut *self.link.receiver, head, &*self.membership, step)?);
        }
        if head.kind == kind { Ok(head) } else { Err(self.protocol_error(head)) }
    }

    /// The error for an answer that does not fit.
    pub(crate) fn protocol_error(&self, head: Head) -> StrategyError {
        unexpected(&self.link, head).into()
    }

    /// Bytes that went over this link so far.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic { sent: self.link.sender.sent(), received: self.link.receiver.received() }
    }
}
