//! Checkpoints on disk: committed whole or not at all.
//!
//! A checkpoint is a folder of named parts and a manifest with their checksums; what the parts are is the model's
//! affair (`dense.rs` here, `checkpoint.rs` of rows). How it is committed is [`paceline_store::durable`]'s: `kill -9` at
//! any moment leaves either the checkpoint or a hidden folder that the next start sweeps away.

use crate::TrainError;
use paceline_store::durable::{self, Create, Damage, FileSum, Folder, PartSink};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub(super) const MANIFEST: &str = "manifest.json";
/// Longest manifest taken for one; a real one has a few kilobytes.
const LONGEST_MANIFEST: u64 = 16 << 20;

/// The folder of a run's checkpoints.
#[derive(Clone)]
pub struct Store {
    folder: PathBuf,
    create: Create,
}

/// A checkpoint that was there but could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its step, as its folder says.
    pub step: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl Refused {
    /// What a user should know, where the run continues from another step.
    pub(crate) fn warning(&self, step: u64) -> String {
        format!(
            "checkpoint of step {} is damaged ({}); continuing from step {step}",
            self.step, self.reason
        )
    }
}

impl Store {
    /// Checkpoints under `folder`, which is created with the first one; what lies above it must be there.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self::with_create(
            folder,
            Arc::new(|path| Ok(Box::new(File::create_new(path)?) as Box<dyn PartSink>)),
        )
    }

    /// The same, with another way of creating files.
    #[must_use]
    pub fn with_create(folder: &Path, create: Create) -> Self {
        Self { folder: folder.to_path_buf(), create }
    }

    /// Where the checkpoint of a step lies.
    #[must_use]
    pub fn path(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{step:010}"))
    }

    /// Removes what a process that died while saving or deleting left behind.
    pub fn sweep(&self) -> Result<(), TrainError> {
        let path = &self.folder;
        durable::sweep(path)
            .map(|_| ())
            .map_err(|source| TrainError::CheckpointWrite { path: path.clone(), source })
    }

    /// Writes the parts of a checkpoint and commits it with the manifest that `write` gives; returns its size in bytes.
    /// On failure nothing is left behind and the older ones are untouched.
    pub(crate) fn commit<M: Serialize>(
        &self,
        step: u64,
        write: impl FnOnce(&mut Folder) -> io::Result<M>,
    ) -> Result<u64, TrainError> {
        let target = self.path(step);
        let written =
            Folder::begin_with(&target, Arc::clone(&self.create)).and_then(|mut folder| {
                let manifest = text(&write(&mut folder)?)?;
                // A folder of the same step can only be a damaged one: good ones are never rewritten.
                folder.commit(MANIFEST, &manifest)
            });
        written.map_err(|source| TrainError::CheckpointWrite { path: target, source })
    }

    /// Writes what became known after a checkpoint was committed.
    pub(crate) fn replace_manifest(
        &self,
        step: u64,
        manifest: &impl Serialize,
    ) -> Result<(), TrainError> {
        let folder = self.path(step);
        text(manifest)
            .and_then(|text| {
                durable::replace_manifest(&folder, MANIFEST, &text, Some(&self.create))
            })
            .map_err(|source| TrainError::CheckpointWrite { path: folder, source })
    }

    /// Steps of all committed checkpoints, oldest first; damaged ones included.
    pub fn steps(&self) -> Result<Vec<u64>, TrainError> {
        let mut steps: Vec<u64> = self
            .children()?
            .iter()
            .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
            .collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The latest checkpoint that is as it was written, and those that were passed over because they are not.
    pub(crate) fn latest_by<T>(
        &self,
        load: impl Fn(u64) -> Result<T, TrainError>,
    ) -> Result<(Option<T>, Vec<Refused>), TrainError> {
        let mut refused = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            match load(step) {
                Ok(found) => return Ok((Some(found), refused)),
                Err(TrainError::CheckpointDamaged { reason, .. }) => {
                    refused.push(Refused { step, reason });
                }
                Err(other) => return Err(other),
            }
        }
        Ok((None, refused))
    }

    /// Whether there is a checkpoint of that step.
    #[must_use]
    pub fn contains(&self, step: u64) -> bool {
        self.path(step).exists()
    }

    /// Removes a checkpoint.
    pub fn delete(&self, step: u64) -> Result<(), TrainError> {
        let path = self.path(step);
        durable::remove(&path).map_err(|source| TrainError::CheckpointWrite { path, source })
    }

    fn children(&self) -> Result<Vec<PathBuf>, TrainError> {
        let read = |folder: &Path| -> io::Result<Vec<PathBuf>> {
            fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
        };
        match read(&self.folder) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other
                .map_err(|source| TrainError::CheckpointRead { path: self.folder.clone(), source }),
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn text(manifest: &impl Serialize) -> io::Result<Vec<u8>> {
    serde_json::to_vec_pretty(manifest).map_err(io::Error::from)
}

/// Reads the manifest of the checkpoint in `folder`, whose format is at most the `known` one. Of a newer one no more is
/// read than that it is newer: its fields may be others.
pub(crate) fn read_manifest<T: DeserializeOwned>(
    folder: &Path,
    known: u32,
) -> Result<T, TrainError> {
    let path = folder.join(MANIFEST);
    let damaged = |reason: String| damaged(folder, format!("{MANIFEST}: {reason}"));
    let length = fs::metadata(&path).map_err(|error| damaged(error.to_string()))?.len();
    if length > LONGEST_MANIFEST {
        return Err(damaged(format!("{length} bytes long")));
    }
    let bytes = fs::read(&path).map_err(|error| damaged(error.to_string()))?;
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    if let Some(found) = format.filter(|found| *found > u64::from(known)) {
        let program = value.get("program").and_then(serde_json::Value::as_str);
        let program = program.unwrap_or("of a later version").to_owned();
        return Err(TrainError::CheckpointNewer {
            path: folder.to_path_buf(),
            found,
            known,
            program,
        });
    }
    serde_json::from_value(value).map_err(|error| damaged(error.to_string()))
}

/// Reads a part of the checkpoint in `folder`, checksum verified.
pub(crate) fn read_part(folder: &Path, name: &str, sum: &FileSum) -> Result<Vec<u8>, TrainError> {
    durable::read_part(folder, name, sum)
        .map_err(|damage: Damage| damaged(folder, damage.to_string()))
}

pub(crate) fn damaged(folder: &Path, reason: String) -> TrainError {
    TrainError::CheckpointDamaged { path: folder.to_path_buf(), reason }
}
