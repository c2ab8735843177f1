//! Checkpoints of a sparse model: the weights that were touched, their state, and the place in the stream.
//!
//! Most of 33 million weights are never touched, so a file holds numbers and values of those that were.
//! A checkpoint is written into a hidden folder, every file synced, the manifest with all checksums
//! last, and becomes visible by one rename: `kill -9` at any moment leaves either the checkpoint or a
//! hidden folder that the next save sweeps away.

use crate::{
    TrainError,
    rows::{Place, Plan, Spec, Totals},
};
use paceline_cluster::TaskId;
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_runs::{FinalWeights, FolderWatch, Leg, RunsError, write_atomically};
use paceline_strategies::sparse::Bookmark;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

const WEIGHTS: &str = "weights.safetensors";
const MANIFEST: &str = "manifest.json";
/// Version of the format; another one is refused.
const FORMAT: u32 = 1;
/// What the manifest says it is, so that no other model takes it for its own.
const KIND: &str = "sparse";
/// Longest manifest taken for one. Bytes.
const LONGEST_MANIFEST: u64 = 1 << 20;

/// Where a run stood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// What the run was asked for; decides what a weight's number means.
    pub spec: Spec,
    /// Updates done.
    pub step: u64,
    /// Rows learned from.
    pub rows: u64,
    /// Where the next row is.
    pub place: Place,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Mean loss of held-out rows at this point, if they were scored.
    pub test_loss: Option<f64>,
    /// How far each worker had read, where there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<(TaskId, Bookmark)>,
    /// How the rows so far were predicted before they were learned from, as far as that is known.
    #[serde(default)]
    pub totals: Option<Totals>,
    /// The stretches the run was trained in up to here; the last one is not over.
    #[serde(default)]
    pub legs: Vec<Leg>,
}

impl Checkpoint {
    /// All that was done up to here, as one stretch.
    pub(crate) fn whole(&self) -> Leg {
        Leg {
            seconds: self.seconds,
            examples: self.rows,
            steps: self.step,
            examples_per_second: self.rows as f64 / self.seconds.max(1e-9),
            ..Leg::default()
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    kind: String,
    program: String,
    checkpoint: Checkpoint,
    bytes: u64,
    sha256: String,
}

/// A checkpoint on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its folder.
    pub path: PathBuf,
    /// Updates done.
    pub step: u64,
}

/// The checkpoints in a folder, oldest first.
///
/// # Errors
/// The folder cannot be read; one that is not there holds none.
pub fn checkpoints(folder: &Path) -> Result<Vec<Kept>, TrainError> {
    let failed = |source| TrainError::CheckpointList { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut kept = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let step = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        if let Some(step) = step {
            kept.push(Kept { path, step });
        }
    }
    kept.sort_by_key(|kept| kept.step);
    Ok(kept)
}

/// The checkpoint that a path means: itself, or the latest of a run folder or of its `checkpoints`.
///
/// # Errors
/// There is none.
pub fn resolve(path: &Path) -> Result<PathBuf, TrainError> {
    if path.join(WEIGHTS).is_file() {
        return Ok(path.to_owned());
    }
    for folder in [path.join("checkpoints"), path.to_owned()] {
        if let Some(latest) = checkpoints(&folder)?.pop() {
            return Ok(latest.path);
        }
    }
    Err(TrainError::NoCheckpoint { path: path.to_owned() })
}

/// Writes a checkpoint into `folder` and removes all but the latest `keep`; gives its size in bytes.
pub(crate) fn save(
    folder: &Path,
    checkpoint: &Checkpoint,
    model: &SparseLogistic,
    keep: usize,
) -> Result<u64, TrainError> {
    let target = path_of(folder, checkpoint.step);
    let temporary = folder.join(format!(".saving-{}", std::process::id()));
    let written = create_if_missing(folder)
        .and_then(|()| remove_if_there(&temporary))
        .and_then(|()| fs::create_dir(&temporary))
        .and_then(|()| write(&temporary, checkpoint, model))
        .and_then(|bytes| {
            remove_if_there(&target)?;
            fs::rename(&temporary, &target)?;
            File::open(folder)?.sync_all()?;
            Ok(bytes)
        });
    let bytes = written.map_err(|source| {
        // Best effort: the first failure is the one to report.
        let _ = remove_if_there(&temporary);
        TrainError::CheckpointWrite { path: target, source }
    })?;
    let kept = checkpoints(folder)?;
    for old in &kept[..kept.len().saturating_sub(keep.max(1))] {
        // Hidden first, so that a half-removed folder is never taken for a checkpoint.
        let hidden = folder.join(format!(".deleting-{}", old.step));
        let removed = fs::rename(&old.path, &hidden).and_then(|()| fs::remove_dir_all(&hidden));
        removed.map_err(|source| TrainError::CheckpointWrite { path: old.path.clone(), source })?;
    }
    Ok(bytes)
}

fn write(folder: &Path, checkpoint: &Checkpoint, model: &SparseLogistic) -> io::Result<u64> {
    let file = File::create(folder.join(WEIGHTS))?;
    let mut out =
        Summing { out: BufWriter::with_capacity(1 << 20, file), sum: Sha256::new(), bytes: 0 };
    write_weights(&mut out, model)?;
    let sha256 = hex(&out.sum.finalize());
    let bytes = out.bytes;
    out.out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    let manifest = Manifest {
        format: FORMAT,
        kind: KIND.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        checkpoint: checkpoint.clone(),
        bytes,
        sha256,
    };
    let mut file = File::create(folder.join(MANIFEST))?;
    file.write_all(&serde_json::to_vec_pretty(&manifest).map_err(io::Error::from)?)?;
    file.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(bytes)
}

/// Writes the touched slots as one safetensors file, section after section: a copy in memory would
/// double the memory of the model at the worst moment.
fn write_weights(out: &mut impl Write, model: &SparseLogistic) -> io::Result<()> {
    let (table, rule) = (model.table(), model.rule());
    let touched = || (0..table.len()).filter(|&index| table.get(index) != [0.0; 2]);
    // Other threads only score meanwhile, so the count stays true.
    let count = touched().count();
    let mut header = Map::new();
    let about = json!({ "format": "paceline", "kind": KIND, "width": table.len().to_string() });
    header.insert("__metadata__".into(), about);
    let names = ["indices", "weights"].into_iter().chain(rule.slots().iter().map(|slot| slot.0));
    for (number, name) in names.enumerate() {
        let dtype = if number == 0 { "U32" } else { "F32" };
        let range = [4 * count * number, 4 * count * (number + 1)];
        header.insert(
            name.into(),
            json!({ "dtype": dtype, "shape": [count], "data_offsets": range }),
        );
    }
    let mut text = serde_json::to_vec(&header).map_err(io::Error::from)?;
    text.resize(text.len().next_multiple_of(8), b' '); // the data must start at a multiple of 8
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(&text)?;
    let mut words = Words { out, block: Vec::with_capacity(64 << 10) };
    for index in touched() {
        words.push((index as u32).to_le_bytes())?;
    }
    for index in touched() {
        words.push(rule.weight(table.get(index)).to_le_bytes())?;
    }
    for &(_, part) in rule.slots() {
        for index in touched() {
            words.push(table.get(index)[part].to_le_bytes())?;
        }
    }
    words.flush()
}

/// Gathers words into blocks, since every write is also a step of the checksum.
struct Words<'a, W: Write> {
    out: &'a mut W,
    block: Vec<u8>,
}

