//! Exact Gaussian processes over a few dozen observations.
//!
//! Two layers. [`Posterior`] conditions one process with given correlations on noisy observations; the
//! constant mean and the overall scale are integrated out in closed form. [`Kernels`] holds an
//! evenly spread set of Matérn 5/2 hyper-parameters; predictions average over all of them,
//! weighted by how well each explains the data. With fewer than ten runs that average matters more
//! than any single best fit.

use paceline_stats::linear::{Cholesky, dot};
use paceline_stats::random::{EvenPoints, Random};

/// What is believed of the squared scale before any observation: inverse gamma.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScalePrior {
    /// Half the number of observations the belief is worth.
    pub(crate) shape: f64,
    /// `shape` times the typical squared scale.
    pub(crate) scale: f64,
}

/// One process, conditioned.
#[derive(Debug, Clone)]
pub(crate) struct Posterior {
    factor: Cholesky,
    /// `R⁻¹ (y - trend)`.
    weights: Vec<f64>,
    /// `L⁻¹ 1`.
    ones: Vec<f64>,
    /// `1ᵀ R⁻¹ 1` plus the prior's own information on the trend.
    information: f64,
    trend: f64,
    /// Posterior mean of the squared scale.
    variance: f64,
    /// Half the degrees of freedom that the scale is known with.
    shape: f64,
    log_evidence: f64,
}

impl Posterior {
    /// Conditions on `y`. `correlation` is the n x n prior covariance up to the scale, `noise` the
    /// variances of the observations in the same unit. The trend is flat: nothing is known of it.
    pub(crate) fn condition(
        mut correlation: Vec<f64>,
        noise: &[f64],
        y: &[f64],
        prior: ScalePrior,
    ) -> Option<Self> {
        let n = y.len();
        for at in 0..n {
            correlation[at * n + at] += noise[at];
        }
        let factor = Cholesky::new(correlation, n)?;
        let mut ones = vec![1.0; n];
        factor.forward(&mut ones);
        let information = dot(&ones, &ones);
        let mut whitened = y.to_vec();
        factor.forward(&mut whitened);
        let trend = dot(&ones, &whitened) / information;
        let mut weights: Vec<f64> =
            whitened.iter().zip(&ones).map(|(y, one)| y - trend * one).collect();
        let squares = dot(&weights, &weights);
        factor.backward(&mut weights);
        // The trend has taken one degree of freedom.
        let shape = prior.shape + (n as f64 - 1.0) / 2.0;
        let scale = prior.scale + squares / 2.0;
        // The prior's own part, so that processes with different beliefs of the scale can be compared.
        let log_evidence = prior.shape * prior.scale.ln()
            - 0.5 * factor.log_determinant()
            - 0.5 * information.ln()
            - shape * scale.ln();
        let variance = scale / shape;
        Some(Self { factor, weights, ones, information, trend, variance, shape, log_evidence })
    }

    /// Mean and variance at a point whose prior covariance with the observed ones is `cross` and
    /// with itself `own`; the noise of a further observation is not included.
    pub(crate) fn predict(&self, cross: &[f64], own: f64) -> (f64, f64) {
        let mean = self.trend + dot(cross, &self.weights);
        let mut solved = cross.to_vec();
        self.factor.forward(&mut solved);
        let unexplained = 1.0 - dot(&self.ones, &solved);
        let share = own - dot(&solved, &solved) + unexplained * unexplained / self.information;
        (mean, self.variance * share.max(0.0))
    }

    /// How much wider a prediction is than its standard deviation says, because the scale too is only estimated: the root of a
    /// Student variable's variance.
    pub(crate) fn widening(&self) -> f64 {
        (self.shape / (self.shape - 1.0)).sqrt()
    }

    /// Logarithm of the marginal likelihood, up to a constant shared by all priors of one shape.
    pub(crate) fn log_evidence(&self) -> f64 {
        self.log_evidence
    }
}

/// Matérn 5/2 at distance `r` in units of the length scale.
pub(crate) fn matern(r: f64) -> f64 {
    let s = 5f64.sqrt() * r;
    (1.0 + s + s * s / 3.0) * (-s).exp()
}

