//! Connections without the key are refused before anything is parsed, at bounded cost, in one line of the log,
//! while the run continues.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod tasks;

use paceline_wire::{ClusterKey, Endpoint, Link, Notice, Purpose, Security, Wait};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};
use tasks::{HANG, identity, soon, worker};

/// A run of two tasks that exchange messages without pause until told to stop.
struct Run {
    key: ClusterKey,
    security: Security,
    server: Endpoint,
    heard: Arc<Mutex<Vec<Notice>>>,
    stop: Arc<AtomicBool>,
    /// Messages that went there and back.
    said: Arc<AtomicU64>,
    talkers: Vec<thread::JoinHandle<()>>,
}

impl Run {
    fn start(security: Security) -> Self {
        let key = ClusterKey::generate().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        let notify = Arc::new(move |notice: &Notice| ear.lock().unwrap().push(notice.clone()));
        let server =
            Endpoint::bind_with(identity(1, &key, security), "127.0.0.1:0", notify).unwrap();
        let client = Endpoint::bind(identity(0, &key, security), "127.0.0.1:0").unwrap();
        let near = client
            .dial(worker(1), &server.address().to_string(), Purpose::Control, &soon("joining"))
            .unwrap();
        let far = server.accept(&soon("joining")).unwrap().1;
        let stop = Arc::new(AtomicBool::new(false));
        let said = Arc::new(AtomicU64::new(0));
        let talk = |mut link: Link, first: bool| {
            let (stop, said) = (Arc::clone(&stop), Arc::clone(&said));
            thread::spawn(move || {
                let mut count = 0;
                let mut got = Vec::new();
                loop {
                    if first {
                        let kind = u8::from(stop.load(Ordering::Relaxed));
                        link.sender.send(kind, count, &[&count.to_le_bytes()]).unwrap();
                    }
                    let head = link.receiver.receive_into(&soon("talking"), 8, &mut got).unwrap();
                    assert_eq!(head.number, count, "the run was disturbed");
                    if !first {
                        link.sender.send(head.kind, count, &[&got]).unwrap();
                    }
                    count += 1;
                    if first {
                        said.store(count, Ordering::Relaxed);
                    }
                    if head.kind == 1 {
                        return;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            })
        };
        let talkers = vec![talk(near, true), talk(far, false)];
        Self { key, security, server, heard, stop, said, talkers }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// A task with the key can still connect.
    fn welcomes_its_own(&self) {
        let late = Endpoint::bind(identity(2, &self.key, self.security), "127.0.0.1:0").unwrap();
        let address = self.address().to_string();
        let link = late.dial(worker(1), &address, Purpose::Control, &soon("coming late")).unwrap();
        let (_, other) = self.server.accept(&soon("a late one")).unwrap();
        assert_eq!((link.peer, other.peer), (worker(1), worker(2)));
    }

    /// Waits for the first line about a stranger, ends the run, and gives all lines.
    fn end(self) -> Vec<String> {
        let began = Instant::now();
        while self.heard.lock().unwrap().is_empty() && began.elapsed() < HANG {
            thread::sleep(Duration::from_millis(10));
        }
        self.end_unharmed()
    }

    /// Ends the run, which must still be going on.
    fn end_unharmed(self) -> Vec<String> {
        self.welcomes_its_own();
        let (began, before) = (Instant::now(), self.said.load(Ordering::Relaxed));
        while self.said.load(Ordering::Relaxed) < before + 2 {
            assert!(began.elapsed() < HANG, "the run stood still");
            thread::sleep(Duration::from_millis(1));
        }
        self.stop.store(true, Ordering::Relaxed);
        for talker in self.talkers {
            talker.join().unwrap();
        }
        assert!(self.server.accept(&Wait::within(Duration::ZERO, "strangers")).is_err());
        self.heard.lock().unwrap().iter().map(ToString::to_string).collect()
    }
}

/// Reads until the other side closes; how many bytes came.
fn closed_after(mut stream: TcpStream) -> usize {
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut all = Vec::new();
    // A reset is an ending too.
    drop(stream.read_to_end(&mut all));
    all.len()
}

/// Held for writing by the test that counts the threads of this process, for reading by all others: beside it they have up to a
/// hundred of their own.
static ALONE: RwLock<()> = RwLock::new(());

#[test]
fn garbage_is_refused_in_one_line() {
    let _guard = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    for security in [Security::Plain, Security::Tls] {
        let run = Run::start(security);
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 5000], &[0; 64]] {
            let mut stream = TcpStream::connect(run.address()).unwrap();
            stream.write_all(garbage).ok();
            assert_eq!(closed_after(stream), 0, "a stranger was answered");
        }
        let lines = run.end();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("refused a connection from 127.0.0.1"), "{lines:?}");
    }
}

/// The client's first bytes, up to its proof.
fn preamble(security: u8) -> Vec<u8> {
    [&b"PLNK\x00\x01\x00"[..], &[security]].concat()
}

