//! Parallel coordinates: one axis for each setting and result, one line for each run, the best ones in colour.

use super::frame::{TEXT, shortened, text_width};
use super::{Drawing, at, data};
use crate::escape::Escaped;
use serde_json::{Value, json};

/// Width of the drawing, as of every chart, and height of the axes.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 190.0;
/// Room beside the outer axes for their labels.
const SIDE: f64 = 34.0;

/// An axis with the place of every line on it.
#[derive(Debug, Clone, PartialEq)]
pub struct ParallelAxis {
    pub name: String,
    /// Where each line crosses it, from 0 at the bottom to 1; nothing where a line has no value.
    pub places: Vec<Option<f64>>,
    /// What each line's value is, in words.
    pub values: Vec<String>,
    /// Labels at their places.
    pub ticks: Vec<(f64, String)>,
}

/// Lines across several axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Parallel {
    /// What it shows; read out by screen readers.
    pub title: String,
    /// From the left to the right.
    pub axes: Vec<ParallelAxis>,
    /// The name of each line, and whether it stands out.
    pub lines: Vec<(String, bool)>,
}

impl Parallel {
    /// The drawing for a page that carries [`crate::theme::CHART_CSS`].
    #[must_use]
    pub fn svg(&self) -> Drawing {
        let top = TEXT * 3.4;
        let bottom = top + HEIGHT;
        let mut out = format!(
            "<svg class=\"chart matrix\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\"><title>{}</title>{}",
            at(bottom + TEXT),
            Escaped(&self.title),
            self.numbers()
        );
        // Those that stand out lie above the others.
        for wanted in [false, true] {
            for (line, (name, best)) in self.lines.iter().enumerate() {
                if *best == wanted {
                    self.draw_line((line, name), wanted, (top, bottom), &mut out);
                }
            }
        }
        for (index, axis) in self.axes.iter().enumerate() {
            let x = self.across(index);
            out.push_str(&format!(
                "<g class=\"axis\"><path d=\"M{x} {}V{}\"/></g>",
                at(top),
                at(bottom),
                x = at(x)
            ));
            // Names of neighbours stand at two heights.
            let level = if index % 2 == 0 { TEXT } else { TEXT * 2.3 };
            let name = shortened(&axis.name, self.step().mul_add(1.4, SIDE));
            // The outer ones begin and end with the drawing.
            let (class, place) = match index {
                0 => ("name", 0.0),
                _ if index + 1 == self.axes.len() => ("end name", WIDTH),
                _ => ("mid name", x),
            };
            out.push_str(&format!(
                "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>",
                at(place),
                at(level),
                Escaped(&name)
            ));
            self.draw_ticks(axis, x, bottom, &mut out);
        }
        out.push_str("</svg>");
        Drawing::drawn(out)
    }

    fn step(&self) -> f64 {
        (WIDTH - 2.0 * SIDE) / (self.axes.len().max(2) - 1) as f64
    }

    fn across(&self, index: usize) -> f64 {
        SIDE + self.step() * index as f64
    }

    fn draw_line(
        &self,
        (line, name): (usize, &String),
        best: bool,
        (top, bottom): (f64, f64),
        out: &mut String,
    ) {
        let class = if best { "c0" } else { "c6" };
        let faint = if best { "" } else { " faint" };
        out.push_str(&format!("<g class=\"{class}\"><path class=\"line{faint}\" d=\""));
        let mut gap = true;
        for (index, axis) in self.axes.iter().enumerate() {
            let Some(place) = axis.places.get(line).copied().flatten() else {
                gap = true;
                continue;
            };
            let y = bottom - place.clamp(0.0, 1.0) * (bottom - top);
            out.push_str(&format!(
                "{}{} {}",
                if gap { 'M' } else { 'L' },
                at(self.across(index)),
                at(y)
            ));
            gap = false;
        }
        out.push_str(&format!("\"><title>{}</title></path></g>", Escaped(name)));
    }

    fn draw_ticks(&self, axis: &ParallelAxis, x: f64, bottom: f64, out: &mut String) {
        let mut free = f64::INFINITY;
        for (place, label) in &axis.ticks {
            let y = bottom - place.clamp(0.0, 1.0) * HEIGHT;
            if y > free {
                continue;
            }
            free = y - TEXT;
            let label = shortened(label, self.step().min(130.0) - 6.0);
            // Over the lines, with the paper behind it.
            out.push_str(&format!(
                "<text class=\"value halo\" x=\"{}\" y=\"{}\">{}</text>",
                at((x + 3.0).min(WIDTH - text_width(&label))),
                at(y + TEXT * 0.35),
                Escaped(&label)
            ));
        }
    }

    /// The values, for a file of their own.
    fn numbers(&self) -> String {
        let mut rows: Vec<Vec<Value>> = vec![vec![json!("run")]];
        rows[0].extend(self.axes.iter().map(|axis| json!(axis.name)));
        for (line, (name, _)) in self.lines.iter().enumerate() {
            let mut row = vec![json!(name)];
            row.extend(self.axes.iter().map(|axis| json!(axis.values.get(line))));
            rows.push(row);
        }
        data::rows(&self.title, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_a_line_and_a_missing_value_a_gap() {
        let axis = |name: &str, places: &[Option<f64>]| ParallelAxis {
            name: name.to_owned(),
            places: places.to_vec(),
            values: places.iter().map(|place| format!("{place:?}")).collect(),
            ticks: vec![(0.0, "<low>".to_owned()), (0.01, "hidden".to_owned())],
        };
        let drawing = Parallel {
            title: "t".to_owned(),
            axes: vec![
                axis("lr", &[Some(0.0), Some(1.0)]),
                axis("loss", &[None, Some(0.5)]),
                axis("rate", &[Some(1.0), Some(0.5)]),
            ],
            lines: vec![("a".to_owned(), false), ("b".to_owned(), true)],
        };
        let svg = drawing.svg();
        assert_eq!(svg.matches("class=\"line").count(), 2);
        assert_eq!(svg.split("<title>a<").next().unwrap().matches('M').count(), 2, "a gap: {svg}");
        assert!(svg.contains("&lt;low&gt;") && !svg.contains("hidden"), "{svg}");
        assert!(svg.find("<title>a<") < svg.find("<title>b<"), "the best lies above");
    }
}
