//! `manifest.json`: what a folder of shards holds.
//!
//! Written last and whole, so its presence means that every shard it names is complete. Readers take
//! counts, classes and shard names from it instead of opening every shard. Unknown keys are skipped,
//! so that an older program reads what a newer one added.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::store::{IfExists, Store, StoreError};

/// Name of the manifest inside a data folder.
pub const MANIFEST: &str = "manifest.json";
/// Name of the list of rejected inputs inside a data folder: one JSON object per line.
pub const REJECTS: &str = "rejects.jsonl";
/// Name of the split that holds whatever no other split claims.
pub const TRAIN: &str = "train";

/// The version this program writes, and the newest it reads.
const VERSION: u32 = 1;
/// A million shards fit; anything larger is not a manifest of ours. Bytes.
const SIZE_LIMIT: u64 = 256 << 20;

/// Everything a folder of shards says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this layout.
    pub version: u32,
    /// Name and version of the program that wrote it.
    pub program: String,
    /// What the records are; `photos` now.
    pub kind: String,
    /// How they were made.
    pub settings: Settings,
    /// Decides which example is in which shard, and where.
    pub seed: u64,
    /// Class names by label, counted from `first_label`.
    pub classes: Vec<String>,
    /// The label of the first class.
    pub first_label: i64,
    /// What was read.
    pub source: SourceSummary,
    /// How many inputs are in the list of rejects instead of a shard.
    pub rejects: u64,
    /// The splits, [`TRAIN`] first.
    pub splits: Vec<Split>,
}

/// Settings that decide the bytes of the records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Width of every photo in pixels.
    pub width: u32,
    /// Height of every photo in pixels.
    pub height: u32,
    /// How a photo of another shape was made to fit: `crop`, `pad` or `stretch`.
    pub fit: String,
    /// How pixels are stored: `jpeg`, `png` or `raw`.
    pub encode: String,
    /// JPEG quality, 1 to 100; only with `jpeg`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<u8>,
}

/// What was read to make the shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSummary {
    /// Inputs found, rejected ones included.
    pub photos: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// SHA-256 over the sorted relative paths and sizes, in hexadecimal.
    pub fingerprint: String,
    /// SHA-256 over the sorted relative paths alone, in hexadecimal.
    #[serde(default)]
    pub path_fingerprint: String,
}

/// A named part of the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// `train`, `validation`, ...
    pub name: String,
    /// Share of the inputs that was asked for.
    pub share: f64,
    /// Records in all its shards.
    pub records: u64,
    /// Bytes of all its shards.
    pub bytes: u64,
    /// Its shards, in order.
    pub shards: Vec<Shard>,
}

/// One file of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// File name beside the manifest, such as `train-00003-of-00016.tfrecord`.
    pub name: String,
    /// Records in it; 0 if all its inputs were rejected.
    pub records: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Inputs of this shard that were rejected.
    #[serde(default)]
    pub rejects: u64,
}

/// Why a manifest could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Not JSON, or not a manifest.
    #[error("`{location}` is not a valid manifest")]
    Malformed {
        /// Path or URL of the manifest.
        location: String,
        /// What the parser said, with line and column.
        source: serde_json::Error,
    },
    /// Written by a later program in a layout this one does not know.
    #[error("`{location}` has layout version {found}, this program reads up to {VERSION}")]
    TooNew {
        /// Path or URL of the manifest.
        location: String,
        /// The version it states.
        found: u32,
    },
}

impl Manifest {
    /// The version that this program writes.
    pub const VERSION: u32 = VERSION;

    /// Reads the manifest at the root of `store`; `None` where there is none, that is, where
    /// preparation has not finished.
    pub fn read(store: &dyn Store) -> Result<Option<Self>, ManifestError> {
        if store.size(MANIFEST)?.is_none() {
            return Ok(None);
        }
        let bytes = store.read(MANIFEST, SIZE_LIMIT)?;
        let location = || store.locate(MANIFEST);
        let malformed = |source| ManifestError::Malformed { location: location(), source };
        // The version decides whether the rest can be understood, so it is read on its own first.
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(malformed)?;
        if version > VERSION {
            return Err(ManifestError::TooNew { location: location(), found: version });
        }
        serde_json::from_slice(&bytes).map(Some).map_err(malformed)
    }

    /// The split of that name.
    #[must_use]
    pub fn split(&self, name: &str) -> Option<&Split> {
        self.splits.iter().find(|split| split.name == name)
    }

    /// Records in all splits.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.splits.iter().map(|split| split.records).sum()
    }

    /// Writes the manifest to the root of `store`, whole; to be called when every shard is there.
    pub fn write(&self, store: &dyn Store) -> Result<(), StoreError> {
        store.write(MANIFEST, &self.encode())
    }

    /// As [`Self::write`], but only where none is yet: of two who finish the same work at once, one
    /// writes it, and whoever did other work does not replace it.
    pub fn commit(&self, store: &dyn Store) -> Result<(), StoreError> {
        let mut upload = store.create(MANIFEST, IfExists::Fail)?;
        upload
            .write_all(&self.encode())
            .map_err(|source| StoreError::io("write", store.locate(MANIFEST), source))?;
        let same = || Self::read(store).is_ok_and(|found| found.as_ref() == Some(self));
        match upload.commit() {
            Err(StoreError::Exists { .. }) if same() => Ok(()),
            done => done,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes =
            serde_json::to_vec_pretty(self).expect("plain structs with string keys become JSON");
        bytes.push(b'\n');
        bytes
    }
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LocalStore;

    fn sample() -> Manifest {
        Manifest {
            version: VERSION,
            program: "paceline 0.0.0".into(),
            kind: "photos".into(),
            settings: Settings {
                width: 192,
                height: 128,
                fit: "crop".into(),
                encode: "jpeg".into(),
                quality: Some(90),
            },
            seed: 7,
            classes: vec!["daisy".into(), "rose".into()],
            first_label: 0,
            source: SourceSummary {
                photos: 3,
                bytes: 999,
                fingerprint: "00".into(),
                path_fingerprint: "01".into(),
            },
            rejects: 1,
            splits: vec![Split {
                name: TRAIN.into(),
                share: 1.0,
                records: 2,
                bytes: 345,
                shards: vec![Shard {
                    name: "train-00000-of-00001.tfrecord".into(),
                    records: 2,
                    bytes: 345,
                    sha256: "11".into(),
                    rejects: 1,
                }],
            }],
        }
    }

    #[test]
    fn survives_a_round_trip_and_unknown_keys() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::new(dir.path());
        assert_eq!(Manifest::read(&store).unwrap(), None);
        sample().write(&store).unwrap();
        let text = String::from_utf8(store.read(MANIFEST, SIZE_LIMIT).unwrap()).unwrap();
        let later = text.replacen('{', "{\n  \"later\": {\"deep\": [1]},", 1);
        store.write(MANIFEST, later.as_bytes()).unwrap();
        assert_eq!(Manifest::read(&store).unwrap(), Some(sample()));
    }

    #[test]
    fn newer_layout_is_refused_by_version_and_junk_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::new(dir.path());
        store.write(MANIFEST, br#"{"version": 2, "everything": "else"}"#).unwrap();
        assert!(matches!(Manifest::read(&store), Err(ManifestError::TooNew { found: 2, .. })));
        store.write(MANIFEST, b"{\"version\": 1").unwrap();
        let message = Manifest::read(&store).unwrap_err().to_string();
        assert!(message.contains(MANIFEST), "{message}");
    }
}
