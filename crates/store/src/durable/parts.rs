//! The commit protocol: parts with their checksums, a manifest last, one rename.

use super::{AtomicFolder, FileSum, HashingWriter, parent_of, sync_folder, temporary_beside};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
    sync::Arc,
};

/// Bytes collected before a part is written and hashed.
const BUFFER: usize = 256 << 10;

/// What a manifest says about the parts: size and checksum by file name.
pub type Parts = BTreeMap<String, FileSum>;

/// A part being written.
pub trait PartSink: Write + Send {
    /// Makes everything written durable.
    fn sync(&mut self) -> io::Result<()>;
}

impl PartSink for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Creates the files of a folder; tests put a failing disk here.
pub type Create = Arc<dyn Fn(&Path) -> io::Result<Box<dyn PartSink>> + Send + Sync>;

fn create_files() -> Create {
    Arc::new(|path| Ok(Box::new(File::create_new(path)?) as Box<dyn PartSink>))
}

/// A folder of parts on its way to being committed. Dropping it leaves nothing behind.
pub struct Folder {
    folder: AtomicFolder,
    create: Create,
    parts: Parts,
}

impl Folder {
    /// Begins a folder that will be called `target`; the folder around it is made where it is missing.
    pub fn begin(target: &Path) -> io::Result<Self> {
        Self::begin_with(target, create_files())
    }

    /// The same, with another way of creating files.
    pub fn begin_with(target: &Path, create: Create) -> io::Result<Self> {
        Ok(Self { folder: AtomicFolder::create(target)?, create, parts: Parts::new() })
    }

    /// Writes one part, durable when this returns, and notes its size and checksum.
    pub fn part(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<&FileSum> {
        let file = (self.create)(&self.folder.path().join(name))?;
        let mut out = BufWriter::with_capacity(BUFFER, HashingWriter::new(file));
        write(&mut out)?;
        let (mut file, sum) = out.into_inner().map_err(io::IntoInnerError::into_error)?.finish();
        file.sync()?;
        Ok(self.parts.entry(name.to_owned()).insert_entry(sum).into_mut())
    }

    /// The parts written so far, for the manifest.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Writes the manifest and makes the folder visible, in place of one that is there; returns the size of everything
    /// in bytes.
    pub fn commit(self, name: &str, manifest: &[u8]) -> io::Result<u64> {
        let mut file = (self.create)(&self.folder.path().join(name))?;
        file.write_all(manifest)?;
        file.sync()?;
        drop(file);
        sync_folder(self.folder.path())?;
        let bytes = self.parts.values().map(|sum| sum.bytes).sum::<u64>() + manifest.len() as u64;
        self.folder.commit()?;
        Ok(bytes)
    }
}

impl std::fmt::Debug for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { folder, parts, create: _ } = self;
        f.debug_struct("Folder")
            .field("folder", folder)
            .field("parts", parts)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a part of a committed folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// It cannot be read.
    #[error("{name}: {source}")]
    Unreadable {
        /// File name of the part.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is shorter or longer than written.
    #[error("{name}: {found} bytes long, written as {wanted}")]
    Length {
        /// File name of the part.
        name: String,
        /// Its size now.
        found: u64,
        /// Its size in the manifest.
        wanted: u64,
    },
    /// Its bytes are not those that were written.
    #[error("{name}: checksum differs")]
    Checksum {
        /// File name of the part.
        name: String,
    },
}

/// Whether every part is there in its size: what can be told without reading them.
#[must_use]
pub fn is_whole(folder: &Path, parts: &Parts) -> bool {
    parts.iter().all(|(name, sum)| {
        fs::metadata(folder.join(name)).is_ok_and(|file| file.len() == sum.bytes)
    })
}

/// Reads every part and compares it with what was written.
pub fn verify(folder: &Path, parts: &Parts) -> Result<(), Damage> {
    for (name, sum) in parts {
        let file = open_part(folder, name, sum)?;
        let found = FileSum::of_reader(file).map_err(unreadable(name))?;
        if found != *sum {
            return Err(Damage::Checksum { name: name.clone() });
        }
    }
    Ok(())
}

/// The bytes of one part, as they were written.
pub fn read_part(folder: &Path, name: &str, sum: &FileSum) -> Result<Vec<u8>, Damage> {
    open_part(folder, name, sum)?;
    let bytes = fs::read(folder.join(name)).map_err(unreadable(name))?;
    if FileSum::of(&bytes) != *sum {
        return Err(Damage::Checksum { name: name.to_owned() });
    }
    Ok(bytes)
}

/// Opens a part that has its size: one that grew to gigabytes is not read at all.
fn open_part(folder: &Path, name: &str, sum: &FileSum) -> Result<File, Damage> {
    let file = File::open(folder.join(name)).map_err(unreadable(name))?;
    let found = file.metadata().map_err(unreadable(name))?.len();
    if found != sum.bytes {
        return Err(Damage::Length { name: name.to_owned(), found, wanted: sum.bytes });
    }
    Ok(file)
}

fn unreadable(name: &str) -> impl Fn(io::Error) -> Damage + '_ {
    move |source| Damage::Unreadable { name: name.to_owned(), source }
}

