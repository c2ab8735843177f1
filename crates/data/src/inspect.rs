//! What a data set holds ([`info`]), and whether all of it is whole ([`verify`]).
//!
//! Both return plain structs; printing them is the command line's business.

mod rows;
mod verify;

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use paceline_batch::{ImageShape, LabelKind};
use serde::Serialize;

use crate::{
    DataError, OpenOptions, Scratch, Source, Split,
    lenient::{Instead, Lenient, log_of},
    rejects::{Reject, RejectLimit},
    source::image_shape,
    sources::{self, SourceKind},
    store::{self, Store, join_key},
};
pub use rows::{RowsInfo, rows};
pub use verify::{Problem, Verification, verify};

/// Labels of generated sets have to be drawn one by one, so only so many are counted.
const MOST_GENERATED: u64 = 20_000;

/// Bad photos show when they are decoded; of a larger set so many are, spread over all of it.
const MOST_SCREENED: u64 = 20_000;

/// Examples shown as a sample.
const SAMPLES: u64 = 5;

/// How far a long look has come; may be called from several threads.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// What a data set holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Info {
    pub path: String,
    /// Which kind of set, as in `paceline list`.
    pub kind: &'static str,
    /// Examples in all splits.
    pub examples: u64,
    /// Height, width and channels of an example as it is delivered, in pixels.
    pub shape: ImageShape,
    /// Bytes per decoded example.
    pub example_bytes: u64,
    /// Bytes of all files; 0 for generated sets.
    pub stored_bytes: u64,
    /// The splits there are.
    pub splits: Vec<SplitInfo>,
    /// The classes, in label order.
    pub classes: Vec<ClassInfo>,
    /// Examples whose labels were counted; fewer than `examples` for large generated sets.
    pub counted: u64,
    /// Some examples from all over the set.
    pub sample: Vec<Sample>,
    /// What was assumed.
    pub remarks: Vec<String>,
    /// Photos found, those that cannot be used included; 0 for other kinds of sets.
    pub photos: u64,
    /// Photos that cannot be used, and why.
    pub rejects: Vec<Reject>,
    /// Photos that were decoded to find them; fewer than `examples` for very large sets.
    pub screened: u64,
}

/// One split of a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SplitInfo {
    pub name: Split,
    pub examples: u64,
}

/// One class of a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClassInfo {
    pub name: String,
    /// Its examples among those counted.
    pub examples: u64,
}

/// One example of a set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    pub index: u64,
    /// The file and record.
    pub origin: String,
    pub class: String,
    /// Mean of its pixels, 0 to 255: a set of black images is seen at once.
    pub mean: f64,
}

/// Describes the set at `path`. `progress` hears how many labels have been read, of how many.
///
/// # Errors
/// A set that cannot be opened, or an example that cannot be read, by name.
pub fn info(
    path: &Path,
    options: &OpenOptions,
    max_rejects: Option<RejectLimit>,
    progress: Progress<'_>,
) -> Result<Info, DataError> {
    let entry = sources::detect(path)?;
    let source = entry.open(path, None, options)?;
    let log = log_of(&[&*source], max_rejects)?;
    let screened = if source.may_reject() { source.len().min(MOST_SCREENED) } else { 0 };
    if screened > 0 {
        screen(&*Lenient::around(Arc::clone(&source), &log, Instead::Nothing), screened, progress)?;
    }
    // Samples of what can be used.
    let source = Lenient::around(source, &log, Instead::Next);
    let generated = entry.name == sources::generated::ENTRY.name;
    let counted = if generated { source.len().min(MOST_GENERATED) } else { source.len() };
    let mut scratch = Scratch::default();
    let mut counts = vec![0_u64; source.schema().labels.classes()];
    for index in 0..counted {
        counts[source.label(index, &mut scratch)? as usize] += 1;
        if index % 256 == 255 {
            progress(index + 1, counted);
        }
    }
    progress(counted, counted);
    let names = match &source.schema().labels {
        LabelKind::Classes { names } => names.clone(),
        LabelKind::Binary => vec!["no".to_owned(), "yes".to_owned()],
    };
    let shape = image_shape(source.schema());
    let mut remarks = source.remarks();
    let splits = splits(entry, path, options, generated, &mut remarks)?;
    Ok(Info {
        path: path.display().to_string(),
        kind: entry.name,
        examples: source.len(),
        shape,
        example_bytes: shape.len() as u64,
        stored_bytes: if generated { 0 } else { stored_bytes(path) },
        splits,
        classes: names
            .iter()
            .zip(counts)
            .map(|(name, examples)| ClassInfo { name: name.clone(), examples })
            .collect(),
        counted,
        sample: sample(source.as_ref(), &names, &mut scratch)?,
        remarks,
        photos: if screened > 0 { source.len() + source.rejects().len() as u64 } else { 0 },
        rejects: log.list(),
        screened,
    })
}

