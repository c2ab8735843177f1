//! Endpoints over real sockets on loopback: who gets in, who does not, and what they are told.

#![allow(clippy::unwrap_used)]

mod tasks;

use paceline_wire::{
    Channel, ClusterKey, Endpoint, Identity, Link, LinkError, Notice, Purpose, Refusal, Security,
    TaskId, Wait,
};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tasks::{identity, soon, worker};

const ALL: [Security; 2] = [Security::Plain, Security::Tls];

/// All that a link can run over: encrypted or not, shared memory or not.
const CARRIERS: [(Security, bool, &str); 4] = [
    (Security::Plain, false, "tcp"),
    (Security::Tls, false, "tls"),
    (Security::Plain, true, "shared memory"),
    (Security::Tls, true, "shared memory"),
];

fn bind(identity: Identity) -> (Endpoint, Arc<Mutex<Vec<Notice>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let notify = Arc::new(move |notice: &Notice| ear.lock().unwrap().push(notice.clone()));
    (Endpoint::bind_with(identity, "127.0.0.1:0", notify).unwrap(), heard)
}

/// Two endpoints that know the same key.
fn two(security: Security, shared_memory: bool) -> (Endpoint, Endpoint) {
    let key = ClusterKey::generate().unwrap();
    let one = |index| bind(Identity { shared_memory, ..identity(index, &key, security) }).0;
    (one(0), one(1))
}

fn join(a: &Endpoint, b: &Endpoint, purpose: Purpose) -> (Link, Link) {
    let address = b.address().to_string();
    let dialled = a.dial(b.identity().me, &address, purpose, &soon("dialling")).unwrap();
    let (seen, accepted) = b.accept(&soon("accepting")).unwrap();
    assert_eq!(seen, purpose);
    assert_eq!(accepted.peer, a.identity().me);
    (dialled, accepted)
}

#[test]
fn peers_with_the_same_key_talk_both_ways() {
    for (security, shared, carrier) in CARRIERS {
        let (a, b) = two(security, shared);
        let (mut near, mut far) =
            join(&a, &b, Purpose::Data { generation: 3, channel: Channel::ParameterServer });
        assert_eq!((near.carrier, far.carrier), (carrier, carrier));
        let large: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7).to_le_bytes()[1]).collect();
        thread::scope(|scope| {
            scope.spawn(|| {
                near.sender.send(1, 10, &[b"hello"]).unwrap();
                near.sender.send(2, 11, &[&large[..1_000], &large[1_000..]]).unwrap();
            });
            // Both directions at once: halves must not wait for each other.
            scope.spawn(|| far.sender.send(3, 12, &[&large]).unwrap());
            let mut got = Vec::new();
            far.receiver.receive_into(&soon("first"), 5, &mut got).unwrap();
            assert_eq!(got, b"hello");
            let head = far.receiver.receive_into(&soon("second"), 1 << 30, &mut got).unwrap();
            assert_eq!((head.kind, head.number), (2, 11));
            assert!(got == large);
            near.receiver.receive_into(&soon("third"), 1 << 30, &mut got).unwrap();
            assert!(got == large);
        });
        assert_eq!(near.sender.sent(), far.receiver.received());
    }
}

#[test]
fn many_small_messages_in_a_row_keep_their_order() {
    for (security, shared, _) in CARRIERS {
        let (a, b) = two(security, shared);
        let (mut near, mut far) = join(&a, &b, Purpose::Control);
        for number in 0..500u64 {
            near.sender.send(1, number, &[&number.to_le_bytes()]).unwrap();
            let mut got = Vec::new();
            let head = far.receiver.receive_into(&soon("ping"), 8, &mut got).unwrap();
            assert_eq!(head.number, number);
            far.sender.send(2, number, &[&got]).unwrap();
            near.receiver.receive_into(&soon("pong"), 8, &mut got).unwrap();
            assert_eq!(got, number.to_le_bytes());
        }
    }
}

