//! The models users can name.

use crate::{
    model::{BuildModel, ModelError},
    names::{UnknownName, spelling},
    sparse_logistic,
};
use paceline_registry::Registry;

/// One model of the registry.
#[derive(Debug, Clone, Copy)]
pub struct ModelEntry {
    /// What users type.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Flags of `paceline train` that change this model and not every model, without dashes.
    pub settings: &'static [&'static str],
    /// What it trains well with.
    pub defaults: ModelDefaults,
    /// The examples it is known for: what its size and speed are told of where nothing else is asked for.
    pub known_for: KnownInput,
    /// Builds it for a data source.
    pub build: BuildModel,
}

impl paceline_registry::Named for ModelEntry {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Square images of a known data set, and its classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownInput {
    /// In pixels.
    pub side: usize,
    pub channels: usize,
    pub classes: usize,
}

impl KnownInput {
    /// MNIST: grey digits.
    pub const DIGITS: Self = Self { side: 28, channels: 1, classes: 10 };
    /// CIFAR-10: small colour images.
    pub const SMALL_COLOUR: Self = Self { side: 32, channels: 3, classes: 10 };
    /// ImageNet: photographs.
    pub const PHOTOGRAPHS: Self = Self { side: 224, channels: 3, classes: 1000 };
}

/// What a model trains well with where nothing else is asked for. Tuned on small grids; `docs/defaults.md` has the figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelDefaults {
    pub optimizer: &'static str,
    /// Learning rate, for that optimiser.
    pub rate: f32,
}

impl ModelDefaults {
    /// Optimiser and learning rate where a user gave one, both or neither; no rate means the optimiser's own.
    ///
    /// The two go together, so a rate alone does not change the optimiser that rates are usually quoted for: plain sgd.
    #[must_use]
    pub fn complete(&self, optimizer: Option<&str>, rate: Option<f32>) -> (String, Option<f32>) {
        match (optimizer, rate) {
            (None, None) => (self.optimizer.to_owned(), Some(self.rate)),
            (None, rate) => ("sgd".to_owned(), rate),
            (Some(name), None) if name == self.optimizer => (name.to_owned(), Some(self.rate)),
            (Some(name), rate) => (name.to_owned(), rate),
        }
    }
}

/// Every model, simplest first.
pub static ALL: Registry<ModelEntry> = Registry::new(&[
    &crate::softmax::ENTRY,
    &crate::lenet::ENTRY,
    &crate::resnet::ENTRY,
    &crate::alexnet::ENTRY,
    &crate::mobilenet_v2::ENTRY,
]);

/// A model by its name: one that learns from batches of examples, or the one that learns from streams of rows.
#[derive(Debug, Clone, Copy)]
pub enum Named {
    /// A model of [`ALL`].
    Dense(&'static ModelEntry),
    /// [`sparse_logistic`], whose weights are too many for flat buffers.
    Sparse,
}

impl Named {
    /// What users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dense(entry) => entry.name,
            Self::Sparse => sparse_logistic::NAME,
        }
    }
}

/// Every name that users may type, in the order of lists.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|entry| entry.name).chain([sparse_logistic::NAME])
}

/// The model of that name, of either kind.
///
/// # Errors
/// [`ModelError::Unknown`], with the nearest name if one is near.
pub fn named(name: &str) -> Result<Named, ModelError> {
    let wanted = spelling(name);
    if wanted == sparse_logistic::NAME {
        return Ok(Named::Sparse);
    }
    let dense = ALL.named(&wanted);
    dense.map(Named::Dense).ok_or_else(|| UnknownName::new("model", name, names()).into())
}

/// The model of that name that learns from batches of examples.
///
/// # Errors
/// As [`named`]; [`ModelError::Sparse`] for the one that learns from streams.
pub fn find(name: &str) -> Result<&'static ModelEntry, ModelError> {
    match named(name)? {
        Named::Dense(entry) => Ok(entry),
        Named::Sparse => Err(ModelError::Sparse { model: sparse_logistic::NAME }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelOptions;
    use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};

    #[test]
    fn defaults_are_a_pair_and_what_is_given_stays() {
        let own = ModelDefaults { optimizer: "adam", rate: 0.003 };
        let name = |name: &str| name.to_owned();
        assert_eq!(own.complete(None, None), (name("adam"), Some(0.003)));
        assert_eq!(own.complete(Some("adam"), None), (name("adam"), Some(0.003)));
        assert_eq!(own.complete(Some("sgd"), None), (name("sgd"), None));
        assert_eq!(own.complete(None, Some(0.5)), (name("sgd"), Some(0.5)));
        assert_eq!(own.complete(Some("momentum"), Some(0.1)), (name("momentum"), Some(0.1)));
        for entry in &ALL {
            let optimizer = crate::optimizer::find(entry.defaults.optimizer).unwrap();
            assert!(entry.defaults.rate > 0.0 && entry.defaults.rate < 1.0, "{}", optimizer.name);
        }
    }

    /// ResNet-20 was listed with 335,448 parameters beside the words "270 thousand weights": its head was that of 1,000 classes.
    #[test]
    fn sizes_are_those_the_models_are_known_by() {
        // Of the networks with norms: weights that are trained, and two running statistics for each channel.
        let known = [
            ("softmax", 7_850),
            ("lenet", 61_706),
            ("resnet-20", 269_722 + 1_376),
            ("alexnet", 61_100_840),
            ("mobilenet-v2", 3_504_872 + 34_112),
        ];
        for (name, parameters) in known {
            let entry = find(name).unwrap();
            let KnownInput { side, channels, classes } = entry.known_for;
            let schema = Schema {
                features: FeatureKind::Image(ImageShape { height: side, width: side, channels }),
                labels: LabelKind::Classes { names: vec![String::new(); classes] },
            };
            let model = (entry.build)(&schema, &ModelOptions::default()).unwrap();
            assert_eq!(model.layout().len(), parameters, "{name}");
        }
    }

    #[test]
    fn a_slip_gets_a_suggestion_and_nonsense_does_not() {
        assert_eq!(find("softmax").unwrap().name, "softmax");
        let slip = find("LeNet5").unwrap_err().to_string();
        assert!(slip.contains("did you mean `lenet`"), "{slip}");
        let nonsense = find("gpt").unwrap_err().to_string();
        assert!(!nonsense.contains("mean") && nonsense.contains("softmax"), "{nonsense}");
    }

    #[test]
    fn names_have_hyphens_and_the_old_spelling_is_understood() {
        assert!(names().all(|name| !name.contains('_')));
        assert_eq!(find("mobilenet_v2").unwrap().name, "mobilenet-v2");
        assert_eq!(named("sparse_logistic").unwrap().name(), "sparse-logistic");
        let slip = find("MobileNetV2").unwrap_err().to_string();
        assert!(slip.contains("did you mean `mobilenet-v2`"), "{slip}");
    }

    #[test]
    fn the_sparse_model_is_among_the_known_ones() {
        let unknown = named("logistic").unwrap_err().to_string();
        assert!(unknown.contains("sparse-logistic"), "{unknown}");
        let elsewhere = find("sparse-logistic").unwrap_err().to_string();
        assert!(elsewhere.contains("rows of sparse features"), "{elsewhere}");
    }
}
