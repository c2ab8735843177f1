//! A worker's links to all servers of sparse weights.

use super::{
    SparseOptions, indices,
    message::{self, Bookmark, Form, StepHead, ValuesHead},
};
use crate::{
    StrategyError, Traffic, Transfer, bytes,
    protocol::{nanoseconds, payload},
    server_link::ServerLink,
};
use paceline_cluster::JobMembership;
use paceline_models::sparse_logistic::Size;
use paceline_wire::{Channel, Head};
use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a server may take to be there and to have its weights.
const CONNECT: Duration = Duration::from_secs(600);

/// A gradient on its way, of the weights that were pulled last.
#[derive(Debug, Clone, Copy)]
pub struct Push<'a> {
    /// Numbers of these weights.
    pub touched: &'a [u32],
    /// Their gradient, summed over examples.
    pub grads: &'a [f32],
    /// How large the values behind it were; none where all are 1.
    pub sizes: &'a [Size],
    pub examples: u64,
    /// How far this worker has read with them.
    pub mark: Bookmark,
}

/// What a step brought beside the weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// Updates made so far.
    pub version: u64,
    /// Rows learned from so far, over all workers.
    pub examples: u64,
    /// Updates by others between the last pull and this push.
    pub staleness: u64,
    /// All workers shall stop.
    pub stop: bool,
    /// Nanoseconds spent moving gradients and weights.
    pub exchange: u64,
    /// Nanoseconds spent waiting for other workers.
    pub wait: u64,
    /// Bytes of numbers and weights that sparse transfer takes for this step, whatever was used.
    pub sparse_bytes: u64,
}

/// Where a worker begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Welcome {
    /// Updates made so far.
    pub version: u64,
    /// How far this worker, or the one whose place it takes, has read.
    pub mark: Option<Bookmark>,
}

/// All weights and all gradients, where everything travels.
#[derive(Debug)]
struct Dense {
    weights: Vec<f32>,
    grads: Vec<f32>,
    sizes: Vec<Size>,
}

/// A worker's links to all servers.
#[derive(Debug)]
pub struct SparseClient {
    membership: Arc<dyn JobMembership>,
    options: SparseOptions,
    servers: Vec<ServerLink>,
    dense: Option<Dense>,
    encoded: Vec<u8>,
    /// Sizes as they travel.
    sizes: Vec<u8>,
    version: u64,
    /// Gradients that all servers have learned from.
    turn: u64,
    /// What went over links that are gone.
    before: Traffic,
}

impl SparseClient {
    /// Connects to all servers and waits until they have weights.
    ///
    /// # Errors
    /// Names the server that could not be reached.
    pub fn connect(
        membership: Arc<dyn JobMembership>,
        options: SparseOptions,
        strategy: &'static str,
    ) -> Result<(Self, Welcome), StrategyError> {
        if membership.servers().is_empty() {
            return Err(StrategyError::NoServers { strategy });
        }
        let length = options.length();
        let dense = (options.transfer == Transfer::Dense).then(|| Dense {
            weights: vec![0.0; length],
            grads: vec![0.0; length],
            sizes: vec![Size::default(); length],
        });
        let mut client = Self {
            membership,
            options,
            servers: Vec::new(),
            dense,
            encoded: Vec::new(),
            sizes: Vec::new(),
            version: 0,
            turn: 0,
            before: Traffic::default(),
        };
        let welcome = client.reconnect()?;
        Ok((client, welcome))
    }

    /// Connects to the servers of the membership's present generation.
    ///
    /// # Errors
    /// As [`SparseClient::connect`].
    pub fn reconnect(&mut self) -> Result<Welcome, StrategyError> {
        self.before = self.traffic();
        self.servers.clear();
        let (channel, refused) = (Channel::ParameterServer, message::REFUSED);
        let length = self.options.length();
        self.servers =
            ServerLink::connect_all(&self.membership, channel, refused, length, CONNECT)?;
        for server in &mut self.servers {
            server.send(message::HELLO, 0, &[], 0)?;
        }
        let (mut welcome, mut least) = (Welcome::default(), 0);
        for server in 0..self.servers.len() {
            let head = self.receive(server, message::WELCOME, "waiting for the first weights")?;
            let body = payload(&mut *self.servers[server].link.receiver, head, 64)?;
            let parts = body.split_first().and_then(|(known, rest)| {
                let (turn, mark) = rest.split_first_chunk::<8>()?;
                Some((*known == 1, u64::from_le_bytes(*turn), mark.try_into().ok()?))
            });
            let Some((known, turn, mark)) = parts else {
                return Err(self.protocol_error(server, head));
            };
            if server == 0 {
                welcome.version = head.number;
            }
            // One that has a gradient more than the others passes over it when it comes again.
            if server == 0 || turn < least {
                least = turn;
                welcome.mark = known.then(|| message::read_bookmark(mark));
            }
        }
        (self.version, self.turn) = (welcome.version, least);
        Ok(welcome)
    }

