//! TFRecord shards of encoded images: what `prepare` writes, and what others write alike.
//!
//! Any example is found through the shard's index, so that a full shuffle needs no buffer; both
//! checksums of a record are verified whenever it is read. With a `manifest.json` the set opens
//! without touching the records; without one, one pass over all records finds the classes.

mod checksums;
mod layout;
mod scan;
mod shard;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};
use paceline_photo::{Colour, DecodeOptions, Fit};
use sha2::{Digest, Sha256};

use crate::{
    DataError,
    fingerprint::sampled,
    manifest::Manifest,
    source::{Checksums, OpenOptions, Scratch, Source, Split},
    sources::SourceKind,
    store,
};
pub(crate) use checksums::{digest, open as open_stream};
use layout::Layout;
pub(crate) use shard::Shard;

/// This kind of data set.
pub const ENTRY: SourceKind = SourceKind {
    name: "records",
    about: "TFRecord shards of encoded images, with or without a manifest",
    looks_for: "records: a folder with manifest.json, or *.tfrecord files with `image/encoded` and `image/class/label`",
    holds: "TFRecord files",
    recognises: |path| match path.is_dir() {
        _ if store::is_remote(path) => {
            Files::find(path).is_ok_and(|files| !files.shards.is_empty())
        }
        true => path.join(crate::manifest::MANIFEST).is_file() || !list(path).is_empty(),
        false => path.is_file() && is_record_file(path),
    },
    opens: |path, split, options| Ok(Arc::new(Records::open(path, split, options)?)),
};

/// Shards of records.
#[derive(Debug)]
pub struct Records {
    schema: Schema,
    shards: Vec<Shard>,
    /// Number of the first example of each shard, and the number of all.
    starts: Vec<u64>,
    layout: &'static Layout,
    first_label: i64,
    decode: DecodeOptions,
    size: (u32, u32),
    fit: Fit,
    /// How the photos were made to fit when the records were made, where a manifest says so.
    prepared_fit: Option<Fit>,
    remarks: Vec<String>,
    /// Names and counts of the shards, and their checksums where a manifest has them.
    listed: Vec<u8>,
    watch: Option<checksums::Watch>,
}

/// The files of a set, before they are opened.
#[derive(Debug)]
pub(crate) struct Files {
    /// The folder, or the only file.
    pub(crate) path: PathBuf,
    pub(crate) manifest: Option<Manifest>,
    /// Of all splits, in order.
    pub(crate) shards: Vec<(Split, PathBuf)>,
}

/// Shards of a store that are opened at once; each takes two round trips.
const DISTANT_AT_ONCE: usize = 16;

impl Files {
    /// Finds the shards at `path`, a folder or one file.
    pub(crate) fn find(path: &Path) -> Result<Self, DataError> {
        let single = match store::is_remote(path) {
            true => is_record_file(path) && store::is_file(path),
            false => path.is_file(),
        };
        if single {
            let path = path.to_owned();
            return Ok(Self { manifest: None, shards: vec![(Split::Train, path.clone())], path });
        }
        if let Some(manifest) = Manifest::read(&*store::open(path)?)? {
            let mut shards = Vec::new();
            for split in &manifest.splits {
                // A part with a name of its own was set apart on purpose: it is not for training.
                let Ok(name) = split.name.parse() else { continue };
                // A shard whose photos were all rejected holds nothing.
                let full = split.shards.iter().filter(|shard| shard.records > 0);
                shards.extend(full.map(|shard| (name, path.join(&shard.name))));
            }
            return Ok(Self { path: path.to_owned(), manifest: Some(manifest), shards });
        }
        let shards = list_shards(path)?;
        Ok(Self { path: path.to_owned(), manifest: None, shards })
    }
}

impl Files {
    /// Holds a shard against what the manifest says of it: one that was cut, copied over or exchanged for another is named
    /// before a step is made with it.
    fn check(&self, shard: &Shard) -> Result<(), DataError> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        let name = shard.path().file_name().unwrap_or_default().to_string_lossy();
        let listed = manifest.splits.iter().flat_map(|split| &split.shards);
        let Some(said) = listed.into_iter().find(|said| said.name == *name) else { return Ok(()) };
        for (what, found, wanted) in [
            ("bytes", shard.stored_bytes(), said.bytes),
            ("records", Some(shard.len()), said.records),
        ] {
            if let Some(found) = found.filter(|found| *found != wanted) {
                let path = shard.path().to_owned();
                return Err(DataError::ShardChanged { path, what, found, wanted });
            }
        }
        Ok(())
    }

    /// Shards with the checksums that the manifest has of them.
    fn checksums(&self, shards: &[Shard]) -> Vec<checksums::Listed> {
        let listed = self.manifest.iter().flat_map(|manifest| &manifest.splits);
        let listed: BTreeMap<&str, &str> = listed
            .flat_map(|split| &split.shards)
            .map(|shard| (shard.name.as_str(), shard.sha256.as_str()))
            .collect();
        let of = |shard: &Shard| {
            let name = shard.path().file_name()?.to_string_lossy();
            let sha256 = (*listed.get(&*name)?).to_owned();
            Some(checksums::Listed { path: shard.path().to_owned(), sha256 })
        };
        shards.iter().filter_map(of).collect()
    }
}

