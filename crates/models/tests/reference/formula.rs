//! The twin of `make_reference.py`: inputs and weights by formula, stored numbers from JSON.

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::Layout;
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

/// One stored case: PyTorch's names and shapes, losses, and gradients in short.
///
/// Our models keep PyTorch's names and element order, so that nothing needs rearranging.
pub(crate) struct Case(pub(crate) Value);

impl Case {
    fn shape(&self, name: &str) -> Vec<usize> {
        let dimensions = self.0["shapes"][name].as_array().unwrap();
        dimensions.iter().map(|d| d.as_u64().unwrap() as usize).collect()
    }

    fn tensors(&self) -> impl Iterator<Item = (&String, Vec<usize>)> {
        self.0["shapes"].as_object().unwrap().keys().map(|name| (name, self.shape(name)))
    }

    /// The formula's weights of one tensor, in PyTorch's order.
    pub(crate) fn values(&self, name: &str) -> Vec<f32> {
        let shape = self.shape(name);
        let (scale, shift) = recipe(name, &shape, self.0["smooth"] == true);
        uniform(name, shape.iter().product()).map(|value| value * scale + shift).collect()
    }

    /// Fills our buffer with the formula's weights.
    pub(crate) fn fill(&self, layout: &Layout) -> Vec<f32> {
        let mut params = vec![f32::NAN; layout.len()];
        for (name, shape) in self.tensors() {
            let (scale, shift) = recipe(name, &shape, self.0["smooth"] == true);
            let entry = layout.get(name).unwrap_or_else(|| panic!("no {name}"));
            assert_eq!(entry.shape, shape, "{name}");
            let ours = params[entry.range()].iter_mut();
            for (ours, value) in ours.zip(uniform(name, entry.len())) {
                *ours = value * scale + shift;
            }
        }
        assert!(params.iter().all(|value| !value.is_nan()), "PyTorch has all our tensors");
        params
    }

    /// Compares a gradient with the stored sums, norms and products.
    pub(crate) fn compare(&self, layout: &Layout, grad: &[f32], tolerance: f64) {
        // A tensor whose gradient is nothing by nature (a bias before a batch norm) has only
        // rounding, which is judged by the largest gradient.
        let gradients = self.0["gradients"].as_object().unwrap().values();
        let largest = gradients.map(|one| one["norm"].as_f64().unwrap()).fold(0.0, f64::max);
        let mut worst = (0.0, String::new());
        for group in ["gradients", "changes"] {
            for (name, wanted) in self.0[group].as_object().unwrap() {
                let entry = layout.get(name).unwrap();
                let ours = &grad[entry.range()];
                let (mut sum, mut square, mut product) = (0.0f64, 0.0f64, 0.0f64);
                let probes = uniform(&format!("{name}.probe"), entry.len());
                for (&value, probe) in ours.iter().zip(probes) {
                    let value = f64::from(value);
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
                        let label = &self.0["label"];
                        let wanted = number(key);
                        worst = (error, format!("{label} {name} {key}: {found}, PyTorch {wanted}"));
                    }
                }
            }
        }
        eprintln!("worst: {}, error {:.1e} of the norm", worst.1, worst.0);
        assert!(worst.0 <= tolerance, "{}, error {:.1e} of the norm", worst.1, worst.0);
    }

    fn whole(&self, key: &str) -> usize {
        self.0[key].as_u64().unwrap() as usize
    }

    /// What the model is built from.
    pub(crate) fn schema(&self) -> Schema {
        let side = self.whole("size");
        let channels = self.whole("channels");
        Schema {
            features: FeatureKind::Image(ImageShape { height: side, width: side, channels }),
            labels: LabelKind::Classes {
                names: (0..self.whole("classes")).map(|class| class.to_string()).collect(),
            },
        }
    }

    /// Inputs and labels.
    pub(crate) fn batch(&self) -> Batch {
        let (count, side) = (self.whole("batch"), self.whole("size"));
        let width = side * side * self.whole("channels");
        let name = format!("{}.input", self.0["label"].as_str().unwrap());
        let values = uniform(&name, count * width).map(|value| value * 0.5 + 0.5).collect();
        let classes = self.whole("classes");
        Batch {
            features: Features::Dense { values, width },
            labels: (0..count).map(|i| ((i * 7 + 3) % classes) as u32).collect(),
        }
    }
}
