//! Layers, their shapes and places, and the memory a batch needs.

use crate::{
    kernels::{Buffer, ConvShape, batch_norm::Values},
    layout::{LayerPlace, Layout},
    shapes,
};
use paceline_batch::ImageShape;
use std::ops::Range;

/// Channels of the three stages, each with as many blocks.
pub(super) const STAGES: [usize; 3] = [16, 32, 64];
/// Blocks of a stage: with two convolutions each, the stem and the last layer, 6 n + 2 = 20.
pub(super) const BLOCKS: usize = 3;
/// The last layer.
pub(super) const HEAD: &str = "fc";
/// Parts in which sums over a batch are made: their number must not depend on threads, or bits would.
const PARTS: usize = 8;

/// A convolution, and the batch normalisation behind it.
pub(super) struct Layer {
    pub(super) name: String,
    /// For one example.
    pub(super) conv: ConvShape,
    pub(super) weight: Range<usize>,
    gamma: Range<usize>,
    beta: Range<usize>,
    pub(super) mean: Range<usize>,
    pub(super) variance: Range<usize>,
}

impl Layer {
    pub(super) fn all(&self) -> Range<usize> {
        self.weight.start..self.variance.end
    }

    pub(super) fn norm(&self) -> Range<usize> {
        self.gamma.start..self.beta.end
    }

    pub(super) fn values<'a>(&self, params: &'a [f32]) -> Values<'a> {
        Values {
            gamma: &params[self.gamma.clone()],
            beta: &params[self.beta.clone()],
            mean: &params[self.mean.clone()],
            variance: &params[self.variance.clone()],
        }
    }
}

/// All layers: the stem, and two of each block. A block begins at an odd number.
pub(super) struct Layers {
    pub(super) convs: Vec<Layer>,
    pub(super) head: LayerPlace,
}

impl Layers {
    pub(super) fn new(image: ImageShape, classes: usize) -> (Self, Layout) {
        let mut layout = Layout::default();
        let mut convs = Vec::new();
        let mut push = |conv: String, norm: &str, shape: ConvShape| {
            let weight = [shape.outputs, shape.inputs, 3, 3];
            let mut add =
                |name: String, shape: &[usize], trained| layout.push(name, shape, trained);
            let channels = [shape.outputs];
            convs.push(Layer {
                weight: add(format!("{conv}.weight"), &weight, true),
                gamma: add(format!("{norm}.weight"), &channels, true),
                beta: add(format!("{norm}.bias"), &channels, true),
                mean: add(format!("{norm}.running_mean"), &channels, false),
                variance: add(format!("{norm}.running_var"), &channels, false),
                name: conv,
                conv: shape,
            });
            (shape.out_height(), shape.out_width(), shape.outputs)
        };
        let conv = |input, outputs, stride| shapes::conv(input, outputs, [3, stride, 1]);
        let input = (image.height, image.width, image.channels);
        let mut at = push("conv1".to_owned(), "bn1", conv(input, STAGES[0], 1));
        for (stage, &channels) in STAGES.iter().enumerate() {
            for block in 0..BLOCKS {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let name = format!("layer{}.{block}", stage + 1);
                at = push(
                    format!("{name}.conv1"),
                    &format!("{name}.bn1"),
                    conv(at, channels, stride),
                );
                at = push(format!("{name}.conv2"), &format!("{name}.bn2"), conv(at, channels, 1));
            }
        }
        let [head] = layout.push_layers([HEAD], |_| vec![classes, STAGES[2]]);
        (Self { convs, head }, layout)
    }

    /// Floats of one example that training holds.
    pub(super) fn floats(&self, image: ImageShape) -> usize {
        let outputs = self.convs.iter().map(|layer| layer.conv.output_len());
        let largest = outputs.clone().max().unwrap_or(0);
        image.len() + 2 * outputs.sum::<usize>() + 6 * largest
    }
}

/// Activations and gradients for the largest batch so far.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) batch: usize,
    pub(super) input: Buffer,
    /// By layer: what the convolution made, and what became of it.
    pub(super) raw: Vec<Buffer>,
    pub(super) made: Vec<Buffer>,
    pub(super) coefficients: Vec<Buffer>,
    /// A block's input where the block halves the image.
    pub(super) shortcut: Buffer,
    pub(super) features: Buffer,
    pub(super) logits: Buffer,
    pub(super) d_features: Buffer,
    /// Gradients of a block's output, of what a convolution made, and of a convolution's input.
    pub(super) d_made: Buffer,
    pub(super) d_raw: Buffer,
    pub(super) d_input: Buffer,
    /// Gradients with zeros between them, where a convolution passed over every second pixel.
    pub(super) spread: Buffer,
    /// Sums of parts of a batch.
    pub(super) parts: Vec<f64>,
    /// Convolutions here have no bias.
    pub(super) no_bias: Buffer,
}

impl Memory {
    pub(super) fn reserve(
        &mut self,
        layers: &[Layer],
        (image, classes): (ImageShape, usize),
        batch: usize,
    ) {
        if batch <= self.batch {
            return;
        }
        // Gives everything back first: old and new plan together might not fit.
        *self = Self { batch, ..Self::default() };
        let floats = |per_example: usize| Buffer::zeroed(batch * per_example);
        let lens: Vec<usize> = layers.iter().map(|layer| layer.conv.output_len()).collect();
        let largest = lens.iter().copied().max().unwrap_or(0);
        self.input = floats(image.len());
        self.raw = lens.iter().map(|len| floats(*len)).collect();
        self.made = lens.iter().map(|len| floats(*len)).collect();
        let channels = layers.iter().map(|layer| layer.conv.outputs);
        self.coefficients = channels.map(|channels| Buffer::zeroed(7 * channels)).collect();
        self.features = floats(STAGES[2]);
        self.d_features = floats(STAGES[2]);
        self.logits = floats(classes);
        for buffer in [&mut self.shortcut, &mut self.d_made, &mut self.d_raw, &mut self.d_input] {
            *buffer = floats(largest);
        }
        // At the size of the images before they are halved, and with the channels after it.
        self.spread = floats(2 * largest);
        self.parts = vec![0.0; PARTS * 2 * STAGES[2]];
        self.no_bias = Buffer::zeroed(STAGES[2]);
    }

    /// Room for the sums of so many channels.
    pub(super) fn parts_of(parts: &mut [f64], channels: usize) -> &mut [f64] {
        &mut parts[..PARTS * 2 * channels]
    }
}

/// One part of a layer's coefficients, in the order of their fields.
pub(super) fn coefficient(buffer: &Buffer, number: usize) -> &[f32] {
    let channels = buffer.len() / 7;
    &buffer[number * channels..][..channels]
}
