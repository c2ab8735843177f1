//! A trained model put to use: the classes of single photos, the score on other data.
//!
//! Both treat examples as training did: the same decoder, size and fit, the model's own options, and weights of a checkpoint.

use crate::{
    RunPlan, TrainError, Which,
    parts::{HeldOut, open_test},
    plan::{features, model_options},
    weights::{ChosenWeights, choose},
};
use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_data::{
    DataError, Fingerprint, Fit, Loader, LoaderOptions, OpenOptions, PhotoFiles, Scratch, Source,
    Split,
    lenient::{Instead, Lenient, log_of},
    open, open_split,
    order::{LastBatch, Shuffle},
    sources,
    subset::hold_out,
};
use paceline_models::{Model, Score, registry};
use paceline_runs::{RunFolder, with_causes};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Bytes of pixels that are scored at once, and most examples of them.
const BATCH_BYTES: usize = 8 << 20;
const MOST_AT_ONCE: usize = 256;
/// Bins of the calibration error, by the probability of the predicted class: the number in general use.
const BINS: usize = 15;
/// Most classes for which all pairs are counted: a thousand make a million counts.
const MOST_PAIRED: usize = 1000;
/// Names of classes that a message lists.
const LISTED: usize = 5;

/// A model with the weights of a checkpoint.
pub struct Trained {
    run: String,
    plan: RunPlan,
    step: u64,
    model: Box<dyn Model>,
    params: Vec<f32>,
    shape: ImageShape,
    classes: Vec<String>,
    threads: usize,
}

/// A class and how probable it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassProbability {
    pub class: String,
    /// Between 0 and 1.
    pub probability: f32,
}

/// What a model says of one photo.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    pub photo: PathBuf,
    /// The most probable classes, most probable first; empty where the photo cannot be used.
    pub classes: Vec<ClassProbability>,
    /// Why the photo cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How good a model is on a data set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DataScore {
    pub model: String,
    /// The step of the weights.
    pub step: u64,
    pub data: String,
    /// The part of it that was scored; all of it where absent.
    pub split: Option<Split>,
    pub examples: u64,
    /// Photos that could not be used.
    pub rejected: u64,
    /// Mean loss, in nats.
    pub loss: f64,
    pub accuracy: f64,
    /// Mean distance between how sure the model is and how often it is right, over 15 bins.
    pub calibration_error: f64,
    pub classes: Vec<ClassScore>,
    /// Row = label, column = prediction, in the order of `classes`; empty with more than 1000 classes.
    pub confusion: Vec<Vec<u64>>,
}

/// How good a model is at one class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassScore {
    pub class: String,
    pub examples: u64,
    /// Examples that were taken for it.
    pub predicted: u64,
    /// Share of those taken for it that are of it; nothing where none was.
    pub precision: Option<f64>,
    /// Share of those of it that were taken for it; nothing where there is none.
    pub recall: Option<f64>,
}

impl Trained {
    /// Reads the weights of a run.
    ///
    /// # Errors
    /// A run without checkpoints, or with damaged ones.
    pub fn load(run: &RunFolder, which: Which) -> Result<Self, TrainError> {
        let ChosenWeights { plan, step, params, .. } = choose(run, which)?;
        let threads = paceline_batch::cores().count;
        let schema = &plan.details.schema;
        let build = registry::find(&plan.spec.model)?.build;
        let model = build(schema, &model_options(&plan.spec, threads))?;
        let FeatureKind::Image(shape) = schema.features else {
            return Err(TrainError::OtherData {
                data: "the model".to_owned(),
                run: run.name(),
                found: "examples of pixels".to_owned(),
                wanted: features(schema),
            });
        };
        let classes = class_names(schema);
        Ok(Self { run: run.name(), step, model, params, shape, classes, threads, plan })
    }

