//! From the bytes of a file to upright pixels.

use crate::fit::{self, Plan};
use crate::header::{self, Format, Header, Limits};
use crate::jpeg::{self, JpegDecoder, View};
use crate::pixels::orient;
use crate::{Colour, Fit, Orientation, PhotoError, Pixels, Resizer, Simd, png};

/// How to decode a photo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Photos beyond these are refused.
    pub limits: Limits,
    /// Grey or colour; a photo of the other kind is converted.
    pub colour: Colour,
    /// Whether EXIF orientation is applied.
    pub orient: bool,
    /// If given, the decoder may return a smaller version of the photo (a half, a quarter or an
    /// eighth), as long as neither side falls below these (width, height, after orientation).
    pub at_least: Option<(u32, u32)>,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { limits: Limits::default(), colour: Colour::Rgb, orient: true, at_least: None }
    }
}

/// How much larger than its target a photo must stay when it is scaled while decoding. The rest is
/// left to the resizer, whose filter is the better one.
const KEPT_FOR_RESIZING: f64 = 2.0;

/// Decodes photos, reusing its scratch memory: make one per thread.
#[derive(Debug)]
pub struct Decoder {
    jpeg: JpegDecoder,
    resizer: Resizer,
    /// Pixels as stored, before they are turned or resized.
    stored: Pixels,
    resized: Pixels,
    /// Samples as a PNG stores them, before conversion.
    samples: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::with_simd(Simd::best())
    }
}

/// A photo whose header was read and found acceptable.
struct ParsedHeader {
    header: Header,
    /// What the JPEG decoder needs to continue; `None` for a PNG.
    jpeg: Option<jpeg::Opened>,
}

impl ParsedHeader {
    fn stored_size(&self) -> (u32, u32) {
        (self.header.width, self.header.height)
    }

    /// Width and height when decoded at `side` samples per block (8 is full size).
    fn scaled_size(&self, side: usize) -> (u32, u32) {
        self.jpeg.map_or(self.stored_size(), |opened| {
            let (width, height) = View::scaled_size(&opened.frame, side);
            (width as u32, height as u32)
        })
    }
}

impl Decoder {
    /// A decoder without scratch memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder held to an instruction set (the portable one if the machine lacks it). The pixels
    /// are the same with every set.
    #[must_use]
    pub fn with_simd(simd: Simd) -> Self {
        Self {
            jpeg: JpegDecoder::new(simd.or_portable()),
            resizer: Resizer::with_simd(simd),
            stored: Pixels::new(),
            resized: Pixels::new(),
            samples: Vec::new(),
        }
    }

    /// Decodes into `out`, whose buffer is reused.
    ///
    /// # Errors
    /// If the bytes are not an intact photo within the limits; `out` is then unspecified.
    pub fn decode_into(
        &mut self,
        bytes: &[u8],
        options: &DecodeOptions,
        out: &mut Pixels,
    ) -> Result<(), PhotoError> {
        let photo = self.examine(bytes, options)?;
        let orientation = photo.header.orientation;
        let side = options.at_least.map_or(8, |least| {
            let least = if orientation.swaps_sides() { (least.1, least.0) } else { least };
            let fits = |side: &usize| {
                let (width, height) = photo.scaled_size(*side);
                photo.jpeg.is_some() && width >= least.0 && height >= least.1
            };
            [1, 2, 4].into_iter().find(fits).unwrap_or(8)
        });
        let (width, height) = photo.scaled_size(side);
        let view = View { side, columns: (0, width as usize), rows: (0, height as usize) };
        if orientation == Orientation::Upright {
            let data = out.reshape(width, height, options.colour);
            return self.decode_view(bytes, &photo, options, view, data);
        }
        self.decode_stored(bytes, &photo, options, view)?;
        let (width, height) =
            if orientation.swaps_sides() { (height, width) } else { (width, height) };
        turn(&self.stored, orientation, out.reshape(width, height, options.colour));
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
        let photo = self.examine(bytes, options)?;
        let (found_width, found_height) = photo.header.upright_size();
        if (found_width, found_height) != (width, height) {
            return Err(PhotoError::WrongSize { found_width, found_height, width, height });
        }
        let wanted = width as usize * height as usize * options.colour.channels();
        if out.len() != wanted {
            return Err(PhotoError::WrongOutput { found: out.len(), wanted });
        }
        let (across, down) = photo.stored_size();
        let view = View { side: 8, columns: (0, across as usize), rows: (0, down as usize) };
        if photo.header.orientation == Orientation::Upright {
            return self.decode_view(bytes, &photo, options, view, out);
        }
        self.decode_stored(bytes, &photo, options, view)?;
        turn(&self.stored, photo.header.orientation, out);
        Ok(())
    }

