//! The architecture: which layers there are, how large, and where their parameters lie.
//!
//! Names, order and element order are torchvision's, so that pretrained weights need no
//! rearranging.

use crate::layout::Layout;
use paceline_batch::ImageShape;
use std::ops::Range;

/// Expansion, channels, repeats, stride of the first: the table of the paper.
const BLOCKS: [(usize, usize, usize, usize); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];

/// A convolution and the batch norm behind it.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) role: Role,
    /// Channels going in.
    pub(super) inputs: usize,
    /// Channels coming out.
    pub(super) outputs: usize,
    /// Height and width going in.
    pub(super) in_side: (usize, usize),
    /// Height and width coming out.
    pub(super) out_side: (usize, usize),
    pub(super) weight: Range<usize>,
    pub(super) gamma: Range<usize>,
    pub(super) beta: Range<usize>,
    pub(super) mean: Range<usize>,
    pub(super) variance: Range<usize>,
}

/// What a layer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The first 3x3 convolution with stride 2, on the image.
    Stem,
    /// 1x1 convolution that widens a block's input, or the last one before the pooling.
    Expand,
    /// Depthwise 3x3 convolution.
    Depthwise {
        /// 1 or 2.
        stride: usize,
    },
    /// 1x1 convolution that narrows again; no activation behind it.
    Project {
        /// Whether the block's input is added to its output.
        residual: bool,
    },
}

impl Layer {
    /// Pixels of one image's output.
    pub(super) fn out_area(&self) -> usize {
        self.out_side.0 * self.out_side.1
    }

    /// Everything of this layer in the flat buffer.
    pub(super) fn all(&self) -> Range<usize> {
        self.weight.start..self.variance.end
    }
}

/// The whole network.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) layers: Vec<Layer>,
    pub(super) layout: Layout,
    pub(super) classifier_weight: Range<usize>,
    pub(super) classifier_bias: Range<usize>,
    pub(super) image: ImageShape,
    pub(super) classes: usize,
}

/// Rounds a number of channels to a multiple of 8 without losing more than a tenth.
fn divisible(channels: f32) -> usize {
    let nearest = ((channels + 4.0) / 8.0).floor() as usize * 8;
    let rounded = nearest.max(8);
    if (rounded as f32) < 0.9 * channels { rounded + 8 } else { rounded }
}

impl Shape {
    pub(super) fn new(image: ImageShape, classes: usize, width: f32) -> Self {
        let mut shape = Self {
            layers: Vec::new(),
            layout: Layout::default(),
            classifier_weight: 0..0,
            classifier_bias: 0..0,
            image,
            classes,
        };
        let mut side = (image.height, image.width);
        let mut channels = divisible(32.0 * width);
        side =
            shape.push(Role::Stem, "features.0.0", "features.0.1", image.channels, channels, side);
        let mut block = 1;
        for (expansion, wanted, repeats, stride) in BLOCKS {
            let outputs = divisible(wanted as f32 * width);
            for repeat in 0..repeats {
                let stride = if repeat == 0 { stride } else { 1 };
                let hidden = channels * expansion;
                let mut part = 0;
                let conv = |part: usize| format!("features.{block}.conv.{part}");
                if expansion != 1 {
                    let (weight, norm) = (format!("{}.0", conv(0)), format!("{}.1", conv(0)));
                    shape.push(Role::Expand, &weight, &norm, channels, hidden, side);
                    part += 1;
                }
                let (weight, norm) = (format!("{}.0", conv(part)), format!("{}.1", conv(part)));
                let role = Role::Depthwise { stride };
                side = shape.push(role, &weight, &norm, hidden, hidden, side);
                let residual = stride == 1 && channels == outputs;
                let role = Role::Project { residual };
                shape.push(role, &conv(part + 1), &conv(part + 2), hidden, outputs, side);
                channels = outputs;
                block += 1;
            }
        }
        let last = divisible(1280.0 * width.max(1.0));
        let (weight, norm) = (format!("features.{block}.0"), format!("features.{block}.1"));
        shape.push(Role::Expand, &weight, &norm, channels, last, side);
        shape.classifier_weight = shape.layout.push("classifier.1.weight", &[classes, last], true);
        shape.classifier_bias = shape.layout.push("classifier.1.bias", &[classes], true);
        shape
    }

    /// Adds a layer and answers the side of its output.
    fn push(
        &mut self,
        role: Role,
        weight: &str,
        norm: &str,
        inputs: usize,
        outputs: usize,
        in_side: (usize, usize),
    ) -> (usize, usize) {
        let halved = |side: usize| (side - 1) / 2 + 1;
        let out_side = match role {
            Role::Stem | Role::Depthwise { stride: 2 } => (halved(in_side.0), halved(in_side.1)),
            _ => in_side,
        };
        let dimensions = match role {
            Role::Stem => [outputs, inputs, 3, 3],
            Role::Depthwise { .. } => [outputs, 1, 3, 3],
            Role::Expand | Role::Project { .. } => [outputs, inputs, 1, 1],
        };
        let layout = &mut self.layout;
        let layer = Layer {
            role,
            inputs,
            outputs,
            in_side,
            out_side,
            weight: layout.push(format!("{weight}.weight"), &dimensions, true),
            gamma: layout.push(format!("{norm}.weight"), &[outputs], true),
            beta: layout.push(format!("{norm}.bias"), &[outputs], true),
            mean: layout.push(format!("{norm}.running_mean"), &[outputs], false),
            variance: layout.push(format!("{norm}.running_var"), &[outputs], false),
        };
        self.layers.push(layer);
        out_side
    }

    /// The last convolution's channels.
    pub(super) fn features(&self) -> usize {
        self.layers.last().map_or(0, |layer| layer.outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(classes: usize, width: f32) -> Shape {
        Shape::new(ImageShape { height: 224, width: 224, channels: 3 }, classes, width)
    }

    /// Numbers of parameters of the published models.
    #[test]
    fn parameter_counts_match_the_published_models() {
        let trained = |shape: &Shape| -> usize {
            let entries = shape.layout.entries().iter();
            entries.filter(|entry| entry.trained).map(crate::layout::LayoutEntry::len).sum()
        };
        assert_eq!(trained(&shape(1000, 1.0)), 3_504_872);
        assert_eq!(trained(&shape(1000, 1.4)), 6_108_776);
        assert_eq!(trained(&shape(1000, 0.5)), 1_968_680);
    }

    #[test]
    fn maps_shrink_to_a_thirty_second() {
        let shape = shape(5, 1.0);
        assert_eq!(shape.layers.len(), 52);
        assert_eq!(shape.layers.last().unwrap().out_side, (7, 7));
        let tiny = Shape::new(ImageShape { height: 33, width: 75, channels: 1 }, 5, 0.35);
        assert_eq!(tiny.layers.last().unwrap().out_side, (2, 3));
        assert!(tiny.layers.iter().all(|layer| layer.outputs % 8 == 0));
    }
}
