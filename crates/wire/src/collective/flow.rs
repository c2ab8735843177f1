//! All-reduce of large buffers over streams: sending and receiving at once, in one thread.
//!
//! With two ranks each sends all it has and adds what comes: as many bytes as any other way, in one
//! step. With more it is a ring. Cut the buffer into as many chunks as there are ranks; rank `r`
//! sends chunks `r, r-1, r-2, …` to the right while chunks `r-1, r-2, …` come from the left, first to be
//! added (until each chunk has met every rank), then to be stored. What comes in as the k-th chunk goes
//! out as the k+1-th, so the whole is two streams, and the only rule is: nothing leaves before
//! it has come. So the front of a chunk travels on while its end is still arriving.
//!
//! Order of addition depends on the ranks alone, never on timing, and with more than two ranks each chunk's sum is made in
//! one place and copied: all ranks end with the same bits.

use super::number::{Number, add, bytes, bytes_mut};
use crate::error::LinkError;
use crate::frame::Peer;
use crate::link::{Head, Link, Receiver, Sender, Wait};
use crate::transport::patience::Patience;
use crate::transport::tcp::{Ready, sleep_on};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

/// Messages of a collective carry this kind and a sequence number, so that ranks notice when they run different
/// collectives.
pub(super) const KIND: u8 = 0xC0;

/// Bytes handed to the transport at once, and room for what came. On loopback a TCP segment holds just
/// under 64 KiB: a piece that fits into one, head or encryption included, is twice as fast as one that
/// spills a few bytes into a second. Nor may it leave much room in the segment, which the kernel fills up with
/// the beginning of the next piece: at 60 KiB a megabyte takes 640 us, at 62 KiB 370.
const PIECE: usize = 62 << 10;

/// A look at the flag and the deadline at least this often while asleep.
const GLANCE: Duration = Duration::from_millis(20);

/// The two ends a rank sends to and receives from.
pub(super) struct Ends<'a> {
    pub(super) to: &'a mut dyn Sender,
    pub(super) from: &'a mut dyn Receiver,
    pub(super) to_peer: &'a Peer,
    pub(super) from_peer: &'a Peer,
}

impl<'a> Ends<'a> {
    pub(super) fn of(link: &'a mut Link, peer: &'a Peer) -> Self {
        Self { to: &mut *link.sender, from: &mut *link.receiver, to_peer: peer, from_peer: peer }
    }
}

/// What is sent and received when, in numbers of the buffer.
pub(super) struct Route {
    /// Ranges that go out, in order.
    out: Vec<Range<usize>>,
    /// Ranges that come in, in order; the first `added` of them are added, the others stored.
    into: Vec<Range<usize>>,
    added: usize,
    /// How many numbers may leave before anything has come.
    head_start: usize,
    /// Whether a range that comes in may still have to go out: then it waits until it is gone.
    mirrored: bool,
}

impl Route {
    /// Two ranks: everything both ways.
    pub(super) fn both(length: usize) -> Self {
        let all = || std::iter::once(0..length).collect();
        Self { out: all(), into: all(), added: 1, head_start: length, mirrored: true }
    }

    /// A ring of `size` ranks.
    pub(super) fn ring(rank: usize, size: usize, length: usize) -> Self {
        let chunk = |index: usize| index * length / size..(index + 1) * length / size;
        let steps = 2 * (size - 1);
        // Chunk `rank - step`, kept from going below zero.
        let at = |step: usize| chunk((rank + 2 * size - step) % size);
        let out: Vec<_> = (0..steps).map(at).collect();
        let into: Vec<_> = (1..=steps).map(at).collect();
        let head_start = out[0].len();
        Self { out, into, added: size - 1, head_start, mirrored: false }
    }

    /// Around a ring: each rank's part, as it is, to all others.
    pub(super) fn gather(rank: usize, lengths: &[usize]) -> Self {
        let size = lengths.len();
        let part = |index: usize| {
            let start = lengths[..index].iter().sum::<usize>();
            start..start + lengths[index]
        };
        let at = |step: usize| part((rank + size - step) % size);
        let out: Vec<_> = (0..size - 1).map(at).collect();
        let into: Vec<_> = (1..size).map(at).collect();
        Self { head_start: lengths[rank], out, into, added: 0, mirrored: false }
    }

