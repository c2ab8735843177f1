//! Photos in class folders → shards of `tf.train.Example`.
//!
//! What goes where is decided before any photo is opened: the sorted list of photos, the seed and the
//! settings give every shard its photos in their order ([`plan`]). Photos are then converted on all cores
//! and written in exactly that order ([`ordered`]), so the bytes depend on neither threads nor timing.
//!
//! A shard is committed whole, and after it a small report with its counts and rejects ([`journal`]).
//! Whoever starts again finds the reports and goes on behind them; the manifest comes last. Killed at any
//! moment, every photo therefore ends up in exactly one shard or in the list of rejects, once.

mod catalogue;
mod convert;
mod error;
mod journal;
mod memory;
mod options;
mod ordered;
mod plan;
mod progress;
mod shard;

pub(crate) use catalogue::hex;
pub use error::{Difference, PrepareError};
pub use options::{Options, RejectLimit, SplitShare};
pub use paceline_photo::{Encoding, Fit};
pub use progress::{Event, Progress, SplitSummary, Summary, Warning};

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    manifest::{MANIFEST, Manifest, REJECTS, Split},
    store::Store,
};
use catalogue::{Catalogue, Reject};
use convert::Converter;
use journal::{Found, Journal, Report};
use memory::Budget;
use options::program;
use plan::{Plan, Recipe};
use progress::Counters;
use shard::ShardWriter;

/// Converted records that wait for their turn to be written. Bytes.
const WINDOW_BYTES: usize = 48 << 20;
/// How many photos may be ahead of the slowest one; bounds the list of rejects in flight too.
const WINDOW_PHOTOS: usize = 4096;
/// Reasons that an error about too many rejects names.
const FIRST_REASONS: usize = 5;
/// Time between two progress reports.
const TICK: Duration = Duration::from_millis(100);

