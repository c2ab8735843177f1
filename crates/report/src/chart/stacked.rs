//! Horizontal stacked bars. Long names and many rows stay readable, which they would not in vertical bars.

use super::frame::{TEXT, text_width};
use super::legend::wrapped;
use super::{Drawing, at, data};
use crate::escape::Escaped;
use crate::theme;
use serde_json::json;

/// Height of a bar, and the room below it.
const BAR: f64 = 18.0;
const BELOW: f64 = 9.0;
/// Height of a line of a name, which stands above its bar: beside it, long names would leave no room.
const LINE: f64 = TEXT * 1.3;
/// Room for the key above the rows.
const KEY: f64 = 30.0;
/// A part narrower than this has no room for its figure.
const FIGURE: f64 = 34.0;

/// Rows of parts, each given as a share of the row's whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Stacked {
    /// What it shows; read out by screen readers.
    pub title: String,
    /// Names of the parts, in the order in which they lie; places in the palette follow it.
    pub parts: Vec<String>,
    /// A name and the shares of its parts, from 0 to 1.
    pub rows: Vec<(String, Vec<f64>)>,
    /// What stands at the right of each row's name, such as its whole; empty for none.
    pub totals: Vec<String>,
    /// Width in units of the drawing; text is 13 units high.
    pub width: f64,
}

impl Stacked {
    /// The drawing for a page that carries [`theme::CHART_CSS`].
    #[must_use]
    pub fn svg(&self) -> Drawing {
        let widest = self.totals.iter().map(|total| text_width(total)).fold(0.0, f64::max);
        let names: Vec<Vec<String>> =
            self.rows.iter().map(|(name, _)| wrapped(name, self.width - widest - 8.0)).collect();
        let lines: usize = names.iter().map(Vec::len).sum();
        let height = KEY + LINE * lines as f64 + (BAR + BELOW) * self.rows.len() as f64;
        let mut out = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\"><title>{}</title>{}",
            at(self.width),
            at(height),
            Escaped(&self.title),
            self.numbers()
        );
        let mut x = 0.0;
        for (place, part) in self.parts.iter().enumerate() {
            if !self.rows.iter().any(|(_, shares)| shares.get(place).is_some_and(|s| *s >= 0.005)) {
                continue; // a part that occurs in no row needs no key
            }
            let colour = place % theme::COLOURS;
            out.push_str(&format!(
                "<g class=\"c{colour}\"><rect class=\"bar\" x=\"{}\" y=\"3\" width=\"11\" height=\"11\" rx=\"2\"/></g>\
                 <text class=\"name\" x=\"{}\" y=\"13\">{}</text>",
                at(x),
                at(x + 16.0),
                Escaped(part)
            ));
            x += 16.0 + text_width(part) + 18.0;
        }
        let mut top = KEY;
        for (row, ((_, shares), lines)) in self.rows.iter().zip(names).enumerate() {
            if let Some(total) = self.totals.get(row) {
                out.push_str(&format!(
                    "<text class=\"end\" x=\"{}\" y=\"{}\">{}</text>",
                    at(self.width),
                    at(top + TEXT - 1.0),
                    Escaped(total)
                ));
            }
            for line in lines {
                out.push_str(&format!(
                    "<text class=\"name\" x=\"0\" y=\"{}\">{}</text>",
                    at(top + TEXT - 1.0),
                    Escaped(&line)
                ));
                top += LINE;
            }
            let base = at(top + BAR - 5.0);
            let mut x = 0.0;
            for (place, share) in shares.iter().enumerate() {
                let width = share.clamp(0.0, 1.0) * self.width;
                if !width.is_finite() || width < 0.5 {
                    continue;
                }
                let colour = place % theme::COLOURS;
                out.push_str(&format!(
                    "<g class=\"c{colour}\"><rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\"/></g>",
                    at(x),
                    at(top),
                    at(width)
                ));
                if width >= FIGURE {
                    out.push_str(&format!(
                        "<text class=\"mid inside\" x=\"{}\" y=\"{base}\">{:.0} %</text>",
                        at(x + width / 2.0),
                        100.0 * share
                    ));
                }
                x += width;
            }
            top += BAR + BELOW;
        }
        out.push_str("</svg>");
        Drawing::drawn(out)
    }

    /// The shares, for a file of their own.
    fn numbers(&self) -> String {
        let mut rows = vec![vec![json!("")]];
        rows[0].extend(self.parts.iter().map(|part| json!(part)));
        for (name, shares) in &self.rows {
            let mut row = vec![json!(name)];
            row.extend(shares.iter().map(|share| data::number(*share)));
            rows.push(row);
        }
        data::rows(&self.title, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_row_and_small_ones_have_no_figure() {
        let chart = Stacked {
            title: "Shares".to_owned(),
            parts: ["input", "compute", "exchange"].map(str::to_owned).to_vec(),
            rows: vec![
                ("a <b>".to_owned(), vec![0.02, 0.98, 0.0]),
                ("b".to_owned(), vec![f64::NAN, 1.0, 0.0]),
            ],
            totals: vec!["5.3 s".to_owned()],
            width: 400.0,
        };
        let svg = chart.svg();
        assert!(svg.contains("98 %") && !svg.contains(">2 %") && svg.contains("100 %"), "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains(">exchange<"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
        assert!(svg.contains("<text class=\"end\" x=\"400\" y=\"42\">5.3 s</text>"), "{svg}");
    }

    #[test]
    fn long_names_are_written_in_full() {
        let name =
            "a very long name of a run that goes on and on and on and tells every setting of it";
        let lines = wrapped(name, 380.0);
        assert_eq!(lines.join(" "), name);
        assert!(lines.len() > 1 && lines.iter().all(|line| text_width(line) <= 380.0));
    }
}