/// One set of hyper-parameters.
#[derive(Debug, Clone)]
struct Hyper {
    inverse_lengths: Vec<f64>,
    /// Noise variance as a share of the signal's.
    noise: f64,
}

/// Matérn 5/2 kernels with a length scale for each feature, over fixed points.
#[derive(Debug)]
pub(crate) struct Kernels {
    points: Vec<Vec<f64>>,
    hypers: Vec<Hyper>,
    /// Correlations of all points, per hyper-parameter set; empty if that would be too large.
    cached: Vec<Vec<f64>>,
    scale: ScalePrior,
}

/// What is believed of a kernel's hyper-parameters before any observation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beliefs {
    /// Length scales in the unit cube between these two.
    pub(crate) lengths: (f64, f64),
    /// Whether their logarithm is spread evenly, or they are.
    pub(crate) logarithmic: bool,
    /// Of the squared scale.
    pub(crate) scale: ScalePrior,
}

/// Our own. Length scales: below the first, neighbours tell nothing of each other; above the second, the
/// feature hardly matters.
const BELIEFS: Beliefs = Beliefs { lengths: (0.1, 3.0), logarithmic: true, scale: SCALE };
/// Noise share, log-uniform.
const NOISES: (f64, f64) = (1e-4, 0.3);
/// Numbers held in the cache at most (128 MiB).
const CACHE: usize = 1 << 24;
/// Hyper-parameters with less than this share of the best one's weight are not worth their time.
const NEGLIGIBLE: f64 = 0.01;
/// ln cost within a catalogue varies by about a factor of 1.6 each way; worth four observations.
const SCALE: ScalePrior = ScalePrior { shape: 2.0, scale: 2.0 * 0.25 };

impl Kernels {
    /// Kernels over `points` with `count` sets of hyper-parameters; the seed shifts them all.
    pub(crate) fn new(points: Vec<Vec<f64>>, count: usize, seed: u64) -> Self {
        Self::believing(points, count, seed, BELIEFS)
    }

    /// The same under other beliefs.
    pub(crate) fn believing(
        points: Vec<Vec<f64>>,
        count: usize,
        seed: u64,
        beliefs: Beliefs,
    ) -> Self {
        let dimensions = points.first().map_or(0, Vec::len);
        let mut random = Random::new(seed, 0x69);
        let shift = (0..=dimensions).map(|_| random.uniform()).collect();
        let spread = |share: f64, (low, high): (f64, f64)| low * (high / low).powf(share);
        let length = |share: f64| {
            let (low, high) = beliefs.lengths;
            if beliefs.logarithmic {
                spread(share, beliefs.lengths)
            } else {
                low + (high - low) * share
            }
        };
        let hypers: Vec<Hyper> = EvenPoints::new(shift)
            .take(count)
            .map(|shares| Hyper {
                inverse_lengths: shares[1..].iter().map(|&share| 1.0 / length(share)).collect(),
                noise: spread(shares[0], NOISES),
            })
            .collect();
        let scale = beliefs.scale;
        let mut kernels = Self { points, hypers, cached: Vec::new(), scale };
        let n = kernels.points.len();
        if n * n * count <= CACHE {
            kernels.cached = (0..count)
                .map(|hyper| {
                    let pair = |at: usize| kernels.compute(hyper, at / n, at % n);
                    (0..n * n).map(pair).collect()
                })
                .collect();
        }
        kernels
    }

    /// How many sets of hyper-parameters there are.
    pub(crate) fn len(&self) -> usize {
        self.hypers.len()
    }

    fn compute(&self, hyper: usize, a: usize, b: usize) -> f64 {
        let squares: f64 = self.hypers[hyper]
            .inverse_lengths
            .iter()
            .zip(self.points[a].iter().zip(&self.points[b]))
            .map(|(inverse, (a, b))| ((a - b) * inverse).powi(2))
            .sum();
        matern(squares.sqrt())
    }

    /// Noise of an ordinary observation under a set of hyper-parameters, as a share of the signal.
    pub(crate) fn noise(&self, hyper: usize) -> f64 {
        self.hypers[hyper].noise
    }

