//! ResNet-20, the small residual network for images of 32 x 32 pixels: a stem, nine blocks of two convolutions, one dense layer.
//!
//! As its authors have it for CIFAR: three stages of 16, 32 and 64 channels, and a way around each block without
//! weights, which takes every second pixel and adds channels of zeros where a stage begins.

mod passes;
mod plan;

use crate::{
    image_model::{ImageModel, Images, ModelCore, Network, Step, Training},
    input,
    model::{Model, ModelError, ModelOptions},
    random::{self, Normals},
    registry::{KnownInput, ModelDefaults, ModelEntry},
    shapes::LayerShape,
};
use paceline_batch::Schema;
use plan::{HEAD, Layers, Memory, STAGES};

/// The registry's entry.
pub const ENTRY: ModelEntry = ModelEntry {
    name: "resnet-20",
    about: "ResNet-20, 270 thousand weights, images from 8x8 (made for 32x32 colour)",
    settings: &["freeze"],
    defaults: ModelDefaults { optimizer: "momentum", rate: 0.05 },
    known_for: KnownInput::SMALL_COLOUR,
    build,
};

/// Below this the last stage is a single pixel.
const LEAST_SIDE: usize = 8;

struct ResNet {
    layers: Layers,
    memory: Memory,
}

/// Builds the model for images from 8 x 8.
fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let input = input::large_image_and_classes(ENTRY.name, schema, LEAST_SIDE)?;
    let (layers, layout) = Layers::new(input.0, input.1);
    let network = ResNet { layers, memory: Memory::default() };
    Ok(Box::new(ImageModel::new(ENTRY.name, input, options, layout, network)?))
}

impl Network for ResNet {
    const SCORE_IMAGES: usize = 64;

    fn shapes(&self, core: &ModelCore) -> Vec<LayerShape> {
        let convs = self.layers.convs.iter().map(|layer| LayerShape {
            name: layer.name.clone(),
            // Two values of the norm in the place of a bias.
            parameters: layer.weight.len() + 2 * layer.conv.outputs,
            ..LayerShape::conv_of(&layer.conv)
        });
        convs.chain([LayerShape::dense(HEAD, STAGES[2], core.classes)]).collect()
    }

    /// He-normal convolutions, norms 1 and 0, and PyTorch's default for the last layer.
    fn init(&self, core: &ModelCore, seed: u64, params: &mut [f32]) {
        random::init_layers(seed, &core.layout, params);
        let mut normals = Normals::new(seed);
        for layer in &self.layers.convs {
            let fan_in = (9 * layer.conv.inputs) as f64;
            normals.fill(&mut params[layer.weight.clone()], (2.0 / fan_in).sqrt());
            let norm = &mut params[layer.norm()];
            let (gamma, beta) = norm.split_at_mut(layer.conv.outputs);
            gamma.fill(1.0);
            beta.fill(0.0);
            params[layer.mean.clone()].fill(0.0);
            params[layer.variance.clone()].fill(1.0);
        }
    }

    fn floats(&self, core: &ModelCore) -> usize {
        self.layers.floats(core.image)
    }

    fn reserve(&mut self, core: &ModelCore, images: usize, _training: bool) -> usize {
        self.memory.reserve(&self.layers.convs, (core.image, core.classes), images);
        self.memory.batch
    }

    fn forward(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        images: Images<'_>,
        training: Option<Training<'_>>,
    ) -> &mut [f32] {
        // Workers' changes of the running statistics add up to their average by examples. A frozen trunk is
        // normalised as in inference, so that its features are the same in every batch.
        let statistics = training.filter(|_| !core.head_only);
        let statistics = statistics
            .map(|Training { grad, context }| (grad, images.count as f32 * context.scale));
        self.forward_layers(core, params, images, statistics);
        self.forward_head(core, params, images.count);
        &mut self.memory.logits[..images.count * core.classes]
    }

    fn backward(&mut self, core: &mut ModelCore, images: Images<'_>, step: &mut Step<'_>) {
        if !core.head_only {
            self.backward_features(core, step.params, images.count);
        }
        // Weights of the last layer are needed above, and no more from here on.
        self.backward_head(core, images.count, step);
        if core.head_only {
            step.freeze_before(core, self.layers.head.0.start);
        } else {
            self.backward_layers(core, images.count, step);
        }
    }
}

#[cfg(test)]
mod tests;
