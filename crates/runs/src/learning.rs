//! Whether a run learns: watched while it trains, said when it ends.
//!
//! A run can finish every step and be worth nothing. Two outcomes have words of their own.
//!
//! **Diverged.** The loss has exploded and does not come back. Loss curves of healthy runs spike: a bad batch, a rate at the
//! edge of what the model bears or the first updates of a warm-up lift the loss to a few times its start, sometimes for
//! dozens of updates, and then it falls again. So no single value ends a run. Losses are averaged over blocks of updates, and a
//! block counts as *exploded* when its mean is more than [`FAR`] times the reference, the larger of the loss of a uniform
//! prediction and the loss of the first update, while its accuracy is no better than naming the most common label. (A linear
//! model at a high rate behaves like a perceptron: a large loss, and useful predictions. From [`HOPELESS`] times the
//! reference on, accuracy does not count.) A run has diverged when exploded blocks follow each other for at least
//! [`LEAST_BLOCKS`] blocks and a quarter of the run before them, but [`MOST_BLOCKS`] at most, and the latest is not below half of
//! the highest of that time: a spike that is on its way down is given more. A run that ends in an exploded block has diverged, however
//! late that began, and so has one that ends with [`HOPELESS`] times the loss of a uniform prediction on held-out examples. While the last update or block looks exploded, no checkpoint is written, so the latest checkpoint
//! on disk is of weights from before.
//!
//! **Did not learn.** At the end, the model is no better than a constant: its accuracy closes less than [`LEAST_GAIN`] of the gap
//! between naming the most common label and being always right, its loss is not [`LEAST_DROP`] below the entropy of the
//! labels, and it ranks no better than chance where a ranking was measured. All three must fail: rare clicks leave accuracy at the share of
//! the common label, and an overfitted classifier has a large loss and good accuracy.
//! `testdata/curves` holds recorded losses of both kinds.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Times the reference from which a loss without useful predictions counts as exploded.
const FAR: f64 = 10.0;
/// Times the reference from which it does whatever the predictions.
const HOPELESS: f64 = 100.0;
/// Exploded blocks in a row before a run is stopped: at least, and at most where much training lies behind.
const LEAST_BLOCKS: u64 = 5;
const MOST_BLOCKS: u64 = 100;
/// Updates of a block, where each is observed.
const BLOCK_UPDATES: u64 = 20;
/// Share of the gap between the most common label and perfection that counts as learning.
const LEAST_GAIN: f64 = 0.05;
/// Share of the labels' entropy by which the loss must have fallen.
const LEAST_DROP: f64 = 0.03;
/// Area under the curve that counts as ranking.
const LEAST_AUC: f64 = 0.55;
/// Fewer updates say nothing about a run.
const LEAST_UPDATES: u64 = 20;

/// What became of the learning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearningOutcome {
    /// Better than a constant prediction.
    #[default]
    Learned,
    /// No better than a constant prediction.
    DidNotLearn,
    /// The loss exploded and did not come back.
    Diverged,
}

/// Whether a run learned, in words, and what to try where it did not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Learning {
    /// What became of it.
    pub outcome: LearningOutcome,
    /// What that rests on.
    pub words: String,
    /// What to try next; empty where the run learned.
    pub advice: Vec<String>,
}

/// Losses of one or several updates.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Observed {
    /// Sum over the examples, in nats.
    pub loss_sum: f64,
    /// Examples predicted correctly.
    pub correct: u64,
    pub examples: u64,
}

impl Observed {
    fn add(&mut self, other: &Self) {
        self.loss_sum += other.loss_sum;
        self.correct += other.correct;
        self.examples += other.examples;
    }

    fn loss(&self) -> f64 {
        self.loss_sum / self.examples.max(1) as f64
    }

    fn accuracy(&self) -> f64 {
        self.correct as f64 / self.examples.max(1) as f64
    }
}

