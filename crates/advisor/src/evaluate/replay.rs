//! Lets one method search for every recorded job, leave-one-application-out.

use super::acceptance::medians;
use super::scout::RecordedSet;
use crate::error::AdvisorError;
use crate::measurements::{Measurement, Outcome};
use crate::methods::AdvisorMethod;
use crate::search::{Advisor, NINE_IN_TEN, Objective, Problem, Run, Search};
use paceline_stats::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How to replay.
#[derive(Debug, Clone)]
pub struct ReplaySettings {
    /// Searches per job, each with its own seed.
    pub seeds: u64,
    /// Runs per search; its own stopping rule is noted, not obeyed.
    pub steps: usize,
    pub threads: usize,
    /// What is to be small.
    pub objective: Objective,
    /// A run shows the median of all repeats, as in the published studies, instead of one repeat.
    pub medians: bool,
    /// The history is cut to so many past jobs, drawn again for every seed; all of them where `None`.
    pub past_jobs: Option<usize>,
    /// Jobs that did not complete everywhere are left out: the published single-node studies do so.
    pub complete_jobs_only: bool,
}

/// One search.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// After each run: value of the best completed one over the optimum. Before any completed, the
    /// job's worst completed value stands.
    pub regret: Vec<f64>,
    /// After each run: dollars spent, in units of the optimum's.
    pub spent: Vec<f64>,
    /// The job's worst completed value over the optimum: what stands before any run.
    pub worst: f64,
    /// The run, from one, that was on the optimal configuration.
    pub optimum_at: Option<usize>,
    /// Runs after which the method would have stopped, and the regret of what it then recommends.
    pub stop: Option<(usize, f64)>,
    /// Root mean square relative error of the predictions at the own stop, untried configurations only.
    pub prediction_error: Option<f64>,
    /// Predictions at the own stop for untried configurations whose nine-in-ten interval held the recorded value, and all of them.
    pub covered: [usize; 2],
    /// Recommendations asked for: after the own stop and at the end.
    pub recommendations: usize,
    /// Those among them that do not complete.
    pub failing: usize,
}

/// All searches for one job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTraces {
    pub workload: String,
    /// What it was grouped under.
    pub application: String,
    /// One per seed.
    pub traces: Vec<Trace>,
}

/// A recorded job, as the replay sees it.
struct Job<'a> {
    workload: &'a str,
    application: &'a str,
    /// Recorded runs per configuration.
    records: Vec<Vec<&'a Measurement>>,
    /// Objective's value of the median completed run; `None` where none completed.
    values: Vec<Option<f64>>,
    optimum: f64,
    worst: f64,
    /// Dollars of the optimum.
    unit: f64,
}

/// Preparations of a method per application; searches share them in turn. A method without random runs of its
/// own still differs between them, so that no figure rests on one lucky path.
const PREPARATIONS: u64 = 5;

/// Replays `method` on every job of the set.
pub fn replay(
    set: &RecordedSet,
    method: &AdvisorMethod,
    settings: &ReplaySettings,
    progress: &(dyn Fn() + Sync),
) -> Result<Vec<JobTraces>, AdvisorError> {
    replay_with(set, &|problem, seed| (method.build)(problem, seed), settings, progress)
}

/// Prepares a method for a question, with a seed.
pub(super) type Prepare<'a> =
    dyn Fn(&Problem, u64) -> Result<Box<dyn Advisor>, AdvisorError> + Sync + 'a;

