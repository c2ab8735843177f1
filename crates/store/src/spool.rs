//! An object read at random, and kept on this machine's disk as far as it has been read.
//!
//! Shuffled training reads records in random order, in every epoch again. Asking the service for each
//! would cost a round trip per record; holding the object would cost its size in memory. So the
//! first touch brings a block of it into a file without a name, and every later one reads the file. The
//! file vanishes with the process, however it ends.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{Object, Result, StoreError, fresh_token};

/// Bytes brought here at a time: a hundred milliseconds of a modest line, some hundred records.
const BLOCK: u64 = 2 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Absent,
    /// Some thread has asked for it.
    Coming,
    Here,
}

/// Reads an object at random through a file of this machine.
pub struct Spool {
    object: Arc<dyn Object>,
    file: File,
    blocks: Mutex<Vec<Block>>,
    /// Rung whenever a block came, or did not.
    changed: Condvar,
}

impl Spool {
    /// Spools `object` in the folder for temporary files: `TMPDIR`, else `/var/tmp`, which unlike `/tmp`
    /// is nowhere held in memory.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(object: Arc<dyn Object>) -> Result<Self> {
        let folder =
            std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let folder = if folder.is_dir() { folder } else { std::env::temp_dir() };
        Self::in_folder(object, &folder)
    }

    /// Spools `object` in `folder`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn in_folder(object: Arc<dyn Object>, folder: &Path) -> Result<Self> {
        let path = folder.join(format!("paceline-spool-{:016x}", fresh_token()));
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = made
            .and_then(|file| {
                // Without a name it cannot be found, and it is freed when this process ends.
                fs::remove_file(&path)?;
                file.set_len(object.size())?;
                Ok(file)
            })
            .map_err(|source| StoreError::LocalCopy {
                action: "create",
                path,
                location: object.location().to_owned(),
                source,
            })?;
        let blocks = usize::try_from(object.size().div_ceil(BLOCK)).unwrap_or(usize::MAX);
        let blocks = Mutex::new(vec![Block::Absent; blocks]);
        Ok(Self { object, file, blocks, changed: Condvar::new() })
    }

    /// Size of the object in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.object.size()
    }

    /// Fills `buffer` from `offset` on; fewer bytes only at the object's end.
    ///
    /// # Errors
    /// The object cannot be read, or the disk is full.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.size().saturating_sub(offset);
        let count = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if count == 0 {
            return Ok(0);
        }
        let last = (offset + count as u64 - 1) / BLOCK;
        for block in offset / BLOCK..=last {
            self.bring(block)?;
        }
        self.file.read_exact_at(&mut buffer[..count], offset)?;
        Ok(count)
    }

    fn bring(&self, number: u64) -> io::Result<()> {
        let index = number as usize; // below the number of blocks, which is a usize
        let mut blocks = self.lock();
        loop {
            match blocks[index] {
                Block::Here => return Ok(()),
                Block::Absent => break,
                Block::Coming => {
                    blocks = self.changed.wait(blocks).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        blocks[index] = Block::Coming;
        drop(blocks);
        let start = number * BLOCK;
        let range = start..self.size().min(start + BLOCK);
        let done = match self.object.read(range) {
            Ok(bytes) => self.file.write_all_at(&bytes, start),
            Err(error) => Err(error.into()),
        };
        // If this attempt failed, a waiting thread tries again itself.
        self.lock()[index] = if done.is_ok() { Block::Here } else { Block::Absent };
        self.changed.notify_all();
        done
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("object", &self.object).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        ops::Range,
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
        thread,
    };

    use super::*;

    /// Counts what is asked of it, and fails when told to.
    #[derive(Debug)]
    struct Counting {
        bytes: Vec<u8>,
        read: AtomicU64,
        broken: AtomicBool,
    }

    impl Object for Counting {
        fn size(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn location(&self) -> &str {
            "s3://bucket/key"
        }

        fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
            if self.broken.load(Ordering::Relaxed) {
                let source = io::ErrorKind::TimedOut.into();
                return Err(StoreError::io("read", self.location(), source));
            }
            self.read.fetch_add(range.end - range.start, Ordering::Relaxed);
            Ok(self.bytes[range.start as usize..range.end as usize].to_vec())
        }
    }

    fn counting() -> Arc<Counting> {
        let bytes = (0..(5 << 20) + 321).map(|i: u32| (i / 7) as u8).collect();
        Arc::new(Counting { bytes, read: AtomicU64::new(0), broken: AtomicBool::new(false) })
    }

    #[test]
    fn every_byte_travels_once_however_many_threads_want_it() {
        let object = counting();
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::in_folder(Arc::clone(&object) as _, folder.path()).unwrap();
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (spool, object) = (&spool, &object);
                scope.spawn(move || {
                    let mut buffer = vec![0; 5000];
                    for step in 0..600 {
                        let offset = (step * 9973 * (thread + 1)) % (spool.size() + 10);
                        let count = spool.read_at(&mut buffer, offset).unwrap();
                        let end = (offset as usize + 5000).min(object.bytes.len());
                        assert_eq!(buffer[..count], object.bytes[(offset as usize).min(end)..end]);
                    }
                });
            }
        });
        assert_eq!(object.read.load(Ordering::Relaxed), spool.size());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn a_failed_block_is_asked_for_again() {
        let object = counting();
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::in_folder(Arc::clone(&object) as _, folder.path()).unwrap();
        object.broken.store(true, Ordering::Relaxed);
        let error = spool.read_at(&mut [0; 10], 5).unwrap_err();
        assert!(error.to_string().contains("s3://bucket/key"), "{error}");
        object.broken.store(false, Ordering::Relaxed);
        assert_eq!(spool.read_at(&mut [0; 10], 5).unwrap(), 10);
    }
}
