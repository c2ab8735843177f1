//! `paceline advise tune`: which settings of a command are best.

use crate::arguments::paths::local_path;
use crate::arguments::units::{Span, span};
use crate::commands::sweep::own::{check_flags, current_names};
use crate::commands::sweep::{explain, foreign};
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::{Table, Terminal};
use anyhow::Context;
use paceline_advisor::tuning::{
    Goal, GoalScale, Point, SearchSpace, Trial, TrialOutcome, TuneReason,
};
use paceline_stats::repeats::Scale;
use paceline_sweep::{
    Better, Measure, Places, Recipe, Row, Runner, TuneBudget, TuneEnd, TuneEvent, TuneQuestion,
    TuneSession, default_measures,
};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Trials in the table at the end.
const SHOWN: usize = 5;

/// Arguments of `paceline advise tune`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  paceline advise tune --search lr=0.001..1:log --search batch-size=16,32,64 --objective accuracy \\
    -- train --model softmax --data digits --epochs 2
  paceline advise tune --search lr=0.0001..0.1:log --search workers=1..8 \\
    --objective loss --objective duration --measure loss='loss: ([0-9.]+)' \\
    -- python train.py --lr {lr} --workers {workers}

A setting is NAME=FROM..TO (with :log for a logarithmic scale; whole numbers if both bounds are) or NAME=A,B,C (in their order if \
all are numbers). A file of --space has a table for each: `from`, `to`, `scale = \"log\"` and `whole`, or `values`, or `choices`, and \
`when = { strategy = [\"ps-sync\"] }` where it applies only then. Settings become flags of a command of paceline; in a program \
each value goes where its name stands in braces.

Goals are what `paceline sweep` measures: accuracy, test-loss, time and rate of `train`, duration of anything, /a/path in the JSON that \
is printed, a figure of --measure or of a run folder; :min or :max behind the name says which end is wanted where the name does not. With several \
goals the answer is a front: no run on it is worse in all goals than another.

The same call continues an interrupted search. A run that fails is information; where a short run is the goal, one that \
takes 1.5 times as long as the shortest is ended.")]
pub struct Args {
    /// A setting and what it may be; may be given several times
    #[arg(long, value_name = "NAME=VALUES", required_unless_present = "space")]
    search: Vec<String>,
    /// A file of settings, conditions included
    #[arg(long, value_name = "FILE", conflicts_with = "search", value_parser = local_path())]
    space: Option<PathBuf>,
    /// What to make small or large; may be given several times
    #[arg(long, value_name = "GOAL", required = true)]
    objective: Vec<String>,
    /// A figure of a program: NAME='PATTERN (NUMBER)' finds it in its output, where the last match counts; NAME=/path takes it from its JSON
    #[arg(long, value_name = "NAME=PATTERN", value_parser = foreign::figure)]
    measure: Vec<foreign::WantedFigure>,
    /// Most runs to make; fewer if no more is to be gained
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_runs: u32,
    /// Most time for all runs together
    #[arg(long, value_name = "TIME", value_parser = span)]
    budget: Option<Span>,
    /// Most time for one run
    #[arg(long, value_name = "TIME", value_parser = span)]
    timeout: Option<Span>,
    /// Decides every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the runs [default: one under tunes/ for every search, named by what is asked]
    #[arg(long, value_name = "DIR", value_parser = local_path())]
    out: Option<PathBuf>,
    /// The command to search
    #[arg(last = true, value_name = "COMMAND", required = true)]
    command: Vec<String>,
}

/// Runs the command until the search has enough, the budget is used up, or the user stops it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let question = args.question()?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("tunes").join(question.folder_name()));
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create `{}`", out.display()))?;
    let mut session = TuneSession::open(question, &out).map_err(explain)?;
    let there = session.trials().len();
    if there > 0 {
        terminal.note(format!("{there} runs were there already"));
    }
    let cancel = terminal.interrupt()?;
    let places = Places { out: out.clone(), data: None };
    let mut runner = Runner {
        program: std::env::current_exe().context("cannot find the program itself")?,
        places: &places,
        timeout: args.timeout.map(Span::duration),
        keep_all: false,
        cancel: &cancel,
    };
    let seconds = args.budget.map(|budget| budget.duration().as_secs_f64());
    let budget = TuneBudget { runs: args.max_runs as usize, seconds };
    let names: Vec<String> = session.tuner().goals().iter().map(|goal| goal.name.clone()).collect();
    let mut failed = None;
    let end = session
        .run(&mut runner, budget, &mut |event| {
            let words = event_words(&event, &names);
            if let TuneEvent::Ended { trial, .. } = event
                && trial.outcome == TrialOutcome::Failed
            {
                failed = Some(words.clone());
            }
            terminal.note(words);
        })
        .map_err(explain)?;
    // Where no run completed, why the last did not is all that is known, with --quiet too.
    let answer = session.tuner().best(session.trials()).is_some();
    if let Some(why) = failed.filter(|_| !answer) {
        terminal.warn(why);
    }
    show(&session, end, terminal)?;
    terminal.note(format!("runs: {}", out.display()));
    terminal.json(&document(&session, end, &out))?;
    Ok(match end {
        TuneEnd::Interrupted => terminal.signalled().unwrap_or(Exit::Interrupted),
        // A search without any completed run has no answer.
        _ if !answer => Exit::Failed,
        _ => Exit::Done,
    })
}

