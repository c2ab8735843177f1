//! Why a preparation stopped.

use paceline_data::{catalogue::ListError, manifest::ManifestError};
use paceline_store::{StoreError, handout::HandoutError};

/// A setting that is not what it was when the work began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Name of the setting.
    pub what: &'static str,
    /// Its value in the target.
    pub was: String,
    pub now: String,
}

/// Why photos could not be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The store failed: a missing source, a target that cannot be written, a full disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The target's manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The target lies in the source, where its shards would look like a class.
    #[error("the target `{dst}` lies inside the source `{src}`")]
    Overlap {
        /// Where photos are read.
        src: String,
        /// Where shards would be written.
        dst: String,
    },
    /// Nothing to prepare.
    #[error("no photos in `{location}`")]
    NoPhotos { location: String },
    /// Photos, but not in class folders.
    #[error("`{location}` holds {photos} photos but no class folders with photos in them")]
    NoClasses {
        location: String,
        /// Photos directly in it.
        photos: usize,
    },
    /// Photos, but none that could be tried.
    #[error("none of the {photos} photos in `{location}` can be used; first: {first}")]
    NoneUsable {
        location: String,
        photos: usize,
        /// The first of them with its reason.
        first: String,
    },
    /// A split that the folders of the source give cannot be cut once more.
    #[error("the folders of the source name a {name} split already")]
    SplitGiven { name: String },
    /// More photos than can be numbered.
    #[error("more than {} photos", u32::MAX)]
    TooManyPhotos,
    /// A width or height of 0, or so large that records would not fit the memory bound.
    #[error("size {width}x{height}: both sides must be from 1 to 4096 pixels")]
    BadSize { width: u32, height: u32 },
    /// A JPEG quality outside 1 to 100.
    #[error("quality {quality}: must be from 1 to 100")]
    BadQuality {
        /// The quality asked for.
        quality: u8,
    },
    /// A number of shards outside 1 to 99,999, the range of the five digits in their names.
    #[error("{shards} shards: must be from 1 to 99999")]
    BadShards {
        /// The number asked for.
        shards: u32,
    },
    /// A split whose name cannot be part of a file name, or is taken.
    #[error(
        "split name `{name}`: must be letters, digits, `_` or `-`, given once, and not `train`"
    )]
    BadSplitName {
        /// The name as given.
        name: String,
    },
    /// Shares that are not between 0 and 1, or leave nothing for training.
    #[error("the shares of the splits add up to {sum}: each must be above 0, and all below 1")]
    BadShares { sum: f64 },
    /// Another process prepares into the same target.
    #[error("another process{} is preparing into `{location}`", of(.pid.as_ref()))]
    Busy {
        location: String,
        /// The other process, where known.
        pid: Option<u32>,
    },
    /// The target was begun or finished with other settings or another source.
    #[error("`{location}` was made with other settings: {}", list(.differences))]
    Changed { location: String, differences: Vec<Difference> },
    /// The target holds another data set.
    #[error("`{location}` holds another data set: {holds}")]
    Occupied { location: String, holds: String },
    /// Shards of something else lie in the target.
    #[error("`{location}` holds `{name}`, which this preparation did not write")]
    Foreign {
        location: String,
        /// One of the files.
        name: String,
    },
    /// A note about finished work is damaged.
    #[error("`{location}` is damaged")]
    Damaged {
        location: String,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// The target has less room than the smallest possible output.
    #[error("`{location}` has {free} bytes left; at least {needed} are needed")]
    NoRoom {
        location: String,
        /// Bytes that can be written.
        free: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// More rejects than allowed.
    #[error("{rejects} photos rejected, more than the {limit} allowed; first: {}", .first.join("; "))]
    TooManyRejects {
        /// Rejects so far.
        rejects: u64,
        limit: u64,
        /// The first of them with their reasons.
        first: Vec<String>,
    },
    /// Not one photo could be used.
    #[error("all {photos} photos were rejected; the reasons are in `{location}`")]
    NothingLeft {
        photos: u64,
        /// The list of rejects.
        location: String,
    },
    /// The counts do not come out; nothing was declared finished.
    #[error("{photos} photos became {records} records and {rejects} rejects")]
    Audit {
        photos: u64,
        /// Records written.
        records: u64,
        /// Photos rejected.
        rejects: u64,
    },
    /// The workers that were to make these shards did not.
    #[error("{} of {shards} shards were not made, first `{}`", .missing.len(), .missing.first().map_or("", String::as_str))]
    Unfinished { missing: Vec<String>, shards: usize },
    /// A slice that cannot be read.
    #[error("cannot read the slice")]
    SliceUnreadable(#[source] std::io::Error),
    /// A line of a slice that is not what it should be.
    #[error("line {line} of the slice cannot be understood")]
    SliceMalformed {
        /// From 1.
        line: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// A slice handed out by another version of the program.
    #[error("the slice was handed out by {theirs}, this is {ours}")]
    SliceForeign {
        /// Program and version that handed it out.
        theirs: String,
        /// This program and its version.
        ours: String,
    },
    /// A shard without photos, twice, or with a label that no class has.
    #[error("line {line} of the slice contradicts the rest: shard `{shard}`")]
    SliceInconsistent {
        /// From 1.
        line: usize,
        shard: String,
    },
    /// This machine does not see the target.
    #[error("`{location}` holds no preparation, seen from this machine")]
    TargetUnseen { location: String },
    /// This machine does not see the photos.
    #[error("`{location}` does not exist, seen from this machine")]
    SourceUnseen {
        /// A photo that should be there.
        location: String,
    },
    /// The job this work belongs to has ended, or was handed out again.
    #[error("the preparation into `{location}` that this work belongs to is over")]
    Over { location: String },
    /// Two attempts at a shard made different ones.
    #[error("another attempt wrote `{location}` with other contents")]
    Conflict { location: String },
    /// Stopped from outside; calling again goes on.
    #[error("cancelled with {finished} of {shards} shards finished")]
    Cancelled {
        /// Shards that need not be done again.
        finished: usize,
        shards: usize,
    },
}

impl From<HandoutError> for PrepareError {
    fn from(error: HandoutError) -> Self {
        match error {
            HandoutError::Unreadable { source, .. } => Self::SliceUnreadable(source),
            HandoutError::Malformed { line, source } => Self::SliceMalformed { line, source },
            HandoutError::Foreign { theirs, ours } => Self::SliceForeign { theirs, ours },
            HandoutError::Unseen { location } => Self::TargetUnseen { location },
            HandoutError::Over { location } => Self::Over { location },
            HandoutError::Damaged { location, source } => Self::Damaged { location, source },
            HandoutError::Store(error) => Self::Store(error),
        }
    }
}

impl From<ListError> for PrepareError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Store(error) => Self::Store(error),
            ListError::TooMany => Self::TooManyPhotos,
            ListError::Cancelled => Self::Cancelled { finished: 0, shards: 0 },
        }
    }
}

