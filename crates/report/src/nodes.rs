//! Every node by name: one chart for each resource, cores as a map, means in one table.
//!
//! What was recorded beside a run, a preparation or by `paceline monitor`, dstat or sar is the same thing here: some nodes, each with
//! the recordings of its tasks, on one clock, with marks.

mod metrics;
mod told;

use crate::chart::{Axis, Chart, HeatMap, Series};
use crate::page::{Figure, Page};
use crate::theme;
use crate::timeline::{MOST_RUNS, Mark, figure, marked, marks};
use crate::training::RunView;
use metrics::{METRICS, Metric, UNUSED, curves_of};
use paceline_runs::{Event, Recording, Resources};
use std::path::Path;

pub(crate) use told::means;
pub use told::{csv, describe, document, markdown, pictures};

/// Most nodes whose cores are drawn; the charts before have all.
const MOST_MAPS: usize = 8;
/// Most columns of a map of cores.
const MOST_COLUMNS: usize = 60;
/// Most rows of a map of cores; on a larger machine neighbours share one.
const MOST_ROWS: usize = 32;

/// What some nodes did meanwhile.
#[derive(Debug, Clone)]
pub struct Recorded<'a> {
    /// What it is called beside others.
    pub name: String,
    /// When it began, in seconds since 1970.
    start: f64,
    nodes: Vec<Node<'a>>,
    /// What happened, in seconds since it began.
    marks: Vec<Mark>,
    /// Whether recordings of different times lie over each other, each from its own begin.
    apart: bool,
}

/// The tasks of one host.
#[derive(Debug, Clone)]
struct Node<'a> {
    name: String,
    tasks: Vec<(String, &'a Resources)>,
}

impl Node<'_> {
    /// The mean of a column over all its tasks, each by the time it covers.
    fn mean(&self, column: &str) -> Option<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (_, recording) in &self.tasks {
            let (Some(mean), Some(begin), Some((_, last))) =
                (recording.mean(column), recording.begin(), recording.extent())
            else {
                continue;
            };
            let length = (last - begin).max(1e-9);
            sum += length * mean;
            weight += length;
        }
        (weight > 0.0).then(|| sum / weight)
    }
}

