//! The twin of `make_reference.py`: inputs and weights by formula, stored numbers from JSON.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // a failed test says what it saw

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::{Layout, Model};
use serde_json::Value;

/// Reads one of the stored files.
pub(crate) fn stored(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/reference/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// Numbers in [-1, 1) that follow from the name alone: FNV-1a, then splitmix64.
pub(crate) fn uniform(name: &str, count: usize) -> impl Iterator<Item = f32> + use<> {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (1..=count as u64).map(move |i| {
        let z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 * 2f32.powi(-23) - 1.0
    })
}

/// Scale and shift of a tensor, as the script has them.
fn recipe(name: &str, shape: &[usize], smooth: bool) -> (f32, f32) {
    if name.ends_with("running_var") {
        (0.5, 1.0)
    } else if name.ends_with("running_mean") {
        (0.1, 0.0)
    } else if shape.len() == 1 {
        match (name.ends_with("weight"), smooth) {
            (true, true) => (0.05, 0.6),
            (false, true) => (0.1, 3.0),
            (true, false) => (0.25, 1.0),
            (false, false) => (0.1, 0.0),
        }
    } else {
        let fan_in: usize = shape[1..].iter().product();
        ((6.0 / fan_in as f64).sqrt() as f32, 0.0)
    }
}

/// Where element `at` of PyTorch's tensor lies in ours.
pub(crate) type Place = fn(shape: &[usize], at: usize) -> usize;

/// The same order as PyTorch's.
pub(crate) fn same(_shape: &[usize], at: usize) -> usize {
    at
}

/// PyTorch's names and shapes of a model, and how to find their elements in ours.
pub(crate) struct Names<'a> {
    /// Our name for PyTorch's.
    pub(crate) ours: fn(&str) -> String,
    /// The order of elements of a tensor, by its PyTorch name.
    pub(crate) place: fn(&str) -> Place,
    /// The stored case.
    pub(crate) case: &'a Value,
}

impl Names<'_> {
    fn shape(&self, name: &str) -> Vec<usize> {
        let dimensions = self.case["shapes"][name].as_array().unwrap();
        dimensions.iter().map(|d| d.as_u64().unwrap() as usize).collect()
    }

    fn tensors(&self) -> impl Iterator<Item = (&String, Vec<usize>)> {
        self.case["shapes"].as_object().unwrap().keys().map(|name| (name, self.shape(name)))
    }

    /// Fills our buffer with the formula's weights.
    pub(crate) fn fill(&self, layout: &Layout) -> Vec<f32> {
        let mut params = vec![f32::NAN; layout.len()];
        for (name, shape) in self.tensors() {
            let (scale, shift) = recipe(name, &shape, self.case["smooth"] == true);
            let entry = layout.get(&(self.ours)(name)).unwrap_or_else(|| panic!("no {name}"));
            let place = (self.place)(name);
            let count: usize = shape.iter().product();
            assert_eq!(entry.len(), count, "{name}");
            let ours = &mut params[entry.range()];
            for (at, value) in uniform(name, count).enumerate() {
                ours[place(&shape, at)] = value * scale + shift;
            }
        }
        assert!(params.iter().all(|value| !value.is_nan()), "PyTorch has all our tensors");
        params
    }

    /// Compares a gradient with the stored sums, norms and products.
    pub(crate) fn compare(&self, layout: &Layout, grad: &[f32], tolerance: f64) {
        // A tensor whose gradient is nothing by nature (a bias before a batch norm) has only
        // rounding, which is judged by the largest gradient.
        let gradients = self.case["gradients"].as_object().unwrap().values();
        let largest = gradients.map(|one| one["norm"].as_f64().unwrap()).fold(0.0, f64::max);
        let mut worst = (0.0, String::new());
        for group in ["gradients", "changes"] {
            for (name, wanted) in self.case[group].as_object().unwrap() {
                let entry = layout.get(&(self.ours)(name)).unwrap();
                let (shape, place) = (self.shape(name), (self.place)(name));
                let ours = &grad[entry.range()];
                let (mut sum, mut square, mut product) = (0.0f64, 0.0f64, 0.0f64);
                for (at, probe) in uniform(&format!("{name}.probe"), entry.len()).enumerate() {
                    let value = f64::from(ours[place(&shape, at)]);
                    sum += value;
                    square += value * value;
                    product += value * f64::from(probe);
                }
                let number = |key: &str| wanted[key].as_f64().unwrap();
                // All three are judged by the tensor's norm: sums may cancel to nothing.
                let scale = number("norm").max(1e-3 * largest);
                let root = (entry.len() as f64).sqrt();
                for (key, found, slack) in
                    [("norm", square.sqrt(), 1.0), ("probe", product, 1.0), ("sum", sum, root)]
                {
                    let error = (found - number(key)).abs() / (scale * slack);
                    if error > worst.0 {
                        let label = &self.case["label"];
                        let wanted = number(key);
                        worst = (error, format!("{label} {name} {key}: {found}, PyTorch {wanted}"));
                    }
                }
            }
        }
        eprintln!("worst: {}, error {:.1e} of the norm", worst.1, worst.0);
        assert!(worst.0 <= tolerance, "{}, error {:.1e} of the norm", worst.1, worst.0);
    }
}

