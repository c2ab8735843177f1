//! The arithmetic of tiles: how 4 outputs of a small convolution follow from few products.
//!
//! A scheme evaluates pixels and kernel, seen as polynomials, at as many points as a tile is long
//! (0, ±1, ±2, for the longer one also ±1/2, and infinity), multiplies there, and interpolates. Along
//! rows and columns one after the other, that is convolution in two dimensions. Points close to 1 in
//! size keep the rounding errors small.

use crate::simd::Simd;

/// Four outputs of a kernel of `KERNEL` taps from `TILE = KERNEL + 3` inputs, along one line. The
/// matrices are named as in Winograd's method: `output = A^T ((G kernel) * (B^T input))`.
pub(super) trait Scheme<const TILE: usize, const KERNEL: usize>:
    Copy + Send + Sync + 'static
{
    /// `B^T d`
    fn input<S: Simd>(d: [S::V; TILE]) -> [S::V; TILE];
    /// `A^T m`
    fn output<S: Simd>(m: [S::V; TILE]) -> [S::V; 4];
    /// `A y`: the way of the output's gradient.
    fn gradient<S: Simd>(y: [S::V; 4]) -> [S::V; TILE];
    /// `G g`
    fn weight<S: Simd>(g: [S::V; KERNEL]) -> [S::V; TILE];
    /// `G^T u`: the way of the weights' gradient.
    fn weight_gradient<S: Simd>(u: [S::V; TILE]) -> [S::V; KERNEL];
}

/// Sum and difference: a polynomial at a point and at its opposite, from its even and odd terms there,
/// or the other way round.
#[inline(always)]
fn both<S: Simd>(a: S::V, b: S::V) -> (S::V, S::V) {
    (S::add(a, b), S::sub(a, b))
}

/// Four values, seen as a polynomial, at 1, -1, 2 and -2.
#[inline(always)]
fn at_one_and_two<S: Simd>(y: [S::V; 4]) -> [S::V; 4] {
    let (one, minus_one) = both::<S>(S::add(y[0], y[2]), S::add(y[1], y[3]));
    let even = S::add_scaled(4.0, y[2], y[0]);
    let odd = S::add_scaled(8.0, y[3], S::scaled(2.0, y[1]));
    let (two, minus_two) = both::<S>(even, odd);
    [one, minus_one, two, minus_two]
}

/// 4 outputs, 3 taps: 2.25 products for an output of 9 (in two dimensions).
#[derive(Debug, Clone, Copy)]
pub(super) struct Three;

