//! What a checkpoint of a dense model holds: all weights, the optimiser's state, where the run stood.

use super::{
    manifest::{Evaluated, FORMAT, Manifest, Meta},
    policy::Kept,
    store::{MANIFEST, Refused, Store, damaged, read_manifest, read_part},
    tensors::{self, Group, Unfit},
};
use crate::TrainError;
use paceline_models::{
    Layout, PixelScale,
    optimizer::{Optimizer, OptimizerState},
};
use paceline_store::durable::{AtomicFile, is_whole};
use safetensors::SafeTensors;
use std::{
    io::{self, BufWriter},
    path::Path,
};

const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";

/// Everything a checkpoint holds.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Where it stands and what it belongs to.
    pub meta: Meta,
    pub params: Vec<f32>,
    pub state: OptimizerState,
}

impl Store {
    /// Writes and commits a checkpoint; returns its size in bytes. On failure nothing is left behind
    /// and the older ones are untouched.
    pub fn save(
        &self,
        meta: &Meta,
        layout: &Layout,
        optimizer: &Optimizer,
        params: &[f32],
        state: &OptimizerState,
    ) -> Result<u64, TrainError> {
        self.commit(meta.step, |draft| {
            let weights = [Group { prefix: "", values: params }];
            draft.part(WEIGHTS, |out| tensors::write(out, layout, &weights, PixelScale::Unit))?;
            let slots = optimizer.entry().slots;
            if !slots.is_empty() {
                let prefixes: Vec<String> = slots.iter().map(|slot| format!("{slot}/")).collect();
                let groups: Vec<Group<'_>> = prefixes
                    .iter()
                    .zip(state.buffers())
                    .map(|(prefix, values)| Group { prefix, values })
                    .collect();
                draft.part(OPTIMIZER, |out| {
                    tensors::write(out, layout, &groups, PixelScale::Unit)
                })?;
            }
            Ok(Manifest {
                format: FORMAT,
                program: env!("CARGO_PKG_VERSION").to_string(),
                meta: meta.clone(),
                files: draft.parts().clone(),
            })
        })
    }

    /// What the policy wants to know about those whose manifest can be read.
    ///
    /// # Errors
    /// One of them is of a newer version: it may be the best, and must not be deleted.
    pub fn kept(&self) -> Result<Vec<Kept>, TrainError> {
        let mut kept = Vec::new();
        for step in self.steps()? {
            match self.manifest(step) {
                Ok(manifest) => {
                    let loss = manifest.meta.evaluation.map(|score| score.loss);
                    kept.push(Kept { step, loss });
                }
                Err(newer @ TrainError::CheckpointNewer { .. }) => return Err(newer),
                Err(_) => {}
            }
        }
        Ok(kept)
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
        self.manifest(step).is_ok_and(|manifest| is_whole(&self.path(step), &manifest.files))
    }

    /// Adds a test score that came after the checkpoint was written.
    pub fn rate(&self, step: u64, score: Evaluated) -> Result<(), TrainError> {
        let mut manifest = self.manifest(step)?;
        manifest.meta.evaluation = Some(score);
        self.replace_manifest(step, &manifest)
    }

    /// The latest checkpoint whose every byte is as written, and those that were passed over.
    pub fn latest(
        &self,
        layout: &Layout,
        optimizer: &Optimizer,
    ) -> Result<(Option<Checkpoint>, Vec<Refused>), TrainError> {
        self.latest_by(|step| self.load(step, layout, optimizer))
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
        let folder = self.path(step);
        let manifest: Manifest = read_manifest(&folder, FORMAT)?;
        let damaged = |reason: String| Err(damaged(&folder, format!("{MANIFEST}: {reason}")));
        if manifest.format != FORMAT {
            return damaged(format!("format {}, this program reads {FORMAT}", manifest.format));
        }
        if manifest.meta.step != step {
            return damaged(format!("it says step {}", manifest.meta.step));
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
        let folder = self.path(step);
        let damaged = |reason: String| damaged(&folder, format!("{name}: {reason}"));
        let wanted = manifest
            .files
            .get(name)
            .ok_or_else(|| damaged("not named in the manifest".to_string()))?;
        let bytes = read_part(&folder, name, wanted)?;
        let path = folder.join(name);
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
}

/// Writes weights alone as one safetensors file, which appears whole or not at all; the file says how
/// the pixels they were trained on were scaled.
pub(crate) fn write_weights(
    path: &Path,
    layout: &Layout,
    params: &[f32],
    pixels: PixelScale,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(256 << 10, AtomicFile::create(path)?);
    let groups = [Group { prefix: "", values: params }];
    tensors::write(&mut out, layout, &groups, pixels)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
}
