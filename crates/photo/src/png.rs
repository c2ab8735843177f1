//! PNG, decoded by the `png` crate and converted to one or three bytes per pixel.

use crate::error::PhotoError;
use crate::header::{Format, Header};
use crate::{Colour, Orientation, exif};
use ::png::{ColorType, DecodingError, Transformations};
use std::io::Cursor;

/// Deflate cannot expand by more than this, so a short file cannot hold a large picture.
const MAX_EXPANSION: u64 = 1032;

fn refuse(error: &DecodingError, length: usize) -> PhotoError {
    match error {
        DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            PhotoError::Truncated { offset: length }
        }
        other => PhotoError::Png { reason: other.to_string() },
    }
}

fn components(colour: ColorType) -> u8 {
    match colour {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb | ColorType::Indexed => 3,
        ColorType::Rgba => 4,
    }
}

fn open(bytes: &[u8]) -> ::png::Decoder<Cursor<&[u8]>> {
    // Ancillary chunks may be compressed; none is wanted, so none may grow beyond the file itself.
    let limits = ::png::Limits { bytes: bytes.len().saturating_mul(4).max(1 << 20) };
    let mut decoder = ::png::Decoder::new_with_limits(Cursor::new(bytes), limits);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    decoder
}

/// Reads the header and, where there is one before the pixels, the EXIF chunk.
pub(crate) fn probe(bytes: &[u8]) -> Result<Header, PhotoError> {
    let mut decoder = open(bytes);
    let info = decoder.read_header_info().map_err(|error| refuse(&error, bytes.len()))?;
    Ok(Header {
        format: Format::Png,
        width: info.width,
        height: info.height,
        components: components(info.color_type),
        orientation: exif_chunk(bytes),
    })
}

/// Walks the chunks by their lengths alone, since the header must not cost a decode.
fn exif_chunk(bytes: &[u8]) -> Orientation {
    let mut at = 8usize;
    while let Some(head) = bytes.get(at..at.saturating_add(8)) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        match &head[4..8] {
            b"eXIf" => {
                return bytes
                    .get(at + 8..at + 8 + length)
                    .map_or(Orientation::Upright, exif::orientation);
            }
            b"IDAT" | b"IEND" => break,
            _ => at += length + 12,
        }
    }
    Orientation::Upright
}

/// Decodes into `out`, which holds exactly the stored size in `colour`.
pub(crate) fn decode(
    bytes: &[u8],
    header: &Header,
    colour: Colour,
    scratch: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), PhotoError> {
    let refused = |error: DecodingError| refuse(&error, bytes.len());
    let mut reader = open(bytes).read_info().map_err(refused)?;
    let (stored, _) = reader.output_color_type();
    let direct = matches!(
        (stored, colour),
        (ColorType::Grayscale, Colour::Grey) | (ColorType::Rgb, Colour::Rgb)
    );
    let needed =
        reader.output_buffer_size().ok_or(PhotoError::Truncated { offset: bytes.len() })?;
    let pixels = header.width as usize * header.height as usize;
    if needed != pixels * usize::from(components(stored)) || out.len() != pixels * colour.channels()
    {
        return Err(PhotoError::WrongOutput {
            found: out.len(),
            wanted: pixels * colour.channels(),
        });
    }
    if direct {
        reader.next_frame(out).map_err(refused)?;
    } else {
        scratch.resize(needed, 0);
        reader.next_frame(scratch).map_err(refused)?;
        convert(scratch, stored, colour, out);
    }
    Ok(())
}

/// Refuses files too short for the picture they promise, before anything is allocated for it.
pub(crate) fn check_length(bytes: &[u8], header: &Header) -> Result<(), PhotoError> {
    // One bit per pixel is the least that a PNG may store.
    let least = u64::from(header.width).div_ceil(8) * u64::from(header.height);
    if least > bytes.len() as u64 * MAX_EXPANSION {
        return Err(PhotoError::Truncated { offset: bytes.len() });
    }
    Ok(())
}

fn convert(source: &[u8], stored: ColorType, colour: Colour, out: &mut [u8]) {
    let step = usize::from(components(stored));
    let pixels = source.chunks_exact(step).map(|pixel| match *pixel {
        [grey] => [grey; 3],
        [grey, alpha] => [over_white(grey, alpha); 3],
        [red, green, blue] => [red, green, blue],
        [red, green, blue, alpha] => [red, green, blue].map(|sample| over_white(sample, alpha)),
        _ => [0; 3],
    });
    match colour {
        Colour::Rgb => {
            for (to, from) in out.chunks_exact_mut(3).zip(pixels) {
                to.copy_from_slice(&from);
            }
        }
        Colour::Grey => {
            for (to, from) in out.iter_mut().zip(pixels) {
                *to = luma(from);
            }
        }
    }
}

/// `sample` seen through `alpha` against white, rounded.
fn over_white(sample: u8, alpha: u8) -> u8 {
    let (sample, alpha) = (u32::from(sample), u32::from(alpha));
    ((sample * alpha + 255 * (255 - alpha) + 127) / 255) as u8
}

/// JPEG's luma of an RGB pixel, in 16-bit fixed point, rounded.
pub(crate) fn luma([red, green, blue]: [u8; 3]) -> u8 {
    ((u32::from(red) * 19595 + u32::from(green) * 38470 + u32::from(blue) * 7471 + 32768) >> 16)
        as u8
}
