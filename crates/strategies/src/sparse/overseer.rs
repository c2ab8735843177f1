//! The chief's links to all servers, for what concerns the whole model: weights to begin with, copies for
//! checkpoints, scores of held-out rows. Apart from the workers' links, so that training never waits for it.

use super::{
    Scores, SparseOptions,
    message::{self, Bookmark},
    slots,
    standing::Standing,
};
use crate::{StrategyError, bytes, protocol::payload, server_link::ServerLink};
use paceline_cluster::JobMembership;
use paceline_models::sparse_logistic::Table;
use paceline_wire::{Channel, Head, TaskId, Wait};
use std::{sync::Arc, time::Duration};

/// How long a server may take to be there, or to score a file of held-out rows.
const PATIENCE: Duration = Duration::from_secs(600);
/// The most held-out rows that are taken for such.
const MOST_ROWS: u64 = 1 << 28;

/// Where a run stands, beside its weights.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beginning {
    /// Updates in the weights.
    pub version: u64,
    /// Rows in them.
    pub examples: u64,
    /// How far each worker has read.
    pub marks: Vec<(TaskId, Bookmark)>,
}

/// The chief's links to all servers.
#[derive(Debug)]
pub struct Overseer {
    membership: Arc<dyn JobMembership>,
    servers: Vec<ServerLink>,
    synchronous: bool,
}

impl Overseer {
    /// Connects to all servers of the membership's present generation.
    ///
    /// # Errors
    /// Names the server that could not be reached.
    pub fn connect(
        membership: Arc<dyn JobMembership>,
        options: &SparseOptions,
    ) -> Result<Self, StrategyError> {
        let (channel, refused) = (Channel::Oversight, message::REFUSED);
        let length = options.length();
        let servers = ServerLink::connect_all(&membership, channel, refused, length, PATIENCE)?;
        Ok(Self { membership, servers, synchronous: options.synchronous })
    }

    /// Whether all servers hold weights of `lineage`; if so, they are told to keep them. In synchronous training all
    /// keep the same version: an update that only some have made, because a worker died in between, is rolled back.
    ///
    /// # Errors
    /// A server does not answer.
    pub fn keep(&mut self, lineage: u32) -> Result<bool, StrategyError> {
        let mut same = lineage > 0;
        let mut versions = Vec::with_capacity(self.servers.len());
        for server in 0..self.servers.len() {
            self.servers[server].link.sender.send(message::ASK, 0, &[])?;
            let head = self.receive(server, message::HOLDS, "asking what it holds")?;
            let body = payload(&mut *self.servers[server].link.receiver, head, 16)?;
            let Ok(body) = <[u8; 16]>::try_from(body) else {
                return Err(self.protocol_error(server, head));
            };
            versions.push((bytes::u64_at(&body, 0), bytes::u64_at(&body, 8)));
            same &= head.number == u64::from(lineage);
        }
        let least = versions.iter().map(|(version, _)| *version).min().unwrap_or_default();
        same &= !self.synchronous || versions.iter().all(|(_, earliest)| *earliest <= least);
        if same {
            for ServerLink { link, .. } in &mut self.servers {
                link.sender.send(message::KEEP, least, &[])?;
            }
        }
        Ok(same)
    }

    /// Gives all servers weights to begin with: those of `table`, or zeros.
    ///
    /// # Errors
    /// A server does not answer.
    pub fn give(
        &mut self,
        lineage: u32,
        beginning: &Beginning,
        table: Option<&Table>,
    ) -> Result<(), StrategyError> {
        let standing = Standing::from(beginning);
        for ServerLink { link, part, .. } in &mut self.servers {
            let all = table.into_iter().flat_map(|table| slots::touched(table, part.clone()));
            slots::send(link, lineage, &standing, all)?;
        }
        Ok(())
    }

    /// Copies every slot that was ever touched, in ascending order of numbers, all of one version: the copy
    /// has every worker's rows up to its bookmark and no others. Updates wait until the servers agree on
    /// the version and go on while the copy is made. Nothing, whatever was taken, if a gradient that one
    /// server has did not come to another in time: then it is to be tried again.
    ///
    /// # Errors
    /// A server does not answer.
    pub fn copy(
        &mut self,
        take: impl FnMut(usize, [f32; 2]),
    ) -> Result<Option<Beginning>, StrategyError> {
        let copied = self.cut(take);
        if copied.is_err() {
            for ServerLink { link, .. } in &mut self.servers {
                // Who does not hear it has no link to wait at.
                let _ = link.sender.send(message::RELEASE, 0, &[]);
            }
        }
        copied
    }

