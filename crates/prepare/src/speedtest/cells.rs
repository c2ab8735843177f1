//! A speed test whose cells are measured elsewhere, as tasks of an engine.
//!
//! A cell is one source at one batch size and one number of batches, with all its repetitions. Whoever measures it
//! leaves the measurements in one file beside the journal, whole and once; a second attempt finds them and measures
//! nothing. When all cells are there, the journal takes them over in the order of the plan, and from then on the test
//! looks like any other.
//!
//! ```text
//! SPEED/cells/records-8x6.json     measurements of one cell, until the journal has them
//! ```

use std::{
    collections::BTreeMap,
    io::BufRead,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use serde::{Deserialize, Serialize};

use super::{
    Bench, Kind, PageCache, Run, Sample, Settings, SpeedTestError, journal::Journal, plan,
};
use paceline_store::{IfExists, LocalStore, Store, StoreError, join_key};

/// Folder of the cells beside the journal.
const CELLS: &str = "cells";
/// Largest file of a cell that is read. Bytes.
const CELL_LIMIT: u64 = 256 << 20;

/// What every worker is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Heading {
    /// The settings, with the size of the images settled.
    settings: Settings,
    folder: PathBuf,
}

/// One cell to be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cell {
    source: Kind,
    batch_size: u64,
    batches: u64,
    /// Place in the plan and repetition of every measurement still to be made.
    runs: Vec<(u64, u64)>,
}

impl Cell {
    fn key(&self) -> String {
        let source = match self.source {
            Kind::ImageFiles => "images",
            Kind::Records => "records",
        };
        join_key(CELLS, &format!("{source}-{}x{}.json", self.batch_size, self.batches))
    }
}

/// A file of measurements.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    /// What the cell was measured under; others are not ours.
    settings: Settings,
    cell: Cell,
    samples: Vec<Sample>,
}

/// What a worker did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellsDone {
    /// Cells measured now.
    pub measured: u64,
    /// Cells that another attempt had measured.
    pub found: u64,
}

/// A test while others measure its cells. It holds the journal against other processes.
#[derive(Debug)]
pub struct Distributed {
    heading: Heading,
    store: LocalStore,
    journal: Journal,
    cells: Vec<Cell>,
}

impl Distributed {
    /// Opens the test in `folder` and finds out what is still to be measured.
    ///
    /// # Errors
    /// As of [`super::run`].
    pub fn open(settings: &Settings, folder: &Path) -> Result<Self, SpeedTestError> {
        settings.check()?;
        // Settles the size that image files are read at, and finds missing sources before anything is started.
        let size = Bench::open(settings)?.opened.last().map(|opened| opened.size);
        let size = size.and_then(|(width, height)| {
            Some((u32::try_from(width).ok()?, u32::try_from(height).ok()?))
        });
        let (journal, samples) = Journal::open(folder, settings)?;
        let folder = folder
            .canonicalize()
            .map_err(|source| SpeedTestError::Read { path: folder.to_owned(), source })?;
        let store = LocalStore::new(&folder);
        let mut cells: BTreeMap<(Kind, u64, u64), Cell> = BTreeMap::new();
        for run in plan(settings).iter().skip(samples.len()) {
            let Run { order, source, batch_size, batches, repetition } = *run;
            let fresh = || Cell { source, batch_size, batches, runs: Vec::new() };
            let cell = cells.entry((source, batch_size, batches)).or_insert_with(fresh);
            cell.runs.push((order, repetition));
        }
        let settings = Settings { size: settings.size.or(size), ..settings.clone() };
        let heading = Heading { settings, folder };
        Ok(Self { heading, store, journal, cells: cells.into_values().collect() })
    }

    /// A heading, then one line per cell that nobody has measured yet. Only the heading: nothing is left to do.
    ///
    /// # Errors
    /// Cells on disk that cannot be read.
    pub fn hand_out(&self) -> Result<Vec<String>, SpeedTestError> {
        let mut lines = vec![text(&self.heading)];
        for cell in &self.cells {
            if self.measured(cell)?.is_none() {
                self.store.remove(&cell.key()).map_err(store_failed)?;
                lines.push(text(cell));
            }
        }
        Ok(lines)
    }

    /// Cells that are measured, and all that were to be measured.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn progress(&self) -> Result<(u64, u64), SpeedTestError> {
        let done = match self.store.list(CELLS) {
            Ok(listing) => listing.files.len() as u64,
            Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => 0,
            Err(error) => return Err(store_failed(error)),
        };
        Ok((done, self.cells.len() as u64))
    }

    /// Takes all measurements over into the journal.
    ///
    /// # Errors
    /// Cells that nobody measured; a journal that cannot be written.
    pub fn collect(mut self) -> Result<(), SpeedTestError> {
        let mut samples = BTreeMap::new();
        for cell in &self.cells {
            let Some(measured) = self.measured(cell)? else {
                let path = self.heading.folder.join(cell.key());
                return Err(SpeedTestError::Unmeasured { path });
            };
            samples.extend(measured.into_iter().map(|sample| (sample.order, sample)));
        }
        for sample in samples.values() {
            self.journal.append(sample)?;
        }
        forget(&self.heading.folder)
    }

    fn measured(&self, cell: &Cell) -> Result<Option<Vec<Sample>>, SpeedTestError> {
        measured(&self.store, &self.heading.settings, cell)
    }
}

