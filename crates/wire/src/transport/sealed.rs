//! Encrypted records over TCP, with keys from a TLS 1.3 session.
//!
//! The session itself (`tls`) makes the keys and proves who is there; what follows is large and nothing but
//! bytes, so it is sealed in records of our own, as voice and video calls do with keys from DTLS
//! (RFC 5764). TLS would cut it into records of 16 KiB, copy each three times and let both halves of a link wait for one lock: a
//! third of the speed.
//!
//! A record is its length (4 bytes, also authenticated), up to 62 KiB sealed by the cipher of this build (`suite`), and the
//! tag of 16 bytes. That is AEGIS-128X4, unless the build wants no C: on two processes that share two cores, AES-GCM alone takes
//! as long as all the copying.
//!
//! Each direction has a secret of its own, exported from the session (RFC 8446, 7.5), so that no record
//! can be turned round. The nonce counts records: none can be left out, repeated or moved. After 2^20 records,
//! far below what the cipher bears, the key is replaced by the next one derived from the secret. A stream that ends is a
//! lost link wherever it ends, so cutting it short gains nothing.

use super::patience::Patience;
use super::suite::{Changed, Chosen, Suite, TAG};
use super::tcp::{self, Ready, sleep_on, would_block};
use super::{Inlet, Outlet};
use crate::frame::{FramedReceiver, FramedSender, Peer};
use crate::link::Link;
use ring::hkdf;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of a record; with length and tag it fits into one TCP segment of the loopback device.
const RECORD: usize = 62 << 10;
/// Bytes of the length before a record.
const HEAD: usize = 4;
/// Records under one key.
const EPOCH: u64 = 1 << 20;
/// Most bytes of a record with all that belongs to it.
const WHOLE: usize = HEAD + RECORD + TAG;
/// Room for what came: several records, so that the beginning of one rarely has to be moved to the front.
const AHEAD: usize = 4 * WHOLE;

/// The secrets of both directions, from the session.
pub(crate) struct Secrets {
    pub(crate) send: [u8; 32],
    pub(crate) receive: [u8; 32],
}

/// The key of one direction and its place in the sequence.
struct Sequence<S> {
    secret: hkdf::Prk,
    cipher: S,
    count: u64,
}

impl<S: Suite> Sequence<S> {
    fn new(secret: [u8; 32]) -> Self {
        let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &secret);
        let cipher = S::new(&secret, 0);
        Self { secret, cipher, count: 0 }
    }

    /// The cipher of the next record, with a number that no other record has.
    fn next(&mut self) -> (&S, u64) {
        let count = self.count;
        if count > 0 && count.is_multiple_of(EPOCH) {
            self.cipher = S::new(&self.secret, count / EPOCH);
        }
        self.count += 1;
        (&self.cipher, count)
    }
}

struct SealedOutlet<S> {
    stream: Arc<TcpStream>,
    sequence: Sequence<S>,
    /// A sealed record, of which this part has not left yet.
    record: Box<[u8]>,
    left: Range<usize>,
}

impl<S: Suite> SealedOutlet<S> {
    fn new(stream: Arc<TcpStream>, secret: [u8; 32]) -> Self {
        let record = vec![0; WHOLE].into_boxed_slice();
        Self { stream, sequence: Sequence::new(secret), record, left: 0..0 }
    }

    /// Seals as many bytes as a record holds, without the first `skip`; how many that were.
    fn seal(&mut self, parts: &[&[u8]], skip: usize) -> usize {
        let all: usize = parts.iter().map(|part| part.len()).sum();
        let length = (all - skip).min(RECORD);
        let head = u32::try_from(length).expect("records are short").to_le_bytes();
        self.record[..HEAD].copy_from_slice(&head);
        let (mut left, mut skip) = (length, skip);
        let pieces = parts.iter().map(|part| {
            let rest = &part[skip.min(part.len())..];
            skip -= part.len() - rest.len();
            let piece = &rest[..rest.len().min(left)];
            left -= piece.len();
            piece
        });
        let (cipher, count) = self.sequence.next();
        let end = HEAD + length;
        let tag = cipher.seal(count, &head, pieces, &mut self.record[HEAD..end]);
        self.record[end..end + TAG].copy_from_slice(&tag);
        self.left = 0..end + TAG;
        length
    }
}

impl<S: Suite> Outlet for SealedOutlet<S> {
    fn offer(&mut self, parts: &[&[u8]]) -> io::Result<usize> {
        let whole: usize = parts.iter().map(|part| part.len()).sum();
        let mut moved = 0;
        loop {
            self.clear()?;
            if !self.is_clear() || moved == whole {
                return Ok(moved);
            }
            moved += self.seal(parts, moved);
        }
    }

    fn is_clear(&self) -> bool {
        self.left.is_empty()
    }

    fn clear(&mut self) -> io::Result<bool> {
        let before = self.left.start;
        while !self.left.is_empty() {
            match would_block((&*self.stream).write(&self.record[self.left.clone()]))? {
                Some(count) => self.left.start += count,
                None => break,
            }
        }
        Ok(self.left.start > before)
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        sleep_on(&[(self.stream.as_raw_fd(), Ready::Write)], limit)
    }

