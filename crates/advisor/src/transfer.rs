//! What past jobs tell about a new one.
//!
//! A job's `ln` values over the catalogue are one draw from a Gaussian: an unknown level, a profile shared by
//! all jobs, and deviations whose covariance mixes what past jobs showed (which configurations
//! rise and fall together) with closeness of the machines (Matérn 5/2). How strong each part is
//! cannot be known beforehand; every combination of a small grid is a *view*. Views are weighted by how well
//! they predict past jobs of applications they were not shown, and by how well they explain the new
//! job's own runs.
//!
//! Jobs come in kinds, and an average over kinds resembles none of them. So each view of a second family takes the
//! profile of one past job. The job may also be like nothing seen before: a third family uses only the similarity of
//! machines, and takes over where the past misleads.

use crate::gp::{Kernels, Posterior, ScalePrior};
use crate::history::{History, PastJob, disorder};
use crate::laws::Law;
use std::collections::BTreeMap;

/// Past jobs with a view of their own at most; more cost time and add little.
const MOST_JOBS: usize = 48;
/// Shares of the past jobs' covariance in the whole.
const SHARES: [f64; 4] = [0.0, 0.3, 0.6, 0.9];
/// How far the shared profile is believed.
const PROFILES: [f64; 3] = [0.0, 0.5, 1.0];
/// Sets of kernel hyper-parameters.
const KERNELS: usize = 16;
/// Sets for the views without any past: the first of them are those above, so that a past that is not trusted
/// leaves exactly the model there would be without it.
const PLAIN_KERNELS: usize = 64;
/// Catalogues above this size get a coarser grid: memory grows with its square.
const LARGE: usize = 256;
/// A view whose weight is below the best one's by this much in `ln` counts less than one per cent.
const NEGLIGIBLE: f64 = 5.0;
/// Own runs from which on views are judged by how they rank them.
const FEWEST_RANKED: usize = 3;
/// `ln` of the weight that a view of the past loses for each own run, where it ranks all pairs wrongly that others rank rightly.
const RANKING: f64 = 2.0;
/// Jobs of other applications that rank a past job's configurations so well (1 is alike, 0 by chance) can be relied on.
const AGREEMENT: f64 = 0.1;
/// Squared scale where there are no past jobs, as in a plain process.
const PLAIN_SCALE: f64 = 0.25;

/// Hyperparameters chosen by hand; [`crate::evaluate::evaluate_nested`] measures how much depends on them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tuning {
    /// Weights before any run, after enough past jobs: views of all of them, of single ones, of none.
    pub(crate) families: [f64; 3],
    /// Kernels per view of a past job.
    pub(crate) job_kernels: usize,
    /// The past's judgement of a view counts as much as this many runs of the job itself.
    pub(crate) past_runs: f64,
    /// Past jobs' scales are worth this many half-observations.
    pub(crate) scale_shape: f64,
    /// Part of the weight of views without a past that laws of scaling have.
    pub(crate) laws: f64,
    /// Kernels per law.
    pub(crate) law_kernels: usize,
    /// Squared scale of what a law leaves, over that of a view without one.
    pub(crate) law_scale: f64,
    /// How far dollars count when a run is chosen: 0 is not at all, 1 is improvement per dollar.
    pub(crate) money: f64,
    /// Weight of speed in the first run under a deadline.
    pub(crate) hurry: f64,
    /// Expected improvement, in `ln` of the objective, below which the search stops.
    pub(crate) enough: f64,
    /// Runs before it may stop.
    pub(crate) fewest: usize,
    /// Past jobs with which they are trusted half, at best.
    pub(crate) half_trust: f64,
}

/// The tuning in use.
pub(crate) const TUNING: Tuning = Tuning {
    families: [1.0 / 3.0; 3],
    job_kernels: 4,
    past_runs: 8.0,
    scale_shape: 2.0,
    laws: 0.6,
    law_kernels: 8,
    law_scale: 0.35,
    money: 0.3,
    hurry: 1.0,
    enough: 0.025,
    fewest: 5,
    half_trust: 12.0,
};

