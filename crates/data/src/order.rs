//! Decides which example comes when.
//!
//! The order of an epoch follows from (seed, epoch) alone; the number of workers only cuts it. So
//! one worker and eight see the same global batches, a run resumes at the exact example, and two
//! strategies can be compared fairly.
//!
//! Pure: no files, clock or threads. An advisor may call it to predict what a run would read.

mod batches;
mod permutation;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use batches::{Batches, GlobalBatch, LastBatch, Position};
pub use permutation::Permutation;
pub use permutation::mix;

/// How the examples of an epoch are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shuffle {
    /// Every epoch in the order of the files; for evaluation.
    None,
    /// Every order equally likely. Reads all over the files, which is free in memory and on flash.
    #[default]
    Full,
    /// Whole blocks of neighbours are shuffled, then single examples within windows of some blocks:
    /// long sequential reads for disks and networks where seeking is dear, at the price of a less
    /// thorough mix.
    Blocks {
        /// Neighbouring examples that stay together until the window mixes them.
        block: u64,
        /// Blocks per window; memory for read-ahead is `block * window` examples.
        window: u64,
    },
}

/// The order of every epoch of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    examples: u64,
    seed: u64,
    shuffle: Shuffle,
}

impl Order {
    /// The order of `examples` examples under `seed`.
    #[must_use]
    pub fn new(examples: u64, seed: u64, shuffle: Shuffle) -> Self {
        Self { examples, seed, shuffle }
    }

    /// The order of one epoch; costs a few nanoseconds.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> EpochOrder {
        let key = mix(self.seed, epoch);
        let kind = match self.shuffle {
            Shuffle::None => Kind::Sequential,
            Shuffle::Full => Kind::Full(Permutation::new(self.examples, key)),
            Shuffle::Blocks { block, window } => {
                let block = block.clamp(1, self.examples.max(1));
                let blocks = Permutation::new(self.examples.div_ceil(block), key);
                // The last block may be short; the places after it move up by what it lacks.
                let short_at = match blocks.len() {
                    0 => 0,
                    count => blocks.place_of(count - 1),
                };
                Kind::Blocks {
                    blocks,
                    block,
                    window: block.saturating_mul(window.max(1)),
                    short_at,
                    key: mix(key, u64::MAX),
                }
            }
        };
        EpochOrder { examples: self.examples, kind }
    }
}

/// Which example stands at which place of one epoch.
#[derive(Debug, Clone, Copy)]
pub struct EpochOrder {
    examples: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Sequential,
    Full(Permutation),
    Blocks {
        blocks: Permutation,
        /// Examples per block.
        block: u64,
        /// Examples per window.
        window: u64,
        /// Where the short last block comes in the order of blocks.
        short_at: u64,
        key: u64,
    },
}

impl EpochOrder {
    /// The example at `place`; places beyond the last example wrap around.
    #[must_use]
    pub fn at(&self, place: u64) -> u64 {
        let place = if place >= self.examples { place % self.examples.max(1) } else { place };
        match self.kind {
            Kind::Sequential => place,
            Kind::Full(permutation) => permutation.at(place),
            Kind::Blocks { window, key, .. } => {
                let number = place / window;
                let start = number * window;
                let inside = Permutation::new(window.min(self.examples - start), mix(key, number));
                self.before_window(start + inside.at(place - start))
            }
        }
    }

    /// Appends the examples at `places` to `out`; much cheaper than one call per place.
    pub fn extend(&self, places: Range<u64>, out: &mut Vec<u64>) {
        let mut next = places.start;
        while next < places.end && self.examples > 0 {
            // One run never crosses the end of the order, where places wrap around.
            let from = next % self.examples;
            let to = self.examples.min(from + (places.end - next));
            match self.kind {
                Kind::Sequential => out.extend(from..to),
                Kind::Full(permutation) => permutation.extend(from..to, out),
                Kind::Blocks { .. } => out.extend((from..to).map(|place| self.at(place))),
            }
            next += to - from;
        }
    }

