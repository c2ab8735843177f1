//! A model of the registry and a batch of drawn images for it, for what measures or checks a step.

#![allow(unreachable_pub)]

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::{Model, ModelOptions, kernels::Buffer, registry};

/// A model with all that a step takes.
pub struct Drawn {
    pub model: Box<dyn Model>,
    pub batch: Batch,
    pub params: Buffer,
    pub grad: Buffer,
}

/// Builds the model for square images and draws the batch.
pub fn drawn(
    name: &str,
    (side, channels, classes): (usize, usize, usize),
    examples: usize,
    options: &ModelOptions,
) -> Drawn {
    let image = ImageShape { height: side, width: side, channels };
    let names = (0..classes).map(|class| class.to_string()).collect();
    let schema =
        Schema { features: FeatureKind::Image(image), labels: LabelKind::Classes { names } };
    let entry = registry::find(name).expect("a model of the registry");
    let model = (entry.build)(&schema, options).expect("the schema fits");
    let batch = Batch {
        features: Features::Pixels {
            values: (0..image.len() * examples).map(|at| (at * 7 % 251) as u8).collect(),
            width: image.len(),
        },
        labels: (0..examples).map(|at| (at % classes) as u32).collect(),
    };
    let mut params = Buffer::zeroed(model.layout().len());
    let grad = Buffer::zeroed(model.layout().len());
    model.init(1, &mut params);
    Drawn { model, batch, params, grad }
}
