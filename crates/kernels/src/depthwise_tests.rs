//! Depthwise kernels against plain loops in f64: odd shapes, both strides, every instruction set.

use super::{
    Buffer, Isa,
    activation::{Affine, NormGradient},
    depthwise::{DepthwiseForward, DepthwiseShape},
    depthwise_backward::DepthwiseBackward,
    noise,
};
use std::ops::Range;

struct Case {
    shape: DepthwiseShape,
    raw: Vec<f32>,
    scale: Vec<f32>,
    shift: Vec<f32>,
    mean: Vec<f32>,
    weights: Vec<f32>,
    /// Gradient and raw output above, and the three coefficients there.
    gradient: Vec<f32>,
    above: Vec<f32>,
    coefficients: [Vec<f32>; 3],
}

impl Case {
    fn new(shape: DepthwiseShape) -> Self {
        let DepthwiseShape { height, width, channels, .. } = shape;
        let out = shape.out_height() * shape.out_width() * channels;
        let spread = |seed, len, by: f32, to: f32| {
            noise(seed, len).iter().map(|value| value * by + to).collect::<Vec<f32>>()
        };
        Self {
            shape,
            raw: noise(1, height * width * channels),
            // Wide enough to meet both ends of relu6.
            scale: spread(2, channels, 1.0, 6.0),
            shift: spread(3, channels, 2.0, 2.0),
            mean: noise(4, channels),
            weights: noise(5, 9 * channels),
            gradient: noise(6, out),
            above: noise(7, out),
            coefficients: [noise(8, channels), noise(9, channels), noise(10, channels)],
        }
    }

    fn affine(&self) -> Affine {
        Affine { scale: self.scale.as_ptr(), shift: self.shift.as_ptr() }
    }

    fn before(&self, at: usize) -> f64 {
        let c = at % self.shape.channels;
        f64::from(self.raw[at]) * f64::from(self.scale[c]) + f64::from(self.shift[c])
    }

    fn above(&self, at: usize) -> f64 {
        let c = at % self.shape.channels;
        let [by_gradient, by_raw, constant] = [0, 1, 2].map(|i| f64::from(self.coefficients[i][c]));
        by_gradient * f64::from(self.gradient[at]) + by_raw * f64::from(self.above[at]) + constant
    }

    /// Calls with output position, input position, and tap of every product.
    fn for_each(&self, mut call: impl FnMut(usize, usize, usize)) {
        let DepthwiseShape { height, width, channels, stride } = self.shape;
        for y in 0..self.shape.out_height() {
            for x in 0..self.shape.out_width() {
                for tap in 0..9 {
                    let (iy, ix) = (y * stride + tap / 3, x * stride + tap % 3);
                    if (1..=height).contains(&iy) && (1..=width).contains(&ix) {
                        for c in 0..channels {
                            let out = (y * self.shape.out_width() + x) * channels + c;
                            call(
                                out,
                                ((iy - 1) * width + ix - 1) * channels + c,
                                tap * channels + c,
                            );
                        }
                    }
                }
            }
        }
    }
}

fn close(name: &str, found: impl Into<f64>, wanted: f64) {
    let found = found.into();
    assert!((found - wanted).abs() < 2e-4 * (1.0 + wanted.abs()), "{name}: {found}, {wanted}");
}

/// Shapes that end inside a vector, inside a ring, and on a single row or column.
fn shapes() -> impl Iterator<Item = DepthwiseShape> {
    let sides = [(1, 1), (1, 4), (2, 2), (3, 5), (8, 7), (9, 2), (4, 14), (5, 13)];
    sides.into_iter().flat_map(|(height, width)| {
        [3, 16, 40].into_iter().flat_map(move |channels| {
            [1, 2].map(|stride| DepthwiseShape { height, width, channels, stride })
        })
    })
}

fn groups(channels: usize) -> impl Iterator<Item = Range<usize>> {
    let cut = channels.min(16);
    [0..cut, cut..channels].into_iter().filter(|group| !group.is_empty())
}

/// Every instruction set, writing into the caches and past them.
fn ways() -> impl Iterator<Item = (Isa, bool)> {
    Isa::available().into_iter().flat_map(|isa| [(isa, false), (isa, true)])
}

