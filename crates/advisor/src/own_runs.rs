//! Run folders as a history: our own, and those that other programs recorded.

use crate::catalogue::{Catalogue, MachineSize};
use crate::error::AdvisorError;
use crate::measurements::{Measurement, Measurements, Outcome, OutsideRuns, without_needless};
use paceline_forecast::measure::run_folders;
use paceline_runs::{Machine, Resources, RunFolder, RunState, RunView, Status, Summary};
use paceline_stats::describe::mean;
use std::collections::HashMap;
use std::path::Path;

/// What a run's machines did on average, over time and tasks, and the columns that are added up to it.
const METRICS: [(&str, &[&str]); 3] = [
    ("cpu_busy_percent", &["cpu_idle_percent"]),
    ("disk_bytes_per_second", &["disk_read_bytes_per_second", "disk_written_bytes_per_second"]),
    (
        "network_bytes_per_second",
        &["network_received_bytes_per_second", "network_sent_bytes_per_second"],
    ),
];

/// Each run is a workload `model on data`, its machine the one of the catalogue with as many cores and about as much
/// memory, or else the most similar one, its count the number of workers. A run that failed or died counts as failed; one that still
/// goes on is left out, as is one that does not say where it ran or ran on something unlike all there is.
pub(crate) fn history(path: &Path, catalogue: &Catalogue) -> Result<Measurements, AdvisorError> {
    let mut rows = Vec::new();
    let mut outside = OutsideRuns::default();
    let mut first_skipped = None;
    let mut repeats: HashMap<(String, usize), u32> = HashMap::new();
    for run in run_folders(&[path.to_path_buf()])? {
        let ended = match run.state() {
            RunState::Ended(_) => true,
            RunState::Died => false,
            RunState::Running | RunState::Broken(_) => continue,
        };
        let view = RunView::read(run.path())?;
        let workers = view.summary.workers.len().max(1) as u32;
        let (configuration, power) = match place(&run, workers, catalogue) {
            Ok(place) => place,
            Err(error @ AdvisorError::SeveralMachines { .. }) => return Err(error),
            Err(error) => {
                let size = view
                    .machine
                    .as_ref()
                    .map(|machine| format!("{} cores and {:.1} GiB", machine.cores, gib(machine)));
                outside.skip(size.as_deref().unwrap_or("no machine.json"));
                first_skipped.get_or_insert(error);
                continue;
            }
        };
        let plan = &view.plan;
        let model = plan.model.clone().unwrap_or_default();
        let data = plan.data.as_deref().unwrap_or_default();
        let workload = format!("{model} on {data}, batch {}", plan.batch_size.unwrap_or(0));
        let repeat = repeats.entry((workload.clone(), configuration)).or_default();
        *repeat += 1;
        rows.push(Measurement {
            workload,
            application: model,
            configuration,
            run: *repeat,
            outcome: outcome(ended.then_some(&view.summary)).stretched(power.unwrap_or(1.0)),
            metrics: metrics(&view.resources),
            stands_in: power.is_some(),
        });
    }
    match (rows.is_empty(), first_skipped) {
        (true, Some(error)) => return Err(error),
        (true, None) => return Err(AdvisorError::NoEndedRun { path: path.to_path_buf() }),
        (false, _) => {}
    }
    let rows = without_needless(rows);
    outside.kept = rows.iter().filter(|row| row.stands_in).count();
    let names = METRICS.map(|(name, _)| name.to_owned()).to_vec();
    Ok(Measurements::from_parts(names, rows).with_outside(outside))
}

fn outcome(summary: Option<&Summary>) -> Outcome {
    let seconds = summary.map_or(0.0, |summary| summary.seconds);
    match summary.map(|summary| summary.status) {
        Some(Status::Done) if seconds > 0.0 => Outcome::Completed { seconds },
        Some(Status::Cancelled) => Outcome::TimedOut { seconds: seconds.max(1e-3) },
        _ => Outcome::Failed { seconds },
    }
}

/// Every metric, or none: a half-filled fingerprint cannot be compared.
fn metrics(resources: &[(String, Resources)]) -> Vec<f64> {
    let of_task = |task: &Resources, columns: &[&str]| -> Option<f64> {
        columns.iter().map(|column| task.mean(column)).sum()
    };
    let found: Option<Vec<f64>> = METRICS
        .iter()
        .map(|(name, columns)| {
            let mean = mean(resources.iter().filter_map(|(_, task)| of_task(task, columns)))?;
            Some(if *name == "cpu_busy_percent" { 100.0 - mean } else { mean })
        })
        .collect();
    found.unwrap_or_default()
}

