//! Which flag of `train` and `node` belongs to what.
//!
//! A flag that would change nothing is refused, with what would give it an effect: a learning curve must not be
//! compared with another because of a flag that was never read. Help texts say the same in words; this table decides.

use super::{idle_flags::Typed, train_flags::Flags};
use crate::terminal::failure::{FailureExt, usage};
use paceline_data::rows::formats::clicks;
use paceline_models::{
    optimizer,
    registry::{self, Named},
    sparse_logistic,
};
use paceline_runs::{RecordedPlan, RunFolder};
use paceline_strategies::{self as strategies, StrategyEntry as Strategy};

/// The format whose rows have integers.
const CLICKS: &str = clicks::ENTRY.name;

/// What a run is, as far as the meaning of flags depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) model: Named,
    pub(crate) strategy: &'static Strategy,
    optimizer: &'static str,
    /// Settings that this optimiser has and others have not.
    optimizer_settings: &'static [&'static str],
    /// Whether the run has examples or rows that it can be scored on. Data sets of examples bring their own.
    held_out: bool,
    /// Whether a schedule changes the learning rate.
    scheduled: bool,
    /// Whether rows of files, which are all there, would be waited for by time.
    timed_files: bool,
    /// Whether the rows were said to be in a format other than that of click logs.
    other_format: bool,
    /// Whether it is a run that goes on: what it is cannot change.
    resumed: bool,
}

impl Choice {
    /// What the flags of a new run ask for.
    pub(super) fn fresh(flags: &Flags) -> anyhow::Result<Self> {
        let model = registry::named(flags.model.as_deref().unwrap_or_default())
            .hint("`paceline list models` says what each of them is for")?;
        let scheduled = flags.schedule.as_deref().is_some_and(|schedule| schedule != "constant");
        let held_out = flags.stream.test.is_some();
        let strategy = flags.strategy.as_deref();
        let asked = flags.optimizer.as_deref();
        let own = match model {
            Named::Dense(entry) => entry.defaults.complete(asked, flags.lr).0,
            Named::Sparse => asked.unwrap_or(sparse_logistic::DEFAULTS.optimizer).to_owned(),
        };
        let stream = &flags.stream;
        // A number alone is one of rows.
        let is_timed = stream.window.as_ref().is_some_and(|window| window.parse::<u64>().is_err());
        let choice = Self::of(model, strategy, Some(&own), held_out, scheduled)?;
        Ok(Self {
            timed_files: is_timed && stream.follow.is_none() && flags.data.as_deref() != Some("-"),
            other_format: stream.format.as_deref().is_some_and(|format| format != CLICKS),
            ..choice
        })
    }

    /// What a run is that goes on.
    pub(crate) fn of_run(run: &RunFolder) -> anyhow::Result<Self> {
        let plan = RecordedPlan::open(run)?;
        let model = registry::named(plan.model.as_deref().unwrap_or_default())?;
        let scheduled = plan.schedule.as_deref().is_some_and(|schedule| schedule != "constant");
        let held_out = plan.asked("test").is_some();
        let (strategy, optimizer) = (plan.strategy.as_deref(), plan.optimizer.as_deref());
        let choice = Self::of(model, strategy, optimizer, held_out, scheduled)?;
        Ok(Self { resumed: true, ..choice })
    }

    fn of(
        model: Named,
        strategy: Option<&str>,
        optimizer: Option<&str>,
        held_out: bool,
        scheduled: bool,
    ) -> anyhow::Result<Self> {
        let strategy = strategies::find(strategy.unwrap_or("one-device"))
            .hint("`paceline list strategies` says how each of them works")?;
        let (optimizer, optimizer_settings) = match model {
            Named::Dense(_) => {
                let entry = optimizer::find(optimizer.unwrap_or("sgd"))?;
                (entry.name, entry.settings)
            }
            Named::Sparse => {
                let own = sparse_logistic::DEFAULTS.optimizer;
                let entry = sparse_logistic::rules::find(optimizer.unwrap_or(own))?;
                (entry.name, entry.settings)
            }
        };
        let held_out = held_out || matches!(model, Named::Dense(_));
        let choice = Self {
            model,
            strategy,
            optimizer,
            optimizer_settings,
            held_out,
            scheduled,
            timed_files: false,
            other_format: false,
            resumed: false,
        };
        if !choice.can_use(strategy) {
            return Err(usage(
                format!("model `{}` has no strategy `{}`", model.name(), strategy.name),
                format!("use {}", choice.strategies(&|_| true)),
            ));
        }
        Ok(choice)
    }