    /// Correlation of two points under a set of hyper-parameters.
    pub(crate) fn correlation(&self, hyper: usize, a: usize, b: usize) -> f64 {
        match self.cached.get(hyper) {
            Some(all) => all[a * self.points.len() + b],
            None => self.compute(hyper, a, b),
        }
    }

    /// Conditions every kernel on observations `y` at points `at`; `noisier` multiplies the noise of
    /// each observation (1 for an ordinary one).
    pub(crate) fn fit(&self, at: &[usize], y: &[f64], noisier: &[f64]) -> Mixture<'_> {
        let n = at.len();
        let mut members: Vec<Member> = (0..self.hypers.len())
            .filter_map(|hyper| {
                let mut matrix = Vec::with_capacity(n * n);
                for &a in at {
                    matrix.extend(at.iter().map(|&b| self.correlation(hyper, a, b)));
                }
                let noise: Vec<f64> =
                    noisier.iter().map(|factor| self.hypers[hyper].noise * factor).collect();
                let posterior = Posterior::condition(matrix, &noise, y, self.scale)?;
                Some(Member { hyper, weight: posterior.log_evidence(), posterior })
            })
            .collect();
        let best = members.iter().map(|member| member.weight).fold(f64::NEG_INFINITY, f64::max);
        for member in &mut members {
            member.weight = (member.weight - best).exp();
        }
        members.retain(|member| member.weight >= NEGLIGIBLE);
        let total: f64 = members.iter().map(|member| member.weight).sum();
        for member in &mut members {
            member.weight /= total;
        }
        Mixture { kernels: self, at: at.to_vec(), members }
    }
}

#[derive(Debug)]
struct Member {
    hyper: usize,
    weight: f64,
    posterior: Posterior,
}

/// Several conditioned processes, weighted by their evidence.
#[derive(Debug)]
pub(crate) struct Mixture<'a> {
    kernels: &'a Kernels,
    at: Vec<usize>,
    members: Vec<Member>,
}

