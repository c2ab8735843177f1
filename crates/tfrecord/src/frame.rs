//! The frame around each payload.
//!
//! ```text
//! u64  length, little endian
//! u32  masked CRC32C of the 8 length bytes
//! u8   payload[length]
//! u32  masked CRC32C of the payload
//! ```
//!
//! The length has a checksum of its own so that a damaged length is noticed
//! before anyone allocates or skips that many bytes.

use crate::crc;

/// Bytes before the payload: length and its checksum.
pub const HEADER_LEN: usize = 12;
/// Bytes after the payload: its checksum.
pub const FOOTER_LEN: usize = 4;
/// Bytes a record takes beyond its payload.
pub const OVERHEAD: u64 = (HEADER_LEN + FOOTER_LEN) as u64;

/// The checksums of a header that did not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) found: u32,
    pub(crate) wanted: u32,
}

/// The 12 bytes that go before a payload of `length` bytes.
pub fn encode_header(length: u64) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(&length.to_le_bytes());
    let checksum = crc::masked(&header[..8]);
    header[8..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// The 4 bytes that go after `payload`.
pub fn encode_footer(payload: &[u8]) -> [u8; FOOTER_LEN] {
    crc::masked(payload).to_le_bytes()
}

/// The length as it stands in the header, whether damaged or not.
pub(crate) fn unchecked_length(header: &[u8; HEADER_LEN]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *header;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// The payload's length, if its checksum agrees.
pub(crate) fn decode_header(header: &[u8; HEADER_LEN]) -> Result<u64, Mismatch> {
    let [.., i, j, k, l] = *header;
    let found = u32::from_le_bytes([i, j, k, l]);
    let wanted = crc::masked(&header[..8]);
    if found == wanted { Ok(unchecked_length(header)) } else { Err(Mismatch { found, wanted }) }
}

/// Checks `payload` against the footer that followed it.
#[inline]
pub(crate) fn check_payload(payload: &[u8], footer: [u8; FOOTER_LEN]) -> Result<(), Mismatch> {
    let found = u32::from_le_bytes(footer);
    let wanted = crc::masked(payload);
    if found == wanted { Ok(()) } else { Err(Mismatch { found, wanted }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_and_catches_every_flipped_bit() {
        for length in [0, 1, 799, 11_438, 1 << 40, u64::MAX] {
            let header = encode_header(length);
            assert_eq!(decode_header(&header), Ok(length));
            for bit in 0..HEADER_LEN * 8 {
                let mut damaged = header;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(decode_header(&damaged).is_err(), "length {length}, bit {bit}");
            }
        }
    }
}
