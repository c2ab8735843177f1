//! Training steps of a model on made-up pixels, timed: what advice about other machines rests on.

use super::{local_sums, memory};
use crate::error::ForecastError;
use crate::oracle::{Layer, Network};
use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::optimizer::{self, Optimizer, OptimizerSettings, OptimizerState};
use paceline_models::profile::{LayerTime, Pass};
use paceline_models::registry::{self, KnownInput};
use paceline_models::{Model, ModelOptions, StepContext, kernels::Buffer};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Which model, for which images.
#[derive(Debug, Clone)]
pub struct Subject {
    /// A model of the registry.
    pub model: String,
    /// Side of the images, in pixels; without it what the model is known for.
    pub size: Option<usize>,
    /// Without it those of the examples the model is known for.
    pub classes: Option<usize>,
}

impl Subject {
    /// The schema of its examples, the shape of their images, and the number of classes.
    #[must_use]
    pub fn schema(&self) -> (Schema, ImageShape, usize) {
        // A name that is not in the registry is refused where the model is built.
        let known =
            registry::find(&self.model).map_or(KnownInput::PHOTOGRAPHS, |entry| entry.known_for);
        let side = self.size.unwrap_or(known.side);
        let classes = self.classes.unwrap_or(known.classes);
        let image = ImageShape { height: side, width: side, channels: known.channels };
        let names = (0..classes).map(|class| class.to_string()).collect();
        let labels = LabelKind::Classes { names };
        (Schema { features: FeatureKind::Image(image), labels }, image, classes)
    }
}

/// A model that can be stepped.
pub struct Stepper {
    pub model: Box<dyn Model>,
    params: Buffer,
    grad: Buffer,
    optimizer: Optimizer,
    state: OptimizerState,
    batch: Batch,
    step: u64,
}

/// What one step took, in seconds.
#[derive(Debug, Clone, Default)]
pub struct StepTime {
    pub whole: f64,
    /// The updates among it.
    pub update: f64,
    /// Ranges of the gradient as they became final: elements, and seconds of passes until then.
    pub ready: Vec<(usize, f64)>,
}

impl Stepper {
    /// A model with a batch of made-up pixels.
    pub fn new(subject: &Subject, examples: usize, threads: usize) -> Result<Self, ForecastError> {
        let (schema, image, classes) = subject.schema();
        let options = ModelOptions { threads, ..ModelOptions::default() };
        let model = (registry::find(&subject.model)?.build)(&schema, &options)?;
        memory::check(&*model, &schema, examples)?;
        let batch = Batch {
            features: Features::Pixels {
                values: (0..image.len() * examples).map(|at| (at * 7 % 251) as u8).collect(),
                width: image.len(),
            },
            labels: (0..examples).map(|at| (at % classes) as u32).collect(),
        };
        Self::around(model, batch)
    }

    /// A model for examples of its own.
    pub fn with(
        name: &str,
        schema: &Schema,
        batch: Batch,
        threads: usize,
    ) -> Result<Self, ForecastError> {
        let entry = registry::find(name)?;
        let options = ModelOptions { threads, ..ModelOptions::default() };
        Self::around((entry.build)(schema, &options)?, batch)
    }

    fn around(model: Box<dyn Model>, batch: Batch) -> Result<Self, ForecastError> {
        let sgd = optimizer::find("sgd")?;
        // A rate so small that thousands of steps on made-up pixels stay finite.
        let settings = OptimizerSettings { rate: 1e-6, ..sgd.defaults };
        let optimizer = Optimizer::new(sgd, settings, model.layout())?;
        let state = optimizer.state();
        let mut params = Buffer::zeroed(model.layout().len());
        let grad = Buffer::zeroed(model.layout().len());
        model.init(1, &mut params);
        Ok(Self { model, params, grad, optimizer, state, batch, step: 0 })
    }

