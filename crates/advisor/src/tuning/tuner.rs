//! Which point to measure next.
//!
//! Evenly spread points first; then the one with the largest expected improvement per expected second, under the Gaussian
//! processes that the search for machines uses, weighted by the chance that a run there completes. Several goals become one by
//! weights that are drawn for each proposal (Knowles 2006), so that the points spread along the front.

use super::space::{Point, SearchSpace};
use crate::gp::Kernels;
use paceline_stats::normal::expected_improvement;
use paceline_stats::random::{EvenPoints, Random};
use serde::Serialize;

/// Sets of hyper-parameters to average over.
const KERNELS: usize = 64;
/// A space with at most so many points is looked at whole.
const ENUMERATED: usize = 600;
/// Otherwise so many points spread over all of it, and so many near each of the best.
const SPREAD: usize = 250;
const NEAR: usize = 25;
const BEST: usize = 3;
/// Seconds that any run costs beside its own: how much shorter one short run is than another does not matter.
const AROUND: f64 = 1.0;
/// Values of each list that are tried in their place at most, all else equal.
const SIBLINGS: usize = 12;
/// How far from them, as a share of each dimension.
const STEP: f64 = 0.12;
/// An expected improvement below this share is not worth a run: a hundredth would come of one run in three.
const ENOUGH: f64 = 0.003;
/// Runs for each dimension, after the first ones, before the model may say so.
const FEWEST: usize = 2;
/// The standard deviation that values are brought to: what the processes believe before they have seen any.
const SPREAD_OF_VALUES: f64 = 0.5;
/// A run that was stopped early tells less than one that ended.
const NOISE_OF_STOPPED: f64 = 4.0;
/// How far what is known of failures and durations reaches, per square root of the number of features.
const REACH: f64 = 0.25;
/// Completed runs that the hope for points far from any is worth.
const HOPE: f64 = 0.5;
/// Share of the range that a bounded goal is kept from its ends.
const EDGE: f64 = 0.005;

/// How a goal varies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub enum GoalScale {
    Linear,
    /// By factors: times, rates, losses.
    Logarithmic,
    /// Between two bounds: accuracies.
    Bounded {
        low: f64,
        high: f64,
    },
}

/// Something to make small or large.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Goal {
    pub name: String,
    pub maximise: bool,
    pub scale: GoalScale,
}

impl Goal {
    /// The value on a scale without bounds, where small is good.
    fn cost(&self, value: f64) -> f64 {
        let plain = match self.scale {
            GoalScale::Linear => value,
            GoalScale::Logarithmic => value.max(f64::MIN_POSITIVE).ln(),
            GoalScale::Bounded { low, high } => {
                let edge = EDGE * (high - low);
                ((value - low).max(0.0) + edge).ln() - ((high - value).max(0.0) + edge).ln()
            }
        };
        if self.maximise { -plain } else { plain }
    }

    /// Whether `a` is better than `b`.
    fn is_better(&self, a: f64, b: f64) -> bool {
        if self.maximise { a > b } else { a < b }
    }
}

/// How a run at a point ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialOutcome {
    /// A value for each goal.
    Measured(Vec<f64>),
    /// It ended without them.
    Failed,
    /// It was ended because it could not become the best; so far each goal was at best this.
    Stopped(Vec<f64>),
}

/// A point that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    pub point: Point,
    pub outcome: TrialOutcome,
    /// What it took.
    pub seconds: f64,
}

/// Why a point is proposed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneReason {
    /// To see all of the space before a model is asked.
    Spread,
    /// The model expects this improvement over the best so far, as a share of it.
    Improvement { share: f64 },
}

/// What to measure next.
#[derive(Debug, Clone, PartialEq)]
pub struct TuneProposal {
    pub point: Point,
    pub reason: TuneReason,
    /// What is expected is not worth a run.
    pub enough: bool,
}

/// Chooses points.
#[derive(Debug, Clone)]
pub struct Tuner {
    space: SearchSpace,
    goals: Vec<Goal>,
    seed: u64,
}

/// Observations for the model: smaller is better.
struct Observed {
    points: Vec<usize>,
    values: Vec<f64>,
    noisier: Vec<f64>,
    /// From the model's unit to shares of the best value.
    unit: f64,
}

impl Tuner {
    /// A search of this space; the seed decides every random choice.
    #[must_use]
    pub fn new(space: SearchSpace, goals: Vec<Goal>, seed: u64) -> Self {
        Self { space, goals, seed }
    }

