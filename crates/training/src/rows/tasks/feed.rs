//! A worker's rows, read ahead: parsed, cut into batches of one size, and the weights of each found, on a
//! thread of its own, so that the next batch is ready when the weights of this one have come.

use crate::{
    TrainError,
    rows::{RowsPlace, RowsSpec, Source, Window, source::Parcel},
};
use paceline_batch::{Batch, Features};
use paceline_data::rows::{Input, Next, Position, Rejects};
use paceline_models::sparse_logistic::Minibatch;
use paceline_strategies::sparse::Bookmark;
use std::{
    ops::Range,
    path::PathBuf,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

/// Batches that may wait.
const AHEAD: usize = 2;

/// One batch of a worker.
#[derive(Debug)]
pub(super) struct Portion {
    pub(super) batch: Batch,
    pub(super) minibatch: Minibatch,
    /// Where the worker stands after it.
    pub(super) mark: Bookmark,
    /// Bytes of text read so far.
    pub(super) bytes: u64,
    /// Malformed lines so far.
    pub(super) rejected: u64,
}

impl Default for Portion {
    fn default() -> Self {
        let (minibatch, mark, bytes, rejected) = Default::default();
        Self { batch: Batch::sparse(), minibatch, mark, bytes, rejected }
    }
}

/// Where rows of a worker come from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) files: Vec<PathBuf>,
    /// Rows of a batch.
    pub(super) rows: usize,
    /// A sample of malformed lines goes there.
    pub(super) rejects: PathBuf,
}

/// A worker's batches, in order.
pub(super) struct Feed {
    ready: Receiver<Result<Portion, TrainError>>,
    spare: SyncSender<Portion>,
}

