//! LeNet-5 for any size, channels, frame and activation, from the kernels that larger models use.
//!
//! The published shape has kernels of its own, several times as fast; here the same layers for all others.

use super::{CONVS, LAYERS, LayerPlaces, Shapes, dense::Dense};
use crate::{
    image_model::{Images, ModelCore, Network, Step, Training},
    kernels::{Buffer, Finish},
    model::Activation,
    profile::Pass,
    shapes::LayerShape,
};

/// Activations and gradients for the largest batch so far.
#[derive(Default)]
struct Memory {
    batch: usize,
    input: Buffer,
    /// Outputs of the convolutions, activated.
    convs: [Buffer; 2],
    pools: [Buffer; 2],
    dense: Dense,
    d_pools: [Buffer; 2],
    d_convs: [Buffer; 2],
    /// In the place of activated outputs where pooling shall not look at them.
    ones: Buffer,
}

impl Memory {
    fn reserve(&mut self, shapes: &Shapes, batch: usize, ones: bool) {
        if batch <= self.batch {
            return;
        }
        let floats = |per_example: usize| Buffer::zeroed(batch * per_example);
        let convs = shapes.convs.map(|conv| conv.output_len());
        let pools = shapes.pools.map(|pool| pool.output_image());
        *self = Self {
            batch,
            input: floats(shapes.convs[0].input_len()),
            convs: convs.map(floats),
            pools: pools.map(floats),
            dense: Dense::default(),
            d_pools: pools.map(floats),
            d_convs: convs.map(floats),
            ones: floats(if ones { convs[0].max(convs[1]) } else { 0 }),
        };
        for (buffer, len) in self.dense.plan(&shapes.with_batch(batch).dense) {
            *buffer = Buffer::zeroed(len);
        }
        self.ones.fill(1.0);
    }
}

pub(super) struct General {
    shapes: Shapes,
    activation: Activation,
    at: LayerPlaces,
    memory: Memory,
}

impl General {
    pub(super) fn new(shapes: Shapes, activation: Activation, at: LayerPlaces) -> Self {
        Self { shapes, activation, at, memory: Memory::default() }
    }

    fn is_tanh(&self) -> bool {
        self.activation == Activation::Tanh
    }
}

impl Network for General {
    fn shapes(&self, _core: &ModelCore) -> Vec<LayerShape> {
        self.shapes.named(&LAYERS)
    }

    fn floats(&self, _core: &ModelCore) -> usize {
        let Shapes { convs, pools, .. } = &self.shapes;
        let made: usize = convs.iter().map(|conv| 3 * conv.output_len()).sum();
        let pooled: usize = pools.iter().map(|pool| 3 * pool.output_image()).sum();
        convs[0].input_len() + made + pooled
    }

    fn reserve(&mut self, _core: &ModelCore, images: usize, _training: bool) -> usize {
        self.memory.reserve(&self.shapes, images, self.activation == Activation::Tanh);
        self.memory.batch
    }

    fn forward(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        images: Images<'_>,
        _training: Option<Training<'_>>,
    ) -> &mut [f32] {
        let (shapes, tanh) = (self.shapes.with_batch(images.count), self.is_tanh());
        let Self { memory, at, activation, .. } = self;
        let ModelCore { compute, profile, scaling, .. } = core;
        let input = &mut memory.input[..shapes.convs[0].input_len()];
        compute.widen(images.pixels, scaling, input);
        for layer in 0..CONVS {
            let (shape, (weights, bias)) = (&shapes.convs[layer], &at[layer]);
            let (pool, output) = (&shapes.pools[layer], &mut memory.convs[layer]);
            let bias = Some(&params[bias.clone()]);
            let (weights, finish) =
                (&params[weights.clone()], Finish { bias, relu: !tanh, ..Finish::default() });
            let input = if layer == 0 { &memory.input } else { &memory.pools[0] };
            profile.time(LAYERS[layer], Pass::Forward, shape.flops(), || {
                compute.conv_forward(shape, input, weights, output, &finish);
                if tanh {
                    compute.tanh(&mut output[..shape.output_len()]);
                }
            });
            compute.average_pool(pool, output, &mut memory.pools[layer]);
        }
        let (pool, flat) = (&shapes.pools[1], &mut memory.dense.flat);
        let pixels = pool.out_height() * pool.out_width();
        compute.swap_channels(images.count, pixels, pool.channels, &memory.pools[1], flat);
        memory.dense.forward(core, params, at, &shapes.dense, *activation);
        &mut memory.dense.logits[..images.count * core.classes]
    }

    fn backward(&mut self, core: &mut ModelCore, images: Images<'_>, step: &mut Step<'_>) {
        let (shapes, tanh) = (self.shapes.with_batch(images.count), self.is_tanh());
        let Self { memory, at, activation, .. } = self;
        memory.dense.backward(core, step, at, &shapes.dense, *activation);
        if core.head_only {
            return;
        }
        let pool = &shapes.pools[1];
        let pixels = pool.out_height() * pool.out_width();
        let (d_flat, d_pool) = (&memory.dense.d_flat, &mut memory.d_pools[1]);
        core.compute.swap_channels(images.count, pool.channels, pixels, d_flat, d_pool);
        for layer in (0..CONVS).rev() {
            let ModelCore { compute, profile, .. } = &mut *core;
            let (shape, pool) = (&shapes.convs[layer], &shapes.pools[layer]);
            let made = &memory.convs[layer][..shape.output_len()];
            let d_made = &mut memory.d_convs[layer][..made.len()];
            let seen = if tanh { &memory.ones[..made.len()] } else { made };
            compute.average_pool_relu_backward(pool, seen, &memory.d_pools[layer], d_made);
            if tanh {
                compute.tanh_backward(made, d_made);
            }
            let d_made = &*d_made;
            let input = if layer == 0 { &memory.input } else { &memory.pools[0] };
            if layer == 1 {
                let (weights, to) = (&step.params[at[1].0.clone()], &mut memory.d_pools[0]);
                profile.time(LAYERS[1], Pass::BackwardInput, shape.flops(), || {
                    compute.conv_backward_input(shape, d_made, weights, to, &Finish::default());
                });
            }
            let named = (LAYERS[layer], shape.flops());
            step.layer(core, named, &at[layer], |compute, d_weights, d_bias| {
                compute.conv_backward_weights(shape, input, d_made, d_weights, d_bias);
            });
        }
    }
}
