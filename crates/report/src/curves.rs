//! Curves of training runs: loss and accuracy by step, time or examples, the rate, and the phases of a step.
//!
//! The loss of single batches is so noisy that neither its level nor its trend can be seen, and
//! several curves hide each other. Long curves are therefore drawn as means over segments, with the
//! range of the single steps behind them if there is only one run.

use crate::chart::{Axis, Chart, Matrix, Series, Span, Stacked, Style};
use crate::page::Figure;
use crate::timeline::{self, PHASES};
use crate::training::RunView;
use paceline_runs::{Event, PhaseTimes, figures};
use std::collections::BTreeMap;

/// Points of a curve that is drawn as means; curves with fewer than twice as many are drawn as they are.
const SEGMENTS: usize = 150;
/// Segments of a run's rate; shorter ones would show the clock more than the run.
const RATE_SEGMENTS: usize = 100;
/// Shortest segment, in seconds: below it one sees the scheduler take turns.
pub(crate) const SHORTEST: f64 = 0.02;
/// Quantiles of a segment's steps that bound the range behind a curve.
const RANGE: (f64, f64) = (0.1, 0.9);

/// One value of a curve, with its place on every horizontal axis: step, time, examples.
type Point = ([f64; 3], f64);

/// What a curve shows of an event.
type Pick = fn(&Event) -> Option<f64>;

/// The curves of one quantity in a run: training by task, and of held-out examples.
struct Curves {
    training: BTreeMap<String, Vec<Point>>,
    test: Vec<Point>,
}

fn curves(run: &RunView, training: Pick, test: Pick) -> Curves {
    let mut found = Curves { training: BTreeMap::new(), test: Vec::new() };
    let mut examples = 0;
    for record in &run.records {
        let Some(event) = record.event.as_ref() else { continue };
        let time = record.time - run.start();
        match event {
            Event::Step(step) => {
                examples += step.examples;
                if let Some(value) = training(event) {
                    let curve = found.training.entry(record.task.clone()).or_default();
                    curve.push(([step.step as f64, time, examples as f64], value));
                }
            }
            Event::Evaluation(score) => {
                if let Some(value) = test(event) {
                    found.test.push(([score.step as f64, time, examples as f64], value));
                }
            }
            _ => {}
        }
    }
    let shown = |curve: &[Point]| curve.len() > 1 && curve.iter().any(|point| point.1.is_finite());
    found.training.retain(|_, curve| shown(curve));
    if found.test.is_empty() || found.test.iter().all(|point| point.1.is_nan()) {
        found.test.clear();
    }
    found
}

fn line(name: &str, points: &[Point]) -> Series {
    let others = (1..3).map(|axis| points.iter().map(|point| point.0[axis]).collect());
    Series::line(name, points.iter().map(|point| (point.0[0], point.1))).other_x(others.collect())
}

/// Training and held-out curves of all runs in one chart.
fn learning_curve(
    (runs, names): (&[&RunView], &[String]),
    title: &str,
    y: Axis,
    (training, test): (Pick, Pick),
) -> Option<Figure> {
    let mut chart = Chart::new(title, Axis::new("step"), y);
    chart.other_x = vec![Axis::new("time").unit("s"), Axis::new("examples")];
    let (mut longest, mut banded, mut tested) = (1, false, false);
    for (index, (run, name)) in runs.iter().zip(names).enumerate() {
        let found = curves(run, training, test);
        tested |= !found.test.is_empty();
        let alone = runs.len() == 1;
        let tasks = found.training.len();
        // Compared with other runs, a run is represented by its chief.
        let shown = if alone { tasks } else { 1 };
        for (place, (task, points)) in found.training.iter().take(shown).enumerate() {
            let own = if tasks > 1 { format!("training, {task}") } else { "training".to_owned() };
            let (label, colour) =
                if alone { (own.as_str(), place) } else { (name.as_str(), index) };
            let style = if alone || found.test.is_empty() { Style::Plain } else { Style::Faint };
            let Some((means, range)) = segments(points) else {
                chart = chart.with(line(label, points).colour(colour).part("training", style));
                continue;
            };
            longest = longest.max(points.len().div_ceil(SEGMENTS));
            chart = chart.with(line(label, &means).colour(colour).part("training", style));
            if alone && tasks == 1 {
                banded = true;
                let others =
                    (1..3).map(|axis| means.iter().map(|point| point.0[axis]).collect()).collect();
                let band = Series::band(label, range).colour(colour).other_x(others);
                chart = chart.with(band.part("training", Style::Plain));
            }
        }
        if !found.test.is_empty() {
            let (label, colour) = if alone { ("test", tasks) } else { (name.as_str(), index) };
            let test = line(label, &found.test).colour(colour);
            chart = chart.with(test.part("test", Style::Marked));
        }
    }
    if chart.series.is_empty() {
        return None;
    }
    let mut words = Vec::new();
    if runs.len() > 1 && tested {
        words.push("Thin: training. With markers: test.".to_owned());
    }
    if longest > 1 {
        let band = if banded { "; the band holds the middle 80 %" } else { "" };
        words.push(format!("Means of up to {longest} steps{band}."));
    }
    Some(figure(title, &chart, words.join(" ")))
}