/// The model of a catalogue after a history.
#[derive(Debug)]
pub(crate) struct Transfer {
    kernels: Kernels,
    /// What a view takes for the job's shape: first the profile shared by past jobs, then that of
    /// each past job.
    profiles: Vec<Vec<f64>>,
    /// Covariances, one per (share, kernel).
    covariances: Vec<Vec<f64>>,
    views: Vec<View>,
    count: usize,
    tuning: Tuning,
    /// How far past jobs are believed, from 0 to 1.
    trust: f64,
}

/// One combination of strengths.
#[derive(Debug, Clone, Copy)]
struct View {
    covariance: usize,
    kernel: usize,
    profile: usize,
    /// How far the profile is believed.
    strength: f64,
    /// `ln` of its weight before the job's own runs.
    prior: f64,
    /// Typical squared scale of the job's deviations.
    scale: f64,
    /// Whether it rests on past jobs.
    past: bool,
}

/// A summary of some past jobs.
struct Past {
    profile: Vec<f64>,
    covariance: Vec<f64>,
    scale: f64,
}

impl Transfer {
    pub(crate) fn new(
        features: Vec<Vec<f64>>,
        history: &History,
        laws: Vec<Law>,
        seed: u64,
        tuning: Tuning,
    ) -> Self {
        let count = features.len();
        let trust = trust(history, tuning.half_trust);
        // Views without a past do not fit beside those with one.
        let none = History::default();
        let history = if count > LARGE && trust < 0.5 { &none } else { history };
        let (shares, profiles, kernel_count): (&[f64], &[f64], usize) = if history.is_empty() {
            (&SHARES[..1], &PROFILES[..1], 64)
        } else if count > LARGE {
            (&SHARES[1..3], &PROFILES[1..], 4)
        } else {
            (&SHARES, &PROFILES, KERNELS)
        };
        let most = if count > LARGE { kernel_count } else { PLAIN_KERNELS };
        let kernels = Kernels::new(features, most.max(kernel_count), seed);
        let all: Vec<&PastJob> = history.jobs.iter().collect();
        let past = summarise(&all, count);
        let past_scale = past.scale;
        let mut covariances = Vec::new();
        let mut views = Vec::new();
        for &share in shares {
            for kernel in 0..kernel_count {
                for &strength in profiles {
                    let covariance = covariances.len();
                    let scale = past.scale;
                    views.push(View {
                        covariance,
                        kernel,
                        profile: 0,
                        strength,
                        prior: 0.0,
                        scale,
                        past: !history.is_empty(),
                    });
                }
                covariances.push(mix(&past, &kernels, kernel, share));
            }
        }
        let mut transfer = Self {
            kernels,
            profiles: vec![past.profile],
            covariances,
            views,
            count,
            tuning,
            trust: if history.is_empty() { 0.0 } else { trust },
        };
        if !history.is_empty() && count <= LARGE {
            transfer.judge(history, shares, kernel_count);
            transfer.add_families(history, kernel_count, past_scale);
        }
        if count <= LARGE {
            transfer.add_laws(laws);
        }
        transfer
    }

    /// Gives laws of scaling a part of the weight that views without a past have.
    fn add_laws(&mut self, laws: Vec<Law>) {
        // Laws stand in for a history, as far as there is none to trust.
        let share = self.tuning.laws * (1.0 - self.trust);
        if share <= 0.0 || laws.is_empty() {
            return;
        }
        let plain: Vec<usize> = (0..self.views.len())
            .filter(|&at| self.views[at].strength == 0.0 && !self.views[at].past)
            .collect();
        let total: f64 = plain.iter().map(|&at| self.views[at].prior.exp()).sum();
        let kernels = self.tuning.law_kernels.min(plain.len());
        let each = total * share / kernels as f64;
        let mut added = Vec::new();
        for Law { weight, profile: law } in laws {
            let profile = self.profiles.len();
            self.profiles.push(law);
            for &view in &plain[..kernels] {
                let View { covariance, kernel, scale, .. } = self.views[view];
                let (strength, prior) = (1.0, (each * weight).ln());
                let scale = scale * self.tuning.law_scale;
                added.push(View {
                    covariance,
                    kernel,
                    profile,
                    strength,
                    prior,
                    scale,
                    past: false,
                });
            }
        }
        for &at in &plain {
            self.views[at].prior += (1.0 - share).ln();
        }
        self.views.extend(added);
    }

