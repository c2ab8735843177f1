//! What the machine was doing during training.
//!
//! Each probe reads one family of counters below `/proc`, `/sys` or the cgroup and turns it into
//! rates. Counters that are missing (containers hide some), wrap, or start over with a device that
//! was unplugged become an absent value, never a wrong one. The columns are fixed, so recordings of
//! different machines can be compared.
//!
//! ```
//! use paceline_probes::{Detail, Roots, Target, columns, open_all};
//! use std::time::Duration;
//!
//! let mut values = vec![None; columns().count()];
//! let mut rest = &mut values[..];
//! for (entry, mut probe) in open_all(&Roots::default(), Target::own()) {
//!     let (own, others) = rest.split_at_mut(entry.columns.len());
//!     probe.sample(Duration::ZERO, own, &mut Detail::new());
//!     probe.sample(Duration::from_secs(1), own, &mut Detail::new());
//!     rest = others;
//! }
//! for (column, value) in columns().zip(&values) {
//!     println!("{}: {value:?}", column.name);
//! }
//! assert!(values.iter().any(Option::is_some));
//! ```

mod child;
mod counter;
mod csv;
mod folder_recorder;
mod kernel_file;
mod probe;
mod probes;
mod process_tree;
mod recording_file;
mod sampler;
mod verdict;
mod watched;

pub use child::{ChildEnd, ChildLimits, ExitReason, Reach, read_pipe, shell_word, tie};
pub use csv::{Layout, Writer};
pub use folder_recorder::{FolderRecorder, FolderRecorderError};
pub use probe::{Column, Detail, Probe, ProbeEntry, Roots, Target, columns, open_all};
pub use probes::ALL;
pub use recording_file::{RecordingError, append, create, mark};
pub use sampler::{Reading, SHORTEST, Sampler, SamplerError, Summary};
pub use verdict::{Hold, JobVerdict, judge};
pub use watched::{WatchError, WatchOrder, WatchTarget, Watched, is_running, watch};