/// Replaces the manifest of a committed folder, for what became known later. `create` is as for [`Folder::begin_with`];
/// the usual files without.
pub fn replace_manifest(
    folder: &Path,
    name: &str,
    manifest: &[u8],
    create: Option<&Create>,
) -> io::Result<()> {
    // Beside the folder, where `sweep` finds what a process that died left behind.
    let temporary = temporary_beside(folder);
    let written = || {
        let usual = create_files();
        let mut file = (create.unwrap_or(&usual))(&temporary)?;
        file.write_all(manifest)?;
        file.sync()?;
        fs::rename(&temporary, folder.join(name))
    };
    written().inspect_err(|_| {
        // Best effort: the first failure is the one to report.
        let _ = fs::remove_file(&temporary);
    })?;
    sync_folder(folder)?;
    sync_folder(parent_of(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "manifest.json";

    fn committed(target: &Path) -> Parts {
        let mut folder = Folder::begin(target).unwrap();
        folder.part("a", |out| out.write_all(b"first")).unwrap();
        folder.part("b", |out| out.write_all(b"second")).unwrap();
        let parts = folder.parts().clone();
        assert_eq!(folder.commit(MANIFEST, b"{}").unwrap(), 5 + 6 + 2);
        parts
    }

    #[test]
    fn damage_is_named_by_part_and_kind() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("42");
        let parts = committed(&target);
        verify(&target, &parts).unwrap();
        assert!(is_whole(&target, &parts));
        assert_eq!(read_part(&target, "a", &parts["a"]).unwrap(), b"first");
        fs::write(target.join("b"), b"sec0nd").unwrap();
        assert!(is_whole(&target, &parts), "sizes alone do not show it");
        let damage = verify(&target, &parts).unwrap_err();
        assert_eq!(damage.to_string(), "b: checksum differs");
        assert!(read_part(&target, "b", &parts["b"]).is_err());
        fs::write(target.join("a"), b"firs").unwrap();
        assert!(!is_whole(&target, &parts));
        let damage = verify(&target, &parts).unwrap_err();
        assert_eq!(damage.to_string(), "a: 4 bytes long, written as 5");
        fs::remove_file(target.join("a")).unwrap();
        assert!(matches!(verify(&target, &parts), Err(Damage::Unreadable { .. })));
    }

    /// A file that takes so many bytes and then fails like a full disk.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let Some(left) = self.0.checked_sub(bytes.len()) else {
                return Err(io::ErrorKind::StorageFull.into());
            };
            self.0 = left;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl PartSink for Full {
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_leaves_the_older_folder_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("42");
        let parts = committed(&target);
        let full: Create = Arc::new(|_: &Path| Ok(Box::new(Full(5)) as Box<dyn PartSink>));
        let mut folder = Folder::begin_with(&target, Arc::clone(&full)).unwrap();
        folder.part("a", |out| out.write_all(b"12345")).unwrap();
        assert!(folder.part("b", |out| out.write_all(b"123456")).is_err());
        drop(folder);
        let mut folder = Folder::begin_with(&target, Arc::clone(&full)).unwrap();
        folder.part("a", |out| out.write_all(b"12345")).unwrap();
        assert!(folder.commit(MANIFEST, b"123456").is_err());
        assert!(replace_manifest(&target, MANIFEST, b"123456", Some(&full)).is_err());
        verify(&target, &parts).unwrap();
        assert_eq!(fs::read(target.join(MANIFEST)).unwrap(), b"{}");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
        replace_manifest(&target, MANIFEST, b"{ }", None).unwrap();
        assert_eq!(fs::read(target.join(MANIFEST)).unwrap(), b"{ }");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