fn gib(machine: &Machine) -> f64 {
    machine.memory_bytes as f64 / f64::from(1u32 << 30)
}

/// The one configuration of the catalogue that the run can have had; else the one most like it, with how many times as many cores
/// the run had.
fn place(
    run: &RunFolder,
    workers: u32,
    catalogue: &Catalogue,
) -> Result<(usize, Option<f64>), AdvisorError> {
    let machine = run.machine()?;
    let gib = gib(&machine);
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
        [one] => Ok((*one, None)),
        [] => {
            let size = MachineSize { cores: machine.cores as f64, memory_gib: gib };
            let found = catalogue.most_like(size, workers);
            let found = found.map(|(at, power)| (at, Some(power)));
            let cores = machine.cores;
            found.ok_or(AdvisorError::NoSuchMachine { run: path, workers, cores, gib })
        }
        several => {
            let names: Vec<String> = several.iter().map(|at| catalogue.name(*at)).collect();
            Err(AdvisorError::SeveralMachines { run: path, names: names.join(", ") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A run as another program records it: its events, where it was, and what the machine did.
    fn record(runs: &Path, name: &str, machine: &str) {
        let run = runs.join(name);
        fs::create_dir_all(&run).unwrap();
        let started = r#"{"v":1,"time":1000,"task":"worker/0","kind":"run_started","data":{"model":"resnet18","data":"cifar10","global_batch":64}}"#;
        let ended = r#"{"v":1,"time":1040,"task":"worker/0","kind":"run_ended","data":{"status":"done","step":40,"seconds":40.0}}"#;
        fs::write(run.join("events-worker-0.jsonl"), format!("{started}\n{ended}\n")).unwrap();
        if !machine.is_empty() {
            fs::write(run.join("machine.json"), machine).unwrap();
        }
        let columns = "time_seconds,elapsed_seconds,cpu_idle_percent,disk_read_bytes_per_second,disk_written_bytes_per_second,network_received_bytes_per_second,network_sent_bytes_per_second";
        let readings = "1010,10,40,100,20,7,3\n1020,20,20,300,20,7,3\n";
        fs::write(run.join("resources-worker-0.csv"), format!("{columns}\n{readings}")).unwrap();
    }

    /// Metrics of run folders were always empty, and a run elsewhere ended the search.
    #[test]
    fn foreign_runs_are_a_history_with_metrics() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let machine = |cores: u32, gib: u64| {
            let bytes = gib << 30;
            format!(
                r#"{{"host":"h","cpu":"c","cores":{cores},"memory_bytes":{bytes},"kernel":"k"}}"#
            )
        };
        record(&runs, "here", &machine(8, 31));
        record(&runs, "alike", &machine(6, 24));
        record(&runs, "vast", &machine(96, 700));
        record(&runs, "unknown", "");
        let catalogue = folder.path().join("machines.csv");
        fs::write(
            &catalogue,
            "machine,count,cores,memory_gib,usd_per_hour\nlarge,1,8,32,0.4\nmedium,1,4,16,0.2\n",
        )
        .unwrap();
        let catalogue = Catalogue::read(&catalogue).unwrap();
        let found = history(&runs, &catalogue).unwrap();
        assert_eq!(
            found.metric_names(),
            ["cpu_busy_percent", "disk_bytes_per_second", "network_bytes_per_second"]
        );
        let [row] = found.rows() else { panic!("one run needs no stand-in: {:?}", found.rows()) };
        assert_eq!(row.workload, "resnet18 on cifar10, batch 64");
        assert_eq!(row.outcome, Outcome::Completed { seconds: 40.0 });
        assert_eq!(row.metrics, [70.0, 220.0, 10.0]);
        assert_eq!((found.outside().kept, found.outside().skipped), (0, 2));
        assert_eq!(found.outside().machines, ["96 cores and 700.0 GiB", "no machine.json"]);
        // Without the run on the very machine, the one like it stands for it: six cores for eight.
        fs::remove_dir_all(runs.join("here")).unwrap();
        let found = history(&runs, &catalogue).unwrap();
        assert_eq!(found.rows()[0].outcome, Outcome::Completed { seconds: 30.0 });
        assert!(found.rows()[0].stands_in);
        // Nothing comparable is still an error that names the run.
        fs::remove_dir_all(runs.join("alike")).unwrap();
        assert!(history(&runs, &catalogue).is_err());
    }
}
