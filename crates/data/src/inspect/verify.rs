//! Reads everything once and lists whatever is wrong.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use paceline_tfrecord::{Index, ReaderOptions};
use serde::Serialize;

use super::{Progress, stored_bytes};
use crate::{
    DataError, OpenOptions, Scratch, Source, Split,
    manifest::{MANIFEST, Manifest, TRAIN},
    rows::{DESCRIPTION, Prepared},
    source::image_shape,
    sources::{
        self,
        records::{Files, Records, Shard, digest, list_shards, open_stream},
    },
    store,
};

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Where the set is.
    pub path: String,
    /// Which kind of set, as in `paceline list`.
    pub kind: &'static str,
    /// Examples read and decoded, good and bad.
    pub examples: u64,
    /// Files whose checksum was compared with the manifest.
    pub checksums: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Everything that is wrong, by file and record.
    pub problems: Vec<Problem>,
}

impl Verification {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The file concerned.
    pub file: String,
    /// The record concerned, from 0.
    pub record: Option<u64>,
    /// The byte at which it begins.
    pub offset: Option<u64>,
    /// What is wrong, with its causes.
    pub problem: String,
}

impl Problem {
    fn new(file: impl Into<String>, error: &DataError) -> Self {
        let place = error.place();
        Self {
            file: place.map_or_else(|| file.into(), |place| place.file.display().to_string()),
            record: place.map(|place| place.record),
            offset: place.map(|place| place.offset),
            problem: store::with_causes(error),
        }
    }
}

/// Reads and decodes every example of the set at `path`, and compares checksums. `progress` hears how
/// many examples have been read, of how many.
///
/// # Errors
/// Only for a path that is not a data set; problems within a data set are part of the result.
pub fn verify(
    path: &Path,
    options: &OpenOptions,
    progress: Progress<'_>,
) -> Result<Verification, DataError> {
    let entry = match sources::detect(path) {
        // Text that was not prepared has no checksums.
        Err(error @ DataError::Rows { .. }) => {
            let prepared = Prepared::read(path)?.ok_or(error)?;
            return Ok(verify_rows(path, &prepared, progress));
        }
        entry => entry?,
    };
    let mut result = Verification {
        path: path.display().to_string(),
        kind: entry.name,
        examples: 0,
        checksums: 0,
        bytes: 0,
        problems: Vec::new(),
    };
    if entry.name == sources::generated::ENTRY.name {
        // Computed, so there is nothing to be damaged; opening it checked the settings.
        entry.open(path, None, options)?;
        return Ok(result);
    }
    result.bytes = stored_bytes(path);
    if entry.name == sources::records::ENTRY.name {
        verify_records(path, options, progress, &mut result)?;
    } else if entry.name == sources::idx::ENTRY.name {
        // Each split on its own, so that one bad file does not hide another.
        let opened = Split::ALL.map(|split| entry.open(path, Some(split), options));
        for split in opened {
            match split {
                Ok(source) => read_all(source.as_ref(), progress, &mut result),
                Err(DataError::NoSplit { .. }) => {}
                Err(error) => result.problems.push(Problem::new(&result.path, &error)),
            }
        }
    } else {
        match entry.open(path, None, options) {
            Ok(source) => read_all(source.as_ref(), progress, &mut result),
            Err(error) => result.problems.push(Problem::new(&result.path, &error)),
        }
    }
    result.problems.sort();
    result.problems.dedup();
    Ok(result)
}

/// Reads every example on all cores.
fn read_all(source: &dyn Source, progress: Progress<'_>, result: &mut Verification) {
    let next = AtomicU64::new(0);
    let problems = Mutex::new(Vec::new());
    let total = source.len();
    let width = image_shape(source.schema()).len();
    let work = || {
        let (mut scratch, mut pixels) = (Scratch::default(), vec![0; width]);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= total {
                return;
            }
            if let Err(error) = source.read(index, &mut scratch, &mut pixels) {
                let problem = Problem::new(source.origin(index).trim_matches('`'), &error);
                problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
            }
            if index % 64 == 63 {
                progress(index + 1, total);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..paceline_batch::cores().count {
            scope.spawn(work);
        }
        work();
    });
    progress(total, total);
    result.examples += total;
    result.problems.extend(problems.into_inner().unwrap_or_else(PoisonError::into_inner));
}

fn verify_records(
    path: &Path,
    options: &OpenOptions,
    progress: Progress<'_>,
    result: &mut Verification,
) -> Result<(), DataError> {
    let files = match Files::find(path) {
        Ok(files) => files,
        Err(error) => {
            let file = path.join(MANIFEST).display().to_string();
            result.problems.push(Problem::new(file, &error));
            return Ok(());
        }
    };
    if let Some(manifest) = &files.manifest {
        compare_with_manifest(path, manifest, result);
    }
    let mut shards = Vec::new();
    for (_, file) in &files.shards {
        // A stored index lets reading go on beyond a damaged header; without one it ends there. A
        // stale one must not hide anything, so the headers are walked too.
        if let Err(error) = count(file)
            && !matches!(error, paceline_tfrecord::Error::NoRandomAccess { .. })
        {
            result.problems.push(Problem::new(file.display().to_string(), &error.into()));
        }
        match Shard::open(file) {
            Ok(shard) => shards.push(shard),
            Err(error) => {
                result.problems.push(Problem::new(file.display().to_string(), &error));
            }
        }
    }
    let readable: Vec<(Split, PathBuf)> = files
        .shards
        .iter()
        .filter(|(_, file)| shards.iter().any(|shard| shard.path() == file))
        .cloned()
        .collect();
    let readable = Files { path: files.path, manifest: files.manifest, shards: readable };
    match Records::from_shards(shards, &readable, options) {
        Ok(source) => read_all(&source, progress, result),
        // All shards empty or unreadable: the latter are listed already.
        Err(DataError::NoExamples { .. }) => {}
        // Records of another program are foreign, not damaged.
        Err(error @ DataError::ForeignRecords { .. }) => return Err(error),
        Err(error) => result.problems.push(Problem::new(result.path.clone(), &error)),
    }
    Ok(())
}