impl<W: Write> Words<'_, W> {
    #[inline]
    fn push(&mut self, word: [u8; 4]) -> io::Result<()> {
        self.block.extend_from_slice(&word);
        if self.block.len() < 64 << 10 { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

/// Reads what a checkpoint says about itself.
///
/// # Errors
/// It is damaged, of another version, or not there.
pub fn load(path: &Path) -> Result<Checkpoint, TrainError> {
    Ok(manifest(path)?.checkpoint)
}

fn manifest(path: &Path) -> Result<Manifest, TrainError> {
    let damaged = |reason: String| TrainError::CheckpointDamaged { path: path.to_owned(), reason };
    let file = path.join(MANIFEST);
    let failed = |source| TrainError::CheckpointRead { path: file.clone(), source };
    let length = fs::metadata(&file).map_err(failed)?.len();
    if length > LONGEST_MANIFEST {
        return Err(damaged(format!("{MANIFEST} is {length} bytes long")));
    }
    let bytes = fs::read(&file).map_err(failed)?;
    let unread = |error| damaged(format!("{MANIFEST}: {error}"));
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(unread)?;
    // Models of examples name themselves elsewhere; their checkpoints are sound and not for here.
    if let Some(model) = value.pointer("/meta/model").and_then(serde_json::Value::as_str) {
        let model = model.to_owned();
        return Err(TrainError::NotSparse { path: path.to_owned(), model });
    }
    let manifest: Manifest = serde_json::from_value(value).map_err(unread)?;
    if manifest.format != FORMAT || manifest.kind != KIND {
        return Err(damaged(format!(
            "{MANIFEST} is of kind `{}`, format {}; this program reads `{KIND}`, format {FORMAT}",
            manifest.kind, manifest.format
        )));
    }
    Ok(manifest)
}

/// Reads a checkpoint and its weights, every checksum verified.
///
/// # Errors
/// It is damaged, of another version, or not there.
pub fn load_model(path: &Path) -> Result<(Checkpoint, SparseLogistic), TrainError> {
    let Manifest { checkpoint, bytes, sha256, .. } = manifest(path)?;
    checkpoint.spec.check_model()?;
    let damaged = |reason: String| TrainError::CheckpointDamaged { path: path.to_owned(), reason };
    let file = path.join(WEIGHTS);
    let failed = |source| TrainError::CheckpointRead { path: file.clone(), source };
    let length = fs::metadata(&file).map_err(failed)?.len();
    if length != bytes {
        return Err(damaged(format!("{WEIGHTS} is {length} bytes long, written as {bytes}")));
    }
    let content = fs::read(&file).map_err(failed)?;
    if hex(&Sha256::digest(&content)) != sha256 {
        return Err(damaged(format!("the checksum of {WEIGHTS} differs")));
    }
    let (_, settings) = checkpoint.spec.rule()?;
    let spec = &checkpoint.spec;
    let model = SparseLogistic::new(spec.hashing.bits, &spec.optimizer, settings)?;
    fill(&content, &model).map_err(damaged)?;
    Ok((checkpoint, model))
}

fn fill(content: &[u8], model: &SparseLogistic) -> Result<(), String> {
    let file = SafeTensors::deserialize(content).map_err(|error| error.to_string())?;
    let tensor = |name: &str, dtype: Dtype| {
        let found = file.tensor(name).map_err(|error| format!("{name}: {error}"))?;
        if found.dtype() != dtype || found.shape().len() != 1 {
            return Err(format!("{name} is {:?} {:?}", found.dtype(), found.shape()));
        }
        Ok(found.data().as_chunks::<4>().0.to_vec())
    };
    let indices = tensor("indices", Dtype::U32)?;
    let weights = tensor("weights", Dtype::F32)?;
    let mut parts = Vec::new();
    for &(name, part) in model.rule().slots() {
        parts.push((part, tensor(name, Dtype::F32)?));
    }
    if weights.len() != indices.len() || parts.iter().any(|(_, part)| part.len() != indices.len()) {
        return Err("tensors of different lengths".to_owned());
    }
    let table = model.table();
    for (at, index) in indices.iter().enumerate() {
        let index = u32::from_le_bytes(*index) as usize;
        if index >= table.len() {
            return Err(format!("weight number {index} of {}", table.len()));
        }
        let mut slot = [f32::from_le_bytes(weights[at]), 0.0];
        for (part, values) in &parts {
            slot[*part] = f32::from_le_bytes(values[at]);
        }
        if !slot[0].is_finite() || !slot[1].is_finite() {
            return Err(format!("weight {index} is not finite"));
        }
        table.set(index, slot);
    }
    Ok(())
}

/// Makes the folder of checkpoints, but not the run's: one that was removed must not come back half.
fn create_if_missing(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        created => created,
    }
}

/// Where the checkpoint of a step lies.
pub(crate) fn path_of(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("{step:010}"))
}

