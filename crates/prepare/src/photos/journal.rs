//! What is finished, on disk, while the whole is not.
//!
//! ```text
//! DST/.prepare/lock        held while a process prepares into DST
//!              plan.json   the recipe: settings, seed, fingerprint of the source
//!              ticket      there while others may work on it; a new one each time it is handed out
//!              train-00003-of-00016.json   report of a finished shard, written after the shard
//! ```
//! The folder goes away once `manifest.json` is there. A report without its shard cannot be; a shard
//! without its report is done again, with the same bytes.

use std::{cell::RefCell, collections::BTreeSet};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    PrepareError,
    plan::{Plan, Recipe},
    run::Ledger,
    shard::index_key,
};
use crate::target::{Writing, occupant};
use paceline_data::{
    manifest::{MANIFEST, Manifest, REJECTS, Shard},
    rejects::Reject,
};
use paceline_store::{
    IfExists, Lock, Store, StoreError,
    handout::{self, Attempt, Handout, Published},
    join_key,
};

const FOLDER: &str = ".prepare";
const PLAN: &str = "plan.json";
const LOCK: &str = "lock";
/// Shards that others make; their reports are the results.
pub(super) const HANDOUT: Handout =
    Handout { ticket: ".prepare/ticket", sign: ".prepare/plan.json" };

/// What is known about a finished shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) shard: Shard,
    pub(super) rejects: Vec<Reject>,
}

/// What an earlier run left.
#[derive(Debug)]
pub(super) enum Found {
    /// Everything is there.
    Finished(Box<Manifest>),
    /// Work by this recipe was begun.
    Begun(Box<Recipe>),
    /// No trace of this program.
    Nothing,
}

/// The notes in a target, held by this process alone.
#[derive(Debug)]
pub(super) struct Journal<'a> {
    dst: &'a dyn Store,
    lock: Option<Box<dyn Lock>>,
    /// Whether there is work to come back to.
    begun: bool,
}

impl<'a> Journal<'a> {
    /// Locks the target and removes what interrupted writes left.
    pub(super) fn open(dst: &'a dyn Store) -> Result<Self, PrepareError> {
        let lock = dst.lock(&note(LOCK)).map_err(|error| match error {
            StoreError::Locked { pid, .. } => PrepareError::Busy { location: dst.locate(""), pid },
            other => other.into(),
        })?;
        let journal = Self { dst, lock: Some(lock), begun: false };
        dst.sweep("")?;
        dst.sweep(FOLDER)?;
        Ok(journal)
    }

    /// What is there. Shards without a plan are an error: they would be mixed up with ours.
    pub(super) fn find(&mut self) -> Result<Found, PrepareError> {
        if let Some(holds) = occupant(self.dst, Writing::Photos)? {
            return Err(PrepareError::Occupied { location: self.dst.locate(""), holds });
        }
        if let Some(manifest) = Manifest::read(self.dst)? {
            return Ok(Found::Finished(Box::new(manifest)));
        }
        if let Some(recipe) = self.read::<Recipe>(PLAN)? {
            self.begun = true;
            return Ok(Found::Begun(Box::new(recipe)));
        }
        let foreign = self.dst.list("")?.files.into_iter().find(|file| is_shard(&file.name));
        match foreign {
            Some(file) => {
                Err(PrepareError::Foreign { location: self.dst.locate(""), name: file.name })
            }
            None => Ok(Found::Nothing),
        }
    }

    /// Removes everything this program wrote, the promise first.
    pub(super) fn start_over(&mut self) -> Result<(), PrepareError> {
        let known = match self.find() {
            // Damaged notes are among the reasons to start over.
            Err(PrepareError::Damaged { .. } | PrepareError::Manifest(_)) => true,
            Err(error) => return Err(error),
            Ok(Found::Nothing) => false,
            Ok(_) => true,
        };
        if !known {
            return Ok(());
        }
        self.dst.remove(MANIFEST)?;
        self.dst.remove(REJECTS)?;
        for file in self.dst.list("")?.files {
            if is_shard(&file.name) {
                self.dst.remove(&file.name)?;
            }
        }
        self.clear()?;
        self.begun = false;
        Ok(())
    }

