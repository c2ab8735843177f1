//! Runs on one clock: phases over time, every resource of every node, and marks for events.
//!
//! Marks come from recorded events and are never inferred from a curve: a checkpoint restore, for example, is marked because it
//! wrote an event.

use crate::chart::{Axis, Chart, Series, Span};
use crate::page::Figure;
use crate::table::{Column, Table};
use crate::theme;
use crate::training::{RunView, decimal};
use paceline_runs::{CheckpointAction, Event, Resources};

/// Segments into which a run is cut for the phases over time.
const SEGMENTS: usize = 60;
/// Most runs whose phases and resources are drawn over time; for more, only shares and means are shown.
const MOST_RUNS: usize = 4;
/// Names of the phases, in the order in which a step goes through them.
pub(crate) const PHASES: [&str; 4] = ["input", "compute", "exchange", "wait"];

/// Something that happened, for a mark at its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Seconds since the run began.
    pub time: f64,
    /// What happened, in a few words.
    pub what: String,
    /// Whether it changed the course of the run, as a loss or a restore does; others are routine.
    pub notable: bool,
}

/// All marks of a run, in order.
#[must_use]
pub fn marks(run: &RunView) -> Vec<Mark> {
    let start = run.start();
    let mut marks: Vec<Mark> = run
        .records
        .iter()
        .filter_map(|record| {
            let (what, notable) = match record.event.as_ref()? {
                Event::Evaluation(_) => ("evaluation".to_owned(), false),
                Event::Checkpoint(checkpoint) => match checkpoint.action {
                    CheckpointAction::Saved => ("checkpoint saved".to_owned(), false),
                    CheckpointAction::Restored => {
                        (format!("restored from step {}", checkpoint.step), true)
                    }
                    CheckpointAction::Refused => ("damaged checkpoint refused".to_owned(), true),
                    CheckpointAction::Failed => ("checkpoint failed".to_owned(), true),
                    CheckpointAction::Deleted | CheckpointAction::Unknown => return None,
                },
                Event::TaskJoined(_) => (format!("{} joined", record.task), false),
                Event::TaskLost(lost) => (format!("{} lost", lost.lost), true),
                Event::TaskRecovered(back) => (format!("{} back", back.recovered), true),
                _ => return None,
            };
            Some(Mark { time: record.time - start, what, notable })
        })
        .collect();
    marks.sort_by(|a, b| a.time.total_cmp(&b.time));
    marks
}

fn marked(mut chart: Chart, marks: &[Mark]) -> Chart {
    for mark in marks {
        chart = chart.mark(mark.time, if mark.notable { mark.what.as_str() } else { "" });
    }
    chart
}

fn figure(title: String, chart: &Chart, words: &str) -> Figure {
    Figure {
        title,
        colour: None,
        key: Vec::new(),
        svg: chart.svg(),
        words: words.to_owned(),
        notes: Vec::new(),
    }
}

/// Shares of the phases over time, one picture per run.
pub(crate) fn phases(runs: &[&RunView], names: &[String]) -> Vec<Figure> {
    if runs.len() > MOST_RUNS {
        return Vec::new();
    }
    let all = runs.iter().zip(names);
    let mut figures: Vec<Figure> =
        all.filter_map(|(run, name)| phases_of(run, name, runs.len())).collect();
    // Said once is enough.
    figures.iter_mut().skip(1).for_each(|figure| figure.words.clear());
    figures
}

fn phases_of(run: &RunView, name: &str, runs: usize) -> Option<Figure> {
    let start = run.start();
    let steps: Vec<(f64, [f64; 4])> = run
        .records
        .iter()
        .filter_map(|record| match record.event.as_ref()? {
            Event::Step(step) => {
                let phases = &step.phases;
                let parts = [phases.input, phases.compute, phases.exchange, phases.wait];
                Some((record.time - start, parts))
            }
            _ => None,
        })
        .collect();
    let end = steps.last().filter(|_| steps.len() > 3)?.0;
    let width = (end / SEGMENTS as f64).max(1e-9);
    let mut sums = vec![[0.0; 4]; SEGMENTS];
    for (time, parts) in &steps {
        let at = ((time / width) as usize).min(SEGMENTS - 1);
        parts.iter().zip(&mut sums[at]).for_each(|(part, sum)| *sum += part);
    }
    let title = match runs {
        1 => "Did that change over time?".to_owned(),
        _ => format!("Did that change over time? {name}"),
    };
    let mut chart = Chart::new(
        &title,
        Axis::new("time").unit("s"),
        Axis::new("share of the step").unit("%").from_zero().range(0.0, 100.0),
    );
    for (place, phase) in PHASES.into_iter().enumerate() {
        let spans: Vec<Span> = sums
            .iter()
            .enumerate()
            .filter_map(|(at, parts)| {
                let total: f64 = parts.iter().sum();
                (total > 0.0).then(|| {
                    let low = 100.0 * parts[..place].iter().sum::<f64>() / total;
                    let high = low + 100.0 * parts[place] / total;
                    Span { x: (at as f64 + 0.5) * width, y: (low + high) / 2.0, low, high }
                })
            })
            .collect();
        let visible = spans.iter().any(|span| span.high - span.low >= 1.0);
        if visible && spans.len() > 1 {
            chart = chart.with(Series::area(phase, spans).colour(place));
        }
    }
    if chart.series.is_empty() {
        return None;
    }
    let words = "Dotted: evaluations, checkpoints. Solid: failures, recoveries, restores.";
    let marks = marks(run);
    let words = if marks.is_empty() { "" } else { words };
    Some(figure(title, &marked(chart, &marks), words))
}

