//! Files and folders that are there whole or not at all, whatever happens to the process or the machine.
//!
//! Every place that must survive a `kill -9` or a power cut uses the same few steps, and they are easy to get wrong: a
//! rename without an `fsync` before it can leave a whole name with half the bytes, one without an `fsync` of the folder
//! after it no name at all. So they are written once, here:
//!
//! - [`AtomicFile`] and [`AtomicFolder`]: written under a hidden name beside the target, visible by one rename;
//! - [`HashingWriter`]: counts and hashes what passes through, so that no file is read a second time for its checksum;
//! - [`Folder`]: several parts, each with its checksum, and a manifest last. What [`Folder::commit`] made can be
//!   [verified](verify), amended ([`replace_manifest`]) and [removed](remove);
//! - [`Journal`]: one JSON line for each thing that is finished, for work that is continued where it stopped.
//!
//! Errors are plain [`std::io::Error`]s: only the caller knows what the file is and what to tell about it.
//!
//! ```
//! use paceline_store::durable;
//! use std::io::Write;
//!
//! let scratch = tempfile::tempdir()?;
//! let target = scratch.path().join("0000000042");
//! let mut folder = durable::Folder::begin(&target)?;
//! folder.part("weights.bin", |out| out.write_all(b"1234"))?;
//! let manifest = serde_json::to_vec(folder.parts())?;
//! folder.commit("manifest.json", &manifest)?;
//!
//! let parts: durable::Parts = serde_json::from_slice(&std::fs::read(target.join("manifest.json"))?)?;
//! durable::verify(&target, &parts)?;
//! std::fs::write(target.join("weights.bin"), b"1235")?;
//! assert!(durable::verify(&target, &parts).is_err());
//! durable::remove(&target)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod folder;
mod hash;
mod journal;
mod parts;

pub use file::{AtomicFile, make_folders, settle_file, sync_folder, write_file};
pub use folder::{AtomicFolder, remove, remove_if_there, sweep, sync_tree};
pub use hash::{FileSum, HashingWriter, hex};
pub use journal::{Journal, JournalError, Lines};
pub use parts::{
    Create, Damage, Folder, PartSink, Parts, is_whole, read_part, replace_manifest, verify,
};

use std::path::{Path, PathBuf};

/// Start of the name of everything unfinished. Listings skip such names, and [`sweep`] removes them.
pub(crate) const TEMPORARY: &str = ".paceline-tmp-";

/// A name for what is to become `target`: in the same folder, because a rename must not cross file systems. The token
/// keeps apart what is written at the same time, on other machines too: process numbers repeat there.
fn temporary_beside(target: &Path) -> PathBuf {
    let token = crate::fresh_token();
    target.with_file_name(format!("{TEMPORARY}{}-{token:016x}", std::process::id()))
}

/// The folder that holds `path`.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
