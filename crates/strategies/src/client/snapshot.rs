//! A copy of all servers' weights and state, of one version.

use super::Client;
use crate::{
    Snapshot, StrategyError, Version, bytes,
    dense::{message, tickets::Progress},
};
use paceline_models::{kernels::Buffer, optimizer::OptimizerState};

impl Client {
    /// Weights and state of one version, from all servers; only for worker 0.
    pub(crate) fn snapshot(&mut self) -> Result<Option<Snapshot>, StrategyError> {
        if self.rank != 0 {
            return Ok(None);
        }
        let mut wanted = Progress::default();
        for remote in &mut self.remotes[1..] {
            remote.send(message::HOLD, 0, &[])?;
        }
        for server in 1..self.remotes.len() {
            let head = self.receive(server, message::HELD, "asking it to hold")?;
            let progress = self.small(server, head)?;
            let progress =
                Progress::read(&progress).map_err(|_| self.protocol_error(server, head))?;
            wanted.add(&progress);
        }
        let mut params = Buffer::zeroed(self.length);
        let mut state = self.optimizer.state();
        self.remotes[0].send(message::CUT, 0, &[&wanted.write()])?;
        let (version, outstanding, progress) = self.state(0, &mut params, &mut state)?;
        for remote in &mut self.remotes[1..] {
            remote.send(message::CUT, 0, &[&progress.write()])?;
        }
        for server in 1..self.remotes.len() {
            self.state(server, &mut params, &mut state)?;
        }
        Ok(Some(Snapshot { version: Version(version), params: Some(params), state, outstanding }))
    }

    /// Receives one server's part of a snapshot.
    fn state(
        &mut self,
        server: usize,
        params: &mut [f32],
        state: &mut OptimizerState,
    ) -> Result<(u64, Vec<u64>, Progress), StrategyError> {
        let head = self.receive(server, message::STATE, "waiting for a copy of its weights")?;
        let part = self.remotes[server].server.part.clone();
        let slots = self.optimizer.entry().slots.len();
        let floats = 4 * (part.len() * (1 + slots)) as u64;
        let mut sizes = [0; 16];
        if head.length < floats + 16 || head.length > floats + 2 * message::MOST_SET {
            return Err(self.protocol_error(server, head));
        }
        let receiver = &mut self.remotes[server].server.link.receiver;
        receiver.read(&mut sizes)?;
        let (first, second) = (bytes::u64_at(&sizes, 0), bytes::u64_at(&sizes, 8));
        if first.checked_add(second) != Some(head.length - floats - 16) {
            return Err(self.protocol_error(server, head));
        }
        let mut lists = vec![0; usize::try_from(first + second).expect("checked above")];
        receiver.read(&mut lists)?;
        receiver.read(bytes::of_mut(&mut params[part.clone()]))?;
        for buffer in state.buffers_mut().iter_mut().take(slots) {
            receiver.read(bytes::of_mut(&mut buffer[part.clone()]))?;
        }
        let (outstanding, progress) =
            lists.split_at(usize::try_from(first).expect("checked above"));
        match (message::read_numbers(outstanding), Progress::read(progress)) {
            (Ok(outstanding), Ok(progress)) => Ok((head.number, outstanding, progress)),
            _ => Err(self.protocol_error(server, head)),
        }
    }
}
