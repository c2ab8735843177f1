//! The text formats of rows, and how one is recognised.
//!
//! Adding one is one file with an `ENTRY`, and one line in [`ALL`].

pub mod clicks;
pub mod libsvm;
pub mod records;
pub mod vw;

use std::{fmt, path::Path};

use paceline_batch::{Batch, Features};

use super::{Block, Hashing, Input, Lines, Next, Position, delimiters::Delimiters};
use crate::{DataError, store};

/// One text format.
pub struct Format {
    /// Its name, as `--format` takes it.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// How its files' names end, where the lines do not show it: it has none.
    pub extension: Option<&'static str>,
    /// Whether a line looks like it.
    pub recognises: fn(&[u8]) -> bool,
    parse: fn(&mut Parser, &[u8]),
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Format").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every format, in the order in which they are tried.
pub const ALL: &[&Format] = &[&clicks::ENTRY, &vw::ENTRY, &libsvm::ENTRY, &records::ENTRY];

/// The format of that name.
///
/// # Errors
/// An unknown name, with those there are.
pub fn find(name: &str) -> Result<&'static Format, DataError> {
    ALL.iter()
        .copied()
        .find(|format| format.name == name)
        .ok_or_else(|| DataError::RowFormat { asked: name.to_owned(), known: known() })
}

fn known() -> String {
    ALL.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
}

/// The format that the first lines of `text`, of the file `path`, are in.
///
/// # Errors
/// Lines in no known format.
pub fn detect(path: &Path, text: &[u8]) -> Result<&'static Format, DataError> {
    if let Some(format) = by_name(path) {
        return Ok(format);
    }
    // A damaged first line must not decide: the first of a few that is recognised does.
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).take(10);
    for line in lines {
        if let Some(format) = ALL.iter().copied().find(|format| (format.recognises)(line)) {
            return Ok(format);
        }
    }
    Err(DataError::NoRows { path: path.to_owned(), known: known() })
}

/// The format of the text file at `path`, where its first lines are rows.
#[must_use]
pub fn format_of(path: &Path) -> Option<&'static Format> {
    if !store::is_file(path) || by_name(path).is_some() {
        return None;
    }
    let mut lines = Lines::new(Input::Files(vec![path.to_owned()]), Position::default());
    let mut block = Block::default();
    match lines.next(&mut block) {
        Ok(Next::Block) => detect(path, &block.text).ok(),
        _ => None,
    }
}

/// The format of files with such a name, where the name decides.
pub(super) fn by_name(path: &Path) -> Option<&'static Format> {
    let ending = path.extension()?.to_str()?;
    ALL.iter().copied().find(|format| format.extension == Some(ending))
}

/// Why a line is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Another number of fields than the format has.
    Fields {
        /// How many there are.
        found: u32,
        /// How many there should be.
        wanted: u32,
    },
    /// The label is not one of a yes-or-no question.
    Label,
    /// A field that should be an integer and is not.
    Integer {
        /// Field number, from 1.
        field: u32,
    },
    /// A category that is not hexadecimal.
    Category {
        /// Field number, from 1.
        field: u32,
    },
    /// A feature that cannot be read.
    Feature {
        /// Its number within the line, from 1.
        feature: u32,
    },
    /// An importance weight other than 1.
    Importance,
    /// A record that does not hold a row.
    Record,
    /// Not a single `|`.
    NoBar,
    /// A line without end.
    TooLong {
        /// The most bytes there may be.
        most: u64,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields { found: 1, wanted } => write!(f, "1 field instead of {wanted}"),
            Self::Fields { found, wanted } => write!(f, "{found} fields instead of {wanted}"),
            Self::Label => f.write_str("the label is not one of 0, 1 and -1"),
            Self::Integer { field } => write!(f, "field {field} is not an integer"),
            Self::Category { field } => write!(f, "field {field} is not a hexadecimal category"),
            Self::Feature { feature } => write!(f, "feature {feature} cannot be read"),
            Self::Importance => f.write_str("importance weights other than 1 are not supported"),
            Self::Record => f.write_str("not a record of indices, values and label"),
            Self::NoBar => f.write_str("no `|` before the features"),
            Self::TooLong { most } => write!(f, "a line of more than {most} bytes"),
        }
    }
}

/// A malformed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Where it starts in the text.
    pub start: usize,
    pub end: usize,
    /// How many rows of the text come before it.
    pub after: usize,
    /// What is wrong with it.
    pub why: Refusal,
}

/// Turns text into rows; keeps its memory from block to block.
#[derive(Debug)]
pub struct Parser {
    format: &'static Format,
    pub(super) hashing: Hashing,
    pub(super) delimiters: Delimiters,
    /// The rows of the last block.
    pub batch: Batch,
    /// The malformed lines of the last block.
    pub refused: Vec<Refused>,
}

impl Parser {
    /// A parser of `format`.
    #[must_use]
    pub fn new(format: &'static Format, hashing: Hashing) -> Self {
        let delimiters = Delimiters::default();
        Self { format, hashing, delimiters, batch: Batch::sparse(), refused: Vec::new() }
    }

    /// Parses `text`, which consists of whole lines (the last one may lack its end): rows into
    /// [`Parser::batch`], other lines into [`Parser::refused`]. Empty lines count as neither.
    pub fn parse(&mut self, text: &[u8]) {
        self.batch.clear();
        self.refused.clear();
        (self.format.parse)(self, text);
    }

    pub(super) fn refuse(&mut self, start: usize, end: usize, why: Refusal) {
        let after = self.batch.len();
        self.refused.push(Refused { start, end, after, why });
    }
}

