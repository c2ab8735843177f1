//! A part of a preparation that somebody else does: what is sent to them, and what they do with it.
//!
//! A slice is text, one JSON document per line: a heading with all that decides the bytes, then one line per
//! shard with its photos in order. It says everything, so that a worker neither lists the source nor depends
//! on how the shards were dealt out.
//!
//! Engines repeat work: a task that failed is tried again, a slow one is started twice. So several workers may
//! make the same shard at the same time. Each writes under a name of its own and links the finished file to the
//! shard's name if that is free; the bytes are the same, so it does not matter who is first. A worker that
//! outlived its job finds the ticket of its heading gone from the target, and leaves no trace.

use std::{
    collections::BTreeSet,
    io::{self, BufRead},
    sync::atomic::AtomicBool,
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    Options, PrepareError,
    journal::{Guest, Report},
    options::program,
    plan::{Plan, Recipe, ShardPlan},
    progress::Counters,
    run::Run,
};
use paceline_data::{
    catalogue::{Catalogue, ClassFolder},
    manifest::Settings,
};
use paceline_store::Store;

/// Version of the layout. Both sides are the same program, so there is only one.
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Heading {
    paceline_slice: u32,
    program: String,
    src: String,
    dst: String,
    ticket: String,
    settings: Settings,
    classes: Vec<String>,
    folders: Vec<ClassFolder>,
    max_rejects: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    shard: String,
    /// Position of the class folder, size in bytes, path inside it.
    photos: Vec<(u32, u64, String)>,
}

/// A heading and the shards to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    heading: Heading,
    lines: Vec<Line>,
}

/// What became of a slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worked {
    /// Its shards.
    pub shards: Vec<WorkedShard>,
    /// Photos this worker converted, rejected ones included.
    pub photos: u64,
    /// Duration.
    pub seconds: f64,
}

/// What became of one shard of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkedShard {
    /// File name of the shard.
    pub name: String,
    /// Records in it.
    pub records: u64,
    /// Photos of it that were rejected.
    pub rejects: u64,
    /// Who made it.
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
    ticket: String,
    recipe: &Recipe,
    catalogue: &Catalogue,
    max_rejects: Option<u64>,
) -> String {
    text(&Heading {
        paceline_slice: VERSION,
        program: program(),
        src,
        dst,
        ticket,
        settings: recipe.settings.clone(),
        classes: catalogue.classes.clone(),
        folders: catalogue.folders.clone(),
        max_rejects,
    })
}

pub(super) fn line(shard: &ShardPlan, plan: &Plan, catalogue: &Catalogue) -> String {
    let photos = plan.order[shard.photos.clone()].iter().map(|&photo| {
        let photo = photo as usize;
        (catalogue.folder(photo), catalogue.size(photo), catalogue.name(photo).to_owned())
    });
    text(&Line { shard: shard.name.clone(), photos: photos.collect() })
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs with string keys become JSON")
}

impl Slice {
    /// Reads a heading and at least one line of [`super::Job::hand_out`].
    ///
    /// # Errors
    /// Text that is not a slice of this program, named by its line.
    pub fn read(input: &mut dyn BufRead) -> Result<Self, PrepareError> {
        let mut lines = input.lines().enumerate();
        let mut next = move || -> Result<Option<(usize, String)>, PrepareError> {
            let Some((index, line)) = lines.next() else { return Ok(None) };
            Ok(Some((index + 1, line.map_err(PrepareError::SliceUnreadable)?)))
        };
        let malformed = |line| move |source| PrepareError::SliceMalformed { line, source };
        let missing = |what: &str| {
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, format!("no {what}"));
            PrepareError::SliceUnreadable(source)
        };
        let (number, first) = next()?.ok_or_else(|| missing("heading"))?;
        let heading: Heading = serde_json::from_str(&first).map_err(malformed(number))?;
        if heading.paceline_slice != VERSION || heading.program != program() {
            return Err(PrepareError::SliceForeign { theirs: heading.program, ours: program() });
        }
        let mut shards = Vec::new();
        let mut seen = BTreeSet::new();
        while let Some((number, text)) = next()? {
            let line: Line = serde_json::from_str(&text).map_err(malformed(number))?;
            let classes = heading.classes.len();
            let labelled = line.photos.iter().all(|(folder, _, _)| {
                let folder = heading.folders.get(*folder as usize);
                folder.is_some_and(|folder| (folder.label as usize) < classes)
            });
            if !labelled || line.photos.is_empty() || !seen.insert(line.shard.clone()) {
                return Err(PrepareError::SliceInconsistent { line: number, shard: line.shard });
            }
            shards.push(line);
        }
        if shards.is_empty() {
            return Err(missing("shard"));
        }
        Ok(Self { heading, lines: shards })
    }

    /// Path or URL of the source.
    #[must_use]
    pub fn src(&self) -> &str {
        &self.heading.src
    }

    /// Path or URL of the target.
    #[must_use]
    pub fn dst(&self) -> &str {
        &self.heading.dst
    }

    fn plan(&self) -> Result<(Catalogue, Plan), PrepareError> {
        let photos = self.lines.iter().flat_map(|line| &line.photos);
        let catalogue = Catalogue::of_slice(&self.heading.classes, &self.heading.folders, photos)?;
        let order =
            0..u32::try_from(catalogue.photos()).map_err(|_| PrepareError::TooManyPhotos)?;
        let mut next = 0;
        let shards = self.lines.iter().map(|line| {
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
    let heading = &slice.heading;
    let options = Options { threads, ..Options::of_settings(&heading.settings) };
    options.check()?;
    let (catalogue, plan) = slice.plan()?;
    let guest = Guest::new(dst, &heading.ticket);
    guest.enter()?;
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
