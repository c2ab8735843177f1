//! Runs with dense weights on servers.

use crate::simulation::{Cast, Fault};
use paceline_stats::random::Random;
use paceline_testing::schedules;
use std::fmt;

/// A run and what happens to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schedule {
    pub(super) cast: Cast,
    /// Asynchronous.
    pub(super) max_staleness: Option<u64>,
    /// Synchronous; where lost workers are started again, so that there are always more.
    pub(super) backup_workers: usize,
}

impl schedules::Schedule for Schedule {
    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 41);
        let cast = Cast::draw(seed, &mut random);
        let decided = random.below(2) == 0;
        let only_slow = cast.faults.iter().all(|(_, fault)| matches!(fault, Fault::Slow(..)));
        let bounded = decided && !cast.synchronous && (cast.servers == 1 || only_slow);
        let max_staleness = bounded.then(|| random.below(4) as u64);
        let backup_workers = usize::from(decided && cast.synchronous && cast.restart);
        Self { cast, max_staleness, backup_workers }
    }

    fn simpler(&self) -> Vec<Self> {
        self.cast.simpler().into_iter().map(|cast| Self { cast, ..self.clone() }).collect()
    }

    fn has_faults(&self) -> bool {
        self.cast.has_faults()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cast, max_staleness, backup_workers } = self;
        write!(f, "{cast}")?;
        if let Some(bound) = max_staleness {
            writeln!(f, "  staleness at most {bound}")?;
        }
        if *backup_workers > 0 {
            writeln!(f, "  {backup_workers} backup worker")?;
        }
        Ok(())
    }
}