    /// What is searched.
    #[must_use]
    pub fn space(&self) -> &SearchSpace {
        &self.space
    }

    /// What is to be small or large; the first decides which run is the best.
    #[must_use]
    pub fn goals(&self) -> &[Goal] {
        &self.goals
    }

    /// Evenly spread runs before the model is asked.
    #[must_use]
    pub fn first_runs(&self) -> usize {
        (self.space.dimensions().len() + 2).clamp(4, 8)
    }

    /// The next point; nothing once every point was tried.
    #[must_use]
    pub fn propose(&self, trials: &[Trial]) -> Option<TuneProposal> {
        let tried = |point: &Point| trials.iter().any(|trial| trial.point == *point);
        let complete = trials.iter().filter(|trial| trial.outcome != TrialOutcome::Failed).count();
        if complete < self.first_runs() && trials.len() < 3 * self.first_runs() {
            let mut spread = self.spread(trials.len() + 1).skip(trials.len());
            let point = spread.next().filter(|point| !tried(point));
            let point =
                point.or_else(|| self.pool(trials).into_iter().find(|point| !tried(point)))?;
            return Some(TuneProposal { point, reason: TuneReason::Spread, enough: false });
        }
        let pool: Vec<Point> =
            self.pool(trials).into_iter().filter(|point| !tried(point)).collect();
        self.by_model(trials, pool)
    }

