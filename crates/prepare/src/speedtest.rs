//! How fast can examples be read? A grid of measurements over batch size, number of batches and repetitions.
//!
//! Every setting is measured for every source once per repetition, each repetition in a random order of its own: slow changes of
//! the machine then spread over all settings instead of favouring one. Each measurement is on disk ([`journal`]) before the next
//! begins, so a test that is stopped or killed goes on where it was.
//!
//! **What is timed:** from asking for the first batch to having the last: reading, decoding, resizing, assembling, on all threads
//! of the loader. **What is not:** opening the source (listing folders, reading indices), starting threads, the warm-up; opening
//! and setting up are reported beside the speed. A measurement reads a set of `batch size × batches` examples, chosen by
//! the seed, the same in every repetition; nothing is decoded beyond it.

mod cells;
mod cold;
mod error;
mod journal;
mod plan;
mod subset;

pub use cells::{Distributed, forget, measure_cells};
pub use cold::{ColdMethod, PageCache};
pub use error::SpeedTestError;
pub use journal::JOURNAL;
pub use plan::{Run, plan};

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use journal::Journal;
use paceline_data::{
    Loader, LoaderOptions, OpenOptions, Source,
    lenient::{Instead, Lenient, log_of},
    loader::Cached,
    order::{LastBatch, Shuffle},
    rejects::{Reject, RejectLimit, RejectLog},
    source::image_shape,
};
use paceline_store as store;
use subset::Subset;

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadKind {
    /// One file per image, in class folders.
    ImageFiles,
    /// Shards of records.
    Records,
}

impl ReadKind {
    /// Its name in sentences.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ImageFiles => "image files",
            Self::Records => "records",
        }
    }
}

/// One thing to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadTarget {
    pub kind: ReadKind,
    pub path: PathBuf,
}

/// What to measure. Equal settings continue a test, others need a folder of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpeedTestSettings {
    /// What is read; the first is what others are compared with.
    pub targets: Vec<ReadTarget>,
    /// Examples per batch.
    pub batch_sizes: Vec<u64>,
    /// Batches per measurement.
    pub batches: Vec<u64>,
    /// How often every setting is measured.
    pub repeats: u64,
    /// Drop the page cache before every measurement.
    pub cold: bool,
    /// Keep decoded examples from one repetition of a setting to the next.
    pub cache: bool,
    /// Decides the order of measurements and the choice of examples.
    pub seed: u64,
    /// Threads that decode.
    pub threads: usize,
    /// Width and height images are resized to; the stored or usual size without.
    pub size: Option<(u32, u32)>,
    /// Most pixels of a photo; the usual limit without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pixels: Option<u64>,
    /// How many photos of the set may be rejected; no limit without. A test may continue with another limit.
    #[serde(skip)]
    pub max_rejects: Option<RejectLimit>,
}

impl SpeedTestSettings {
    fn check(&self) -> Result<(), SpeedTestError> {
        for (what, values) in [("batch sizes", &self.batch_sizes), ("batches", &self.batches)] {
            if values.is_empty() || values.contains(&0) {
                return Err(SpeedTestError::NotPositive { what });
            }
        }
        if self.repeats == 0 {
            return Err(SpeedTestError::NotPositive { what: "repeats" });
        }
        if self.threads == 0 {
            return Err(SpeedTestError::NotPositive { what: "threads" });
        }
        if self.targets.is_empty() {
            return Err(SpeedTestError::NothingToRead);
        }
        let largest = |values: &[u64]| values.iter().copied().max().unwrap_or(0);
        let (size, batches) = (largest(&self.batch_sizes), largest(&self.batches));
        if size.checked_mul(batches).is_none_or(|images| images > MOST_IMAGES) {
            return Err(SpeedTestError::TooLarge { size, batches });
        }
        Ok(())
    }

    /// Examples of the largest setting.
    fn most_images(&self) -> u64 {
        let largest = |values: &[u64]| values.iter().copied().max().unwrap_or(0);
        largest(&self.batch_sizes) * largest(&self.batches)
    }
}

/// A measurement beyond this many images is a typing error.
const MOST_IMAGES: u64 = 1 << 40;