/// Converts the photos of `src` into shards in `dst`, going on where an earlier call was interrupted.
///
/// `cancel` may be raised at any time from outside; the call then ends with
/// [`PrepareError::Cancelled`] and can be repeated. `events` is called on this thread.
///
/// # Errors
/// Everything that stops the whole: a source without photos, a target that cannot be written or belongs
/// to something else, too many rejects. A bad photo is no error; it is listed in `rejects.jsonl`.
pub fn prepare(
    src: &dyn Store,
    dst: &dyn Store,
    options: &Options,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<Summary, PrepareError> {
    let started = Instant::now();
    options.check()?;
    apart(src, dst)?;
    let catalogue = catalogue::read(src, cancel)?;
    let plan = Plan::new(&catalogue, options)?;
    let recipe = Recipe::new(&catalogue, &plan, options);
    warn_about_source(&catalogue, &plan, events);

    let mut journal = Journal::open(dst)?;
    if options.fresh {
        journal.start_over()?;
    }
    let found = journal.find()?;
    if let Found::Finished(manifest) = &found {
        recipe.check_against(&Recipe::of_manifest(manifest), dst, options.retry_rejects)?;
        if !(options.retry_rejects && manifest.rejects > 0) {
            journal.close();
            let resumed = plan.shards.len();
            let seconds = started.elapsed().as_secs_f64();
            return Ok(Summary::new(dst, manifest, &catalogue, options, seconds, resumed, 0));
        }
    }
    let reports = match &found {
        Found::Finished(manifest) => journal.reopen(&recipe, manifest)?,
        Found::Begun(begun) => {
            recipe.check_against(begun, dst, options.retry_rejects)?;
            journal.reports(&plan, options.retry_rejects)?
        }
        Found::Nothing => {
            journal.begin(&recipe)?;
            journal.reports(&plan, false)?
        }
    };
    check_space(dst, options, &plan, &reports, events)?;

    let resumed = reports.iter().flatten().count();
    let mut run = Run {
        dst,
        plan: &plan,
        journal: &journal,
        counters: Counters::new(&catalogue, &plan, &reports),
        reports,
        reject_limit: options.max_rejects.map(|limit| limit.count(catalogue.total())),
        events,
    };
    run.check_rejects(&catalogue.rejects)?;
    run.convert(src, &catalogue, options, cancel)?;
    let converted = run.counters.converted();
    let reports: Vec<Report> = run.reports.into_iter().flatten().collect();

    let manifest = finish(dst, &catalogue, &plan, &recipe, &reports)?;
    journal.close();
    let seconds = started.elapsed().as_secs_f64();
    Ok(Summary::new(dst, &manifest, &catalogue, options, seconds, resumed, converted))
}

/// Refuses a target that would be read as a class of its own source.
fn apart(src: &dyn Store, dst: &dyn Store) -> Result<(), PrepareError> {
    let (from, to) = (src.identity(), dst.identity());
    let inside =
        to.strip_prefix(&from).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if inside {
        return Err(PrepareError::Overlap { src: src.locate(""), dst: dst.locate("") });
    }
    Ok(())
}

fn warn_about_source(catalogue: &Catalogue, plan: &Plan, events: &mut dyn FnMut(Event<'_>)) {
    // A folder of splits, each with class folders, would silently become two classes.
    if catalogue.nested * 2 > catalogue.photos() as u64 {
        events(Event::Warning(Warning::Nested { classes: &catalogue.classes }));
    }
    for split in &plan.splits {
        if split.shards == 0 {
            events(Event::Warning(Warning::EmptySplit { name: &split.name }));
        }
    }
}

/// Compares the room on the target with what is still to be written.
fn check_space(
    dst: &dyn Store,
    options: &Options,
    plan: &Plan,
    reports: &[Option<Report>],
    events: &mut dyn FnMut(Event<'_>),
) -> Result<(), PrepareError> {
    let Some(free) = dst.free_space() else { return Ok(()) };
    let open = plan.shards.iter().zip(reports).filter(|(_, report)| report.is_none());
    let photos: u64 = open.map(|(shard, _)| shard.photos.len() as u64).sum();
    let (least, likely) = options.record_bytes();
    if free < photos.saturating_mul(least) {
        let needed = photos.saturating_mul(least);
        return Err(PrepareError::NoRoom { location: dst.locate(""), free, needed });
    }
    let needed = photos.saturating_mul(likely);
    if free < needed {
        events(Event::Warning(Warning::LittleRoom { free, needed }));
    }
    Ok(())
}

/// The state of one run while photos are converted.
struct Run<'a> {
    dst: &'a dyn Store,
    plan: &'a Plan,
    journal: &'a Journal<'a>,
    counters: Counters,
    /// One place per shard; filled when the shard is finished.
    reports: Vec<Option<Report>>,
    /// Largest number of rejects that is tolerated.
    reject_limit: Option<u64>,
    events: &'a mut dyn FnMut(Event<'_>),
}

impl Run<'_> {
    fn convert(
        &mut self,
        src: &dyn Store,
        catalogue: &Catalogue,
        options: &Options,
        cancel: &AtomicBool,
    ) -> Result<(), PrepareError> {
        let plan = self.plan;
        // The photos of all unfinished shards, one after another: a thread that is done with one shard
        // goes on with the next, so that cores stay busy however many shards there are.
        let open: Vec<usize> =
            (0..plan.shards.len()).filter(|&shard| self.reports[shard].is_none()).collect();
        let jobs: Vec<u32> = open
            .iter()
            .flat_map(|&shard| plan.order[plan.shards[shard].photos.clone()].iter().copied())
            .collect();
        let (files, pixels) = (Budget::files(), Budget::pixels());
        let mut open = open.into_iter();
        let mut current: Option<ShardWriter<'_>> = None;
        let mut last_tick = Instant::now();
        let workers = ordered::Workers {
            threads: options.threads(),
            window_bytes: WINDOW_BYTES,
            window_items: WINDOW_PHOTOS,
            tick: TICK,
        };
        let done = workers.run(
            jobs.len(),
            cancel,
            || Converter::new(options, src, &files, &pixels),
            |converter, job| converter.convert(catalogue, jobs[job] as usize),
            |photo| photo.outcome.as_ref().map_or(0, Vec::len),
            |step| -> Result<(), PrepareError> {
                if let ordered::Step::Done(photo) = step {
                    let mut writer = match current.take() {
                        Some(writer) => writer,
                        None => {
                            let shard = open.next().expect("a job belongs to an open shard");
                            ShardWriter::start(self.dst, shard, &plan.shards[shard])?
                        }
                    };
                    self.counters.photo(&photo);
                    match photo.outcome {
                        Ok(record) => writer.write(&record)?,
                        Err(reject) => {
                            writer.reject(reject);
                            self.check_rejects(writer.rejects())?;
                        }
                    }
                    if writer.is_complete() {
                        let (shard, report) = writer.finish()?;
                        self.journal.record(&report)?;
                        self.reports[shard] = Some(report);
                        self.counters.shard();
                    } else {
                        current = Some(writer);
                    }
                }
                if last_tick.elapsed() >= TICK {
                    last_tick = Instant::now();
                    (self.events)(Event::Progress(self.counters.progress()));
                }
                Ok(())
            },
        )?;
        (self.events)(Event::Progress(self.counters.progress()));
        if !done || cancel.load(Ordering::Relaxed) && self.reports.contains(&None) {
            let finished = self.reports.iter().flatten().count();
            return Err(PrepareError::Cancelled { finished, shards: plan.shards.len() });
        }
        Ok(())
    }

    /// Ends a run that goes wrong, naming the reasons that came up first.
    fn check_rejects(&self, latest: &[Reject]) -> Result<(), PrepareError> {
        let Some(limit) = self.reject_limit else { return Ok(()) };
        if self.counters.rejects() <= limit {
            return Ok(());
        }
        let earlier = self.reports.iter().flatten().flat_map(|report| &report.rejects);
        let first = latest.iter().chain(earlier).take(FIRST_REASONS);
        let first = first.map(|reject| format!("{}: {}", reject.path, reject.reason)).collect();
        Err(PrepareError::TooManyRejects { rejects: self.counters.rejects(), limit, first })
    }
}

