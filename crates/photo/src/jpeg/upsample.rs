//! Chroma upsampling to the resolution of luma.
//!
//! Factors of two use a triangle filter (each sample weighs 3/4, its neighbour 1/4), with libjpeg's
//! rounding; other factors repeat samples.

use crate::simd::{Simd, for_each_simd};

/// How many pixels there are per sample: numerator and denominator, across and down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ratio {
    pub(super) x: (usize, usize),
    pub(super) y: (usize, usize),
}

fn doubles((numerator, denominator): (usize, usize)) -> bool {
    numerator == 2 * denominator
}

fn keeps((numerator, denominator): (usize, usize)) -> bool {
    numerator == denominator
}

impl Ratio {
    /// One sample per pixel.
    pub(super) fn is_one(self) -> bool {
        keeps(self.x) && keeps(self.y)
    }

    /// The row of samples that shows pixel row `y`, and the next nearest one, of `height`.
    pub(super) fn rows(self, y: usize, height: usize) -> (usize, usize) {
        let near = (y * self.y.1 / self.y.0).min(height - 1);
        let far = match (doubles(self.y), y % 2) {
            (true, 0) => near.saturating_sub(1),
            (true, _) => (near + 1).min(height - 1),
            (false, _) => near,
        };
        (near, far)
    }
}

/// Enlarges one line: `near` and `far` are the rows of [`Ratio::rows`] from sample `first` on, of a
/// component `component_width` wide; `out` receives the pixels of `columns`.
#[allow(clippy::too_many_arguments, reason = "all of a line's geometry, one caller")]
pub(super) fn line(
    simd: Simd,
    ratio: Ratio,
    y: usize,
    near: &[u8],
    far: &[u8],
    first: usize,
    component_width: usize,
    columns: (usize, usize),
    sums: &mut Vec<i16>,
    out: &mut Vec<u8>,
) {
    let width = columns.1 - columns.0;
    // libjpeg repeats where there are too few samples to be smooth.
    let smooth = component_width > 2;
    let (x, y_ratio) = (ratio.x, ratio.y);
    if smooth && doubles(x) && (doubles(y_ratio) || keeps(y_ratio)) {
        sums.resize(near.len() + 2, 0);
        out.resize((2 * near.len()).max(width), 0);
        if doubles(y_ratio) {
            both_ways(simd, near, far, sums, &mut out[..2 * near.len()]);
        } else {
            across(simd, near, sums, &mut out[..2 * near.len()]);
        }
        out.copy_within(columns.0 - 2 * first..columns.1 - 2 * first, 0);
    } else if smooth && keeps(x) && doubles(y_ratio) {
        out.resize(width, 0);
        let skipped = columns.0 - first;
        let (near, far) = (&near[skipped..skipped + width], &far[skipped..skipped + width]);
        // The upper pixel of a sample is rounded down, the lower one up.
        downwards(simd, near, far, 1 + (y % 2) as u16, out);
    } else {
        out.clear();
        let last = near.len() - 1;
        out.extend(
            (columns.0..columns.1).map(|column| near[(column * x.1 / x.0 - first).min(last)]),
        );
    }
}

for_each_simd! {
    fn both_ways = both_ways_body(near: &[u8], far: &[u8], sums: &mut [i16], out: &mut [u8])
}

/// `sums` has one more place than samples at each end.
#[inline(always)]
fn both_ways_body(near: &[u8], far: &[u8], sums: &mut [i16], out: &mut [u8]) {
    let count = near.len();
    for ((sum, &near), &far) in sums[1..=count].iter_mut().zip(near).zip(far) {
        *sum = 3 * i16::from(near) + i16::from(far);
    }
    sums[0] = sums[1];
    sums[count + 1] = sums[count];
    for (pair, sums) in out.as_chunks_mut::<2>().0.iter_mut().zip(sums.windows(3)) {
        let middle = 3 * sums[1];
        pair[0] = ((middle + sums[0] + 8) >> 4) as u8;
        pair[1] = ((middle + sums[2] + 7) >> 4) as u8;
    }
}

for_each_simd! {
    fn across = across_body(near: &[u8], sums: &mut [i16], out: &mut [u8])
}

#[inline(always)]
fn across_body(near: &[u8], sums: &mut [i16], out: &mut [u8]) {
    let count = near.len();
    for (sum, &near) in sums[1..=count].iter_mut().zip(near) {
        *sum = i16::from(near);
    }
    sums[0] = sums[1];
    sums[count + 1] = sums[count];
    for (pair, sums) in out.as_chunks_mut::<2>().0.iter_mut().zip(sums.windows(3)) {
        let middle = 3 * sums[1];
        pair[0] = ((middle + sums[0] + 1) >> 2) as u8;
        pair[1] = ((middle + sums[2] + 2) >> 2) as u8;
    }
}

for_each_simd! {
    fn downwards = downwards_body(near: &[u8], far: &[u8], round: u16, out: &mut [u8])
}

#[inline(always)]
fn downwards_body(near: &[u8], far: &[u8], round: u16, out: &mut [u8]) {
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + round) >> 2) as u8;
    }
}
