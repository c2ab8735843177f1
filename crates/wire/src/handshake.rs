//! How two tasks prove to each other that they hold the cluster key and mean the same run.
//!
//! ```text
//! client                                   server
//!   preamble: "PLNK", protocol, security →
//!                                        ← 'A' and a nonce, or 'S': security differs
//!   (TLS, if both want it)
//!   nonce, hello, proof                  →   the proof is checked before the hello is parsed
//!                                        ← 'A', hello, proof; or 'K': the proof does not hold
//!   'A', or 'M': I mapped your memory    →   both now know whom they talk to
//! ```
//! A proof is an HMAC-SHA256, keyed from the cluster key, over a label of the direction, both nonces,
//! the hellos exchanged so far and the TLS exporter. Fresh nonces make a recording useless, the label
//! keeps a proof from being sent back to its maker, the names of both tasks keep it from being passed on
//! to a third, the exporter ties it to this one encrypted session. A side without the key learns nothing but
//! that it is refused; a side with the key but another version, run or plan is told both of them.
//! Everything has a length limit and one deadline for the whole.

use crate::error::Refusal;
use crate::frame::glance;
use crate::key::{ClusterKey, random};
use crate::link::Wait;
use crate::{Channel, TaskId};
use ring::hmac;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Begins every connection: name and version of this very exchange.
const PREAMBLE: [u8; 7] = *b"PLNK\x00\x01\x00";
/// Longest hello, in bytes; a run's name is the only long thing in it.
const LONGEST_HELLO: usize = 2048;
/// The cipher of tasks that do not say which they have.
const FIRST_SUITE: &str = "AEGIS-128X4";

pub(crate) const ACCEPT: u8 = b'A';
/// The client has mapped the memory that the server offers.
pub(crate) const MAPPED: u8 = b'M';
const WRONG_SECURITY: u8 = b'S';
const WRONG_KEY: u8 = b'K';

/// Whether a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TLS 1.3.
    Tls,
    /// Authenticated but not encrypted.
    Plain,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Membership, heartbeats, results.
    Control,
    /// Gradients and weights.
    Data {
        /// Which forming of the group: links of an earlier one are worthless.
        generation: u32,
        /// Several links between two tasks are told apart by it.
        channel: Channel,
    },
}

/// Who a task is and what it wants, as it tells the other side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) task: TaskId,
    /// Whom it means to speak to.
    pub(crate) to: TaskId,
    pub(crate) run: String,
    pub(crate) version: String,
    pub(crate) plan: [u8; 32],
    pub(crate) purpose: Purpose,
    /// The cipher of its records, where they are encrypted.
    #[serde(default)]
    pub(crate) suite: Option<String>,
    /// The machine, if this side is willing to share memory on it.
    #[serde(default)]
    pub(crate) machine: Option<String>,
    /// Memory to share, from the server's side.
    #[serde(default)]
    pub(crate) memory: Option<Offer>,
}

/// Memory that the other side may map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// Process that holds it.
    pub(crate) process: u32,
    pub(crate) descriptor: i32,
    /// Stands at the beginning of the right memory.
    pub(crate) token: [u8; 16],
}

/// Why a connection did not come about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShakeError {
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Refused(Refusal),
    #[error("{0}")]
    Garbage(&'static str),
    #[error("the deadline of the handshake passed")]
    TooSlow,
}

impl From<io::Error> for ShakeError {
    /// Tells a passed deadline from other failures of a stream.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TooSlow,
            _ => Self::Io(error),
        }
    }
}

/// A blocking socket with one wait for everything, so that a byte now and then does not keep it open.
pub(crate) struct Deadlined<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) wait: &'a Wait<'a>,
}

