//! Files of run folders, opened only if they are files.
//!
//! A link in a run folder could lead to any file that the server may read, and a pipe would hold its reader up.

use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Files of a run whose contents are shown.
const SHOWN: &[&str] = &["plan.json", "machine.json", "summary.json", "tasks.json", "owner.json"];

/// Opens a file for reading; a link or anything else is an error.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"))
    }
}

/// Reads a small file whole.
pub(crate) fn read_plain(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The first file of a run that would be shown and is a link.
pub(crate) fn linked(run: &Path) -> Option<String> {
    let is_shown = |name: &str| {
        SHOWN.contains(&name)
            || (name.starts_with("events-") && name.ends_with(".jsonl"))
            || (name.starts_with("resources-") && name.ends_with(".csv"))
    };
    let entries = fs::read_dir(run).ok()?;
    entries.flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        (is_link && is_shown(&name)).then_some(name)
    })
}

/// What tells whether a file has changed: its length, its time and its number.
pub(crate) type Mark = (u64, i64, u64);

/// The mark of a file; zeros where there is none.
pub(crate) fn mark(path: &Path) -> Mark {
    fs::symlink_metadata(path).map_or((0, 0, 0), |meta| {
        let time = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        (meta.len(), time, meta.ino())
    })
}
