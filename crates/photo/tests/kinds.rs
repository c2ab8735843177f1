//! Every kind of JPEG and PNG comes out as the picture that went in.

#![allow(clippy::unwrap_used, reason = "a test")]

use jpeg_encoder::{ColorType, SamplingFactor};
use paceline_photo::{
    Colour, DecodeOptions, Decoder, Encoder, Encoding, Fit, Format, Orientation, PhotoError,
    Pixels, Simd, probe,
};
use proptest::prelude::*;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

const SAMPLINGS: [SamplingFactor; 8] = [
    SamplingFactor::F_1_1,
    SamplingFactor::F_2_1,
    SamplingFactor::F_1_2,
    SamplingFactor::F_2_2,
    SamplingFactor::F_4_1,
    SamplingFactor::F_4_2,
    SamplingFactor::F_1_4,
    SamplingFactor::F_2_4,
];

/// Soft waves of colour; `seed` moves them.
fn waves(width: usize, height: usize, seed: u32) -> Vec<u8> {
    let mut data = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3u32 {
                let phase = f64::from((seed >> (8 * channel)) & 255) / 40.0;
                let wave = (x as f64 / 9.0 + phase).sin() * (y as f64 / 7.0 - phase).cos();
                data.push((128.0 + 100.0 * wave) as u8);
            }
        }
    }
    data
}

fn jpeg(
    data: &[u8],
    size: (u16, u16),
    kind: ColorType,
    set: impl Fn(&mut jpeg_encoder::Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut out, 90);
    set(&mut encoder);
    encoder.encode(data, size.0, size.1, kind).unwrap();
    out
}

fn decode(simd: Simd, bytes: &[u8], options: &DecodeOptions) -> Result<Pixels, PhotoError> {
    let mut out = Pixels::new();
    Decoder::with_simd(simd).decode_into(bytes, options, &mut out).map(|()| out)
}

fn other_decoder(bytes: &[u8], space: ColorSpace) -> Vec<u8> {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(space);
    zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options).decode().unwrap()
}

