//! A whole experiment: groups of measurements over a grid of parameters, analysed the same way each.
//!
//! For every group and parameter a line with its words and doubts, for every group one multiple regression on all parameters,
//! and between groups the ratio over settings that both measured. The reading speed test is such an experiment with the groups
//! "image files" and "records"; a sweep of training runs is another.

use serde::{Deserialize, Serialize};

use crate::compare::{Ratio, ratio, ratio_within_settings};
use crate::describe::{Level, Summary, levels, median, summary};
use crate::doubt::{Doubt, WordedDoubt};
use crate::estimate::{Estimate, Interval, NotEstimable};
use crate::line::{LackOfFit, LineFit, fit_line, lack_of_fit};
use crate::multiple::{MultipleFit, Predictor, fit_multiple};
use crate::repeats::{FEWEST, Scale};
use crate::words::{self, Evidence, Wording};

/// Measurements below which any regression deserves a doubt.
const ADVISED_POINTS: usize = 12;
/// p-value below which a bend or a drift is worth a doubt; stricter than for slopes, as every line is checked for both.
const DOUBT_BELOW: f64 = 0.01;

/// A parameter of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Machine name, as "batch_size".
    pub key: String,
    /// Name in sentences, as "batch size".
    pub name: String,
    /// One step of it in sentences, as "each further image per batch".
    pub step: String,
    /// Whether it tells settings apart. A repetition number does not: repeats of one setting are what noise is judged by.
    pub setting: bool,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// A value for each parameter.
    pub values: Vec<f64>,
    /// What was measured.
    pub response: f64,
    /// Place in the order of measuring, over all groups.
    pub order: u64,
}

/// Measurements of one thing, to be compared with other groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its name in sentences, as "records".
    pub name: String,
    pub observations: Vec<Observation>,
}

/// What was measured, over which parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// What a faster group is said to do, as "are read": "records are read 1.4 times as fast as image files".
    pub verb: String,
    /// Unit of the response, as "images/s".
    pub unit: String,
    pub parameters: Vec<Parameter>,
    pub groups: Vec<Group>,
}

/// All that can be said about an [`Experiment`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Unit of the response.
    pub unit: String,
    pub parameters: Vec<Parameter>,
    /// One entry per group.
    pub groups: Vec<GroupFindings>,
    /// Ratios of later groups to the first.
    pub ratios: Vec<RatioFinding>,
    /// Doubts about the experiment as a whole.
    pub doubts: Vec<WordedDoubt>,
}

/// What can be said about one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupFindings {
    pub name: String,
    /// All its measurements in a few numbers.
    pub summary: Estimate<Summary>,
    /// One entry per parameter.
    pub parameters: Vec<ParameterFinding>,
    /// The regression on all parameters at once.
    pub multiple: Estimate<MultipleFit>,
    /// That regression in words: the whole, then each term.
    pub multiple_words: Vec<String>,
    /// Doubts about the group.
    pub doubts: Vec<WordedDoubt>,
}

/// What can be said about one parameter in one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParameterFinding {
    /// The parameter's machine name.
    pub parameter: String,
    pub line: Estimate<LineFit>,
    /// Averages per value.
    pub levels: Vec<Level>,
    /// Test of the straight line against those averages.
    pub lack_of_fit: Estimate<LackOfFit>,
    /// Strength of the evidence for a slope.
    pub evidence: Option<Evidence>,
    /// The finding in a sentence.
    pub words: String,
    pub doubts: Vec<WordedDoubt>,
}

/// How two groups compare over the settings they share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RatioFinding {
    /// The group above the line.
    pub first: String,
    /// The group below it.
    pub second: String,
    /// Geometric mean over shared settings; the interval is from the repeats within settings.
    pub ratio: Estimate<Ratio>,
    pub settings: Vec<SettingRatio>,
    /// The finding in a sentence.
    pub words: String,
}

/// How two groups compare in one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingRatio {
    /// Values of the parameters that tell settings apart, in their order.
    pub values: Vec<f64>,
    /// Ratio of the geometric means over the repeats.
    pub value: f64,
    /// Its 95 % interval, where both were measured three times or more.
    pub interval: Estimate<Interval>,
    /// Measurements of the first and of the second group.
    pub n: (usize, usize),
}

/// Analyses an experiment. Never fails: what cannot be estimated says so in its place.
pub fn analyse(experiment: &Experiment) -> Findings {
    let groups: Vec<GroupFindings> =
        experiment.groups.iter().map(|group| analyse_group(experiment, group)).collect();
    let ratios = experiment.groups.split_first().map_or_else(Vec::new, |(base, others)| {
        others.iter().map(|group| compare(experiment, group, base)).collect()
    });
    let doubts = many_tests(&groups).into_iter().map(WordedDoubt::from).collect();
    Findings {
        unit: experiment.unit.clone(),
        parameters: experiment.parameters.clone(),
        groups,
        ratios,
        doubts,
    }
}

