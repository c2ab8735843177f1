//! From pixels to the bytes of a file.

use crate::jpeg::JpegEncoder;
use crate::{Colour, PhotoError, Pixels, Simd};

/// How pixels are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Baseline JPEG with 4:2:0 chroma subsampling, as most programs write.
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
#[derive(Debug)]
pub struct Encoder {
    jpeg: JpegEncoder,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::with_simd(Simd::best())
    }
}

impl Encoder {
    /// An encoder without scratch memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An encoder held to an instruction set (the portable one if the machine lacks it). The bytes
    /// are the same with every set.
    #[must_use]
    pub fn with_simd(simd: Simd) -> Self {
        Self { jpeg: JpegEncoder::new(simd.or_portable()) }
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
                self.jpeg.encode(pixels, (width, height), quality.clamp(1, 100), out);
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
