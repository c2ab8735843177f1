//! Photos become shards: the part of a preparation that takes the time.
//!
//! The same code serves a whole preparation in one process and a slice of one on another machine;
//! what differs is where finished shards are accounted for, and that is a [`Ledger`].

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use super::{
    Event, PhotoOptions, PrepareError, convert::Converter, journal::Report, memory::Budget,
    ordered, plan::Plan, progress::Counters, shard::ShardWriter,
};
use paceline_data::{
    catalogue::Catalogue,
    rejects::{FIRST_REASONS, Reject},
};
use paceline_store::{IfExists, Store};

/// Converted records that wait for their turn to be written. Bytes.
const WINDOW_BYTES: usize = 48 << 20;
/// How many photos may be ahead of the slowest one; bounds the list of rejects in flight too.
const WINDOW_PHOTOS: usize = 4096;
/// Time between two progress reports.
const TICK: Duration = Duration::from_millis(100);

/// Where finished shards are accounted for.
pub(super) trait Ledger {
    /// What happens to a shard that is there already: replaced by its only writer, kept where several
    /// attempts may write the same one.
    fn if_exists(&self) -> IfExists;

    /// Whether this work is still wanted; asked before a shard becomes visible.
    fn check(&self) -> Result<(), PrepareError>;

    /// Notes that a shard is finished.
    fn record(&self, report: &Report) -> Result<(), PrepareError>;
}

/// The state of one run while photos are converted.
pub(super) struct Run<'a> {
    pub(super) dst: &'a dyn Store,
    pub(super) plan: &'a Plan,
    pub(super) ledger: &'a dyn Ledger,
    pub(super) counters: Counters,
    /// One place per shard; filled when the shard is finished.
    pub(super) reports: Vec<Option<Report>>,
    /// Largest number of rejects that is tolerated.
    pub(super) reject_limit: Option<u64>,
    pub(super) events: &'a mut dyn FnMut(Event<'_>),
}

impl Run<'_> {
    pub(super) fn convert(
        &mut self,
        src: &dyn Store,
        catalogue: &Catalogue,
        options: &PhotoOptions,
        cancel: &AtomicBool,
    ) -> Result<(), PrepareError> {
        let plan = self.plan;
        // The photos of all unfinished shards, one after another: a thread that is done with one shard
        // continues with the next, so that cores stay busy however many shards there are.
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
            threads: options.threads_for(src),
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
                if let ordered::Step::Done(mut photo) = step {
                    if let Some(failure) = photo.failure.take() {
                        return Err(failure.into());
                    }
                    let mut writer = match current.take() {
                        Some(writer) => writer,
                        None => {
                            let shard = open.next().expect("a job belongs to an open shard");
                            let if_exists = self.ledger.if_exists();
                            ShardWriter::start(self.dst, shard, &plan.shards[shard], if_exists)?
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
                        self.ledger.check()?;
                        let (shard, report) = writer.finish()?;
                        self.ledger.record(&report)?;
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
    pub(super) fn check_rejects(&self, latest: &[Reject]) -> Result<(), PrepareError> {
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
