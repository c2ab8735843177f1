//! Decisions that follow from a photo's relative path alone: which split, which place in which shard.
//!
//! `prepare --split` and photo folders that hold out a share must agree, today and for data made
//! years ago, so there is one function for both.

use sha2::{Digest, Sha256};

/// A cryptographic hash is no slower than listing the file was, and is the same everywhere for ever.
pub fn hash(purpose: &[u8], seed: u64, path: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(purpose);
    hash.update(seed.to_le_bytes());
    hash.update(path.as_bytes());
    let digest = hash.finalize();
    u64::from_le_bytes(*digest.first_chunk().expect("a SHA-256 digest has 32 bytes"))
}

/// Where a path stands between 0 and 1 when splits are cut. 53 bits are what a double holds exactly.
pub fn split_position(path: &str) -> f64 {
    (hash(b"split", 0, path) >> 11) as f64 / (1_u64 << 53) as f64
}
