//! `resources-<task>.csv`: what the machine did while the task ran, one row per reading.
//!
//! Columns are found by name and may be any; a reader asks for those it knows. Two columns hold no number: `cpu_cores_percent` has
//! that of every core, with spaces between, and `mark` what someone had to say at that moment.

mod dstat;
mod recording;
mod sadf;

pub use recording::{Recording, read_recordings};

use crate::error::RunsError;
use std::fs;
use std::path::Path;

/// Seconds since 1970.
pub(crate) const TIME: &str = "time_seconds";
/// Seconds since the recording began.
pub(crate) const ELAPSED: &str = "elapsed_seconds";
/// Busy share of every core, in their order, with spaces between.
const CORES: &str = "cpu_cores_percent";
/// A word at a moment, in a row of its own.
const MARK: &str = "mark";

/// A recording, column by column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources {
    header: Vec<String>,
    rows: Vec<Vec<Option<f64>>>,
    /// Seconds since 1970 and the busy share of every core in percent; a core that was off is not a number.
    cores: Vec<(f64, Vec<f32>)>,
    /// Seconds since 1970 and what was said.
    marks: Vec<(f64, String)>,
}

impl Resources {
    /// Reads a recording; a last line that was cut off is left out.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, RunsError> {
        let text = fs::read_to_string(path)
            .map_err(|source| RunsError::Read { path: path.to_owned(), source })?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let header: Vec<String> =
            lines.next().unwrap_or_default().split(',').map(str::to_owned).collect();
        let mut found = Self { header, ..Self::default() };
        for line in lines {
            let cells = cells(line, ',');
            if cells.len() == found.header.len() {
                found.push(&cells);
            }
        }
        found
    }

    /// Takes a row of as many cells as there are columns.
    fn push(&mut self, cells: &[String]) {
        let row: Vec<Option<f64>> = cells.iter().map(|cell| number(cell)).collect();
        let time = self.place(TIME).and_then(|at| row[at]);
        if let (Some(time), Some(at)) = (time, self.place(CORES)) {
            // A core that was off is written as a dash.
            let shares = cells[at].split_ascii_whitespace();
            let shares: Vec<f32> = shares.map(|it| it.parse().unwrap_or(f32::NAN)).collect();
            if !shares.is_empty() {
                self.cores.push((time, shares));
            }
        }
        if let (Some(time), Some(at)) = (time, self.place(MARK))
            && !cells[at].is_empty()
        {
            self.marks.push((time, cells[at].clone()));
        }
        self.rows.push(row);
    }

    fn place(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|known| known == column)
    }

    /// What was marked while recording: seconds since 1970, and the words.
    #[must_use]
    pub fn marks(&self) -> &[(f64, String)] {
        &self.marks
    }

    /// The busy share of every core in percent, with seconds since the recording began; a core that was off is not a number.
    pub fn cores(&self) -> impl Iterator<Item = (f64, &[f32])> {
        let begin = self.begin().unwrap_or(0.0);
        self.cores.iter().map(move |(time, shares)| (time - begin, shares.as_slice()))
    }

    /// How many cores the machine had, where that was recorded.
    #[must_use]
    pub fn core_count(&self) -> Option<usize> {
        self.cores.iter().map(|(_, shares)| shares.len()).max()
    }

    /// Moments of the first and last reading, in seconds since 1970.
    #[must_use]
    pub fn extent(&self) -> Option<(f64, f64)> {
        let time = self.place(TIME)?;
        let known = || self.rows.iter().filter_map(|row| row[time]);
        // A mark may stand behind a reading of a later moment.
        Some((known().reduce(f64::min)?, known().reduce(f64::max)?))
    }

    /// Pairs of (seconds since the recording began, value), where both are known. A run that was
    /// resumed has its header again in the middle; its clock goes on.
    #[must_use]
    pub fn series(&self, column: &str) -> Vec<(f64, f64)> {
        let at = |name: &str| self.header.iter().position(|known| known == name);
        let (Some(time), Some(elapsed), Some(value)) =
            (at("time_seconds"), at("elapsed_seconds"), at(column))
        else {
            return Vec::new();
        };
        let begin = self.rows.iter().find_map(|row| Some(row[time]? - row[elapsed]?));
        self.rows.iter().filter_map(|row| Some((row[time]? - begin?, row[value]?))).collect()
    }

    /// Takes seconds off all times: the recorder's clock was ahead by that.
    pub fn set_back(&mut self, seconds: f64) {
        let Some(time) = self.header.iter().position(|known| known == "time_seconds") else {
            return;
        };
        for row in &mut self.rows {
            row[time] = row[time].map(|moment| moment - seconds);
        }
        self.cores.iter_mut().for_each(|reading| reading.0 -= seconds);
        self.marks.iter_mut().for_each(|mark| mark.0 -= seconds);
    }

    /// When the recording began, in seconds since 1970.
    #[must_use]
    pub fn begin(&self) -> Option<f64> {
        let at = |name: &str| self.header.iter().position(|known| known == name);
        let (time, elapsed) = (at("time_seconds")?, at("elapsed_seconds")?);
        self.rows.iter().find_map(|row| Some(row[time]? - row[elapsed]?))
    }

    /// The mean of a column, if it was ever known. A reading counts by the time since the one before: it may cover a long stop.
    #[must_use]
    pub fn mean(&self, column: &str) -> Option<f64> {
        self.mean_where(column, |_| true)
    }

    /// The mean over readings at moments that count, in seconds since 1970.
    fn mean_where(&self, column: &str, counts: impl Fn(f64) -> bool) -> Option<f64> {
        let at = |name: &str| self.header.iter().position(|known| known == name);
        let (time, elapsed, value) = (at("time_seconds")?, at("elapsed_seconds")?, at(column)?);
        let (mut sum, mut weight, mut before) = (0.0, 0.0, f64::NEG_INFINITY);
        for row in &self.rows {
            let (Some(now), Some(since_start)) = (row[time], row[elapsed]) else { continue };
            // The first reading of a process covers the time since it began.
            let covers = (now - before).min(since_start).max(1e-9);
            before = now;
            if let Some(value) = row[value].filter(|_| counts(now)) {
                sum += covers * value;
                weight += covers;
            }
        }
        (weight > 0.0).then(|| sum / weight)
    }

    /// The mean of a column from one moment to another, in seconds since 1970; of the whole recording where no reading fell between.
    #[must_use]
    pub fn mean_between(&self, column: &str, from: f64, to: f64) -> Option<f64> {
        let within = self.mean_where(column, |time| (from..=to).contains(&time));
        within.or_else(|| self.mean(column))
    }

    /// The greatest value of a column, if it was ever known.
    #[must_use]
    pub fn peak(&self, column: &str) -> Option<f64> {
        self.series(column).into_iter().map(|(_, value)| value).reduce(f64::max)
    }
}

