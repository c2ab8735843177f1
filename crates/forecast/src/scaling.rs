//! How time scales with the number of machines, and how far that is known.
//!
//! `T(s, m) = a + b s/m + c ln m + d m` with non-negative coefficients, as in Ernest (Venkataraman et al., NSDI
//! 2016): fixed work, parallel work on the share `s` of the input, tree aggregation, overhead per machine.
//!
//! Where several workers share a host, one more term: what it costs to leave one host, where messages no longer stay in its
//! memory. It is fitted where runs are on both sides of that border; where they are not, the other side is another law.
//!
//! Intervals are profile likelihood intervals: a time is inside if some curve with non-negative
//! coefficients passes through it and explains the runs almost as well as the best curve does. Where the
//! runs cannot tell the rising terms apart (three runs, four terms), all of them are inside, which a
//! standard error around one fitted curve would hide.

mod choice;
pub mod design;

pub use choice::{ScalingChoice, ScalingForecast, ScalingSize, sizes_between};

use crate::error::ForecastError;
use crate::measure::{are_runs, scaling_runs};
use crate::table::{Table, TableError};
use paceline_stats::distribution::t_quantile;
use paceline_stats::linear::dot;
use paceline_stats::nnls;
use std::path::{Path, PathBuf};

/// One run of a scaling study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalingRun {
    /// Share of the input, above 0; 1 is all of it.
    pub fraction: f64,
    pub machines: f64,
    /// Wall time.
    pub seconds: f64,
}

impl ScalingRun {
    /// Reads runs from one CSV file, or from run folders and folders of them; for these also how many examples the
    /// seconds are for.
    pub fn read_all(paths: &[PathBuf]) -> Result<(Vec<Self>, Option<f64>), ForecastError> {
        match paths {
            [path] if !are_runs(path) => Ok((Self::read(path)?, None)),
            folders => {
                let (runs, work) = scaling_runs(folders)?;
                Ok((runs, Some(work)))
            }
        }
    }

    /// Reads runs from CSV: `machines`, `seconds`, and `fraction` where runs had part of the input.
    pub fn read(path: &Path) -> Result<Vec<Self>, ForecastError> {
        let mut table = Table::open(path)?;
        let known = ["machines", "seconds", "fraction"];
        if let Some(column) = table.header().iter().find(|name| !known.contains(&name.as_str())) {
            let column = column.clone();
            return Err(TableError::UnknownColumn { path: path.to_path_buf(), column }.into());
        }
        let machines = table.column("machines")?;
        let seconds = table.column("seconds")?;
        let fraction = table.find("fraction");
        let mut runs = Vec::new();
        while let Some(row) = table.next_row()? {
            let above = |value: f64| value > 0.0;
            let share = match fraction {
                Some(at) => row.number(at, "fraction", "a share above 0, 1 being all", above)?,
                None => 1.0,
            };
            runs.push(Self {
                fraction: share,
                machines: row.number(machines, "machines", "a number above zero", above)?,
                seconds: row.number(seconds, "seconds", "a time above zero", above)?,
            });
        }
        Ok(runs)
    }
}

/// A scaling curve.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Scaling {
    /// Seconds that no machine shortens.
    pub fixed: f64,
    /// Machine-seconds of parallel work.
    pub parallel: f64,
    /// Seconds for each natural logarithm of the number of machines.
    pub aggregation: f64,
    /// Seconds for each machine.
    pub per_machine: f64,
    /// Seconds more once the workers are on several hosts.
    pub across: f64,
    /// Workers of a host, where that border was fitted; what is counted are then workers, not machines.
    pub per_host: Option<f64>,
    /// Standard deviation of the relative error on the runs it was fitted to.
    pub spread: f64,
}

/// What multiplies each coefficient.
fn terms(fraction: f64, machines: f64) -> Vec<f64> {
    vec![1.0, fraction / machines, machines.ln(), machines]
}