/// Largest and mean difference.
fn differences(one: &[u8], two: &[u8]) -> (u8, f64) {
    assert_eq!(one.len(), two.len());
    let all = one.iter().zip(two).map(|(&a, &b)| a.abs_diff(b));
    let total: u64 = all.clone().map(u64::from).sum();
    (all.max().unwrap_or(0), total as f64 / one.len() as f64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Against an independent decoder. Its transform rounds differently and it repeats some colour
    /// samples that we smooth, hence the bounds; luma alone must be within 5, chroma without subsampling within 9.
    /// Sequential only: the other decoder and libjpeg part ways on small progressive photos, where we
    /// equal libjpeg; that scans in any order give the same pixels is the next test's business.
    #[test]
    fn samplings_sizes_and_restarts_agree_with_another_decoder(
        (width, height) in (1u16..70, 1u16..70),
        // The other decoder does not know the odder samplings.
        sampling in 0..4usize,
        restart in 0u16..9,
        (quality, seed) in (30u8..=100, any::<u32>()),
    ) {
        let data = waves(width.into(), height.into(), seed);
        let bytes = jpeg(&data, (width, height), ColorType::Rgb, |encoder| {
            encoder.set_quality(quality);
            encoder.set_sampling_factor(SAMPLINGS[sampling]);
            encoder.set_restart_interval(restart);
        });
        let grey = DecodeOptions { colour: Colour::Grey, ..DecodeOptions::default() };
        let found = decode(Simd::best(), &bytes, &grey).unwrap();
        prop_assert_eq!((found.width(), found.height()), (width.into(), height.into()));
        let (most, _) = differences(found.data(), &other_decoder(&bytes, ColorSpace::Luma));
        prop_assert!(most <= 5, "grey differs by {}", most);
        let found = decode(Simd::best(), &bytes, &DecodeOptions::default()).unwrap();
        let (most, mean) = differences(found.data(), &other_decoder(&bytes, ColorSpace::RGB));
        if sampling == 0 {
            prop_assert!(most <= 9, "4:4:4 differs by {}", most);
        } else {
            prop_assert!(mean <= 6.0, "sampling {} differs by {} on average", sampling, mean);
        }
    }

    /// The same coefficients in another order of scans are the same picture, exactly.
    #[test]
    fn the_order_of_scans_does_not_matter(
        (width, height) in (1u16..70, 1u16..70),
        (sampling, restart) in (0..SAMPLINGS.len(), 0u16..9),
        (scans, seed) in (2u8..=20, any::<u32>()),
    ) {
        let data = waves(width.into(), height.into(), seed);
        let pixels = |set: &dyn Fn(&mut jpeg_encoder::Encoder<&mut Vec<u8>>)| {
            let bytes = jpeg(&data, (width, height), ColorType::Rgb, |encoder| {
                encoder.set_sampling_factor(SAMPLINGS[sampling]);
                set(encoder);
            });
            decode(Simd::best(), &bytes, &DecodeOptions::default()).unwrap()
        };
        let interleaved = pixels(&|encoder| encoder.set_restart_interval(restart));
        // Luma is never subsampled, so it is near the source whatever the sampling.
        let luma = |rgb: &[u8]| -> Vec<u8> {
            let weigh = |p: &[u8]| 0.299 * f64::from(p[0]) + 0.587 * f64::from(p[1]) + 0.114 * f64::from(p[2]);
            rgb.chunks(3).map(|pixel| weigh(pixel).round() as u8).collect()
        };
        let (_, mean) = differences(&luma(interleaved.data()), &luma(&data));
        prop_assert!(mean <= 8.0, "luma differs by {} on average", mean);
        // Optimised tables come with one scan per component.
        let apart = pixels(&|encoder| encoder.set_optimized_huffman_tables(true));
        prop_assert_eq!(&interleaved, &apart);
        let progressive = pixels(&|encoder| {
            encoder.set_progressive_scans(scans);
            encoder.set_restart_interval(restart);
        });
        prop_assert_eq!(&interleaved, &progressive);
    }

    /// One encoder, one decoder: all paths, the same bytes, also on damaged files.
    #[test]
    fn every_instruction_set_gives_the_same_bytes(
        (width, height) in (1u32..70, 1u32..70),
        (side, quality, grey) in (1u32..50, 1u8..=100, any::<bool>()),
        seed in any::<u32>(),
        damage in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let colour = if grey { Colour::Grey } else { Colour::Rgb };
        let mut data = waves(width as usize, height as usize, seed);
        data.truncate((width * height) as usize * colour.channels());
        let pixels = Pixels::from_data(width, height, colour, data).unwrap();
        let encode = |simd| {
            let mut out = Vec::new();
            let encoding = Encoding::Jpeg { quality };
            Encoder::with_simd(simd).encode_into(&pixels, encoding, &mut out).unwrap();
            out
        };
        let mut bytes = encode(Simd::Portable);
        prop_assert_eq!(&bytes, &encode(Simd::best()));
        if let Some((at, value)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let options = DecodeOptions::default();
        prop_assert_eq!(decode(Simd::Portable, &bytes, &options), decode(Simd::best(), &bytes, &options));
        let fitted = |simd| {
            let mut out = Pixels::new();
            let result = Decoder::with_simd(simd)
                .decode_fitted(&bytes, &options, (side, side), Fit::Crop, &mut out);
            result.map(|()| out)
        };
        prop_assert_eq!(fitted(Simd::Portable), fitted(Simd::best()));
    }

    /// Our files, read by the other decoder, show the picture.
    #[test]
    fn others_read_what_we_write((width, height) in (1u32..70, 1u32..70), seed in any::<u32>()) {
        let data = waves(width as usize, height as usize, seed);
        let pixels = Pixels::from_data(width, height, Colour::Rgb, data).unwrap();
        let mut bytes = Vec::new();
        Encoder::new().encode_into(&pixels, Encoding::Jpeg { quality: 95 }, &mut bytes).unwrap();
        let (_, mean) = differences(&other_decoder(&bytes, ColorSpace::RGB), pixels.data());
        prop_assert!(mean <= 9.0, "differs by {} on average", mean);
    }
}

/// A crop decoded alone must equal the crop of the whole: blocks that are not shown do not matter.
/// Noise fills blocks to their 64th coefficient, after which the next block follows without a mark; its
/// first bits may look like a second coefficient or an end. In several scans they are read apart.
#[test]
fn full_blocks_take_none_of_the_next_block() {
    let mut state = 11u32;
    let noise: Vec<u8> = (0..128 * 128)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    for quality in [40, 60, 75, 90, 100] {
        let pixels = |progressive: bool| {
            let bytes = jpeg(&noise, (128, 128), ColorType::Luma, |encoder| {
                encoder.set_quality(quality);
                encoder.set_optimized_huffman_tables(true);
                encoder.set_progressive(progressive);
            });
            decode(Simd::best(), &bytes, &DecodeOptions::default()).unwrap()
        };
        assert_eq!(pixels(false), pixels(true), "quality {quality}");
    }
}

#[test]
fn fitted_decoding_equals_decoding_then_fitting() {
    for sampling in SAMPLINGS {
        for (width, height) in [(90u16, 41u16), (41, 90), (64, 64)] {
            let data = waves(width.into(), height.into(), 77);
            let bytes = jpeg(&data, (width, height), ColorType::Rgb, |encoder| {
                encoder.set_sampling_factor(sampling);
            });
            let whole = decode(Simd::best(), &bytes, &DecodeOptions::default()).unwrap();
            let (mut one, mut two) = (Pixels::new(), Pixels::new());
            for fit in [Fit::Crop, Fit::Pad, Fit::Stretch] {
                let mut decoder = Decoder::new();
                let options = DecodeOptions::default();
                decoder.decode_fitted(&bytes, &options, (32, 32), fit, &mut one).unwrap();
                paceline_photo::Resizer::new().resize_into(&whole, 32, 32, fit, &mut two).unwrap();
                let (most, _) = differences(one.data(), two.data());
                // Weights are computed from other origins, so that the last bit may differ.
                assert!(most <= 1, "{sampling:?} {width} x {height} {fit:?}: {most}");
            }
        }
    }
}

#[test]
fn scaled_decoding_shows_the_same_picture_smaller() {
    let data = waves(160, 96, 5);
    for sampling in SAMPLINGS {
        let bytes = jpeg(&data, (160, 96), ColorType::Rgb, |encoder| {
            encoder.set_sampling_factor(sampling);
        });
        let whole = decode(Simd::best(), &bytes, &DecodeOptions::default()).unwrap();
        for (least, size) in [((80, 48), (80, 48)), ((30, 20), (40, 24)), ((1, 1), (20, 12))] {
            let options = DecodeOptions { at_least: Some(least), ..DecodeOptions::default() };
            let small = decode(Simd::best(), &bytes, &options).unwrap();
            assert_eq!((small.width(), small.height()), size);
            let mut reduced = Pixels::new();
            let mut resizer = paceline_photo::Resizer::new();
            resizer.resize_into(&whole, size.0, size.1, Fit::Stretch, &mut reduced).unwrap();
            let (_, mean) = differences(small.data(), reduced.data());
            assert!(mean < 9.0, "{sampling:?} {size:?}: {mean}");
        }
    }
}

#[test]
fn inks_become_colours() {
    // No ink but a little black; pure cyan; everything black.
    for (ink, wanted) in
        [([0u8, 0, 0, 55], [200u8; 3]), ([255, 0, 0, 0], [0, 255, 255]), ([0, 0, 0, 255], [0; 3])]
    {
        let data = ink.repeat(16 * 16);
        for kind in [ColorType::Cmyk, ColorType::CmykAsYcck] {
            let bytes = jpeg(&data, (16, 16), kind, |encoder| encoder.set_quality(100));
            let found = decode(Simd::best(), &bytes, &DecodeOptions::default()).unwrap();
            for (found, wanted) in found.data()[..3].iter().zip(wanted) {
                assert!(found.abs_diff(wanted) <= 3, "{kind:?} {ink:?}: {:?}", &found);
            }
        }
    }
}

#[test]
fn all_eight_orientations_are_applied_unless_switched_off() {
    // Left half dark, right half light; the top is lighter by a little.
    let data: Vec<u8> = (0..32 * 16 * 3)
        .map(|at| (if at / 3 % 32 < 16 { 40 } else { 200 }) + if at / 96 < 8 { 30 } else { 0 })
        .collect();
    let upright = jpeg(&data, (32, 16), ColorType::Rgb, |_| ());
    // Where the stored corners (top left, top right, bottom left, bottom right) end up.
    let corners = [
        [0, 1, 2, 3],
        [1, 0, 3, 2],
        [3, 2, 1, 0],
        [2, 3, 0, 1],
        [0, 2, 1, 3],
        [2, 0, 3, 1],
        [3, 1, 2, 0],
        [1, 3, 0, 2],
    ];
    let values = [70u8, 230, 40, 200];
    for (number, corners) in (1u16..=8).zip(corners) {
        let mut bytes = upright[..2].to_vec();
        bytes.extend(b"\xff\xe1\x00\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01");
        bytes.extend([0, number as u8, 0, 0, 0, 0, 0, 0]);
        bytes.extend(&upright[2..]);
        let header = probe(&bytes).unwrap();
        assert_eq!(header.orientation, Orientation::from_exif(number));
        let check = |found: &Pixels| {
            let (width, height) = (found.width() as usize, found.height() as usize);
            let places = [0, width - 1, (height - 1) * width, height * width - 1];
            for (place, corner) in places.into_iter().zip(corners) {
                let value = found.data()[place * 3];
                assert!(value.abs_diff(values[corner]) <= 8, "orientation {number}: {value}");
            }
        };
        let found = decode(Simd::best(), &bytes, &DecodeOptions::default()).unwrap();
        assert_eq!((found.width(), found.height()), header.upright_size());
        check(&found);
        let mut fitted = Pixels::new();
        let (width, height) = header.upright_size();
        let options = DecodeOptions::default();
        Decoder::new()
            .decode_fitted(&bytes, &options, (width / 2, height / 2), Fit::Crop, &mut fitted)
            .unwrap();
        check(&fitted);
        let raw = DecodeOptions { orient: false, ..DecodeOptions::default() };
        assert_eq!(decode(Simd::best(), &bytes, &raw).unwrap().width(), 32);
    }
}

#[test]
fn every_kind_of_png_becomes_bytes() {
    use png::{BitDepth, ColorType};
    let write = |colour: ColorType, depth: BitDepth, row: &[u8], extra: Option<(&[u8], &[u8])>| {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, 2, 1);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        if let Some((palette, transparency)) = extra {
            encoder.set_palette(palette.to_vec());
            encoder.set_trns(transparency.to_vec());
        }
        encoder.write_header().unwrap().write_image_data(row).unwrap();
        out
    };
    let palette: (&[u8], &[u8]) = (&[10, 20, 30, 250, 0, 0], &[255, 0]);
    // Transparent pixels show the white behind them; half of it, if half transparent.
    let cases = [
        (write(ColorType::Rgb, BitDepth::Eight, &[1, 2, 3, 4, 5, 6], None), [1, 2, 3, 4, 5, 6]),
        (
            write(ColorType::Grayscale, BitDepth::One, &[0b0100_0000], None),
            [0, 0, 0, 255, 255, 255],
        ),
        (
            write(ColorType::Grayscale, BitDepth::Sixteen, &[9, 77, 8, 200], None),
            [9, 9, 9, 8, 8, 8],
        ),
        (
            write(ColorType::GrayscaleAlpha, BitDepth::Eight, &[9, 255, 9, 0], None),
            [9, 9, 9, 255, 255, 255],
        ),
        (
            write(ColorType::Rgba, BitDepth::Eight, &[1, 2, 3, 255, 0, 0, 100, 51], None),
            [1, 2, 3, 204, 204, 224],
        ),
        (
            write(ColorType::Indexed, BitDepth::Two, &[0b0001_0000], Some(palette)),
            [10, 20, 30, 255, 255, 255],
        ),
    ];
    for (index, (bytes, wanted)) in cases.into_iter().enumerate() {
        // The name would say JPEG; only the content counts.
        assert_eq!(probe(&bytes).unwrap().format, Format::Png);
        let found = decode(Simd::best(), &bytes, &DecodeOptions::default()).unwrap();
        assert_eq!(found.data(), wanted, "case {index}");
    }
}

/// A PNG of 3 x 2 pixels with chunks before its pixels and after them.
fn png_with(before: &[(&[u8; 4], Vec<u8>)], after: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let chunks = |writer: &mut png::Writer<&mut Vec<u8>>, chunks: &[(&[u8; 4], Vec<u8>)]| {
        for (name, data) in chunks {
            writer.write_chunk(png::chunk::ChunkType(**name), data).unwrap();
        }
    };
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, 3, 2);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    chunks(&mut writer, before);
    writer.write_image_data(&[1, 2, 3, 4, 5, 6]).unwrap();
    chunks(&mut writer, after);
    writer.finish().unwrap();
    out
}

