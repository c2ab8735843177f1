//! The plot area: margins from the text they must hold, axes, grid.

use super::axis::{Axis, Fitted};
use super::{Chart, Series, SeriesKind, at};
use crate::escape::Escaped;

/// Height of text in drawing units; the style sheet says the same.
pub(super) const TEXT: f64 = 13.0;

/// Where values are drawn.
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
    pub(super) x: Fitted,
    pub(super) y: Fitted,
}

impl Frame {
    /// Lays out a chart: the widest tick label decides the left margin.
    pub(super) fn of(chart: &Chart) -> Frame {
        let (width, height) = chart.size;
        let top = TEXT * 2.0;
        let bottom = height - TEXT * 3.1;
        let y_values = chart.series.iter().flat_map(|series| heights(series).into_iter());
        let bars = chart.series.iter().any(|series| matches!(series.kind, SeriesKind::Bars(_)));
        let y_axis = Axis { from_zero: chart.y.from_zero || bars, ..chart.y.clone() };
        let y = Fitted::of(&y_axis, y_values, ((bottom - top) / 45.0).max(2.0));
        let widest = y.ticks.iter().map(|(_, label)| text_width(label)).fold(0.0, f64::max);
        let left = widest + 14.0;
        // The last tick's label hangs over its tick.
        let right = width - 16.0;
        let x_values = chart.series.iter().flat_map(|series| places(series).into_iter());
        let x = Fitted::of(&chart.x, x_values, ((right - left) / 70.0).max(2.0));
        Frame { left, top, right, bottom, x, y }
    }

    /// Horizontal place of a value, if the axis has one.
    pub(super) fn across(&self, value: f64) -> Option<f64> {
        self.x.place(value).map(|place| self.left + place * (self.right - self.left))
    }

    /// Vertical place of a value, if the axis has one.
    pub(super) fn up(&self, value: f64) -> Option<f64> {
        self.y.place(value).map(|place| self.bottom - place * (self.bottom - self.top))
    }

    /// Both places of a point that lies inside the frame (a little overhang is kept).
    pub(super) fn point(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let (across, up) = (self.across(x)?, self.up(y)?);
        let inside = across >= self.left - 1.0
            && across <= self.right + 1.0
            && up >= self.top - 1.0
            && up <= self.bottom + 1.0;
        inside.then_some((across, up))
    }

    pub(super) fn draw_axes(&self, chart: &Chart, out: &mut String) {
        let (left, right, bottom) = (at(self.left), at(self.right), at(self.bottom));
        out.push_str("<g class=\"grid\">");
        for (value, _) in &self.y.ticks {
            if let Some(up) = self.up(*value) {
                let up = at(up);
                out.push_str(&format!("<path d=\"M{left} {up}H{right}\"/>"));
            }
        }
        out.push_str("</g><g class=\"axis\">");
        out.push_str(&format!("<path d=\"M{left} {bottom}H{right}\"/>"));
        let mut free = f64::NEG_INFINITY;
        for (value, label) in &self.x.ticks {
            let Some(across) = self.across(*value) else { continue };
            out.push_str(&format!("<path d=\"M{} {bottom}v4\"/>", at(across)));
            // Ticks at measured values may crowd; a label that would touch its neighbour is left out, its tick stays.
            let half = text_width(label) / 2.0;
            if across - half < free {
                continue;
            }
            free = across + half + 4.0;
            let below = at(self.bottom + TEXT + 5.0);
            out.push_str(&format!(
                "<text class=\"mid\" x=\"{}\" y=\"{below}\">{}</text>",
                at(across),
                Escaped(label)
            ));
        }
        for (value, label) in &self.y.ticks {
            if let Some(up) = self.up(*value) {
                let (x, y) = (at(self.left - 8.0), at(up + TEXT * 0.35));
                out.push_str(&format!(
                    "<text class=\"end\" x=\"{x}\" y=\"{y}\">{}</text>",
                    Escaped(label)
                ));
            }
        }
        let caption = chart.x.caption();
        let middle = at((self.left + self.right) / 2.0);
        out.push_str(&format!(
            "<text class=\"mid name\" x=\"{middle}\" y=\"{}\">{}</text>",
            at(self.bottom + TEXT * 2.0 + 10.0),
            Escaped(&caption)
        ));
        // The vertical axis is named above it, level, so that no one has to tilt their head.
        let above = at(self.top - TEXT * 0.85);
        out.push_str(&format!(
            "<text class=\"name\" x=\"0\" y=\"{above}\">{}</text></g>",
            Escaped(&chart.y.caption())
        ));
    }
}

/// All heights a series reaches.
fn heights(series: &Series) -> Vec<f64> {
    match &series.kind {
        SeriesKind::Points(points) | SeriesKind::Line(points) => {
            points.iter().map(|point| point.1).collect()
        }
        SeriesKind::Band(spans)
        | SeriesKind::Area(spans)
        | SeriesKind::Averages(spans)
        | SeriesKind::Bars(spans) => {
            spans.iter().flat_map(|span| [span.y, span.low, span.high]).collect()
        }
    }
}

/// All places a series has on the horizontal axis.
fn places(series: &Series) -> Vec<f64> {
    match &series.kind {
        SeriesKind::Points(points) | SeriesKind::Line(points) => {
            points.iter().map(|point| point.0).collect()
        }
        SeriesKind::Band(spans)
        | SeriesKind::Area(spans)
        | SeriesKind::Averages(spans)
        | SeriesKind::Bars(spans) => spans.iter().map(|span| span.x).collect(),
    }
}

/// Width of a text in drawing units: an estimate that errs on the wide side, because fonts cannot be measured here.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'l' | 'j' | '.' | ',' | '\'' | '|' | ' ' => 0.32,
            'm' | 'w' | 'M' | 'W' | '%' => 0.9,
            c if c.is_ascii_uppercase() => 0.7,
            c if c.is_ascii() => 0.57,
            '\u{2212}' | 'µ' | '×' | '·' | '²' => 0.6,
            _ => 1.0,
        })
        .sum::<f64>()
        * TEXT
}

/// A name that fits, cut at its end.
pub(super) fn shortened(name: &str, room: f64) -> String {
    if text_width(name) <= room {
        return name.to_owned();
    }
    let mut short: String = name.to_owned();
    while short.pop().is_some() && text_width(&short) + 8.0 > room {}
    format!("{}…", short.trim_end())
}