impl Scheme<6, 3> for Three {
    #[inline(always)]
    fn input<S: Simd>(d: [S::V; 6]) -> [S::V; 6] {
        let even = S::sub(d[4], S::scaled(4.0, d[2])); // d4 - 4 d2
        let odd = S::sub(d[3], S::scaled(4.0, d[1])); // d3 - 4 d1
        let (one, minus_one) = both::<S>(even, odd);
        let odd = S::scaled(2.0, S::sub(d[3], d[1]));
        let (two, minus_two) = both::<S>(S::sub(d[4], d[2]), odd);
        [
            S::add(S::sub(S::scaled(4.0, d[0]), S::scaled(5.0, d[2])), d[4]),
            one,
            minus_one,
            two,
            minus_two,
            S::add(S::sub(S::scaled(4.0, d[1]), S::scaled(5.0, d[3])), d[5]),
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(m: [S::V; 6]) -> [S::V; 4] {
        let (sum1, diff1) = both::<S>(m[1], m[2]);
        let (sum2, diff2) = both::<S>(m[3], m[4]);
        [
            S::add(S::add(m[0], sum1), sum2),
            S::add_scaled(2.0, diff2, diff1),
            S::add_scaled(4.0, sum2, sum1),
            S::add(S::add_scaled(8.0, diff2, diff1), m[5]),
        ]
    }

    #[inline(always)]
    fn gradient<S: Simd>(y: [S::V; 4]) -> [S::V; 6] {
        let [one, minus_one, two, minus_two] = at_one_and_two::<S>(y);
        [y[0], one, minus_one, two, minus_two, y[3]]
    }

    #[inline(always)]
    fn weight<S: Simd>(g: [S::V; 3]) -> [S::V; 6] {
        let outer = S::scaled(-1.0 / 6.0, S::add(g[0], g[2]));
        let (one, minus_one) = both::<S>(outer, S::scaled(-1.0 / 6.0, g[1]));
        let outer = S::add_scaled(1.0 / 24.0, g[0], S::scaled(1.0 / 6.0, g[2]));
        let (two, minus_two) = both::<S>(outer, S::scaled(1.0 / 12.0, g[1]));
        [S::scaled(0.25, g[0]), one, minus_one, two, minus_two, g[2]]
    }

    #[inline(always)]
    fn weight_gradient<S: Simd>(u: [S::V; 6]) -> [S::V; 3] {
        const SIXTH: f32 = 1.0 / 6.0;
        let (sum1, diff1) = both::<S>(u[1], u[2]);
        let (sum2, diff2) = both::<S>(u[3], u[4]);
        let first = S::add_scaled(0.25, u[0], S::scaled(1.0 / 24.0, sum2));
        [
            S::sub(first, S::scaled(SIXTH, sum1)),
            S::sub(S::scaled(1.0 / 12.0, diff2), S::scaled(SIXTH, diff1)),
            S::add(S::scaled(SIXTH, S::sub(sum2, sum1)), u[5]),
        ]
    }
}

/// 4 outputs, 5 taps: 4 products for an output of 25 (in two dimensions).
#[derive(Debug, Clone, Copy)]
pub(super) struct Five;

impl Five {
    /// Factors of the kernel's values at ±1, ±2 and ±1/2.
    const WEIGHTS: [f32; 3] = [-2.0 / 9.0, 1.0 / 90.0, 32.0 / 45.0];

    /// From sums and differences at ±1, ±2 and ±1/2: the second output, the third, and the fourth as far as it follows
    /// from them.
    #[inline(always)]
    fn middle<S: Simd>(sums: [S::V; 3], diffs: [S::V; 3]) -> [S::V; 3] {
        [
            S::add_scaled(0.5, diffs[2], S::add_scaled(2.0, diffs[1], diffs[0])),
            S::add_scaled(0.25, sums[2], S::add_scaled(4.0, sums[1], sums[0])),
            S::add_scaled(0.125, diffs[2], S::add_scaled(8.0, diffs[1], diffs[0])),
        ]
    }
}

impl Scheme<8, 5> for Five {
    #[inline(always)]
    fn input<S: Simd>(d: [S::V; 8]) -> [S::V; 8] {
        let even = S::add_scaled(-4.25, d[4], S::add(d[2], d[6]));
        let odd = S::add_scaled(-4.25, d[3], S::add(d[1], d[5]));
        let (one, minus_one) = both::<S>(even, odd);
        let even = S::add_scaled(-1.25, d[4], S::add_scaled(0.25, d[2], d[6]));
        let odd = S::add_scaled(-2.5, d[3], S::add_scaled(0.5, d[1], S::scaled(2.0, d[5])));
        let (two, minus_two) = both::<S>(even, odd);
        let even = S::add_scaled(-5.0, d[4], S::add_scaled(4.0, d[2], d[6]));
        let odd = S::add_scaled(-2.5, d[3], S::add_scaled(2.0, d[1], S::scaled(0.5, d[5])));
        let (half, minus_half) = both::<S>(even, odd);
        [
            S::add_scaled(5.25, S::sub(d[4], d[2]), S::sub(d[0], d[6])),
            one,
            minus_one,
            two,
            minus_two,
            half,
            minus_half,
            S::add_scaled(5.25, S::sub(d[3], d[5]), S::sub(d[7], d[1])),
        ]
    }

    #[inline(always)]
    fn output<S: Simd>(m: [S::V; 8]) -> [S::V; 4] {
        let (sum1, diff1) = both::<S>(m[1], m[2]);
        let (sum2, diff2) = both::<S>(m[3], m[4]);
        let (sum3, diff3) = both::<S>(m[5], m[6]);
        let [second, third, fourth] = Self::middle::<S>([sum1, sum2, sum3], [diff1, diff2, diff3]);
        [S::add(S::add(m[0], sum1), S::add(sum2, sum3)), second, third, S::add(fourth, m[7])]
    }

    #[inline(always)]
    fn gradient<S: Simd>(y: [S::V; 4]) -> [S::V; 8] {
        let [one, minus_one, two, minus_two] = at_one_and_two::<S>(y);
        let even = S::add_scaled(0.25, y[2], y[0]);
        let odd = S::add_scaled(0.125, y[3], S::scaled(0.5, y[1]));
        let (half, minus_half) = both::<S>(even, odd);
        [y[0], one, minus_one, two, minus_two, half, minus_half, y[3]]
    }

    #[inline(always)]
    fn weight<S: Simd>(g: [S::V; 5]) -> [S::V; 8] {
        let [by_one, by_two, by_half] = Self::WEIGHTS;
        let even = S::scaled(by_one, S::add(S::add(g[0], g[2]), g[4]));
        let odd = S::scaled(by_one, S::add(g[1], g[3]));
        let (one, minus_one) = both::<S>(even, odd);
        let even = S::add_scaled(16.0, g[4], S::add_scaled(4.0, g[2], g[0]));
        let odd = S::add_scaled(8.0, g[3], S::scaled(2.0, g[1]));
        let (two, minus_two) = both::<S>(S::scaled(by_two, even), S::scaled(by_two, odd));
        let even = S::add_scaled(0.0625, g[4], S::add_scaled(0.25, g[2], g[0]));
        let odd = S::add_scaled(0.125, g[3], S::scaled(0.5, g[1]));
        let (half, minus_half) = both::<S>(S::scaled(by_half, even), S::scaled(by_half, odd));
        [g[0], one, minus_one, two, minus_two, half, minus_half, g[4]]
    }

    #[inline(always)]
    fn weight_gradient<S: Simd>(u: [S::V; 8]) -> [S::V; 5] {
        let [by_one, by_two, by_half] = Self::WEIGHTS;
        let (sum1, diff1) = both::<S>(u[1], u[2]);
        let (sum1, diff1) = (S::scaled(by_one, sum1), S::scaled(by_one, diff1));
        let (sum2, diff2) = both::<S>(u[3], u[4]);
        let (sum2, diff2) = (S::scaled(by_two, sum2), S::scaled(by_two, diff2));
        let (sum3, diff3) = both::<S>(u[5], u[6]);
        let (sum3, diff3) = (S::scaled(by_half, sum3), S::scaled(by_half, diff3));
        let [second, third, fourth] = Self::middle::<S>([sum1, sum2, sum3], [diff1, diff2, diff3]);
        let last = S::add_scaled(0.0625, sum3, S::add_scaled(16.0, sum2, sum1));
        let first = S::add(S::add(u[0], sum1), S::add(sum2, sum3));
        [first, second, third, fourth, S::add(last, u[7])]
    }
}
