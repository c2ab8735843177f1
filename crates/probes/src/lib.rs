//! What the machine was doing during training.
//!
//! Each probe reads one family of counters below `/proc`, `/sys` or the cgroup and turns it into
//! rates. Counters that are missing (containers hide some), wrap, or start over with a device that
//! was unplugged become an absent value, never a wrong one. The columns are fixed, so recordings of
//! different machines can be compared.

mod counter;
mod csv;
mod kernel_file;
mod probe;
mod probes;
mod sampler;
mod verdict;
mod watched;

pub use csv::{Layout, Writer};
pub use probe::{Column, Detail, Entry, Probe, Roots, Target, columns, open_all};
pub use probes::ALL;
pub use sampler::{Reading, SHORTEST, Sampler, SamplerError, Summary};
pub use verdict::{Hold, JobVerdict, judge};
pub use watched::{WatchError, Watched, watch};
