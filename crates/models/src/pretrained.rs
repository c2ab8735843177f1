//! Weights of other programs: safetensors files with torchvision's or timm's names, in and out; PyTorch's and Keras's own
//! files, in.
//!
//! Our layouts keep torchvision's names, shapes and element order, so that reading is copying and a
//! round trip is exact to the bit. A head for another number of classes keeps its fresh values.
//!
//! Files come from strangers: the header is checked by the `safetensors` crate before any tensor is
//! looked at, and nothing is taken unless every name and shape fits.

mod hdf5;
mod keras;
mod pth;
mod timm;
mod zip;

pub use hdf5::Hdf5Error;
pub use keras::KerasError;
pub use pth::PthError;

use crate::{
    layout::{Layout, LayoutEntry},
    mobilenet_v2,
    model::PixelScale,
    names::spelling,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// Models whose weights can be exchanged, and the prefix of their heads.
const HEADS: &[(&str, &str)] =
    &[("alexnet", "classifier.6."), (mobilenet_v2::ENTRY.name, "classifier.1.")];

/// PyTorch counts batches in a batch norm and never uses the count.
const IGNORED: &str = ".num_batches_tracked";

/// Where files say which program they are of: [`OWN_FORMAT`] those of this one.
pub const FORMAT_KEY: &str = "format";
/// What files of this program say of themselves.
pub const OWN_FORMAT: &str = "paceline";
/// Where they say how pixels are read; see [`input_of`].
pub const INPUT_KEY: &str = "input";
const IMAGENET_INPUT: &str = "imagenet";
const KERAS_INPUT: &str = "keras";

/// Names shown of a long list.
const SHOWN: usize = 4;

/// Why weights cannot be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PretrainedError {
    /// The file cannot be read.
    #[error("cannot read weights `{}`", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file cannot be written.
    #[error("cannot write weights `{}`", .path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A file of PyTorch's that gives no tensors.
    #[error("cannot take weights from `{}`", .path.display())]
    Pth {
        path: PathBuf,
        /// What was found in it.
        source: PthError,
    },
    /// A file of Keras's that gives no weights.
    #[error("cannot take weights from `{}`", .path.display())]
    Keras {
        path: PathBuf,
        /// What was found in it.
        source: KerasError,
    },
    /// The file is neither in safetensors format nor PyTorch's nor Keras's.
    #[error("weights `{}` are neither a safetensors file nor a .pth file of PyTorch nor a .h5 or .keras file of Keras", .path.display())]
    Format {
        path: PathBuf,
        /// What the parser found.
        source: safetensors::SafeTensorError,
    },
    /// The model has no known names.
    #[error("model `{model}` has no pretrained form; there are {known}")]
    Model {
        model: String,
        /// The models that have one.
        known: String,
    },
    /// Names on one side have no counterpart on the other.
    #[error(
        "weights `{}` do not fit model `{model}`: the model has {} that the file lacks{}, the file has {} that the model lacks{}",
        .path.display(), .missing.len(), listed(.missing), .unexpected.len(), listed(.unexpected)
    )]
    Names {
        path: PathBuf,
        model: String,
        /// Names only the model has, in the file's convention.
        missing: Vec<String>,
        /// Names only the file has.
        unexpected: Vec<String>,
    },
    /// A tensor has another shape.
    #[error("weights `{}`, tensor `{name}`: shape {found:?}, the model has {wanted:?}", .path.display())]
    Shape {
        path: PathBuf,
        name: String,
        /// Its shape in the file.
        found: Vec<usize>,
        /// Its shape in the model.
        wanted: Vec<usize>,
    },
    /// A tensor holds other numbers than floats.
    #[error("weights `{}`, tensor `{name}`: {found:?} values, must be F32, F16 or BF16", .path.display())]
    Values { path: PathBuf, name: String, found: Dtype },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let more = if names.len() > SHOWN { ", …" } else { "" };
    format!(" ({}{more})", names[..names.len().min(SHOWN)].join(", "))
}

/// What was taken from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Whose names the file uses.
    pub convention: Convention,
    pub tensors: usize,
    /// Classes of the file's head, where it was left out because the model has another number; 0 where the file has none.
    pub other_head: Option<usize>,
}

/// Whose names a file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convention {
    /// `features.0.0.weight`, also PyTorch's own checkpoints of torchvision models.
    Torchvision,
    /// `conv_stem.weight`.
    Timm,
    /// `Conv1/kernel`, of `keras.applications`.
    Keras,
}

impl Convention {
    fn name(self, ours: &str) -> String {
        match self {
            Self::Torchvision => ours.to_owned(),
            Self::Timm => timm::name(ours).unwrap_or_else(|| ours.to_owned()),
            Self::Keras => keras::name(ours).unwrap_or_else(|| ours.to_owned()),
        }
    }
}

