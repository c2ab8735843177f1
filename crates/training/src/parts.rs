//! The model and the data a run is made of, found by name.

use crate::{RunSpec, TrainError, plan::model_options};
use paceline_batch::Schema;
use paceline_data::{
    Checksums, DataError, Fingerprint, OpenOptions, Source, Split,
    lenient::{Instead, Lenient, log_of},
    open_split,
    rejects::RejectLog,
    sources,
    subset::hold_out,
};
use paceline_models::{Layout, model::BuildModel, registry};
use std::{path::Path, sync::Arc};

/// A split that is not trained on, and its examples.
pub type HeldOut = (Split, Arc<dyn Source>);

/// What a run is made of.
#[derive(Clone)]
pub struct Parts {
    pub build: BuildModel,
    pub train: Arc<dyn Source>,
    /// Held-out examples and which split they are, where there are any.
    pub test: Option<HeldOut>,
    /// What tells the data from others; absent where they were not opened by name.
    pub fingerprint: Option<Fingerprint>,
    /// Photos that are left out, as they are found.
    pub rejects: Arc<RejectLog>,
}

impl Parts {
    /// Finds model and data by the names in the specification.
    pub fn open(spec: &RunSpec) -> Result<Self, TrainError> {
        let build = registry::find(&spec.model)?.build;
        let options = open_options(spec)?;
        // Decompression takes most of a short run's start, so both splits at once.
        let (train, test) = std::thread::scope(|scope| {
            let test = scope.spawn(|| open_test(&spec.data, &options));
            (open_split(&spec.data, Split::Train, &options), test.join())
        });
        let test = match test {
            Ok(test) => test?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let (train, test) = match spec.validation_split {
            Some(share) => {
                let [train, held_out] = validation_split(&train?, share, &spec.data)?;
                (train, Some((Split::Validation, held_out)))
            }
            None => (train?, test),
        };
        let held_out = test.as_ref().map(|(_, source)| &**source);
        let fingerprint = Some(Fingerprint::of(&*train, held_out)?);
        if spec.max_rejects.is_some() && !train.may_reject() {
            return Err(TrainError::Setting {
                setting: "the limit of rejects",
                found: "given".to_owned(),
                wanted: "left out for data other than photos in class folders".to_owned(),
            });
        }
        let both: Vec<&dyn Source> = std::iter::once(&*train).chain(held_out).collect();
        let rejects = log_of(&both, spec.max_rejects)?;
        // The next photo replaces a bad one in a training batch: the order then depends only on the data and the seed,
        // and tasks that read different shares agree on it without communicating. A score counts each photo once.
        let train = Lenient::around(train, &rejects, Instead::Next);
        let test = test
            .map(|(split, source)| (split, Lenient::around(source, &rejects, Instead::Nothing)));
        Ok(Self { build, train, test, fingerprint, rejects })
    }
}

impl Parts {
    /// What all tasks of a run must have in common: settings, and the data.
    #[must_use]
    pub fn shared(&self, spec: &RunSpec) -> serde_json::Value {
        let mut shared = spec.shared();
        if let (Some(shared), Some(data)) = (shared.as_object_mut(), &self.fingerprint) {
            let data = serde_json::to_value(data).expect("a fingerprint is plain data");
            shared.insert("data".to_owned(), data);
        }
        shared
    }

    /// Names and shapes of the parameters of a run's model.
    pub(crate) fn layout(spec: &RunSpec, schema: &Schema) -> Result<Layout, TrainError> {
        let build = registry::find(&spec.model)?.build;
        Ok(build(schema, &model_options(spec, 1))?.layout().clone())
    }
}

/// Training examples of which a share is held out.
fn validation_split(
    train: &Arc<dyn Source>,
    share: f64,
    data: &str,
) -> Result<[Arc<dyn Source>; 2], TrainError> {
    let wrong = |wanted: String| {
        let setting = "the share of training examples that is held out";
        Err(TrainError::Setting { setting, found: share.to_string(), wanted })
    };
    if !(share > 0.0 && share < 1.0) {
        return wrong("above 0 and below 1".to_owned());
    }
    match hold_out(train, share) {
        Some((train, held_out)) => Ok([train, held_out]),
        None => wrong(format!("such that both parts of `{data}` have examples")),
    }
}

/// How the data of a run are opened; a setting that these data have no use for is an error.
fn open_options(spec: &RunSpec) -> Result<OpenOptions, TrainError> {
    for (setting, is_given, kinds) in [
        ("the limit of pixels", spec.max_pixels.is_some(), &["photos", "records"][..]),
        ("the comparison of checksums", spec.verify, &["records"]),
    ] {
        if is_given && !kinds.contains(&sources::detect(Path::new(&spec.data))?.name) {
            return Err(TrainError::Setting {
                setting,
                found: "given".to_owned(),
                wanted: format!("left out for data other than {}", kinds.join(" and ")),
            });
        }
    }
    let checksums = if spec.verify { Checksums::First } else { Checksums::Beside };
    Ok(OpenOptions { checksums, max_pixels: spec.max_pixels, ..OpenOptions::default() })
}

/// The split that decisions are made on: validation where there is one, so that the test split keeps
/// the last word; else test.
pub(crate) fn open_test(data: &str, options: &OpenOptions) -> Result<Option<HeldOut>, DataError> {
    for split in [Split::Validation, Split::Test] {
        match open_split(data, split, options) {
            Ok(source) => return Ok(Some((split, source))),
            Err(DataError::NoSplit { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
