//! Training steps of a model on made-up pixels, timed: what advice about other machines rests on.

use anyhow::bail;
use paceline_advisor::oracle::{Layer, Network};
use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::optimizer::{self, Optimizer, Settings, State};
use paceline_models::profile::Pass;
use paceline_models::{Model, ModelOptions, StepContext, kernels::Buffer, registry};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Which model, for which images.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Subject {
    /// Model to advise on; `paceline models` lists them
    #[arg(long)]
    pub(crate) model: String,
    /// Side of the images, in pixels [default: 28 for softmax and lenet, else 224]
    #[arg(long, value_name = "PIXELS")]
    pub(crate) size: Option<usize>,
    /// Classes [default: 10 for softmax and lenet, else 1000]
    #[arg(long)]
    pub(crate) classes: Option<usize>,
}

impl Subject {
    fn schema(&self) -> (Schema, ImageShape, usize) {
        let digits = matches!(self.model.as_str(), "softmax" | "lenet");
        let side = self.size.unwrap_or(if digits { 28 } else { 224 });
        let classes = self.classes.unwrap_or(if digits { 10 } else { 1000 });
        let image = ImageShape { height: side, width: side, channels: if digits { 1 } else { 3 } };
        let names = (0..classes).map(|class| class.to_string()).collect();
        let labels = LabelKind::Classes { names };
        (Schema { features: FeatureKind::Image(image), labels }, image, classes)
    }
}

/// A model that can be stepped.
pub(crate) struct Stepper {
    pub(crate) model: Box<dyn Model>,
    params: Buffer,
    grad: Buffer,
    optimizer: Optimizer,
    state: State,
    batch: Batch,
    step: u64,
}

/// What one step took, in seconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepTime {
    /// All of it.
    pub(crate) whole: f64,
    /// The updates among it.
    pub(crate) update: f64,
    /// Ranges of the gradient as they became final: elements, and seconds of passes until then.
    pub(crate) ready: Vec<(usize, f64)>,
}

impl Stepper {
    pub(crate) fn new(subject: &Subject, examples: usize, threads: usize) -> anyhow::Result<Self> {
        let (schema, image, classes) = subject.schema();
        let batch = Batch {
            features: Features::Pixels {
                values: (0..image.len() * examples).map(|at| (at * 7 % 251) as u8).collect(),
                width: image.len(),
            },
            labels: (0..examples).map(|at| (at % classes) as u32).collect(),
        };
        Self::with(&subject.model, &schema, batch, threads)
    }

    /// A model for examples of its own.
    pub(crate) fn with(
        name: &str,
        schema: &Schema,
        batch: Batch,
        threads: usize,
    ) -> anyhow::Result<Self> {
        let entry = registry::find(name)?;
        let options = ModelOptions { threads, ..ModelOptions::default() };
        let model = (entry.build)(schema, &options)?;
        let sgd = optimizer::find("sgd")?;
        // A rate so small that thousands of steps on made-up pixels stay finite.
        let settings = Settings { rate: 1e-6, ..sgd.defaults };
        let optimizer = Optimizer::new(sgd, settings, model.layout())?;
        let state = optimizer.state();
        let mut params = Buffer::zeroed(model.layout().len());
        let grad = Buffer::zeroed(model.layout().len());
        model.init(1, &mut params);
        Ok(Self { model, params, grad, optimizer, state, batch, step: 0 })
    }

    /// One step with its update.
    pub(crate) fn step(&mut self) -> anyhow::Result<StepTime> {
        let scale = 1.0 / self.batch.len().max(1) as f32;
        let context = StepContext { seed: 1, step: self.step, first_example: 0, scale };
        let pool = self.model.pool().cloned();
        let Self { model, params, grad, optimizer, state, batch, step } = self;
        let mut time = StepTime::default();
        let begun = Instant::now();
        let mut ready = |range: std::ops::Range<usize>, params: &mut [f32], grad: &mut [f32]| {
            let from = Instant::now();
            time.ready.push((range.len(), (from - begun).as_secs_f64() - time.update));
            match &pool {
                Some(pool) => optimizer.update_on(pool, range, params, grad, state, 1e-6, *step),
                None => optimizer.update(range, params, grad, state, 1e-6, *step),
            }
            time.update += from.elapsed().as_secs_f64();
        };
        model.loss_and_grad(params, batch, &context, grad, &mut ready)?;
        time.whole = begun.elapsed().as_secs_f64();
        self.step += 1;
        Ok(time)
    }

    /// Median times of steps over about `span`, after one to warm up.
    pub(crate) fn time(&mut self, span: Duration) -> anyhow::Result<StepTime> {
        self.step()?;
        let begun = Instant::now();
        let mut times = Vec::new();
        while times.len() < 3 || (begun.elapsed() < span && times.len() < 2000) {
            times.push(self.step()?);
        }
        times.sort_by(|a, b| a.whole.total_cmp(&b.whole));
        Ok(times.swap_remove(times.len() / 2))
    }
}

