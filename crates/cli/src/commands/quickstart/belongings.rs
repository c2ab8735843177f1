//! What a tour made, listed in a marker file, so that the next tour removes exactly that.
//!
//! Names such as `runs` and `photos` are what users call their own folders too. A tour that starts over therefore trusts the list
//! and never a name: a file that the list does not have makes the tour refuse before anything is removed.

use crate::terminal::failure::usage;
use anyhow::Context;
use paceline_runs::write_atomically;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The marker file in the tour's folder.
pub(super) const MARKER: &str = ".paceline-quickstart.json";

/// Every file and folder that the tours in one folder made.
#[derive(Debug)]
pub(super) struct Belongings {
    folder: PathBuf,
    names: &'static [&'static str],
    list: List,
}

/// The marker file's content: paths below the tour's folder, parts separated by `/`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct List {
    made: BTreeSet<String>,
}

impl Belongings {
    /// Removes what an earlier tour made under `names`, and nothing if anything else is there.
    pub(super) fn start_over(
        folder: &Path,
        names: &'static [&'static str],
    ) -> anyhow::Result<Belongings> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create `{}`", folder.display()))?;
        let list = read(&folder.join(MARKER))?;
        let there = entries_of(folder, names)?;
        if let Some(foreign) = there.iter().find(|entry| !list.made.contains(&entry.name)) {
            return Err(usage(
                format!(
                    "`{}` was not made by `paceline quickstart`, and the tour would replace it",
                    foreign.path.display()
                ),
                "nothing was removed; choose another folder with --out",
            ));
        }
        // Deepest first: what a folder holds goes before the folder.
        for entry in there.iter().rev() {
            let removed = if entry.is_folder {
                fs::remove_dir(&entry.path)
            } else {
                fs::remove_file(&entry.path)
            };
            removed.with_context(|| format!("cannot remove `{}`", entry.path.display()))?;
        }
        let belongings = Belongings { folder: folder.to_owned(), names, list: List::default() };
        belongings.write()?;
        Ok(belongings)
    }

    /// Lists what the tour has made so far; called after every step, also one that failed.
    pub(super) fn record(&mut self) -> anyhow::Result<()> {
        let there = entries_of(&self.folder, self.names)?;
        self.list.made = there.into_iter().map(|entry| entry.name).collect();
        self.write()
    }

    fn write(&self) -> anyhow::Result<()> {
        let path = self.folder.join(MARKER);
        let text = serde_json::to_string(&self.list)?;
        write_atomically(&path, text.as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))
    }
}

fn read(marker: &Path) -> anyhow::Result<List> {
    let bytes = match fs::read(marker) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(List::default()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read `{}`", marker.display()));
        }
    };
    serde_json::from_slice(&bytes).map_err(|error| {
        usage(
            format!("`{}` cannot be understood: {error}", marker.display()),
            "it lists what an earlier tour made; choose another folder with --out",
        )
    })
}

/// A file, folder or link, parents before what they hold.
#[derive(Debug)]
struct TourEntry {
    /// Path below the tour's folder; lossy for names that are not UTF-8, which the list never holds.
    name: String,
    path: PathBuf,
    is_folder: bool,
}

/// All that lies under `names`. Links are entries and are not followed.
fn entries_of(folder: &Path, names: &[&str]) -> anyhow::Result<Vec<TourEntry>> {
    let mut found = Vec::new();
    for name in names {
        let path = folder.join(name);
        let cannot = || format!("cannot read `{}`", path.display());
        match fs::symlink_metadata(&path) {
            Ok(about) => {
                walk(name, &path, about.is_dir(), &mut found).with_context(cannot)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(cannot),
        }
    }
    Ok(found)
}

fn walk(name: &str, path: &Path, is_folder: bool, found: &mut Vec<TourEntry>) -> io::Result<()> {
    found.push(TourEntry { name: name.to_owned(), path: path.to_owned(), is_folder });
    if is_folder {
        for inside in fs::read_dir(path)? {
            let inside = inside?;
            let below = format!("{name}/{}", inside.file_name().to_string_lossy());
            walk(&below, &inside.path(), inside.file_type()?.is_dir(), found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["runs", "photos", "report.html"];

    /// A tour that made a run and a report.
    fn toured(folder: &Path) {
        let mut tour = Belongings::start_over(folder, NAMES).unwrap();
        fs::create_dir_all(folder.join("runs/first/checkpoints")).unwrap();
        fs::write(folder.join("runs/first/plan.json"), "{}").unwrap();
        fs::write(folder.join("report.html"), "page").unwrap();
        tour.record().unwrap();
    }

    #[test]
    fn a_second_tour_removes_what_the_first_made() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine.txt"), "mine").unwrap();
        toured(folder.path());
        Belongings::start_over(folder.path(), NAMES).unwrap();
        let left: BTreeSet<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(left, BTreeSet::from([MARKER.to_owned(), "mine.txt".to_owned()]));
    }

    #[test]
    fn a_run_added_beside_those_of_the_tour_stays_with_all_of_them() {
        let folder = tempfile::tempdir().unwrap();
        toured(folder.path());
        fs::create_dir(folder.path().join("runs/mine")).unwrap();
        let refused = Belongings::start_over(folder.path(), NAMES).unwrap_err().to_string();
        assert!(refused.contains("runs/mine"), "{refused}");
        for path in ["runs/mine", "runs/first/plan.json", "report.html"] {
            assert!(folder.path().join(path).exists(), "{path}");
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("precious"), "p").unwrap();
        let mut tour = Belongings::start_over(folder.path(), NAMES).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("photos")).unwrap();
        tour.record().unwrap();
        Belongings::start_over(folder.path(), NAMES).unwrap();
        assert!(!folder.path().join("photos").exists());
        assert!(elsewhere.path().join("precious").exists());
    }

    #[test]
    fn a_marker_that_cannot_be_read_removes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        toured(folder.path());
        fs::write(folder.path().join(MARKER), "{").unwrap();
        assert!(Belongings::start_over(folder.path(), NAMES).is_err());
        assert!(folder.path().join("runs/first/plan.json").exists());
    }
}
