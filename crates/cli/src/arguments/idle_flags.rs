//! Flags that would change nothing.
//!
//! They are refused, with what would give them an effect: a result must not be compared with another because of a flag
//! that was never read. Where another flag decides, clap's `requires` and `conflicts_with` say so; where it depends on
//! what the data or a run turn out to be, a command has a list of [`Rule`]s. `train` and `node` have a table of their own
//! (`train_rules.rs`), because model, strategy and optimiser decide there.

use crate::terminal::failure::usage;
use clap::{ArgMatches, parser::ValueSource};
use std::collections::BTreeSet;

/// The flags that were typed, by their long names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Typed(BTreeSet<String>);

impl Typed {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.0.contains(flag)
    }

    /// A command line of one flag.
    #[cfg(test)]
    pub(crate) fn only(flag: &str) -> Self {
        Self([flag.to_owned()].into())
    }

    /// Refuses the first flag that would change nothing.
    pub(crate) fn check<F: ?Sized>(&self, facts: &F, rules: &[Rule<F>]) -> anyhow::Result<()> {
        for rule in rules.iter().filter(|rule| !(rule.is_met)(facts)) {
            if let Some(flag) = rule.flags.iter().find(|flag| self.has(flag)) {
                return Err(usage(
                    format!("`--{flag}` has no effect {}", rule.otherwise),
                    format!("leave it out, or {}", rule.instead),
                ));
            }
        }
        Ok(())
    }
}

/// Flags that need something before they can change anything; `F` is what a command knows of the call by then.
pub(crate) struct Rule<F: ?Sized> {
    pub(crate) flags: &'static [&'static str],
    pub(crate) is_met: fn(&F) -> bool,
    /// What the call is otherwise, such as `on rows of sparse features`.
    pub(crate) otherwise: &'static str,
    /// What would give them an effect.
    pub(crate) instead: &'static str,
}

/// Adds no flag of its own: it only notes which of the others are there. It must be flattened in front of them,
/// because reading a flag takes it out of the matches.
impl clap::Args for Typed {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl clap::FromArgMatches for Typed {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed =
            |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        Ok(Self(matches.ids().filter(typed).map(|id| id.as_str().replace('_', "-")).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