    /// The model's name.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.plan.spec.model
    }

    /// The step of the weights.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The classes it tells apart.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// How photos were made to fit.
    fn fit(&self) -> Fit {
        self.plan.details.fit.as_deref().and_then(Fit::named).unwrap_or_default()
    }

    /// Examples that are scored at once.
    fn at_once(&self) -> usize {
        (BATCH_BYTES / self.shape.len().max(1)).clamp(1, MOST_AT_ONCE)
    }

    /// Tells `each` the most probable classes of every photo, in order, until all are told or `cancel` is raised. A photo that
    /// cannot be used is told with the reason.
    ///
    /// # Errors
    /// `each` failed, or the model did.
    pub fn predict<E: From<TrainError>>(
        &mut self,
        photos: impl IntoIterator<Item = PathBuf>,
        top: usize,
        cancel: &AtomicBool,
        mut each: impl FnMut(Prediction) -> Result<(), E>,
    ) -> Result<(), E> {
        let max_pixels = self.plan.spec.max_pixels;
        let reader =
            PhotoFiles::new(self.shape, self.fit(), max_pixels).map_err(TrainError::from)?;
        let (mut photos, at_once) = (photos.into_iter(), self.at_once());
        loop {
            let paths: Vec<PathBuf> = photos.by_ref().take(at_once).collect();
            if paths.is_empty() || cancel.load(Ordering::Relaxed) {
                return Ok(());
            }
            let (batch, errors) = read_all(&reader, &paths, self.shape.len(), self.threads);
            let mut score = Score { probabilities: Some(Vec::new()), ..Score::default() };
            if !batch.is_empty() {
                self.model.score(&self.params, &batch, &mut score).map_err(TrainError::from)?;
            }
            let probabilities = score.probabilities.unwrap_or_default();
            let mut rows = probabilities.chunks_exact(self.classes.len());
            for (photo, error) in paths.into_iter().zip(errors) {
                let row = if error.is_none() { rows.next().unwrap_or_default() } else { &[] };
                let classes = self.most_probable(row, top);
                each(Prediction { photo, classes, error })?;
            }
        }
    }

    fn most_probable(&self, probabilities: &[f32], top: usize) -> Vec<ClassProbability> {
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]).then(a.cmp(&b)));
        order.truncate(top);
        let named = order.into_iter().map(|class| ClassProbability {
            class: self.classes[class].clone(),
            probability: probabilities[class].clamp(0.0, 1.0),
        });
        named.collect()
    }

    /// Scores a data set: `split` of it; where none is asked for, the held-out part of the data that the run was trained on, and
    /// all of other data. `progress` is told how many examples of how many are scored. Nothing where `cancel` was raised.
    ///
    /// # Errors
    /// Data of other classes or another shape, by name; data that cannot be read.
    pub fn evaluate(
        &mut self,
        data: &str,
        split: Option<Split>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<DataScore>, TrainError> {
        let (split, source) = self.open(data, split)?;
        let to_ours = self.check(data, source.schema())?;
        let log = log_of(&[&*source], None)?;
        let source = Lenient::around(source, &log, Instead::Nothing);
        let all = source.len();
        let options = LoaderOptions {
            batch_size: self.at_once().min(usize::try_from(all).unwrap_or(usize::MAX)).max(1)
                as u64,
            shuffle: Shuffle::None,
            last: LastBatch::Keep,
            epochs: Some(1),
            threads: self.threads,
            ..LoaderOptions::default()
        };
        let mut loader = Loader::new(source, options)?;
        let mut tally = Tally::new(self.classes.len());
        while let Some(batch) = loader.next_batch()? {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if batch.is_empty() {
                continue;
            }
            let mut batch = batch.clone();
            for label in &mut batch.labels {
                *label = to_ours.get(*label as usize).copied().unwrap_or(*label);
            }
            tally.score.probabilities = Some(Vec::new());
            self.model.score(&self.params, &batch, &mut tally.score)?;
            tally.add(&batch.labels);
            progress(tally.score.total.examples, all);
        }
        let rejected = log.list().len() as u64;
        if tally.score.total.examples == 0 {
            let why = "no photo in it can be used".to_owned();
            return Err(DataError::NoExamples { path: data.into(), why }.into());
        }
        let score = tally.result(&self.classes);
        let model = self.plan.spec.model.clone();
        Ok(Some(DataScore {
            model,
            step: self.step,
            data: data.to_owned(),
            split,
            rejected,
            ..score
        }))
    }

    fn open(
        &self,
        data: &str,
        split: Option<Split>,
    ) -> Result<(Option<Split>, Arc<dyn Source>), TrainError> {
        let path = Path::new(data);
        let is_photos = sources::detect(path)?.name == sources::photos::ENTRY.name;
        let side = |side: usize| u32::try_from(side).unwrap_or(u32::MAX);
        let options = OpenOptions {
            // Photos are resized while they are read, as in training; whatever is stored has its size.
            size: is_photos.then(|| (side(self.shape.width), side(self.shape.height))),
            fit: self.fit(),
            max_pixels: self.plan.spec.max_pixels.filter(|_| is_photos),
            ..OpenOptions::default()
        };
        if split.is_some() {
            return Ok((split, open_split(path, split.unwrap_or(Split::Test), &options)?));
        }
        if let Some((split, held_out)) = self.held_out_of_own(data, &options)? {
            return Ok((Some(split), held_out));
        }
        Ok((None, open(path, &options)?))
    }

    /// The held-out part of the data, if they are those that the run was trained on.
    fn held_out_of_own(
        &self,
        data: &str,
        options: &OpenOptions,
    ) -> Result<Option<HeldOut>, TrainError> {
        let Some(own) = &self.plan.details.data else { return Ok(None) };
        let train = match open_split(data, Split::Train, options) {
            Ok(train) => train,
            Err(DataError::NoSplit { .. } | DataError::NoExamples { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // A share of the training examples may have been held out instead of the data's own part.
        let share = self.plan.spec.validation_split;
        let (train, held_out) = match share.and_then(|share| hold_out(&train, share)) {
            Some((train, test)) => (train, Some((Split::Validation, test))),
            None => (train, open_test(data, options)?),
        };
        let Some((split, test)) = held_out else { return Ok(None) };
        let found = Fingerprint::of(&*train, Some(&*test))?;
        Ok((found == *own).then_some((split, test)))
    }

    /// Which of our classes each class of the data is; refuses those that we do not have.
    fn check(&self, data: &str, schema: &Schema) -> Result<Vec<u32>, TrainError> {
        let other = |found: String, wanted: String| TrainError::OtherData {
            data: data.to_owned(),
            run: self.run.clone(),
            found,
            wanted,
        };
        let own = &self.plan.details.schema;
        if schema.features != own.features {
            return Err(other(features(schema), features(own)));
        }
        let theirs = class_names(schema);
        let ours = |name: &String| self.classes.iter().position(|own| own == name);
        let unknown: Vec<&String> = theirs.iter().filter(|name| ours(name).is_none()).collect();
        if !unknown.is_empty() {
            let found = format!("classes {}", listed(unknown.into_iter()));
            return Err(other(found, format!("classes {} only", listed(self.classes.iter()))));
        }
        Ok(theirs.iter().filter_map(ours).map(|class| class as u32).collect())
    }
}

/// The first names of a list, and how many more there are.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = names.len().saturating_sub(LISTED);
    let mut text: Vec<String> = names.take(LISTED).map(|name| format!("`{name}`")).collect();
    if more > 0 {
        text.push(format!("{more} more"));
    }
    text.join(", ")
}

fn class_names(schema: &Schema) -> Vec<String> {
    match &schema.labels {
        LabelKind::Classes { names } => names.clone(),
        LabelKind::Binary => vec!["0".to_owned(), "1".to_owned()],
    }
}

/// Reads photos on several threads: those that can be used as one batch, and for each why it cannot.
fn read_all(
    reader: &PhotoFiles,
    paths: &[PathBuf],
    width: usize,
    threads: usize,
) -> (Batch, Vec<Option<String>>) {
    let mut pixels = vec![0; width * paths.len()];
    let mut errors = vec![None; paths.len()];
    let share = paths.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        let parts = paths.chunks(share).zip(errors.chunks_mut(share));
        for ((paths, errors), pixels) in parts.zip(pixels.chunks_mut(share * width)) {
            scope.spawn(move || {
                let mut scratch = Scratch::default();
                let slots = pixels.chunks_exact_mut(width).zip(errors);
                for (path, (pixels, error)) in paths.iter().zip(slots) {
                    *error =
                        reader.read(path, &mut scratch, pixels).err().map(|it| with_causes(&it));
                }
            });
        }
    });
    let mut kept = Batch::pixels(width, paths.len());
    let Features::Pixels { values, .. } = &mut kept.features else {
        unreachable!("made of pixels in the line above");
    };
    for (pixels, _) in pixels.chunks_exact(width).zip(&errors).filter(|(_, error)| error.is_none())
    {
        values.extend_from_slice(pixels);
        // The class is not known; the loss that follows from this one is not looked at.
        kept.labels.push(0);
    }
    (kept, errors)
}

