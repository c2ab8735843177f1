//! The legend: a row of names below the plot, wrapped so that it neither covers data nor leaves the card.

use super::frame::{TEXT, text_width};
use super::marks::marker;
use super::{Chart, Series, SeriesKind, Style, at, classes};
use crate::escape::Escaped;

/// Height of a line.
const LINE: f64 = TEXT * 1.45;
/// Room for the sample before a name, and between entries.
const SAMPLE: f64 = 26.0;
const GAP: f64 = 16.0;

/// A name with its place in the palette, the lines it takes, and where it stands.
struct LegendEntry<'a> {
    series: &'a Series,
    place: usize,
    lines: Vec<String>,
    x: f64,
    y: f64,
}

/// Text broken at spaces into lines of at most `room`; a longer word stays whole.
pub(super) fn wrapped(text: &str, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(word) + TEXT * 0.32 <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The entries, placed from the left, line by line; nothing for a single name, which the chart's title says.
fn entries<'a>(chart: &'a Chart, places: &[usize]) -> (Vec<LegendEntry<'a>>, f64) {
    let mut named: Vec<(&Series, usize)> = Vec::new();
    for (series, place) in chart.series.iter().zip(places) {
        let known = named.iter().any(|(other, _)| other.name == series.name);
        if series.labelled && !series.name.is_empty() && !known {
            named.push((series, *place));
        }
    }
    if named.len() < 2 {
        return (Vec::new(), 0.0);
    }
    let width = chart.size.0;
    let (mut x, mut y) = (0.0, 0.0);
    let mut found = Vec::new();
    for (series, place) in named {
        let lines = wrapped(&series.name, width - SAMPLE);
        let long = lines.iter().map(|line| text_width(line)).fold(0.0, f64::max) + SAMPLE;
        if x > 0.0 && x + long > width {
            x = 0.0;
            y += LINE;
        }
        let below = LINE * (lines.len() as f64 - 1.0);
        found.push(LegendEntry { series, place, lines, x, y });
        x += long + GAP;
        if below > 0.0 {
            x = 0.0;
            y += below + LINE;
        }
    }
    let height = if x > 0.0 { y + LINE } else { y };
    (found, height + TEXT * 0.5)
}

/// Height of the legend in units of the drawing.
pub(super) fn height(chart: &Chart, places: &[usize]) -> f64 {
    entries(chart, places).1
}

/// Draws the legend with its upper edge at `top`.
pub(super) fn draw(chart: &Chart, places: &[usize], top: f64, out: &mut String) {
    let (entries, _) = entries(chart, places);
    if entries.is_empty() {
        return;
    }
    out.push_str("<g class=\"legend\">");
    for entry in entries {
        let name = Escaped(&entry.series.name);
        out.push_str(&format!("<g class=\"entry {}\" data-name=\"{name}\">", classes(entry.place)));
        let base = top + entry.y + TEXT;
        let middle = base - TEXT * 0.35;
        match (&entry.series.kind, entry.series.style) {
            (SeriesKind::Line(_), style) => {
                out.push_str(&format!(
                    "<path class=\"line\" d=\"M{} {}h18\"/>",
                    at(entry.x),
                    at(middle)
                ));
                if style == Style::Marked {
                    let dot = marker((entry.x + 9.0, middle), 2.6, entry.place % 4);
                    out.push_str(&format!("<path class=\"spot\" d=\"{dot}\"/>"));
                }
            }
            (SeriesKind::Points(_) | SeriesKind::Averages(_), _) => {
                let dot = marker((entry.x + 9.0, middle), 4.0, entry.place % 4);
                out.push_str(&format!("<path class=\"mean\" d=\"{dot}\"/>"));
            }
            _ => out.push_str(&format!(
                "<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"14\" height=\"11\" rx=\"2\"/>",
                at(entry.x),
                at(middle - 5.5)
            )),
        }
        for (number, line) in entry.lines.iter().enumerate() {
            out.push_str(&format!(
                "<text class=\"name\" x=\"{}\" y=\"{}\">{}</text>",
                at(entry.x + SAMPLE),
                at(base + LINE * number as f64),
                Escaped(line)
            ));
        }
        out.push_str("</g>");
    }
    out.push_str("</g>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Axis;

    fn chart(names: &[&str]) -> Chart {
        let mut chart = Chart::new("c", Axis::new("x"), Axis::new("y"));
        for name in names {
            chart = chart.with(Series::line(*name, [(0.0, 0.0), (1.0, 1.0)]));
        }
        chart
    }

    #[test]
    fn every_name_is_written_in_full_and_inside_the_drawing() {
        let long =
            "multi-worker, 3 workers, learning rate 0.0003, batch 1024, schedule cosine, threads 4";
        let chart = chart(&[long, "short", "another name", "and one more of them"]);
        let (entries, height) = entries(&chart, &[0, 1, 2, 3]);
        assert_eq!(entries[0].lines.join(" "), long);
        for entry in &entries {
            for line in &entry.lines {
                assert!(entry.x + SAMPLE + text_width(line) <= chart.size.0, "{line}");
            }
            assert!(entry.y + LINE * entry.lines.len() as f64 <= height, "{:?}", entry.lines);
        }
    }

    #[test]
    fn one_name_needs_no_legend() {
        assert!(!chart(&["only"]).svg().contains("legend"));
    }
}
