//! Points, lines, bands, averages and bars.

use super::frame::{Frame, text_width};
use super::{Chart, SeriesKind, Span, Style, at, classes};
use crate::escape::Escaped;
use crate::number::grouped;

/// Most points of a line that are marked one by one.
const MOST_MARKED: usize = 60;
/// Widths of texts are estimated on the wide side: so much wider they still fit.
const WIDER: f64 = 1.15;

/// Draws all series: bands below, then bars, lines, points, averages.
pub(super) fn draw(chart: &Chart, frame: &Frame, places: &[usize], out: &mut String) {
    let bar_series: Vec<usize> = (0..chart.series.len())
        .filter(|&index| matches!(chart.series[index].kind, SeriesKind::Bars(_)))
        .collect();
    if chart.series.iter().all(super::Series::is_empty) {
        let (x, y) = (at((frame.left + frame.right) / 2.0), at((frame.top + frame.bottom) / 2.0));
        out.push_str(&format!("<text class=\"mid\" x=\"{x}\" y=\"{y}\">no data</text>"));
    }
    let layer = |kind: &SeriesKind| match kind {
        SeriesKind::Band(_) | SeriesKind::Area(_) => 0,
        SeriesKind::Bars(_) => 1,
        SeriesKind::Points(_) => 2,
        SeriesKind::Line(_) => 3,
        SeriesKind::Averages(_) => 4,
    };
    let mut order: Vec<usize> = (0..chart.series.len()).collect();
    order.sort_by_key(|&index| layer(&chart.series[index].kind));
    for index in order {
        let (place, style) = (places[index], chart.series[index].style);
        out.push_str(&format!("<g class=\"series {}\">", classes(place)));
        match &chart.series[index].kind {
            SeriesKind::Points(points) => draw_points(points, frame, place, out),
            SeriesKind::Line(points) => draw_line(points, frame, (place, style), out),
            SeriesKind::Band(spans) => draw_band(spans, frame, "band", out),
            SeriesKind::Area(spans) => draw_band(spans, frame, "area", out),
            SeriesKind::Averages(spans) => draw_averages(spans, frame, place, out),
            SeriesKind::Bars(spans) => {
                let slot = bar_series.iter().position(|&bars| bars == index).unwrap_or(0);
                draw_bars(spans, frame, (slot, bar_series.len()), out);
            }
        }
        out.push_str("</g>");
    }
}

fn draw_points(points: &[(f64, f64)], frame: &Frame, colour: usize, out: &mut String) {
    out.push_str("<path class=\"dot\" d=\"");
    for point in points.iter().filter_map(|point| frame.point(*point)) {
        out.push_str(&marker(point, 3.2, colour));
    }
    out.push_str("\"/>");
}

/// A marker as a path: colour-blind readers and grey printers tell series by shape.
pub(super) fn marker((x, y): (f64, f64), r: f64, shape: usize) -> String {
    let (l, t) = (at(x - r), at(y - r));
    match shape % 4 {
        0 => format!("M{} {}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z", l, at(y), d = r * 2.0),
        1 => format!("M{l} {t}h{d}v{d}h-{d}z", d = at(r * 2.0)),
        2 => format!(
            "M{} {}l{h} {d}h-{w}z",
            at(x),
            t,
            h = at(r * 1.15),
            d = at(r * 2.0),
            w = at(r * 2.3)
        ),
        _ => format!("M{} {}l{e} {e}l-{e} {e}l-{e} -{e}z", at(x), at(y - r * 1.3), e = at(r * 1.3)),
    }
}

fn draw_line(
    points: &[(f64, f64)],
    frame: &Frame,
    (place, style): (usize, Style),
    out: &mut String,
) {
    let faint = if style == Style::Faint { " faint" } else { "" };
    out.push_str(&format!("<path class=\"line{faint}\" d=\""));
    let mut gap = true;
    for place in thinned(points, frame) {
        let Some((x, y)) = place else {
            gap = true;
            continue;
        };
        out.push_str(&format!("{}{} {}", if gap { 'M' } else { 'L' }, at(x), at(y)));
        gap = false;
    }
    out.push_str("\"/>");
    if style == Style::Marked && points.len() <= MOST_MARKED {
        out.push_str("<path class=\"spot\" d=\"");
        for point in points.iter().filter_map(|point| frame.point(*point)) {
            out.push_str(&marker(point, 2.6, place));
        }
        out.push_str("\"/>");
    }
}

/// Places of a line's points, `None` for a gap. Where several points share a pixel column only the first, the extremes and the
/// last are kept: a million steps draw the same picture as a thousand.
fn thinned(points: &[(f64, f64)], frame: &Frame) -> Vec<Option<(f64, f64)>> {
    let clamp = |(x, y): (f64, f64)| (x, y.clamp(frame.top, frame.bottom));
    let places: Vec<Option<(f64, f64)>> = points
        .iter()
        .map(|&(x, y)| {
            Some((frame.across(x)?, frame.up(y)?))
                .filter(|place| place.0 >= frame.left - 1.0 && place.0 <= frame.right + 1.0)
        })
        .map(|place| place.map(clamp))
        .collect();
    if (places.len() as f64) < 4.0 * (frame.right - frame.left) {
        return places;
    }
    let column = |place: &Option<(f64, f64)>| place.map(|(x, _)| x.round() as i64);
    let mut kept = Vec::new();
    for run in places.chunk_by(|a, b| column(a) == column(b)) {
        let by_height = |a: &&Option<(f64, f64)>, b: &&Option<(f64, f64)>| {
            a.map_or(0.0, |place| place.1).total_cmp(&b.map_or(0.0, |place| place.1))
        };
        kept.push(run[0]);
        if run.len() > 3 && run[0].is_some() {
            kept.extend(run.iter().min_by(by_height));
            kept.extend(run.iter().max_by(by_height));
        }
        if run.len() > 1 {
            kept.push(run[run.len() - 1]);
        }
    }
    kept
}