fn analyse_group(experiment: &Experiment, group: &Group) -> GroupFindings {
    let responses: Vec<f64> =
        group.observations.iter().map(|observation| observation.response).collect();
    let columns: Vec<Vec<f64>> = (0..experiment.parameters.len())
        .map(|index| {
            group.observations.iter().map(|observation| observation.values[index]).collect()
        })
        .collect();
    let parameters = (0..columns.len())
        .map(|index| analyse_parameter(experiment, &columns, index, &responses))
        .collect();

    let predictors: Vec<Predictor<'_>> = experiment
        .parameters
        .iter()
        .zip(&columns)
        .map(|(parameter, values)| Predictor { name: &parameter.name, values })
        .collect();
    let multiple = fit_multiple(&responses, &predictors);
    let multiple_words = match &multiple {
        Ok(fit) => std::iter::once(words::multiple(fit, &experiment.unit))
            .chain(
                fit.terms
                    .iter()
                    .zip(&experiment.parameters)
                    .map(|(term, parameter)| words::term(term, wording(experiment, parameter))),
            )
            .collect(),
        Err(reason) => vec![words::not_estimable("all parameters together", reason)],
    };
    let doubts = group_doubts(experiment, group, multiple.as_ref().ok());
    GroupFindings {
        name: group.name.clone(),
        summary: summary(&responses).into(),
        parameters,
        multiple: multiple.into(),
        multiple_words,
        doubts: doubts.into_iter().map(WordedDoubt::from).collect(),
    }
}

fn wording<'a>(experiment: &'a Experiment, parameter: &'a Parameter) -> Wording<'a> {
    Wording { parameter: &parameter.name, step: &parameter.step, unit: &experiment.unit }
}

fn analyse_parameter(
    experiment: &Experiment,
    columns: &[Vec<f64>],
    index: usize,
    responses: &[f64],
) -> ParameterFinding {
    let parameter = &experiment.parameters[index];
    let points: Vec<(f64, f64)> =
        columns[index].iter().copied().zip(responses.iter().copied()).collect();
    let line = fit_line(&points);
    // The response is a speed.
    let levels = levels(&points, Scale::Logarithmic).unwrap_or_default();
    let lack = lack_of_fit(&points);
    let mut doubts = confounding(experiment, columns, index);
    if let Ok(fit) = &line {
        // Averages per value of a confounded parameter mix settings of the others, so their bends mean nothing.
        let lack = lack.as_ref().ok().filter(|_| doubts.is_empty());
        doubts.extend(line_doubts(parameter, fit, levels.len(), lack));
    }
    ParameterFinding {
        parameter: parameter.key.clone(),
        words: match &line {
            Ok(fit) => words::line(fit, wording(experiment, parameter)),
            Err(reason) => words::not_estimable(&parameter.name, reason),
        },
        evidence: line.as_ref().ok().map(|fit| Evidence::of(fit.p)),
        line: line.into(),
        levels,
        lack_of_fit: lack.into(),
        doubts: doubts.into_iter().map(WordedDoubt::from).collect(),
    }
}

fn line_doubts(
    parameter: &Parameter,
    fit: &LineFit,
    values: usize,
    lack: Option<&LackOfFit>,
) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if fit.n < ADVISED_POINTS {
        doubts.push(Doubt::TooFewPoints { found: fit.n, advised: ADVISED_POINTS });
    }
    if values == 2 {
        doubts.push(Doubt::TwoValues { parameter: parameter.name.clone() });
    }
    if fit.residual_standard_error > fit.effect().abs() {
        doubts.push(Doubt::NoiseExceedsEffect {
            noise: fit.residual_standard_error,
            effect: fit.effect(),
        });
    }
    if let Some(lack) = lack.filter(|lack| lack.p < DOUBT_BELOW) {
        doubts.push(Doubt::Bent { p: lack.p });
    }
    doubts
}

