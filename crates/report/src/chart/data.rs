//! The numbers of a chart, carried inside it, so that a script can show, zoom and save what is drawn.
//!
//! They travel with the drawing: a saved SVG still holds its data.

use super::axis::{Axis, Scale};
use super::frame::Frame;
use super::{Chart, Series, SeriesKind, Span, Style};
use crate::escape::Escaped;
use serde_json::{Value, json};

/// Most points of a series; of more, the extremes of equally long parts are kept.
const MOST_POINTS: usize = 1000;

/// A number with seven significant digits: no instrument here is better.
pub(super) fn number(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { json!(0) } else { Value::Null };
    }
    let digits = (6 - value.abs().log10().floor() as i32).clamp(0, 12);
    let scale = 10f64.powi(digits);
    let rounded = if digits == 0 { value.round() } else { (value * scale).round() / scale };
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        return json!(rounded as i64);
    }
    json!(rounded)
}

fn numbers(values: impl Iterator<Item = f64>) -> Value {
    values.map(number).collect()
}

fn axis(axis: &Axis) -> Value {
    let categories = match &axis.scale {
        Scale::Categories(names) => json!(names),
        _ => Value::Null,
    };
    json!({
        "label": axis.label, "unit": axis.unit, "log": axis.scale == Scale::Logarithmic, "zero": axis.from_zero,
        "range": axis.range.map(|(low, high)| [number(low), number(high)]), "categories": categories,
    })
}

/// Which of a line's points are kept: all, or lowest and highest of each part.
fn kept(heights: &[f64]) -> Vec<usize> {
    if heights.len() <= MOST_POINTS {
        return (0..heights.len()).collect();
    }
    let parts = MOST_POINTS / 2;
    let mut kept = Vec::with_capacity(MOST_POINTS);
    for part in 0..parts {
        let range = part * heights.len() / parts..(part + 1) * heights.len() / parts;
        let by_height = |a: &usize, b: &usize| heights[*a].total_cmp(&heights[*b]);
        let ends = [range.clone().min_by(by_height), range.max_by(by_height)];
        let mut ends: Vec<usize> = ends.into_iter().flatten().collect();
        ends.sort_unstable();
        ends.dedup();
        kept.extend(ends);
    }
    kept
}

fn series(series: &Series, place: usize) -> Value {
    let mut value = json!({
        "name": series.name, "part": series.part, "place": place, "labelled": series.labelled,
        "kind": match series.kind {
            SeriesKind::Points(_) => "points",
            SeriesKind::Line(_) => "line",
            SeriesKind::Band(_) => "band",
            SeriesKind::Area(_) => "area",
            SeriesKind::Averages(_) => "averages",
            SeriesKind::Bars(_) => "bars",
        },
        "style": match series.style {
            Style::Plain => "plain",
            Style::Faint => "faint",
            Style::Marked => "marked",
        },
    });
    match &series.kind {
        SeriesKind::Points(points) | SeriesKind::Line(points) => {
            let heights: Vec<f64> = points.iter().map(|point| point.1).collect();
            let kept = kept(&heights);
            let mut places = vec![numbers(kept.iter().map(|at| points[*at].0))];
            let others = series.other_x.iter().filter(|other| other.len() == points.len());
            places.extend(others.map(|other| numbers(kept.iter().map(|at| other[*at]))));
            value["x"] = json!(places);
            value["y"] = numbers(kept.iter().map(|at| heights[*at]));
        }
        SeriesKind::Band(spans)
        | SeriesKind::Area(spans)
        | SeriesKind::Averages(spans)
        | SeriesKind::Bars(spans) => {
            let of = |part: fn(&Span) -> f64| numbers(spans.iter().map(part));
            let mut places = vec![of(|span| span.x)];
            let others = series.other_x.iter().filter(|other| other.len() == spans.len());
            places.extend(others.map(|other| numbers(other.iter().copied())));
            value["x"] = json!(places);
            value["y"] = of(|span| span.y);
            value["low"] = of(|span| span.low);
            value["high"] = of(|span| span.high);
        }
    }
    value
}

/// The element that holds the numbers.
pub(super) fn element(chart: &Chart, frame: &Frame, places: &[usize]) -> String {
    let mut axes = vec![axis(&chart.x)];
    axes.extend(chart.other_x.iter().map(axis));
    let place = |value: f64| number((value * 10.0).round() / 10.0);
    let edges = [frame.left, frame.top, frame.right, frame.bottom].map(place);
    let whole = json!({
        "title": chart.title,
        "frame": edges,
        "x": axes,
        "y": axis(&chart.y),
        "series": chart.series.iter().zip(places).map(|(one, place)| series(one, *place)).collect::<Vec<_>>(),
        "marks": chart.marks.iter().map(|(x, word)| json!([number(*x), word])).collect::<Vec<_>>(),
    });
    format!("<metadata>{}</metadata>", Escaped(&whole.to_string()))
}

/// The element that holds the numbers of a drawing which is not a chart of axes, as rows under a header.
pub(super) fn rows(title: &str, rows: &[Vec<Value>]) -> String {
    let whole = json!({ "title": title, "rows": rows });
    format!("<metadata>{}</metadata>", Escaped(&whole.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_seven_digits_and_gaps_stay_gaps() {
        let values = [0.123_456_789, 1_234_567.8, -3.0, 0.0, f64::NAN, 1e-9, 1e300];
        assert_eq!(
            numbers(values.into_iter()).to_string(),
            "[0.1234568,1234568,-3,0,null,1e-9,1e+300]"
        );
    }

    #[test]
    fn a_long_line_keeps_its_extremes() {
        let mut heights: Vec<f64> = (0..100_000).map(|at| f64::from(at % 7)).collect();
        heights[54_321] = 99.0;
        let kept = kept(&heights);
        assert!(kept.len() <= MOST_POINTS && kept.contains(&54_321));
        assert!(kept.is_sorted());
    }
}