    /// Adds the views of single past jobs, on the kernels that explained past jobs best, and those
    /// without a past.
    fn add_families(&mut self, history: &History, kernel_count: usize, past_scale: f64) {
        // The first `kernel_count` covariances have no share of the past's: closeness alone.
        let best = |kernel: usize| {
            let views = self.views.iter().filter(|view| view.covariance == kernel);
            views.map(|view| view.prior).fold(f64::NEG_INFINITY, f64::max)
        };
        let mut kernels: Vec<(usize, f64)> =
            (0..kernel_count).map(|kernel| (kernel, best(kernel))).collect();
        kernels.sort_by(|a, b| b.1.total_cmp(&a.1));
        kernels.truncate(self.tuning.job_kernels);
        let every = history.jobs.len().div_ceil(MOST_JOBS).max(1);
        let mut added = Vec::new();
        for job in history.jobs.iter().step_by(every) {
            let values = self.filled(job);
            let profile = self.profiles.len();
            self.profiles.push(values);
            for &(kernel, prior) in &kernels {
                let covariance = kernel;
                let scale = past_scale;
                added.push(View {
                    covariance,
                    kernel,
                    profile,
                    strength: 1.0,
                    prior,
                    scale,
                    past: true,
                });
            }
        }
        let trust = self.trust;
        let [all, single, _] = self.tuning.families.map(|weight| weight * trust);
        rescale(&mut self.views, all);
        rescale(&mut added, single);
        self.views.extend(added);
        let mut added = Vec::new();
        // How much jobs vary is learned from the past as far as that is trusted.
        let scale = PLAIN_SCALE.powf(1.0 - trust) * past_scale.powf(trust);
        for kernel in 0..self.kernels.len() {
            let covariance = self.covariances.len();
            added.push(View {
                covariance,
                kernel,
                profile: 0,
                strength: 0.0,
                prior: 0.0,
                scale,
                past: false,
            });
            let n = self.count;
            let pair = |at: usize| self.kernels.correlation(kernel, at / n, at % n);
            self.covariances.push((0..n * n).map(pair).collect());
        }
        rescale(&mut added, 1.0 - all - single);
        self.views.extend(added);
    }

    /// How far past jobs are believed, from 0 to 1.
    pub(crate) fn trust(&self) -> f64 {
        self.trust
    }

    /// A past job's values for all configurations. A failed one gets the job's worst value, so that it does not look
    /// attractive; an untried one gets the shared profile at the job's level.
    fn filled(&self, job: &PastJob) -> Vec<f64> {
        let (_, worst) = job.range();
        let shared = &self.profiles[0];
        let (mut sum, mut n) = (0.0, 0.0);
        for (value, shared) in job.values.iter().zip(shared) {
            if let Some(value) = value {
                sum += value - shared;
                n += 1.0;
            }
        }
        (0..self.count)
            .map(|c| match (job.values[c], job.completed[c]) {
                (Some(value), _) => value,
                (None, Some(_)) => worst,
                (None, None) => sum / n + shared[c],
            })
            .collect()
    }

