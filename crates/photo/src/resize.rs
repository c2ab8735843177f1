//! Resizing with an antialiased triangle filter, as Pillow's `BILINEAR`.

use crate::fit;
use crate::{Colour, Fit, PhotoError, Pixels};
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions};

/// Resizes pictures, reusing its scratch memory: make one per thread.
#[derive(Debug, Default)]
pub struct Resizer {
    inner: fast_image_resize::Resizer,
    inside: Vec<u8>,
}

impl Resizer {
    /// A resizer without scratch memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Resizes `source` to `width` x `height`, cut, padded or stretched as `fit` says.
    ///
    /// # Errors
    /// If the source or the target has no pixels.
    pub fn resize_into(
        &mut self,
        source: &Pixels,
        width: u32,
        height: u32,
        fit: Fit,
        target: &mut Pixels,
    ) -> Result<(), PhotoError> {
        let bad = PhotoError::BadTarget { width, height };
        if width.min(height).min(source.width()).min(source.height()) == 0
            || width.max(height) > 65_535
        {
            return Err(bad);
        }
        let plan = fit::plan(fit, (source.width(), source.height()), (width, height));
        let kind = match source.colour() {
            Colour::Grey => PixelType::U8,
            Colour::Rgb => PixelType::U8x3,
        };
        let channels = source.colour().channels();
        let region = plan.region;
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .use_alpha(false)
            .crop(region.left, region.top, region.width, region.height);
        let view = ImageRef::new(source.width(), source.height(), source.data(), kind)
            .map_err(|_| bad.clone())?;
        let [left, top, across, down] = plan.inside;
        let data = target.reshape(width, height, source.colour());
        if (across, down) == (width, height) {
            let mut image =
                Image::from_slice_u8(width, height, data, kind).map_err(|_| bad.clone())?;
            return self.inner.resize(&view, &mut image, &options).map_err(|_| bad);
        }
        self.inside.resize(across as usize * down as usize * channels, 0);
        let mut image =
            Image::from_slice_u8(across, down, &mut self.inside, kind).map_err(|_| bad.clone())?;
        self.inner.resize(&view, &mut image, &options).map_err(|_| bad)?;
        data.fill(0);
        let line = across as usize * channels;
        for (row, from) in self.inside.chunks_exact(line).enumerate() {
            let start = ((top as usize + row) * width as usize + left as usize) * channels;
            data[start..start + line].copy_from_slice(from);
        }
        Ok(())
    }
}
