//! What `sadf -d` makes of sar's files: sections of lines with semicolons, each under a header of its own.
//!
//! The columns depend on what was asked for (`sadf -d FILE -- -u -P ALL -r -n DEV -b`) and on the version; they are found by name.

use super::number;
use super::recording::{Fault, Gathered, MOST_CORES, Named, moment};

/// sar counts blocks of this size.
const BLOCK: f64 = 512.0;
const KIB: f64 = 1024.0;

/// Reads a file; every host of it by name.
pub(super) fn parse(text: &str) -> Result<Vec<Named>, Fault> {
    let mut hosts: Vec<(String, Gathered)> = Vec::new();
    let mut header: Vec<&str> = Vec::new();
    // Blocks of all disks are exact; single devices may be stacked and count twice.
    let by_device = !text.contains(";bread/s");
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let whole = line.ends_with('\n');
        let line = line.trim_end_matches(['\n', '\r']);
        if let Some(names) = line.strip_prefix("# ") {
            header = names.split(';').collect();
            continue;
        }
        let cells: Vec<&str> = line.split(';').collect();
        if line.is_empty() || !whole && cells.len() < header.len() {
            continue; // a line that was cut off
        }
        let fault = |reason: String| (at + 1, reason);
        let [host, interval, stamp, rest @ ..] = &cells[..] else {
            return Err(fault(format!("`{line}` has no host, interval and time")));
        };
        let time = time(stamp).ok_or_else(|| fault(format!("`{stamp}` is not a time")))?;
        let at = hosts.iter().position(|(name, _)| name == host).unwrap_or_else(|| {
            hosts.push(((*host).to_owned(), Gathered::default()));
            hosts.len() - 1
        });
        let found = &mut hosts[at].1;
        if let [event] = rest {
            if let Some(comment) = event.strip_prefix("COM ") {
                found.mark(time, comment);
                continue;
            }
            if event.starts_with("LINUX-RESTART") {
                found.mark(time, "restarted");
                continue;
            }
        }
        if cells.len() != header.len() {
            let (have, want) = (cells.len(), header.len());
            return Err(fault(format!("{have} values for {want} columns")));
        }
        found.interval = found.interval.or(number(interval).filter(|length| *length > 0.0));
        let row = Row { names: &header[3..], cells: rest, by_device };
        row.put_into(found, time).map_err(fault)?;
    }
    Ok(hosts.into_iter().map(|(host, found)| (Some(host), found.finish())).collect())
}

/// `2026-11-18 03:42:42 UTC`, the same without a zone, or seconds since 1970.
fn time(text: &str) -> Option<f64> {
    let mut words = text.split(' ');
    let (Some(date), Some(clock)) = (words.next(), words.next()) else {
        return number(text).filter(|seconds| *seconds >= 0.0);
    };
    let mut parts = date.split('-').map(str::parse::<i64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    moment(year, month, day, clock)
}

/// A line under its header, both without host, interval and time.
struct Row<'a> {
    names: &'a [&'a str],
    cells: &'a [&'a str],
    by_device: bool,
}

impl Row<'_> {
    fn put_into(&self, found: &mut Gathered, time: f64) -> Result<(), String> {
        let Some(first) = self.names.first() else { return Ok(()) };
        let device = self.cells[0];
        let columns = |of: fn(&str) -> Option<(&'static str, f64)>| {
            self.names.iter().zip(self.cells).filter_map(move |(name, cell)| {
                let (ours, factor) = of(name)?;
                Some((ours, number(cell).map(|value| value * factor), *cell))
            })
        };
        let mut put = |of: fn(&str) -> Option<(&'static str, f64)>| -> Result<(), String> {
            for (ours, value, cell) in columns(of) {
                let value = value.ok_or_else(|| format!("`{cell}` is not a number"))?;
                found.add(time, ours, value);
            }
            Ok(())
        };
        match *first {
            "CPU" if device == "-1" || device == "all" => put(processor),
            "CPU" if self.names.contains(&"%idle") => {
                let core = device.parse().ok().filter(|core| *core < MOST_CORES);
                let core = core.ok_or_else(|| format!("`{device}` is not the number of a core"))?;
                let free = columns(processor).filter(|(ours, ..)| {
                    matches!(*ours, "cpu_idle_percent" | "cpu_iowait_percent")
                });
                let free: f64 = free.filter_map(|(_, value, _)| value).sum();
                found.core(time, core, 100.0 - free);
                Ok(())
            }
            "IFACE" if device == "lo" => put(loopback),
            "IFACE" => put(interface),
            "DEV" if self.by_device => {
                put(disk)?;
                // The busiest one, not their sum.
                let busy = self.names.iter().position(|name| *name == "%util");
                let busy = busy.and_then(|at| number(self.cells[at]));
                found.highest(time, "disk_busiest_percent", busy.unwrap_or(0.0));
                Ok(())
            }
            "DEV" | "CPU" => Ok(()),
            _ => put(whole_machine),
        }
    }
}

fn processor(name: &str) -> Option<(&'static str, f64)> {
    Some(match name {
        "%user" | "%usr" | "%nice" => ("cpu_user_percent", 1.0),
        "%system" | "%sys" | "%irq" | "%soft" => ("cpu_system_percent", 1.0),
        "%iowait" => ("cpu_iowait_percent", 1.0),
        "%steal" => ("cpu_steal_percent", 1.0),
        "%idle" => ("cpu_idle_percent", 1.0),
        _ => return None,
    })
}

fn interface(name: &str) -> Option<(&'static str, f64)> {
    Some(match name {
        "rxpck/s" => ("network_received_packets_per_second", 1.0),
        "txpck/s" => ("network_sent_packets_per_second", 1.0),
        "rxkB/s" => ("network_received_bytes_per_second", KIB),
        "txkB/s" => ("network_sent_bytes_per_second", KIB),
        _ => return None,
    })
}

fn loopback(name: &str) -> Option<(&'static str, f64)> {
    (name == "txkB/s").then_some(("loopback_bytes_per_second", KIB))
}

fn disk(name: &str) -> Option<(&'static str, f64)> {
    Some(match name {
        "tps" => ("disk_operations_per_second", 1.0),
        "rkB/s" => ("disk_read_bytes_per_second", KIB),
        "wkB/s" => ("disk_written_bytes_per_second", KIB),
        "rd_sec/s" => ("disk_read_bytes_per_second", BLOCK),
        "wr_sec/s" => ("disk_written_bytes_per_second", BLOCK),
        _ => return None,
    })
}

fn whole_machine(name: &str) -> Option<(&'static str, f64)> {
    Some(match name {
        "rtps" => ("disk_reads_per_second", 1.0),
        "wtps" => ("disk_writes_per_second", 1.0),
        "bread/s" => ("disk_read_bytes_per_second", BLOCK),
        "bwrtn/s" => ("disk_written_bytes_per_second", BLOCK),
        "kbmemfree" => ("memory_free_bytes", KIB),
        "kbavail" => ("memory_available_bytes", KIB),
        "kbmemused" => ("memory_used_bytes", KIB),
        "kbcached" | "kbbuffers" => ("memory_cached_bytes", KIB),
        "kbswpused" => ("swap_used_bytes", KIB),
        "cswch/s" => ("context_switches_per_second", 1.0),
        "runq-sz" => ("run_queue_tasks", 1.0),
        _ => return None,
    })
}
