//! The chief's threads around the [`Roster`]: one per connection that listens, and one that decides
//! and speaks.

use super::{
    SessionError,
    clock::{Offset, unix_seconds},
    control,
    message::{Hello, Loss, Stop, ToChief, ToMember},
    notice::{Notice, SessionObserver, TaskRowState},
    roster::{Admission, Order, Roster, SILENCE},
    shared::Shared,
    starved::{Starved, Telling},
};
use paceline_wire::stood_still;
use paceline_wire::{Closer, Link, LinkError, Sender, TaskId, Wait};
use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// How often the chief looks at the clock when nothing happens: while tasks join, and when all are at work and each look takes
/// a moment from one of them.
const TICK: Duration = Duration::from_millis(100);
const SLOW_TICK: Duration = Duration::from_millis(400);
/// How long a task may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(30);
/// Questions asked to compare clocks.
const QUESTIONS: u32 = 4;
/// How long the chief stays for the others to close first: who closes with unread bytes resets the
/// connection, and a reset may overtake the last message.
const LINGER: Duration = Duration::from_secs(1);
/// How long a new process of a task waits for the death of the old one to be noticed.
const SUCCESSION: Duration = Duration::from_secs(3);
/// Time between two attempts to find out why a task is missing.
const PROBE: Duration = Duration::from_secs(3);

/// What the deciding thread hears.
pub(super) enum Heard {
    /// A task introduced itself.
    Hello(Introduced),
    /// A task said something.
    Said { task: TaskId, connection: u64, message: ToChief },
    /// A connection broke.
    Broken { task: TaskId, connection: u64, reason: String },
    /// Why a task is not there.
    Missed { task: TaskId, error: String },
    /// The chief's own training says something.
    Own(ToChief),
    /// The session ends.
    Closing,
}

struct Connection {
    number: u64,
    incarnation: u64,
    sender: Box<dyn Sender>,
    closer: Closer,
}

/// The deciding thread's belongings.
pub(super) struct Chief {
    pub(super) me: TaskId,
    pub(super) roster: Roster,
    pub(super) shared: Arc<Shared>,
    pub(super) observer: Arc<dyn SessionObserver>,
    pub(super) heard: mpsc::Receiver<Heard>,
    pub(super) probes: mpsc::Sender<Heard>,
    /// New processes of tasks whose places are taken, and since when they wait.
    pub(super) heirs: Vec<(Instant, Introduced)>,
}

/// A task that introduced itself.
pub(super) struct Introduced {
    pub(super) hello: Hello,
    pub(super) offset: Option<Offset>,
    pub(super) connection: u64,
    pub(super) sender: Box<dyn Sender>,
    pub(super) closer: Closer,
}

/// What the chief did while tasks join.
struct Joining {
    /// When the table was shown last, and missing tasks were asked.
    shown: Option<Instant>,
    probed: Instant,
    /// All have joined, and that was shown.
    complete: bool,
}

