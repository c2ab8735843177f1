//! Resizing with an antialiased triangle filter, as Pillow's `BILINEAR`.
//!
//! Each target line is first mixed from source lines, which is work on plain runs of bytes, and then
//! shrunk across; so only one line in between is ever held. Integers throughout: every instruction
//! set gives the same bytes.

mod weights;
#[cfg(target_arch = "x86_64")]
mod wide;

use crate::fit::{self, Plan};
use crate::simd::for_each_simd;
use crate::{Colour, Fit, PhotoError, Pixels, Simd};
use weights::{Axis, ONE};

/// Resizes pictures, reusing its scratch memory: make one per thread.
#[derive(Debug)]
pub struct Resizer {
    simd: Simd,
    across: Axis,
    down: Axis,
    /// The weights across, each pair repeated for the three colours, as the wide path wants them.
    #[cfg(target_arch = "x86_64")]
    repeated: wide::Repeated,
    /// One line of the target at the source's width, and some room.
    line: Vec<u8>,
}

impl Default for Resizer {
    fn default() -> Self {
        Self::with_simd(Simd::best())
    }
}

/// Bytes after a line that the wide path may look at.
const ROOM: usize = 64;

impl Resizer {
    /// The largest width or height of a target.
    pub const MAX_SIDE: u32 = 65_535;

    /// A resizer without scratch memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A resizer held to an instruction set (the portable one if the machine lacks it). The pixels
    /// are the same with every set.
    #[must_use]
    pub fn with_simd(simd: Simd) -> Self {
        Self {
            simd: simd.or_portable(),
            across: Axis::default(),
            down: Axis::default(),
            #[cfg(target_arch = "x86_64")]
            repeated: wide::Repeated::default(),
            line: Vec::new(),
        }
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
        if width.min(height).min(source.width()).min(source.height()) == 0
            || width.max(height) > Self::MAX_SIDE
        {
            return Err(PhotoError::BadTarget { width, height });
        }
        let plan = fit::plan(fit, (source.width(), source.height()), (width, height));
        self.resize_planned(source, &plan, (width, height), target);
        Ok(())
    }

    /// Resizes a region of `source` to a part of `target`; both have pixels.
    pub(crate) fn resize_planned(
        &mut self,
        source: &Pixels,
        plan: &Plan,
        (width, height): (u32, u32),
        target: &mut Pixels,
    ) {
        let channels = source.colour().channels();
        let (source_width, source_height) = (source.width() as usize, source.height() as usize);
        let region = plan.region;
        let [left, top, across, down] = plan.inside.map(|value| value as usize);
        self.across.prepare(region.left, region.width, source_width, across);
        self.down.prepare(region.top, region.height, source_height, down);
        #[cfg(target_arch = "x86_64")]
        self.repeated.prepare(&self.across);
        let data = target.reshape(width, height, source.colour());
        if (across, down) != (width as usize, height as usize) {
            data.fill(0);
        }
        let (first, end) = self.across.span();
        let used = (end - first) * channels;
        // Padded taps of the last pixels look beyond the line; their weight is zero.
        self.line.resize(used + self.across.taps * channels + ROOM, 0);
        let stride = source_width * channels;
        let mut rows = Vec::with_capacity(self.down.taps);
        for y in 0..down {
            let weights = &self.down.weights[y * self.down.taps..(y + 1) * self.down.taps];
            rows.clear();
            for tap in 0..self.down.taps {
                let row = (self.down.firsts[y] + tap).min(source_height - 1);
                let start = row * stride + first * channels;
                rows.push(&source.data()[start..start + used]);
            }
            mix_rows(self.simd, &rows, weights, &mut self.line[..used]);
            let to = ((top + y) * width as usize + left) * channels;
            let out = &mut data[to..to + across * channels];
            self.shrink_line(source.colour(), first, out);
        }
    }