impl Deadlined<'_> {
    /// Calls `step` with a moment's time again and again, until something moves, the deadline passes or a flag is set.
    fn patiently(
        &self,
        mut step: impl FnMut(&TcpStream, Option<Duration>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let began = Instant::now();
        let flagged = self.wait.cancel.iter().any(Option::is_some);
        loop {
            let left = self.wait.left();
            if left.is_zero() || self.wait.cancelled() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let moment = if flagged { left.min(glance(began.elapsed())) } else { left };
            match step(self.stream, Some(moment)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

impl Read for Deadlined<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.patiently(|mut stream, moment| {
            stream.set_read_timeout(moment)?;
            stream.read(into)
        })
    }
}

impl Write for Deadlined<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.patiently(|mut stream, moment| {
            stream.set_write_timeout(moment)?;
            stream.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// First step of the client: tells how it wants to talk.
pub(crate) fn greet(
    stream: &mut (impl Wire + ?Sized),
    security: Security,
) -> Result<[u8; 32], ShakeError> {
    let mut preamble = [0; 8];
    preamble[..7].copy_from_slice(&PREAMBLE);
    preamble[7] = security_byte(security);
    put(stream, &preamble)?;
    match get::<1>(stream)?[0] {
        ACCEPT => Ok(get(stream)?),
        WRONG_SECURITY => Err(ShakeError::Refused(Refusal::Security)),
        _ => Err(ShakeError::Garbage("an answer that no Paceline task gives")),
    }
}

/// First step of the server: a stranger that does not speak our language ends here.
pub(crate) fn welcome(
    stream: &mut (impl Wire + ?Sized),
    security: Security,
) -> Result<[u8; 32], ShakeError> {
    let preamble: [u8; 8] = get(stream)?;
    if preamble[..7] != PREAMBLE {
        return Err(ShakeError::Garbage("bytes that no Paceline task sends"));
    }
    if preamble[7] != security_byte(security) {
        put(stream, &[WRONG_SECURITY])?;
        return Err(ShakeError::Refused(Refusal::Security));
    }
    let nonce: [u8; 32] = random().map_err(|_| ShakeError::Garbage("no random bytes"))?;
    let mut answer = [ACCEPT; 33];
    answer[1..].copy_from_slice(&nonce);
    put(stream, &answer)?;
    Ok(nonce)
}

fn security_byte(security: Security) -> u8 {
    match security {
        Security::Tls => b'T',
        Security::Plain => b'P',
    }
}

/// Client's proof and the server's; gives the server's hello.
pub(crate) fn prove(
    stream: &mut impl Wire,
    key: &ClusterKey,
    server_nonce: &[u8; 32],
    binding: &[u8; 32],
    hello: &Hello,
) -> Result<Hello, ShakeError> {
    let secret = secret(key);
    let nonce: [u8; 32] = random().map_err(|_| ShakeError::Garbage("no random bytes"))?;
    let mine = serde_json::to_vec(hello).expect("a hello is plain data");
    let parts: [&[u8]; 5] = [b"client", server_nonce, &nonce, binding, &mine];
    send_proven(stream, &[&nonce], &mine, proof(&secret, &parts).as_ref())?;

    match get::<1>(stream)?[0] {
        ACCEPT => {}
        WRONG_KEY => return Err(ShakeError::Refused(Refusal::Key)),
        _ => return Err(ShakeError::Garbage("an answer that no Paceline task gives")),
    }
    let (theirs, mac) = receive_proven(stream)?;
    let parts: [&[u8]; 6] = [b"server", server_nonce, &nonce, binding, &mine, &theirs];
    check(&secret, &parts, &mac)?;
    parse(&theirs)
}

/// Server's check of the client's proof, before anything of it is parsed. `answer` makes the own hello
/// once the client is known.
pub(crate) fn examine(
    stream: &mut impl Wire,
    key: &ClusterKey,
    server_nonce: &[u8; 32],
    binding: &[u8; 32],
    answer: impl FnOnce(&Hello) -> Hello,
) -> Result<Hello, ShakeError> {
    let secret = secret(key);
    let nonce: [u8; 32] = get(stream)?;
    let (theirs, mac) = receive_proven(stream)?;
    let parts: [&[u8]; 5] = [b"client", server_nonce, &nonce, binding, &theirs];
    if let Err(refused) = check(&secret, &parts, &mac) {
        put(stream, &[WRONG_KEY])?;
        return Err(refused);
    }
    let client = parse(&theirs)?;
    let mine = serde_json::to_vec(&answer(&client)).expect("a hello is plain data");
    let parts: [&[u8]; 6] = [b"server", server_nonce, &nonce, binding, &theirs, &mine];
    send_proven(stream, &[&[ACCEPT]], &mine, proof(&secret, &parts).as_ref())?;
    Ok(client)
}

/// Last word of the client, which the server waits for: one byte of the caller's choice.
pub(crate) fn confirm(stream: &mut (impl Wire + ?Sized), word: u8) -> Result<(), ShakeError> {
    put(stream, &[word])
}

/// Receives the client's last word.
pub(crate) fn confirmed(stream: &mut (impl Wire + ?Sized)) -> Result<u8, ShakeError> {
    Ok(get::<1>(stream)?[0])
}

/// Whether the two hellos go together.
pub(crate) fn compare(ours: &Hello, theirs: &Hello) -> Result<(), Refusal> {
    if ours.version != theirs.version {
        let (ours, theirs) = (ours.version.clone(), theirs.version.clone());
        return Err(Refusal::Version { ours, theirs });
    }
    let suite = |hello: &Hello| hello.suite.clone().unwrap_or_else(|| FIRST_SUITE.to_owned());
    if suite(ours) != suite(theirs) {
        return Err(Refusal::Suite { ours: suite(ours), theirs: suite(theirs) });
    }
    if ours.run != theirs.run {
        return Err(Refusal::Run { ours: ours.run.clone(), theirs: theirs.run.clone() });
    }
    if ours.plan != theirs.plan {
        return Err(Refusal::Plan { ours: ours.plan, theirs: theirs.plan });
    }
    Ok(())
}

/// A stream to shake hands over.
pub(crate) trait Wire: Read + Write {}
impl<T: Read + Write + ?Sized> Wire for T {}

fn secret(key: &ClusterKey) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &key.derive("link handshake", &[]))
}

fn proof(secret: &hmac::Key, parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(secret);
    for part in parts {
        // Lengths keep parts from running into each other.
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    context.sign()
}

fn check(secret: &hmac::Key, parts: &[&[u8]], mac: &[u8; 32]) -> Result<(), ShakeError> {
    let mut whole = Vec::new();
    for part in parts {
        whole.extend_from_slice(&(part.len() as u64).to_le_bytes());
        whole.extend_from_slice(part);
    }
    hmac::verify(secret, &whole, mac).map_err(|_| ShakeError::Refused(Refusal::Key))
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Hello, ShakeError> {
    serde_json::from_slice(bytes).map_err(|_| ShakeError::Garbage("a hello of another protocol"))
}

fn send_proven(
    stream: &mut impl Wire,
    before: &[&[u8]],
    hello: &[u8],
    mac: &[u8],
) -> Result<(), ShakeError> {
    let length = u16::try_from(hello.len()).ok().filter(|n| usize::from(*n) <= LONGEST_HELLO);
    let length =
        length.ok_or(ShakeError::Garbage("a run name too long to introduce oneself with"))?;
    let mut message = before.concat();
    message.extend_from_slice(&length.to_le_bytes());
    message.extend_from_slice(hello);
    message.extend_from_slice(mac);
    put(stream, &message)
}

fn receive_proven(stream: &mut (impl Wire + ?Sized)) -> Result<(Vec<u8>, [u8; 32]), ShakeError> {
    let length = usize::from(u16::from_le_bytes(get(stream)?));
    if length > LONGEST_HELLO {
        return Err(ShakeError::Garbage("a hello longer than any"));
    }
    let mut hello = vec![0; length];
    stream.read_exact(&mut hello)?;
    Ok((hello, get(stream)?))
}

fn put(stream: &mut (impl Wire + ?Sized), bytes: &[u8]) -> Result<(), ShakeError> {
    stream.write_all(bytes)?;
    Ok(stream.flush()?)
}

fn get<const N: usize>(stream: &mut (impl Wire + ?Sized)) -> Result<[u8; N], ShakeError> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use std::os::unix::net::UnixStream;
    use std::thread;

    fn hello(index: u32) -> Hello {
        Hello {
            task: TaskId::new(Role::Worker, index),
            to: TaskId::new(Role::Worker, 1 - index),
            run: String::from("run"),
            version: String::from("1"),
            plan: [0; 32],
            purpose: Purpose::Control,
            suite: None,
            machine: None,
            memory: None,
        }
    }

    /// Both sides of the proof with their own idea of key, nonce and binding.
    fn meet(
        client: (&ClusterKey, [u8; 32], [u8; 32]),
        server: (&ClusterKey, [u8; 32], [u8; 32]),
    ) -> (Result<Hello, ShakeError>, Result<Hello, ShakeError>) {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let examined = scope
                .spawn(move || examine(&mut far, server.0, &server.1, &server.2, |_| hello(1)));
            let proved = prove(&mut near, client.0, &client.1, &client.2, &hello(0));
            (proved, examined.join().unwrap())
        })
    }

    #[test]
    fn builds_with_different_ciphers_refuse_each_other_by_name() {
        let with = |suite: &str| Hello { suite: Some(suite.to_owned()), ..hello(0) };
        let (fast, plain) = (with("AEGIS-128X4"), with("AES-128-GCM"));
        assert_eq!(compare(&plain, &plain), Ok(()));
        assert_eq!(compare(&fast, &hello(1)), Ok(()), "it did not say so at first");
        for other in [&fast, &hello(1)] {
            let refused = compare(&plain, other).unwrap_err().to_string();
            assert!(
                refused.contains("AES-128-GCM") && refused.contains("AEGIS-128X4"),
                "{refused}"
            );
        }
    }

    fn is_refused(result: &Result<Hello, ShakeError>) -> bool {
        matches!(result, Err(ShakeError::Refused(Refusal::Key)))
    }

    #[test]
    fn the_same_key_nonce_and_session_are_accepted() {
        let key = ClusterKey::generate().unwrap();
        let side = (&key, [1; 32], [2; 32]);
        let (client, server) = meet(side, side);
        assert_eq!((client.unwrap(), server.unwrap()), (hello(1), hello(0)));
    }

    /// A man in the middle has one encrypted session with each side, and their exporters differ: what it
    /// forwards from one side proves nothing to the other, although both have the key.
    #[test]
    fn a_proof_passed_on_from_another_session_is_refused() {
        let key = ClusterKey::generate().unwrap();
        let (client, server) = meet((&key, [1; 32], [2; 32]), (&key, [1; 32], [3; 32]));
        assert!(is_refused(&client) && is_refused(&server));
    }

    #[test]
    fn a_proof_for_an_old_nonce_or_from_another_key_is_refused() {
        let (key, other) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
        let (client, server) = meet((&key, [1; 32], [2; 32]), (&key, [9; 32], [2; 32]));
        assert!(is_refused(&client) && is_refused(&server));
        let (client, server) = meet((&other, [1; 32], [2; 32]), (&key, [1; 32], [2; 32]));
        assert!(is_refused(&client) && is_refused(&server));
    }

    /// A server without the key that says "accepted" must not be believed.
    #[test]
    fn a_server_that_cannot_prove_itself_is_refused() {
        let key = ClusterKey::generate().unwrap();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let liar = thread::spawn(move || {
            let mut said = [0; 32];
            far.read_exact(&mut said).unwrap();
            let (theirs, mac) = receive_proven(&mut far).unwrap();
            // Sends the client's own words back: the label of the direction keeps them from counting.
            send_proven(&mut far, &[&[ACCEPT]], &theirs, &mac).unwrap();
        });
        let result = prove(&mut near, &key, &[1; 32], &[2; 32], &hello(0));
        assert!(is_refused(&result), "{result:?}");
        liar.join().unwrap();
    }
}
