//! What a training job recorded about itself: resources of its tasks and scores on the test examples.
//!
//! The machine's own columns say what everything on it did together. Published tables are about the job: its workers, its server.

use crate::journal::MeanPeak;
use paceline_runs::{Event, Resources, RunFolder};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where hosts of a cell record, below its folder.
const NODES: &str = "nodes";
/// What all hosts of a cell together are called: means and peaks added up.
const ALL_NODES: &str = "all hosts";
/// Most scores of a curve that are kept; a chart shows no more.
const MOST_SCORES: usize = 400;

/// A score on the test examples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    pub step: u64,
    pub loss: f64,
    pub accuracy: f64,
}

/// The recordings of one cell; empty where its command leaves none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Recording {
    /// Task, column, figures.
    pub(crate) tasks: BTreeMap<String, BTreeMap<String, MeanPeak>>,
    pub(crate) curve: Vec<Score>,
}

impl Recording {
    /// Reads what the runs in a cell's folder recorded. What is missing or damaged is left out: it is not the cell's result.
    pub(crate) fn read(cell: &Path) -> Recording {
        let mut recording = Recording::default();
        recording.add_nodes(&cell.join(NODES));
        for run in paceline_runs::list(cell).unwrap_or_default() {
            recording.add(&run);
        }
        recording
    }

    /// What hosts recorded of themselves, by their names.
    fn add_nodes(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let host = name.strip_suffix(".csv").and_then(|name| name.split_once('@'));
            if let (Some((_, host)), Ok(resources)) = (host, Resources::read(&entry.path())) {
                self.tasks.insert(host.to_owned(), columns(&resources));
            }
        }
        let mut all: BTreeMap<String, MeanPeak> = BTreeMap::new();
        for (column, one) in self.tasks.values().flatten() {
            let sum = all.entry(column.clone()).or_insert(MeanPeak { mean: 0.0, peak: 0.0 });
            (sum.mean, sum.peak) = (sum.mean + one.mean, sum.peak + one.peak);
        }
        if !all.is_empty() {
            self.tasks.insert(ALL_NODES.to_owned(), all);
        }
    }

    fn add(&mut self, run: &RunFolder) {
        // Servers record resources and no events, so that their files say which tasks there were.
        for entry in fs::read_dir(run.path()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(task) = task_of(&name)
                && let Ok(resources) = Resources::read(&entry.path())
            {
                self.tasks.insert(task, columns(&resources));
            }
        }
        let records = run.events().map(|(records, _)| records).unwrap_or_default();
        for record in &records {
            if let Some(Event::Evaluation(scored)) = &record.event
                && scored.loss.is_finite()
                && scored.accuracy.is_finite()
            {
                let (step, loss, accuracy) = (scored.step, scored.loss, scored.accuracy);
                self.curve.push(Score { step, loss, accuracy });
            }
        }
        self.curve.sort_by_key(|score| score.step);
        // The end of a run is scored again where it was scored already.
        self.curve.dedup_by_key(|score| score.step);
        let every = self.curve.len().div_ceil(MOST_SCORES).max(1);
        let last = self.curve.len().saturating_sub(1);
        let mut at = 0..;
        self.curve.retain(|_| at.next().is_some_and(|at| at % every == 0 || at == last));
    }
}

/// The task that recorded a file: `worker/0` for `resources-worker-0.csv`.
fn task_of(file: &str) -> Option<String> {
    let task = file.strip_prefix("resources-")?.strip_suffix(".csv")?;
    Some(match task.rsplit_once('-') {
        Some((role, number)) if number.parse::<u64>().is_ok() => format!("{role}/{number}"),
        _ => task.to_owned(),
    })
}

fn columns(resources: &Resources) -> BTreeMap<String, MeanPeak> {
    paceline_probes::columns()
        .filter_map(|column| {
            let (mean, peak) = (resources.mean(column.name)?, resources.peak(column.name)?);
            Some((column.name.to_owned(), MeanPeak { mean, peak }))
        })
        .collect()
}

/// The ups and downs of a curve over its range: 1 where it never turns, larger the more often and the further it does.
pub(crate) fn roughness(curve: &[f64]) -> Option<f64> {
    let low = curve.iter().copied().reduce(f64::min)?;
    let high = curve.iter().copied().reduce(f64::max)?;
    let way: f64 = curve.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
    (high > low).then(|| way / (high - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_that_never_turns_is_smooth() {
        assert_eq!(roughness(&[3.0, 2.0, 1.0]), Some(1.0));
        assert_eq!(roughness(&[3.0, 1.0, 2.0, 1.0]), Some(2.0));
        assert_eq!((roughness(&[2.0, 2.0]), roughness(&[])), (None, None));
    }

    #[test]
    fn tasks_and_scores_are_read_from_the_folder_of_a_run() {
        let cell = tempfile::tempdir().unwrap();
        let run = cell.path().join("run");
        fs::create_dir(&run).unwrap();
        let line = |kind: &str, data: &str| {
            format!(
                "{{\"v\":1,\"time\":1,\"task\":\"worker/0\",\"kind\":\"{kind}\",\"data\":{data}}}\n"
            )
        };
        let mut log = line("run_started", "{}");
        for step in 0..1000 {
            let data = format!("{{\"step\":{step},\"loss\":1.5,\"accuracy\":0.5}}");
            log.push_str(&line("evaluation", &data));
        }
        log.push_str(&line("evaluation", "{\"step\":1000,\"loss\":null,\"accuracy\":0.5}"));
        fs::write(run.join("events-worker-0.jsonl"), log).unwrap();
        let csv = "time_seconds,elapsed_seconds,process_rss_bytes\n1,1,100\n2,2,300\n";
        fs::write(run.join("resources-worker-0.csv"), csv).unwrap();
        fs::write(run.join("resources-ps-0.csv"), csv.replace("300", "700")).unwrap();
        fs::create_dir(cell.path().join(NODES)).unwrap();
        fs::write(cell.path().join(NODES).join("resources-node@host-2.csv"), csv).unwrap();
        let read = Recording::read(cell.path());
        for host in ["host-2", ALL_NODES] {
            assert_eq!(read.tasks[host]["process_rss_bytes"].peak, 300.0, "{host}");
        }
        assert_eq!(
            read.tasks["worker/0"]["process_rss_bytes"],
            MeanPeak { mean: 200.0, peak: 300.0 }
        );
        assert_eq!(read.tasks["ps/0"]["process_rss_bytes"].peak, 700.0);
        assert!(read.curve.len() <= MOST_SCORES + 1, "{}", read.curve.len());
        assert_eq!((read.curve[0].step, read.curve.last().unwrap().step), (0, 999));
        assert_eq!(Recording::read(&cell.path().join("nowhere")), Recording::default());
    }
}