/// Decoded examples kept with [`Settings::cache`], over all settings. Bytes.
const CACHE_BYTES: u64 = 1 << 30;

/// One measurement, raw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Place in the order of measuring, from 0.
    pub order: u64,
    pub source: ReadKind,
    /// Examples per batch.
    pub batch_size: u64,
    pub batches: u64,
    /// Which repetition, from 1.
    pub repetition: u64,
    /// Examples delivered.
    pub images: u64,
    /// From asking for the first batch to having the last.
    pub seconds: f64,
    /// `images / seconds`.
    pub images_per_second: f64,
    /// Decoded bytes delivered.
    pub bytes: u64,
    /// Bytes that came from storage rather than from the page cache, where the system counts them.
    pub storage_bytes: Option<u64>,
    /// Of the examples, those found decoded in the cache.
    pub cached: u64,
    /// Time for starting threads, before the clock.
    pub setup_seconds: f64,
    /// Host it was measured on, where an engine chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// What is known about a source after opening it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    pub source: ReadKind,
    pub path: PathBuf,
    pub examples: u64,
    /// Width and height of decoded examples.
    pub size: (usize, usize),
    /// Time to open it: list folders, read indices.
    pub open_seconds: f64,
    /// Assumptions made, and warnings.
    pub remarks: Vec<String>,
}

/// A finished or interrupted test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpeedTestOutcome {
    pub sources: Vec<Opened>,
    /// All measurements, those of earlier calls included, in the order of measuring.
    pub samples: Vec<Sample>,
    /// Measurements taken over from an earlier call.
    pub resumed: u64,
    /// Whether all measurements are there.
    pub complete: bool,
    /// How the page cache was dropped, if it was.
    pub cold: Option<ColdMethod>,
    /// Photos that this call tried to read, and those that could not even be tried.
    pub photos: u64,
    /// Of these, the ones that were left out, and why.
    pub rejects: Vec<Reject>,
}

/// How far a test is.
#[derive(Debug, Clone)]
pub struct Progress<'a> {
    /// Measurements done.
    pub done: u64,
    /// Measurements in all.
    pub total: u64,
    /// The latest measurement; absent while warming up.
    pub last: Option<&'a Sample>,
    /// Time left, from what has been measured so far.
    pub left: Option<Duration>,
}

/// Runs the test, or the rest of it, keeping every measurement in `folder`.
///
/// `stop` may be raised at any time; the test then ends after at most one batch with what it has.
///
/// # Errors
/// Sources that cannot be read, a folder that holds a test with other settings or is in use by another process, a page cache
/// that cannot be dropped.
pub fn run(
    settings: &SpeedTestSettings,
    folder: &Path,
    page_cache: &PageCache,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<SpeedTestOutcome, SpeedTestError> {
    settings.check()?;
    // Sources before the journal: a mistyped path leaves no folder behind.
    let mut bench = Bench::open(settings)?;
    let (mut journal, mut samples) = Journal::open(folder, settings)?;
    let resumed = samples.len() as u64;
    let runs = plan(settings);
    let mut cold = None;
    if samples.len() < runs.len() {
        if settings.cold {
            cold = Some(page_cache.drop_all(&bench.paths())?);
        }
        bench.warm_up(stop)?;
    }
    let total = runs.len() as u64;
    progress(Progress { done: resumed, total, last: None, left: left(&samples, &runs) });
    for run in runs.iter().skip(samples.len()) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if settings.cold {
            cold = Some(page_cache.drop_all(&bench.paths())?);
        }
        if settings.cold {
            bench.reopen_distant()?;
        }
        let Some(sample) = bench.measure(run, stop)? else { break };
        journal.append(&sample)?;
        samples.push(sample);
        progress(Progress {
            done: samples.len() as u64,
            total,
            last: samples.last(),
            left: left(&samples, &runs),
        });
    }
    let complete = samples.len() == runs.len();
    let rejects = bench.logs.iter().flat_map(|log| log.list()).collect();
    let tried = |source: &Arc<dyn Source>| {
        source.len().min(settings.most_images()) + source.rejects().len() as u64
    };
    let photos = bench.sources.iter().filter(|source| source.may_reject()).map(tried).sum();
    let sources = bench.opened;
    Ok(SpeedTestOutcome { sources, samples, resumed, complete, cold, photos, rejects })
}

