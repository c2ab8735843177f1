//! What a folder of prepared rows says about itself.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use super::Hashing;
use crate::{
    DataError,
    store::{self, StoreError},
};

/// Name of the description inside a folder of shards.
pub const DESCRIPTION: &str = "rows.json";
/// Longest description taken for one. Bytes.
const LONGEST: u64 = 64 << 20;

/// What a folder of shards holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Version of this layout.
    pub version: u32,
    /// Name and version of the program that wrote it.
    pub program: String,
    /// How features became weight numbers: learning from the shards must use the same.
    pub hashing: Hashing,
    /// Rows in all shards.
    pub rows: u64,
    /// Rows of label 1.
    pub positive: u64,
    /// Malformed lines; a sample is in `rejects.jsonl`.
    pub rejects: u64,
    /// The shards, in order.
    pub shards: Vec<Shard>,
}

/// One file of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// File name beside the description.
    pub name: String,
    pub records: u64,
    pub bytes: u64,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
}

impl Prepared {
    /// The version this program writes, and the newest it reads.
    pub const VERSION: u32 = 1;

    /// Reads the description of a folder; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read, is not a description, or is of a later version.
    pub fn read(folder: &Path) -> Result<Option<Self>, DataError> {
        let path = folder.join(DESCRIPTION);
        let damaged = |reason: String| DataError::RowsDescription { path: path.clone(), reason };
        let bytes = match store::open(folder)?.read(DESCRIPTION, LONGEST) {
            Err(error)
                if matches!(
                    error.kind(),
                    Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
                ) =>
            {
                return Ok(None);
            }
            Err(StoreError::TooLarge { size, .. }) => {
                return Err(damaged(format!("{size} bytes long")));
            }
            other => other?,
        };
        let found: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if found.version > Self::VERSION {
            let version = found.version;
            return Err(damaged(format!(
                "version {version}, this program reads up to {}",
                Self::VERSION
            )));
        }
        Ok(Some(found))
    }
}
