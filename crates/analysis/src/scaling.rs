//! What more workers bring: speed-up, efficiency, and where nothing more is gained.
//!
//! All figures are against the fewest workers measured (one, where there is such a run; the words say which). A step to more
//! workers counts as a gain only if it brings at least a tenth of what perfect scaling would, and, where there are repeats, the interval
//! of its ratio lies above one.

use serde::{Deserialize, Serialize};

use crate::compare::{Ratio, ratio};
use crate::describe::median;
use crate::estimate::Estimate;
use crate::words::number;

/// A step to more workers that brings less than this share of what perfect scaling would is no gain.
const WORTHWHILE: f64 = 0.1;

/// The rates measured with one number of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// Workers.
    pub workers: u64,
    /// Examples per second, one per repeat; positive.
    pub rates: Vec<f64>,
}

/// What a number of workers brings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scaled {
    /// Workers.
    pub workers: u64,
    /// Median rate, in examples per second.
    pub rate: f64,
    /// Rate over the base's.
    pub speedup: f64,
    /// The same with an interval, where both were repeated.
    pub ratio: Estimate<Ratio>,
    /// Speed-up over the growth in workers: 1 is perfect.
    pub efficiency: f64,
}

/// How a job scales.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Fewest workers measured.
    pub base: u64,
    /// One entry per number of workers, ascending; the base first.
    pub points: Vec<Scaled>,
    /// The number of workers beyond which nothing was gained, if that was seen.
    pub knee: Option<u64>,
    /// In a sentence.
    pub words: String,
}

/// Says how a job scales; nothing with fewer than two different numbers of workers.
#[must_use]
pub fn scaling(measured: &[Rates]) -> Option<Scaling> {
    let mut sets: Vec<Rates> = Vec::new();
    for set in measured {
        let usable = set.rates.iter().copied().filter(|rate| rate.is_finite() && *rate > 0.0);
        match sets.iter_mut().find(|known| known.workers == set.workers) {
            Some(known) => known.rates.extend(usable),
            None => sets.push(Rates { workers: set.workers, rates: usable.collect() }),
        }
    }
    sets.retain(|set| set.workers > 0 && !set.rates.is_empty());
    sets.sort_by_key(|set| set.workers);
    let (first, rest) = sets.split_first()?;
    if rest.is_empty() {
        return None;
    }
    let points: Vec<Scaled> = sets
        .iter()
        .map(|set| {
            let speedup = median(&set.rates) / median(&first.rates);
            Scaled {
                workers: set.workers,
                rate: median(&set.rates),
                speedup,
                ratio: ratio(&set.rates, &first.rates).into(),
                efficiency: speedup * first.workers as f64 / set.workers as f64,
            }
        })
        .collect();
    let knee = sets.windows(2).position(|pair| !gains(&pair[0], &pair[1]));
    let knee = knee.map(|at| sets[at].workers);
    let words = words(first.workers, &points, knee);
    Some(Scaling { base: first.workers, points, knee, words })
}

fn gains(fewer: &Rates, more: &Rates) -> bool {
    let gain = median(&more.rates) / median(&fewer.rates) - 1.0;
    let perfect = more.workers as f64 / fewer.workers as f64 - 1.0;
    let certain = ratio(&more.rates, &fewer.rates).map_or(true, |ratio| ratio.interval.low > 1.0);
    gain >= WORTHWHILE * perfect && certain
}

fn words(base: u64, points: &[Scaled], knee: Option<u64>) -> String {
    let best = points
        .iter()
        .max_by(|a, b| a.rate.total_cmp(&b.rate))
        .expect("there are at least two points");
    let mut text = if best.workers == base {
        format!("no number of workers was faster than {base}")
    } else {
        format!(
            "{} workers are {} times as fast as {base} (efficiency {:.0} %)",
            best.workers,
            number(best.speedup),
            100.0 * best.efficiency
        )
    };
    if let (Some(knee), Some(last)) = (knee, points.last())
        && last.workers > knee
    {
        text.push_str(&format!("; beyond {knee} nothing is gained"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rows: &[(u64, &[f64])]) -> Option<Scaling> {
        let sets: Vec<Rates> = rows
            .iter()
            .map(|(workers, rates)| Rates { workers: *workers, rates: rates.to_vec() })
            .collect();
        scaling(&sets)
    }

    #[test]
    fn speedup_and_efficiency_are_against_the_fewest_workers() {
        let found = measured(&[(4, &[360.0]), (1, &[100.0]), (2, &[190.0])]).unwrap();
        assert_eq!(found.base, 1);
        let speedups: Vec<f64> = found.points.iter().map(|point| point.speedup).collect();
        assert_eq!(speedups, [1.0, 1.9, 3.6]);
        assert!((found.points[2].efficiency - 0.9).abs() < 1e-12);
        assert_eq!(found.knee, None);
        assert!(found.words.contains("4 workers are 3.60 times as fast as 1"), "{}", found.words);
    }

    #[test]
    fn the_knee_is_where_nothing_more_is_gained() {
        let found = measured(&[(1, &[100.0]), (2, &[180.0]), (3, &[183.0])]).unwrap();
        assert_eq!(found.knee, Some(2));
        assert!(found.words.ends_with("beyond 2 nothing is gained"), "{}", found.words);
        let slower = measured(&[(1, &[100.0]), (2, &[90.0])]).unwrap();
        assert_eq!(slower.knee, Some(1));
        assert!(slower.words.starts_with("no number of workers was faster"), "{}", slower.words);
    }

    #[test]
    fn a_gain_within_noise_is_none() {
        let found = measured(&[(1, &[100.0, 140.0]), (2, &[120.0, 150.0])]).unwrap();
        assert_eq!(found.knee, Some(1));
    }

    #[test]
    fn one_number_of_workers_and_senseless_rates_say_nothing() {
        assert_eq!(measured(&[(2, &[1.0, 2.0])]), None);
        assert_eq!(measured(&[(0, &[1.0]), (1, &[f64::NAN, 0.0]), (2, &[3.0])]), None);
        assert_eq!(measured(&[]), None);
    }
}
