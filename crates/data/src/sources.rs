//! The kinds of data sets, and how one is recognised.
//!
//! Adding a kind is one file with an `ENTRY`, and one line in [`ALL`].

pub mod generated;
pub mod idx;
pub mod photos;
pub mod records;

use std::{fmt, path::Path, sync::Arc};

use crate::{
    DataError, rows,
    source::{OpenOptions, Source, Split},
    store,
};
use paceline_registry::{Named, Registry};

/// Opens one split of a data set, or everything.
pub type Opens = fn(&Path, Option<Split>, &OpenOptions) -> Result<Arc<dyn Source>, DataError>;

/// One kind of data set.
pub struct SourceKind {
    /// Its name, as in `paceline list`.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What makes a path one of these; for the message when nothing fits.
    pub looks_for: &'static str,
    /// What a folder of these holds, in messages.
    pub holds: &'static str,
    /// Whether a path is one of these; opens no file for longer than a glance.
    pub recognises: fn(&Path) -> bool,
    pub opens: Opens,
}

impl SourceKind {
    /// Opens one split, or everything.
    ///
    /// # Errors
    /// Says which file or record is wrong.
    pub fn open(
        &self,
        path: &Path,
        split: Option<Split>,
        options: &OpenOptions,
    ) -> Result<Arc<dyn Source>, DataError> {
        (self.opens)(path, split, options)
    }
}

impl Named for SourceKind {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceKind").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every kind, in the order in which they are tried.
pub static ALL: Registry<SourceKind> =
    Registry::new(&[&generated::ENTRY, &records::ENTRY, &idx::ENTRY, &photos::ENTRY]);

/// The kind of the data set at `path`.
///
/// # Errors
/// A path that does not exist, or is nothing known, with what was looked for.
pub fn detect(path: &Path) -> Result<&'static SourceKind, DataError> {
    if store::is_remote(path) {
        // A store that does not answer or denies access is reported as such, once.
        store::open(path)?.size(crate::manifest::MANIFEST)?;
    }
    let rows = |format: &str| DataError::Rows { path: path.to_owned(), format: format.to_owned() };
    if is_prepared_rows(path) {
        return Err(rows("prepared"));
    }
    if let Some(entry) = ALL.iter().find(|entry| (entry.recognises)(path)) {
        return Ok(entry);
    }
    if let Some(format) = rows::format_of(path) {
        return Err(rows(format.name));
    }
    if store::is_remote(path) {
        store::open(path)?.list("")?; // says what is missing
    } else {
        std::fs::metadata(path).map_err(DataError::read(path))?;
    }
    let looked_for: Vec<&str> = ALL.iter().map(|entry| entry.looks_for).collect();
    Err(DataError::Unrecognised { path: path.to_owned(), looked_for: looked_for.join("; ") })
}

/// Whether a folder holds records of rows, which only look like records of images.
fn is_prepared_rows(path: &Path) -> bool {
    let there = |name: &str| match store::is_remote(path) {
        true => {
            store::open(path).is_ok_and(|store| store.size(name).is_ok_and(|size| size.is_some()))
        }
        false => path.join(name).is_file(),
    };
    there(rows::DESCRIPTION) && !there(crate::manifest::MANIFEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_registered() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sources");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let mut names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
    }

    #[test]
    fn a_click_log_is_called_one_and_not_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("clicks.tsv");
        let clicks =
            paceline_prepare::synth::ClicksOptions { rows: 20, seed: 1, vw: None, threads: 1 };
        paceline_prepare::synth::write_clicks(&log, &clicks, &|_| ()).unwrap();
        let message = detect(&log).unwrap_err().to_string();
        assert!(message.contains("rows of sparse features (clicks)"), "{message}");
        std::fs::write(folder.path().join("rows.json"), "{}").unwrap();
        std::fs::write(folder.path().join("train-00000-of-00001.tfrecord"), "").unwrap();
        let message = detect(folder.path()).unwrap_err().to_string();
        assert!(message.contains("rows of sparse features (prepared)"), "{message}");
    }

    #[test]
    fn an_unknown_folder_is_told_what_was_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let message = detect(folder.path()).unwrap_err().to_string();
        assert!(message.contains("looked for") && message.contains("idx"), "{message}");
        assert!(detect(Path::new("/nowhere/at/all")).unwrap_err().to_string().contains("/nowhere"));
    }
}
