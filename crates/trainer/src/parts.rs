//! The model and the data a run is made of, found by name.

use crate::{RunSpec, TrainError, plan::model_options};
use paceline_batch::Schema;
use paceline_data::{DataError, OpenOptions, Source, Split, open_split};
use paceline_models::{Layout, model::Build, registry};
use std::sync::Arc;

/// A split that is not trained on, and its examples.
pub type HeldOut = (Split, Arc<dyn Source>);

/// What a run is made of.
#[derive(Clone)]
pub struct Parts {
    /// Builds the model.
    pub build: Build,
    /// Training examples.
    pub train: Arc<dyn Source>,
    /// Held-out examples and which split they are, where there are any.
    pub test: Option<HeldOut>,
}

impl Parts {
    /// Finds model and data by the names in the specification.
    pub fn open(spec: &RunSpec) -> Result<Self, TrainError> {
        let build = registry::find(&spec.model)?.build;
        let options = OpenOptions::default();
        // Decompression takes most of a short run's start, so both splits at once.
        let (train, test) = std::thread::scope(|scope| {
            let test = scope.spawn(|| open_test(&spec.data, &options));
            (open_split(&spec.data, Split::Train, &options), test.join())
        });
        let test = match test {
            Ok(test) => test?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok(Self { build, train: train?, test })
    }
}

impl Parts {
    /// Names and shapes of the parameters of a run's model.
    pub(crate) fn layout(spec: &RunSpec, schema: &Schema) -> Result<Layout, TrainError> {
        let build = registry::find(&spec.model)?.build;
        Ok(build(schema, &model_options(spec, 1))?.layout().clone())
    }
}

/// The split that decisions are made on: validation where there is one, so that the test split keeps
/// the last word; else test.
fn open_test(data: &str, options: &OpenOptions) -> Result<Option<HeldOut>, DataError> {
    for split in [Split::Validation, Split::Test] {
        match open_split(data, split, options) {
            Ok(source) => return Ok(Some((split, source))),
            Err(DataError::NoSplit { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
