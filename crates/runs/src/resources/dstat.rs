//! What `dstat --output` writes, its successor dool, and `paceline monitor --dstat`.
//!
//! Two header lines name groups and columns. Where dstat wrote a title above them, the first reading is the mean since the machine was
//! started and is left out. A second recording into the same file is appended with its own title.

use super::recording::{Fault, Gathered, MOST_CORES, Named, moment, month};
use super::{cells, number};

/// A column of the file: its group and its name.
struct Column {
    group: String,
    name: String,
}

#[derive(Default)]
struct File {
    node: Option<String>,
    /// The year of the title's date; times of readings have none.
    year: Option<i64>,
    columns: Vec<Column>,
    groups: Vec<String>,
    /// Whether the next reading is the mean since the start of the machine.
    since_boot: bool,
    last: f64,
    found: Gathered,
}

/// Reads a file.
pub(super) fn parse(text: &str) -> Result<Named, Fault> {
    let mut file = File::default();
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let whole = line.ends_with('\n');
        let cells = cells(line.trim_end_matches(['\n', '\r']), ',');
        if cells.iter().all(String::is_empty) {
            continue;
        }
        let outcome = if line.starts_with('"') {
            file.head(cells)
        } else if file.columns.is_empty() {
            Err("a reading before the names of its columns".to_owned())
        } else if !whole && cells.len() < file.columns.len() {
            break; // a reading that a kill cut off
        } else {
            file.reading(&cells)
        };
        outcome.map_err(|reason| (at + 1, reason))?;
    }
    Ok((file.node, file.found.finish()))
}

impl File {
    fn head(&mut self, cells: Vec<String>) -> Result<(), String> {
        let value = |name: &str| {
            let at = cells.iter().position(|cell| cell == name)?;
            cells.get(at + 1).filter(|value| !value.is_empty())
        };
        if cells[0].ends_with("CSV output") {
            (self.since_boot, self.columns) = (true, Vec::new());
            self.groups.clear();
        } else if cells[0].ends_with(':') {
            if let Some(host) = value("Host:") {
                self.node = Some(host.clone());
            }
            // 18 Nov 2026 03:43:39 UTC
            let year = value("Date:").and_then(|date| date.split(' ').nth(2)?.parse().ok());
            self.year = year.or(self.year);
        } else if self.groups.is_empty() {
            self.groups = cells;
        } else {
            return self.names(cells);
        }
        Ok(())
    }

    /// The second of the two lines; a group stands over its first column only.
    fn names(&mut self, names: Vec<String>) -> Result<(), String> {
        let groups = std::mem::take(&mut self.groups);
        let mut group = String::new();
        self.columns = names
            .into_iter()
            .enumerate()
            .map(|(at, name)| {
                if let Some(new) = groups.get(at).filter(|new| !new.is_empty()) {
                    group.clone_from(new);
                }
                // Several groups of one kind repeat theirs: `cpu0 usage:usr`.
                let name = name.rsplit(':').next().unwrap_or_default().to_owned();
                Column { group: group.clone(), name }
            })
            .collect();
        let timed = |column: &Column| matches!(column.name.as_str(), "time" | "epoch");
        if !self.columns.iter().any(timed) {
            return Err("readings without a time; record with `dstat -t` or `-T`".to_owned());
        }
        Ok(())
    }

