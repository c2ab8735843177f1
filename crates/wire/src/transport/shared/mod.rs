//! Two processes of one machine: a ring of bytes in shared memory for each direction.
//!
//! The TCP connection over which the two proved themselves stays open and silent. When a process
//! dies, however it dies, the system closes its end, and that is how the other learns of it: shared memory
//! itself never tells. Memory does not leave the machine, so nothing is encrypted here.
//!
//! The other process has the key, but its numbers are checked all the same: positions that make no sense
//! end the link, and no pointer or length ever comes out of shared memory.

#![allow(unsafe_code)]

pub(crate) mod counter;
mod follow;
pub(crate) mod region;
mod window;

pub use window::Window;

use self::counter::Counter;
use self::follow::Follower;
use self::region::Region;
use super::patience::Patience;
use super::{Inlet, Outlet};
use crate::frame::{FramedReceiver, FramedSender, Peer};
use crate::link::{Closer, Link};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes a direction holds. Both rings together stay in a core's second-level cache.
const RING: usize = 512 << 10;
/// Bytes copied before the other side is told: it works on them while the next are copied.
const STRIDE: usize = 32 << 10;
/// Bytes of a link's shared memory.
pub(crate) const BYTES: usize = size_of::<Header>() + 2 * RING;

/// One direction. Positions only grow; modulo `RING` they are places.
#[repr(C)]
struct RingHeader {
    /// Bytes written so far; raised by the writer.
    written: Counter,
    /// Bytes read so far; raised by the reader.
    read: Counter,
    /// The writer will write no more.
    ended: AtomicU32,
    /// The reader will read no more.
    refused: AtomicU32,
    /// The core the writer was on when it last wrote, plus one.
    core: AtomicU32,
}

#[repr(C)]
struct Header {
    rings: [RingHeader; 2],
}

/// The memory and the connection of a link.
pub(crate) struct Pair {
    region: Region,
    stream: TcpStream,
    /// 0 for the one that dialled, 1 for the other: which ring it writes.
    side: usize,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pair, side {}", self.side)
    }
}

impl Pair {
    fn header(&self) -> &Header {
        // SAFETY: the payload is larger than a header, page-aligned, zero at first, and both processes use
        // it only as the atomics it consists of.
        unsafe { self.region.payload().cast::<Header>().as_ref() }
    }

    fn ring(&self, side: usize) -> (&RingHeader, *mut u8) {
        // SAFETY: two rings follow the header; see `BYTES`.
        let data = unsafe { self.region.payload().add(size_of::<Header>() + side * RING) };
        (&self.header().rings[side], data.as_ptr())
    }

    /// An error if the other process is gone or has closed the link.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.stream.peek(&mut [0]) {
            Ok(0) => {
                Err(io::Error::new(io::ErrorKind::ConnectionReset, "the connection was closed"))
            }
            // Only a farewell can come here, and its end follows.
            Ok(_) => Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the other side was last seen on another core than this thread's.
    fn apart(&self) -> bool {
        self.ring(1 - self.side).0.core.load(Ordering::Relaxed) != follow::here()
    }

    fn close(&self) {
        for ring in &self.header().rings {
            ring.ended.store(1, Ordering::SeqCst);
            ring.refused.store(1, Ordering::SeqCst);
            ring.written.wake();
            ring.read.wake();
        }
        // It may be closed already.
        drop(self.stream.shutdown(Shutdown::Both));
    }
}

struct RingOutlet {
    pair: Arc<Pair>,
    written: u64,
    /// As last seen.
    read: u64,
    patience: Patience,
}

/// Bytes between two positions, which must make sense.
fn between(read: u64, written: u64) -> io::Result<usize> {
    let bytes = written.wrapping_sub(read);
    if bytes <= RING as u64 {
        return Ok(bytes as usize);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "shared memory holds positions that make no sense",
    ))
}

impl RingOutlet {
    fn room(&mut self) -> io::Result<usize> {
        self.read = self.pair.ring(self.pair.side).0.read.get();
        Ok(RING - between(self.read, self.written)?)
    }
}