/// Audits the reports and writes the list of rejects, then the manifest.
fn finish(
    dst: &dyn Store,
    catalogue: &Catalogue,
    plan: &Plan,
    recipe: &Recipe,
    reports: &[Report],
) -> Result<Manifest, PrepareError> {
    let records: u64 = reports.iter().map(|report| report.shard.records).sum();
    let rejects: Vec<&Reject> =
        catalogue.rejects.iter().chain(reports.iter().flat_map(|report| &report.rejects)).collect();
    // The promise is "each photo once"; a sum that does not come out means a bug or a changed report.
    if records + rejects.len() as u64 != catalogue.total() {
        return Err(PrepareError::Audit {
            photos: catalogue.total(),
            records,
            rejects: rejects.len() as u64,
        });
    }
    let mut lines = Vec::new();
    for reject in &rejects {
        serde_json::to_writer(&mut lines, reject).expect("a reject is two strings");
        lines.push(b'\n');
    }
    dst.write(REJECTS, &lines)?;
    if records == 0 {
        let location = dst.locate(REJECTS);
        return Err(PrepareError::NothingLeft { photos: catalogue.total(), location });
    }
    let mut shards = reports.iter().map(|report| report.shard.clone());
    let splits = plan.splits.iter().map(|split| {
        let shards: Vec<_> = shards.by_ref().take(split.shards).collect();
        Split {
            name: split.name.clone(),
            share: split.share,
            records: shards.iter().map(|shard| shard.records).sum(),
            bytes: shards.iter().map(|shard| shard.bytes).sum(),
            shards,
        }
    });
    let manifest = Manifest {
        version: Manifest::VERSION,
        program: program(),
        kind: "photos".into(),
        settings: recipe.settings.clone(),
        seed: recipe.seed,
        classes: catalogue.classes.clone(),
        first_label: 0,
        source: recipe.source.clone(),
        rejects: rejects.len() as u64,
        splits: splits.collect(),
    };
    manifest.write(dst)?;
    debug_assert!(dst.size(MANIFEST).is_ok_and(|size| size.is_some()));
    Ok(manifest)
}
