//! A map of values by row and column, darker where there is more: cores over time, or a measure by two settings.

use super::frame::{TEXT, shortened, text_width};
use super::{Drawing, at, data};
use crate::escape::Escaped;
use serde_json::{Value, json};

/// Shades of a cell; the style sheet has as many, and one below them.
const SHADES: f64 = 9.0;
/// Most cells that say their value when pointed at; a larger map joins equal neighbours and stays small.
const MOST_SPOKEN: usize = 600;
/// Width of the drawing, as of every chart.
const WIDTH: f64 = 380.0;

/// Values by row and column.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    /// What it shows; read out by screen readers.
    pub title: String,
    /// What rows and columns are.
    pub axes: (String, String),
    /// Names of the rows, from the top.
    pub rows: Vec<String>,
    /// Names of the columns; for screen readers and for the file of numbers.
    pub columns: Vec<String>,
    /// Where names stand below, in columns from the left edge, and the names.
    pub ticks: Vec<(f64, String)>,
    /// The values, row by row; one that is not finite leaves its cell empty.
    pub values: Vec<Vec<f64>>,
    /// The values that are lightest and darkest.
    pub range: (f64, f64),
    /// Whether equal factors are equal steps of shade.
    pub logarithmic: bool,
    pub unit: String,
    /// What stands in each cell, where there is room; empty for a map of colours only.
    pub texts: Vec<Vec<String>>,
    /// A cell with a frame around it, as (row, column).
    pub framed: Option<(usize, usize)>,
}

impl HeatMap {
    /// The drawing for a page that carries [`crate::theme::CHART_CSS`].
    #[must_use]
    pub fn svg(&self) -> Drawing {
        let longest = self.rows.iter().map(|name| text_width(name)).fold(0.0, f64::max);
        let left = (longest + 8.0).min(130.0);
        let top = TEXT * 1.6;
        let columns = self.columns.len().max(1) as f64;
        let wide = (WIDTH - left - 4.0) / columns;
        let tall = self.row_height();
        let bottom = top + tall * self.rows.len() as f64;
        let mut out = format!(
            "<svg class=\"chart matrix\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\"><title>{}</title>{}<text class=\"name\" x=\"0\" y=\"{TEXT}\">{}</text>",
            at(bottom + TEXT * 5.0),
            Escaped(&self.title),
            self.numbers(),
            Escaped(&self.axes.0)
        );
        let mut free = f64::NEG_INFINITY;
        for (row, name) in self.rows.iter().enumerate() {
            let y = top + tall * row as f64;
            // A name that would touch the one above is left out.
            if y + tall / 2.0 - TEXT * 0.5 > free {
                free = y + tall / 2.0 + TEXT * 0.5;
                out.push_str(&format!(
                    "<text class=\"end\" x=\"{}\" y=\"{}\">{}</text>",
                    at(left - 6.0),
                    at(y + tall / 2.0 + TEXT * 0.35),
                    Escaped(&shortened(name, left - 8.0))
                ));
            }
            self.draw_row(row, (left, y), (wide, tall), &mut out);
        }
        self.draw_ticks((left, bottom), wide, &mut out);
        self.draw_key((left, bottom + TEXT * 3.6), &mut out);
        out.push_str("</svg>");
        Drawing::drawn(out)
    }

    fn row_height(&self) -> f64 {
        let texts = if self.texts.is_empty() { 0.0 } else { TEXT * 2.0 };
        (220.0 / self.rows.len().max(1) as f64).clamp(6.0, 34.0).max(texts)
    }

    /// The shade of a value, from 0; nothing for one that is not known.
    fn shade(&self, value: f64) -> Option<u8> {
        let on = |value: f64| if self.logarithmic { value.ln() } else { value };
        let (low, high, value) = (on(self.range.0), on(self.range.1), on(value));
        let share = if high > low { (value - low) / (high - low) } else { 0.5 };
        share.is_finite().then(|| (share.clamp(0.0, 1.0) * SHADES).round() as u8)
    }

    fn draw_row(
        &self,
        row: usize,
        (left, y): (f64, f64),
        (wide, tall): (f64, f64),
        out: &mut String,
    ) {
        let values = self.values.get(row).map_or(&[][..], Vec::as_slice);
        let spoken = self.rows.len() * self.columns.len() <= MOST_SPOKEN;
        let gap = if spoken { 1.0 } else { 0.0 };
        out.push_str("<g class=\"c0\">");
        let mut column = 0;
        while column < values.len().min(self.columns.len()) {
            let shade = self.shade(values[column]);
            let same = |other: &&f64| !spoken && self.shade(**other) == shade;
            let count = 1 + values[column + 1..].iter().take_while(same).count();
            let begin = column;
            column += count;
            let Some(shade) = shade else { continue };
            let x = left + wide * begin as f64;
            let title = match spoken {
                true => format!("<title>{}</title>", Escaped(&self.spoken(row, begin))),
                false => String::new(),
            };
            let framed = if self.framed == Some((row, begin)) { " framed" } else { "" };
            out.push_str(&format!(
                "<rect class=\"cell s{shade}{framed}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{title}</rect>",
                at(x),
                at(y),
                at(wide * count as f64 - gap),
                at(tall - 1.0)
            ));
            let text = self.texts.get(row).and_then(|texts| texts.get(begin));
            if let Some(text) = text.filter(|text| text_width(text) < wide) {
                let class = if shade > 5 { "mid inside" } else { "mid value" };
                out.push_str(&format!(
                    "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>",
                    at(x + wide / 2.0),
                    at(y + tall / 2.0 + TEXT * 0.35),
                    Escaped(text)
                ));
            }
        }
        out.push_str("</g>");
    }

