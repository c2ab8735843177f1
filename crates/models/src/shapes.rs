//! How large a model's layers are: what predicting its time on other machines needs to know.

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

#[cfg(test)]
mod tests {
    use crate::{ModelOptions, registry};
    use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};

    /// Shapes are stated beside the layout; the two must not drift apart.
    #[test]
    fn shapes_hold_every_trained_parameter_of_every_model() {
        for entry in registry::ALL {
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
            let wanted: usize = trained.map(crate::layout::Entry::len).sum();
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
