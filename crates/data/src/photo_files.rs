//! Single photos, made into the examples that a model was trained on.
//!
//! The class of such a photo is what is asked for, so there is no set around it: no class folders, no split, no label. What
//! becomes of its pixels is the same as in [`crate::sources::photos`].

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use paceline_batch::ImageShape;
use paceline_photo::{Colour, DecodeOptions, Fit};

use crate::{
    DataError, OpenOptions, Scratch,
    catalogue::is_photo,
    sources::photos::{LARGEST_FILE, decode},
    store,
};

/// Folders below the one that was named that are looked into.
const DEPTH: usize = 8;

/// Reads photos by their paths.
#[derive(Debug, Clone)]
pub struct PhotoFiles {
    decode: DecodeOptions,
    size: (u32, u32),
    fit: Fit,
}

impl PhotoFiles {
    /// Photos as examples of this shape.
    ///
    /// # Errors
    /// A shape without pixels, or one that is neither grey nor colour.
    pub fn new(shape: ImageShape, fit: Fit, max_pixels: Option<u64>) -> Result<Self, DataError> {
        let colour = match shape.channels {
            1 => Colour::Grey,
            3 => Colour::Rgb,
            _ => return Err(DataError::NoSize),
        };
        let side = |side: usize| u32::try_from(side).ok().filter(|side| *side > 0);
        let (Some(width), Some(height)) = (side(shape.width), side(shape.height)) else {
            return Err(DataError::NoSize);
        };
        let limits = OpenOptions { max_pixels, ..OpenOptions::default() }.limits();
        let decode = DecodeOptions { limits, colour, ..DecodeOptions::default() };
        Ok(Self { decode, size: (width, height), fit })
    }

    /// Reads a photo into `pixels`, which is as long as the shape says.
    ///
    /// # Errors
    /// A file that cannot be read, or is not an intact photo.
    pub fn read(
        &self,
        path: &Path,
        scratch: &mut Scratch,
        pixels: &mut [u8],
    ) -> Result<(), DataError> {
        scratch.bytes.clear();
        if store::is_remote(path) {
            let (store, key) = store::open_file(path)?;
            store.read_into(&key, LARGEST_FILE, &mut scratch.bytes)?;
        } else {
            read_local(path, &mut scratch.bytes).map_err(DataError::read(path))?;
        }
        decode(scratch, None, &self.decode, self.size, self.fit, pixels)
            .map_err(|source| DataError::Photo { path: path.to_owned(), source })
    }
}

/// Reads a file of this machine, if it is one and no larger than photos are.
fn read_local(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    use io::Read as _;
    let file = fs::File::open(path)?;
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() || found.len() > LARGEST_FILE {
        return Err(io::Error::other("not a file of at most 512 MiB"));
    }
    file.take(LARGEST_FILE).read_to_end(bytes)?;
    Ok(())
}

/// The photos that a path means: itself, or those in a folder and the folders in it, by name.
///
/// # Errors
/// A folder that cannot be listed, or has no photo.
pub fn expand(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    if store::is_remote(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    collect(path, DEPTH, &mut found).map_err(DataError::read(path))?;
    if found.is_empty() {
        let why = "no file in it has the name of a photo (.jpg, .png, ...)".to_owned();
        return Err(DataError::NoExamples { path: path.to_owned(), why });
    }
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            if depth > 0 {
                collect(&path, depth - 1, found)?;
            }
        } else if is_photo(&name) {
            found.push(path);
        }
    }
    Ok(())
}
