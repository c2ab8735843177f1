//! Encrypted records over TCP, with keys from a TLS 1.3 session.
//!
//! The session itself (`tls`) makes the keys and proves who is there; what follows is large and nothing but
//! bytes, so it is sealed in records of our own, as voice and video calls do with keys from DTLS
//! (RFC 5764). TLS would cut it into records of 16 KiB, copy each three times and let both halves of a link wait for one lock: a
//! third of the speed.
//!
//! A record is its length (4 bytes, also authenticated), up to 60 KiB sealed by AES-128-GCM, and the tag. Each
//! direction has a secret of its own, exported from the session (RFC 8446, 7.5), so that no record
//! can be turned round. The nonce counts records: none can be left out, repeated or moved. After 2^20 records,
//! far below what the cipher bears, the key is replaced by the next one derived from the secret. A stream that ends is a
//! lost link wherever it ends, so cutting it short gains nothing.

use super::patience::Patience;
use super::tcp::{self, Ready, sleep_on, would_block};
use super::{Inlet, Outlet};
use crate::frame::{FramedReceiver, FramedSender, Peer};
use crate::link::Link;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most bytes of a record; with length and tag it fits into one TCP segment of the loopback device.
const RECORD: usize = 60 << 10;
/// Bytes of the length before a record, and of the tag behind it.
const HEAD: usize = 4;
const TAG: usize = 16;
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
struct Sequence {
    secret: hkdf::Prk,
    key: LessSafeKey,
    count: u64,
}

impl Sequence {
    fn new(secret: [u8; 32]) -> Self {
        let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, &secret);
        let key = key(&secret, 0);
        Self { secret, key, count: 0 }
    }

    /// The key and nonce of the next record.
    fn next(&mut self) -> (&LessSafeKey, Nonce) {
        if self.count > 0 && self.count.is_multiple_of(EPOCH) {
            self.key = key(&self.secret, self.count / EPOCH);
        }
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.count.to_be_bytes());
        self.count += 1;
        (&self.key, Nonce::assume_unique_for_key(nonce))
    }
}

fn key(secret: &hkdf::Prk, epoch: u64) -> LessSafeKey {
    let info = [b"paceline records".as_slice(), &epoch.to_be_bytes()];
    let okm = secret.expand(&info, &AES_128_GCM).expect("a key is shorter than HKDF can give");
    LessSafeKey::new(UnboundKey::from(okm))
}

struct SealedOutlet {
    stream: Arc<TcpStream>,
    sequence: Sequence,
    /// A sealed record, and how much of it has left.
    record: Vec<u8>,
    gone: usize,
}

impl SealedOutlet {
    /// Seals as many bytes as a record holds; how many that were.
    fn seal(&mut self, parts: &[&[u8]], skip: usize) -> io::Result<usize> {
        self.record.clear();
        self.record.extend_from_slice(&[0; HEAD]);
        self.gone = 0;
        let mut skip = skip;
        for part in parts {
            let rest = &part[skip.min(part.len())..];
            skip -= part.len() - rest.len();
            let count = rest.len().min(HEAD + RECORD - self.record.len());
            self.record.extend_from_slice(&rest[..count]);
        }
        let length = self.record.len() - HEAD;
        let head = u32::try_from(length).expect("records are short").to_le_bytes();
        let (key, nonce) = self.sequence.next();
        let sealed =
            key.seal_in_place_separate_tag(nonce, Aad::from(head), &mut self.record[HEAD..]);
        let tag = sealed.map_err(|_| io::Error::other("a record could not be sealed"))?;
        self.record[..HEAD].copy_from_slice(&head);
        self.record.extend_from_slice(tag.as_ref());
        Ok(length)
    }
}

impl Outlet for SealedOutlet {
    fn offer(&mut self, parts: &[&[u8]]) -> io::Result<usize> {
        let whole: usize = parts.iter().map(|part| part.len()).sum();
        let mut moved = 0;
        loop {
            self.clear()?;
            if !self.is_clear() || moved == whole {
                return Ok(moved);
            }
            moved += self.seal(parts, moved)?;
        }
    }

    fn is_clear(&self) -> bool {
        self.gone == self.record.len()
    }

    fn clear(&mut self) -> io::Result<bool> {
        let before = self.gone;
        while self.gone < self.record.len() {
            match would_block((&*self.stream).write(&self.record[self.gone..]))? {
                Some(count) => self.gone += count,
                None => break,
            }
        }
        Ok(self.gone > before)
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        sleep_on(&[(self.stream.as_raw_fd(), Ready::Write)], limit)
    }

    fn socket(&self) -> Option<RawFd> {
        Some(self.stream.as_raw_fd())
    }
}

impl Drop for SealedOutlet {
    fn drop(&mut self) {
        // The other side hears the end even while the receiving half lives on.
        drop(self.stream.shutdown(Shutdown::Write));
    }
}

struct SealedInlet {
    stream: Arc<TcpStream>,
    sequence: Sequence,
    buffer: Box<[u8]>,
    /// Opened bytes that nobody has taken.
    open: Range<usize>,
    /// Sealed bytes behind them.
    sealed: Range<usize>,
    ended: bool,
    patience: Patience,
}

