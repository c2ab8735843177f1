//! What a file or folder of rows holds.

use std::{collections::BTreeSet, path::Path};

use paceline_batch::Features;
use serde::Serialize;

use super::Progress;
use crate::{
    DataError,
    fingerprint::FileMark,
    rows::{
        Block, Format, Hashing, Input, Lines, Next, Parser, Position, Prepared, detect, expand,
    },
};

/// Malformed lines that are named.
const MOST_NAMED: usize = 5;

/// What a file or folder of rows holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowsInfo {
    pub path: String,
    /// Always `rows`.
    pub kind: &'static str,
    /// Formats of the files.
    pub formats: Vec<&'static str>,
    pub files: usize,
    /// Their bytes, as they are stored.
    pub stored_bytes: u64,
    pub rows: u64,
    /// Rows of label 1.
    pub positive: u64,
    /// Features of all rows.
    pub features: u64,
    /// Lines that cannot be read as rows.
    pub malformed: u64,
    /// The first of them, with file, byte and reason.
    pub first_malformed: Vec<String>,
    /// Features were hashed into 2^bits weights when the rows were prepared.
    pub bits: Option<u32>,
}

/// Reads all rows at `path`, a file or a folder, once. `progress` hears how many bytes of text were read, of how many
/// (0 where that is not known).
///
/// # Errors
/// Files that cannot be read, or hold no rows.
pub fn rows(path: &Path, progress: Progress<'_>) -> Result<RowsInfo, DataError> {
    let files = expand(&path.to_string_lossy())?;
    let (count, stored_bytes, _) = FileMark::total(&FileMark::of_files(&files)?);
    let prepared = Prepared::read(path).unwrap_or_default();
    let hashing = prepared.as_ref().map_or_else(Hashing::default, |prepared| prepared.hashing);
    let input = Input::Files(files);
    let mut info = RowsInfo {
        path: path.display().to_string(),
        kind: "rows",
        formats: Vec::new(),
        files: count,
        stored_bytes,
        rows: 0,
        positive: 0,
        features: 0,
        malformed: 0,
        first_malformed: Vec::new(),
        bits: prepared.map(|prepared| prepared.hashing.bits),
    };
    let mut formats = BTreeSet::new();
    let (mut lines, mut block) = (Lines::new(input.clone(), Position::default()), Block::default());
    let mut parser: Option<(usize, &'static Format, Parser)> = None;
    let mut read = 0;
    while lines.next(&mut block)? == Next::Block {
        let file = block.start.file;
        if parser.as_ref().is_none_or(|(of, ..)| *of != file) {
            let format = detect(&input.name(file), &block.text)?;
            formats.insert(format.name);
            parser = Some((file, format, Parser::new(format, hashing)));
        }
        let Some((_, _, parser)) = &mut parser else { continue };
        parser.parse(&block.text);
        info.rows += parser.batch.len() as u64;
        info.positive += parser.batch.labels.iter().map(|&label| u64::from(label)).sum::<u64>();
        if let Features::Sparse { indices, .. } = &parser.batch.features {
            info.features += indices.len() as u64;
        }
        info.malformed += parser.refused.len() as u64 + u64::from(block.too_long.is_some());
        for line in parser.refused.iter().take(MOST_NAMED - info.first_malformed.len()) {
            let (name, at) = (input.name(file), block.start.offset + line.start as u64);
            info.first_malformed.push(format!("`{}`, byte {at}: {}", name.display(), line.why));
        }
        read += block.text.len() as u64;
        progress(read, 0);
    }
    info.formats = formats.into_iter().collect();
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_prepare::synth::{ClicksOptions, write_clicks};

    #[test]
    fn a_click_log_is_described_with_what_is_wrong_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("clicks.tsv");
        let clicks = ClicksOptions { rows: 500, seed: 1, vw: None, threads: 1 };
        let written = write_clicks(&log, &clicks, &|_| ()).unwrap();
        let mut text = std::fs::read(&log).unwrap();
        text.extend_from_slice(b"garbage\n");
        std::fs::write(&log, &text).unwrap();
        let info = rows(&log, &|_, _| ()).unwrap();
        assert_eq!((info.rows, info.positive, info.malformed), (500, written.positive, 1));
        assert_eq!(
            (info.formats, info.files, info.stored_bytes),
            (vec!["clicks"], 1, text.len() as u64)
        );
        assert!(info.first_malformed[0].contains("clicks.tsv"), "{:?}", info.first_malformed);
        assert!(info.features > 500 * 10);
    }
}