    /// Whether it is the model that learns from rows of sparse features.
    pub(crate) fn is_sparse(&self) -> bool {
        matches!(self.model, Named::Sparse)
    }

    /// Sparse weights are held in one process or by servers; their copies are too large for anything else.
    fn can_use(&self, strategy: &Strategy) -> bool {
        !self.is_sparse() || strategy.needs_servers || is_alone(strategy)
    }

    /// The strategies of this model that are so, as they are typed.
    fn strategies(&self, wanted: &dyn Fn(&Strategy) -> bool) -> String {
        let names = strategies::ALL.iter().filter(|entry| self.can_use(entry) && wanted(entry));
        either(names.map(|entry| format!("`--strategy {}`", entry.name)))
    }
}

/// What a flag needs before it can change anything.
#[derive(Clone, Copy)]
enum Needs {
    /// A model of batches of examples.
    Dense,
    /// The model of rows of sparse features.
    Sparse,
    /// A model that lists it among its settings.
    Model,
    /// The same, for models of batches; that of rows has it.
    DenseModel,
    /// An optimiser that lists it among its settings.
    Optimizer,
    /// A strategy that is so.
    Strategy(fn(&Strategy) -> bool),
    /// The same, for sparse models alone.
    SparseStrategy(fn(&Strategy) -> bool),
    /// The same, for all other models.
    DenseStrategy(fn(&Strategy) -> bool),
    /// Something to score the model on.
    HeldOut,
    /// A learning rate that changes.
    Schedule,
    /// Rows that come as a stream, where they are waited for by time.
    Live,
    /// Rows of a click log.
    Clicks,
}

/// Whether a run that goes on may have another value.
#[derive(Clone, Copy, PartialEq)]
enum OnResume {
    Changes,
    Stays,
}

struct Rule(&'static str, OnResume, &'static [Needs]);

