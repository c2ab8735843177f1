//! How large a model's layers are: what predicting its time on other machines needs to know.

use crate::kernels::{ConvShape, DenseShape, PoolShape};

/// One layer with parameters, for one example. What follows it without parameters (relu, pooling,
/// normalisation) belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerShape {
    /// As its parameters are named, without `.weight`.
    pub name: String,
    /// Height, width and channels going in; a dense layer's values are channels of one pixel.
    pub input: [usize; 3],
    /// Height, width and channels coming out, before any pooling.
    pub output: [usize; 3],
    /// Side of its kernel, 1 for dense layers.
    pub kernel: usize,
    /// Trained values, biases and norms included.
    pub parameters: usize,
    /// Multiplications and additions of a forward pass, by definition of the layer.
    pub flops: usize,
}

impl LayerShape {
    /// A dense layer with a bias.
    #[must_use]
    pub fn dense(name: impl Into<String>, inputs: usize, outputs: usize) -> Self {
        Self {
            name: name.into(),
            input: [1, 1, inputs],
            output: [1, 1, outputs],
            kernel: 1,
            parameters: (inputs + 1) * outputs,
            flops: 2 * inputs * outputs,
        }
    }

    /// A convolution with a bias, each output over all inputs; the name is to be given.
    pub(crate) fn conv_of(shape: &ConvShape) -> Self {
        let output = [shape.out_height(), shape.out_width(), shape.outputs];
        let weights = shape.weights_len();
        Self {
            name: String::new(),
            input: [shape.height, shape.width, shape.inputs],
            output,
            kernel: shape.kernel,
            parameters: weights + shape.outputs,
            flops: 2 * output[0] * output[1] * weights,
        }
    }

    /// Values going in, per example.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.input.iter().product()
    }

    /// Values coming out, per example.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.output.iter().product()
    }
}

/// A convolution's shape for one image of so many rows, columns and channels.
pub(crate) fn conv(
    (height, width, inputs): (usize, usize, usize),
    outputs: usize,
    [kernel, stride, pad]: [usize; 3],
) -> ConvShape {
    ConvShape { batch: 1, height, width, inputs, outputs, kernel, stride, pad }
}

/// The shape of a pooling of one image behind a convolution.
pub(crate) fn pool(conv: &ConvShape, window: usize, stride: usize) -> PoolShape {
    let (height, width) = (conv.out_height(), conv.out_width());
    PoolShape { batch: 1, height, width, channels: conv.outputs, window, stride }
}

/// Shapes of a network of convolutions and poolings that ends with three dense layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainShapes<const CONVS: usize, const POOLS: usize> {
    pub(crate) convs: [ConvShape; CONVS],
    pub(crate) pools: [PoolShape; POOLS],
    pub(crate) dense: [DenseShape; 3],
}

impl<const CONVS: usize, const POOLS: usize> ChainShapes<CONVS, POOLS> {
    /// For one example; `sizes` are the inputs of the first dense layer, and the outputs of all three.
    pub(crate) fn new(
        convs: [ConvShape; CONVS],
        pools: [PoolShape; POOLS],
        sizes: [usize; 4],
    ) -> Self {
        let dense = [0, 1, 2].map(|layer| DenseShape {
            batch: 1,
            inputs: sizes[layer],
            outputs: sizes[layer + 1],
        });
        Self { convs, pools, dense }
    }

    /// The same layers for a whole batch.
    pub(crate) fn with_batch(mut self, batch: usize) -> Self {
        self.convs.iter_mut().for_each(|shape| shape.batch = batch);
        self.pools.iter_mut().for_each(|shape| shape.batch = batch);
        self.dense.iter_mut().for_each(|shape| shape.batch = batch);
        self
    }

    /// PyTorch's shape of a layer's weights.
    pub(crate) fn weights(&self, layer: usize) -> Vec<usize> {
        match self.convs.get(layer) {
            Some(conv) => vec![conv.outputs, conv.inputs, conv.kernel, conv.kernel],
            None => {
                let dense = &self.dense[layer - CONVS];
                vec![dense.outputs, dense.inputs]
            }
        }
    }

    /// The layers with their names.
    pub(crate) fn named(&self, names: &[&str]) -> Vec<LayerShape> {
        let convs = self.convs.iter().map(LayerShape::conv_of);
        let dense = self.dense.iter();
        let dense = dense.map(|dense| LayerShape::dense("", dense.inputs, dense.outputs));
        let named = convs.chain(dense).zip(names);
        named.map(|(shape, &name)| LayerShape { name: name.to_owned(), ..shape }).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{ModelOptions, registry};
    use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};

    /// Shapes are stated beside the layout; the two must not drift apart.
    #[test]
    fn shapes_hold_every_trained_parameter_of_every_model() {
        for entry in &registry::ALL {
            let digits = matches!(entry.name, "softmax" | "lenet");
            let (side, channels) = if digits { (28, 1) } else { (224, 3) };
            let schema = Schema {
                features: FeatureKind::Image(ImageShape { height: side, width: side, channels }),
                labels: LabelKind::Classes { names: (0..10).map(|n| n.to_string()).collect() },
            };
            let Ok(model) = (entry.build)(&schema, &ModelOptions::default()) else {
                continue; // not made for images
            };
            let shapes = model.shapes();
            let trained = model.layout().entries().iter().filter(|entry| entry.trained);
            let wanted: usize = trained.map(crate::layout::LayoutEntry::len).sum();
            let found: usize = shapes.iter().map(|shape| shape.parameters).sum();
            assert_eq!(found, wanted, "{}", entry.name);
            assert_eq!(shapes[0].inputs(), side * side * channels, "{}", entry.name);
            assert_eq!(shapes[shapes.len() - 1].outputs(), 10, "{}", entry.name);
            for shape in &shapes {
                let weight = format!("{}.weight", shape.name);
                let known = model.layout().get(&weight).is_some() || entry.name == "softmax";
                assert!(known, "{}: no `{weight}`", entry.name);
            }
        }
    }
}
