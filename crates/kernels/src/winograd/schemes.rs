//! The arithmetic of tiles: how 4 outputs of a small convolution follow from few products.
//!
//! A scheme evaluates pixels and kernel, seen as polynomials, at as many points as a tile is long
//! (0, ±1, ±2, for the longer one also ±1/2, and infinity), multiplies there, and interpolates. Along
//! rows and columns one after the other, that is convolution in two dimensions. Points close to 1 in
//! size keep the rounding errors small.

use crate::simd::Simd;

/// Four outputs of a kernel of `KERNEL` taps from `TILE = KERNEL + 3` inputs, along one line. The
/// matrices are named as in Winograd's method: `output = A^T ((G kernel) * (B^T input))`.
///
/// # Safety
/// As for [`Simd`]: the CPU has the instruction set.
pub(super) trait Scheme<const TILE: usize, const KERNEL: usize>:
    Copy + Send + Sync + 'static
{
    /// `B^T d`
    unsafe fn input<S: Simd>(d: [S::V; TILE]) -> [S::V; TILE];
    /// `A^T m`
    unsafe fn output<S: Simd>(m: [S::V; TILE]) -> [S::V; 4];
    /// `A y`: the way of the output's gradient.
    unsafe fn gradient<S: Simd>(y: [S::V; 4]) -> [S::V; TILE];
    /// `G g`
    unsafe fn weight<S: Simd>(g: [S::V; KERNEL]) -> [S::V; TILE];
    /// `G^T u`: the way of the weights' gradient.
    unsafe fn weight_gradient<S: Simd>(u: [S::V; TILE]) -> [S::V; KERNEL];
}

/// 4 outputs, 3 taps: 2.25 products for an output of 9 (in two dimensions).
#[derive(Debug, Clone, Copy)]
pub(super) struct Three;

impl Scheme<6, 3> for Three {
    #[inline(always)]
    unsafe fn input<S: Simd>(d: [S::V; 6]) -> [S::V; 6] {
        unsafe {
            let (two, four, five) = (S::splat(2.0), S::splat(4.0), S::splat(5.0));
            let even = S::sub(d[4], S::mul(four, d[2])); // d4 - 4 d2
            let odd = S::sub(d[3], S::mul(four, d[1])); // d3 - 4 d1
            let even2 = S::sub(d[4], d[2]);
            let odd2 = S::mul(two, S::sub(d[3], d[1]));
            [
                S::add(S::sub(S::mul(four, d[0]), S::mul(five, d[2])), d[4]),
                S::add(even, odd),
                S::sub(even, odd),
                S::add(even2, odd2),
                S::sub(even2, odd2),
                S::add(S::sub(S::mul(four, d[1]), S::mul(five, d[3])), d[5]),
            ]
        }
    }

    #[inline(always)]
    unsafe fn output<S: Simd>(m: [S::V; 6]) -> [S::V; 4] {
        unsafe {
            let (sum1, diff1) = (S::add(m[1], m[2]), S::sub(m[1], m[2]));
            let (sum2, diff2) = (S::add(m[3], m[4]), S::sub(m[3], m[4]));
            [
                S::add(S::add(m[0], sum1), sum2),
                S::fma(S::splat(2.0), diff2, diff1),
                S::fma(S::splat(4.0), sum2, sum1),
                S::add(S::fma(S::splat(8.0), diff2, diff1), m[5]),
            ]
        }
    }

    #[inline(always)]
    unsafe fn gradient<S: Simd>(y: [S::V; 4]) -> [S::V; 6] {
        unsafe {
            let (even, odd) = (S::add(y[0], y[2]), S::add(y[1], y[3]));
            let even4 = S::fma(S::splat(4.0), y[2], y[0]);
            let odd8 = S::fma(S::splat(8.0), y[3], S::mul(S::splat(2.0), y[1]));
            [
                y[0],
                S::add(even, odd),
                S::sub(even, odd),
                S::add(even4, odd8),
                S::sub(even4, odd8),
                y[3],
            ]
        }
    }

