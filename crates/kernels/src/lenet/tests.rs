//! The special kernels against the general ones, which are tested against plain loops.

use super::*;
use crate::{Compute, ConvShape, Finish, Isa, PoolShape, noise};

fn assert_near(found: &[f32], wanted: &[f32], what: &str) {
    let size = wanted.iter().fold(0f32, |size, value| size.max(value.abs()));
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (found - wanted).abs();
        assert!(error <= 1e-5 * size, "{what}, element {at}: {found} instead of {wanted}");
    }
}

/// Pixel by pixel, channel by channel, from what the kernel keeps channel by channel.
fn channels_last(planes: &[f32], channels: usize, pixels: usize) -> Vec<f32> {
    (0..channels * pixels).map(|at| planes[at % channels * pixels + at / channels]).collect()
}

#[test]
fn an_image_forward_and_backward_matches_the_general_kernels() {
    let shape1 = ConvShape {
        batch: 1,
        height: 28,
        width: 28,
        inputs: 1,
        outputs: 6,
        kernel: 5,
        stride: 1,
        pad: 2,
    };
    let shape2 = ConvShape { height: 14, width: 14, inputs: 6, outputs: 16, pad: 0, ..shape1 };
    let pool1 = PoolShape { batch: 1, height: 28, width: 28, channels: 6, window: 2, stride: 2 };
    let pool2 = PoolShape { height: 10, width: 10, channels: 16, ..pool1 };
    let pixels = noise(1, 784);
    let (weights1, bias1) = (noise(2, 150), noise(3, 6));
    let (weights2, bias2) = (noise(4, 2400), noise(5, 16));
    let d_flat = noise(6, FLAT);
    for isa in Isa::available() {
        let mut image = vec![0.0; IMAGE];
        frame(&pixels[..], &mut image, |value| value);
        let (mut forward, mut back) = (vec![0.0; WEIGHTS2], vec![0.0; WEIGHTS2_BACK]);
        order_weights(&weights2, &mut forward, &mut back);
        let (mut made1, mut pooled1) = (vec![0; MADE1], vec![0.0; POOL1]);
        let (mut made2, mut flat) = (vec![0; MADE2], vec![0.0; FLAT]);
        let mut sums = vec![0.0; SUMS];
        // SAFETY: the kernels assert what they need.
        unsafe {
            isa.run(Forward {
                image: &image,
                weights1: &weights1,
                bias1: &bias1,
                weights2: &forward,
                bias2: &bias2,
                scratch: &mut vec![f32::NAN; SCRATCH],
                made1: &mut made1,
                pool1: &mut pooled1,
                made2: &mut made2,
                flat: &mut flat,
            });
            isa.run(Backward {
                image: &image,
                made1: &made1,
                pool1: &pooled1,
                made2: &made2,
                d_flat: &d_flat,
                weights2: &back,
                scratch: &mut vec![f32::NAN; SCRATCH],
                sums: &mut sums,
            });
        }

        let mut general = Compute::with_isa(isa, 1);
        let mut first = vec![0.0; shape1.output_len()];
        let mut second = vec![0.0; shape2.output_len()];
        let (mut small, mut least) = (vec![0.0; 14 * 14 * 6], vec![0.0; FLAT]);
        let finish = |bias| Finish { bias: Some(bias), relu: true, ..Finish::default() };
        general.conv_forward(&shape1, &pixels, &weights1, &mut first, &finish(&bias1));
        general.average_pool(&pool1, &first, &mut small);
        general.conv_forward(&shape2, &small, &weights2, &mut second, &finish(&bias2));
        general.average_pool(&pool2, &second, &mut least);
        assert_near(&channels_last(&flat, 16, 25), &least, isa.name());

        let d_least = channels_last(&d_flat, 16, 25);
        let (mut d_second, mut d_first) = (second.clone(), first.clone());
        let mut d_small = small.clone();
        general.average_pool_relu_backward(&pool2, &second, &d_least, &mut d_second);
        let (mut d_weights, mut d_bias) = (vec![0.0; 2400], vec![0.0; 16]);
        general.conv_backward_weights(&shape2, &small, &d_second, &mut d_weights, &mut d_bias);
        let ordered: Vec<f32> =
            (0..2400).map(|at| d_weights[at % 16 * 150 + at / 16]).chain(d_bias).collect();
        assert_near(&sums[..2416], &ordered, isa.name());
        let plain = Finish::default();
        general.conv_backward_input(&shape2, &d_second, &weights2, &mut d_small, &plain);
        general.average_pool_relu_backward(&pool1, &first, &d_small, &mut d_first);
        let (mut d_weights, mut d_bias) = (vec![0.0; 150], vec![0.0; 6]);
        general.conv_backward_weights(&shape1, &pixels, &d_first, &mut d_weights, &mut d_bias);
        assert_near(&sums[2416..2566], &d_weights, isa.name());
        assert_near(&sums[2566..], &d_bias, isa.name());
    }
}
