//! Data sets made ready for reading.
//!
//! Training reads shards fast and in any order; what people have are folders of photos, click logs and archives
//! somewhere else. This crate gets from one to the other: [`fetch`] brings known data sets here and [`synth`] draws
//! some that need no download, [`photos`] and [`rows`] turn photos and rows into shards with a manifest, and
//! [`speedtest`] says what that gained. Everything is written whole or not at all and continues where it was
//! interrupted; the parts that take long can be handed out to an engine.
//!
//! Reading is `paceline-data`, on which this crate builds.
//!
//! ```
//! use paceline_data::{OpenOptions, open};
//! use paceline_prepare::{photos, synth};
//! use paceline_store::LocalStore;
//! use std::sync::atomic::AtomicBool;
//!
//! let scratch = tempfile::tempdir()?;
//! let (from, to) = (scratch.path().join("flowers"), scratch.path().join("shards"));
//! let drawn = synth::PhotosOptions { per_class: 2, ..Default::default() };
//! synth::write_photos(&from, &drawn, &|_| ())?;
//!
//! let options = photos::PhotoOptions { width: 32, height: 32, shards: 2, ..Default::default() };
//! let (src, dst) = (LocalStore::new(&from), LocalStore::new(&to));
//! let made = photos::prepare(&src, &dst, &options, &AtomicBool::new(false), &mut |_| {})?;
//! assert_eq!(open(&to, &OpenOptions::default())?.len(), made.records);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod fetch;
pub mod photos;
pub mod rows;
pub mod speedtest;
pub mod synth;
mod target;
