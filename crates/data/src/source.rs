//! What every data source offers: a schema, and examples by number.
//!
//! A source knows nothing of shards, order or workers; it may be read from many threads at once,
//! each with a [`Scratch`] of its own, and allocates nothing per example once the scratch is warm.

use std::{fmt, path::Path, str::FromStr, sync::Arc};

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, MemoryLimit, Schema};
use paceline_photo::{Decoder, Fit, Limits, Pixels};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{DataError, fingerprint::sampled, rejects::Reject, sources};

/// Examples by number.
pub trait Source: Send + Sync + fmt::Debug {
    /// What an example looks like.
    fn schema(&self) -> &Schema;

    /// Number of examples.
    fn len(&self) -> u64;

    /// Reads example `index` (below [`Source::len`]) into `pixels`, which is exactly as long as the
    /// schema's image, and returns its label.
    ///
    /// # Errors
    /// Says which file and record could not be read; `pixels` then holds anything.
    fn read(&self, index: u64, scratch: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError>;

    /// Whether the set has no example.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether reading an example is merely a copy from memory, so that handing it to another
    /// thread would cost more than it saves.
    fn resident(&self) -> bool {
        false
    }

    /// Whether examples come from another machine one by one, so that a reader mostly waits and there
    /// should be more of them than cores.
    fn distant(&self) -> bool {
        false
    }

    /// The label of example `index`, without decoding it where that can be avoided.
    ///
    /// # Errors
    /// As [`Source::read`].
    fn label(&self, index: u64, scratch: &mut Scratch) -> Result<u32, DataError> {
        let mut pixels = vec![0; image_shape(self.schema()).len()];
        self.read(index, scratch, &mut pixels)
    }

    /// Where example `index` comes from, for messages and samples.
    fn origin(&self, index: u64) -> String {
        format!("example {index}")
    }

    /// How photos of another shape were made to fit this set's, so that a single photo can be treated alike.
    fn fit(&self) -> Fit {
        Fit::default()
    }

    /// What a reader should know about this set: assumptions made when it was opened.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Inputs of this set that cannot even be tried, such as photos in no class folder.
    fn rejects(&self) -> &[Reject] {
        &[]
    }

    /// Whether examples are files from outside, of which a bad one is left out and listed rather than an error.
    fn may_reject(&self) -> bool {
        false
    }

    /// The reject that example `index` becomes by an error of [`Source::read`]; nothing where the example is not to blame.
    fn fault(&self, _index: u64, _error: &DataError) -> Option<Reject> {
        None
    }

    /// Leaves out example `index` after an error of [`Source::read`], where this source keeps a list of those.
    ///
    /// # Errors
    /// The error itself, where the example may not be left out, or the list has become too long.
    fn leave_out(&self, _index: u64, error: DataError) -> Result<(), DataError> {
        Err(error)
    }

    /// Adds what tells this set from others to `sum`, without reading all of it: see [`crate::fingerprint`].
    ///
    /// # Errors
    /// Files that cannot be read at all; an example that cannot is a mark like any other.
    fn identify(&self, sum: &mut Sha256) -> Result<(), DataError> {
        let (mut scratch, mut pixels) =
            (Scratch::default(), vec![0; image_shape(self.schema()).len()]);
        for index in sampled(self.len()) {
            match self.read(index, &mut scratch, &mut pixels) {
                Ok(label) => {
                    sum.update(label.to_le_bytes());
                    sum.update(&pixels);
                }
                Err(_) => sum.update(b"unreadable"),
            }
        }
        Ok(())
    }

    /// Appends examples to a batch of pixels, in the order of `indices`.
    ///
    /// # Errors
    /// Stops at the first example that cannot be read; the batch then holds those before it.
    fn gather(
        &self,
        indices: &[u64],
        scratch: &mut Scratch,
        batch: &mut Batch,
    ) -> Result<(), DataError> {
        let Features::Pixels { values, width } = &mut batch.features else {
            unreachable!("image sources fill batches of pixels");
        };
        for &index in indices {
            let start = values.len();
            values.resize(start + *width, 0);
            match self.read(index, scratch, &mut values[start..]) {
                Ok(label) => batch.labels.push(label),
                Err(error) => {
                    values.truncate(start);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Memory a thread reuses from example to example; grows to the largest file seen.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Name of a file.
    pub(crate) key: String,
    /// A file or record as stored.
    pub(crate) bytes: Vec<u8>,
    pub(crate) decoder: Decoder,
    /// A photo that was resized.
    pub(crate) pixels: Pixels,
    /// An image before it is changed.
    pub(crate) copy: Vec<u8>,
}

/// A part of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// For learning.
    Train,
    /// For decisions during training.
    Validation,
    /// For the final word.
    Test,
}

impl Split {
    /// All splits.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// The name used in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }

    /// Other names in use for the same thing.
    pub(crate) fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Train => &["train", "training"],
            Self::Validation => &["validation", "val", "valid", "dev"],
            Self::Test => &["test", "t10k", "testing"],
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Split {
    type Err = UnknownSplit;

    fn from_str(text: &str) -> Result<Self, UnknownSplit> {
        Self::ALL
            .into_iter()
            .find(|split| split.aliases().contains(&text))
            .ok_or_else(|| UnknownSplit { text: text.to_owned() })
    }
}

/// A name that does not belong to a split.
#[derive(Debug, thiserror::Error)]
#[error("no split is called `{text}`; there are train, validation and test")]
pub struct UnknownSplit {
    /// What was written.
    pub text: String,
}

/// How a data set is to be opened; every source uses what concerns it.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenOptions {
    /// Number of classes, where it cannot or should not be inferred from the labels.
    pub classes: Option<usize>,
    /// Width and height photos are resized to; the stored or usual size without.
    pub size: Option<(u32, u32)>,
    /// How a photo of another shape is made to fit.
    pub fit: Fit,
    /// Share of the photos held out for validation and test, where folders do not say which.
    pub holdout: f64,
    /// When shards are compared with the checksums of their manifest.
    pub checksums: Checksums,
    /// Most pixels of a photo; as [`paceline_photo::Limits`] has it where absent.
    pub max_pixels: Option<u64>,
    /// Most bytes of a set that is held in memory as a whole; what this process may use where absent.
    pub max_memory: Option<u64>,
}

/// When shards are compared with the checksums of their manifest, whose sizes and counts are looked at always.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Never: what is read only once is not read twice.
    #[default]
    Never,
    /// While examples are read, no faster than they are.
    Beside,
    /// When the set is opened.
    First,
}

impl OpenOptions {
    /// How large a photo may be.
    pub(crate) fn limits(&self) -> Limits {
        let limits = Limits::default();
        Limits { max_pixels: self.max_pixels.unwrap_or(limits.max_pixels), ..limits }
    }

    /// How much memory contents may take.
    pub(crate) fn memory(&self) -> MemoryLimit {
        let asked = |bytes| MemoryLimit { bytes, decided_by: "as asked" };
        self.max_memory.map_or_else(paceline_batch::memory_limit, asked)
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            classes: None,
            size: None,
            fit: Fit::default(),
            holdout: 0.1,
            checksums: Checksums::default(),
            max_pixels: None,
            max_memory: None,
        }
    }
}

/// Opens everything in a data set, whatever its kind.
///
/// # Errors
/// Says what was looked for where `location` is nothing known, and what is wrong with it where it is.
pub fn open(
    location: impl AsRef<Path>,
    options: &OpenOptions,
) -> Result<Arc<dyn Source>, DataError> {
    sources::detect(location.as_ref())?.open(location.as_ref(), None, options)
}

/// Opens one split of a data set, whatever its kind.
///
/// # Errors
/// Like [`open`]; a set without such a split says which ones it has.
pub fn open_split(
    location: impl AsRef<Path>,
    split: Split,
    options: &OpenOptions,
) -> Result<Arc<dyn Source>, DataError> {
    sources::detect(location.as_ref())?.open(location.as_ref(), Some(split), options)
}

/// The image shape of a schema that describes images.
///
/// # Panics
/// Never for the sources of this crate: all of them yield images.
#[must_use]
pub fn image_shape(schema: &Schema) -> ImageShape {
    match schema.features {
        FeatureKind::Image(shape) => shape,
        FeatureKind::Sparse { .. } => unreachable!("every source of this crate yields images"),
    }
}
