//! What every model, strategy and transport owe each other, tested in all combinations.
//!
//! The tests iterate the registries, so a new model, strategy or transport is covered the moment it
//! is listed. Jobs are threads of one process over real links, on examples small enough for seconds:
//! what is compared is arithmetic and counting, not speed.

#![allow(clippy::unwrap_used)] // only tests build on this crate

mod examples;
mod job;
mod transports;

pub use examples::{Examples, batches};
pub use job::{Job, Outcome};
pub use transports::{TRANSPORTS, Transport};
