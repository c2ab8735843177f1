//! Pairs of measurements looked at after every pair: is one side faster, and by how much?
//!
//! A test that is looked at again and again finds a difference sooner or later even where there is none, and timings of a shared
//! machine are neither normal nor independent. Both are answered by a bet. Each pair is measured in random order, so that under
//! "the ratio is r" the sign of `ln(pair / r)` is a fair coin whatever the size, whatever came before and whatever else the
//! machine did: drift, heavy tails and noisy neighbours swap sides with the coin. Someone who bets on the sides of a fair coin has more than
//! 20 times their stake at any time with a probability of at most 1 in 20 (Ville's inequality). So a ratio is refused
//! when a fixed strategy has made 20 of 1, and the ratios that are not refused are an interval that holds at every look at once.
//!
//! The strategy bets like one that expects an effect of so many standard deviations and knows their size from earlier pairs; large
//! deviations count no more than moderate ones. Its stake is spread over effects of many sizes to both sides.

use crate::describe::{median, quantile};
use crate::estimate::{Interval, LEVEL, NotEstimable};
use serde::{Deserialize, Serialize};

/// Effects that are bet on, in standard deviations of a pair, to both sides.
const EFFECTS: [f64; 10] = [0.05, 0.1, 0.17, 0.28, 0.45, 0.7, 1.1, 1.7, 2.6, 4.0];
/// Deviations beyond this many standard deviations count as this many: they are disturbances.
const CLIP: f64 = 1.3;
/// Pairs before the spread of earlier ones says anything; until then a bet is on the side alone.
const FIRST: usize = 4;
/// Least spread of logarithms that is believed: a clock that shows two equal times has not measured zero noise.
const LEAST_SPREAD: f64 = 1e-6;
/// Widest interval that is looked for, as a logarithm: beyond a factor of a thousand nothing was measured.
const WIDEST: f64 = 7.0;

/// What is in hand after some pairs, by the effect that was bet on and the side: logarithms.
#[derive(Debug, Clone)]
struct Capital([[f64; EFFECTS.len()]; 2]);

impl Capital {
    fn new() -> Self {
        Self([[0.0; EFFECTS.len()]; 2])
    }

    /// Bets on the next deviation, whose size is known and whose side is not.
    fn bet(&mut self, deviation: f64, spread: Option<f64>) {
        if deviation == 0.0 {
            return; // no side came up
        }
        let size = spread.map_or(1.0, |spread| (deviation.abs() / spread).min(CLIP));
        for (at, effect) in EFFECTS.iter().enumerate() {
            let stake = (effect * size).tanh() * deviation.signum();
            self.0[0][at] += stake.ln_1p();
            self.0[1][at] += (-stake).ln_1p();
        }
    }

    /// The logarithm of all of it, for a stake of 1.
    fn total(&self) -> f64 {
        let all = || self.0.iter().flatten().copied();
        let most = all().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = all().map(|part| (part - most).exp()).sum();
        most + (sum / (2 * EFFECTS.len()) as f64).ln()
    }
}

/// How many times as fast the second of two sides is, as far as the pairs tell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpeedRatio {
    /// The estimate: the trimmed mean of the pairs' logarithms, as a ratio.
    pub value: f64,
    /// Its 95 % interval, which holds however often and whenever it was looked at.
    pub interval: Interval,
    /// Pairs it rests on.
    pub pairs: usize,
}

impl SpeedRatio {
    /// Whether the two sides differ.
    #[must_use]
    pub fn differs(&self) -> bool {
        !self.interval.contains(1.0)
    }

    /// How far the interval reaches from the estimate, at most, as a share of it.
    #[must_use]
    pub fn precision(&self) -> f64 {
        (self.interval.high / self.value).max(self.value / self.interval.low) - 1.0
    }
}

/// Pairs in the order in which they were measured, each in random order.
///
/// ```
/// use paceline_stats::sequential::Pairs;
///
/// let mut pairs = Pairs::default();
/// for noise in [1.00, 1.02, 0.99, 1.01, 1.00, 0.98, 1.01, 1.02, 0.99, 1.00, 1.01, 0.99] {
///     pairs.add(100.0, 120.0 * noise)?;
/// }
/// let ratio = pairs.ratio().unwrap();
/// assert!(ratio.differs() && ratio.interval.contains(1.2));
/// # Ok::<(), paceline_stats::NotEstimable>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pairs {
    /// Logarithm of second over first.
    logs: Vec<f64>,
    /// What the spread was before each of them.
    spreads: Vec<Option<f64>>,
    /// What bets against "no difference" have brought so far.
    against_none: Capital,
}

