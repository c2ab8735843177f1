//! What the caller is told: how far, what is doubtful, and what came out.

use serde::Serialize;

use super::{PhotoOptions, convert::Photo, journal::Report, plan::Plan};
use paceline_data::{catalogue::Catalogue, manifest::Manifest};
use paceline_store::Store;

/// News from a running preparation.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// How far it is; about ten times a second.
    Progress(Progress),
    /// Something the user should know.
    Warning(Warning<'a>),
}

/// How far a preparation is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Photos that are done, rejected ones and those of earlier runs included.
    pub photos: u64,
    /// All photos.
    pub total: u64,
    pub rejects: u64,
    /// Bytes of photos read in this run.
    pub bytes_in: u64,
    /// Bytes of records made in this run.
    pub bytes_out: u64,
    /// Shards that are done.
    pub shards: usize,
    pub total_shards: usize,
}

/// A doubt about what the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning<'a> {
    /// Photos lie two folders deep, so that the first folder may not be what the class is.
    #[error(
        "most photos lie in folders inside class folders; the classes are the outer folders: {}",
        .classes.join(", ")
    )]
    Nested { classes: &'a [String] },
    /// Too few photos for the share of a split.
    #[error("no photo falls into split `{name}`")]
    EmptySplit { name: &'a str },
    /// The target may become full.
    #[error("about {} MB will be written, {} MB are free", .needed >> 20, .free >> 20)]
    LittleRoom {
        /// Bytes that can be written.
        free: u64,
        /// Bytes that will probably be written.
        needed: u64,
    },
}

/// What a preparation made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub destination: String,
    pub photos: u64,
    pub records: u64,
    /// Photos rejected; the reasons are in `rejects.jsonl`.
    pub rejects: u64,
    /// Files skipped because their names are not those of photos.
    pub ignored: u64,
    /// Class names; the position is the label.
    pub classes: Vec<String>,
    pub splits: Vec<SplitSummary>,
    /// Bytes of all photos.
    pub bytes_in: u64,
    /// Bytes of all shards.
    pub bytes_out: u64,
    /// Threads that converted.
    pub threads: usize,
    /// Duration of this run.
    pub seconds: f64,
    /// Photos converted in this run.
    pub converted: u64,
    /// Photos converted in this run, per second of it.
    pub photos_per_second: f64,
    /// Shards that an earlier run had finished.
    pub resumed_shards: usize,
}

/// One split of a [`Summary`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SplitSummary {
    /// `train`, `validation`, ...
    pub name: String,
    pub shards: usize,
    pub records: u64,
    pub bytes: u64,
}

impl Summary {
    pub(super) fn new(
        (src, dst): (&dyn Store, &dyn Store),
        manifest: &Manifest,
        catalogue: &Catalogue,
        options: &PhotoOptions,
        seconds: f64,
        resumed_shards: usize,
        converted: u64,
    ) -> Self {
        let splits = manifest.splits.iter().map(|split| SplitSummary {
            name: split.name.clone(),
            shards: split.shards.len(),
            records: split.records,
            bytes: split.bytes,
        });
        Self {
            destination: dst.locate(""),
            photos: manifest.source.photos,
            records: manifest.records(),
            rejects: manifest.rejects,
            ignored: catalogue.ignored,
            classes: manifest.classes.clone(),
            splits: splits.collect(),
            bytes_in: manifest.source.bytes,
            bytes_out: manifest.splits.iter().map(|split| split.bytes).sum(),
            threads: options.threads_for(src),
            seconds,
            converted,
            photos_per_second: converted as f64 / seconds.max(1e-9),
            resumed_shards,
        }
    }
}

/// Counts while photos are converted.
#[derive(Debug)]
pub(super) struct Counters {
    progress: Progress,
    /// Photos done before this run, or rejected without a try.
    before: u64,
}

impl Counters {
    pub(super) fn new(catalogue: &Catalogue, plan: &Plan, reports: &[Option<Report>]) -> Self {
        let finished = plan.shards.iter().zip(reports).filter(|(_, report)| report.is_some());
        let early = catalogue.rejects.len() as u64;
        let before = early + finished.map(|(shard, _)| shard.photos.len() as u64).sum::<u64>();
        let rejects: u64 = reports.iter().flatten().map(|report| report.shard.rejects).sum();
        let progress = Progress {
            photos: before,
            total: catalogue.total(),
            rejects: early + rejects,
            shards: reports.iter().flatten().count(),
            total_shards: plan.shards.len(),
            ..Progress::default()
        };
        Self { progress, before }
    }

    pub(super) fn photo(&mut self, photo: &Photo) {
        self.progress.photos += 1;
        self.progress.bytes_in += photo.bytes;
        match &photo.outcome {
            Ok(record) => self.progress.bytes_out += record.len() as u64,
            Err(_) => self.progress.rejects += 1,
        }
    }

    pub(super) fn shard(&mut self) {
        self.progress.shards += 1;
    }

    pub(super) fn rejects(&self) -> u64 {
        self.progress.rejects
    }

    /// Photos converted in this run.
    pub(super) fn converted(&self) -> u64 {
        self.progress.photos - self.before
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }
}