    /// Decodes, turns and resizes in one go, without computing pixels that the result does not show,
    /// and at a lower resolution where the target is much smaller than the photo.
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
        let photo = self.examine(bytes, options)?;
        let (plan, view, target) = fitted(&photo, (width, height), fit)?;
        let orientation = photo.header.orientation;
        self.decode_stored(bytes, &photo, options, view)?;
        if orientation == Orientation::Upright {
            self.resizer.resize_planned(&self.stored, &plan, target, out);
            return Ok(());
        }
        self.resizer.resize_planned(&self.stored, &plan, target, &mut self.resized);
        turn(&self.resized, orientation, out.reshape(width, height, options.colour));
        Ok(())
    }

    /// Bytes that [`Decoder::decode_fitted`] would hold for this photo, so that a caller that
    /// decodes many at once can bound their sum. Reads the header only.
    ///
    /// # Errors
    /// As [`Decoder::decode_fitted`], as far as the header shows.
    pub fn fitted_memory(
        &mut self,
        bytes: &[u8],
        options: &DecodeOptions,
        (width, height): (u32, u32),
        fit: Fit,
    ) -> Result<u64, PhotoError> {
        let photo = self.examine(bytes, options)?;
        let (_, view, _) = fitted(&photo, (width, height), fit)?;
        let shown = (view.columns.1 - view.columns.0) as u64 * (view.rows.1 - view.rows.0) as u64;
        let held = match &photo.jpeg {
            Some(opened) => opened.held_bytes(),
            // Samples as stored, before they become pixels.
            None => shown * u64::from(photo.header.components) * png::sample_bytes(bytes),
        };
        let result = u64::from(width) * u64::from(height);
        // The result is counted twice: it may be turned.
        Ok(held + (shown + 2 * result) * options.colour.channels() as u64)
    }

    /// Reads the header and refuses what is too large or too short, before anything is allocated.
    fn examine(
        &mut self,
        bytes: &[u8],
        options: &DecodeOptions,
    ) -> Result<ParsedHeader, PhotoError> {
        let (mut header, jpeg) = match header::format(bytes)? {
            Format::Jpeg => {
                let opened = self.jpeg.open(bytes)?;
                (opened.header, Some(opened))
            }
            Format::Png => (png::probe(bytes)?, None),
        };
        options.limits.check(header.width, header.height)?;
        match &jpeg {
            Some(opened) => JpegDecoder::check_length(bytes, opened)?,
            None => png::check_length(bytes, &header)?,
        }
        if !options.orient {
            header.orientation = Orientation::Upright;
        }
        Ok(ParsedHeader { header, jpeg })
    }

    /// Decodes a view as stored into `self.stored`.
    fn decode_stored(
        &mut self,
        bytes: &[u8],
        photo: &ParsedHeader,
        options: &DecodeOptions,
        view: View,
    ) -> Result<(), PhotoError> {
        let mut stored = std::mem::take(&mut self.stored);
        let (width, height) = (view.columns.1 - view.columns.0, view.rows.1 - view.rows.0);
        let data = stored.reshape(width as u32, height as u32, options.colour);
        let result = self.decode_view(bytes, photo, options, view, data);
        self.stored = stored;
        result
    }

    fn decode_view(
        &mut self,
        bytes: &[u8],
        photo: &ParsedHeader,
        options: &DecodeOptions,
        view: View,
        out: &mut [u8],
    ) -> Result<(), PhotoError> {
        match &photo.jpeg {
            Some(opened) => {
                let limits = &options.limits;
                self.jpeg.decode(bytes, opened, limits, view, options.colour, out)
            }
            // A PNG is always decoded whole.
            None => png::decode(bytes, &photo.header, options.colour, &mut self.samples, out),
        }
    }
}

/// What is decoded and how it is resized; the size of the result before it is turned.
fn fitted(
    photo: &ParsedHeader,
    (width, height): (u32, u32),
    fit: Fit,
) -> Result<(Plan, View, (u32, u32)), PhotoError> {
    if width.min(height) == 0 || width.max(height) > Resizer::MAX_SIDE {
        return Err(PhotoError::BadTarget { width, height });
    }
    // Turning the small picture is cheaper than turning the large one.
    let swapped = photo.header.orientation.swaps_sides();
    let target = if swapped { (height, width) } else { (width, height) };
    let mut plan = fit::plan(fit, photo.stored_size(), target);
    let mut side = 8;
    let step = (plan.region.width / f64::from(plan.inside[2]))
        .min(plan.region.height / f64::from(plan.inside[3]));
    while photo.jpeg.is_some() && side > 1 && step * side as f64 / 16.0 >= KEPT_FOR_RESIZING {
        side /= 2;
    }
    plan.region = plan.region.scaled(side as f64 / 8.0);
    let view = visible(photo, &plan, side);
    plan.region.left -= view.columns.0 as f64;
    plan.region.top -= view.rows.0 as f64;
    Ok((plan, view, target))
}

/// The part of the photo that a plan's filter looks at, at `side` samples per block.
fn visible(photo: &ParsedHeader, plan: &Plan, side: usize) -> View {
    let (width, height) = photo.scaled_size(side);
    if photo.jpeg.is_none() {
        return View { side, columns: (0, width as usize), rows: (0, height as usize) };
    }
    let range = |start: f64, length: f64, target: u32, size: u32| {
        // The triangle reaches half a step beyond the outermost pixel, or half a pixel if enlarging.
        let reach = (length / f64::from(target)).max(1.0);
        let end = ((start + length + reach).ceil() as usize).min(size as usize);
        (((start - reach).floor().max(0.0) as usize).min(end - 1), end)
    };
    let region = &plan.region;
    View {
        side,
        columns: range(region.left, region.width, plan.inside[2], width),
        rows: range(region.top, region.height, plan.inside[3], height),
    }
}

fn turn(source: &Pixels, orientation: Orientation, target: &mut [u8]) {
    let (width, height) = (source.width() as usize, source.height() as usize);
    orient(source.data(), width, height, source.colour().channels(), orientation, target);
}