impl Records {
    /// Opens a folder or a file.
    ///
    /// # Errors
    /// Missing or damaged shards, records without the features of an image, labels that name no class.
    pub fn open(
        path: &Path,
        split: Option<Split>,
        options: &OpenOptions,
    ) -> Result<Self, DataError> {
        let files = Files::find(path)?;
        let wanted =
            files.shards.iter().filter(|(this, _)| split.is_none_or(|split| split == *this));
        let wanted: Vec<&Path> = wanted.map(|(_, file)| file.as_path()).collect();
        let at_once = if store::is_remote(path) { DISTANT_AT_ONCE } else { 1 };
        let shards = store::side_by_side(wanted.len(), at_once, |n| {
            let shard = Shard::open(wanted[n])?;
            files.check(&shard)?;
            Ok::<_, DataError>(shard)
        })?;
        if let Some(wanted) = split
            && shards.is_empty()
            && !files.shards.is_empty()
        {
            let mut names: Vec<&str> = files.shards.iter().map(|(split, _)| split.name()).collect();
            names.dedup();
            let found = names.join(", ");
            return Err(DataError::NoSplit { path: path.to_owned(), wanted, found });
        }
        let listed = files.checksums(&shards);
        if options.checksums == Checksums::First {
            if files.manifest.is_none() {
                return Err(DataError::NoChecksums { path: path.to_owned() });
            }
            checksums::compare_all(&listed)?;
        }
        let mut records = Self::from_shards(shards, &files, options)?;
        // What lies in a store would be fetched a second time.
        if options.checksums == Checksums::Beside && !listed.is_empty() && !records.distant() {
            records.watch = checksums::Watch::start(listed);
        }
        Ok(records)
    }

    /// A set of shards that are open already; `files` says what else belongs to the set.
    pub(crate) fn from_shards(
        shards: Vec<Shard>,
        files: &Files,
        options: &OpenOptions,
    ) -> Result<Self, DataError> {
        let mut starts = vec![0];
        for shard in &shards {
            starts.push(starts[starts.len() - 1] + shard.len());
        }
        let Some(first) = shards.iter().find(|shard| shard.len() > 0) else {
            let why = if shards.is_empty() { "it has no shards" } else { "its shards are empty" };
            return Err(DataError::NoExamples { path: files.path.clone(), why: why.to_owned() });
        };
        let mut bytes = Vec::new();
        let range = first.read(0, &mut bytes)?;
        let (layout, stored) = layout::recognise(&bytes[range], &first.place(0))?;
        let mut remarks = Vec::new();
        let (names, first_label) = match (&files.manifest, options.classes) {
            (Some(manifest), _) => (manifest.classes.clone(), manifest.first_label),
            (None, Some(classes)) => ((0..classes).map(|class| class.to_string()).collect(), 0),
            (None, None) => {
                // All splits, so that they agree on what a label means.
                let paths: Vec<&Path> =
                    files.shards.iter().map(|(_, path)| path.as_path()).collect();
                let scan = scan::labels(&paths, layout)?;
                let start = scan.first_label;
                remarks.push(format!(
                    "no manifest: {} classes found in {} records, labels start at {start}",
                    scan.names.len(),
                    scan.records
                ));
                (scan.names, start)
            }
        };
        let size = match (options.size, &files.manifest) {
            (Some(size), _) => size,
            (None, Some(manifest)) => (manifest.settings.width, manifest.settings.height),
            (None, None) => (stored.width as u32, stored.height as u32),
        };
        let shape = ImageShape {
            height: size.1 as usize,
            width: size.0 as usize,
            channels: stored.channels,
        };
        if shape.is_empty() {
            return Err(DataError::NoSize);
        }
        let colour = if shape.channels == 1 { Colour::Grey } else { Colour::Rgb };
        let schema =
            Schema { features: FeatureKind::Image(shape), labels: LabelKind::Classes { names } };
        let decode = DecodeOptions { colour, limits: options.limits(), ..DecodeOptions::default() };
        let fit = options.fit;
        let prepared_fit = files.manifest.as_ref().and_then(|it| Fit::named(&it.settings.fit));
        let listed = listed(&shards, files);
        let watch = None;
        Ok(Self {
            schema,
            shards,
            starts,
            layout,
            first_label,
            decode,
            size,
            fit,
            prepared_fit,
            remarks,
            listed,
            watch,
        })
    }

    /// The shard of an example, and its number there.
    pub(crate) fn find(&self, index: u64) -> (&Shard, u64) {
        // The last start that is not beyond the example; empty shards have none.
        let shard = self.starts.partition_point(|&start| start <= index) - 1;
        (&self.shards[shard], index - self.starts[shard])
    }