fn xmp(text: &str) -> Vec<u8> {
    [b"XML:com.adobe.xmp\0\0\0\0\0", text.as_bytes()].concat()
}

/// Editors that write PNG files put the orientation into XMP, where it was not looked for.
#[test]
fn the_orientation_in_the_xmp_of_a_png_was_ignored() {
    let attribute = r#"<rdf:Description tiff:Orientation="6" tiff:Make='x'/>"#;
    let element = "<tiff:Orientation>\n 8 </tiff:Orientation>";
    let exif = |number: u8| {
        [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".as_slice(), &[number, 0, 0]].concat()
    };
    let of = |bytes: &[u8]| probe(bytes).unwrap().orientation;
    let before = |text: &str| of(&png_with(&[(b"iTXt", xmp(text))], &[]));
    assert_eq!(before(attribute), Orientation::Rotate90);
    assert_eq!(before(element), Orientation::Rotate270);
    for wrong in ["tiff:Orientation=\"66\"", "tiff:Orientation=\"9\"", "tiff:Orientation", ""] {
        assert_eq!(before(wrong), Orientation::Upright, "{wrong}");
    }
    assert_eq!(of(&png_with(&[], &[(b"iTXt", xmp(attribute))])), Orientation::Rotate90);
    assert_eq!(of(&png_with(&[], &[(b"eXIf", exif(3))])), Orientation::Rotate180);
    let both = png_with(&[(b"iTXt", xmp(attribute)), (b"eXIf", exif(3))], &[]);
    assert_eq!(of(&both), Orientation::Rotate180, "EXIF counts where both speak");
    let found = decode(
        Simd::best(),
        &png_with(&[(b"iTXt", xmp(attribute))], &[]),
        &DecodeOptions { colour: Colour::Grey, ..DecodeOptions::default() },
    );
    assert_eq!(found.unwrap().data(), [4, 1, 5, 2, 6, 3]);
    // Unpacked where it is packed.
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, 1, 1);
    encoder.set_color(png::ColorType::Grayscale);
    let mut packed = png::text_metadata::ITXtChunk::new("XML:com.adobe.xmp", attribute);
    packed.compressed = true;
    let mut writer = encoder.write_header().unwrap();
    writer.write_text_chunk(&packed).unwrap();
    writer.write_image_data(&[7]).unwrap();
    writer.finish().unwrap();
    assert_eq!(of(&out), Orientation::Rotate90);
}