/// The cells of a line; one in quotes may hold the separator, and quotes twice.
fn cells(line: &str, separator: char) -> Vec<String> {
    if !line.contains('"') {
        return line.split(separator).map(str::to_owned).collect();
    }
    let (mut found, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            letter if letter == separator && !quoted => found.push(std::mem::take(&mut cell)),
            letter => cell.push(letter),
        }
    }
    found.push(cell);
    found
}

/// A number as recordings have it.
fn number(cell: &str) -> Option<f64> {
    cell.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_and_torn_lines_are_left_out() {
        let text = "time_seconds,elapsed_seconds,cpu\n1,0.5,10\n2,1.5,\ntime_seconds,elapsed_seconds,cpu\n3,0.5,30\n4,3.5,9";
        let resources = Resources::parse(text);
        assert_eq!(resources.series("cpu"), [(0.5, 10.0), (2.5, 30.0)]);
        assert_eq!(resources.mean("cpu"), Some(20.0));
        assert_eq!(resources.peak("cpu"), Some(30.0));
        assert_eq!(resources.begin(), Some(0.5));
        assert_eq!(resources.mean_between("cpu", 2.5, 3.5), Some(30.0));
        assert_eq!(resources.mean_between("cpu", 7.0, 9.0), Some(20.0), "nothing fell between");
        let mut shifted = resources.clone();
        shifted.set_back(-2.0);
        assert_eq!((shifted.begin(), shifted.mean("cpu")), (Some(2.5), Some(20.0)));
        assert_eq!(resources.mean("nothing"), None);
        assert_eq!(Resources::parse("").series("cpu"), []);
    }

    #[test]
    fn marks_and_cores_are_read_beside_the_numbers() {
        let text = "time_seconds,elapsed_seconds,cpu,cpu_cores_percent,mark\n\
                    10,1,5,10 - 90,\n10.5,,,,\"job \"\"a\"\", submitted\"\n11,2,7,20,\n";
        let mut found = Resources::parse(text);
        assert_eq!(found.marks(), [(10.5, "job \"a\", submitted".to_owned())]);
        assert_eq!(found.mean("cpu"), Some(6.0), "a mark is not a reading");
        assert_eq!(found.core_count(), Some(3));
        let cores: Vec<(f64, Vec<f32>)> =
            found.cores().map(|(time, shares)| (time, shares.to_vec())).collect();
        assert_eq!((cores[0].0, cores[0].1[2], cores[1].1.len()), (1.0, 90.0, 1));
        assert!(cores[0].1[1].is_nan(), "a core that was off");
        found.set_back(-2.0);
        assert_eq!(found.marks()[0].0, 12.5);
        assert_eq!(found.extent(), Some((12.0, 13.0)));
    }

    /// A process that is stopped for five of six seconds leaves one reading for them.
    #[test]
    fn a_reading_counts_by_the_time_it_covers() {
        let text = "time_seconds,elapsed_seconds,stopped\n10.5,0.5,0\n11,1,0\n16,6,100\n";
        let mean = Resources::parse(text).mean("stopped").unwrap();
        assert!((mean - 500.0 / 6.0).abs() < 1e-9, "{mean}");
    }
}
