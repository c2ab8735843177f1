//! PyTorch's own files (`.pth`, `.pt`): tensors alone, and nothing in them is executed.
//!
//! Such a file is a pickle, which is a program: Python would import and call whatever it names. The machine here
//! ([`pickle`]) knows the handful of calls that rebuild tensors and refuses every other. What comes out are the same bytes that a
//! safetensors file would hold, so that all else treats both alike.

mod pickle;

use super::zip;
use pickle::{Heap, Item, Node};
use safetensors::{Dtype, tensor::TensorView};
use std::collections::BTreeMap;

/// What such a file begins with: an archive, or the bare pickles of versions before 1.6.
const ARCHIVE: &[u8] = b"PK\x03\x04";
const BARE: &[u8] =
    &[0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.'];

/// Where programs put the weights in a larger whole.
const INNER: [&str; 3] = ["state_dict", "model", "model_state_dict"];
/// What PyTorch's wrapper for several devices puts before each name.
const WRAPPED: &str = "module.";
/// PyTorch's tensors have fewer.
const MOST_DIMENSIONS: usize = 16;

/// Why a file gives no tensors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PthError {
    /// The archive around the pickle is damaged, or of another kind.
    #[error("its archive {0}")]
    Archive(&'static str),
    /// The pickle ends too early, or refers to what is not there.
    #[error("its pickle is damaged: {0}")]
    Damaged(&'static str),
    /// An instruction that no file of tensors needs.
    #[error("its pickle has the instruction {0:#04x}, which no file of tensors needs")]
    Instruction(u8),
    /// Code that would be called.
    #[error("its pickle calls `{0}`; only tensors are read, and nothing is executed")]
    Call(String),
    /// No weights by name.
    #[error("it holds no weights by name, as `torch.save(model.state_dict(), …)` writes them")]
    NoWeights,
    /// A tensor that is not what it says.
    #[error("its tensor `{name}` {why}")]
    Tensor {
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Whether bytes are such a file rather than safetensors.
pub(super) fn is_pth(bytes: &[u8]) -> bool {
    bytes.starts_with(ARCHIVE) || bytes.starts_with(BARE)
}

/// The tensors of a file as a safetensors file.
pub(super) fn to_safetensors(bytes: &[u8]) -> Result<Vec<u8>, PthError> {
    let (heap, root, storages) =
        if bytes.starts_with(ARCHIVE) { read_archive(bytes)? } else { read_bare(bytes)? };
    let weights = weights(&heap, root).ok_or(PthError::NoWeights)?;
    let mut tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> = BTreeMap::new();
    // A tensor may claim to be a view of a few bytes that goes on for ever.
    let mut left = bytes.len().saturating_mul(4);
    for (name, item) in weights {
        let Node::Tensor(tensor) = &heap[item] else { continue };
        let data = tensor
            .copy(&storages, &mut left)
            .map_err(|why| PthError::Tensor { name: name.clone(), why })?;
        let name = name.strip_prefix(WRAPPED).unwrap_or(&name).to_owned();
        tensors.insert(name, (data.0, tensor.size.clone(), data.1));
    }
    if tensors.is_empty() {
        return Err(PthError::NoWeights);
    }
    let damaged = |_| PthError::Damaged("its tensors are not what they say");
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| {
            Ok((name, TensorView::new(*dtype, shape.clone(), data).map_err(damaged)?))
        })
        .collect::<Result<Vec<_>, PthError>>()?;
    safetensors::serialize(views, None).map_err(damaged)
}

/// Raw values by their keys.
type Storages<'a> = BTreeMap<String, &'a [u8]>;

fn read_archive(bytes: &[u8]) -> Result<(Heap, Item, Storages<'_>), PthError> {
    let entries = zip::entries(bytes).map_err(PthError::Archive)?;
    let pickle =
        entries.iter().find(|(name, _)| name.ends_with("/data.pkl") || *name == "data.pkl");
    let (name, data) =
        pickle.ok_or(PthError::Archive("has no `data.pkl`, as files of PyTorch have"))?;
    let prefix = format!("{}data/", name.strip_suffix("data.pkl").unwrap_or_default());
    let mut heap = Heap::default();
    let (root, _) = heap.run(data)?;
    let storages = entries
        .iter()
        .filter_map(|(name, data)| Some((name.strip_prefix(&prefix)?.to_owned(), *data)));
    Ok((heap, root, storages.collect()))
}

/// Three pickles that say what it is, the weights, the keys of the storages, and those one after another.
fn read_bare(bytes: &[u8]) -> Result<(Heap, Item, Storages<'_>), PthError> {
    let mut heap = Heap::default();
    let mut rest = bytes;
    let mut root = None;
    for number in 0..4 {
        let (item, read) = heap.run(rest)?;
        rest = &rest[read..];
        root = (number == 3).then_some(item);
    }
    let root = root.ok_or(PthError::NoWeights)?;
    let (keys, read) = heap.run(rest)?;
    rest = &rest[read..];
    let Node::List(keys) = &heap[keys] else {
        return Err(PthError::Damaged("no list of storages"));
    };
    let mut storages = Storages::new();
    for key in keys {
        let Node::Text(key) = &heap[*key] else {
            return Err(PthError::Damaged("no storage's name"));
        };
        let short = PthError::Damaged("a storage ends too early");
        let (count, values) = rest.split_first_chunk::<8>().ok_or(short.clone())?;
        let width = heap.width_of(key).unwrap_or(4);
        let len = usize::try_from(u64::from_le_bytes(*count))
            .ok()
            .and_then(|count| count.checked_mul(width))
            .filter(|len| *len <= values.len())
            .ok_or(short)?;
        storages.insert(key.clone(), &values[..len]);
        rest = &values[len..];
    }
    Ok((heap, root, storages))
}

/// The weights by name: the whole, or one part of it.
fn weights(heap: &Heap, root: Item) -> Option<Vec<(String, Item)>> {
    let named = |item: Item| -> Option<Vec<(String, Item)>> {
        let Node::Dict(pairs) = &heap[item] else { return None };
        let named = pairs.iter().filter_map(|&(key, value)| match &heap[key] {
            Node::Text(key) => Some((key.clone(), value)),
            _ => None,
        });
        Some(named.collect())
    };
    let all = named(root)?;
    let has_tensors =
        |all: &[(String, Item)]| all.iter().any(|(_, item)| matches!(heap[*item], Node::Tensor(_)));
    if has_tensors(&all) {
        return Some(all);
    }
    let inner = all.iter().find(|(name, _)| INNER.contains(&name.as_str()))?;
    named(inner.1).filter(|all| has_tensors(all))
}

#[cfg(test)]
mod tests;