    fn shrink_line(&mut self, colour: Colour, first: usize, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if self.simd == Simd::Avx2 && colour == Colour::Rgb {
            wide::shrink(&self.line, &self.across.firsts, first, self.repeated.weights(), out);
            return;
        }
        match colour {
            Colour::Grey => shrink_grey(self.simd, &self.line, &self.across, first, out),
            Colour::Rgb => shrink_rgb(self.simd, &self.line, &self.across, first, out),
        }
    }
}

/// One line as the weighted sum of `rows`, each as long as `out`.
fn mix_rows(simd: Simd, rows: &[&[u8]], weights: &[i16], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    let done = if simd == Simd::Avx2 { wide::mix(rows, weights, out) } else { 0 };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let _ = simd;
    for (at, out) in out.iter_mut().enumerate().skip(done) {
        let sum: i32 = rows
            .iter()
            .zip(weights)
            .map(|(row, &weight)| i32::from(row[at]) * i32::from(weight))
            .sum();
        *out = rounded(sum);
    }
}

#[inline(always)]
fn rounded(sum: i32) -> u8 {
    ((sum + ONE / 2) >> 14) as u8
}

for_each_simd! {
    fn shrink_grey = shrink_body::<1>(line: &[u8], axis: &Axis, first: usize, out: &mut [u8])
}

for_each_simd! {
    fn shrink_rgb = shrink_body::<3>(line: &[u8], axis: &Axis, first: usize, out: &mut [u8])
}

#[inline(always)]
fn shrink_body<const CHANNELS: usize>(line: &[u8], axis: &Axis, first: usize, out: &mut [u8]) {
    let (pixels, _) = line.as_chunks::<CHANNELS>();
    let places = out.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(&axis.firsts);
    for ((out, &start), weights) in places.zip(axis.weights.chunks_exact(axis.taps)) {
        let mut sums = [0i32; CHANNELS];
        for (pixel, &weight) in pixels[start - first..].iter().zip(weights) {
            for (sum, &sample) in sums.iter_mut().zip(pixel) {
                *sum += i32::from(sample) * i32::from(weight);
            }
        }
        *out = sums.map(rounded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(width: u32, height: u32, colour: Colour) -> Pixels {
        let mut seed = width.wrapping_mul(31).wrapping_add(height);
        let data = (0..width as usize * height as usize * colour.channels())
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            })
            .collect();
        Pixels::from_data(width, height, colour, data).unwrap()
    }

    #[test]
    fn all_paths_agree_for_all_shapes() {
        let (mut plain, mut fast) = (Resizer::with_simd(Simd::Portable), Resizer::new());
        let (mut one, mut two) = (Pixels::new(), Pixels::new());
        for colour in [Colour::Grey, Colour::Rgb] {
            for (width, height) in [(1, 1), (2, 9), (17, 5), (64, 64), (131, 97), (400, 300)] {
                for (across, down) in [(1, 1), (3, 2), (16, 16), (33, 70), (200, 20)] {
                    for fit in [Fit::Crop, Fit::Pad, Fit::Stretch] {
                        let source = noise(width, height, colour);
                        plain.resize_into(&source, across, down, fit, &mut one).unwrap();
                        fast.resize_into(&source, across, down, fit, &mut two).unwrap();
                        assert_eq!(one, two, "{width} x {height} to {across} x {down}, {fit:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_plain_picture_stays_plain_and_the_same_size_identical() {
        let mut resizer = Resizer::new();
        let mut out = Pixels::new();
        let plain = Pixels::from_data(50, 40, Colour::Rgb, vec![255; 6000]).unwrap();
        resizer.resize_into(&plain, 33, 71, Fit::Crop, &mut out).unwrap();
        assert!(out.data().iter().all(|&sample| sample == 255));
        let source = noise(37, 23, Colour::Rgb);
        resizer.resize_into(&source, 37, 23, Fit::Stretch, &mut out).unwrap();
        assert_eq!(out, source);
    }
}
