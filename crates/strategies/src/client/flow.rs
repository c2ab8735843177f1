//! Messages to and from all servers at once: a slow one does not hold up what the others could send or take
//! in the meantime.

use super::{Client, Remote};
use crate::{StrategyError, bytes, dense::message::GrantHead};
use paceline_wire::{Head, LinkError, Wait};
use std::{
    ops::Range,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// How long servers may take nothing at all.
const STALL: Duration = Duration::from_secs(30);
/// What a large message waits when no server takes or brings anything: a link holds more than it carries in that time.
const NAP: Duration = Duration::from_micros(100);
/// How long to wait for the answer of one server before looking whether another has begun, at first and at most.
const GLANCE: Duration = Duration::from_micros(500);
const LONG_GLANCE: Duration = Duration::from_millis(20);

/// How far a server's answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coming {
    /// All of it is here, or none was asked for.
    Nothing,
    /// It has not begun.
    Head,
    /// So many bytes of the weights are here, which belong into the parameters.
    Weights(usize),
}

/// A message on its way to one server.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    number: u64,
    fixed: Vec<u8>,
    pub(super) body: Body,
    /// How many bytes have left.
    sent: usize,
}

/// What follows the fixed part.
#[derive(Debug, Default, Clone, Copy)]
pub(super) enum Body {
    #[default]
    Nothing,
    /// The server's part of the gradient.
    Part,
}

impl Outgoing {
    /// A new message; its fixed part is to be written.
    pub(super) fn begin(&mut self, number: u64) -> &mut Vec<u8> {
        (self.number, self.body, self.sent) = (number, Body::Nothing, 0);
        self.fixed.clear();
        &mut self.fixed
    }
}

impl Remote {
    fn explain(&self, error: LinkError) -> StrategyError {
        self.server.explain(error, self.version)
    }

    /// Hands over as much of the message as the link takes; says how much, and whether all is on its way.
    fn hand_over(&mut self, grad: &[f32]) -> Result<(usize, bool), LinkError> {
        let Outgoing { fixed, body, sent, .. } = &mut self.outgoing;
        let body = body_of(*body, &self.server.part, grad);
        let left = if *sent < fixed.len() { &fixed[*sent..] } else { &body[*sent - fixed.len()..] };
        let sender = &mut self.server.link.sender;
        if left.is_empty() && sender.flushed() {
            return Ok((0, true));
        }
        let count = sender.push(left)?;
        *sent += count;
        Ok((count, *sent == fixed.len() + body.len() && sender.flushed()))
    }
}

fn body_of<'b>(body: Body, part: &Range<usize>, grad: &'b [f32]) -> &'b [u8] {
    match body {
        Body::Nothing => &[],
        Body::Part => bytes::of(&grad[part.clone()]),
    }
}