/// The same with the border between one host and several, where there is one.
fn terms_across(fraction: f64, machines: f64, per_host: Option<f64>) -> Vec<f64> {
    let mut terms = terms(fraction, machines);
    terms.extend(per_host.map(|room| f64::from(machines > room)));
    terms
}

impl Scaling {
    /// Fits the curve; at least three different sizes are needed to say anything of its shape.
    pub fn fit(runs: &[ScalingRun]) -> Result<Self, ForecastError> {
        Ok(ScalingFit::new(runs)?.curve)
    }

    /// Seconds on so many machines for this share of the input.
    #[must_use]
    pub fn predict(&self, fraction: f64, machines: f64) -> f64 {
        let x = [self.fixed, self.parallel, self.aggregation, self.per_machine, self.across];
        let terms = terms_across(fraction, machines, self.per_host);
        dot(&terms, &x[..terms.len()])
    }
}

/// A predicted time.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct ScalingEstimate {
    /// The fitted curve's time.
    pub seconds: f64,
    /// Lower end of the 95 % interval of the expected time.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Lower end of the 90 % interval of one further run, which has noise of its own.
    pub run_low: f64,
    /// Its upper end.
    pub run_high: f64,
    /// Whether it lies outside the numbers of machines, or above the share of the input, that were run.
    pub extrapolated: bool,
    /// Whether it is on several hosts where all runs were on one, or the other way round.
    pub beyond_border: bool,
}

/// A fitted curve together with the runs it comes from.
#[derive(Debug, Clone)]
pub struct ScalingFit {
    curve: Scaling,
    /// The terms and the measured time of each run, over the fitted time.
    rows: Vec<Vec<f64>>,
    times: Vec<f64>,
    /// Sum of squared relative errors of the best curve.
    least: f64,
    /// How much larger it may be for a curve to count as possible.
    allowed: f64,
    /// Student's quantile that `allowed` was made with.
    quantile: f64,
    /// The same for nine runs in ten.
    run_quantile: f64,
    /// Standard deviation of one run around the expected time, relative.
    run_noise: f64,
    /// Fewest and most machines that were run.
    machines: (f64, f64),
    largest_fraction: f64,
    /// Workers of a host, where several share one.
    per_host: Option<f64>,
}

/// Relative noise expected before any run has told, and how many runs that belief is worth. One run's worth:
/// three runs cannot measure noise themselves, ten should not be overruled.
const NOISE: (f64, f64) = (0.02, 1.0);
/// Both ends of the interval together leave out this share.
const LEFT_OUT: f64 = 0.05;
/// The same for the interval of one further run.
const RUN_LEFT_OUT: f64 = 0.10;
/// Relative noise of single runs on shared machines before any has told, and how many runs that belief is worth.
const RUN_NOISE: (f64, f64) = (0.065, 2.0);
/// Standard deviation (of `ln` time) by which the law itself may be wrong for each doubling outside of what
/// was run: memory, network and host borders are not in it.
const PER_DOUBLING: f64 = 0.05;
/// The same where a single run is to be inside nine times in ten; recorded clusters leave the law more often than their mean does.
const RUN_PER_DOUBLING: f64 = 0.10;
/// The same for leaving one host where no run did: two of these are twice the time.
const BORDER: f64 = 0.35;
/// Where runs cannot tell the two rising terms apart, each gets a share: a pull towards zero this strong,
/// in relative errors. Far below any noise.
const TIE: f64 = 2e-4;
/// A term with less than this share of every run's time is not in use.
const SEEN: f64 = 1e-3;
/// Rounds of weighting by the fitted instead of the measured times. The latter would favour curves below
/// the truth: runs that happened to be fast would weigh more.
const ROUNDS: usize = 4;

impl ScalingFit {
    /// Fits the curve; at least three different sizes are needed to say anything of its shape.
    pub fn new(runs: &[ScalingRun]) -> Result<Self, ForecastError> {
        Self::on_hosts(runs, None)
    }

