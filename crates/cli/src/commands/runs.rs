//! `paceline runs`: lists runs, and compares those that are named.

use crate::{
    arguments::idle_flags::{Rule, Typed},
    arguments::train_flags::find_run,
    terminal::failure::Exit,
    terminal::{Table, Terminal},
};
use paceline_data::store::{self, Staging, staging::without_weights};
use paceline_report::training::{Growth, scaling_of};
use paceline_runs::{RecordedPlan, RunFolder, RunState, RunView, Summary, format_utc, list};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `paceline runs`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// Runs to compare, by folder or name; the first is the baseline. Without any, all are listed
    #[arg(id = "named", value_name = "RUNS")]
    runs: Vec<String>,
    /// Folder of run folders
    #[arg(long = "runs", id = "runs", value_name = "DIR", default_value = "runs")]
    folder: PathBuf,
}

/// For runs as they were typed: `--runs` says where names are looked up.
pub(super) const NAME_RULES: &[Rule<[String]>] = &[Rule {
    flags: &["runs"],
    is_met: |named| named.iter().any(|name| !is_folder(name)),
    otherwise: "on runs that are given by their folders",
    instead: "give their names",
}];

/// Whether a run was named by where it lies, rather than by its name in a folder of runs.
fn is_folder(name: &str) -> bool {
    let path = Path::new(name);
    path.exists() || store::is_remote(path)
}

/// Lists or compares.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut staging = Staging::default();
    if args.runs.is_empty() {
        let out = staging.input(&args.folder, &without_weights)?;
        let runs = list(&out)?;
        // One run in memory at a time: thousands of plans and summaries would fill it.
        if terminal.wants_json() {
            let all = runs.iter().map(|run| Row::read_briefly(run).json()).collect::<Vec<_>>();
            terminal.json(&all)?;
        }
        if runs.is_empty() {
            terminal.note(format!("no runs in `{}`", args.folder.display()));
        } else if !terminal.wants_json() {
            terminal.data(listing(runs.iter().map(Row::read_briefly)))?;
        }
        return Ok(Exit::Done);
    }
    args.typed.check(&args.runs[..], NAME_RULES)?;
    let mut found = Vec::new();
    for name in &args.runs {
        let (out, name) = staging.run(&args.folder, name, &without_weights)?;
        found.push(find_run(&out, &name)?);
    }
    let runs: Vec<Row> = found.iter().map(Row::read).collect();
    terminal.json(&runs.iter().map(Row::json).collect::<Vec<_>>())?;
    terminal.data(comparison(&runs))?;
    for row in &runs {
        terminal.data(format!("verdict on {}: {}", row.name, row.verdict()))?;
    }
    let views: Vec<RunView> = runs.into_iter().filter_map(|row| row.view).collect();
    for found in scaling_of(&views) {
        terminal.data(scaling(&found))?;
    }
    Ok(Exit::Done)
}

/// A run as far as its files tell.
struct Row {
    name: String,
    plan: RecordedPlan,
    state: RunState,
    /// Everything about it; absent where its summary was enough, or its files cannot be read.
    view: Option<RunView>,
}

impl Row {
    fn read(run: &RunFolder) -> Self {
        let view = RunView::read(run.path()).ok();
        let plan = view.as_ref().map(|view| view.plan.clone());
        Self {
            name: run.name(),
            plan: plan.unwrap_or_else(|| RecordedPlan::read(run, &[])),
            state: run.state(),
            view,
        }
    }

    /// The same without the events of runs whose summary says all.
    fn read_briefly(run: &RunFolder) -> Self {
        match run.state() {
            RunState::Ended(summary) if summary.diagnosis.is_some() => Self {
                name: run.name(),
                plan: RecordedPlan::read(run, &[]),
                state: RunState::Ended(summary),
                view: None,
            },
            _ => Self::read(run),
        }
    }

    fn summary(&self) -> Option<&Summary> {
        match (&self.view, &self.state) {
            (Some(view), _) => Some(&view.summary),
            (None, RunState::Ended(summary)) => Some(summary),
            _ => None,
        }
    }

    fn status(&self) -> String {
        self.state.word()
    }

    fn verdict(&self) -> &str {
        match (self.summary(), &self.state) {
            (Some(summary), _) => &summary.verdict,
            (None, RunState::Broken(why)) => why,
            (None, _) => "its events cannot be read",
        }
    }

