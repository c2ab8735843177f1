//! Comma-separated values (RFC 4180): raw numbers for other programs.

/// Rows under a header, as text.
#[derive(Debug, Clone)]
pub struct Csv {
    text: String,
    columns: usize,
}

impl Csv {
    /// Starts with a header.
    pub fn new<S: AsRef<str>>(header: &[S]) -> Csv {
        let mut csv = Csv { text: String::new(), columns: header.len() };
        csv.row(header);
        csv
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has another number of cells than the header: a shifted column is worse than no file.
    pub fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        assert_eq!(cells.len(), self.columns, "a row has as many cells as the header");
        for (index, cell) in cells.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            self.text.push_str(&field(cell.as_ref()));
        }
        self.text.push('\n');
    }

    /// The whole text.
    pub fn finish(self) -> String {
        self.text
    }
}

/// A field, quoted where it must be. A leading `=`, `@` or tab would run as a formula in a spreadsheet; an apostrophe stops that.
fn field(text: &str) -> String {
    let formula = text.starts_with(['=', '@', '\t', '\r']);
    let guarded = if formula { format!("'{text}") } else { text.to_owned() };
    if guarded.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", guarded.replace('"', "\"\""))
    } else {
        guarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_quotes_and_formulas_are_tamed() {
        let mut csv = Csv::new(&["name", "value"]);
        csv.row(&["a,b", "say \"hi\""]);
        csv.row(&["=1+1", "-2.5"]);
        assert_eq!(csv.finish(), "name,value\n\"a,b\",\"say \"\"hi\"\"\"\n'=1+1,-2.5\n");
    }
}