impl Chief {
    /// Decides until the session ends.
    pub(super) fn run(mut self) {
        let mut connections: BTreeMap<TaskId, Connection> = BTreeMap::new();
        let mut orders = Vec::new();
        let mut joining = Joining { shown: None, probed: Instant::now(), complete: false };
        let mut leaving: Option<Instant> = None;
        let mut telling = Telling::new();
        loop {
            let settled = self.roster.is_running() && self.heirs.is_empty() && leaving.is_none();
            let (asked, tick) = (Instant::now(), if settled { SLOW_TICK } else { TICK });
            let heard = self.heard.recv_timeout(tick);
            if let Some(late) = stood_still(asked, tick) {
                self.roster.stood_still(late);
            }
            match heard {
                Ok(heard) => {
                    self.hear(heard, &mut connections, &mut orders);
                    // Whatever else is there belongs to the same moment.
                    while let Ok(more) = self.heard.try_recv() {
                        self.hear(more, &mut connections, &mut orders);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for (since, heir) in std::mem::take(&mut self.heirs) {
                self.admit(since, heir, &mut connections, &mut orders);
            }
            let now = Instant::now();
            let own = self.shared.take_beat();
            self.roster.beat(self.me, own, now);
            if let Some(seconds) = telling.news(&self.shared.reading) {
                self.observer.noticed(&Notice::Starved(Starved { task: self.me, seconds }));
            }
            self.roster.tick(now, &mut orders);
            self.look_after_joining(&mut joining, now, &mut orders);
            // Before tasks act on it: who joined is said before what they then do.
            self.tell_notices();
            self.carry_out(&mut orders, &mut connections);
            self.tell_notices(); // connections that broke meanwhile
            if self.shared.closing.load(Ordering::Relaxed) {
                let since = *leaving.get_or_insert(now);
                if connections.is_empty() || now - since >= LINGER {
                    return;
                }
            }
        }
    }

    /// While tasks join: shows who is there, asks those that are missing, and gives up when they are late.
    fn look_after_joining(&mut self, joining: &mut Joining, now: Instant, orders: &mut Vec<Order>) {
        if self.roster.is_running() {
            if !std::mem::replace(&mut joining.complete, true) {
                self.observer.table(&self.roster.rows(now)); // all tasks have joined: the last table
            }
            return;
        }
        if joining.shown.is_none_or(|at| now - at >= 2 * TICK) {
            joining.shown = Some(now);
            self.observer.table(&self.roster.rows(now));
        }
        if now - joining.probed >= PROBE {
            joining.probed = now;
            self.probe(now);
        }
        if self.roster.is_overdue(now) {
            self.give_up(now, orders);
        }
    }

    fn tell_notices(&mut self) {
        for notice in self.roster.take_notices() {
            self.observer.noticed(&notice);
        }
    }

    fn hear(
        &mut self,
        heard: Heard,
        connections: &mut BTreeMap<TaskId, Connection>,
        orders: &mut Vec<Order>,
    ) {
        let now = Instant::now();
        match heard {
            Heard::Hello(introduced) => self.admit(now, introduced, connections, orders),
            Heard::Said { task, connection, message } => {
                if connections.get(&task).is_some_and(|known| known.number == connection) {
                    self.shared.hear();
                    self.said(task, message, orders);
                }
            }
            Heard::Broken { task, connection, reason } => {
                if let Some(known) = connections.get(&task)
                    && known.number == connection
                {
                    self.roster.broken(task, known.incarnation, &reason, now);
                    connections.remove(&task);
                }
            }
            Heard::Missed { task, error } => self.roster.missed(task, error),
            Heard::Own(message) => self.said(self.me, message, orders),
            Heard::Closing => {} // the loop looks at the flag whatever was heard
        }
    }

    /// Lets a task in, or says why not; one whose place is taken waits a little.
    fn admit(
        &mut self,
        since: Instant,
        introduced: Introduced,
        connections: &mut BTreeMap<TaskId, Connection>,
        orders: &mut Vec<Order>,
    ) {
        let now = Instant::now();
        let Introduced { hello, offset, .. } = &introduced;
        let reason = match self.roster.hello(hello, *offset, now, orders) {
            Admission::Taken(_) if now - since < SUCCESSION => {
                self.heirs.push((since, introduced));
                return;
            }
            Admission::Taken(reason) | Admission::Refused(reason) => Some(reason),
            Admission::Joined | Admission::Resumed => None,
        };
        let Introduced { hello, connection, mut sender, closer, .. } = introduced;
        if let Some(reason) = reason {
            // It is told once; if that fails, it will see the connection close.
            let _ = control::send(&mut *sender, &ToMember::Refused { reason });
            return;
        }
        let new = Connection { number: connection, incarnation: hello.incarnation, sender, closer };
        if let Some(old) = connections.insert(hello.task, new) {
            old.closer.close();
        }
    }

    fn said(&mut self, task: TaskId, message: ToChief, orders: &mut Vec<Order>) {
        let now = Instant::now();
        match message {
            ToChief::Beat(beat) => self.roster.beat(task, beat, now),
            ToChief::Starved { seconds } => {
                self.roster.heard(task, now);
                self.observer.noticed(&Notice::Starved(Starved { task, seconds }));
            }
            ToChief::Suspect { task: about, reason } => {
                self.roster.suspect(task, about, &reason, now);
            }
            ToChief::Note { value } => {
                self.roster.heard(task, now);
                self.observer.told(task, &value);
            }
            ToChief::Finished { report, generation } => {
                self.roster.finished(task, report, generation, now);
            }
            ToChief::Failed { reason } => self.roster.failed(task, &reason, now, orders),
            ToChief::Hello(_) | ToChief::Pong { .. } => self.roster.heard(task, now),
        }
    }

    fn carry_out(
        &mut self,
        orders: &mut Vec<Order>,
        connections: &mut BTreeMap<TaskId, Connection>,
    ) {
        for order in orders.drain(..) {
            match order {
                Order::To(task, message) if task == self.me => {
                    if matches!(message, ToMember::Release) {
                        let reports = self.roster.reports();
                        self.shared.change(|state| state.reports = reports);
                    }
                    self.shared.apply(message, self.me, "");
                }
                Order::To(task, message) => {
                    let Some(connection) = connections.get_mut(&task) else { continue };
                    if let Err(error) = control::send(&mut *connection.sender, &message) {
                        let incarnation = connection.incarnation;
                        connection.closer.close();
                        connections.remove(&task);
                        let reason = reason(&error);
                        self.roster.broken(task, incarnation, &reason, Instant::now());
                    }
                }
                Order::Drop(task) => {
                    // The other end is told first and closes by itself; if it cannot hear us, the
                    // connection goes with its process.
                    connections.remove(&task);
                }
            }
        }
    }

    /// Some tasks did not join: reports which ones, here and to those that did.
    fn give_up(&mut self, now: Instant, orders: &mut Vec<Order>) {
        let missing: Vec<Loss> = self
            .roster
            .rows(now)
            .into_iter()
            .filter(|row| row.state == TaskRowState::Waiting)
            .map(|row| Loss {
                task: row.task,
                address: row.address,
                reason: row.error.unwrap_or_else(|| "nothing was heard of it".to_owned()),
            })
            .collect();
        let error =
            SessionError::NotStarted { seconds: self.roster.join_timeout().as_secs(), missing };
        let reason = error.to_string();
        self.shared.end(error);
        self.roster.stop(Stop::Failed { task: self.me, reason }, orders);
    }

    /// Tries to find out why tasks with known addresses are missing, on a thread of its own.
    fn probe(&self, now: Instant) {
        let missing: Vec<(TaskId, String)> = self
            .roster
            .rows(now)
            .into_iter()
            .filter(|row| row.state == TaskRowState::Waiting && !row.address.is_empty())
            .map(|row| (row.task, row.address))
            .collect();
        if missing.is_empty() {
            return;
        }
        let found = self.probes.clone();
        let look = move || {
            for (task, address) in missing {
                let error = why_not(&address);
                if found.send(Heard::Missed { task, error }).is_err() {
                    return;
                }
            }
        };
        // Only a help for people: without a thread to spare there is no help.
        let _ = std::thread::Builder::new().name("probe".into()).spawn(look);
    }
}

/// What stands between us and an address.
fn why_not(address: &str) -> String {
    let resolved = match address.to_socket_addrs() {
        Ok(mut all) => all.next(),
        Err(error) => return format!("the name does not resolve: {error}"),
    };
    let Some(resolved) = resolved else { return "the name has no address".to_owned() };
    match TcpStream::connect_timeout(&resolved, Duration::from_secs(1)) {
        Ok(_) => "something listens there, but it has not joined".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "connection refused: nothing listens there".to_owned()
        }
        Err(error) => error.to_string(),
    }
}

/// Listens to one task until its connection ends.
pub(super) fn listen(link: Link, connection: u64, heard: &mpsc::Sender<Heard>, shared: &Shared) {
    let Link { peer, address, mut sender, mut receiver, closer, .. } = link;
    let from = (peer, address.as_str());
    let mut buffer = Vec::new();
    let mut introduce = || -> Result<(Hello, Option<Offset>), LinkError> {
        let wait = Wait::within(INTRODUCTION, "waiting for its introduction");
        let ToChief::Hello(mut hello) = control::receive(&mut *receiver, &wait, &mut buffer, from)?
        else {
            return Err(unexpected(from, "another message"));
        };
        if hello.task != peer {
            return Err(unexpected(from, "the name of another task"));
        }
        hello.address = reachable(&hello.address, &address);
        let mut offset = None;
        for number in 0..QUESTIONS {
            let asked = unix_seconds();
            control::send(&mut *sender, &ToMember::Ping { number })?;
            let wait = Wait::within(INTRODUCTION, "comparing clocks");
            let answer: ToChief = control::receive(&mut *receiver, &wait, &mut buffer, from)?;
            if let ToChief::Pong { number: of, clock } = answer
                && of == number
            {
                offset = Some(Offset::improve(offset, asked, unix_seconds(), clock));
            }
        }
        Ok((hello, offset))
    };
    // A stranger to the protocol has proved the key, so it is one of us gone wrong: let it go.
    let Ok((hello, offset)) = introduce() else { return };
    if heard.send(Heard::Hello(Introduced { hello, offset, connection, sender, closer })).is_err() {
        return;
    }
    loop {
        let wait = Wait::within(SILENCE, "listening to it").unless(&shared.closing);
        let said = match control::receive(&mut *receiver, &wait, &mut buffer, from) {
            Ok(message) => Heard::Said { task: peer, connection, message },
            Err(LinkError::TimedOut { .. }) => continue, // the roster counts the silence
            Err(LinkError::Cancelled { .. }) => {
                // Leaving: only wait for the other side to close.
                let wait = Wait::within(2 * LINGER, "waiting for it to leave");
                while control::receive::<ToChief>(&mut *receiver, &wait, &mut buffer, from).is_ok()
                {
                }
                Heard::Broken { task: peer, connection, reason: "left".to_owned() }
            }
            Err(error) => Heard::Broken { task: peer, connection, reason: reason(&error) },
        };
        let last = matches!(said, Heard::Broken { .. });
        if heard.send(said).is_err() || last {
            return;
        }
    }
}

/// A task that listens on all interfaces cannot say at which of them others find it: at the one it comes from.
fn reachable(address: &str, from: &str) -> String {
    match (address.parse::<SocketAddr>(), from.parse::<SocketAddr>()) {
        (Ok(all), Ok(seen)) if all.ip().is_unspecified() => {
            SocketAddr::new(seen.ip(), all.port()).to_string()
        }
        _ => address.to_owned(),
    }
}

fn unexpected((task, address): (TaskId, &str), found: &str) -> LinkError {
    LinkError::Protocol {
        task,
        address: address.to_owned(),
        found: found.to_owned(),
        expected: "its introduction".to_owned(),
    }
}

/// What the system said, without task and address, which stand beside it anyway.
pub(super) fn reason(error: &LinkError) -> String {
    match error {
        LinkError::Lost { cause, .. } | LinkError::Unreachable { cause, .. } => cause.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_on_all_interfaces_is_found_where_it_came_from() {
        for (said, from, found) in [
            ("0.0.0.0:7000", "10.0.0.2:41234", "10.0.0.2:7000"),
            ("[::]:7000", "[fe80::2]:41234", "[fe80::2]:7000"),
            ("10.0.0.3:7000", "10.0.0.2:41234", "10.0.0.3:7000"),
            ("node2:7000", "10.0.0.2:41234", "node2:7000"),
            ("memory:worker/1", "memory", "memory:worker/1"),
        ] {
            assert_eq!(reachable(said, from), found);
        }
    }
}
