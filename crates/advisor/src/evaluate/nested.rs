//! How much of our own method's figures comes from having looked at the set?
//!
//! Its constants were chosen while the multi-node set could be seen. Here they are chosen again, blindly: on
//! one half of the applications, with a history of that half only; the figures then come from the
//! other half. If they are as good as those of the constants in use, nothing was gained by looking.
//!
//! Halves are small. So they are also chosen on another set altogether, one that nothing is reported on.

use super::replay::{JobTraces, ReplaySettings, replay_with};
use super::scout::RecordedSet;
use crate::error::AdvisorError;
use crate::measurements::Measurements;
use crate::methods::Paceline;
use crate::transfer::{TUNING, Tuning};
use paceline_stats::random::Random;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers of runs at which a tuning is judged.
const AT: [usize; 2] = [6, 15];

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NestedSummary {
    /// Tunings to choose from.
    pub tunings: usize,
    /// Ways of halving the applications; both halves choose once.
    pub splits: usize,
    /// Mean regret after 6 and 15 runs with tunings chosen on the other half.
    pub chosen: [f64; 2],
    /// The same with the constants in use.
    pub in_use: [f64; 2],
    /// The same with the tuning that is best on the very jobs reported: what looking could give at most.
    pub best_by_looking: [f64; 2],
    /// The tuning that is worst on them: how much hangs on it at all.
    pub worst: [f64; 2],
    /// How often the constants in use were the ones chosen.
    pub agreed: f64,
    /// Mean regret with the tuning that is best on another set.
    pub chosen_elsewhere: [f64; 2],
    /// Whether that is the one in use.
    pub elsewhere_agrees: bool,
}

/// Alternatives around the constants in use, each changing one thing.
fn tunings() -> Vec<Tuning> {
    vec![
        TUNING,
        Tuning { families: [0.8, 0.1, 0.1], ..TUNING },
        Tuning { families: [0.1, 0.8, 0.1], ..TUNING },
        Tuning { families: [0.1, 0.1, 0.8], ..TUNING },
        Tuning { past_runs: 2.0, ..TUNING },
        Tuning { past_runs: 32.0, ..TUNING },
        Tuning { scale_shape: 0.5, ..TUNING },
        Tuning { scale_shape: 8.0, ..TUNING },
        Tuning { job_kernels: 1, ..TUNING },
    ]
}

/// Mean regret of every job at the points of [`AT`].
type Regrets = BTreeMap<String, [f64; 2]>;

/// Does it for `set`, and with another one to choose on; `progress` is called after every replay.
pub fn evaluate_nested(
    set: &RecordedSet,
    elsewhere: &RecordedSet,
    settings: &ReplaySettings,
    splits: usize,
    progress: &dyn Fn(),
) -> Result<NestedSummary, AdvisorError> {
    let settings = ReplaySettings { steps: AT[1], ..settings.clone() };
    let tunings = tunings();
    let run_with =
        |set: &RecordedSet, settings: &ReplaySettings| -> Result<Vec<Regrets>, AdvisorError> {
            tunings
                .iter()
                .map(|&tuning| {
                    let prepare = |problem: &crate::Problem, seed: u64| {
                        let advisor: Box<dyn crate::Advisor> =
                            Box::new(Paceline::new(problem, seed, tuning));
                        Ok(advisor)
                    };
                    let traces = replay_with(set, &prepare, settings, &|| {})?;
                    progress();
                    Ok(traces.iter().map(regrets).collect())
                })
                .collect()
        };
    let run = |set: &RecordedSet| run_with(set, &settings);
    let best = |scores: &[Regrets]| {
        (0..tunings.len())
            .min_by(|&a, &b| overall(&scores[a]).total_cmp(&overall(&scores[b])))
            .unwrap_or(0)
    };
    // Reported: every job with all other applications as its past.
    let reported = run(set)?;
    let application: BTreeMap<&str, &str> = set
        .runs
        .rows()
        .iter()
        .map(|row| (row.workload.as_str(), row.application.as_str()))
        .collect();
    let mut names: Vec<&str> = application.values().copied().collect();
    names.sort_unstable();
    names.dedup();
    let mut random = Random::new(0, 0x4e57);
    let (mut chosen, mut in_use) = ([0.0; 2], [0.0; 2]);
    let (mut jobs, mut agreed) = (0.0, 0.0);
    for _ in 0..splits {
        random.shuffle(&mut names);
        for half in 0..2 {
            let (first, second) = names.split_at(names.len() / 2);
            let (own, others) = if half == 0 { (first, second) } else { (second, first) };
            let part = restrict(set, own);
            let scores = run(&part)?;
            let pick = best(&scores);
            agreed += f64::from(pick == 0) / (2 * splits) as f64;
            for (job, regret) in &reported[pick] {
                if others.contains(&application[job.as_str()]) {
                    let used = &reported[0][job];
                    for at in 0..2 {
                        chosen[at] += regret[at];
                        in_use[at] += used[at];
                    }
                    jobs += 1.0;
                }
            }
        }
    }
    let steps = elsewhere.catalogue.len().min(AT[1]);
    let settings = ReplaySettings { steps, complete_jobs_only: true, ..settings };
    let picked = best(&run_with(elsewhere, &settings)?);
    let means: Vec<[f64; 2]> = reported.iter().map(mean).collect();
    let extreme = |pick: fn(f64, f64) -> f64| {
        [0, 1].map(|at| means.iter().map(|mean| mean[at]).reduce(pick).unwrap_or(f64::NAN))
    };
    Ok(NestedSummary {
        tunings: tunings.len(),
        splits,
        chosen: chosen.map(|sum| sum / jobs),
        in_use: in_use.map(|sum| sum / jobs),
        best_by_looking: extreme(f64::min),
        worst: extreme(f64::max),
        agreed,
        chosen_elsewhere: means[picked],
        elsewhere_agrees: picked == 0,
    })
}

/// The set with some applications only.
fn restrict(set: &RecordedSet, applications: &[&str]) -> RecordedSet {
    let rows = set.runs.rows().iter();
    let rows = rows.filter(|row| applications.contains(&row.application.as_str())).cloned();
    let names = set.runs.metric_names().to_vec();
    RecordedSet {
        catalogue: Arc::clone(&set.catalogue),
        runs: Arc::new(Measurements::from_parts(names, rows.collect())),
    }
}

fn regrets(job: &JobTraces) -> (String, [f64; 2]) {
    let mean = AT.map(|runs| {
        let all = job.traces.iter().filter_map(|trace| {
            trace.regret.get(runs.min(trace.regret.len()).saturating_sub(1)).copied()
        });
        let all: Vec<f64> = all.collect();
        all.iter().sum::<f64>() / all.len() as f64
    });
    (job.workload.clone(), mean)
}

fn mean(regrets: &Regrets) -> [f64; 2] {
    [0, 1].map(|at| regrets.values().map(|regret| regret[at]).sum::<f64>() / regrets.len() as f64)
}

/// One number to choose by: both points count alike.
fn overall(regrets: &Regrets) -> f64 {
    mean(regrets).iter().sum()
}
