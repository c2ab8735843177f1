//! FNV-1a: a hash for names and tags that must be the same on every machine and in every version.
//!
//! Not for tables (the standard library's is safe against chosen keys) and not for proofs (`sha2` is).

/// A hash in the making.
///
/// ```
/// use paceline_stats::fnv::Fnv;
///
/// let mut hash = Fnv::default();
/// hash.add(b"foo");
/// hash.add(b"bar");
/// assert_eq!(hash.value(), 0x85944171f73967e8);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Goes on where an earlier hash ended.
    #[must_use]
    pub fn after(value: u64) -> Self {
        Self(value)
    }

    /// Takes further bytes in.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The hash of all bytes so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the authors' test vectors.
    #[test]
    fn published_values_are_met() {
        for (text, wanted) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8_u64),
        ] {
            let mut hash = Fnv::default();
            hash.add(text.as_bytes());
            assert_eq!(hash.value(), wanted, "{text}");
        }
    }
}