    /// Weighs the views by past jobs, each predicted from the jobs of other applications.
    fn judge(&mut self, history: &History, shares: &[f64], kernel_count: usize) {
        let mut applications: Vec<&str> =
            history.jobs.iter().map(|job| job.application.as_str()).collect();
        applications.sort_unstable();
        applications.dedup();
        if applications.len() < 2 {
            return;
        }
        let mut evidence = vec![0.0; self.views.len()];
        let mut points = 0.0;
        for held_out in &applications {
            let (inside, outside): (Vec<&PastJob>, Vec<&PastJob>) =
                history.jobs.iter().partition(|job| job.application == *held_out);
            let past = summarise(&outside, self.count);
            for (index, (share, kernel)) in shares
                .iter()
                .flat_map(|&share| (0..kernel_count).map(move |kernel| (share, kernel)))
                .enumerate()
            {
                let covariance = mix(&past, &self.kernels, kernel, share);
                for job in &inside {
                    let at: Vec<usize> =
                        (0..self.count).filter(|&at| job.values[at].is_some()).collect();
                    if index == 0 {
                        points += at.len() as f64;
                    }
                    for (view, sum) in self.views.iter().zip(&mut evidence) {
                        if view.covariance == index {
                            let y: Vec<f64> = at
                                .iter()
                                .map(|&c| {
                                    job.values[c].unwrap_or(0.0) - view.strength * past.profile[c]
                                })
                                .collect();
                            let noise = vec![self.kernels.noise(kernel); at.len()];
                            let prior = self.scale_prior(past.scale);
                            let posterior = Posterior::condition(
                                gather(&covariance, self.count, &at),
                                &noise,
                                &y,
                                prior,
                            );
                            *sum += posterior.map_or(-1e6, |found| found.log_evidence());
                        }
                    }
                }
            }
        }
        let best = evidence.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (view, evidence) in self.views.iter_mut().zip(&evidence) {
            view.prior = (evidence - best) / points * self.tuning.past_runs;
        }
    }

    fn scale_prior(&self, scale: f64) -> ScalePrior {
        let shape = self.tuning.scale_shape;
        ScalePrior { shape, scale: shape * scale }
    }

