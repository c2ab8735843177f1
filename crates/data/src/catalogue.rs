//! Which photos a folder holds: one walk for training, `data info`, the speed test and `prepare`, so that all of them
//! see the same classes, splits and photos.
//!
//! One folder per class directly in the root; whatever lies deeper belongs to that class. Where every folder of the root
//! is named after a split (`train`, `val`, `test`, ...), the class folders lie inside those. Labels follow the sorted
//! class names. Millions of photos must not fill the memory, so names are kept in one string, about 45 bytes a photo.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    rejects::Reject,
    source::Split,
    store::{Listing, Store, StoreError, durable::hex, join_key},
};

/// What people call photos. Kinds that cannot be decoded are listed too, so that they turn up among the
/// rejects instead of silently missing.
const EXTENSIONS: [&str; 14] = [
    "jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp", "tif", "tiff", "heic", "heif",
    "avif", "jp2",
];
/// Folders inside folders beyond this are not entered.
const MAX_DEPTH: usize = 32;

/// Why photos could not be listed.
#[derive(Debug)]
pub enum ListError {
    /// The store failed.
    Store(StoreError),
    /// More photos than can be numbered.
    TooMany,
    /// Stopped from outside.
    Cancelled,
}

impl From<StoreError> for ListError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A folder with the photos of one class, or of one class in one split.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassFolder {
    /// Key in the source.
    pub key: String,
    /// Position of its class among the sorted class names.
    pub label: u32,
    /// The split that the folder around it names.
    pub split: Option<Split>,
}

#[derive(Debug, Clone, Copy)]
struct PhotoEntry {
    /// Where the path inside the class folder starts in `names`.
    start: u64,
    size: u64,
    length: u32,
    folder: u32,
}

/// All photos of a source, sorted.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// Class names; the position is the label.
    pub classes: Vec<String>,
    /// Class folders, to which photos refer by position.
    pub folders: Vec<ClassFolder>,
    names: String,
    entries: Vec<PhotoEntry>,
    /// Photos that cannot even be tried.
    pub rejects: Vec<Reject>,
    /// Of these, photos that lie in no class folder.
    pub loose: usize,
    /// Files that are not photos by their name.
    pub ignored: u64,
    /// Photos in folders inside class folders.
    pub nested: u64,
    /// Bytes of all photos.
    pub bytes: u64,
    /// SHA-256 over all paths and sizes.
    pub fingerprint: String,
    /// SHA-256 over all paths.
    pub path_fingerprint: String,
}

/// The split folders among the folders of a root, each with the split it is for; nothing where the folders are classes.
/// A class may well be called `test`; splits are recognised where every folder is named after one.
pub fn split_folders(root: &Listing) -> Option<Vec<(Split, &str)>> {
    let visible = root.folders.iter().filter(|name| !is_hidden(name));
    let splits: Option<Vec<_>> =
        visible.map(|name| name.parse().ok().map(|split| (split, name.as_str()))).collect();
    splits.filter(|splits| !splits.is_empty())
}

/// Reads the names and sizes of all photos in `src`.
pub fn read(src: &dyn Store, cancel: &AtomicBool) -> Result<Catalogue, ListError> {
    let mut catalogue = Catalogue::default();
    let root = src.list("")?;
    catalogue.take_loose("", &root);
    // Class name and key of each class folder, with its split.
    let mut folders: Vec<(String, String, Option<Split>)> = Vec::new();
    match split_folders(&root) {
        None => {
            let classes = root.folders.iter().filter(|name| !is_hidden(name));
            folders.extend(classes.map(|name| (name.clone(), name.clone(), None)));
        }
        Some(splits) => {
            for (split, top) in splits {
                let inside = src.list(top)?;
                catalogue.take_loose(top, &inside);
                let classes = inside.folders.into_iter().filter(|name| !is_hidden(name));
                folders.extend(classes.map(|name| {
                    let key = join_key(top, &name);
                    (name, key, Some(split))
                }));
            }
        }
    }
    let mut used = BTreeSet::new();
    for (class, key, split) in &folders {
        let before = catalogue.entries.len() + catalogue.rejects.len();
        catalogue.read_class(src, key, *split, cancel)?;
        // A folder without photos (documentation, say) is not a class and takes no label.
        if catalogue.entries.len() + catalogue.rejects.len() > before {
            used.insert(class.clone());
        }
    }
    // Classes come from all splits, so that every split gives a class the same label.
    let labels: BTreeMap<&String, u32> = used.iter().zip(0..).collect();
    for (folder, (class, ..)) in catalogue.folders.iter_mut().zip(&folders) {
        folder.label = labels.get(class).copied().unwrap_or(0); // one without photos is never asked
    }
    catalogue.classes = used.into_iter().collect();
    if u32::try_from(catalogue.entries.len()).is_err() {
        return Err(ListError::TooMany);
    }
    catalogue.take_fingerprints();
    Ok(catalogue)
}

