//! TensorFlow's messages around events, by field number; fields that are not read here are left out and
//! skipped by the decoder.

use prost::{Message, Oneof};
use std::collections::BTreeMap;

/// `DataType` numbers of TensorFlow.
pub(crate) const FLOAT: i32 = 1;
pub(crate) const DOUBLE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub(crate) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(crate) step: i64,
    #[prost(oneof = "What", tags = "3, 4, 5")]
    pub(crate) what: Option<What>,
    #[prost(message, optional, tag = "10")]
    pub(crate) source_metadata: Option<SourceMetadata>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    /// An encoded [`GraphDef`].
    #[prost(bytes, tag = "4")]
    GraphDef(Vec<u8>),
    #[prost(message, tag = "5")]
    Summary(Summary),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SourceMetadata {
    #[prost(string, tag = "1")]
    pub(crate) writer: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(crate) value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(string, tag = "1")]
    pub(crate) tag: String,
    /// Where TF1 put scalars; read, never written.
    #[prost(float, optional, tag = "2")]
    pub(crate) simple_value: Option<f32>,
    /// Where TF1 put histograms; read, never written.
    #[prost(message, optional, tag = "5")]
    pub(crate) histo: Option<HistogramProto>,
    #[prost(message, optional, tag = "8")]
    pub(crate) tensor: Option<TensorProto>,
    #[prost(message, optional, tag = "9")]
    pub(crate) metadata: Option<SummaryMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HistogramProto {
    #[prost(double, tag = "1")]
    pub(crate) min: f64,
    #[prost(double, tag = "2")]
    pub(crate) max: f64,
    #[prost(double, tag = "3")]
    pub(crate) num: f64,
    #[prost(double, repeated, tag = "6")]
    pub(crate) bucket_limit: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub(crate) bucket: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SummaryMetadata {
    #[prost(message, optional, tag = "1")]
    pub(crate) plugin_data: Option<PluginData>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginData {
    #[prost(string, tag = "1")]
    pub(crate) plugin_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorProto {
    #[prost(int32, tag = "1")]
    pub(crate) dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) tensor_shape: Option<TensorShape>,
    /// The values, little endian.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) tensor_content: Vec<u8>,
    /// The other place for values; read, never written.
    #[prost(float, repeated, tag = "5")]
    pub(crate) float_val: Vec<f32>,
    #[prost(double, repeated, tag = "6")]
    pub(crate) double_val: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorShape {
    #[prost(message, repeated, tag = "2")]
    pub(crate) dim: Vec<Dim>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dim {
    #[prost(int64, tag = "1")]
    pub(crate) size: i64,
}

impl TensorShape {
    pub(crate) fn of(dims: &[usize]) -> Self {
        Self { dim: dims.iter().map(|size| Dim { size: *size as i64 }).collect() }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GraphDef {
    #[prost(message, repeated, tag = "1")]
    pub(crate) node: Vec<NodeDef>,
    #[prost(message, optional, tag = "4")]
    pub(crate) versions: Option<VersionDef>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VersionDef {
    #[prost(int32, tag = "1")]
    pub(crate) producer: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeDef {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) op: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) input: Vec<String>,
    #[prost(btree_map = "string, message", tag = "5")]
    pub(crate) attr: BTreeMap<String, AttrValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttrValue {
    #[prost(message, optional, tag = "1")]
    pub(crate) list: Option<AttrList>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) text: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "6")]
    pub(crate) data_type: Option<i32>,
    #[prost(message, optional, tag = "7")]
    pub(crate) shape: Option<TensorShape>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttrList {
    #[prost(message, repeated, tag = "7")]
    pub(crate) shape: Vec<TensorShape>,
}
