//! A recorded run repeated without what limits it, so that the most that a remedy could save is measured and not only bounded.
//!
//! A run that waits for data is repeated with one batch again and again, one that exchanges gradients without the exchange, one with too many
//! threads with as many as there are cores. What it then learns is worthless; how fast it is, is the answer.

use crate::error::SweepError;
use crate::paired::Side;
use paceline_runs::RunView;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The first batch is used again and again.
    CachedBatches,
    /// Gradients stay where they are.
    NoExchange,
    /// The framework computes with so many threads, whatever the script asks for.
    Threads(usize),
}

impl Change {
    /// What would remove a limit, named as in a run's diagnosis; `None` where nothing can be taken away.
    #[must_use]
    pub fn against(limit: &str, cores: usize) -> Option<Self> {
        match limit {
            "input" => Some(Self::CachedBatches),
            "exchange" | "network" | "synchronisation" | "straggler" => Some(Self::NoExchange),
            "too-many-threads" => Some(Self::Threads(cores.max(1))),
            _ => None,
        }
    }

    /// The change in words.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::CachedBatches => "with one batch again and again".to_owned(),
            Self::NoExchange => "without the exchange of gradients".to_owned(),
            Self::Threads(1) => "with 1 thread".to_owned(),
            Self::Threads(threads) => format!("with {threads} threads"),
        }
    }
}

/// As the recorder in the script understands it.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CachedBatches => write!(f, "cached-batches"),
            Self::NoExchange => write!(f, "no-exchange"),
            Self::Threads(threads) => write!(f, "threads={threads}"),
        }
    }
}

/// What a run's verdict claims, and the two commands that show it.
#[derive(Debug, Clone)]
pub struct Claim {
    pub change: Change,
    /// Share of the time that the verdict says it would save at most.
    pub bound: f64,
    pub verdict: String,
    /// The run again, and the run with the change.
    pub sides: [Side; 2],
}

impl Claim {
    /// The claim of a run that `paceline run` recorded; `program` is that very program, and each repetition makes `steps` steps.
    ///
    /// # Errors
    /// A run without a command, or whose verdict names nothing that could be taken away.
    pub fn of(view: &RunView, name: &str, program: &Path, steps: u32) -> Result<Self, SweepError> {
        let run = name.to_owned();
        let machine = view.machine.as_ref();
        let command = machine.map_or("", |machine| &machine.command);
        // Our own commands have neither a script nor a recorder in it.
        if command.is_empty() || view.framework().is_none() {
            return Err(SweepError::NoScript { run });
        }
        let diagnosis = view.summary.diagnosis.as_ref();
        let limit = diagnosis.map_or("", |diagnosis| &diagnosis.limit);
        let cores = machine.map_or(1, |machine| machine.cores);
        let verdict = view.summary.verdict.clone();
        let Some(change) = Change::against(limit, cores) else {
            return Err(SweepError::NothingToTakeAway { run, verdict });
        };
        let side = |name, words: String, change: Option<Change>| Side {
            name,
            program: program.to_owned(),
            arguments: ["run", "--quiet", "--runs", "{out}", "--", "sh", "-c", command]
                .map(str::to_owned)
                .to_vec(),
            own: true,
            typed: words,
            environment: [("PACELINE_STEPS", steps.to_string())]
                .into_iter()
                .chain(change.map(|change| ("PACELINE_CHANGE", change.to_string())))
                .collect(),
        };
        let bound = diagnosis.map_or(0.0, |diagnosis| diagnosis.saving);
        let changed = format!("{command} ({})", change.words());
        let sides = [side("A", command.to_owned(), None), side("B", changed, Some(change))];
        Ok(Self { change, bound, verdict, sides })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_met_by_what_removes_it_and_compute_by_nothing() {
        assert_eq!(Change::against("input", 2), Some(Change::CachedBatches));
        assert_eq!(Change::against("straggler", 2), Some(Change::NoExchange));
        assert_eq!(Change::against("too-many-threads", 4), Some(Change::Threads(4)));
        assert_eq!(Change::against("compute", 2), None);
        assert_eq!(Change::Threads(4).to_string(), "threads=4");
    }
}
