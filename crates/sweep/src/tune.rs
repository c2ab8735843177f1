//! A search over the settings of a command: each run is a cell like those of a sweep, measured and kept in the same way.
//!
//! The journal is all that a search needs to continue; `tune.json` beside it says what was asked, so that runs of another space or
//! with other goals are never taken for these.

use crate::error::SweepError;
use crate::grid::{Cell, SweepSettings};
use crate::journal::{JOURNAL, Journal, Row};
use crate::measure::{Measure, Source};
use crate::recipe::{Axis, Choice, Recipe, Value};
use crate::run::Runner;
use paceline_advisor::tuning::{Goal, Point, SearchSpace, Trial, TrialOutcome, TuneReason, Tuner};
use paceline_store::durable;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What was asked, in a search's folder.
const QUESTION: &str = "tune.json";
/// A run that is to be short is ended at so many times the shortest so far: it cannot become the best.
const HOPELESS: f64 = 1.5;

/// What a search shall find.
#[derive(Debug, Clone)]
pub struct TuneQuestion {
    pub recipe: Recipe,
    /// Further words of the command, for every run.
    pub extra: Vec<String>,
    pub space: SearchSpace,
    /// What each goal is measured by.
    pub goals: Vec<(Goal, Measure)>,
    pub seed: u64,
}