    #[inline(always)]
    unsafe fn weight<S: Simd>(g: [S::V; 3]) -> [S::V; 6] {
        unsafe {
            let sixth = S::splat(-1.0 / 6.0);
            let outer = S::mul(sixth, S::add(g[0], g[2]));
            let middle = S::mul(sixth, g[1]);
            let outer2 = S::fma(S::splat(1.0 / 24.0), g[0], S::mul(S::splat(1.0 / 6.0), g[2]));
            let middle2 = S::mul(S::splat(1.0 / 12.0), g[1]);
            [
                S::mul(S::splat(0.25), g[0]),
                S::add(outer, middle),
                S::sub(outer, middle),
                S::add(outer2, middle2),
                S::sub(outer2, middle2),
                g[2],
            ]
        }
    }

    #[inline(always)]
    unsafe fn weight_gradient<S: Simd>(u: [S::V; 6]) -> [S::V; 3] {
        unsafe {
            let (sum1, diff1) = (S::add(u[1], u[2]), S::sub(u[1], u[2]));
            let (sum2, diff2) = (S::add(u[3], u[4]), S::sub(u[3], u[4]));
            let (sixth, twelfth) = (S::splat(1.0 / 6.0), S::splat(1.0 / 12.0));
            let first = S::fma(S::splat(0.25), u[0], S::mul(S::splat(1.0 / 24.0), sum2));
            [
                S::sub(first, S::mul(sixth, sum1)),
                S::sub(S::mul(twelfth, diff2), S::mul(sixth, diff1)),
                S::add(S::mul(sixth, S::sub(sum2, sum1)), u[5]),
            ]
        }
    }
}

/// 4 outputs, 5 taps: 4 products for an output of 25 (in two dimensions).
#[derive(Debug, Clone, Copy)]
pub(super) struct Five;

impl Scheme<8, 5> for Five {
    #[inline(always)]
    unsafe fn input<S: Simd>(d: [S::V; 8]) -> [S::V; 8] {
        unsafe {
            let even1 = S::fma(S::splat(-4.25), d[4], S::add(d[2], d[6]));
            let odd1 = S::fma(S::splat(-4.25), d[3], S::add(d[1], d[5]));
            let even2 = S::fma(S::splat(-1.25), d[4], S::fma(S::splat(0.25), d[2], d[6]));
            let odd2 = S::fma(
                S::splat(-2.5),
                d[3],
                S::fma(S::splat(0.5), d[1], S::mul(S::splat(2.0), d[5])),
            );
            let even3 = S::fma(S::splat(-5.0), d[4], S::fma(S::splat(4.0), d[2], d[6]));
            let odd3 = S::fma(
                S::splat(-2.5),
                d[3],
                S::fma(S::splat(2.0), d[1], S::mul(S::splat(0.5), d[5])),
            );
            [
                S::fma(S::splat(5.25), S::sub(d[4], d[2]), S::sub(d[0], d[6])),
                S::add(even1, odd1),
                S::sub(even1, odd1),
                S::add(even2, odd2),
                S::sub(even2, odd2),
                S::add(even3, odd3),
                S::sub(even3, odd3),
                S::fma(S::splat(5.25), S::sub(d[3], d[5]), S::sub(d[7], d[1])),
            ]
        }
    }

    #[inline(always)]
    unsafe fn output<S: Simd>(m: [S::V; 8]) -> [S::V; 4] {
        unsafe {
            let (sum1, diff1) = (S::add(m[1], m[2]), S::sub(m[1], m[2]));
            let (sum2, diff2) = (S::add(m[3], m[4]), S::sub(m[3], m[4]));
            let (sum3, diff3) = (S::add(m[5], m[6]), S::sub(m[5], m[6]));
            let third = S::fma(S::splat(8.0), diff2, diff1);
            [
                S::add(S::add(m[0], sum1), S::add(sum2, sum3)),
                S::fma(S::splat(0.5), diff3, S::fma(S::splat(2.0), diff2, diff1)),
                S::fma(S::splat(0.25), sum3, S::fma(S::splat(4.0), sum2, sum1)),
                S::add(S::fma(S::splat(0.125), diff3, third), m[7]),
            ]
        }
    }

