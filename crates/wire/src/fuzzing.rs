//! What holds for any bytes that come in: the bodies of fuzz targets, which ordinary tests run too.

use crate::frame::{FramedReceiver, Peer};
use crate::handshake::{self, Hello, Security};
use crate::link::{Receiver, Wait};
use crate::transport::Inlet;
use crate::{ClusterKey, Purpose, Role, TaskId};
use std::io::{self, Read, Write};
use std::time::Duration;

/// Most bytes of a message that a task here is ready for.
const MOST: u64 = 1 << 12;

/// Bytes that have come, a few at a time, and then the end.
struct Stored<'a>(&'a [u8]);

impl Inlet for Stored<'_> {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let piece = into.len().min(7);
        self.0.read(&mut into[..piece]).map(Some)
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// A stream of messages: all of them are read, the last word is an error, and no message is longer than the stream.
///
/// # Panics
/// If that is not so.
pub fn frames(bytes: &[u8]) {
    let peer = Peer { task: TaskId::new(Role::Worker, 1), address: String::from("nowhere") };
    let mut receiver = FramedReceiver::new(Stored(bytes), peer);
    let wait = Wait::within(Duration::from_secs(60), "reading what was stored");
    let (mut payload, mut seen) = (Vec::new(), 0);
    while let Ok(head) = receiver.receive_into(&wait, MOST, &mut payload) {
        assert!(head.length <= MOST && payload.len() as u64 == head.length, "{head:?}");
        seen += payload.len() + 1;
        assert!(seen <= bytes.len(), "{seen} of {} bytes", bytes.len());
    }
}

/// The other end of a handshake: says what was stored, and listens to nothing.
struct Stranger<'a>(&'a [u8]);

impl Read for Stranger<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Stranger<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both sides of the handshake with a stranger: whatever it says, it proves nothing. What a task with the key says is parsed or
/// refused.
///
/// # Panics
/// If a stranger is let in.
pub fn handshake(bytes: &[u8]) {
    let key = ClusterKey::public();
    let hello = || Hello {
        task: TaskId::new(Role::Worker, 0),
        to: TaskId::new(Role::Worker, 1),
        run: String::from("run"),
        version: String::from("0.1.0"),
        plan: [0; 32],
        purpose: Purpose::Control,
        suite: None,
        machine: None,
        memory: None,
    };
    let mut stranger = Stranger(bytes);
    if let Ok(nonce) = handshake::welcome(&mut stranger, Security::Plain) {
        let examined = handshake::examine(&mut stranger, &key, &nonce, &[0; 32], |_| hello());
        assert!(examined.is_err(), "a stranger was let in as a client");
    }
    let mut stranger = Stranger(bytes);
    if let Ok(nonce) = handshake::greet(&mut stranger, Security::Plain) {
        let proved = handshake::prove(&mut stranger, &key, &nonce, &[0; 32], &hello());
        assert!(proved.is_err(), "a stranger was taken for a server");
    }
    if let Ok(theirs) = handshake::parse(bytes)
        && let Err(refusal) = handshake::compare(&hello(), &theirs)
    {
        assert!(!refusal.to_string().is_empty());
    }
}
