//! A speed test whose cells are measured elsewhere, as tasks of an engine.
//!
//! A cell is one source at one batch size and one number of batches, with all its repetitions. It is handed out as
//! [`paceline_store::handout`] describes; its result is one file beside the journal. When all cells are there, the
//! journal takes them over in the order of the plan, and from then on the test looks like any other.
//!
//! ```text
//! SPEED/cells/records-8x6.json     measurements of one cell, until the journal has them
//! SPEED/.ticket                    there while others may measure
//! ```

use std::{
    collections::BTreeMap,
    io::BufRead,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use serde::{Deserialize, Serialize};

use super::{
    Bench, PageCache, ReadKind, Run, Sample, SpeedTestError, SpeedTestSettings, journal::Journal,
    plan,
};
use paceline_store::{
    LocalStore, Store,
    handout::{self, Done, Handout, HandoutError, Work},
    join_key,
};

/// Folder of the cells beside the journal.
const CELLS: &str = "cells";
/// Cells that others measure.
const HANDOUT: Handout = Handout { ticket: ".ticket", sign: super::JOURNAL };

/// What every worker is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Heading {
    /// The settings, with the size of the images settled.
    settings: SpeedTestSettings,
    folder: PathBuf,
}

/// One cell to be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cell {
    source: ReadKind,
    batch_size: u64,
    batches: u64,
    /// Place in the plan and repetition of every measurement still to be made.
    runs: Vec<(u64, u64)>,
}

impl Cell {
    fn key(&self) -> String {
        let source = match self.source {
            ReadKind::ImageFiles => "images",
            ReadKind::Records => "records",
        };
        join_key(CELLS, &format!("{source}-{}x{}.json", self.batch_size, self.batches))
    }
}

/// A file of measurements.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    /// What the cell was measured under; others are not ours.
    settings: SpeedTestSettings,
    cell: Cell,
    samples: Vec<Sample>,
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
    pub fn open(settings: &SpeedTestSettings, folder: &Path) -> Result<Self, SpeedTestError> {
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
        let mut cells: BTreeMap<(ReadKind, u64, u64), Cell> = BTreeMap::new();
        for run in plan(settings).iter().skip(samples.len()) {
            let Run { order, source, batch_size, batches, repetition } = *run;
            let fresh = || Cell { source, batch_size, batches, runs: Vec::new() };
            let cell = cells.entry((source, batch_size, batches)).or_insert_with(fresh);
            cell.runs.push((order, repetition));
        }
        let settings = SpeedTestSettings { size: settings.size.or(size), ..settings.clone() };
        let heading = Heading { settings, folder };
        Ok(Self { heading, store, journal, cells: cells.into_values().collect() })
    }

    /// A heading, then one line per cell that is not measured yet. Only the heading: nothing is left to do.
    ///
    /// # Errors
    /// Cells on disk that cannot be read.
    pub fn hand_out(&self) -> Result<Vec<String>, SpeedTestError> {
        let mut open = Vec::new();
        for cell in &self.cells {
            if self.measured(cell)?.is_none() {
                open.push(cell);
            }
        }
        HANDOUT.hand_out(&self.store, &self.heading, open, |cell| {
            Ok(self.store.remove(&cell.key())?)
        })
    }

    /// Cells that are measured, and all that were to be measured.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn progress(&self) -> Result<(u64, u64), SpeedTestError> {
        let done = HANDOUT.finished(&self.store, CELLS)?.len() as u64;
        Ok((done, self.cells.len() as u64))
    }

    /// Takes all measurements over into the journal.
    ///
    /// # Errors
    /// Cells that no task measured; a journal that cannot be written.
    pub fn collect(mut self) -> Result<(), SpeedTestError> {
        HANDOUT.close(&self.store)?;
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

impl Drop for Distributed {
    fn drop(&mut self) {
        // Best effort: a ticket that stays is replaced by the next one.
        let _ = HANDOUT.close(&self.store);
    }
}

/// Removes what workers left in `folder` for the journal.
///
/// # Errors
/// Files that cannot be removed.
pub fn forget(folder: &Path) -> Result<(), SpeedTestError> {
    let store = LocalStore::new(folder);
    store.sweep(CELLS)?;
    for name in HANDOUT.finished(&store, CELLS)? {
        store.remove(&join_key(CELLS, &name))?;
    }
    Ok(store.remove_folder(CELLS)?)
}

/// Measures the cells of a heading and lines of [`Distributed::hand_out`], except those that are there already.
///
/// # Errors
/// Text that is not work of this program, sources that cannot be read on this machine, a folder that cannot be written.
pub fn measure_cells(
    input: &mut dyn BufRead,
    page_cache: &PageCache,
    stop: &AtomicBool,
) -> Result<Done, SpeedTestError> {
    let work: Work<Heading, Cell> = Work::read(input)?;
    let Heading { settings, folder } = work.heading();
    let store = LocalStore::new(folder);
    let attempt = HANDOUT.enter(&store, work.ticket())?;
    attempt.each(
        work.items(),
        |cell| Ok(measured(&store, settings, cell)?.is_some()),
        |cell| {
            let Some(samples) = measure_cell(settings, cell, page_cache, stop)? else {
                return Ok(None);
            };
            let measured = Measured { settings: settings.clone(), cell: cell.clone(), samples };
            Ok(Some(attempt.publish(&cell.key(), &measured)?))
        },
    )
}

/// All measurements of one cell; `None` if it was stopped.
fn measure_cell(
    settings: &SpeedTestSettings,
    cell: &Cell,
    page_cache: &PageCache,
    stop: &AtomicBool,
) -> Result<Option<Vec<Sample>>, SpeedTestError> {
    let own = SpeedTestSettings {
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
    settings: &SpeedTestSettings,
    cell: &Cell,
) -> Result<Option<Vec<Sample>>, SpeedTestError> {
    let found: Option<Measured> = match handout::result(store, &cell.key()) {
        // A file that another version wrote is not ours.
        Err(HandoutError::Damaged { .. }) => None,
        found => found?,
    };
    Ok(found
        .filter(|found| found.settings == *settings && found.cell == *cell)
        .map(|found| found.samples))
}
