//! Turns a source and an order into batches.
//!
//! Batches come in order, whatever the threads do. Sources that merely copy from memory are gathered
//! on the caller's thread: at 784 bytes an example, handing a batch over would cost more than the
//! copy. All others are decoded by a pool of threads straight into the batch's own memory, as far
//! ahead as a budget of bytes allows. Buffers are reused from batch to batch.

mod cache;
mod pool;
mod slots;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use paceline_batch::{Batch, Features};

use crate::{
    Augment, DataError, Scratch, Source,
    order::{Batches, EpochOrder, GlobalBatch, LastBatch, Order, Position, Shuffle},
    source::image_shape,
};
pub use cache::{CacheReport, Cached};
use pool::{Filled, Job, Pool};

/// What to load, in which order, and how far ahead.
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderOptions {
    /// Examples per global batch, shared by all workers.
    pub batch_size: u64,
    /// Decides the order, together with the epoch.
    pub seed: u64,
    /// How examples are mixed.
    pub shuffle: Shuffle,
    /// What happens to the end of an epoch.
    pub last: LastBatch,
    /// Which worker this is, from 0.
    pub worker: u64,
    /// How many workers share each global batch.
    pub workers: u64,
    /// Where to start; what [`Loader::position`] said when a checkpoint was written.
    pub start: Position,
    /// Ends when this many epochs are complete, counted from the first of all; endless without.
    pub epochs: Option<u64>,
    /// Threads that decode.
    pub threads: usize,
    /// Bytes of batches decoded ahead, the one at hand included; at least one batch is.
    pub prefetch_bytes: u64,
    /// What happens when an example cannot be read.
    pub on_error: OnError,
    /// How images are changed, by `seed`, epoch and number; not at all without.
    pub augment: Option<Augment>,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 64,
            seed: 0,
            shuffle: Shuffle::Full,
            last: LastBatch::Keep,
            worker: 0,
            workers: 1,
            start: Position::default(),
            epochs: None,
            threads: paceline_batch::cores().count,
            prefetch_bytes: 128 << 20,
            on_error: OnError::Stop,
            augment: None,
        }
    }
}

/// What happens when an example cannot be read, and its source does not leave it out by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The error takes the place of its batch.
    Stop,
    /// The example is left out of its batch, which becomes smaller (even empty); one more than `most` of
    /// them is an error.
    Skip {
        /// Examples that may be left out in all.
        most: u64,
    },
}

/// An example that was left out, and why.
#[derive(Debug)]
pub struct Skipped {
    /// Its number in the source.
    pub index: u64,
    /// Names the file and record.
    pub error: DataError,
}

/// Delivers one worker's share of every global batch.
#[derive(Debug)]
pub struct Loader {
    source: Arc<dyn Source>,
    options: LoaderOptions,
    batches: Batches,
    order: Order,
    /// The order of the epoch last asked for.
    epoch: (u64, EpochOrder),
    width: usize,
    /// After the batch last delivered.
    position: Position,
    /// The batch last delivered.
    current: Option<GlobalBatch>,
    batch: Batch,
    skipped: Vec<Skipped>,
    waited: Duration,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Inline { indices: Vec<u64>, scratch: Box<Scratch> },
    Ahead(Ahead),
}

#[derive(Debug)]
struct Ahead {
    /// Before the pool, so that it is dropped first; jobs own their memory in any case.
    flying: VecDeque<Flight>,
    pool: Pool,
    /// After the batch last submitted.
    position: Position,
    /// Buffers without work.
    spare: Vec<Vec<u8>>,
    /// Of all batches in flight.
    bytes: u64,
}

#[derive(Debug)]
struct Flight {
    job: Arc<Job>,
    batch: GlobalBatch,
    after: Position,
    bytes: u64,
}