/// The row under construction at the end of a batch.
pub(super) struct Row<'a> {
    offsets: &'a mut Vec<usize>,
    indices: &'a mut Vec<u32>,
    values: &'a mut Vec<f32>,
    labels: &'a mut Vec<u32>,
}

impl<'a> Row<'a> {
    pub(super) fn of(batch: &'a mut Batch) -> Self {
        let Features::Sparse { offsets, indices, values } = &mut batch.features else {
            unreachable!("a parser's batch is sparse");
        };
        Self { offsets, indices, values, labels: &mut batch.labels }
    }

    /// Appends a feature.
    #[inline]
    pub(super) fn feature(&mut self, index: u32, value: f32) {
        if value != 1.0 && self.values.is_empty() {
            // Until now every value was 1 and none was written down.
            self.values.resize(self.indices.len(), 1.0);
            self.values.push(value);
        } else if !self.values.is_empty() {
            self.values.push(value);
        }
        self.indices.push(index);
    }

    /// Appends features of value 1.
    #[inline]
    pub(super) fn features(&mut self, indices: &[u32]) {
        self.indices.extend_from_slice(indices);
        if !self.values.is_empty() {
            self.values.resize(self.indices.len(), 1.0);
        }
    }

    /// Ends the row.
    #[inline]
    pub(super) fn end(self, label: u32) {
        // A first value at position 0 leaves `values` as long as the indices, so emptiness stays exact.
        self.offsets.push(self.indices.len());
        self.labels.push(label);
    }

    /// Forgets what was appended since the last row.
    pub(super) fn abandon(mut self) {
        self.restart();
    }

    /// Forgets what was appended since the last row, to append something else.
    pub(super) fn restart(&mut self) {
        let start = *self.offsets.last().expect("offsets begin with 0");
        self.indices.truncate(start);
        self.values.truncate(start);
    }
}

/// 1 and 0 for yes and no, however they are written.
pub(super) fn label(text: &[u8]) -> Option<u32> {
    match text {
        b"1" | b"+1" => Some(1),
        b"0" | b"-1" => Some(0),
        // `1.0` and `-1.000000` as some tools write them.
        _ => match super::number::float(text.strip_prefix(b"+").unwrap_or(text))? {
            1.0 => Some(1),
            0.0 | -1.0 => Some(0),
            _ => None,
        },
    }
}

/// Lines of a text with their starts, without line ends (`\n` or `\r\n`), empty ones left out.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let at = start;
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let length = super::scan::find(rest, b'\n').unwrap_or(rest.len());
        start += length + 1;
        let line = &rest[..length];
        Some((at, line.strip_suffix(b"\r").unwrap_or(line)))
    })
    .filter(|(_, line)| !line.is_empty())
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Labels, and per row its features with their values.
    pub(in super::super) fn rows(batch: &Batch) -> Vec<(u32, Vec<(u32, f32)>)> {
        let Features::Sparse { offsets, indices, values } = &batch.features else { panic!() };
        assert!(values.is_empty() || values.len() == indices.len());
        let value = |at: usize| values.get(at).copied().unwrap_or(1.0);
        offsets
            .windows(2)
            .zip(&batch.labels)
            .map(|(range, &label)| {
                (label, (range[0]..range[1]).map(|at| (indices[at], value(at))).collect())
            })
            .collect()
    }

    /// Parses a whole text.
    pub(in super::super) fn parse(format: &'static Format, hashing: Hashing, text: &str) -> Parser {
        let mut parser = Parser::new(format, hashing);
        parser.parse(text.as_bytes());
        parser
    }

    #[test]
    fn every_file_of_the_folder_is_registered() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rows/formats");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let mut names: Vec<&str> = ALL.iter().map(|format| format.name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
    }

    #[test]
    fn formats_are_told_apart_by_their_first_good_line() {
        let click = format!("1\t{}\n", ["5"; 39].join("\t"));
        for (text, wanted) in [
            (click.as_str(), "clicks"),
            ("garbage\n1 |a b:2 c\n", "vw"),
            ("+1 3:1 5:0.25\n", "libsvm"),
            ("-1\n", "libsvm"),
        ] {
            assert_eq!(detect(Path::new("x"), text.as_bytes()).unwrap().name, wanted, "{text}");
        }
        let error = detect(Path::new("x.bin"), b"\x00\xff\n").unwrap_err().to_string();
        assert!(error.contains("x.bin") && error.contains("libsvm"), "{error}");
    }

    #[test]
    fn garbage_is_refused_line_by_line_and_never_panics() {
        use proptest::prelude::*;
        proptest!(|(text in proptest::collection::vec(
            proptest::sample::select(b"01-+9a.:|\t\t\t\n\r #'\x00\xff".to_vec()), 0..400))| {
            for format in ALL.iter().filter(|format| format.extension.is_none()) {
                let mut parser = Parser::new(format, Hashing { bits: 5, ..Hashing::default() });
                parser.parse(&text);
                let full = lines(&text).count();
                let comments = lines(&text).filter(|(_, line)| line.trim_ascii().is_empty()
                    || line.trim_ascii_start().starts_with(b"#")).count();
                let seen = parser.batch.len() + parser.refused.len();
                prop_assert!(seen <= full && seen + comments >= full, "{seen} of {full}, {}", format.name);
                for (_, features) in rows(&parser.batch) {
                    prop_assert!(features.iter().all(|(index, value)| *index < 32 && value.is_finite()));
                }
            }
        });
    }
}