    /// Notes what is about to be done, before the first shard.
    pub(super) fn begin(&mut self, recipe: &Recipe) -> Result<(), PrepareError> {
        self.write(PLAN, recipe)?;
        self.begun = true;
        Ok(())
    }

    /// Turns finished work into begun work, without the shards that have rejects.
    pub(super) fn reopen(
        &mut self,
        recipe: &Recipe,
        manifest: &Manifest,
    ) -> Result<Vec<Option<Report>>, PrepareError> {
        self.clear()?;
        self.begin(recipe)?;
        let mut reports = Vec::new();
        for shard in manifest.splits.iter().flat_map(|split| &split.shards) {
            let report =
                (shard.rejects == 0).then(|| Report { shard: shard.clone(), rejects: Vec::new() });
            if let Some(report) = &report {
                self.record(report)?;
            }
            reports.push(report);
        }
        // Until here the old manifest still told the truth.
        self.dst.remove(MANIFEST)?;
        self.dst.remove(REJECTS)?;
        Ok(reports)
    }

    /// Notes that a shard is finished.
    pub(super) fn record(&self, report: &Report) -> Result<(), PrepareError> {
        self.write(&report_name(&report.shard.name), report)
    }

    /// The reports of finished shards, one place per shard of the plan. With `retry`, those with rejects
    /// are left out.
    pub(super) fn reports(
        &self,
        plan: &Plan,
        retry: bool,
    ) -> Result<Vec<Option<Report>>, PrepareError> {
        let mut reports = Vec::with_capacity(plan.shards.len());
        for shard in &plan.shards {
            let report = self.read::<Report>(&report_name(&shard.name))?;
            let report = match report {
                Some(report) if self.is_whole(&report, shard.photos.len())? => Some(report),
                _ => None,
            };
            reports.push(report.filter(|report| !retry || report.rejects.is_empty()));
        }
        Ok(reports)
    }

    /// Whether the shard of a report is still there as it was written.
    fn is_whole(&self, report: &Report, photos: usize) -> Result<bool, PrepareError> {
        let Report { shard, rejects } = report;
        Ok(shard.records + rejects.len() as u64 == photos as u64
            && self.dst.size(&shard.name)? == Some(shard.bytes)
            && self.dst.size(&index_key(&shard.name))?.is_some())
    }

    /// Removes whatever there is of a shard, its report first.
    pub(super) fn forget(&self, shard: &str) -> Result<(), PrepareError> {
        self.dst.remove(&note(&report_name(shard)))?;
        self.dst.remove(shard)?;
        Ok(self.dst.remove(&index_key(shard))?)
    }

    /// Shuts out all attempts, and removes what those that were killed left.
    pub(super) fn dismiss(&self) -> Result<(), PrepareError> {
        HANDOUT.close(self.dst)?;
        self.dst.sweep("")?;
        self.dst.sweep(FOLDER)?;
        Ok(())
    }

    /// Names of the shards that have a report.
    pub(super) fn noted(&self) -> Result<BTreeSet<String>, PrepareError> {
        let names = HANDOUT.finished(self.dst, FOLDER)?.into_iter();
        Ok(names
            .filter_map(|name| Some(format!("{}.tfrecord", name.strip_suffix(".json")?)))
            .collect())
    }

    /// Removes the notes after the manifest was written. Failure leaves litter, not damage, and the next
    /// run removes it; so it is not reported.
    pub(super) fn close(mut self) {
        let _ = self.clear();
        self.begun = false;
    }

