//! From the bytes of a file to upright pixels.

use crate::header::{self, Format, Header, Limits};
use crate::pixels::orient;
use crate::{Colour, Fit, Orientation, PhotoError, Pixels, Resizer, jpeg, png};

/// How a photo is to be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Photos beyond these are refused.
    pub limits: Limits,
    /// Grey or colour; a photo of the other kind is converted.
    pub colour: Colour,
    /// Whether EXIF orientation is applied.
    pub orient: bool,
    /// If given, the decoder may return a smaller version of the photo, as long as neither side
    /// falls below these (width, height, after orientation). Scaling while decoding is cheap.
    pub at_least: Option<(u32, u32)>,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { limits: Limits::default(), colour: Colour::Rgb, orient: true, at_least: None }
    }
}

/// Decodes photos, reusing its scratch memory: make one per thread.
#[derive(Debug, Default)]
pub struct Decoder {
    resizer: Resizer,
    /// Pixels as stored, before they are turned or resized.
    stored: Pixels,
    resized: Pixels,
    /// Samples as a PNG stores them, before conversion.
    samples: Vec<u8>,
}

impl Decoder {
    /// A decoder without scratch memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes into `out`, whose buffer is reused.
    ///
    /// # Errors
    /// If the bytes are no intact photo within the limits; `out` then holds nothing meaningful.
    pub fn decode_into(
        &mut self,
        bytes: &[u8],
        options: &DecodeOptions,
        out: &mut Pixels,
    ) -> Result<(), PhotoError> {
        let header = self.examine(bytes, options)?;
        let (width, height) = header.upright_size();
        if header.orientation == Orientation::Upright {
            let data = out.reshape(width, height, options.colour);
            return decode_stored(bytes, &header, options.colour, &mut self.samples, data);
        }
        let data = self.stored.reshape(header.width, header.height, options.colour);
        decode_stored(bytes, &header, options.colour, &mut self.samples, data)?;
        turn(&self.stored, header.orientation, out.reshape(width, height, options.colour));
        Ok(())
    }

    /// Decodes straight into a slot of a batch; the photo must have exactly this size.
    /// `options.at_least` is ignored.
    ///
    /// # Errors
    /// As [`Decoder::decode_into`], and if the photo or the slot has another size.
    pub fn decode_to_slice(
        &mut self,
        bytes: &[u8],
        options: &DecodeOptions,
        width: u32,
        height: u32,
        out: &mut [u8],
    ) -> Result<(), PhotoError> {
        let header = self.examine(bytes, options)?;
        let (found_width, found_height) = header.upright_size();
        if (found_width, found_height) != (width, height) {
            return Err(PhotoError::WrongSize { found_width, found_height, width, height });
        }
        let wanted = width as usize * height as usize * options.colour.channels();
        if out.len() != wanted {
            return Err(PhotoError::WrongOutput { found: out.len(), wanted });
        }
        if header.orientation == Orientation::Upright {
            return decode_stored(bytes, &header, options.colour, &mut self.samples, out);
        }
        let data = self.stored.reshape(header.width, header.height, options.colour);
        decode_stored(bytes, &header, options.colour, &mut self.samples, data)?;
        turn(&self.stored, header.orientation, out);
        Ok(())
    }

    /// Decodes, turns and resizes in one go, without computing pixels that the result does not show.
    /// `options.at_least` is ignored: the target decides.
    ///
    /// # Errors
    /// As [`Decoder::decode_into`], and if the target has no pixels.
    pub fn decode_fitted(
        &mut self,
        bytes: &[u8],
        options: &DecodeOptions,
        (width, height): (u32, u32),
        fit: Fit,
        out: &mut Pixels,
    ) -> Result<(), PhotoError> {
        let header = self.examine(bytes, options)?;
        let data = self.stored.reshape(header.width, header.height, options.colour);
        decode_stored(bytes, &header, options.colour, &mut self.samples, data)?;
        if header.orientation == Orientation::Upright {
            return self.resizer.resize_into(&self.stored, width, height, fit, out);
        }
        // Turning the small picture is cheaper than turning the large one.
        let (across, down) =
            if header.orientation.swaps_sides() { (height, width) } else { (width, height) };
        self.resizer.resize_into(&self.stored, across, down, fit, &mut self.resized)?;
        turn(&self.resized, header.orientation, out.reshape(width, height, options.colour));
        Ok(())
    }

    /// Reads the header and refuses what is too large, before anything is allocated.
    fn examine(&self, bytes: &[u8], options: &DecodeOptions) -> Result<Header, PhotoError> {
        let mut header = header::probe(bytes)?;
        options.limits.check(header.width, header.height)?;
        if !options.orient {
            header.orientation = Orientation::Upright;
        }
        Ok(header)
    }
}

fn decode_stored(
    bytes: &[u8],
    header: &Header,
    colour: Colour,
    samples: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<(), PhotoError> {
    match header.format {
        Format::Jpeg => jpeg::decode(bytes, header, colour, out),
        Format::Png => png::decode(bytes, header, colour, samples, out),
    }
}

fn turn(source: &Pixels, orientation: Orientation, target: &mut [u8]) {
    let (width, height) = (source.width() as usize, source.height() as usize);
    orient(source.data(), width, height, source.colour().channels(), orientation, target);
}
