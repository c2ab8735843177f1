//! Run folders of our own as measurements: a history for `advise cloud`, a curve for `advise scale`.

use crate::failure::FailureExt;
use anyhow::bail;
use paceline_advisor::{Catalogue, Measurement, Measurements, Outcome};
use paceline_forecast::scaling::ScalingRun;
use paceline_runs::{RecordedPlan, RunFolder, RunState, Status};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Whether a path is a run folder, or a folder of such.
pub(super) fn are_runs(path: &Path) -> bool {
    path.is_dir()
        && (RunFolder::open(path).is_ok()
            || paceline_runs::list(path).is_ok_and(|runs| !runs.is_empty()))
}

fn folders(paths: &[PathBuf]) -> anyhow::Result<Vec<RunFolder>> {
    let mut found = Vec::new();
    for path in paths {
        match RunFolder::open(path) {
            Ok(run) => found.push(run),
            Err(_) => found.extend(paceline_runs::list(path)?),
        }
    }
    if found.is_empty() {
        bail!("no run folder among those named");
    }
    Ok(found)
}

/// A history: each run is a workload `model on data`, its machine the one of the catalogue with as many
/// cores and about as much memory, its count the number of workers. A run that failed or died counts
/// as failed; one that still goes on is left out.
pub(super) fn history(path: &Path, catalogue: &Catalogue) -> anyhow::Result<Measurements> {
    let mut rows = Vec::new();
    let mut repeats: HashMap<(String, usize), u32> = HashMap::new();
    for run in folders(&[path.to_path_buf()])? {
        let summary = match run.state() {
            RunState::Ended(summary) => Some(*summary),
            RunState::Died => None,
            RunState::Running | RunState::Broken(_) => continue,
        };
        let plan = RecordedPlan::open(&run)?;
        let (model, data) = (plan.model.unwrap_or_default(), plan.data.unwrap_or_default());
        let batch = plan.batch_size.unwrap_or(0);
        let workers = summary.as_ref().map_or(1, |summary| summary.workers.len().max(1)) as u32;
        let machine = run.machine()?;
        let gib = machine.memory_bytes as f64 / f64::from(1u32 << 30);
        let fits = |at: &usize| {
            let known = catalogue.machine(*at);
            catalogue.count(*at) == workers
                && known.cores == machine.cores as f64
                // Providers count memory that the kernel keeps for itself.
                && (gib / known.memory_gib - 1.0).abs() < 0.15
        };
        let matching: Vec<usize> = (0..catalogue.len()).filter(fits).collect();
        let configuration = match matching.as_slice() {
            [one] => *one,
            [] => {
                return Err(anyhow::anyhow!(
                    "run `{}`: the catalogue has no {workers} x machine of {} cores and {gib:.1} GiB",
                    run.path().display(),
                    machine.cores
                ))
                .hint("add the machine it ran on to the catalogue, or leave the run out");
            }
            several => {
                let names: Vec<String> = several.iter().map(|at| catalogue.name(*at)).collect();
                bail!("run `{}`: could be any of {}", run.path().display(), names.join(", "));
            }
        };
        let seconds = summary.as_ref().map_or(0.0, |summary| summary.seconds);
        let outcome = match summary.as_ref().map(|summary| summary.status) {
            Some(Status::Done) if seconds > 0.0 => Outcome::Completed { seconds },
            Some(Status::Cancelled) => Outcome::TimedOut { seconds: seconds.max(1e-3) },
            _ => Outcome::Failed { seconds },
        };
        let workload = format!("{model} on {data}, batch {batch}");
        let repeat = repeats.entry((workload.clone(), configuration)).or_default();
        *repeat += 1;
        rows.push(Measurement {
            workload,
            application: model,
            configuration,
            run: *repeat,
            outcome,
            metrics: Vec::new(),
        });
    }
    if rows.is_empty() {
        bail!("`{}` holds no run that has ended", path.display());
    }
    Ok(Measurements::from_parts(Vec::new(), rows))
}

/// Points of a scaling curve: seconds for the same number of examples on so many workers. The unit is
/// the work of the largest run, so that runs of different length can be compared.
pub(super) fn scaling(paths: &[PathBuf]) -> anyhow::Result<(Vec<ScalingRun>, f64)> {
    let mut found = Vec::new();
    let mut what: Option<(String, String, u64)> = None;
    for run in folders(paths)? {
        let Some(summary) = run.summary()? else { continue };
        if summary.step_rate() <= 0.0 {
            continue;
        }
        let key = (summary.model.clone(), summary.data.clone(), summary.global_batch);
        match &what {
            None => what = Some(key),
            Some(known) if *known != key => bail!(
                "run `{}` is {} on {} with batch {}, others are {} on {} with batch {}: one curve is of one job",
                run.path().display(),
                key.0,
                key.1,
                key.2,
                known.0,
                known.1,
                known.2
            ),
            Some(_) => {}
        }
        found.push((summary.workers.len().max(1), summary.step_rate(), summary.examples));
    }
    let work = found.iter().map(|run| run.2).max().unwrap_or(0) as f64;
    let runs = found
        .into_iter()
        .map(|(workers, rate, _)| ScalingRun {
            fraction: 1.0,
            machines: workers as f64,
            seconds: work / rate,
        })
        .collect();
    Ok((runs, work))
}
