//! What concerns all workers at once: sums over them, and copies of one version.

use super::{Desk, Failure};
use crate::{
    bytes,
    server::{
        core::{Core, Hold},
        message,
        tickets::Progress,
    },
};
use paceline_wire::{Head, Link};

impl Desk<'_> {
    pub(super) fn sum(&mut self, link: &mut Link, head: Head) -> Result<(), Failure> {
        if head.length > message::MOST_SUMS || !head.length.is_multiple_of(8) {
            return Err(link.receiver.too_long(head.length, message::MOST_SUMS).into());
        }
        self.bytes.resize(usize::try_from(head.length).unwrap_or(0), 0);
        link.receiver.read(&mut self.bytes)?;
        let (words, _) = self.bytes.as_chunks::<8>();
        let values: Vec<f64> = words.iter().map(|word| f64::from_le_bytes(*word)).collect();
        let server = self.server;
        let mut core = server.locked();
        let round = core.meeting.round;
        core.meeting.brought[self.rank] = Some(values);
        core.close_meeting();
        if core.meeting.round != round && core.waiting > 0 {
            server.changed.notify_all();
        }
        let core =
            server.wait_while(core, server.options.patience, |core| core.meeting.round == round)?;
        let sums: Vec<u8> = core.meeting.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        drop(core);
        link.sender.send(message::SUMS, 0, &[&sums])?;
        Ok(())
    }

    pub(super) fn hold(&mut self, link: &mut Link) -> Result<(), Failure> {
        let mut core = self.server.locked();
        core.hold = Some(Hold { by: self.rank, target: None });
        let progress = core.progress().write();
        drop(core);
        link.sender.send(message::HELD, 0, &[&progress])?;
        Ok(())
    }

    pub(super) fn cut(&mut self, link: &mut Link, head: Head) -> Result<(), Failure> {
        if head.length > message::MOST_SET {
            return Err(link.receiver.too_long(head.length, message::MOST_SET).into());
        }
        self.bytes.resize(usize::try_from(head.length).unwrap_or(0), 0);
        link.receiver.read(&mut self.bytes)?;
        let Ok(target) = Progress::read(&self.bytes) else {
            return Err(self.odd(link, "a set of batches that is none".to_owned()).into());
        };
        let server = self.server;
        let mut core = server.locked();
        if let Some(hold) = &mut core.hold {
            hold.target = Some(target.done.clone());
            server.changed.notify_all();
        }
        core.await_batches(&target.brought);
        // In step nobody's gradient can be missing for good: a loss ends the generation.
        let missing = |core: &Core| {
            if server.synchronous { !core.done.covers(&target.done) } else { core.awaits() }
        };
        let mut core = server.wait_while(core, server.options.patience, missing)?;
        if !core.done.covers(&target.done) {
            core.go_without(&target.done);
        }
        let params = core.part.params.clone();
        let slots: Vec<Vec<f32>> = core.part.slots().map(<[f32]>::to_vec).collect();
        let (version, progress) = (core.version, core.progress().write());
        let outstanding = if server.synchronous { Vec::new() } else { core.tickets.outstanding() };
        core.hold = None;
        drop(core);
        server.wake();
        let outstanding = message::write_numbers(outstanding);
        let sizes = message::write_numbers([outstanding.len() as u64, progress.len() as u64]);
        let mut payload: Vec<&[u8]> = vec![&sizes, &outstanding, &progress, bytes::of(&params)];
        payload.extend(slots.iter().map(|slot| bytes::of(slot)));
        link.sender.send(message::STATE, version, &payload)?;
        Ok(())
    }
}
