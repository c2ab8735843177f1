//! `tf.train.Example` and `SequenceExample` as owned values.
//!
//! The messages are written out by hand after TensorFlow's `example.proto` and
//! `feature.proto`, so that a build needs no protobuf compiler. Maps are
//! sorted by name: equal examples have equal bytes, on every machine.

use std::collections::BTreeMap;

use prost::Message;

use crate::error::Error;

/// A list of byte strings.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BytesList {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub value: Vec<Vec<u8>>,
}

/// A list of 32-bit floats, written packed.
#[derive(Clone, PartialEq, Message)]
pub struct FloatList {
    #[prost(float, repeated, tag = "1")]
    pub value: Vec<f32>,
}

/// A list of 64-bit integers, written packed.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Int64List {
    #[prost(int64, repeated, tag = "1")]
    pub value: Vec<i64>,
}

/// Which of the three lists a feature holds.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ListKind {
    /// Byte strings.
    #[prost(message, tag = "1")]
    BytesList(BytesList),
    /// Floats.
    #[prost(message, tag = "2")]
    FloatList(FloatList),
    /// Integers.
    #[prost(message, tag = "3")]
    Int64List(Int64List),
}

/// One feature: a list of values of one kind, or nothing.
#[derive(Clone, PartialEq, Message)]
pub struct Feature {
    /// The list; `None` for a feature that is named but not set.
    #[prost(oneof = "ListKind", tags = "1, 2, 3")]
    pub kind: Option<ListKind>,
}

/// Features by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Features {
    /// The features, sorted by name.
    pub feature: BTreeMap<String, Feature>,
}

/// The values of one feature over a sequence.
#[derive(Clone, PartialEq, Message)]
pub struct FeatureList {
    /// One feature per step.
    #[prost(message, repeated, tag = "1")]
    pub feature: Vec<Feature>,
}

/// Feature lists by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeatureLists {
    /// The lists, sorted by name.
    pub feature_list: BTreeMap<String, FeatureList>,
}

/// One training example: features by name.
#[derive(Clone, PartialEq, Message)]
pub struct Example {
    #[prost(message, optional, tag = "1")]
    pub features: Option<Features>,
}

/// One training example that is a sequence, with features of the whole.
#[derive(Clone, PartialEq, Message)]
pub struct SequenceExample {
    /// Features of the whole sequence.
    #[prost(message, optional, tag = "1")]
    pub context: Option<Features>,
    /// Features of each step.
    #[prost(message, optional, tag = "2")]
    pub feature_lists: Option<FeatureLists>,
}

impl Feature {
    /// A feature of byte strings.
    pub fn bytes<B: Into<Vec<u8>>>(values: impl IntoIterator<Item = B>) -> Self {
        let value = values.into_iter().map(Into::into).collect();
        Self { kind: Some(ListKind::BytesList(BytesList { value })) }
    }

    /// A feature of floats.
    pub fn floats(values: impl IntoIterator<Item = f32>) -> Self {
        let value = values.into_iter().collect();
        Self { kind: Some(ListKind::FloatList(FloatList { value })) }
    }

    /// A feature of integers.
    pub fn ints(values: impl IntoIterator<Item = i64>) -> Self {
        let value = values.into_iter().collect();
        Self { kind: Some(ListKind::Int64List(Int64List { value })) }
    }

    /// The byte strings; empty if the feature holds something else.
    pub fn as_bytes(&self) -> &[Vec<u8>] {
        match &self.kind {
            Some(ListKind::BytesList(list)) => &list.value,
            _ => &[],
        }
    }

    /// The floats; empty if the feature holds something else.
    pub fn as_floats(&self) -> &[f32] {
        match &self.kind {
            Some(ListKind::FloatList(list)) => &list.value,
            _ => &[],
        }
    }

    /// The integers; empty if the feature holds something else.
    pub fn as_ints(&self) -> &[i64] {
        match &self.kind {
            Some(ListKind::Int64List(list)) => &list.value,
            _ => &[],
        }
    }
}

impl Example {
    /// An example without features.
    pub fn new() -> Self {
        Self { features: Some(Features::default()) }
    }

    /// Adds or replaces a feature.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, feature: Feature) -> Self {
        self.set(name, feature);
        self
    }

    /// Adds or replaces a feature.
    pub fn set(&mut self, name: impl Into<String>, feature: Feature) {
        let features = self.features.get_or_insert_default();
        features.feature.insert(name.into(), feature);
    }

    /// The feature of this name.
    pub fn get(&self, name: &str) -> Option<&Feature> {
        self.features.as_ref()?.feature.get(name)
    }

    /// The encoded message, always the same for equal examples.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// Decodes a message.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Ok(Self::decode(bytes)?)
    }
}

impl SequenceExample {
    /// The encoded message, always the same for equal examples.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// Decodes a message.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Ok(Self::decode(bytes)?)
    }
}
