//! Run folders as measurements: step times by batch size, points of a scaling curve.

use super::RunStart;
use crate::batch_size::StepTiming;
use crate::error::ForecastError;
use crate::scaling::ScalingRun;
use paceline_runs::{Event, RecordedPlan, RunFolder, RunState, RunView, Summary};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Whether a path is a run folder, or a folder of such.
#[must_use]
pub fn are_runs(path: &Path) -> bool {
    path.is_dir()
        && (RunFolder::is_at(path) || paceline_runs::list(path).is_ok_and(|runs| !runs.is_empty()))
}

/// The run folders among paths, and inside those that are folders of runs.
pub fn run_folders(paths: &[PathBuf]) -> Result<Vec<RunFolder>, ForecastError> {
    let mut found = Vec::new();
    for path in paths {
        if RunFolder::is_at(path) {
            found.push(RunFolder::open(path)?);
        } else {
            found.extend(paceline_runs::list(path)?);
        }
    }
    if found.is_empty() { Err(ForecastError::NoRunFolders) } else { Ok(found) }
}

/// Step times by batch size from runs of a model on one worker that ended.
pub fn step_timings(folder: &Path, model: &str) -> Result<Vec<StepTiming>, ForecastError> {
    let mut timings = Vec::new();
    for run in paceline_runs::list(folder)? {
        let Ok(Some(summary)) = ended(&run) else { continue };
        if summary.model == model && summary.workers.len() <= 1 {
            timings.extend(steps_of(&run, summary.global_batch, 1));
        }
    }
    if timings.is_empty() {
        let (model, path) = (model.to_owned(), folder.to_path_buf());
        return Err(ForecastError::NoRunOf { model, path });
    }
    Ok(timings)
}

/// Step times by batch size, of runs of one job.
#[derive(Debug, Clone)]
pub struct BatchesOfRuns {
    /// The job in words.
    pub job: String,
    pub timings: Vec<StepTiming>,
    /// Names of runs that say nothing about them.
    pub left_out: Vec<String>,
}

/// Step times by batch size from runs of any program, whose workers, where there are several, make each update together.
pub fn batches_of_runs(paths: &[PathBuf]) -> Result<BatchesOfRuns, ForecastError> {
    let mut job: Option<String> = None;
    let (mut timings, mut left_out) = (Vec::new(), Vec::new());
    for run in run_folders(paths)? {
        let found = ended(&run)?.filter(|summary| {
            // Ours may work asynchronously, and then a step is one worker's.
            summary.workers.len() <= 1 || RecordedPlan::open(&run).is_err()
        });
        let own = found.map(|summary| {
            let ranks = summary.workers.len().max(1) as u64;
            (ranks, job_of(&summary, ranks), steps_of(&run, summary.global_batch, ranks))
        });
        let Some((_, own, steps)) = own.filter(|(_, _, steps)| !steps.is_empty()) else {
            left_out.push(run.name());
            continue;
        };
        match &job {
            Some(others) if *others != own => {
                let (path, others) = (run.path().to_path_buf(), others.clone());
                return Err(ForecastError::DifferentJobs { path, found: own, others });
            }
            _ => job = Some(own),
        }
        timings.extend(steps);
    }
    Ok(BatchesOfRuns { job: job.unwrap_or_default(), timings, left_out })
}

/// What a run trained on how many workers; what it does not say is left out.
fn job_of(summary: &Summary, ranks: u64) -> String {
    let named = |text: &str, other: &str| if text.is_empty() { other } else { text }.to_owned();
    let workers = if ranks == 1 { "1 worker".to_owned() } else { format!("{ranks} workers") };
    let model = named(&summary.model, "a model without a name");
    format!("{model} on {} with {workers}", named(&summary.data, "data without a name"))
}

/// The figures of a run that has ended; those of a run that another program recorded follow from its events.
fn ended(run: &RunFolder) -> Result<Option<Summary>, ForecastError> {
    match run.state() {
        RunState::Ended(_) => Ok(Some(RunView::read(run.path())?.summary)),
        _ => Ok(None),
    }
}

/// One timing per run and batch size: the median of its events. `whole` is the batch of steps that do not say theirs; without it
/// each of the workers made its share.
fn steps_of(run: &RunFolder, whole: u64, workers: u64) -> Vec<StepTiming> {
    let Ok((records, _)) = run.events() else { return Vec::new() };
    let mut by_batch: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for record in records {
        if let Some(Event::Step(step)) = record.event
            && step.steps > 0
            && step.seconds > 0.0
        {
            let said = [step.global_batch, whole, workers * step.examples / step.steps];
            let Some(batch) = said.into_iter().find(|batch| *batch > 0) else { continue };
            by_batch.entry(batch).or_default().push(step.seconds / step.steps as f64);
        }
    }
    by_batch
        .into_iter()
        .map(|(batch, mut seconds)| {
            seconds.sort_by(f64::total_cmp);
            StepTiming { batch: batch as f64, seconds: seconds[seconds.len() / 2] }
        })
        .collect()
}

/// Points of a scaling curve: seconds for the same number of examples on so many workers, and that number. It is
/// the work of the largest run, so that runs of different length can be compared.
pub fn scaling_runs(paths: &[PathBuf]) -> Result<(Vec<ScalingRun>, f64), ForecastError> {
    let mut found = Vec::new();
    let mut job: Option<String> = None;
    for run in run_folders(paths)? {
        let Some(summary) = ended(&run)? else { continue };
        if summary.step_rate() <= 0.0 {
            continue;
        }
        let own =
            format!("{} on {} with batch {}", summary.model, summary.data, summary.global_batch);
        match &job {
            None => job = Some(own),
            Some(others) if *others != own => {
                let (path, others) = (run.path().to_path_buf(), others.clone());
                return Err(ForecastError::DifferentJobs { path, found: own, others });
            }
            Some(_) => {}
        }
        let start = RunStart::split(&run.events()?.0).1.seconds;
        found.push((summary.workers.len().max(1), summary.step_rate(), summary.examples, start));
    }
    let work = found.iter().map(|run| run.2).max().unwrap_or(0) as f64;
    let runs = found
        .into_iter()
        .map(|(workers, rate, examples, start)| ScalingRun {
            fraction: 1.0,
            machines: workers as f64,
            seconds: seconds_of(work, rate, examples as f64, start),
        })
        .collect();
    Ok((runs, work))
}

/// Seconds of so much work in a run whose start took some of its time: a longer run reads and unpacks its data no more often than a
/// short one.
fn seconds_of(work: f64, rate: f64, examples: f64, start: f64) -> f64 {
    if examples <= 0.0 {
        return work / rate;
    }
    let all = examples / rate;
    let start = start.min(all);
    start + (all - start) * work / examples
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short runs beside long ones once had their start as many times as they were shorter.
    #[test]
    fn a_start_counts_once_however_long_the_run_is() {
        // 1000 examples in 10 s, half of which went by before the first update.
        assert_eq!(seconds_of(1000.0, 100.0, 1000.0, 5.0), 10.0);
        assert_eq!(seconds_of(2000.0, 100.0, 1000.0, 5.0), 15.0);
        assert_eq!(seconds_of(2000.0, 100.0, 1000.0, 0.0), 20.0);
        // Runs that do not say how many examples they had.
        assert_eq!(seconds_of(2000.0, 100.0, 0.0, 5.0), 20.0);
    }
}