/// Means over segments of equally many points, with their range, if there are enough points to need it. A segment stands at its
/// last position, so that curves end where the run did.
fn segments(points: &[Point]) -> Option<(Vec<Point>, Vec<Span>)> {
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
        let (place, mean) = (part[part.len() - 1].0, values.iter().sum::<f64>() / count);
        ((place, mean), Span { x: place[0], y: mean, low: at(RANGE.0), high: at(RANGE.1) })
    };
    Some((0..SEGMENTS).map(segment).unzip())
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

pub(crate) fn learning(runs: &[&RunView], names: &[String]) -> Vec<Figure> {
    let loss: (Pick, Pick) = (
        |event| match event {
            Event::Step(step) => Some(step.loss),
            _ => None,
        },
        |event| match event {
            Event::Evaluation(score) => Some(score.loss),
            _ => None,
        },
    );
    let accuracy: (Pick, Pick) = (
        |event| match event {
            Event::Step(step) => Some(100.0 * step.accuracy),
            _ => None,
        },
        |event| match event {
            Event::Evaluation(score) => Some(100.0 * score.accuracy),
            _ => None,
        },
    );
    let both = (runs, names);
    // What a script of another framework calls its loss has a unit that only it knows.
    let ours = runs.iter().all(|run| run.framework().is_none());
    let axis = Axis::new("loss").logarithmic();
    let axis = if ours { axis.unit("nats") } else { axis };
    let mut figures: Vec<Figure> =
        learning_curve(both, "How far did the loss fall?", axis, loss).into_iter().collect();
    let axis = Axis::new("accuracy").unit("%");
    if let Some(mut second) = learning_curve(both, "How often is it right?", axis, accuracy) {
        // Said once is enough.
        if figures.iter().any(|first| first.words == second.words) {
            second.words.clear();
        }
        figures.push(second);
    }
    if runs.iter().any(|run| follows_a_schedule(run)) {
        let rate: (Pick, Pick) = (
            |event| match event {
                Event::Step(step) => Some(step.learning_rate),
                _ => None,
            },
            |_| None,
        );
        let axis = Axis::new("learning rate").from_zero();
        figures.extend(learning_curve(both, "How did the learning rate change?", axis, rate));
    }
    figures
}

/// Whether the learning rate changed within a run; what it is otherwise, the settings say.
fn follows_a_schedule(run: &RunView) -> bool {
    let mut rates = run.records.iter().filter_map(|record| match record.event.as_ref()? {
        Event::Step(step) if step.learning_rate > 0.0 => Some(step.learning_rate),
        _ => None,
    });
    let first = rates.next();
    // Means of thinned steps differ in their last digits.
    first.is_some_and(|first| rates.any(|rate| (rate / first - 1.0).abs() > 1e-6))
}

/// Most runs whose confusion matrices are drawn.
const MOST_MATRICES: usize = 4;

/// What each run took for what.
pub(crate) fn confusion(runs: &[&RunView], names: &[String]) -> Vec<Figure> {
    let known: Vec<_> =
        runs.iter().zip(names).filter(|(run, _)| !run.confusion.is_empty()).collect();
    if known.len() > MOST_MATRICES {
        return Vec::new(); // a page of matrices is read by no one
    }
    let title = |name: &str| match runs.len() {
        1 => "What is taken for what?".to_owned(),
        _ => format!("What is taken for what? {name}"),
    };
    known
        .into_iter()
        .enumerate()
        .map(|(at, (run, name))| {
            let (names, rows) = run.confusion.iter().cloned().unzip();
            let matrix = Matrix {
                title: title(name),
                names,
                axes: ("true class".to_owned(), "predicted class".to_owned()),
                rows,
            };
            Figure {
                title: matrix.title.clone(),
                colour: None,
                key: Vec::new(),
                svg: matrix.svg(),
                // Said once is enough.
                words: match at {
                    0 => "Stronger colour: a greater share of the true class.".to_owned(),
                    _ => String::new(),
                },
                notes: Vec::new(),
            }
        })
        .collect()
}

