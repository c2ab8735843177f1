//! From RGB to luma and subsampled chroma, in libjpeg's arithmetic.

use crate::simd::{Simd, for_each_simd};

/// Converts one line of RGB; the outputs are at least as long as the line and padded beyond it with
/// its last pixel.
pub(super) fn ycc_line(simd: Simd, rgb: &[u8], y: &mut [u8], cb: &mut [u8], cr: &mut [u8]) {
    let (pixels, _) = rgb.as_chunks::<3>();
    #[cfg(target_arch = "x86_64")]
    let done = if simd == Simd::Avx2 { super::planes_avx2::ycc_line(rgb, y, cb, cr) } else { 0 };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let _ = simd;
    for (at, &pixel) in pixels.iter().enumerate().skip(done) {
        (y[at], cb[at], cr[at]) = ycc(pixel);
    }
    for plane in [y, cb, cr] {
        let last = plane[pixels.len() - 1];
        plane[pixels.len()..].fill(last);
    }
}

/// Luma and chroma of a pixel: 16-bit fixed point, each rounded as libjpeg does.
fn ycc([red, green, blue]: [u8; 3]) -> (u8, u8, u8) {
    /// Chroma is centred on 128; its rounding stays below a half, so that 255.5 cannot appear.
    const CENTRE: i32 = (128 << 16) + 32767;
    let (red, green, blue) = (i32::from(red), i32::from(green), i32::from(blue));
    (
        ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16) as u8,
        ((-11059 * red - 21709 * green + 32768 * blue + CENTRE) >> 16) as u8,
        ((32768 * red - 27439 * green - 5329 * blue + CENTRE) >> 16) as u8,
    )
}

for_each_simd! {
    /// Averages two lines of chroma to one of half the length.
    pub(super) fn halve = halve_body(upper: &[u8], lower: &[u8], out: &mut [u8])
}

#[inline(always)]
fn halve_body(upper: &[u8], lower: &[u8], out: &mut [u8]) {
    let (upper, lower) = (upper.as_chunks::<4>().0, lower.as_chunks::<4>().0);
    for ((out, a), b) in out.as_chunks_mut::<2>().0.iter_mut().zip(upper).zip(lower) {
        let (a, b) = (a.map(u16::from), b.map(u16::from));
        // Halves are rounded down and up in turn, so that the mean does not drift.
        out[0] = ((a[0] + a[1] + b[0] + b[1] + 1) >> 2) as u8;
        out[1] = ((a[2] + a[3] + b[2] + b[3] + 2) >> 2) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_paths_agree_and_pad() {
        let mut seed = 9u32;
        for width in [1usize, 15, 16, 17, 31, 64, 100] {
            let rgb: Vec<u8> = (0..width * 3)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as u8
                })
                .collect();
            let padded = width.next_multiple_of(16);
            let run = |simd| {
                let mut planes = [vec![0; padded], vec![0; padded], vec![0; padded]];
                let [y, cb, cr] = &mut planes;
                ycc_line(simd, &rgb, y, cb, cr);
                let mut half = vec![0; padded / 2];
                halve(simd, &planes[1], &planes[2], &mut half);
                (planes, half)
            };
            let plain = run(Simd::Portable);
            assert_eq!(plain, run(Simd::Avx2.or_portable()));
            assert_eq!(plain.0[0][padded - 1], plain.0[0][width - 1]);
        }
    }

    #[test]
    fn grey_has_no_colour() {
        for value in 0..=255 {
            assert_eq!(ycc([value; 3]), (value, 128, 128));
        }
    }
}