/// A loss that exploded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Divergence {
    /// Observation since which the loss is exploded, counted from 0.
    pub since: u64,
    /// Mean of the last block.
    pub loss: f64,
    /// What it is compared with: the loss of a uniform prediction or of the start, the larger one.
    pub reference: f64,
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { loss, reference, .. } = self;
        let times = loss / reference;
        if times.is_finite() {
            write!(
                f,
                "the loss is {}, {} times the {reference:.3} of an untrained model",
                short(*loss),
                short(times)
            )
        } else {
            write!(f, "the loss is {loss}, {reference:.3} is that of an untrained model")
        }
    }
}

/// Four digits, or a power of ten where that is shorter.
fn short(value: f64) -> String {
    if value.abs() < 1e5 { format!("{value:.1}") } else { format!("{value:.1e}") }
}

/// Watches the training loss for divergence.
#[derive(Debug, Clone)]
pub struct LossGuard {
    uniform: f64,
    /// The larger one of `uniform` and the loss of the start.
    reference: f64,
    /// Whether the first update to be observed is the first of the run.
    starts: bool,
    /// Share of the most common label.
    common: f64,
    per_block: u64,
    observed: u64,
    blocks: u64,
    block: Observed,
    in_block: u64,
    last: Observed,
    latest: Observed,
    stretch: Option<Stretch>,
}

/// Exploded blocks in a row.
#[derive(Debug, Clone)]
struct Stretch {
    since: u64,
    /// Blocks before it.
    before: u64,
    /// The last of its losses.
    losses: VecDeque<f64>,
}

impl Stretch {
    /// Takes note of a block; says whether the loss has stayed up for long.
    fn add(&mut self, loss: f64) -> bool {
        let patience = (self.before / 4).clamp(LEAST_BLOCKS, MOST_BLOCKS) as usize;
        if self.losses.len() == patience {
            self.losses.pop_front();
        }
        self.losses.push_back(loss);
        let highest = self.losses.iter().copied().fold(0.0, f64::max);
        self.losses.len() == patience && loss >= 0.5 * highest
    }
}

impl Default for LossGuard {
    /// For two classes.
    fn default() -> Self {
        Self::of_updates(2)
    }
}

impl LossGuard {
    /// For a model of so many classes whose updates are observed one by one, from the first update of a run on.
    #[must_use]
    pub fn of_updates(classes: usize) -> Self {
        let classes = classes.max(2) as f64;
        Self::new(classes.ln(), 1.0 / classes, BLOCK_UPDATES)
    }

    /// For a model of two classes, observed many updates at a time.
    #[must_use]
    pub fn of_blocks() -> Self {
        Self::new(std::f64::consts::LN_2, 0.5, 1)
    }

    /// The same for weights that begin far from zero: what they begin with is the reference, not an even guess.
    #[must_use]
    pub fn beginning_far(self, far: bool) -> Self {
        Self { starts: self.starts || far, ..self }
    }

    /// The share of label 1 among two labels, as far as it is known.
    pub fn set_positive(&mut self, share: f64) {
        if share.is_finite() {
            self.common = share.max(1.0 - share).clamp(0.5, 1.0);
        }
    }

    fn new(uniform: f64, common: f64, per_block: u64) -> Self {
        Self {
            uniform,
            reference: uniform,
            starts: per_block > 1,
            common,
            per_block,
            observed: 0,
            blocks: 0,
            block: Observed::default(),
            in_block: 0,
            last: Observed::default(),
            latest: Observed::default(),
            stretch: None,
        }
    }

    /// Forgets what it saw: workers in lockstep that continue together must come to the same decisions, also with one that is
    /// new and saw nothing.
    pub fn restart(&mut self) {
        *self = Self { starts: false, ..Self::new(self.uniform, self.common, self.per_block) };
    }

    /// Takes note of an update; says whether the run has diverged.
    pub fn observe(&mut self, seen: &Observed) -> Option<Divergence> {
        if seen.examples == 0 {
            return None;
        }
        if self.observed == 0 && self.starts && seen.loss().is_finite() {
            self.reference = self.reference.max(seen.loss());
        }
        self.observed += 1;
        self.latest = *seen;
        self.block.add(seen);
        self.in_block += 1;
        if self.in_block < self.per_block {
            return None;
        }
        (self.last, self.in_block) = (std::mem::take(&mut self.block), 0);
        self.blocks += 1;
        if !self.is_exploded(&self.last) {
            self.stretch = None;
            return None;
        }
        let (loss, since) = (self.last.loss(), self.observed - self.per_block);
        let before = self.blocks - 1;
        let fresh = || Stretch { since, before, losses: VecDeque::new() };
        let stretch = self.stretch.get_or_insert_with(fresh);
        let (certain, since) = (stretch.add(loss), stretch.since);
        certain.then(|| self.divergence(since, &self.last))
    }

