//! Reads event files, ours and TensorFlow's.

use super::proto::{DOUBLE, Event, FLOAT, GraphDef, TensorProto, Value, What};
use crate::RunsError;
use paceline_tfrecord::{Error as RecordError, Reader};
use prost::Message;
use std::{collections::HashMap, path::Path};

/// One value of an event file.
#[derive(Debug, Clone, PartialEq)]
pub struct EventValue {
    /// Seconds since 1970.
    pub time: f64,
    /// Step it belongs to.
    pub step: i64,
    /// Tag; empty for versions and graphs.
    pub tag: String,
    pub value: EntryValue,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryValue {
    /// The file's version, its first record.
    Version(String),
    /// A number.
    Scalar(f64),
    /// Left edge, right edge and count of each bucket.
    Histogram(Vec<[f64; 3]>),
    /// Names, operations and inputs of a graph's nodes.
    Graph(Vec<(String, String, Vec<String>)>),
    /// Something this reader has no use for: images, text, audio.
    Other,
}

/// Reads a whole file. A file that ends in the middle of a record is one that is being written, or
/// whose writer died: what comes before is returned.
pub fn read(path: &Path) -> Result<Vec<EventValue>, RunsError> {
    let failed = |source| RunsError::Record { path: path.to_path_buf(), source };
    let mut reader = Reader::open(path).map_err(failed)?;
    let mut entries = Vec::new();
    // Only the first value of a tag needs to name its plugin.
    let mut plugins = HashMap::new();
    for record in 0.. {
        let payload = match reader.next_record() {
            Ok(Some(payload)) => payload,
            Ok(None)
            | Err(RecordError::TruncatedHeader { .. } | RecordError::TruncatedRecord { .. }) => {
                break;
            }
            Err(source) => return Err(failed(source)),
        };
        let undecodable = |source| RunsError::Event { path: path.to_path_buf(), record, source };
        let event = Event::decode(payload).map_err(undecodable)?;
        let mut push = |tag: String, value: EntryValue| {
            entries.push(EventValue { time: event.wall_time, step: event.step, tag, value });
        };
        match event.what {
            Some(What::FileVersion(version)) => push(String::new(), EntryValue::Version(version)),
            Some(What::GraphDef(bytes)) => {
                let graph = GraphDef::decode(&bytes[..]).map_err(undecodable)?;
                let nodes =
                    graph.node.into_iter().map(|node| (node.name, node.op, node.input)).collect();
                push(String::new(), EntryValue::Graph(nodes));
            }
            Some(What::Summary(summary)) => {
                for value in summary.value {
                    let decoded = decode(&value, &mut plugins);
                    push(value.tag, decoded);
                }
            }
            None => {}
        }
    }
    Ok(entries)
}

fn decode(value: &Value, plugins: &mut HashMap<String, String>) -> EntryValue {
    if let Some(data) = value.metadata.as_ref().and_then(|metadata| metadata.plugin_data.as_ref()) {
        plugins.insert(value.tag.clone(), data.plugin_name.clone());
    }
    if let Some(number) = value.simple_value {
        return EntryValue::Scalar(f64::from(number));
    }
    if let Some(histogram) = &value.histo {
        return EntryValue::Histogram(buckets_of_limits(
            histogram.min,
            &histogram.bucket_limit,
            &histogram.bucket,
        ));
    }
    let Some(numbers) = value.tensor.as_ref().and_then(numbers) else { return EntryValue::Other };
    match (plugins.get(&value.tag).map(String::as_str), numbers.as_slice()) {
        (Some("scalars"), [number]) => EntryValue::Scalar(*number),
        (Some("histograms"), all) if all.len().is_multiple_of(3) => {
            EntryValue::Histogram(all.chunks_exact(3).map(|row| [row[0], row[1], row[2]]).collect())
        }
        _ => EntryValue::Other,
    }
}

/// TF1 stores right edges; the first bucket starts at the smallest value.
fn buckets_of_limits(min: f64, limits: &[f64], counts: &[f64]) -> Vec<[f64; 3]> {
    let mut left = min;
    limits
        .iter()
        .zip(counts)
        .map(|(right, count)| {
            let bucket = [left, *right, *count];
            left = *right;
            bucket
        })
        .collect()
}

fn numbers(tensor: &TensorProto) -> Option<Vec<f64>> {
    let content = &tensor.tensor_content;
    match tensor.dtype {
        FLOAT if content.is_empty() => {
            Some(tensor.float_val.iter().map(|value| f64::from(*value)).collect())
        }
        FLOAT => Some(
            content
                .as_chunks()
                .0
                .iter()
                .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
                .collect(),
        ),
        DOUBLE if content.is_empty() => Some(tensor.double_val.clone()),
        DOUBLE => {
            Some(content.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
        }
        _ => None,
    }
}