/// Measures a network layer by layer: at two batch sizes, so that what a step takes whatever its batch
/// is told from what every example takes.
pub(crate) fn network(
    subject: &Subject,
    examples: usize,
    threads: usize,
    span: Duration,
) -> anyhow::Result<Network> {
    let small = (examples / 4).max(1);
    let large = examples.max(small + 1);
    let (few, _, _) = layers(subject, small, threads, span)?;
    let (many, update, shapes) = layers(subject, large, threads, span)?;
    let parameters: f64 = shapes.iter().map(|shape| shape.parameters as f64).sum();
    let mut found = Vec::new();
    for (at, shape) in shapes.into_iter().enumerate() {
        let per_example = |pass: usize| {
            let slope = (many[at][pass] - few[at][pass]) / (large - small) as f64;
            slope.clamp(0.0, many[at][pass] / large as f64)
        };
        let (forward, backward) = (per_example(0), per_example(1));
        let fixed = many[at][0] + many[at][1] - large as f64 * (forward + backward);
        found.push(Layer {
            forward,
            backward,
            fixed: fixed.max(0.0),
            update: update * shape.parameters as f64 / parameters,
            name: shape.name,
            input: shape.input,
            output: shape.output,
            kernel: shape.kernel,
            parameters: shape.parameters as f64,
        });
    }
    Ok(Network { name: subject.model.clone(), layers: found })
}

/// Seconds of the forward and the backward pass of every layer of one step, and of its update.
#[allow(clippy::type_complexity)] // used once, just above
fn layers(
    subject: &Subject,
    examples: usize,
    threads: usize,
    span: Duration,
) -> anyhow::Result<(Vec<[f64; 2]>, f64, Vec<paceline_models::shapes::LayerShape>)> {
    let mut stepper = Stepper::new(subject, examples, threads)?;
    let shapes = stepper.model.shapes();
    if shapes.is_empty() {
        bail!(
            "model `{}` is no chain of layers: nothing to distribute but its data",
            subject.model
        );
    }
    let time = stepper.time(span)?;
    let passes = time.whole - time.update;
    let mut rows = vec![[0.0; 2]; shapes.len()];
    if stepper.model.profile().is_some() {
        if let Some(profile) = stepper.model.profile() {
            profile.set(true);
        }
        for _ in 0..3 {
            stepper.step()?;
        }
        let times = stepper.model.profile().map(|profile| profile.layers().to_vec());
        for layer in times.unwrap_or_default() {
            let at = shapes.iter().position(|shape| {
                shape.name == layer.layer || shape.name.starts_with(&format!("{}.", layer.layer))
            });
            if let Some(at) = at {
                let mut seconds = layer.seconds / 3.0;
                if layer.pass == Pass::BackwardWeights {
                    // The update happens inside this pass; it is counted apart.
                    let share = shapes[at].parameters as f64
                        / shapes.iter().map(|shape| shape.parameters as f64).sum::<f64>();
                    seconds = (seconds - time.update * share).max(0.0);
                }
                rows[at][usize::from(layer.pass != Pass::Forward)] += seconds;
            }
        }
    }
    let measured: f64 = rows.iter().flatten().sum();
    if measured > 0.1 * passes {
        // What belongs to no layer (input, loss) is spread over all of them: the sum must be right.
        rows.iter_mut().flatten().for_each(|seconds| *seconds *= passes / measured);
    } else {
        // No layer times: by arithmetic, the backward pass being two products where forward is one.
        let flops: f64 = shapes.iter().map(|shape| shape.flops as f64).sum();
        for (row, shape) in rows.iter_mut().zip(&shapes) {
            let share = shape.flops as f64 / flops;
            *row = [passes * share / 3.0, passes * share * 2.0 / 3.0];
        }
    }
    Ok((rows, time.update, shapes))
}

/// How much longer a step takes when `tasks` workers share this machine's cores, each with its part of
/// them, than for one worker with all cores.
pub(crate) fn sharing(
    subject: &Subject,
    examples: usize,
    tasks: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let cores = paceline_batch::cores().count;
    let alone = Stepper::new(subject, examples, cores)?.time(span)?.whole;
    let threads = (cores / tasks).max(1);
    let mut steppers: Vec<Stepper> = (0..tasks)
        .map(|_| Stepper::new(subject, examples, threads))
        .collect::<anyhow::Result<_>>()?;
    for stepper in &mut steppers {
        stepper.step()?;
    }
    // The same number of steps for all: a worker that has finished would leave its core to the others.
    let steps = (span.as_secs_f64() / alone / tasks as f64).clamp(2.0, 2000.0) as usize;
    let barrier = Barrier::new(tasks);
    let times: Vec<anyhow::Result<f64>> = std::thread::scope(|scope| {
        let running: Vec<_> = steppers
            .iter_mut()
            .map(|stepper| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let begun = Instant::now();
                    for _ in 0..steps {
                        stepper.step()?;
                    }
                    Ok(begun.elapsed().as_secs_f64() / steps as f64)
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a measuring thread panicked")))
            .collect()
    });
    let times: Vec<f64> = times.into_iter().collect::<anyhow::Result<_>>()?;
    Ok((times.iter().sum::<f64>() / tasks as f64 / alone).max(1.0))
}

/// Bytes per second that one task copies to another of the same machine: what a message costs there.
pub(crate) fn copy_rate() -> f64 {
    const BYTES: usize = 64 << 20;
    let from = vec![1u8; BYTES];
    let mut to = vec![0u8; BYTES];
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        let begun = Instant::now();
        to.copy_from_slice(&from);
        std::hint::black_box(&mut to);
        best = best.min(begun.elapsed().as_secs_f64());
    }
    BYTES as f64 / best
}