/// Time left: images still to read at the speed each source has shown so far.
fn left(samples: &[Sample], runs: &[Run]) -> Option<Duration> {
    let mut seen: BTreeMap<ReadKind, (f64, f64)> = BTreeMap::new();
    for sample in samples {
        let entry = seen.entry(sample.source).or_default();
        entry.0 += sample.seconds + sample.setup_seconds;
        entry.1 += sample.images as f64;
    }
    let rest = runs.get(samples.len()..)?;
    let seconds: Option<f64> = rest
        .iter()
        .map(|run| {
            seen.get(&run.source).map(|(seconds, images)| run.images() as f64 * seconds / images)
        })
        .sum();
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// The opened sources, and the caches between repetitions.
struct Bench<'a> {
    settings: &'a SpeedTestSettings,
    /// How the sources were opened.
    options: OpenOptions,
    sources: Vec<Arc<dyn Source>>,
    opened: Vec<Opened>,
    /// What was left out of each source.
    logs: Vec<Arc<RejectLog>>,
    /// Decoded examples of each setting that will be measured again.
    caches: BTreeMap<(ReadKind, u64, u64), Arc<Cached>>,
}

impl<'a> Bench<'a> {
    fn open(settings: &'a SpeedTestSettings) -> Result<Self, SpeedTestError> {
        let SpeedTestSettings { size, max_pixels, .. } = *settings;
        let mut options = OpenOptions { size, max_pixels, ..OpenOptions::default() };
        // Records first: without a size asked for, image files are resized to theirs, so that both deliver the same.
        let mut places: Vec<usize> = (0..settings.targets.len()).collect();
        places.sort_by_key(|&place| settings.targets[place].kind != ReadKind::Records);
        let mut opened = BTreeMap::new();
        for place in places {
            let target = &settings.targets[place];
            let started = Instant::now();
            let source = open_as(target, &options)?;
            let open_seconds = started.elapsed().as_secs_f64();
            let shape = image_shape(source.schema());
            if let (Ok(width), Ok(height)) = (shape.width.try_into(), shape.height.try_into()) {
                options.size = Some((width, height));
            }
            let mut remarks = source.remarks();
            let (examples, most) = (source.len(), settings.most_images());
            if examples < most {
                remarks.push(format!(
                    "the set holds {examples} examples, fewer than the {most} of the largest setting: some are read more than once"
                ));
            }
            let about = Opened {
                source: target.kind,
                path: target.path.clone(),
                examples,
                size: (shape.width, shape.height),
                open_seconds,
                remarks,
            };
            let log = log_of(&[&*source], settings.max_rejects)?;
            let source = Lenient::around(source, &log, Instead::Nothing);
            opened.insert(place, (source, (about, log)));
        }
        let (sources, rest): (_, Vec<_>) = opened.into_values().unzip();
        let (opened, logs) = rest.into_iter().unzip();
        Ok(Self { settings, options, sources, opened, logs, caches: BTreeMap::new() })
    }

    /// The paths of this machine.
    fn paths(&self) -> Vec<&Path> {
        let paths = self.settings.targets.iter().map(|target| target.path.as_path());
        paths.filter(|path| !store::is_remote(path)).collect()
    }

    /// Opens what lies in a store once more: what was read of it is then forgotten here.
    fn reopen_distant(&mut self) -> Result<(), SpeedTestError> {
        let targets = self.settings.targets.iter().zip(&mut self.sources).zip(&self.logs);
        for ((target, source), log) in targets {
            if store::is_remote(&target.path) {
                let opened = open_as(target, &self.options)?;
                *source = Lenient::around(opened, log, Instead::Nothing);
            }
        }
        Ok(())
    }

    /// Reads every example of the largest setting once (cold tests: one small batch), so that the first measurement pays
    /// neither for the page cache nor for fresh memory.
    fn warm_up(&self, stop: &AtomicBool) -> Result<(), SpeedTestError> {
        let images = if self.settings.cold { 16 } else { self.settings.most_images() };
        for source in &self.sources {
            let subset =
                Subset::new(Arc::clone(source), images.min(source.len()), self.settings.seed);
            let mut loader = self.loader(Arc::new(subset), images.min(64))?;
            while !stop.load(Ordering::Relaxed) && loader.next_batch()?.is_some() {}
        }
        Ok(())
    }

