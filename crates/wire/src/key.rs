//! The cluster key: 32 random bytes that make a task one of ours.
//!
//! A process that holds the key may take part; no payload of any other process is parsed. The key is in a file
//! that only its owner can read, or comes through a pipe from the launcher, and is never on a
//! command line or in the environment, where every process of the machine could see it. The key
//! itself is never used on the wire: a secret for each purpose is derived from it (HKDF-SHA256), so that
//! one that leaks reveals nothing about the others.

use ring::rand::SecureRandom;
use ring::{digest, hkdf, rand};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What a key's text begins with; the digit is the version of the form.
const PREFIX: &str = "paceline-key-1-";
/// Bytes of the checksum in the text: a slip in copying is noticed (1 in 4 billion is not).
const CHECK: usize = 4;
/// More than any key file holds; a wrong path does not make us read a large file.
const LONGEST_FILE: u64 = 4096;

/// A key could not be made, read or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not a key, or was damaged on the way.
    #[error("this is not a cluster key: {0}")]
    Damaged(&'static str),
    /// The file's text is not a key.
    #[error("`{}` holds no cluster key: {why}", path.display())]
    DamagedFile {
        path: PathBuf,
        /// What is wrong with its text.
        why: &'static str,
    },
    /// Others can read the file.
    #[error("key file `{}` can be read by others (mode {mode:03o})", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    /// A file of that name exists; a key is never overwritten.
    #[error("`{}` exists; a key is never overwritten", path.display())]
    Exists { path: PathBuf },
    /// The system refuses.
    #[error("cannot {action} key file `{}`: {cause}", path.display())]
    Io {
        /// "read" or "write".
        action: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    /// The system gives no random bytes.
    #[error("the system has no random bytes to give")]
    NoRandom,
}

/// The key that all tasks of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; 32]);

impl std::fmt::Debug for ClusterKey {
    // Keys end up in logs through `{:?}` of what holds them; this one shows only which it is.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterKey({})", self.fingerprint())
    }
}

impl ClusterKey {
    /// A new key from the system's random bytes.
    pub fn generate() -> Result<Self, KeyError> {
        Ok(Self(random()?))
    }

    /// A publicly known key, for clusters that want no authentication.
    #[must_use]
    pub fn public() -> Self {
        Self([0; 32])
    }

    /// The key as text, for a file or a pipe.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from(PREFIX);
        for byte in self.0.iter().chain(&self.check()) {
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }

    /// Tells keys apart without giving them away.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let bytes = self.derive("fingerprint", &[]);
        bytes[..6].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A secret for one purpose and context; different ones are independent of each other.
    #[must_use]
    pub fn derive(&self, purpose: &str, context: &[u8]) -> [u8; 32] {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"paceline cluster key v1");
        let key = salt.extract(&self.0);
        let length = [u8::try_from(purpose.len()).expect("purposes are short")];
        let info = [&length[..], purpose.as_bytes(), context];
        let mut secret = [0; 32];
        key.expand(&info, hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut secret))
            .expect("HKDF-SHA256 gives 32 bytes");
        secret
    }

    /// Writes the key into a new file that only its owner can read.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.to_owned() },
            _ => KeyError::Io { action: "write", path: path.to_owned(), cause },
        };
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        let written = writeln!(file, "{}", self.to_text()).and_then(|()| file.sync_all());
        written.map_err(|cause| {
            // Half a key is worse than none. If removing fails too, the first cause is the one to tell.
            drop(std::fs::remove_file(path));
            failed(cause)
        })
    }

    /// Reads a key from a file that no other user can read.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let failed = |cause| KeyError::Io { action: "read", path: path.to_owned(), cause };
        let file = File::open(path).map_err(failed)?;
        // Checked on the open file, so that it cannot be swapped in between.
        let about = file.metadata().map_err(failed)?;
        let mode = about.permissions().mode() & 0o777;
        if about.is_file() && mode & 0o077 != 0 {
            return Err(KeyError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(LONGEST_FILE).read_to_string(&mut text).map_err(failed)?;
        text.trim().parse().map_err(|error| match error {
            KeyError::Damaged(why) => KeyError::DamagedFile { path: path.to_owned(), why },
            other => other,
        })
    }

    fn check(&self) -> [u8; CHECK] {
        let hash = digest::digest(&digest::SHA256, &self.0);
        hash.as_ref()[..CHECK].try_into().expect("SHA-256 has 32 bytes")
    }
}

impl FromStr for ClusterKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let Some(digits) = text.strip_prefix(PREFIX) else {
            return Err(KeyError::Damaged("it does not begin with `paceline-key-1-`"));
        };
        if digits.len() != 2 * (32 + CHECK) {
            return Err(KeyError::Damaged("it is too short or too long"));
        }
        let mut bytes = [0; 32 + CHECK];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err(KeyError::Damaged(
                    "it holds a character that is not a hexadecimal digit",
                ));
            };
            *byte = high << 4 | low;
        }
        let key = Self(bytes[..32].try_into().expect("32 of 36 bytes"));
        if key.check() != bytes[32..] {
            return Err(KeyError::Damaged("its checksum is wrong"));
        }
        Ok(key)
    }
}

/// Random bytes from the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    rand::SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::NoRandom)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back_and_every_damage_is_noticed() {
        let key = ClusterKey::generate().unwrap();
        let text = key.to_text();
        assert!(text.parse::<ClusterKey>().unwrap() == key);
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] = if damaged[at] == b'3' { b'4' } else { b'3' };
            let damaged = String::from_utf8(damaged).unwrap();
            assert!(damaged.parse::<ClusterKey>().is_err(), "{at}");
        }
        assert!(text[..text.len() - 1].parse::<ClusterKey>().is_err());
        assert!("".parse::<ClusterKey>().is_err());
    }

    #[test]
    fn debug_output_does_not_hold_the_key() {
        let key = ClusterKey::generate().unwrap();
        let digits = &key.to_text()[PREFIX.len()..PREFIX.len() + 64];
        let shown = format!("{key:?}");
        for window in digits.as_bytes().windows(12) {
            assert!(!shown.contains(std::str::from_utf8(window).unwrap()), "{shown}");
        }
    }

    #[test]
    fn derived_secrets_differ_by_key_purpose_and_context() {
        let (a, b) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
        let secrets = [
            a.derive("x", b"1"),
            a.derive("x", b"2"),
            a.derive("y", b"1"),
            b.derive("x", b"1"),
            // Purpose and context must not run into each other.
            a.derive("x1", b""),
        ];
        for (i, one) in secrets.iter().enumerate() {
            assert!(secrets[..i].iter().all(|other| other != one), "{i}");
        }
        assert_eq!(a.derive("x", b"1"), secrets[0]);
    }

    #[test]
    fn files_are_private_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.key");
        let key = ClusterKey::generate().unwrap();
        key.save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(ClusterKey::load(&path).unwrap() == key);
        assert!(matches!(key.save(&path), Err(KeyError::Exists { .. })));
        for mode in [0o644, 0o640, 0o604, 0o660] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let error = ClusterKey::load(&path).unwrap_err();
            assert!(matches!(error, KeyError::Exposed { .. }), "{mode:o}: {error}");
        }
    }

    #[test]
    fn a_file_with_anything_else_in_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "shopping list").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let error = ClusterKey::load(&path).unwrap_err();
        assert!(error.to_string().contains("notes.txt"), "{error}");
    }
}
