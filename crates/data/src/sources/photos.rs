//! Photos in class folders: `FOLDER/daisy/1.jpg`, or the same below `train`, `validation`, `test`.
//!
//! Labels follow the sorted names of the class folders. Files are chosen by name when the set is
//! opened, so that a million photos open without touching one of them; what a file really is, its
//! first bytes decide when it is read. Photos are turned upright and resized while they are read.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};
use paceline_photo::{DecodeOptions, Fit, PhotoError};

use crate::{
    DataError,
    path_hash::split_position,
    source::{OpenOptions, Scratch, Source, Split},
    sources::Entry,
    store::{self, Store, join_key},
};

/// This kind of data set.
pub const ENTRY: Entry = Entry {
    name: "photos",
    about: "JPEG and PNG photos in one folder per class, resized while they are read",
    looks_for: "photos: one folder per class with .jpg or .png files (also below train/, validation/, test/)",
    recognises: |path| {
        (store::is_remote(path) || path.is_dir())
            && store::open(path).is_ok_and(|store| has_photo(&*store, "", 0).unwrap_or(false))
    },
    opens: |path, split, options| Ok(Arc::new(Photos::open(path, split, options)?)),
};

/// Names of photos this program decodes.
const EXTENSIONS: [&str; 5] = ["jpg", "jpeg", "jpe", "jfif", "png"];

/// Width and height where none are asked for: what most networks for photos were made for.
const USUAL_SIDE: u32 = 224;

/// No photo of a training set is larger; bytes.
const LARGEST_FILE: u64 = 512 << 20;

/// Folders inside folders beyond this are not entered.
const MAX_DEPTH: usize = 32;

/// A folder of photos.
#[derive(Debug)]
pub struct Photos {
    schema: Schema,
    store: Arc<dyn Store>,
    /// All keys in one string: a boxed string each would double the memory of a large set.
    names: String,
    /// Where each key ends in `names`, and its label.
    photos: Vec<(u64, u32)>,
    decode: DecodeOptions,
    size: (u32, u32),
    fit: Fit,
    remarks: Vec<String>,
}

impl Photos {
    /// Opens a folder.
    ///
    /// # Errors
    /// No photo, no such split, or a folder that cannot be listed.
    pub fn open(
        path: &Path,
        split: Option<Split>,
        options: &OpenOptions,
    ) -> Result<Self, DataError> {
        let store = store::open(path)?;
        let root = store.list("")?;
        let splits: Vec<(Split, &str)> = root
            .folders
            .iter()
            .filter_map(|folder| folder.parse().ok().map(|split| (split, folder.as_str())))
            .collect();
        // Class folders named `test` would make `test` a class; two splits and nothing else are splits.
        let split_folders = !splits.is_empty()
            && root.folders.iter().all(|f| f.starts_with('.') || f.parse::<Split>().is_ok());
        let mut found = Found::default();
        let mut remarks = Vec::new();
        if split_folders {
            let chosen: Vec<&str> = splits
                .iter()
                .filter(|(this, _)| split.is_none_or(|wanted| wanted == *this))
                .map(|(_, folder)| *folder)
                .collect();
            if chosen.is_empty() {
                let names: Vec<&str> = splits.iter().map(|(split, _)| split.name()).collect();
                let wanted = split.unwrap_or(Split::Train);
                let found = names.join(", ");
                return Err(DataError::NoSplit { path: path.to_owned(), wanted, found });
            }
            // Classes come from all splits, so that every split gives a class the same label.
            let mut classes: Vec<String> = Vec::new();
            let mut present = BTreeSet::new();
            for (_, folder) in &splits {
                let inside = visible(store.list(folder)?.folders);
                present.extend(inside.iter().map(|class| join_key(folder, class)));
                classes.extend(inside);
            }
            classes.sort();
            classes.dedup();
            for folder in chosen {
                for (label, class) in classes.iter().enumerate() {
                    let key = join_key(folder, class);
                    if present.contains(&key) {
                        found.walk(&*store, &key, label as u32)?;
                    }
                }
            }
            found.classes = classes;
        } else {
            for class in visible(root.folders.clone()) {
                let before = found.photos.len();
                found.walk(&*store, &class, found.classes.len() as u32)?;
                // A folder without photos (documentation, say) is no class and takes no label.
                if found.photos.len() > before {
                    found.classes.push(class);
                }
            }
            if let Some(split) = split {
                found.keep_split(split, options.holdout);
                remarks.push(format!(
                    "no folders for splits: {} % of the photos, by a hash of their names, are held out",
                    options.holdout * 100.0
                ));
            }
        }
        if found.photos.is_empty() {
            return Err(DataError::NoExamples);
        }
        if options.size.is_none() {
            remarks.push(format!("resized to {USUAL_SIDE} x {USUAL_SIDE} pixels, the usual size"));
        }
        let size = options.size.unwrap_or((USUAL_SIDE, USUAL_SIDE));
        let shape = ImageShape { height: size.1 as usize, width: size.0 as usize, channels: 3 };
        if shape.is_empty() {
            return Err(DataError::NoSize);
        }
        let schema = Schema {
            features: FeatureKind::Image(shape),
            labels: LabelKind::Classes { names: found.classes },
        };
        Ok(Self {
            schema,
            store,
            names: found.names,
            photos: found.photos,
            decode: DecodeOptions::default(),
            size,
            fit: options.fit,
            remarks,
        })
    }