fn whole(case: &Value, key: &str) -> usize {
    case[key].as_u64().unwrap() as usize
}

/// The schema of a stored case.
pub(crate) fn schema(case: &Value) -> Schema {
    let side = whole(case, "size");
    Schema {
        features: FeatureKind::Image(ImageShape {
            height: side,
            width: side,
            channels: whole(case, "channels"),
        }),
        labels: LabelKind::Classes {
            names: (0..whole(case, "classes")).map(|class| class.to_string()).collect(),
        },
    }
}

/// The batch of a stored case.
pub(crate) fn batch(case: &Value) -> Batch {
    let (count, side) = (whole(case, "batch"), whole(case, "size"));
    let width = side * side * whole(case, "channels");
    let name = format!("{}.input", case["label"].as_str().unwrap());
    Batch {
        features: Features::Dense {
            values: uniform(&name, count * width).map(|value| value * 0.5 + 0.5).collect(),
            width,
        },
        labels: (0..count).map(|i| ((i * 7 + 3) % whole(case, "classes")) as u32).collect(),
    }
}

/// Runs one case through a model: loss, gradient, changes and evaluation against PyTorch.
pub(crate) fn check(case: &Value, names: &Names<'_>, model: &mut dyn Model, tolerance: f64) {
    use paceline_models::{Score, StepContext};
    let label = case["label"].as_str().unwrap();
    let batch = batch(case);
    let mut params = names.fill(model.layout());
    let close = |what: &str, found: f64, wanted: f64| {
        let error = (found - wanted).abs() / wanted.abs();
        assert!(error < 1e-5, "{label} {what}: {found}, PyTorch {wanted}, error {error:.1e}");
    };
    let mut score = Score::default();
    model.score(&params, &batch, &mut score).unwrap();
    close("score", score.total.loss_sum, case["score_loss_sum"].as_f64().unwrap());

    let scale = 1.0 / batch.len() as f32;
    let context = StepContext { seed: 1, step: 0, first_example: 0, scale };
    let mut grad = vec![f32::NAN; params.len()];
    let mut covered = vec![0u8; params.len()];
    let loss = model
        .loss_and_grad(&mut params, &batch, &context, &mut grad, &mut |range, params, grad| {
            assert_eq!((params.len(), grad.len()), (range.len(), range.len()));
            covered[range].iter_mut().for_each(|count| *count += 1);
            params.fill(f32::NAN); // the model has promised not to read them again
        })
        .unwrap();
    assert!(covered.iter().all(|&count| count == 1), "{label}: ranges cover the buffer once");
    close("loss", loss.loss_sum, case["loss_sum"].as_f64().unwrap());
    assert_eq!(loss.correct, case["correct"].as_u64().unwrap(), "{label}");
    names.compare(model.layout(), &grad, tolerance);
}