    /// The same for workers of which so many share a host.
    pub fn on_hosts(runs: &[ScalingRun], per_host: Option<u32>) -> Result<Self, ForecastError> {
        let mut sizes: Vec<(u64, u64)> =
            runs.iter().map(|run| (run.fraction.to_bits(), run.machines.to_bits())).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < 3 {
            return Err(ForecastError::TooFewRuns { needed: 3, found: sizes.len() });
        }
        if let Some(bad) = runs.iter().find(|run| !(run.seconds.is_finite() && run.seconds > 0.0)) {
            return Err(ForecastError::ImpossibleTime { seconds: bad.seconds });
        }
        Ok(Self::of(runs, per_host.map(f64::from).filter(|room| *room > 1.0)))
    }

    fn of(runs: &[ScalingRun], per_host: Option<f64>) -> Self {
        let crossing = |run: &&ScalingRun| per_host.is_some_and(|room| run.machines > room);
        let across = runs.iter().filter(crossing).count();
        let fitted = per_host.filter(|_| (1..runs.len()).contains(&across));
        let terms = |run: &ScalingRun| terms_across(run.fraction, run.machines, fitted);
        let all: Vec<Vec<f64>> = runs.iter().map(terms).collect();
        let mut scale: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
        let (mut rows, mut times, mut x) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            rows = all
                .iter()
                .zip(&scale)
                .map(|(row, scale)| row.iter().map(|term| term / scale).collect())
                .collect::<Vec<Vec<f64>>>();
            times = runs.iter().zip(&scale).map(|(run, scale)| run.seconds / scale).collect();
            x = tied(&rows, &times);
            scale = all.iter().map(|row| dot(row, &x)).collect();
        }
        let least = squares(&rows, &times, &x);
        // Coefficients that are in use take a degree of freedom each; what only the tie's pull left is not.
        let effect = |at: usize| rows.iter().map(|row| row[at] * x[at]).fold(0.0, f64::max);
        let used = (0..x.len()).filter(|&at| effect(at) > SEEN).count();
        let freedom = runs.len().saturating_sub(used) as f64;
        let (noise, worth) = NOISE;
        let variance = (worth * noise * noise + least) / (worth + freedom);
        let quantile = t_quantile(1.0 - LEFT_OUT / 2.0, worth + freedom);
        let (noise, worth) = RUN_NOISE;
        let run_noise = ((worth * noise * noise + least) / (worth + freedom)).sqrt();
        let run_quantile = t_quantile(1.0 - RUN_LEFT_OUT / 2.0, worth + freedom);
        let counts = runs.iter().map(|run| run.machines);
        Self {
            curve: Scaling {
                fixed: x[0],
                parallel: x[1],
                aggregation: x[2],
                per_machine: x[3],
                across: x.get(4).copied().unwrap_or(0.0),
                per_host: fitted,
                spread: (least / freedom.max(1.0)).sqrt(),
            },
            rows,
            times,
            least,
            allowed: quantile * quantile * variance,
            quantile,
            run_quantile,
            run_noise,
            machines: counts.fold((f64::INFINITY, 0.0), |(low, high), count| {
                (low.min(count), f64::max(high, count))
            }),
            largest_fraction: runs.iter().map(|run| run.fraction).fold(0.0, f64::max),
            per_host,
        }
    }

    /// The curve that explains the runs best.
    #[must_use]
    pub fn curve(&self) -> &Scaling {
        &self.curve
    }

    /// Fewest and most machines that were run.
    #[must_use]
    pub fn measured(&self) -> (f64, f64) {
        self.machines
    }

    /// Whether so many are on several hosts where all runs were on one, or the other way round.
    #[must_use]
    pub fn is_beyond_border(&self, machines: f64) -> bool {
        let crosses = |count: f64, room: f64| count > room;
        self.curve.per_host.is_none()
            && self
                .per_host
                .is_some_and(|room| crosses(machines, room) != crosses(self.machines.1, room))
    }

    /// The time on so many machines for this share of the input, with its interval.
    #[must_use]
    pub fn estimate(&self, fraction: f64, machines: f64) -> ScalingEstimate {
        let seconds = self.curve.predict(fraction, machines);
        let row = terms_across(fraction, machines, self.curve.per_host);
        let (low, high) = (self.end(&row, seconds, -1.0), self.end(&row, seconds, 1.0));
        let outside = [
            machines / self.machines.1,
            self.machines.0 / machines,
            fraction / self.largest_fraction,
        ];
        let beyond_border = self.is_beyond_border(machines);
        let border = if beyond_border { BORDER } else { 0.0 };
        let doublings: f64 = outside.iter().map(|ratio| ratio.max(1.0).log2()).sum();
        // Both doubts together: of the coefficients, and of the law outside of what was run.
        let law = self.quantile.min(MOST_DEVIATIONS) * (PER_DOUBLING * doublings + border);
        let wider = |end: f64| (end / seconds).ln().hypot(law);
        // A further run: the doubt of the coefficients at its own level, more of the law's, and its noise.
        let own = self.run_quantile / self.quantile;
        let law = self.run_quantile.min(MOST_DEVIATIONS) * (RUN_PER_DOUBLING * doublings + border);
        let run = |end: f64| {
            let doubt = (own * (end / seconds).ln()).hypot(law);
            doubt.hypot(self.run_quantile * self.run_noise)
        };
        ScalingEstimate {
            seconds,
            low: seconds * (-wider(low)).exp(),
            high: seconds * wider(high).exp(),
            run_low: seconds * (-run(low)).exp(),
            run_high: seconds * run(high).exp(),
            extrapolated: doublings > 0.0 || beyond_border,
            beyond_border,
        }
    }

    /// The time farthest from `seconds` in one direction that a possible curve has.
    fn end(&self, row: &[f64], seconds: f64, direction: f64) -> f64 {
        // A wish for another time, as one more run; however strong the wish, the curve that comes out is
        // the best of all with its own time, so times and errors lie on the profile.
        let mut rows = self.rows.clone();
        rows.push(row.iter().map(|term| term / seconds).collect());
        let mut times = self.times.clone();
        times.push(1.0);
        let mut pulled = |wish: f64| {
            if let Some(last) = times.last_mut() {
                *last = 1.0 + direction * wish;
            }
            let x = nnls::solve(&rows, &times);
            let worse = squares(&self.rows, &self.times, &x) - self.least;
            (dot(row, &x), worse > self.allowed)
        };
        let (mut inside, mut outside) = (0.0, 1.0);
        while !pulled(outside).1 && outside < 1e6 {
            (inside, outside) = (outside, 2.0 * outside);
        }
        for _ in 0..HALVINGS {
            let middle = 0.5 * (inside + outside);
            if pulled(middle).1 {
                outside = middle;
            } else {
                inside = middle;
            }
        }
        let found = pulled(inside).0;
        if direction < 0.0 { found.min(seconds) } else { found.max(seconds) }
    }
}

/// Most deviations for the law's own uncertainty. With few runs the quantile is large because their noise is unknown;
/// that does not make the law less reliable.
const MOST_DEVIATIONS: f64 = 2.0;
/// Steps to find an end of an interval: one part in a million of the first bracket.
const HALVINGS: usize = 20;

fn squares(rows: &[Vec<f64>], times: &[f64], x: &[f64]) -> f64 {
    rows.iter().zip(times).map(|(row, time)| (dot(row, x) - time).powi(2)).sum()
}

/// The best coefficients; the rising terms share where the runs do not decide.
fn tied(rows: &[Vec<f64>], times: &[f64]) -> Vec<f64> {
    let (mut rows, mut times) = (rows.to_vec(), times.to_vec());
    let width = rows.first().map_or(4, Vec::len);
    for at in 2..width {
        let largest = rows.iter().map(|row| row[at]).fold(0.0, f64::max);
        let mut row = vec![0.0; width];
        row[at] = TIE * largest;
        rows.push(row);
        times.push(0.0);
    }
    nnls::solve(&rows, &times)
}

#[cfg(test)]
mod tests;