impl Feed {
    /// Reads from `mark` on.
    pub(super) fn start(
        spec: &RowsSpec,
        origin: &Origin,
        mark: Option<Bookmark>,
    ) -> Result<Self, TrainError> {
        let input = Input::Files(origin.files.clone());
        let mark = mark.unwrap_or_default();
        let place = place_of(&mark);
        let format = spec.format.as_deref();
        let source =
            Source::open(input.clone(), format, spec.hashing, place, spec.epochs, Window::None)?;
        let mut reader = Reader {
            source,
            input,
            parcel: Parcel::default(),
            start: place,
            row: 0,
            skip: mark[4],
            total: mark[5],
            bytes: 0,
            rejects: Rejects::new(origin.rejects.clone(), spec.max_rejects),
        };
        let (rows, bias) = (origin.rows, 1 << spec.hashing.bits);
        let (send, ready) = sync_channel(AHEAD);
        let (spare, reused) = sync_channel::<Portion>(AHEAD + 3);
        let work = move || {
            loop {
                let mut portion = reused.try_recv().unwrap_or_default();
                let read = reader.next(rows, &mut portion).map(|any| {
                    any.then(|| {
                        let all = 0..portion.batch.len();
                        portion.minibatch.prepare(&portion.batch, all, bias);
                        portion
                    })
                });
                // The worker is gone when sending fails: the run is over, or begins elsewhere.
                let sent = match read {
                    Ok(Some(portion)) => send.send(Ok(portion)),
                    Ok(None) => return,
                    Err(error) => return drop(send.send(Err(error))),
                };
                if sent.is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("feed".to_owned()).spawn(work);
        thread.map_err(TrainError::Thread)?;
        Ok(Self { ready, spare })
    }

    /// The next batch; nothing at the end of the files.
    pub(super) fn next(&self) -> Result<Option<Portion>, TrainError> {
        self.ready.recv().ok().transpose()
    }

    /// Takes back the memory of a batch.
    pub(super) fn recycle(&self, portion: Portion) {
        // Where there is enough of it, it goes.
        let _ = self.spare.try_send(portion);
    }
}

/// Whether a worker that stands at `mark` has learned from all rows of its files.
pub(super) fn is_at_end(
    spec: &RowsSpec,
    files: Vec<PathBuf>,
    mark: Option<Bookmark>,
) -> Result<bool, TrainError> {
    let mark = mark.unwrap_or_default();
    let (input, format) = (Input::Files(files), spec.format.as_deref());
    let (place, window) = (place_of(&mark), Window::None);
    let mut source = Source::open(input, format, spec.hashing, place, spec.epochs, window)?;
    let (mut parcel, mut passed) = (Parcel::default(), mark[4]);
    while source.next(&mut parcel)? != Next::End {
        parcel.parse();
        let rows = parcel.batch().len() as u64;
        if rows > passed {
            return Ok(false);
        }
        passed -= rows;
    }
    Ok(true)
}

struct Reader {
    source: Source,
    input: Input,
    parcel: Parcel,
    /// Where the present parcel starts.
    start: RowsPlace,
    /// The next row of it.
    row: usize,
    /// Rows to pass over: they were learned from before.
    skip: u64,
    /// Rows so far, over the whole life of the worker.
    total: u64,
    bytes: u64,
    rejects: Rejects,
}

impl Reader {
    /// Gathers the next `rows` rows, or what is left; says whether there are any.
    fn next(&mut self, rows: usize, portion: &mut Portion) -> Result<bool, TrainError> {
        portion.batch.clear();
        while portion.batch.len() < rows {
            let here = self.here();
            if self.row == here {
                if !self.parcel()? {
                    break;
                }
                continue;
            }
            let end = here.min(self.row + rows - portion.batch.len());
            append(&mut portion.batch, self.parcel.batch(), self.row..end);
            self.row = end;
        }
        self.total += portion.batch.len() as u64;
        portion.mark = mark_of(self.start, self.row as u64, self.total);
        (portion.bytes, portion.rejected) = (self.bytes, self.rejects.count);
        Ok(!portion.batch.is_empty())
    }

    /// Rows of the present parcel; none before the first.
    fn here(&self) -> usize {
        if self.bytes == 0 { 0 } else { self.parcel.batch().len() }
    }

    /// Reads the next parcel; says whether there is one.
    fn parcel(&mut self) -> Result<bool, TrainError> {
        if self.bytes > 0 {
            self.start = self.parcel.end;
        }
        if self.source.next(&mut self.parcel)? != Next::Block {
            self.rejects.flush()?;
            return Ok(false);
        }
        self.parcel.parse();
        self.bytes += self.parcel.block.text.len().max(1) as u64;
        let rows = self.parcel.batch().len() as u64;
        let refused = self.parcel.refused();
        self.rejects.note(&self.input, &self.parcel.block, rows, refused)?;
        let passed = self.skip.min(rows);
        self.skip -= passed;
        self.row = passed as usize;
        Ok(true)
    }
}

/// Appends some rows of one batch to another.
fn append(to: &mut Batch, from: &Batch, rows: Range<usize>) {
    let (
        Features::Sparse { offsets, indices, values },
        Features::Sparse { offsets: cuts, indices: more, values: worth },
    ) = (&mut to.features, &from.features)
    else {
        unreachable!("rows are sparse");
    };
    let range = cuts[rows.start]..cuts[rows.end];
    if !worth.is_empty() || !values.is_empty() {
        // Values that are all 1 are not written down until one is not.
        values.resize(indices.len(), 1.0);
        match worth.get(range.clone()) {
            Some(worth) => values.extend_from_slice(worth),
            None => values.resize(indices.len() + range.len(), 1.0),
        }
    }
    let shift = indices.len();
    let ends = cuts[rows.start + 1..=rows.end].iter();
    offsets.extend(ends.map(|end| end - range.start + shift));
    indices.extend_from_slice(&more[range]);
    to.labels.extend_from_slice(&from.labels[rows]);
}

/// A place, rows read beyond it and rows in all, as numbers.
fn mark_of(place: RowsPlace, row: u64, total: u64) -> Bookmark {
    let Position { file, offset, inode } = place.position;
    [place.pass, file as u64, offset, inode.map_or(0, |inode| inode + 1), row, total]
}

fn place_of(mark: &Bookmark) -> RowsPlace {
    let position = Position {
        file: usize::try_from(mark[1]).unwrap_or(usize::MAX),
        offset: mark[2],
        inode: mark[3].checked_sub(1),
    };
    RowsPlace { pass: mark[0], position }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::DataSpec;
    use std::fmt::Write as _;

    fn rows(portions: &[Portion]) -> Vec<(u32, Vec<u32>)> {
        let mut all = Vec::new();
        for portion in portions {
            let Features::Sparse { offsets, indices, .. } = &portion.batch.features else {
                panic!()
            };
            for (row, label) in portion.batch.labels.iter().enumerate() {
                all.push((*label, indices[offsets[row]..offsets[row + 1]].to_vec()));
            }
        }
        all
    }

    fn drain(feed: &Feed) -> Vec<Portion> {
        std::iter::from_fn(|| feed.next().unwrap()).collect()
    }

    /// Two files of several blocks each, read twice: every batch is full but the last, and from any bookmark
    /// the rest is exactly the rest.
    #[test]
    fn batches_have_one_size_and_any_of_them_can_be_gone_on_from() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for file in 0..2 {
            let mut text = String::new();
            for row in 0..9_000 + file * 777 {
                let worth = if row % 5_000 == 4_999 { "0.5" } else { "1" };
                writeln!(text, "{} {}:1 {}:{worth} 99999:1", row % 2, row % 5_000, row + 20_000)
                    .unwrap();
            }
            let path = folder.path().join(file.to_string());
            std::fs::write(&path, text).unwrap();
            files.push(path);
        }
        let mut spec = RowsSpec::new(DataSpec::Read(String::new()), "sgd").unwrap();
        spec.format = Some("libsvm".to_owned());
        spec.epochs = 2;
        let origin = Origin { files, rows: 700, rejects: folder.path().join("rejects") };
        let all = drain(&Feed::start(&spec, &origin, None).unwrap());
        let wanted = rows(&all);
        assert_eq!(wanted.len(), 2 * (2 * 9_000 + 777));
        let sizes: Vec<usize> = all.iter().map(|portion| portion.batch.len()).collect();
        assert!(sizes[..sizes.len() - 1].iter().all(|size| *size == 700), "{sizes:?}");
        let mut seen = 0;
        for portion in &all {
            seen += portion.batch.len();
            assert_eq!(portion.mark[5], seen as u64);
            let feed = Feed::start(&spec, &origin, Some(portion.mark)).unwrap();
            assert!(rows(&drain(&feed)) == wanted[seen..], "after {seen}");
        }
    }
}
