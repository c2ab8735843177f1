//! Convolutions of odd shapes, with and without padding and stride, against the definition.

use super::*;
use crate::{Isa, noise};
use proptest::prelude::*;

/// Calls `visit(output index, input index, weight index)` for every product of the definition.
fn products(shape: &ConvShape, mut visit: impl FnMut(usize, usize, usize)) {
    let (height, width) = (shape.out_height(), shape.out_width());
    for n in 0..shape.batch {
        for y in 0..height {
            for x in 0..width {
                for ky in 0..shape.kernel {
                    for kx in 0..shape.kernel {
                        let iy = (y * shape.stride + ky).wrapping_sub(shape.pad);
                        let ix = (x * shape.stride + kx).wrapping_sub(shape.pad);
                        if iy >= shape.height || ix >= shape.width {
                            continue;
                        }
                        for i in 0..shape.inputs {
                            for o in 0..shape.outputs {
                                visit(
                                    ((n * height + y) * width + x) * shape.outputs + o,
                                    ((n * shape.height + iy) * shape.width + ix) * shape.inputs + i,
                                    ((o * shape.inputs + i) * shape.kernel + ky) * shape.kernel
                                        + kx,
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Within what `size` sums of values below 1 may lose, and, tiles included, within a fifth of the 1e-4
/// promised for whole models.
fn assert_near(found: &[f32], wanted: &[f64], size: f64, what: &str) {
    let largest = wanted.iter().fold(1e-3, |largest: f64, value| largest.max(value.abs()));
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (f64::from(*found) - wanted).abs();
        let bound = (2e-6 * size).min(2e-5 * largest);
        assert!(error <= bound, "{what}, element {at}: {found} instead of {wanted}");
    }
}

pub(crate) fn check(shape: &ConvShape, isa: Isa, threads: usize) {
    let input = noise(1, shape.input_len());
    let weights = noise(2, shape.weights_len());
    let bias = noise(3, shape.outputs);
    let d_output = noise(4, shape.output_len());
    let mask = noise(5, shape.input_len());
    let mut output_truth: Vec<f64> =
        (0..shape.output_len()).map(|at| f64::from(bias[at % shape.outputs])).collect();
    let mut d_input_truth = vec![0.0; shape.input_len()];
    let mut d_weights_truth = vec![0.0; shape.weights_len()];
    products(shape, |o, i, w| {
        output_truth[o] += f64::from(input[i]) * f64::from(weights[w]);
        d_input_truth[i] += f64::from(d_output[o]) * f64::from(weights[w]);
        d_weights_truth[w] += f64::from(d_output[o]) * f64::from(input[i]);
    });
    output_truth.iter_mut().for_each(|value| *value = value.max(0.0));
    for (value, mask) in d_input_truth.iter_mut().zip(&mask) {
        *value = if *mask > 0.0 { *value } else { 0.0 };
    }
    let mut d_bias_truth = vec![0.0; shape.outputs];
    for (at, value) in d_output.iter().enumerate() {
        d_bias_truth[at % shape.outputs] += f64::from(*value);
    }

    let what = format!("{} {shape:?}", isa.name());
    let mut compute = Compute::with_isa(isa, threads);
    let mut output = vec![f32::NAN; shape.output_len()];
    let finish = Finish { bias: Some(&bias), relu: true, ..Finish::default() };
    compute.conv_forward(shape, &input, &weights, &mut output, &finish);
    let size = (shape.taps() * shape.inputs) as f64 + 1.0;
    assert_near(&output, &output_truth, size, &format!("output of {what}"));

    let mut d_weights = vec![f32::NAN; shape.weights_len()];
    let mut d_bias = vec![f32::NAN; shape.outputs];
    compute.conv_backward_weights(shape, &input, &d_output, &mut d_weights, &mut d_bias);
    let size = (shape.output_len() / shape.outputs) as f64 + 1.0;
    assert_near(&d_weights, &d_weights_truth, size, &format!("weights of {what}"));
    assert_near(&d_bias, &d_bias_truth, size, &format!("bias of {what}"));

    if shape.stride == 1 && shape.pad < shape.kernel {
        let mut d_input = vec![f32::NAN; shape.input_len()];
        let finish = Finish { mask: Some(&mask), ..Finish::default() };
        compute.conv_backward_input(shape, &d_output, &weights, &mut d_input, &finish);
        let size = (shape.taps() * shape.outputs) as f64 + 1.0;
        assert_near(&d_input, &d_input_truth, size, &format!("input of {what}"));
    }
}

fn shapes() -> impl Strategy<Value = ConvShape> {
    (1usize..4, 1usize..6, 0usize..8, 0usize..8, 1usize..20, 1usize..40, 1usize..4, 0usize..3)
        .prop_map(|(batch, kernel, height, width, inputs, outputs, stride, pad)| ConvShape {
            batch,
            height: kernel + height,
            width: kernel + width,
            inputs,
            outputs,
            kernel,
            stride,
            pad,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn convolutions_match_the_definition(shape in shapes(), threads in 1usize..3) {
        for isa in Isa::available() {
            check(&shape, isa, threads);
        }
    }
}

#[test]
fn tiled_convolutions_match_on_ragged_tiles_and_several_rounds_of_images() {
    for (batch, height, width, inputs, outputs, kernel, pad) in [
        (4, 13, 13, 64, 70, 3, 1),
        (35, 6, 8, 66, 64, 3, 0),
        (3, 16, 15, 64, 64, 3, 1),
        (2, 19, 15, 64, 66, 5, 2),
        (35, 8, 8, 64, 65, 5, 0),
    ] {
        let shape = ConvShape { batch, height, width, inputs, outputs, kernel, stride: 1, pad };
        assert!(winograd::suits(&shape), "{shape:?} does not test the tiles");
        for isa in Isa::available() {
            check(&shape, isa, 2);
        }
    }
}

#[test]
fn first_layers_match_at_odd_sizes_and_when_images_are_cut_into_bands() {
    for (batch, height, width, inputs, stride, kernel, pad) in [
        (1, 31, 40, 3, 4, 11, 2),
        (9, 12, 11, 3, 4, 11, 0),
        (2, 17, 9, 6, 2, 3, 1),
        (3, 13, 14, 12, 1, 5, 2),
        (1, 3, 3, 3, 4, 7, 6),
    ] {
        let shape = ConvShape { batch, height, width, inputs, outputs: 64, kernel, stride, pad };
        assert!(direct::suits(&shape) && !winograd::suits(&shape), "{shape:?} is not direct");
        for isa in Isa::available() {
            check(&shape, isa, 2);
        }
    }
}

#[test]
fn shapes_of_the_models_match() {
    let shape = ConvShape {
        batch: 2,
        height: 23,
        width: 23,
        inputs: 3,
        outputs: 64,
        kernel: 11,
        stride: 4,
        pad: 2,
    };
    let wide = ConvShape {
        height: 7,
        width: 6,
        inputs: 65,
        outputs: 33,
        kernel: 5,
        stride: 1,
        pad: 2,
        ..shape
    };
    let three = ConvShape { kernel: 3, pad: 1, height: 13, width: 13, inputs: 40, ..wide };
    for isa in Isa::available() {
        check(&shape, isa, 2);
        check(&wide, isa, 2);
        check(&three, isa, 2);
    }
}