/// What a chart of resources shows.
struct Metric {
    title: &'static str,
    /// Columns of the recording, added up.
    columns: &'static [&'static str],
    /// Whether the columns are those of a process, to be added up over the run's processes on a node; the others are the node's.
    own: bool,
    unit: &'static str,
    /// What a value of the recording is divided by.
    divisor: f64,
    /// Whether the columns tell how much is free, of 100.
    free: bool,
}

const fn metric(
    title: &'static str,
    columns: &'static [&'static str],
    (own, unit, divisor): (bool, &'static str, f64),
) -> Metric {
    Metric { title, columns, own, unit, divisor, free: false }
}

const METRICS: &[Metric] = &[
    Metric {
        free: true,
        ..metric("CPU, whole node", &["cpu_idle_percent"], (false, "% busy", 1.0))
    },
    metric("CPU, own processes", &["process_cpu_percent"], (true, "% of one core", 1.0)),
    metric("CPU wait, own processes", &["process_waiting_percent"], (true, "% of one core", 1.0)),
    metric("Memory used, whole node", &["memory_used_bytes"], (false, "GB", 1e9)),
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
    metric(
        "Disk operations",
        &["disk_reads_per_second", "disk_writes_per_second"],
        (false, "operations/s", 1.0),
    ),
];
/// A resource below this in its chart's unit counts as unused.
const UNUSED: f64 = 0.05;

/// A line of a chart: seconds since the run began, and the value.
type Curve = Vec<(f64, f64)>;

/// The tasks of a run on one host.
struct Node<'a> {
    name: String,
    tasks: Vec<&'a (String, Resources)>,
}

