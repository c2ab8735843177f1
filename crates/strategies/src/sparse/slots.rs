//! A server's weights and their state as messages: only the slots that were ever touched, some at a time,
//! so that neither side holds a second copy.

use super::indices;
use super::message::{BEGIN, LAST, SLOTS};
use super::overseer::Beginning;
use super::standing::Standing;
use crate::{
    bytes,
    protocol::{payload, protocol_error_of, unexpected},
};
use paceline_models::sparse_logistic::Table;
use paceline_wire::{Head, Link, LinkError, Wait};
use std::ops::Range;

/// Slots of one message: about a megabyte.
const CHUNK: usize = 1 << 16;
/// Longest head of a copy: tens of thousands of workers.
pub(super) const LONGEST_HEAD: u64 = 1 << 22;
/// Longest message with slots: five bytes at most for a number, eight for its floats.
const LONGEST_SLOTS: u64 = 16 + 13 * CHUNK as u64;

/// Some slots on their way.
#[derive(Debug, Default)]
struct Chunk {
    numbers: Vec<u32>,
    encoded: Vec<u8>,
    floats: Vec<f32>,
}

impl Chunk {
    fn send(&mut self, link: &mut Link) -> Result<(), LinkError> {
        if self.numbers.is_empty() {
            return Ok(());
        }
        self.encoded.clear();
        indices::encode(&self.numbers, 0, &mut self.encoded);
        let (count, length) = (self.numbers.len() as u32, self.encoded.len() as u32);
        let head = [count.to_le_bytes(), length.to_le_bytes()].concat();
        link.sender.send(SLOTS, 0, &[&head, &self.encoded, bytes::of(&self.floats)])?;
        self.numbers.clear();
        self.floats.clear();
        Ok(())
    }

    fn push(&mut self, number: u32, slot: [f32; 2], link: &mut Link) -> Result<(), LinkError> {
        self.numbers.push(number);
        self.floats.extend(slot);
        if self.numbers.len() == CHUNK { self.send(link) } else { Ok(()) }
    }
}

/// Sends the head of a copy, then those of `slots` (numbers ascending within the part).
pub(super) fn send(
    link: &mut Link,
    lineage: u32,
    standing: &Standing,
    slots: impl Iterator<Item = (u32, [f32; 2])>,
) -> Result<(), LinkError> {
    link.sender.send(BEGIN, lineage.into(), &[&standing.write()])?;
    let mut chunk = Chunk::default();
    for (number, slot) in slots {
        chunk.push(number, slot, link)?;
    }
    chunk.send(link)?;
    link.sender.send(LAST, 0, &[])
}

/// Sends all weights of one version to a task that scores them.
///
/// # Errors
/// The task does not take them.
pub fn send_weights(link: &mut Link, version: &Beginning, table: &Table) -> Result<(), LinkError> {
    send(link, 0, &Standing::from(version), touched(table, 0..table.len()))
}

/// Receives what [`send_weights`] sends, whose first message has come, into a table of zeros.
///
/// # Errors
/// The rest does not come, or is damaged.
pub fn receive_weights(
    link: &mut Link,
    begin: Head,
    wait: &Wait<'_>,
    table: &Table,
) -> Result<Beginning, LinkError> {
    if begin.kind != BEGIN {
        return Err(unexpected(link, begin));
    }
    let take = |number: u32, slot| table.set(number as usize, slot);
    receive(link, begin, table.len(), wait, take).map(Into::into)
}

/// The slots of `part` that were ever touched, counted from its start.
pub(super) fn touched(
    table: &Table,
    part: Range<usize>,
) -> impl Iterator<Item = (u32, [f32; 2])> + '_ {
    let first = part.start;
    part.map(move |number| ((number - first) as u32, table.get(number)))
        .filter(|(_, slot)| *slot != [0.0; 2])
}

/// Receives the head of a copy whose message has come, then its slots.
pub(super) fn receive(
    link: &mut Link,
    begin: Head,
    length: usize,
    wait: &Wait<'_>,
    mut take: impl FnMut(u32, [f32; 2]),
) -> Result<Standing, LinkError> {
    let (task, address) = (link.peer, link.address.clone());
    let damaged = |found: String| protocol_error_of(task, &address, found);
    let receiver = &mut *link.receiver;
    let head = payload(receiver, begin, LONGEST_HEAD)?;
    let standing = Standing::read(&head);
    let standing = standing.ok_or_else(|| damaged("a damaged head of a copy".to_owned()))?;
    let (mut body, mut numbers) = (Vec::new(), Vec::new());
    loop {
        let head = receiver.receive_into(wait, LONGEST_SLOTS, &mut body)?;
        match head.kind {
            LAST => return Ok(standing),
            SLOTS => {}
            other => return Err(damaged(format!("a message of kind {other}"))),
        }
        let whole = body.split_first_chunk::<8>().and_then(|(sizes, rest)| {
            let count = bytes::u32_at(sizes, 0) as usize;
            let (encoded, floats) = rest.split_at_checked(bytes::u32_at(sizes, 4) as usize)?;
            indices::decode(encoded, count, length, &mut numbers).ok()?;
            (floats.len() == 8 * count).then_some(floats)
        });
        let floats = whole.ok_or_else(|| damaged("damaged slots".to_owned()))?;
        for (number, slot) in numbers.iter().zip(floats.as_chunks::<8>().0) {
            let half = |at: usize| f32::from_bits(bytes::u32_at(slot, at));
            take(*number, [half(0), half(4)]);
        }
    }
}
