//! Which photos there are.
//!
//! One folder per class directly in the source; whatever lies deeper belongs to that class. Labels follow
//! the sorted class names. Millions of photos must not fill the memory, so names are kept in one string,
//! about 45 bytes a photo.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::PrepareError;
use crate::store::{FileEntry, Listing, Store, StoreError, join_key};

/// What people call photos. Kinds that cannot be decoded are listed too, so that they turn up among the
/// rejects instead of silently missing.
const EXTENSIONS: [&str; 14] = [
    "jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp", "tif", "tiff", "heic", "heif",
    "avif", "jp2",
];
/// Folders inside folders beyond this are not entered.
const MAX_DEPTH: usize = 32;

/// A photo that is in no shard, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reject {
    /// Key in the source.
    pub(super) path: String,
    /// In words.
    pub(super) reason: String,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Where the path inside the class folder starts in `names`.
    start: u64,
    size: u64,
    length: u32,
    class: u32,
}

/// All photos of a source, sorted.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    /// Class names; the position is the label.
    pub(super) classes: Vec<String>,
    names: String,
    entries: Vec<Entry>,
    /// Photos that cannot even be tried.
    pub(super) rejects: Vec<Reject>,
    /// Files that are no photos by their name.
    pub(super) ignored: u64,
    /// Photos in folders inside class folders.
    pub(super) nested: u64,
    /// Bytes of all photos.
    pub(super) bytes: u64,
    /// SHA-256 over all paths and sizes.
    pub(super) fingerprint: String,
    /// SHA-256 over all paths.
    pub(super) path_fingerprint: String,
}

/// Reads the names and sizes of all photos in `src`.
pub(super) fn read(src: &dyn Store, cancel: &AtomicBool) -> Result<Catalogue, PrepareError> {
    let mut catalogue = Catalogue::default();
    let root = src.list("")?;
    let loose = catalogue.take_loose(&root);
    for class in root.folders.iter().filter(|name| !is_hidden(name)) {
        let before = catalogue.entries.len() + catalogue.rejects.len();
        catalogue.read_class(src, class, cancel)?;
        // A folder without photos (documentation, say) is no class and takes no label.
        if catalogue.entries.len() + catalogue.rejects.len() > before {
            catalogue.classes.push(class.clone());
        }
    }
    if catalogue.entries.is_empty() {
        let location = src.locate("");
        return Err(match loose {
            0 => PrepareError::NoPhotos { location },
            photos => PrepareError::NoClasses { location, photos },
        });
    }
    if u32::try_from(catalogue.entries.len()).is_err() {
        return Err(PrepareError::TooManyPhotos);
    }
    catalogue.take_fingerprints();
    Ok(catalogue)
}

impl Catalogue {
    /// The photos of a slice, in the order given: label, size in bytes and path inside the class folder.
    pub(super) fn of_slice<'a>(
        classes: &[String],
        photos: impl Iterator<Item = &'a (u32, u64, String)>,
    ) -> Result<Self, PrepareError> {
        let mut catalogue = Self { classes: classes.to_vec(), ..Self::default() };
        for (label, size, name) in photos {
            catalogue.push(*label, *size, name)?;
        }
        Ok(catalogue)
    }

    fn push(&mut self, class: u32, size: u64, name: &str) -> Result<(), PrepareError> {
        let length =
            u32::try_from(name.len()).map_err(|_| StoreError::BadKey { key: name.to_owned() })?;
        self.bytes += size;
        self.entries.push(Entry { start: self.names.len() as u64, size, length, class });
        self.names.push_str(name);
        Ok(())
    }

    /// Photos that will be tried.
    pub(super) fn photos(&self) -> usize {
        self.entries.len()
    }

    /// Photos found, with those that cannot be tried.
    pub(super) fn total(&self) -> u64 {
        (self.entries.len() + self.rejects.len()) as u64
    }

    pub(super) fn label(&self, photo: usize) -> usize {
        self.entries[photo].class as usize
    }

    pub(super) fn size(&self, photo: usize) -> u64 {
        self.entries[photo].size
    }

    /// Key in the source.
    pub(super) fn path(&self, photo: usize) -> String {
        join_key(&self.classes[self.label(photo)], self.name(photo))
    }

    /// Path inside the class folder.
    pub(super) fn name(&self, photo: usize) -> &str {
        let entry = self.entries[photo];
        let start = entry.start as usize; // `names` is in memory, so its length is a usize
        &self.names[start..start + entry.length as usize]
    }

    /// Photos beside the class folders have no label. Returns how many.
    fn take_loose(&mut self, root: &Listing) -> usize {
        for file in root.files.iter().filter(|file| !is_hidden(&file.name)) {
            if is_photo(&file.name) {
                self.reject(file.name.clone(), file, "not in a class folder");
            } else {
                self.ignored += 1;
            }
        }
        self.rejects.len()
    }

    fn read_class(
        &mut self,
        src: &dyn Store,
        class: &str,
        cancel: &AtomicBool,
    ) -> Result<(), PrepareError> {
        let label = u32::try_from(self.classes.len()).map_err(|_| PrepareError::TooManyPhotos)?;
        let mut open = vec![(String::new(), 0)];
        while let Some((folder, depth)) = open.pop() {
            if cancel.load(Ordering::Relaxed) {
                return Err(PrepareError::Cancelled { finished: 0, shards: 0 });
            }
            let listing = match src.list(join_key(class, &folder).trim_end_matches('/')) {
                Ok(listing) => listing,
                // Somebody removed the folder meanwhile; its photos are gone, not bad.
                Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => continue,
                Err(error) => return Err(error.into()),
            };
            for file in listing.files.iter().filter(|file| !is_hidden(&file.name)) {
                if !is_photo(&file.name) {
                    self.ignored += 1;
                    continue;
                }
                let name = join_key(&folder, &file.name);
                if !file.exact {
                    self.reject(join_key(class, &name), file, "the file name is not UTF-8");
                    continue;
                }
                self.nested += u64::from(depth > 0);
                self.push(label, file.size, &name)?;
            }
            if depth < MAX_DEPTH {
                let folders = listing.folders.iter().filter(|name| !is_hidden(name));
                // Reversed, because the last one pushed is read first.
                open.extend(folders.rev().map(|name| (join_key(&folder, name), depth + 1)));
            }
        }
        Ok(())
    }

    fn reject(&mut self, path: String, file: &FileEntry, reason: &str) {
        self.bytes += file.size;
        self.rejects.push(Reject { path, reason: reason.into() });
    }

    fn take_fingerprints(&mut self) {
        let (mut all, mut paths) = (Sha256::new(), Sha256::new());
        for reject in &self.rejects {
            paths.update(reject.path.as_bytes());
            paths.update([0]);
        }
        for photo in 0..self.entries.len() {
            paths.update(self.path(photo).as_bytes());
            paths.update([0]);
            all.update(self.entries[photo].size.to_le_bytes());
        }
        let paths = paths.finalize();
        all.update(paths);
        self.path_fingerprint = hex(&paths);
        self.fingerprint = hex(&all.finalize());
    }
}

fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

fn is_photo(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|found| EXTENSIONS.iter().any(|known| found.eq_ignore_ascii_case(known)))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a String takes everything
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LocalStore;

    fn tree(paths: &[&str]) -> (tempfile::TempDir, LocalStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::new(dir.path());
        for path in paths {
            store.write(path, path.as_bytes()).unwrap();
        }
        (dir, store)
    }

    fn catalogue(paths: &[&str]) -> Result<Catalogue, PrepareError> {
        let (_dir, store) = tree(paths);
        read(&store, &AtomicBool::new(false))
    }

    #[test]
    fn classes_are_sorted_folders_with_photos() {
        let found = catalogue(&[
            "rose/b.JPG",
            "rose/a.png",
            "rose/deep/c.webp",
            "daisy/1.jpeg",
            "daisy/._1.jpeg",
            "notes/readme.txt",
            ".git/x.jpg",
            "LICENSE.txt",
            "loose.jpg",
        ])
        .unwrap();
        assert_eq!(found.classes, ["daisy", "rose"]);
        let paths: Vec<_> = (0..found.photos()).map(|photo| found.path(photo)).collect();
        assert_eq!(paths, ["daisy/1.jpeg", "rose/a.png", "rose/b.JPG", "rose/deep/c.webp"]);
        assert_eq!(found.label(3), 1);
        assert_eq!((found.ignored, found.nested, found.total()), (2, 1, 5));
        assert_eq!(found.rejects[0].path, "loose.jpg");
    }

    #[test]
    fn missing_empty_and_flat_sources_are_told_apart() {
        let missing = read(&LocalStore::new("/nonexistent/x"), &AtomicBool::new(false));
        assert!(missing.unwrap_err().to_string().contains("/nonexistent/x"));
        assert!(matches!(catalogue(&["a/b.txt"]), Err(PrepareError::NoPhotos { .. })));
        let flat = catalogue(&["b.jpg", "c.jpg"]);
        assert!(matches!(flat, Err(PrepareError::NoClasses { photos: 2, .. })));
    }

    #[test]
    fn fingerprints_see_names_and_sizes() {
        let one = catalogue(&["a/1.jpg", "a/2.jpg"]).unwrap();
        let (_dir, store) = tree(&["a/1.jpg", "a/2.jpg"]);
        store.write("a/2.jpg", b"longer than before").unwrap();
        let two = read(&store, &AtomicBool::new(false)).unwrap();
        assert_ne!(one.fingerprint, two.fingerprint);
        assert_eq!(one.path_fingerprint, two.path_fingerprint);
        let three = catalogue(&["a/1.jpg", "a/3.jpg"]).unwrap();
        assert_ne!(one.path_fingerprint, three.path_fingerprint);
    }

    #[cfg(unix)]
    #[test]
    fn name_that_is_not_text_is_rejected_not_lost() {
        use std::os::unix::ffi::OsStrExt;
        let (dir, store) = tree(&["a/1.jpg"]);
        let odd = std::ffi::OsStr::from_bytes(b"a/\xff.jpg");
        std::fs::write(dir.path().join(odd), b"x").unwrap();
        let found = read(&store, &AtomicBool::new(false)).unwrap();
        assert_eq!((found.photos(), found.total()), (1, 2));
        assert!(found.rejects[0].reason.contains("UTF-8"));
    }
}