    /// The first numbers go out, the others come in.
    pub(super) fn swap(out: usize, into: usize) -> Self {
        let one = |range: Range<usize>| std::iter::once(range).collect();
        let (gone, come) = (one(0..out), one(out..out + into));
        Self { out: gone, into: come, added: 0, head_start: out, mirrored: false }
    }

    fn total(ranges: &[Range<usize>]) -> usize {
        ranges.iter().map(ExactSizeIterator::len).sum()
    }
}

/// A place in a list of ranges.
struct Cursor {
    range: usize,
    within: usize,
    /// Numbers passed so far.
    passed: usize,
}

impl Cursor {
    fn new() -> Self {
        Self { range: 0, within: 0, passed: 0 }
    }

    /// The part of the present range that lies ahead, at most `most` numbers. Empty at the end.
    fn ahead(&mut self, ranges: &[Range<usize>], most: usize) -> Range<usize> {
        while self.range < ranges.len() && self.within == ranges[self.range].len() {
            self.range += 1;
            self.within = 0;
        }
        let Some(range) = ranges.get(self.range) else { return 0..0 };
        let start = range.start + self.within;
        start..range.end.min(start + most)
    }

    fn advance(&mut self, count: usize) {
        self.within += count;
        self.passed += count;
    }
}

/// Buffers that outlive a call.
pub(super) struct Room {
    bytes: Vec<u8>,
    patience: Patience,
}

impl Room {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), patience: Patience::new() }
    }
}

/// Runs one all-reduce along a route. A trailer of small size rides at the end of the same message,
/// with two ranks only.
pub(super) fn run<T: Number>(
    ends: &mut Ends<'_>,
    route: &Route,
    number: u64,
    data: &mut [T],
    trailer: &mut [f64],
    room: &mut Room,
    wait: &Wait<'_>,
) -> Result<(), LinkError> {
    let size = size_of::<T>();
    let (out_total, in_total) = (Route::total(&route.out), Route::total(&route.into));
    let riding = size_of_val(trailer);
    let began = Instant::now();
    let out_length = (out_total * size + riding) as u64;
    let in_length = (in_total * size + riding) as u64;
    ends.from.expect(wait);
    ends.to.start(Head { kind: KIND, number, length: out_length })?;

    room.bytes.resize(PIECE, 0);
    let own_trailer = trailer.to_vec();
    let (mut out, mut into) = (Cursor::new(), Cursor::new());
    // Bytes of the number at `out` that have left already, and of the trailer.
    let (mut split, mut trailer_sent, mut trailer_here) = (0, 0, 0);
    // The part of `room` that came and is not yet added or stored.
    let mut here = 0..0;
    let mut headed = false;
    loop {
        let mut moved = false;
        // Whether the transport, and not the order of things, holds a direction up.
        let (mut full, mut empty) = (false, true);

        if out.passed < out_total {
            let may = (route.head_start + into.passed).min(out_total) - out.passed;
            let ahead = out.ahead(&route.out, may.min(PIECE / size));
            if !ahead.is_empty() {
                let count = ends.to.push(&bytes(&data[ahead])[split..])?;
                moved |= count > 0;
                full = true;
                let whole = (split + count) / size;
                split = (split + count) % size;
                out.advance(whole);
            }
        } else if trailer_sent < riding {
            let count = ends.to.push(&bytes(&own_trailer)[trailer_sent..])?;
            trailer_sent += count;
            moved |= count > 0;
            full = true;
        } else if !ends.to.flushed() {
            ends.to.push(&[])?;
            moved |= ends.to.flushed();
            full = true;
        }

        if !headed {
            if let Some(head) = ends.from.poll()? {
                check(&head, number, in_length, ends.from_peer)?;
                (headed, moved) = (true, true);
            }
        } else if into.passed * size + here.len() < in_total * size {
            let most = room.bytes.len().min(here.start + in_total * size - into.passed * size);
            if here.end < most {
                let count = ends.from.take(&mut room.bytes[here.end..most])?;
                here.end += count;
                moved |= count > 0;
            } else {
                empty = false;
            }
        } else if into.passed == in_total && trailer_here < riding {
            let count = ends.from.take(&mut bytes_mut(trailer)[trailer_here..])?;
            trailer_here += count;
            moved |= count > 0;
        }

        // Use what came, but never over something that still has to go out.
        loop {
            let most = here.len() / size;
            let gone = if route.mirrored { out.passed - into.passed.min(out.passed) } else { most };
            let ahead = into.ahead(&route.into, most.min(gone));
            if ahead.is_empty() {
                break;
            }
            let added = into.range < route.added;
            let count = ahead.len();
            let piece = &room.bytes[here.start..here.start + count * size];
            if added {
                add_bytes(&mut data[ahead], piece);
            } else {
                bytes_mut(&mut data[ahead]).copy_from_slice(piece);
            }
            here.start += count * size;
            into.advance(count);
            moved = true;
        }
        // Keep whole numbers at aligned places: move a torn one to the front.
        if here.start == here.end {
            here = 0..0;
        } else if here.start > 0 && (here.end == room.bytes.len() || here.len() < size) {
            room.bytes.copy_within(here.clone(), 0);
            here = 0..here.len();
        }

        if moved {
            room.patience.moved();
            continue;
        }
        let sent = out.passed == out_total && trailer_sent == riding && ends.to.flushed();
        let received = into.passed == in_total && trailer_here == riding && headed;
        if sent && received {
            break;
        }
        if room.patience.look_again() {
            continue;
        }
        let peer = if received { ends.to_peer } else { ends.from_peer };
        if wait.cancelled() {
            return Err(peer.cancelled(wait.phase));
        }
        let left = wait.left();
        if left.is_zero() {
            return Err(peer.timed_out(wait.phase, began.elapsed()));
        }
        let before = Instant::now();
        sleep(ends, full, empty && !received, left.min(GLANCE))
            .map_err(|e| peer.lost(wait.phase, e))?;
        room.patience.slept(before.elapsed());
    }
    add_trailer(trailer, &own_trailer);
    Ok(())
}

