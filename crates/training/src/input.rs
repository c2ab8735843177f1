//! Batches for a replica: its share of every global batch, in the order that seed and epoch fix.

mod tickets;

pub(crate) use tickets::TicketFeed;

use crate::TrainError;
use paceline_batch::{Batch, FeatureKind};
use paceline_data::{
    Augment, DataError, Scratch, Source,
    loader::{Cached, Loader, LoaderOptions},
    order::{Batches, GlobalBatch, LastBatch, Order, Position, Shuffle},
    source::image_shape,
};
use std::sync::{
    Arc,
    mpsc::{self, Receiver, Sender, SyncSender},
};

/// Decoded examples of a set up to this size stay in memory; a second epoch then costs a copy.
const CACHE_BYTES: u64 = 1 << 30;
/// Batches decoded ahead, per replica.
const TRAIN_AHEAD_BYTES: u64 = 64 << 20;
/// The same for evaluation, whose first batches wait through the steps in between.
const TEST_AHEAD_BYTES: u64 = 16 << 20;

/// Threads that read examples from another machine, at least; they wait much and compute little.
const DISTANT_READERS: usize = 16;

/// Threads that read from `source`, where `threads` would compute.
fn readers(source: &Arc<dyn Source>, threads: usize) -> usize {
    if source.distant() { threads.max(DISTANT_READERS) } else { threads }
}

/// A source with its decoded examples held in memory, where that saves decoding and they fit.
pub(crate) fn cached(source: &Arc<dyn Source>) -> Arc<dyn Source> {
    let needed = source.len().saturating_mul(width(source));
    let sparse = matches!(source.schema().features, FeatureKind::Sparse { .. });
    if sparse || source.resident() || needed > CACHE_BYTES {
        return Arc::clone(source);
    }
    Arc::new(Cached::new(Arc::clone(source), CACHE_BYTES))
}

/// Most batches of a parcel, which is what is handed over at once: waking a thread that sleeps costs some
/// tens of microseconds in a virtual machine, as much as a step of a small model.
const PARCEL: u64 = 64;
/// Bytes of a parcel where its batches are larger.
const PARCEL_TOTAL: u64 = 4 << 20;
/// Parcels on their way: one being read, one full, one being filled.
const PARCELS: usize = 3;
/// Batches up to this size are gathered ahead; copying a larger one is little beside its model.
const PARCEL_BYTES: u64 = 1 << 20;

/// Reads a replica's training examples.
pub(crate) struct Feed {
    mode: Mode,
    size: u64,
}

enum Mode {
    /// On this thread, or on the loader's own.
    Here(Box<Loader>),
    /// Examples that lie in memory, gathered by a thread of ours while the model computes.
    Ahead(Ahead),
}

impl Feed {
    /// `steady` says that the batch size never changes.
    pub(crate) fn new(
        source: &Arc<dyn Source>,
        (seed, augment): (u64, Option<Augment>),
        (size, steady): (u64, bool),
        start: Position,
        (worker, workers): (usize, usize),
        threads: usize,
    ) -> Result<Self, TrainError> {
        let options = LoaderOptions {
            batch_size: size,
            seed,
            shuffle: Shuffle::Full,
            last: LastBatch::Keep,
            worker: worker as u64,
            workers: workers as u64,
            start,
            threads: readers(source, threads),
            augment,
            prefetch_bytes: TRAIN_AHEAD_BYTES,
            ..LoaderOptions::default()
        };
        let bytes = size / workers as u64 * width(source);
        let spare_core = paceline_batch::cores().count > workers;
        let mode = if source.resident() && steady && spare_core && bytes <= PARCEL_BYTES {
            Mode::Ahead(Ahead::start(source, options)?)
        } else {
            Mode::Here(Box::new(Loader::new(Arc::clone(source), options)?))
        };
        Ok(Self { mode, size })
    }

    /// This replica's share of the next global batch, which has `size` examples.
    pub(crate) fn next(&mut self, size: u64) -> Result<&Batch, TrainError> {
        match &mut self.mode {
            Mode::Here(loader) => {
                if size != self.size {
                    loader.set_batch_size(size)?;
                    self.size = size;
                }
                let batch = loader.next_batch()?;
                Ok(batch.expect("a loader without a number of epochs never ends"))
            }
            Mode::Ahead(ahead) => {
                debug_assert_eq!(size, self.size, "only a steady batch is gathered ahead");
                ahead.next()
            }
        }
    }
}

/// Some batches in a row.
struct Parcel {
    batches: Vec<Batch>,
    /// Batches gathered; fewer than there are at the very start and in front of an error.
    filled: usize,
    error: Option<DataError>,
}

/// The near end of a thread that gathers batches ahead.
struct Ahead {
    full: Receiver<Parcel>,
    empty: Sender<Parcel>,
    current: Option<Parcel>,
    at: usize,
}

