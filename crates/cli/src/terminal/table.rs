//! Plain tables for the terminal: aligned, no frames, copied into a mail without damage.

use super::one_line;
use std::fmt;

/// Rows under a header; numbers (cells that start with a digit or sign) align right. A cell is one line, whatever name it holds.
#[derive(Debug, Clone, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: cells(header), rows: Vec::new() }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row<S: Into<String>>(&mut self, row: impl IntoIterator<Item = S>) {
        self.rows.push(cells(row));
    }
}

fn cells<S: Into<String>>(texts: impl IntoIterator<Item = S>) -> Vec<String> {
    texts.into_iter().map(|text| one_line(&text.into()).into_owned()).collect()
}

fn looks_numeric(cell: &str) -> bool {
    let digits = cell.trim_start_matches(['-', '+', '~', '<', '≤', '\u{2212}']);
    cell.is_empty() || cell == "–" || digits.starts_with(|c: char| c.is_ascii_digit())
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).chain([self.header.len()]).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let width = |column: usize| {
            let longest = |row: &Vec<String>| cell(row, column).chars().count();
            self.rows.iter().map(longest).chain([longest(&self.header)]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let right: Vec<bool> = (0..columns)
            .map(|column| {
                !self.rows.is_empty()
                    && self.rows.iter().all(|row| looks_numeric(&cell(row, column)))
            })
            .collect();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let mut line = String::new();
            for column in 0..columns {
                let text = cell(row, column);
                let pad = " ".repeat(widths[column] - text.chars().count());
                let padded = if right[column] { pad + &text } else { text + &pad };
                line.push_str(&padded);
                line.push_str("  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_align_right_and_words_left() {
        let mut table = Table::new(["class", "photos"]);
        table.row(["daisy", "7"]);
        table.row(["tulips", "120"]);
        assert_eq!(table.to_string(), "class   photos\ndaisy        7\ntulips     120\n");
    }

    #[test]
    fn a_line_end_in_a_name_made_a_row_of_its_own() {
        let mut table = Table::new(["run", "status"]);
        table.row(["a\nb  done", "died"]);
        assert_eq!(table.to_string(), "run         status\na\\nb  done  died\n");
    }

    #[test]
    fn short_rows_do_not_panic() {
        let mut table = Table::new(["a", "b"]);
        table.row(["x"]);
        table.row(["y", "z", "1"]);
        assert_eq!(table.to_string(), "a  b\nx\ny  z  1\n");
    }
}
