//! Resized pixels agree with an independent resizer of the same filter.

#![allow(clippy::unwrap_used, reason = "a test")]

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};
use paceline_photo::{Colour, Fit, Pixels, Resizer};
use proptest::prelude::*;

/// One plane of `data`, resized by the other resizer. Of one pixel type only: each type that the
/// compiler has to make costs a minute.
fn second_opinion(data: &[u8], from: (u32, u32), to: (u32, u32)) -> Vec<u8> {
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .fit_into_destination(Some((0.5, 0.5)))
        .use_alpha(false);
    let mut out = vec![0; (to.0 * to.1) as usize];
    let source = TypedImageRef::<U8>::from_buffer(from.0, from.1, data).unwrap();
    let mut target = TypedImage::<U8>::from_buffer(to.0, to.1, &mut out).unwrap();
    fast_image_resize::Resizer::new().resize_typed(&source, &mut target, &options).unwrap();
    out
}

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
        let colour = if grey { Colour::Grey } else { Colour::Rgb };
        let channels = colour.channels();
        let mut state = seed;
        let data: Vec<u8> = (0..(width * height) as usize * channels)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        let planes: Vec<Vec<u8>> = (0..channels)
            .map(|channel| {
                let plane: Vec<u8> = data.iter().copied().skip(channel).step_by(channels).collect();
                second_opinion(&plane, (width, height), (across, down))
            })
            .collect();
        let source = Pixels::from_data(width, height, colour, data).unwrap();
        let mut ours = Pixels::new();
        Resizer::new().resize_into(&source, across, down, Fit::Crop, &mut ours).unwrap();
        for (at, &one) in ours.data().iter().enumerate() {
            let two = planes[at % channels][at / channels];
            prop_assert!(one.abs_diff(two) <= 2, "sample {}: {} against {}", at, one, two);
        }
    }
}
