//! How much faster one run is than another, and how sure that is.
//!
//! Runs of the same setting are repeats, and their spread is the honest one. Where there is one run of each, the stretches of a run stand
//! in for repeats: that interval tells a difference from the jitter within the runs, and nothing about another day.

use crate::training::RunView;
use paceline_analysis::compare::{Ratio, ratio};
use paceline_runs::{Event, Status};

/// Stretches into which a run is cut; the first is warm-up and left out.
const STRETCHES: usize = 11;
/// Stretches that an interval needs at least.
const FEWEST: usize = 5;

/// What a ratio rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// Several runs of each setting.
    Repeats,
    /// The stretches of one run each.
    Stretches,
}

/// The rate of a run over that of the first one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Against {
    /// The ratio itself.
    pub(crate) value: f64,
    /// Its 95 % interval and what that rests on.
    pub(crate) interval: Option<(f64, f64, Basis)>,
}

/// Every run against the first; the first has no interval.
pub(crate) fn against_first(runs: &[RunView]) -> Vec<Against> {
    let Some(first) = runs.first() else { return Vec::new() };
    runs.iter()
        .enumerate()
        .map(|(at, run)| {
            let plain = run.summary.examples_per_second / first.summary.examples_per_second;
            if at == 0 || setting(run) == setting(first) {
                return Against { value: plain, interval: None };
            }
            let known = |found: Ratio, basis| Against {
                value: found.value,
                interval: Some((found.interval.low, found.interval.high, basis)),
            };
            let repeats = ratio(&rates(runs, run), &rates(runs, first));
            if let Ok(found) = repeats {
                return known(found, Basis::Repeats);
            }
            match ratio(&stretches(run), &stretches(first)) {
                Ok(found) => known(found, Basis::Stretches),
                Err(_) => Against { value: plain, interval: None },
            }
        })
        .collect()
}

/// What makes two runs repeats of each other: everything but the seed.
fn setting(run: &RunView) -> (&str, &str, &str, u64, usize) {
    let summary = &run.summary;
    (&summary.model, &summary.strategy, &summary.data, summary.global_batch, summary.workers.len())
}

fn rates(runs: &[RunView], like: &RunView) -> Vec<f64> {
    runs.iter()
        .filter(|run| setting(run) == setting(like) && run.summary.status == Status::Done)
        .map(|run| run.summary.examples_per_second)
        .collect()
}

/// Examples a second over each stretch of a run, as its first task saw them.
fn stretches(run: &RunView) -> Vec<f64> {
    let steps: Vec<(&str, f64, f64)> = run
        .records
        .iter()
        .filter_map(|record| match record.event.as_ref()? {
            Event::Step(step) => Some((&*record.task, step.examples as f64, step.seconds)),
            _ => None,
        })
        .collect();
    let Some((task, ..)) = steps.iter().min_by_key(|(task, ..)| *task).copied() else {
        return Vec::new();
    };
    let own: Vec<(f64, f64)> =
        steps.iter().filter(|(of, ..)| *of == task).map(|(_, n, s)| (*n, *s)).collect();
    let length = own.len() / STRETCHES;
    if length == 0 {
        return Vec::new();
    }
    let rates: Vec<f64> = own
        .chunks_exact(length)
        .skip(1)
        .map(|chunk| {
            let (examples, seconds) =
                chunk.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            examples / seconds
        })
        .filter(|rate| rate.is_finite() && *rate > 0.0)
        .collect();
    if rates.len() < FEWEST { Vec::new() } else { rates }
}

/// What the intervals of some comparisons rest on, for the caption of their table.
pub(crate) fn caption(found: &[Against]) -> &'static str {
    let rests_on = |wanted: Basis| {
        found.iter().any(|one| one.interval.is_some_and(|(.., basis)| basis == wanted))
    };
    match (rests_on(Basis::Repeats), rests_on(Basis::Stretches)) {
        (false, false) => "",
        (true, false) => "Intervals: 95 %, from repeated runs of the same setting.",
        (false, true) => {
            "Intervals: 95 %, from the stretches of one run each. They tell a difference from the jitter within these runs; repeat the runs to \
             learn how they differ from day to day."
        }
        (true, true) => {
            "Intervals: 95 %, from repeated runs of the same setting where there are some, else from the stretches of one run each."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_analysis::verdict::Examples;
    use paceline_runs::{Record, Step, Summary};

    fn run(strategy: &str, rate: f64, jitter: f64) -> RunView {
        let records = (0..110)
            .map(|at| {
                let wobble = 1.0 + jitter * f64::from(at % 7 - 3);
                let step =
                    Step { examples: 100, seconds: 100.0 / (rate * wobble), ..Step::default() };
                Record {
                    time: f64::from(at),
                    task: "worker/0".to_owned(),
                    kind: String::new(),
                    event: Some(Event::Step(step)),
                }
            })
            .collect();
        RunView {
            name: strategy.to_owned(),
            summary: Summary {
                strategy: strategy.to_owned(),
                status: Status::Done,
                examples_per_second: rate,
                ..Summary::default()
            },
            machine: None,
            threads: 1,
            examples: Examples::Any,
            records,
            resources: Vec::new(),
        }
    }

    #[test]
    fn one_run_each_is_compared_by_its_stretches() {
        let found = against_first(&[run("a", 1000.0, 0.01), run("b", 2000.0, 0.01)]);
        assert_eq!((found[0].value, found[0].interval), (1.0, None));
        let (low, high, basis) = found[1].interval.unwrap();
        assert!(low < 2.0 && 2.0 < high && high - low < 0.1, "{low} to {high}");
        assert_eq!(basis, Basis::Stretches);
        assert!(caption(&found).contains("stretches"));
    }

    #[test]
    fn repeats_are_pooled_and_say_more_than_stretches() {
        let runs = [
            run("a", 1000.0, 0.0),
            run("a", 1100.0, 0.0),
            run("b", 2000.0, 0.0),
            run("b", 2200.0, 0.0),
        ];
        let found = against_first(&runs);
        assert_eq!(found[1].interval, None, "a repeat of the first is not compared with it");
        let (low, high, basis) = found[2].interval.unwrap();
        assert_eq!(basis, Basis::Repeats);
        assert!((found[2].value - 2.0).abs() < 1e-9 && low < 1.6 && high > 2.4, "{low} to {high}");
    }

    #[test]
    fn a_run_too_short_for_an_interval_gets_none() {
        let mut short = run("b", 500.0, 0.0);
        short.records.truncate(4);
        let found = against_first(&[run("a", 1000.0, 0.0), short]);
        assert_eq!((found[1].value, found[1].interval), (0.5, None));
        assert_eq!(caption(&found), "");
    }
}