/// Every flag that `train` and `node` share.
const TABLE: &[Rule] = {
    use Needs::{
        Clicks, Dense, DenseModel, DenseStrategy, HeldOut, Live, Model, Optimizer, Schedule,
        Sparse, SparseStrategy, Strategy,
    };
    use OnResume::{Changes, Stays};
    &[
        Rule("model", Stays, &[]),
        Rule("data", Changes, &[]),
        Rule("strategy", Stays, &[]),
        Rule("init", Stays, &[]),
        Rule("freeze", Stays, &[Dense, Model]),
        Rule("unfreeze-after", Stays, &[Dense]),
        Rule("pixels", Stays, &[Dense]),
        Rule("augment", Stays, &[Dense]),
        Rule("validation-split", Stays, &[Dense]),
        Rule("width", Stays, &[Dense, Model]),
        Rule("dropout", Stays, &[Dense, Model]),
        Rule("lrn", Stays, &[Dense, Model]),
        Rule("activation", Stays, &[Dense, Model]),
        Rule("pad", Stays, &[Dense, Model]),
        Rule("epochs", Changes, &[]),
        Rule("steps", Changes, &[SparseStrategy(is_several)]),
        Rule("until-loss", Changes, &[HeldOut]),
        Rule("stop-after-no-gain", Changes, &[Dense]),
        Rule("steps-per-epoch", Stays, &[Dense]),
        Rule("batch-size", Stays, &[]),
        Rule("lr", Stays, &[]),
        Rule("optimizer", Stays, &[]),
        Rule("momentum", Stays, &[Dense, Optimizer]),
        Rule("weight-decay", Stays, &[]),
        Rule("schedule", Stays, &[Dense]),
        Rule("loss", Stays, &[DenseModel]),
        Rule("label-smoothing", Stays, &[Dense]),
        Rule("class-weights", Stays, &[Dense]),
        Rule("grow-batch", Stays, &[Dense, Schedule]),
        Rule("accumulate", Stays, &[Dense]),
        Rule("seed", Stays, &[Dense]),
        Rule("threads", Changes, &[]),
        Rule("replicas", Stays, &[Dense, Strategy(has_replicas)]),
        Rule("workers", Stays, &[Strategy(is_several)]),
        Rule("ps", Stays, &[Strategy(has_servers)]),
        Rule("evaluator", Changes, &[Strategy(is_several), HeldOut]),
        Rule("evaluate-workers", Changes, &[Dense, Strategy(has_workers)]),
        Rule("on-loss", Changes, &[Strategy(is_several)]),
        Rule("split-dense", Changes, &[Dense, Model, Strategy(shares_layers)]),
        Rule("compress", Stays, &[Dense, Strategy(adds_up)]),
        Rule("join-timeout", Changes, &[Strategy(is_several)]),
        Rule("patience", Changes, &[Strategy(is_several)]),
        // Rows of a sparse model's update are combined wherever the weights lie.
        Rule("combine", Stays, &[DenseStrategy(has_synchronous_servers)]),
        Rule("backup-workers", Stays, &[Dense, Strategy(has_synchronous_servers)]),
        Rule("max-staleness", Stays, &[Dense, Strategy(has_asynchronous_servers)]),
        // Every weight of a dense model is in every batch: all of them travel, whatever is asked for.
        Rule("transfer", Stays, &[Sparse, Strategy(has_servers)]),
        Rule("eval-every", Changes, &[HeldOut]),
        Rule("checkpoint-every", Changes, &[]),
        Rule("keep", Changes, &[]),
        Rule("max-rejects", Changes, &[]),
        Rule("max-pixels", Stays, &[Dense]),
        Rule("verify", Changes, &[Dense]),
        Rule("no-tensorboard", Changes, &[]),
        Rule("out", Changes, &[]),
        Rule("resume", Changes, &[]),
        Rule("follow", Stays, &[Sparse, Strategy(is_alone)]),
        Rule("test", Stays, &[Sparse]),
        Rule("format", Stays, &[Sparse]),
        Rule("bits", Stays, &[Sparse]),
        Rule("integers", Stays, &[Sparse, Clicks]),
        Rule("l1", Stays, &[Sparse, Optimizer]),
        Rule("window", Stays, &[Sparse, Strategy(is_alone), Live]),
        Rule("deterministic", Stays, &[Sparse, Strategy(is_alone)]),
    ]
};

fn is_several(strategy: &Strategy) -> bool {
    !strategy.in_process
}

/// More than one copy of the weights.
fn has_workers(strategy: &Strategy) -> bool {
    !is_alone(strategy)
}

fn is_alone(strategy: &Strategy) -> bool {
    strategy.in_process && !has_replicas(strategy)
}

fn has_replicas(strategy: &Strategy) -> bool {
    strategy.most_replicas.is_none()
}

fn has_servers(strategy: &Strategy) -> bool {
    strategy.needs_servers
}

fn has_synchronous_servers(strategy: &Strategy) -> bool {
    strategy.needs_servers && strategy.synchronous
}

fn has_asynchronous_servers(strategy: &Strategy) -> bool {
    strategy.needs_servers && !strategy.synchronous
}

/// Workers send each other gradients.
fn adds_up(strategy: &Strategy) -> bool {
    is_several(strategy) && !has_servers(strategy)
}

fn shares_layers(strategy: &Strategy) -> bool {
    strategy.shares_layers
}

/// Refuses the first flag that would change nothing in such a run.
pub(super) fn check(typed: &Typed, choice: &Choice) -> anyhow::Result<()> {
    for Rule(flag, _, needs) in TABLE.iter().filter(|rule| typed.has(rule.0)) {
        for need in *needs {
            if let Some((with, instead)) = choice.lacks(*need, flag) {
                return Err(usage(format!("`--{flag}` has no effect {with}"), instead));
            }
        }
    }
    Ok(())
}

/// Refuses the first flag that a run keeps for life.
pub(super) fn check_resumed(typed: &Typed) -> anyhow::Result<()> {
    let fixed = |rule: &&Rule| rule.1 == OnResume::Stays && typed.has(rule.0);
    let Some(Rule(flag, ..)) = TABLE.iter().find(fixed) else { return Ok(()) };
    let may = TABLE.iter().filter(|rule| rule.1 == OnResume::Changes && rule.0 != "resume");
    let may: Vec<String> = may.map(|rule| format!("--{}", rule.0)).collect();
    Err(usage(
        format!("`--{flag}` cannot change when a run is resumed"),
        format!("leave it out, or start a new run; what may change is {}", may.join(", ")),
    ))
}

