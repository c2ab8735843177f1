//! When an answer is no longer needed, no task waits for it: not for a connection, not for room, not for the rest of a
//! message. Timeouts are long here; a call that misses the alarm runs into one, and the error says so.

#![allow(clippy::unwrap_used)]

mod tasks;

use paceline_wire::{
    ClusterKey, Endpoint, Head, Identity, Link, LinkError, Purpose, Security, Wait, pair,
};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tasks::{identity, soon, worker};

/// More than sockets, rings and queues hold.
const LARGE: usize = 64 << 20;

fn endpoint(index: u32, key: &ClusterKey, security: Security, shared_memory: bool) -> Endpoint {
    let identity = Identity { shared_memory, ..identity(index, key, security) };
    Endpoint::bind(identity, "127.0.0.1:0").unwrap()
}

/// Both ends of a link over every carrier, with the name of it and what keeps it alive.
fn links() -> Vec<(&'static str, Link, Link, Vec<Endpoint>)> {
    let (near, far) = pair(worker(0), worker(1));
    let mut links = vec![(near.carrier, near, far, Vec::new())];
    for (security, shared) in
        [(Security::Plain, false), (Security::Tls, false), (Security::Plain, true)]
    {
        let key = ClusterKey::generate().unwrap();
        let [a, b] = [0, 1].map(|index| endpoint(index, &key, security, shared));
        let address = b.address().to_string();
        let near = a.dial(worker(1), &address, Purpose::Control, &soon("dialling")).unwrap();
        let (_, far) = b.accept(&soon("accepting")).unwrap();
        links.push((near.carrier, near, far, vec![a, b]));
    }
    links
}

/// Does `work` and raises the alarm after a while, when it is in the middle of it.
fn alarmed<T: Send>(alarm: &AtomicBool, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let working = scope.spawn(work);
        thread::sleep(Duration::from_millis(100));
        alarm.store(true, Ordering::Relaxed);
        working.join().unwrap()
    })
}

fn is_cancelled(error: &LinkError) -> bool {
    matches!(error, LinkError::Cancelled { .. })
}

#[test]
fn a_peer_that_stops_reading_in_the_middle_of_a_message_is_given_up_at_the_alarm() {
    for (carrier, mut near, mut far, _ends) in links() {
        let alarm = Arc::new(AtomicBool::new(false));
        near.heed(&alarm);
        let large = vec![1; LARGE];
        let error = alarmed(&alarm, || near.sender.send(1, 0, &[&large]).unwrap_err());
        assert!(is_cancelled(&error), "{carrier}: {error}");
        // What follows would be taken for the rest of the message that was broken off.
        let sent = near.sender.sent();
        let error = near.sender.send(2, 0, &[&[2; 100]]).unwrap_err();
        assert!(error.is_lost(), "{carrier}: {error}");
        assert_eq!(near.sender.sent(), sent, "{carrier}");
        drop(near);
        far.receiver.receive(&soon("reading late")).unwrap();
        let mut whole = vec![0; LARGE];
        let error = far.receiver.read(&mut whole).unwrap_err();
        assert!(error.is_lost(), "{carrier}: {error}");
        assert!(!whole.contains(&2), "{carrier}: another message came as a part of this one");
    }
}

#[test]
fn a_peer_that_stops_sending_in_the_middle_of_a_message_is_given_up_at_the_alarm() {
    for (carrier, mut near, mut far, _ends) in links() {
        let alarm = Arc::new(AtomicBool::new(false));
        far.heed(&alarm);
        near.sender.start(Head { kind: 1, number: 0, length: 1000 }).unwrap();
        assert_eq!(near.sender.push(&[1; 400]).unwrap(), 400, "{carrier}");
        far.receiver.receive(&soon("waiting for weights")).unwrap();
        let error = alarmed(&alarm, || far.receiver.read(&mut [0; 1000]).unwrap_err());
        assert!(is_cancelled(&error), "{carrier}: {error}");
        assert!(error.to_string().contains("waiting for weights"), "{carrier}: {error}");
    }
}

#[test]
fn what_is_there_and_what_has_room_passes_while_the_alarm_is_raised() {
    for (carrier, mut near, mut far, _ends) in links() {
        let alarm = Arc::new(AtomicBool::new(true));
        near.heed(&alarm);
        near.sender.send(1, 0, &[b"who was lost"]).unwrap();
        let mut word = Vec::new();
        far.receiver.receive_into(&soon("a last word"), 100, &mut word).unwrap();
        assert_eq!(word, b"who was lost", "{carrier}");
    }
}

/// A task that was stopped, or whose host was cut off after the system had answered for it.
#[test]
fn an_unanswered_handshake_ends_at_the_alarm() {
    for security in [Security::Plain, Security::Tls] {
        let from = endpoint(0, &ClusterKey::generate().unwrap(), security, false);
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let alarm = AtomicBool::new(false);
        let wait = soon("connecting to the servers").unless(&alarm);
        let dial = || from.dial(worker(1), &address, Purpose::Control, &wait).unwrap_err();
        let error = alarmed(&alarm, dial);
        assert!(is_cancelled(&error), "{error}");
        assert_eq!(error.task(), Some(worker(1)));
    }
}

/// A host that is cut off: the system on the other side does not answer either.
#[test]
fn an_unanswered_connection_ends_at_the_alarm() {
    let from = endpoint(0, &ClusterKey::generate().unwrap(), Security::Plain, false);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    // Once no one accepts connections and the queue is full, the system drops new ones.
    let attempt = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
    let _crowd: Vec<_> = std::iter::repeat_with(attempt).map_while(Result::ok).collect();
    let alarm = AtomicBool::new(false);
    let wait = soon("connecting to the servers").unless(&alarm);
    let address = address.to_string();
    let dial = || from.dial(worker(1), &address, Purpose::Control, &wait).unwrap_err();
    let error = alarmed(&alarm, dial);
    assert!(is_cancelled(&error), "{error}");

    let wait = Wait::within(Duration::from_millis(1500), "joining the run");
    let error = from.dial(worker(1), &address, Purpose::Control, &wait).unwrap_err();
    assert!(error.is_timeout(), "without an alarm the deadline counts: {error}");
}
