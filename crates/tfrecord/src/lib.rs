//! TFRecord files and `tf.train.Example`, exactly as TensorFlow writes them.
//!
//! A record file is a chain of [frames](frame): length, checksum, payload,
//! checksum. What the payload means is another matter, usually an
//! [`Example`]. The crate keeps the two apart:
//!
//! | to | use |
//! | --- | --- |
//! | write records, plain or compressed | [`Writer`] |
//! | read them in order, verified | [`Reader`] |
//! | read many files on all cores | [`for_each_record`] |
//! | read record number `i` | [`IndexedFile`], [`Index`] |
//! | make or take apart an example | [`Example`], [`SequenceExample`] |
//! | find features without decoding | [`ExampleView`] |
//!
//! Files may be hostile: nothing is allocated that the bytes read so far do
//! not justify, and every damaged byte is reported with file, record and offset.

mod compression;
pub mod crc;
mod error;
mod example;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod index;
mod map;
mod parallel;
mod random;
pub mod reader;
mod view;
mod wire;
mod writer;

pub use compression::Compression;
pub use error::{Error, Place};
pub use example::{
    BytesList, Example, Feature, FeatureList, FeatureLists, Features, FloatList, Int64List, Kind,
    SequenceExample,
};
pub use index::Index;
pub use parallel::{Totals, for_each_record};
pub use random::{IndexedFile, ReadAt};
pub use reader::{Reader, ReaderOptions};
pub use view::{
    BytesValues, Entries, ExampleView, FeatureKind, FeatureView, FloatValues, IntValues,
};
pub use wire::Malformed;
pub use writer::{Span, Writer};