/// Removes what workers left in `folder` for the journal.
///
/// # Errors
/// Files that cannot be removed.
pub fn forget(folder: &Path) -> Result<(), SpeedTestError> {
    let store = LocalStore::new(folder);
    store.sweep(CELLS).map_err(store_failed)?;
    let listing = match store.list(CELLS) {
        Ok(listing) => listing,
        Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => return Ok(()),
        Err(error) => return Err(store_failed(error)),
    };
    for file in listing.files {
        store.remove(&join_key(CELLS, &file.name)).map_err(store_failed)?;
    }
    store.remove_folder(CELLS).map_err(store_failed)
}

/// Measures the cells of a heading and lines of [`Distributed::hand_out`], except those that are there already.
///
/// # Errors
/// Text that is none of ours, sources that cannot be read on this machine, a folder that cannot be written.
pub fn measure_cells(
    input: &mut dyn BufRead,
    page_cache: &PageCache,
    stop: &AtomicBool,
) -> Result<CellsDone, SpeedTestError> {
    let mut lines = input.lines().enumerate().map(|(index, line)| {
        let line = line.map_err(|_| SpeedTestError::BadWork { line: index + 1 })?;
        Ok((index + 1, line))
    });
    let (_, first) = lines.next().unwrap_or(Err(SpeedTestError::BadWork { line: 1 }))?;
    let Heading { settings, folder } =
        serde_json::from_str(&first).map_err(|_| SpeedTestError::BadWork { line: 1 })?;
    if !folder.join(super::JOURNAL).exists() {
        return Err(SpeedTestError::FolderUnseen { path: folder });
    }
    let store = LocalStore::new(&folder);
    let mut done = CellsDone::default();
    for line in lines {
        let (line, words) = line?;
        let cell: Cell =
            serde_json::from_str(&words).map_err(|_| SpeedTestError::BadWork { line })?;
        if measured(&store, &settings, &cell)?.is_some() {
            done.found += 1;
            continue;
        }
        let Some(samples) = measure_cell(&settings, &cell, page_cache, stop)? else { break };
        let measured = Measured { settings: settings.clone(), cell: cell.clone(), samples };
        let mut upload = store.create(&cell.key(), IfExists::Fail).map_err(store_failed)?;
        let path = folder.join(cell.key());
        upload
            .write_all(text(&measured).as_bytes())
            .map_err(|source| SpeedTestError::Write { path, source })?;
        match upload.commit() {
            Ok(()) => done.measured += 1,
            Err(StoreError::Exists { .. }) => done.found += 1,
            Err(error) => return Err(store_failed(error)),
        }
    }
    Ok(done)
}

/// All measurements of one cell; `None` if it was stopped.
fn measure_cell(
    settings: &Settings,
    cell: &Cell,
    page_cache: &PageCache,
    stop: &AtomicBool,
) -> Result<Option<Vec<Sample>>, SpeedTestError> {
    let own = Settings {
        targets: settings.targets.iter().filter(|t| t.kind == cell.source).cloned().collect(),
        batch_sizes: vec![cell.batch_size],
        batches: vec![cell.batches],
        ..settings.clone()
    };
    own.check()?;
    let mut bench = Bench::open(&own)?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.map(|host| host.trim().to_owned());
    if own.cold {
        page_cache.drop_all(&bench.paths())?;
    }
    bench.warm_up(stop)?;
    let mut samples = Vec::new();
    for &(order, repetition) in &cell.runs {
        if own.cold {
            page_cache.drop_all(&bench.paths())?;
        }
        let Cell { source, batch_size, batches, .. } = *cell;
        let run = Run { order, source, batch_size, batches, repetition };
        let Some(sample) = bench.measure(&run, stop)? else { return Ok(None) };
        samples.push(Sample { host: host.clone(), ..sample });
    }
    Ok(Some(samples))
}

/// The measurements of a cell, if they are there and were made for this very test.
fn measured(
    store: &LocalStore,
    settings: &Settings,
    cell: &Cell,
) -> Result<Option<Vec<Sample>>, SpeedTestError> {
    let key = cell.key();
    if store.size(&key).map_err(store_failed)?.is_none() {
        return Ok(None);
    }
    let bytes = store.read(&key, CELL_LIMIT).map_err(store_failed)?;
    let found: Option<Measured> = serde_json::from_slice(&bytes).ok();
    Ok(found
        .filter(|found| found.settings == *settings && found.cell == *cell)
        .map(|found| found.samples))
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs with string keys become JSON")
}

fn store_failed(error: StoreError) -> SpeedTestError {
    SpeedTestError::Store(error)
}
