//! Tables of measurements: CSV (gzipped where the name says so) with columns found by name.

use flate2::read::GzDecoder;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// A file, and where in it: CSV files are counted in lines, TOML and JSON in entries, from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePlace {
    pub path: PathBuf,
    /// The row in it.
    pub row: Row,
}

/// How the rows of a file are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// A line of a text file; the header is line 1.
    Line(u64),
    /// An element of a list, the first being 1.
    Entry(usize),
}

impl TablePlace {
    /// A row of a file.
    #[must_use]
    pub fn new(path: &Path, row: Row) -> Self {
        Self { path: path.to_path_buf(), row }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Entry(entry) => write!(f, "entry {entry}"),
        }
    }
}

impl fmt::Display for TablePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, {}", self.path.display(), self.row)
    }
}

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is not valid CSV.
    #[error("`{}` is not a table of comma-separated values", .path.display())]
    Csv {
        path: PathBuf,
        /// What is wrong, with the line.
        source: csv::Error,
    },
    /// A column that must be there is not.
    #[error("`{}` has no column `{column}`", .path.display())]
    MissingColumn { path: PathBuf, column: &'static str },
    /// A column that is there twice: which one is meant is not known.
    #[error("`{}` has the column `{column}` twice", .path.display())]
    RepeatedColumn { path: PathBuf, column: String },
    /// An unknown column: a typo must not silently become a default.
    #[error("`{}` has a column `{column}` that means nothing here; metrics are called `metric.NAME`", .path.display())]
    UnknownColumn { path: PathBuf, column: String },
    /// A cell is not a number in the allowed range.
    #[error("{place}: `{column}` is `{text}`, expected {expected}")]
    Value {
        place: TablePlace,
        column: String,
        text: String,
        /// What should.
        expected: &'static str,
    },
}

/// A CSV file, read row by row.
pub struct Table {
    path: PathBuf,
    header: Vec<String>,
    reader: csv::Reader<Box<dyn Read>>,
}

/// One row and where it stands.
pub struct Cells {
    pub place: TablePlace,
    record: csv::StringRecord,
}

impl Table {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let file = File::open(path)
            .map_err(|source| TableError::Read { path: path.to_path_buf(), source })?;
        let file = BufReader::new(file);
        let input: Box<dyn Read> = if path.extension().is_some_and(|ending| ending == "gz") {
            Box::new(GzDecoder::new(file))
        } else {
            Box::new(file)
        };
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
        let header: Vec<String> = reader
            .headers()
            .map_err(|source| TableError::Csv { path: path.to_path_buf(), source })?
            .iter()
            .map(str::to_owned)
            .collect();
        let again = (1..header.len()).find(|&at| header[..at].contains(&header[at]));
        if let Some(at) = again {
            let column = header[at].clone();
            return Err(TableError::RepeatedColumn { path: path.to_path_buf(), column });
        }
        Ok(Self { path: path.to_path_buf(), header, reader })
    }

    /// The columns' names.
    #[must_use]
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// The place of a column that may be missing.
    #[must_use]
    pub fn find(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|name| name == column)
    }

    /// The place of a column that must be there.
    pub fn column(&self, column: &'static str) -> Result<usize, TableError> {
        self.find(column)
            .ok_or_else(|| TableError::MissingColumn { path: self.path.clone(), column })
    }

    /// The next row, or `None` at the end.
    pub fn next_row(&mut self) -> Result<Option<Cells>, TableError> {
        let mut record = csv::StringRecord::new();
        let more = self
            .reader
            .read_record(&mut record)
            .map_err(|source| TableError::Csv { path: self.path.clone(), source })?;
        let line = record.position().map_or(0, csv::Position::line);
        let place = TablePlace::new(&self.path, Row::Line(line));
        Ok(more.then_some(Cells { place, record }))
    }
}

impl Cells {
    /// What stands in a column.
    #[must_use]
    pub fn text(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or("")
    }

    /// What stands in a column, if that is there and filled.
    #[must_use]
    pub fn optional(&self, column: Option<usize>) -> Option<&str> {
        column.map(|column| self.text(column)).filter(|text| !text.is_empty())
    }

    /// A number that is finite and satisfies `allowed`.
    pub fn number(
        &self,
        column: usize,
        name: &str,
        expected: &'static str,
        allowed: impl Fn(f64) -> bool,
    ) -> Result<f64, TableError> {
        parse(&self.place, name, self.text(column), expected, allowed)
    }
}

/// Reads a number and says where it was wrong.
pub fn parse(
    place: &TablePlace,
    column: &str,
    text: &str,
    expected: &'static str,
    allowed: impl Fn(f64) -> bool,
) -> Result<f64, TableError> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && allowed(value) => Ok(value),
        _ => Err(TableError::Value {
            place: place.clone(),
            column: column.to_owned(),
            text: text.to_owned(),
            expected,
        }),
    }
}