    /// Undoes the shuffling of blocks for a place in the order of blocks.
    fn before_window(&self, place: u64) -> u64 {
        let Kind::Blocks { blocks, block, short_at, .. } = self.kind else { return place };
        let lacking = blocks.len() * block - self.examples;
        let short_end = (short_at + 1) * block - lacking;
        let place = if place >= short_end { place + lacking } else { place };
        blocks.at(place / block) * block + place % block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shuffles() -> impl Strategy<Value = Shuffle> {
        prop_oneof![
            Just(Shuffle::None),
            Just(Shuffle::Full),
            (1_u64..40, 1_u64..8).prop_map(|(block, window)| Shuffle::Blocks { block, window }),
        ]
    }

    fn lasts() -> impl Strategy<Value = LastBatch> {
        prop_oneof![Just(LastBatch::Keep), Just(LastBatch::Drop), Just(LastBatch::Pad)]
    }

    proptest! {
        #[test]
        fn every_example_once_per_epoch_for_all_worker_counts(
            examples in 1_u64..700, size in 1_u64..90, seed: u64, epoch in 0_u64..5,
            shuffle in shuffles(),
        ) {
            let order = Order::new(examples, seed, shuffle).epoch(epoch);
            let batches = Batches::new(examples, LastBatch::Keep).unwrap();
            for workers in [1, 2, 3, 7, 100] {
                let mut seen = vec![0; examples as usize];
                for batch in 0..batches.per_epoch(size) {
                    let global = batches.global_batch(epoch, batch, size).unwrap();
                    for worker in 0..workers {
                        let mut indices = Vec::new();
                        order.extend(global.share(worker, workers).places, &mut indices);
                        indices.iter().for_each(|&i| seen[i as usize] += 1);
                    }
                }
                prop_assert!(seen.iter().all(|&times| times == 1));
            }
        }

        #[test]
        fn all_workers_together_see_the_global_batch_whatever_their_number(
            examples in 1_u64..500, size in 1_u64..90, seed: u64, shuffle in shuffles(),
            last in lasts(), workers in 1_u64..20,
        ) {
            let order = Order::new(examples, seed, shuffle);
            let batches = Batches::new(examples, last).unwrap();
            if batches.check(size).is_err() { return Ok(()); }
            let mut position = Position::default();
            for _ in 0..10 {
                let (global, next) = batches.next(position, size);
                let epoch = order.epoch(global.epoch);
                let (mut alone, mut shared) = (Vec::new(), Vec::new());
                epoch.extend(global.places.clone(), &mut alone);
                let mut lens = Vec::new();
                for worker in 0..workers {
                    let share = global.share(worker, workers);
                    lens.push(share.len());
                    epoch.extend(share.places, &mut shared);
                }
                prop_assert_eq!(alone, shared);
                prop_assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1);
                position = next;
            }
        }

        #[test]
        fn resuming_equals_continuing_even_with_another_batch_size(
            examples in 1_u64..300, sizes in proptest::collection::vec(1_u64..50, 2..30),
            last in lasts(),
        ) {
            let batches = Batches::new(examples, last).unwrap();
            let mut position = Position::default();
            let mut covered = 0;
            for &size in &sizes {
                if batches.check(size).is_err() { return Ok(()); }
                // Through a checkpoint and back.
                let text = serde_json::to_string(&position).unwrap();
                prop_assert_eq!(serde_json::from_str::<Position>(&text).unwrap(), position);
                let (global, next) = batches.next(position, size);
                if global.epoch == position.epoch {
                    prop_assert_eq!(global.places.start, position.example);
                } else {
                    prop_assert_eq!(last, LastBatch::Drop);
                    prop_assert_eq!(global.places.start, 0);
                }
                prop_assert!(next > position);
                covered += global.len();
                if last == LastBatch::Keep {
                    prop_assert_eq!(covered, next.epoch * examples + next.example);
                }
                if last != LastBatch::Keep {
                    prop_assert_eq!(global.len(), size);
                }
                position = next;
            }
        }

        #[test]
        fn ranges_equal_single_places_beyond_the_end_too(
            examples in 1_u64..200, seed: u64, shuffle in shuffles(), from in 0_u64..500, len in 0_u64..500,
        ) {
            let order = Order::new(examples, seed, shuffle).epoch(1);
            let mut out = Vec::new();
            order.extend(from..from + len, &mut out);
            let single: Vec<u64> = (from..from + len).map(|place| order.at(place)).collect();
            prop_assert_eq!(out, single);
        }
    }

    #[test]
    fn policies_treat_the_last_batch_as_stated() {
        let places = |last| {
            let batches = Batches::new(10, last).unwrap();
            let mut position = Position::default();
            (0..3)
                .map(|_| {
                    let (global, next) = batches.next(position, 4);
                    position = next;
                    (global.epoch, global.places)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(places(LastBatch::Keep), [(0, 0..4), (0, 4..8), (0, 8..10)]);
        assert_eq!(places(LastBatch::Drop), [(0, 0..4), (0, 4..8), (1, 0..4)]);
        assert_eq!(places(LastBatch::Pad), [(0, 0..4), (0, 4..8), (0, 8..12)]);
        let order = Order::new(10, 1, Shuffle::Full).epoch(0);
        assert_eq!(order.at(11), order.at(1));
    }

    #[test]
    fn sets_without_a_batch_are_refused() {
        assert!(Batches::new(0, LastBatch::Keep).is_err());
        assert!(Batches::new(3, LastBatch::Drop).unwrap().check(4).is_err());
        assert!(Batches::new(3, LastBatch::Pad).unwrap().check(4).is_ok());
        assert!(Batches::new(3, LastBatch::Keep).unwrap().check(0).is_err());
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let first = |seed, epoch| {
            let mut out = Vec::new();
            Order::new(1000, seed, Shuffle::Full).epoch(epoch).extend(0..20, &mut out);
            out
        };
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
        assert_eq!(first(1, 3), first(1, 3));
    }

    #[test]
    fn blocks_keep_reads_within_a_window_of_blocks() {
        let order = Order::new(1000, 4, Shuffle::Blocks { block: 50, window: 4 }).epoch(0);
        let mut touched: Vec<u64> = (0..200).map(|place| order.at(place) / 50).collect();
        touched.sort_unstable();
        touched.dedup();
        assert_eq!(touched.len(), 4);
    }
}