impl Loader {
    /// A loader at `options.start`; threads start at once, reading with the first call.
    ///
    /// # Errors
    /// An empty source, a batch size without batches, a worker that does not exist.
    pub fn new(source: Arc<dyn Source>, options: LoaderOptions) -> Result<Self, DataError> {
        let examples = source.len();
        let batches = Batches::new(examples, options.last)?;
        batches.check(options.batch_size)?;
        if options.worker >= options.workers {
            let (worker, workers) = (options.worker, options.workers);
            return Err(DataError::NoSuchWorker { worker, workers });
        }
        let order = Order::new(examples, options.seed, options.shuffle);
        let width = image_shape(source.schema()).len();
        let mode = if source.resident() {
            Mode::Inline { indices: Vec::new(), scratch: Box::default() }
        } else {
            Mode::Ahead(Ahead {
                flying: VecDeque::new(),
                pool: Pool::start(
                    Arc::clone(&source),
                    options.threads,
                    options.augment.map(|augment| (augment, options.seed)),
                )?,
                position: options.start,
                spare: Vec::new(),
                bytes: 0,
            })
        };
        Ok(Self {
            batches,
            epoch: (options.start.epoch, order.epoch(options.start.epoch)),
            order,
            width,
            position: options.start,
            current: None,
            batch: Batch::pixels(width, 0),
            skipped: Vec::new(),
            waited: Duration::ZERO,
            mode,
            source,
            options,
        })
    }

    /// The next batch: this worker's share of the next global batch, or `None` after the last epoch.
    ///
    /// The batch's memory is reused by the next call. After an error the next call delivers the
    /// batch after the one that failed.
    ///
    /// # Errors
    /// An example that cannot be read, as [`OnError`] says.
    pub fn next_batch(&mut self) -> Result<Option<&Batch>, DataError> {
        let started = Instant::now();
        let result = match self.mode {
            Mode::Inline { .. } => self.gather(),
            Mode::Ahead(_) => self.receive(),
        };
        self.waited += started.elapsed();
        Ok(result?.then_some(&self.batch))
    }

    /// The batch last delivered, again.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Where the next batch begins; a loader started here continues exactly.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The global batch of which the last call delivered a share.
    #[must_use]
    pub fn current(&self) -> Option<&GlobalBatch> {
        self.current.as_ref()
    }

    /// Time spent inside [`Loader::next_batch`]: what the caller waited for input.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Examples left out so far.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Where the examples come from.
    #[must_use]
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Global batches per epoch at the present size.
    #[must_use]
    pub fn batches_per_epoch(&self) -> u64 {
        self.batches.per_epoch(self.options.batch_size)
    }

    /// Changes the size of global batches from the next one on; no example is lost or doubled. What was
    /// decoded ahead is thrown away.
    ///
    /// # Errors
    /// A size without batches.
    pub fn set_batch_size(&mut self, size: u64) -> Result<(), DataError> {
        self.batches.check(size)?;
        self.options.batch_size = size;
        if let Mode::Ahead(ahead) = &mut self.mode {
            ahead.pool.abandon(ahead.flying.iter().map(|flight| &flight.job));
            ahead.flying.clear();
            ahead.bytes = 0;
            ahead.position = self.position;
        }
        Ok(())
    }

    /// The global batch at `from`, unless all epochs are over.
    fn upcoming(&self, from: Position) -> Option<(GlobalBatch, Position)> {
        let (global, after) = self.batches.next(from, self.options.batch_size);
        let over = self.options.epochs.is_some_and(|epochs| global.epoch >= epochs);
        (!over).then_some((global, after))
    }

    /// Appends the examples of this worker's share of `global`.
    fn share(&mut self, global: &GlobalBatch, indices: &mut Vec<u64>) {
        if self.epoch.0 != global.epoch {
            self.epoch = (global.epoch, self.order.epoch(global.epoch));
        }
        let share = global.share(self.options.worker, self.options.workers);
        self.epoch.1.extend(share.places, indices);
    }

