//! Click logs and other rows → TFRecord shards of (indices, values, label), hashed once for many runs.
//!
//! Blocks of rows go to the shards in turn, so that every shard is a sample of the whole and the result
//! follows from the input alone. A shard appears whole or not at all; `rows.json` comes last, and its
//! presence means that every shard it names is complete.

use std::{
    fs,
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use paceline_batch::Features;
use paceline_data::{
    DataError,
    rows::{
        Block, DESCRIPTION, Hashing, Input, Lines, Next, Parser, Position, Prepared, Rejects,
        Shard, detect, formats,
    },
};
use paceline_store::{
    self as store, StoreError,
    durable::{self, AtomicFile, FileSum, HashingWriter},
};
use paceline_tfrecord::Writer;

use crate::target::{Writing, occupant};

/// What to prepare and how.
#[derive(Debug, Clone)]
pub struct RowsOptions {
    /// Format of the rows; recognised where absent.
    pub format: Option<String>,
    /// How features become weight numbers.
    pub hashing: Hashing,
    pub shards: usize,
    /// Largest share of lines that may be no rows.
    pub max_rejects: f64,
}

/// Why rows could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The rows cannot be read, or too many of their lines are malformed.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The target's store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or folder could not be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// The target holds another data set.
    #[error("`{}` holds another data set: {holds}", .path.display())]
    Occupied { path: PathBuf, holds: String },
    /// The target holds rows that are finished.
    #[error("`{}` already holds {rows} prepared rows", .path.display())]
    AlreadyPrepared { path: PathBuf, rows: u64 },
}

impl RowsError {
    /// Wraps a failure to write `path`.
    fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }
}

/// Makes sure that `folder` may be prepared into, and removes the rows of an earlier preparation if `fresh` says so.
///
/// # Errors
/// A folder that holds another data set, or finished rows without `fresh`.
pub fn claim(folder: &Path, fresh: bool) -> Result<(), RowsError> {
    let target = store::open(folder)?;
    if let Some(holds) = occupant(&*target, Writing::Rows)? {
        return Err(RowsError::Occupied { path: folder.to_owned(), holds });
    }
    let Some(found) = Prepared::read(folder)? else { return Ok(()) };
    if !fresh {
        return Err(RowsError::AlreadyPrepared { path: folder.to_owned(), rows: found.rows });
    }
    // The promise first, then what it promised.
    target.remove(DESCRIPTION)?;
    for shard in &found.shards {
        target.remove(&shard.name)?;
    }
    Ok(())
}

/// Turns rows into shards under `folder`, which was [claimed](claim); gives `None` if `cancel` was raised, in which case nothing of
/// this call stays behind.
///
/// # Errors
/// Rows that cannot be read, too many malformed lines, files that cannot be written.
pub fn prepare(
    input: &Input,
    folder: &Path,
    options: &RowsOptions,
    cancel: &AtomicBool,
    progress: &dyn Fn(u64, u64),
) -> Result<Option<Prepared>, RowsError> {
    fs::create_dir_all(folder).map_err(RowsError::write(folder))?;
    let count = options.shards.max(1);
    let mut shards = Vec::with_capacity(count);
    for number in 0..count {
        shards.push(ShardFile::create(folder, number, count)?);
    }
    let mut rejects = Rejects::new(folder.join("rejects.jsonl"), options.max_rejects);
    let mut lines = Lines::new(input.clone(), Position::default());
    let mut format = options.format.as_deref().map(formats::find).transpose()?;
    let mut parser: Option<Parser> = None;
    let (mut block, mut turn, mut positive, mut bytes) = (Block::default(), 0, 0, 0);
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match lines.next(&mut block)? {
            Next::End => break,
            Next::Idle => continue,
            Next::Block => {}
        }
        let parser = match &mut parser {
            Some(parser) => parser,
            None => {
                let path = input.name(block.start.file);
                let format = match format.take() {
                    Some(format) => format,
                    None => detect(&path, &block.text)?,
                };
                parser.insert(Parser::new(format, options.hashing))
            }
        };
        parser.parse(&block.text);
        rejects.note(input, &block, parser.batch.len() as u64, &parser.refused)?;
        shards[turn].append(parser)?;
        turn = (turn + 1) % count;
        positive += parser.batch.labels.iter().map(|&label| u64::from(label)).sum::<u64>();
        bytes += block.text.len() as u64;
        progress(rejects.rows, bytes);
    }
    if rejects.rows == 0 {
        let why = match rejects.count {
            0 => "its files are empty".to_owned(),
            count => format!("its {count} lines are all malformed"),
        };
        return Err(DataError::NoExamples { path: input.name(0), why }.into());
    }
    rejects.flush()?;
    let shards = shards.into_iter().map(ShardFile::finish).collect::<Result<_, _>>()?;
    let prepared = Prepared {
        version: Prepared::VERSION,
        program: format!("paceline {}", env!("CARGO_PKG_VERSION")),
        hashing: options.hashing,
        rows: rejects.rows,
        positive,
        rejects: rejects.count,
        shards,
    };
    let path = folder.join(DESCRIPTION);
    let text = serde_json::to_vec_pretty(&prepared).expect("a description is plain data");
    durable::write_file(&path, &text).map_err(RowsError::write(path))?;
    Ok(Some(prepared))
}

