//! An object from front to back, with the next pieces on their way while one is read.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Read},
    sync::Arc,
    thread::{self, JoinHandle},
};

use crate::{Object, Result, StoreError};

/// Bytes of a piece.
const PIECE: u64 = 4 << 20;
/// Pieces on their way ahead of the reader; with the present one, what a stream holds in memory.
const AHEAD: usize = 4;

/// Reads an object front to back; 20 MiB of memory at most.
pub struct Stream {
    object: Arc<dyn Object>,
    /// Where the next piece to be asked for starts.
    next: u64,
    coming: VecDeque<JoinHandle<Result<Vec<u8>>>>,
    piece: Vec<u8>,
    /// Bytes of `piece` that have been read.
    taken: usize,
}

impl Stream {
    /// Reads `object` from `offset` on.
    #[must_use]
    pub fn new(object: Arc<dyn Object>, offset: u64) -> Self {
        Self { object, next: offset, coming: VecDeque::new(), piece: Vec::new(), taken: 0 }
    }

    fn ask(&mut self) -> io::Result<()> {
        while self.coming.len() < AHEAD && self.next < self.object.size() {
            let range = self.next..self.object.size().min(self.next + PIECE);
            self.next = range.end;
            let object = Arc::clone(&self.object);
            self.coming.push_back(thread::Builder::new().spawn(move || object.read(range))?);
        }
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() && !into.is_empty() {
            self.ask()?;
            let Some(thread) = self.coming.pop_front() else { return Ok(0) };
            self.piece = thread.join().unwrap_or_else(|_| {
                let source = io::Error::other("the thread that read it panicked");
                Err(StoreError::io("read", self.object.location(), source))
            })?;
            self.taken = 0;
            self.ask()?;
        }
        let count = into.len().min(self.piece.len() - self.taken);
        into[..count].copy_from_slice(&self.piece[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("object", &self.object).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalStore, Store};

    #[test]
    fn pieces_come_in_order_and_from_any_offset() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::new(folder.path());
        let bytes: Vec<u8> = (0..(9 << 20) + 77).map(|i: u32| (i / 3) as u8).collect();
        store.write("key", &bytes).unwrap();
        for offset in [0, 1, 4 << 20, bytes.len() - 5, bytes.len(), bytes.len() + 9] {
            let mut read = Vec::new();
            Stream::new(store.find("key").unwrap(), offset as u64).read_to_end(&mut read).unwrap();
            assert!(read == bytes[offset.min(bytes.len())..], "from {offset}");
        }
    }
}