#[test]
fn a_closed_link_is_lost_at_the_other_end_with_its_name() {
    for (security, shared, _) in CARRIERS {
        let (a, b) = two(security, shared);
        let (near, mut far) = join(&a, &b, Purpose::Control);
        drop(near);
        let error = far.receiver.receive(&soon("waiting for a heartbeat")).unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert!(error.to_string().contains("worker/0 at 127.0.0.1:"), "{error}");
        let (near, mut far) = join(&a, &b, Purpose::Control);
        near.closer.close();
        let error = far.receiver.receive(&soon("waiting for a heartbeat")).unwrap_err();
        assert!(error.is_lost(), "{error}");
    }
}

#[test]
fn a_silent_peer_times_out_with_its_name() {
    for (security, shared, _) in CARRIERS {
        let (a, b) = two(security, shared);
        let (_near, mut far) = join(&a, &b, Purpose::Control);
        let wait = Wait::within(Duration::from_millis(60), "waiting for the gradient of step 17");
        let error = far.receiver.receive(&wait).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(error.to_string().contains("step 17"), "{error}");
    }
}

/// Dials `b` from a task that differs in one thing, and gives what each side says.
fn refused(security: Security, change: impl Fn(&mut Identity)) -> (LinkError, Vec<Notice>) {
    let key = ClusterKey::generate().unwrap();
    let (b, heard) = bind(identity(1, &key, security));
    let mut other = identity(0, &key, security);
    change(&mut other);
    let a = bind(other).0;
    let address = b.address().to_string();
    let error = a.dial(worker(1), &address, Purpose::Control, &soon("joining")).unwrap_err();
    assert!(
        b.accept(&Wait::within(Duration::from_millis(50), "no task")).is_err(),
        "a refused task was let in"
    );
    drop(b);
    let heard = heard.lock().unwrap().clone();
    (error, heard)
}

fn reason(error: LinkError) -> Refusal {
    match error {
        LinkError::Refused { reason, .. } => reason,
        other => panic!("not refused: {other}"),
    }
}

#[test]
fn a_wrong_key_is_refused_on_both_sides() {
    for security in ALL {
        let (error, heard) = refused(security, |i| i.key = ClusterKey::generate().unwrap());
        assert_eq!(reason(error), Refusal::Key);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].to_string().contains("keys differ"), "{}", heard[0]);
    }
}

#[test]
fn another_version_is_refused_and_both_are_named() {
    for security in ALL {
        let (error, heard) = refused(security, |i| i.version = String::from("0.9.1"));
        let text = error.to_string();
        assert!(text.contains("0.9.1") && text.contains("1.0.0"), "{text}");
        let text = heard[0].to_string();
        assert!(text.contains("0.9.1") && text.contains("1.0.0"), "{text}");
    }
}

#[test]
fn another_plan_run_or_security_is_refused() {
    let (error, _) = refused(Security::Plain, |i| i.plan = [8; 32]);
    assert_eq!(reason(error), Refusal::Plan { ours: [8; 32], theirs: [7; 32] });
    let (error, _) = refused(Security::Plain, |i| i.run = String::from("run-2"));
    assert!(matches!(reason(error), Refusal::Run { .. }));
    let (error, _) = refused(Security::Plain, |i| i.security = Security::Tls);
    assert_eq!(reason(error), Refusal::Security);
    let (error, _) = refused(Security::Tls, |i| i.security = Security::Plain);
    assert_eq!(reason(error), Refusal::Security);
}

#[test]
fn dialling_the_wrong_task_is_noticed() {
    let (a, b) = two(Security::Plain, false);
    let address = b.address().to_string();
    let error = a.dial(worker(5), &address, Purpose::Control, &soon("joining")).unwrap_err();
    let wanted = Refusal::Task { found: worker(1), wanted: worker(5) };
    assert_eq!(reason(error), wanted);
}

