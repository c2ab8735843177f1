//! Batches and records for another process, which maps the memory they are in.
//!
//! Other languages get the loader's batches without a build of their own: they start this program, give it a file in
//! memory, and name slots of it. Batches are written there in order, and a line of JSON says that one is complete. The
//! other process reads them where they are. It asks for as many as it wants ahead, so neither waits for the other.

use std::{
    fs::File,
    io::{BufRead, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use paceline_batch::{Features, LabelKind};
use paceline_tfrecord::{Compression, Reader, frame};
use serde::Serialize;

use crate::{DataError, Loader, source::image_shape};

/// Slots begin at multiples of this, so that each can be mapped.
const PAGE: u64 = 4096;
/// Bytes of a label in a slot: what frameworks index classes with.
const LABEL_BYTES: u64 = 8;

/// What the other process has to know before it asks for batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeedDescription {
    /// Examples of the data set.
    pub examples: u64,
    /// Height, width and channels of an image.
    pub shape: [usize; 3],
    pub classes: Vec<String>,
    pub batches_per_epoch: u64,
    pub slot_bytes: u64,
    /// Where labels begin in a slot; images begin at 0.
    pub labels_at: u64,
}

/// A batch that is in its slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FedBatch {
    pub slot: u64,
    /// Examples in it.
    pub count: usize,
    /// The epoch that it is part of.
    pub epoch: u64,
    /// Where the batch after it begins.
    pub next_epoch: u64,
    pub next_example: u64,
}

/// Writes a loader's batches into memory that another process reads.
#[derive(Debug)]
pub struct BatchFeed<'a> {
    loader: Loader,
    memory: &'a File,
    path: &'a Path,
    description: FeedDescription,
    labels: Vec<u8>,
}

impl<'a> BatchFeed<'a> {
    /// A feed of batches with at most `batch_size` examples. `path` names the memory in errors.
    #[must_use]
    pub fn new(loader: Loader, batch_size: u64, memory: &'a File, path: &'a Path) -> Self {
        let schema = loader.source().schema();
        let shape = image_shape(schema);
        let labels_at = (batch_size * shape.len() as u64).next_multiple_of(LABEL_BYTES);
        let description = FeedDescription {
            examples: loader.source().len(),
            shape: [shape.height, shape.width, shape.channels],
            classes: match &schema.labels {
                LabelKind::Classes { names } => names.clone(),
                LabelKind::Binary => Vec::new(),
            },
            batches_per_epoch: loader.batches_per_epoch(),
            slot_bytes: (labels_at + batch_size * LABEL_BYTES).next_multiple_of(PAGE),
            labels_at,
        };
        Self { loader, memory, path, description, labels: Vec::new() }
    }

    /// What the other process has to know.
    #[must_use]
    pub fn description(&self) -> &FeedDescription {
        &self.description
    }

    /// Puts the next batch into a slot; `None` after the last epoch.
    ///
    /// # Errors
    /// An example that cannot be read, or memory that cannot be written.
    pub fn fill(&mut self, slot: u64) -> Result<Option<FedBatch>, DataError> {
        let failed = |source| DataError::Write { path: self.path.to_owned(), source };
        let Some(batch) = self.loader.next_batch()? else { return Ok(None) };
        let begin = slot * self.description.slot_bytes;
        if let Features::Pixels { values, .. } = &batch.features {
            self.memory.write_all_at(values, begin).map_err(failed)?;
        }
        let count = batch.labels.len();
        self.labels.clear();
        self.labels.extend(batch.labels.iter().flat_map(|label| i64::from(*label).to_ne_bytes()));
        let labels_at = begin + self.description.labels_at;
        self.memory.write_all_at(&self.labels, labels_at).map_err(failed)?;
        let after = self.loader.position();
        Ok(Some(FedBatch {
            slot,
            count,
            epoch: self.loader.current().map_or(0, |batch| batch.epoch),
            next_epoch: after.epoch,
            next_example: after.example,
        }))
    }

    /// Describes itself, then fills the slots whose numbers come in, a line each, and answers each with a line, until there are no more
    /// of either. An example that cannot be read takes the place of its answer.
    ///
    /// # Errors
    /// When the other process is gone, or memory cannot be written.
    pub fn serve(
        &mut self,
        orders: impl BufRead,
        answers: &mut impl Write,
    ) -> Result<(), DataError> {
        let path = self.path.to_owned();
        let gone = |source| DataError::Read { path: path.clone(), source };
        answer(answers, &self.description).map_err(gone)?;
        for order in orders.lines() {
            let Ok(slot) = order.map_err(gone)?.trim().parse() else { break };
            let done = match self.fill(slot) {
                Ok(Some(batch)) => answer(answers, &batch),
                Ok(None) => answer(answers, &serde_json::json!({ "end": true })),
                Err(error @ DataError::Write { .. }) => return Err(error),
                Err(error) => answer(answers, &serde_json::json!({ "error": in_full(&error) })),
            };
            done.map_err(gone)?;
        }
        Ok(())
    }
}

fn answer(answers: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *answers, value)?;
    answers.write_all(b"\n")?;
    answers.flush()
}

/// The error and what is behind it.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut behind = error.source();
    while let Some(reason) = behind {
        words.push_str(&format!(": {reason}"));
        behind = reason.source();
    }
    words
}

/// Where the records of a file are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordTable {
    pub records: u64,
    /// Whether they had to be unpacked, so that they are in the memory and not in the file.
    pub unpacked: bool,
    /// Where the table begins in the memory: begin and length of each record, 64 bits each.
    pub table_at: u64,
}

/// Reads a record file from front to back, compares every checksum, and writes where its records are into memory that another process
/// maps; those of a compressed file are unpacked there.
///
/// # Errors
/// A damaged file, or memory that cannot be written.
pub fn tabulate_records(path: &Path, memory: &File, name: &Path) -> Result<RecordTable, DataError> {
    let failed = |source| DataError::Write { path: name.to_owned(), source };
    let mut reader = Reader::open(path)?;
    let unpacked = reader.compression() != Compression::Plain;
    let mut table: Vec<u8> = Vec::new();
    let (mut records, mut end) = (0, 0);
    loop {
        let begin = reader.offset() + frame::HEADER_LEN as u64;
        let Some(payload) = reader.next_record()? else { break };
        let begin = if unpacked { end } else { begin };
        if unpacked {
            memory.write_all_at(payload, end).map_err(failed)?;
            end += payload.len() as u64;
        }
        table.extend(begin.to_ne_bytes());
        table.extend((payload.len() as u64).to_ne_bytes());
        records += 1;
    }
    let table_at = end.next_multiple_of(8);
    memory.write_all_at(&table, table_at).map_err(failed)?;
    Ok(RecordTable { records, unpacked, table_at })
}
