//! From pixels to the bytes of a file.

use crate::{Colour, PhotoError, Pixels};
use jpeg_encoder::{ColorType, SamplingFactor};

/// How pixels are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Baseline JPEG; colour is stored at half the resolution (4:2:0), as most programs do.
    Jpeg {
        /// 1 (worst) to 100 (best), on libjpeg's scale.
        quality: u8,
    },
    /// PNG, without loss.
    Png,
    /// The samples themselves, row after row, without any header.
    Raw,
}

/// Encodes pictures, reusing its scratch memory: make one per thread.
#[derive(Debug, Default)]
pub struct Encoder {}

impl Encoder {
    /// An encoder without scratch memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the contents of `out` by the encoded picture.
    ///
    /// # Errors
    /// If the picture has no pixels, or more per side than the format can say.
    pub fn encode_into(
        &mut self,
        pixels: &Pixels,
        encoding: Encoding,
        out: &mut Vec<u8>,
    ) -> Result<(), PhotoError> {
        let bad = PhotoError::BadTarget { width: pixels.width(), height: pixels.height() };
        if pixels.data().is_empty() {
            return Err(bad);
        }
        out.clear();
        match encoding {
            Encoding::Raw => out.extend_from_slice(pixels.data()),
            Encoding::Jpeg { quality } => {
                let (Ok(width), Ok(height)) =
                    (u16::try_from(pixels.width()), u16::try_from(pixels.height()))
                else {
                    return Err(bad);
                };
                let kind = match pixels.colour() {
                    Colour::Grey => ColorType::Luma,
                    Colour::Rgb => ColorType::Rgb,
                };
                let mut encoder = jpeg_encoder::Encoder::new(out, quality.clamp(1, 100));
                encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
                encoder.encode(pixels.data(), width, height, kind).map_err(|_| bad)?;
            }
            Encoding::Png => {
                let mut encoder = ::png::Encoder::new(out, pixels.width(), pixels.height());
                encoder.set_color(match pixels.colour() {
                    Colour::Grey => ::png::ColorType::Grayscale,
                    Colour::Rgb => ::png::ColorType::Rgb,
                });
                encoder.set_depth(::png::BitDepth::Eight);
                let mut writer = encoder.write_header().map_err(|_| bad.clone())?;
                writer.write_image_data(pixels.data()).map_err(|_| bad.clone())?;
                writer.finish().map_err(|_| bad)?;
            }
        }
        Ok(())
    }
}
