//! What a simulation found.

use paceline_runs::PhaseTimes;
use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Updates that others made between a worker's pull and its push.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Staleness {
    /// On average.
    pub mean: f64,
    /// Half of the updates are at most so stale.
    pub median: u64,
    /// 99 in 100 are.
    pub p99: u64,
    pub max: u64,
}

impl Staleness {
    pub(super) fn of(counts: &[u64]) -> Option<Self> {
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return None;
        }
        let sum: f64 = counts.iter().enumerate().map(|(at, &n)| at as f64 * n as f64).sum();
        let quantile = |share: f64| {
            let mut seen = 0;
            let found = counts.iter().position(|&n| {
                seen += n;
                seen as f64 >= share * total as f64
            });
            found.unwrap_or(0) as u64
        };
        let max = counts.iter().rposition(|&n| n > 0).unwrap_or(0) as u64;
        Some(Self { mean: sum / total as f64, median: quantile(0.5), p99: quantile(0.99), max })
    }

    /// The same where each worker stands for `many`, which update one after the other: between two updates of one of them,
    /// the others behind it have made theirs too.
    pub(super) fn times(self, many: f64) -> Self {
        let of = |updates: f64| many * (updates + 1.0) - 1.0;
        let whole = |updates: u64| of(updates as f64).round() as u64;
        let Self { mean, median, p99, max } = self;
        Self { mean: of(mean), median: whole(median), p99: whole(p99), max: whole(max) }
    }
}

/// The result of one simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulationOutcome {
    pub strategy: &'static str,
    pub workers: usize,
    pub servers: usize,
    /// Examples per second over all workers.
    pub examples_per_second: f64,
    pub updates_per_second: f64,
    /// Simulated seconds.
    pub seconds: f64,
    /// Time of each worker that was simulated, which may stand for several; reading is part of computing.
    #[serde(skip)]
    pub tasks: Vec<PhaseTimes>,
    /// Shares of all workers' time together.
    #[serde(serialize_with = "without_input")]
    pub shares: PhaseTimes,
    /// Number of the worker that waited least: all others wait for it.
    pub slowest: usize,
    /// Staleness of the updates; none where they are never stale.
    pub staleness: Option<Staleness>,
    /// Gradients that came too late and were dropped.
    pub dropped: u64,
    /// Busiest part of the busiest server: name, and share of the time it was busy.
    pub server: Option<(&'static str, f64)>,
    /// Events it took.
    pub events: u64,
}

impl SimulationOutcome {
    pub(super) fn new(
        strategy: &'static str,
        servers: usize,
        seconds: f64,
        updates: f64,
        examples: f64,
        tasks: Vec<PhaseTimes>,
    ) -> Self {
        let shares = tasks.iter().copied().sum::<PhaseTimes>().shares();
        let slowest =
            (0..tasks.len()).min_by(|&a, &b| tasks[a].wait.total_cmp(&tasks[b].wait)).unwrap_or(0);
        Self {
            strategy,
            workers: tasks.len(),
            servers,
            examples_per_second: examples / seconds,
            updates_per_second: updates / seconds,
            seconds,
            tasks,
            shares,
            slowest,
            staleness: None,
            dropped: 0,
            server: None,
            events: 0,
        }
    }
}

/// A simulation has no input phase: a worker's reading is measured as a part of its computing.
fn without_input<S: Serializer>(shares: &PhaseTimes, serializer: S) -> Result<S::Ok, S::Error> {
    let mut out = serializer.serialize_struct("PhaseTimes", 3)?;
    out.serialize_field("compute", &shares.compute)?;
    out.serialize_field("exchange", &shares.exchange)?;
    out.serialize_field("wait", &shares.wait)?;
    out.end()
}

/// The fewest workers that reach nine tenths of the best throughput of a range: beyond them more
/// workers bring little.
#[must_use]
pub fn knee(outcomes: &[SimulationOutcome]) -> Option<&SimulationOutcome> {
    let most = outcomes.iter().map(|outcome| outcome.examples_per_second).fold(0.0, f64::max);
    outcomes
        .iter()
        .filter(|outcome| outcome.examples_per_second >= 0.9 * most)
        .min_by_key(|outcome| outcome.workers)
}