    fn socket(&self) -> Option<RawFd> {
        Some(self.stream.as_raw_fd())
    }
}

impl<S> Drop for SealedOutlet<S> {
    fn drop(&mut self) {
        // The other side hears the end even while the receiving half lives on.
        drop(self.stream.shutdown(Shutdown::Write));
    }
}

struct SealedInlet<S> {
    stream: Arc<TcpStream>,
    sequence: Sequence<S>,
    buffer: Box<[u8]>,
    /// The part of it that came and is not opened.
    sealed: Range<usize>,
    /// A record that is read in pieces, and the part of it that has not been read yet.
    plain: Box<[u8]>,
    open: Range<usize>,
    ended: bool,
    patience: Patience,
}

impl<S: Suite> SealedInlet<S> {
    fn new(stream: Arc<TcpStream>, secret: [u8; 32]) -> Self {
        Self {
            stream,
            sequence: Sequence::new(secret),
            buffer: vec![0; AHEAD].into_boxed_slice(),
            sealed: 0..0,
            plain: vec![0; RECORD].into_boxed_slice(),
            open: 0..0,
            ended: false,
            patience: Patience::new(),
        }
    }

    /// Brings in what the socket has; whether anything came, the end included.
    fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(true);
        }
        if self.sealed.is_empty() || self.buffer.len() - self.sealed.start < WHOLE {
            self.buffer.copy_within(self.sealed.clone(), 0);
            self.sealed = 0..self.sealed.len();
        }
        // Never empty when a record is incomplete: from its start there is room for a whole one.
        let room = &mut self.buffer[self.sealed.end..];
        if room.is_empty() {
            return Ok(false);
        }
        let Some(count) = would_block((&*self.stream).read(room))? else { return Ok(false) };
        self.sealed.end += count;
        self.ended = count == 0;
        Ok(true)
    }

    /// Bytes in the next record, once all of it is here.
    fn next_record(&self) -> io::Result<Option<usize>> {
        let Some(head) = self.buffer[self.sealed.clone()].first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*head) as usize;
        if length > RECORD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record longer than any"));
        }
        Ok((HEAD + length + TAG <= self.sealed.len()).then_some(length))
    }

    /// Opens the next record, which is here and has that many bytes: into `into`, or to be taken in pieces.
    fn open_next(&mut self, length: usize, into: Option<&mut [u8]>) -> io::Result<()> {
        let record = &self.buffer[self.sealed.start..][..HEAD + length + TAG];
        let (head, rest) = record.split_at(HEAD);
        let (text, tag) = rest.split_at(length);
        let tag = tag.first_chunk().expect("the rest of a record");
        let into = match into {
            Some(into) => &mut into[..length],
            None => {
                self.open = 0..length;
                &mut self.plain[..length]
            }
        };
        let (cipher, count) = self.sequence.next();
        let opened = cipher.open(count, head, text, tag, into);
        self.sealed.start += HEAD + length + TAG;
        opened.map_err(|Changed| {
            self.open = 0..0;
            io::Error::new(io::ErrorKind::InvalidData, "a record was changed on the way")
        })
    }
}

impl<S: Suite> Inlet for SealedInlet<S> {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        while self.open.is_empty() {
            match self.next_record()? {
                // Nothing in it, and nothing to do but to check that.
                Some(0) => self.open_next(0, None)?,
                Some(length) if length <= into.len() => {
                    self.open_next(length, Some(into))?;
                    return Ok(Some(length));
                }
                Some(length) => self.open_next(length, None)?,
                None if self.ended => return Ok(Some(0)),
                None if !self.fill()? => return Ok(None),
                None => {}
            }
        }
        let count = into.len().min(self.open.len());
        into[..count].copy_from_slice(&self.plain[self.open.start..self.open.start + count]);
        self.open.start += count;
        Ok(Some(count))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        if !self.open.is_empty() || self.ended {
            return Ok(());
        }
        let socket = self.stream.as_raw_fd();
        self.patience = self.patience.wait_on(socket, limit, || self.fill())?;
        Ok(())
    }

    fn socket(&self) -> Option<RawFd> {
        Some(self.stream.as_raw_fd())
    }
}

