//! Photos in class folders: `FOLDER/daisy/1.jpg`, or the same below `train`, `validation`, `test`.
//!
//! Labels follow the sorted names of the class folders. Files are chosen by name when the set is
//! opened, so that a million photos open without touching one of them; what a file really is, its
//! first bytes decide when it is read. Photos are turned upright and resized while they are read.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};
use paceline_photo::{DecodeOptions, Fit, PhotoError};
use sha2::{Digest, Sha256};

use crate::{
    DataError,
    catalogue::{self, Catalogue, is_photo},
    fingerprint::sampled,
    path_hash::split_position,
    rejects::{Reject, is_failure_of, read_reason},
    source::{OpenOptions, Scratch, Source, Split},
    sources::SourceKind,
    store::{self, Store, join_key},
};

/// This kind of data set.
pub const ENTRY: SourceKind = SourceKind {
    name: "photos",
    about: "JPEG and PNG photos in one folder per class, resized while they are read",
    looks_for: "photos: one folder per class with .jpg or .png files (also below train/, validation/, test/)",
    holds: "photos",
    recognises: |path| {
        (store::is_remote(path) || path.is_dir())
            && store::open(path).is_ok_and(|store| has_photo(&*store, "", 3).unwrap_or(false))
    },
    opens: |path, split, options| Ok(Arc::new(Photos::open(path, split, options)?)),
};

/// Width and height where none are asked for: what most networks for photos were made for.
const USUAL_SIDE: u32 = 224;

/// No photo of a training set is larger; bytes.
pub(crate) const LARGEST_FILE: u64 = 512 << 20;

/// A folder of photos.
#[derive(Debug)]
pub struct Photos {
    schema: Schema,
    store: Arc<dyn Store>,
    catalogue: Catalogue,
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
        let mut catalogue = catalogue::read(&*store, &AtomicBool::new(false))?;
        if catalogue.photos() == 0 {
            return Err(DataError::NoExamples {
                path: path.to_owned(),
                why: emptiness(&catalogue),
            });
        }
        let mut remarks = Vec::new();
        if let Some(wanted) = split {
            let given = catalogue.splits();
            let found = |splits: &[Split]| {
                splits.iter().map(|split| split.name()).collect::<Vec<_>>().join(", ")
            };
            let path = path.to_owned();
            if given.is_empty() {
                let holdout = options.holdout;
                catalogue.retain(|all, photo| {
                    held_out(&all.path(photo), holdout) == (wanted != Split::Train)
                });
                remarks.push(format!(
                    "no folders for splits: {} % of the photos, by a hash of their names, are held out",
                    holdout * 100.0
                ));
                if catalogue.photos() == 0 && wanted != Split::Train {
                    // Of a handful of photos the hash may hold out none.
                    let found = found(&[Split::Train]);
                    return Err(DataError::NoSplit { path, wanted, found });
                }
            } else if given.contains(&wanted) {
                catalogue.retain(|all, photo| all.split(photo) == Some(wanted));
            } else {
                return Err(DataError::NoSplit { path, wanted, found: found(&given) });
            }
            if catalogue.photos() == 0 {
                let why = format!("none of its photos is in the {wanted} split");
                return Err(DataError::NoExamples { path, why });
            }
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
            labels: LabelKind::Classes { names: catalogue.classes.clone() },
        };
        Ok(Self {
            schema,
            store,
            catalogue,
            decode: DecodeOptions { limits: options.limits(), ..DecodeOptions::default() },
            size,
            fit: options.fit,
            remarks,
        })
    }

    /// The number of an example in the catalogue.
    fn photo(index: u64) -> usize {
        usize::try_from(index).unwrap_or(usize::MAX)
    }
}

