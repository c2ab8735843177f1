//! A preparation from listing the source to the manifest, wherever the photos are converted in between.

use std::{sync::atomic::AtomicBool, time::Instant};

use super::{
    Event, PhotoOptions, PrepareError, Progress, Summary, Warning,
    journal::{Found, HANDOUT, Journal, Report},
    options::program,
    plan::{Plan, Recipe},
    progress::Counters,
    run::Run,
    slice,
};
use paceline_data::{
    catalogue::{self, Catalogue},
    manifest::{MANIFEST, Manifest, PHOTOS, REJECTS, Split},
    rejects::{Reject, json_lines},
};
use paceline_store::Store;

/// What beginning led to.
#[derive(Debug)]
pub enum Begun<'a> {
    /// An earlier call had finished everything.
    Finished(Summary),
    /// There are shards to be made.
    Open(Box<PhotoJob<'a>>),
}

/// A preparation that has begun. It holds the lock of its target until it is finished or dropped.
#[derive(Debug)]
pub struct PhotoJob<'a> {
    src: &'a dyn Store,
    dst: &'a dyn Store,
    options: &'a PhotoOptions,
    pub(super) catalogue: Catalogue,
    pub(super) plan: Plan,
    recipe: Recipe,
    journal: Journal<'a>,
    /// One place per shard; filled when the shard is finished.
    reports: Vec<Option<Report>>,
    /// Shards that an earlier call had finished.
    resumed: usize,
    /// Photos in them, or rejected without a try.
    before: u64,
    started: Instant,
}

impl<'a> PhotoJob<'a> {
    /// Lists the photos, decides what goes where, and locks the target.
    ///
    /// # Errors
    /// As of [`super::prepare`].
    pub fn begin(
        src: &'a dyn Store,
        dst: &'a dyn Store,
        options: &'a PhotoOptions,
        cancel: &AtomicBool,
        events: &mut dyn FnMut(Event<'_>),
    ) -> Result<Begun<'a>, PrepareError> {
        let started = Instant::now();
        options.check()?;
        apart(src, dst)?;
        let catalogue = catalogue::read(src, cancel)?;
        if catalogue.photos() == 0 {
            return Err(no_photos(src, &catalogue));
        }
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
                let summary =
                    Summary::new((src, dst), manifest, &catalogue, options, seconds, resumed, 0);
                return Ok(Begun::Finished(summary));
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
        let before = Counters::new(&catalogue, &plan, &reports).progress().photos;
        let job = Self {
            src,
            dst,
            options,
            catalogue,
            plan,
            recipe,
            journal,
            reports,
            resumed,
            before,
            started,
        };
        Ok(Begun::Open(Box::new(job)))
    }

    /// Makes all missing shards in this process.
    ///
    /// # Errors
    /// As of [`super::prepare`].
    pub fn convert(
        &mut self,
        cancel: &AtomicBool,
        events: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), PrepareError> {
        let limit = self.options.max_rejects.map(|limit| limit.count(self.catalogue.total()));
        let mut run = Run {
            dst: self.dst,
            plan: &self.plan,
            ledger: &self.journal,
            counters: Counters::new(&self.catalogue, &self.plan, &self.reports),
            reports: std::mem::take(&mut self.reports),
            reject_limit: limit,
            events,
        };
        run.check_rejects(&self.catalogue.rejects)?;
        run.convert(self.src, &self.catalogue, self.options, cancel)?;
        self.reports = run.reports;
        Ok(())
    }

    /// Opens the target to others and returns the work: a heading, then one line per missing shard.
    /// A process that gets the heading and some of the lines can [`super::work`] on them; each shard is made
    /// once, however many processes do.
    ///
    /// # Errors
    /// Where the target cannot be written.
    pub fn hand_out(&mut self) -> Result<Vec<String>, PrepareError> {
        let limit = self.options.max_rejects.map(|limit| limit.count(self.catalogue.total()));
        let (src, dst) = (self.src.identity(), self.dst.identity());
        let heading = slice::heading(src, dst, &self.recipe, &self.catalogue, limit);
        let open =
            self.plan.shards.iter().zip(&self.reports).filter(|(_, report)| report.is_none());
        let lines = open.map(|(shard, _)| slice::line(shard, &self.plan, &self.catalogue));
        // Half-finished shards would otherwise be taken for another attempt's finished ones.
        HANDOUT.hand_out(self.dst, &heading, lines, |line| self.journal.forget(line.shard()))
    }