    fn loader(&self, source: Arc<dyn Source>, batch_size: u64) -> Result<Loader, SpeedTestError> {
        let options = LoaderOptions {
            batch_size,
            shuffle: Shuffle::None,
            last: LastBatch::Keep,
            epochs: Some(1),
            threads: self.settings.threads,
            ..LoaderOptions::default()
        };
        Ok(Loader::new(source, options)?)
    }

    /// One measurement; `None` if it was stopped.
    fn measure(&mut self, run: &Run, stop: &AtomicBool) -> Result<Option<Sample>, SpeedTestError> {
        let place = self.settings.targets.iter().position(|target| target.kind == run.source);
        let source = &self.sources[place.expect("runs are planned from the targets")];
        let subset: Arc<dyn Source> =
            Arc::new(Subset::new(Arc::clone(source), run.images(), self.settings.seed));
        let key = (run.source, run.batch_size, run.batches);
        let cache = self.settings.cache.then(|| {
            let fresh = || Arc::new(Cached::new(Arc::clone(&subset), self.cache_share()));
            self.caches.get(&key).cloned().unwrap_or_else(fresh)
        });
        let hits_before = cache.as_ref().map_or(0, |cache| cache.report().hits);
        let read_from: Arc<dyn Source> = match &cache {
            Some(cache) => Arc::<Cached>::clone(cache),
            None => subset,
        };

        let setup = Instant::now();
        let mut loader = self.loader(read_from, run.batch_size)?;
        let setup_seconds = setup.elapsed().as_secs_f64();
        let storage_before = storage_bytes();
        let (mut images, mut bytes) = (0, 0);
        let started = Instant::now();
        while let Some(batch) = loader.next_batch()? {
            images += batch.len() as u64;
            bytes += batch.bytes() as u64;
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        // A clock without a tick between start and end would give an infinite speed.
        let seconds = started.elapsed().as_secs_f64().max(1e-9);
        let storage_bytes =
            storage_bytes().zip(storage_before).map(|(after, before)| after - before);
        let cached = cache.as_ref().map_or(0, |cache| cache.report().hits - hits_before);
        if let Some(cache) = cache {
            if run.repetition < self.settings.repeats {
                self.caches.insert(key, cache);
            } else {
                self.caches.remove(&key);
            }
        }
        Ok(Some(Sample {
            order: run.order,
            source: run.source,
            batch_size: run.batch_size,
            batches: run.batches,
            repetition: run.repetition,
            images,
            seconds,
            images_per_second: images as f64 / seconds,
            bytes,
            storage_bytes,
            cached,
            setup_seconds,
            host: None,
        }))
    }

    /// Bytes each setting's cache may hold.
    fn cache_share(&self) -> u64 {
        let settings = self.settings;
        let caches = settings.targets.len() * settings.batch_sizes.len() * settings.batches.len();
        CACHE_BYTES / caches.max(1) as u64
    }
}

/// Opens a target as what it was said to be.
fn open_as(target: &ReadTarget, options: &OpenOptions) -> Result<Arc<dyn Source>, SpeedTestError> {
    let wanted = match target.kind {
        ReadKind::ImageFiles => &paceline_data::sources::photos::ENTRY,
        ReadKind::Records => &paceline_data::sources::records::ENTRY,
    };
    if !store::is_remote(&target.path) && !target.path.exists() {
        return Err(SpeedTestError::Missing { kind: target.kind, path: target.path.clone() });
    }
    if !(wanted.recognises)(&target.path) {
        let found = paceline_data::sources::detect(&target.path).ok().map(|entry| entry.name);
        return Err(SpeedTestError::OtherKind {
            kind: target.kind,
            path: target.path.clone(),
            found,
        });
    }
    Ok(wanted.open(&target.path, None, options)?)
}

/// Bytes this process has caused to be fetched from storage; not counted on every system.
fn storage_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
