//! Finds the classes of record files that come without a manifest.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
};

use paceline_tfrecord::{ExampleView, FeatureView, ReaderOptions, RecordPlace, for_each_record};

use super::layout::Layout;
use crate::{
    DataError,
    store::{self, Stream},
};

/// More classes than any set has; a stray label must not make a million names.
const MOST_CLASSES: i64 = 1 << 20;

/// What the labels of a set look like.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) names: Vec<String>,
    pub(super) first_label: i64,
    pub(super) records: u64,
}

#[derive(Debug, Default)]
struct Seen {
    /// A class text for each label, empty where there is none.
    labels: BTreeMap<i64, String>,
    /// The first problem, by file and record.
    problem: Option<(usize, u64, DataError)>,
}

/// Reads all labels on all cores, verifying checksums on the way.
pub(super) fn labels(files: &[&Path], layout: &Layout) -> Result<Scan, DataError> {
    let seen = Mutex::new(Seen::default());
    let threads = paceline_batch::cores().count;
    let look = |file: usize, record: u64, payload: &[u8]| {
        let place = || RecordPlace { file: files[file].to_owned(), record, offset: 0 };
        let found = layout.find(payload, &place);
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(found) => {
                seen.labels.entry(found.label).or_insert_with(|| class_text(payload, layout));
            }
            Err(error) => {
                if seen.problem.as_ref().is_none_or(|(f, r, _)| (file, record) < (*f, *r)) {
                    seen.problem = Some((file, record, error));
                }
            }
        }
    };
    // All of one place, because a set is one folder.
    let records = if files.iter().any(|file| store::is_remote(file)) {
        let mut records = 0;
        for (number, file) in files.iter().enumerate() {
            let (folder, key) = store::open_file(file)?;
            let stream = Stream::new(folder.find(&key)?, 0);
            let mut reader = ReaderOptions::default().name(*file).stream(stream)?;
            let mut record = 0;
            while let Some(payload) = reader.next_record()? {
                look(number, record, payload);
                record += 1;
            }
            records += record;
        }
        records
    } else {
        for_each_record(files, threads, look)?.records
    };
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, _, error)) = seen.problem {
        return Err(error);
    }
    let lowest = seen.labels.keys().next().copied().unwrap_or(0);
    let highest = seen.labels.keys().next_back().copied().unwrap_or(0);
    // Many writers count classes from 1; a set in which 0 never occurs is one of theirs.
    let first_label = i64::from(lowest == 1);
    if lowest < 0 || highest - first_label >= MOST_CLASSES {
        let label = if lowest < 0 { lowest } else { highest };
        let path = files.first().map_or_else(Default::default, |file| (*file).to_owned());
        return Err(DataError::LabelRange {
            path,
            record: 0,
            label,
            classes: MOST_CLASSES as usize,
        });
    }
    let names = (first_label..=highest)
        .map(|label| match seen.labels.get(&label) {
            Some(text) if !text.is_empty() => text.clone(),
            _ => label.to_string(),
        })
        .collect();
    Ok(Scan { names, first_label, records })
}

fn class_text(payload: &[u8], layout: &Layout) -> String {
    let Some(name) = layout.text else { return String::new() };
    let text = ExampleView::new(payload).feature(name).ok().flatten();
    let text = text.as_ref().and_then(FeatureView::first_bytes).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