/// Counts over an evaluation.
struct Tally {
    score: Score,
    classes: usize,
    /// By class: examples of it, taken for it, both.
    counts: Vec<[u64; 3]>,
    /// By probability of the predicted class: examples, sum of probabilities, hits.
    bins: [(u64, f64, u64); BINS],
}

impl Tally {
    fn new(classes: usize) -> Self {
        let pairs = if classes <= MOST_PAIRED { classes * classes } else { 0 };
        Self {
            score: Score { confusion: vec![0; pairs], ..Score::default() },
            classes,
            counts: vec![[0; 3]; classes],
            bins: [(0, 0.0, 0); BINS],
        }
    }

    /// Adds the examples whose probabilities the score holds.
    fn add(&mut self, labels: &[u32]) {
        let probabilities = self.score.probabilities.take().unwrap_or_default();
        for (row, &label) in probabilities.chunks_exact(self.classes).zip(labels) {
            let sure = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // The first of equals, as the model's own count has it.
            let predicted = row.iter().position(|&value| value == sure).unwrap_or(0);
            let hit = predicted == label as usize;
            self.counts[label as usize][0] += 1;
            self.counts[predicted][1] += 1;
            self.counts[predicted][2] += u64::from(hit);
            let bin = &mut self.bins[((sure * BINS as f32) as usize).min(BINS - 1)];
            bin.0 += 1;
            bin.1 += f64::from(sure);
            bin.2 += u64::from(hit);
        }
    }