    /// One step with its update.
    pub fn step(&mut self) -> Result<StepTime, ForecastError> {
        let scale = 1.0 / self.batch.len().max(1) as f32;
        let context = StepContext {
            seed: 1,
            step: self.step,
            first_example: 0,
            scale,
            keeps_gradient: false,
        };
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

    /// Times `steps` steps without their updates, layer by layer, after one to warm up: seconds of a step,
    /// and of every layer and pass over all of them. Nothing for a model that does not time its layers.
    pub fn profile(&mut self, steps: u32) -> Result<Option<(f64, Vec<LayerTime>)>, ForecastError> {
        if self.model.profile().is_none() {
            return Ok(None);
        }
        let scale = 1.0 / self.batch.len().max(1) as f32;
        let Self { model, params, grad, batch, step, .. } = self;
        let mut pass = |model: &mut dyn Model| -> Result<(), ForecastError> {
            let context = StepContext {
                seed: 1,
                step: *step,
                first_example: 0,
                scale,
                keeps_gradient: false,
            };
            model.loss_and_grad(params, batch, &context, grad, &mut |_, _, _| ())?;
            *step += 1;
            Ok(())
        };
        pass(&mut **model)?;
        if let Some(profile) = model.profile() {
            profile.set(true);
        }
        let begun = Instant::now();
        for _ in 0..steps {
            pass(&mut **model)?;
        }
        let seconds = begun.elapsed().as_secs_f64() / f64::from(steps);
        let layers = model.profile().map(|profile| profile.layers().to_vec());
        if let Some(profile) = model.profile() {
            profile.set(false);
        }
        Ok(Some((seconds, layers.unwrap_or_default())))
    }

    /// Median times of steps over about `span`, after one to warm up.
    pub fn time(&mut self, span: Duration) -> Result<StepTime, ForecastError> {
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

/// Steps that are timed layer by layer.
const PROFILED: u32 = 4;

/// Measures a network layer by layer: at two batch sizes, so that what a step takes whatever its batch
/// is told from what every example takes.
pub fn network(
    subject: &Subject,
    examples: usize,
    threads: usize,
    span: Duration,
) -> Result<Network, ForecastError> {
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
) -> Result<(Vec<[f64; 2]>, f64, Vec<paceline_models::shapes::LayerShape>), ForecastError> {
    let mut stepper = Stepper::new(subject, examples, threads)?;
    let shapes = stepper.model.shapes();
    if shapes.is_empty() {
        return Err(ForecastError::NotAChain { model: subject.model.clone() });
    }
    let time = stepper.time(span)?;
    let passes = time.whole - time.update;
    let mut rows = vec![[0.0; 2]; shapes.len()];
    for layer in stepper.profile(PROFILED)?.map(|found| found.1).unwrap_or_default() {
        // Layers that are timed as one are named together: each has its share by arithmetic.
        let named = |name: &str| {
            let within = format!("{name}.");
            shapes.iter().position(|shape| shape.name == name || shape.name.starts_with(&within))
        };
        let found: Vec<usize> = layer.layer.split(", ").filter_map(named).collect();
        let flops: f64 = found.iter().map(|&at| shapes[at].flops as f64).sum();
        let pass = usize::from(layer.pass != Pass::Forward);
        for at in found {
            let share = shapes[at].flops as f64 / flops;
            rows[at][pass] += layer.seconds / f64::from(PROFILED) * share;
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

/// How much longer a common step takes when `tasks` workers share this machine's cores than one of them
/// takes alone: all begin together and the step is over when the last is done, as in synchronous
/// training, and they wait for each other as its workers do. `threads` is that of each.
pub fn sharing(
    subject: &Subject,
    examples: usize,
    tasks: usize,
    threads: usize,
    span: Duration,
) -> Result<f64, ForecastError> {
    let mut alone = Stepper::new(subject, examples, threads)?;
    let alone = alone.time(span)?.whole;
    let steps = (span.as_secs_f64() / alone / tasks as f64).clamp(3.0, 2000.0) as usize;
    let mut workers = Vec::new();
    for group in local_sums::ranks(tasks)? {
        workers.push((Stepper::new(subject, examples, threads)?, group));
    }
    let times = at_once(&mut workers, |(stepper, group)| {
        // Twice to warm up and to settle on cores.
        let mut begun = Instant::now();
        for step in 0..steps + 2 {
            if step == 2 {
                begun = Instant::now();
            }
            stepper.step()?;
            group.barrier(&local_sums::wait())?;
        }
        Ok(begun.elapsed().as_secs_f64() / steps as f64)
    })?;
    let common = times.iter().sum::<f64>() / tasks as f64;
    Ok((common / alone).max(1.0))
}

/// How much longer a step takes while all of `steppers` step, each by itself, than for one alone.
pub fn contention(steppers: &mut [Stepper], span: Duration) -> Result<f64, ForecastError> {
    let alone = steppers[0].time(span)?.whole;
    let times = at_once(steppers, |stepper| Ok(stepper.time(span)?.whole))?;
    Ok((times.iter().sum::<f64>() / times.len() as f64 / alone).max(1.0))
}

/// How much longer a step takes on a core whose caches another worker's step has just filled.
pub fn cold(steppers: &mut [Stepper; 2], span: Duration) -> Result<f64, ForecastError> {
    let alone = steppers[0].time(span)?.whole;
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || (begun.elapsed() < 2 * span && times.len() < 2000) {
        steppers[1].step()?;
        times.push(steppers[0].step()?.whole);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2] / alone).max(1.0))
}

/// The same work on a thread for each of `workers`.
pub(super) fn at_once<W: Send, T: Send>(
    workers: &mut [W],
    work: impl Fn(&mut W) -> Result<T, ForecastError> + Sync,
) -> Result<Vec<T>, ForecastError> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(move || work(worker))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(ForecastError::ThreadPanicked)))
            .collect()
    })
}