impl Mixture<'_> {
    /// `(weight, mean, sd)` of each process at a point; the weights add up to one.
    pub(crate) fn predict(&self, point: usize) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        self.members.iter().map(move |member| {
            let cross: Vec<f64> = self
                .at
                .iter()
                .map(|&at| self.kernels.correlation(member.hyper, at, point))
                .collect();
            let (mean, variance) = member.posterior.predict(&cross, 1.0);
            (member.weight, mean, variance.sqrt())
        })
    }

    /// Mean and standard deviation of the whole mixture at a point.
    pub(crate) fn moments(&self, point: usize) -> (f64, f64) {
        let (mut mean, mut square) = (0.0, 0.0);
        for (weight, m, sd) in self.predict(point) {
            mean += weight * m;
            square += weight * (m * m + sd * sd);
        }
        (mean, (square - mean * mean).max(0.0).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIOR: ScalePrior = ScalePrior { shape: 2.0, scale: 1.0 };

    #[test]
    fn one_observation_matches_the_closed_form() {
        // R = 1 + g; the trend is the observation itself, and no residual is left.
        let (g, r, y) = (0.1, 0.6, 1.7);
        let posterior = Posterior::condition(vec![1.0], &[g], &[y], PRIOR).unwrap();
        let (mean, variance) = posterior.predict(&[r], 1.0);
        let scale = PRIOR.scale / PRIOR.shape;
        let wanted = scale * (1.0 - r * r / (1.0 + g) + (1.0 - r / (1.0 + g)).powi(2) * (1.0 + g));
        assert!((mean - y).abs() < 1e-12);
        assert!((variance - wanted).abs() < 1e-12);
    }

    /// Predictions of costs held 86 % of what was recorded in intervals of 90 %: their scale was taken for known.
    #[test]
    fn a_scale_that_few_runs_told_makes_predictions_wider() {
        let widening = |n: usize| {
            let mut unit = vec![0.0; n * n];
            (0..n).for_each(|at| unit[at * n + at] = 1.0);
            Posterior::condition(unit, &vec![0.1; n], &vec![1.0; n], PRIOR).unwrap().widening()
        };
        // A Student variable with 2a degrees of freedom has a variance of a / (a - 1).
        assert!((widening(1) - 2f64.sqrt()).abs() < 1e-12);
        assert!((widening(21) - (12f64 / 11.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn two_observations_match_the_closed_form() {
        // With equal noise the trend is the plain average, and the residuals are ± half the gap.
        let (g, rho, y) = (0.2, 0.5, [1.0, 3.0]);
        let correlation = vec![1.0, rho, rho, 1.0];
        let posterior = Posterior::condition(correlation, &[g, g], &y, PRIOR).unwrap();
        let cross = [0.9, 0.4];
        let (mean, variance) = posterior.predict(&cross, 1.0);
        // R⁻¹ (−1, 1) = (−1, 1) / (1 + g − ρ);  R⁻¹ 1 = 1 / (1 + g + ρ).
        let wanted_mean = 2.0 + (cross[1] - cross[0]) / (1.0 + g - rho);
        assert!((mean - wanted_mean).abs() < 1e-12);
        let squares = 2.0 / (1.0 + g - rho);
        let scale = (PRIOR.scale + squares / 2.0) / (PRIOR.shape + 0.5);
        let (sum, gap) = (cross[0] + cross[1], cross[0] - cross[1]);
        let explained = sum * sum / (2.0 * (1.0 + g + rho)) + gap * gap / (2.0 * (1.0 + g - rho));
        let information = 2.0 / (1.0 + g + rho);
        let unexplained = 1.0 - sum / (1.0 + g + rho);
        let wanted = scale * (1.0 - explained + unexplained * unexplained / information);
        assert!((variance - wanted).abs() < 1e-12);
    }

    #[test]
    fn three_observations_match_an_inverse_written_out() {
        let (a, b, c) = (0.7, 0.3, 0.5);
        let noise = [0.1, 0.2, 0.3];
        let r = [[1.0 + noise[0], a, b], [a, 1.0 + noise[1], c], [b, c, 1.0 + noise[2]]];
        let minor = |i: usize, j: usize| {
            let rows: Vec<usize> = (0..3).filter(|&k| k != i).collect();
            let columns: Vec<usize> = (0..3).filter(|&k| k != j).collect();
            let sign = if (i + j).is_multiple_of(2) { 1.0 } else { -1.0 };
            sign * (r[rows[0]][columns[0]] * r[rows[1]][columns[1]]
                - r[rows[0]][columns[1]] * r[rows[1]][columns[0]])
        };
        let determinant: f64 = (0..3).map(|j| r[0][j] * minor(0, j)).sum();
        let inverse = |i: usize, j: usize| minor(j, i) / determinant;
        let product = |u: [f64; 3], v: [f64; 3]| -> f64 {
            (0..9).map(|at| u[at / 3] * inverse(at / 3, at % 3) * v[at % 3]).sum()
        };
        let (y, cross, one) = ([0.4, -0.3, 1.1], [0.8, 0.5, 0.2], [1.0; 3]);
        let trend = product(one, y) / product(one, one);
        let rest = y.map(|y| y - trend);
        let wanted_mean = trend + product(cross, rest);
        let scale = (PRIOR.scale + product(rest, rest) / 2.0) / (PRIOR.shape + 1.0);
        let gap = 1.0 - product(one, cross);
        let wanted = scale * (1.0 - product(cross, cross) + gap * gap / product(one, one));
        let correlation = vec![1.0, a, b, a, 1.0, c, b, c, 1.0];
        let posterior = Posterior::condition(correlation, &noise, &y, PRIOR).unwrap();
        let (mean, variance) = posterior.predict(&cross, 1.0);
        assert!((mean - wanted_mean).abs() < 1e-12, "{mean} {wanted_mean}");
        assert!((variance - wanted).abs() < 1e-12, "{variance} {wanted}");
        let log_evidence = -0.5 * determinant.ln()
            - 0.5 * product(one, one).ln()
            - (PRIOR.shape + 1.0) * (PRIOR.scale + product(rest, rest) / 2.0).ln();
        assert!((posterior.log_evidence() - log_evidence).abs() < 1e-12);
    }

    /// A posterior that another program computed.
    #[derive(serde::Deserialize)]
    struct Case {
        lengths: Vec<f64>,
        points: Vec<Vec<f64>>,
        values: Vec<f64>,
        noise: Vec<f64>,
        asked: Vec<Vec<f64>>,
        mean: Vec<f64>,
        variance: Vec<f64>,
    }

    /// Compares all cases of a file: means to a share of `off`, variances in units of the scale to `wide`.
    #[track_caller]
    fn reproduces(text: &str, correlate: fn(&[f64]) -> f64, [off, wide]: [f64; 2]) {
        let cases: Vec<Case> = serde_json::from_str(text).unwrap();
        assert_eq!(cases.len(), 3);
        for case in cases {
            let near = |a: &[f64], b: &[f64]| {
                let parts = a.iter().zip(b).zip(&case.lengths);
                correlate(&parts.map(|((a, b), l)| (a - b) / l).collect::<Vec<f64>>())
            };
            let points = &case.points;
            let correlation: Vec<f64> =
                points.iter().flat_map(|a| points.iter().map(move |b| near(a, b))).collect();
            let posterior =
                Posterior::condition(correlation, &case.noise, &case.values, PRIOR).unwrap();
            for (at, (mean, variance)) in
                case.asked.iter().zip(case.mean.iter().zip(&case.variance))
            {
                let cross: Vec<f64> = points.iter().map(|point| near(point, at)).collect();
                let found = posterior.predict(&cross, 1.0);
                assert!((found.0 - mean).abs() < off * mean.abs(), "{} {mean}", found.0);
                // Theirs has another scale, ours is learned with a prior: compare what is left of it.
                let share = found.1 / posterior.variance;
                assert!((share - variance).abs() < wide, "{share} {variance}");
            }
        }
    }

    /// Up to 30 points in three dimensions against scikit-learn (`testdata/gp_reference.py`).
    #[test]
    fn posterior_matches_scikit_learn() {
        let together = |gaps: &[f64]| matern(gaps.iter().map(|gap| gap * gap).sum::<f64>().sqrt());
        reproduces(include_str!("../testdata/gp_reference.json"), together, [2e-6, 2e-5]);
    }

    /// The same against egobox-gp (`testdata/egobox`), whose kernel is a product over dimensions.
    #[test]
    fn posterior_matches_egobox() {
        let product = |gaps: &[f64]| gaps.iter().map(|gap| matern(gap.abs())).product();
        reproduces(include_str!("../testdata/gp_egobox.json"), product, [1e-9, 1e-9]);
    }

    #[test]
    fn matern_starts_at_one_and_matches_a_known_value() {
        assert_eq!(matern(0.0), 1.0);
        // (1 + √5 + 5/3) e^−√5
        assert!((matern(1.0) - 0.523_994_108_831_820_4).abs() < 1e-12);
    }

    #[test]
    fn smooth_function_is_recovered_between_observations() {
        let points: Vec<Vec<f64>> = (0..21).map(|at| vec![f64::from(at) / 20.0]).collect();
        let truth = |at: usize| (3.0 * points[at][0]).sin();
        let kernels = Kernels::new(points.clone(), 64, 0);
        let at: Vec<usize> = (0..21).step_by(4).collect();
        let y: Vec<f64> = at.iter().map(|&at| truth(at)).collect();
        let mixture = kernels.fit(&at, &y, &vec![1.0; at.len()]);
        for point in 0..21 {
            let (mean, sd) = mixture.moments(point);
            assert!((mean - truth(point)).abs() < 0.05, "{point}: {mean} {}", truth(point));
            assert!(sd < 0.3);
        }
    }

    #[test]
    fn equal_observations_do_not_break_the_fit() {
        let kernels = Kernels::new(vec![vec![0.0], vec![0.5], vec![1.0]], 16, 0);
        let mixture = kernels.fit(&[0, 1, 1], &[2.0, 2.0, 2.0], &[1.0; 3]);
        let (mean, sd) = mixture.moments(2);
        assert!((mean - 2.0).abs() < 1e-9 && sd.is_finite());
    }
}