/// The nodes of a run by name, each with the recordings of its tasks.
fn nodes(run: &RunView) -> Vec<Node<'_>> {
    let joined = |task: &str| {
        run.records.iter().find_map(|record| match record.event.as_ref()? {
            Event::TaskJoined(joined) if joined.role == task && !joined.host.is_empty() => {
                Some(joined.host.clone())
            }
            _ => None,
        })
    };
    let loaded = |task: &str| {
        let load = run.summary.tasks.iter().find(|load| load.task == task);
        load.map(|load| load.host.clone()).filter(|host| !host.is_empty())
    };
    let machine = || run.machine.as_ref().map(|machine| machine.host.clone());
    let mut found: Vec<Node<'_>> = Vec::new();
    for recording in &run.resources {
        let task = &recording.0;
        let name = joined(task).or_else(|| loaded(task)).or_else(machine).unwrap_or_default();
        match found.iter_mut().find(|node| node.name == name) {
            Some(node) => node.tasks.push(recording),
            None => found.push(Node { name, tasks: vec![recording] }),
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

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

/// A metric of one recording, on the run's clock.
fn reading(metric: &Metric, recording: &Resources, start: f64) -> Curve {
    let shift = recording.begin().map_or(0.0, |begin| begin - start);
    let columns = metric.columns.iter().map(|column| recording.series(column));
    let total = sum(columns).into_iter().map(|(time, value)| {
        let value = if metric.free { 100.0 - value } else { value };
        (time + shift, value / metric.divisor)
    });
    total.collect()
}

/// The curves of a metric in one run by node; where there is one node only, its processes one by one.
fn curves_of(metric: &Metric, run: &RunView, split: bool) -> Vec<(String, Curve)> {
    let start = run.start();
    let mut found = Vec::new();
    for node in nodes(run) {
        let of = |task: &&(String, Resources)| reading(metric, &task.1, start);
        if !metric.own {
            // Every task of a node records the same node; one recording is enough.
            found.extend(node.tasks.first().map(|task| (node.name.clone(), of(task))));
        } else if split {
            found.extend(node.tasks.iter().map(|task| (task.0.clone(), of(task))));
        } else {
            found.push((node.name.clone(), sum(node.tasks.iter().map(of))));
        }
    }
    found.retain(|(_, curve)| curve.len() > 1);
    found
}

/// Every resource that was used: one chart for each, with every node of every run, by name.
pub(crate) fn resources(runs: &[&RunView], names: &[String]) -> Vec<Figure> {
    if runs.len() > MOST_RUNS {
        return Vec::new(); // too many curves to read; the table of nodes has the means
    }
    let mut hosts: Vec<String> =
        runs.iter().flat_map(|run| nodes(run)).map(|node| node.name).collect();
    hosts.sort();
    hosts.dedup();
    let split = hosts.len() == 1 && runs.len() == 1;
    let mut figures: Vec<Figure> = Vec::new();
    for metric in METRICS {
        let axis = Axis::new("").unit(metric.unit).from_zero();
        let axis = if metric.free { axis.range(0.0, 100.0) } else { axis };
        let mut chart = Chart::new(metric.title, Axis::new("time").unit("s"), axis);
        let mut used = false;
        for (index, (run, name)) in runs.iter().zip(names).enumerate() {
            for (node, curve) in curves_of(metric, run, split) {
                used |= curve.iter().any(|(_, value)| *value > UNUSED);
                let label = match (runs.len(), hosts.len()) {
                    (1, _) => node.clone(),
                    (_, 1) => name.clone(),
                    _ => format!("{node}, {name}"),
                };
                // A node keeps its colour and a run its dash, while there are enough of both.
                let host = hosts.iter().position(|host| *host == node);
                let place = match host.filter(|_| hosts.len() > 1 && runs.len() > 1) {
                    Some(host) if hosts.len() <= theme::COLOURS => index * theme::COLOURS + host,
                    _ => chart.series.len(),
                };
                chart = chart.with(Series::line(label, curve).colour(place));
            }
        }
        if !used {
            continue;
        }
        for (run, name) in runs.iter().zip(names) {
            let mut marks = marks(run);
            if runs.len() > 1 {
                marks.retain(|mark| mark.notable);
                marks.iter_mut().for_each(|mark| mark.what.push_str(&format!(" ({name})")));
            }
            chart = marked(chart, &marks);
        }
        // A node of one run names the line where there is only one.
        let title = match (&chart.series[..], runs.len(), metric.own) {
            ([only], 1, false) if !only.name.is_empty() => {
                format!("{}: {}", metric.title, only.name)
            }
            _ => metric.title.to_owned(),
        };
        figures.push(figure(title, &chart, ""));
    }
    figures
}

/// What a column of the table of nodes holds: heading, unit, column of the recording, divisor, decimals.
type Mean = (&'static str, &'static str, &'static str, f64, usize);

const MEANS: &[Mean] = &[
    ("CPU idle", "%", "cpu_idle_percent", 1.0, 1),
    ("memory used", "GB", "memory_used_bytes", 1e9, 2),
    ("memory free", "GB", "memory_free_bytes", 1e9, 2),
    ("network in", "MB/s", "network_received_bytes_per_second", 1e6, 2),
    ("network out", "MB/s", "network_sent_bytes_per_second", 1e6, 2),
    ("disk read", "MB/s", "disk_read_bytes_per_second", 1e6, 2),
    ("disk written", "MB/s", "disk_written_bytes_per_second", 1e6, 2),
];

/// What every node did on average, one row each.
pub(crate) fn means(runs: &[&RunView], names: &[String]) -> Table {
    let mut columns = if runs.len() > 1 { vec![Column::words("run")] } else { Vec::new() };
    columns.push(Column::words("node"));
    columns.push(Column::words("tasks"));
    columns.extend(MEANS.iter().map(|(name, unit, ..)| Column::numbers(*name).unit(*unit)));
    let mut table = Table::new(columns).captioned("Means over the whole run.");
    for (run, name) in runs.iter().zip(names) {
        for node in nodes(run) {
            let mut row = if runs.len() > 1 { vec![name.clone()] } else { Vec::new() };
            row.push(node.name.clone());
            let tasks: Vec<&str> = node.tasks.iter().map(|task| task.0.as_str()).collect();
            row.push(tasks.join(" "));
            let recording = node.tasks.first().map(|task| &task.1);
            row.extend(MEANS.iter().map(|(_, _, column, divisor, decimals)| {
                let mean = recording.and_then(|recording| recording.mean(column));
                decimal(mean.map_or(f64::NAN, |mean| mean / divisor), *decimals)
            }));
            table.rows.push(row);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Checkpoint, Evaluation, PhaseTimes, Record, Step, TaskJoined, TaskLost};

    fn record(time: f64, event: Event) -> Record {
        Record { time, task: "worker/0".to_owned(), kind: String::new(), event: Some(event) }
    }

    fn view(records: Vec<Record>) -> RunView {
        RunView { name: "r".to_owned(), threads: 2, records, ..RunView::default() }
    }

    #[test]
    fn what_happened_is_marked_at_its_time() {
        let restored = Checkpoint {
            action: CheckpointAction::Restored,
            step: 40,
            seconds: 0.0,
            bytes: 0,
            reason: None,
        };
        let lost = TaskLost { lost: "worker/1".to_owned(), ..TaskLost::default() };
        let run = view(vec![
            record(100.0, Event::Step(Step::default())),
            record(103.0, Event::TaskLost(lost)),
            record(101.0, Event::Evaluation(Evaluation::default())),
            record(104.0, Event::Checkpoint(restored)),
        ]);
        let found = marks(&run);
        let texts: Vec<(f64, &str, bool)> =
            found.iter().map(|mark| (mark.time, mark.what.as_str(), mark.notable)).collect();
        assert_eq!(
            texts,
            [
                (1.0, "evaluation", false),
                (3.0, "worker/1 lost", true),
                (4.0, "restored from step 40", true)
            ]
        );
    }

    #[test]
    fn phases_are_stacked_to_the_whole() {
        let phases = PhaseTimes { input: 0.2, compute: 0.5, exchange: 0.2, wait: 0.1 };
        let steps = (0..50).map(|at| {
            record(10.0 + f64::from(at), Event::Step(Step { phases, ..Step::default() }))
        });
        let figures = super::phases(&[&view(steps.collect())], &["r".to_owned()]);
        assert_eq!(figures.len(), 1);
        for phase in PHASES {
            assert!(figures[0].svg.contains(&format!(">{phase}<")), "{}", figures[0].svg);
        }
        assert!(super::phases(&[&view(Vec::new())], &["r".to_owned()]).is_empty());
    }

    fn recording(rows: &[(f64, f64, f64)]) -> Resources {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resources.csv");
        let mut text = "time_seconds,elapsed_seconds,cpu_idle_percent,process_cpu_percent,disk_reads_per_second,disk_writes_per_second\n".to_owned();
        for (time, idle, own) in rows {
            text.push_str(&format!("{},{time},{idle},{own},3,4\n", 100.0 + time));
        }
        std::fs::write(&path, text).unwrap();
        Resources::read(&path).unwrap()
    }

    fn cluster() -> RunView {
        let joined = |role: &str, host: &str| {
            let (role, host) = (role.to_owned(), host.to_owned());
            record(100.0, Event::TaskJoined(TaskJoined { role, host, ..TaskJoined::default() }))
        };
        let task = |name: &str, own: f64| {
            (name.to_owned(), recording(&[(1.0, 80.0, own), (2.0, 60.0, own)]))
        };
        RunView {
            resources: vec![task("ps/0", 5.0), task("worker/0", 30.0), task("worker/1", 70.0)],
            ..view(vec![
                joined("ps/0", "alpha"),
                joined("worker/0", "beta"),
                joined("worker/1", "alpha"),
            ])
        }
    }

    #[test]
    fn every_node_is_drawn_by_name_and_its_processes_are_added_up() {
        let run = cluster();
        let figures = resources(&[&run], &["r".to_owned()]);
        let find = |title: &str| &figures.iter().find(|it| it.title == title).unwrap().svg;
        for title in ["CPU, whole node", "CPU, own processes", "Disk operations"] {
            let svg = find(title);
            assert!(svg.contains(">alpha<") && svg.contains(">beta<"), "{title}: {svg}");
        }
        assert!(find("CPU, own processes").contains("[75,75]"), "5 and 70 on one node");
        assert!(find("CPU, whole node").contains("[20,40]"), "busy is what is not idle");
        assert!(find("Disk operations").contains("[7,7]"), "reads and writes");
        assert!(!figures.iter().any(|it| it.title.starts_with("Network")), "it was not recorded");
    }

    #[test]
    fn two_runs_share_the_axes_and_no_line_its_look() {
        let (before, after) = (cluster(), cluster());
        let names = ["before".to_owned(), "after".to_owned()];
        let figures = resources(&[&before, &after], &names);
        let svg = &figures[0].svg;
        for look in ["c0 k0", "c1 k0", "c0 k1", "c1 k1"] {
            assert_eq!(svg.matches(&format!("series {look}")).count(), 1, "{look}: {svg}");
        }
        assert!(svg.contains(">beta, after<"), "{svg}");
    }

    #[test]
    fn means_have_a_row_for_each_node() {
        let text = means(&[&cluster()], &["r".to_owned()]).markdown();
        assert!(text.contains("| alpha | ps/0 worker/1 |"), "{text}");
        assert!(text.contains("70.0"), "{text}");
    }
}