/// Both ranks add the same two values; which comes first does not matter for a sum of two.
fn add_trailer(received: &mut [f64], own: &[f64]) {
    add(received, own);
}

/// Adds numbers that lie in a byte buffer.
#[allow(unsafe_code)]
fn add_bytes<T: Number>(sums: &mut [T], piece: &[u8]) {
    // SAFETY: every pattern of bits is a `Number`; `align_to` itself sees to alignment and length.
    let (before, numbers, after) = unsafe { piece.align_to::<T>() };
    if before.is_empty() && after.is_empty() {
        return add(sums, numbers);
    }
    for (sum, chunk) in sums.iter_mut().zip(piece.chunks_exact(size_of::<T>())) {
        let mut value = [T::default()];
        bytes_mut(&mut value).copy_from_slice(chunk);
        *sum += value[0];
    }
}

/// Ranks must be at the same call with the same length.
pub(super) fn check(head: &Head, number: u64, length: u64, peer: &Peer) -> Result<(), LinkError> {
    if head.kind == KIND && head.number == number && head.length == length {
        return Ok(());
    }
    let found =
        format!("collective {} of {} bytes (kind {:#04x})", head.number, head.length, head.kind);
    Err(peer.protocol(found, &format!("collective {number} of {length} bytes")))
}

/// Sleeps until there is room to send, or data, as asked for.
fn sleep(ends: &Ends<'_>, room: bool, data: bool, limit: Duration) -> std::io::Result<()> {
    let (Some(from), Some(to)) = (ends.from.socket(), ends.to.socket()) else {
        // Without sockets there is nothing to wait for two things on; look again soon.
        thread::sleep(limit.min(Duration::from_micros(100)));
        return Ok(());
    };
    let (read, write) = ((from, Ready::Read), (to, Ready::Write));
    match (data, room) {
        (true, true) => sleep_on(&[read, write], limit),
        (false, true) => sleep_on(&[write], limit),
        _ => sleep_on(&[read], limit),
    }
}