/// The rate of each run by time, all its tasks together.
fn rate(runs: &[&RunView], names: &[String]) -> Option<Figure> {
    let title = "How fast did it train?";
    let mut chart = Chart::new(title, Axis::new("time").unit("s"), rate_axis(runs));
    for (index, (run, name)) in runs.iter().zip(names).enumerate() {
        let steps =
            run.records.iter().filter(|record| matches!(record.event, Some(Event::Step(_))));
        let longest = (run.summary.seconds / SHORTEST) as usize;
        let segments = (steps.count() / 2).min(RATE_SEGMENTS).min(longest.max(2));
        if segments < 2 {
            continue;
        }
        let rates = figures::rates(&run.records, segments).into_iter();
        let points = rates.map(|(time, rate)| (time - run.start(), rate));
        chart = chart.with(Series::line(name, points).colour(index));
    }
    (!chart.series.is_empty()).then(|| figure(title, &chart, "All tasks together.".to_owned()))
}

/// From zero, unless the runs differ so much that the slow ones would look like zero.
fn rate_axis(runs: &[&RunView]) -> Axis {
    let rates = || {
        let rates = runs.iter().map(|run| run.summary.examples_per_second);
        rates.filter(|rate| rate.is_finite() && *rate > 0.0)
    };
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let axis = Axis::new("rate").unit("examples/s");
    if most > 20.0 * least { axis.logarithmic() } else { axis.from_zero() }
}

/// A time as people read it; nothing where it is not known.
fn seconds(seconds: f64) -> String {
    match seconds {
        known if known >= 100.0 => format!("{} s", crate::number::grouped(known, 0)),
        known if known >= 10.0 => format!("{known:.1} s"),
        known if known > 0.0 => format!("{known:.2} s"),
        _ => String::new(),
    }
}

/// What all runs together took, and its phases as shares, the greatest first; those that round to nothing are left out.
pub(crate) fn whole(runs: &[&RunView]) -> Vec<(String, String)> {
    let all: f64 = runs.iter().map(|run| run.summary.seconds).sum();
    let mut shares: Vec<(&str, f64)> = Vec::new();
    for (place, name) in PHASES.into_iter().enumerate() {
        let of = |run: &&RunView| {
            let PhaseTimes { input, compute, exchange, wait, recovery } = run.summary.phases;
            [input, compute, exchange, wait, recovery][place] * run.summary.seconds
        };
        shares.push((name, 100.0 * runs.iter().map(of).sum::<f64>() / all));
    }
    shares.retain(|(_, share)| *share >= 0.5);
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let count = if runs.len() == 1 { "1 run".to_owned() } else { format!("{} runs", runs.len()) };
    let shares = shares.into_iter().map(|(name, it)| (name.to_owned(), format!("{it:.0} %")));
    std::iter::once((count, seconds(all))).chain(shares).collect()
}

/// The phases of each run as shares of its time.
pub(crate) fn shares(runs: &[&RunView], names: &[String], width: f64) -> Figure {
    let shares = runs.iter().zip(names).map(|(run, name)| {
        let PhaseTimes { input, compute, exchange, wait, recovery } = run.summary.phases;
        (name.clone(), vec![input, compute, exchange, wait, recovery])
    });
    let chart = Stacked {
        title: "Where does the time of a step go?".to_owned(),
        parts: PHASES.map(str::to_owned).to_vec(),
        rows: shares.collect(),
        totals: runs.iter().map(|run| seconds(run.summary.seconds)).collect(),
        width,
    };
    let words = "Input: waiting for data. Exchange: communicating gradients. Wait: for other workers. Recovery: no steps, because a task was lost.";
    Figure {
        title: chart.title.clone(),
        colour: None,
        key: Vec::new(),
        svg: chart.svg(),
        words: words.to_owned(),
        notes: Vec::new(),
    }
}