/// Whether a parameter is a product of two others, or moves with one of them.
fn confounding(experiment: &Experiment, columns: &[Vec<f64>], index: usize) -> Vec<Doubt> {
    let varies = |column: &[f64]| column.iter().any(|value| *value != column[0]);
    let name = |index: usize| experiment.parameters[index].name.clone();
    let own = &columns[index];
    if !varies(own) {
        return Vec::new();
    }
    let others: Vec<usize> = (0..columns.len()).filter(|&other| other != index).collect();
    for (place, &a) in others.iter().enumerate() {
        for &b in &others[place + 1..] {
            let product =
                own.iter().zip(&columns[a]).zip(&columns[b]).all(|((own, a), b)| *own == a * b);
            if product && (varies(&columns[a]) || varies(&columns[b])) {
                return vec![Doubt::Product { parameter: name(index), of: vec![name(a), name(b)] }];
            }
        }
    }
    let strongest = others
        .iter()
        .filter_map(|&other| {
            let pairs: Vec<(f64, f64)> =
                own.iter().copied().zip(columns[other].iter().copied()).collect();
            fit_line(&pairs).ok().map(|fit| (other, fit.r))
        })
        .filter(|(_, r)| r.abs() > 0.9)
        .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    strongest
        .map(|(other, r)| Doubt::Correlated { parameter: name(index), with: name(other), r })
        .into_iter()
        .collect()
}

fn group_doubts(
    experiment: &Experiment,
    group: &Group,
    multiple: Option<&MultipleFit>,
) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let cells = cells(experiment, group);
    if let Some(fewest) =
        cells.iter().map(|cell| cell.measurements.len()).min().filter(|&fewest| fewest < FEWEST)
    {
        doubts.push(Doubt::FewRepeats { found: fewest, advised: FEWEST });
    }
    // Relative to the setting's median, as noise of a rate grows with the rate.
    let relative: Vec<(f64, f64)> = cells
        .iter()
        .filter(|cell| cell.measurements.len() > 1 && cell.median > 0.0)
        .flat_map(|cell| {
            cell.measurements
                .iter()
                .map(|&(order, response)| (order as f64, response / cell.median))
        })
        .collect();
    doubts.extend(outliers(&relative));
    if let Ok(drift) = fit_line(&relative)
        && drift.p < DOUBT_BELOW
        && drift.effect().abs() > 0.02
    {
        doubts.push(Doubt::Drift { change: drift.effect(), p: drift.p });
    }
    if let Some(Collinear { condition_number, largest_inflation }) =
        multiple.and_then(Collinear::of)
    {
        doubts.push(Doubt::Collinear { condition_number, largest_inflation });
    }
    doubts
}

struct Collinear {
    condition_number: f64,
    largest_inflation: f64,
}

impl Collinear {
    fn of(fit: &MultipleFit) -> Option<Collinear> {
        let found = &fit.collinearity;
        (found.condition_number > 30.0 || found.largest_inflation > 10.0).then_some(Collinear {
            condition_number: found.condition_number,
            largest_inflation: found.largest_inflation,
        })
    }
}

/// Measurements more than eight robust standard deviations (and 20 %) off their setting's median.
fn outliers(relative: &[(f64, f64)]) -> Option<Doubt> {
    let away: Vec<f64> = relative.iter().map(|(_, ratio)| (ratio - 1.0).abs()).collect();
    // Half of the measurements of a small setting sit near its median, so the spread is taken over those that do not.
    let beyond: Vec<f64> = away.iter().copied().filter(|&distance| distance > 0.0).collect();
    let limit = (8.0 * 1.4826 * median(&beyond)).max(0.2);
    let far: Vec<f64> = relative
        .iter()
        .map(|(_, ratio)| *ratio)
        .filter(|ratio| (ratio - 1.0).abs() > limit)
        .collect();
    let worst = far.iter().copied().max_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()))?;
    Some(Doubt::Outliers { count: far.len(), of: relative.len(), worst })
}

/// One setting with its repeats.
struct Cell {
    key: Vec<f64>,
    measurements: Vec<(u64, f64)>,
    median: f64,
}

impl Cell {
    fn responses(&self) -> Vec<f64> {
        self.measurements.iter().map(|(_, response)| *response).collect()
    }
}

fn cells(experiment: &Experiment, group: &Group) -> Vec<Cell> {
    let setting = |observation: &Observation| -> Vec<f64> {
        observation
            .values
            .iter()
            .zip(&experiment.parameters)
            .filter(|(_, p)| p.setting)
            .map(|(value, _)| *value)
            .collect()
    };
    let mut keyed: Vec<(Vec<f64>, &Observation)> =
        group.observations.iter().map(|observation| (setting(observation), observation)).collect();
    keyed.sort_by(|a, b| {
        a.0.iter()
            .zip(&b.0)
            .map(|(x, y)| x.total_cmp(y))
            .find(|order| order.is_ne())
            .unwrap_or(a.1.order.cmp(&b.1.order))
    });
    keyed
        .chunk_by(|a, b| a.0 == b.0)
        .map(|chunk| {
            let responses: Vec<f64> =
                chunk.iter().map(|(_, observation)| observation.response).collect();
            Cell {
                key: chunk[0].0.clone(),
                measurements: chunk
                    .iter()
                    .map(|(_, observation)| (observation.order, observation.response))
                    .collect(),
                median: median(&responses),
            }
        })
        .collect()
}