impl Catalogue {
    /// The photos of a slice, in the order given: position of the class folder, size in bytes and path inside it.
    pub fn of_slice<'a>(
        classes: &[String],
        folders: &[ClassFolder],
        photos: impl Iterator<Item = &'a (u32, u64, String)>,
    ) -> Result<Self, ListError> {
        let mut catalogue =
            Self { classes: classes.to_vec(), folders: folders.to_vec(), ..Self::default() };
        for (folder, size, name) in photos {
            catalogue.push(*folder, *size, name)?;
        }
        Ok(catalogue)
    }

    fn push(&mut self, folder: u32, size: u64, name: &str) -> Result<(), ListError> {
        let length =
            u32::try_from(name.len()).map_err(|_| StoreError::BadKey { key: name.to_owned() })?;
        self.bytes += size;
        self.entries.push(PhotoEntry { start: self.names.len() as u64, size, length, folder });
        self.names.push_str(name);
        Ok(())
    }

    /// Photos that will be tried.
    pub fn photos(&self) -> usize {
        self.entries.len()
    }

    /// Photos found, with those that cannot be tried.
    pub fn total(&self) -> u64 {
        (self.entries.len() + self.rejects.len()) as u64
    }

    /// The class of a photo.
    pub fn label(&self, photo: usize) -> usize {
        self.class_folder(photo).label as usize
    }

    /// The split that the folders give a photo, where they name splits.
    pub fn split(&self, photo: usize) -> Option<Split> {
        self.class_folder(photo).split
    }

    /// Position of a photo's class folder.
    pub fn folder(&self, photo: usize) -> u32 {
        self.entries[photo].folder
    }

    /// The size of a photo's file in bytes.
    pub fn size(&self, photo: usize) -> u64 {
        self.entries[photo].size
    }

    /// Key in the source.
    pub fn path(&self, photo: usize) -> String {
        join_key(&self.class_folder(photo).key, self.name(photo))
    }

    /// As [`Self::path`], into memory that is reused.
    pub fn path_into(&self, photo: usize, path: &mut String) {
        path.clear();
        path.push_str(&self.class_folder(photo).key);
        path.push('/');
        path.push_str(self.name(photo));
    }

    /// Path inside the class folder.
    pub fn name(&self, photo: usize) -> &str {
        let entry = self.entries[photo];
        let start = entry.start as usize; // `names` is in memory, so its length is a usize
        &self.names[start..start + entry.length as usize]
    }

    /// The splits that folders name, in order; empty where the folders are classes.
    pub fn splits(&self) -> Vec<Split> {
        let found: Vec<Split> = self.folders.iter().filter_map(|folder| folder.split).collect();
        Split::ALL.into_iter().filter(|split| found.contains(split)).collect()
    }

    /// Drops the photos that `keep` refuses, by number; counts and fingerprints stay those of the whole folder.
    pub fn retain(&mut self, keep: impl Fn(&Self, usize) -> bool) {
        let kept = (0..self.photos()).filter(|&photo| keep(self, photo));
        self.entries = kept.map(|photo| self.entries[photo]).collect();
    }

    fn class_folder(&self, photo: usize) -> &ClassFolder {
        &self.folders[self.entries[photo].folder as usize]
    }

    /// Photos beside class folders have no label.
    fn take_loose(&mut self, folder: &str, listing: &Listing) {
        for file in listing.files.iter().filter(|file| !is_hidden(&file.name)) {
            if !is_photo(&file.name) {
                self.ignored += 1;
                continue;
            }
            let path = join_key(folder, &file.name);
            self.bytes += file.size;
            if file.exact || !file.name.contains('/') {
                self.loose += 1;
                self.reject(path, "not in a class folder");
            } else {
                self.reject(path, NOT_TEXT);
            }
        }
    }

    fn read_class(
        &mut self,
        src: &dyn Store,
        class: &str,
        split: Option<Split>,
        cancel: &AtomicBool,
    ) -> Result<(), ListError> {
        let number = u32::try_from(self.folders.len()).map_err(|_| ListError::TooMany)?;
        self.folders.push(ClassFolder { key: class.to_owned(), label: 0, split });
        let mut open = vec![(String::new(), 0)];
        while let Some((folder, depth)) = open.pop() {
            if cancel.load(Ordering::Relaxed) {
                return Err(ListError::Cancelled);
            }
            let listing = match src.list(join_key(class, &folder).trim_end_matches('/')) {
                Ok(listing) => listing,
                // The folder was removed in the meantime: its photos are gone, not bad.
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
                    self.bytes += file.size;
                    self.reject(join_key(class, &name), NOT_TEXT);
                    continue;
                }
                self.nested += u64::from(depth > 0);
                self.push(number, file.size, &name)?;
            }
            if depth < MAX_DEPTH {
                let folders = listing.folders.iter().filter(|name| !is_hidden(name));
                // Reversed, because the last one pushed is read first.
                open.extend(folders.rev().map(|name| (join_key(&folder, name), depth + 1)));
            }
        }
        Ok(())
    }

    fn reject(&mut self, path: String, reason: &str) {
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

/// Keys are text, so such a file cannot be asked for.
const NOT_TEXT: &str = "the name of the file, or of a folder around it, is not UTF-8";

fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

/// Whether people would call a file of this name a photo.
pub fn is_photo(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    !is_hidden(name)
        && extension
            .is_some_and(|found| EXTENSIONS.iter().any(|known| found.eq_ignore_ascii_case(known)))
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

    fn catalogue(paths: &[&str]) -> Result<Catalogue, ListError> {
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
        let Err(ListError::Store(error)) = missing else { panic!("{missing:?}") };
        assert!(error.to_string().contains("/nonexistent/x"));
        let empty = catalogue(&["a/b.txt"]).unwrap();
        assert_eq!((empty.photos(), empty.loose), (0, 0));
        let flat = catalogue(&["b.jpg", "c.jpg"]).unwrap();
        assert_eq!((flat.photos(), flat.loose), (0, 2));
    }

    #[test]
    fn train_and_test_folders_are_splits_and_not_classes() {
        let found = catalogue(&[
            "train/rose/1.jpg",
            "train/daisy/1.jpg",
            "train/empty/notes.txt",
            "test/rose/2.jpg",
            "test/aster/3.jpg",
            "test/loose.jpg",
        ])
        .unwrap();
        assert_eq!(found.classes, ["aster", "daisy", "rose"]);
        assert_eq!(found.splits(), [Split::Train, Split::Test]);
        let photos: Vec<_> = (0..found.photos())
            .map(|photo| (found.path(photo), found.label(photo), found.split(photo)))
            .collect();
        let wanted = [
            ("test/aster/3.jpg", 0, Split::Test),
            ("test/rose/2.jpg", 2, Split::Test),
            ("train/daisy/1.jpg", 1, Split::Train),
            ("train/rose/1.jpg", 2, Split::Train),
        ];
        let wanted = wanted.map(|(path, label, split)| (path.to_owned(), label, Some(split)));
        assert_eq!(photos, wanted);
        assert_eq!((found.loose, found.rejects[0].path.as_str()), (1, "test/loose.jpg"));
        // One folder more, and they are classes.
        let classes = catalogue(&["train/1.jpg", "test/2.jpg", "rose/3.jpg"]).unwrap();
        assert_eq!(classes.classes, ["rose", "test", "train"]);
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

    #[cfg(unix)]
    #[test]
    fn a_class_folder_whose_name_is_not_text_is_counted_and_named() {
        use std::os::unix::ffi::OsStrExt;
        let (dir, store) = tree(&["a/1.jpg"]);
        let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        std::fs::create_dir_all(odd.join("deep")).unwrap();
        std::fs::write(odd.join("2.jpg"), b"x").unwrap();
        std::fs::write(odd.join("deep/3.png"), b"x").unwrap();
        std::fs::write(odd.join("notes.txt"), b"x").unwrap();
        let found = read(&store, &AtomicBool::new(false)).unwrap();
        assert_eq!((found.photos(), found.total(), found.loose), (1, 3, 0));
        let named: Vec<&str> = found.rejects.iter().map(|reject| reject.path.as_str()).collect();
        assert_eq!(named, ["caf\\xe9/2.jpg", "caf\\xe9/deep/3.png"]);
        assert!(found.rejects[0].reason.contains("UTF-8"));
    }
}