    /// Sends the gradient of the weights pulled last, if there is one, and brings the weights of `pull`
    /// (ascending numbers; none where nothing follows) into `weights`.
    ///
    /// # Errors
    /// Names the task that is missing.
    pub fn step(
        &mut self,
        push: Option<Push<'_>>,
        pull: &[u32],
        weights: &mut Vec<f32>,
        stop: bool,
    ) -> Result<Answer, StrategyError> {
        let begun = Instant::now();
        let sparse_bytes = self.send(push.as_ref(), pull, stop)?;
        weights.clear();
        weights.resize(pull.len(), 0.0);
        let mut answer = Answer { sparse_bytes, ..Answer::default() };
        for server in 0..self.servers.len() {
            let head = self.receive(server, message::VALUES, "waiting for weights")?;
            let part = self.servers[server].part.clone();
            let inside = within(pull, &part);
            let floats = match (&self.dense, pull.is_empty()) {
                (_, true) => 0,
                (Some(_), _) => part.len(),
                (None, _) => inside.len(),
            };
            if head.length != (ValuesHead::BYTES + 4 * floats) as u64 {
                return Err(self.protocol_error(server, head));
            }
            let mut fixed = [0; ValuesHead::BYTES];
            let receiver = &mut self.servers[server].link.receiver;
            receiver.read(&mut fixed)?;
            let values = ValuesHead::read(&fixed);
            match &mut self.dense {
                _ if floats == 0 => {}
                Some(dense) => receiver.read(bytes::of_mut(&mut dense.weights[part]))?,
                None => receiver.read(bytes::of_mut(&mut weights[inside]))?,
            }
            answer.wait = answer.wait.max(values.held);
            answer.stop |= values.stop;
            if server == 0 {
                (answer.version, answer.examples) = (head.number, values.examples);
                answer.staleness = values.staleness;
            }
        }
        if let Some(dense) = &self.dense {
            for (weight, index) in weights.iter_mut().zip(pull) {
                *weight = dense.weights[*index as usize];
            }
        }
        self.version = answer.version;
        self.turn += u64::from(push.is_some());
        let all = nanoseconds(begun);
        answer.exchange = all.saturating_sub(answer.wait);
        Ok(answer)
    }

    /// Sends a step to all servers; returns the bytes that sparse transfer takes both ways.
    fn send(
        &mut self,
        push: Option<&Push<'_>>,
        pull: &[u32],
        stop: bool,
    ) -> Result<u64, StrategyError> {
        let mut sparse_bytes = 0;
        if let (Some(dense), Some(push)) = (&mut self.dense, push) {
            for (index, grad) in push.touched.iter().zip(push.grads) {
                dense.grads[*index as usize] = *grad;
            }
            for (index, size) in push.touched.iter().zip(push.sizes) {
                dense.sizes[*index as usize] = *size;
            }
        }
        for server in &mut self.servers {
            let part = &server.part;
            let wanted = within(pull, part);
            self.encoded.clear();
            indices::encode(&pull[wanted.clone()], first_of(part), &mut self.encoded);
            let pushed = push.map_or(0..0, |push| within(push.touched, part));
            sparse_bytes += self.encoded.len() + 4 * (wanted.len() + pushed.len());
            let mut head = StepHead { stop, ..StepHead::default() };
            if let Some(push) = push {
                head.push = if self.dense.is_some() { Form::Dense } else { Form::Sparse };
                (head.examples, head.mark) = (push.examples, push.mark);
                head.turn = self.turn + 1;
                head.sized = !push.sizes.is_empty();
            }
            let (grads, sizes) = match (&self.dense, push) {
                (_, None) => (&[][..], &[][..]),
                (Some(dense), Some(_)) => (&dense.grads[part.clone()], &dense.sizes[part.clone()]),
                (None, Some(push)) => {
                    (&push.grads[pushed.clone()], push.sizes.get(pushed).unwrap_or_default())
                }
            };
            self.sizes.clear();
            if head.sized {
                sparse_bytes += 2 * sizes.len();
                self.sizes.extend(sizes.iter().flat_map(|size| size.to_bits().to_le_bytes()));
            }
            if self.dense.is_some() {
                head.pull = if pull.is_empty() { Form::None } else { Form::Dense };
                self.encoded.clear();
            } else if !pull.is_empty() {
                head.pull = Form::Sparse;
                head.count = u32::try_from(wanted.len()).expect("indices are u32");
                head.bytes = u32::try_from(self.encoded.len()).expect("5 bytes at most each");
            }
            let body = [&head.write()[..], bytes::of(grads), &self.sizes, &self.encoded];
            server.send(message::STEP, self.version, &body, self.version)?;
        }
        if let (Some(dense), Some(push)) = (&mut self.dense, push) {
            for index in push.touched {
                dense.grads[*index as usize] = 0.0;
                dense.sizes[*index as usize] = Size::default();
            }
        }
        Ok(sparse_bytes as u64)
    }

    /// This worker's files have ended: waits until those of all workers have. Returns the updates of the run.
    ///
    /// # Errors
    /// Names the task that is missing.
    pub fn end(&mut self) -> Result<u64, StrategyError> {
        for server in &mut self.servers {
            server.send(message::END, 0, &[], 0)?;
        }
        let mut version = 0;
        for server in 0..self.servers.len() {
            let head = self.receive(server, message::ENDED, "waiting for the other workers")?;
            if server == 0 {
                version = head.number;
            }
        }
        Ok(version)
    }

    /// Bytes that went over links so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let links = self.servers.iter().map(ServerLink::traffic);
        links.fold(self.before, |sum, link| Traffic {
            sent: sum.sent + link.sent,
            received: sum.received + link.received,
        })
    }

    fn receive(&mut self, server: usize, kind: u8, phase: &str) -> Result<Head, StrategyError> {
        self.servers[server].receive(kind, phase, self.options.patience, self.version)
    }

    fn protocol_error(&self, server: usize, head: Head) -> StrategyError {
        self.servers[server].protocol_error(head)
    }
}

/// Where those of ascending `indices` stand that lie in `part`.
fn within(indices: &[u32], part: &Range<usize>) -> Range<usize> {
    let below = |end: usize| indices.partition_point(|index| (*index as usize) < end);
    below(part.start)..below(part.end)
}

/// The number of the first weight of a part.
fn first_of(part: &Range<usize>) -> u32 {
    u32::try_from(part.start).unwrap_or(u32::MAX)
}
