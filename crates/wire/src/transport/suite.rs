//! The ciphers that records are sealed with.
//!
//! A build has one of them: AEGIS-128X4, whose fast forms are C, or without the feature `aegis` AES-128-GCM of `ring`, which is
//! there for TLS anyway. Tasks tell each other which in the handshake.

use ring::hkdf;

/// Bytes of the tag behind a record.
pub(super) const TAG: usize = 16;

/// A record is not as it was sealed.
#[derive(Debug)]
pub(super) struct Changed;

/// A cipher with the key of one direction and epoch.
pub(super) trait Suite: Send {
    /// As tasks tell it to each other.
    const NAME: &'static str;

    /// With the key of an epoch.
    fn new(secret: &hkdf::Prk, epoch: u64) -> Self;

    /// Seals `parts`, one after the other, into `into`, which is as long as all of them; `head` is authenticated too. No two records
    /// under one key may have the same `count`.
    fn seal<'p>(
        &self,
        count: u64,
        head: &[u8],
        parts: impl Iterator<Item = &'p [u8]>,
        into: &mut [u8],
    ) -> [u8; TAG];

    /// Opens what `seal` made, into `into`, which is as long as `text`.
    fn open(
        &self,
        count: u64,
        head: &[u8],
        text: &[u8],
        tag: &[u8; TAG],
        into: &mut [u8],
    ) -> Result<(), Changed>;
}

/// The one of this build.
#[cfg(feature = "aegis")]
pub(super) type Chosen = Aegis;
#[cfg(not(feature = "aegis"))]
pub(super) type Chosen = AesGcm;

/// The name of the one of this build.
pub(crate) const NAME: &str = Chosen::NAME;

/// That many bytes of key, as HKDF asks for them.
struct KeyLength;

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        16
    }
}

fn key(secret: &hkdf::Prk, name: &str, epoch: u64) -> [u8; 16] {
    let info = [b"paceline records, ".as_slice(), name.as_bytes(), &epoch.to_be_bytes()];
    let mut key = [0; 16];
    let filled = secret.expand(&info, KeyLength).and_then(|okm| okm.fill(&mut key));
    filled.expect("a key is shorter than HKDF can give");
    key
}

/// AEGIS-128X4 (RFC 10032). It is built from AES rounds and several times as fast as AES-GCM, and it seals from the
/// caller's buffer and opens into it, so that encrypting replaces a copy instead of adding one.
#[cfg(feature = "aegis")]
pub(super) struct Aegis {
    key: aegis::aegis128x4::Key,
}

#[cfg(feature = "aegis")]
impl Aegis {
    fn cipher(&self, count: u64) -> aegis::aegis128x4::Aegis128X4<TAG> {
        let mut nonce = [0; 16];
        nonce[8..].copy_from_slice(&count.to_be_bytes());
        aegis::aegis128x4::Aegis128X4::new(&self.key, &nonce)
    }
}

#[cfg(feature = "aegis")]
impl Suite for Aegis {
    const NAME: &'static str = "AEGIS-128X4";

    fn new(secret: &hkdf::Prk, epoch: u64) -> Self {
        Self { key: key(secret, Self::NAME, epoch) }
    }

    fn seal<'p>(
        &self,
        count: u64,
        head: &[u8],
        parts: impl Iterator<Item = &'p [u8]>,
        mut into: &mut [u8],
    ) -> [u8; TAG] {
        let mut encryptor = self.cipher(count).encryptor(head);
        for part in parts {
            let (now, later) = into.split_at_mut(part.len());
            encryptor.update(part, now);
            into = later;
        }
        encryptor.finalize()
    }

    fn open(
        &self,
        count: u64,
        head: &[u8],
        text: &[u8],
        tag: &[u8; TAG],
        into: &mut [u8],
    ) -> Result<(), Changed> {
        let mut decryptor = self.cipher(count).decryptor(head, into);
        let opened = decryptor.update(text).and_then(|()| decryptor.finalize(tag).map(drop));
        opened.map_err(|_| Changed)
    }
}

/// AES-128-GCM. An epoch's 2^32 blocks are a sixth of what TLS 1.3 allows under one key.
#[cfg(any(test, not(feature = "aegis")))]
pub(super) struct AesGcm {
    key: ring::aead::LessSafeKey,
}

#[cfg(any(test, not(feature = "aegis")))]
impl AesGcm {
    fn nonce(count: u64) -> ring::aead::Nonce {
        let mut nonce = [0; ring::aead::NONCE_LEN];
        nonce[4..].copy_from_slice(&count.to_be_bytes());
        ring::aead::Nonce::assume_unique_for_key(nonce)
    }
}

#[cfg(any(test, not(feature = "aegis")))]
impl Suite for AesGcm {
    const NAME: &'static str = "AES-128-GCM";

    fn new(secret: &hkdf::Prk, epoch: u64) -> Self {
        let key = key(secret, Self::NAME, epoch);
        let key = ring::aead::UnboundKey::new(&ring::aead::AES_128_GCM, &key);
        Self { key: ring::aead::LessSafeKey::new(key.expect("a key of 16 bytes")) }
    }

    fn seal<'p>(
        &self,
        count: u64,
        head: &[u8],
        parts: impl Iterator<Item = &'p [u8]>,
        into: &mut [u8],
    ) -> [u8; TAG] {
        let mut at = 0;
        for part in parts {
            into[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let aad = ring::aead::Aad::from(head);
        let tag = self.key.seal_in_place_separate_tag(Self::nonce(count), aad, into);
        let tag = tag.expect("a record is shorter than AES-GCM can seal");
        tag.as_ref().try_into().expect("a tag of 16 bytes")
    }

    fn open(
        &self,
        count: u64,
        head: &[u8],
        text: &[u8],
        tag: &[u8; TAG],
        into: &mut [u8],
    ) -> Result<(), Changed> {
        into.copy_from_slice(text);
        let (nonce, aad) = (Self::nonce(count), ring::aead::Aad::from(head));
        let opened = self.key.open_in_place_separate_tag(nonce, aad, (*tag).into(), into, 0..);
        opened.map(drop).map_err(|_| Changed)
    }
}
