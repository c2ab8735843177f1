//! Data sets the program draws itself, written as the files that real ones come in.
//!
//! Everything is a pure function of (seed, example): the same on every machine and for any number
//! of threads. Digits are drawn by `paceline_data::synth`, which also serves them without files.

pub mod clicks;
pub mod digits;
pub mod photos;

pub use clicks::{ClicksOptions, ClicksWritten, write_clicks};
pub use digits::{DigitsOptions, write_digits};
pub use photos::{PhotosOptions, write_photos};

use paceline_photo::PhotoError;
use paceline_store::StoreError;
use std::{io, path::PathBuf};

/// Why a drawn data set could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// A file or folder could not be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// A photo could not be encoded.
    #[error("cannot encode `{}`", .path.display())]
    Encode {
        path: PathBuf,
        /// The encoder's reason.
        source: PhotoError,
    },
    /// The target failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SynthError {
    /// Wraps a failure to write `path`.
    fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }
}