/// Replays anything that can be prepared.
pub(super) fn replay_with(
    set: &RecordedSet,
    prepare: &Prepare<'_>,
    settings: &ReplaySettings,
    progress: &(dyn Fn() + Sync),
) -> Result<Vec<JobTraces>, AdvisorError> {
    let problem = Problem {
        catalogue: Arc::clone(&set.catalogue),
        history: Arc::clone(&set.runs),
        objective: settings.objective,
    };
    let jobs = jobs(set, &problem, settings);
    // One preparation serves all jobs of an application: the history is the same.
    let mut applications: Vec<&str> = jobs.iter().map(|job| job.application).collect();
    applications.sort_unstable();
    applications.dedup();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Result<JobTraces, AdvisorError>>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..settings.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(application) = applications.get(at) else { break };
                    let history = Arc::new(problem.history.without_application(application));
                    let problem = Problem { history, ..problem.clone() };
                    // With a cut history every seed has a past of its own.
                    let (preparations, cut) = match settings.past_jobs {
                        Some(cut) => (settings.seeds, cut),
                        None => (settings.seeds.min(PREPARATIONS), usize::MAX),
                    };
                    let prepared: Result<Vec<Prepared>, AdvisorError> = (0..preparations)
                        .map(|seed| {
                            let mut draw = Random::new(seed, at as u64 + 1);
                            let history = Arc::new(problem.history.some_jobs(cut, &mut draw));
                            let problem = Problem { history, ..problem.clone() };
                            let advisor = prepare(&problem, seed)?;
                            Ok((problem, advisor))
                        })
                        .collect();
                    let found: Vec<Result<JobTraces, AdvisorError>> = match prepared {
                        Ok(prepared) => jobs
                            .iter()
                            .filter(|job| job.application == *application)
                            .map(|job| {
                                let traces = one_job(&prepared, settings, job);
                                progress();
                                traces
                            })
                            .collect(),
                        Err(error) => vec![Err(error)],
                    };
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(found);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut done = done.into_iter().collect::<Result<Vec<_>, _>>()?;
    done.sort_by(|a, b| a.workload.cmp(&b.workload));
    Ok(done)
}

