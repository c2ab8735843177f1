//! Images into and out of the order kernels want.

#![allow(unsafe_code)] // kernels on raw memory

use super::{Compute, isa::Kernel, simd::Simd};
use crate::{
    input::{BYTE, Pixels},
    threads::SendPtr,
};

struct Widen {
    from: *const u8,
    to: *mut f32,
    len: usize,
}

impl Kernel for Widen {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        unsafe {
            let unit = S::splat(BYTE);
            let mut at = 0;
            while at + S::LANES <= self.len {
                S::store(self.to.add(at), S::mul(S::load_bytes(self.from.add(at)), unit));
                at += S::LANES;
            }
            for at in at..self.len {
                *self.to.add(at) = f32::from(*self.from.add(at)) * BYTE;
            }
        }
    }
}

/// Floats of one task.
const SHARE: usize = 1 << 15;

impl Compute {
    /// The pixels of a batch as floats.
    ///
    /// # Panics
    /// If `to` is too small.
    pub(crate) fn widen(&self, pixels: Pixels<'_>, to: &mut [f32]) {
        match pixels {
            Pixels::Floats(values) => {
                let to = &mut to[..values.len()];
                self.pool.for_chunks(to, SHARE, |number, piece| {
                    piece.copy_from_slice(&values[number * SHARE..][..piece.len()]);
                });
            }
            Pixels::Bytes(values) => {
                let to = &mut to[..values.len()];
                let isa = self.isa;
                self.pool.for_chunks(to, SHARE, |number, piece| {
                    let from = values[number * SHARE..][..piece.len()].as_ptr();
                    // SAFETY: both sides have the length of the piece.
                    unsafe { isa.run(Widen { from, to: piece.as_mut_ptr(), len: piece.len() }) };
                });
            }
        }
    }

    /// Images from (pixel, channel) to (channel, pixel) order or, with the numbers exchanged, back.
    ///
    /// # Panics
    /// If a slice is too small.
    pub(crate) fn swap_channels(
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
