//! Logistic regression over tens of millions of sparse weights.
//!
//! A row of a click log touches some forty of 33 million weights, so a step is not arithmetic but
//! cache misses. Hence: weight and optimiser state side by side in eight bytes, so that one miss
//! brings both; the table on huge pages; the weights of coming rows fetched while this one is
//! computed. Threads share one [`Table`] without locks: an update may rarely be lost, which costs less
//! accuracy than waiting would cost time.
//!
//! Learning is one example at a time ([`SparseLogistic::learn`]); mini-batches and parameter servers
//! go through [`Minibatch`], which finds the weights a batch touches.

mod loss;
mod minibatch;
pub mod rules;
mod size;
mod slots;
mod table;

pub use loss::{RowLoss, loss};
pub use minibatch::Minibatch;
pub use rules::{Rule, RuleSettings};
pub use size::Size;
pub use table::Table;

use std::{ops::Range, sync::Arc};

use paceline_batch::{Batch, Features};

use crate::{ModelError, random::mix, registry::ModelDefaults};
use rules::Update;

/// The name users type.
pub const NAME: &str = "sparse-logistic";
/// One line for lists.
pub const ABOUT: &str = "logistic regression over hashed features, 2^25 weights unless said otherwise: rows of click logs";

/// What it learns well with, whatever the size of its features.
pub const DEFAULTS: ModelDefaults = ModelDefaults {
    optimizer: rules::scaled_adagrad::ENTRY.name,
    rate: rules::scaled_adagrad::ENTRY.defaults.rate,
};

/// Rows ahead whose weights are fetched: at about 40 lines a row, some 150 lines are on their way, more
/// than the machine can have in flight, so that memory never idles.
const AHEAD: usize = 4;

/// Decides what is drawn.
const DRAWN: u64 = 0x5eed_0000_0000_0000;

/// A table of weights and the rule that changes them. Clones share the table.
#[derive(Debug, Clone)]
pub struct SparseLogistic {
    table: Arc<Table>,
    rule: Rule,
    loss: RowLoss,
}

impl SparseLogistic {
    /// A model of `2^bits` weights and a bias, all zero.
    ///
    /// # Errors
    /// Settings out of range; more memory than the system gives.
    pub fn new(bits: u32, rule: &str, settings: RuleSettings) -> Result<Self, ModelError> {
        Self::holding(bits, rule, settings, 0..usize::MAX)
    }

    /// The same for a task that holds the weights of `part` and leaves the others zero: they take no memory.
    ///
    /// # Errors
    /// As of [`SparseLogistic::new`].
    pub fn holding(
        bits: u32,
        rule: &str,
        settings: RuleSettings,
        part: Range<usize>,
    ) -> Result<Self, ModelError> {
        let (table, rule) = (Arc::new(Table::holding(bits, part)?), Rule::new(rule, settings)?);
        Ok(Self { table, rule, loss: RowLoss::default() })
    }

    /// The same with another loss of a row.
    #[must_use]
    pub fn with_loss(self, loss: RowLoss) -> Self {
        Self { loss, ..self }
    }

    /// What a prediction of a row costs.
    #[must_use]
    pub fn loss(&self) -> RowLoss {
        self.loss
    }

    /// Draws all weights between two numbers, the same on every run. Rows touch few of millions of weights: what they do not touch
    /// stays what was drawn.
    pub fn draw(&self, (least, most): (f32, f32)) {
        for index in 0..self.table.len() {
            // 24 bits are what a float holds of a share.
            let share = (mix(DRAWN ^ index as u64) >> 40) as f32 / (1 << 24) as f32;
            self.table.set(index, self.rule.slot_of(least + share * (most - least)));
        }
    }

    /// The weights and their state.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The rule of updates.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The weight of a number; the number after the last is the bias.
    #[must_use]
    pub fn weight(&self, index: usize) -> f32 {
        self.rule.weight(self.table.get(index))
    }

    /// Learns from every row in turn, and gives the logits predicted just before each: the model is
    /// always judged on rows it has not seen.
    pub fn learn(&self, batch: &Batch, logits: &mut Vec<f32>) {
        match self.rule {
            Rule::Sgd(rule) => self.rows(rule, batch, logits, true),
            Rule::Adagrad(rule) => self.rows(rule, batch, logits, true),
            Rule::ScaledAdagrad(rule) => self.rows(rule, batch, logits, true),
            Rule::Ftrl(rule) => self.rows(rule, batch, logits, true),
        }
    }

