//! Run folders of our own as a history.

use crate::catalogue::Catalogue;
use crate::error::AdvisorError;
use crate::measurements::{Measurement, Measurements, Outcome};
use paceline_forecast::measure::run_folders;
use paceline_runs::{RecordedPlan, RunFolder, RunState, Status, Summary};
use std::collections::HashMap;
use std::path::Path;

/// Each run is a workload `model on data`, its machine the one of the catalogue with as many cores and about as much
/// memory, its count the number of workers. A run that failed or died counts as failed; one that still goes on is
/// left out.
pub(crate) fn history(path: &Path, catalogue: &Catalogue) -> Result<Measurements, AdvisorError> {
    let mut rows = Vec::new();
    let mut repeats: HashMap<(String, usize), u32> = HashMap::new();
    for run in run_folders(&[path.to_path_buf()])? {
        let summary = match run.state() {
            RunState::Ended(summary) => Some(*summary),
            RunState::Died => None,
            RunState::Running | RunState::Broken(_) => continue,
        };
        let records = run.events().map(|(records, _)| records).unwrap_or_default();
        let plan = RecordedPlan::read(&run, &records);
        let (model, data) = (plan.model.unwrap_or_default(), plan.data.unwrap_or_default());
        let batch = plan.batch_size.unwrap_or(0);
        let workers = summary.as_ref().map_or(1, |summary| summary.workers.len().max(1)) as u32;
        let configuration = configuration(&run, workers, catalogue)?;
        let workload = format!("{model} on {data}, batch {batch}");
        let repeat = repeats.entry((workload.clone(), configuration)).or_default();
        *repeat += 1;
        rows.push(Measurement {
            workload,
            application: model,
            configuration,
            run: *repeat,
            outcome: outcome(summary.as_ref()),
            metrics: Vec::new(),
        });
    }
    if rows.is_empty() {
        return Err(AdvisorError::NoEndedRun { path: path.to_path_buf() });
    }
    Ok(Measurements::from_parts(Vec::new(), rows))
}

fn outcome(summary: Option<&Summary>) -> Outcome {
    let seconds = summary.map_or(0.0, |summary| summary.seconds);
    match summary.map(|summary| summary.status) {
        Some(Status::Done) if seconds > 0.0 => Outcome::Completed { seconds },
        Some(Status::Cancelled) => Outcome::TimedOut { seconds: seconds.max(1e-3) },
        _ => Outcome::Failed { seconds },
    }
}

/// The one configuration of the catalogue that the run can have had.
fn configuration(
    run: &RunFolder,
    workers: u32,
    catalogue: &Catalogue,
) -> Result<usize, AdvisorError> {
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
    let path = run.path().to_path_buf();
    match matching.as_slice() {
        [one] => Ok(*one),
        [] => Err(AdvisorError::NoSuchMachine { run: path, workers, cores: machine.cores, gib }),
        several => {
            let names: Vec<String> = several.iter().map(|at| catalogue.name(*at)).collect();
            Err(AdvisorError::SeveralMachines { run: path, names: names.join(", ") })
        }
    }
}