    /// Evenly spread points, the middle of the space first.
    fn spread(&self, count: usize) -> impl Iterator<Item = Point> + '_ {
        let dimensions = self.space.dimensions().len();
        let mut random = Random::new(self.seed, 0x74);
        let shift: Vec<f64> = (0..dimensions).map(|_| random.uniform()).collect();
        let middle = std::iter::once(vec![0.5; dimensions]);
        middle.chain(EvenPoints::new(shift)).take(count).map(|shares| self.space.at(&shares))
    }

    /// Points among which the next one is chosen.
    fn pool(&self, trials: &[Trial]) -> Vec<Point> {
        if let Some(all) = self.space.all(ENUMERATED) {
            return all;
        }
        let dimensions = self.space.dimensions().len();
        let mut random = Random::new(self.seed.wrapping_add(trials.len() as u64), 0x70);
        let shift: Vec<f64> = (0..dimensions).map(|_| random.uniform()).collect();
        let mut points: Vec<Point> =
            EvenPoints::new(shift).take(SPREAD).map(|shares| self.space.at(&shares)).collect();
        for trial in self.ranked(trials).into_iter().take(BEST) {
            let centre = self.space.shares(&trials[trial].point);
            points.extend(self.space.siblings(&centre, SIBLINGS));
            for _ in 0..NEAR {
                let moved = |share: &f64| {
                    // Half of the dimensions stay: the best point often differs in one of them.
                    let step = STEP * (random.uniform() + random.uniform() - 1.0) * 2.0;
                    let step = if random.uniform() < 0.5 { 0.0 } else { step };
                    (share + step).clamp(0.0, 1.0)
                };
                let shares: Vec<f64> = centre.iter().map(moved).collect();
                points.push(self.space.at(&shares));
            }
        }
        points.sort();
        points.dedup();
        points
    }

    fn by_model(&self, trials: &[Trial], pool: Vec<Point>) -> Option<TuneProposal> {
        let features: Vec<Vec<f64>> = trials
            .iter()
            .map(|trial| &trial.point)
            .chain(&pool)
            .map(|point| self.space.features(point))
            .collect();
        let Some(observed) = self.observe(trials) else {
            // Nothing ever completed: as far from what was tried as can be.
            return pool.into_iter().next().map(|point| TuneProposal {
                point,
                reason: TuneReason::Spread,
                enough: false,
            });
        };
        let kernels = Kernels::new(features.clone(), KERNELS, self.seed);
        let model = kernels.fit(&observed.points, &observed.values, &observed.noisier);
        let best = observed.values.iter().copied().fold(f64::INFINITY, f64::min);
        let mut most_gain: f64 = 0.0;
        let mut chosen: Option<(f64, f64, usize)> = None;
        for at in 0..pool.len() {
            let point = trials.len() + at;
            let (chance, seconds) = outlook(trials, &features, &features[point]);
            let gain: f64 = model
                .predict(point)
                .map(|(weight, mean, sd)| weight * expected_improvement(mean, sd, best))
                .sum();
            most_gain = most_gain.max(chance * gain * observed.unit);
            // A run that fails gains nothing, and its time is lost: doubtful places wait until the sure ones are known.
            let worth = chance * chance * gain / (seconds + AROUND);
            if chosen.is_none_or(|(most, ..)| worth > most) {
                chosen = Some((worth, chance * gain * observed.unit, at));
            }
        }
        let (_, share, at) = chosen?;
        let point = pool.into_iter().nth(at)?;
        let reason = TuneReason::Improvement { share };
        let fewest = self.first_runs() + FEWEST * self.space.dimensions().len();
        let enough = most_gain < ENOUGH && trials.len() >= fewest;
        Some(TuneProposal { point, reason, enough })
    }

    /// What the model sees of the trials: a run that failed is as bad as the worst.
    fn observe(&self, trials: &[Trial]) -> Option<Observed> {
        let mut random = Random::new(self.seed.wrapping_add(trials.len() as u64), 0x77);
        let mut points = Vec::new();
        let (mut costs, mut noisier, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (at, trial) in trials.iter().enumerate() {
            let (values, noise) = match &trial.outcome {
                TrialOutcome::Measured(values) => (values, 1.0),
                TrialOutcome::Stopped(values) => (values, NOISE_OF_STOPPED),
                TrialOutcome::Failed => {
                    failed.push(at);
                    continue;
                }
            };
            points.push(at);
            costs.push(self.costs(values));
            noisier.push(noise);
        }
        if costs.is_empty() {
            return None;
        }
        let mut values: Vec<f64> = if self.goals.len() == 1 {
            costs.iter().map(|costs| costs[0]).collect()
        } else {
            combine(&costs, self.goals.len(), &mut random)
        };
        let worst = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        values.extend(failed.iter().map(|_| worst));
        noisier.extend(failed.iter().map(|_| 1.0));
        points.append(&mut failed);
        let spread = clip(&mut values);
        let relative = self.goals.len() == 1 && self.goals[0].scale != GoalScale::Linear;
        let unit = if relative { spread / SPREAD_OF_VALUES } else { 1.0 };
        Some(Observed { points, values, noisier, unit })
    }

    fn costs(&self, values: &[f64]) -> Vec<f64> {
        self.goals.iter().zip(values).map(|(goal, value)| goal.cost(*value)).collect()
    }

    /// Trials with all goals measured, the best first; by the first goal where there are several.
    #[must_use]
    pub fn ranked(&self, trials: &[Trial]) -> Vec<usize> {
        let Some(goal) = self.goals.first() else { return Vec::new() };
        let mut measured: Vec<(f64, usize)> = trials
            .iter()
            .enumerate()
            .filter_map(|(at, trial)| match &trial.outcome {
                TrialOutcome::Measured(values) => Some((goal.cost(values[0]), at)),
                _ => None,
            })
            .collect();
        measured.sort_by(|a, b| a.0.total_cmp(&b.0));
        measured.into_iter().map(|(_, at)| at).collect()
    }

    /// The best trial by the first goal.
    #[must_use]
    pub fn best(&self, trials: &[Trial]) -> Option<usize> {
        self.ranked(trials).first().copied()
    }

    /// Trials that no other one betters in every goal, in the order of the first goal.
    #[must_use]
    pub fn front(&self, trials: &[Trial]) -> Vec<usize> {
        let values = |at: usize| match &trials[at].outcome {
            TrialOutcome::Measured(values) => values.as_slice(),
            _ => &[],
        };
        let ranked = self.ranked(trials);
        let beats = |a: usize, b: usize| {
            let mut pairs = self.goals.iter().zip(values(a).iter().zip(values(b)));
            let worse = |(goal, (a, b)): (&Goal, (&f64, &f64))| goal.is_better(*b, *a);
            values(a) != values(b) && !pairs.any(worse)
        };
        let open = |at: &usize| !ranked.iter().any(|other| beats(*other, *at));
        ranked.iter().copied().filter(open).collect()
    }
}

/// The chance that a run at a point completes, and how long it takes, by what the runs near it did.
fn outlook(trials: &[Trial], features: &[Vec<f64>], point: &[f64]) -> (f64, f64) {
    let reach = REACH * (point.len() as f64).sqrt();
    let (mut weight, mut failed, mut seconds) = (HOPE, 0.0, 0.0);
    let mean = trials.iter().map(|trial| trial.seconds.max(1e-3).ln()).sum::<f64>();
    seconds += HOPE * mean / trials.len().max(1) as f64;
    for (trial, own) in trials.iter().zip(features) {
        let squares: f64 = own.iter().zip(point).map(|(a, b)| (a - b).powi(2)).sum();
        let near = (-squares / (2.0 * reach * reach)).exp();
        weight += near;
        seconds += near * trial.seconds.max(1e-3).ln();
        if trial.outcome == TrialOutcome::Failed {
            failed += near;
        }
    }
    (1.0 - failed / weight, (seconds / weight).exp())
}