/// Sizes, counts and checksums of every shard the manifest names; what it does not name, and what it lacks.
fn compare_with_manifest(folder: &Path, manifest: &Manifest, result: &mut Verification) {
    let named: BTreeSet<&str> = manifest
        .splits
        .iter()
        .flat_map(|split| &split.shards)
        .map(|shard| shard.name.as_str())
        .collect();
    let mut about = |file: &Path, problem: String| {
        let file = file.display().to_string();
        result.problems.push(Problem { file, record: None, offset: None, problem });
    };
    for (_, file) in list_shards(folder).unwrap_or_default() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if !named.contains(&*name) {
            about(&file, "the manifest does not name this file".to_owned());
        }
    }
    let path = folder.join(MANIFEST);
    if manifest.split(TRAIN).is_none() {
        about(&path, format!("there is no {TRAIN} split"));
    }
    let photos = manifest.records().saturating_add(manifest.rejects);
    if photos != manifest.source.photos {
        let wanted = manifest.source.photos;
        about(&path, format!("{wanted} photos became {photos} records and rejects"));
    }
    for shard in manifest.splits.iter().flat_map(|split| &split.shards) {
        let told = ToldShard {
            file: folder.join(&shard.name),
            records: shard.records,
            bytes: shard.bytes,
            sha256: &shard.sha256,
            by: "the manifest",
        };
        told.compare(result);
    }
}

/// What a description says of a shard.
struct ToldShard<'a> {
    file: PathBuf,
    records: u64,
    bytes: u64,
    sha256: &'a str,
    /// Which description.
    by: &'static str,
}

impl ToldShard<'_> {
    /// Reads all of the file, and says how many records it has.
    fn compare(&self, result: &mut Verification) -> u64 {
        let Self { file, records, bytes, sha256, by } = self;
        let mut wrong = |problem: String| {
            let file = file.display().to_string();
            result.problems.push(Problem { file, record: None, offset: None, problem });
        };
        let found = digest(file, |_| true).map(Option::unwrap_or_default);
        let compared = match found {
            Err(source) => {
                let error = DataError::Read { path: file.clone(), source };
                wrong(store::with_causes(&error));
                false
            }
            Ok((size, _)) if size != *bytes => {
                wrong(format!("the file has {size} bytes, {by} says {bytes}"));
                false
            }
            Ok((_, found)) => {
                if !found.eq_ignore_ascii_case(sha256) {
                    wrong(format!("SHA-256 is {found}, {by} says {sha256}"));
                }
                true
            }
        };
        let counted = count(file);
        if let Ok(found) = counted
            && found != *records
        {
            wrong(format!("the file has {found} records, {by} says {records}"));
        }
        result.checksums += u64::from(compared);
        counted.unwrap_or(0)
    }
}

/// The shards of prepared rows, each against its line in the description.
fn verify_rows(path: &Path, prepared: &Prepared, progress: Progress<'_>) -> Verification {
    let mut result = Verification {
        path: path.display().to_string(),
        kind: "rows",
        examples: 0,
        checksums: 0,
        bytes: stored_bytes(path),
        problems: Vec::new(),
    };
    for shard in &prepared.shards {
        let told = ToldShard {
            file: path.join(&shard.name),
            records: shard.records,
            bytes: shard.bytes,
            sha256: &shard.sha256,
            by: DESCRIPTION,
        };
        result.examples += told.compare(&mut result);
        progress(result.examples, prepared.rows);
    }
    let told: u64 = prepared.shards.iter().map(|shard| shard.records).sum();
    if told != prepared.rows {
        result.problems.push(Problem {
            file: path.join(DESCRIPTION).display().to_string(),
            record: None,
            offset: None,
            problem: format!("{} rows are {told} records of shards", prepared.rows),
        });
    }
    result.problems.sort();
    result
}

/// Records of a file, by its headers alone; of an object, by all it holds, since it comes whole anyway.
fn count(file: &Path) -> Result<u64, paceline_tfrecord::Error> {
    if !store::is_remote(file) {
        return Index::build(file).map(|index| index.len());
    }
    let failed = |source| paceline_tfrecord::Error::Read { file: file.to_owned(), source };
    let stream = open_stream(file).map_err(failed)?;
    let mut reader = ReaderOptions::default().name(file).stream(stream)?;
    while reader.next_record()?.is_some() {}
    Ok(reader.record_number())
}
