//! A part of a preparation that others make: what is sent to them, and what they do with it.
//!
//! A slice is work as [`paceline_store::handout`] describes it: the heading has all that decides the bytes, and each
//! line a shard with its photos in order. It says everything, so that a worker neither lists the source nor depends
//! on how the shards were dealt out. Several attempts may make the same shard at the same time: the bytes are the same,
//! so it does not matter which is first.

use std::{
    collections::BTreeSet,
    io::{self, BufRead},
    sync::atomic::AtomicBool,
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    PhotoOptions, PrepareError,
    journal::{Guest, Report},
    plan::{Plan, Recipe, ShardPlan},
    progress::Counters,
    run::Run,
};
use paceline_data::{
    catalogue::{Catalogue, ClassFolder},
    manifest::RecordSettings,
};
use paceline_store::{Store, handout::Work};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Heading {
    src: String,
    dst: String,
    settings: RecordSettings,
    classes: Vec<String>,
    folders: Vec<ClassFolder>,
    max_rejects: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    shard: String,
    /// Position of the class folder, size in bytes, path inside it.
    photos: Vec<(u32, u64, String)>,
}

impl Line {
    pub(super) fn shard(&self) -> &str {
        &self.shard
    }
}

/// A heading and the shards to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    work: Work<Heading, Line>,
}

/// What became of a slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worked {
    pub shards: Vec<WorkedShard>,
    /// Photos this worker converted, rejected ones included.
    pub photos: u64,
    pub seconds: f64,
}

/// What became of one shard of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkedShard {
    /// File name of the shard.
    pub name: String,
    pub records: u64,
    /// Photos of it that were rejected.
    pub rejects: u64,
    pub origin: Origin,
}

/// Who made a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// This worker.
    Made,
    /// An earlier attempt; it was there when this worker looked.
    Found,
    /// Another attempt that was done first while this worker made it too.
    Outrun,
}

pub(super) fn heading(
    src: String,
    dst: String,
    recipe: &Recipe,
    catalogue: &Catalogue,
    max_rejects: Option<u64>,
) -> Heading {
    Heading {
        src,
        dst,
        settings: recipe.settings.clone(),
        classes: catalogue.classes.clone(),
        folders: catalogue.folders.clone(),
        max_rejects,
    }
}

pub(super) fn line(shard: &ShardPlan, plan: &Plan, catalogue: &Catalogue) -> Line {
    let photos = plan.order[shard.photos.clone()].iter().map(|&photo| {
        let photo = photo as usize;
        (catalogue.folder(photo), catalogue.size(photo), catalogue.name(photo).to_owned())
    });
    Line { shard: shard.name.clone(), photos: photos.collect() }
}

impl Slice {
    /// Reads a heading and at least one line of [`super::Job::hand_out`].
    ///
    /// # Errors
    /// Text that is not a slice of this program, named by its line.
    pub fn read(input: &mut dyn BufRead) -> Result<Self, PrepareError> {
        let work: Work<Heading, Line> = Work::read(input)?;
        let heading = work.heading();
        let mut seen = BTreeSet::new();
        for (index, line) in work.items().iter().enumerate() {
            let labelled = line.photos.iter().all(|(folder, _, _)| {
                let folder = heading.folders.get(*folder as usize);
                folder.is_some_and(|folder| (folder.label as usize) < heading.classes.len())
            });
            if !labelled || line.photos.is_empty() || !seen.insert(&line.shard) {
                // The heading is on line 1.
                let (line, shard) = (index + 2, line.shard.clone());
                return Err(PrepareError::SliceInconsistent { line, shard });
            }
        }
        if work.items().is_empty() {
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, "no shard");
            return Err(PrepareError::SliceUnreadable(source));
        }
        Ok(Self { work })
    }

    /// Path or URL of the source.
    #[must_use]
    pub fn src(&self) -> &str {
        &self.work.heading().src
    }

    /// Path or URL of the target.
    #[must_use]
    pub fn dst(&self) -> &str {
        &self.work.heading().dst
    }

    fn plan(&self) -> Result<(Catalogue, Plan), PrepareError> {
        let (heading, lines) = (self.work.heading(), self.work.items());
        let photos = lines.iter().flat_map(|line| &line.photos);
        let catalogue = Catalogue::of_slice(&heading.classes, &heading.folders, photos)?;
        let order =
            0..u32::try_from(catalogue.photos()).map_err(|_| PrepareError::TooManyPhotos)?;
        let mut next = 0;
        let shards = lines.iter().map(|line| {
            let first = next;
            next += line.photos.len();
            ShardPlan { name: line.shard.clone(), photos: first..next }
        });
        let shards = shards.collect();
        Ok((catalogue, Plan { order: order.collect(), splits: Vec::new(), shards }))
    }
}

/// Makes the shards of a slice, except those that are there already.
///
/// # Errors
/// A source or target that is not what the heading means, a job that is over, a full disk, too many rejects.
pub fn work(
    src: &dyn Store,
    dst: &dyn Store,
    slice: &Slice,
    threads: Option<usize>,
    cancel: &AtomicBool,
) -> Result<Worked, PrepareError> {
    let started = Instant::now();
    let heading = slice.work.heading();
    let options = PhotoOptions { threads, ..PhotoOptions::of_settings(&heading.settings) };
    options.check()?;
    let (catalogue, plan) = slice.plan()?;
    let guest = Guest::enter(dst, slice.work.ticket())?;
    // Without this, a machine that does not mount the source would reject every photo and call it done.
    if src.size(&catalogue.path(0))?.is_none() {
        return Err(PrepareError::SourceUnseen { location: src.locate(&catalogue.path(0)) });
    }
    let found = plan.shards.iter().map(|shard| guest.report(&shard.name));
    let found = found.collect::<Result<Vec<Option<Report>>, _>>()?;
    let mut run = Run {
        dst,
        plan: &plan,
        ledger: &guest,
        counters: Counters::new(&catalogue, &plan, &found),
        reports: found.clone(),
        reject_limit: heading.max_rejects,
        events: &mut |_| {},
    };
    run.convert(src, &catalogue, &options, cancel)?;
    let photos = run.counters.converted();
    let made = run.reports.into_iter().flatten().zip(&found).map(|(report, found)| {
        let origin = match found {
            Some(_) => Origin::Found,
            None if guest.was_outrun(&report.shard.name) => Origin::Outrun,
            None => Origin::Made,
        };
        let Report { shard, .. } = report;
        WorkedShard { name: shard.name, records: shard.records, rejects: shard.rejects, origin }
    });
    Ok(Worked { shards: made.collect(), photos, seconds: started.elapsed().as_secs_f64() })
}