impl SealedInlet {
    /// Brings in what the socket has; whether anything came, the end included.
    fn fill(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(true);
        }
        let tight = self.buffer.len() - self.sealed.start < WHOLE;
        if self.open.is_empty() && (self.sealed.is_empty() || tight) {
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

    /// Length of the next record with head and tag, once its head is here.
    fn next_record(&self) -> io::Result<Option<usize>> {
        let Some(head) = self.buffer[self.sealed.clone()].first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*head) as usize;
        if length > RECORD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record longer than any"));
        }
        Ok(Some(HEAD + length + TAG))
    }

    /// Opens the next record if all of it is here.
    fn open_next(&mut self) -> io::Result<bool> {
        let Some(whole) = self.next_record()?.filter(|whole| *whole <= self.sealed.len()) else {
            return Ok(false);
        };
        let start = self.sealed.start;
        let (head, rest) = self.buffer[start..start + whole].split_at_mut(HEAD);
        let head: [u8; HEAD] = (&*head).try_into().expect("split there");
        let (key, nonce) = self.sequence.next();
        let opened = key.open_in_place(nonce, Aad::from(head), rest).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "a record was changed on the way")
        })?;
        self.open = start + HEAD..start + HEAD + opened.len();
        self.sealed.start += whole;
        Ok(true)
    }
}

impl Inlet for SealedInlet {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        while self.open.is_empty() {
            if self.open_next()? {
                continue;
            }
            if self.ended {
                return Ok(Some(0));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
        let count = into.len().min(self.open.len());
        into[..count].copy_from_slice(&self.buffer[self.open.start..self.open.start + count]);
        self.open.start += count;
        Ok(Some(count))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        if !self.open.is_empty() || self.ended {
            return Ok(());
        }
        let mut patience = self.patience;
        let looked = patience.look(|| self.fill());
        if let Ok(false) = looked {
            let began = Instant::now();
            sleep_on(&[(self.stream.as_raw_fd(), Ready::Read)], limit)?;
            patience.slept(began.elapsed());
        }
        self.patience = patience;
        looked.map(drop)
    }

    fn socket(&self) -> Option<RawFd> {
        Some(self.stream.as_raw_fd())
    }
}

/// A link over a connection whose ends have proved who they are and agreed on secrets.
pub(crate) fn link(secrets: &Secrets, stream: TcpStream, peer: Peer) -> io::Result<Link> {
    stream.set_nonblocking(true)?;
    let stream = Arc::new(stream);
    let outlet = SealedOutlet {
        stream: Arc::clone(&stream),
        sequence: Sequence::new(secrets.send),
        record: Vec::with_capacity(WHOLE),
        gone: 0,
    };
    let inlet = SealedInlet {
        stream: Arc::clone(&stream),
        sequence: Sequence::new(secrets.receive),
        buffer: vec![0; AHEAD].into_boxed_slice(),
        open: 0..0,
        sealed: 0..0,
        ended: false,
        patience: Patience::new(),
    };
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
    use std::net::TcpListener;

    /// Both halves over loopback, with the raw sockets in between.
    fn halves() -> (SealedOutlet, TcpStream, TcpStream, SealedInlet) {
        let tcp = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (near, listener.accept().unwrap().0)
        };
        let ((near, tap_in), (tap_out, far)) = (tcp(), tcp());
        far.set_nonblocking(true).unwrap();
        let outlet = SealedOutlet {
            stream: Arc::new(near),
            sequence: Sequence::new([1; 32]),
            record: Vec::new(),
            gone: 0,
        };
        let inlet = SealedInlet {
            stream: Arc::new(far),
            sequence: Sequence::new([1; 32]),
            buffer: vec![0; AHEAD].into_boxed_slice(),
            open: 0..0,
            sealed: 0..0,
            ended: false,
            patience: Patience::new(),
        };
        (outlet, tap_in, tap_out, inlet)
    }

    /// Sends two records, lets `change` do with them what it likes, and gives what comes out.
    fn through(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> io::Result<Vec<u8>> {
        let (mut outlet, mut tap_in, mut tap_out, mut inlet) = halves();
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
                None => inlet.wait(Duration::from_secs(5))?,
            }
        }
    }

    #[test]
    fn records_come_out_as_they_went_in() {
        assert_eq!(through(|_| ()).unwrap(), b"firstsecond");
    }

    #[test]
    fn records_that_were_changed_moved_repeated_or_left_out_are_refused() {
        for at in [0, 4, 10] {
            assert!(through(|records| records[0][at] ^= 1).is_err(), "byte {at}");
        }
        assert!(through(|records| records.swap(0, 1)).is_err());
        assert!(through(|records| records.insert(0, records[0].clone())).is_err());
        assert!(through(|records| drop(records.remove(0))).is_err());
        assert!(through(|records| records[0][..4].fill(0xff)).is_err());
    }

    #[test]
    fn a_new_key_comes_with_every_epoch_on_both_sides() {
        let (mut a, mut b) = (Sequence::new([7; 32]), Sequence::new([7; 32]));
        let mut tags = Vec::new();
        for count in [0, EPOCH - 1, EPOCH, EPOCH + 1, 5 * EPOCH] {
            (a.count, b.count) = (count, count);
            let mut bytes = b"the same words".to_vec();
            let (key, nonce) = a.next();
            let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut bytes).unwrap();
            bytes.extend_from_slice(tag.as_ref());
            let (key, nonce) = b.next();
            assert_eq!(
                key.open_in_place(nonce, Aad::empty(), &mut bytes).unwrap(),
                b"the same words"
            );
            tags.push(tag.as_ref().to_vec());
        }
        tags.dedup();
        assert_eq!(tags.len(), 5);
    }
}
