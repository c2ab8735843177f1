//! A matrix of counts, such as what a classifier took for what: darker where there is more, with the count in every cell.

use super::frame::{TEXT, shortened, text_width};
use super::{Drawing, at, data};
use crate::escape::Escaped;
use serde_json::json;

/// Most rows whose cells have room for their counts.
const MOST_COUNTED: usize = 12;
/// Shades of a cell; the style sheet has as many.
const SHADES: f64 = 9.0;

/// Counts by row and column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// What it shows; read out by screen readers.
    pub title: String,
    /// Names of rows and columns alike.
    pub names: Vec<String>,
    /// What rows and columns are.
    pub axes: (String, String),
    /// The counts, row by row; missing ones are zero.
    pub rows: Vec<Vec<u64>>,
}

impl Matrix {
    /// The drawing for a page that carries [`crate::theme::CHART_CSS`].
    #[must_use]
    pub fn svg(&self) -> Drawing {
        let count = self.names.len().max(1) as f64;
        let longest = self.names.iter().map(|name| text_width(name)).fold(0.0, f64::max);
        let left = (longest + 8.0).min(120.0);
        let (width, top) = (380.0, TEXT * 1.6);
        let cell = ((width - left - 4.0) / count).min(52.0);
        let bottom = top + cell * count;
        // Names below that would touch stand at two heights; where that is not enough they are left out: the rows have the same ones.
        let places = self.names_below(left, cell, width);
        let lower = places.iter().flatten().any(|(level, _)| *level > 0);
        let end = bottom + if lower { TEXT * 1.2 } else { 0.0 };
        let mut out = format!(
            "<svg class=\"chart matrix\" viewBox=\"0 0 {width} {}\" role=\"img\"><title>{}</title>{}<text class=\"name\" x=\"0\" y=\"{TEXT}\">{}</text>",
            at(end + TEXT * 3.2),
            Escaped(&self.title),
            self.numbers(),
            Escaped(&self.axes.0)
        );
        for (row, name) in self.names.iter().enumerate() {
            let y = top + cell * row as f64;
            if cell >= TEXT * 0.95 {
                let short = shortened(name, left - 8.0);
                let base = at(y + cell / 2.0 + TEXT * 0.35);
                let x = at(left - 6.0);
                out.push_str(&format!(
                    "<text class=\"end\" x=\"{x}\" y=\"{base}\">{}</text>",
                    Escaped(&short)
                ));
            }
            if let Some((level, middle)) = places[row] {
                out.push_str(&format!(
                    "<text class=\"mid\" x=\"{}\" y=\"{}\">{}</text>",
                    at(middle),
                    at(bottom + TEXT + 3.0 + TEXT * 1.2 * f64::from(level)),
                    Escaped(name)
                ));
            }
            self.draw_row(row, (left, y, cell), &mut out);
        }
        out.push_str(&format!(
            "<text class=\"mid name\" x=\"{}\" y=\"{}\">{}</text></svg>",
            at(left + cell * count / 2.0),
            at(end + TEXT * 2.0 + 8.0),
            Escaped(&self.axes.1)
        ));
        Drawing::drawn(out)
    }

    /// The height, from the top, and the middle of each name below the cells that has room.
    fn names_below(&self, left: f64, cell: f64, width: f64) -> Vec<Option<(u8, f64)>> {
        let mut free = [f64::NEG_INFINITY; 2];
        let place = |(column, name): (usize, &String)| {
            let half = text_width(name) / 2.0;
            let middle = (left + cell * (column as f64 + 0.5)).min(width - half);
            let level = (0..2u8).find(|level| middle - half > free[usize::from(*level)])?;
            free[usize::from(level)] = middle + half + 6.0;
            Some((level, middle))
        };
        self.names.iter().enumerate().map(place).collect()
    }

    /// The counts, for a file of their own.
    fn numbers(&self) -> String {
        let corner = format!("{} / {}", self.axes.0, self.axes.1);
        let mut rows = vec![vec![json!(corner)]];
        rows[0].extend(self.names.iter().map(|name| json!(name)));
        for (name, counts) in self.names.iter().zip(&self.rows) {
            let mut row = vec![json!(name)];
            row.extend(counts.iter().map(|count| json!(count)));
            rows.push(row);
        }
        data::rows(&self.title, &rows)
    }

    /// The cells of a row, each shaded by its share of the row: classes of different sizes are read alike.
    fn draw_row(&self, row: usize, (left, y, cell): (f64, f64, f64), out: &mut String) {
        let counts = self.rows.get(row).map_or(&[][..], Vec::as_slice);
        let all = counts.iter().sum::<u64>().max(1);
        for (column, name) in self.names.iter().enumerate() {
            let count = counts.get(column).copied().unwrap_or(0);
            let share = count as f64 / all as f64;
            let shade = (share * SHADES).ceil();
            let right = if row == column { "c0" } else { "c1" };
            let x = left + cell * column as f64;
            out.push_str(&format!(
                "<g class=\"{right}\"><rect class=\"cell s{shade}\" x=\"{}\" y=\"{}\" width=\"{w}\" height=\"{w}\"><title>{} as {}: {count} ({:.1} %)</title></rect>",
                at(x),
                at(y),
                Escaped(&self.names[row]),
                Escaped(name),
                100.0 * share,
                w = at(cell - 1.0)
            ));
            let text = count.to_string();
            if count > 0 && self.names.len() <= MOST_COUNTED && text_width(&text) < cell {
                let class = if shade > 5.0 { "mid inside" } else { "mid value" };
                out.push_str(&format!(
                    "<text class=\"{class}\" x=\"{}\" y=\"{}\">{text}</text>",
                    at(x + cell / 2.0),
                    at(y + cell / 2.0 + TEXT * 0.35)
                ));
            }
            out.push_str("</g>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_says_what_it_counts_and_how_much() {
        let matrix = Matrix {
            title: "Confusion".to_owned(),
            names: vec!["<cat>".to_owned(), "dog".to_owned()],
            axes: ("true class".to_owned(), "predicted class".to_owned()),
            rows: vec![vec![9, 1], vec![0]],
        };
        let svg = matrix.svg();
        assert!(svg.contains("&lt;cat&gt; as dog: 1 (10.0 %)"), "{svg}");
        assert!(svg.contains("dog as dog: 0 (0.0 %)") && svg.contains("cell s9"), "{svg}");
    }

    /// `daisy dandelion rose sunflower` touched each other, and `tulip` was left out.
    #[test]
    fn names_that_would_touch_stand_at_two_heights() {
        let names = ["daisy", "dandelion", "rose", "sunflower", "tulip"].map(str::to_owned);
        let axes = ("true class".to_owned(), "predicted class".to_owned());
        let matrix = Matrix { title: String::new(), names: names.to_vec(), axes, rows: vec![] };
        let svg = matrix.svg();
        for name in names {
            assert_eq!(svg.matches(&format!(">{name}<")).count(), 2, "{name} in {svg}");
        }
    }

    #[test]
    fn a_hundred_classes_are_drawn_without_counts() {
        let names: Vec<String> = (0..100).map(|class| format!("class {class}")).collect();
        let rows = vec![vec![1; 100]; 100];
        let matrix =
            Matrix { title: String::new(), names, axes: (String::new(), String::new()), rows };
        assert!(!matrix.svg().contains("mid value"));
    }
}
