//! Why a store could not do what was asked; every message names the object.

use std::{error::Error, io, path::PathBuf};

/// Why a store could not do what was asked; every message names the object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Reading, writing, listing or removing failed.
    #[error("cannot {action} `{location}`")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// Path or URL of the object.
        location: String,
        /// What the system or the service said.
        source: io::Error,
    },
    /// The object exists and the write was to happen only if it did not.
    #[error("`{location}` exists already")]
    Exists {
        /// Path or URL of the object.
        location: String,
    },
    /// A folder, pipe, socket or device where a file was expected; opening one could block for ever.
    #[error("`{location}` is not a regular file")]
    NotAFile {
        /// Path or URL of the object.
        location: String,
    },
    /// The object is larger than the caller is ready to hold.
    #[error("`{location}` has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Path or URL of the object.
        location: String,
        /// Its size in bytes.
        size: u64,
        /// The caller's limit in bytes.
        limit: u64,
    },
    /// The object ends before the range that was asked for.
    #[error("`{location}` ends before byte {end}")]
    OutOfRange {
        /// Path or URL of the object.
        location: String,
        /// End of the range that was asked for.
        end: u64,
    },
    /// A key that is absolute, empty, or climbs out of the store.
    #[error("`{key}` is not a valid key: it must be relative, without `.`, `..` or empty parts")]
    BadKey {
        /// The key as given.
        key: String,
    },
    /// Another living process holds the lock.
    #[error("`{location}` is locked by another process{}", holder(*.pid, .host.as_deref()))]
    Locked {
        /// Path or URL of the lock.
        location: String,
        /// Process id the holder wrote into it, where known.
        pid: Option<u32>,
        /// Its host, where known; a lock of this machine's disk does not say.
        host: Option<String>,
    },
    /// A URL that names no store.
    #[error("`{location}` names no store: {reason}")]
    BadLocation {
        /// The URL as given.
        location: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The service cannot do this at all.
    #[error("`{location}`: {reason}")]
    Unsupported {
        /// URL of the object.
        location: String,
        /// What it cannot do.
        reason: &'static str,
    },
    /// There is no run where the latest one was asked for.
    #[error("there is no run in `{location}`")]
    NoRun {
        /// Path or URL of the folder.
        location: String,
    },
    /// Another process writes to the run.
    #[error("run `{run}` is in use by {}", owner(*.pid, .host.as_deref()))]
    RunInUse {
        /// URL of the run.
        run: String,
        /// Process id of its owner, where known.
        pid: Option<u32>,
        /// Its host, where known.
        host: Option<String>,
    },
    /// Files of a stand-in on this machine that a store did not take.
    #[error("{files} files did not get into `{}`", .there.display())]
    NotMirrored {
        files: usize,
        /// The folder on this machine, which stays.
        here: PathBuf,
        /// The folder in the store.
        there: PathBuf,
        /// What the store said of the first of them.
        source: Box<StoreError>,
    },
    /// A copy on this machine could not be made or read.
    #[error("cannot {action} `{}`, the local copy of `{location}`", .path.display())]
    LocalCopy {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file on this machine.
        path: PathBuf,
        /// URL of the object.
        location: String,
        /// What the system said.
        source: io::Error,
    },
}

impl StoreError {
    /// A failure of `action` at `location`.
    pub fn io(action: &'static str, location: impl Into<String>, source: io::Error) -> Self {
        Self::Io { action, location: location.into(), source }
    }

    /// The system's error kind, where the system was asked at all.
    #[must_use]
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } | Self::LocalCopy { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.kind() == Some(io::ErrorKind::NotFound)
    }

    /// Whether the target has no room left (device full or quota used up).
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// Whether the same call may succeed later: a service that is away, slow or overloaded.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::RunInUse { .. } => true,
            Self::NotMirrored { source, .. } => source.is_transient(),
            _ => self.kind().is_some_and(is_transient),
        }
    }

    /// What to try next, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Io { location, source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                crate::services::hint(location)
            }
            Self::RunInUse { .. } => Some(
                "wait until that process has ended; one that died loses the run within a minute",
            ),
            Self::BadLocation { .. } => Some(
                "write s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://HOST/PATH or a path",
            ),
            _ => None,
        }
    }
}

