//! One shard while it is being written.

use std::io::{self, BufWriter, Write};

use paceline_tfrecord::Writer;
use sha2::{Digest, Sha256};

use super::{
    PrepareError,
    catalogue::{Reject, hex},
    journal::Report,
    plan::ShardPlan,
};
use crate::{
    manifest::Shard,
    store::{IfExists, Store, StoreError, Upload},
};

/// Bytes collected before the store is written to.
const BUFFER: usize = 256 << 10;

/// Takes the photos of one shard in order.
pub(super) struct ShardWriter<'a> {
    dst: &'a dyn Store,
    /// Position among all shards.
    number: usize,
    name: &'a str,
    writer: Writer<BufWriter<Hashing>>,
    rejects: Vec<Reject>,
    /// Photos still to come.
    left: usize,
}

/// Counts and hashes what goes through to the store.
struct Hashing {
    upload: Box<dyn Upload>,
    hash: Sha256,
    bytes: u64,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.upload.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.upload.flush()
    }
}

impl<'a> ShardWriter<'a> {
    pub(super) fn start(
        dst: &'a dyn Store,
        number: usize,
        plan: &'a ShardPlan,
    ) -> Result<Self, PrepareError> {
        let upload = dst.create(&plan.name, IfExists::Replace)?;
        let hashing = Hashing { upload, hash: Sha256::new(), bytes: 0 };
        Ok(Self {
            dst,
            number,
            name: &plan.name,
            writer: Writer::new(BufWriter::with_capacity(BUFFER, hashing)),
            rejects: Vec::new(),
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
        let Hashing { upload, hash, bytes } = hashing;
        upload.commit()?;
        self.dst.write(&index_key(self.name), &index.encode())?;
        let shard = Shard {
            name: self.name.to_owned(),
            records,
            bytes,
            sha256: hex(&hash.finalize()),
            rejects: self.rejects.len() as u64,
        };
        Ok((self.number, Report { shard, rejects: self.rejects }))
    }
}

/// The index lies beside its shard.
pub(super) fn index_key(shard: &str) -> String {
    format!("{shard}.index")
}

fn failed(dst: &dyn Store, name: &str, source: io::Error) -> PrepareError {
    StoreError::io("write", dst.locate(name), source).into()
}
