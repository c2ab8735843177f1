//! Rows of sparse features, streamed: click logs, libsvm and Vowpal Wabbit text, and records.
//!
//! A log of clicks is larger than memory and has no random access, so it is no
//! [`Source`](crate::Source): it is read once, front to back, in blocks of whole lines. Reading
//! ([`Lines`]) and parsing ([`Format`]) are apart, so that parsing can go on on several threads and a
//! place in the stream is known without it.
//!
//! ```text
//! files, standard input, a growing log ──Lines──▶ Block (bytes) ──Format──▶ Batch (indices, values, labels)
//! ```

mod deal;
mod delimiters;
pub mod formats;
mod hashing;
mod input;
mod lines;
mod number;
mod prepared;
mod rejects;
mod scan;
mod tail;

pub use deal::{Dealt, deal};
pub use formats::{Format, Parser, Refusal, Refused, detect, format_of};
pub use hashing::{Hashing, Integers};
pub use input::{Input, expand};
pub use lines::{Block, Lines, Next, Position};
pub use prepared::{DESCRIPTION, Prepared, Shard};
pub use rejects::Rejects;