/// The prefix of a model's head.
fn head(model: &str) -> Result<&'static str, PretrainedError> {
    let spelled = spelling(model);
    HEADS.iter().find(|(name, _)| *name == spelled).map(|(_, head)| *head).ok_or_else(|| {
        let known = HEADS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        PretrainedError::Model { model: model.to_owned(), known }
    })
}

/// What a file says of how pixels are read; nothing where they lie between 0 and 1.
#[must_use]
pub fn input_of(pixels: PixelScale) -> Option<&'static str> {
    match pixels {
        PixelScale::Unit => None,
        PixelScale::Imagenet => Some(IMAGENET_INPUT),
        PixelScale::Keras => Some(KERAS_INPUT),
    }
}

/// How the weights of a file expect pixels to be read. A file of this program says so itself, one of Keras expects
/// [`PixelScale::Keras`], and all others are taken for torchvision's or timm's.
///
/// # Errors
/// [`PretrainedError::Format`] and those of [`read`].
pub fn expected_pixels(path: &Path) -> Result<PixelScale, PretrainedError> {
    let bytes = read(path)?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes)
        .map_err(|source| PretrainedError::Format { path: path.to_owned(), source })?;
    let said = |key: &str| Some(metadata.metadata().as_ref()?.get(key)?.as_str());
    Ok(match (said(FORMAT_KEY), said(INPUT_KEY)) {
        (Some(OWN_FORMAT | keras::FORMAT), Some(KERAS_INPUT)) => PixelScale::Keras,
        (Some(OWN_FORMAT), input) if input != Some(IMAGENET_INPUT) => PixelScale::Unit,
        _ => PixelScale::Imagenet,
    })
}

/// A file of weights in safetensors format; one of PyTorch's or Keras's is put into it.
///
/// # Errors
/// [`PretrainedError::Read`], [`PretrainedError::Keras`] and [`PretrainedError::Pth`].
pub fn read(path: &Path) -> Result<Vec<u8>, PretrainedError> {
    let bytes =
        fs::read(path).map_err(|source| PretrainedError::Read { path: path.to_owned(), source })?;
    in_safetensors(path, bytes)
}

/// Like [`read`], from bytes; `path` only names them in errors.
///
/// # Errors
/// [`PretrainedError::Keras`] and [`PretrainedError::Pth`].
pub fn in_safetensors(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>, PretrainedError> {
    let path = || path.to_owned();
    if keras::is_keras(&bytes) {
        return keras::to_safetensors(&bytes)
            .map_err(|source| PretrainedError::Keras { path: path(), source });
    }
    if pth::is_pth(&bytes) {
        return pth::to_safetensors(&bytes)
            .map_err(|source| PretrainedError::Pth { path: path(), source });
    }
    Ok(bytes)
}

/// Takes the weights of a file into `params`, which already holds initial values. On an error
/// `params` is as before.
///
/// # Errors
/// Any [`PretrainedError`] but those of writing.
pub fn load(
    model: &str,
    layout: &Layout,
    path: &Path,
    params: &mut [f32],
) -> Result<Loaded, PretrainedError> {
    let bytes = read(path)?;
    load_bytes(model, layout, path, &bytes, params)
}

/// Like [`load`], from bytes; `path` only names them in errors.
///
/// # Errors
/// As [`load`].
pub fn load_bytes(
    model: &str,
    layout: &Layout,
    path: &Path,
    bytes: &[u8],
    params: &mut [f32],
) -> Result<Loaded, PretrainedError> {
    let head = head(model)?;
    let file = SafeTensors::deserialize(bytes)
        .map_err(|source| PretrainedError::Format { path: path.to_owned(), source })?;
    let found: BTreeSet<&str> =
        file.names().into_iter().filter(|name| !name.ends_with(IGNORED)).collect();
    let convention = if found_format(bytes).as_deref() == Some(keras::FORMAT) {
        Convention::Keras
    } else if spelling(model) == mobilenet_v2::ENTRY.name && found.contains("conv_stem.weight") {
        Convention::Timm
    } else {
        Convention::Torchvision
    };
    let mut wanted: Vec<(String, &LayoutEntry)> =
        layout.entries().iter().map(|entry| (convention.name(&entry.name), entry)).collect();
    // Keras saves its models without a head too.
    let headless = convention == Convention::Keras
        && !wanted
            .iter()
            .any(|(name, entry)| entry.name.starts_with(head) && found.contains(&**name));
    if headless {
        wanted.retain(|(_, entry)| !entry.name.starts_with(head));
    }
    check_names(model, path, &found, &wanted)?;

    // Everything is checked before anything is copied.
    let mut other_head = headless.then_some(0);
    let mut taken: Vec<(&LayoutEntry, TensorView<'_>)> = Vec::with_capacity(wanted.len());
    for (name, entry) in wanted {
        let tensor = file
            .tensor(&name)
            .map_err(|source| PretrainedError::Format { path: path.to_owned(), source })?;
        let shape = tensor.shape();
        if shape != entry.shape {
            let only_classes = shape.len() == entry.shape.len() && shape[1..] == entry.shape[1..];
            if entry.name.starts_with(head) && only_classes && !shape.is_empty() {
                other_head = Some(shape[0]);
                continue;
            }
            let (found, wanted) = (shape.to_vec(), entry.shape.clone());
            return Err(PretrainedError::Shape { path: path.to_owned(), name, found, wanted });
        }
        if !matches!(tensor.dtype(), Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            let found = tensor.dtype();
            return Err(PretrainedError::Values { path: path.to_owned(), name, found });
        }
        taken.push((entry, tensor));
    }
    if other_head.is_some() {
        // A head is taken whole or not at all.
        taken.retain(|(entry, _)| !entry.name.starts_with(head));
    }
    for (entry, tensor) in &taken {
        copy(tensor, &mut params[entry.range()]);
    }
    Ok(Loaded { convention, tensors: taken.len(), other_head })
}

/// Which program a safetensors file says that it is of.
fn found_format(bytes: &[u8]) -> Option<String> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).ok()?;
    metadata.metadata().as_ref()?.get(FORMAT_KEY).cloned()
}

