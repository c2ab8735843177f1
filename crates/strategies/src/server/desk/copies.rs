//! What concerns all workers at once: sums over them, and copies of one version.

use super::{Desk, Failure};
use crate::{
    bytes,
    server::{
        Interrupted,
        core::{Core, Hold},
        message,
        tickets::Done,
    },
};
use paceline_cluster::{Head, Link};
use std::time::Duration;

/// How long a server waits for updates that other servers have and it has not.
const CATCH_UP: Duration = Duration::from_secs(2);

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
        let done = core.done.write();
        drop(core);
        link.sender.send(message::HELD, 0, &[&done])?;
        Ok(())
    }

    pub(super) fn cut(&mut self, link: &mut Link, head: Head) -> Result<(), Failure> {
        if head.length > message::MOST_SET {
            return Err(link.receiver.too_long(head.length, message::MOST_SET).into());
        }
        self.bytes.resize(usize::try_from(head.length).unwrap_or(0), 0);
        link.receiver.read(&mut self.bytes)?;
        let Ok(target) = Done::read(&self.bytes) else {
            return Err(self.odd(link, "a set of batches that is none".to_owned()).into());
        };
        let server = self.server;
        let mut core = server.locked();
        if let Some(hold) = &mut core.hold {
            hold.target = Some(target.clone());
            server.changed.notify_all();
        }
        let missing = |core: &Core| !core.done.covers(&target);
        let mut core = match server.wait_while(core, CATCH_UP, missing) {
            Ok(core) => core,
            Err(Interrupted::Late) => {
                // Their worker died in the middle of sending: this part goes without them.
                let mut core = server.locked();
                core.done.add(&target);
                core.version = core.done.below + core.done.beyond.len() as u64;
                core
            }
            Err(reason) => return Err(reason.into()),
        };
        let params = core.part.params.clone();
        let slots: Vec<Vec<f32>> = core.part.slots().map(<[f32]>::to_vec).collect();
        let (version, done) = (core.version, core.done.write());
        let outstanding = if server.synchronous { Vec::new() } else { core.tickets.outstanding() };
        core.hold = None;
        drop(core);
        server.wake();
        let outstanding = message::write_numbers(outstanding);
        let sizes = message::write_numbers([outstanding.len() as u64, done.len() as u64]);
        let mut payload: Vec<&[u8]> = vec![&sizes, &outstanding, &done, bytes::of(&params)];
        payload.extend(slots.iter().map(|slot| bytes::of(slot)));
        link.sender.send(message::STATE, version, &payload)?;
        Ok(())
    }
}