    /// How far those who work on it are.
    ///
    /// # Errors
    /// Where the target cannot be listed.
    pub fn progress(&self) -> Result<Progress, PrepareError> {
        let noted = self.journal.noted()?;
        let done = self.plan.shards.iter().filter(|shard| noted.contains(&shard.name));
        let (shards, photos) =
            done.fold((0, 0), |(shards, photos), shard| (shards + 1, photos + shard.photos.len()));
        Ok(Progress {
            photos: (photos + self.catalogue.rejects.len()) as u64,
            total: self.catalogue.total(),
            shards,
            total_shards: self.plan.shards.len(),
            ..Progress::default()
        })
    }

    /// Takes over what others made since [`PhotoJob::hand_out`], and lets no more of them in.
    ///
    /// # Errors
    /// Shards that were not made, too many rejects, a target that cannot be read.
    pub fn collect(&mut self, events: &mut dyn FnMut(Event<'_>)) -> Result<(), PrepareError> {
        self.journal.dismiss()?;
        self.reports = self.journal.reports(&self.plan, false)?;
        let both = self.plan.shards.iter().zip(&self.reports);
        let missing: Vec<String> = both
            .filter(|(_, report)| report.is_none())
            .map(|(shard, _)| shard.name.clone())
            .collect();
        if !missing.is_empty() {
            let shards = self.plan.shards.len();
            return Err(PrepareError::Unfinished { missing, shards });
        }
        let run = Run {
            dst: self.dst,
            plan: &self.plan,
            ledger: &self.journal,
            counters: Counters::new(&self.catalogue, &self.plan, &self.reports),
            reports: std::mem::take(&mut self.reports),
            reject_limit: self.options.max_rejects.map(|most| most.count(self.catalogue.total())),
            events,
        };
        run.check_rejects(&self.catalogue.rejects)?;
        self.reports = run.reports;
        Ok(())
    }

    /// Audits the reports, writes the list of rejects, then the manifest.
    ///
    /// # Errors
    /// Counts that do not come out, no photo left, a target that cannot be written.
    pub fn finish(self) -> Result<Summary, PrepareError> {
        let reports: Vec<Report> = self.reports.into_iter().flatten().collect();
        let manifest =
            write_manifest(self.dst, &self.catalogue, &self.plan, &self.recipe, &reports)?;
        self.journal.close();
        let converted = self.catalogue.total() - self.before;
        let seconds = self.started.elapsed().as_secs_f64();
        Ok(Summary::new(
            (self.src, self.dst),
            &manifest,
            &self.catalogue,
            self.options,
            seconds,
            self.resumed,
            converted,
        ))
    }
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

/// What a source without a single photo to try is told.
fn no_photos(src: &dyn Store, catalogue: &Catalogue) -> PrepareError {
    let location = src.locate("");
    match (catalogue.loose, catalogue.rejects.first()) {
        (0, None) => PrepareError::NoPhotos { location },
        (0, Some(reject)) => PrepareError::NoneUsable {
            location,
            photos: catalogue.rejects.len(),
            first: format!("{}: {}", reject.path, reject.reason),
        },
        (photos, _) => PrepareError::NoClasses { location, photos },
    }
}

fn warn_about_source(catalogue: &Catalogue, plan: &Plan, events: &mut dyn FnMut(Event<'_>)) {
    // Folders of another arrangement than class folders, or splits of them, would silently become classes.
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
    options: &PhotoOptions,
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

/// Audits the reports and writes the list of rejects, then the manifest.
fn write_manifest(
    dst: &dyn Store,
    catalogue: &Catalogue,
    plan: &Plan,
    recipe: &Recipe,
    reports: &[Report],
) -> Result<Manifest, PrepareError> {
    let records: u64 = reports.iter().map(|report| report.shard.records).sum();
    let found = reports.iter().flat_map(|report| &report.rejects);
    let rejects: Vec<Reject> = catalogue.rejects.iter().chain(found).cloned().collect();
    // The promise is "each photo once"; a sum that does not come out means a bug or a changed report.
    if records + rejects.len() as u64 != catalogue.total() {
        return Err(PrepareError::Audit {
            photos: catalogue.total(),
            records,
            rejects: rejects.len() as u64,
        });
    }
    dst.write(REJECTS, &json_lines(&rejects))?;
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
        kind: PHOTOS.into(),
        settings: recipe.settings.clone(),
        seed: recipe.seed,
        classes: catalogue.classes.clone(),
        first_label: 0,
        source: recipe.source.clone(),
        rejects: rejects.len() as u64,
        splits: splits.collect(),
    };
    manifest.commit(dst)?;
    debug_assert!(dst.size(MANIFEST).is_ok_and(|size| size.is_some()));
    Ok(manifest)
}
