//! The charts of a sweep's page: published beside measured, every measure along the axes, curves of test scores.

use crate::findings::{Comparison, Findings};
use crate::recording::Score;
use paceline_report::chart::{Axis, Chart, Series, Span};
use paceline_report::page::{Figure, capitalised};
use paceline_stats::shape::{Agreement, Shape};

/// Most series in a chart; the table shows the others.
const MOST_SERIES: usize = 6;
/// Beyond this factor between smallest and largest, a logarithmic axis shows more.
const WIDE: f64 = 4.0;

/// Published and measured, relative to their first setting.
pub(super) fn beside(series: &Comparison) -> Option<Figure> {
    let along = series.along.as_ref()?;
    let shape = &series.shape;
    let (_, first_published, first_measured) = shape.points.first()?;
    let base = first_measured.known()?.centre;
    if *first_published <= 0.0 || base <= 0.0 {
        return None;
    }
    let published = shape
        .points
        .iter()
        .enumerate()
        .map(|(at, (_, figure, _))| (at as f64, figure / first_published));
    let spans: Vec<Span> = shape
        .points
        .iter()
        .enumerate()
        .filter_map(|(at, (_, _, set))| {
            let set = set.known()?;
            let ends = set.whisker();
            let (y, low, high) = (set.centre / base, ends.low / base, ends.high / base);
            Some(Span { x: at as f64, y, low, high })
        })
        .collect();
    let labels: Vec<String> = shape.points.iter().map(|(label, ..)| label.clone()).collect();
    let first = format!("relative to {along} {}", labels[0]);
    let all: Vec<f64> = published
        .clone()
        .map(|(_, y)| y)
        .chain(spans.iter().flat_map(|span| [span.low, span.high]))
        .collect();
    let (low, high) = all
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(*value), high.max(*value)));
    let mut y = Axis::new(first);
    if low > 0.0 && high / low > WIDE {
        y = y.logarithmic();
    }
    let means = spans.iter().map(|span| (span.x, span.y)).collect::<Vec<_>>();
    let chart = Chart::new(&series.title, Axis::categories(along, labels), y)
        .described(&shape.words)
        .with(Series::line("published", published).colour(1))
        .with(Series::line("measured", means).colour(0))
        .with(Series::averages("measured", spans).colour(0).unlabelled());
    Some(Figure {
        title: capitalised(&series.title),
        colour: None,
        key: vec![
            ("shape".to_owned(), label(shape).to_owned()),
            ("published in".to_owned(), series.source.clone()),
        ],
        svg: chart.svg(),
        words: capitalised(&shape.words),
        notes: Vec::new(),
    })
}

fn label(shape: &Shape) -> &'static str {
    match shape.agreement {
        Agreement::Agrees => "agrees",
        Agreement::Consistent => "no contradiction",
        Agreement::Differs => "differs",
        Agreement::Unresolved => "not resolved",
    }
}

/// The settings of an axis, in their order.
fn labels(found: &Findings, axis: usize) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for group in &found.groups {
        if !labels.contains(&group.settings[axis].1.as_str()) {
            labels.push(&group.settings[axis].1);
        }
    }
    labels
}

/// One chart per measure, along the axis with the most settings, one series per setting of the others. What is shown on a
/// logarithmic axis is drawn along every axis: its dependence on all of them is the point.
pub(super) fn measured(found: &Findings) -> Vec<Figure> {
    let axes = 0..found.axes.len();
    let Some(longest) = axes.clone().rev().max_by_key(|axis| labels(found, *axis).len()) else {
        return Vec::new();
    };
    let mut figures = Vec::new();
    for (place, measure) in found.measures.iter().enumerate() {
        let along = axes.clone().filter(|axis| measure.logarithmic || *axis == longest);
        figures.extend(along.filter_map(|axis| measured_along(found, place, axis)));
    }
    figures
}

/// A measure along an axis; nothing where there is nothing to see.
fn measured_along(found: &Findings, place: usize, along: usize) -> Option<Figure> {
    let measure = &found.measures[place];
    let labels = labels(found, along);
    let mut series: Vec<(String, Vec<Span>)> = Vec::new();
    let mut nothing: Vec<String> = Vec::new();
    for group in &found.groups {
        let Some(set) = found.repeats(group, place) else { continue };
        // There is no place for nothing on a logarithmic axis.
        if measure.logarithmic && set.centre <= 0.0 {
            let label = format!("{} {}", found.axes[along], group.settings[along].1);
            if !nothing.contains(&label) {
                nothing.push(label);
            }
            continue;
        }
        let ends = set.whisker();
        let x = labels.iter().position(|label| *label == group.settings[along].1);
        let x = x.unwrap_or(0) as f64;
        let span = Span { x, y: set.centre, low: ends.low, high: ends.high };
        let others = group.settings.iter().enumerate().filter(|(axis, _)| *axis != along);
        // A bare number says nothing of what it is.
        let named = others.map(|(axis, (_, label))| match label.parse::<f64>() {
            Ok(_) => format!("{} {label}", found.axes[axis]),
            Err(_) => label.clone(),
        });
        let name = named.collect::<Vec<_>>().join(", ");
        match series.iter_mut().find(|(known, _)| *known == name) {
            Some((_, spans)) => spans.push(span),
            None => series.push((name, vec![span])),
        }
    }
    if labels.len() < 2 || series.is_empty() || series.len() > MOST_SERIES {
        return None;
    }
    let names: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    let mut y = Axis::new(&measure.name).unit(&measure.unit);
    let mut title = capitalised(&measure.name);
    if measure.logarithmic {
        y = y.logarithmic();
        title.push_str(&format!(" by {}", found.axes[along]));
    }
    let mut chart = Chart::new(&title, Axis::categories(&found.axes[along], names), y);
    for (colour, (name, spans)) in series.into_iter().enumerate() {
        let line = spans.iter().map(|span| (span.x, span.y)).collect::<Vec<_>>();
        chart = chart
            .with(Series::line(&name, line).colour(colour))
            .with(Series::averages(name, spans).colour(colour).unlabelled());
    }
    Some(Figure {
        title,
        colour: None,
        key: Vec::new(),
        svg: chart.svg(),
        words: match &nothing[..] {
            [] => String::new(),
            some => format!("Not drawn, because it is 0: {}.", some.join(", ")),
        },
        notes: Vec::new(),
    })
}

/// What a curve shows: its name, its unit, and how it is read from a score.
type Scored = (&'static str, &'static str, fn(&Score) -> f64);

/// Loss and accuracy over the steps; nothing where there are no curves, or more than a chart can show.
pub(super) fn curves(found: &Findings) -> Option<Vec<Figure>> {
    if found.curves.is_empty() || found.curves.len() > MOST_SERIES {
        return None;
    }
    let scores: [Scored; 2] = [
        ("test loss", "nats", |score| score.loss),
        ("test accuracy", "%", |score| 100.0 * score.accuracy),
    ];
    let figures = scores.map(|(name, unit, of)| {
        let mut chart = Chart::new(name, Axis::new("step"), Axis::new(name).unit(unit));
        for (colour, (setting, curve)) in found.curves.iter().enumerate() {
            let points = curve.iter().map(|score| (score.step as f64, of(score)));
            chart = chart.with(Series::line(setting, points.collect::<Vec<_>>()).colour(colour));
        }
        Figure {
            title: capitalised(name),
            colour: None,
            key: Vec::new(),
            svg: chart.svg(),
            words: String::new(),
            notes: Vec::new(),
        }
    });
    Some(figures.into())
}