impl Default for Pairs {
    fn default() -> Self {
        Self { logs: Vec::new(), spreads: Vec::new(), against_none: Capital::new() }
    }
}

impl Pairs {
    /// Adds the speeds (rates, or one over times) of both sides.
    ///
    /// # Errors
    /// A speed that is not positive and finite.
    pub fn add(&mut self, first: f64, second: f64) -> Result<(), NotEstimable> {
        for value in [first, second] {
            if !value.is_finite() {
                return Err(NotEstimable::NotFinite { index: self.logs.len() });
            }
            if value <= 0.0 {
                return Err(NotEstimable::NotPositive { index: self.logs.len(), value });
            }
        }
        let log = second.ln() - first.ln();
        let spread = self.spread();
        self.against_none.bet(log, spread);
        self.spreads.push(spread);
        self.logs.push(log);
        Ok(())
    }

    /// Pairs so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.logs.len()
    }

    /// Whether there is none yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// Whether "no difference" is refused by now.
    #[must_use]
    pub fn differ(&self) -> bool {
        self.against_none.total() >= enough()
    }

    /// The spread of the pairs so far, as a standard deviation of logarithms that single disturbances do not move.
    fn spread(&self) -> Option<f64> {
        if self.logs.len() < FIRST {
            return None;
        }
        let middle = median(&self.logs);
        let away: Vec<f64> = self.logs.iter().map(|log| (log - middle).abs()).collect();
        Some((1.4826 * median(&away)).max(LEAST_SPREAD))
    }

    /// The estimate, a logarithm: the mean of the middle 60 %.
    fn centre(&self) -> f64 {
        let (low, high) = (quantile(&self.logs, 0.2), quantile(&self.logs, 0.8));
        let middle: Vec<f64> =
            self.logs.iter().copied().filter(|log| (low..=high).contains(log)).collect();
        if middle.is_empty() {
            median(&self.logs)
        } else {
            middle.iter().sum::<f64>() / middle.len() as f64
        }
    }

    /// Whether a ratio, given as a logarithm, is refused.
    fn refuses(&self, ratio: f64) -> bool {
        let mut capital = Capital::new();
        for (log, spread) in self.logs.iter().zip(&self.spreads) {
            capital.bet(log - ratio, *spread);
        }
        capital.total() >= enough()
    }

    /// The ratio with its interval; `None` while the pairs refuse nothing, or where they refuse every ratio because it changed
    /// in mid-measurement.
    #[must_use]
    pub fn ratio(&self) -> Option<SpeedRatio> {
        if self.logs.len() < 2 {
            return None;
        }
        let centre = self.centre();
        if self.refuses(centre) {
            return None;
        }
        let (mut low, mut high) = (self.end(centre, -1.0)?, self.end(centre, 1.0)?);
        if !self.differ() {
            // Bets are not monotone in the ratio to the last digit; the test against 1 decides.
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        Some(SpeedRatio {
            value: centre.exp(),
            interval: Interval { low: low.exp(), high: high.exp() },
            pairs: self.logs.len(),
        })
    }

    /// The end of the interval to one side of the estimate.
    fn end(&self, centre: f64, side: f64) -> Option<f64> {
        let spread = self.spread().unwrap_or(0.1);
        let (mut inside, mut reach) = (0.0, spread / (self.logs.len() as f64).sqrt());
        while !self.refuses(centre + side * reach) {
            inside = reach;
            reach *= 2.0;
            if reach > WIDEST {
                return None;
            }
        }
        for _ in 0..30 {
            let between = f64::midpoint(inside, reach);
            if self.refuses(centre + side * between) { reach = between } else { inside = between }
        }
        Some(centre + side * reach)
    }
}

/// What a bet must bring, as a logarithm, for its hypothesis to be refused.
fn enough() -> f64 {
    -(1.0 - LEVEL).ln()
}
