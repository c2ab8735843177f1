//! Curves of training runs: loss, accuracy and rate by step and by time, and the phases of a step.
//!
//! The loss of single batches is so noisy that neither its level nor its trend can be seen, and
//! several curves hide each other. Long curves are therefore drawn as means over segments, with the
//! range of the single steps behind them if there is only one run.

use crate::chart::{Axis, Chart, Series, SeriesKind, Span, Stacked};
use crate::page::Figure;
use crate::timeline::{self, PHASES};
use crate::training::RunView;
use paceline_runs::{Event, figures};
use std::collections::BTreeMap;

/// Points of a curve that is drawn as means; curves with fewer than twice as many are drawn as they are.
const SEGMENTS: usize = 100;
/// Quantiles of a segment's steps that bound the range behind a curve.
const RANGE: (f64, f64) = (0.1, 0.9);

/// One curve per run, and per worker where there is one run only; `point` picks the coordinates out of an event, given seconds since
/// the start.
fn curve(
    runs: &[RunView],
    names: &[String],
    (title, x, y): (&str, Axis, Axis),
    point: impl Fn(&Event, f64) -> Option<(f64, f64)>,
) -> Option<Figure> {
    let mut chart = Chart::new(title, x, y);
    let mut longest = 1;
    for (index, (run, name)) in runs.iter().zip(names).enumerate() {
        let mut by_task: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for record in &run.records {
            let event = record.event.as_ref();
            if let Some(at) = event.and_then(|event| point(event, record.time - run.start())) {
                by_task.entry(&record.task).or_default().push(at);
            }
        }
        by_task.retain(|_, points| points.len() > 1);
        let several = runs.len() == 1 && by_task.len() > 1;
        // Compared with other runs, a run is represented by its chief.
        let shown = if several { by_task.len() } else { 1 };
        for (place, (task, points)) in by_task.into_iter().take(shown).enumerate() {
            let (label, colour) = if several { (task, place) } else { (&**name, index) };
            let Some(means) = segments(&points) else {
                chart = chart.with(Series::line(label, points).colour(colour));
                continue;
            };
            longest = longest.max(points.len().div_ceil(SEGMENTS));
            let line = means.iter().map(|mean| (mean.x, mean.y));
            chart = chart.with(Series::line(label, line).colour(colour));
            if runs.len() == 1 && !several {
                chart = chart.with(Series::band(label, means).colour(colour));
            }
        }
    }
    if chart.series.is_empty() {
        return None;
    }
    let band = chart.series.iter().any(|series| matches!(series.kind, SeriesKind::Band(_)));
    let words = match (longest, band) {
        (1, _) => String::new(),
        (_, true) => {
            format!("Mean of up to {longest} steps, with the range of the middle 80 % of them.")
        }
        (_, false) => format!("Each point is the mean of up to {longest} steps."),
    };
    Some(figure(title, &chart, words))
}

/// Means over segments of equally many points, with their range, if there are enough points to need it.
fn segments(points: &[(f64, f64)]) -> Option<Vec<Span>> {
    if points.len() < 2 * SEGMENTS {
        return None;
    }
    let segment = |number: usize| {
        let part =
            &points[number * points.len() / SEGMENTS..(number + 1) * points.len() / SEGMENTS];
        let mut values: Vec<f64> = part.iter().map(|point| point.1).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let at = |share: f64| values[((count - 1.0) * share).round() as usize];
        Span {
            // The last position of the segment, so that curves end where the run did.
            x: part[part.len() - 1].0,
            y: values.iter().sum::<f64>() / count,
            low: at(RANGE.0),
            high: at(RANGE.1),
        }
    };
    Some((0..SEGMENTS).map(segment).collect())
}

fn figure(title: &str, chart: &Chart, words: String) -> Figure {
    Figure {
        title: title.to_owned(),
        colour: None,
        key: Vec::new(),
        svg: chart.svg(),
        words,
        notes: Vec::new(),
    }
}

