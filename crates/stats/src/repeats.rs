//! Repeats of one setting: what was typical, and how far that is known. The only definition of such an interval; sweeps, reports
//! and the speed test all take it from here.
//!
//! A quantity is averaged on the [`Scale`] on which its noise is even. Rates and times vary by a percentage, so their interval is
//! that of the mean logarithm and never reaches below zero; a share lies between none and all. With fewer than
//! [`FEWEST`] repeats, or where nothing varied, a t-interval would claim to know what it does not: then the range is shown.

use serde::{Deserialize, Serialize};

use crate::describe::{mean_interval, summary};
use crate::estimate::{Interval, NotEstimable, check_finite};
use crate::words::number;

/// Repeats below which there is no interval.
pub const FEWEST: usize = 3;

/// On which scale a quantity varies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Scale {
    /// Any number; noise is a difference.
    Linear,
    /// Positive amounts: rates, times, sizes, losses. Noise is a percentage.
    Logarithmic,
    /// Numbers that cannot leave a range: shares, percentages, correlations.
    Bounded { low: f64, high: f64 },
}

impl Scale {
    /// Percentages of a whole.
    pub const PERCENT: Scale = Scale::Bounded { low: 0.0, high: 100.0 };
}

/// How far the typical value is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Spread {
    /// 95 % interval of the typical value.
    Interval(Interval),
    /// Least and most: too few repeats for an interval, or a number that the scale has no place for.
    Range(Interval),
    /// All repeats gave the same number: nothing that could vary did.
    Constant,
    /// There was one measurement.
    Single,
}

impl Spread {
    /// The interval, where there is one.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        match self {
            Spread::Interval(interval) => Some(*interval),
            _ => None,
        }
    }

    /// In a cell of a table: `69.2 to 72.8`, `69.2 to 72.8 (range)`, `no variation`, `–`.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Spread::Interval(Interval { low, high }) => {
                format!("{} to {}", number(*low), number(*high))
            }
            Spread::Range(Interval { low, high }) => {
                format!("{} to {} (range)", number(*low), number(*high))
            }
            Spread::Constant => "no variation".to_owned(),
            Spread::Single => "–".to_owned(),
        }
    }
}

/// The repeats of one setting in a few numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    pub n: usize,
    pub scale: Scale,
    /// What was typical: the mean, on a logarithmic scale the geometric one.
    pub centre: f64,
    /// How far that is known.
    pub spread: Spread,
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Repeats {
    /// What a chart draws around the centre: the interval or the range, else nothing but the centre.
    #[must_use]
    pub fn whisker(&self) -> Interval {
        match self.spread {
            Spread::Interval(ends) | Spread::Range(ends) => ends,
            Spread::Constant | Spread::Single => Interval::around(self.centre, 0.0),
        }
    }
}

/// Describes the repeats of one setting.
///
/// # Errors
/// An empty set, a NaN or infinity, or numbers whose squares overflow.
pub fn repeats(values: &[f64], scale: Scale) -> Result<Repeats, NotEstimable> {
    check_finite(values.iter().copied())?;
    let plain = summary(values)?;
    let positive = values.iter().all(|&value| value > 0.0);
    let on_logs = if scale == Scale::Logarithmic && positive {
        Some(summary(&values.iter().map(|value| value.ln()).collect::<Vec<_>>())?)
    } else {
        None
    };
    let centre = on_logs.as_ref().map_or(plain.mean, |logs| logs.mean.exp());
    let varied = plain.max - plain.min > 4.0 * f64::EPSILON * plain.max.abs().max(plain.min.abs());
    let of_mean =
        |set: &crate::describe::Summary| mean_interval(set.mean, set.standard_deviation, set.n);
    let spread = if plain.n == 1 {
        Spread::Single
    } else if !varied {
        Spread::Constant
    } else if plain.n < FEWEST {
        Spread::Range(Interval { low: plain.min, high: plain.max })
    } else {
        match (scale, &on_logs) {
            (Scale::Logarithmic, Some(logs)) => {
                let Interval { low, high } = of_mean(logs)?;
                Spread::Interval(Interval { low: low.exp(), high: high.exp() })
            }
            (Scale::Logarithmic, None) => {
                Spread::Range(Interval { low: plain.min, high: plain.max })
            }
            (Scale::Linear, _) => Spread::Interval(of_mean(&plain)?),
            // What lies outside cannot be the truth, so leaving it out costs no coverage.
            (Scale::Bounded { low, high }, _) => {
                let wide = of_mean(&plain)?;
                Spread::Interval(Interval { low: wide.low.max(low), high: wide.high.min(high) })
            }
        }
    };
    if let Spread::Interval(ends) = spread
        && !(ends.low.is_finite() && ends.high.is_finite())
    {
        return Err(NotEstimable::OutOfRange);
    }
    Ok(Repeats {
        n: plain.n,
        scale,
        centre,
        spread,
        median: plain.median,
        min: plain.min,
        max: plain.max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64], scale: Scale) -> Spread {
        repeats(values, scale).unwrap().spread
    }

    /// An accuracy that was the same in every repeat once had a "95 % interval 71.0 to 71.0".
    #[test]
    fn nothing_that_varied_has_no_interval() {
        for values in [&[71.0, 71.0][..], &[71.0, 71.0, 71.0], &[0.1 + 0.2, 0.3, 0.3]] {
            assert_eq!(spread(values, Scale::PERCENT), Spread::Constant);
            assert_eq!(spread(values, Scale::Logarithmic), Spread::Constant);
        }
        assert_eq!(Spread::Constant.words(), "no variation");
    }

    /// Two times of 0.09 and 0.13 s once gave an interval from −0.123 to 0.350 s.
    #[test]
    fn two_repeats_show_their_range_and_no_interval() {
        let two = spread(&[0.13, 0.09], Scale::Logarithmic);
        assert_eq!(two, Spread::Range(Interval { low: 0.09, high: 0.13 }));
        assert_eq!(two.words(), "0.0900 to 0.130 (range)");
        assert_eq!(spread(&[5.0], Scale::Linear), Spread::Single);
    }

    #[test]
    fn rates_and_times_are_never_negative_and_shares_never_impossible() {
        let wild = spread(&[1.0, 50.0, 3000.0], Scale::Logarithmic).interval().unwrap();
        assert!(wild.low > 0.0 && wild.low < 1.0 && wild.high > 3000.0, "{wild:?}");
        let high = spread(&[99.9, 96.0, 99.8], Scale::PERCENT).interval().unwrap();
        assert_eq!(high.high, 100.0);
        let low = spread(&[0.0, 3.0, 0.1], Scale::PERCENT).interval().unwrap();
        assert_eq!(low.low, 0.0);
        // A rate of zero has no logarithm: nothing is claimed beyond what was seen.
        let idle = spread(&[0.0, 3.0, 4.0], Scale::Logarithmic);
        assert_eq!(idle, Spread::Range(Interval { low: 0.0, high: 4.0 }));
    }

    #[test]
    fn senseless_numbers_are_refused() {
        assert!(repeats(&[], Scale::Linear).is_err());
        assert!(repeats(&[1.0, f64::NAN], Scale::Logarithmic).is_err());
        assert!(repeats(&[f64::MAX, -f64::MAX, 0.0], Scale::Linear).is_err());
    }
}