#[test]
fn a_huge_length_is_refused_without_memory() {
    let _guard = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let run = Run::start(Security::Plain);
    // The longest hello there can be in its own place, and 2^63 where a frame would have its length: no more than a hello that
    // does not come.
    for tail in [[0xff; 2].to_vec(), [0, 0, 0, 0, 0, 0, 0, 0x80].repeat(3)] {
        let mut stream = TcpStream::connect(run.address()).unwrap();
        stream.write_all(&preamble(b'P')).unwrap();
        stream.write_all(&[9; 32]).unwrap();
        stream.write_all(&tail).ok();
        stream.shutdown(std::net::Shutdown::Write).ok();
        // The status and the nonce, and not a byte more.
        assert!(closed_after(stream) <= 34);
    }
    // Each is told before its connection is closed.
    let lines = run.end_unharmed();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("a hello longer than any"), "{lines:?}");
    assert!(lines[1].contains("went away during the handshake"), "{lines:?}");
}

#[test]
fn a_frame_of_2_to_the_63_bytes_from_a_peer_with_the_key_ends_that_link_only() {
    let _guard = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    for security in [Security::Plain, Security::Tls] {
        let run = Run::start(security);
        let rogue = Endpoint::bind(identity(3, &run.key, security), "127.0.0.1:0").unwrap();
        let address = run.address().to_string();
        let mut link = rogue.dial(worker(1), &address, Purpose::Control, &soon("joining")).unwrap();
        let (_, mut far) = run.server.accept(&soon("joining")).unwrap();
        let head = paceline_wire::Head { kind: 1, number: 0, length: 1 << 63 };
        link.sender.start(head).unwrap();
        link.sender.push(&[]).unwrap();
        let error = far.receiver.receive(&soon("a message")).unwrap_err();
        assert!(
            error.to_string().contains("announces a message of 9223372036854775808"),
            "{error}"
        );
        run.end_unharmed();
    }
}

/// Passes bytes between a real client and the server, and keeps what the client said.
fn record(run: &Run) -> Vec<u8> {
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, target) = (middle.local_addr().unwrap(), run.address());
    let tap = thread::spawn(move || {
        let (mut client, _) = middle.accept().unwrap();
        let mut server = TcpStream::connect(target).unwrap();
        let (mut back, mut forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || drop(std::io::copy(&mut back, &mut forth)));
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let count = client.read(&mut buffer).unwrap_or(0);
            if count == 0 {
                return said;
            }
            said.extend_from_slice(&buffer[..count]);
            server.write_all(&buffer[..count]).unwrap();
        }
    });
    let client = Endpoint::bind(identity(4, &run.key, run.security), "127.0.0.1:0").unwrap();
    let address = address.to_string();
    let link = client.dial(worker(1), &address, Purpose::Control, &soon("joining")).unwrap();
    drop(run.server.accept(&soon("joining")).unwrap());
    drop(link);
    tap.join().unwrap()
}

#[test]
fn a_recording_of_a_real_handshake_opens_nothing() {
    let _guard = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    for security in [Security::Plain, Security::Tls] {
        let run = Run::start(security);
        let said = record(&run);
        assert!(said.len() > 100, "nothing to replay");
        for _ in 0..3 {
            let mut stream = TcpStream::connect(run.address()).unwrap();
            // The door may be shut before all is said.
            stream.write_all(&said).ok();
            stream.shutdown(std::net::Shutdown::Write).ok();
            closed_after(stream);
        }
        let lines = run.end();
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}

#[test]
fn an_encrypted_connection_hides_which_tasks_talk() {
    let _guard = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let run = Run::start(Security::Tls);
    let said = record(&run);
    let text = String::from_utf8_lossy(&said);
    assert!(!text.contains("worker") && !text.contains("run-1"), "the hello went in the clear");
    run.end_unharmed();
}

/// Threads and resident kilobytes of this process.
fn cost() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    (field("Threads:"), field("VmRSS:"))
}

#[test]
fn a_thousand_silent_connections_cost_little_and_keep_no_task_out() {
    let _guard = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let run = Run::start(Security::Plain);
    let before = cost();
    let mut silent = Vec::new();
    for index in 0..1000 {
        // Some say nothing at all, some say a little and stop.
        let Ok(mut stream) = TcpStream::connect(run.address()) else { continue };
        if index % 3 == 0 {
            stream.write_all(&preamble(b'P')[..index % 8]).ok();
        }
        silent.push(stream);
        if index % 250 == 249 {
            run.welcomes_its_own();
        }
    }
    assert!(silent.len() > 900, "only {} connections", silent.len());
    let during = cost();
    assert!(during.0 < before.0 + 150, "{} threads became {}", before.0, during.0);
    assert!(during.1 < before.1 + 100_000, "{} KB became {}", before.1, during.1);
    let lines = run.end();
    let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!(count("too many connections that say nothing"), 1, "{lines:?}");
    // On a machine so slow that the first ones' time was up before the last ones came, that is told too, once.
    assert!(count("did not finish the handshake in time") <= 1, "{lines:?}");
    assert_eq!(lines.len(), 1 + count("in time"), "{lines:?}");
}

#[test]
fn a_byte_now_and_then_does_not_keep_a_connection_open() {
    let _guard = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let run = Run::start(Security::Plain);
    let mut stream = TcpStream::connect(run.address()).unwrap();
    let began = Instant::now();
    let mut sent = 0;
    // The first seven bytes of a proper preamble, one every second: longer than a handshake may take.
    for byte in &preamble(b'P')[..7] {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        sent += 1;
        thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(closed_after(stream), 0);
    eprintln!("closed after {:?} and {sent} bytes", began.elapsed());
    let lines = run.end();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("in time"), "{lines:?}");
}
