//! Checkpoints on disk: committed whole or not at all.
//!
//! A checkpoint is a folder of named parts and a manifest with their checksums; what the parts are is the model's
//! affair (`dense.rs` here, `checkpoint.rs` of rows). It is written into a hidden folder, every file synced, the
//! manifest last, and becomes visible by one rename. So `kill -9` at any moment leaves either the checkpoint or a
//! hidden folder that the next start sweeps away. Deleting renames first, for the same reason.

use super::manifest::FileSum;
use crate::TrainError;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

pub(super) const MANIFEST: &str = "manifest.json";
/// Longest manifest taken for one; a real one has a few kilobytes.
const LONGEST_MANIFEST: u64 = 16 << 20;
/// Bytes gathered before they go to the file.
const BUFFER: usize = 256 << 10;

/// A file being written: what a checkpoint needs of it.
pub trait Sink: Write + Send {
    /// Makes everything written durable.
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Opens files for writing; tests put a failing disk here.
pub type Create = Arc<dyn Fn(&Path) -> io::Result<Box<dyn Sink>> + Send + Sync>;

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
            Arc::new(|path| Ok(Box::new(File::create_new(path)?) as Box<dyn Sink>)),
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
        for path in self.children()? {
            let hidden =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if hidden {
                fs::remove_dir_all(&path)
                    .map_err(|source| TrainError::CheckpointWrite { path, source })?;
            }
        }
        Ok(())
    }

    /// Writes and commits a checkpoint; returns its size in bytes. On failure nothing is left behind
    /// and the older ones are untouched.
    pub(crate) fn commit(
        &self,
        step: u64,
        write: impl FnOnce(&mut Draft<'_>) -> io::Result<()>,
    ) -> Result<u64, TrainError> {
        let target = self.path(step);
        let temporary = self.folder.join(format!(".saving-{step:010}-{}", std::process::id()));
        let mut draft = Draft { create: &self.create, folder: &temporary, bytes: 0 };
        let written = create_if_missing(&self.folder)
            .and_then(|()| remove_if_there(&temporary))
            .and_then(|()| fs::create_dir(&temporary))
            .and_then(|()| write(&mut draft))
            .and_then(|()| {
                File::open(&temporary)?.sync_all()?;
                // A folder of the same step can only be a damaged one: good ones are never rewritten.
                remove_if_there(&target)?;
                fs::rename(&temporary, &target)?;
                File::open(&self.folder)?.sync_all()
            });
        let bytes = draft.bytes;
        written.map(|()| bytes).map_err(|source| {
            // Best effort: the next start sweeps again.
            let _ = remove_if_there(&temporary);
            TrainError::CheckpointWrite { path: target, source }
        })
    }

    /// Writes what became known after a checkpoint was committed.
    pub(crate) fn replace_manifest(
        &self,
        step: u64,
        manifest: &impl Serialize,
    ) -> Result<(), TrainError> {
        let folder = self.path(step);
        // Beside the folders, where `sweep` finds what a process that died left behind.
        let temporary = self.folder.join(format!(".rating-{step:010}-{}", std::process::id()));
        let mut draft = Draft { create: &self.create, folder: &temporary, bytes: 0 };
        remove_if_there(&temporary)
            .and_then(|()| fs::create_dir(&temporary))
            .and_then(|()| draft.manifest(manifest))
            .and_then(|()| {
                fs::rename(temporary.join(MANIFEST), folder.join(MANIFEST))?;
                fs::remove_dir(&temporary)?;
                File::open(&folder)?.sync_all()
            })
            .map_err(|source| {
                let _ = remove_if_there(&temporary);
                TrainError::CheckpointWrite { path: folder, source }
            })
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

    /// Whether a part is there, as far as its size tells.
    pub(crate) fn has_part(&self, step: u64, name: &str, sum: &FileSum) -> bool {
        fs::metadata(self.path(step).join(name)).is_ok_and(|file| file.len() == sum.bytes)
    }

    /// Whether there is a checkpoint of that step.
    #[must_use]
    pub fn contains(&self, step: u64) -> bool {
        self.path(step).exists()
    }

    /// Removes a checkpoint.
    pub fn delete(&self, step: u64) -> Result<(), TrainError> {
        let path = self.path(step);
        let doomed = self.folder.join(format!(".deleting-{step:010}-{}", std::process::id()));
        remove_if_there(&doomed)
            .and_then(|()| fs::rename(&path, &doomed))
            .and_then(|()| fs::remove_dir_all(&doomed))
            .map_err(|source| TrainError::CheckpointWrite { path, source })
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

/// A checkpoint that is being written.
pub(crate) struct Draft<'a> {
    create: &'a Create,
    folder: &'a Path,
    bytes: u64,
}

impl Draft<'_> {
    /// Writes a part in one streaming pass that also computes its checksum.
    pub(crate) fn part(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<FileSum> {
        let file = (self.create)(&self.folder.join(name))?;
        let buffered = BufWriter::with_capacity(BUFFER, file);
        let mut out = Summing { out: buffered, sum: Sha256::new(), bytes: 0 };
        write(&mut out)?;
        out.out.into_inner().map_err(io::IntoInnerError::into_error)?.sync()?;
        self.bytes += out.bytes;
        Ok(FileSum { bytes: out.bytes, sha256: hex(&out.sum.finalize()) })
    }

    /// Writes the manifest: last, because it makes the checkpoint one.
    pub(crate) fn manifest(&mut self, manifest: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(manifest).map_err(io::Error::from)?;
        let mut file = (self.create)(&self.folder.join(MANIFEST))?;
        file.write_all(&text)?;
        self.bytes += text.len() as u64;
        file.sync()
    }
}

struct Summing<W> {
    out: W,
    sum: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all(bytes)?;
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn hex(digest: &[u8]) -> String {
    use std::fmt::Write as _;
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
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
    let path = folder.join(name);
    let damaged = |reason: String| damaged(folder, format!("{name}: {reason}"));
    let length = fs::metadata(&path).map_err(|error| damaged(error.to_string()))?.len();
    if length != sum.bytes {
        return Err(damaged(format!("{length} bytes long, written as {}", sum.bytes)));
    }
    let bytes = fs::read(&path).map_err(|error| damaged(error.to_string()))?;
    if hex(&Sha256::digest(&bytes)) != sum.sha256 {
        return Err(damaged("checksum differs".to_string()));
    }
    Ok(bytes)
}

pub(crate) fn damaged(folder: &Path, reason: String) -> TrainError {
    TrainError::CheckpointDamaged { path: folder.to_path_buf(), reason }
}

/// Makes the folder of checkpoints, but not the run's: one that was removed must not come back half.
fn create_if_missing(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        created => created,
    }
}

fn remove_if_there(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
