//! A model and a data set small enough to reason about, for tests of the trainer itself.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of it
#![allow(clippy::unwrap_used)]

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_data::{DataError, Scratch, Source, Split};
use paceline_models::{
    Layout, Model, ModelError, ModelOptions, Ready, Score, StepContext, StepLoss,
};
use paceline_runs::{Evaluation, RunFolder};
use paceline_training::{Control, Observer, Parts, Progress, RunPlan, RunSpec, Start, Stop, train};
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

pub const SIDE: usize = 6;
pub const CLASSES: usize = 3;
const WIDTH: usize = SIDE * SIDE;

/// Examples whose label can be read off the brightest third, with noise.
#[derive(Debug)]
pub struct Toy {
    schema: Schema,
    len: u64,
    offset: u64,
    /// Class count claimed by the schema; labels stay below 3.
    pub side: usize,
}

impl Toy {
    pub fn new(len: u64, offset: u64) -> Self {
        Self::shaped(len, offset, SIDE, CLASSES)
    }

    pub fn shaped(len: u64, offset: u64, side: usize, classes: usize) -> Self {
        let names = (0..classes).map(|class| format!("class {class}")).collect();
        let shape = ImageShape { height: side, width: side, channels: 1 };
        let schema =
            Schema { features: FeatureKind::Image(shape), labels: LabelKind::Classes { names } };
        Self { schema, len, offset, side }
    }
}

fn hash(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Source for Toy {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, index: u64, _: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        let label = hash(index + self.offset) % CLASSES as u64;
        for (i, pixel) in pixels.iter_mut().enumerate() {
            let noise = hash((index + self.offset) * 1_000 + i as u64) % 120;
            let bright = i as u64 % CLASSES as u64 == label;
            *pixel = (noise + if bright { 100 } else { 0 }) as u8;
        }
        Ok(label as u32)
    }

    fn resident(&self) -> bool {
        true
    }
}

/// Softmax regression in plain loops; the bias comes last, as in every model.
struct Tiny {
    layout: Layout,
    classes: usize,
    width: usize,
}

pub fn build(schema: &Schema, _: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let FeatureKind::Image(shape) = schema.features else { unreachable!() };
    if shape.height != SIDE {
        return Err(ModelError::Mismatch {
            model: "tiny",
            needs: format!("images of {SIDE}x{SIDE}x1"),
            has: format!("images of {shape}"),
        });
    }
    let classes = schema.labels.classes();
    let mut layout = Layout::default();
    layout.push("dense.weight", &[classes, WIDTH], true);
    layout.push("dense.bias", &[classes], true);
    Ok(Box::new(Tiny { layout, classes, width: WIDTH }))
}

impl Tiny {
    fn example<'a>(&self, batch: &'a Batch, at: usize) -> impl Iterator<Item = f32> + 'a {
        let Features::Pixels { values, .. } = &batch.features else { unreachable!() };
        values[at * self.width..(at + 1) * self.width].iter().map(|byte| f32::from(*byte) / 255.0)
    }

    /// Class probabilities and loss of one example.
    fn forward(&self, params: &[f32], batch: &Batch, at: usize) -> (Vec<f32>, f64, bool) {
        let (weights, bias) = params.split_at(self.classes * self.width);
        let logits: Vec<f32> = (0..self.classes)
            .map(|class| {
                let row = &weights[class * self.width..(class + 1) * self.width];
                bias[class]
                    + row.iter().zip(self.example(batch, at)).map(|(w, x)| w * x).sum::<f32>()
            })
            .collect();
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
        let label = batch.labels[at] as usize;
        let loss = f64::from(total.ln() + most - logits[label]);
        let hit = logits.iter().all(|logit| *logit <= logits[label]);
        (logits.iter().map(|logit| (logit - most).exp() / total).collect(), loss, hit)
    }
}

impl Model for Tiny {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn init(&self, seed: u64, params: &mut [f32]) {
        for (i, value) in params.iter_mut().enumerate() {
            *value = (hash(seed * 7_919 + i as u64) % 1_000) as f32 / 10_000.0 - 0.05;
        }
    }