impl Args {
    fn question(&self) -> anyhow::Result<TuneQuestion> {
        let space = match &self.space {
            Some(path) => SearchSpace::read(path),
            None => SearchSpace::parse(self.search.iter().map(String::as_str)),
        };
        let space = space.exit(Exit::Usage)?;
        let names = space.dimensions().iter().map(|dimension| dimension.name.as_str());
        let command = current_names(&self.command);
        let (recipe, extra) = if let Some(program) = foreign::program(&command[0])? {
            let words = &self.command[1..];
            foreign::check_places(words, names, "--search")?;
            (foreign::recipe(&program, words, &self.measure)?, words.to_vec())
        } else {
            if !self.measure.is_empty() {
                return Err(usage(
                    "--measure has no effect on a command of paceline, whose figures are known",
                    "name one of them with --objective",
                ));
            }
            let recipe = Recipe::of_command(&command[0], &command[1..].join(" "));
            check_flags(&recipe, names, "--search")?;
            (recipe, command[1..].to_vec())
        };
        let goals: Vec<(Goal, Measure)> =
            self.objective.iter().map(|text| goal(text, &recipe)).collect::<Result<_, _>>()?;
        for (at, (goal, _)) in goals.iter().enumerate() {
            if goals[..at].iter().any(|(known, _)| known.name == goal.name) {
                return Err(usage(
                    format!("`--objective {}` was given twice", goal.name),
                    "name each goal once",
                ));
            }
        }
        Ok(TuneQuestion { recipe, extra, space, goals, seed: self.seed })
    }
}

/// `accuracy`, `duration:min` or `/final/loss`.
fn goal(text: &str, recipe: &Recipe) -> anyhow::Result<(Goal, Measure)> {
    let (name, end) = match text.rsplit_once(':') {
        Some((name, "min")) => (name, Some(Better::Lower)),
        Some((name, "max")) => (name, Some(Better::Higher)),
        _ => (text, None),
    };
    let known = if recipe.program.is_some() {
        recipe.measure.clone()
    } else {
        default_measures(&recipe.command)
    };
    let is_called =
        |measure: &&Measure| measure.name == name || measure.name.replace(' ', "-") == name;
    let measure = match (known.iter().find(is_called), name) {
        (Some(measure), _) => measure.clone(),
        (None, "duration") => Measure::wall(),
        (None, path) if path.starts_with('/') => Measure::output(name, path).ok_or_else(|| {
            usage(format!("`{path}` is not a path in JSON"), "write it as in /final/test_loss")
        })?,
        (None, _) if recipe.program.is_some() => Measure::figure(name),
        (None, _) => {
            let names: Vec<String> =
                known.iter().map(|measure| measure.name.replace(' ', "-")).collect();
            return Err(usage(
                format!("`paceline {}` has no figure `{name}`", recipe.command[0]),
                format!("there are {}, duration, and any /path in its JSON", names.join(", ")),
            ));
        }
    };
    let Some(better) = end.or_else(|| measure.better()) else {
        return Err(usage(
            format!("it is not known whether `{name}` should be small or large"),
            format!("write --objective {name}:min or --objective {name}:max"),
        ));
    };
    let scale = match measure.scale() {
        Scale::Bounded { low, high } => GoalScale::Bounded { low, high },
        Scale::Linear if !name.contains("loss") => GoalScale::Linear,
        Scale::Linear | Scale::Logarithmic => GoalScale::Logarithmic,
    };
    let goal = Goal { name: name.to_owned(), maximise: better == Better::Higher, scale };
    Ok((goal, measure))
}