fn compare(experiment: &Experiment, group: &Group, base: &Group) -> RatioFinding {
    let base_cells = cells(experiment, base);
    let shared: Vec<(Vec<f64>, Vec<f64>, Vec<f64>)> = cells(experiment, group)
        .into_iter()
        .filter_map(|cell| {
            let other = base_cells.iter().find(|other| other.key == cell.key)?;
            let (first, second) = (cell.responses(), other.responses());
            Some((cell.key, first, second))
        })
        .collect();
    let settings: Vec<SettingRatio> =
        shared.iter().filter_map(|(key, first, second)| in_setting(key, first, second)).collect();
    let repeats: Vec<(Vec<f64>, Vec<f64>)> =
        shared.into_iter().map(|(_, first, second)| (first, second)).collect();
    let ratio = ratio_within_settings(&repeats);
    let words = ratio_words(experiment, group, base, &ratio, &settings);
    RatioFinding {
        first: group.name.clone(),
        second: base.name.clone(),
        ratio: ratio.into(),
        settings,
        words,
    }
}

/// The ratio in one setting; nothing where a measurement is not a positive number.
fn in_setting(key: &[f64], first: &[f64], second: &[f64]) -> Option<SettingRatio> {
    let mean_log =
        |set: &[f64]| set.iter().map(|value| value.ln()).sum::<f64>() / set.len().max(1) as f64;
    let value = (mean_log(first) - mean_log(second)).exp();
    let n = (first.len(), second.len());
    let fewest = n.0.min(n.1);
    let interval = if fewest < FEWEST {
        Err(NotEstimable::TooFewPoints { found: fewest, needed: FEWEST })
    } else {
        ratio(first, second).map(|found| found.interval)
    };
    (value.is_finite() && value > 0.0).then(|| SettingRatio {
        values: key.to_vec(),
        value,
        interval: interval.into(),
        n,
    })
}

fn ratio_words(
    experiment: &Experiment,
    group: &Group,
    base: &Group,
    found: &Result<Ratio, NotEstimable>,
    settings: &[SettingRatio],
) -> String {
    let (first, second) = (&group.name, &base.name);
    if settings.is_empty() {
        return format!(
            "{first} and {second} cannot be compared: no setting was measured with both"
        );
    }
    let mean = settings.iter().map(|setting| setting.value.ln()).sum::<f64>();
    let value = (mean / settings.len() as f64).exp();
    let (faster, slower, factor) =
        if value >= 1.0 { (first, second, value) } else { (second, first, 1.0 / value) };
    let mut text = match found {
        Ok(ratio) => words::ratio(ratio, first, second, &experiment.verb),
        Err(reason) => {
            let verb = &experiment.verb;
            let why = match reason {
                NotEstimable::TooFewPoints { .. } => {
                    "measured once in a setting, so that may be chance".to_owned()
                }
                other => other.to_string(),
            };
            format!("{faster} {verb} {} as fast as {slower}; {why}", words::times(factor))
        }
    };
    if settings.len() > 1 {
        let mut ratios: Vec<f64> = settings
            .iter()
            .map(|setting| if value >= 1.0 { setting.value } else { 1.0 / setting.value })
            .collect();
        ratios.sort_by(f64::total_cmp);
        let wins = ratios.iter().filter(|ratio| **ratio > 1.0).count();
        let all = settings.len();
        let count = if wins == all { format!("all {all}") } else { format!("{wins} of {all}") };
        text.push_str(&format!(
            "; {faster} were faster in {count} settings (ratios {} to {})",
            words::number(ratios[0]),
            words::number(ratios[all - 1])
        ));
    }
    text
}

fn many_tests(groups: &[GroupFindings]) -> Option<Doubt> {
    let p_values: Vec<f64> = groups
        .iter()
        .flat_map(|group| &group.parameters)
        .filter_map(|finding| finding.line.known().map(|fit| fit.p))
        .collect();
    let tests = p_values.len();
    let strict = 0.05 / tests.max(1) as f64;
    let borderline = p_values.iter().filter(|&&p| p < 0.05 && p >= strict).count();
    (borderline > 0).then_some(Doubt::ManyTests { tests, borderline })
}
