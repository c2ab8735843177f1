//! Why an exchange could not be set up or went wrong.

/// Why an exchange could not be set up or went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    /// No strategy has that name.
    #[error("no strategy is named `{name}`; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The number of replicas does not fit.
    #[error("strategy `{strategy}` works with {wanted} replicas, not {found}")]
    Replicas {
        /// The strategy.
        strategy: &'static str,
        /// What was asked for.
        found: usize,
        /// What it can do.
        wanted: &'static str,
    },
    /// Another replica of this process ended in the middle of a step.
    #[error("replica {replica} of {replicas} stopped: another replica ended at step {step}")]
    ReplicaLost {
        /// The one that was left waiting.
        replica: usize,
        /// How many there are.
        replicas: usize,
        /// The step it was in.
        step: u64,
    },
    /// The group cannot be formed anew.
    #[error("this strategy cannot go on without a lost member")]
    NoReform,
    /// A choice is out of range.
    #[error("{option} is {found}, must be {wanted}")]
    Option {
        /// The choice.
        option: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        wanted: String,
    },
}