#[test]
fn a_closed_port_fails_at_once_and_a_silent_one_at_the_deadline() {
    let (a, b) = two(Security::Plain, false);
    let address = b.address().to_string();
    drop(b);
    let error = a.dial(worker(1), &address, Purpose::Control, &soon("joining")).unwrap_err();
    assert!(matches!(error, LinkError::Unreachable { .. }), "{error}");

    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let wait = Wait::within(Duration::from_millis(80), "joining the run");
    let error = a.dial(worker(1), &address, Purpose::Control, &wait).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(error.to_string().ends_with("while joining the run"), "{error}");
}

#[test]
fn memory_is_shared_only_if_both_are_willing() {
    let key = ClusterKey::generate().unwrap();
    let a = bind(Identity { shared_memory: true, ..identity(0, &key, Security::Plain) }).0;
    let b = bind(identity(1, &key, Security::Plain)).0;
    assert_eq!(join(&a, &b, Purpose::Control).0.carrier, "tcp");
    assert_eq!(join(&b, &a, Purpose::Control).0.carrier, "tcp");
}

#[test]
fn accepting_picks_who_is_wanted_and_leaves_the_others() {
    let key = ClusterKey::generate().unwrap();
    let server = bind(identity(9, &key, Security::Plain)).0;
    let address = server.address().to_string();
    let mut links = Vec::new();
    for index in 0..3 {
        let from = bind(identity(index, &key, Security::Plain)).0;
        let purpose = Purpose::Data { generation: 0, channel: Channel::AllReduce };
        links.push(from.dial(worker(9), &address, purpose, &soon("joining")).unwrap());
    }
    for index in [2, 0, 1] {
        let wanted = |task: TaskId, _| task == worker(index);
        let (_, link) = server.accept_if(&soon("picking"), wanted).unwrap();
        assert_eq!(link.peer, worker(index));
    }
}

#[test]
fn an_occupied_port_is_named() {
    let key = ClusterKey::generate().unwrap();
    let first = bind(identity(0, &key, Security::Plain)).0;
    let address = first.address().to_string();
    let error = Endpoint::bind(identity(1, &key, Security::Plain), &address).unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
}

/// What tasks of version 0.1 say to each other, byte by byte: written down here, not taken from the crate, so that no change of it
/// goes unnoticed.
mod version_0_1 {
    use super::*;
    use ring::hmac;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    const PREAMBLE: &[u8] = b"PLNK\x00\x01\x00P";
    /// HKDF-SHA256 with the salt `paceline cluster key v1` of the public key, 32 zeros, for `link handshake`.
    const SECRET: [u8; 32] = [
        0x10, 0x80, 0xc6, 0xe2, 0x20, 0x4f, 0x33, 0x1e, 0x97, 0xda, 0xca, 0x2a, 0xea, 0xf3, 0xf8,
        0x6c, 0xf5, 0x9f, 0xef, 0xb5, 0xa4, 0x00, 0xa8, 0x52, 0x7a, 0xde, 0xb2, 0x3c, 0xa6, 0x99,
        0x4b, 0xb6,
    ];
    const NONCE: [u8; 32] = [5; 32];
    /// A message of kind 7 with the number 17.
    const FRAME: &[u8] = b"\x07PL1\0\0\0\0\x11\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0gradient";