    fn key(&self, index: u64) -> (&str, u32) {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let (end, label) = self.photos[index];
        let start = if index == 0 { 0 } else { self.photos[index - 1].0 };
        (&self.names[start as usize..end as usize], label)
    }
}

impl Source for Photos {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.photos.len() as u64
    }

    fn read(&self, index: u64, scratch: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        let (key, label) = self.key(index);
        scratch.bytes.clear();
        self.store.read_into(key, LARGEST_FILE, &mut scratch.bytes)?;
        decode(scratch, None, &self.decode, self.size, self.fit, pixels)
            .map_err(|source| DataError::Photo { path: self.store.locate(key).into(), source })?;
        Ok(label)
    }

    fn label(&self, index: u64, _: &mut Scratch) -> Result<u32, DataError> {
        Ok(self.key(index).1)
    }

    fn distant(&self) -> bool {
        self.store.is_distant()
    }

    fn origin(&self, index: u64) -> String {
        format!("`{}`", self.store.locate(self.key(index).0))
    }

    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }
}

/// Decodes the photo in `scratch.bytes` (or in `range` of it) into `pixels`: straight if it has the
/// right size, through a resize otherwise.
pub(super) fn decode(
    scratch: &mut Scratch,
    range: Option<std::ops::Range<usize>>,
    options: &DecodeOptions,
    size: (u32, u32),
    fit: Fit,
    pixels: &mut [u8],
) -> Result<(), PhotoError> {
    let bytes = match range {
        Some(range) => &scratch.bytes[range],
        None => &scratch.bytes[..],
    };
    match scratch.decoder.decode_to_slice(bytes, options, size.0, size.1, pixels) {
        Err(PhotoError::WrongSize { .. }) => {}
        done => return done,
    }
    scratch.decoder.decode_fitted(bytes, options, size, fit, &mut scratch.pixels)?;
    pixels.copy_from_slice(scratch.pixels.data());
    Ok(())
}

#[derive(Debug, Default)]
struct Found {
    classes: Vec<String>,
    names: String,
    photos: Vec<(u64, u32)>,
}

impl Found {
    /// Adds all photos below `folder`, files before folders, each sorted by name.
    fn walk(&mut self, store: &dyn Store, folder: &str, label: u32) -> Result<(), DataError> {
        let mut open = vec![(folder.to_owned(), 0)];
        while let Some((folder, depth)) = open.pop() {
            let listing = store.list(&folder)?;
            for file in listing.files.iter().filter(|file| file.exact && is_photo(&file.name)) {
                self.names.push_str(&folder);
                self.names.push('/');
                self.names.push_str(&file.name);
                self.photos.push((self.names.len() as u64, label));
            }
            if depth < MAX_DEPTH {
                // Reversed, because the last one pushed is read first.
                let inner = visible(listing.folders).into_iter().rev();
                open.extend(inner.map(|name| (join_key(&folder, &name), depth + 1)));
            }
        }
        Ok(())
    }

    /// Keeps the photos of one split; validation and test are the same held-out photos.
    fn keep_split(&mut self, split: Split, holdout: f64) {
        let (names, photos) = (std::mem::take(&mut self.names), std::mem::take(&mut self.photos));
        let mut start = 0;
        for (end, label) in photos {
            let key = &names[start..end as usize];
            start = end as usize;
            if held_out(key, holdout) == (split != Split::Train) {
                self.names.push_str(key);
                self.photos.push((self.names.len() as u64, label));
            }
        }
    }
}

/// Whether a photo is in the held-out part; decided by its name alone, as in `prepare --split`, so
/// that adding photos moves no other from one part to the other.
fn held_out(key: &str, share: f64) -> bool {
    split_position(key) < share
}

fn is_photo(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    !name.starts_with('.')
        && extension.is_some_and(|found| EXTENSIONS.iter().any(|e| found.eq_ignore_ascii_case(e)))
}

fn visible(folders: Vec<String>) -> Vec<String> {
    folders.into_iter().filter(|name| !name.starts_with('.')).collect()
}

/// Whether there is a photo at most three folders down; stops at the first.
fn has_photo(store: &dyn Store, folder: &str, depth: usize) -> Result<bool, DataError> {
    let listing = store.list(folder)?;
    if depth > 0 && listing.files.iter().any(|file| is_photo(&file.name)) {
        return Ok(true);
    }
    if depth < 3 {
        for inner in visible(listing.folders) {
            if has_photo(store, &join_key(folder, &inner), depth + 1)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
