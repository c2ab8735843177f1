//! Checkpoints of a sparse model: the weights that were touched, their state, and the place in the stream.
//!
//! Most of 33 million weights are never touched, so a file holds numbers and values of those that were.
//! How it is committed is the affair of [`Store`].

use crate::{
    TrainError,
    checkpoint::{Action, Policy, Refused, Store, damaged, read_manifest, read_part},
    error::cause,
    memory,
    rows::{Plan, RowsPlace, RowsSpec, Totals, memory::Holder},
};
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_runs::{FinalWeights, FolderWatch, Leg, RunFolder, RunsError};
use paceline_store::durable::{self, FileSum};
use paceline_strategies::sparse::Bookmark;
use paceline_wire::TaskId;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

const WEIGHTS: &str = "weights.safetensors";
/// Version of the format; another one is refused.
const FORMAT: u32 = 1;
/// What the manifest says it is, so that no other model takes it for its own.
const KIND: &str = "sparse";
/// Where a run stood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// What the run was asked for; decides what a weight's number means.
    pub spec: RowsSpec,
    /// Updates done.
    pub step: u64,
    /// Rows learned from.
    pub rows: u64,
    /// Where the next row is.
    pub place: RowsPlace,
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
    /// Of the weights.
    #[serde(flatten)]
    sum: FileSum,
}

/// A checkpoint on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub path: PathBuf,
    /// Updates done.
    pub step: u64,
}

/// The checkpoints in a folder, oldest first.
///
/// # Errors
/// The folder cannot be read; one that is not there holds none.
pub fn checkpoints(folder: &Path) -> Result<Vec<Kept>, TrainError> {
    let store = Store::new(folder);
    let steps = store.steps()?.into_iter();
    Ok(steps.map(|step| Kept { path: store.path(step), step }).collect())
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

/// What was saved last in a run folder and is as it was written, and what was passed over because it is not.
pub(crate) fn latest<T>(
    run: &RunFolder,
    load: impl Fn(&Path) -> Result<T, TrainError>,
) -> Result<(T, Vec<Refused>), TrainError> {
    let store = Store::new(&run.checkpoints_path());
    let (found, refused) = store.latest_by(|step| load(&store.path(step)))?;
    match (found, refused.first()) {
        (Some(found), _) => Ok((found, refused)),
        (None, Some(Refused { step, reason })) => Err(damaged(&store.path(*step), reason.clone())),
        (None, None) => Err(TrainError::NoCheckpoint { path: run.path().to_owned() }),
    }
}

/// The step of the latest checkpoint of a run, where it has one.
pub(crate) fn latest_step(run: &RunFolder) -> Option<u64> {
    Store::new(&run.checkpoints_path()).steps().ok()?.pop()
}

/// Writes a checkpoint into `folder` and removes what need not be kept; gives its size in bytes.
pub(crate) fn save(
    folder: &Path,
    checkpoint: &Checkpoint,
    model: &SparseLogistic,
    policy: &Policy,
) -> Result<u64, TrainError> {
    let store = Store::new(folder);
    let bytes = store.commit(checkpoint.step, |draft| {
        let sum = draft.part(WEIGHTS, |mut out| write_weights(&mut out, model))?.clone();
        Ok(Manifest {
            format: FORMAT,
            kind: KIND.to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            checkpoint: checkpoint.clone(),
            sum,
        })
    })?;
    let present =
        store.steps()?.into_iter().map(|step| crate::checkpoint::Kept { step, loss: None });
    for action in policy.prune(&present.collect::<Vec<_>>()) {
        if let Action::Delete(step) = action {
            store.delete(step)?;
        }
    }
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
    let value: serde_json::Value = read_manifest(path, FORMAT)?;
    // Models of examples name themselves elsewhere; their checkpoints are sound and not for here.
    if let Some(model) = value.pointer("/meta/model").and_then(serde_json::Value::as_str) {
        let model = model.to_owned();
        return Err(TrainError::NotSparse { path: path.to_owned(), model });
    }
    let manifest: Manifest =
        serde_json::from_value(value).map_err(|error| damaged(path, error.to_string()))?;
    if manifest.format != FORMAT || manifest.kind != KIND {
        let reason = format!(
            "it is of kind `{}`, format {}; this program reads `{KIND}`, format {FORMAT}",
            manifest.kind, manifest.format
        );
        return Err(damaged(path, reason));
    }
    Ok(manifest)
}

/// Reads a checkpoint and its weights, every checksum verified.
///
/// # Errors
/// It is damaged, of another version, or not there.
pub fn load_model(path: &Path) -> Result<(Checkpoint, SparseLogistic), TrainError> {
    let Manifest { checkpoint, sum, .. } = manifest(path)?;
    checkpoint.spec.check_model()?;
    Holder::Process.check(checkpoint.spec.hashing.bits, memory::limit())?;
    let content = read_part(path, WEIGHTS, &sum)?;
    let (_, settings) = checkpoint.spec.rule()?;
    let spec = &checkpoint.spec;
    let model = SparseLogistic::new(spec.hashing.bits, &spec.optimizer, settings)?;
    let model = model.with_loss(spec.row_loss());
    fill(&content, &model).map_err(|reason| damaged(path, reason))?;
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

/// Whether the checkpoint of a step is on disk with its weights, as far as their size tells.
pub(crate) fn is_whole(folder: &Path, step: u64) -> bool {
    let path = Store::new(folder).path(step);
    manifest(&path).is_ok_and(|manifest| {
        durable::is_whole(&path, &durable::Parts::from([(WEIGHTS.to_owned(), manifest.sum)]))
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
    let reason = match watch.removed() {
        Some(removed) => removed.to_owned(),
        None => match save(&folder, checkpoint, model, &Policy::new(None, usize::MAX)) {
            Ok(_) => return Ok(()),
            Err(error) => cause(&error),
        },
    };
    let (run, step) = (watch.run().clone(), checkpoint.step);
    let lost = FinalWeights { run, step, path: Store::new(&folder).path(step), reason };
    Err(lost.rescue(|place| {
        place.write_plan(plan).map_err(|error| cause(&error))?;
        let saved = save(&place.checkpoints_path(), checkpoint, model, &Policy::new(None, 1));
        saved.map(drop).map_err(|error| cause(&error))
    }))
}

/// Adds to a checkpoint what became known after it was written.
pub(crate) fn amend(
    folder: &Path,
    step: u64,
    change: impl FnOnce(&mut Checkpoint),
) -> Result<(), TrainError> {
    let store = Store::new(folder);
    let mut manifest = manifest(&store.path(step))?;
    change(&mut manifest.checkpoint);
    store.replace_manifest(step, &manifest)
}