impl Client {
    /// Sends some servers what lies ready for them, to all of them at once.
    pub(super) fn send_to(
        &mut self,
        servers: Range<usize>,
        kind: u8,
        grad: &[f32],
    ) -> Result<(), StrategyError> {
        for remote in &mut self.remotes[servers.clone()] {
            let Outgoing { number, fixed, body, .. } = &remote.outgoing;
            let body = body_of(*body, &remote.server.part, grad);
            let sender = &mut remote.server.link.sender;
            let begun = if servers.len() == 1 {
                sender.send(kind, *number, &[fixed, body])
            } else {
                let length = (fixed.len() + body.len()) as u64;
                sender.start(Head { kind, number: *number, length })
            };
            begun.map_err(|error| remote.server.explain_send(error, remote.version))?;
        }
        if servers.len() == 1 {
            return Ok(());
        }
        let mut idle_since: Option<Instant> = None;
        loop {
            let (mut moved, mut late) = (false, None);
            for server in servers.clone() {
                let remote = &mut self.remotes[server];
                let handed = remote.hand_over(grad);
                let (count, whole) =
                    handed.map_err(|error| remote.server.explain_send(error, remote.version))?;
                moved |= count > 0;
                late = if whole { late } else { Some(server) };
            }
            let Some(server) = late else { return Ok(()) };
            if moved {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            self.patient(server, since, STALL, "taking its part")?;
            std::thread::sleep(NAP);
        }
    }

    /// An error if a server has exceeded `limit`, or the alarm is raised.
    fn patient(
        &self,
        server: usize,
        since: Instant,
        limit: Duration,
        phase: &str,
    ) -> Result<(), StrategyError> {
        let (alarmed, waited) = (self.membership.alarm().load(Ordering::Acquire), since.elapsed());
        if !alarmed && waited < limit {
            return Ok(());
        }
        let remote = &self.remotes[server];
        let (task, address, phase) =
            (remote.server.link.peer, remote.server.link.address.clone(), phase.to_owned());
        let error = if alarmed {
            LinkError::Cancelled { task, address, phase }
        } else {
            LinkError::TimedOut { task, address, phase, waited }
        };
        Err(remote.explain(error))
    }

    /// Takes the answers of some servers, as they come.
    pub(super) fn collect(
        &mut self,
        servers: Range<usize>,
        kind: u8,
        phase: &str,
        params: &mut [f32],
    ) -> Result<(), StrategyError> {
        if servers.len() == 1 {
            let server = servers.start;
            let head = self.receive(server, kind, phase)?;
            self.begin(server, head, params)?;
            return self.read_rest(server, params);
        }
        let wait = Wait::within(self.options.patience, phase);
        for remote in &mut self.remotes[servers.clone()] {
            remote.server.link.receiver.expect(&wait);
            remote.coming = Coming::Head;
        }
        let begun = Instant::now();
        let mut glance = GLANCE;
        loop {
            let mut moved = false;
            for server in servers.clone() {
                moved |= self.advance(server, kind, params)?;
            }
            let left = servers.clone().find(|at| self.remotes[*at].coming != Coming::Nothing);
            let Some(server) = left else { return Ok(()) };
            if moved {
                glance = GLANCE;
                continue;
            }
            self.patient(server, begun, self.options.patience, phase)?;
            let late = servers.clone().find(|at| self.remotes[*at].coming == Coming::Head);
            if late != Some(server) || servers.clone().any(|at| self.is_reading(at)) {
                std::thread::sleep(NAP);
                continue;
            }
            // No server has begun: the first in the list wakes this thread, the others are polled soon.
            let moment = Wait::within(glance, phase);
            let receiver = &mut self.remotes[server].server.link.receiver;
            let received = receiver.receive(&moment);
            receiver.expect(&wait);
            match received {
                Ok(head) => {
                    let head = self.remotes[server].server.expected(head, kind, self.step.step)?;
                    self.begin(server, head, params)?;
                    glance = GLANCE;
                }
                Err(error) if error.is_timeout() => glance = (glance * 2).min(LONG_GLANCE),
                Err(error) => return Err(self.remotes[server].explain(error)),
            }
        }
    }

    fn is_reading(&self, server: usize) -> bool {
        matches!(self.remotes[server].coming, Coming::Weights(_))
    }

    /// Takes what is here of a server's answer; says whether anything was.
    fn advance(
        &mut self,
        server: usize,
        kind: u8,
        params: &mut [f32],
    ) -> Result<bool, StrategyError> {
        let remote = &mut self.remotes[server];
        let (into, here) = match remote.coming {
            Coming::Nothing => return Ok(false),
            Coming::Head => {
                let head = remote.server.link.receiver.poll();
                let head = head.map_err(|error| remote.server.explain(error, self.step.step))?;
                let Some(head) = head else { return Ok(false) };
                let head = remote.server.expected(head, kind, self.step.step)?;
                self.begin(server, head, params)?;
                return Ok(true);
            }
            Coming::Weights(here) => (&mut params[remote.server.part.clone()], here),
        };
        let into = bytes::of_mut(into);
        let count = remote.server.link.receiver.take(&mut into[here..]);
        let count = count.map_err(|error| remote.server.explain(error, self.step.step))?;
        let (here, whole) = (here + count, here + count == into.len());
        remote.coming = if whole { Coming::Nothing } else { Coming::Weights(here) };
        Ok(count > 0)
    }

    /// Reads the fixed part of an answer whose head is here; a window's weights too.
    fn begin(
        &mut self,
        server: usize,
        head: Head,
        params: &mut [f32],
    ) -> Result<(), StrategyError> {
        let (grant, rest) = self.grant(server, head)?;
        self.remotes[server].coming = Coming::Nothing;
        self.remotes[server].grant = grant;
        if grant.weights {
            self.begin_weights(server, &grant, rest, params)
        } else {
            self.nothing_more(server, rest)
        }
    }

    fn begin_weights(
        &mut self,
        server: usize,
        grant: &GrantHead,
        rest: u64,
        params: &mut [f32],
    ) -> Result<(), StrategyError> {
        let remote = &mut self.remotes[server];
        let part = remote.server.part.clone();
        let whole = 4 * part.len() as u64;
        match &remote.windows {
            Some(windows) if grant.mapped && rest == 0 => {
                params[part].copy_from_slice(windows.weights.read());
                self.through_windows.received += whole;
            }
            _ if !grant.mapped && rest == whole => {
                if whole > 0 {
                    remote.coming = Coming::Weights(0);
                }
            }
            _ => return self.nothing_more(server, rest.max(1)),
        }
        remote.version = grant.version;
        Ok(())
    }

    /// Waits for what is left of an answer.
    fn read_rest(&mut self, server: usize, params: &mut [f32]) -> Result<(), StrategyError> {
        let remote = &mut self.remotes[server];
        let into = match std::mem::replace(&mut remote.coming, Coming::Nothing) {
            Coming::Weights(_) => &mut params[remote.server.part.clone()],
            Coming::Nothing | Coming::Head => return Ok(()),
        };
        Ok(remote.server.link.receiver.read(bytes::of_mut(into))?)
    }
}