    fn reading(&mut self, cells: &[String]) -> Result<(), String> {
        if cells.len() != self.columns.len() {
            return Err(format!("{} values for {} columns", cells.len(), self.columns.len()));
        }
        let at = self.columns.iter().position(|it| matches!(it.name.as_str(), "time" | "epoch"));
        let at = at.ok_or("readings without a time")?;
        let time = self.time(&cells[at]).ok_or_else(|| format!("`{}` is not a time", cells[at]))?;
        self.last = time;
        if std::mem::take(&mut self.since_boot) {
            return Ok(());
        }
        let devices = |prefix: &str, whole: &str| {
            self.columns.iter().any(|it| it.group.starts_with(prefix) && it.group == whole)
        };
        let wholes = [devices("net/", "net/total"), devices("dsk/", "dsk/total")];
        let mut idle: Vec<(usize, f64)> = Vec::new();
        for (index, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            if index == at || cell.trim().is_empty() {
                continue;
            }
            let value = number(cell).ok_or_else(|| {
                format!("`{cell}` is not a number, in column {} of {}", column.name, column.group)
            })?;
            let (group, name) = (column.group.as_str(), column.name.as_str());
            if let Some(core) = core(group) {
                if matches!(name, "idl" | "wai") {
                    idle.push((core, value));
                }
                continue;
            }
            // With a column for all devices, those for each would count twice.
            let twice = |prefix: &str, whole: bool| {
                whole && group.starts_with(prefix) && !group.ends_with("/total")
            };
            if twice("net/", wholes[0]) || twice("dsk/", wholes[1]) || group == "net/lo" {
                continue;
            }
            if let Some(ours) = ours(group, name) {
                self.found.add(time, ours, value);
            }
        }
        let cores: std::collections::BTreeSet<usize> = idle.iter().map(|(core, _)| *core).collect();
        for core in cores {
            let free: f64 = idle.iter().filter(|it| it.0 == core).map(|it| it.1).sum();
            self.found.core(time, core, 100.0 - free);
        }
        Ok(())
    }

    /// `18-11 03:43:39`, dool's `Nov-18 03:43:39`, or seconds since 1970.
    fn time(&self, cell: &str) -> Option<f64> {
        let Some((day, clock)) = cell.trim().split_once(' ') else {
            return number(cell).filter(|seconds| *seconds >= 0.0);
        };
        let (first, second) = day.split_once('-')?;
        let (day, month) = match month(first) {
            Some(month) => (second.parse().ok()?, month),
            None => (first.parse().ok()?, second.parse().ok()?),
        };
        let year = self.year.unwrap_or(1970);
        let time = moment(year, month, day, clock)?;
        // A recording over New Year.
        let again = time + 180.0 * 86_400.0 < self.last;
        if again { moment(year + 1, month, day, clock) } else { Some(time) }
    }
}

/// The number in `cpu3 usage`.
fn core(group: &str) -> Option<usize> {
    let digits = group.strip_prefix("cpu")?.strip_suffix(" usage")?;
    digits.parse().ok().filter(|core| *core < MOST_CORES)
}

/// Our column for one of theirs.
fn ours(group: &str, name: &str) -> Option<&'static str> {
    let kind = group.split('/').next().unwrap_or_default();
    Some(match (kind, name) {
        ("total cpu usage", "usr") => "cpu_user_percent",
        ("total cpu usage", "sys" | "hiq" | "siq") => "cpu_system_percent",
        ("total cpu usage", "idl") => "cpu_idle_percent",
        ("total cpu usage", "wai") => "cpu_iowait_percent",
        ("total cpu usage", "stl") => "cpu_steal_percent",
        ("memory usage", "used") => "memory_used_bytes",
        ("memory usage", "free") => "memory_free_bytes",
        ("memory usage", "cach" | "buff") => "memory_cached_bytes",
        ("memory usage", "avai") => "memory_available_bytes",
        ("net", "recv") => "network_received_bytes_per_second",
        ("net", "send") => "network_sent_bytes_per_second",
        ("pkt", "#recv") => "network_received_packets_per_second",
        ("pkt", "#send") => "network_sent_packets_per_second",
        ("dsk", "read") => "disk_read_bytes_per_second",
        ("dsk", "writ") => "disk_written_bytes_per_second",
        ("io", "read") => "disk_reads_per_second",
        ("io", "writ") => "disk_writes_per_second",
        ("system", "csw") => "context_switches_per_second",
        ("procs", "run") => "run_queue_tasks",
        _ => return None,
    })
}