    /// Whether the weights should not be saved at the moment.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.stretch.is_some() || self.is_exploded(&self.latest)
    }

    /// Whether the run ended with an exploded loss.
    #[must_use]
    pub fn at_end(&self) -> Option<Divergence> {
        let whole = self.blocks == 0 || 2 * self.in_block >= self.per_block;
        let last = if whole && self.in_block > 0 { &self.block } else { &self.last };
        let before = self.observed.saturating_sub(self.per_block);
        let since = self.stretch.as_ref().map_or(before, |stretch| stretch.since);
        // The first update is observed before it changes anything; a block of updates is not.
        let trained = self.observed > 1 || self.per_block == 1;
        (trained && self.is_exploded(last)).then(|| self.divergence(since, last))
    }

    fn is_exploded(&self, block: &Observed) -> bool {
        let times = block.loss() / self.reference;
        block.examples > 0
            && (!times.is_finite()
                || times > HOPELESS
                || (times > FAR && !beats_constant(block.accuracy(), self.common)))
    }

    fn divergence(&self, since: u64, block: &Observed) -> Divergence {
        Divergence { since, loss: block.loss(), reference: self.reference }
    }
}

/// Whether an accuracy is more than naming the most common label gives.
fn beats_constant(accuracy: f64, common: f64) -> bool {
    accuracy - common >= LEAST_GAIN * (1.0 - common)
}

/// What a run ended with: on held-out examples, or on the last training examples where there are none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ending<'a> {
    /// Mean loss, in nats.
    pub loss: f64,
    /// Share predicted correctly.
    pub accuracy: f64,
    /// Area under the curve, where it was measured.
    pub auc: Option<f64>,
    /// Share of each label; classes alone where unknown.
    pub labels: Labels<'a>,
    /// Updates of the run.
    pub updates: u64,
}

impl Ending<'_> {
    /// Whether the loss on these examples is beyond hope, however well the training examples were learned by heart.
    #[must_use]
    pub fn divergence(&self) -> Option<Divergence> {
        let reference = self.labels.uniform();
        let exploded = self.loss.is_nan() || self.loss > HOPELESS * reference;
        exploded.then_some(Divergence { since: 0, loss: self.loss, reference })
    }
}

/// What is known of the labels that predictions were compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Labels<'a> {
    /// How many examples each label has.
    Counts(&'a [u64]),
    /// Share of label 1 among two.
    Positive(f64),
    /// Only how many there are.
    Classes(usize),
}

impl Labels<'_> {
    /// The loss of a uniform prediction.
    fn uniform(&self) -> f64 {
        let classes = match self {
            Self::Counts(counts) => counts.len(),
            Self::Positive(_) => 2,
            Self::Classes(classes) => *classes,
        };
        (classes.max(2) as f64).ln()
    }

    /// Entropy in nats, and the share of the most common one.
    fn entropy_and_common(&self) -> (f64, f64) {
        let of = |shares: &mut dyn Iterator<Item = f64>| {
            shares.filter(|share| *share > 0.0).fold((0.0, 0.0_f64), |(entropy, most), share| {
                (entropy - share * share.ln(), most.max(share))
            })
        };
        match self {
            Self::Counts(counts) if counts.iter().any(|count| *count > 0) => {
                let all: u64 = counts.iter().sum();
                of(&mut counts.iter().map(|count| *count as f64 / all as f64))
            }
            Self::Counts(counts) => Labels::Classes(counts.len()).entropy_and_common(),
            Self::Positive(share) => of(&mut [*share, 1.0 - share].into_iter()),
            Self::Classes(classes) => {
                let classes = (*classes).max(2) as f64;
                (classes.ln(), 1.0 / classes)
            }
        }
    }
}

