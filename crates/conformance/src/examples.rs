//! Examples for any model: noise whose brightness tells the class, made from the example's number.

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_data::order::{Batches, GlobalBatch, LastBatch};
use paceline_models::{Model, ModelOptions, registry::ModelEntry};

/// Classes of the examples.
const CLASSES: usize = 3;
/// Sparse features a row has, and how many there are.
const ROW: u32 = 5;
const WIDTH: u64 = 1000;

/// Examples in all, and in a global batch: the last batch of an epoch is a small one.
const EXAMPLES: u64 = 20;
const BATCH: u64 = 6;

/// The smallest examples a model takes.
#[derive(Debug, Clone)]
pub struct Examples {
    schema: Schema,
}

impl Examples {
    /// Tries shapes from small to large until the model takes one.
    ///
    /// # Panics
    /// If it takes none of them: then a shape must be added here.
    #[must_use]
    pub fn for_model(entry: &ModelEntry) -> Self {
        let image =
            |side, channels| FeatureKind::Image(ImageShape { height: side, width: side, channels });
        let kinds = [
            (image(9, 1), false),
            (image(28, 1), false),
            (image(32, 3), false),
            (image(63, 3), false),
            (image(224, 3), false),
            (FeatureKind::Sparse { width: WIDTH }, true),
        ];
        kinds
            .into_iter()
            .map(|(features, binary)| {
                let names = (0..CLASSES).map(|class| format!("class {class}")).collect();
                let labels = if binary { LabelKind::Binary } else { LabelKind::Classes { names } };
                Self { schema: Schema { features, labels } }
            })
            .find(|examples| (entry.build)(&examples.schema, &ModelOptions::default()).is_ok())
            .unwrap_or_else(|| panic!("no examples for model `{}`", entry.name))
            .roomy(entry)
    }

    /// Larger images where a layer takes the deviation of its values: with one or two of them it
    /// would divide by nearly nothing.
    fn roomy(mut self, entry: &ModelEntry) -> Self {
        let model = self.build(entry);
        if let FeatureKind::Image(shape) = &mut self.schema.features
            && model.layout().entries().iter().any(|entry| !entry.trained)
        {
            (shape.height, shape.width) = (3 * shape.height, 3 * shape.width);
        }
        self
    }

    /// The model for these examples, on one thread.
    #[must_use]
    pub fn build(&self, entry: &ModelEntry) -> Box<dyn Model> {
        (entry.build)(&self.schema, &ModelOptions::default()).unwrap()
    }

    /// A share of a global batch.
    #[must_use]
    pub fn batch(&self, share: &GlobalBatch) -> Batch {
        let classes = self.schema.labels.classes() as u64;
        let numbers = share.places.clone();
        let labels = numbers.clone().map(|number| (hash(number) % classes) as u32).collect();
        let features = match self.schema.features {
            FeatureKind::Image(shape) => {
                let width = shape.len();
                let pixel = |number: u64, at: usize| {
                    let bright = at as u64 % classes == hash(number) % classes;
                    (hash(number * 1_000_003 + at as u64) % 120 + if bright { 100 } else { 0 })
                        as u8
                };
                let values = numbers.flat_map(|number| (0..width).map(move |at| pixel(number, at)));
                Features::Pixels { values: values.collect(), width }
            }
            FeatureKind::Sparse { width } => {
                let (mut offsets, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
                for number in numbers {
                    let class = hash(number) % classes;
                    let mut row: Vec<u32> = (0..ROW)
                        .map(|at| {
                            (hash(number * 31 + u64::from(at)) % (width / 2) * 2 + class) as u32
                        })
                        .collect();
                    row.sort_unstable();
                    row.dedup();
                    values.resize(values.len() + row.len(), 1.0);
                    indices.extend(row);
                    offsets.push(indices.len());
                }
                Features::Sparse { offsets, indices, values }
            }
        };
        Batch { features, labels }
    }
}

/// The global batch of that number, in the order of the run.
#[must_use]
pub fn batches(number: u64) -> GlobalBatch {
    let batches = Batches::new(EXAMPLES, LastBatch::Keep).unwrap();
    let each = batches.per_epoch(BATCH);
    batches.global_batch(number / each, number % each, BATCH).unwrap()
}

fn hash(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
