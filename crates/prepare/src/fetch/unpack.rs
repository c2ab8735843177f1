//! Takes a data set out of its archive, without trusting the archive.
//!
//! Plain files and folders below one expected folder only: no links, no devices, no `..`, no absolute
//! names, and no more bytes or files than the data set has. Everything is unpacked beside its final
//! place and moved there by a single rename.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write},
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use flate2::read::GzDecoder;
use tar::{Archive as Tar, EntryType};

use super::{
    Event, FetchError,
    datasets::Archive,
    error::{ArchiveDefect, failed},
};
use paceline_store::durable;

/// Where files lie until all are there.
const UNPACKING: &str = ".unpacking";

/// Unpacks into `out` and returns the data folder.
pub(super) fn unpack(
    path: &Path,
    out: &Path,
    archive: &Archive,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<PathBuf, FetchError> {
    let target = out.join(archive.folder);
    if is_complete(&target, archive) {
        return Ok(target);
    }
    let temporary = out.join(UNPACKING);
    remove(&temporary)?;
    let result = take_out(path, &temporary, archive, cancel, events);
    if let Err(error) = result {
        remove(&temporary)?;
        return Err(error);
    }
    // An incomplete folder of that name is what an older, interrupted program left.
    remove(&target)?;
    fs::rename(temporary.join(archive.folder), &target).map_err(failed("create", &target))?;
    remove(&temporary)?;
    durable::sync_folder(out).map_err(failed("write", out))?;
    Ok(target)
}

/// Whether the folder holds the right number of files.
pub(super) fn is_complete(folder: &Path, archive: &Archive) -> bool {
    count(folder).is_ok_and(|files| files == archive.files)
}

fn count(folder: &Path) -> io::Result<u64> {
    let mut files = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files += if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 };
    }
    Ok(files)
}

fn take_out(
    path: &Path,
    into: &Path,
    archive: &Archive,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<(), FetchError> {
    let defect = |defect| FetchError::Archive { path: path.into(), defect };
    let unreadable = |error: io::Error| defect(ArchiveDefect::Unreadable(error.to_string()));
    let file = File::open(path).map_err(failed("read", path))?;
    let mut tar = Tar::new(GzDecoder::new(BufReader::with_capacity(128 << 10, file)));
    let (mut files, mut bytes) = (0, 0u64);
    for entry in tar.entries().map_err(unreadable)? {
        if cancel.load(Ordering::Relaxed) {
            return Err(FetchError::Cancelled);
        }
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.into_owned();
        let kind = entry.header().entry_type();
        match kind {
            EntryType::XGlobalHeader => continue,
            EntryType::Regular | EntryType::Directory => {}
            _ => return Err(defect(ArchiveDefect::Kind(name.display().to_string()))),
        }
        let place = inside(&name, archive.folder)
            .ok_or_else(|| defect(ArchiveDefect::Outside(name.display().to_string())))?;
        let place = into.join(place);
        if kind == EntryType::Directory {
            fs::create_dir_all(&place).map_err(failed("create", &place))?;
            continue;
        }
        // The header's size is checked before anything is written; the reader keeps to it.
        bytes = bytes.saturating_add(entry.size());
        files += 1;
        if bytes > archive.max_bytes || files > archive.files {
            return Err(defect(ArchiveDefect::TooLarge(archive.max_bytes.min(bytes))));
        }
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).map_err(failed("create", folder))?;
        }
        let written = File::create_new(&place).map(BufWriter::new);
        let mut written = written.map_err(failed("create", &place))?;
        let copied = io::copy(&mut entry, &mut written).map_err(unreadable)?;
        if copied != entry.size() {
            return Err(defect(ArchiveDefect::Unreadable("an entry is cut short".into())));
        }
        written.flush().map_err(failed("write", &place))?;
        events(Event::Unpacking { files });
    }
    if files != archive.files {
        return Err(defect(ArchiveDefect::Count { found: files, wanted: archive.files }));
    }
    durable::sync_tree(into).map_err(failed("write", into))
}

/// The name without surprises, if it lies in `folder`.
fn inside(name: &Path, folder: &str) -> Option<PathBuf> {
    let mut place = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => place.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    place.starts_with(folder).then_some(place)
}

fn remove(folder: &Path) -> Result<(), FetchError> {
    durable::remove_if_there(folder).map_err(failed("remove", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_must_stay_inside() {
        assert_eq!(inside(Path::new("./a/b.jpg"), "a"), Some("a/b.jpg".into()));
        for bad in ["../a/b", "/a/b", "a/../../b", "b/c", "ab/c"] {
            assert_eq!(inside(Path::new(bad), "a"), None, "{bad}");
        }
    }
}
