//! Connections that have not proved themselves: how many there may be, and what is said about them.

use crate::endpoint::Notify;
use crate::error::Refusal;
use crate::handshake::ShakeError;
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections in the handshake at one time, each with a thread and a few kilobytes.
const MOST: usize = 64;
/// The same refusal of the same host is told again only after this time, with a count.
const QUIET: Duration = Duration::from_secs(60);
/// Different refusals remembered at one time.
const MOST_REMEMBERED: usize = 256;

/// A connection was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Where it came from.
    pub from: SocketAddr,
    pub reason: String,
    /// What does not go together, if it came as a task.
    pub refusal: Option<Refusal>,
    /// The same since the last notice of it, this one included.
    pub times: u64,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused a connection from {}: {}", self.from, self.reason)?;
        if self.times > 1 {
            write!(f, " ({} times since it was last said)", self.times)?;
        }
        Ok(())
    }
}

/// All that are in the handshake.
pub(crate) struct Strangers {
    inside: Mutex<Inside>,
    notify: Notify,
}

#[derive(Default)]
struct Inside {
    pending: Vec<Pending>,
    next: u64,
    /// When a refusal was last told, and how often it happened since.
    told: HashMap<(IpAddr, String), (Instant, u64)>,
}

struct Pending {
    number: u64,
    from: IpAddr,
    stream: Arc<TcpStream>,
}

impl Strangers {
    pub(crate) fn new(notify: Notify) -> Self {
        Self { inside: Mutex::default(), notify }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Lists are whole between any two of their calls.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one more in, and sends one away if there are too many.
    pub(crate) fn admit(&self, stream: &Arc<TcpStream>, from: SocketAddr) -> u64 {
        let mut inside = self.lock();
        if inside.pending.len() >= MOST {
            let busiest = busiest_host(&inside.pending);
            // Entries are in order of arrival, so the first of a host is its oldest.
            let at = inside.pending.iter().position(|one| Some(one.from) == busiest).unwrap_or(0);
            let gone = inside.pending.remove(at);
            // Wakes its thread, which then finds itself dismissed. It may have closed by itself.
            drop(gone.stream.shutdown(Shutdown::Both));
        }
        let number = inside.next;
        inside.next += 1;
        inside.pending.push(Pending { number, from: from.ip(), stream: Arc::clone(stream) });
        number
    }

    /// One has finished; false if it had been sent away before.
    pub(crate) fn release(&self, number: u64) -> bool {
        let mut inside = self.lock();
        let found = inside.pending.iter().position(|one| one.number == number);
        found.map(|at| inside.pending.remove(at)).is_some()
    }

    /// Ends all handshakes.
    pub(crate) fn dismiss_all(&self) {
        for one in self.lock().pending.drain(..) {
            drop(one.stream.shutdown(Shutdown::Both));
        }
    }

    /// Tells of a refusal, unless the same was told a moment ago.
    pub(crate) fn refused(&self, from: SocketAddr, error: &ShakeError, crowded: bool) {
        let reason = match error {
            _ if crowded => String::from("too many connections that say nothing"),
            ShakeError::TooSlow => String::from("it did not finish the handshake in time"),
            ShakeError::Io(_) => String::from("it went away during the handshake"),
            ShakeError::Garbage(what) => format!("it sent {what}"),
            ShakeError::Refused(refusal) => refusal.to_string(),
        };
        let now = Instant::now();
        let mut inside = self.lock();
        if inside.told.len() >= MOST_REMEMBERED {
            inside.told.clear();
        }
        let key = (from.ip(), reason.clone());
        let times = match inside.told.get_mut(&key) {
            Some((last, count)) if now.duration_since(*last) < QUIET => {
                *count += 1;
                return;
            }
            Some((last, count)) => {
                *last = now;
                std::mem::take(count) + 1
            }
            None => {
                inside.told.insert(key, (now, 0));
                1
            }
        };
        drop(inside);
        let refusal = match error {
            ShakeError::Refused(refusal) if !crowded => Some(refusal.clone()),
            _ => None,
        };
        (self.notify)(&Notice { from, reason, refusal, times });
    }
}

/// The host with the most connections in the list.
fn busiest_host(pending: &[Pending]) -> Option<IpAddr> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for one in pending {
        *counts.entry(one.from).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(host, _)| host)
}
