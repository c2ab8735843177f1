//! AlexNet, one tower, as torchvision has it: five convolutions and three dense layers.
//!
//! Names, shapes and element order of the parameters are torchvision's. Activations lie in height,
//! width, channel order; only the 6 x 6 x 256 values before the dense layers are put into channel
//! order, so that their weights need no reordering.

mod passes;
mod plan;
mod together;

use crate::{
    image_model::{ImageModel, Images, ModelCore, Network, Step, Training},
    input,
    kernels::adaptive::AdaptiveShape,
    layout::{LayerPlace, Layout},
    model::{Model, ModelError, ModelOptions, StepContext, StepLoss},
    registry::{KnownInput, ModelDefaults, ModelEntry},
    shapes::LayerShape,
    split::{Split, Together},
};
use paceline_batch::{Batch, Schema};
use passes::Dropout;
use plan::{Memory, Shapes};
use together::Whole;

/// Share of the dense layers' units that drop in a step, unless asked otherwise.
const DROPOUT: f32 = 0.5;

/// The registry's entry.
pub const ENTRY: ModelEntry = ModelEntry {
    name: "alexnet",
    about: "AlexNet, one tower, 61 million weights, images from 63x63 (made for 224x224)",
    settings: &["freeze", "dropout", "lrn", "split-dense"],
    defaults: ModelDefaults { optimizer: "adam", rate: 0.0001 },
    known_for: KnownInput::PHOTOGRAPHS,
    build,
};

/// Below this the last pooling has nothing left to pool.
const LEAST_SIDE: usize = 63;

/// Layers with parameters, as torchvision numbers them.
const LAYERS: [&str; 8] = [
    "features.0",
    "features.3",
    "features.6",
    "features.8",
    "features.10",
    "classifier.1",
    "classifier.4",
    "classifier.6",
];

struct AlexNet {
    /// Shapes for one example; passes set the batch.
    shapes: Shapes,
    adaptive: AdaptiveShape,
    at: [LayerPlace; 8],
    dropout: f32,
    lrn: bool,
    memory: Memory,
    whole: Whole,
}

/// Builds the model for images from 63 x 63.
fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let input = input::large_image_and_classes(ENTRY.name, schema, LEAST_SIDE)?;
    let (shapes, adaptive) = plan::shapes(input.0, input.1);
    let mut layout = Layout::default();
    let at = layout.push_layers(LAYERS, |number| shapes.weights(number));
    let network = AlexNet {
        shapes,
        adaptive,
        at,
        dropout: input::dropout(ENTRY.name, options, DROPOUT)?,
        lrn: options.lrn,
        memory: Memory::default(),
        whole: Whole::default(),
    };
    Ok(Box::new(ImageModel::new(ENTRY.name, input, options, layout, network)?))
}

impl Network for AlexNet {
    fn shapes(&self, _core: &ModelCore) -> Vec<LayerShape> {
        self.shapes.named(&LAYERS)
    }

    fn floats(&self, core: &ModelCore) -> usize {
        Memory::floats(&self.shapes, !core.head_only)
    }

    fn reserve(&mut self, _core: &ModelCore, images: usize, training: bool) -> usize {
        self.memory.reserve(&self.shapes, images, training);
        self.memory.batch
    }

    fn forward(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        images: Images<'_>,
        training: Option<Training<'_>>,
    ) -> &mut [f32] {
        // Dropout lies before the first two dense layers: in the trunk, which runs as in inference where it is frozen.
        let training = training.filter(|_| self.dropout > 0.0 && !core.head_only);
        let dropout = training.map(|training| Dropout::of(self.dropout, training.context));
        self.forward_convs(core, params, images);
        self.forward_dense(core, params, images.count, dropout);
        &mut self.memory.logits[..images.count * core.classes]
    }

    fn backward(&mut self, core: &mut ModelCore, images: Images<'_>, step: &mut Step<'_>) {
        if core.head_only {
            self.backward_head(core, images.count, step);
        } else {
            self.backward_dense(core, images.count, step);
            self.backward_convs(core, images.count, step);
        }
    }

    fn split(&self, core: &ModelCore) -> Option<Split> {
        // With the last layer alone to train, the others' gradients need not be exchanged anyway.
        (!core.head_only).then(|| self.dense_split())
    }

    fn step_together(
        &mut self,
        core: &mut ModelCore,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        together: &mut Together<'_>,
    ) -> Result<StepLoss, ModelError> {
        if core.head_only {
            return Err(ModelError::NoSplit);
        }
        self.shared_step(core, params, batch, context, grad, together)
    }
}
