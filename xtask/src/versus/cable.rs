//! A cable with a rate and a delay, for kernels without `netem`.
//!
//! Two tunnel devices and threads that carry packets from one to the other: each direction sends one
//! packet after another at the rate, and delivers it after the delay. Packets are large (the devices'
//! `mtu`), so that carrying them takes little of the processor that the run on top is to have.

use anyhow::Context;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The devices' largest packet, in bytes: as large as the protocol allows.
pub const MTU: &str = "65000";
/// Bytes that may wait for their turn; beyond that packets are lost, as in any router.
const MOST_WAITING: usize = 4 << 20;
/// `TUNSETIFF`, `IFF_TUN | IFF_NO_PI` of Linux's `if_tun.h`.
const SET_NAME: libc::c_ulong = 0x4004_54ca;
const BARE_PACKETS: libc::c_short = 0x1001;

/// Makes two devices of these names and carries packets between them until they are gone.
pub fn lay(names: [&str; 2], bytes_per_second: f64, delay: Duration) -> anyhow::Result<()> {
    let [a, b] = names;
    let [a, b] = [device(a)?, device(b)?];
    for (from, to) in [(a.try_clone()?, b.try_clone()?), (b, a)] {
        let waiting = Arc::new(Waiting::default());
        let taken = Arc::clone(&waiting);
        thread::spawn(move || taken.take(from, bytes_per_second, delay));
        thread::spawn(move || waiting.give(to));
    }
    Ok(())
}

#[allow(unsafe_code)]
fn device(name: &str) -> anyhow::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let file = file.context("no cable can be made: neither netem nor /dev/net/tun works here")?;
    // SAFETY: all zero is a valid request: an empty name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays zero: the end of the name.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = BARE_PACKETS;
    // SAFETY: the request lives through the call, which reads and writes nothing else of ours.
    if unsafe { libc::ioctl(file.as_raw_fd(), SET_NAME as _, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error()).context("cannot make a tunnel device");
    }
    Ok(file)
}

/// Packets on their way in one direction, each with the moment of its arrival.
#[derive(Default)]
struct Waiting {
    packets: Mutex<Packets>,
    arrived: Condvar,
}

#[derive(Default)]
struct Packets {
    queue: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    over: bool,
}

impl Waiting {
    fn take(&self, mut from: File, rate: f64, delay: Duration) {
        let mut buffer = vec![0; 1 << 16];
        let mut free = Instant::now();
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
            if packets.bytes + length > MOST_WAITING {
                continue;
            }
            free = free.max(Instant::now()) + Duration::from_secs_f64(length as f64 / rate);
            packets.bytes += length;
            packets.queue.push_back((free + delay, buffer[..length].to_vec()));
            self.arrived.notify_one();
        }
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.arrived.notify_one();
    }

    fn give(&self, mut to: File) {
        loop {
            let packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
            let empty = |packets: &mut Packets| packets.queue.is_empty() && !packets.over;
            let waited = self.arrived.wait_while(packets, empty);
            let mut packets = waited.unwrap_or_else(PoisonError::into_inner);
            let Some((at, packet)) = packets.queue.pop_front() else { return };
            drop(packets);
            thread::sleep(at.saturating_duration_since(Instant::now()));
            // A device that is not up yet loses it.
            let _ = to.write_all(&packet);
            // Counted as waiting until it is delivered: a router's queue holds what it is sending.
            self.packets.lock().unwrap_or_else(PoisonError::into_inner).bytes -= packet.len();
        }
    }
}
