//! Which measurement comes when: a pure function of the settings.

use super::{ReadKind, SpeedTestSettings};
use paceline_data::order::{Order, Shuffle};

/// One measurement to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Place in the order of measuring, from 0.
    pub order: u64,
    pub source: ReadKind,
    /// Examples per batch.
    pub batch_size: u64,
    pub batches: u64,
    /// Which repetition, from 1.
    pub repetition: u64,
}

impl Run {
    /// Examples it reads.
    #[must_use]
    pub fn images(&self) -> u64 {
        self.batch_size * self.batches
    }
}

/// All measurements in their order: one pass over all settings per repetition, each pass shuffled again. Slow changes
/// during the test then affect all settings alike.
#[must_use]
pub fn plan(settings: &SpeedTestSettings) -> Vec<Run> {
    let mut cells = Vec::new();
    for target in &settings.targets {
        for &batch_size in &settings.batch_sizes {
            for &batches in &settings.batches {
                cells.push((target.kind, batch_size, batches));
            }
        }
    }
    let order = Order::new(cells.len() as u64, settings.seed, Shuffle::Full);
    let mut runs = Vec::new();
    let mut places = Vec::new();
    for repetition in 1..=settings.repeats {
        places.clear();
        order.epoch(repetition).extend(0..cells.len() as u64, &mut places);
        for &place in &places {
            let (source, batch_size, batches) = cells[usize::try_from(place).unwrap_or(0)];
            runs.push(Run { order: runs.len() as u64, source, batch_size, batches, repetition });
        }
    }
    runs
}
