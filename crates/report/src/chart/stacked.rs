//! Horizontal stacked bars. Long names and many rows stay readable, which they would not in vertical bars.

use super::at;
use super::frame::{shortened, text_width};
use crate::escape::Escaped;
use crate::theme;

/// Height of a row, and of the bar in it.
const ROW: f64 = 30.0;
const BAR: f64 = 18.0;
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
    /// Width in units of the drawing; text is 13 units high.
    pub width: f64,
}

impl Stacked {
    /// The drawing for a page that carries [`theme::CHART_CSS`].
    #[must_use]
    pub fn svg(&self) -> String {
        let names = self.rows.iter().map(|(name, _)| text_width(name)).fold(40.0, f64::max);
        // A long name must leave room for what it names.
        let left = (names + 12.0).min(0.45 * self.width);
        let height = KEY + ROW * self.rows.len() as f64;
        let mut out = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\"><title>{}</title>",
            at(self.width),
            at(height),
            Escaped(&self.title)
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
        for (row, (name, shares)) in self.rows.iter().enumerate() {
            let top = KEY + ROW * row as f64 + (ROW - BAR) / 2.0;
            let base = at(top + BAR - 5.0);
            let name = shortened(name, left - 12.0);
            out.push_str(&format!(
                "<text class=\"name\" x=\"0\" y=\"{base}\">{}</text>",
                Escaped(&name)
            ));
            let mut x = left;
            for (place, share) in shares.iter().enumerate() {
                let width = share.clamp(0.0, 1.0) * (self.width - left);
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
        }
        out.push_str("</svg>");
        out
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
            width: 400.0,
        };
        let svg = chart.svg();
        assert!(svg.contains("98 %") && !svg.contains(">2 %") && svg.contains("100 %"), "{svg}");
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("exchange"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn long_names_leave_room() {
        let name = "a very long name of a run that goes on and on and on";
        assert!(
            shortened(name, 100.0).ends_with('…') && text_width(&shortened(name, 100.0)) <= 110.0
        );
        assert_eq!(shortened("short", 100.0), "short");
    }
}