    /// Takes weight from views of past jobs: from each as far as it ranks the job's own runs worse than views without a past do, and
    /// from all together what is more than they are trusted with. Few runs fit some past job by chance, so evidence alone must not
    /// decide. The greatest logarithm of a weight is then another.
    fn hold_past_back(&self, fitted: &mut [Fitted<'_>], at: &[usize], y: &[f64]) -> Option<f64> {
        if !fitted.iter().any(|fit| fit.0.past) {
            return None;
        }
        let top = |fitted: &[Fitted<'_>], past: bool| {
            let family = fitted.iter().filter(|fit| fit.0.past == past);
            family.map(|fit| fit.1).fold(f64::NEG_INFINITY, f64::max)
        };
        let tops = [false, true].map(|past| top(fitted, past));
        let counts = |fit: &Fitted<'_>| fit.1 > tops[usize::from(fit.0.past)] - NEGLIGIBLE;
        if at.len() >= FEWEST_RANKED {
            let losses: Vec<f64> = fitted
                .iter()
                .map(|fit| if counts(fit) { self.misranked(fit.0, at, y) } else { 1.0 })
                .collect();
            let (mut own, mut total) = (0.0, 0.0);
            for (fit, loss) in fitted.iter().zip(&losses).filter(|(fit, _)| !fit.0.past) {
                let weight = (fit.1 - tops[0]).exp();
                own += weight * loss;
                total += weight;
            }
            for (fit, loss) in fitted.iter_mut().zip(&losses).filter(|(fit, _)| fit.0.past) {
                fit.1 -= RANKING * at.len() as f64 * (loss - own / total).max(0.0);
            }
        }
        let best = top(fitted, false).max(top(fitted, true));
        let sum = |past: bool| -> f64 {
            let family = fitted.iter().filter(|fit| fit.0.past == past);
            family.map(|fit| (fit.1 - best).exp()).sum()
        };
        let (own, past) = (sum(false), sum(true));
        let most = self.trust / (1.0 - self.trust).max(1e-3) * own;
        if past > most {
            let shift = (most / past).max(1e-300).ln();
            fitted.iter_mut().filter(|fit| fit.0.past).for_each(|fit| fit.1 += shift);
        }
        Some(top(fitted, false).max(top(fitted, true)))
    }

    /// Share of pairs of the job's own runs that a view puts in the other order, each run predicted from the others.
    fn misranked(&self, view: &View, at: &[usize], y: &[f64]) -> f64 {
        let (covariance, profile) =
            (&self.covariances[view.covariance], &self.profiles[view.profile]);
        let noise = vec![self.kernels.noise(view.kernel); at.len() - 1];
        let predicted: Option<Vec<f64>> = (0..at.len())
            .map(|out| {
                let others = (0..at.len()).filter(|&other| other != out);
                let (places, rest): (Vec<usize>, Vec<f64>) = others
                    .map(|other| (at[other], y[other] - view.strength * profile[at[other]]))
                    .unzip();
                let matrix = gather(covariance, self.count, &places);
                let prior = self.scale_prior(view.scale);
                let posterior = Posterior::condition(matrix, &noise, &rest, prior)?;
                let row = &covariance[at[out] * self.count..(at[out] + 1) * self.count];
                let cross: Vec<f64> = places.iter().map(|&place| row[place]).collect();
                let (mean, _) = posterior.predict(&cross, row[at[out]]);
                Some(mean + view.strength * profile[at[out]])
            })
            .collect();
        predicted.map_or(1.0, |predicted| disorder(&predicted, y))
    }

    /// Conditions every view on the job's own runs: configurations, `ln` values, noise factors.
    pub(crate) fn condition(&self, at: &[usize], y: &[f64], noisier: &[f64]) -> Expectation {
        let mut means = vec![0.0; self.count];
        let mut squares = vec![0.0; self.count];
        let mut wider = vec![0.0; self.count];
        let mut members: Vec<(f64, Vec<(f64, f64)>)> = Vec::new();
        let mut fitted = Vec::new();
        for view in &self.views {
            let covariance = &self.covariances[view.covariance];
            let noise: Vec<f64> =
                noisier.iter().map(|factor| factor * self.kernels.noise(view.kernel)).collect();
            let rest: Vec<f64> = at
                .iter()
                .zip(y)
                .map(|(&at, y)| y - view.strength * self.profiles[view.profile][at])
                .collect();
            let matrix = gather(covariance, self.count, at);
            let prior = self.scale_prior(view.scale);
            if let Some(posterior) = Posterior::condition(matrix, &noise, &rest, prior) {
                fitted.push((view, posterior.log_evidence() + view.prior, posterior));
            }
        }
        let best = fitted.iter().map(|fit| fit.1).fold(f64::NEG_INFINITY, f64::max);
        let best = self.hold_past_back(&mut fitted, at, y).unwrap_or(best);
        fitted.retain(|fit| fit.1 > best - NEGLIGIBLE);
        let total: f64 = fitted.iter().map(|fit| (fit.1 - best).exp()).sum();
        for (view, evidence, posterior) in &fitted {
            let weight = (evidence - best).exp() / total;
            let covariance = &self.covariances[view.covariance];
            let predictions: Vec<(f64, f64)> = (0..self.count)
                .map(|c| {
                    let row = &covariance[c * self.count..(c + 1) * self.count];
                    let cross: Vec<f64> = at.iter().map(|&at| row[at]).collect();
                    let (mean, variance) = posterior.predict(&cross, row[c]);
                    (mean + view.strength * self.profiles[view.profile][c], variance.sqrt())
                })
                .collect();
            for (c, &(mean, sd)) in predictions.iter().enumerate() {
                means[c] += weight * mean;
                squares[c] += weight * (mean * mean + sd * sd);
                wider[c] += weight * (mean * mean + (sd * posterior.widening()).powi(2));
            }
            members.push((weight, predictions));
        }
        let roots = |squares: &[f64]| -> Vec<f64> {
            means.iter().zip(squares).map(|(m, s)| (s - m * m).max(0.0).sqrt()).collect()
        };
        let (sds, spreads) = (roots(&squares), roots(&wider));
        Expectation { members, means, sds, spreads }
    }
}

/// A view, the logarithm of its weight, and what it makes of the job's own runs.
type Fitted<'a> = (&'a View, f64, Posterior);

