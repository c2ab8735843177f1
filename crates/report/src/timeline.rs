//! A run on one clock: phases over time, every resource of every task, and marks for events.
//!
//! Marks come from recorded events and are never inferred from a curve: a checkpoint restore, for example, is marked because it
//! wrote an event.

use crate::chart::{Axis, Chart, Series, Span};
use crate::page::Figure;
use crate::training::RunView;
use paceline_runs::{CheckpointAction, Event};

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
pub(crate) fn phases(runs: &[RunView], names: &[String]) -> Vec<Figure> {
    if runs.len() > MOST_RUNS {
        return Vec::new();
    }
    runs.iter().zip(names).filter_map(|(run, name)| phases_of(run, name, runs.len())).collect()
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
    let title =
        if runs == 1 { "Phases over time".to_owned() } else { format!("Phases over time: {name}") };
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
    let words = "Dotted: evaluations and checkpoints; solid: failures, recoveries and restores.";
    let marks = marks(run);
    let words = if marks.is_empty() { "" } else { words };
    Some(figure(title, &marked(chart, &marks), words))
}

/// What a chart of resources shows: title, column, unit, divisor.
const RESOURCES: &[(&str, &str, &str, f64)] = &[
    ("CPU of the process", "process_cpu_percent", "of one core, %", 1.0),
    ("CPU of the machine, idle", "cpu_idle_percent", "%", 1.0),
    ("Memory of the process", "process_rss_bytes", "MB", 1e6),
    ("Read from disks", "disk_read_bytes_per_second", "MB/s", 1e6),
    ("Written to disks", "disk_written_bytes_per_second", "MB/s", 1e6),
    ("Received from the network", "network_received_bytes_per_second", "MB/s", 1e6),
    ("Sent to the network", "network_sent_bytes_per_second", "MB/s", 1e6),
    ("Loopback traffic", "loopback_bytes_per_second", "MB/s", 1e6),
    ("CPU wait", "process_waiting_percent", "of one core, %", 1.0),
];
/// A resource below this in its chart's unit counts as unused.
const UNUSED: f64 = 0.05;

/// Every resource that was used, all tasks on the run's clock.
pub(crate) fn resources(runs: &[RunView], names: &[String]) -> Vec<Figure> {
    let mut figures = Vec::new();
    if runs.len() > MOST_RUNS {
        return figures; // too many curves to read; the table of machines has the means
    }
    for (title, column, unit, divisor) in RESOURCES {
        let mut chart = Chart::new(
            *title,
            Axis::new("time").unit("s"),
            Axis::new(*title).unit(*unit).from_zero(),
        );
        for (index, (run, name)) in runs.iter().zip(names).enumerate() {
            for (place, (task, recording)) in run.resources.iter().enumerate() {
                let shift = recording.begin().map_or(0.0, |begin| begin - run.start());
                let points: Vec<(f64, f64)> = recording
                    .series(column)
                    .into_iter()
                    .map(|(time, value)| (time + shift, value / divisor))
                    .collect();
                let several = run.resources.len() > 1;
                let own = column.starts_with("process_");
                let label = match (several, runs.len()) {
                    (true, 1) => task.clone(),
                    (true, _) if own => format!("{task}, {name}"),
                    (true, _) => name.clone(),
                    (false, _) => name.clone(),
                };
                let used = points.iter().any(|(_, value)| *value > UNUSED);
                if points.len() > 1 && used {
                    let colour = if runs.len() == 1 { place } else { index };
                    chart = chart.with(Series::line(label, points).colour(colour));
                }
                // Columns of the machine are the same for all tasks of one host.
                if several && !column.starts_with("process_") {
                    break;
                }
            }
        }
        if chart.series.is_empty() {
            continue;
        }
        if let [only] = runs {
            chart = marked(chart, &marks(only));
        }
        figures.push(figure((*title).to_owned(), &chart, ""));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Checkpoint, Evaluation, PhaseTimes, Record, Step, TaskLost};

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
        let figures = super::phases(&[view(steps.collect())], &["r".to_owned()]);
        assert_eq!(figures.len(), 1);
        for phase in PHASES {
            assert!(figures[0].svg.contains(&format!(">{phase}<")), "{}", figures[0].svg);
        }
        assert!(super::phases(&[view(Vec::new())], &["r".to_owned()]).is_empty());
    }
}
