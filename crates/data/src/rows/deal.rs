//! Files dealt to workers by size.
//!
//! The largest file goes first, each to the worker with the least so far: no worker gets more than
//! its fair share plus one file. A pure function of sizes, so that every worker computes the same.

use std::{fs, path::PathBuf};

use crate::DataError;

/// What one worker reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dealt {
    /// Its files, in their original order.
    pub files: Vec<PathBuf>,
    /// Their bytes together.
    pub bytes: u64,
}

/// Deals `files` to `workers`.
///
/// # Errors
/// A file that is not there; a worker left without files, by name.
pub fn deal(files: &[PathBuf], workers: usize) -> Result<Vec<Dealt>, DataError> {
    let mut sized = Vec::with_capacity(files.len());
    for (number, path) in files.iter().enumerate() {
        sized.push((fs::metadata(path).map_err(DataError::read(path))?.len(), number));
    }
    let hands = deal_sizes(&sized, workers);
    let mut dealt = Vec::with_capacity(workers);
    for (worker, hand) in hands.into_iter().enumerate() {
        if hand.is_empty() {
            return Err(DataError::NoFilesFor { worker, workers, files: files.len() });
        }
        let bytes = hand.iter().map(|&number| sized[number].0).sum();
        dealt.push(Dealt { files: hand.into_iter().map(|n| files[n].clone()).collect(), bytes });
    }
    Ok(dealt)
}

/// Numbers of the files of each worker, ascending.
fn deal_sizes(sized: &[(u64, usize)], workers: usize) -> Vec<Vec<usize>> {
    let mut order = sized.to_vec();
    order.sort_by_key(|&(bytes, number)| (std::cmp::Reverse(bytes), number));
    let mut hands = vec![(0_u64, Vec::new()); workers];
    for (bytes, number) in order {
        // An empty file still is a file: by count where the bytes are equal.
        if let Some(hand) = hands.iter_mut().min_by_key(|(total, files)| (*total, files.len())) {
            hand.0 += bytes;
            hand.1.push(number);
        }
    }
    hands
        .into_iter()
        .map(|(_, mut files)| {
            files.sort_unstable();
            files
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_file_goes_to_one_worker_and_none_gets_much_more(
            sizes in proptest::collection::vec(0_u64..1000, 1..40), workers in 1_usize..8
        ) {
            let sized: Vec<(u64, usize)> = sizes.iter().copied().zip(0..).collect();
            let hands = deal_sizes(&sized, workers);
            let mut all: Vec<usize> = hands.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
            prop_assert!(sizes.len() < workers || hands.iter().all(|hand| !hand.is_empty()));
            let bytes = |hand: &Vec<usize>| hand.iter().map(|&n| sizes[n]).sum::<u64>();
            let most = hands.iter().map(bytes).max().unwrap();
            let fair = sizes.iter().sum::<u64>() / workers as u64;
            prop_assert!(most <= fair + sizes.iter().max().unwrap() + 1);
        }
    }

    #[test]
    fn a_worker_without_files_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "x").unwrap();
        let error = deal(&[path], 2).unwrap_err().to_string();
        assert!(error.contains("worker/1") && error.contains("1 file"), "{error}");
    }
}
