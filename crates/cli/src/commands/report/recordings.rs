//! Recordings of machines that a report is asked for: files of their own, and folders of commands that record while they work.

use crate::terminal::failure::{FailureExt, usage};
use paceline_report::nodes::Recorded;
use paceline_runs::{Recording, RunFolder, read_recordings};
use std::path::{Path, PathBuf};

/// What was recorded, by folder: files that are named one by one belong together.
pub(super) struct Recordings {
    all: Vec<(String, Vec<Recording>)>,
}

impl Recordings {
    /// The recordings among some paths; nothing where all are folders of runs.
    pub(super) fn among(paths: &[PathBuf]) -> anyhow::Result<Option<Recordings>> {
        let mut all: Vec<(String, Vec<Recording>)> = Vec::new();
        let mut files = Vec::new();
        let mut runs = Vec::new();
        for path in paths {
            if path.is_file() {
                files.extend(read(path)?);
                continue;
            }
            let inside = if RunFolder::is_at(path) { Vec::new() } else { recorded_in(path) };
            if inside.is_empty() {
                runs.push(path);
                continue;
            }
            let mut found = Vec::new();
            for file in inside {
                found.extend(read(&file)?);
            }
            all.push((name_of(path), found));
        }
        if !files.is_empty() {
            all.push(("recordings".to_owned(), files));
        }
        if let (Some(run), false) = (runs.first(), all.is_empty()) {
            return Err(usage(
                format!("`{}` is not a recording, the others are", run.display()),
                "report runs and recordings in two calls",
            ));
        }
        for at in 1..all.len() {
            let alike = all[..at].iter().filter(|(name, _)| *name == all[at].0).count();
            if alike > 0 {
                all[at].0.push_str(&format!(" ({})", alike + 1));
            }
        }
        Ok((!all.is_empty()).then_some(Recordings { all }))
    }

    /// What the machines did, for the pages.
    pub(super) fn recorded(&self) -> Vec<Recorded<'_>> {
        self.all.iter().map(|(name, found)| Recorded::of_recordings(found, name)).collect()
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Recording>> {
    read_recordings(path).hint(
        "`paceline monitor --csv FILE`, `dstat -tcmndr --output FILE` and `sadf -d -- -u -P ALL -r -n DEV -b` write recordings",
    )
}

/// Files `resources-*.csv` of a folder, or of its folder `resources`, by name.
fn recorded_in(folder: &Path) -> Vec<PathBuf> {
    let of = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let named = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("resources-") && name.ends_with(".csv")
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(named).collect();
        files.sort();
        files
    };
    let found = of(folder);
    if found.is_empty() { of(&folder.join("resources")) } else { found }
}

fn name_of(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    whole.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
