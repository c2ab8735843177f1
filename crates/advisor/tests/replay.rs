//! Whole searches on recorded runs: what the methods promise must show.

#![allow(clippy::unwrap_used)] // a test may

use paceline_advisor::evaluate::{
    Half, Prices, RecordedSet, ReplaySettings, Summary, evaluate_batch, evaluate_scaling, replay,
};
use paceline_advisor::{Objective, methods};

fn summary(set: &RecordedSet, method: &str, seeds: u64, steps: usize) -> Summary {
    with_past(set, method, seeds, steps, None)
}

fn with_past(
    set: &RecordedSet,
    method: &str,
    seeds: u64,
    steps: usize,
    past_jobs: Option<usize>,
) -> Summary {
    let settings = ReplaySettings {
        seeds,
        steps,
        threads: 2,
        objective: Objective::Cost,
        medians: false,
        past_jobs,
        complete_jobs_only: false,
    };
    let traces = replay(set, methods::find(method).unwrap(), &settings, &|| {}).unwrap();
    assert_eq!(traces.len(), 18);
    Summary::of(method, &traces)
}

#[test]
fn models_beat_chance_and_history_beats_none() {
    let Some(folder) = paceline_testing::real_data("scout") else { return };
    let set = RecordedSet::read(&folder, Half::MultiNode, Prices::OnDemand).unwrap();
    let random = summary(&set, "random", 50, 10);
    let cherrypick = summary(&set, "cherrypick", 3, 10);
    let paceline = summary(&set, "paceline", 1, 6);
    let at = |summary: &Summary, runs| summary.mean_regret(runs).unwrap();
    // The guide's figures for random search: 1.652, 1.328, 1.199 after 3, 6, 10 runs.
    assert!((at(&random, 6) - 1.328).abs() < 0.06, "{}", at(&random, 6));
    assert!((at(&random, 10) - 1.199).abs() < 0.04, "{}", at(&random, 10));
    assert!(at(&cherrypick, 10) < at(&random, 10));
    assert!(at(&paceline, 6) < at(&cherrypick, 6));
    for summary in [&random, &cherrypick, &paceline] {
        assert_eq!(summary.failing, 0.0, "{} recommends what fails", summary.method);
    }
}

/// Two past jobs made searches worse than none: 1.308 of the optimum after six runs, against 1.173.
#[test]
fn short_history_is_not_worse_than_none() {
    let Some(folder) = paceline_testing::real_data("scout") else { return };
    let set = RecordedSet::read(&folder, Half::MultiNode, Prices::OnDemand).unwrap();
    let at = |past: usize| {
        let found = with_past(&set, "paceline", 2, 6, Some(past));
        found.mean_regret(6).unwrap()
    };
    let cold = at(0);
    for past in [1, 2, 4, 8] {
        let found = at(past);
        assert!(found <= cold + 0.02, "{past} past jobs: {found}, cold {cold}");
    }
}

#[test]
fn scaling_curves_and_the_batch_bandit_stay_near_their_known_figures() {
    let Some(folder) = paceline_testing::real_data("scout") else { return };
    let multi = RecordedSet::read(&folder, Half::MultiNode, Prices::OnDemand).unwrap();
    let scaling = evaluate_scaling(&multi, 4);
    assert!(scaling.predictions > 100 && scaling.median_percent < 25.0, "{scaling:?}");
    let single = RecordedSet::read(&folder, Half::SingleNode, Prices::OnDemand).unwrap();
    let batch = evaluate_batch(&single, Objective::Cost, 20);
    assert_eq!(batch.jobs, 107);
    assert!((batch.pulls - 72.0).abs() < 1.0, "18 + 54 pulls: {batch:?}");
    assert!(batch.mean < 2.0 && batch.ceiling < 1.5, "{batch:?}");
}
