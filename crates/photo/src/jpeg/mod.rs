//! JPEG.

use crate::error::Defect;
use crate::header::{Format, Header};
use crate::{Colour, Orientation, PhotoError, Unsupported, exif};
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Reads the segments up to the picture data.
pub(crate) fn probe(bytes: &[u8]) -> Result<Header, PhotoError> {
    let mut at = 2;
    let mut orientation = Orientation::Upright;
    let mut frame: Option<(u32, u32, u8)> = None;
    loop {
        let cut = PhotoError::Truncated { offset: bytes.len() };
        let here = at;
        let damaged = |defect| PhotoError::Jpeg { defect, offset: here };
        let mut start = at;
        while bytes.get(start).is_some_and(|&byte| byte != 0xff) {
            start += 1;
        }
        while bytes.get(start).is_some_and(|&byte| byte == 0xff) {
            start += 1;
        }
        let marker = *bytes.get(start).ok_or(cut.clone())?;
        at = start + 1;
        match marker {
            0x00 | 0x01 | 0xd0..=0xd7 => continue,
            0xd9 => return Err(PhotoError::Jpeg { defect: Defect::MissingFrame, offset: start }),
            0xda => {
                let (width, height, components) = frame.ok_or(damaged(Defect::MissingFrame))?;
                return Ok(Header { format: Format::Jpeg, width, height, components, orientation });
            }
            _ => {}
        }
        let length = bytes.get(at..at + 2).ok_or(cut.clone())?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length < 2 {
            return Err(PhotoError::Jpeg { defect: Defect::SegmentLength, offset: at });
        }
        let segment = bytes.get(at + 2..at + length).ok_or(cut)?;
        match marker {
            0xc0..=0xc2 => {
                if segment.len() < 6 {
                    return Err(PhotoError::Jpeg { defect: Defect::SegmentLength, offset: at });
                }
                if segment[0] != 8 {
                    return Err(Unsupported::Precision(segment[0]).into());
                }
                let height = u32::from(u16::from_be_bytes([segment[1], segment[2]]));
                let width = u32::from(u16::from_be_bytes([segment[3], segment[4]]));
                if height == 0 || width == 0 {
                    return Err(PhotoError::Jpeg { defect: Defect::ZeroSize, offset: at });
                }
                if !matches!(segment[5], 1 | 3 | 4) {
                    return Err(Unsupported::Components(segment[5]).into());
                }
                frame = Some((width, height, segment[5]));
            }
            0xc3 | 0xc5..=0xc7 => return Err(Unsupported::FrameType(marker).into()),
            0xc9..=0xcb | 0xcd..=0xcf => return Err(Unsupported::ArithmeticCoding.into()),
            0xe1 => {
                if let Some(tiff) = segment.strip_prefix(b"Exif\0\0") {
                    orientation = exif::orientation(tiff);
                }
            }
            _ => {}
        }
        at += length;
    }
}

/// Decodes into `out`, which holds exactly the stored size in `colour`.
pub(crate) fn decode(
    bytes: &[u8],
    header: &Header,
    colour: Colour,
    out: &mut [u8],
) -> Result<(), PhotoError> {
    let space = match colour {
        Colour::Grey => ColorSpace::Luma,
        Colour::Rgb => ColorSpace::RGB,
    };
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(header.width as usize)
        .set_max_height(header.height as usize)
        .jpeg_set_out_colorspace(space);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder
        .decode_into(out)
        .map_err(|_| PhotoError::Jpeg { defect: Defect::HuffmanCode, offset: bytes.len() })
}
