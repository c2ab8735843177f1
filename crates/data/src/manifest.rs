//! `manifest.json`: what a folder of shards holds.
//!
//! Written last and whole, so its presence means that every shard it names is complete. Readers take
//! counts, classes and shard names from it instead of opening every shard. Unknown keys are skipped,
//! so that an older program reads what a newer one added.

use std::{collections::BTreeSet, io::Write};

use serde::{Deserialize, Serialize};

use crate::store::{IfExists, Store, StoreError, check_key};

/// Name of the manifest inside a data folder.
pub const MANIFEST: &str = "manifest.json";
/// Name of the list of rejected inputs inside a data folder: one JSON object per line.
pub const REJECTS: &str = "rejects.jsonl";
/// Name of the split that holds whatever no other split claims.
pub const TRAIN: &str = "train";

/// What records of photos are called.
pub const PHOTOS: &str = "photos";
/// Largest side of a photo in records, in pixels.
pub const MAX_SIDE: u32 = 4096;
/// More classes than any set has.
const MOST_CLASSES: usize = 1 << 20;

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
    pub settings: RecordSettings,
    /// Decides which example is in which shard, and where.
    pub seed: u64,
    /// Class names by label, counted from `first_label`.
    pub classes: Vec<String>,
    /// The label of the first class.
    pub first_label: i64,
    pub source: SourceSummary,
    /// How many inputs are in the list of rejects instead of a shard.
    pub rejects: u64,
    /// The splits, [`TRAIN`] first.
    pub splits: Vec<Split>,
}

/// RecordSettings that decide the bytes of the records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordSettings {
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
    /// Most pixels of a photo, where another limit than the usual one was asked for: larger ones are among the rejects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pixels: Option<u64>,
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
    /// Values that cannot be true.
    #[error("`{location}` is not a valid manifest: it has {what}")]
    Impossible {
        /// Path or URL of the manifest.
        location: String,
        what: String,
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
        let manifest: Self = serde_json::from_slice(&bytes).map_err(malformed)?;
        match manifest.contradiction() {
            Some(what) => Err(ManifestError::Impossible { location: location(), what }),
            None => Ok(Some(manifest)),
        }
    }

    /// What cannot be true of a manifest: nothing may be allocated, opened or counted by it before this was asked.
    fn contradiction(&self) -> Option<String> {
        let RecordSettings { width, height, .. } = self.settings;
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Some(format!(
                "photos of {width}x{height} pixels; sides are from 1 to {MAX_SIDE}"
            ));
        }
        if self.kind != PHOTOS {
            return Some(format!("records of kind `{}`; this program reads `{PHOTOS}`", self.kind));
        }
        if self.classes.len() > MOST_CLASSES {
            return Some(format!(
                "{} classes; at most {MOST_CLASSES} are read",
                self.classes.len()
            ));
        }
        let mut seen = BTreeSet::new();
        for Split { name, records, bytes, shards, .. } in &self.splits {
            for shard in shards {
                if shard.name.contains(['/', '\\']) || check_key(&shard.name).is_err() {
                    return Some(format!("shard `{}`, which is not a file beside it", shard.name));
                }
                if !seen.insert(shard.name.as_str()) {
                    return Some(format!("shard `{}` twice", shard.name));
                }
            }
            let sum = |of: fn(&Shard) -> u64| {
                shards.iter().try_fold(0_u64, |sum, shard| sum.checked_add(of(shard)))
            };
            for (what, said, found) in [
                ("records", *records, sum(|shard| shard.records)),
                ("bytes", *bytes, sum(|shard| shard.bytes)),
            ] {
                if found != Some(said) {
                    let found =
                        found.map_or_else(|| "too many".to_owned(), |found| found.to_string());
                    return Some(format!(
                        "{said} {what} in the {name} split, whose shards have {found}"
                    ));
                }
            }
        }
        None
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

    /// As [`Self::write`], but only if there is none yet: of two processes that finish the same work at
    /// once, one writes it, and a process that did other work does not replace it.
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
            settings: RecordSettings {
                width: 192,
                height: 128,
                fit: "crop".into(),
                encode: "jpeg".into(),
                quality: Some(90),
                max_pixels: None,
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
    fn values_that_cannot_be_true_are_named_before_anything_follows_from_them() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::new(dir.path());
        let with = |change: fn(&mut Manifest)| {
            let mut manifest = sample();
            change(&mut manifest);
            manifest.write(&store).unwrap();
            Manifest::read(&store).unwrap_err().to_string()
        };
        for (message, wanted) in [
            (with(|m| m.settings.width = 1_000_000_000), "1000000000x128 pixels"),
            (with(|m| m.settings.height = 0), "192x0 pixels"),
            (with(|m| m.kind = "rows".into()), "kind `rows`"),
            (
                with(|m| m.splits[0].shards[0].name = "../../etc/passwd".into()),
                "not a file beside it",
            ),
            (with(|m| m.splits[0].shards[0].name = "..".into()), "not a file beside it"),
            (
                with(|m| m.splits[0].records = 3),
                "3 records in the train split, whose shards have 2",
            ),
            (with(|m| m.splits[0].bytes = 3), "3 bytes in the train split"),
            (
                with(|m| {
                    let mut twice = m.splits[0].clone();
                    twice.name = "test".into();
                    m.splits.push(twice);
                }),
                "twice",
            ),
        ] {
            assert!(message.contains(wanted) && message.contains(MANIFEST), "{message}");
        }
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
