//! How much faster one run is than another, and how sure that is.
//!
//! Runs of the same setting are repeats, and their spread is used where there are several. With one run of each, segments of a run
//! stand in for repeats: that interval separates a difference from the noise within the runs, but not from day-to-day variation.

use crate::training::RunView;
use paceline_runs::{Event, Status, figures};
use paceline_stats::compare::{Ratio, ratio};
use std::collections::HashMap;

/// Segments into which a run is cut; the first is warm-up and left out.
const SEGMENTS: usize = 11;
/// Fewest segments for an interval.
const FEWEST: usize = 5;

/// What a ratio rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// Several runs of each setting.
    Repeats,
    /// The segments of one run each.
    Segments,
}

/// The rate of a run over that of the first one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Against {
    /// The ratio of the rates as printed; `None` between runs of different models or data.
    pub(crate) value: Option<f64>,
    /// Its 95 % interval and what that rests on.
    pub(crate) interval: Option<(f64, f64, Basis)>,
}

/// Every run against the first; the first has no interval.
pub(crate) fn against_first(runs: &[&RunView]) -> Vec<Against> {
    let Some(first) = runs.first() else { return Vec::new() };
    let repeats = rates(runs);
    let of = |run: &RunView| repeats.get(run.settings.repeats_key()).map_or(&[][..], Vec::as_slice);
    let of_first = segments(first);
    runs.iter()
        .enumerate()
        .map(|(at, run)| {
            let value = run.summary.speedup_over(&first.summary);
            if at == 0 || value.is_none() || run.settings.are_repeats(&first.settings) {
                return Against { value, interval: None };
            }
            let known = |found: Ratio, basis| Against {
                value,
                interval: Some((found.interval.low, found.interval.high, basis)),
            };
            if let Ok(found) = ratio(of(run), of(first)) {
                return known(found, Basis::Repeats);
            }
            match ratio(&segments(run), &of_first) {
                Ok(found) => known(found, Basis::Segments),
                Err(_) => Against { value, interval: None },
            }
        })
        .collect()
}

/// The rates of the repeats of each setting that came to their end.
fn rates<'a>(runs: &[&'a RunView]) -> HashMap<&'a str, Vec<f64>> {
    let mut found: HashMap<&str, Vec<f64>> = HashMap::new();
    for run in runs.iter().filter(|run| run.summary.status == Status::Done) {
        let of = found.entry(run.settings.repeats_key()).or_default();
        of.push(run.summary.examples_per_second);
    }
    found
}

/// Examples per second over each segment of a run's time, all tasks together; the first segment is warm-up.
fn segments(run: &RunView) -> Vec<f64> {
    let events = run.records.iter().filter(|record| matches!(record.event, Some(Event::Step(_))));
    if events.count() < SEGMENTS {
        return Vec::new();
    }
    let rates = figures::rates(&run.records, SEGMENTS);
    let rates = rates.into_iter().skip(1).map(|(_, rate)| rate);
    let rates: Vec<f64> = rates.filter(|rate| *rate > 0.0).collect();
    if rates.len() < FEWEST { Vec::new() } else { rates }
}

/// What the intervals of some comparisons rest on, for the caption of their table.
pub(crate) fn caption(found: &[Against]) -> &'static str {
    let rests_on = |wanted: Basis| {
        found.iter().any(|one| one.interval.is_some_and(|(.., basis)| basis == wanted))
    };
    match (rests_on(Basis::Repeats), rests_on(Basis::Segments)) {
        (false, false) => "",
        (true, false) => "Intervals: 95 %, from repeated runs of the same setting.",
        (false, true) => {
            "Intervals: 95 %, from segments of one run each; only repeated runs show day-to-day variation."
        }
        (true, true) => {
            "Intervals: 95 %, from repeated runs of the same setting where there are any, otherwise from segments of one run each."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Record, RunSettings, Step, Summary};
    use serde_json::json;

    fn run(strategy: &str, rate: f64, jitter: f64) -> RunView {
        let records = (0..110)
            .map(|at| {
                let wobble = 1.0 + jitter * f64::from(at % 7 - 3);
                let examples = (rate * wobble).round() as u64;
                let step = Step { examples, seconds: 1.0, ..Step::default() };
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
            settings: RunSettings::of(&json!({ "spec": { "strategy": strategy } }), None),
            records,
            ..RunView::default()
        }
    }

    #[test]
    fn one_run_each_is_compared_by_its_segments() {
        let found = against_first(&[&run("a", 1000.0, 0.01), &run("b", 2000.0, 0.01)]);
        assert_eq!((found[0].value, found[0].interval), (Some(1.0), None));
        let (low, high, basis) = found[1].interval.unwrap();
        assert!(low < 2.0 && 2.0 < high && high - low < 0.1, "{low} to {high}");
        assert_eq!(basis, Basis::Segments);
        assert!(caption(&found).contains("segments"));
    }

    #[test]
    fn repeats_are_pooled_and_say_more_than_segments() {
        let runs = [
            run("a", 1000.0, 0.0),
            run("a", 1100.0, 0.0),
            run("b", 2000.0, 0.0),
            run("b", 2200.0, 0.0),
        ];
        let found = against_first(&runs.iter().collect::<Vec<_>>());
        assert_eq!(found[1].interval, None, "a repeat of the first is not compared with it");
        let (low, high, basis) = found[2].interval.unwrap();
        assert_eq!(basis, Basis::Repeats);
        assert_eq!(found[2].value, Some(2.0), "the ratio of the printed rates");
        assert!(low < 1.6 && high > 2.4, "{low} to {high}");
    }

    /// Runs with other threads or another optimiser were once pooled as repeats of each other.
    #[test]
    fn runs_that_differ_in_threads_or_optimiser_are_not_repeats() {
        for other in [
            json!({ "spec": { "strategy": "b", "threads": 4 } }),
            json!({ "spec": { "strategy": "b", "optimizer": "adam" } }),
        ] {
            let mut runs =
                ["a", "b", "b", "a"].map(|strategy| run(strategy, 1000.0, 0.01)).to_vec();
            runs[1] = run("b", 2000.0, 0.01);
            runs[2] = run("b", 4000.0, 0.01);
            runs[2].settings = RunSettings::of(&other, None);
            let found = against_first(&runs.iter().collect::<Vec<_>>());
            for at in [1, 2] {
                let (.., basis) = found[at].interval.unwrap();
                assert_eq!(basis, Basis::Segments, "one run of each setting");
            }
        }
    }

    #[test]
    fn a_run_too_short_for_an_interval_gets_none() {
        let mut short = run("b", 500.0, 0.0);
        short.records.truncate(4);
        let found = against_first(&[&run("a", 1000.0, 0.0), &short]);
        assert_eq!((found[1].value, found[1].interval), (Some(0.5), None));
        assert_eq!(caption(&found), "");
    }
}
