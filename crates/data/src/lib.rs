//! Everything about reading: sources, rows, order and loader.
//!
//! Models see batches and sources know files; this crate is what lies between them, and it only reads. Flow: a
//! [`source`] knows its examples by number; [`order`] says which comes when; a [`loader`] reads them on several threads
//! and hands out batches. Logs that are larger than memory are [`rows`], streamed front to back. What writes data sets
//! is `paceline-prepare`.
//!
//! ```
//! use paceline_data::{Loader, LoaderOptions, OpenOptions, open};
//!
//! let source = open("generated:digits?examples=100&seed=1", &OpenOptions::default())?;
//! let options = LoaderOptions { batch_size: 32, epochs: Some(1), ..LoaderOptions::default() };
//! let mut loader = Loader::new(source, options)?;
//! let mut examples = 0;
//! while let Some(batch) = loader.next_batch()? {
//!     examples += batch.len();
//! }
//! assert_eq!(examples, 100);
//! # Ok::<(), paceline_data::DataError>(())
//! ```

pub mod augment;
pub mod catalogue;
mod error;
pub mod feed;
pub mod fingerprint;
mod gunzip;
pub mod inspect;
pub mod lenient;
pub mod loader;
pub mod manifest;
pub mod order;
pub mod path_hash;
mod photo_files;
pub mod rejects;
pub mod rows;
pub mod source;
pub mod sources;
pub mod store;
pub mod subset;
pub mod synth;

pub use augment::Augment;
pub use error::DataError;
pub use fingerprint::{FileMark, Fingerprint};
pub use loader::{Loader, LoaderOptions, OnError};
pub use paceline_photo::Fit;
pub use photo_files::{PhotoFiles, expand as expand_photos};
pub use source::{Checksums, OpenOptions, Scratch, Source, Split, open, open_split};