    fn class(&self, label: i64, shard: &Shard, record: u64) -> Result<u32, DataError> {
        let classes = self.schema.labels.classes();
        label
            .checked_sub(self.first_label)
            .and_then(|class| u32::try_from(class).ok())
            .filter(|&class| (class as usize) < classes)
            .ok_or_else(|| DataError::RecordLabel {
                place: shard.place(record),
                label,
                first: self.first_label,
                classes,
            })
    }
}

impl Source for Records {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    fn read(&self, index: u64, scratch: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        let (shard, record) = self.find(index);
        let place = || shard.place(record);
        let payload = shard.read(record, &mut scratch.bytes)?;
        if let Some(watch) = &self.watch {
            watch.reads(payload.len())?;
        }
        let found = self.layout.find(&scratch.bytes[payload.clone()], &place)?;
        let label = self.class(found.label, shard, record)?;
        let image = payload.start + found.image.start..payload.start + found.image.end;
        if found.raw {
            let stored = &scratch.bytes[image];
            if stored.len() != pixels.len() {
                let (found, wanted) = (stored.len(), pixels.len());
                return Err(DataError::RawLength { place: place(), found, wanted });
            }
            pixels.copy_from_slice(stored);
        } else {
            super::photos::decode(scratch, Some(image), &self.decode, self.size, self.fit, pixels)
                .map_err(|source| DataError::RecordPhoto { place: place(), source })?;
        }
        Ok(label)
    }

    fn label(&self, index: u64, scratch: &mut Scratch) -> Result<u32, DataError> {
        let (shard, record) = self.find(index);
        let payload = shard.read(record, &mut scratch.bytes)?;
        let found = self.layout.find(&scratch.bytes[payload], &|| shard.place(record))?;
        self.class(found.label, shard, record)
    }

    fn fit(&self) -> Fit {
        self.prepared_fit.unwrap_or(self.fit)
    }

    fn identify(&self, sum: &mut Sha256) -> Result<(), DataError> {
        sum.update(&self.listed);
        let mut bytes = Vec::new();
        for index in sampled(self.len()) {
            let (shard, record) = self.find(index);
            match shard.read(record, &mut bytes) {
                Ok(payload) => sum.update(&bytes[payload]),
                Err(_) => sum.update(b"unreadable"),
            }
        }
        Ok(())
    }

    fn distant(&self) -> bool {
        self.shards.iter().any(|shard| store::is_remote(shard.path()))
    }

    fn origin(&self, index: u64) -> String {
        let (shard, record) = self.find(index);
        shard.place(record).to_string()
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = self.remarks.clone();
        let held = self.shards.iter().filter(|shard| shard.in_memory()).count();
        if held > 0 {
            remarks.push(format!("{held} compressed shards are held in memory, unpacked"));
        }
        remarks
    }
}

/// What identifies shards without opening them.
fn listed(shards: &[Shard], files: &Files) -> Vec<u8> {
    let mut described = files.checksums(shards).into_iter().peekable();
    let mut listed = Vec::new();
    for shard in shards {
        let name = shard.path().file_name().unwrap_or_default().to_string_lossy();
        let checksum = described.next_if(|listed| listed.path == shard.path());
        let checksum = checksum.map(|listed| listed.sha256).unwrap_or_default();
        listed.extend_from_slice(format!("{name} {} {checksum}\n", shard.len()).as_bytes());
    }
    listed
}

/// `x.tfrecord`, `x.tfrecords`, `x.tfrecord-00001-of-00008`, `x.tfrecord.gz`; not an index beside it.
fn is_record_file(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| {
        !name.starts_with('.')
            && name.contains(".tfrecord")
            && !name.ends_with(".index")
            && !name.ends_with(".tmp")
    })
}

/// The record files of a folder, here or in a store.
pub(crate) fn list_shards(folder: &Path) -> Result<Vec<(Split, PathBuf)>, DataError> {
    if store::is_remote(folder) { list_remote(folder) } else { Ok(list(folder)) }
}

/// The record files of a folder with the split each name tells; without any it is training.
fn list(folder: &Path) -> Vec<(Split, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file() && is_record_file(path))
        .collect();
    paths.sort();
    paths.into_iter().map(|path| (split_of(&path), path)).collect()
}

/// As [`list`], for a folder of a store.
fn list_remote(folder: &Path) -> Result<Vec<(Split, PathBuf)>, DataError> {
    let listing = store::open(folder)?.list("")?; // sorted by name
    let paths = listing.files.iter().map(|file| folder.join(&file.name));
    let records = paths.filter(|path| is_record_file(path));
    Ok(records.map(|path| (split_of(&path), path)).collect())
}

/// The split that the name of a record file tells.
fn split_of(path: &Path) -> Split {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let mut words = name.split(['-', '.', '_']);
    words.find_map(|word| word.parse().ok()).unwrap_or(Split::Train)
}

#[cfg(test)]
mod tests;
