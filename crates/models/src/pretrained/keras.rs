//! Files of Keras (`.h5`, `.weights.h5`, `.keras`): the weights of `keras.applications.MobileNetV2`, so arranged that our
//! MobileNet-v2 gives Keras's logits.
//!
//! Keras's network differs from torchvision's, which ours is, in two things. Both are put right here, exactly:
//!
//! - **Its batch norms add 1e-3 to the variance, ours 1e-5.** The difference goes into the running variance.
//! - **Where it halves an image of an even side, it pads after the last pixel, ours before the first.** An image that is turned by
//!   180 degrees has its first pixel where the last one was: our network with all kernels turned, on the image turned, sums the
//!   same products as Keras's. So kernels are turned here, and images when they are read ([`PixelScale::Keras`]). Where a side is odd
//!   both pad on both sides, and turning changes nothing.
//!
//! [`PixelScale::Keras`]: crate::PixelScale::Keras

use super::{
    FORMAT_KEY, INPUT_KEY, KERAS_INPUT, from_bf16, from_f16,
    hdf5::{self, Array, Hdf5Error},
    zip,
};
use crate::kernels::batch_norm;
use safetensors::{Dtype, tensor::TensorView};
use std::collections::{BTreeMap, HashMap};

/// What files that came from Keras say of themselves, once they are in safetensors format.
pub(super) const FORMAT: &str = "keras";
/// The member of a `.keras` archive that holds the weights.
const MEMBER: &str = "model.weights.h5";
const ARCHIVE: &[u8] = b"PK\x03\x04";
/// What Keras's MobileNet-v2 adds to the variance in a batch norm.
const EPSILON: f64 = 1e-3;
/// Blocks of MobileNet-v2 after the first one.
const BLOCKS: usize = 16;
/// What Keras calls the last layer.
const HEAD: &str = "predictions";

/// Why a file of Keras gives no weights.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KerasError {
    /// The archive is damaged, or of another kind.
    #[error("its archive {0}")]
    Archive(&'static str),
    /// The HDF5 in it cannot be read.
    #[error(transparent)]
    Hdf5(#[from] Hdf5Error),
    /// No arrays of floats by the names that Keras gives them.
    #[error(
        "it holds no weights as `model.save(…)` and `model.save_weights(…)` of Keras write them"
    )]
    NoWeights,
    /// Two arrays that would be the same weights.
    #[error("it holds the weights `{0}` twice")]
    Twice(String),
    /// An array that is not what its layer has.
    #[error("its weights `{name}` have the shape {shape:?}, which no such layer has")]
    Shape {
        name: String,
        /// As in the file.
        shape: Vec<usize>,
    },
}

/// Whether a file is of Keras: HDF5, or an archive with such a file in it.
pub(super) fn is_keras(bytes: &[u8]) -> bool {
    // The directory is at the end of an archive.
    let end = &bytes[bytes.len().saturating_sub(64 << 10)..];
    let holds = |name: &[u8]| end.windows(name.len()).any(|window| window == name);
    bytes.starts_with(hdf5::SIGNATURE) || (bytes.starts_with(ARCHIVE) && holds(MEMBER.as_bytes()))
}

/// The weights of a file as a safetensors file, under names such as `block_1_expand/kernel`, in our shapes.
pub(super) fn to_safetensors(bytes: &[u8]) -> Result<Vec<u8>, KerasError> {
    let bytes = if bytes.starts_with(ARCHIVE) { member(bytes)? } else { bytes };
    let numbered = numbered();
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for array in hdf5::arrays(bytes)? {
        let Some((layer, weight)) = place(&array.name, &numbered) else { continue };
        let name = format!("{layer}/{weight}");
        let tensor = arranged(&name, &weight, &array)?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(KerasError::Twice(name));
        }
    }
    if tensors.is_empty() {
        return Err(KerasError::NoWeights);
    }
    let damaged = |_| KerasError::NoWeights;
    let views = tensors
        .iter()
        .map(|(name, (shape, data))| {
            Ok((name, TensorView::new(Dtype::F32, shape.clone(), data).map_err(damaged)?))
        })
        .collect::<Result<Vec<_>, KerasError>>()?;
    let about = [(FORMAT_KEY, FORMAT), (INPUT_KEY, KERAS_INPUT)];
    let about = about.map(|(key, value)| (key.to_owned(), value.to_owned()));
    safetensors::serialize(views, Some(HashMap::from(about))).map_err(damaged)
}

