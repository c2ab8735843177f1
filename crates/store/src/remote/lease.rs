//! A lock in an object store: an object that its holder renews.
//!
//! A store does not learn that a process died, so a lock is a lease. Its holder rewrites it every few
//! seconds, on the condition that no other process has; a lease that was not renewed for much longer
//! has expired and may be taken over, on the condition that it has not changed since it was read.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::SystemTime,
};

use object_store::{Error, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};

use super::{RemoteStore, wait};
use crate::{Lock, Result, Store, StoreError, fresh_token};

/// A lease that missed so many renewals has expired: usually a minute, so that neither a slow renewal
/// nor clocks that differ by half of it take it from a living holder.
const MISSED: u32 = 4;
/// Longest lease taken for one. Bytes.
const LONGEST: u64 = 4096;

/// What a lease says about its holder.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    token: String,
}

#[derive(Debug)]
struct Lease {
    store: RemoteStore,
    key: String,
    words: Vec<u8>,
    /// Set when another process was found to hold it.
    lost: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    renewing: Option<JoinHandle<()>>,
}

impl Lock for Lease {
    fn is_held(&self) -> bool {
        !self.lost.load(Ordering::Relaxed)
    }
}

fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Takes the lock, or says at once who has it.
pub(super) fn take(store: &RemoteStore, key: &str) -> Result<Box<dyn Lock>> {
    let token = format!("{:016x}", fresh_token());
    let holder = Holder { pid: std::process::id(), host: host_name(), token };
    let words = serde_json::to_vec(&holder).expect("a number and two strings");
    loop {
        let mut upload = store.create(key, crate::IfExists::Fail)?;
        std::io::Write::write_all(&mut upload, &words)
            .map_err(|source| StoreError::io("lock", store.locate(key), source))?;
        match upload.commit() {
            Ok(()) => break,
            Err(StoreError::Exists { .. }) => {}
            Err(error) => return Err(error),
        }
        // Gone between the two looks: try again.
        let Some(meta) = store.meta(key)? else { continue };
        let age = SystemTime::now().duration_since(meta.last_modified.into()).unwrap_or_default();
        if age < store.renew * MISSED {
            let found = store.read(key, LONGEST).ok();
            let found = found.and_then(|bytes| serde_json::from_slice::<Holder>(&bytes).ok());
            let (pid, host) = found.map(|holder| (holder.pid, holder.host)).unzip();
            let (location, host) = (store.locate(key), host.flatten());
            return Err(StoreError::Locked { location, pid, host });
        }
        if !store.service.conditional {
            store.remove(key)?;
            continue;
        }
        let seen = UpdateVersion { e_tag: meta.e_tag, version: meta.version };
        match replace(store, key, &words, seen) {
            Ok(_) => break,
            // Another process was faster; look again.
            Err(Error::Precondition { .. } | Error::NotFound { .. }) => {}
            Err(error) => return Err(store.failed("lock", key, &error)),
        }
    }
    let (stop, stopped) = mpsc::channel();
    let lost = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&lost);
    let renewed = (store.clone(), key.to_owned(), words.clone());
    let renewing = thread::Builder::new().name("lease".to_owned()).spawn(move || {
        let (store, key, words) = renewed;
        while stopped.recv_timeout(store.renew) == Err(RecvTimeoutError::Timeout) {
            if !renew(&store, &key, &words) {
                told.store(true, Ordering::Relaxed);
                return;
            }
        }
    });
    Ok(Box::new(Lease {
        store: store.clone(),
        key: key.to_owned(),
        words,
        lost,
        stop: Some(stop),
        renewing: renewing.ok(), // without it the lease ends by itself
    }))
}

/// Writes the lease again, if it is still ours; says whether it is. A failure is met by the next attempt.
fn renew(store: &RemoteStore, key: &str, words: &[u8]) -> bool {
    let meta = match store.meta(key) {
        Ok(Some(meta)) => meta,
        Ok(None) => return false,
        Err(_) => return true,
    };
    match store.read(key, LONGEST) {
        Ok(found) if found == words => {}
        Ok(_) => return false,
        Err(_) => return true,
    }
    if !store.service.conditional {
        // Without conditional writes, a holder that has just lost its lease may overwrite the new
        // one; that can only happen on a machine that was suspended for a minute.
        let _ = store.write(key, words);
        return true;
    }
    let seen = UpdateVersion { e_tag: meta.e_tag, version: meta.version };
    !matches!(replace(store, key, words, seen), Err(Error::Precondition { .. }))
}

fn replace(
    store: &RemoteStore,
    key: &str,
    words: &[u8],
    seen: UpdateVersion,
) -> object_store::Result<()> {
    let at = store
        .key(key)
        .map_err(|error| Error::Generic { store: "lease", source: Box::new(error) })?;
    let payload = PutPayload::from(words.to_vec());
    wait(store.objects.put_opts(&at, payload, PutOptions::from(PutMode::Update(seen)))).map(drop)
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.renewing.take() {
            let _ = thread.join();
        }
        // Only our own: after a long pause another process may hold it.
        if self.store.read(&self.key, LONGEST).is_ok_and(|found| found == self.words) {
            let _ = self.store.remove(&self.key);
        }
    }
}