    fn loss_and_grad(
        &mut self,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> Result<StepLoss, ModelError> {
        grad.fill(0.0);
        let mut total = StepLoss { examples: batch.len() as u64, ..StepLoss::default() };
        for at in 0..batch.len() {
            let (shares, loss, hit) = self.forward(params, batch, at);
            total.loss_sum += loss;
            total.correct += u64::from(hit);
            for class in 0..self.classes {
                let target = f32::from(u8::from(batch.labels[at] as usize == class));
                let slope = (shares[class] - target) * context.scale;
                for (i, x) in self.example(batch, at).enumerate() {
                    grad[class * self.width + i] += slope * x;
                }
                grad[self.classes * self.width + class] += slope;
            }
        }
        for entry in self.layout.entries().iter().rev() {
            let range = entry.range();
            ready(range.clone(), &mut params[range.clone()], &mut grad[range]);
        }
        Ok(total)
    }

    fn score(
        &mut self,
        params: &[f32],
        batch: &Batch,
        score: &mut Score,
    ) -> Result<(), ModelError> {
        for at in 0..batch.len() {
            let (shares, loss, hit) = self.forward(params, batch, at);
            score.total.loss_sum += loss;
            score.total.correct += u64::from(hit);
            score.total.examples += 1;
            if !score.confusion.is_empty() {
                let guess = (0..self.classes).max_by(|a, b| shares[*a].total_cmp(&shares[*b]));
                score.confusion[batch.labels[at] as usize * self.classes + guess.unwrap()] += 1;
            }
        }
        Ok(())
    }
}

pub fn parts() -> Parts {
    let test: Arc<dyn Source> = Arc::new(Toy::new(90, 1 << 20));
    let test = Some((Split::Test, test));
    Parts {
        build,
        train: Arc::new(Toy::new(500, 0)),
        test,
        fingerprint: None,
        rejects: Arc::default(),
    }
}

pub fn spec() -> RunSpec {
    RunSpec {
        batch_size: 20,
        learning_rate: Some(0.2),
        optimizer: "momentum".into(),
        momentum: Some(0.9),
        threads: Some(1),
        seed: 5,
        stop: Stop { steps: Some(60), ..Stop::default() },
        ..RunSpec::new("tiny", "toy")
    }
}

/// Remembers what it is told, and asks to stop at a step.
#[derive(Default)]
pub struct SessionObserver {
    pub cancel: AtomicBool,
    pub cancel_at: AtomicU64,
    pub warnings: Mutex<Vec<String>>,
    pub evaluations: Mutex<Vec<Evaluation>>,
    pub saved: Mutex<Vec<u64>>,
    pub run: Mutex<Option<RunFolder>>,
    pub first_step: AtomicU64,
}

impl SessionObserver {
    pub fn stopping_at(step: u64) -> Self {
        Self { cancel_at: AtomicU64::new(step), ..Self::default() }
    }

    pub fn control(&self) -> Control<'_> {
        Control { cancel: &self.cancel, observer: self }
    }

    pub fn run(&self) -> RunFolder {
        self.run.lock().unwrap().clone().unwrap()
    }
}

impl Observer for SessionObserver {
    fn started(&self, _: &RunPlan, run: &RunFolder, first_step: u64) {
        *self.run.lock().unwrap() = Some(run.clone());
        self.first_step.store(first_step, Ordering::Relaxed);
    }

    fn progressed(&self, progress: &Progress) {
        let at = self.cancel_at.load(Ordering::Relaxed);
        if at > 0 && progress.step >= at {
            self.cancel.store(true, Ordering::Relaxed);
        }
    }

    fn evaluated(&self, evaluation: &Evaluation) {
        self.evaluations.lock().unwrap().push(evaluation.clone());
    }

    fn saved(&self, step: u64) {
        self.saved.lock().unwrap().push(step);
    }

    fn warned(&self, text: &str) {
        self.warnings.lock().unwrap().push(text.to_string());
    }
}

/// Trains in `out` and returns summary and run folder.
pub fn run(spec: &RunSpec, out: &Path) -> (paceline_runs::Summary, RunFolder) {
    let watcher = SessionObserver::default();
    let start = Start::New { out: out.to_path_buf() };
    let summary = train(spec, &parts(), &start, &watcher.control()).unwrap();
    (summary, watcher.run())
}

/// The weights of a run's latest checkpoint, as they lie on disk.
pub fn weights(run: &RunFolder) -> Vec<u8> {
    let folder = run.checkpoints_path();
    let latest =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    std::fs::read(latest.join("weights.safetensors")).unwrap()
}