/// What a service, or the way to it, said. It sits inside the [`io::Error`] of [`StoreError::Io`], so that
/// it is found below whatever other errors were put around that one.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(crate) struct Said {
    pub(crate) words: String,
    /// What to do where it does not let us in.
    pub(crate) credentials: Option<&'static str>,
}

/// What can be said about a failure of a store beyond its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advice {
    /// What to try next, where there is something.
    pub hint: Option<&'static str>,
    /// Whether the same call may succeed later.
    pub is_transient: bool,
}

/// Advice for an error with a failure of an object store among its causes.
#[must_use]
pub fn advice(error: &(dyn Error + 'static)) -> Option<Advice> {
    std::iter::successors(Some(error), |&cause| cause.source()).find_map(|cause| {
        if let Some(error) = cause.downcast_ref::<StoreError>() {
            return of(error);
        }
        let inside = cause.downcast_ref::<io::Error>()?.get_ref()?;
        if let Some(error) = inside.downcast_ref::<StoreError>() {
            return of(error);
        }
        let said = inside.downcast_ref::<Said>()?;
        let kind = cause.downcast_ref::<io::Error>()?.kind();
        let hint = said.credentials.filter(|_| kind == io::ErrorKind::PermissionDenied);
        Some(Advice { hint, is_transient: is_transient(kind) })
    })
}

fn of(error: &StoreError) -> Option<Advice> {
    let remote = match error {
        StoreError::Io { source, .. } => {
            source.get_ref().and_then(|inner| inner.downcast_ref::<Said>()).is_some()
        }
        _ => error.hint().is_some(),
    };
    remote.then(|| Advice { hint: error.hint(), is_transient: error.is_transient() })
}

/// Whether a failure of this kind is one that passes.
fn is_transient(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::TimedOut
            | io::ErrorKind::NotConnected
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ResourceBusy
    )
}

impl From<StoreError> for io::Error {
    fn from(error: StoreError) -> Self {
        Self::new(error.kind().unwrap_or(io::ErrorKind::Other), error)
    }
}

fn holder(pid: Option<u32>, host: Option<&str>) -> String {
    match (pid, host) {
        (Some(pid), Some(host)) => format!(" (process {pid} on {host})"),
        (Some(pid), None) => format!(" (process {pid})"),
        (None, _) => String::new(),
    }
}

fn owner(pid: Option<u32>, host: Option<&str>) -> String {
    match (pid, host) {
        (Some(pid), Some(host)) => format!("process {pid} on {host}"),
        (Some(pid), None) => format!("process {pid}"),
        (None, _) => "another process".to_owned(),
    }
}

/// An error and its causes in one line.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error(transparent)]
        Store(#[from] StoreError),
        #[error("cannot read")]
        Read(#[from] io::Error),
    }

    #[test]
    fn advice_is_found_below_other_errors() {
        let said = |kind, location: &str| {
            let words = "no".to_owned();
            let said = Said { words, credentials: crate::services::hint(location) };
            StoreError::io("read", location, io::Error::new(kind, said))
        };
        let denied = || said(io::ErrorKind::PermissionDenied, "s3://b/k");
        for error in [Outer::from(denied()), Outer::from(io::Error::from(denied()))] {
            let advice = advice(&error).unwrap();
            assert!(advice.hint.unwrap().contains("AWS_PROFILE") && !advice.is_transient);
        }
        let late = Outer::from(said(io::ErrorKind::TimedOut, "gs://b/k"));
        assert_eq!(advice(&late), Some(Advice { hint: None, is_transient: true }));
        let here = StoreError::io("read", "/x", io::ErrorKind::TimedOut.into());
        assert_eq!(advice(&Outer::from(here)), None, "a disk is not a service");
        let owned = StoreError::RunInUse { run: "s3://b/run".into(), pid: Some(7), host: None };
        assert_eq!(owned.to_string(), "run `s3://b/run` is in use by process 7");
        let advice = advice(&owned).unwrap();
        assert!(advice.hint.unwrap().contains("wait") && advice.is_transient);
    }
}
