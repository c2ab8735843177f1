//! Batches by number, for workers that are dealt batches one by one.
//!
//! Which examples a number means follows from seed and epoch, as everywhere. Where they lie in
//! memory they are gathered on the spot, a few microseconds; otherwise a thread of ours reads those
//! that will be dealt next while the model computes.

use super::empty_batch;
use crate::TrainError;
use paceline_batch::{Batch, Features};
use paceline_data::{
    Augment, DataError, Scratch, Source,
    order::{GlobalBatch, Order, Shuffle},
    source::image_shape,
};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
};

/// Examples a thread should have to decode before another one helps.
const CHUNK: usize = 4;

/// Reads batches by number.
pub(crate) struct TicketFeed {
    mode: Mode,
    batch: Batch,
}

enum Mode {
    Here(Box<Gatherer>),
    Ahead(Ahead),
}

impl TicketFeed {
    pub(crate) fn new(
        source: &Arc<dyn Source>,
        (seed, augment): (u64, Option<Augment>),
        threads: usize,
    ) -> Result<Self, TrainError> {
        let gatherer = Gatherer {
            augment: augment.map(|augment| (augment, seed)),
            order: Order::new(source.len(), seed, Shuffle::Full),
            source: Arc::clone(source),
            indices: Vec::new(),
            scratches: (0..threads.max(1)).map(|_| Scratch::default()).collect(),
        };
        let batch = empty_batch(source);
        let mode = if source.resident() {
            Mode::Here(Box::new(gatherer))
        } else {
            Mode::Ahead(Ahead::start(gatherer)?)
        };
        Ok(Self { mode, batch })
    }

    /// The examples of `share`; those of `upcoming` will be asked for next.
    pub(crate) fn next(
        &mut self,
        share: &GlobalBatch,
        upcoming: impl Iterator<Item = GlobalBatch>,
    ) -> Result<&Batch, TrainError> {
        match &mut self.mode {
            Mode::Here(gatherer) => gatherer.gather(share, &mut self.batch)?,
            Mode::Ahead(ahead) => {
                let fresh = ahead.take(share)?;
                let used = std::mem::replace(&mut self.batch, fresh);
                ahead.want(used, upcoming);
            }
        }
        Ok(&self.batch)
    }
}

/// Puts examples together.
struct Gatherer {
    source: Arc<dyn Source>,
    /// How images are changed, and the seed of that.
    augment: Option<(Augment, u64)>,
    order: Order,
    indices: Vec<u64>,
    /// One per thread.
    scratches: Vec<Scratch>,
}

impl Gatherer {
    fn gather(&mut self, share: &GlobalBatch, batch: &mut Batch) -> Result<(), DataError> {
        self.indices.clear();
        self.order.epoch(share.epoch).extend(share.places.clone(), &mut self.indices);
        batch.clear();
        let threads = self.scratches.len().min(self.indices.len().div_ceil(CHUNK));
        let pixels = matches!(batch.features, Features::Pixels { .. });
        if self.source.resident() || threads < 2 || !pixels {
            let (source, scratch) = (&*self.source, &mut self.scratches[0]);
            return read(source, self.augment, share.epoch, &self.indices, scratch, batch);
        }
        let chunk = self.indices.len().div_ceil(threads);
        let (source, augment, epoch) = (&*self.source, self.augment, share.epoch);
        let parts: Vec<Result<Batch, DataError>> = std::thread::scope(|scope| {
            let empty = batch.clone();
            let handles: Vec<_> = self
                .indices
                .chunks(chunk)
                .zip(&mut self.scratches)
                .map(|(indices, scratch)| {
                    let mut part = empty.clone();
                    scope.spawn(move || {
                        read(source, augment, epoch, indices, scratch, &mut part).map(|()| part)
                    })
                })
                .collect();
            handles
                .into_iter()
                .map(|handle| match handle.join() {
                    Ok(part) => part,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        });
        for part in parts {
            let part = part?;
            if let (Features::Pixels { values, .. }, Features::Pixels { values: more, .. }) =
                (&mut batch.features, &part.features)
            {
                values.extend_from_slice(more);
            }
            batch.labels.extend_from_slice(&part.labels);
        }
        Ok(())
    }
}

/// Reads examples into an empty batch, and changes them where that is asked for.
fn read(
    source: &dyn Source,
    augment: Option<(Augment, u64)>,
    epoch: u64,
    indices: &[u64],
    scratch: &mut Scratch,
    batch: &mut Batch,
) -> Result<(), DataError> {
    source.gather(indices, scratch, batch)?;
    if let Some((augment, seed)) = augment {
        let shape = image_shape(source.schema());
        augment.apply_all(shape, (seed, epoch), indices, scratch, (batch, 0));
    }
    Ok(())
}

/// What to read, and what to put it into.
type Request = (GlobalBatch, Batch);

/// The near end of a thread that reads ahead.
struct Ahead {
    wanted: Sender<Request>,
    done: Receiver<(GlobalBatch, Result<Batch, DataError>)>,
    /// Asked for and not taken yet.
    asked: VecDeque<GlobalBatch>,
    empty: Batch,
}

impl Ahead {
    fn start(mut gatherer: Gatherer) -> Result<Self, TrainError> {
        let (wanted, orders) = mpsc::channel::<Request>();
        let (ready, done) = mpsc::channel();
        let empty = empty_batch(&gatherer.source);
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || {
                while let Ok((share, mut batch)) = orders.recv() {
                    let result = gatherer.gather(&share, &mut batch).map(|()| batch);
                    if ready.send((share, result)).is_err() {
                        return;
                    }
                }
            })
            .map_err(TrainError::Thread)?;
        Ok(Self { wanted, done, asked: VecDeque::new(), empty })
    }

    fn ask(&mut self, share: &GlobalBatch, batch: Batch) {
        self.asked.push_back(share.clone());
        // A thread that is gone shows when the answer is waited for.
        let _ = self.wanted.send((share.clone(), batch));
    }

    fn take(&mut self, share: &GlobalBatch) -> Result<Batch, TrainError> {
        if !self.asked.contains(share) {
            self.ask(share, self.empty.clone());
        }
        loop {
            let Ok((found, batch)) = self.done.recv() else { return Err(TrainError::InputEnded) };
            self.asked.retain(|asked| *asked != found);
            // Others were read for nothing: another worker does them.
            if found == *share {
                return Ok(batch?);
            }
        }
    }

    fn want(&mut self, used: Batch, upcoming: impl Iterator<Item = GlobalBatch>) {
        let mut used = Some(used);
        for share in upcoming {
            if !self.asked.contains(&share) {
                let batch = used.take().unwrap_or_else(|| self.empty.clone());
                self.ask(&share, batch);
            }
        }
    }
}
