//! From components to grey or RGB, a line at a time.

use super::segments::Model;
use crate::Colour;
use crate::png::luma;
use crate::simd::Simd;

/// Converts one line; `lines` has as many components as the model, each as long as the line.
pub(super) fn line(simd: Simd, model: Model, colour: Colour, lines: [&[u8]; 4], out: &mut [u8]) {
    let [a, b, c, d] = lines;
    match (model, colour) {
        (Model::Grey | Model::Ycc, Colour::Grey) => out.copy_from_slice(a),
        (Model::Grey, Colour::Rgb) => {
            for (out, &grey) in out.as_chunks_mut::<3>().0.iter_mut().zip(a) {
                *out = [grey; 3];
            }
        }
        (Model::Ycc, Colour::Rgb) => ycc_line(simd, a, b, c, out),
        (Model::Rgb, Colour::Rgb) => {
            for (((out, &red), &green), &blue) in
                out.as_chunks_mut::<3>().0.iter_mut().zip(a).zip(b).zip(c)
            {
                *out = [red, green, blue];
            }
        }
        (Model::Rgb, Colour::Grey) => {
            for (((out, &red), &green), &blue) in out.iter_mut().zip(a).zip(b).zip(c) {
                *out = luma([red, green, blue]);
            }
        }
        (Model::Cmyk { .. } | Model::Ycck, _) => {
            let channels = colour.channels();
            for (index, out) in out.chunks_exact_mut(channels).enumerate() {
                let rgb = inks(model, [a[index], b[index], c[index], d[index]]);
                match colour {
                    Colour::Rgb => out.copy_from_slice(&rgb),
                    Colour::Grey => out[0] = luma(rgb),
                }
            }
        }
    }
}

/// RGB of a pixel of four inks.
fn inks(model: Model, [a, b, c, black]: [u8; 4]) -> [u8; 3] {
    let (light, black) = match model {
        // Adobe stores inks inverted: 255 means none.
        Model::Cmyk { inverted: true } => ([a, b, c], black),
        Model::Ycck => (ycc(a, b, c).map(|value| 255 - value), black),
        _ => ([a, b, c].map(|ink| 255 - ink), 255 - black),
    };
    light.map(|value| ((u32::from(value) * u32::from(black) + 127) / 255) as u8)
}

/// RGB of a pixel in libjpeg's arithmetic: 16-bit fixed point, each product rounded.
#[inline(always)]
fn ycc(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|value| value.clamp(0, 255) as u8)
}

fn ycc_line(simd: Simd, y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    let done = if simd == Simd::Avx2 { super::colour_avx2::ycc_line(y, cb, cr, out) } else { 0 };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let _ = simd;
    let places = out.as_chunks_mut::<3>().0[done..].iter_mut();
    for (((out, &y), &cb), &cr) in places.zip(&y[done..]).zip(&cb[done..]).zip(&cr[done..]) {
        *out = ycc(y, cb, cr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_paths_agree_on_every_colour() {
        let length = 256 * 3 + 5;
        let y: Vec<u8> = (0..length).map(|index| (index * 7) as u8).collect();
        for cb in 0..=255u8 {
            let cbs = vec![cb; length];
            let crs: Vec<u8> = (0..length).map(|index| (index / 3) as u8).collect();
            let (mut one, mut two) = (vec![0; length * 3], vec![0; length * 3]);
            ycc_line(Simd::Portable, &y, &cbs, &crs, &mut one);
            ycc_line(Simd::Avx2.or_portable(), &y, &cbs, &crs, &mut two);
            assert_eq!(one, two);
        }
    }

    #[test]
    fn no_ink_is_white_in_both_conventions() {
        assert_eq!(inks(Model::Cmyk { inverted: true }, [255; 4]), [255; 3]);
        assert_eq!(inks(Model::Cmyk { inverted: false }, [0; 4]), [255; 3]);
        assert_eq!(inks(Model::Ycck, [0, 128, 128, 255]), [255; 3]);
    }
}