    fn proof(parts: &[&[u8]]) -> Vec<u8> {
        let mut text = Vec::new();
        for part in parts {
            text.extend_from_slice(&(part.len() as u64).to_le_bytes());
            text.extend_from_slice(part);
        }
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), &text).as_ref().to_vec()
    }

    fn read(stream: &mut TcpStream, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// A worker of 0.1 calls; comes back with what the other side says of itself.
    fn call(address: SocketAddr, purpose: &str) -> (TcpStream, String) {
        let plan = vec!["7"; 32].join(",");
        let hello = format!(
            r#"{{"task":"worker/0","to":"worker/1","run":"run-1","version":"0.1.0","plan":[{plan}],"purpose":{purpose}}}"#
        );
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(PREAMBLE).unwrap();
        assert_eq!(read(&mut stream, 1), b"A");
        let theirs = read(&mut stream, 32);
        let mac = proof(&[b"client", &theirs, &NONCE, &[0; 32], hello.as_bytes()]);
        let length = (hello.len() as u16).to_le_bytes();
        stream.write_all(&[&NONCE[..], &length, hello.as_bytes(), &mac].concat()).unwrap();
        let mut answer = [0];
        if stream.read(&mut answer).unwrap_or(0) == 0 {
            return (stream, String::new());
        }
        assert_eq!(answer, *b"A");
        let length = read(&mut stream, 2);
        let said = read(&mut stream, usize::from(u16::from_le_bytes([length[0], length[1]])));
        let mac = read(&mut stream, 32);
        let parts: [&[u8]; 6] = [b"server", &theirs, &NONCE, &[0; 32], hello.as_bytes(), &said];
        assert_eq!(mac, proof(&parts));
        (stream, String::from_utf8(said).unwrap())
    }

    fn server(version: &str) -> (Endpoint, Arc<Mutex<Vec<Notice>>>) {
        let mut identity = identity(1, &ClusterKey::public(), Security::Plain);
        version.clone_into(&mut identity.version);
        bind(identity)
    }

    #[test]
    fn a_task_of_the_same_version_is_understood() {
        let (server, _) = server("0.1.0");
        let (mut stream, said) = call(server.address(), "\"control\"");
        assert!(said.contains(r#""task":"worker/1""#) && said.contains(r#""version":"0.1.0""#));
        stream.write_all(b"A").unwrap();
        let (purpose, mut link) = server.accept(&soon("an old task")).unwrap();
        assert_eq!((purpose, link.peer), (Purpose::Control, worker(0)));
        stream.write_all(FRAME).unwrap();
        let mut payload = Vec::new();
        let head = link.receiver.receive_into(&soon("a message"), 100, &mut payload).unwrap();
        assert_eq!((head.kind, head.number, &payload[..]), (7, 17, &b"gradient"[..]));
        link.sender.send(7, 17, &[b"grad", b"ient"]).unwrap();
        assert_eq!(read(&mut stream, FRAME.len()), FRAME);
    }

    #[test]
    fn a_task_of_another_version_is_refused_with_both_versions() {
        let (server, heard) = server("0.2.0");
        let (mut stream, said) = call(server.address(), "\"control\"");
        assert!(said.contains(r#""version":"0.2.0""#), "it can tell its user: {said}");
        // It says that it goes on, and is let go.
        let _ = stream.write_all(b"A");
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
        let said = notice(&heard);
        assert!(said.contains("this is version 0.2.0, that is version 0.1.0"), "{said}");
    }

    #[test]
    fn links_for_data_keep_their_numbers_and_unknown_ones_are_refused() {
        let (server, heard) = server("0.1.0");
        for (number, channel) in [
            (0, Channel::AllReduce),
            (1, Channel::ParameterServer),
            (2, Channel::Oversight),
            (8, Channel::Evaluator),
            (9, Channel::Lineage),
        ] {
            let purpose = format!(r#"{{"data":{{"generation":2,"channel":{number}}}}}"#);
            let (mut stream, _) = call(server.address(), &purpose);
            stream.write_all(b"A").unwrap();
            let (found, _) = server.accept(&soon("an old link")).unwrap();
            assert_eq!(found, Purpose::Data { generation: 2, channel });
        }
        let (_, said) = call(server.address(), r#"{"data":{"generation":2,"channel":200}}"#);
        assert_eq!(said, "");
        let said = notice(&heard);
        assert!(said.contains("a hello of another protocol"), "{said}");
    }

    fn notice(heard: &Mutex<Vec<Notice>>) -> String {
        let began = std::time::Instant::now();
        loop {
            if let Some(notice) = heard.lock().unwrap().first() {
                return notice.to_string();
            }
            assert!(began.elapsed() < tasks::HANG, "nothing is said of a stranger");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