#[test]
fn forward_matches_a_plain_loop() {
    for shape in shapes() {
        let case = Case::new(shape);
        let len = shape.out_height() * shape.out_width() * shape.channels;
        let mut wanted = vec![0.0f64; len];
        case.for_each(|out, input, tap| {
            wanted[out] += case.before(input).clamp(0.0, 6.0) * f64::from(case.weights[tap]);
        });
        for (isa, stream) in ways() {
            let name = format!("{} {shape:?} {stream}", isa.name());
            let (mut out, mut sums) = (Buffer::zeroed(len), vec![f64::NAN; 2 * shape.channels]);
            out.fill(f32::NAN);
            for channels in groups(shape.channels) {
                let mut scratch = vec![f32::NAN; shape.scratch_len(channels.len())];
                // SAFETY: buffers of the sizes that the shape tells.
                #[allow(unsafe_code)]
                unsafe {
                    isa.run(DepthwiseForward {
                        shape,
                        channels,
                        raw: case.raw.as_ptr(),
                        affine: case.affine(),
                        weights: case.weights.as_ptr(),
                        out: out.as_mut_ptr(),
                        stream,
                        sums: sums.as_mut_ptr(),
                        scratch: scratch.as_mut_ptr(),
                    });
                }
            }
            for (at, &wanted) in wanted.iter().enumerate() {
                close(&name, out[at], wanted);
            }
            for c in 0..shape.channels {
                let values = || wanted.iter().skip(c).step_by(shape.channels);
                close(&name, sums[c], values().sum());
                close(&name, sums[shape.channels + c], values().map(|v| v * v).sum());
            }
        }
    }
}

#[test]
fn backward_matches_a_plain_loop() {
    for shape in shapes() {
        let case = Case::new(shape);
        let mut data = vec![0.0f64; case.raw.len()];
        let mut weights = vec![0.0f64; 9 * shape.channels];
        case.for_each(|out, input, tap| {
            data[input] += case.above(out) * f64::from(case.weights[tap]);
            weights[tap] += case.above(out) * case.before(input).clamp(0.0, 6.0);
        });
        for (at, value) in data.iter_mut().enumerate() {
            let before = case.before(at);
            if before <= 0.0 || before >= 6.0 {
                *value = 0.0;
            }
        }
        for (isa, stream) in ways() {
            let name = format!("{} {shape:?} {stream}", isa.name());
            let mut out = Buffer::zeroed(data.len());
            out.fill(f32::NAN);
            let mut weight_sums = vec![f32::NAN; weights.len()];
            let mut sums = vec![f64::NAN; 2 * shape.channels];
            for channels in groups(shape.channels) {
                let mut scratch = vec![f32::NAN; shape.scratch_len(channels.len())];
                // SAFETY: buffers of the sizes that the shape tells.
                #[allow(unsafe_code)]
                unsafe {
                    isa.run(DepthwiseBackward {
                        shape,
                        channels,
                        above: NormGradient {
                            gradient: case.gradient.as_ptr(),
                            raw: case.above.as_ptr(),
                            by_gradient: case.coefficients[0].as_ptr(),
                            by_raw: case.coefficients[1].as_ptr(),
                            constant: case.coefficients[2].as_ptr(),
                        },
                        raw: case.raw.as_ptr(),
                        affine: case.affine(),
                        mean: case.mean.as_ptr(),
                        weights: case.weights.as_ptr(),
                        out: out.as_mut_ptr(),
                        stream,
                        sums: sums.as_mut_ptr(),
                        weight_sums: weight_sums.as_mut_ptr(),
                        scratch: scratch.as_mut_ptr(),
                    });
                }
            }
            for (found, &wanted) in out.iter().zip(&data) {
                close(&name, *found, wanted);
            }
            for (found, &wanted) in weight_sums.iter().zip(&weights) {
                close(&name, *found, wanted);
            }
            for c in 0..shape.channels {
                let at = (0..data.len()).skip(c).step_by(shape.channels);
                let product =
                    |at: usize| data[at] * (f64::from(case.raw[at]) - f64::from(case.mean[c]));
                close(&name, sums[c], at.clone().map(|at| data[at]).sum());
                close(&name, sums[shape.channels + c], at.map(product).sum());
            }
        }
    }
}
