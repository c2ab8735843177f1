//! Runs on one clock: phases over time, and marks for events.
//!
//! Marks come from recorded events and are never inferred from a curve: a checkpoint restore, for example, is marked because it
//! wrote an event.

use crate::chart::{Axis, Chart, Series, Span};
use crate::curves::SHORTEST;
use crate::page::Figure;
use crate::training::RunView;
use paceline_runs::{CheckpointAction, Event, PhaseTimes};

/// Segments into which a run is cut for the phases over time.
const SEGMENTS: usize = 60;
/// Most runs whose phases and resources are drawn over time; for more, only shares and means are shown.
pub(crate) const MOST_RUNS: usize = 4;
/// Names of the phases, in the order in which a step goes through them.
pub(crate) const PHASES: [&str; 5] = ["input", "compute", "exchange", "wait", "recovery"];

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

pub(crate) fn marked(mut chart: Chart, marks: &[Mark]) -> Chart {
    for mark in marks {
        chart = chart.mark(mark.time, if mark.notable { mark.what.as_str() } else { "" });
    }
    chart
}

pub(crate) fn figure(title: String, chart: &Chart, words: &str) -> Figure {
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
    let steps: Vec<(f64, [f64; 5])> = run
        .records
        .iter()
        .filter_map(|record| match record.event.as_ref()? {
            Event::Step(step) => {
                let PhaseTimes { input, compute, exchange, wait, recovery } = step.phases;
                let parts = [input, compute, exchange, wait, recovery];
                Some((record.time - start, parts))
            }
            _ => None,
        })
        .collect();
    let end = steps.last().filter(|_| steps.len() > 3)?.0;
    let segments = ((end / SHORTEST) as usize).clamp(4, SEGMENTS);
    let width = (end / segments as f64).max(1e-9);
    let mut sums = vec![[0.0; 5]; segments];
    for (time, parts) in &steps {
        let at = ((time / width) as usize).min(segments - 1);
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

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Checkpoint, Evaluation, Record, Step, TaskLost};

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
        let phases = PhaseTimes {
            input: 0.2,
            compute: 0.5,
            exchange: 0.2,
            wait: 0.1,
            ..PhaseTimes::default()
        };
        let steps = (0..50).map(|at| {
            record(10.0 + f64::from(at), Event::Step(Step { phases, ..Step::default() }))
        });
        let figures = super::phases(&[&view(steps.collect())], &["r".to_owned()]);
        assert_eq!(figures.len(), 1);
        for phase in PHASES {
            // Nothing was lost, so nothing is said of recovery.
            let is_named = figures[0].svg.contains(&format!(">{phase}<"));
            assert_eq!(is_named, phase != "recovery", "{phase}: {}", figures[0].svg);
        }
        assert!(super::phases(&[&view(Vec::new())], &["r".to_owned()]).is_empty());
    }
}
