//! What is encoded comes back, whatever the shape, colour and fit.

#![allow(clippy::unwrap_used, reason = "a test")]

use paceline_photo::{
    Colour, DecodeOptions, Decoder, Encoder, Encoding, Fit, PhotoError, Pixels, probe,
};

/// A smooth picture with all colours, the kind that JPEG keeps well.
fn gradient(width: u32, height: u32, colour: Colour) -> Pixels {
    let mut data = Vec::new();
    for y in 0..height {
        for x in 0..width {
            // Steep colour edges would drown in the halved colour resolution.
            let rgb = [60 + 2 * x as u8, 90 + 2 * y as u8, 200 - x as u8 - y as u8];
            data.extend_from_slice(&rgb[..colour.channels()]);
        }
    }
    Pixels::from_data(width, height, colour, data).unwrap()
}

fn encode(pixels: &Pixels, encoding: Encoding) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new().encode_into(pixels, encoding, &mut out).unwrap();
    out
}

#[test]
fn png_loses_nothing_and_jpeg_little() {
    let mut decoder = Decoder::new();
    let mut back = Pixels::new();
    for colour in [Colour::Grey, Colour::Rgb] {
        for (width, height) in [(1, 1), (7, 3), (16, 16), (65, 33)] {
            let pixels = gradient(width, height, colour);
            let options = DecodeOptions { colour, ..DecodeOptions::default() };
            decoder.decode_into(&encode(&pixels, Encoding::Png), &options, &mut back).unwrap();
            assert_eq!(back, pixels);
            let jpeg = encode(&pixels, Encoding::Jpeg { quality: 95 });
            let header = probe(&jpeg).unwrap();
            assert_eq!((header.width, header.height), (width, height));
            decoder.decode_into(&jpeg, &options, &mut back).unwrap();
            let total: u64 = back
                .data()
                .iter()
                .zip(pixels.data())
                .map(|(&a, &b)| u64::from(a.abs_diff(b)))
                .sum();
            assert!(
                total <= 6 * pixels.data().len() as u64,
                "{width} x {height}: mean error {total}"
            );
        }
    }
}

#[test]
fn a_slot_of_another_size_is_refused() {
    let jpeg = encode(&gradient(20, 10, Colour::Rgb), Encoding::Jpeg { quality: 90 });
    let mut decoder = Decoder::new();
    let options = DecodeOptions::default();
    let mut slot = vec![0; 20 * 10 * 3];
    decoder.decode_to_slice(&jpeg, &options, 20, 10, &mut slot).unwrap();
    assert!(matches!(
        decoder.decode_to_slice(&jpeg, &options, 10, 20, &mut slot),
        Err(PhotoError::WrongSize { found_width: 20, .. })
    ));
    assert!(matches!(
        decoder.decode_to_slice(&jpeg, &options, 20, 10, &mut slot[1..]),
        Err(PhotoError::WrongOutput { .. })
    ));
}

#[test]
fn fitted_decoding_gives_the_asked_size() {
    let jpeg = encode(&gradient(90, 50, Colour::Rgb), Encoding::Jpeg { quality: 90 });
    let mut decoder = Decoder::new();
    let mut out = Pixels::new();
    for fit in [Fit::Crop, Fit::Pad, Fit::Stretch] {
        decoder.decode_fitted(&jpeg, &DecodeOptions::default(), (48, 40), fit, &mut out).unwrap();
        assert_eq!((out.width(), out.height()), (48, 40));
        let corner = &out.data()[..3];
        assert_eq!(fit == Fit::Pad, corner == [0, 0, 0], "{fit:?}: {corner:?}");
    }
}