/// What the views expect of every configuration.
#[derive(Debug)]
pub(crate) struct Expectation {
    /// Weight, then mean and standard deviation per configuration.
    pub(crate) members: Vec<(f64, Vec<(f64, f64)>)>,
    pub(crate) means: Vec<f64>,
    pub(crate) sds: Vec<f64>,
    /// Standard deviations as people are told them: they contain that the scale, too, is only estimated.
    pub(crate) spreads: Vec<f64>,
}

/// How far past jobs are believed. Few rarely hold one of the new job's kind, and a profile of few is mostly their own noise: trust
/// grows much faster than their number. Jobs that do not foretell each other will not foretell another one.
fn trust(history: &History, half: f64) -> f64 {
    let number = (history.jobs.len() as f64 / half).powi(8);
    number / (number + 1.0) * (history.agreement() / AGREEMENT).clamp(0.0, 1.0)
}

/// Makes the weights of some views add up to `total`.
fn rescale(views: &mut [View], total: f64) {
    let top = views.iter().map(|view| view.prior).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = views.iter().map(|view| (view.prior - top).exp()).sum();
    for view in views {
        view.prior += total.ln() - top - sum.ln();
    }
}

fn gather(matrix: &[f64], count: usize, at: &[usize]) -> Vec<f64> {
    at.iter().flat_map(|&a| at.iter().map(move |&b| matrix[a * count + b])).collect()
}

/// Profile, covariance of deviations (per unit of scale) and scale of some past jobs. Applications
/// weigh the same, however many jobs each has.
fn summarise(jobs: &[&PastJob], count: usize) -> Past {
    let nothing = Past {
        profile: vec![0.0; count],
        covariance: vec![0.0; count * count],
        scale: PLAIN_SCALE,
    };
    if jobs.is_empty() {
        return nothing;
    }
    let mut sizes: BTreeMap<&str, f64> = BTreeMap::new();
    for job in jobs {
        *sizes.entry(&job.application).or_default() += 1.0;
    }
    let applications = sizes.len() as f64;
    let weights: Vec<f64> =
        jobs.iter().map(|job| 1.0 / (sizes[job.application.as_str()] * applications)).collect();
    // Two rounds: levels from the values alone, then from what the profile leaves.
    let mut profile = vec![0.0; count];
    let mut levels = vec![0.0; jobs.len()];
    for _ in 0..4 {
        for (level, job) in levels.iter_mut().zip(jobs) {
            let (mut sum, mut n) = (0.0, 0.0);
            for (value, shared) in job.values.iter().zip(&profile) {
                if let Some(value) = value {
                    sum += value - shared;
                    n += 1.0;
                }
            }
            *level = sum / n;
        }
        for (c, shared) in profile.iter_mut().enumerate() {
            let (mut sum, mut n) = (0.0, 0.0);
            for ((job, level), weight) in jobs.iter().zip(&levels).zip(&weights) {
                if let Some(value) = job.values[c] {
                    sum += weight * (value - level);
                    n += weight;
                }
            }
            *shared = if n > 0.0 { sum / n } else { 0.0 };
        }
    }
    let mut covariance = vec![0.0; count * count];
    for ((job, level), weight) in jobs.iter().zip(&levels).zip(&weights) {
        // A configuration the job did not complete on shows no deviation: nothing is made up.
        let rest: Vec<f64> = (0..count)
            .map(|c| job.values[c].map_or(0.0, |value| value - level - profile[c]))
            .collect();
        for a in 0..count {
            for b in 0..count {
                covariance[a * count + b] += weight * rest[a] * rest[b];
            }
        }
    }
    let scale = (0..count).map(|c| covariance[c * count + c]).sum::<f64>() / count as f64;
    if scale < 1e-9 {
        return Past { profile, ..nothing };
    }
    covariance.iter_mut().for_each(|value| *value /= scale);
    Past { profile, covariance, scale }
}

/// `share` of what past jobs showed, the rest closeness of the machines.
fn mix(past: &Past, kernels: &Kernels, kernel: usize, share: f64) -> Vec<f64> {
    let count = past.profile.len();
    (0..count * count)
        .map(|at| {
            let near = kernels.correlation(kernel, at / count, at % count);
            share * past.covariance[at] + (1.0 - share) * near
        })
        .collect()
}