fn member(archive: &[u8]) -> Result<&[u8], KerasError> {
    let entries = zip::entries(archive).map_err(KerasError::Archive)?;
    let member = entries.iter().find(|(name, _)| *name == MEMBER);
    member.map(|(_, data)| *data).ok_or(KerasError::Archive("has no `model.weights.h5`"))
}

/// Layer and weight that an array belongs to, as Keras names them; nothing for what only training needs.
///
/// `model.save("m.h5")` writes `model_weights/Conv1/Conv1/kernel`, Keras 2 `Conv1/Conv1/kernel:0`, and the format of Keras 3
/// `layers/conv2d/vars/0`: the kind of the layer and the how-manieth of its kind it is.
fn place(name: &str, numbered: &HashMap<String, String>) -> Option<(String, String)> {
    let parts: Vec<&str> = name.split('/').collect();
    if parts[0].trim_start_matches('_').starts_with("optimizer") {
        return None;
    }
    let (layer, weight) = match parts[..] {
        [.., layer, "vars", number] => {
            let layer = numbered.get(layer).map_or(layer, String::as_str);
            let kinds: &[&str] = if is_norm(layer) {
                &["gamma", "beta", "moving_mean", "moving_variance"]
            } else {
                &["kernel", "bias"]
            };
            let number = number.parse::<usize>().ok();
            (layer, number.and_then(|number| kinds.get(number).copied()).unwrap_or("?"))
        }
        [.., layer, weight] => (layer, weight.split(':').next().unwrap_or(weight)),
        _ => return None,
    };
    // Versions before Keras 3 named the kernel of a depthwise layer so, and the last layer after what it gives.
    let weight = if weight == "depthwise_kernel" { "kernel" } else { weight };
    // A head that was put on a network without one has the name that Keras gives such layers.
    let head = layer.eq_ignore_ascii_case("logits") || layer.starts_with("dense");
    let layer = if head { HEAD } else { layer };
    Some((layer.to_owned(), weight.to_owned()))
}

fn is_norm(layer: &str) -> bool {
    layer.starts_with("batch_normalization")
        || layer.starts_with("bn_")
        || layer.ends_with("_BN")
        || layer.ends_with("_bn")
}

/// Names of layers by their kind and number, as Keras 3 counts them.
fn numbered() -> HashMap<String, String> {
    let mut counts = [0; 4];
    let mut name = |kind: usize, layer: &str| {
        let word = ["conv2d", "depthwise_conv2d", "batch_normalization", "dense"][kind];
        let number = counts[kind];
        counts[kind] += 1;
        let counted = if number == 0 { word.to_owned() } else { format!("{word}_{number}") };
        (counted, layer.to_owned())
    };
    let mut names = vec![name(0, "Conv1"), name(2, "bn_Conv1")];
    for block in 0..=BLOCKS {
        for (kind, layer) in [(0, "expand"), (1, "depthwise"), (0, "project")] {
            if block > 0 || layer != "expand" {
                let layer = format!("{}_{layer}", prefix(block));
                names.extend([name(kind, &layer), name(2, &format!("{layer}_BN"))]);
            }
        }
    }
    names.extend([name(0, "Conv_1"), name(2, "Conv_1_bn"), name(3, HEAD)]);
    names.into_iter().collect()
}

