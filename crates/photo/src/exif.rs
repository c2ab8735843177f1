//! The one EXIF field that changes pixels: orientation.
//!
//! Everything else in the block is ignored, and a damaged block means "upright", since thousands of
//! programs write such blocks wrongly and the picture itself is intact.

/// How the stored picture must be turned for viewing; the numbers are EXIF's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orientation {
    /// 1: as stored.
    #[default]
    Upright,
    /// 2: mirrored left to right.
    MirrorHorizontal,
    /// 3: half a turn.
    Rotate180,
    /// 4: mirrored top to bottom.
    MirrorVertical,
    /// 5: mirrored at the main diagonal.
    Transpose,
    /// 6: a quarter turn clockwise.
    Rotate90,
    /// 7: mirrored at the other diagonal.
    Transverse,
    /// 8: a quarter turn anticlockwise.
    Rotate270,
}

impl Orientation {
    /// From EXIF's number; anything but 1 to 8 is upright.
    #[must_use]
    pub fn from_exif(number: u16) -> Self {
        match number {
            2 => Self::MirrorHorizontal,
            3 => Self::Rotate180,
            4 => Self::MirrorVertical,
            5 => Self::Transpose,
            6 => Self::Rotate90,
            7 => Self::Transverse,
            8 => Self::Rotate270,
            _ => Self::Upright,
        }
    }

    /// Whether width and height change places.
    #[must_use]
    pub fn swaps_sides(self) -> bool {
        matches!(self, Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270)
    }
}

/// Reads the orientation from a TIFF block (what follows `Exif\0\0`, or a PNG `eXIf` chunk).
pub(crate) fn orientation(tiff: &[u8]) -> Orientation {
    find(tiff).unwrap_or_default()
}

/// As [`orientation`], where the block has one.
pub(crate) fn find(tiff: &[u8]) -> Option<Orientation> {
    number(tiff).map(Orientation::from_exif)
}

fn number(tiff: &[u8]) -> Option<u16> {
    let little = match tiff.get(..4)? {
        [b'I', b'I', 42, 0] => true,
        [b'M', b'M', 0, 42] => false,
        _ => return None,
    };
    let two = |at: usize| -> Option<u16> {
        let bytes: [u8; 2] = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let four = |at: usize| -> Option<u32> {
        let bytes: [u8; 4] = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    let directory = four(4)? as usize;
    let entries = usize::from(two(directory)?);
    for index in 0..entries {
        let entry = directory.checked_add(2 + 12 * index)?;
        // 0x0112 is the orientation; its value sits in the entry itself, as SHORT (3) or LONG (4).
        if two(entry)? == 0x0112 {
            return match two(entry + 2)? {
                3 => two(entry + 8),
                4 => u16::try_from(four(entry + 8)?).ok(),
                _ => None,
            };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(little: bool, number: u16) -> Vec<u8> {
        let two = |value: u16| if little { value.to_le_bytes() } else { value.to_be_bytes() };
        let four = |value: u32| if little { value.to_le_bytes() } else { value.to_be_bytes() };
        let mut out = if little { b"II".to_vec() } else { b"MM".to_vec() };
        out.extend(two(42));
        out.extend(four(8));
        out.extend(two(1));
        out.extend(two(0x0112));
        out.extend(two(3));
        out.extend(four(1));
        out.extend(two(number));
        out.extend(two(0));
        out
    }

    #[test]
    fn both_byte_orders_are_read() {
        for little in [true, false] {
            for number in 1..=8 {
                assert_eq!(orientation(&block(little, number)), Orientation::from_exif(number));
            }
        }
    }

    #[test]
    fn a_cut_or_wild_block_means_upright() {
        let whole = block(true, 6);
        for length in 0..whole.len() - 4 {
            assert_eq!(orientation(&whole[..length]), Orientation::Upright);
        }
        let mut wild = whole;
        wild[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(orientation(&wild), Orientation::Upright);
    }
}
