//! Malformed lines: counted, sampled in a file, and an error when they exceed a budget.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{Block, Input, Refusal, Refused, lines::LONGEST_LINE};
use crate::DataError;

/// Rejected lines kept in the file; more would only repeat what these say.
const SAMPLES: u64 = 1000;
/// Bytes kept of each.
const SAMPLE_BYTES: usize = 2000;

/// Counts malformed lines and keeps a sample of them.
#[derive(Debug)]
pub struct Rejects {
    /// Lines rejected so far.
    pub count: u64,
    /// Lines that were rows.
    pub rows: u64,
    path: PathBuf,
    file: Option<BufWriter<File>>,
    /// The largest share of lines that may be malformed.
    budget: f64,
    first: Option<String>,
}

impl Rejects {
    /// A sample goes to `path`, which appears with the first rejected line. More than `budget` of all
    /// lines (0 to 1) stop the run.
    #[must_use]
    pub fn new(path: PathBuf, budget: f64) -> Self {
        Self { count: 0, rows: 0, path, file: None, budget, first: None }
    }

    /// The file of samples.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes what came of a block: how many rows, and which lines are none.
    ///
    /// # Errors
    /// Too many of them, or the file of samples cannot be written.
    pub fn note(
        &mut self,
        input: &Input,
        block: &Block,
        rows: u64,
        refused: &[Refused],
    ) -> Result<(), DataError> {
        self.rows += rows;
        if let Some(start) = block.too_long {
            let why = Refusal::TooLong { most: LONGEST_LINE as u64 };
            self.one(input, block.start.file, start, b"", why)?;
        }
        for line in refused {
            let offset = block.start.offset + line.start as u64;
            self.one(input, block.start.file, offset, &block.text[line.start..line.end], line.why)?;
        }
        let lines = self.count + self.rows;
        // A few bad lines at the very beginning say nothing about a share yet, unless none may be.
        if self.count as f64 > self.budget * lines.max(1000) as f64 {
            self.flush()?;
            return Err(DataError::TooManyRejected {
                count: self.count,
                lines,
                budget: 100.0 * self.budget,
                path: self.path.clone(),
                first: self.first.clone().unwrap_or_default(),
            });
        }
        Ok(())
    }

    fn one(
        &mut self,
        input: &Input,
        file: usize,
        offset: u64,
        line: &[u8],
        why: Refusal,
    ) -> Result<(), DataError> {
        self.count += 1;
        if self.count > SAMPLES {
            return Ok(());
        }
        let name = input.name(file);
        self.first.get_or_insert_with(|| format!("`{}`, byte {offset}: {why}", name.display()));
        if self.file.is_none() {
            let file = File::create(&self.path).map_err(DataError::write(&self.path))?;
            self.file = Some(BufWriter::new(file));
        }
        let text = String::from_utf8_lossy(&line[..line.len().min(SAMPLE_BYTES)]);
        let entry =
            json!({ "file": name, "offset": offset, "reason": why.to_string(), "line": text });
        if let Some(out) = &mut self.file {
            writeln!(out, "{entry}").map_err(DataError::write(&self.path))?;
        }
        Ok(())
    }

    /// Brings the samples to their file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), DataError> {
        match &mut self.file {
            Some(file) => file.flush().map_err(DataError::write(&self.path)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::formats::{Parser, libsvm};
    use super::*;
    use crate::rows::Hashing;

    fn block(text: &str) -> (Block, Parser) {
        let mut parser = Parser::new(&libsvm::ENTRY, Hashing::default());
        parser.parse(text.as_bytes());
        (Block { text: text.as_bytes().to_vec(), ..Block::default() }, parser)
    }

    #[test]
    fn samples_name_file_place_and_reason_and_the_budget_stops() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rejects.jsonl");
        let input = Input::Files(vec!["clicks.txt".into()]);
        let mut rejects = Rejects::new(path.clone(), 0.01);
        let (good, parser) = block("1 2:1\n0 3:1\n");
        rejects.note(&input, &good, 2, &parser.refused).unwrap();
        assert!(!path.exists(), "no file without a rejected line");
        let (bad, parser) = block("1 2:1\nx\n");
        for _ in 0..10 {
            rejects.note(&input, &bad, 1, &parser.refused).unwrap();
        }
        let error = rejects.note(&input, &bad, 1, &parser.refused).unwrap_err().to_string();
        assert!(error.contains("11 of 24 lines") && error.contains("byte 6"), "{error}");
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 11);
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["file"], "clicks.txt");
        assert_eq!((first["offset"].as_u64(), first["line"].as_str()), (Some(6), Some("x")));
    }

    #[test]
    fn no_budget_means_not_a_single_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut rejects = Rejects::new(folder.path().join("rejects.jsonl"), 0.0);
        let (bad, parser) = block("1 2:1\nx\n");
        assert!(rejects.note(&Input::Standard, &bad, 1, &parser.refused).is_err());
    }
}
