//! What the machines of a run are doing now: the last readings of each task's recording.

use crate::plain_file::open_plain;
use serde::Serialize;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The end of a recording that is read: some hundred readings.
const LAST_BYTES: u64 = 64 << 10;
/// Most bytes of a recording's first line.
const HEADER_BYTES: usize = 8 << 10;
/// Readings shown.
const READINGS: usize = 60;
/// Figures shown of each reading, by their columns.
const FIGURES: &[&str] = &[
    "cpu_user_percent",
    "cpu_system_percent",
    "cpu_iowait_percent",
    "cpu_busiest_core_percent",
    "process_cpu_percent",
    "process_rss_bytes",
    "memory_used_bytes",
    "memory_available_bytes",
    "network_received_bytes_per_second",
    "network_sent_bytes_per_second",
    "network_received_packets_per_second",
    "network_sent_packets_per_second",
    "disk_read_bytes_per_second",
    "disk_written_bytes_per_second",
    "disk_reads_per_second",
    "disk_writes_per_second",
];

/// The last readings of a task's machine.
#[derive(Debug, Serialize)]
pub(crate) struct TaskMachine {
    pub(crate) task: String,
    /// Seconds since 1970, of each reading.
    pub(crate) times: Vec<f64>,
    /// Values by column; null where nothing was read.
    pub(crate) figures: Vec<(&'static str, Vec<Option<f64>>)>,
}

/// The last readings of every task that records its machine.
pub(crate) fn latest(run: &Path) -> Vec<TaskMachine> {
    let Ok(entries) = fs::read_dir(run) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("resources-") && name.ends_with(".csv"))
        .collect();
    names.sort();
    names
        .into_iter()
        .filter_map(|name| {
            let task = name.strip_prefix("resources-")?.strip_suffix(".csv")?.to_owned();
            readings(&run.join(&name), task).ok()
        })
        .collect()
}

fn readings(path: &Path, task: String) -> io::Result<TaskMachine> {
    let file = open_plain(path)?;
    let part = |from: u64, most: usize| {
        let mut bytes = vec![0; most];
        let count = file.read_at(&mut bytes, from)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
    };
    let head = part(0, HEADER_BYTES)?;
    let header: Vec<&str> = head.lines().next().unwrap_or_default().split(',').collect();
    let from = file.metadata()?.len().saturating_sub(LAST_BYTES);
    let text = part(from, LAST_BYTES as usize)?;
    // The first line is cut, and the last one may not be written yet.
    let lines = text.split_inclusive('\n').skip(1).filter_map(|line| line.strip_suffix('\n'));
    let mut rows: Vec<Vec<Option<f64>>> = lines
        .map(|line| line.split(',').map(|cell| cell.parse().ok()).collect::<Vec<_>>())
        .filter(|row| row.len() == header.len())
        .collect();
    let time = header.iter().position(|name| *name == "time_seconds");
    rows.retain(|row| time.is_some_and(|time| row[time].is_some()));
    rows.drain(..rows.len().saturating_sub(READINGS));
    let figures = FIGURES.iter().filter_map(|name| {
        let at = header.iter().position(|known| known == name)?;
        Some((*name, rows.iter().map(|row| row[at]).collect()))
    });
    let times = rows.iter().filter_map(|row| row[time?]).collect();
    Ok(TaskMachine { task, figures: figures.collect(), times })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_readings_are_found_and_half_a_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut text = "time_seconds,elapsed_seconds,cpu_user_percent\n".to_owned();
        (0..5000).for_each(|at| text.push_str(&format!("{at},{at},{}\n", at % 100)));
        text.push_str("5000,50");
        fs::write(folder.path().join("resources-worker-0.csv"), text).unwrap();
        let found = latest(folder.path());
        assert_eq!((found.len(), found[0].task.as_str()), (1, "worker-0"));
        assert_eq!(found[0].times.len(), READINGS);
        assert_eq!(found[0].times.last(), Some(&4999.0));
        assert_eq!(found[0].figures[0].0, "cpu_user_percent");
        assert_eq!(found[0].figures[0].1.last(), Some(&Some(99.0)));
    }
}