/// A weight in our shape: kernels turned, their outputs first, and variances that make up for the other epsilon.
fn arranged(
    name: &str,
    weight: &str,
    array: &Array<'_>,
) -> Result<(Vec<usize>, Vec<u8>), KerasError> {
    let unfit = || KerasError::Shape { name: name.to_owned(), shape: array.shape.clone() };
    let values = floats(array).ok_or_else(unfit)?;
    if values.is_empty() {
        return Err(unfit());
    }
    let (shape, values) = match (weight, &array.shape[..]) {
        // Of a depthwise layer: one kernel for each channel.
        ("kernel", &[height, width, channels, 1]) if name.contains("depthwise") => {
            (vec![channels, 1, height, width], turned(&values, height * width, channels, 1))
        }
        ("kernel", &[height, width, inputs, outputs]) => {
            (vec![outputs, inputs, height, width], turned(&values, height * width, inputs, outputs))
        }
        ("kernel", &[inputs, outputs]) => {
            (vec![outputs, inputs], turned(&values, 1, inputs, outputs))
        }
        ("kernel", _) => return Err(unfit()),
        ("moving_variance", shape) => {
            let more = (EPSILON - batch_norm::EPSILON) as f32;
            (shape.to_vec(), values.iter().map(|value| value + more).collect())
        }
        (_, shape) => (shape.to_vec(), values),
    };
    Ok((shape, values.iter().flat_map(|value| value.to_le_bytes()).collect()))
}

/// Kernels of so many `taps` with the outputs innermost become kernels with the outputs outermost and the taps innermost,
/// the last one first: a kernel that is turned by 180 degrees.
fn turned(values: &[f32], taps: usize, inputs: usize, outputs: usize) -> Vec<f32> {
    let mut turned = vec![0.0; values.len()];
    for (tap, kernel) in values.chunks_exact(inputs * outputs).enumerate() {
        for (input, row) in kernel.chunks_exact(outputs).enumerate() {
            for (output, value) in row.iter().enumerate() {
                turned[(output * inputs + input) * taps + taps - 1 - tap] = *value;
            }
        }
    }
    turned
}

/// The values of an array, where they are of a precision that weights have.
fn floats(array: &Array<'_>) -> Option<Vec<f32>> {
    let halves = |widen: fn(u16) -> f32| {
        array.data.as_chunks::<2>().0.iter().map(|it| widen(u16::from_le_bytes(*it))).collect()
    };
    match array.dtype {
        Dtype::F32 => {
            Some(array.data.as_chunks::<4>().0.iter().map(|it| f32::from_le_bytes(*it)).collect())
        }
        Dtype::F16 => Some(halves(from_f16)),
        Dtype::BF16 => Some(halves(from_bf16)),
        _ => None,
    }
}

/// Keras's name for a weight of ours.
pub(super) fn name(ours: &str) -> Option<String> {
    let (layer, weight) = ours.rsplit_once('.')?;
    let layer = layer_name(layer)?;
    let weight = match (weight, is_norm(&layer)) {
        ("weight", true) => "gamma",
        ("bias", true) => "beta",
        ("running_mean", true) => "moving_mean",
        ("running_var", true) => "moving_variance",
        ("weight", false) => "kernel",
        ("bias", false) => "bias",
        _ => return None,
    };
    Some(format!("{layer}/{weight}"))
}

fn layer_name(ours: &str) -> Option<String> {
    match ours {
        "features.0.0" => return Some("Conv1".to_owned()),
        "features.0.1" => return Some("bn_Conv1".to_owned()),
        "features.18.0" => return Some("Conv_1".to_owned()),
        "features.18.1" => return Some("Conv_1_bn".to_owned()),
        "classifier.1" => return Some(HEAD.to_owned()),
        _ => {}
    }
    let (number, part) = ours.strip_prefix("features.")?.split_once(".conv.")?;
    let block = number.parse::<usize>().ok()?.checked_sub(1).filter(|block| *block <= BLOCKS)?;
    // The first block has no expanding convolution.
    let parts: &[(&str, &str)] = if block == 0 {
        &[("0.0", "depthwise"), ("0.1", "depthwise_BN"), ("1", "project"), ("2", "project_BN")]
    } else {
        &[
            ("0.0", "expand"),
            ("0.1", "expand_BN"),
            ("1.0", "depthwise"),
            ("1.1", "depthwise_BN"),
            ("2", "project"),
            ("3", "project_BN"),
        ]
    };
    let (_, kind) = parts.iter().find(|(ours, _)| *ours == part)?;
    Some(format!("{}_{kind}", prefix(block)))
}

fn prefix(block: usize) -> String {
    if block == 0 { "expanded_conv".to_owned() } else { format!("block_{block}") }
}

#[cfg(test)]
mod tests;