    fn clear(&self) -> Result<(), StoreError> {
        for file in self.dst.list(FOLDER)?.files {
            // The plan goes last: as long as it is there, the notes can be understood.
            if file.name != LOCK && file.name != PLAN {
                self.dst.remove(&join_key(FOLDER, &file.name))?;
            }
        }
        self.dst.remove(&note(PLAN))
    }

    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), PrepareError> {
        let bytes = serde_json::to_vec(value).expect("notes are plain structs with string keys");
        Ok(self.dst.write(&note(name), &bytes)?)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, PrepareError> {
        Ok(handout::result(self.dst, &note(name))?)
    }
}

impl Ledger for Journal<'_> {
    fn if_exists(&self) -> IfExists {
        IfExists::Replace // the lock keeps other writers out
    }

    fn check(&self) -> Result<(), PrepareError> {
        Ok(())
    }

    fn record(&self, report: &Report) -> Result<(), PrepareError> {
        Journal::record(self, report)
    }
}

/// The notes as an attempt at some of the shards sees them, among others and without the lock.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    attempt: Attempt<'a>,
    /// Shards that another attempt finished first.
    outrun: RefCell<BTreeSet<String>>,
}

impl<'a> Guest<'a> {
    /// Enters the target that the ticket is for, seen from this machine.
    pub(super) fn enter(dst: &'a dyn Store, ticket: &'a str) -> Result<Self, PrepareError> {
        Ok(Self { attempt: HANDOUT.enter(dst, ticket)?, outrun: RefCell::default() })
    }

    /// The report of a shard that is there as the report says.
    pub(super) fn report(&self, shard: &str) -> Result<Option<Report>, PrepareError> {
        Ok(self.attempt.result(&note(&report_name(shard)))?)
    }

    pub(super) fn was_outrun(&self, shard: &str) -> bool {
        self.outrun.borrow().contains(shard)
    }
}

impl Ledger for Guest<'_> {
    fn if_exists(&self) -> IfExists {
        IfExists::Fail
    }

    fn check(&self) -> Result<(), PrepareError> {
        Ok(self.attempt.check()?)
    }

    fn record(&self, report: &Report) -> Result<(), PrepareError> {
        let key = note(&report_name(&report.shard.name));
        if self.attempt.publish(&key, report)? == Published::Outrun {
            self.outrun.borrow_mut().insert(report.shard.name.clone());
        }
        Ok(())
    }
}

impl Drop for Journal<'_> {
    fn drop(&mut self) {
        if !self.begun {
            // Removed while held: a process that has just opened it notices and opens a new one.
            let _ = self.dst.remove(&note(LOCK));
            let _ = self.dst.remove_folder(FOLDER);
        }
        self.lock = None;
    }
}

/// Where an unfinished preparation keeps its recipe.
pub(crate) fn plan_key() -> String {
    note(PLAN)
}

fn note(name: &str) -> String {
    join_key(FOLDER, name)
}

fn report_name(shard: &str) -> String {
    format!("{}.json", shard.trim_end_matches(".tfrecord"))
}

/// Whether this is a name as [`Plan`] gives it, or the index of one.
fn is_shard(name: &str) -> bool {
    let name = name.strip_suffix(".index").unwrap_or(name);
    let Some(name) = name.strip_suffix(".tfrecord") else { return false };
    let mut parts = name.rsplitn(4, '-');
    let digits = |part: Option<&str>| {
        part.is_some_and(|part| part.len() == 5 && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    digits(parts.next())
        && parts.next() == Some("of")
        && digits(parts.next())
        && parts.next().is_some_and(|split| !split.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_ours() {
        for ours in ["train-00000-of-00016.tfrecord", "my-split-00001-of-00002.tfrecord.index"] {
            assert!(is_shard(ours), "{ours}");
        }
        for other in
            ["train.tfrecord", "-00000-of-00016.tfrecord", "train-0-of-1.tfrecord", "a.jpg"]
        {
            assert!(!is_shard(other), "{other}");
        }
    }
}