/// A shard while it is being written; removed if it is dropped before it is whole.
struct ShardFile {
    path: PathBuf,
    writer: Writer<BufWriter<HashingWriter<AtomicFile>>>,
}

impl ShardFile {
    fn create(folder: &Path, number: usize, count: usize) -> Result<Self, RowsError> {
        let name = format!("train-{number:05}-of-{count:05}.tfrecord");
        let path = folder.join(name);
        let file = AtomicFile::create(&path).map_err(RowsError::write(&path))?;
        let writer = Writer::new(BufWriter::with_capacity(256 << 10, HashingWriter::new(file)));
        Ok(Self { path, writer })
    }

    /// Writes the rows of a parser's last block.
    fn append(&mut self, parser: &Parser) -> Result<(), RowsError> {
        let Features::Sparse { offsets, indices, values } = &parser.batch.features else {
            unreachable!("a parser's batch is sparse");
        };
        for (range, &label) in offsets.windows(2).zip(&parser.batch.labels) {
            let range = range[0]..range[1];
            let values = values.get(range.clone()).unwrap_or(&[]);
            // A block may have values because of one row; rows of ones need none.
            let values = if values.iter().all(|&value| value == 1.0) { &[] } else { values };
            let record = formats::records::encode(label, &indices[range], values);
            self.writer.write(&record).map_err(RowsError::write(&self.path))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Shard, RowsError> {
        let Self { path, writer } = self;
        let records = writer.records();
        let write = || RowsError::write(path.clone());
        let buffer = writer.finish().map_err(write())?;
        let hashing = buffer.into_inner().map_err(|error| write()(error.into_error()))?;
        let (file, FileSum { bytes, sha256 }) = hashing.finish();
        file.commit().map_err(write())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Shard { name, records, bytes, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::{ClicksOptions, write_clicks};

    fn options(shards: usize) -> RowsOptions {
        RowsOptions { format: None, hashing: Hashing::default(), shards, max_rejects: 0.01 }
    }

    /// Labels, and per row its features with their values.
    fn rows_of(features: &Features, labels: &[u32]) -> Vec<(u32, Vec<(u32, f32)>)> {
        let Features::Sparse { offsets, indices, values } = features else { panic!() };
        assert!(values.is_empty() || values.len() == indices.len());
        let value = |at: usize| values.get(at).copied().unwrap_or(1.0);
        let row = |(range, &label): (&[usize], &u32)| {
            (label, (range[0]..range[1]).map(|at| (indices[at], value(at))).collect())
        };
        offsets.windows(2).zip(labels).map(row).collect()
    }

    /// All rows of an input, block after block.
    fn rows(input: &Input) -> Vec<(u32, Vec<(u32, f32)>)> {
        let mut lines = Lines::new(input.clone(), Position::default());
        let (mut block, mut found) = (Block::default(), Vec::new());
        let mut parser = None;
        while lines.next(&mut block).unwrap() == Next::Block {
            let format = detect(&input.name(0), &block.text).unwrap();
            let parser = parser.get_or_insert_with(|| Parser::new(format, Hashing::default()));
            parser.parse(&block.text);
            found.extend(rows_of(&parser.batch.features, &parser.batch.labels));
        }
        found
    }

    #[test]
    fn shards_hold_the_rows_of_the_log_and_follow_from_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.tsv");
        let clicks = ClicksOptions { rows: 6000, seed: 1, vw: None, threads: 1 };
        let written = write_clicks(&log, &clicks, &|_| ()).unwrap();
        let input = Input::Files(vec![log]);
        let cancel = AtomicBool::new(false);
        let out = folder.path().join("shards");
        let made = prepare(&input, &out, &options(3), &cancel, &|_, _| ()).unwrap().unwrap();
        assert_eq!((made.rows, made.positive, made.rejects), (6000, written.positive, 0));
        assert_eq!(Prepared::read(&out).unwrap().as_ref(), Some(&made));
        let files = paceline_data::rows::expand(out.to_str().unwrap()).unwrap();
        assert_eq!(files.len(), 3, "shards and nothing else");
        let mut found = rows(&Input::Files(files));
        let mut wanted = rows(&input);
        let by_text = |row: &(u32, Vec<(u32, f32)>)| format!("{row:?}");
        found.sort_by_key(by_text);
        wanted.sort_by_key(by_text);
        assert!(found == wanted);
        let again = folder.path().join("again");
        let same = prepare(&input, &again, &options(3), &cancel, &|_, _| ()).unwrap().unwrap();
        assert_eq!(same, made);
    }

    #[test]
    fn rows_are_not_put_among_the_shards_of_photos() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |name: &str, files: &[&str]| {
            let out = folder.path().join(name);
            for file in files {
                fs::create_dir_all(out.join(file).parent().unwrap()).unwrap();
                fs::write(out.join(file), "x").unwrap();
            }
            (claim(&out, false), claim(&out, true))
        };
        for (name, files, holds) in [
            ("a", &["manifest.json", "train-00000-of-00001.tfrecord"][..], "prepared photos"),
            ("b", &[".prepare/plan.json"][..], "unfinished preparation of photos"),
            ("c", &["other.tfrecord"][..], "TFRecord files"),
            ("d", &["daisy/1.jpg"][..], "photos"),
            ("e", &["train/daisy/1.jpg", "test/daisy/1.jpg"][..], "photos"),
        ] {
            let (plain, fresh) = refused(name, files);
            for error in [plain.unwrap_err(), fresh.unwrap_err()] {
                let message = error.to_string();
                assert!(
                    message.contains(holds) && message.contains(&format!("/{name}`")),
                    "{message}"
                );
            }
        }
        let (plain, _) = refused("f", &["flowers/daisy/1.jpg", "README.md"]);
        plain.unwrap();
        claim(&folder.path().join("missing"), false).unwrap();
    }

    #[test]
    fn nothing_stays_behind_when_it_is_interrupted_or_fails() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.txt");
        fs::write(&log, "1 3:1\n".repeat(100)).unwrap();
        let out = folder.path().join("shards");
        let input = Input::Files(vec![log.clone()]);
        let cancel = AtomicBool::new(true);
        assert_eq!(prepare(&input, &out, &options(2), &cancel, &|_, _| ()).unwrap(), None);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
        fs::write(&log, "x\n").unwrap();
        let cancel = AtomicBool::new(false);
        assert!(prepare(&input, &out, &options(2), &cancel, &|_, _| ()).is_err());
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    }
}
