//! Why a data set could not be fetched.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use paceline_store::StoreError;

/// What went wrong, with the file or address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The local disk failed.
    #[error("cannot {action} `{}`", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The lock or the marker could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A folder or device where a file was expected.
    #[error("`{}` is not a regular file", .path.display())]
    NotAFile { path: PathBuf },
    /// The folder holds another data set.
    #[error("`{}` holds the data set `{found}`", .folder.display())]
    OtherDataset {
        folder: PathBuf,
        /// What its marker says.
        found: String,
    },
    /// A data set without mirrors.
    #[error("no mirror is known for `{dataset}`")]
    NoMirror { dataset: &'static str },
    /// No connection, or a broken one.
    #[error("cannot download `{url}`")]
    Connection {
        url: String,
        /// What the network layer said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An address that cannot be one, or leads in circles.
    #[error("cannot follow `{url}`")]
    Address {
        url: String,
        /// What the network layer said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server stopped sending.
    #[error("`{url}` sent nothing for {stall:?}, {bytes} bytes in")]
    Stalled {
        url: String,
        stall: Duration,
        /// Bytes received so far.
        bytes: u64,
    },
    /// The server refused.
    #[error("`{url}` answered with status {status}")]
    Status {
        url: String,
        /// The HTTP status.
        status: u16,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// The body ended early.
    #[error("`{url}` ended after {bytes} of {wanted} bytes")]
    Truncated {
        url: String,
        /// Bytes received.
        bytes: u64,
        wanted: u64,
    },
    /// The server announced or sent another size than the registry knows.
    #[error("`{from}` has {found} bytes, expected {wanted}")]
    WrongSize {
        /// The address or path.
        from: String,
        /// Bytes announced or found.
        found: u64,
        wanted: u64,
    },
    /// The server sent another part than asked for.
    #[error("`{url}` was asked for bytes from {asked} on and sent another part")]
    WrongRange {
        url: String,
        /// First byte asked for.
        asked: u64,
    },
    /// The bytes are not the right ones.
    #[error("`{from}` has SHA-256 {found}, expected {wanted}")]
    Checksum {
        /// The address or path.
        from: String,
        found: String,
        wanted: &'static str,
    },
    /// The archive cannot be read or holds something that must not be written.
    #[error("`{}` cannot be unpacked: {defect}", .path.display())]
    Archive { path: PathBuf, defect: ArchiveDefect },
    /// Stopped from outside; calling again goes on.
    #[error("cancelled")]
    Cancelled,
}

/// What is wrong with an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveDefect {
    /// Not a tar archive, or damaged.
    #[error("{0}")]
    Unreadable(String),
    /// A name that would leave the folder.
    #[error("entry `{0}` would lie outside of its folder")]
    Outside(String),
    /// A link or device.
    #[error("entry `{0}` is neither a file nor a folder")]
    Kind(String),
    /// More bytes or files than the data set has.
    #[error("it holds more than {0} bytes or files")]
    TooLarge(u64),
    /// Not the number of files that the data set has.
    #[error("it holds {found} files, expected {wanted}")]
    Count { found: u64, wanted: u64 },
}

impl FetchError {
    /// Whether the same attempt may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection { .. }
            | Self::Stalled { .. }
            | Self::Truncated { .. }
            | Self::WrongRange { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            _ => false,
        }
    }

    /// What the user could do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Connection { .. }
            | Self::Stalled { .. }
            | Self::Status { .. }
            | Self::Truncated { .. }
            | Self::WrongRange { .. } => {
                "run the same command again to continue, or give another place with --from URL or --from PATH"
            }
            Self::Checksum { .. } | Self::WrongSize { .. } => {
                "the file is not the published one; give another place with --from"
            }
            Self::OtherDataset { .. } => "choose another folder",
            Self::Cancelled => "run the same command again to continue",
            _ => return None,
        })
    }

    /// Names the place the file came from instead of the temporary file.
    pub(super) fn about(self, place: String) -> Self {
        match self {
            Self::Checksum { found, wanted, .. } => Self::Checksum { from: place, found, wanted },
            Self::WrongSize { found, wanted, .. } => Self::WrongSize { from: place, found, wanted },
            other => other,
        }
    }
}

/// Wraps a failure of the local disk.
pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FetchError {
    let path = path.to_path_buf();
    move |source| FetchError::Io { action, path, source }
}
