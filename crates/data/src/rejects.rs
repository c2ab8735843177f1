//! Photos that cannot be used: the same words, list and limit wherever photos are read.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{
    DataError,
    store::{Store, StoreError},
};

/// Reasons that an error about too many rejects names.
pub const FIRST_REASONS: usize = 5;

/// A photo that is left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// Key in the source.
    pub path: String,
    pub reason: String,
}

/// How many photos may be rejected before the whole ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectLimit {
    /// So many.
    Count(u64),
    /// So many percent of all photos.
    Percent(f64),
}

impl RejectLimit {
    /// The number allowed among so many photos.
    #[must_use]
    pub fn count(self, photos: u64) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (photos as f64 * percent / 100.0).floor() as u64,
        }
    }
}

/// Rejects found while examples are read, by any number of threads: each photo once, in the order of their names.
#[derive(Debug, Default)]
pub struct RejectLog {
    /// The number allowed, where there is a limit.
    limit: Option<u64>,
    found: Mutex<BTreeMap<String, String>>,
}

impl RejectLog {
    /// An empty log that allows up to `limit` rejects.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Self {
        Self { limit, found: Mutex::default() }
    }

    /// Notes a photo that cannot be used.
    ///
    /// # Errors
    /// One more than allowed.
    pub fn note(&self, reject: Reject) -> Result<(), DataError> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(reject.path, reject.reason);
        match self.limit {
            Some(limit) if found.len() as u64 > limit => {
                let first = found.iter().take(FIRST_REASONS);
                Err(DataError::TooManyRejects {
                    rejects: found.len() as u64,
                    limit,
                    first: first.map(|(path, reason)| format!("{path}: {reason}")).collect(),
                })
            }
            _ => Ok(()),
        }
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Reject> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |(path, reason): (&String, &String)| Reject {
            path: path.clone(),
            reason: reason.clone(),
        };
        found.iter().map(one).collect()
    }
}

/// Rejects as `rejects.jsonl` has them: one JSON object per line.
#[must_use]
pub fn json_lines(rejects: &[Reject]) -> Vec<u8> {
    let mut lines = Vec::new();
    for reject in rejects {
        serde_json::to_writer(&mut lines, reject).expect("a reject is two strings");
        lines.push(b'\n');
    }
    lines
}

/// Why a photo's file could not be read, without the location of the source: lists of rejects name paths relative to it.
pub fn read_reason(error: &StoreError) -> String {
    match error {
        StoreError::Io { source, .. } => format!("cannot read: {source}"),
        StoreError::NotAFile { .. } => "not a regular file".into(),
        StoreError::TooLarge { limit, .. } => format!("the file is larger than {limit} bytes"),
        other => other.to_string(),
    }
}

/// Whether a store on another machine failed, rather than one photo in it: else a store that was away for a minute would
/// cost all photos of that minute. A photo that vanished or grew is the photo's own affair.
pub fn is_failure_of(store: &dyn Store, error: &StoreError) -> bool {
    matches!(error, StoreError::Io { .. }) && store.is_distant() && !error.is_missing()
}