fn event_words(event: &TuneEvent<'_>, goals: &[String]) -> String {
    match event {
        TuneEvent::Begins { run, settings, reason } => {
            let settings: Vec<String> =
                settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let why = match reason {
                TuneReason::Spread => "to see all of the space".to_owned(),
                TuneReason::Improvement { share } if *share < 0.005 => {
                    "little is expected of it".to_owned()
                }
                TuneReason::Improvement { share } => {
                    format!("{:.0} % better is expected", 100.0 * share)
                }
            };
            format!("run {run}: {} ({why})", settings.join(", "))
        }
        TuneEvent::Ended { run, trial, row } => {
            format!("run {run}: {} after {:.1} s", outcome_words(trial, row, goals), trial.seconds)
        }
    }
}

fn outcome_words(trial: &Trial, row: &Row, goals: &[String]) -> String {
    match &trial.outcome {
        TrialOutcome::Measured(values) => {
            let parts = goals.iter().zip(values).map(|(name, value)| format!("{name} {value:.4}"));
            parts.collect::<Vec<_>>().join(", ")
        }
        TrialOutcome::Stopped(_) => "ended, it cannot become the shortest".to_owned(),
        TrialOutcome::Failed => {
            let reason = row.failure.as_ref().map_or("no reason", |failure| &failure.reason);
            format!("failed: {reason}")
        }
    }
}

fn end_words(end: TuneEnd) -> &'static str {
    match end {
        TuneEnd::Enough => "no further run is expected to gain much",
        TuneEnd::Runs => "as many runs as --max-runs allows were made",
        TuneEnd::Time => "the time of --budget is used up",
        TuneEnd::Exhausted => "every setting was tried",
        TuneEnd::Interrupted => "interrupted; the same call continues",
    }
}

/// The best runs, or those on the front.
fn show(session: &TuneSession, end: TuneEnd, terminal: &Terminal) -> anyhow::Result<()> {
    let (tuner, trials) = (session.tuner(), session.trials());
    terminal.data(format!("ended:  {} ({} runs)", end_words(end), trials.len()))?;
    let several = tuner.goals().len() > 1;
    let chosen: Vec<usize> = if several {
        tuner.front(trials)
    } else {
        tuner.ranked(trials).into_iter().take(SHOWN).collect()
    };
    if chosen.is_empty() {
        return terminal.data("no run completed");
    }
    let names = tuner.space().dimensions().iter().map(|dimension| dimension.name.clone());
    let goals = tuner.goals().iter().map(|goal| goal.name.clone());
    let heads: Vec<String> = names.chain(goals).chain(["run".to_owned()]).collect();
    let mut table = Table::new(heads);
    for at in chosen {
        let TrialOutcome::Measured(values) = &trials[at].outcome else { continue };
        let point =
            trials[at].point.iter().map(|value| value.clone().unwrap_or_else(|| "–".to_owned()));
        let values = values.iter().map(|value| format!("{value:.4}"));
        table.row(point.chain(values).chain([(at + 1).to_string()]).collect::<Vec<_>>());
    }
    if several {
        terminal.data("front:  no run here is worse in all goals than another")?;
    } else {
        terminal.data("best first:")?;
    }
    terminal.data(table)
}

fn document(session: &TuneSession, end: TuneEnd, out: &Path) -> serde_json::Value {
    let (tuner, trials) = (session.tuner(), session.trials());
    let settings = |point: &Point| -> serde_json::Map<String, serde_json::Value> {
        let pairs = tuner.space().dimensions().iter().zip(point);
        pairs.map(|(dimension, value)| (dimension.name.clone(), json!(value))).collect()
    };
    let runs: Vec<serde_json::Value> = trials
        .iter()
        .map(|trial| {
            let (outcome, values) = match &trial.outcome {
                TrialOutcome::Measured(values) => ("measured", Some(values)),
                TrialOutcome::Stopped(_) => ("stopped", None),
                TrialOutcome::Failed => ("failed", None),
            };
            let goals = tuner.goals().iter().zip(values.into_iter().flatten());
            let goals: serde_json::Map<String, serde_json::Value> =
                goals.map(|(goal, value)| (goal.name.clone(), json!(value))).collect();
            json!({
                "settings": settings(&trial.point), "outcome": outcome, "goals": goals,
                "seconds": trial.seconds,
            })
        })
        .collect();
    json!({
        "folder": out,
        "ended": end,
        "goals": tuner.goals(),
        "best": tuner.best(trials).map(|at| runs[at].clone()),
        "front": tuner.front(trials).into_iter().map(|at| runs[at].clone()).collect::<Vec<_>>(),
        "runs": runs,
    })
}