/// Marks over everything else, their words above the plot; one that would touch its neighbour or the name of the axis is left
/// out, its line stays.
pub(super) fn draw_marks(chart: &Chart, frame: &Frame, out: &mut String) {
    let mut free = text_width(&chart.y.caption()) + 6.0;
    for (x, word) in &chart.marks {
        let Some(x) = frame.across(*x).filter(|x| (frame.left..=frame.right).contains(x)) else {
            continue;
        };
        let class = if word.is_empty() { "mark" } else { "mark loud" };
        let (top, bottom) = (at(frame.top), at(frame.bottom));
        out.push_str(&format!("<path class=\"{class}\" d=\"M{} {top}V{bottom}\"/>", at(x)));
        if word.is_empty() {
            continue;
        }
        // To the right of its line, or to the left where it would leave the drawing.
        let width = text_width(word) + 8.0;
        let left = if x + width > chart.size.0 { x - width } else { x };
        if left < free {
            continue;
        }
        free = left + width;
        out.push_str(&format!(
            "<text class=\"value\" x=\"{}\" y=\"{}\">{}</text>",
            at(left + 4.0),
            at(frame.top - 4.0),
            Escaped(word)
        ));
    }
}

fn draw_band(spans: &[Span], frame: &Frame, class: &str, out: &mut String) {
    let edge = |span: &Span, y: f64| {
        Some((frame.across(span.x)?, frame.up(y)?.clamp(frame.top, frame.bottom)))
    };
    let finite = || spans.iter().filter(|span| span.is_finite());
    let upper = finite().filter_map(|span| edge(span, span.high));
    let lower = finite().rev().filter_map(|span| edge(span, span.low));
    let corners: Vec<String> =
        upper.chain(lower).map(|(x, y)| format!("{} {}", at(x), at(y))).collect();
    if corners.len() > 2 {
        out.push_str(&format!("<path class=\"{class}\" d=\"M{}z\"/>", corners.join("L")));
    }
}

fn whisker(x: f64, low: f64, high: f64, frame: &Frame, out: &mut String) {
    let (Some(bottom), Some(top)) = (frame.up(low), frame.up(high)) else { return };
    let (bottom, top) = (bottom.min(frame.bottom), top.max(frame.top));
    let left = at(x - 4.0);
    out.push_str(&format!(
        "<path class=\"whisker\" d=\"M{left} {t}h8m-4 0V{b}m-4 0h8\"/>",
        t = at(top),
        b = at(bottom)
    ));
}

fn draw_averages(spans: &[Span], frame: &Frame, colour: usize, out: &mut String) {
    for span in spans.iter().filter(|span| span.is_finite()) {
        let Some(place) = frame.point((span.x, span.y)) else { continue };
        if span.high > span.low {
            whisker(place.0, span.low, span.high, frame, out);
        }
        out.push_str(&format!("<path class=\"mean\" d=\"{}\"/>", marker(place, 4.6, colour)));
    }
}

/// Bars of one of several series; `(place, of)` says which. Each carries its value above it, or, where bars are too narrow for
/// that, under the pointer.
fn draw_bars(spans: &[Span], frame: &Frame, (place, of): (usize, usize), out: &mut String) {
    let slot = match (frame.across(0.0), frame.across(1.0)) {
        (Some(zero), Some(one)) => (one - zero).abs() * 0.72,
        _ => return,
    };
    if !slot.is_finite() {
        return; // an axis so short that one unit of it cannot be drawn
    }
    let each = slot / of.max(1) as f64;
    let Some(floor) = frame.up(frame.y.floor()) else { return };
    let decimals = |value: f64| match value.abs() {
        hundreds if hundreds >= 100.0 => 0,
        tens if tens >= 10.0 => 1,
        _ => 2,
    };
    let value = |span: &Span| grouped(span.y, decimals(span.y));
    // Beside bars of other series a value may reach over its own, alone into the gap to the next.
    let room = if of > 1 { each * WIDER } else { slot / 0.72 };
    let written = spans.iter().all(|span| text_width(&value(span)) <= room);
    for span in spans.iter().filter(|span| span.is_finite()) {
        let (Some(middle), Some(up)) = (frame.across(span.x), frame.up(span.y)) else { continue };
        let left = middle - slot / 2.0 + each * place as f64 + each * 0.06;
        let width = each * 0.88;
        let (top, height) = (up.min(floor), (floor - up).abs());
        let end = match written {
            true => "/>".to_owned(),
            false => format!("><title>{}</title></rect>", value(span)),
        };
        out.push_str(&format!(
            "<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{end}",
            at(left),
            at(top),
            at(width),
            at(height)
        ));
        let centre = left + width / 2.0;
        let mut above = top;
        if span.high > span.low {
            whisker(centre, span.low, span.high, frame, out);
            above = frame.up(span.high).unwrap_or(top).min(top);
        }
        if !written {
            continue;
        }
        let (x, y) = (at(centre), at((above - 5.0).max(frame.top - 2.0)));
        out.push_str(&format!(
            "<text class=\"mid value\" x=\"{x}\" y=\"{y}\">{}</text>",
            value(span)
        ));
    }
}