/// A link over a connection whose ends have proved who they are and agreed on secrets.
pub(crate) fn link(secrets: &Secrets, stream: TcpStream, peer: Peer) -> io::Result<Link> {
    stream.set_nonblocking(true)?;
    let stream = Arc::new(stream);
    let outlet = SealedOutlet::<Chosen>::new(Arc::clone(&stream), secrets.send);
    let inlet = SealedInlet::<Chosen>::new(Arc::clone(&stream), secrets.receive);
    Ok(Link {
        peer: peer.task,
        address: peer.address.clone(),
        sender: Box::new(FramedSender::new(outlet, peer.clone())),
        receiver: Box::new(FramedReceiver::new(inlet, peer)),
        closer: tcp::closer(&stream),
        carrier: "tls",
        pair: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::suite::AesGcm;
    use std::net::TcpListener;

    /// Both halves over loopback, with the raw sockets in between.
    fn halves<S: Suite>() -> (SealedOutlet<S>, TcpStream, TcpStream, SealedInlet<S>) {
        let tcp = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (near, listener.accept().unwrap().0)
        };
        let ((near, tap_in), (tap_out, far)) = (tcp(), tcp());
        far.set_nonblocking(true).unwrap();
        let outlet = SealedOutlet::new(Arc::new(near), [1; 32]);
        let inlet = SealedInlet::new(Arc::new(far), [1; 32]);
        (outlet, tap_in, tap_out, inlet)
    }

    /// Sends two records, lets `change` do with them what it likes, and gives what comes out.
    fn through<S: Suite>(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> io::Result<Vec<u8>> {
        let (mut outlet, mut tap_in, mut tap_out, mut inlet) = halves::<S>();
        let mut records = Vec::new();
        for word in [&b"first"[..], b"second"] {
            assert_eq!(outlet.offer(&[word]).unwrap(), word.len());
            let mut record = vec![0; HEAD + word.len() + TAG];
            tap_in.read_exact(&mut record).unwrap();
            assert!(!record.windows(word.len()).any(|window| window == word), "in the clear");
            records.push(record);
        }
        change(&mut records);
        tap_out.write_all(&records.concat()).unwrap();
        drop(tap_out);
        let (mut all, mut buffer) = (Vec::new(), [0; 100]);
        loop {
            match inlet.take(&mut buffer)? {
                Some(0) => return Ok(all),
                Some(count) => all.extend_from_slice(&buffer[..count]),
                None => inlet.wait(Duration::from_secs(900))?,
            }
        }
    }

    #[test]
    fn records_come_out_as_they_went_in() {
        assert_eq!(through::<Chosen>(|_| ()).unwrap(), b"firstsecond");
        assert_eq!(through::<AesGcm>(|_| ()).unwrap(), b"firstsecond");
    }

    #[test]
    fn records_that_were_changed_moved_repeated_or_left_out_are_refused() {
        hostile_records_are_refused::<Chosen>();
        hostile_records_are_refused::<AesGcm>();
    }

    fn hostile_records_are_refused<S: Suite>() {
        for at in [0, 4, 10] {
            assert!(through::<S>(|records| records[0][at] ^= 1).is_err(), "byte {at}");
        }
        assert!(through::<S>(|records| records.swap(0, 1)).is_err());
        assert!(through::<S>(|records| records.insert(0, records[0].clone())).is_err());
        assert!(through::<S>(|records| drop(records.remove(0))).is_err());
        assert!(through::<S>(|records| records[0][..4].fill(0xff)).is_err());
    }

    #[test]
    fn records_of_every_length_come_out_whole_and_in_pieces() {
        every_length_comes_out::<Chosen>();
        every_length_comes_out::<AesGcm>();
    }

    fn every_length_comes_out<S: Suite>() {
        for length in [1, 127, 128, 129, 4096, RECORD - 1, RECORD, RECORD + 1, 3 * RECORD + 77] {
            let (mut outlet, mut tap_in, mut tap_out, mut inlet) = halves::<S>();
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let records = length.div_ceil(RECORD);
            let mut wire = vec![0; length + records * (HEAD + TAG)];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (front, back) = bytes.split_at(length / 3);
                    assert_eq!(outlet.offer(&[front, back]).unwrap(), length);
                });
                tap_in.read_exact(&mut wire).unwrap();
            });
            std::thread::scope(|scope| {
                scope.spawn(|| tap_out.write_all(&wire).unwrap());
                let (mut all, mut buffer) = (Vec::new(), vec![0; RECORD]);
                let mut most = 1;
                while all.len() < length {
                    match inlet.take(&mut buffer[..most]).unwrap() {
                        Some(count) => all.extend_from_slice(&buffer[..count]),
                        None => inlet.wait(Duration::from_secs(900)).unwrap(),
                    }
                    most = (most * 3).min(RECORD);
                }
                assert_eq!(all, bytes, "{length} bytes");
            });
        }
    }

    #[test]
    fn a_new_key_comes_with_every_epoch_on_both_sides() {
        keys_change_alike::<Chosen>();
        keys_change_alike::<AesGcm>();
    }

    fn keys_change_alike<S: Suite>() {
        let (mut a, mut b) = (Sequence::<S>::new([7; 32]), Sequence::<S>::new([7; 32]));
        let mut tags = Vec::new();
        for count in [0, EPOCH - 1, EPOCH, EPOCH + 1, 5 * EPOCH] {
            (a.count, b.count) = (count, count);
            let words = b"the same words";
            let (mut sealed, mut opened) = ([0; 14], [0; 14]);
            let (cipher, number) = a.next();
            let tag = cipher.seal(number, b"", [&words[..]].into_iter(), &mut sealed);
            let (cipher, number) = b.next();
            cipher.open(number, b"", &sealed, &tag, &mut opened).unwrap();
            assert_eq!(&opened, words);
            tags.push(tag);
        }
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 5);
    }
}
