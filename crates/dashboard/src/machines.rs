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
/// Rows of the map of cores; on a larger machine neighbours share one.
const CORE_ROWS: usize = 32;
/// The column with the busy share of every core.
const CORES: &str = "cpu_cores_percent";
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
    /// Busy shares in per cent, a list for each row of the map of cores; none where cores were not recorded.
    pub(crate) cores: Vec<CoreRow>,
}

/// A core, or neighbours of a large machine, over the readings.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct CoreRow {
    /// Their numbers, such as `3` or `4–7`.
    pub(crate) name: String,
    pub(crate) percent: Vec<Option<f64>>,
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
    let mut rows: Vec<Vec<&str>> = lines
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|row| row.len() == header.len())
        .collect();
    let column = |name: &str| header.iter().position(|known| *known == name);
    let number = |row: &Vec<&str>, at: usize| row[at].parse::<f64>().ok();
    let time = column("time_seconds");
    rows.retain(|row| time.is_some_and(|time| number(row, time).is_some()));
    // A row that only holds what someone said has no readings.
    let said = column("mark");
    rows.retain(|row| said.is_none_or(|said| row[said].is_empty()));
    rows.drain(..rows.len().saturating_sub(READINGS));
    let figures = FIGURES.iter().filter_map(|name| {
        let at = column(name)?;
        Some((*name, rows.iter().map(|row| number(row, at)).collect()))
    });
    let figures = figures.collect();
    let times = rows.iter().filter_map(|row| number(row, time?)).collect();
    let cores = column(CORES).map(|at| rows.iter().map(|row| row[at]).collect::<Vec<_>>());
    Ok(TaskMachine { task, figures, times, cores: core_rows(&cores.unwrap_or_default()) })
}

/// The map of cores from one text for each reading: shares with spaces between, a dash for a core that is off.
fn core_rows(readings: &[&str]) -> Vec<CoreRow> {
    let shares: Vec<Vec<Option<f64>>> = readings
        .iter()
        .map(|text| text.split_whitespace().map(|share| share.parse().ok()).collect())
        .collect();
    let count = shares.iter().map(Vec::len).max().unwrap_or(0);
    let each = count.div_ceil(CORE_ROWS).max(1);
    (0..count)
        .step_by(each)
        .map(|first| {
            let last = (first + each).min(count) - 1;
            let mean = |reading: &Vec<Option<f64>>| {
                let known: Vec<f64> = (first..=last)
                    .filter_map(|core| reading.get(core).copied().flatten())
                    .collect();
                (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
            };
            let name = match each {
                1 => first.to_string(),
                _ => format!("{first}–{last}"),
            };
            CoreRow { name, percent: shares.iter().map(mean).collect() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_of_a_large_machine_share_rows_and_one_that_is_off_counts_for_nothing() {
        let small = core_rows(&["0 50 -", "100 50 20"]);
        assert_eq!(small.len(), 3);
        assert_eq!(small[2], CoreRow { name: "2".to_owned(), percent: vec![None, Some(20.0)] });
        let large: Vec<String> = (0..96).map(|core| core.to_string()).collect();
        let large = core_rows(&[&large.join(" ")]);
        assert_eq!(large.len(), 32);
        assert_eq!(large[1], CoreRow { name: "3–5".to_owned(), percent: vec![Some(4.0)] });
        assert!(core_rows(&["", ""]).is_empty());
    }

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