/// What was tried, for advice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tried<'a> {
    pub optimizer: &'a str,
    pub rate: f64,
    /// An optimiser that bears more, where this one is not it.
    pub sturdier: Option<&'a str>,
    /// Whether a learning-rate schedule can be given.
    pub schedules: bool,
}

impl Tried<'_> {
    /// What to try after a divergence.
    #[must_use]
    pub fn after_divergence(&self) -> Vec<String> {
        let mut advice =
            vec![format!("a lower learning rate: `--lr {}`", digits(self.rate / 10.0))];
        if self.schedules {
            advice.push("a warm-up: `--schedule warmup:1+constant`".to_owned());
        }
        advice.extend(self.other_optimizer());
        advice
    }

    fn other_optimizer(&self) -> Option<String> {
        let name = self.sturdier.filter(|name| *name != self.optimizer)?;
        Some(format!(
            "another optimiser with its default rate: `--optimizer {name}` without `--lr`"
        ))
    }

    fn after_nothing(&self, worse: bool, updates: u64) -> Vec<String> {
        let lower = format!("a lower learning rate: `--lr {}`", digits(self.rate / 10.0));
        let higher = format!("a higher one: `--lr {}`", digits(self.rate * 10.0));
        let mut advice = if worse { vec![lower] } else { vec![lower, higher] };
        advice.extend(self.other_optimizer());
        if updates < 1000 {
            advice.push(format!("more epochs: there were {updates} updates"));
        }
        advice
    }
}

/// A rate without the noise of binary fractions.
fn digits(value: f64) -> String {
    let text = format!("{value:.2e}");
    text.parse::<f64>().map_or(text, |value| value.to_string())
}

impl Learning {
    /// Of a run that diverged.
    #[must_use]
    pub fn diverged(words: impl std::fmt::Display, tried: &Tried<'_>) -> Self {
        let words = words.to_string();
        Self { outcome: LearningOutcome::Diverged, words, advice: tried.after_divergence() }
    }

    /// Of a run that made all its updates; nothing where they were too few to tell.
    #[must_use]
    pub fn judge(ending: &Ending<'_>, tried: &Tried<'_>) -> Option<Self> {
        let Ending { loss, accuracy, auc, labels, updates } = *ending;
        let (entropy, common) = labels.entropy_and_common();
        if updates < LEAST_UPDATES || !accuracy.is_finite() || entropy <= 0.0 {
            return None;
        }
        let ranks = auc.is_some_and(|auc| auc >= LEAST_AUC);
        let predicts = loss <= (1.0 - LEAST_DROP) * entropy;
        let figures = format!(
            "accuracy {:.1} % where always naming the most common label has {:.1} %, loss {} where the label shares alone have {entropy:.3}",
            100.0 * accuracy,
            100.0 * common,
            if loss.abs() < 1e4 { format!("{loss:.3}") } else { format!("{loss:.1e}") },
        );
        if ranks || predicts || beats_constant(accuracy, common) {
            let words = format!("better than a constant prediction: {figures}");
            return Some(Self { outcome: LearningOutcome::Learned, words, advice: Vec::new() });
        }
        let worse = loss.is_nan() || loss > 1.05 * entropy;
        let than = if worse {
            "worse than a constant prediction"
        } else {
            "no better than a constant prediction"
        };
        let words = format!("{than} after {updates} updates: {figures}");
        Some(Self {
            outcome: LearningOutcome::DidNotLearn,
            words,
            advice: tried.after_nothing(worse, updates),
        })
    }

    /// What the user should be warned of.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let what = match self.outcome {
            LearningOutcome::Learned => return None,
            LearningOutcome::DidNotLearn => "the model did not learn",
            LearningOutcome::Diverged => "training diverged",
        };
        let advice = if self.advice.is_empty() {
            String::new()
        } else {
            format!("; try {}", self.advice.join(", or "))
        };
        Some(format!("{what}: {}{advice}", self.words))
    }
}

#[cfg(test)]
mod tests;