/// Seconds until a thread that sleeps runs after it was woken, while its core has nothing else to do: a virtual
/// machine may have to wake the core first. The median of some tries.
pub fn wake() -> f64 {
    const TRIES: usize = 41;
    let (told, changed) = (Mutex::new(None::<Instant>), Condvar::new());
    let answered = AtomicUsize::new(0);
    let spin = |over: &dyn Fn() -> bool| {
        while !over() {
            std::hint::spin_loop();
        }
    };
    let mut times = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut times = Vec::with_capacity(TRIES);
            let mut guard = told.lock().unwrap_or_else(PoisonError::into_inner);
            while times.len() < TRIES {
                if let Some(at) = guard.take() {
                    times.push(at.elapsed().as_secs_f64());
                    answered.store(times.len(), Ordering::Release);
                } else {
                    guard = changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
                }
            }
            times
        });
        for done in 0..TRIES {
            // Long enough for the other to fall asleep.
            let begun = Instant::now();
            spin(&|| begun.elapsed() > Duration::from_micros(200));
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            changed.notify_all();
            spin(&|| answered.load(Ordering::Acquire) > done);
        }
        sleeper.join().unwrap_or_default()
    });
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// Bytes per second of copying so many bytes: small messages stay in the caches.
pub fn copy_rate(bytes: usize) -> f64 {
    let bytes = bytes.clamp(4 << 10, 64 << 20);
    let from = vec![1u8; bytes];
    let mut to = vec![0u8; bytes];
    let mut best = f64::INFINITY;
    for _ in 0..(256 << 20) / bytes.max(1 << 20) {
        let begun = Instant::now();
        to.copy_from_slice(&from);
        std::hint::black_box(&mut to);
        best = best.min(begun.elapsed().as_secs_f64());
    }
    bytes as f64 / best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of LeNet's two convolutions, which are timed as one, was given to its dense layers.
    #[test]
    fn layers_that_are_timed_as_one_have_their_time() {
        let subject = Subject { model: "lenet".to_owned(), size: None, classes: None };
        let (rows, _, shapes) = layers(&subject, 16, 1, Duration::from_millis(50)).unwrap();
        for (row, shape) in rows.iter().zip(&shapes) {
            assert!(row.iter().all(|seconds| *seconds > 0.0), "{}: {row:?}", shape.name);
        }
    }
}