    #[inline(always)]
    unsafe fn gradient<S: Simd>(y: [S::V; 4]) -> [S::V; 8] {
        unsafe {
            let (even1, odd1) = (S::add(y[0], y[2]), S::add(y[1], y[3]));
            let even2 = S::fma(S::splat(4.0), y[2], y[0]);
            let odd2 = S::fma(S::splat(8.0), y[3], S::mul(S::splat(2.0), y[1]));
            let even3 = S::fma(S::splat(0.25), y[2], y[0]);
            let odd3 = S::fma(S::splat(0.125), y[3], S::mul(S::splat(0.5), y[1]));
            [
                y[0],
                S::add(even1, odd1),
                S::sub(even1, odd1),
                S::add(even2, odd2),
                S::sub(even2, odd2),
                S::add(even3, odd3),
                S::sub(even3, odd3),
                y[3],
            ]
        }
    }

    #[inline(always)]
    unsafe fn weight<S: Simd>(g: [S::V; 5]) -> [S::V; 8] {
        unsafe {
            let (one, two, half) =
                (S::splat(-2.0 / 9.0), S::splat(1.0 / 90.0), S::splat(32.0 / 45.0));
            let even1 = S::mul(one, S::add(S::add(g[0], g[2]), g[4]));
            let odd1 = S::mul(one, S::add(g[1], g[3]));
            let even2 = S::fma(S::splat(16.0), g[4], S::fma(S::splat(4.0), g[2], g[0]));
            let odd2 = S::fma(S::splat(8.0), g[3], S::mul(S::splat(2.0), g[1]));
            let (even2, odd2) = (S::mul(two, even2), S::mul(two, odd2));
            let even3 = S::fma(S::splat(0.0625), g[4], S::fma(S::splat(0.25), g[2], g[0]));
            let odd3 = S::fma(S::splat(0.125), g[3], S::mul(S::splat(0.5), g[1]));
            let (even3, odd3) = (S::mul(half, even3), S::mul(half, odd3));
            [
                g[0],
                S::add(even1, odd1),
                S::sub(even1, odd1),
                S::add(even2, odd2),
                S::sub(even2, odd2),
                S::add(even3, odd3),
                S::sub(even3, odd3),
                g[4],
            ]
        }
    }

    #[inline(always)]
    unsafe fn weight_gradient<S: Simd>(u: [S::V; 8]) -> [S::V; 5] {
        unsafe {
            let (one, two, half) =
                (S::splat(-2.0 / 9.0), S::splat(1.0 / 90.0), S::splat(32.0 / 45.0));
            let sum1 = S::mul(one, S::add(u[1], u[2]));
            let diff1 = S::mul(one, S::sub(u[1], u[2]));
            let sum2 = S::mul(two, S::add(u[3], u[4]));
            let diff2 = S::mul(two, S::sub(u[3], u[4]));
            let sum3 = S::mul(half, S::add(u[5], u[6]));
            let diff3 = S::mul(half, S::sub(u[5], u[6]));
            let last = S::fma(S::splat(0.0625), sum3, S::fma(S::splat(16.0), sum2, sum1));
            [
                S::add(S::add(u[0], sum1), S::add(sum2, sum3)),
                S::fma(S::splat(0.5), diff3, S::fma(S::splat(2.0), diff2, diff1)),
                S::fma(S::splat(0.25), sum3, S::fma(S::splat(4.0), sum2, sum1)),
                S::fma(S::splat(0.125), diff3, S::fma(S::splat(8.0), diff2, diff1)),
                S::add(last, u[7]),
            ]
        }
    }
}
