//! Checkpoints on disk: committed whole or not at all.
//!
//! A checkpoint is written into a hidden folder, every file synced, the manifest with all checksums
//! last, and becomes visible by one rename. So `kill -9` at any moment leaves either the checkpoint
//! or a hidden folder that the next start sweeps away. Deleting renames first, for the same reason.

use super::{
    manifest::{Evaluated, FORMAT, FileSum, Manifest, Meta},
    policy::Kept,
    tensors::{self, Group, Unfit},
};
use crate::TrainError;
use paceline_models::{
    Layout,
    optimizer::{Optimizer, State},
};
use safetensors::SafeTensors;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const MANIFEST: &str = "manifest.json";
/// Longest manifest taken for one; a real one has a few kilobytes.
const LONGEST_MANIFEST: u64 = 16 << 20;

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

/// Everything a checkpoint holds.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Where it stands and what it belongs to.
    pub meta: Meta,
    /// The weights.
    pub params: Vec<f32>,
    /// The optimiser's state.
    pub state: State,
}

/// A checkpoint that was there but could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its step, as its folder says.
    pub step: u64,
    /// What is wrong with it.
    pub reason: String,
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
    pub fn save(
        &self,
        meta: &Meta,
        layout: &Layout,
        optimizer: &Optimizer,
        params: &[f32],
        state: &State,
    ) -> Result<u64, TrainError> {
        let target = self.path(meta.step);
        let temporary =
            self.folder.join(format!(".saving-{:010}-{}", meta.step, std::process::id()));
        let written = create_if_missing(&self.folder)
            .and_then(|()| remove_if_there(&temporary))
            .and_then(|()| fs::create_dir(&temporary))
            .and_then(|()| self.write_files(&temporary, meta, layout, optimizer, params, state))
            .and_then(|bytes| {
                // A folder of the same step can only be a damaged one: good ones are never rewritten.
                remove_if_there(&target)?;
                fs::rename(&temporary, &target)?;
                File::open(&self.folder)?.sync_all()?;
                Ok(bytes)
            });
        written.map_err(|source| {
            // Best effort: the next start sweeps again.
            let _ = remove_if_there(&temporary);
            TrainError::CheckpointWrite { path: target, source }
        })
    }

    fn write_files(
        &self,
        folder: &Path,
        meta: &Meta,
        layout: &Layout,
        optimizer: &Optimizer,
        params: &[f32],
        state: &State,
    ) -> io::Result<u64> {
        let mut files = BTreeMap::new();
        let weights = [Group { prefix: "", values: params }];
        files.insert(
            WEIGHTS.to_string(),
            self.write_tensors(&folder.join(WEIGHTS), layout, &weights)?,
        );
        let slots = optimizer.entry().slots;
        if !slots.is_empty() {
            let prefixes: Vec<String> = slots.iter().map(|slot| format!("{slot}/")).collect();
            let groups: Vec<Group<'_>> = prefixes
                .iter()
                .zip(state.buffers())
                .map(|(prefix, values)| Group { prefix, values })
                .collect();
            let sum = self.write_tensors(&folder.join(OPTIMIZER), layout, &groups)?;
            files.insert(OPTIMIZER.to_string(), sum);
        }
        let mut bytes: u64 = files.values().map(|sum| sum.bytes).sum();
        let manifest = Manifest {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").to_string(),
            meta: meta.clone(),
            files,
        };
        let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::from)?;
        bytes += text.len() as u64;
        let mut file = (self.create)(&folder.join(MANIFEST))?;
        file.write_all(&text)?;
        file.sync()?;
        File::open(folder)?.sync_all()?;
        Ok(bytes)
    }

    fn write_tensors(
        &self,
        path: &Path,
        layout: &Layout,
        groups: &[Group<'_>],
    ) -> io::Result<FileSum> {
        let mut out = BufWriter::with_capacity(256 << 10, (self.create)(path)?);
        let sum = tensors::write(&mut out, layout, groups, false)?;
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync()?;
        Ok(sum)
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

    /// What the policy wants to know about those whose manifest can be read.
    pub fn kept(&self) -> Result<Vec<Kept>, TrainError> {
        Ok(self
            .steps()?
            .into_iter()
            .filter_map(|step| {
                let manifest = self.manifest(step).ok()?;
                let loss = manifest.meta.evaluation.map(|score| score.loss);
                Some(Kept { step, loss })
            })
            .collect())
    }

    /// The step of the checkpoint with the lowest test loss.
    pub fn best(&self) -> Result<Option<u64>, TrainError> {
        Ok(self
            .kept()?
            .into_iter()
            .filter_map(|kept| Some((kept.loss?, kept.step)))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
            .map(|(_, step)| step))
    }

    /// Whether the checkpoint of that step is on disk with all its files, as far as their sizes tell.
    #[must_use]
    pub fn is_whole(&self, step: u64) -> bool {
        self.manifest(step).is_ok_and(|manifest| {
            manifest.files.iter().all(|(name, sum)| {
                fs::metadata(self.path(step).join(name)).is_ok_and(|file| file.len() == sum.bytes)
            })
        })
    }

    /// Whether there is a checkpoint of that step.
    #[must_use]
    pub fn contains(&self, step: u64) -> bool {
        self.path(step).exists()
    }

    /// Adds a test score that came after the checkpoint was written.
    pub fn rate(&self, step: u64, score: Evaluated) -> Result<(), TrainError> {
        let mut manifest = self.manifest(step)?;
        manifest.meta.evaluation = Some(score);
        let folder = self.path(step);
        // Beside the folders, where `sweep` finds what a process that died left behind.
        let temporary = self.folder.join(format!(".rating-{step:010}-{}", std::process::id()));
        let written = serde_json::to_vec_pretty(&manifest).map_err(io::Error::from);
        written
            .and_then(|text| {
                remove_if_there(&temporary)?;
                fs::create_dir(&temporary)?;
                let new = temporary.join(MANIFEST);
                let mut file = (self.create)(&new)?;
                file.write_all(&text)?;
                file.sync()?;
                fs::rename(&new, folder.join(MANIFEST))?;
                fs::remove_dir(&temporary)?;
                File::open(&folder)?.sync_all()
            })
            .map_err(|source| {
                let _ = remove_if_there(&temporary);
                TrainError::CheckpointWrite { path: folder, source }
            })
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

    /// The latest checkpoint whose every byte is as written, and those that were passed over.
    pub fn latest(
        &self,
        layout: &Layout,
        optimizer: &Optimizer,
    ) -> Result<(Option<Checkpoint>, Vec<Refused>), TrainError> {
        let mut refused = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            match self.load(step, layout, optimizer) {
                Ok(checkpoint) => return Ok((Some(checkpoint), refused)),
                Err(TrainError::CheckpointDamaged { reason, .. }) => {
                    refused.push(Refused { step, reason });
                }
                Err(other) => return Err(other),
            }
        }
        Ok((None, refused))
    }

    /// Reads one checkpoint, every checksum verified.
    pub fn load(
        &self,
        step: u64,
        layout: &Layout,
        optimizer: &Optimizer,
    ) -> Result<Checkpoint, TrainError> {
        let manifest = self.manifest(step)?;
        if manifest.meta.optimizer != optimizer.entry().name {
            return Err(TrainError::CheckpointOptimizer {
                path: self.path(step),
                found: manifest.meta.optimizer,
                wanted: optimizer.entry().name.to_string(),
            });
        }
        let mut params = vec![0.0; layout.len()];
        self.fill(step, &manifest, WEIGHTS, layout, &mut [("".to_string(), &mut params)])?;
        let mut state = optimizer.state();
        let slots = optimizer.entry().slots;
        if !slots.is_empty() {
            let mut groups: Vec<(String, &mut [f32])> = slots
                .iter()
                .zip(state.buffers_mut())
                .map(|(slot, buffer)| (format!("{slot}/"), &mut **buffer))
                .collect();
            self.fill(step, &manifest, OPTIMIZER, layout, &mut groups)?;
        }
        Ok(Checkpoint { meta: manifest.meta, params, state })
    }

    /// Reads the weights alone: what `export` and evaluation need.
    pub fn load_weights(&self, step: u64, layout: &Layout) -> Result<(Meta, Vec<f32>), TrainError> {
        let manifest = self.manifest(step)?;
        let mut params = vec![0.0; layout.len()];
        self.fill(step, &manifest, WEIGHTS, layout, &mut [("".to_string(), &mut params)])?;
        Ok((manifest.meta, params))
    }

    /// Reads a checkpoint's manifest.
    pub fn manifest(&self, step: u64) -> Result<Manifest, TrainError> {
        let path = self.path(step).join(MANIFEST);
        let damaged = |reason: String| self.damaged(step, format!("{MANIFEST}: {reason}"));
        let length = fs::metadata(&path).map_err(|error| damaged(error.to_string()))?.len();
        if length > LONGEST_MANIFEST {
            return Err(damaged(format!("{length} bytes long")));
        }
        let bytes = fs::read(&path).map_err(|error| damaged(error.to_string()))?;
        let manifest: Manifest =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if manifest.format != FORMAT {
            return Err(damaged(format!(
                "format {}, this program reads {FORMAT}",
                manifest.format
            )));
        }
        if manifest.meta.step != step {
            return Err(damaged(format!("it says step {}", manifest.meta.step)));
        }
        Ok(manifest)
    }

    fn fill(
        &self,
        step: u64,
        manifest: &Manifest,
        name: &str,
        layout: &Layout,
        groups: &mut [(String, &mut [f32])],
    ) -> Result<(), TrainError> {
        let damaged = |reason: String| self.damaged(step, format!("{name}: {reason}"));
        let path = self.path(step).join(name);
        let wanted = manifest
            .files
            .get(name)
            .ok_or_else(|| damaged("not named in the manifest".to_string()))?;
        let length = fs::metadata(&path).map_err(|error| damaged(error.to_string()))?.len();
        if length != wanted.bytes {
            return Err(damaged(format!("{length} bytes, written as {}", wanted.bytes)));
        }
        let bytes = fs::read(&path).map_err(|error| damaged(error.to_string()))?;
        if tensors::sum(&bytes) != *wanted {
            return Err(damaged("checksum differs".to_string()));
        }
        let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
        for (prefix, values) in groups {
            tensors::read(&file, layout, prefix, values).map_err(|unfit| match unfit {
                Unfit::Missing(tensor) => TrainError::CheckpointTensor {
                    path: path.clone(),
                    model: manifest.meta.model.clone(),
                    tensor,
                    found: "nothing".to_string(),
                    wanted: "it".to_string(),
                },
                Unfit::Shape { name, found, wanted } => TrainError::CheckpointTensor {
                    path: path.clone(),
                    model: manifest.meta.model.clone(),
                    tensor: name,
                    found,
                    wanted,
                },
            })?;
        }
        Ok(())
    }

    fn damaged(&self, step: u64, reason: String) -> TrainError {
        TrainError::CheckpointDamaged { path: self.path(step), reason }
    }

    fn children(&self) -> Result<Vec<PathBuf>, TrainError> {
        let read = |folder: &Path| -> io::Result<Vec<PathBuf>> {
            fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
        };
        match read(&self.folder) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other
                .map_err(|source| TrainError::CheckpointList { path: self.folder.clone(), source }),
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Writes weights alone as one safetensors file, which appears whole or not at all; the file says how
/// the pixels they were trained on were scaled.
pub(crate) fn write_weights(
    path: &Path,
    layout: &Layout,
    params: &[f32],
    imagenet_input: bool,
) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = File::create(&temporary).and_then(|file| {
        let mut out = BufWriter::with_capacity(256 << 10, file);
        let groups = [Group { prefix: "", values: params }];
        tensors::write(&mut out, layout, &groups, imagenet_input)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    });
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        // Best effort: the first failure is the one to report.
        let _ = fs::remove_file(&temporary);
    })
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