/// When a search ends at the latest.
#[derive(Debug, Clone, Copy)]
pub struct TuneBudget {
    pub runs: usize,
    /// Seconds of all runs together.
    pub seconds: Option<f64>,
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneEnd {
    /// No further run is expected to gain anything worth it.
    Enough,
    Runs,
    Time,
    /// Every point of the space was tried.
    Exhausted,
    Interrupted,
}

/// What happens during a search.
#[derive(Debug)]
pub enum TuneEvent<'a> {
    Begins { run: usize, settings: &'a [(String, String)], reason: TuneReason },
    Ended { run: usize, trial: &'a Trial, row: &'a Row },
}

/// A search, with the runs made so far.
#[derive(Debug)]
pub struct TuneSession {
    question: TuneQuestion,
    tuner: Tuner,
    journal: Journal,
    trials: Vec<Trial>,
}

impl TuneSession {
    /// Opens the search of a folder, or begins it.
    ///
    /// # Errors
    /// The folder holds another search or a sweep, or cannot be written.
    pub fn open(question: TuneQuestion, folder: &Path) -> Result<Self, SweepError> {
        let journal = Journal::open(folder)?;
        let path = folder.join(QUESTION);
        let asked = question.document();
        match std::fs::read(&path) {
            Ok(bytes) => {
                let known: serde_json::Value = serde_json::from_slice(&bytes)
                    .map_err(|source| SweepError::DamagedQuestion { path, source })?;
                let differs = |name: &str| known.get(name) != asked.get(name);
                let parts = [
                    ("command", "another command"),
                    ("space", "another search space"),
                    ("goals", "other goals"),
                    ("seed", "another seed"),
                ];
                if let Some((_, what)) = parts.into_iter().find(|(name, _)| differs(name)) {
                    return Err(SweepError::OtherSearch { folder: folder.to_owned(), what });
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if !journal.rows().is_empty() {
                    return Err(SweepError::OtherSearch {
                        folder: folder.to_owned(),
                        what: "another command",
                    });
                }
                let text = serde_json::to_string_pretty(&asked).unwrap_or_default();
                durable::write_file(&path, text.as_bytes())
                    .map_err(|source| SweepError::Write { path, source })?;
            }
            Err(source) => return Err(SweepError::Read { path, source }),
        }
        let goals = question.goals.iter().map(|(goal, _)| goal.clone()).collect();
        let tuner = Tuner::new(question.space.clone(), goals, question.seed);
        let mut session = Self { question, tuner, journal, trials: Vec::new() };
        for (at, row) in session.journal.rows().iter().enumerate() {
            let trial = session.question.trial(row, &session.trials);
            let trial = trial.map_err(|error| match error {
                SweepError::OtherPoint { .. } => {
                    let path = folder.join(JOURNAL);
                    SweepError::StrangeRun { path, run: at + 1, what: Box::new(error) }
                }
                error => error,
            })?;
            session.trials.push(trial);
        }
        Ok(session)
    }

    /// The runs so far, in order.
    #[must_use]
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// What chooses the next one, and says which is the best.
    #[must_use]
    pub fn tuner(&self) -> &Tuner {
        &self.tuner
    }

    /// Runs the command at one point after the other until more is not worth it, the budget is used up, or it is cancelled.
    ///
    /// # Errors
    /// The command cannot be started, a file cannot be written, or a run that completed has no value for a goal.
    pub fn run(
        &mut self,
        runner: &mut Runner<'_>,
        budget: TuneBudget,
        tell: &mut dyn FnMut(TuneEvent<'_>),
    ) -> Result<TuneEnd, SweepError> {
        let limit = runner.timeout;
        loop {
            if runner.cancel.load(Ordering::Relaxed) {
                return Ok(TuneEnd::Interrupted);
            }
            let spent: f64 = self.trials.iter().map(|trial| trial.seconds).sum();
            if self.trials.len() >= budget.runs {
                return Ok(TuneEnd::Runs);
            }
            if budget.seconds.is_some_and(|most| spent >= most) {
                return Ok(TuneEnd::Time);
            }
            let Some(next) = self.tuner.propose(&self.trials) else {
                return Ok(TuneEnd::Exhausted);
            };
            if next.enough {
                return Ok(TuneEnd::Enough);
            }
            let cell = self.question.cell(&next.point)?;
            let run = self.trials.len() + 1;
            tell(TuneEvent::Begins { run, settings: &cell.settings, reason: next.reason });
            let hopeless = self.question.shortest(&self.trials).map(|best| HOPELESS * best);
            let hopeless = hopeless.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            runner.timeout = [limit, hopeless].into_iter().flatten().min();
            let row = runner.run(&self.question.recipe, &cell);
            runner.timeout = limit;
            let Some(row) = row? else { return Ok(TuneEnd::Interrupted) };
            let trial = self.question.trial(&row, &self.trials)?;
            self.journal.add(row.clone())?;
            tell(TuneEvent::Ended { run, trial: &trial, row: &row });
            self.trials.push(trial);
        }
    }
}

impl TuneQuestion {
    fn document(&self) -> serde_json::Value {
        let goals: Vec<_> = self
            .goals
            .iter()
            .map(|(goal, measure)| json!({ "goal": goal, "measure": measure }))
            .collect();
        let command: Vec<&String> = self.recipe.command.iter().chain(&self.extra).collect();
        json!({ "version": 1, "command": command, "space": self.space, "goals": goals, "seed": self.seed })
    }

    /// A name for the folder: the same question finds it again.
    #[must_use]
    pub fn folder_name(&self) -> String {
        let settings = SweepSettings { extra: self.extra.clone(), ..SweepSettings::default() };
        let hashed = self.document().to_string();
        settings.folder_name(&self.recipe, &[], Some(Path::new(&hashed)))
    }

    /// The cell of a point.
    fn cell(&self, point: &Point) -> Result<Cell, SweepError> {
        let dimensions = self.space.dimensions().iter().zip(point);
        let axis = |name: &str, value: &str| Axis {
            name: name.to_owned(),
            values: vec![Choice::Plain(Value::Text(value.to_owned()))],
        };
        let vary = dimensions
            .filter_map(|(dimension, value)| Some(axis(&dimension.name, value.as_deref()?)))
            .collect();
        let (seed, extra) = (self.seed, self.extra.clone());
        let settings = SweepSettings { vary, seed, extra, ..SweepSettings::default() };
        let cells = settings.cells(&self.recipe)?;
        cells.into_iter().next().ok_or(SweepError::TooMany { cells: 0, most: 1 })
    }

    /// The shortest run, where a short run is the only goal.
    fn shortest(&self, trials: &[Trial]) -> Option<f64> {
        let [(goal, Measure { from: Source::Wall, .. })] = &self.goals[..] else { return None };
        let values = trials.iter().filter_map(|trial| match &trial.outcome {
            TrialOutcome::Measured(_) if !goal.maximise => Some(trial.seconds),
            _ => None,
        });
        values.min_by(f64::total_cmp)
    }

    /// What a row says of its point.
    fn trial(&self, row: &Row, before: &[Trial]) -> Result<Trial, SweepError> {
        let settings = row.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let point = self.space.point(settings).ok_or_else(|| {
            let words = row.settings.iter().map(|(name, value)| format!("{name}={value}"));
            SweepError::OtherPoint { settings: words.collect::<Vec<_>>().join(" ") }
        })?;
        let seconds = row.seconds;
        let outcome = if row.failure.is_some() {
            match self.shortest(before) {
                Some(best) if seconds >= HOPELESS * best => TrialOutcome::Stopped(vec![seconds]),
                _ => TrialOutcome::Failed,
            }
        } else {
            let value = |(goal, measure): &(Goal, Measure)| {
                measure.of(row).ok_or_else(|| SweepError::NeverMeasured {
                    goal: goal.name.clone(),
                    known: known_figures(row),
                })
            };
            TrialOutcome::Measured(self.goals.iter().map(value).collect::<Result<_, _>>()?)
        };
        Ok(Trial { point, outcome, seconds })
    }
}

/// Names of what a run left.
fn known_figures(row: &Row) -> Vec<String> {
    let numbers = row.output.as_object().into_iter().flatten();
    let paths = numbers.filter(|(_, value)| value.is_number()).map(|(name, _)| format!("/{name}"));
    row.figures.keys().cloned().chain(paths).collect()
}
