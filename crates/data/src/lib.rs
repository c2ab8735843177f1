//! Data sources, order, loader, prepare and the reading speed test.
//!
//! Flow: a [`source`] knows its examples by number; [`order`] says which comes when; a [`loader`]
//! reads them on several threads and hands out batches.

mod catalogue;
mod error;
pub mod fetch;
pub mod fingerprint;
mod gunzip;
pub mod inspect;
pub mod lenient;
pub mod loader;
pub mod manifest;
pub mod order;
mod path_hash;
pub mod prepare;
pub mod rejects;
pub mod rows;
pub mod source;
pub mod sources;
pub mod speedtest;
pub mod store;
pub mod synth;
mod target;

pub use error::DataError;
pub use fingerprint::{FileMark, Fingerprint};
pub use loader::{Loader, LoaderOptions, OnError};
pub use source::{OpenOptions, Scratch, Source, Split, open, open_split};
