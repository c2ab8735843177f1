//! One search from question to answer: read, checked, kept in a file, asked, told, or left to run the job by itself.

use crate::catalogue::Catalogue;
use crate::error::AdvisorError;
use crate::job_command::JobCommand;
use crate::measurements::{Measurements, Outcome};
use crate::methods::{self, AdvisorMethod};
use crate::own_runs;
use crate::search::{Advisor, NINE_IN_TEN, Objective, Problem, Proposal, Recommendation, Search};
use crate::state::SearchState;
use paceline_forecast::measure::are_runs;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a search is about. Where nothing is asked for, the state file decides; a new search then looks for the least
/// cost with our own method.
#[derive(Debug, Clone)]
pub struct SearchQuestion {
    /// What can be rented: CSV or TOML.
    pub catalogue: PathBuf,
    /// Runs of other jobs: CSV, JSON, or a folder of our own runs.
    pub history: Option<PathBuf>,
    pub objective: Option<Objective>,
    pub method: Option<String>,
    /// Of every random choice of a new search.
    pub seed: Option<u64>,
    /// The file of the search, which may not exist yet.
    pub state: PathBuf,
}

/// A question with everything read and checked.
pub struct SearchSession {
    path: PathBuf,
    problem: Problem,
    state: SearchState,
    /// How many of its runs the file has: others may have added some since.
    known: usize,
    method: &'static AdvisorMethod,
    advisor: Box<dyn Advisor>,
}

/// What follows from the runs so far.
#[derive(Debug, Clone)]
pub struct Advice {
    /// What to run next; nothing when everything has been tried.
    pub proposal: Option<Proposal>,
    /// What to take; nothing while no run has completed.
    pub recommendation: Option<Recommendation>,
}

/// How far a search goes by itself.
#[derive(Debug, Clone, Copy)]
pub struct SearchBudget {
    /// Runs in all, those of the state file included.
    pub runs: usize,
}

/// What happens while a search runs the job.
#[derive(Debug)]
pub enum SearchEvent<'a> {
    /// A run begins; runs are counted from one.
    Begins { run: usize, configuration: usize, reason: &'a str },
    /// It is over.
    Ended { run: usize, configuration: usize, outcome: Outcome },
}

/// One run of a search, for a picture of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchedRun {
    /// Such as `4 x m4.large`.
    pub name: String,
    /// Dollars or seconds, whichever is to be small; of a run that did not complete, until it ended.
    pub value: f64,
    /// Dollars it has cost.
    pub usd: f64,
    pub completed: bool,
    /// The least value of completed runs up to this one that keep the deadline.
    pub best: Option<f64>,
}

/// What a model expects of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedValue {
    /// Such as `4 x m4.large`.
    pub name: String,
    /// Dollars or seconds, whichever is to be small.
    pub value: f64,
    /// Nine of ten values lie between this and `high`.
    pub low: f64,
    pub high: f64,
    /// The same as it was measured.
    pub measured: Option<f64>,
}

/// Why a search went no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchEnd {
    /// As many runs were made as it may make.
    Budget { runs: usize },
    /// No configuration is left.
    Exhausted,
    /// More runs are not worth it, for this reason.
    Enough(String),
    /// The run under way was not counted.
    Interrupted,
}

impl SearchSession {
    /// Reads all files. Nothing is written.
    pub fn open(question: &SearchQuestion) -> Result<Self, AdvisorError> {
        let catalogue = Catalogue::read(&question.catalogue)?;
        let history = match &question.history {
            Some(path) if are_runs(path) => own_runs::history(path, &catalogue)?,
            Some(path) => Measurements::read(path, &catalogue)?,
            None => Measurements::default(),
        };
        let state = match SearchState::read(&question.state)? {
            Some(known) => {
                same_question(question, &known)?;
                known.check_space(&question.state, &catalogue)?;
                known
            }
            None => SearchState::new(
                question.method.as_deref().unwrap_or("paceline"),
                question.objective.unwrap_or(Objective::Cost),
                question.seed.unwrap_or(0),
                &catalogue,
            ),
        };
        let problem = Problem {
            catalogue: Arc::new(catalogue),
            history: Arc::new(history),
            objective: state.objective,
        };
        let method = methods::find(&state.method)?;
        let advisor = (method.build)(&problem, state.seed)?;
        let known = state.runs.len();
        Ok(Self { path: question.state.clone(), problem, state, known, method, advisor })
    }