    /// A cell in words.
    fn spoken(&self, row: usize, column: usize) -> String {
        let value = self.values[row][column];
        let text = self.texts.get(row).and_then(|texts| texts.get(column)).cloned();
        let text = text.unwrap_or_else(|| format!("{value:.1}"));
        let words = format!("{}, {}: {text} {}", self.rows[row], self.columns[column], self.unit);
        words.trim_end().to_owned()
    }

    fn draw_ticks(&self, (left, bottom): (f64, f64), wide: f64, out: &mut String) {
        let mut free = f64::NEG_INFINITY;
        for (place, name) in &self.ticks {
            let name = shortened(name, WIDTH / 2.0);
            let half = text_width(&name) / 2.0;
            let middle = (left + wide * place).min(WIDTH - half);
            if middle - half <= free {
                continue;
            }
            free = middle + half + 4.0;
            out.push_str(&format!(
                "<text class=\"mid\" x=\"{}\" y=\"{}\">{}</text>",
                at(middle),
                at(bottom + TEXT + 4.0),
                Escaped(&name)
            ));
        }
        out.push_str(&format!(
            "<text class=\"mid name\" x=\"{}\" y=\"{}\">{}</text>",
            at((left + WIDTH) / 2.0),
            at(bottom + TEXT * 2.0 + 8.0),
            Escaped(&self.axes.1)
        ));
    }

    /// Which shade is which value.
    fn draw_key(&self, (left, top): (f64, f64), out: &mut String) {
        let side = 11.0;
        let low = super::short_number(self.range.0);
        let high = format!("{} {}", super::short_number(self.range.1), self.unit);
        let base = at(top + side - 1.0);
        let begin = left + text_width(&low) + 6.0;
        out.push_str(&format!(
            "<g class=\"c0\"><text x=\"{}\" y=\"{base}\">{low}</text>",
            at(left)
        ));
        for shade in 0..=SHADES as u8 {
            out.push_str(&format!(
                "<rect class=\"cell s{shade}\" x=\"{}\" y=\"{}\" width=\"{side}\" height=\"{side}\"/>",
                at(begin + side * f64::from(shade)),
                at(top)
            ));
        }
        out.push_str(&format!(
            "<text x=\"{}\" y=\"{base}\">{}</text></g>",
            at(begin + side * (SHADES + 1.0) + 6.0),
            Escaped(high.trim_end())
        ));
    }

    /// The values, for a file of their own.
    fn numbers(&self) -> String {
        let corner = format!("{} / {}", self.axes.0, self.axes.1);
        let mut rows: Vec<Vec<Value>> = vec![vec![json!(corner)]];
        rows[0].extend(self.columns.iter().map(|name| json!(name)));
        for (name, values) in self.rows.iter().zip(&self.values) {
            let mut row = vec![json!(name)];
            row.extend(values.iter().map(|value| data::number(*value)));
            rows.push(row);
        }
        data::rows(&self.title, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rows: usize, columns: usize) -> HeatMap {
        HeatMap {
            title: "CPU <by> core".to_owned(),
            axes: ("core".to_owned(), "time (s)".to_owned()),
            rows: (0..rows).map(|row| row.to_string()).collect(),
            columns: (0..columns).map(|column| format!("{column} s")).collect(),
            ticks: vec![(0.0, "0".to_owned())],
            values: vec![vec![50.0; columns]; rows],
            range: (0.0, 100.0),
            logarithmic: false,
            unit: "%".to_owned(),
            texts: Vec::new(),
            framed: None,
        }
    }

    #[test]
    fn a_cell_says_what_it_is_and_an_unknown_one_is_empty() {
        let mut small = map(2, 3);
        small.values[1][2] = f64::NAN;
        small.framed = Some((0, 1));
        let svg = small.svg();
        assert!(svg.contains("0, 1 s: 50.0 %") && !svg.contains("1, 2 s:"), "{svg}");
        assert_eq!(svg.matches("framed").count(), 1);
        assert!(svg.contains("CPU &lt;by&gt; core"), "{svg}");
    }

    /// Cells of a long recording on a large machine, one by one, would make a page of megabytes.
    #[test]
    fn equal_neighbours_of_a_large_map_are_one() {
        let large = map(64, 100).svg();
        assert_eq!(large.matches("<rect").count(), 64 + 10, "a strip for each row, and the key");
    }
}
