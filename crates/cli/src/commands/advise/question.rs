//! What a search is about, from flags and from its state file.

use super::super::staging::local_path;
use super::own_runs;
use crate::failure::{FailureExt, usage};
use crate::idle_flags::{Rule, Typed};
use crate::units;
use paceline_advisor::methods::{self, Entry};
use paceline_advisor::{Advisor, Catalogue, Measurements, Objective, Problem, Search, State};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Flags that ask.
#[derive(Debug, clap::Args)]
pub(super) struct Question {
    #[command(flatten)]
    typed: Typed,
    /// What can be rented: CSV (machine,count,cores,memory_gib,usd_per_hour) or TOML ([[machine]])
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    pub(super) catalog: PathBuf,
    /// Runs of other jobs: CSV (workload,machine,count,seconds,completed), JSON, or a folder of our own runs
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

const RULES: &[Rule<&Entry>] = &[Rule {
    flags: &["history"],
    is_met: |method| method.uses_history,
    otherwise: "with a method that learns nothing from other jobs",
    instead: "use `--method paceline`, `scout`, `paris` or `micky`",
}];

/// A question with everything read and checked.
pub(super) struct Prepared {
    pub(super) problem: Problem,
    pub(super) state: State,
    pub(super) advisor: Box<dyn Advisor>,
}

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

impl Question {
    /// Reads all files; `state` is the search's file if it has one, which may not exist yet.
    pub(super) fn prepare(&self, state: Option<&Path>) -> anyhow::Result<Prepared> {
        let catalogue = Catalogue::read(&self.catalog)?;
        let history = match &self.history {
            Some(path) if own_runs::are_runs(path) => own_runs::history(path, &catalogue)?,
            Some(path) => Measurements::read(path, &catalogue)?,
            None => Measurements::default(),
        };
        let asked = match (self.objective, self.deadline) {
            (None, None) => None,
            (goal, deadline) => Some(goal.unwrap_or(Goal::CostUnderDeadline).objective(deadline)?),
        };
        let known = state.map(State::read).transpose()?.flatten();
        let state = match known {
            Some(known) => {
                let path = state.map(Path::display);
                let path = path.map_or_else(String::new, |path| path.to_string());
                let differs = |what: &str| {
                    usage(
                        format!("`{path}` was begun with another {what}"),
                        format!("leave --{what} out to go on, or name another state file"),
                    )
                };
                if asked.is_some_and(|asked| asked != known.objective) {
                    let typed = if self.objective.is_some() { "objective" } else { "deadline" };
                    return Err(differs(typed));
                }
                if self.method.as_ref().is_some_and(|method| *method != known.method) {
                    return Err(differs("method"));
                }
                if self.typed.has("seed") && self.seed != known.seed {
                    return Err(differs("seed"));
                }
                if let Some(path) = state {
                    known
                        .check_space(path, &catalogue)
                        .hint("give the --catalog it was begun with, or name another state file")?;
                }
                known
            }
            None => State::new(
                self.method.as_deref().unwrap_or("paceline"),
                asked.unwrap_or(Objective::Cost),
                self.seed,
                &catalogue,
            ),
        };
        let problem = Problem {
            catalogue: Arc::new(catalogue),
            history: Arc::new(history),
            objective: state.objective,
        };
        let entry: &Entry = methods::find(&state.method)?;
        self.typed.check(&entry, RULES)?;
        let advisor = (entry.build)(&problem, state.seed)
            .hint("give runs of other jobs with `--history FILE`, or take another `--method`")?;
        Ok(Prepared { problem, state, advisor })
    }
}

impl Prepared {
    /// The search as it stands.
    pub(super) fn search(&self) -> anyhow::Result<Search> {
        self.state
            .search(&self.problem)
            .hint("the state file and the catalogue do not belong together")
    }
}