impl Choice {
    /// What the run is that the flag does not go with, and what it would go with.
    fn lacks(&self, need: Needs, flag: &str) -> Option<(String, String)> {
        let model = self.model.name();
        let (is_met, with, instead) = match need {
            Needs::Dense => (
                !self.is_sparse(),
                format!("with model `{model}`"),
                format!("leave it out, or use {}", models(|_| true)),
            ),
            Needs::Sparse => (
                self.is_sparse(),
                format!("with model `{model}`"),
                format!("leave it out, or use `--model {}`", sparse_logistic::NAME),
            ),
            Needs::DenseModel if self.is_sparse() => return None,
            Needs::Model | Needs::DenseModel => {
                let has = |entry: &registry::ModelEntry| entry.settings.contains(&flag);
                (
                    matches!(self.model, Named::Dense(entry) if has(entry)),
                    format!("with model `{model}`"),
                    format!("leave it out, or use {}", models(has)),
                )
            }
            Needs::Optimizer => (
                self.optimizer_settings.contains(&flag),
                format!("with optimiser `{}`", self.optimizer),
                format!("leave it out, or use {}", self.optimizers(flag)),
            ),
            Needs::SparseStrategy(_) if !self.is_sparse() => return None,
            Needs::DenseStrategy(_) if self.is_sparse() => return None,
            Needs::Strategy(has) | Needs::SparseStrategy(has) | Needs::DenseStrategy(has) => (
                has(self.strategy),
                format!("with strategy `{}`", self.strategy.name),
                format!("leave it out, or use {}", self.strategies(&has)),
            ),
            Needs::HeldOut | Needs::Schedule | Needs::Live | Needs::Clicks => {
                self.lacks_of_settings(need)
            }
        };
        let instead = if self.resumed {
            "leave it out: a resumed run stays what it is".to_owned()
        } else {
            instead
        };
        (!is_met).then_some((with, instead))
    }

    /// The same for needs that other flags fulfil: whether they do, and what to say if not.
    fn lacks_of_settings(&self, need: Needs) -> (bool, String, String) {
        match need {
            Needs::HeldOut => (
                self.held_out,
                "without held-out rows".to_owned(),
                "leave it out, or name rows to score the model on with `--test FILES`".to_owned(),
            ),
            Needs::Schedule => (
                self.scheduled,
                "with a constant learning rate".to_owned(),
                "leave it out, or add a schedule that lowers the rate, such as `--schedule step:10:0.1`"
                    .to_owned(),
            ),
            Needs::Live => (
                !self.timed_files,
                "as a time on files, whose rows are all there".to_owned(),
                "leave it out, give a number of rows, or learn from a stream with `--follow FILE` or `--data -`"
                    .to_owned(),
            ),
            Needs::Clicks => (
                !self.other_format,
                "on a format other than clicks".to_owned(),
                format!("leave it out, or use `--format {CLICKS}`"),
            ),
            _ => (true, String::new(), String::new()),
        }
    }

    /// The optimisers of this kind of model that have a setting, as they are typed.
    fn optimizers(&self, flag: &str) -> String {
        let dense = optimizer::ALL.iter().map(|entry| (entry.name, entry.settings));
        let sparse = sparse_logistic::rules::ALL.iter().map(|entry| (entry.name, entry.settings));
        let all: Vec<_> = if self.is_sparse() { sparse.collect() } else { dense.collect() };
        let having = all.into_iter().filter(|(_, settings)| settings.contains(&flag));
        either(having.map(|(name, _)| format!("`--optimizer {name}`")))
    }
}

/// The models of examples that are so, as they are typed.
fn models(wanted: impl Fn(&registry::ModelEntry) -> bool) -> String {
    let having = registry::ALL.iter().filter(|entry| wanted(entry));
    either(having.map(|entry| format!("`--model {}`", entry.name)))
}

/// `a`, `b` or `c`.
fn either(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    let Some(last) = words.pop() else { return String::new() };
    if words.is_empty() { last } else { format!("{} or {last}", words.join(", ")) }
}

#[cfg(test)]
mod tests;
