//! Weights in and out of safetensors files: `--init` and `paceline export`.

use crate::{
    Parts, RunPlan, TrainError,
    checkpoint::{Store, write_weights},
    plan::layer_of,
};
use paceline_models::{
    Layout,
    pretrained::{self, PretrainedError},
};
use paceline_runs::RunFolder;
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

/// Which of a run's checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one of a step.
    Step(u64),
    /// The latest.
    Latest,
    /// The one with the lowest test loss, else the latest.
    Best,
}

/// What was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    pub model: String,
    /// The step of the weights.
    pub step: u64,
    /// Tensors in the file.
    pub tensors: usize,
}

/// The weights of a checkpoint, and what they belong to.
pub(crate) struct ChosenWeights {
    pub(crate) plan: RunPlan,
    pub(crate) layout: Layout,
    pub(crate) step: u64,
    pub(crate) params: Vec<f32>,
}

/// Reads the weights of a checkpoint.
pub(crate) fn choose(run: &RunFolder, which: Which) -> Result<ChosenWeights, TrainError> {
    let plan: RunPlan = run.plan()?;
    let layout = Parts::layout(&plan.spec, &plan.details.schema)?;
    let store = Store::new(&run.checkpoints_path());
    let nothing =
        || TrainError::NothingToResume { path: run.path().to_path_buf(), detail: String::new() };
    let latest = || -> Result<u64, TrainError> { store.steps()?.pop().ok_or_else(nothing) };
    let step = match which {
        Which::Step(step) => step,
        Which::Latest => latest()?,
        Which::Best => match store.best()? {
            Some(step) => step,
            None => latest()?,
        },
    };
    let (_, params) = store.load_weights(step, &layout)?;
    Ok(ChosenWeights { plan, layout, step, params })
}

/// Writes the weights of a checkpoint as one safetensors file, whole or not at all.
pub fn export(run: &RunFolder, which: Which, file: &Path) -> Result<Exported, TrainError> {
    let ChosenWeights { plan, layout, step, params } = choose(run, which)?;
    write_weights(file, &layout, &params, plan.spec.pixels())
        .map_err(|source| TrainError::CheckpointWrite { path: file.to_path_buf(), source })?;
    Ok(Exported { model: plan.spec.model, step, tensors: layout.entries().len() })
}

/// Fills `params` from a safetensors file. The last layer keeps its initial values where the file's
/// has another number of classes; everything else must be there and fit. Returns what a user should
/// know.
pub(crate) fn init_from(
    file: &Path,
    model: &str,
    layout: &Layout,
    params: &mut [f32],
) -> Result<Vec<String>, TrainError> {
    match pretrained::load(model, layout, file, params) {
        // No other program has a form of this model: then the file is one of our own.
        Err(PretrainedError::Model { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(loaded) => {
            let note = loaded.other_head.map(|classes| {
                let why = match classes {
                    0 => "the file has none".to_owned(),
                    classes => format!("the file's has {classes} classes"),
                };
                format!("the last layer starts from initial values: {why}")
            });
            return Ok(note.into_iter().collect());
        }
    }
    let bytes = pretrained::read(file)?;
    let unfit = |reason: String| TrainError::InitUnfit {
        path: file.to_path_buf(),
        model: model.to_string(),
        reason,
    };
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| unfit(error.to_string()))?;
    let head = layout
        .entries()
        .iter()
        .rev()
        .find(|entry| entry.trained)
        .map(|entry| layer_of(&entry.name).to_string());
    let mut new_head = None;
    for entry in layout.entries() {
        let is_head = Some(layer_of(&entry.name)) == head.as_deref();
        let tensor = match tensors.tensor(&entry.name) {
            Ok(tensor) => tensor,
            Err(_) if is_head => {
                new_head = Some("the file has none".to_string());
                continue;
            }
            Err(_) => return Err(unfit(format!("it has no tensor `{}`", entry.name))),
        };
        if tensor.shape() != entry.shape && is_head {
            new_head = Some(format!("the file's is {:?}", tensor.shape()));
            continue;
        }
        if tensor.shape() != entry.shape || tensor.dtype() != Dtype::F32 {
            return Err(unfit(format!(
                "`{}` is {:?} {:?} there, F32 {:?} here",
                entry.name,
                tensor.dtype(),
                tensor.shape(),
                entry.shape
            )));
        }
        let (words, _) = tensor.data().as_chunks::<4>();
        for (value, word) in params[entry.range()].iter_mut().zip(words) {
            *value = f32::from_le_bytes(*word);
        }
    }
    let head = head.unwrap_or_default();
    Ok(new_head
        .map(|why| format!("the last layer `{head}` starts from initial values: {why}"))
        .into_iter()
        .collect())
}
