//! Names of series, written next to their data.

use super::frame::{Frame, TEXT, shortened, text_width};
use super::marks::marker;
use super::{Chart, Series, SeriesKind, at};
use crate::escape::Escaped;
use crate::theme;

/// How much wider bold letters are.
const BOLD: f64 = 1.08;
/// The margin of a card that a name may use.
const OVERHANG: f64 = 12.0;

/// Series named beside their last point; a single series needs no name, its chart's title says it.
pub(super) fn beside(chart: &Chart) -> impl Iterator<Item = &Series> {
    let several = named(chart).count() > 1;
    named(chart).filter(move |series| several && !matches!(series.kind, SeriesKind::Bars(_)))
}

fn named(chart: &Chart) -> impl Iterator<Item = &Series> {
    chart.series.iter().filter(|series| series.labelled && !series.name.is_empty())
}

/// Writes the names: at the end of lines, and in a row above bars.
pub(super) fn draw(chart: &Chart, frame: &Frame, colours: &[usize], out: &mut String) {
    let colour_of = |wanted: &Series| {
        chart
            .series
            .iter()
            .position(|series| std::ptr::eq(series, wanted))
            .map_or(0, |index| colours[index] % theme::COLOURS)
    };
    let mut ends: Vec<((f64, f64), &Series)> = beside(chart)
        .filter_map(|series| last_place(series, frame).map(|place| (place, series)))
        .collect();
    ends.sort_by(|a, b| a.0.1.total_cmp(&b.0.1));
    let heights = apart(
        ends.iter().map(|end| end.0.1).collect(),
        TEXT * 1.25,
        frame.top,
        frame.bottom - TEXT * 0.5,
    );
    // Usually in the margin; beside the end of a line that stops early, if none of these names would
    // lie over a line.
    let early = |end: f64| end < frame.right * 0.8;
    let drawn = places(chart, frame);
    let inside = heights.iter().zip(&ends).all(|(height, ((end, _), series))| {
        let width = text_width(&series.name) * BOLD + 8.0;
        let over = |&(x, y): &(f64, f64)| {
            x > end + 2.0 && x < end + 8.0 + width && (y - height).abs() < TEXT * 0.8
        };
        !early(*end) || (end + width < chart.size.0 && !drawn.iter().any(over))
    });
    for (height, ((end, _), series)) in heights.into_iter().zip(ends) {
        let x = if early(end) && inside { end } else { frame.right } + 8.0;
        // Names are bold, and what hangs over the card is cut off there.
        let name = shortened(&series.name, (chart.size.0 - x) / BOLD + OVERHANG);
        out.push_str(&format!(
            "<text class=\"label c{}\" x=\"{}\" y=\"{}\">{}</text>",
            colour_of(series),
            at(x),
            at(height + TEXT * 0.35),
            Escaped(&name)
        ));
    }
    let bars: Vec<&Series> =
        named(chart).filter(|series| matches!(series.kind, SeriesKind::Bars(_))).collect();
    if bars.len() > 1 {
        let y = frame.top - TEXT * 0.85;
        let total: f64 = bars.iter().map(|series| text_width(&series.name) + 30.0).sum();
        let mut x = (frame.right - total).max(frame.left + 40.0);
        for series in bars {
            let colour = colour_of(series);
            let key = marker((x, y - TEXT * 0.35), 4.0, 1);
            out.push_str(&format!(
                "<g class=\"c{colour}\"><path class=\"bar\" d=\"{key}\"/><text class=\"label\" x=\"{}\" y=\"{}\">{}</text></g>",
                at(x + 9.0),
                at(y),
                Escaped(&series.name)
            ));
            x += text_width(&series.name) + 30.0;
        }
    }
}

/// Places along everything that is drawn as a line, close enough that no name fits between two.
fn places(chart: &Chart, frame: &Frame) -> Vec<(f64, f64)> {
    let mut places = Vec::new();
    for series in &chart.series {
        let (SeriesKind::Points(points) | SeriesKind::Line(points)) = &series.kind else {
            continue;
        };
        let mut before: Option<(f64, f64)> = None;
        for point in points {
            let place = frame.across(point.0).zip(frame.up(point.1));
            if let (Some((x0, y0)), Some((x1, y1))) = (before, place) {
                let cuts = (((x1 - x0).abs() + (y1 - y0).abs()) / TEXT).ceil().clamp(1.0, 100.0);
                for cut in 1..=cuts as usize {
                    let share = cut as f64 / cuts;
                    places.push((x0 + share * (x1 - x0), y0 + share * (y1 - y0)));
                }
            } else {
                places.extend(place);
            }
            before = place;
        }
    }
    places
}

/// Place of the last point that is drawn.
fn last_place(series: &Series, frame: &Frame) -> Option<(f64, f64)> {
    let place =
        |x: f64, y: f64| Some((frame.across(x)?, frame.up(y)?.clamp(frame.top, frame.bottom)));
    match &series.kind {
        SeriesKind::Points(points) | SeriesKind::Line(points) => {
            let last = points
                .iter()
                .filter(|point| point.1.is_finite())
                .max_by(|a, b| a.0.total_cmp(&b.0));
            last.and_then(|point| place(point.0, point.1))
        }
        SeriesKind::Band(spans)
        | SeriesKind::Area(spans)
        | SeriesKind::Averages(spans)
        | SeriesKind::Bars(spans) => {
            let last =
                spans.iter().filter(|span| span.is_finite()).max_by(|a, b| a.x.total_cmp(&b.x));
            last.and_then(|span| place(span.x, span.y))
        }
    }
}

/// Moves sorted heights apart until neighbours keep `distance`, staying within the frame where that is possible.
fn apart(mut heights: Vec<f64>, distance: f64, top: f64, bottom: f64) -> Vec<f64> {
    for index in 1..heights.len() {
        heights[index] = heights[index].max(heights[index - 1] + distance);
    }
    // Pushed over the lower edge: push back upwards from there.
    let mut limit = bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(limit);
        limit = *height - distance;
    }
    let overhang = (top - heights.first().copied().unwrap_or(top)).max(0.0);
    heights.iter_mut().for_each(|height| *height += overhang);
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_meet_are_moved_apart_and_stay_inside() {
        let moved = apart(vec![10.0, 11.0, 12.0, 99.0], 15.0, 0.0, 100.0);
        assert_eq!(moved, [10.0, 25.0, 40.0, 99.0]);
        let low = apart(vec![95.0, 96.0, 97.0], 15.0, 0.0, 100.0);
        assert_eq!(low, [70.0, 85.0, 100.0]);
    }
}
