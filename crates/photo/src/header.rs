//! What a photo says about itself, read without decoding it.

use crate::{Colour, Orientation, PhotoError, jpeg, png};

/// How large a photo may be; checked on the header, before pixels are allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest width times height, whatever the kind of file. It also bounds the time that one photo may take: see
    /// [`Limits::max_blocks`].
    pub max_pixels: u64,
    /// Largest width, and largest height.
    pub max_side: u32,
}

impl Default for Limits {
    /// 64 megapixels, more than common cameras; at most 192 MB of RGB per decoding thread, and two bytes for every sample of a
    /// JPEG in several scans.
    fn default() -> Self {
        Self { max_pixels: 64_000_000, max_side: 30_000 }
    }
}

/// How often the scans of a JPEG may pass over a picture of the largest size in three components. The scripts of libjpeg and
/// mozjpeg pass four to six times over theirs.
const MOST_PASSES: u64 = 8;

impl Limits {
    /// How many blocks of 8 x 8 samples the scans of one JPEG may visit. A file of a few bytes per scan can ask for a hundred passes
    /// over a picture, so it is the work that is counted: small pictures may have many scans, the largest only as many as
    /// encoders write.
    #[must_use]
    pub fn max_blocks(&self) -> u64 {
        (self.max_pixels / 64).saturating_mul(3 * MOST_PASSES).max(1 << 16)
    }

    pub(crate) fn check(&self, width: u32, height: u32) -> Result<(), PhotoError> {
        let area = u64::from(width) * u64::from(height);
        if area > self.max_pixels || width.max(height) > self.max_side {
            return Err(PhotoError::TooLarge {
                width,
                height,
                max_pixels: self.max_pixels,
                max_side: self.max_side,
            });
        }
        Ok(())
    }
}

/// Kind of a photo, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// JPEG: starts with `FF D8 FF`.
    Jpeg,
    /// PNG: starts with its eight-byte signature.
    Png,
}

/// What the header of a photo says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    pub format: Format,
    /// Width as stored, before orientation.
    pub width: u32,
    /// Height as stored, before orientation.
    pub height: u32,
    /// Components as stored: 1 grey, 2 grey and alpha, 3 colour (also palette), 4 CMYK or colour and alpha.
    pub components: u8,
    /// How to turn the picture for viewing.
    pub orientation: Orientation,
}

impl Header {
    /// Width and height after orientation.
    #[must_use]
    pub fn upright_size(&self) -> (u32, u32) {
        if self.orientation.swaps_sides() {
            (self.height, self.width)
        } else {
            (self.width, self.height)
        }
    }

    /// The colour that loses nothing.
    #[must_use]
    pub fn natural_colour(&self) -> Colour {
        if self.components <= 2 { Colour::Grey } else { Colour::Rgb }
    }
}

/// Decides the kind by content.
pub(crate) fn format(bytes: &[u8]) -> Result<Format, PhotoError> {
    if bytes.is_empty() {
        Err(PhotoError::Empty)
    } else if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
        Ok(Format::Jpeg)
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Ok(Format::Png)
    } else {
        Err(PhotoError::UnknownFormat { start: bytes[..bytes.len().min(8)].to_vec() })
    }
}

/// Reads the header of a photo; allocates next to nothing.
///
/// # Errors
/// If the bytes are not a photo, or the header is damaged.
pub fn probe(bytes: &[u8]) -> Result<Header, PhotoError> {
    match format(bytes)? {
        Format::Jpeg => jpeg::probe(bytes),
        Format::Png => png::probe(bytes),
    }
}
