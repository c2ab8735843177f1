//! The checksum of TFRecord: CRC32C, rotated and shifted ("masked").
//!
//! The mask is there because a checksum stored inside data that is itself
//! checksummed weakens both; the constants are those of TensorFlow.
//!
//! Verifying is what a verified read costs beyond a plain one, so the checksum
//! uses carry-less multiplication over wide registers where the processor has
//! it (a copy out of the page cache then takes nine times as long), and falls
//! back to narrower instructions or tables elsewhere, decided at run time.

const MASK_DELTA: u32 = 0xa282_ead8;

/// CRC32C (Castagnoli) of `bytes`, computed with the processor's own instructions where it has them.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The crate's type is wide enough for 64-bit checksums; this one fills the lower half.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The masked checksum as it stands in a file.
#[inline]
pub fn masked(bytes: &[u8]) -> u32 {
    mask(crc32c(bytes))
}

/// Masks a plain CRC32C.
#[inline]
pub const fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// Undoes [`mask`].
#[inline]
pub const fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, straight from the definition: slow, but beyond doubt.
    fn by_definition(bytes: &[u8]) -> u32 {
        let mut crc = !0u32;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            }
        }
        !crc
    }

    #[test]
    fn known_values() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked(b""), 0xa282_ead8);
    }

    /// Fast code changes its path with length and alignment; a wrong seam would show at one of them.
    #[test]
    fn every_length_and_alignment_agrees_with_the_definition() {
        let bytes: Vec<u8> =
            (0..6000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in (0..1200).chain([2047, 2048, 2049, 4095, 4096, 4097, 5900]) {
            let start = length % 67;
            let slice = &bytes[start..start + length];
            assert_eq!(crc32c(slice), by_definition(slice), "length {length} from {start}");
        }
    }

    #[test]
    fn unmask_undoes_mask() {
        for crc in [0, 1, 0x8a91_36aa, u32::MAX, 0x8000_0000] {
            assert_eq!(unmask(mask(crc)), crc);
        }
    }
}
