//! `resources-<task>.csv`: what the machine did while the task ran, one row per reading.
//!
//! Columns are found by name and may be any; a reader asks for those it knows.

use crate::error::RunsError;
use std::fs;
use std::path::Path;

/// A recording, column by column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources {
    header: Vec<String>,
    rows: Vec<Vec<Option<f64>>>,
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
        let rows = lines
            .map(|line| line.split(',').map(|cell| cell.parse().ok()).collect::<Vec<_>>())
            .filter(|row| row.len() == header.len())
            .collect();
        Self { header, rows }
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

    /// A process that is stopped for five of six seconds leaves one reading for them.
    #[test]
    fn a_reading_counts_by_the_time_it_covers() {
        let text = "time_seconds,elapsed_seconds,stopped\n10.5,0.5,0\n11,1,0\n16,6,100\n";
        let mean = Resources::parse(text).mean("stopped").unwrap();
        assert!((mean - 500.0 / 6.0).abs() < 1e-9, "{mean}");
    }
}
