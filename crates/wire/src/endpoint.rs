//! Where a task connects to the others: it listens, dials, and accepts only tasks of its own cluster.
//!
//! Unauthenticated connections cost little and learn nothing. Their number in the handshake is limited; beyond it the
//! oldest one of the busiest host is dropped, so that a thousand silent connections do not keep a real task out.
//! The whole handshake has one deadline. Refusals become [`Notice`]s, repeated ones only
//! as a count, so that a stranger cannot fill the log.

use crate::TaskId;
use crate::error::{LinkError, Refusal};
use crate::frame::{Peer, glance};
use crate::handshake::{self, Deadlined, Hello, Purpose, Security, ShakeError, Wire};
use crate::key::ClusterKey;
use crate::link::{Link, Wait};
use crate::strangers::{Notice, Strangers};
use crate::transport::sealed::{self, Secrets};
use crate::transport::shared::region::{Owned, Pages, Region, machine};
use crate::transport::{shared, suite, tcp, tls};
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// From the first byte to the last of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long one attempt to connect lasts before the cancel flags are checked and it is repeated. The system also resends
/// a lost packet after a second, so repeating costs nothing; an answer that takes longer is ignored.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Stack of a handshake thread, in bytes; TLS needs the most of it.
const STACK: usize = 256 << 10;
/// Tasks that have come and wait to be accepted; more is a caller that does not accept.
const MOST_ARRIVALS: usize = 1024;

/// Who this task is, in all its conversations.
#[derive(Debug, Clone)]
pub struct Identity {
    pub me: TaskId,
    /// The run it belongs to.
    pub run: String,
    /// Version of the program.
    pub version: String,
    /// Hash of the plan; tasks with another plan are refused.
    pub plan: [u8; 32],
    /// What all tasks of the cluster hold.
    pub key: ClusterKey,
    /// Whether connections are encrypted. Both sides must agree.
    pub security: Security,
    /// Whether tasks of one machine may share memory.
    pub shared_memory: bool,
}

/// Names the descriptor of a socket that already listens at this task's address: the process that chose the port kept it open.
pub const INHERITED: &str = "PACELINE_LISTEN_FD";

/// The socket that [`INHERITED`] names, to be taken once. A descriptor that is not such a socket is an error, so that
/// a task never listens elsewhere silently.
#[allow(unsafe_code)]
pub fn inherited() -> io::Result<Option<TcpListener>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let Ok(text) = std::env::var(INHERITED) else { return Ok(None) };
    let refused = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{INHERITED}={text}: no listening socket"),
        )
    };
    // The first three are standard input and outputs.
    let number: i32 = text.parse().ok().filter(|number| *number > 2).ok_or_else(refused)?;
    let (mut listens, mut size): (libc::c_int, _) =
        (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: asks about a number that may be no descriptor at all, which the call then says; it writes one `int` and its size.
    let asked = unsafe {
        let into = (&raw mut listens).cast();
        libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, into, &raw mut size)
    };
    if asked != 0 || listens == 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return Err(refused());
    }
    // SAFETY: the descriptor is open, came from our parent for this purpose, and is taken only once: see `TAKEN`. Our own
    // children do not inherit it.
    let listener = unsafe {
        libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
        TcpListener::from_raw_fd(number)
    };
    listener.set_nonblocking(false)?;
    Ok(Some(listener))
}

/// Called with every refusal worth a line.
pub type Notify = Arc<dyn Fn(&Notice) + Send + Sync>;

/// A task's place in the network.
pub struct Endpoint {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Where others reach it, if not where it listens.
    known_as: Option<String>,
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    identity: Identity,
    tls: Option<tls::Configs>,
    arrivals: Mutex<VecDeque<(Purpose, Link)>>,
    arrived: Condvar,
    strangers: Strangers,
    stop: AtomicBool,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint of {} at {}", self.shared.identity.me, self.address)
    }
}

impl Endpoint {
    /// Listens on that one address; port 0 takes a free one. Refusals go unheard.
    pub fn bind(identity: Identity, address: &str) -> Result<Self, LinkError> {
        Self::bind_with(identity, address, Arc::new(|_| ()))
    }

