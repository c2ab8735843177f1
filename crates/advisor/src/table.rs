//! Reading tables: CSV (gzipped where the name says so) with columns found by name.

use crate::error::{AdvisorError, Place, Row};
use flate2::read::GzDecoder;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// A CSV file, read row by row.
pub(crate) struct Table {
    path: PathBuf,
    header: Vec<String>,
    reader: csv::Reader<Box<dyn Read>>,
}

/// One row and where it stands.
pub(crate) struct Cells {
    pub(crate) place: Place,
    record: csv::StringRecord,
}

impl Table {
    pub(crate) fn open(path: &Path) -> Result<Self, AdvisorError> {
        let file = File::open(path)
            .map_err(|source| AdvisorError::Read { path: path.to_path_buf(), source })?;
        let file = BufReader::new(file);
        let input: Box<dyn Read> = if path.extension().is_some_and(|ending| ending == "gz") {
            Box::new(GzDecoder::new(file))
        } else {
            Box::new(file)
        };
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
        let header = reader
            .headers()
            .map_err(|source| AdvisorError::Csv { path: path.to_path_buf(), source })?
            .iter()
            .map(str::to_owned)
            .collect();
        Ok(Self { path: path.to_path_buf(), header, reader })
    }

    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    pub(crate) fn find(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|name| name == column)
    }

    pub(crate) fn column(&self, column: &'static str) -> Result<usize, AdvisorError> {
        self.find(column)
            .ok_or_else(|| AdvisorError::MissingColumn { path: self.path.clone(), column })
    }

    /// The next row, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Cells>, AdvisorError> {
        let mut record = csv::StringRecord::new();
        let more = self
            .reader
            .read_record(&mut record)
            .map_err(|source| AdvisorError::Csv { path: self.path.clone(), source })?;
        let line = record.position().map_or(0, csv::Position::line);
        let place = Place::new(&self.path, Row::Line(line));
        Ok(more.then_some(Cells { place, record }))
    }
}

impl Cells {
    pub(crate) fn text(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or("")
    }

    pub(crate) fn optional(&self, column: Option<usize>) -> Option<&str> {
        column.map(|column| self.text(column)).filter(|text| !text.is_empty())
    }

    /// A number that is finite and satisfies `allowed`.
    pub(crate) fn number(
        &self,
        column: usize,
        name: &str,
        expected: &'static str,
        allowed: impl Fn(f64) -> bool,
    ) -> Result<f64, AdvisorError> {
        parse(&self.place, name, self.text(column), expected, allowed)
    }
}

/// Reads a number and says where it was wrong.
pub(crate) fn parse(
    place: &Place,
    column: &str,
    text: &str,
    expected: &'static str,
    allowed: impl Fn(f64) -> bool,
) -> Result<f64, AdvisorError> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && allowed(value) => Ok(value),
        _ => Err(AdvisorError::Value {
            place: place.clone(),
            column: column.to_owned(),
            text: text.to_owned(),
            expected,
        }),
    }
}
