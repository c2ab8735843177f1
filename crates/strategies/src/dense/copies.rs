//! What concerns all workers at once: sums over them, and copies of one version.

use super::{DenseTable, message, tickets::Progress};
use crate::{
    bytes,
    protocol::protocol_error,
    server::{Failure, Interrupted, WorkerSession},
};
use paceline_wire::{Head, Link};

impl WorkerSession<'_, DenseTable> {
    pub(super) fn sum(&mut self, link: &mut Link, head: Head) -> Result<(), Failure> {
        if head.length > message::MOST_SUMS || !head.length.is_multiple_of(8) {
            return Err(link.receiver.too_long(head.length, message::MOST_SUMS).into());
        }
        self.buffers.bytes.resize(usize::try_from(head.length).unwrap_or(0), 0);
        link.receiver.read(&mut self.buffers.bytes)?;
        let (words, _) = self.buffers.bytes.as_chunks::<8>();
        let values: Vec<f64> = words.iter().map(|word| f64::from_le_bytes(*word)).collect();
        let server = self.server;
        let mut core = server.locked();
        let round = core.ledger.meeting.round;
        core.ledger.meeting.brought[self.rank] = Some(values);
        core.close_meeting();
        if core.ledger.meeting.round != round {
            server.notify(&core);
        }
        let core = server.wait_while(core, |core| core.ledger.meeting.round == round)?;
        let sums: Vec<u8> =
            core.ledger.meeting.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        drop(core);
        link.sender.send(message::SUMS, 0, &[&sums])?;
        Ok(())
    }

    pub(super) fn hold(&mut self, link: &mut Link) -> Result<(), Failure> {
        let progress = self.server.hold(Some(self.rank))?.write();
        link.sender.send(message::HELD, 0, &[&progress])?;
        Ok(())
    }

    pub(super) fn cut(&mut self, link: &mut Link, head: Head) -> Result<(), Failure> {
        if head.length > message::MOST_SET {
            return Err(link.receiver.too_long(head.length, message::MOST_SET).into());
        }
        self.buffers.bytes.resize(usize::try_from(head.length).unwrap_or(0), 0);
        link.receiver.read(&mut self.buffers.bytes)?;
        let Ok(target) = Progress::read(&self.buffers.bytes) else {
            return Err(protocol_error(link, "a damaged set of batches").into());
        };
        let server = self.server;
        let Some(mut core) = server.catch_up(&target)? else {
            return Err(Interrupted::Late.into());
        };
        let params = core.ledger.part.params.clone();
        let slots: Vec<Vec<f32>> = core.ledger.part.slots().map(<[f32]>::to_vec).collect();
        let (version, progress) = (core.ledger.version, core.ledger.progress().write());
        let outstanding =
            if server.table.synchronous { Vec::new() } else { core.ledger.tickets.outstanding() };
        server.release_locked(&mut core);
        drop(core);
        let outstanding = message::write_numbers(outstanding);
        let sizes = message::write_numbers([outstanding.len() as u64, progress.len() as u64]);
        let mut payload: Vec<&[u8]> = vec![&sizes, &outstanding, &progress, bytes::of(&params)];
        payload.extend(slots.iter().map(|slot| bytes::of(slot)));
        link.sender.send(message::STATE, version, &payload)?;
        Ok(())
    }
}