impl Outlet for RingOutlet {
    fn offer(&mut self, parts: &[&[u8]]) -> io::Result<usize> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        let mut room = RING - between(self.read, self.written)?;
        if room < wanted.min(RING / 2) {
            room = self.room()?;
        }
        let pair = Arc::clone(&self.pair);
        let (ring, data) = pair.ring(pair.side);
        if ring.refused.load(Ordering::Relaxed) != 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        ring.core.store(follow::here(), Ordering::Relaxed);
        let (mut moved, mut told) = (0, 0);
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() && room > 0 {
                let place = (self.written % RING as u64) as usize;
                let count = rest.len().min(room).min(RING - place).min(STRIDE);
                // SAFETY: `place + count <= RING`, and these bytes are free: the reader has passed
                // them (`room`) and this is the only writer of the ring.
                unsafe { data.add(place).copy_from_nonoverlapping(rest.as_ptr(), count) };
                self.written += count as u64;
                rest = &rest[count..];
                moved += count;
                room -= count;
                if moved - told >= STRIDE {
                    ring.written.set(self.written);
                    told = moved;
                }
            }
        }
        if moved > told {
            ring.written.set(self.written);
        }
        Ok(moved)
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let pair = Arc::clone(&self.pair);
        let ring = pair.ring(pair.side).0;
        let (seen, written) = (self.read, self.written);
        // Worth waking for: a stride of room, or the end.
        let enough = || {
            written.wrapping_sub(ring.read.get()) <= (RING - STRIDE) as u64
                || ring.refused.load(Ordering::Relaxed) != 0
        };
        // The reader works on what it has: its own ring tells where.
        let apart = pair.apart();
        wait(&pair, &ring.read, &mut self.patience, (apart, limit), seen, enough)
    }
}

impl Drop for RingOutlet {
    fn drop(&mut self) {
        let ring = self.pair.ring(self.pair.side).0;
        ring.ended.store(1, Ordering::SeqCst);
        ring.written.wake();
    }
}

struct RingInlet {
    pair: Arc<Pair>,
    read: u64,
    /// As last seen.
    written: u64,
    patience: Patience,
    /// The thread that waits here, if it goes where the other side is.
    follower: Option<Follower>,
}

impl Inlet for RingInlet {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let pair = Arc::clone(&self.pair);
        let (ring, data) = pair.ring(1 - pair.side);
        if self.written == self.read {
            // Asked before the position: what was written before the end is not lost.
            let ended = ring.ended.load(Ordering::SeqCst) != 0;
            self.written = ring.written.get();
            if self.written == self.read {
                return Ok(ended.then_some(0));
            }
        }
        let here = between(self.read, self.written)?;
        let (mut moved, most) = (0, here.min(into.len()));
        while moved < most {
            let place = (self.read % RING as u64) as usize;
            let count = (most - moved).min(RING - place).min(STRIDE);
            // SAFETY: `place + count <= RING`; the writer has written these bytes and will not
            // write them again before `read` passes them.
            unsafe { data.add(place).copy_to_nonoverlapping(into[moved..].as_mut_ptr(), count) };
            self.read += count as u64;
            moved += count;
            ring.read.set(self.read);
        }
        Ok(Some(moved))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let pair = Arc::clone(&self.pair);
        let ring = pair.ring(1 - pair.side).0;
        let seen = self.written;
        let enough = || ring.written.get() != seen || ring.ended.load(Ordering::Relaxed) != 0;
        if let Some(follower) = self.follower.as_mut().filter(|_| !enough()) {
            follower.go(ring.core.load(Ordering::Relaxed));
        }
        let apart = pair.apart();
        wait(&pair, &ring.written, &mut self.patience, (apart, limit), seen, enough)
    }

    fn follow(&mut self) {
        // Where the system does not tell, the thread stays free.
        self.follower = Follower::new().ok();
    }
}

impl Drop for RingInlet {
    fn drop(&mut self) {
        let ring = self.pair.ring(1 - self.pair.side).0;
        ring.refused.store(1, Ordering::SeqCst);
        ring.read.wake();
    }
}

/// Waits for a counter; when nothing moves, asks whether the other process still lives.
fn wait(
    pair: &Pair,
    counter: &Counter,
    patience: &mut Patience,
    (apart, limit): (bool, Duration),
    seen: u64,
    enough: impl Fn() -> bool,
) -> io::Result<()> {
    // On a common core, looking only keeps the other side from running.
    if enough() || (apart && patience.look(|| Ok(enough()))?) {
        return Ok(());
    }
    let began = Instant::now();
    counter.sleep(limit, &enough);
    patience.slept(began.elapsed());
    if counter.get() == seen && !enough() { pair.check() } else { Ok(()) }
}

/// A link over shared memory between processes that have proved themselves over `stream`.
pub(crate) fn link(region: Region, stream: TcpStream, side: usize, peer: Peer) -> io::Result<Link> {
    stream.set_nonblocking(true)?;
    let pair = Arc::new(Pair { region, stream, side });
    let closed = Arc::downgrade(&pair);
    let outlet =
        RingOutlet { pair: Arc::clone(&pair), written: 0, read: 0, patience: Patience::new() };
    let inlet = RingInlet {
        pair: Arc::clone(&pair),
        read: 0,
        written: 0,
        patience: Patience::new(),
        follower: None,
    };
    Ok(Link {
        peer: peer.task,
        address: peer.address.clone(),
        sender: Box::new(FramedSender::new(outlet, peer.clone())),
        receiver: Box::new(FramedReceiver::new(inlet, peer)),
        closer: Closer::new(move || {
            if let Some(pair) = closed.upgrade() {
                pair.close();
            }
        }),
        carrier: "shared memory",
        pair: Some(pair),
    })
}
