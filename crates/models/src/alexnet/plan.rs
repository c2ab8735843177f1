//! Shapes of all layers, and the memory a batch needs.

use crate::{
    kernels::{Buffer, ConvShape, adaptive::AdaptiveShape},
    shapes::{self, ChainShapes},
};
use paceline_batch::ImageShape;

/// Values per example of the two hidden dense layers.
const HIDDEN: usize = 4096;
/// Rows and columns of what the dense layers see.
const SIDE: usize = 6;

pub(super) type Shapes = ChainShapes<5, 3>;

/// The layers' shapes for one example, and that of the pooling before the dense layers. Other poolings are after the
/// first, second and last convolution.
pub(super) fn shapes(image: ImageShape, classes: usize) -> (Shapes, AdaptiveShape) {
    let pool = |conv: &ConvShape| shapes::pool(conv, 3, 2);
    let conv1 = shapes::conv((image.height, image.width, image.channels), 64, [11, 4, 2]);
    let pool1 = pool(&conv1);
    let conv2 = shapes::conv((pool1.out_height(), pool1.out_width(), 64), 192, [5, 1, 2]);
    let pool2 = pool(&conv2);
    let (height, width) = (pool2.out_height(), pool2.out_width());
    let conv3 = shapes::conv((height, width, 192), 384, [3, 1, 1]);
    let conv4 = shapes::conv((height, width, 384), 256, [3, 1, 1]);
    let conv5 = shapes::conv((height, width, 256), 256, [3, 1, 1]);
    let pool5 = pool(&conv5);
    let adaptive = AdaptiveShape {
        height: pool5.out_height(),
        width: pool5.out_width(),
        channels: 256,
        side: SIDE,
    };
    let sizes = [SIDE * SIDE * 256, HIDDEN, HIDDEN, classes];
    let convs = [conv1, conv2, conv3, conv4, conv5];
    (Shapes::new(convs, [pool1, pool2, pool5], sizes), adaptive)
}

/// Activations and gradients for the largest batch so far.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) batch: usize,
    training: bool,
    pub(super) input: Buffer,
    /// Outputs of the convolutions, after relu.
    pub(super) convs: [Buffer; 5],
    /// Outputs of the first two convolutions after response normalisation, if it is on.
    pub(super) normed: [Buffer; 2],
    pub(super) pools: [Buffer; 3],
    /// 6 x 6 pixels, in pixel order and in channel order.
    pub(super) pooled: Buffer,
    pub(super) flat: Buffer,
    pub(super) hidden: [Buffer; 2],
    pub(super) logits: Buffer,
    /// Gradients of dense layers' inputs.
    pub(super) d_dense: [Buffer; 3],
    /// Gradients of convolutions' outputs live in the first or second, and each is made from the
    /// other: never more than two are alive.
    pub(super) d_first: Buffer,
    pub(super) d_second: Buffer,
}

/// Floats of one example in each buffer of [`Memory`].
struct PerExample {
    input: usize,
    convs: [usize; 5],
    pools: [usize; 3],
    flat: usize,
    logits: usize,
    d_dense: [usize; 3],
    d_first: usize,
    d_second: usize,
}

impl PerExample {
    fn new(shapes: &Shapes, training: bool) -> Self {
        let convs = shapes.convs.map(|conv| conv.output_len());
        let pools = shapes.pools.map(|pool| pool.output_image());
        let mut each = Self {
            input: shapes.convs[0].input_len(),
            convs,
            pools,
            flat: shapes.dense[0].inputs,
            logits: shapes.dense[2].outputs,
            d_dense: [0; 3],
            d_first: 0,
            d_second: 0,
        };
        if training {
            each.d_dense = shapes.dense.map(|dense| dense.inputs);
            // The first holds gradients of the outputs of convolutions 5, 3, 2 and 1, the second
            // those of 4, and of the inputs of the third and second convolution.
            each.d_first = convs[0].max(convs[1]).max(convs[2]).max(convs[4]);
            each.d_second = convs[3].max(pools[0]).max(pools[1]).max(pools[2]);
        }
        each
    }
}

impl Memory {
    /// Plans memory for a batch; evaluation alone needs no gradients.
    pub(super) fn reserve(&mut self, shapes: &Shapes, batch: usize, training: bool) {
        if batch <= self.batch && (self.training || !training) {
            return;
        }
        let batch = batch.max(self.batch);
        let training = training || self.training;
        // Gives everything back first: old and new plan together might not fit.
        *self = Self { batch, training, ..Self::default() };
        let floats = |per_example: usize| Buffer::zeroed(batch * per_example);
        let each = PerExample::new(shapes, training);
        self.input = floats(each.input);
        self.convs = each.convs.map(floats);
        self.pools = each.pools.map(floats);
        self.pooled = floats(each.flat);
        self.flat = floats(each.flat);
        self.hidden = [floats(HIDDEN), floats(HIDDEN)];
        self.logits = floats(each.logits);
        self.d_dense = each.d_dense.map(floats);
        self.d_first = floats(each.d_first);
        self.d_second = floats(each.d_second);
    }

    /// Floats that [`Memory::reserve`] takes for each example; takes none itself, since it is asked whether they fit.
    pub(super) fn floats(shapes: &Shapes, training: bool) -> usize {
        let each = PerExample::new(shapes, training);
        let several = each.convs.iter().chain(&each.pools).chain(&each.d_dense).sum::<usize>();
        let single = each.input + each.logits + each.d_first + each.d_second;
        several + single + 2 * each.flat + 2 * HIDDEN
    }

    /// Room for normalised activations, which few ask for.
    pub(super) fn reserve_normed(&mut self, shapes: &Shapes) {
        for (normed, conv) in self.normed.iter_mut().zip(&shapes.convs) {
            normed.reserve(self.batch * conv.output_len());
        }
    }
}