/// Several goals as one: the largest of them by weights drawn at random, each brought to its range first.
fn combine(costs: &[Vec<f64>], goals: usize, random: &mut Random) -> Vec<f64> {
    let mut weights: Vec<f64> =
        (0..goals).map(|_| -(1.0 - random.uniform()).max(1e-12).ln()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= total);
    let ranges: Vec<(f64, f64)> = (0..goals)
        .map(|goal| {
            let of = costs.iter().map(|costs| costs[goal]);
            let low = of.clone().fold(f64::INFINITY, f64::min);
            (low, (of.fold(f64::NEG_INFINITY, f64::max) - low).max(1e-12))
        })
        .collect();
    let one = |costs: &Vec<f64>| {
        let shares = costs.iter().zip(&ranges).map(|(cost, (low, range))| (cost - low) / range);
        let weighted: Vec<f64> =
            shares.zip(&weights).map(|(share, weight)| share * weight).collect();
        let largest = weighted.iter().copied().fold(0.0, f64::max);
        largest + 0.05 * weighted.iter().sum::<f64>()
    };
    costs.iter().map(one).collect()
}

/// Brings values to mean 0 and the spread that the processes expect. How bad the bad ones are does not matter: they are cut off as far
/// above the median as the best is below it, twice. Returns the spread they had.
fn clip(values: &mut [f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (best, median) = (sorted[0], sorted[sorted.len() / 2]);
    let most = median + 2.0 * (median - best).max(1e-9);
    values.iter_mut().for_each(|value| *value = value.min(most));
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let spread = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    let spread = spread.max(1e-9);
    for value in values.iter_mut() {
        *value = (*value - mean) / spread * SPREAD_OF_VALUES;
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss() -> Goal {
        Goal { name: "loss".to_owned(), maximise: false, scale: GoalScale::Logarithmic }
    }

    /// A training of sorts: a rate that depends on the batch, one strategy better than the others, servers for one of them.
    fn space() -> SearchSpace {
        use super::super::space::{Condition, Dimension, Values};
        let mut dimensions: Vec<Dimension> = SearchSpace::parse([
            "lr=0.0001..1:log",
            "batch=8,16,32,64,128",
            "strategy=a,b,c",
            "servers=1..4",
        ])
        .unwrap()
        .dimensions()
        .to_vec();
        dimensions[3].when =
            Some(Condition { on: "strategy".to_owned(), is: vec!["c".to_owned()] });
        assert!(matches!(dimensions[1].values, Values::Ordered(_)));
        SearchSpace::new(dimensions).unwrap()
    }

    fn number(point: &Point, at: usize) -> f64 {
        point[at].as_deref().map_or(0.0, |text| text.parse().unwrap())
    }

    fn measure(point: &Point) -> f64 {
        let (lr, batch) = (number(point, 0), number(point, 1));
        let best = 0.002 * batch;
        let strategy = match point[2].as_deref() {
            Some("a") => 0.5,
            Some("b") => 0.2,
            _ => 0.1 * (number(point, 3) - 2.0).abs(),
        };
        1.0 + 0.4 * (lr / best).log10().powi(2)
            + 0.2 * ((batch / 32.0).log2() / 2.0).powi(2)
            + strategy
    }

    fn search(tuner: &Tuner, runs: usize, run: impl Fn(&Point) -> TrialOutcome) -> Vec<Trial> {
        let mut trials: Vec<Trial> = Vec::new();
        for _ in 0..runs {
            let Some(next) = tuner.propose(&trials) else { break };
            assert!(trials.iter().all(|trial| trial.point != next.point), "{:?}", next.point);
            let outcome = run(&next.point);
            trials.push(Trial { point: next.point, outcome, seconds: 1.0 });
        }
        trials
    }

    fn least(trials: &[Trial]) -> f64 {
        let value = |trial: &Trial| match &trial.outcome {
            TrialOutcome::Measured(values) => values[0],
            _ => f64::INFINITY,
        };
        trials.iter().map(value).fold(f64::INFINITY, f64::min)
    }

    /// Six searches of twenty runs, against as many points drawn at random.
    #[test]
    fn the_model_finds_what_random_points_do_not() {
        let (mut ours, mut drawn) = (0.0, 0.0);
        for seed in 0..6 {
            let tuner = Tuner::new(space(), vec![loss()], seed);
            ours +=
                least(&search(&tuner, 20, |point| TrialOutcome::Measured(vec![measure(point)])))
                    - 1.0;
            let mut random = Random::new(seed, 1);
            let at = |random: &mut Random| (0..4).map(|_| random.uniform()).collect::<Vec<f64>>();
            let points = (0..20).map(|_| measure(&tuner.space.at(&at(&mut random))));
            drawn += points.fold(f64::INFINITY, f64::min) - 1.0;
        }
        assert!(
            ours < 0.4 * drawn,
            "mean regret {} by the model, {} at random",
            ours / 6.0,
            drawn / 6.0
        );
    }

    /// Seven failing picks in a row were made on a job that fails on most of the space.
    #[test]
    fn what_fails_is_avoided_after_a_few_failures() {
        let fails = |point: &Point| number(point, 0) > 0.01 || point[2].as_deref() == Some("a");
        let mut failed = 0;
        for seed in 0..10 {
            let tuner = Tuner::new(space(), vec![loss()], seed);
            let trials = search(&tuner, 24, |point| {
                if fails(point) {
                    TrialOutcome::Failed
                } else {
                    TrialOutcome::Measured(vec![measure(point)])
                }
            });
            failed +=
                trials[12..].iter().filter(|trial| trial.outcome == TrialOutcome::Failed).count();
        }
        // Two thirds of the space fail.
        assert!(failed < 40, "{failed} of the last 120 runs failed");
    }

    #[test]
    fn a_space_that_was_tried_whole_has_no_next_point() {
        let tuner = Tuner::new(SearchSpace::parse(["a=1,2,3", "b=x,y"]).unwrap(), vec![loss()], 3);
        let trials = search(&tuner, 100, |_| TrialOutcome::Failed);
        assert_eq!(trials.len(), 6);
        assert_eq!(tuner.propose(&trials), None);
        assert_eq!(tuner.best(&trials), None);
    }

    #[test]
    fn a_flat_goal_is_soon_known_well_enough() {
        let tuner =
            Tuner::new(SearchSpace::parse(["a=0.1..1", "b=1..9"]).unwrap(), vec![loss()], 3);
        let trials = search(&tuner, 12, |_| TrialOutcome::Measured(vec![2.0]));
        assert!(tuner.propose(&trials).unwrap().enough);
        let few = search(&tuner, 2, |_| TrialOutcome::Measured(vec![2.0]));
        assert!(!tuner.propose(&few).unwrap().enough);
    }

    /// Fast and accurate: the front has both ends and nothing that is worse in both.
    #[test]
    fn several_goals_spread_along_the_front() {
        let accuracy = Goal {
            name: "accuracy".to_owned(),
            maximise: true,
            scale: GoalScale::Bounded { low: 0.0, high: 100.0 },
        };
        let time = Goal { name: "time".to_owned(), ..loss() };
        let tuner = Tuner::new(
            SearchSpace::parse(["size=0.0..1.0", "waste=0.0..1.0"]).unwrap(),
            vec![accuracy, time],
            1,
        );
        let trials = search(&tuner, 30, |point| {
            let (size, waste) = (number(point, 0), number(point, 1));
            TrialOutcome::Measured(vec![
                60.0 + 35.0 * size - 5.0 * waste,
                1.0 + 9.0 * size + 5.0 * waste,
            ])
        });
        let front = tuner.front(&trials);
        let sizes: Vec<f64> = front.iter().map(|at| number(&trials[*at].point, 0)).collect();
        assert!(front.len() >= 5, "{sizes:?}");
        let (low, high) = sizes
            .iter()
            .fold((1.0f64, 0.0f64), |(low, high), size| (low.min(*size), high.max(*size)));
        assert!(low < 0.2 && high > 0.8, "{sizes:?}");
        assert!(front.iter().all(|at| number(&trials[*at].point, 1) < 0.5));
    }

    #[test]
    fn a_search_continues_as_if_it_had_not_been_interrupted() {
        let tuner = Tuner::new(space(), vec![loss()], 5);
        let whole = search(&tuner, 12, |point| TrialOutcome::Measured(vec![measure(point)]));
        assert_eq!(tuner.propose(&whole[..9]).unwrap().point, whole[9].point);
    }
}