impl Source for Photos {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.catalogue.photos() as u64
    }

    fn read(&self, index: u64, scratch: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        let photo = Self::photo(index);
        let mut key = std::mem::take(&mut scratch.key);
        self.catalogue.path_into(photo, &mut key);
        scratch.bytes.clear();
        let read = self.store.read_into(&key, LARGEST_FILE, &mut scratch.bytes);
        let path = || self.store.locate(&key).into();
        let result = match read {
            Ok(()) => decode(scratch, None, &self.decode, self.size, self.fit, pixels)
                .map_err(|source| DataError::Photo { path: path(), source }),
            Err(error) => Err(error.into()),
        };
        scratch.key = key;
        result.map(|()| self.catalogue.label(photo) as u32)
    }

    fn label(&self, index: u64, _: &mut Scratch) -> Result<u32, DataError> {
        Ok(self.catalogue.label(Self::photo(index)) as u32)
    }

    fn rejects(&self) -> &[Reject] {
        &self.catalogue.rejects
    }

    fn may_reject(&self) -> bool {
        true
    }

    fn fault(&self, index: u64, error: &DataError) -> Option<Reject> {
        let reason = match error {
            DataError::Photo { source, .. } => source.to_string(),
            DataError::Store(error) if !is_failure_of(&*self.store, error) => read_reason(error),
            _ => return None,
        };
        Some(Reject { path: self.catalogue.path(Self::photo(index)), reason })
    }

    fn identify(&self, sum: &mut Sha256) -> Result<(), DataError> {
        sum.update(self.catalogue.fingerprint.as_bytes());
        let mut bytes = Vec::new();
        for index in sampled(self.len()) {
            bytes.clear();
            let key = self.catalogue.path(Self::photo(index));
            match self.store.read_into(&key, LARGEST_FILE, &mut bytes) {
                Ok(()) => sum.update(&bytes),
                Err(_) => sum.update(b"unreadable"),
            }
        }
        Ok(())
    }

    fn distant(&self) -> bool {
        self.store.is_distant()
    }

    fn origin(&self, index: u64) -> String {
        format!("`{}`", self.store.locate(&self.catalogue.path(Self::photo(index))))
    }

    fn fit(&self) -> Fit {
        self.fit
    }

    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }
}

/// Decodes the photo in `scratch.bytes` (or in `range` of it) into `pixels`: straight if it has the
/// right size, through a resize otherwise.
pub(crate) fn decode(
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

/// Why a folder of photos has no example.
fn emptiness(catalogue: &Catalogue) -> String {
    let example = "photos are expected in one folder per class, such as daisy/1.jpg";
    match (catalogue.loose, catalogue.rejects.first()) {
        (0, None) => "no file in its folders has the name of a photo (.jpg, .png, ...)".to_owned(),
        (0, Some(first)) => format!(
            "none of its {} photos can be used; first: {}: {}",
            catalogue.rejects.len(),
            first.path,
            first.reason
        ),
        (1, _) => format!("its only photo lies outside of class folders; {example}"),
        (loose, _) => format!("its {loose} photos lie outside of class folders; {example}"),
    }
}

/// Whether a photo is in the held-out part; decided by its name alone, as in `prepare --split`, so
/// that adding photos moves no other from one part to the other.
fn held_out(key: &str, share: f64) -> bool {
    split_position(key) < share
}

/// Whether there are photos in class folders, rather than somewhere deeper.
pub fn has_classes(store: &dyn Store) -> bool {
    let depth = |root| if catalogue::split_folders(&root).is_some() { 2 } else { 1 };
    store.list("").is_ok_and(|root| has_photo(store, "", depth(root)).unwrap_or(false))
}

/// Whether there is a photo at most so many folders down; stops at the first.
fn has_photo(store: &dyn Store, folder: &str, depth: usize) -> Result<bool, DataError> {
    let listing = store.list(folder)?;
    if listing.files.iter().any(|file| is_photo(&file.name)) {
        return Ok(true);
    }
    if depth > 0 {
        for inner in listing.folders.into_iter().filter(|name| !name.starts_with('.')) {
            if has_photo(store, &join_key(folder, &inner), depth - 1)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
