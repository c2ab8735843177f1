//! Flat buffers in and out of safetensors files.
//!
//! Written in one streaming pass: a copy of the file in memory would
//! double the memory of a large model at the worst moment.

use paceline_models::{Layout, PixelScale, pretrained};
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Floats converted at a time; 64 KiB of bytes.
const BLOCK: usize = 16 << 10;

/// A group of tensors to write: the whole layout, under names with a prefix.
pub(super) struct Group<'a> {
    pub(super) prefix: &'a str,
    pub(super) values: &'a [f32],
}

/// Writes groups of tensors as one safetensors file.
pub(super) fn write(
    out: &mut dyn Write,
    layout: &Layout,
    groups: &[Group<'_>],
    pixels: PixelScale,
) -> io::Result<()> {
    let mut header = Map::new();
    let mut about =
        Map::from_iter([(pretrained::FORMAT_KEY.into(), pretrained::OWN_FORMAT.into())]);
    if let Some(input) = pretrained::input_of(pixels) {
        about.insert(pretrained::INPUT_KEY.into(), input.into());
    }
    header.insert("__metadata__".into(), Value::Object(about));
    for (number, group) in groups.iter().enumerate() {
        let base = number * layout.len();
        for entry in layout.entries() {
            let range = entry.range();
            header.insert(
                format!("{}{}", group.prefix, entry.name),
                json!({
                    "dtype": "F32",
                    "shape": entry.shape,
                    "data_offsets": [4 * (base + range.start), 4 * (base + range.end)],
                }),
            );
        }
    }
    let mut text = serde_json::to_vec(&Value::Object(header)).map_err(io::Error::from)?;
    // The data must start at a multiple of 8; the format pads its header with spaces.
    text.resize(text.len().next_multiple_of(8), b' ');
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(&text)?;
    let mut block = Vec::with_capacity(4 * BLOCK);
    for group in groups {
        for values in group.values.chunks(BLOCK) {
            block.clear();
            block.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            out.write_all(&block)?;
        }
    }
    Ok(())
}

/// Why tensors do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// A tensor is missing.
    Missing(String),
    /// A tensor has another shape or type.
    Shape { name: String, found: String, wanted: String },
}

/// Reads a group of tensors into `values`, laid out as `layout` says.
pub(super) fn read(
    file: &SafeTensors<'_>,
    layout: &Layout,
    prefix: &str,
    values: &mut [f32],
) -> Result<(), Unfit> {
    for entry in layout.entries() {
        let name = format!("{prefix}{}", entry.name);
        let Ok(tensor) = file.tensor(&name) else { return Err(Unfit::Missing(name)) };
        if tensor.dtype() != Dtype::F32 || tensor.shape() != entry.shape {
            return Err(Unfit::Shape {
                name,
                found: format!("{:?} {:?}", tensor.dtype(), tensor.shape()),
                wanted: format!("F32 {:?}", entry.shape),
            });
        }
        let (words, _) = tensor.data().as_chunks::<4>();
        for (value, word) in values[entry.range()].iter_mut().zip(words) {
            *value = f32::from_le_bytes(*word);
        }
    }
    Ok(())
}
