//! One shard while it is being written.

use std::io::{self, BufWriter, Write};

use paceline_tfrecord::Writer;

use super::{PrepareError, journal::Report, plan::ShardPlan};
use paceline_data::{manifest::Shard, rejects::Reject};
use paceline_store::{
    IfExists, Store, StoreError, Upload,
    durable::{FileSum, HashingWriter},
};

/// Bytes collected before the store is written to.
const BUFFER: usize = 256 << 10;
/// Bytes read at once when a shard is compared.
const BLOCK: u64 = 8 << 20;

/// Takes the photos of one shard in order.
pub(super) struct ShardWriter<'a> {
    dst: &'a dyn Store,
    /// Position among all shards.
    number: usize,
    name: &'a str,
    writer: Writer<BufWriter<HashingWriter<Box<dyn Upload>>>>,
    rejects: Vec<Reject>,
    if_exists: IfExists,
    /// Photos still to come.
    left: usize,
}

impl<'a> ShardWriter<'a> {
    pub(super) fn start(
        dst: &'a dyn Store,
        number: usize,
        plan: &'a ShardPlan,
        if_exists: IfExists,
    ) -> Result<Self, PrepareError> {
        let upload = dst.create(&plan.name, if_exists)?;
        let hashing = HashingWriter::new(upload);
        Ok(Self {
            dst,
            number,
            name: &plan.name,
            writer: Writer::new(BufWriter::with_capacity(BUFFER, hashing)),
            rejects: Vec::new(),
            if_exists,
            left: plan.photos.len(),
        })
    }

    pub(super) fn write(&mut self, record: &[u8]) -> Result<(), PrepareError> {
        self.left -= 1;
        self.writer.write(record).map(drop).map_err(|source| failed(self.dst, self.name, source))
    }

    pub(super) fn reject(&mut self, reject: Reject) {
        self.left -= 1;
        self.rejects.push(reject);
    }

    /// Rejects of this shard so far.
    pub(super) fn rejects(&self) -> &[Reject] {
        &self.rejects
    }

    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Commits the shard and its index; returns its number and report.
    pub(super) fn finish(self) -> Result<(usize, Report), PrepareError> {
        let failed = |source| failed(self.dst, self.name, source);
        let records = self.writer.records();
        let (buffer, index) = self.writer.finish_with_index().map_err(failed)?;
        let hashing = buffer.into_inner().map_err(|error| failed(error.into_error()))?;
        let (upload, FileSum { bytes, sha256 }) = hashing.finish();
        match upload.commit() {
            // Another attempt was first. What it wrote is what we would have written, or the source changed.
            Err(StoreError::Exists { location }) if sha256 != hash_of(self.dst, self.name)? => {
                return Err(PrepareError::Conflict { location });
            }
            Ok(()) | Err(StoreError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        put(self.dst, &index_key(self.name), &index.encode(), self.if_exists)?;
        let shard = Shard {
            name: self.name.to_owned(),
            records,
            bytes,
            sha256,
            rejects: self.rejects.len() as u64,
        };
        Ok((self.number, Report { shard, rejects: self.rejects }))
    }
}

/// The index lies beside its shard.
pub(super) fn index_key(shard: &str) -> String {
    format!("{shard}.index")
}

/// Writes an object that is at hand, unless one is there already and is to be kept.
fn put(dst: &dyn Store, key: &str, bytes: &[u8], if_exists: IfExists) -> Result<(), PrepareError> {
    match if_exists {
        IfExists::Replace => dst.write(key, bytes)?,
        IfExists::Fail => {
            dst.write_new(key, bytes)?;
        }
    }
    Ok(())
}

/// SHA-256 of an object, in hexadecimal.
fn hash_of(dst: &dyn Store, key: &str) -> Result<String, PrepareError> {
    let size = dst.size(key)?.unwrap_or(0);
    let mut hash = HashingWriter::new(io::sink());
    let mut at = 0;
    while at < size {
        let end = size.min(at + BLOCK);
        let block = dst.read_range(key, at..end)?;
        hash.write_all(&block).expect("a sink takes everything");
        at = end;
    }
    Ok(hash.finish().1.sha256)
}

fn failed(dst: &dyn Store, name: &str, source: io::Error) -> PrepareError {
    StoreError::io("write", dst.locate(name), source).into()
}
