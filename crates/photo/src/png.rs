//! PNG, decoded by the `png` crate and converted to one or three bytes per pixel.

use crate::error::PhotoError;
use crate::header::{Format, Header};
use crate::{Colour, Orientation, exif};
use ::png::{BitDepth, ColorType, DecodingError, Transformations};
use std::{borrow::Cow, io::Cursor};

/// Deflate cannot expand by more than this, so a short file cannot hold a large picture.
const MAX_EXPANSION: u64 = 1032;

/// The keyword of XMP in a text chunk.
const XMP: &[u8] = b"XML:com.adobe.xmp";
/// Most bytes of XMP that are unpacked: an editor's history may be long, the orientation is not.
const MOST_XMP: usize = 1 << 20;

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
    // Samples of 16 bits are cut to 8 only after they were laid over white, as libpng does it.
    decoder.set_transformations(Transformations::EXPAND);
    decoder
}

/// Reads the header, and the orientation from the EXIF chunk or else from XMP.
pub(crate) fn probe(bytes: &[u8]) -> Result<Header, PhotoError> {
    let mut decoder = open(bytes);
    let info = decoder.read_header_info().map_err(|error| refuse(&error, bytes.len()))?;
    Ok(Header {
        format: Format::Png,
        width: info.width,
        height: info.height,
        components: components(info.color_type),
        orientation: orientation(bytes),
    })
}

/// Walks the chunks by their lengths alone, since the header must not cost a decode. EXIF and XMP may follow the pixels. EXIF's word
/// counts where both have one.
fn orientation(bytes: &[u8]) -> Orientation {
    let (mut seen_xmp, mut from_xmp) = (false, None);
    let mut at = 8usize;
    while let Some(head) = bytes.get(at..at.saturating_add(8)) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let contents = || bytes.get(at + 8..(at + 8).checked_add(length)?);
        match &head[4..8] {
            b"eXIf" => {
                if let Some(found) = contents().and_then(exif::find) {
                    return found;
                }
            }
            // Only the first: thousands that must be unpacked would be an attack on our time.
            b"iTXt" if !seen_xmp => {
                let text = contents().filter(|text| text.starts_with(XMP));
                seen_xmp = text.is_some();
                from_xmp = text
                    .and_then(|text| xmp_text(bytes, text))
                    .and_then(|text| xmp_orientation(&text));
            }
            b"IEND" => break,
            _ => {}
        }
        at = at.saturating_add(length).saturating_add(12);
    }
    from_xmp.unwrap_or_default()
}

/// XMP's text in an `iTXt` chunk.
fn xmp_text<'a>(bytes: &[u8], chunk: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let rest = chunk.strip_prefix(XMP)?.strip_prefix(&[0])?;
    match rest.split_at_checked(2)? {
        ([0, _], rest) => {
            // Language and translated keyword, each ended by a zero.
            let mut parts = rest.splitn(3, |&byte| byte == 0);
            parts.nth(2).map(Cow::Borrowed)
        }
        // Rare: the PNG reader unpacks it, within bounds.
        _ => {
            let mut decoder = open(bytes);
            decoder.set_ignore_text_chunk(false);
            let reader = decoder.read_info().ok()?;
            let mut texts = reader.info().utf8_text.iter();
            let mut text = texts.find(|text| text.keyword.as_bytes() == XMP)?.clone();
            text.decompress_text_with_limit(MOST_XMP).ok()?;
            Some(Cow::Owned(text.get_text().ok()?.into_bytes()))
        }
    }
}

/// `tiff:Orientation` as attribute or element. Its value is one digit, so that no XML reader is needed to find it.
fn xmp_orientation(text: &[u8]) -> Option<Orientation> {
    let name = b"tiff:Orientation";
    let at = text.windows(name.len()).position(|window| window == name)? + name.len();
    let mut value = text[at..].iter().filter(|byte| !byte.is_ascii_whitespace());
    let digit = match value.next()? {
        b'=' => {
            matches!(value.next()?, b'"' | b'\'').then_some(())?;
            value.next()?
        }
        b'>' => value.next()?,
        _ => return None,
    };
    let ends = value.next().is_none_or(|byte| !byte.is_ascii_digit());
    (ends && matches!(digit, b'1'..=b'8')).then(|| Orientation::from_exif(u16::from(digit - b'0')))
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
    let (stored, depth) = reader.output_color_type();
    let deep = depth == BitDepth::Sixteen;
    let direct = !deep
        && matches!(
            (stored, colour),
            (ColorType::Grayscale, Colour::Grey) | (ColorType::Rgb, Colour::Rgb)
        );
    let needed =
        reader.output_buffer_size().ok_or(PhotoError::Truncated { offset: bytes.len() })?;
    let pixels = header.width as usize * header.height as usize;
    let sample = if deep { 2 } else { 1 };
    if needed != pixels * usize::from(components(stored)) * sample
        || out.len() != pixels * colour.channels()
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
        let kept = if deep { flatten_deep(scratch, stored) } else { stored };
        let bytes = pixels * usize::from(components(kept));
        convert(&scratch[..bytes], kept, colour, out);
    }
    Ok(())
}

/// Bytes of a sample before it becomes a pixel's.
pub(crate) fn sample_bytes(bytes: &[u8]) -> u64 {
    // The depth is the ninth byte of the first chunk.
    if bytes.get(24) == Some(&16) { 2 } else { 1 }
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

/// Lays samples of 16 bits over white where they are transparent and keeps their upper 8 bits, in place; says what is left.
/// In this order, since a cut before would lose bits of the product.
fn flatten_deep(samples: &mut [u8], stored: ColorType) -> ColorType {
    let (colours, left) = match stored {
        ColorType::Grayscale | ColorType::GrayscaleAlpha => (1, ColorType::Grayscale),
        ColorType::Rgb | ColorType::Rgba | ColorType::Indexed => (3, ColorType::Rgb),
    };
    let step = usize::from(components(stored));
    for pixel in 0..samples.len() / (2 * step) {
        let from = pixel * step * 2;
        let value = |samples: &[u8], index: usize| {
            u16::from_be_bytes([samples[from + 2 * index], samples[from + 2 * index + 1]])
        };
        let alpha = if step > colours { value(samples, colours) } else { u16::MAX };
        for colour in 0..colours {
            let sample = over_white_deep(value(samples, colour), alpha);
            // Written before what is still to be read: a pixel shrinks.
            samples[pixel * colours + colour] = (sample >> 8) as u8;
        }
    }
    left
}

/// `sample` seen through `alpha` against white, rounded as libpng rounds it.
fn over_white_deep(sample: u16, alpha: u16) -> u16 {
    let white = u32::from(u16::MAX);
    let (sample, alpha) = (u32::from(sample), u32::from(alpha));
    // At most 65535 * 65535 + 32768, which fits.
    let sum = sample * alpha + white * (white - alpha) + 32768;
    ((sum + (sum >> 16)) >> 16) as u16
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