    /// The logits of every row; nothing is learned.
    pub fn score(&self, batch: &Batch, logits: &mut Vec<f32>) {
        match self.rule {
            Rule::Sgd(rule) => self.rows(rule, batch, logits, false),
            Rule::Adagrad(rule) => self.rows(rule, batch, logits, false),
            Rule::ScaledAdagrad(rule) => self.rows(rule, batch, logits, false),
            Rule::Ftrl(rule) => self.rows(rule, batch, logits, false),
        }
    }

    fn rows<U: Update>(&self, rule: U, batch: &Batch, logits: &mut Vec<f32>, learn: bool) {
        let Features::Sparse { offsets, indices, values } = &batch.features else {
            unreachable!("this model is fed rows of sparse features");
        };
        let (table, loss) = (&*self.table, self.loss);
        let rows = Rows { table, offsets, indices, labels: &batch.labels, loss };
        logits.clear();
        match (values.is_empty(), learn) {
            (true, true) => rows.run(rule, Ones, Learning::<true>, logits),
            (true, false) => rows.run(rule, Ones, Learning::<false>, logits),
            (false, true) => rows.run(rule, Given(values), Learning::<true>, logits),
            (false, false) => rows.run(rule, Given(values), Learning::<false>, logits),
        }
    }
}

/// Whether rows change the weights; known when the loop is compiled.
struct Learning<const ON: bool>;

/// The values of features.
trait Values: Copy {
    fn at(self, position: usize) -> f32;

    /// A slot after the gradient of the feature at a position.
    fn update<U: Update>(self, rule: U, slot: [f32; 2], slope: f32, position: usize) -> [f32; 2];
}

/// Every value is 1: nothing to load or to multiply.
#[derive(Clone, Copy)]
struct Ones;

impl Values for Ones {
    #[inline(always)]
    fn at(self, _: usize) -> f32 {
        1.0
    }

    #[inline(always)]
    fn update<U: Update>(self, rule: U, slot: [f32; 2], slope: f32, _: usize) -> [f32; 2] {
        rule.update(slot, slope)
    }
}

#[derive(Clone, Copy)]
struct Given<'a>(&'a [f32]);

impl Values for Given<'_> {
    #[inline(always)]
    fn at(self, position: usize) -> f32 {
        self.0[position]
    }

    #[inline(always)]
    fn update<U: Update>(self, rule: U, slot: [f32; 2], slope: f32, position: usize) -> [f32; 2] {
        let value = self.0[position];
        rule.update_sized(slot, slope * value, Size::of(value))
    }
}

struct Rows<'a> {
    table: &'a Table,
    offsets: &'a [usize],
    indices: &'a [u32],
    labels: &'a [u32],
    loss: RowLoss,
}

impl Rows<'_> {
    fn run<U: Update, V: Values, const LEARN: bool>(
        &self,
        rule: U,
        values: V,
        _: Learning<LEARN>,
        logits: &mut Vec<f32>,
    ) {
        let table = self.table;
        let bias = table.bias();
        logits.reserve(self.labels.len());
        for at in 0..AHEAD.min(self.labels.len()) {
            self.prefetch(at);
        }
        for (row, &label) in self.labels.iter().enumerate() {
            if row + AHEAD < self.labels.len() {
                self.prefetch(row + AHEAD);
            }
            let range = self.offsets[row]..self.offsets[row + 1];
            let features = &self.indices[range.clone()];
            // Four sums: one alone would wait for each addition in turn.
            let mut sums = [rule.weight(table.get(bias)), 0.0, 0.0, 0.0];
            for (number, &index) in features.iter().enumerate() {
                let value = values.at(range.start + number);
                sums[number % 4] += value * rule.weight(table.get(index as usize));
            }
            let logit = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            logits.push(logit);
            if LEARN {
                let slope = self.loss.slope(logit, label);
                table.set(bias, rule.update(table.get(bias), slope));
                for (number, &index) in features.iter().enumerate() {
                    let index = index as usize;
                    // Read again: a feature may come twice in a row, and other threads write too.
                    let slot = table.get(index);
                    table.set(index, values.update(rule, slot, slope, range.start + number));
                }
            }
        }
    }

    #[inline(always)]
    fn prefetch(&self, row: usize) {
        for &index in &self.indices[self.offsets[row]..self.offsets[row + 1]] {
            self.table.prefetch(index as usize);
        }
    }
}

/// The probability of label 1.
#[inline]
#[must_use]
pub fn probability(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

#[cfg(test)]
mod tests;
