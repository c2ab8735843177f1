//! Resized pixels agree with an independent resizer of the same filter.

#![allow(clippy::unwrap_used, reason = "a test")]

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions};
use paceline_photo::{Colour, Fit, Pixels, Resizer};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Both round twice, in another order; two steps of 255 is what that can make.
    #[test]
    fn the_triangle_filter_is_the_usual_one(
        (width, height) in (1u32..90, 1u32..90),
        (across, down) in (1u32..60, 1u32..60),
        grey in any::<bool>(),
        seed in any::<u32>(),
    ) {
        let (colour, kind) =
            if grey { (Colour::Grey, PixelType::U8) } else { (Colour::Rgb, PixelType::U8x3) };
        let mut state = seed;
        let data: Vec<u8> = (0..(width * height) as usize * colour.channels())
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        let mut other = vec![0; (across * down) as usize * colour.channels()];
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .fit_into_destination(Some((0.5, 0.5)))
            .use_alpha(false);
        fast_image_resize::Resizer::new()
            .resize(
                &ImageRef::new(width, height, &data, kind).unwrap(),
                &mut Image::from_slice_u8(across, down, &mut other, kind).unwrap(),
                &options,
            )
            .unwrap();
        let source = Pixels::from_data(width, height, colour, data).unwrap();
        let mut ours = Pixels::new();
        Resizer::new().resize_into(&source, across, down, Fit::Crop, &mut ours).unwrap();
        for (at, (&one, &two)) in ours.data().iter().zip(&other).enumerate() {
            prop_assert!(one.abs_diff(two) <= 2, "sample {}: {} against {}", at, one, two);
        }
    }
}
