//! Images into and out of the order kernels want.

#![allow(unsafe_code)] // kernels on raw memory

use super::{
    Compute,
    isa::Kernel,
    linear::{Bytes, Floats, Source},
    simd::Simd,
};
use crate::threads::SendPtr;

/// The values of a batch of images.
#[derive(Debug, Clone, Copy)]
pub enum Pixels<'a> {
    /// One byte a value, worth `byte / 255`.
    Bytes(&'a [u8]),
    /// As they are.
    Floats(&'a [f32]),
}

impl<'a> Pixels<'a> {
    /// Some of the values.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn part(self, range: std::ops::Range<usize>) -> Pixels<'a> {
        match self {
            Self::Bytes(values) => Self::Bytes(&values[range]),
            Self::Floats(values) => Self::Floats(&values[range]),
        }
    }
}

/// What a byte counts: 1/255.
pub const BYTE: f32 = 1.0 / 255.0;

/// How pixels become a model's inputs, by channel: `scale * value + shift`, of values from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaling {
    /// Factors of the channels.
    pub scale: [f32; 3],
    /// What is added after scaling.
    pub shift: [f32; 3],
}

impl Scaling {
    /// Values as they are.
    pub const UNIT: Self = Self { scale: [1.0; 3], shift: [0.0; 3] };
}

/// After this many floats, channels and vector lanes are aligned again.
const PERIOD: usize = 48;

struct Widen<'a, I> {
    /// `first` elements and as many more as `to` has.
    from: I,
    /// The first element of `from`; a multiple of the period.
    first: usize,
    to: &'a mut [f32],
    scale: &'a [f32; PERIOD],
    shift: &'a [f32; PERIOD],
}

impl<I: Source> Kernel for Widen<'_, I> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let whole = self.to.len() / PERIOD * PERIOD;
        // SAFETY: the period is a multiple of all lanes, so whole periods are whole vectors, in `to` as in `from`;
        // what is left goes float by float.
        unsafe {
            let to = self.to.as_mut_ptr();
            for at in (0..whole).step_by(PERIOD) {
                for lane in (0..PERIOD).step_by(S::LANES) {
                    let value = self.from.load::<S>(self.first + at + lane);
                    let scale = S::load(self.scale.as_ptr().add(lane));
                    let shift = S::load(self.shift.as_ptr().add(lane));
                    S::store(to.add(at + lane), S::fma(value, scale, shift));
                }
            }
            for at in whole..self.to.len() {
                let (scale, shift) = (self.scale[at - whole], self.shift[at - whole]);
                *to.add(at) = self.from.get(self.first + at) * scale + shift;
            }
        }
    }
}

/// Floats of one task, a multiple of the period.
const SHARE: usize = 1024 * PERIOD;

impl Compute {
    /// The pixels of a batch as floats, scaled by channel (there are three, unless it is all the same).
    ///
    /// # Panics
    /// If `to` is too small.
    pub fn widen(&self, pixels: Pixels<'_>, scaling: &Scaling, to: &mut [f32]) {
        match pixels {
            Pixels::Floats(values) => {
                self.widen_from(Floats(values.as_ptr()), 1.0, scaling, &mut to[..values.len()]);
            }
            Pixels::Bytes(values) => {
                self.widen_from(Bytes(values.as_ptr()), BYTE, scaling, &mut to[..values.len()]);
            }
        }
    }

    /// `from` has as many elements as `to`.
    fn widen_from<I: Source>(&self, from: I, unit: f32, scaling: &Scaling, to: &mut [f32]) {
        let scale = std::array::from_fn(|at| unit * scaling.scale[at % 3]);
        let shift = std::array::from_fn(|at| scaling.shift[at % 3]);
        let isa = self.isa;
        self.pool.for_chunks(to, SHARE, |number, to| {
            let widen = Widen { from, first: number * SHARE, to, scale: &scale, shift: &shift };
            // SAFETY: both sides have the same length, of which this is one share.
            unsafe { isa.run(widen) };
        });
    }

    /// Images from (pixel, channel) to (channel, pixel) order or, with the numbers exchanged, back.
    ///
    /// # Panics
    /// If a slice is too small.
    pub fn swap_channels(
        &self,
        images: usize,
        pixels: usize,
        channels: usize,
        from: &[f32],
        to: &mut [f32],
    ) {
        let len = pixels * channels;
        assert!(from.len().min(to.len()) >= images * len, "images to reorder");
        let to = SendPtr(to.as_mut_ptr());
        self.pool.run(if images * len < SHARE { 1 } else { 4 }, &|part, _| {
            let parts = if images * len < SHARE { 1 } else { 4 };
            for image in part * images / parts..(part + 1) * images / parts {
                let from = &from[image * len..][..len];
                for pixel in 0..pixels {
                    for channel in 0..channels {
                        let at = image * len + channel * pixels + pixel;
                        // SAFETY: within the images, see the assertion; parts own different images.
                        unsafe { *to.get().add(at) = from[pixel * channels + channel] };
                    }
                }
            }
        });
    }
}
