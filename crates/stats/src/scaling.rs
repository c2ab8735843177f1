//! What more workers bring: speed-up, efficiency, and where nothing more is gained.
//!
//! All figures are against the fewest workers measured (one, where there is such a run; the words say which). More workers are a
//! gain over fewer only if they bring at least a tenth of what perfect scaling would, and, where there are repeats, the interval
//! of their ratio lies above one. Nothing is gained beyond a number if *no* larger one is a gain over it: a slow run
//! between two fast ones is not the end of gains.

use serde::{Deserialize, Serialize};

use crate::compare::{Ratio, ratio};
use crate::describe::median;
use crate::estimate::Estimate;
use crate::words::number;

/// Adding workers is not worthwhile if it brings less than this share of what perfect scaling would.
const WORTHWHILE: f64 = 0.1;

/// Efficiency beyond this is not noise: the base had something left.
const SURPRISING: f64 = 1.1;

/// The rates measured with one number of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    pub workers: u64,
    /// Examples per second, one per repeat; positive.
    pub rates: Vec<f64>,
}

/// What a number of workers brings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scaled {
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
    /// The fewest workers over which no larger number measured is a gain; absent where the most workers still are.
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
    // A number without a gain over the base itself is not worth naming, and says nothing about the others.
    let worth: Vec<&Rates> =
        std::iter::once(first).chain(rest.iter().filter(|set| gains(first, set))).collect();
    let ends = |at: &usize| !worth[at + 1..].iter().any(|larger| gains(worth[*at], larger));
    let most = rest.last().map_or(first.workers, |last| last.workers);
    let knee = (0..worth.len()).find(ends).map(|at| worth[at].workers);
    let knee = knee.filter(|workers| *workers < most);
    let words = words(first.workers, &points, knee);
    Some(Scaling { base: first.workers, points, knee, words })
}

fn gains(fewer: &Rates, more: &Rates) -> bool {
    let gain = median(&more.rates) / median(&fewer.rates) - 1.0;
    let perfect = more.workers as f64 / fewer.workers as f64 - 1.0;
    let certain = ratio(&more.rates, &fewer.rates).map_or(true, |ratio| ratio.interval.low > 1.0);
    gain >= WORTHWHILE * perfect && certain
}

/// One sentence about one number of workers: the knee, else the most. Whatever is larger than that gains nothing, so nothing that
/// is said of it can contradict the rest.
fn words(base: u64, points: &[Scaled], knee: Option<u64>) -> String {
    let worthwhile = knee.unwrap_or_else(|| points.last().map_or(base, |last| last.workers));
    let at = points.iter().find(|point| point.workers == worthwhile);
    let mut text = match at {
        Some(point) if point.workers > base => format!(
            "{} workers are {} times as fast as {base} (efficiency {:.0} %)",
            point.workers,
            number(point.speedup),
            100.0 * point.efficiency
        ),
        _ => format!("no number of workers was clearly faster than {base}"),
    };
    if points.iter().any(|point| point.efficiency > SURPRISING) {
        text.push_str(&format!(
            "; more than 100 % means that the runs with {base} did not use the whole machine (threads, caches, input), so part of the gain is not \
             from more workers"
        ));
    }
    let beyond = points.iter().filter(|point| point.workers > worthwhile);
    if let Some(best) = beyond.max_by(|a, b| a.rate.total_cmp(&b.rate)) {
        let gained = if worthwhile > base { "; beyond that nothing clear is gained" } else { "" };
        text.push_str(&format!(
            "{gained} ({} workers: {} times)",
            best.workers,
            number(best.speedup)
        ));
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
        let wanted = "2 workers are 1.80 times as fast as 1 (efficiency 90 %); \
                      beyond that nothing clear is gained (3 workers: 1.83 times)";
        assert_eq!(found.words, wanted);
        let slower = measured(&[(1, &[100.0]), (2, &[90.0])]).unwrap();
        assert_eq!(slower.knee, Some(1));
        assert_eq!(
            slower.words,
            "no number of workers was clearly faster than 1 (2 workers: 0.900 times)"
        );
    }

    /// Once said: "3 workers are 2.23 times as fast as 1; beyond 1 nothing is gained".
    #[test]
    fn a_slow_run_between_two_fast_ones_is_not_where_gains_end() {
        let found = measured(&[(1, &[100.0]), (2, &[101.0]), (3, &[223.0])]).unwrap();
        assert_eq!(found.knee, None);
        assert_eq!(found.words, "3 workers are 2.23 times as fast as 1 (efficiency 74 %)");
        let noisy = measured(&[
            (1, &[100.0, 101.0, 99.0]),
            (2, &[60.0, 100.0, 180.0]),
            (3, &[220.0, 223.0, 226.0]),
            (4, &[221.0, 224.0, 222.0]),
        ]);
        let noisy = noisy.unwrap();
        assert_eq!(noisy.knee, Some(3));
        assert!(
            noisy.words.starts_with("3 workers are 2.23 times as fast as 1"),
            "{}",
            noisy.words
        );
    }

    /// The sentence names the number of workers that the knee names, whatever the rates.
    #[test]
    fn sentence_and_knee_never_contradict_each_other() {
        let rates = [80.0, 100.0, 104.0, 150.0, 400.0];
        for code in 0..rates.len().pow(4) {
            let at = |place: u32| rates[code / rates.len().pow(place) % rates.len()];
            let found = measured(&[(1, &[at(0)]), (2, &[at(1)]), (3, &[at(2)]), (8, &[at(3)])]);
            let found = found.unwrap();
            match found.knee {
                Some(1) => assert!(found.words.starts_with("no number of"), "{}", found.words),
                knee => {
                    let said = format!("{} workers are ", knee.unwrap_or(8));
                    assert!(found.words.starts_with(&said), "{knee:?}: {}", found.words);
                    let point =
                        found.points.iter().find(|point| point.workers == knee.unwrap_or(8));
                    assert!(point.unwrap().speedup > 1.0, "{}", found.words);
                }
            }
            assert_eq!(
                found.words.contains("nothing clear is gained"),
                found.knee.is_some_and(|knee| knee > 1)
            );
        }
    }

    /// 224 % and 326 % stood there without a comment.
    #[test]
    fn an_efficiency_beyond_one_is_explained() {
        let found = measured(&[(1, &[100.0]), (2, &[448.0])]).unwrap();
        assert!(found.words.contains("efficiency 224 %"), "{}", found.words);
        assert!(found.words.contains("more than 100 % means that"), "{}", found.words);
        let plain = measured(&[(1, &[100.0]), (2, &[190.0])]).unwrap();
        assert!(!plain.words.contains("100 %"), "{}", plain.words);
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