/// Samples of 16 bits were cut to 8 before they were laid over white, which is one level off now and then. The wanted values
/// are those of libpng 1.6 (`png_set_expand`, `png_set_background` with white, `png_set_strip_16`).
#[test]
fn grey_of_16_bits_with_transparency_differed_from_libpng() {
    let options = DecodeOptions { colour: Colour::Grey, ..DecodeOptions::default() };
    let write = |colour, row: &[u8], trns: Option<&[u8]>| {
        let mut out = Vec::new();
        let pixels = row.len() / if colour == png::ColorType::Grayscale { 2 } else { 4 };
        let mut encoder = png::Encoder::new(&mut out, pixels as u32, 1);
        encoder.set_color(colour);
        encoder.set_depth(png::BitDepth::Sixteen);
        if let Some(trns) = trns {
            encoder.set_trns(trns.to_vec());
        }
        encoder.write_header().unwrap().write_image_data(row).unwrap();
        decode(Simd::best(), &out, &options).unwrap().data().to_vec()
    };
    let mut row = Vec::new();
    for [sample, alpha] in GREY_AND_ALPHA {
        row.extend(sample.to_be_bytes());
        row.extend(alpha.to_be_bytes());
    }
    assert_eq!(write(png::ColorType::GrayscaleAlpha, &row, None), OVER_WHITE);
    // Only the sample that equals all 16 bits is transparent.
    let row = [0x12, 0x34, 0x12, 0x35, 0x13, 0x34];
    assert_eq!(write(png::ColorType::Grayscale, &row, Some(&[0x12, 0x34])), [255, 0x12, 0x13]);
}

const GREY_AND_ALPHA: [[u16; 2]; 10] = [
    [0x1234, 0xffff],
    [0x1234, 0],
    [0x40ff, 0x80ff],
    [0x80ff, 0x40ff],
    [0xffff, 0x1234],
    [0, 0x7fff],
    [0x00ff, 0xff00],
    [0x7f80, 0x8180],
    [0xc0de, 0x0fff],
    [0xfeff, 0xfe80],
];
const OVER_WHITE: [u8; 10] = [18, 255, 159, 223, 255, 128, 1, 190, 252, 255];
