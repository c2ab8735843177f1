//! Where rows come from: files, standard input, a log that grows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{DataError, store};

/// Where rows come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Files, one after another; gzip is recognised by its first bytes.
    Files(Vec<PathBuf>),
    /// Standard input, until it ends.
    Standard,
    /// A file that grows and may be rotated; it never ends by itself.
    Follow(PathBuf),
}

impl Input {
    /// What a person calls it.
    #[must_use]
    pub fn name(&self, file: usize) -> PathBuf {
        match self {
            Self::Files(files) => files.get(file).cloned().unwrap_or_default(),
            Self::Standard => PathBuf::from("standard input"),
            Self::Follow(path) => path.clone(),
        }
    }

    /// Whether more may come after the present end.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !matches!(self, Self::Files(_))
    }
}

/// The files that a comma-separated list of files and folders names; a folder stands for the files in
/// it, by name, hidden ones left out.
///
/// # Errors
/// A path that is not there, or a folder without files.
pub fn expand(list: &str) -> Result<Vec<PathBuf>, DataError> {
    let mut files = Vec::new();
    // A file whose name has a comma in it is still a file.
    let whole = Path::new(list);
    let parts: Vec<&Path> =
        if whole.exists() { vec![whole] } else { list.split(',').map(Path::new).collect() };
    for part in parts {
        if store::is_remote(part) {
            files.append(&mut expand_remote(part)?);
            continue;
        }
        if fs::metadata(part).map_err(DataError::read(part))?.is_dir() {
            let mut inside = Vec::new();
            for entry in fs::read_dir(part).map_err(DataError::read(part))? {
                let path = entry.map_err(DataError::read(part))?.path();
                let hidden = path
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(['.', '_']));
                if path.is_file() && !hidden {
                    inside.push(path);
                }
            }
            // Prepared shards come with a description and a list of rejects.
            if inside.iter().any(|path| is_shard(path)) {
                inside.retain(|path| is_shard(path));
            }
            if inside.is_empty() {
                return Err(no_rows(part));
            }
            inside.sort();
            files.append(&mut inside);
        } else {
            files.push(part.to_owned());
        }
    }
    Ok(files)
}

/// An object, or the objects of a folder of a store.
fn expand_remote(part: &Path) -> Result<Vec<PathBuf>, DataError> {
    if let Ok((folder, key)) = store::open_file(part)
        && folder.size(&key)?.is_some()
    {
        return Ok(vec![part.to_owned()]);
    }
    let listing = store::open(part)?.list("")?; // sorted by name
    let visible = listing.files.iter().filter(|file| !file.name.starts_with(['.', '_']));
    let mut inside: Vec<PathBuf> = visible.map(|file| part.join(&file.name)).collect();
    if inside.iter().any(|path| is_shard(path)) {
        inside.retain(|path| is_shard(path));
    }
    if inside.is_empty() { Err(no_rows(part)) } else { Ok(inside) }
}

fn no_rows(folder: &Path) -> DataError {
    let why = "there is no file of rows directly in it".to_owned();
    DataError::NoExamples { path: folder.to_owned(), why }
}

fn is_shard(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "tfrecord")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_folders_become_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.tsv", "a.tsv", ".hidden", "_SUCCESS", "x,y.tsv"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let at = |name: &str| folder.path().join(name);
        let all = expand(folder.path().to_str().unwrap()).unwrap();
        assert_eq!(all, [at("a.tsv"), at("b.tsv"), at("x,y.tsv")]);
        let list = format!("{},{}", at("b.tsv").display(), at("a.tsv").display());
        assert_eq!(expand(&list).unwrap(), [at("b.tsv"), at("a.tsv")]);
        let comma = at("x,y.tsv");
        assert_eq!(expand(comma.to_str().unwrap()).unwrap(), [comma]);
        assert!(expand("/nowhere/x.tsv").unwrap_err().to_string().contains("/nowhere/x.tsv"));
        let empty = tempfile::tempdir().unwrap();
        assert!(expand(empty.path().to_str().unwrap()).is_err());
    }
}