    fn result(self, names: &[String]) -> DataScore {
        let total = self.score.total;
        let examples = total.examples.max(1) as f64;
        let gap = |bin: &(u64, f64, u64)| (bin.1 - bin.2 as f64).abs();
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let classes =
            names.iter().zip(&self.counts).map(|(name, &[own, taken, both])| ClassScore {
                class: name.clone(),
                examples: own,
                predicted: taken,
                precision: share(both, taken),
                recall: share(both, own),
            });
        DataScore {
            model: String::new(),
            step: 0,
            data: String::new(),
            split: None,
            examples: total.examples,
            rejected: 0,
            loss: total.loss_sum / examples,
            accuracy: total.correct as f64 / examples,
            calibration_error: self.bins.iter().map(gap).sum::<f64>() / examples,
            classes: classes.collect(),
            confusion: self.score.confusion.chunks(self.classes).map(<[u64]>::to_vec).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sure_model_that_is_right_half_the_time_is_badly_calibrated() {
        let mut tally = Tally::new(2);
        tally.score.probabilities = Some([0.9, 0.1].repeat(10));
        tally.add(&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        tally.score.total.examples = 10;
        tally.score.total.correct = 5;
        let names = ["a".to_owned(), "b".to_owned()];
        let score = tally.result(&names);
        assert!((score.calibration_error - 0.4).abs() < 1e-6, "{}", score.calibration_error);
        assert_eq!(score.classes[0].precision, Some(0.5));
        assert_eq!(score.classes[0].recall, Some(1.0));
        assert_eq!(score.classes[1].precision, None, "nothing was taken for it");
        assert_eq!(score.classes[1].recall, Some(0.0));
    }
}
