//! How much of our own method's figures comes from having looked at the set?
//!
//! Its constants were chosen while the multi-node set could be seen. Here they are chosen again, blindly: on
//! one half of the applications, with a history of that half only; the figures then come from the
//! other half. If they are as good as those of the constants in use, nothing was gained by looking.
//!
//! Halves are small. So they are also chosen on another set altogether, one that nothing is reported on.

use super::replay::{JobTraces, ReplaySettings, Trace, replay_with};
use super::scout::RecordedSet;
use super::summary;
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
/// Further runs of the job for which a search has to pay, where a tuning is judged by when it stops.
const USES: f64 = 10.0;

/// Mean regret after 6 and 15 runs, and what a run costs in all where the job runs ten more times after the search's own stop: its
/// own cost and a tenth of the search's, in units of the optimum.
type Figures = [f64; 3];

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NestedSummary {
    /// Tunings to choose from.
    pub tunings: usize,
    /// Ways of halving the applications; both halves choose once.
    pub splits: usize,
    /// Mean regret after 6 and 15 runs, and the cost of a run with a tenth of the search's, with tunings chosen on the other half.
    pub chosen: [f64; 3],
    /// The same with the constants in use.
    pub in_use: [f64; 3],
    /// The same with the tuning that is best on the very jobs reported: what looking could give at most.
    pub best_by_looking: [f64; 3],
    /// The tuning that is worst on them: how much hangs on it at all.
    pub worst: [f64; 3],
    /// How often the constants in use were the ones chosen.
    pub agreed: f64,
    /// Mean regret with the tuning that is best on another set.
    pub chosen_elsewhere: [f64; 3],
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
        Tuning { laws: 0.0, ..TUNING },
        Tuning { laws: 0.9, ..TUNING },
        Tuning { law_kernels: 2, ..TUNING },
        Tuning { law_scale: 0.1, ..TUNING },
        Tuning { law_scale: 1.0, ..TUNING },
        Tuning { money: 0.0, ..TUNING },
        Tuning { money: 1.0, ..TUNING },
        Tuning { enough: 0.01, ..TUNING },
        Tuning { enough: 0.1, ..TUNING },
        Tuning { fewest: 3, ..TUNING },
        Tuning { fewest: 8, ..TUNING },
        Tuning { half_trust: 5.0, ..TUNING },
        Tuning { half_trust: 20.0, ..TUNING },
    ]
}

/// The figures of every job.
type Regrets = BTreeMap<String, Figures>;

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
    let (mut chosen, mut in_use) = ([0.0; 3], [0.0; 3]);
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
                    for at in 0..chosen.len() {
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
    let means: Vec<Figures> = reported.iter().map(mean).collect();
    let extreme = |pick: fn(f64, f64) -> f64| {
        [0, 1, 2].map(|at| means.iter().map(|mean| mean[at]).reduce(pick).unwrap_or(f64::NAN))
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

fn regrets(job: &JobTraces) -> (String, Figures) {
    let mean = |of: &dyn Fn(&Trace) -> Option<f64>| summary::mean(job.traces.iter().filter_map(of));
    let after =
        |values: &[f64], runs: usize| values.get(runs.min(values.len()).saturating_sub(1)).copied();
    let [few, many] = AT.map(|runs| mean(&|trace| after(&trace.regret, runs)));
    let total = mean(&|trace| {
        let (runs, regret) =
            trace.stop.or_else(|| Some((trace.regret.len(), *trace.regret.last()?)))?;
        Some(regret + after(&trace.spent, runs)? / USES)
    });
    (job.workload.clone(), [few, many, total])
}

fn mean(regrets: &Regrets) -> Figures {
    [0, 1, 2].map(|at| summary::mean(regrets.values().map(|regret| regret[at])))
}

/// One number to choose by: all three count alike.
fn overall(regrets: &Regrets) -> f64 {
    mean(regrets).iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later constants were once chosen by looking, and the guard against that did not know them.
    #[test]
    fn every_constant_is_among_those_chosen_again() {
        let Tuning {
            families,
            job_kernels,
            past_runs,
            scale_shape,
            laws,
            law_kernels,
            law_scale,
            money,
            hurry: _, // no recorded job has a deadline
            enough,
            fewest,
            half_trust,
        } = TUNING;
        let varies = |differs: &dyn Fn(&Tuning) -> bool| tunings().iter().any(differs);
        assert!(varies(&|other| other.families != families));
        assert!(varies(&|other| other.job_kernels != job_kernels));
        assert!(varies(&|other| other.past_runs != past_runs));
        assert!(varies(&|other| other.scale_shape != scale_shape));
        assert!(varies(&|other| other.laws != laws));
        assert!(varies(&|other| other.law_kernels != law_kernels));
        assert!(varies(&|other| other.law_scale != law_scale));
        assert!(varies(&|other| other.money != money));
        assert!(varies(&|other| other.enough != enough));
        assert!(varies(&|other| other.fewest != fewest));
        assert!(varies(&|other| other.half_trust != half_trust));
        assert_eq!(tunings()[0], TUNING, "the first is the one in use");
    }
}