fn check_names(
    model: &str,
    path: &Path,
    found: &BTreeSet<&str>,
    wanted: &[(String, &LayoutEntry)],
) -> Result<(), PretrainedError> {
    let known: BTreeSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
    let only = |a: &BTreeSet<&str>, b: &BTreeSet<&str>| -> Vec<String> {
        a.difference(b).map(|&name| name.to_owned()).collect()
    };
    let (missing, unexpected) = (only(&known, found), only(found, &known));
    if missing.is_empty() && unexpected.is_empty() {
        return Ok(());
    }
    Err(PretrainedError::Names {
        path: path.to_owned(),
        model: model.to_owned(),
        missing,
        unexpected,
    })
}

/// Copies a tensor of as many elements, widening half precision.
fn copy(tensor: &TensorView<'_>, to: &mut [f32]) {
    let bytes = tensor.data();
    match tensor.dtype() {
        Dtype::F16 | Dtype::BF16 => {
            let widen = if tensor.dtype() == Dtype::F16 { from_f16 } else { from_bf16 };
            for (to, from) in to.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *to = widen(u16::from_le_bytes(*from));
            }
        }
        _ => {
            for (to, from) in to.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *to = f32::from_le_bytes(*from);
            }
        }
    }
}

fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn from_f16(bits: u16) -> f32 {
    let (exponent, fraction) = (u32::from(bits >> 10 & 0x1f), u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        // Subnormal: a whole number of 2^-24.
        0 => fraction as f32 * 2f32.powi(-24),
        0x1f => f32::from_bits(0x7f80_0000 | fraction << 13),
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// Writes a model's weights with torchvision's names; PyTorch loads them as they are.
///
/// # Errors
/// [`PretrainedError::Model`] for models without a known form, [`PretrainedError::Write`] when the
/// disk refuses; nothing half-written stays behind.
pub fn export(
    model: &str,
    layout: &Layout,
    params: &[f32],
    path: &Path,
) -> Result<(), PretrainedError> {
    head(model)?;
    let bytes = to_bytes(layout, params)
        .map_err(|source| PretrainedError::Format { path: path.to_owned(), source })?;
    let failed = |source| PretrainedError::Write { path: path.to_owned(), source };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(name);
    let written = fs::File::create(&partial)
        .and_then(|mut file| {
            io::Write::write_all(&mut file, &bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&partial, path));
    written.map_err(|source| {
        // The error of writing is worth more than that of cleaning up.
        let _ = fs::remove_file(&partial);
        failed(source)
    })
}

fn to_bytes(layout: &Layout, params: &[f32]) -> Result<Vec<u8>, safetensors::SafeTensorError> {
    let bytes: Vec<u8> = params.iter().flat_map(|value| value.to_le_bytes()).collect();
    let tensors = layout
        .entries()
        .iter()
        .map(|entry| {
            let range = entry.range();
            let data = &bytes[4 * range.start..4 * range.end];
            Ok((&entry.name, TensorView::new(Dtype::F32, entry.shape.clone(), data)?))
        })
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    safetensors::serialize(tensors, None)
}

#[cfg(test)]
mod tests;
