//! Photos in class folders → shards of `tf.train.Example`.
//!
//! What goes where is decided before any photo is opened: the sorted list of photos, the seed and the
//! settings give every shard its photos in their order ([`plan`]). Photos are then converted on all cores
//! and written in exactly that order ([`ordered`]), so the bytes depend on neither threads nor timing.
//!
//! A shard is committed whole, and after it a small report with its counts and rejects ([`journal`]).
//! A restarted preparation finds the reports and continues after them; the manifest comes last. So even
//! if it is killed at any moment, every photo ends up exactly once in a shard or in the list of rejects.
//!
//! [`prepare`] does all of it in this process. An engine such as Spark takes the same steps apart: a [`PhotoJob`]
//! begins and finishes, and in between others [`work`] on its slices, in any place, order and number of attempts.

mod convert;
mod error;
mod job;
mod journal;
mod memory;
mod options;
mod ordered;
mod plan;
mod progress;
mod run;
mod shard;
mod slice;

pub use error::{Difference, PrepareError};
pub use job::{Begun, PhotoJob};
pub use options::{PhotoOptions, SplitShare};
pub use paceline_data::rejects::RejectLimit;
pub use paceline_photo::{Encoding, Fit};
pub use progress::{Event, Progress, SplitSummary, Summary, Warning};
pub use slice::{Origin, Slice, Worked, WorkedShard, work};

pub(crate) use journal::plan_key;

use std::sync::atomic::AtomicBool;

use paceline_store::Store;

/// Converts the photos of `src` into shards in `dst`, resuming an earlier call that was interrupted.
///
/// `cancel` may be raised at any time from outside; the call then ends with
/// [`PrepareError::Cancelled`] and can be repeated. `events` is called on this thread.
///
/// # Errors
/// Everything that stops the whole: a source without photos, a target that cannot be written or belongs
/// to something else, too many rejects. A bad photo is not an error; it is listed in `rejects.jsonl`.
pub fn prepare(
    src: &dyn Store,
    dst: &dyn Store,
    options: &PhotoOptions,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<Summary, PrepareError> {
    match PhotoJob::begin(src, dst, options, cancel, events)? {
        Begun::Finished(summary) => Ok(summary),
        Begun::Open(mut job) => {
            job.convert(cancel, events)?;
            job.finish()
        }
    }
}