/// Whether the checkpoint of a step is on disk with its weights, as far as their size tells.
pub(crate) fn is_whole(folder: &Path, step: u64) -> bool {
    let path = path_of(folder, step);
    manifest(&path).is_ok_and(|manifest| {
        fs::metadata(path.join(WEIGHTS)).is_ok_and(|file| file.len() == manifest.bytes)
    })
}

/// Writes the weights that a run ended with into its folder or, where that fails, somewhere else; the error
/// says where.
pub(crate) fn secure(
    watch: &mut FolderWatch,
    plan: &Plan,
    checkpoint: &Checkpoint,
    model: &SparseLogistic,
) -> Result<(), RunsError> {
    let folder = watch.run().checkpoints_path();
    let cause = |error: &dyn std::error::Error| {
        error.source().map_or_else(|| error.to_string(), ToString::to_string)
    };
    let reason = match watch.removed() {
        Some(removed) => removed.to_owned(),
        None => match save(&folder, checkpoint, model, usize::MAX) {
            Ok(_) => return Ok(()),
            Err(error) => cause(&error),
        },
    };
    let (run, step) = (watch.run().clone(), checkpoint.step);
    let lost = FinalWeights { run, step, path: path_of(&folder, step), reason };
    Err(lost.rescue(|place| {
        place.write_plan(plan).map_err(|error| cause(&error))?;
        let saved = save(&place.checkpoints_path(), checkpoint, model, 1);
        saved.map(drop).map_err(|error| cause(&error))
    }))
}

/// Adds to a checkpoint what became known after it was written.
pub(crate) fn amend(
    folder: &Path,
    step: u64,
    change: impl FnOnce(&mut Checkpoint),
) -> Result<(), TrainError> {
    let path = path_of(folder, step);
    let mut manifest = manifest(&path)?;
    change(&mut manifest.checkpoint);
    let text = serde_json::to_vec_pretty(&manifest).expect("a manifest is plain data");
    Ok(write_atomically(&path.join(MANIFEST), &text)?)
}

fn remove_if_there(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
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