    fn gather(&mut self) -> Result<bool, DataError> {
        let Some((global, after)) = self.upcoming(self.position) else { return Ok(false) };
        let Mode::Inline { indices, .. } = &mut self.mode else { return Ok(false) };
        let mut indices = std::mem::take(indices);
        indices.clear();
        self.share(&global, &mut indices);
        self.position = after;
        self.current = Some(global);
        self.batch.clear();
        let Mode::Inline { indices: kept, scratch } = &mut self.mode else { return Ok(false) };
        let mut rest = &indices[..];
        let epoch = self.current.as_ref().map_or(0, |batch| batch.epoch);
        let key = (self.options.seed, epoch);
        let result = loop {
            let before = self.batch.len();
            let gathered = self.source.gather(rest, scratch, &mut self.batch);
            if let Some(augment) = &self.options.augment {
                let shape = image_shape(self.source.schema());
                augment.apply_all(shape, key, rest, scratch, (&mut self.batch, before));
            }
            let Err(error) = gathered else {
                break Ok(true);
            };
            let failed = self.batch.len() - before;
            let index = rest[failed];
            rest = &rest[failed + 1..];
            if let Err(error) = self
                .source
                .leave_out(index, error)
                .or_else(|error| skip(&mut self.skipped, self.options.on_error, index, error))
            {
                break Err(error);
            }
        };
        *kept = indices;
        result
    }

    fn receive(&mut self) -> Result<bool, DataError> {
        // The memory of the batch just used becomes the memory of one to come.
        if let (Mode::Ahead(ahead), Features::Pixels { values, .. }) =
            (&mut self.mode, &mut self.batch.features)
            && values.capacity() > 0
        {
            ahead.spare.push(std::mem::take(values));
        }
        self.batch.clear();
        self.fill_up();
        let Mode::Ahead(ahead) = &mut self.mode else { return Ok(false) };
        let Some(flight) = ahead.flying.pop_front() else { return Ok(false) };
        let Filled { values, labels, failures, indices } = ahead.pool.finish(&flight.job);
        ahead.bytes -= flight.bytes;
        self.position = flight.after;
        self.current = Some(flight.batch);
        let width = self.width;
        self.batch = Batch { features: Features::Pixels { values, width }, labels };
        let failed: Vec<usize> = failures.iter().map(|(slot, _)| *slot).collect();
        for (slot, error) in failures {
            let index = indices[slot];
            self.source
                .leave_out(index, error)
                .or_else(|error| skip(&mut self.skipped, self.options.on_error, index, error))?;
        }
        remove(&mut self.batch, &failed);
        Ok(true)
    }

    /// Submits batches until the budget is used up.
    fn fill_up(&mut self) {
        loop {
            let Mode::Ahead(ahead) = &self.mode else { return };
            let Some((batch, after)) = self.upcoming(ahead.position) else { return };
            let share = batch.share(self.options.worker, self.options.workers);
            let bytes = share.len() * (self.width as u64 + 4);
            let full = ahead.bytes + bytes > self.options.prefetch_bytes;
            if full && !ahead.flying.is_empty() {
                return;
            }
            let mut indices = Vec::with_capacity(usize::try_from(share.len()).unwrap_or(0));
            self.share(&batch, &mut indices);
            let Mode::Ahead(ahead) = &mut self.mode else { return };
            let job =
                ahead.pool.submit(indices, batch.epoch, ahead.spare.pop().unwrap_or_default());
            ahead.flying.push_back(Flight { job, batch, after, bytes });
            ahead.position = after;
            ahead.bytes += bytes;
        }
    }
}

fn skip(
    skipped: &mut Vec<Skipped>,
    on_error: OnError,
    index: u64,
    error: DataError,
) -> Result<(), DataError> {
    match on_error {
        OnError::Stop => Err(error),
        OnError::Skip { most } if skipped.len() as u64 >= most => {
            Err(DataError::TooManySkipped { most, last: Box::new(error) })
        }
        OnError::Skip { .. } => {
            skipped.push(Skipped { index, error });
            Ok(())
        }
    }
}

/// Takes the examples in `slots` (ascending) out of a batch of pixels.
fn remove(batch: &mut Batch, slots: &[usize]) {
    if slots.is_empty() {
        return;
    }
    let Features::Pixels { values, width } = &mut batch.features else { return };
    let mut kept = 0;
    let mut gone = slots.iter().peekable();
    for slot in 0..batch.labels.len() {
        if gone.next_if(|&&next| next == slot).is_some() {
            continue;
        }
        batch.labels[kept] = batch.labels[slot];
        values.copy_within(slot * *width..(slot + 1) * *width, kept * *width);
        kept += 1;
    }
    batch.labels.truncate(kept);
    values.truncate(kept * *width);
}

#[cfg(test)]
mod tests;