impl<'a> Recorded<'a> {
    /// What the nodes of a run did.
    #[must_use]
    pub fn of_run(run: &'a RunView, name: &str) -> Recorded<'a> {
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
        let mut nodes: Vec<Node<'_>> = Vec::new();
        for (task, resources) in &run.resources {
            let host = joined(task).or_else(|| loaded(task)).or_else(machine).unwrap_or_default();
            put(&mut nodes, host, task.clone(), resources);
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let start = run.start();
        let mut marks = marks(run);
        for (_, resources) in &run.resources {
            marks.extend(said(resources, start, ""));
        }
        marks.sort_by(|a, b| a.time.total_cmp(&b.time));
        Recorded { name: name.to_owned(), start, nodes, marks, apart: false }
    }

    /// What the machines of some recordings did. Recordings that have no moment in common are laid over each other.
    #[must_use]
    pub fn of_recordings(recordings: &'a [Recording], name: &str) -> Recorded<'a> {
        let names = node_names(recordings);
        let extents: Vec<(f64, f64)> = recordings
            .iter()
            .map(|it| {
                let (first, last) = it.resources.extent().unwrap_or_default();
                (it.resources.begin().unwrap_or(first), last)
            })
            .collect();
        // Tasks of one job belong on one clock, however long the pauses between them.
        let one_job = recordings.iter().all(|it| task_and_host(&it.file).is_some());
        let apart = !one_job && !overlap(&extents);
        let start = extents.iter().map(|extent| extent.0).fold(f64::INFINITY, f64::min);
        let start = if start.is_finite() { start } else { 0.0 };
        let (mut nodes, mut marks) = (Vec::new(), Vec::new());
        for ((recording, node), (begin, _)) in recordings.iter().zip(names).zip(extents) {
            let task = task_and_host(&recording.file).map_or_else(String::new, |it| it.0);
            let whose = if recordings.len() > 1 { node.as_str() } else { "" };
            marks.extend(said(&recording.resources, if apart { begin } else { start }, whose));
            put(&mut nodes, node, task, &recording.resources);
        }
        marks.sort_by(|a, b| a.time.total_cmp(&b.time));
        // Tasks of one node say the same at the same time.
        marks.dedup();
        Recorded { name: name.to_owned(), start, nodes, marks, apart }
    }

    /// Seconds from its begin to the begin of a recording.
    fn shift(&self, recording: &Resources) -> f64 {
        if self.apart { 0.0 } else { recording.begin().map_or(0.0, |begin| begin - self.start) }
    }

    /// Machines in the recordings.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    fn hosts(&self) -> impl Iterator<Item = &String> {
        self.nodes.iter().map(|node| &node.name)
    }

    /// Seconds from the first to the last reading.
    fn seconds(&self) -> f64 {
        let ends = self.nodes.iter().flat_map(|node| &node.tasks).filter_map(|(_, recording)| {
            let (begin, (_, last)) = (recording.begin()?, recording.extent()?);
            Some(last - begin + self.shift(recording))
        });
        ends.fold(0.0, f64::max)
    }
}

fn put<'a>(nodes: &mut Vec<Node<'a>>, name: String, task: String, resources: &'a Resources) {
    match nodes.iter_mut().find(|node| node.name == name) {
        Some(node) => node.tasks.push((task, resources)),
        None => nodes.push(Node { name, tasks: vec![(task, resources)] }),
    }
}

/// What was marked in a recording.
fn said(recording: &Resources, start: f64, node: &str) -> Vec<Mark> {
    let marks = recording.marks().iter().map(|(time, words)| Mark {
        time: time - start,
        what: if node.is_empty() { words.clone() } else { format!("{words} ({node})") },
        notable: true,
    });
    marks.collect()
}

/// Whether all lie on one stretch of time.
fn overlap(extents: &[(f64, f64)]) -> bool {
    let mut sorted = extents.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut end = f64::INFINITY;
    for (at, (first, last)) in sorted.into_iter().enumerate() {
        if at > 0 && first > end {
            return false;
        }
        end = if at == 0 { last } else { end.max(last) };
    }
    true
}

/// Task and host of a file in a folder of results, `resources-TASK@HOST.csv`; nothing for others.
fn task_and_host(file: &Path) -> Option<(String, String)> {
    let stem = file.file_stem()?.to_string_lossy();
    let (task, host) = stem.strip_prefix("resources-")?.split_once('@')?;
    Some((task.to_owned(), host.to_owned()))
}

/// What each recording's node is called: by the host in the file, else by the file; two that are alike by more of their path.
fn node_names(recordings: &[Recording]) -> Vec<String> {
    let called = |recording: &Recording, level: usize| -> String {
        let file = &recording.file;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let stem = stem.strip_prefix("resources-").unwrap_or(&stem).to_owned();
        let folder = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        match (level, &recording.node) {
            (0, Some(host)) => host.clone(),
            (0 | 1, _) => stem,
            (2, _) => format!("{folder}/{stem}"),
            _ => file.display().to_string(),
        }
    };
    let alike = |names: &[String], at: usize| names.iter().filter(|it| **it == names[at]).count();
    // Tasks of one host belong together, by the names of their files.
    let hosts: Vec<Option<(String, String)>> =
        recordings.iter().map(|it| task_and_host(&it.file)).collect();
    if hosts.iter().all(Option::is_some) {
        return hosts.into_iter().flatten().map(|(_, host)| host).collect();
    }
    let mut names: Vec<String> = recordings.iter().map(|it| called(it, 0)).collect();
    for level in 1..=3 {
        let before = names.clone();
        for (at, recording) in recordings.iter().enumerate() {
            if alike(&before, at) > 1 {
                names[at] = called(recording, level);
            }
        }
    }
    let before = names.clone();
    for (at, name) in names.iter_mut().enumerate() {
        let earlier = before[..at].iter().filter(|it| **it == before[at]).count();
        if earlier > 0 {
            name.push_str(&format!(" ({})", earlier + 1));
        }
    }
    names
}

/// The charts of some recordings.
pub(crate) struct Charts {
    pub(crate) figures: Vec<Figure>,
    /// Whether they come in twos, to stand side by side.
    pub(crate) paired: bool,
}

impl Charts {
    /// Puts them on a page.
    pub(crate) fn place(&self, page: &mut Page) {
        match self.paired {
            true => page.pairs(&self.figures),
            false => page.figures(&self.figures),
        }
    }
}

/// Every resource that was used: one chart for each, with every node by name. Two recordings of several nodes stand side by side
/// on the same axes; others lie over each other.
pub(crate) fn charts(all: &[Recorded<'_>]) -> Charts {
    if all.len() > MOST_RUNS {
        // Too many curves to read; the table of nodes has the means.
        return Charts { figures: Vec::new(), paired: false };
    }
    let paired = all.len() == 2 && all.iter().any(|one| one.nodes.len() > 1);
    let mut hosts: Vec<&String> = all.iter().flat_map(Recorded::hosts).collect();
    hosts.sort();
    hosts.dedup();
    let mut figures = Vec::new();
    for metric in METRICS {
        match paired {
            true => figures.extend(pair(metric, all, &hosts)),
            false => figures.extend(one_chart(metric, all, &hosts)),
        }
    }
    figures.extend(maps(all));
    Charts { figures, paired }
}

fn empty_chart(metric: &Metric) -> Chart {
    let axis = Axis::new("").unit(metric.unit).from_zero();
    let axis = if metric.free { axis.range(0.0, 100.0) } else { axis };
    Chart::new(metric.title, Axis::new("time").unit("s"), axis)
}

/// Two recordings, each in a chart of its own with the axes of both.
fn pair(metric: &Metric, all: &[Recorded<'_>], hosts: &[&String]) -> Vec<Figure> {
    let curves: Vec<_> = all.iter().map(|one| curves_of(metric, one, false)).collect();
    let every = || curves.iter().flatten().flat_map(|(_, curve)| curve);
    let highest = every().map(|point| point.1).fold(0.0, f64::max);
    let latest = every().map(|point| point.0).fold(0.0, f64::max);
    if highest <= UNUSED {
        return Vec::new();
    }
    let mut figures = Vec::new();
    for (one, curves) in all.iter().zip(&curves) {
        let mut chart = empty_chart(metric);
        chart.title = format!("{}: {}", metric.title, one.name);
        chart.x = chart.x.range(0.0, latest);
        if !metric.free {
            chart.y = chart.y.range(0.0, highest);
        }
        for (node, curve) in curves {
            let place = hosts.iter().position(|host| *host == node).unwrap_or(0);
            chart = chart.with(Series::line(node, curve.clone()).colour(place));
        }
        figures.push(figure(chart.title.clone(), &marked(chart, &one.marks), ""));
    }
    figures
}

fn one_chart(metric: &Metric, all: &[Recorded<'_>], hosts: &[&String]) -> Option<Figure> {
    let split = hosts.len() == 1 && all.len() == 1;
    let mut chart = empty_chart(metric);
    let mut used = false;
    for (index, one) in all.iter().enumerate() {
        for (node, curve) in curves_of(metric, one, split) {
            used |= curve.iter().any(|(_, value)| *value > UNUSED);
            let label = match (all.len(), hosts.len()) {
                (1, _) => node.clone(),
                (_, 1) => one.name.clone(),
                _ => format!("{node}, {}", one.name),
            };
            // A node keeps its colour and a run its dash, while there are enough of both.
            let host = hosts.iter().position(|host| **host == node);
            let place = match host.filter(|_| hosts.len() > 1 && all.len() > 1) {
                Some(host) if hosts.len() <= theme::COLOURS => index * theme::COLOURS + host,
                _ => chart.series.len(),
            };
            chart = chart.with(Series::line(label, curve).colour(place));
        }
    }
    if !used {
        return None;
    }
    for one in all {
        let mut marks = one.marks.clone();
        if all.len() > 1 {
            marks.retain(|mark| mark.notable);
            marks.iter_mut().for_each(|mark| mark.what.push_str(&format!(" ({})", one.name)));
        }
        chart = marked(chart, &marks);
    }
    // A node of one run names the line where there is only one.
    let title = match (&chart.series[..], all.len(), metric.own) {
        ([only], 1, false) if !only.name.is_empty() => format!("{}: {}", metric.title, only.name),
        _ => metric.title.to_owned(),
    };
    Some(figure(title, &chart, ""))
}

/// The cores of every node over time, where they were recorded.
fn maps(all: &[Recorded<'_>]) -> Vec<Figure> {
    let longest = all.iter().map(Recorded::seconds).fold(0.0, f64::max);
    let mut figures = Vec::new();
    for one in all {
        for node in &one.nodes {
            let title = match all.len() {
                1 if node.name.is_empty() => "CPU by core".to_owned(),
                1 => format!("CPU by core: {}", node.name),
                _ => format!("CPU by core: {}, {}", node.name, one.name),
            };
            if let Some(map) = map(&title, node, |it| one.shift(it), longest) {
                let words = String::new();
                let (key, notes) = (Vec::new(), Vec::new());
                figures.push(Figure { title, colour: None, key, svg: map.svg(), words, notes });
            }
        }
    }
    if figures.len() > MOST_MAPS {
        let all = figures.len();
        figures.truncate(MOST_MAPS);
        if let Some(last) = figures.last_mut() {
            last.words = format!("The first {MOST_MAPS} of {all} nodes.");
        }
    }
    figures
}

/// The cores of one node, as means over equal stretches of time.
fn map(
    title: &str,
    node: &Node<'_>,
    shift: impl Fn(&Resources) -> f64,
    longest: f64,
) -> Option<HeatMap> {
    let recordings = || node.tasks.iter().map(|(_, recording)| *recording);
    let all = recordings().flat_map(|it| {
        let shift = shift(it);
        it.cores().map(move |(time, shares)| (time + shift, shares))
    });
    let readings: Vec<(f64, &[f32])> = all.collect();
    let cores = recordings().filter_map(Resources::core_count).max().filter(|count| *count > 1)?;
    let columns = readings.len().min(MOST_COLUMNS);
    if columns < 2 || longest <= 0.0 {
        return None;
    }
    let width = longest / columns as f64;
    let each = cores.div_ceil(MOST_ROWS);
    let rows = cores.div_ceil(each);
    let mut sums = vec![vec![(0.0, 0.0); columns]; rows];
    for (time, shares) in &readings {
        let at = (((time - width * 1e-6) / width).max(0.0) as usize).min(columns - 1);
        for (core, share) in shares.iter().enumerate().filter(|(_, share)| share.is_finite()) {
            let sum = &mut sums[core / each][at];
            *sum = (sum.0 + f64::from(*share), sum.1 + 1.0);
        }
    }
    // Where no reading fell into a stretch, the last one still holds.
    for row in &mut sums {
        let last = row.iter().rposition(|sum| sum.1 > 0.0).unwrap_or(0);
        for at in 1..=last {
            if row[at].1 == 0.0 {
                row[at] = row[at - 1];
            }
        }
    }
    let mean = |(sum, count): (f64, f64)| if count > 0.0 { sum / count } else { f64::NAN };
    let name = |row: usize| match each {
        1 => row.to_string(),
        _ => format!("{}–{}", row * each, ((row + 1) * each).min(cores) - 1),
    };
    let ticks = Axis::round_ticks(0.0, longest, 5.0);
    Some(HeatMap {
        title: title.to_owned(),
        axes: ("core".to_owned(), "time (s)".to_owned()),
        rows: (0..rows).map(name).collect(),
        columns: (0..columns).map(|at| format!("{:.1} s", width * at as f64)).collect(),
        ticks: ticks.into_iter().map(|(time, label)| (time / width, label)).collect(),
        values: sums.into_iter().map(|row| row.into_iter().map(mean).collect()).collect(),
        range: (0.0, 100.0),
        logarithmic: false,
        unit: "% busy".to_owned(),
        texts: Vec::new(),
        framed: None,
    })
}

#[cfg(test)]
mod tests;
