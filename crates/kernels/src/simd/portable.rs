//! Four lanes in plain Rust, for CPUs without AVX2; compilers turn them into SSE2 or NEON.

use super::{Kernel, Simd};

/// No instruction set beyond what the build targets.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

/// Four floats.
type Four = [f32; 4];

#[inline(always)]
fn zip(a: Four, b: Four, f: impl Fn(f32, f32) -> f32) -> Four {
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
}

/// `value` where `marks` is positive, zero elsewhere.
#[inline(always)]
fn keep(marks: Four, value: Four) -> Four {
    zip(marks, value, |mark, value| if mark > 0.0 { value } else { 0.0 })
}

// SAFETY: plain arrays, which any CPU has; loads and stores touch four lanes at most.
unsafe impl Simd for Portable {
    type V = Four;
    const LANES: usize = 4;
    const TILE_ROWS: usize = 4;

    #[inline(never)]
    unsafe fn outline<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: what the kernel asks for is what is asked for here.
        unsafe { kernel.run::<Self>() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Four {
        [value; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Four {
        // SAFETY: four floats can be read, as the caller promises.
        unsafe { from.cast::<Four>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_partial(from: *const f32, count: usize) -> Four {
        let mut value = [0.0; 4];
        for (lane, value) in value.iter_mut().enumerate().take(count) {
            // SAFETY: a lane within `count`, which can be read, as the caller promises.
            *value = unsafe { *from.add(lane) };
        }
        value
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Four {
        // SAFETY: four bytes can be read, as the caller promises.
        unsafe { from.cast::<[u8; 4]>().read_unaligned().map(f32::from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Four) {
        // SAFETY: four floats can be written, as the caller promises.
        unsafe { to.cast::<Four>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn store_partial(to: *mut f32, value: Four, count: usize) {
        for (lane, value) in value.into_iter().enumerate().take(count) {
            // SAFETY: a lane within `count`, which can be written, as the caller promises.
            unsafe { *to.add(lane) = value };
        }
    }
    #[inline(always)]
    fn add(a: Four, b: Four) -> Four {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(a: Four, b: Four) -> Four {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(a: Four, b: Four) -> Four {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(a: Four, b: Four) -> Four {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn sqrt(a: Four) -> Four {
        a.map(f32::sqrt)
    }
    /// Rounds twice: a fused product without the instruction is a call into the C library.
    #[inline(always)]
    fn fma(a: Four, b: Four, c: Four) -> Four {
        zip(zip(a, b, |a, b| a * b), c, |ab, c| ab + c)
    }
    #[inline(always)]
    fn max(a: Four, b: Four) -> Four {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(a: Four, b: Four) -> Four {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn keep_greater(a: Four, b: Four, value: Four) -> Four {
        keep(zip(a, b, |a, b| if a > b { 1.0 } else { 0.0 }), value)
    }
    #[inline(always)]
    fn keep_equal(a: Four, b: Four, value: Four) -> Four {
        keep(zip(a, b, |a, b| if a == b { 1.0 } else { 0.0 }), value)
    }
    #[inline(always)]
    fn positive(a: Four) -> u32 {
        (0..4).map(|lane| u32::from(a[lane] > 0.0) << lane).sum()
    }
    #[inline(always)]
    fn keep_bits(bits: u32, value: Four) -> Four {
        let keep = |lane: usize| if bits >> lane & 1 == 1 { value[lane] } else { 0.0 };
        [keep(0), keep(1), keep(2), keep(3)]
    }
    #[inline(always)]
    fn round(a: Four) -> Four {
        // Adding and taking away 1.5 * 2^23 rounds to even, for |a| below 2^22.
        const MAGIC: f32 = 12_582_912.0;
        a.map(|value| if value.abs() < 4_194_304.0 { (value + MAGIC) - MAGIC } else { value })
    }
    #[inline(always)]
    fn exp2_whole(a: Four) -> Four {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        a.map(|value| f32::from_bits(((value as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    fn sum(a: Four) -> f32 {
        (a[0] + a[2]) + (a[1] + a[3])
    }
    #[inline(always)]
    fn largest(a: Four) -> f32 {
        a[0].max(a[1]).max(a[2].max(a[3]))
    }
    #[inline(always)]
    unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for row in 0..4 {
            for column in 0..4 {
                // SAFETY: four rows of four floats are read, and as many columns written, as the caller
                // promises.
                unsafe {
                    *to.add(column * to_stride + row) = *from.add(row * from_stride + column);
                }
            }
        }
    }
}
