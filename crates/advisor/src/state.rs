//! A search in one file, so that it can be asked and told from anywhere and survives any interruption.
//!
//! The file holds the question's outline, the search space it was begun with and the runs, by machine name
//! and count: a catalogue may be reordered or extended between two calls, but what was in it must
//! still be there, with the same properties and prices, or the runs would be judged by figures they were not
//! made with. It is replaced as a whole, never edited in place.

use crate::catalogue::{Catalogue, Machine};
use crate::error::AdvisorError;
use crate::measurements::Outcome;
use crate::search::{Objective, Problem, Run, Search};
use paceline_forecast::table::{Row, TablePlace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a state file holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchState {
    /// Of this layout.
    pub version: u32,
    /// The method that asks.
    pub method: String,
    /// What is to be small.
    pub objective: Objective,
    /// Of every random choice.
    pub seed: u64,
    /// What could be chosen when the search began; empty in files of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub space: Vec<StateMachine>,
    /// The runs so far, in order.
    pub runs: Vec<StateRun>,
}

/// One machine type of the search space in a state file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateMachine {
    /// Its properties and price.
    pub machine: Machine,
    /// How many of them could be chosen.
    pub counts: Vec<u32>,
}

/// One run in a state file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateRun {
    /// Machine type.
    pub machine: String,
    pub count: u32,
    pub outcome: Outcome,
    /// Resource metrics by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

const VERSION: u32 = 1;

impl SearchState {
    /// A search over a catalogue that has not begun.
    #[must_use]
    pub fn new(method: &str, objective: Objective, seed: u64, catalogue: &Catalogue) -> Self {
        let counts = |at: usize| {
            let own = catalogue.configurations().iter().filter(move |found| found.machine == at);
            own.map(|found| found.count).collect()
        };
        let machines = catalogue.machines().iter().enumerate();
        let space = machines
            .map(|(at, machine)| StateMachine { machine: machine.clone(), counts: counts(at) })
            .collect();
        let (version, method) = (VERSION, method.to_owned());
        Self { version, method, objective, seed, space, runs: Vec::new() }
    }

    /// Refuses a catalogue that lacks what the search was begun with, or describes it otherwise.
    pub fn check_space(&self, path: &Path, catalogue: &Catalogue) -> Result<(), AdvisorError> {
        for StateMachine { machine, counts } in &self.space {
            let found = catalogue.machines().iter().find(|found| found.name == machine.name);
            let missing =
                counts.iter().find(|&&count| catalogue.find(&machine.name, count).is_none());
            let why = match (found, missing) {
                (None, _) => format!("machine `{}` is not in the catalogue", machine.name),
                (Some(found), _) if found != machine => {
                    format!("machine `{}` has other properties or another price", machine.name)
                }
                (_, Some(count)) => {
                    format!("{count} x `{}` is not in the catalogue", machine.name)
                }
                _ => continue,
            };
            return Err(AdvisorError::OtherSpace { path: path.to_path_buf(), why });
        }
        Ok(())
    }

    /// Refuses results that cannot be, naming the entry.
    fn check_runs(&self, path: &Path) -> Result<(), AdvisorError> {
        for (entry, run) in self.runs.iter().enumerate() {
            if !run.outcome.possible() {
                let place = TablePlace::new(path, Row::Entry(entry + 1));
                return Err(AdvisorError::BadTime { place, seconds: run.outcome.seconds() });
            }
        }
        Ok(())
    }

    /// Reads a state file; `None` if there is none yet.
    pub fn read(path: &Path) -> Result<Option<Self>, AdvisorError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(AdvisorError::Read { path: path.to_path_buf(), source }),
        };
        let state: Self = serde_json::from_str(&text)
            .map_err(|source| AdvisorError::Json { path: path.to_path_buf(), source })?;
        if state.version != VERSION {
            let path = path.to_path_buf();
            return Err(AdvisorError::StateMismatch { path, what: "version of this program" });
        }
        state.check_runs(path)?;
        Ok(Some(state))
    }

    /// Keeps other processes from replacing the file at `path` until the answer is dropped: its folder is locked for as long. Nothing
    /// where the file system has no locks: better unguarded than unusable.
    pub fn lock(path: &Path) -> Result<Option<fs::File>, AdvisorError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let open = fs::File::open(folder)
            .map_err(|source| AdvisorError::Write { path: path.to_path_buf(), source })?;
        Ok(open.lock().ok().map(|()| open))
    }

    /// Replaces the file: readers, and the next start after a power cut, see the old or the new one.
    pub fn write(&self, path: &Path) -> Result<(), AdvisorError> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|source| AdvisorError::Json { path: path.to_path_buf(), source })?;
        text.push('\n');
        paceline_store::durable::write_file(path, text.as_bytes())
            .map_err(|source| AdvisorError::Write { path: path.to_path_buf(), source })
    }

    /// Adds a run.
    pub fn tell(
        &mut self,
        catalogue: &Catalogue,
        configuration: usize,
        outcome: Outcome,
        metrics: BTreeMap<String, f64>,
    ) {
        let machine = catalogue.machine(configuration).name.clone();
        let count = catalogue.count(configuration);
        self.runs.push(StateRun { machine, count, outcome, metrics });
    }

    /// The search as an advisor sees it.
    pub fn search(&self, problem: &Problem) -> Result<Search, AdvisorError> {
        let mut search = Search::new(problem.clone(), self.seed);
        for run in &self.runs {
            let configuration =
                problem.catalogue.find(&run.machine, run.count).ok_or_else(|| {
                    AdvisorError::NotInCatalogue { machine: run.machine.clone(), count: run.count }
                })?;
            // A fingerprint counts only if it has every metric of the history.
            let metrics: Option<Vec<f64>> = problem
                .history
                .metric_names()
                .iter()
                .map(|name| run.metrics.get(name).copied())
                .collect();
            let metrics = metrics.unwrap_or_default();
            search.tell(Run { configuration, outcome: run.outcome, metrics })?;
        }
        Ok(search)
    }
}