    /// The method that searches.
    #[must_use]
    pub fn method(&self) -> &'static AdvisorMethod {
        self.method
    }

    /// What can be rented.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.problem.catalogue
    }

    /// What is to be small.
    #[must_use]
    pub fn objective(&self) -> Objective {
        self.problem.objective
    }

    /// What became of runs of the history on machines that the catalogue does not hold; nothing where there are none.
    #[must_use]
    pub fn outside_runs(&self) -> Option<String> {
        self.problem.history.outside().words()
    }

    /// Writes the file of the search. Runs that another process added to it meanwhile stay, and are known here then.
    pub fn save(&mut self) -> Result<(), AdvisorError> {
        let _locked = SearchState::lock(&self.path)?;
        if let Some(mut there) = SearchState::read(&self.path)?
            && there.runs.get(..self.known) == self.state.runs.get(..self.known)
        {
            there.runs.extend_from_slice(&self.state.runs[self.known..]);
            self.state.runs = there.runs;
        }
        self.state.write(&self.path)?;
        self.known = self.state.runs.len();
        Ok(())
    }

    /// What follows from the runs so far; the file of a new search is written.
    pub fn ask(&mut self) -> Result<Advice, AdvisorError> {
        if !self.path.exists() {
            self.save()?;
        }
        let search = self.search()?;
        Ok(Advice {
            proposal: self.advisor.propose(&search),
            recommendation: self.advisor.recommend(&search),
        })
    }

    /// Adds a run, writes the file, and answers what to take now.
    pub fn tell(
        &mut self,
        machine: &str,
        count: u32,
        outcome: Outcome,
        metrics: BTreeMap<String, f64>,
    ) -> Result<Option<Recommendation>, AdvisorError> {
        let catalogue = Arc::clone(&self.problem.catalogue);
        let configuration = catalogue
            .find(machine, count)
            .ok_or_else(|| AdvisorError::NotInCatalogue { machine: machine.to_owned(), count })?;
        self.state.tell(&catalogue, configuration, outcome, metrics);
        // A time that cannot be is refused here, before anything is written.
        self.search()?;
        self.save()?;
        Ok(self.advisor.recommend(&self.search()?))
    }

    /// Runs the job on one configuration after the other until more is not worth it, the budget is used up, or
    /// `interrupt` is set. The file is written after each run, so that a later call continues there.
    pub fn run(
        &mut self,
        command: &JobCommand,
        budget: SearchBudget,
        interrupt: &AtomicBool,
        watch: &mut dyn FnMut(SearchEvent<'_>),
    ) -> Result<(SearchEnd, Option<Recommendation>), AdvisorError> {
        // A state file that cannot be written should not cost a run.
        self.save()?;
        let end = self.run_until_enough(command, budget, interrupt, watch)?;
        Ok((end, self.advisor.recommend(&self.search()?)))
    }

    fn run_until_enough(
        &mut self,
        command: &JobCommand,
        budget: SearchBudget,
        interrupt: &AtomicBool,
        watch: &mut dyn FnMut(SearchEvent<'_>),
    ) -> Result<SearchEnd, AdvisorError> {
        let catalogue = Arc::clone(&self.problem.catalogue);
        while self.state.runs.len() < budget.runs && !interrupt.load(Ordering::Relaxed) {
            let Some(proposal) = self.advisor.propose(&self.search()?) else {
                return Ok(SearchEnd::Exhausted);
            };
            if let Some(stop) = proposal.stop {
                return Ok(SearchEnd::Enough(stop));
            }
            let (configuration, run) = (proposal.configuration, self.state.runs.len() + 1);
            watch(SearchEvent::Begins { run, configuration, reason: &proposal.reason });
            let machine = &catalogue.machine(configuration).name;
            let count = catalogue.count(configuration);
            let limit = proposal.outlook.and_then(|outlook| outlook.limit);
            let Some(outcome) = command.ending_after(limit).run(machine, count, interrupt)? else {
                return Ok(SearchEnd::Interrupted);
            };
            self.state.tell(&catalogue, configuration, outcome, BTreeMap::new());
            self.save()?;
            watch(SearchEvent::Ended { run, configuration, outcome });
        }
        Ok(if self.state.runs.len() < budget.runs {
            SearchEnd::Interrupted
        } else {
            SearchEnd::Budget { runs: budget.runs }
        })
    }

    /// What every run gave, in order.
    pub fn progress(&self) -> Result<Vec<SearchedRun>, AdvisorError> {
        let search = self.search()?;
        let mut so_far = Search::new(self.problem.clone(), search.seed());
        let mut all = Vec::new();
        for run in search.runs() {
            let (at, seconds) = (run.configuration, run.outcome.seconds());
            so_far.tell(run.clone())?;
            all.push(SearchedRun {
                name: self.problem.catalogue.name(at),
                value: self.problem.value(at, seconds),
                usd: self.problem.catalogue.cost(at, seconds),
                completed: run.outcome.completed().is_some(),
                best: so_far.best().map(|(_, value)| value),
            });
        }
        Ok(all)
    }

    /// What the model expects of every configuration, the least first; nothing where the method has no model, or no run yet to begin from.
    pub fn outlook(&self) -> Result<Vec<ExpectedValue>, AdvisorError> {
        let search = self.search()?;
        let measured: HashMap<usize, f64> = search.completed().collect();
        let predictions = self.advisor.predict(&search);
        let mut all: Vec<ExpectedValue> = predictions
            .into_iter()
            .enumerate()
            .filter_map(|(at, found)| {
                let found = found?;
                let within = NINE_IN_TEN * found.sd;
                Some(ExpectedValue {
                    name: self.problem.catalogue.name(at),
                    value: found.mean.exp(),
                    low: (found.mean - within).exp(),
                    high: (found.mean + within).exp(),
                    measured: measured.get(&at).map(|&seconds| self.problem.value(at, seconds)),
                })
            })
            .collect();
        all.sort_by(|a, b| a.value.total_cmp(&b.value));
        Ok(all)
    }

    fn search(&self) -> Result<Search, AdvisorError> {
        self.state.search(&self.problem)
    }
}

/// Refuses to continue a search with another question.
fn same_question(asked: &SearchQuestion, known: &SearchState) -> Result<(), AdvisorError> {
    let differs = if let Some(objective) = asked.objective.filter(|asked| *asked != known.objective)
    {
        let both = (objective, known.objective);
        let deadlines = matches!(
            both,
            (Objective::CostUnderDeadline { .. }, Objective::CostUnderDeadline { .. })
        );
        Some(if deadlines { "deadline" } else { "objective" })
    } else if asked.method.as_ref().is_some_and(|method| *method != known.method) {
        Some("method")
    } else if asked.seed.is_some_and(|seed| seed != known.seed) {
        Some("seed")
    } else {
        None
    };
    match differs {
        Some(what) => Err(AdvisorError::StateMismatch { path: asked.state.clone(), what }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: &str =
        "machine,count,cores,memory_gib,usd_per_hour\nsmall,1;2,2,4,0.1\nlarge,1;2,8,32,0.4\n";

    fn question(folder: &tempfile::TempDir) -> SearchQuestion {
        let catalogue = folder.path().join("machines.csv");
        std::fs::write(&catalogue, MACHINES).unwrap();
        SearchQuestion {
            catalogue,
            history: None,
            objective: None,
            method: Some("exhaustive".to_owned()),
            seed: None,
            state: folder.path().join("search.json"),
        }
    }

    #[test]
    fn a_search_by_itself_keeps_every_run_and_recommends() {
        let folder = tempfile::tempdir().unwrap();
        let mut session = SearchSession::open(&question(&folder)).unwrap();
        let command =
            JobCommand { template: "test {machine} = large || exit {count}".into(), limit: None };
        let (mut begun, mut ended) = (0, 0);
        let calm = AtomicBool::new(false);
        let budget = SearchBudget { runs: 3 };
        let (end, _) = session
            .run(&command, budget, &calm, &mut |event| match event {
                SearchEvent::Begins { .. } => begun += 1,
                SearchEvent::Ended { .. } => ended += 1,
            })
            .unwrap();
        assert_eq!((end, begun, ended), (SearchEnd::Budget { runs: 3 }, 3, 3));
        // Another process continues from the file.
        let mut session = SearchSession::open(&question(&folder)).unwrap();
        let budget = SearchBudget { runs: 20 };
        let (end, found) = session.run(&command, budget, &calm, &mut |_| ()).unwrap();
        let found = found.unwrap();
        assert_eq!((end, found.runs, found.failed_runs), (SearchEnd::Exhausted, 4, 2));
        assert_eq!(session.catalogue().machine(found.configuration).name, "large");
    }

    #[test]
    fn another_question_for_a_search_is_refused_and_nothing_is_written_by_opening() {
        let folder = tempfile::tempdir().unwrap();
        let asked = question(&folder);
        let mut session = SearchSession::open(&asked).unwrap();
        assert!(!asked.state.exists());
        assert!(session.ask().unwrap().proposal.is_some());
        assert!(asked.state.exists());
        for (what, other) in [
            ("objective", SearchQuestion { objective: Some(Objective::Time), ..asked.clone() }),
            ("method", SearchQuestion { method: Some("random".into()), ..asked.clone() }),
            ("seed", SearchQuestion { seed: Some(7), ..asked.clone() }),
        ] {
            let error = SearchSession::open(&other).err().unwrap().to_string();
            assert!(error.contains(&format!("another {what}")), "{error}");
        }
    }

    /// Of six told at the same time one was left.
    #[test]
    fn runs_that_several_processes_tell_at_once_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let asked = question(&folder);
        let together = std::sync::Barrier::new(6);
        std::thread::scope(|scope| {
            for teller in 1..=6 {
                let (asked, together) = (&asked, &together);
                scope.spawn(move || {
                    let mut session = SearchSession::open(asked).unwrap();
                    together.wait();
                    let seconds = f64::from(teller);
                    let told = Outcome::Completed { seconds };
                    session.tell("small", 1, told, BTreeMap::new()).unwrap();
                });
            }
        });
        let kept = SearchSession::open(&asked).unwrap();
        let mut seconds: Vec<f64> =
            kept.state.runs.iter().map(|run| run.outcome.seconds()).collect();
        seconds.sort_by(f64::total_cmp);
        assert_eq!(seconds, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn a_run_that_cannot_be_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let asked = question(&folder);
        let mut session = SearchSession::open(&asked).unwrap();
        // The last would make a price of 300 digits.
        for seconds in [-4.0, 0.0, f64::NAN, f64::INFINITY, 1e300] {
            let told = session.tell("small", 1, Outcome::Completed { seconds }, BTreeMap::new());
            assert!(told.is_err() && !asked.state.exists(), "{seconds}");
            session = SearchSession::open(&asked).unwrap();
        }
        let mut session = SearchSession::open(&asked).unwrap();
        let told = session.tell("small", 9, Outcome::Completed { seconds: 4.0 }, BTreeMap::new());
        assert!(matches!(told, Err(AdvisorError::NotInCatalogue { .. })) && !asked.state.exists());
    }
}