pub(crate) fn learning(runs: &[RunView], names: &[String]) -> Vec<Figure> {
    let steps = || Axis::new("global step");
    let seconds = || Axis::new("time").unit("s");
    let loss = || Axis::new("loss").unit("nats").logarithmic();
    let percent = || Axis::new("accuracy").unit("%");
    // Step, loss and accuracy of an evaluation.
    let test = |event: &Event| match event {
        Event::Evaluation(it) => Some((it.step as f64, it.loss, it.accuracy)),
        _ => None,
    };
    [
        curve(runs, names, ("Training loss by step", steps(), loss()), |event, _| match event {
            Event::Step(step) => Some((step.step as f64, step.loss)),
            _ => None,
        }),
        curve(
            runs,
            names,
            ("Training loss by time", seconds(), loss()),
            |event, time| match event {
                Event::Step(step) => Some((time, step.loss)),
                _ => None,
            },
        ),
        curve(runs, names, ("Test loss by step", steps(), loss()), |event, _| {
            test(event).map(|(step, loss, _)| (step, loss))
        }),
        curve(runs, names, ("Test loss by time", seconds(), loss()), |event, time| {
            test(event).map(|(_, loss, _)| (time, loss))
        }),
        curve(runs, names, ("Test accuracy by step", steps(), percent()), |event, _| {
            test(event).map(|(step, _, accuracy)| (step, 100.0 * accuracy))
        }),
        curve(runs, names, ("Test accuracy by time", seconds(), percent()), |event, time| {
            test(event).map(|(_, _, accuracy)| (time, 100.0 * accuracy))
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The rate of each run by time, all its tasks together.
fn rate(runs: &[RunView], names: &[String]) -> Option<Figure> {
    let title = "Examples per second";
    let mut chart = Chart::new(title, Axis::new("time").unit("s"), rate_axis(runs));
    for (index, (run, name)) in runs.iter().zip(names).enumerate() {
        let steps =
            run.records.iter().filter(|record| matches!(record.event, Some(Event::Step(_))));
        let segments = (steps.count() / 2).min(SEGMENTS);
        if segments < 2 {
            continue;
        }
        let rates = figures::rates(&run.records, segments).into_iter();
        let points = rates.map(|(time, rate)| (time - run.start(), rate));
        chart = chart.with(Series::line(name, points).colour(index));
    }
    let words = "All tasks together, over equal intervals of time.";
    (!chart.series.is_empty()).then(|| figure(title, &chart, words.to_owned()))
}

/// From zero, unless the runs differ so much that the slow ones would look like zero.
fn rate_axis(runs: &[RunView]) -> Axis {
    let rates = || {
        let rates = runs.iter().map(|run| run.summary.examples_per_second);
        rates.filter(|rate| rate.is_finite() && *rate > 0.0)
    };
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let axis = Axis::new("rate").unit("examples/s");
    if most > 20.0 * least { axis.logarithmic() } else { axis.from_zero() }
}

pub(crate) fn time(runs: &[RunView], names: &[String]) -> Vec<Figure> {
    let shares = runs.iter().zip(names).map(|(run, name)| {
        let shares = &run.summary.phases;
        (name.clone(), vec![shares.input, shares.compute, shares.exchange, shares.wait])
    });
    let chart = Stacked {
        title: "Phases of a step".to_owned(),
        parts: PHASES.map(str::to_owned).to_vec(),
        rows: shares.collect(),
        width: 460.0,
    };
    let words = "Input: waiting for data. Compute: forward and backward pass. Exchange: communicating gradients. Wait: for other workers.";
    let mut figures = vec![Figure {
        title: chart.title.clone(),
        colour: None,
        key: Vec::new(),
        svg: chart.svg(),
        words: words.to_owned(),
        notes: Vec::new(),
    }];
    figures.extend(timeline::phases(runs, names));
    figures.extend(rate(runs, names));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_level_and_its_end_and_a_short_one_its_points() {
        let points: Vec<(f64, f64)> =
            (0..1000).map(|step| (f64::from(step), f64::from(step % 2))).collect();
        let means = segments(&points).unwrap();
        assert_eq!(means.len(), SEGMENTS);
        assert!(means.iter().all(|mean| mean.y == 0.5 && mean.low == 0.0 && mean.high == 1.0));
        assert_eq!(means[SEGMENTS - 1].x, 999.0);
        assert!(segments(&points[..150]).is_none());
    }

    #[test]
    fn a_nan_loss_is_not_hidden_in_a_mean() {
        let mut points: Vec<(f64, f64)> = (0..400).map(|step| (f64::from(step), 1.0)).collect();
        points[201].1 = f64::NAN;
        let means = segments(&points).unwrap();
        assert!(means[50].y.is_nan());
        assert_eq!(means.iter().filter(|mean| mean.y.is_nan()).count(), 1);
    }
}