impl PrepareError {
    /// What the user could do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Store(error) if error.is_full() => {
                "free some space and run the same command again: finished shards are kept"
            }
            Self::Store(error) if error.is_transient() => {
                "run the same command again when the store answers: finished shards are kept"
            }
            Self::Store(error @ StoreError::Io { action: "list", .. }) if error.is_missing() => {
                "name a folder with one folder of photos per class; `paceline data synth photos DIR` draws one"
            }
            Self::Store(error) => return error.hint(),
            Self::NoRoom { .. } => "choose a target with more room, or a smaller size",
            Self::NoClasses { .. } | Self::NoPhotos { .. } => {
                "photos are expected in one folder per class: SRC/daisy/1.jpg, SRC/rose/2.jpg, or SRC/train/daisy/1.jpg"
            }
            Self::SplitGiven { .. } => {
                "leave out --split for it; other names cut a share of the training photos"
            }
            Self::Overlap { .. } => "choose a target outside the source",
            Self::Changed { .. } => {
                "use the earlier settings to continue, --fresh to start over, or another target"
            }
            Self::Occupied { .. } => "choose an empty target",
            Self::Foreign { .. } => "choose an empty target, or remove these files yourself",
            Self::Damaged { .. } | Self::Audit { .. } => "start over with --fresh",
            Self::Busy { .. } => "wait for it to end, or choose another target",
            Self::TooManyRejects { .. } => {
                "look at the reasons; a higher --max-rejects continues where this stopped"
            }
            Self::TargetUnseen { .. } | Self::SourceUnseen { .. } => {
                "source and target must lie where every executor sees them under the same path"
            }
            Self::Conflict { .. } => {
                "photos changed or could not be read meanwhile; run the same command again"
            }
            Self::Unfinished { .. } => "run the same command again: finished shards are kept",
            Self::Cancelled { .. } => "run the same command again to continue",
            _ => return None,
        })
    }
}

fn of(pid: Option<&u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" ({pid})"))
}

fn list(differences: &[Difference]) -> String {
    let each = differences
        .iter()
        .map(|difference| {
            format!("{} was {}, now {}", difference.what, difference.was, difference.now)
        })
        .collect::<Vec<_>>();
    each.join("; ")
}