pub(crate) fn time(runs: &[&RunView], names: &[String]) -> Vec<Figure> {
    // A run that ended before its first step has nothing to show.
    let stepped = |run: &RunView| {
        let PhaseTimes { input, compute, exchange, wait, recovery } = run.summary.phases;
        input + compute + exchange + wait + recovery > 0.0
    };
    let (with_steps, their_names): (Vec<&RunView>, Vec<String>) = runs
        .iter()
        .zip(names)
        .filter(|(run, _)| stepped(run))
        .map(|(run, name)| (*run, name.clone()))
        .unzip();
    let mut figures = Vec::new();
    if !with_steps.is_empty() {
        figures.push(shares(&with_steps, &their_names, 380.0));
    }
    figures.extend(timeline::phases(runs, names));
    figures.extend(rate(runs, names));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Evaluation, Record, Step};

    fn points(count: u32, value: fn(u32) -> f64) -> Vec<Point> {
        (0..count).map(|step| ([f64::from(step), 0.0, 0.0], value(step))).collect()
    }

    #[test]
    fn a_long_curve_keeps_its_level_and_its_end_and_a_short_one_its_points() {
        let points = points(1200, |step| f64::from(step % 2));
        let (means, range) = segments(&points).unwrap();
        assert_eq!(means.len(), SEGMENTS);
        assert!(means.iter().all(|mean| mean.1 == 0.5));
        assert!(range.iter().all(|mean| mean.low == 0.0 && mean.high == 1.0));
        assert_eq!(means[SEGMENTS - 1].0[0], 1199.0);
        assert!(segments(&points[..SEGMENTS]).is_none());
    }

    #[test]
    fn a_nan_loss_is_not_hidden_in_a_mean() {
        let mut points = points(600, |_| 1.0);
        points[302].1 = f64::NAN;
        let (means, _) = segments(&points).unwrap();
        assert!(means[75].1.is_nan());
        assert_eq!(means.iter().filter(|mean| mean.1.is_nan()).count(), 1);
    }

    /// A script's squared error was drawn in nats.
    #[test]
    fn the_loss_of_another_framework_has_no_unit_of_ours() {
        let drawn = |framework: &str| {
            let started = paceline_runs::RunStarted {
                framework: framework.to_owned(),
                ..paceline_runs::RunStarted::default()
            };
            let step =
                |step: u64| Event::Step(Step { step, loss: 1.0 / step as f64, ..Step::default() });
            let events = [Event::RunStarted(started), step(1), step(2)];
            let record = |event| Record {
                time: 0.0,
                task: "worker/0".to_owned(),
                kind: String::new(),
                event: Some(event),
            };
            let run = RunView { records: events.map(record).to_vec(), ..RunView::default() };
            learning(&[&run], &["r".to_owned()])[0].svg.contains("nats")
        };
        assert!(drawn("") && !drawn("Python 3.11"));
    }

    /// TensorBoard showed it beside the same run, the report did not.
    #[test]
    fn a_schedule_is_drawn_and_a_constant_rate_is_not() {
        let run = |rates: [f64; 3]| {
            let step = |(at, learning_rate)| Record {
                time: f64::from(at),
                task: "worker/0".to_owned(),
                kind: String::new(),
                event: Some(Event::Step(Step {
                    step: u64::from(at),
                    learning_rate,
                    ..Step::default()
                })),
            };
            RunView { records: (1_u32..).zip(rates).map(step).collect(), ..RunView::default() }
        };
        let drawn = |rates| {
            let found = learning(&[&run(rates)], &["r".to_owned()]);
            found.iter().any(|figure| figure.title == "How did the learning rate change?")
        };
        assert!(drawn([0.1, 0.05, 0.01]));
        assert!(!drawn([0.1, 0.1, 0.1 + 1e-12]));
        assert!(!drawn([0.0, 0.0, 0.0]), "a script that did not say it");
    }

    /// One run's training and test curves share a chart, and each point knows its step, time and examples.
    #[test]
    fn training_and_test_are_one_chart_with_three_axes() {
        let record = |time: f64, event| Record {
            time,
            task: "worker/0".to_owned(),
            kind: String::new(),
            event: Some(event),
        };
        let step = |at: u64| Step { step: at, examples: 64, loss: 1.0, ..Step::default() };
        let score = Evaluation { step: 2, loss: 0.5, ..Evaluation::default() };
        let run = RunView {
            records: vec![
                record(10.0, Event::Step(step(1))),
                record(12.0, Event::Step(step(2))),
                record(13.0, Event::Evaluation(score)),
            ],
            ..RunView::default()
        };
        let figures = learning(&[&run], &["r".to_owned()]);
        let data = figures[0].svg.split("<metadata>").nth(1).unwrap().split('<').next().unwrap();
        let data: serde_json::Value =
            serde_json::from_str(&data.replace("&quot;", "\"")).expect("data can be read");
        assert_eq!(data["series"][0]["x"], serde_json::json!([[1, 2], [0, 2], [64, 128]]));
        assert_eq!(data["series"][1]["name"], "test");
        assert_eq!(data["series"][1]["x"], serde_json::json!([[2], [3], [128]]));
        assert_eq!(data["x"][2]["label"], "examples");
    }
}
