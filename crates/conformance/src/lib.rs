//! What every model, strategy and transport owe each other, tested in all combinations.
//!
//! The tests iterate the registries, so a new model, strategy or transport is covered the moment it
//! is listed. Jobs are threads of one process over real links, on examples small enough for seconds:
//! what is compared is arithmetic and counting, not speed.
//!
//! ```
//! use paceline_conformance::Job;
//! use paceline_models::registry;
//!
//! let softmax = registry::find("softmax")?;
//! let alone = Job::new(softmax).steps(3).run();
//! let mirrored = Job::new(softmax).under(paceline_strategies::find("mirrored").expect("a strategy"));
//! let mirrored = mirrored.steps(3).run();
//! let pairs = alone.params[0].iter().zip(&mirrored.params[0]);
//! assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-4));
//! # Ok::<(), paceline_models::ModelError>(())
//! ```

#![allow(clippy::unwrap_used)] // only tests build on this crate

mod examples;
mod job;
pub mod rows;
mod transports;

pub use examples::{Examples, batches};
pub use job::{Job, Outcome};
pub use transports::{TRANSPORTS, Transport};
