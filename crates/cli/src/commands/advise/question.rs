//! What a search is about, from flags and from its state file.

use crate::arguments::idle_flags::{Rule, Typed};
use crate::arguments::paths::local_path;
use crate::arguments::units;
use crate::terminal::Terminal;
use crate::terminal::failure::{Exit, FailureExt, forecast::explain_search, usage};
use paceline_advisor::methods::{self, AdvisorMethod};
use paceline_advisor::{
    AdvisorError, Catalogue, ExtraColumns, Objective, SearchQuestion, SearchSession,
};
use std::path::{Path, PathBuf};

/// Flags that ask.
#[derive(Debug, clap::Args)]
pub(super) struct Question {
    #[command(flatten)]
    typed: Typed,
    /// What can be rented: CSV (machine,count,cores,memory_gib,usd_per_hour) or TOML ([[machine]]); any further column is a dimension
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    pub(super) catalog: PathBuf,
    /// Runs of other jobs: CSV (workload,machine,count,seconds,completed), JSON, or a folder of runs, our own or foreign
    #[arg(long, value_name = "PATH", value_parser = local_path())]
    history: Option<PathBuf>,
    /// What is to be small; `cost` unless the state file says otherwise
    #[arg(long, value_enum)]
    objective: Option<Goal>,
    /// Longest run allowed with `cost-under-deadline`, such as 90s, 10min or 2h
    #[arg(long, value_parser = units::positive_seconds, value_name = "TIME")]
    deadline: Option<f64>,
    /// How to search; `paceline` unless the state file says otherwise
    #[arg(long, value_parser = method_names())]
    method: Option<String>,
    /// Seed of every random choice of a new search
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Goal {
    /// Dollars per run
    Cost,
    /// Seconds per run
    Time,
    /// Dollars per run among those that finish in time
    CostUnderDeadline,
}

const RULES: &[Rule<&AdvisorMethod>] = &[Rule {
    flags: &["history"],
    is_met: |method| method.uses_history,
    otherwise: "with a method that learns nothing from other jobs",
    instead: "use `--method paceline`, `scout`, `paris` or `micky`",
}];

fn method_names() -> clap::builder::PossibleValuesParser {
    let values = methods::ALL
        .iter()
        .map(|entry| clap::builder::PossibleValue::new(entry.name).help(entry.about));
    clap::builder::PossibleValuesParser::new(values)
}

impl Goal {
    pub(super) fn objective(self, deadline: Option<f64>) -> anyhow::Result<Objective> {
        match (self, deadline) {
            (Self::Cost, None) => Ok(Objective::Cost),
            (Self::Time, None) => Ok(Objective::Time),
            (Self::CostUnderDeadline, Some(deadline)) => {
                Ok(Objective::CostUnderDeadline { deadline })
            }
            (Self::CostUnderDeadline, None) => Err(usage(
                "--objective cost-under-deadline needs a deadline",
                "add `--deadline TIME`, such as 10min",
            )),
            (_, Some(_)) => Err(usage(
                "--deadline goes with `--objective cost-under-deadline` only",
                "leave one of them out, or change the objective",
            )),
        }
    }
}

/// Says what became of columns that no search knows by itself.
fn note_columns(terminal: &Terminal, catalogue: &Catalogue, path: &Path) {
    let ExtraColumns { used, left_out } = catalogue.extra_columns();
    let path = path.display();
    if !used.is_empty() {
        let used = used.join(", ");
        terminal.note(format!("further columns of `{path}` are dimensions of the search: {used}"));
    }
    if !left_out.is_empty() {
        let names = left_out.join(", ");
        terminal.note(format!("left out of the search, because some machine lacks them or nearly each has its own: {names}"));
    }
}

impl Question {
    /// Reads all files; `state` is the search's own, which may not exist yet.
    pub(super) fn open(&self, state: &Path, terminal: &Terminal) -> anyhow::Result<SearchSession> {
        let objective = match (self.objective, self.deadline) {
            (None, None) => None,
            (goal, deadline) => Some(goal.unwrap_or(Goal::CostUnderDeadline).objective(deadline)?),
        };
        let question = SearchQuestion {
            catalogue: self.catalog.clone(),
            history: self.history.clone(),
            objective,
            method: self.method.clone(),
            seed: self.typed.has("seed").then_some(self.seed),
            state: state.to_path_buf(),
        };
        let session = SearchSession::open(&question).or_else(|error| self.explain(error))?;
        self.typed.check(&session.method(), RULES)?;
        if let Some(words) = session.outside_runs() {
            terminal.note(words);
        }
        // Once is enough; a misspelt column is found here.
        if !state.exists() {
            note_columns(terminal, session.catalogue(), &self.catalog);
        }
        Ok(session)
    }

    /// Adds what helps to an error.
    pub(super) fn explain<T>(&self, error: AdvisorError) -> anyhow::Result<T> {
        let AdvisorError::StateMismatch { what, .. } = &error else {
            return Err(explain_search(error, &self.catalog));
        };
        // A deadline alone is an objective, too.
        let flag = match *what {
            "objective" if self.objective.is_none() => "deadline",
            "objective" | "method" | "seed" => what,
            _ => return Err(error.into()),
        };
        let hint = format!("leave --{flag} out to continue, or name another state file");
        Err(error).hint(hint).exit(Exit::Usage)
    }
}