    fn asked(&self, name: &str) -> String {
        self.plan.setting(name).unwrap_or_else(|| "–".to_owned())
    }

    fn json(&self) -> Value {
        let reason = match &self.state {
            RunState::Broken(reason) => Some(reason),
            _ => None,
        };
        json!({
            "run": self.name,
            "status": self.status(),
            "reason": reason,
            "plan": self.plan.whole,
            "summary": self.summary(),
            "verdict": self.verdict(),
            "diagnosis": self.summary().and_then(|summary| summary.diagnosis.as_ref()),
        })
    }
}

/// What more workers bring.
fn scaling(found: &Growth) -> String {
    let mut table = Table::new(["workers", "examples/s", "speed-up", "efficiency %"]);
    for point in &found.scaling.points {
        table.row([
            point.workers.to_string(),
            number(point.rate, 0),
            number(point.speedup, 2),
            number(100.0 * point.efficiency, 0),
        ]);
    }
    format!("\n{table}{}", found.words())
}

/// A number, or a dash where there is none.
fn number(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { "–".to_string() }
}

fn listing(runs: impl Iterator<Item = Row>) -> String {
    let mut table = Table::new([
        "run",
        "status",
        "batch",
        "steps",
        "test loss",
        "accuracy %",
        "examples/s",
        "seconds",
        "started (UTC)",
    ]);
    for run in runs {
        let mut cells = vec![run.name.clone(), run.status(), run.asked("batch_size")];
        if let Some(summary) = run.summary() {
            cells.extend([
                summary.global_steps.to_string(),
                number(summary.last.test_loss, 4),
                number(100.0 * summary.last.test_accuracy, 2),
                number(summary.examples_per_second, 0),
                number(summary.seconds, 2),
                format_utc(summary.started),
            ]);
        }
        table.row(cells);
    }
    table.to_string()
}

/// One column per run; numbers also as a ratio to the first.
fn comparison(runs: &[Row]) -> String {
    let mut table =
        Table::new(std::iter::once(String::new()).chain(runs.iter().map(|run| run.name.clone())));
    let mut row = |name: &str, cells: Vec<String>| {
        table.row(std::iter::once(name.to_string()).chain(cells));
    };
    row("status", runs.iter().map(Row::status).collect());
    for name in [
        "model",
        "data",
        "strategy",
        "batch_size",
        "optimizer",
        "learning_rate",
        "schedule",
        "seed",
    ] {
        row(&name.replace('_', " "), runs.iter().map(|run| run.asked(name)).collect());
    }
    const RECOVERY: &str = "recovery %";
    type Measure = (&'static str, usize, fn(&Summary) -> f64);
    let measures: [Measure; 10] = [
        ("steps", 0, |summary| summary.global_steps as f64),
        ("seconds", 3, |summary| summary.seconds),
        ("examples/s", 0, |summary| summary.examples_per_second),
        ("train loss", 4, |summary| summary.last.train_loss),
        ("test loss", 4, |summary| summary.last.test_loss),
        ("test accuracy %", 2, |summary| 100.0 * summary.last.test_accuracy),
        ("input %", 1, |summary| 100.0 * summary.phases.input),
        ("compute %", 1, |summary| 100.0 * summary.phases.compute),
        ("exchange and wait %", 1, |summary| {
            100.0 * (summary.phases.exchange + summary.phases.wait)
        }),
        (RECOVERY, 1, |summary| 100.0 * summary.phases.recovery),
    ];
    // A ratio to another model or other data says nothing.
    let base = runs.first().and_then(Row::summary);
    let comparable: Vec<bool> = runs
        .iter()
        .map(|run| run.summary().zip(base).is_some_and(|(run, base)| run.comparable(base)))
        .collect();
    for (name, decimals, measure) in measures {
        let values: Vec<f64> =
            runs.iter().map(|run| run.summary().map_or(f64::NAN, measure)).collect();
        if name == RECOVERY && values.iter().all(|share| share.is_nan() || *share == 0.0) {
            continue; // no run lost a task
        }
        let cells = values.iter().enumerate().map(|(at, value)| {
            let ratio = value / values[0];
            let text = number(*value, decimals);
            if at > 0 && ratio.is_finite() && comparable[at] && !name.ends_with('%') {
                format!("{text} ({ratio:.2}x)")
            } else {
                text
            }
        });
        row(name, cells.collect());
    }
    table.to_string()
}
