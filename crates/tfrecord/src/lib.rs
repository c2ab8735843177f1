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
//!
//! ```
//! use paceline_tfrecord::{Example, ExampleView, Feature, Reader, Writer};
//!
//! let example = Example::new()
//!     .with("image/class/label", Feature::ints([3]))
//!     .with("image/encoded", Feature::bytes([b"pixels".to_vec()]));
//! let mut writer = Writer::new(Vec::new());
//! writer.write(&example.to_bytes())?;
//! let mut file = writer.finish()?;
//!
//! let mut reader = Reader::new(&file[..])?;
//! let record = reader.next_record()?.expect("one record");
//! let label = ExampleView::new(record).feature("image/class/label")?.expect("a label");
//! assert_eq!(label.first_int(), Some(3));
//!
//! file[20] ^= 1;
//! assert!(Reader::new(&file[..])?.next_record().is_err(), "a damaged byte is found");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
pub use error::{Error, RecordPlace};
pub use example::{
    BytesList, Example, Feature, FeatureList, FeatureLists, Features, FloatList, Int64List,
    ListKind, SequenceExample,
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
