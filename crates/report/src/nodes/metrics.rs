//! What is drawn of a node, and how it is read from its recordings.

use super::{Node, Recorded};
use paceline_runs::Resources;

/// What a chart of resources shows.
pub(super) struct Metric {
    pub(super) title: &'static str,
    /// Columns of the recording, added up.
    columns: &'static [&'static str],
    /// Whether the columns are those of a process, to be added up over the run's processes on a node; the others are the node's.
    pub(super) own: bool,
    pub(super) unit: &'static str,
    /// What a value of the recording is divided by.
    divisor: f64,
    /// Whether the columns tell how much is free, of 100.
    pub(super) free: bool,
    /// Columns that say the same where the others were not recorded.
    or: &'static [&'static str],
    /// Whether it is what other programs took: what is busy without the run's own processes.
    others: bool,
}

impl Metric {
    /// Every column it is read from.
    pub(super) fn columns(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().chain(self.or).copied()
    }
}

const fn metric(
    title: &'static str,
    columns: &'static [&'static str],
    (own, unit, divisor): (bool, &'static str, f64),
) -> Metric {
    Metric { title, columns, own, unit, divisor, free: false, or: &[], others: false }
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        free: true,
        ..metric("CPU, whole node", &["cpu_idle_percent"], (false, "% busy", 1.0))
    },
    metric("CPU, own processes", &["process_cpu_percent"], (true, "% of one core", 1.0)),
    Metric {
        others: true,
        ..metric("CPU, other programs", &["cpu_idle_percent"], (false, "% of one core", 1.0))
    },
    metric("CPU wait, own processes", &["process_waiting_percent"], (true, "% of one core", 1.0)),
    metric("Memory used, whole node", &["memory_used_bytes"], (false, "GB", 1e9)),
    metric("Memory free, whole node", &["memory_free_bytes"], (false, "GB", 1e9)),
    metric("Memory, own processes", &["process_rss_bytes"], (true, "MB", 1e6)),
    metric("Network in", &["network_received_bytes_per_second"], (false, "MB/s", 1e6)),
    metric("Network out", &["network_sent_bytes_per_second"], (false, "MB/s", 1e6)),
    metric(
        "Network packets, in and out",
        &["network_received_packets_per_second", "network_sent_packets_per_second"],
        (false, "packets/s", 1.0),
    ),
    metric("Loopback", &["loopback_bytes_per_second"], (false, "MB/s", 1e6)),
    metric("Disk read", &["disk_read_bytes_per_second"], (false, "MB/s", 1e6)),
    metric("Disk written", &["disk_written_bytes_per_second"], (false, "MB/s", 1e6)),
    Metric {
        or: &["disk_operations_per_second"],
        ..metric(
            "Disk operations",
            &["disk_reads_per_second", "disk_writes_per_second"],
            (false, "operations/s", 1.0),
        )
    },
];
/// A resource below this in its chart's unit counts as unused.
pub(super) const UNUSED: f64 = 0.05;

/// A line of a chart: seconds since the run began, and the value.
type Curve = Vec<(f64, f64)>;

/// Curves added up at the places of the first; between its readings a curve keeps its last value.
fn sum(mut curves: impl Iterator<Item = Curve>) -> Curve {
    let mut total = curves.next().unwrap_or_default();
    for curve in curves {
        let mut at = 0;
        for (time, value) in &mut total {
            while at + 1 < curve.len() && curve[at + 1].0 <= *time {
                at += 1;
            }
            *value += curve.get(at).map_or(0.0, |reading| reading.1);
        }
    }
    total
}

/// Curves of one node on one line: those of its tasks cover different times, and where they overlap they say the same.
fn joined(mut curves: Vec<Curve>) -> Curve {
    curves.retain(|curve| !curve.is_empty());
    curves.sort_by(|a, b| a[0].0.total_cmp(&b[0].0));
    let mut all: Curve = Vec::new();
    for curve in curves {
        let end = all.last().map_or(f64::NEG_INFINITY, |last| last.0);
        all.extend(curve.into_iter().filter(|point| point.0 > end));
    }
    all
}

/// Curves of tasks added up: one that has not begun or has ended adds nothing.
fn added(curves: &[Curve]) -> Curve {
    let mut total = joined(curves.to_vec());
    for (time, value) in &mut total {
        let of = |curve: &Curve| {
            let (first, last) = (curve.first()?.0, curve.last()?.0);
            let after = curve.partition_point(|point| point.0 <= *time);
            (first..=last).contains(time).then(|| curve[after.saturating_sub(1)].1)
        };
        *value = curves.iter().filter_map(of).sum();
    }
    total
}

/// A metric of one recording, on the clock of all.
fn reading(metric: &Metric, recording: &Resources, shift: f64) -> Curve {
    let known = |column: &&&str| !recording.series(column).is_empty();
    let chosen =
        if metric.columns.iter().any(|it| known(&it)) { metric.columns } else { metric.or };
    let total = sum(chosen.iter().map(|column| recording.series(column)));
    let total = total.into_iter().map(|(time, value)| {
        let value = if metric.free { 100.0 - value } else { value };
        (time + shift, value / metric.divisor)
    });
    total.collect()
}

/// What other programs took of a node's cores, in per cent of one; nothing where its cores or the own processes are not known.
fn others(node: &Node<'_>, shift: impl Fn(&Resources) -> f64) -> Curve {
    let Some((_, first)) = node.tasks.first() else { return Vec::new() };
    let Some(cores) = first.core_count() else { return Vec::new() };
    let own = METRICS.iter().find(|metric| metric.own);
    let own = own.map(|own| {
        added(&node.tasks.iter().map(|it| reading(own, it.1, shift(it.1))).collect::<Vec<_>>())
    });
    let Some(own) = own.filter(|curve| !curve.is_empty()) else { return Vec::new() };
    let idle = |it: &Resources| -> Curve {
        let idle = it.series("cpu_idle_percent").into_iter();
        idle.map(|(time, idle)| (time + shift(it), (100.0 - idle) * cores as f64)).collect()
    };
    let busy = joined(node.tasks.iter().map(|(_, it)| idle(it)).collect());
    let less = own.into_iter().map(|(time, value)| (time, -value)).collect();
    let mut left = sum([busy, less].into_iter());
    left.iter_mut().for_each(|(_, value)| *value = value.max(0.0));
    left
}

/// The curves of a metric by node; with `split`, of the processes of the only node one by one.
pub(super) fn curves_of(metric: &Metric, one: &Recorded<'_>, split: bool) -> Vec<(String, Curve)> {
    let mut found = Vec::new();
    for node in &one.nodes {
        let of = |task: &(String, &Resources)| reading(metric, task.1, one.shift(task.1));
        if metric.others {
            found.push((node.name.clone(), others(node, |it| one.shift(it))));
        } else if !metric.own {
            found.push((node.name.clone(), joined(node.tasks.iter().map(of).collect())));
        } else if split && node.tasks.len() > 1 {
            found.extend(node.tasks.iter().map(|task| (task.0.clone(), of(task))));
        } else {
            found.push((node.name.clone(), added(&node.tasks.iter().map(of).collect::<Vec<_>>())));
        }
    }
    found.retain(|(_, curve)| curve.len() > 1);
    found
}