    /// Listens on that one address and tells `notify` of refusals.
    pub fn bind_with(identity: Identity, address: &str, notify: Notify) -> Result<Self, LinkError> {
        let listener = TcpListener::bind(address)
            .map_err(|cause| LinkError::Bind { address: address.to_owned(), cause })?;
        Self::listening(identity, listener, notify)
    }

    /// Takes over a socket that listens already, and tells `notify` of refusals.
    pub fn listening(
        identity: Identity,
        listener: TcpListener,
        notify: Notify,
    ) -> Result<Self, LinkError> {
        let failed = |cause| LinkError::Bind { address: "its own socket".to_owned(), cause };
        let local = listener.local_addr().map_err(failed)?;
        let tls = match identity.security {
            Security::Tls => Some(tls::Configs::new()?),
            Security::Plain => None,
        };
        let shared = Arc::new(Shared {
            identity,
            tls,
            arrivals: Mutex::default(),
            arrived: Condvar::new(),
            strangers: Strangers::new(notify),
            stop: AtomicBool::new(false),
        });
        let listener = Arc::new(listener);
        let (door, inside) = (Arc::clone(&listener), Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name(String::from("door"))
            .spawn(move || listen(&door, &inside))
            .map_err(failed)?;
        Ok(Self { shared, address: local, known_as: None, listener, thread: Some(thread) })
    }

    /// Others reach it at another address than it listens on: it listens on all interfaces, or is behind a translation of
    /// addresses.
    #[must_use]
    pub fn known_as(mut self, address: String) -> Self {
        self.known_as = Some(address);
        self
    }

    /// Where others reach it.
    #[must_use]
    pub fn public_address(&self) -> String {
        self.known_as.clone().unwrap_or_else(|| self.address.to_string())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// Connects to a task. Tries only once if something answers there; a task that starts before the other has to retry.
    pub fn dial(
        &self,
        task: TaskId,
        address: &str,
        purpose: Purpose,
        wait: &Wait<'_>,
    ) -> Result<Link, LinkError> {
        let began = Instant::now();
        let peer = Peer { task, address: address.to_owned() };
        let unreachable =
            |cause| LinkError::Unreachable { task, address: address.to_owned(), cause };
        let stream = connect(address, wait).map_err(|cause| match cause.kind() {
            io::ErrorKind::TimedOut if wait.cancelled() => peer.cancelled(wait.phase),
            io::ErrorKind::TimedOut => peer.timed_out(wait.phase, began.elapsed()),
            _ => unreachable(cause),
        })?;
        stream.set_nodelay(true).map_err(unreachable)?;
        self.shared.introduce(stream, &peer, purpose, wait).map_err(|error| match error {
            ShakeError::TooSlow if wait.cancelled() => peer.cancelled(wait.phase),
            ShakeError::TooSlow => peer.timed_out(wait.phase, began.elapsed()),
            ShakeError::Io(cause) => peer.lost(wait.phase, cause),
            ShakeError::Garbage(found) => peer.protocol(found, "the handshake of a Paceline task"),
            ShakeError::Refused(reason) => {
                LinkError::Refused { task, address: address.to_owned(), reason }
            }
        })
    }

    /// The next task that has come and proved itself.
    pub fn accept(&self, wait: &Wait<'_>) -> Result<(Purpose, Link), LinkError> {
        self.accept_if(wait, |_, _| true)
    }

    /// The next link that is wanted; others stay queued for other callers.
    pub fn accept_if(
        &self,
        wait: &Wait<'_>,
        wanted: impl Fn(TaskId, Purpose) -> bool,
    ) -> Result<(Purpose, Link), LinkError> {
        let began = Instant::now();
        let mut arrivals = self.shared.lock();
        loop {
            let found = arrivals.iter().position(|(purpose, link)| wanted(link.peer, *purpose));
            if let Some(arrival) = found.and_then(|at| arrivals.remove(at)) {
                return Ok(arrival);
            }
            let address = || self.address.to_string();
            if wait.cancelled() {
                return Err(LinkError::Stopped { address: address(), phase: wait.phase.into() });
            }
            let left = wait.left();
            if left.is_zero() {
                return Err(LinkError::NoConnection {
                    address: address(),
                    phase: wait.phase.into(),
                    waited: began.elapsed(),
                });
            }
            let moment = left.min(glance(began.elapsed()));
            let waited = self.shared.arrived.wait_timeout(arrivals, moment);
            arrivals = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes those who wait for arrivals look at their flags.
    pub fn nudge(&self) {
        // With the lock, so that no thread is between checking and waiting.
        let _arrivals = self.shared.lock();
        self.shared.arrived.notify_all();
    }

    /// Drops those who wait and are no longer wanted, such as links of an earlier generation.
    pub fn dismiss(&self, unwanted: impl Fn(TaskId, Purpose) -> bool) {
        self.shared.lock().retain(|(purpose, link)| !unwanted(link.peer, *purpose));
    }
}

impl Drop for Endpoint {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.strangers.dismiss_all();
        // SAFETY: a call on a descriptor that `self.listener` keeps open; on Linux it ends the
        // `accept` another thread waits in.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            // It holds no data; if it panicked, its message is out already.
            drop(thread.join());
        }
    }
}

/// Connects to the first of the name's addresses that answers. Those that are silent are asked in turns, until the deadline or
/// a flag.
fn connect(address: &str, wait: &Wait<'_>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut silent: VecDeque<SocketAddr> = address.to_socket_addrs()?.collect();
    while let Some(target) = silent.pop_front() {
        let left = wait.left();
        if left.is_zero() || wait.cancelled() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&target, left.min(ATTEMPT)) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => silent.push_back(target),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Lets connections in, each into a thread of its own until it has proved itself.
fn listen(door: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let (stream, from) = match door.accept() {
            Ok(arrival) => arrival,
            Err(_) if shared.stop.load(Ordering::Relaxed) => return,
            Err(_) => {
                // Out of descriptors, or the stranger is gone already: neither may spin or end us.
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        let stream = Arc::new(stream);
        let number = shared.strangers.admit(&stream, from);
        let inside = Arc::clone(shared);
        let spawned = thread::Builder::new()
            .name(String::from("handshake"))
            .stack_size(STACK)
            .spawn(move || {
                let result = inside.examine(&stream);
                let ours = inside.strangers.release(number);
                inside.settle(stream, from, ours, result);
            });
        if spawned.is_err() {
            shared.strangers.release(number);
        }
    }
}

/// What a successful examination leaves to do.
struct Examined {
    client: Hello,
    /// Memory that the client has mapped too.
    memory: Option<Region>,
    /// The keys, if the connection is encrypted.
    secrets: Option<Secrets>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Purpose, Link)>> {
        // A queue is whole between any two of its calls.
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hello(&self, to: TaskId, purpose: Purpose) -> Hello {
        let identity = &self.identity;
        Hello {
            task: identity.me,
            to,
            run: identity.run.clone(),
            version: identity.version.clone(),
            plan: identity.plan,
            purpose,
            suite: self.tls.as_ref().map(|_| suite::NAME.to_owned()),
            machine: if identity.shared_memory { machine() } else { None },
            memory: None,
        }
    }

    /// The client's side of a new connection.
    fn introduce(
        &self,
        stream: TcpStream,
        peer: &Peer,
        purpose: Purpose,
        wait: &Wait<'_>,
    ) -> Result<Link, ShakeError> {
        let mut wire = Deadlined { stream: &stream, wait };
        let nonce = handshake::greet(&mut wire, self.identity.security)?;
        let mine = self.hello(peer.task, purpose);
        let key = &self.identity.key;
        let agree = |theirs: &Hello| {
            handshake::compare(&mine, theirs)?;
            if theirs.task != peer.task {
                return Err(Refusal::Task { found: theirs.task, wanted: peer.task });
            }
            Ok(())
        };
        // Maps what the server offers, if it can, and tells it.
        let settle = |theirs: &Hello, wire: &mut dyn Wire| {
            agree(theirs).map_err(ShakeError::Refused)?;
            let memory = theirs.memory.as_ref();
            let memory =
                memory.and_then(|offer| Region::open(offer, shared::BYTES, Pages::WhenUsed).ok());
            let word = if memory.is_some() { handshake::MAPPED } else { handshake::ACCEPT };
            handshake::confirm(wire, word)?;
            Ok::<_, ShakeError>(memory)
        };
        let (memory, secrets) = match &self.tls {
            None => {
                let theirs = handshake::prove(&mut wire, key, &nonce, &[0; 32], &mine)?;
                (settle(&theirs, &mut wire)?, None)
            }
            Some(configs) => {
                let (mut connection, exporter) = tls::shake(configs, false, &mut wire)?;
                let mut sealed = tls::Sealed { connection: &mut connection, stream: &mut wire };
                let theirs = handshake::prove(&mut sealed, key, &nonce, &exporter, &mine)?;
                (settle(&theirs, &mut sealed)?, Some(tls::secrets(&connection, false)?))
            }
        };
        Ok(match (memory, secrets) {
            (Some(memory), _) => shared::link(memory, stream, 0, peer.clone())?,
            (None, None) => tcp::link(stream, peer.clone())?,
            (None, Some(secrets)) => sealed::link(&secrets, stream, peer.clone())?,
        })
    }

    /// The server's side of a new connection.
    fn examine(&self, stream: &TcpStream) -> Result<Examined, ShakeError> {
        stream.set_nodelay(true)?;
        let wait = Wait::within(HANDSHAKE, "shaking hands");
        let mut wire = Deadlined { stream, wait: &wait };
        let nonce = handshake::welcome(&mut wire, self.identity.security)?;
        let key = &self.identity.key;
        let me = self.identity.me;
        let agree = |client: &Hello| {
            handshake::compare(&self.hello(client.task, client.purpose), client)?;
            if client.to != me {
                return Err(Refusal::Task { found: me, wanted: client.to });
            }
            Ok(())
        };
        let mut owned: Option<Owned> = None;
        let answer = |client: &Hello| {
            let mut mine = self.hello(client.task, client.purpose);
            if mine.machine.is_some() && mine.machine == client.machine && agree(client).is_ok() {
                owned = Region::create(shared::BYTES, Pages::WhenUsed).ok();
                mine.memory = owned.as_ref().map(Owned::offer);
            }
            mine
        };
        let (client, word, secrets) = match &self.tls {
            None => {
                let client = handshake::examine(&mut wire, key, &nonce, &[0; 32], answer)?;
                agree(&client).map_err(ShakeError::Refused)?;
                (client, handshake::confirmed(&mut wire)?, None)
            }
            Some(configs) => {
                let (mut connection, exporter) = tls::shake(configs, true, &mut wire)?;
                let mut sealed = tls::Sealed { connection: &mut connection, stream: &mut wire };
                let client = handshake::examine(&mut sealed, key, &nonce, &exporter, answer)?;
                agree(&client).map_err(ShakeError::Refused)?;
                let word = handshake::confirmed(&mut sealed)?;
                (client, word, Some(tls::secrets(&connection, true)?))
            }
        };
        let memory = owned.map(|owned| owned.region).filter(|_| word == handshake::MAPPED);
        Ok(Examined { client, memory, secrets })
    }

    /// Makes a link of a connection that proved itself, or a notice of one that did not.
    fn settle(
        &self,
        stream: Arc<TcpStream>,
        from: SocketAddr,
        ours: bool,
        result: Result<Examined, ShakeError>,
    ) {
        let examined = match result {
            Ok(examined) => examined,
            Err(error) => {
                let crowded = !ours && !self.stop.load(Ordering::Relaxed);
                self.strangers.refused(from, &error, crowded);
                drop(stream.shutdown(Shutdown::Both));
                return;
            }
        };
        let peer = Peer { task: examined.client.task, address: from.to_string() };
        // The list of strangers let go of its handle, so this one is the last.
        let Ok(stream) = Arc::try_unwrap(stream) else { return };
        let link = match (examined.memory, examined.secrets) {
            (Some(memory), _) => shared::link(memory, stream, 1, peer),
            (None, None) => tcp::link(stream, peer),
            (None, Some(secrets)) => sealed::link(&secrets, stream, peer),
        };
        let Ok(link) = link else { return };
        let mut arrivals = self.lock();
        if arrivals.len() < MOST_ARRIVALS {
            arrivals.push_back((examined.client.purpose, link));
        }
        drop(arrivals);
        self.arrived.notify_all();
    }
}