fn jobs<'a>(set: &'a RecordedSet, problem: &Problem, settings: &ReplaySettings) -> Vec<Job<'a>> {
    let count = set.catalogue.len();
    let mut records: BTreeMap<&str, (&str, Vec<Vec<&Measurement>>)> = BTreeMap::new();
    // What ran elsewhere is a past, not something that a search could have measured.
    for row in set.runs.rows().iter().filter(|row| !row.stands_in) {
        let (_, all) = records
            .entry(&row.workload)
            .or_insert_with(|| (&row.application, vec![Vec::new(); count]));
        all[row.configuration].push(row);
    }
    let medians = medians(&set.runs);
    let mut jobs = Vec::new();
    for (workload, (application, mut records)) in records {
        let Some(times) = medians.get(workload) else { continue };
        if settings.complete_jobs_only {
            if times.len() < count {
                continue;
            }
            // The study looked at completed repeats; what failed beside them says nothing of the machine.
            for all in &mut records {
                all.retain(|row| row.outcome.completed().is_some());
            }
        }
        let values: Vec<Option<f64>> = (0..count)
            .map(|at| times.get(&at).map(|&seconds| problem.value(at, seconds)))
            .collect();
        // A job that keeps the deadline nowhere has no optimum, and is left out.
        let limit = problem.deadline().unwrap_or(f64::INFINITY);
        let best = (0..count)
            .filter(|at| times.get(at).is_some_and(|seconds| *seconds <= limit))
            .filter_map(|at| values[at].map(|value| (at, value)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((best, optimum)) = best else { continue };
        let worst = values.iter().flatten().copied().fold(0.0, f64::max);
        let unit = set.catalogue.cost(best, times[&best]);
        jobs.push(Job { workload, application, records, values, optimum, worst, unit });
    }
    jobs
}

/// A method and the past it was prepared for.
type Prepared = (Problem, Box<dyn Advisor>);

fn one_job(
    prepared: &[Prepared],
    settings: &ReplaySettings,
    job: &Job<'_>,
) -> Result<JobTraces, AdvisorError> {
    let mut traces = Vec::new();
    for seed in 0..settings.seeds {
        let (problem, advisor) = &prepared[seed as usize % prepared.len()];
        let advisor = &**advisor;
        // Which repeat of each configuration will be seen: part of the world, not of the method.
        let mut world = Random::new(seed, 0x5eed);
        let drawn: Vec<usize> =
            job.records.iter().map(|all| world.below(all.len().max(1))).collect();
        let mut search = Search::new(problem.clone(), seed);
        let mut trace = Trace {
            regret: Vec::new(),
            spent: Vec::new(),
            worst: job.worst / job.optimum,
            optimum_at: None,
            stop: None,
            prediction_error: None,
            covered: [0; 2],
            recommendations: 0,
            failing: 0,
        };
        let score = |at: usize| {
            if settings.medians { job.values[at] } else { score(problem, job, at, drawn[at]) }
        };
        for step in 1..=settings.steps.min(problem.catalogue.len()) {
            let Some(proposal) = advisor.propose(&search) else { break };
            if proposal.stop.is_some() && trace.stop.is_none() {
                let regret = recommended(advisor, &search, &score, job, &mut trace);
                trace.stop = Some((search.runs().len(), regret));
                trace.prediction_error = prediction_error(advisor, &search, job);
                trace.covered = covered(advisor, &search, job);
            }
            let at = proposal.configuration;
            let limit = proposal.outlook.and_then(|outlook| outlook.limit);
            let run = result(problem, job, at, drawn[at], settings.medians);
            search.tell(ended_at(run, limit))?;
            if job.values[at] == Some(job.optimum) {
                trace.optimum_at = Some(step);
            }
            let best = search.best().map_or(job.worst, |(at, _)| score(at).unwrap_or(job.worst));
            trace.regret.push(best / job.optimum);
            trace.spent.push(search.spent_usd() / job.unit);
        }
        recommended(advisor, &search, &score, job, &mut trace);
        traces.push(trace);
    }
    Ok(JobTraces {
        workload: job.workload.to_owned(),
        application: job.application.to_owned(),
        traces,
    })
}

/// What a run on a configuration shows.
fn result(problem: &Problem, job: &Job<'_>, at: usize, drawn: usize, medians: bool) -> Run {
    let records = &job.records[at];
    if let (true, Some(value)) = (medians, job.values[at]) {
        let rows: Vec<&Vec<f64>> =
            records.iter().map(|row| &row.metrics).filter(|row| !row.is_empty()).collect();
        let width = rows.first().map_or(0, |row| row.len());
        let mean = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>() / rows.len() as f64;
        return Run {
            configuration: at,
            outcome: Outcome::Completed { seconds: problem.seconds(at, value) },
            metrics: (0..width).map(mean).collect(),
        };
    }
    match records.get(drawn) {
        Some(row) => Run { configuration: at, outcome: row.outcome, metrics: row.metrics.clone() },
        // Never recorded: as good as a failure that took no time.
        None => Run {
            configuration: at,
            outcome: Outcome::Failed { seconds: 0.0 },
            metrics: Vec::new(),
        },
    }
}

/// The same run, ended where the method would have ended it.
fn ended_at(run: Run, limit: Option<f64>) -> Run {
    match limit {
        Some(seconds) if run.outcome.seconds() > seconds => {
            Run { outcome: Outcome::TimedOut { seconds }, ..run }
        }
        _ => run,
    }
}

/// Asks for a recommendation, notes whether it fails, and gives its regret.
fn recommended(
    advisor: &dyn Advisor,
    search: &Search,
    score: &dyn Fn(usize) -> Option<f64>,
    job: &Job<'_>,
    trace: &mut Trace,
) -> f64 {
    trace.recommendations += 1;
    let value = advisor.recommend(search).and_then(|found| score(found.configuration));
    if value.is_none() {
        trace.failing += 1;
    }
    value.unwrap_or(job.worst) / job.optimum
}

/// Root mean square of `predicted / true - 1` over what has not been run.
fn prediction_error(advisor: &dyn Advisor, search: &Search, job: &Job<'_>) -> Option<f64> {
    let predicted = advisor.predict(search);
    let errors: Vec<f64> = search
        .untried()
        .filter_map(|at| Some(predicted[at]?.mean.exp() / job.values[at]? - 1.0))
        .collect();
    let squares: f64 = errors.iter().map(|error| error * error).sum();
    (!errors.is_empty()).then(|| (squares / errors.len() as f64).sqrt())
}

/// How many intervals of predictions held the recorded value, of how many.
fn covered(advisor: &dyn Advisor, search: &Search, job: &Job<'_>) -> [usize; 2] {
    let predicted = advisor.predict(search);
    let mut counts = [0; 2];
    for at in search.untried() {
        let (Some(found), Some(value)) = (predicted[at], job.values[at]) else { continue };
        counts[1] += 1;
        counts[0] += usize::from((value.ln() - found.mean).abs() <= NINE_IN_TEN * found.sd);
    }
    counts
}

/// What a configuration is really worth: the median of the runs other than the one that was seen, so that a
/// lucky repeat does not count twice; of the one there is, where there is only one.
fn score(problem: &Problem, job: &Job<'_>, at: usize, drawn: usize) -> Option<f64> {
    let mut others: Vec<f64> = job.records[at]
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != drawn)
        .filter_map(|(_, row)| row.outcome.completed())
        .collect();
    if others.is_empty() {
        return job.values[at];
    }
    others.sort_by(f64::total_cmp);
    let half = others.len() / 2;
    let median =
        if others.len() % 2 == 1 { others[half] } else { (others[half - 1] + others[half]) / 2.0 };
    Some(problem.value(at, median))
}
