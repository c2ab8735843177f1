//! Reads many shards on several threads.
//!
//! Each thread takes the next file that is left, so files of different sizes
//! keep all threads busy as long as there are more files than threads.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::error::Error;
use crate::reader::Reader;

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub records: u64,
    pub payload_bytes: u64,
    /// Bytes of all records with their frames, after decompression.
    pub record_bytes: u64,
}

/// Calls `visit(file, record, payload)` for every record of `files`, each file
/// in order on one of `threads` threads.
///
/// Reading stops at the first damaged file; of several found at once, the
/// error of the first in `files` is returned.
pub fn for_each_record<P, F>(files: &[P], threads: usize, visit: F) -> Result<Totals, Error>
where
    P: AsRef<Path> + Sync,
    F: Fn(usize, u64, &[u8]) + Sync,
{
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let outcome: Mutex<(Totals, Option<(usize, Error)>)> = Mutex::default();
    let work = || {
        let mut totals = Totals::default();
        let mut failure = None;
        while !stop.load(Ordering::Relaxed) {
            let file = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(file) else { break };
            if let Err(error) = read_file(path.as_ref(), &stop, &mut totals, |record, payload| {
                visit(file, record, payload);
            }) {
                stop.store(true, Ordering::Relaxed);
                failure = Some((file, error));
            }
        }
        let mut outcome = outcome.lock().expect("no thread panics while it holds the lock");
        outcome.0.records += totals.records;
        outcome.0.payload_bytes += totals.payload_bytes;
        outcome.0.record_bytes += totals.record_bytes;
        if let Some((file, error)) = failure
            && outcome.1.as_ref().is_none_or(|(earlier, _)| file < *earlier)
        {
            outcome.1 = Some((file, error));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(files.len()) {
            scope.spawn(work);
        }
        work();
    });
    let (totals, failure) = outcome.into_inner().expect("no thread panics while it holds the lock");
    failure.map_or(Ok(totals), |(_, error)| Err(error))
}

fn read_file(
    path: &Path,
    stop: &AtomicBool,
    totals: &mut Totals,
    mut visit: impl FnMut(u64, &[u8]),
) -> Result<(), Error> {
    let mut reader = Reader::open(path)?;
    let mut record = 0;
    while let Some(payload) = reader.next_record()? {
        totals.payload_bytes += payload.len() as u64;
        visit(record, payload);
        record += 1;
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    totals.records += record;
    totals.record_bytes += reader.offset();
    Ok(())
}
