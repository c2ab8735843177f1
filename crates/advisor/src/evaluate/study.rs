//! All methods replayed on one recorded set: summaries, differences, and the studies that fit no single-job search.

use super::acceptance::medians;
use super::batch::{BatchSummary, evaluate_batch};
use super::replay::{JobTraces, ReplaySettings, replay};
use super::scaling::{ScalingSummary, evaluate_scaling};
use super::scout::{Half, Prices, RecordedSet};
use super::summary::{Summary, compare};
use super::{NestedSummary, evaluate_nested};
use crate::error::AdvisorError;
use crate::methods::AdvisorMethod;
use crate::search::Objective;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is replayed.
#[derive(Debug, Clone)]
pub struct StudyQuestion {
    pub source: StudySource,
    pub settings: ReplaySettings,
}

/// Where the recorded runs are.
#[derive(Debug, Clone)]
pub enum StudySource {
    /// The public Scout set in its folder.
    Scout { folder: PathBuf, half: Half },
    /// Any catalogue, and runs of several jobs on it.
    Files { catalogue: PathBuf, history: PathBuf },
}

/// How a method differs from the first, job by job: Wilcoxon's p after Holm's correction and Cliff's delta, after 6 and
/// after 15 runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MethodDifference {
    pub method: String,
    pub p_6: f64,
    pub delta_6: f64,
    pub p_15: f64,
    pub delta_15: f64,
}

/// Studies that do not fit the one-job search.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StudyExtras {
    /// One configuration for a batch of jobs.
    Batch(BatchSummary),
    /// Scaling curves.
    Scaling([ScalingSummary; 2]),
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Study {
    pub summaries: Vec<Summary>,
    pub differences: Vec<MethodDifference>,
    /// Only of the public set, whose published figures they are compared with.
    pub extras: Option<StudyExtras>,
}

impl StudyQuestion {
    /// Reads the recorded runs.
    pub fn read(&self) -> Result<RecordedSet, AdvisorError> {
        match &self.source {
            StudySource::Scout { folder, half } => {
                RecordedSet::read(folder, *half, Prices::OnDemand)
            }
            StudySource::Files { catalogue, history } => {
                RecordedSet::from_files(catalogue, history)
            }
        }
    }

    /// Replays every method on the recorded runs; `watch` hears for how many jobs a method has searched.
    pub fn replay(
        &self,
        set: &RecordedSet,
        methods: &[&'static AdvisorMethod],
        watch: &(dyn Fn(&'static str, u64) + Sync),
    ) -> Result<Study, AdvisorError> {
        self.feasible(set)?;
        let mut traces: Vec<(&str, Vec<JobTraces>)> = Vec::new();
        for entry in methods {
            let done = AtomicU64::new(0);
            watch(entry.name, 0);
            let found = replay(set, entry, &self.settings, &|| {
                watch(entry.name, done.fetch_add(1, Ordering::Relaxed) + 1);
            })?;
            traces.push((entry.name, found));
        }
        let settings = &self.settings;
        let extras = match self.source {
            StudySource::Scout { half: Half::SingleNode, .. } => {
                Some(StudyExtras::Batch(evaluate_batch(set, settings.objective, settings.seeds)))
            }
            StudySource::Scout { half: Half::MultiNode, .. } => {
                Some(StudyExtras::Scaling([3, 4].map(|sizes| evaluate_scaling(set, sizes))))
            }
            StudySource::Files { .. } => None,
        };
        let summaries = traces.iter().map(|(name, jobs)| Summary::of(name, jobs)).collect();
        Ok(Study { summaries, differences: differences(&traces), extras })
    }

    /// Refuses a deadline that no recorded run keeps: a replay of nothing would look like a result.
    fn feasible(&self, set: &RecordedSet) -> Result<(), AdvisorError> {
        let Objective::CostUnderDeadline { deadline } = self.settings.objective else {
            return Ok(());
        };
        let medians = medians(&set.runs);
        let seconds = medians.values().flat_map(|times| times.values().copied());
        let shortest = seconds.fold(f64::INFINITY, f64::min);
        if shortest <= deadline {
            return Ok(());
        }
        let path = match &self.source {
            StudySource::Scout { folder, .. } => folder.clone(),
            StudySource::Files { history, .. } => history.clone(),
        };
        Err(AdvisorError::NothingInTime { path, deadline, shortest })
    }

    /// Figures of our own method with constants chosen blindly; `watch` hears how many replays are done.
    pub fn nested(
        &self,
        splits: usize,
        watch: &(dyn Fn(u64) + Sync),
    ) -> Result<NestedSummary, AdvisorError> {
        let StudySource::Scout { folder, half } = &self.source else {
            return Err(AdvisorError::NotThePublicSet);
        };
        let other = match half {
            Half::SingleNode => Half::MultiNode,
            Half::MultiNode => Half::SingleNode,
        };
        let set = self.read()?;
        let other = RecordedSet::read(folder, other, Prices::OnDemand)?;
        let done = AtomicU64::new(0);
        evaluate_nested(&set, &other, &self.settings, splits, &|| {
            watch(done.fetch_add(1, Ordering::Relaxed) + 1);
        })
    }
}

/// Each method against the first.
fn differences(traces: &[(&str, Vec<JobTraces>)]) -> Vec<MethodDifference> {
    let all: Vec<(&str, &[JobTraces])> =
        traces.iter().map(|(name, jobs)| (*name, jobs.as_slice())).collect();
    let pairs = compare(&all, 6).into_iter().zip(compare(&all, 15));
    pairs
        .map(|((method, p_6, delta_6), (_, p_15, delta_15))| MethodDifference {
            method,
            p_6,
            delta_6,
            p_15,
            delta_15,
        })
        .collect()
}