impl Ahead {
    fn start(source: &Arc<dyn Source>, options: LoaderOptions) -> Result<Self, TrainError> {
        let (to_us, full) = mpsc::sync_channel(PARCELS);
        let (empty, from_us) = mpsc::channel();
        let bytes = options.batch_size / options.workers * width(source);
        let parcel = (PARCEL_TOTAL / bytes.max(1)).clamp(1, PARCEL);
        for _ in 0..PARCELS {
            let batches = (0..parcel).map(|_| empty_batch(source)).collect();
            // The other end is alive: it is in this very function.
            let _ = empty.send(Parcel { batches, filled: 0, error: None });
        }
        let cut = Batches::new(source.len(), options.last)?;
        let source = Arc::clone(source);
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || gather_ahead(&source, cut, &options, &from_us, &to_us))
            .map_err(TrainError::Thread)?;
        Ok(Self { full, empty, current: None, at: 0 })
    }

    fn next(&mut self) -> Result<&Batch, TrainError> {
        if self.current.as_ref().is_none_or(|parcel| self.at == parcel.filled) {
            if let Some(mut used) = self.current.take() {
                if let Some(error) = used.error.take() {
                    return Err(error.into());
                }
                // The thread has ended only if it panicked; then the next line says so.
                let _ = self.empty.send(used);
            }
            let Ok(parcel) = self.full.recv() else { return Err(TrainError::InputEnded) };
            if let Parcel { filled: 0, error: Some(_), .. } = parcel {
                return Err(parcel.error.map_or(TrainError::InputEnded, TrainError::from));
            }
            self.current = Some(parcel);
            self.at = 0;
        }
        self.at += 1;
        let parcel = self.current.as_ref().expect("set above, where it was missing");
        Ok(&parcel.batches[self.at - 1])
    }
}

/// Gathers until the other end is gone.
fn gather_ahead(
    source: &Arc<dyn Source>,
    cut: Batches,
    options: &LoaderOptions,
    empty: &Receiver<Parcel>,
    full: &SyncSender<Parcel>,
) {
    let order = Order::new(source.len(), options.seed, options.shuffle);
    let mut position = options.start;
    let mut epoch = (position.epoch, order.epoch(position.epoch));
    let mut indices = Vec::new();
    let mut scratch = Scratch::default();
    // The first step shall not wait for a whole parcel.
    let mut most = 4;
    while let Ok(mut parcel) = empty.recv() {
        parcel.filled = 0;
        let count = parcel.batches.len().min(most);
        most = count * 4;
        for batch in &mut parcel.batches[..count] {
            let (global, next) = cut.next(position, options.batch_size);
            if epoch.0 != global.epoch {
                epoch = (global.epoch, order.epoch(global.epoch));
            }
            let share = global.share(options.worker, options.workers);
            indices.clear();
            epoch.1.extend(share.places, &mut indices);
            batch.clear();
            if let Err(error) = source.gather(&indices, &mut scratch, batch) {
                parcel.error = Some(error);
                break;
            }
            if let Some(augment) = &options.augment {
                let (shape, key) = (image_shape(source.schema()), (options.seed, global.epoch));
                augment.apply_all(shape, key, &indices, &mut scratch, (batch, 0));
            }
            parcel.filled += 1;
            position = next;
        }
        let failed = parcel.error.is_some();
        if full.send(parcel).is_err() || failed {
            return;
        }
    }
}

/// A batch of the kind that a source fills.
fn empty_batch(source: &Arc<dyn Source>) -> Batch {
    match source.schema().features {
        FeatureKind::Image(shape) => Batch::pixels(shape.len(), 0),
        FeatureKind::Sparse { .. } => Batch::sparse(),
    }
}

/// Bytes of one example.
fn width(source: &Arc<dyn Source>) -> u64 {
    match source.schema().features {
        FeatureKind::Image(shape) => shape.len() as u64,
        FeatureKind::Sparse { .. } => 0,
    }
}

/// Reads a replica's held-out examples, again and again in the same order.
pub(crate) struct TestFeed {
    loader: Loader,
    batches: u64,
}

impl TestFeed {
    /// `batch` examples per replica and call.
    pub(crate) fn new(
        source: &Arc<dyn Source>,
        batch: u64,
        (worker, workers): (usize, usize),
        threads: usize,
    ) -> Result<Self, TrainError> {
        let options = LoaderOptions {
            batch_size: batch * workers as u64,
            shuffle: Shuffle::None,
            last: LastBatch::Keep,
            worker: worker as u64,
            workers: workers as u64,
            threads: readers(source, threads),
            prefetch_bytes: TEST_AHEAD_BYTES,
            ..LoaderOptions::default()
        };
        let loader = Loader::new(Arc::clone(source), options)?;
        Ok(Self { batches: loader.batches_per_epoch(), loader })
    }

    /// Calls to [`TestFeed::next`] that cover all examples once.
    pub(crate) fn batches(&self) -> u64 {
        self.batches
    }

    /// The next examples; none where a small last batch leaves this replica without.
    pub(crate) fn next(&mut self) -> Result<&Batch, TrainError> {
        Ok(self.loader.next_batch()?.expect("a loader without a number of epochs never ends"))
    }
}

/// Where a replica's share of a global batch lies within it.
pub(crate) fn first_example(global: &GlobalBatch, rank: usize, of: usize) -> u64 {
    global.share(rank as u64, of as u64).places.start - global.places.start
}