/// Decodes `count` examples, spread over all of a set, on all cores; the source notes which it leaves out.
fn screen(source: &dyn Source, count: u64, progress: Progress<'_>) -> Result<(), DataError> {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None));
    let width = image_shape(source.schema()).len();
    let work = || {
        let (mut scratch, mut pixels) = (Scratch::default(), vec![0; width]);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let index = (u128::from(number) * u128::from(source.len()) / u128::from(count)) as u64;
            let read = source.read(index, &mut scratch, &mut pixels);
            if let Err(error) = read.map(drop).or_else(|error| source.leave_out(index, error)) {
                next.store(count, Ordering::Relaxed); // the others end too
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
            if number % 64 == 63 {
                progress(number + 1, count);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..paceline_batch::cores().count {
            scope.spawn(work);
        }
        work();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn splits(
    entry: &SourceKind,
    path: &Path,
    options: &OpenOptions,
    generated: bool,
    remarks: &mut Vec<String>,
) -> Result<Vec<SplitInfo>, DataError> {
    let mut splits = Vec::new();
    for name in Split::ALL {
        match entry.open(path, Some(name), options) {
            Ok(source) => splits.push(SplitInfo { name, examples: source.len() }),
            Err(DataError::NoSplit { .. } | DataError::NoExamples { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    // A set without splits of its own holds out the same examples for each split but training: they are listed once, and add up.
    let sum: u64 = splits.iter().map(|split| split.examples).sum();
    if !generated && sum != entry.open(path, None, options)?.len() {
        splits.retain(|split| matches!(split.name, Split::Train | Split::Test));
        let held_out = entry.open(path, Some(Split::Train), options)?.remarks();
        remarks.extend(
            held_out.into_iter().filter(|remark| !remarks.contains(remark)).collect::<Vec<_>>(),
        );
    }
    Ok(splits)
}

fn sample(
    source: &dyn Source,
    names: &[String],
    scratch: &mut Scratch,
) -> Result<Vec<Sample>, DataError> {
    let mut pixels = vec![0; image_shape(source.schema()).len()];
    let count = SAMPLES.min(source.len());
    let mut samples = Vec::new();
    for number in 0..count {
        let index = number * (source.len() / count);
        let label = source.read(index, scratch, &mut pixels)?;
        let sum: u64 = pixels.iter().map(|&pixel| u64::from(pixel)).sum();
        samples.push(Sample {
            index,
            origin: source.origin(index),
            class: names.get(label as usize).cloned().unwrap_or_default(),
            mean: sum as f64 / pixels.len().max(1) as f64,
        });
    }
    Ok(samples)
}

/// Bytes of a file, or of all files in a folder; what cannot be read counts nothing.
fn stored_bytes(path: &Path) -> u64 {
    if store::is_remote(path) {
        return store::open(path).map_or(0, |store| stored_in(&*store, "", 0));
    }
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    if !metadata.is_dir() {
        return path.metadata().map_or(0, |metadata| metadata.len());
    }
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries.filter_map(Result::ok).map(|entry| stored_bytes(&entry.path())).sum()
}

/// As [`stored_bytes`], for a folder of a store.
fn stored_in(store: &dyn Store, folder: &str, depth: usize) -> u64 {
    let Ok(listing) = store.list(folder) else { return 0 };
    let files: u64 = listing.files.iter().map(|file| file.size).sum();
    let inner = listing.folders.iter().filter(|_| depth < 32);
    files + inner.map(|name| stored_in(store, &join_key(folder, name), depth + 1)).sum::<u64>()
}

#[cfg(test)]
mod tests;