    fn cut(
        &mut self,
        mut take: impl FnMut(usize, [f32; 2]),
    ) -> Result<Option<Beginning>, StrategyError> {
        for ServerLink { link, .. } in &mut self.servers {
            link.sender.send(message::HOLD, 0, &[])?;
        }
        let mut furthest = Standing::default();
        for server in 0..self.servers.len() {
            let head = self.receive(server, message::HELD, "asking how far it is")?;
            let receiver = &mut *self.servers[server].link.receiver;
            let body = payload(receiver, head, slots::LONGEST_HEAD)?;
            let Some(standing) = Standing::read(&body) else {
                return Err(self.protocol_error(server, head));
            };
            furthest.join(&standing);
        }
        let target = furthest.write();
        for ServerLink { link, .. } in &mut self.servers {
            link.sender.send(message::CUT, 0, &[&target])?;
        }
        let (mut whole, mut agreed) = (true, Standing::default());
        for server in 0..self.servers.len() {
            let phase = "waiting for a copy of its weights";
            let head = self.servers[server].receive_any(phase, PATIENCE, 0)?;
            match head.kind {
                message::BEGIN => {}
                message::LATER => {
                    whole = false;
                    continue;
                }
                _ => return Err(self.protocol_error(server, head)),
            }
            let ServerLink { link, part, .. } = &mut self.servers[server];
            let wait = Wait::within(PATIENCE, phase).unless(self.membership.alarm());
            let start = part.start;
            let standing = slots::receive(link, head, part.len(), &wait, |number, slot| {
                take(start + number as usize, slot);
            })?;
            agreed.join(&standing);
        }
        Ok(whole.then(|| agreed.into()))
    }

    /// Workers that live and have given no gradient for `long`, though nothing keeps them from it.
    ///
    /// # Errors
    /// A server does not answer.
    pub fn idle(&mut self, long: Duration) -> Result<Vec<TaskId>, StrategyError> {
        // Every worker talks to all servers: the first one knows.
        let Some(ServerLink { link, .. }) = self.servers.first_mut() else { return Ok(Vec::new()) };
        let millis = u64::try_from(long.as_millis()).unwrap_or(u64::MAX);
        link.sender.send(message::IDLE, millis, &[])?;
        let head = self.receive(0, message::IDLERS, "asking who does nothing")?;
        let names = payload(&mut *self.servers[0].link.receiver, head, slots::LONGEST_HEAD)?;
        let names = String::from_utf8_lossy(&names);
        Ok(names.lines().filter_map(|name| name.parse().ok()).collect())
    }

    /// Has held-out rows scored beside the weights; nothing where the servers could not. Returns the updates
    /// and rows in the weights, and every row's logit and label.
    ///
    /// # Errors
    /// A server does not answer, or has other held-out rows than the rest.
    pub fn score(&mut self) -> Result<Option<(u64, u64, Scores)>, StrategyError> {
        for ServerLink { link, .. } in &mut self.servers {
            link.sender.send(message::SCORE, 0, &[])?; // all at once: each has its own cores
        }
        let mut whole: Option<(u64, u64, Scores)> = None;
        let mut failed = false;
        for server in 0..self.servers.len() {
            let head = self.receive(server, message::SCORES, "waiting for scores")?;
            let body = head.length.checked_sub(8).filter(|body| body % 5 == 0);
            let Some(rows) = body.map(|body| body / 5).filter(|rows| *rows <= MOST_ROWS) else {
                return Err(self.protocol_error(server, head));
            };
            let rows = usize::try_from(rows).expect("checked above");
            let receiver = &mut self.servers[server].link.receiver;
            let mut examples = [0; 8];
            let (mut logits, mut labels) = (vec![0.0; rows], vec![0; rows]);
            receiver.read(&mut examples)?;
            receiver.read(bytes::of_mut(&mut logits))?;
            receiver.read(&mut labels)?;
            failed |= rows == 0;
            match &mut whole {
                None => {
                    let examples = u64::from_le_bytes(examples);
                    whole = Some((head.number, examples, Scores { logits, labels }));
                }
                Some((.., sum)) if sum.labels == labels => {
                    for (sum, share) in sum.logits.iter_mut().zip(&logits) {
                        *sum += share;
                    }
                }
                Some(_) if failed => {}
                Some(_) => return Err(self.protocol_error(server, head)),
            }
        }
        Ok(whole.filter(|_| !failed))
    }

    fn receive(
        &mut self,
        server: usize,
        kind: u8,
        phase: &'static str,
    ) -> Result<Head, StrategyError> {
        self.servers[server].receive(kind, phase, PATIENCE, 0)
    }

    fn protocol_error(&self, server: usize, head: Head) -> StrategyError {
        self.servers[server].protocol_error(head)
    }
}
