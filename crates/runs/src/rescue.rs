//! Another place for the weights that a run ended with, where its own folder does not take them.
//!
//! Hours of training must not end in nothing because a disk is full or a folder is gone. The weights go to a run
//! folder of their own, from which the run can be resumed, in the nearest place that takes them.

use crate::{RunFolder, RunsError};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Weights that could not be written where they belong.
#[derive(Debug, Clone)]
pub struct FinalWeights {
    /// The run they belong to.
    pub run: RunFolder,
    /// Updates they went through.
    pub step: u64,
    /// Where they belong.
    pub path: PathBuf,
    /// Why they are not there.
    pub reason: String,
}

impl FinalWeights {
    /// Saves them elsewhere: `save` writes them into a new run folder, or says why it cannot. What comes back is
    /// the error that the run ends with; it says where they are.
    pub fn rescue(self, mut save: impl FnMut(&RunFolder) -> Result<(), String>) -> RunsError {
        let Self { run, step, path, reason } = self;
        let (mut tried, mut rescued) = (Vec::new(), None);
        for place in places(run.path()) {
            let saved = new_folder(&place, &run.name())
                .map_err(|error| error.to_string())
                .and_then(|folder| {
                    save(&folder).map(|()| folder.path().to_path_buf()).inspect_err(|_| {
                        // Best effort: half a copy is of no use.
                        let _ = fs::remove_dir_all(folder.path());
                    })
                });
            match saved {
                Ok(folder) => {
                    rescued = Some(folder);
                    break;
                }
                Err(why) => tried.push((place, why)),
            }
        }
        RunsError::FinalWeights { step, path, reason, rescued, tried }
    }
}

/// Beside the run folder, beside the folder of runs, and where temporary files go.
fn places(run: &Path) -> Vec<PathBuf> {
    let whole = std::path::absolute(run).unwrap_or_else(|_| run.to_path_buf());
    let mut places: Vec<PathBuf> =
        whole.ancestors().skip(1).take(2).map(Path::to_path_buf).collect();
    // `/tmp` may be held in memory; `/var/tmp` is not.
    let temporary = std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), PathBuf::from);
    places.push(if temporary.is_dir() { temporary } else { std::env::temp_dir() });
    places.dedup();
    places
}

fn new_folder(place: &Path, name: &str) -> io::Result<RunFolder> {
    let mut number = 1;
    loop {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = place.join(format!("{name}-rescued{suffix}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(RunFolder::at(&path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_place_that_takes_the_weights_is_named() {
        let root = tempfile::tempdir().unwrap();
        let run = RunFolder::create(&root.path().join("runs"), "softmax", "one-device").unwrap();
        let lost = FinalWeights {
            run: run.clone(),
            step: 60,
            path: run.checkpoints_path(),
            reason: "no space left".to_owned(),
        };
        fs::remove_dir_all(root.path().join("runs")).unwrap();
        let save = |folder: &RunFolder| {
            fs::write(folder.path().join("weights"), b"w").map_err(|error| error.to_string())
        };
        let error = lost.clone().rescue(save);
        let place = root.path().join(format!("{}-rescued", run.name()));
        assert_eq!(fs::read(place.join("weights")).unwrap(), b"w");
        let text = error.to_string();
        for word in ["step 60", "no space left", &place.display().to_string(), "runs`: "] {
            assert!(text.contains(word), "{word} is not in {text}");
        }
        let lost = lost.rescue(|_| Err("refused".to_owned())).to_string();
        assert!(lost.contains("lost") && lost.matches("refused").count() == 2, "{lost}");
    }
}
