//! `paceline sweep`: a grid of runs, resumable, with one table and one page at the end.
//!
//! Cells, journal and findings are `paceline_sweep`; here they meet the terminal.

pub(super) mod foreign;
pub(super) mod own;
mod spark;

use crate::arguments::engine::EngineArgs;
use crate::arguments::idle_flags::{Rule, Typed};
use crate::arguments::paths::refuse_for_tasks;
use crate::arguments::units::{Span, span};
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::{Table, Terminal, Unit};
use anyhow::Context;
use paceline_cluster::launch::spark::Spark;
use paceline_data::store::Staging;
use paceline_models::registry::{self, Named};
use paceline_runs::{Machine, write_atomically};
use paceline_sweep::{
    Cell, Findings, Journal, Places, Recipe, Row, Runner, SweepError, SweepSettings, analyse,
    check_hosts, csv, growth_words, html, markdown, parse_vary, recipes, tables,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Arguments of `paceline sweep`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  paceline sweep softmax-batch --scale 0.1
  paceline sweep recipes/lenet.toml --vary batch-size=32,128 --repeats 5
  paceline sweep --vary batch-size=10,50 --vary lr=0.01,0.1 \\
    -- train --model softmax --data digits --epochs 2
  paceline sweep --vary lr=0.1,0.01 --measure loss='loss: ([0-9.]+)' -- python train.py --lr {lr}

If the first word behind `--` is a command of paceline (`paceline --help` lists them), that is swept, and --vary adds flags to it. \
Otherwise it is a program (`./train` is one, even if its name is a command's), and each value goes where its name stands in braces. \
Of a program, the numbers of a JSON object that it prints, the rate, loss and accuracy of a run folder that it leaves \
(PACELINE_RUN_FOLDER names the place, paceline.Run in Python writes there) and its duration are measured.

The same call continues an interrupted sweep; cells that are done are not run again. A folder that \
holds another sweep is refused. `paceline list recipes` lists what comes with the program. A \
recipe's page puts the published figures beside the measured ones.

With --engine spark every cell is a task. Tasks on one host disturb each other's measurements: --spark-conf spark.task.cpus=N gives \
each one N cores to itself.")]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// A recipe: a file, or the name of one that comes with the program
    recipe: Option<String>,
    /// A flag and the values to try, or a recipe's axis and names of its settings; may be given several times
    #[arg(long, value_name = "FLAG=A,B,…")]
    vary: Vec<String>,
    /// Measurements of each setting, each with a seed of its own unless --seed is given [default: the recipe's own, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: Option<u32>,
    /// Share of the published size, such as 0.1 for a laptop
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    scale: f64,
    /// Decides the order of the cells
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for results, here or in an object store [default: one under sweeps/ for every sweep, named by what it runs]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The data set [default: from PACELINE_DATA or data/, else drawn by the program]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Most time for one cell
    #[arg(long, value_name = "TIME", value_parser = span)]
    timeout: Option<Span>,
    /// A figure of a program: NAME='PATTERN (NUMBER)' finds it in its output, where the last match counts; NAME=/path takes it from its JSON
    #[arg(long, value_name = "NAME=PATTERN", value_parser = foreign::figure)]
    measure: Vec<foreign::WantedFigure>,
    /// Run cells again that failed
    #[arg(long)]
    retry_failed: bool,
    /// Run cells again whose own verdict says that other programs took the cores
    #[arg(long)]
    retry_disturbed: bool,
    /// Give every worker of a cell a host of its own, a network namespace of this machine, with the server beside worker 0; needs root
    #[arg(long, conflicts_with = "engine")]
    hosts: bool,
    /// Keep checkpoints and shards of finished cells
    #[arg(long)]
    keep_all: bool,
    /// Only say what would be run
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    engine: EngineArgs,
    /// The command to sweep, or further arguments for the recipe's
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What the cells of a sweep are filled in with.
struct Uses {
    scale: bool,
    data: bool,
    measures: bool,
    own: bool,
}

impl Uses {
    fn of(recipe: &Recipe, cells: &[Cell]) -> Self {
        let asks = |cell: &Cell| cell.arguments.iter().any(|word| word.contains("{data}"));
        Self {
            scale: !recipe.scaled.is_empty(),
            data: recipe.data.is_some() || cells.iter().any(asks),
            measures: recipe.program.is_some(),
            own: recipe.program.is_none(),
        }
    }
}

const RULES: &[Rule<Uses>] = &[
    Rule {
        flags: &["scale"],
        is_met: |uses| uses.scale,
        otherwise: "on a command without a published size",
        instead: "name a recipe: `paceline list recipes` lists them",
    },
    Rule {
        flags: &["data"],
        is_met: |uses| uses.data,
        otherwise: "on a command that does not ask for it",
        instead: "give the data to the command itself, or put `{data}` there",
    },
    Rule {
        flags: &["measure"],
        is_met: |uses| uses.measures,
        otherwise: "on a command of paceline, whose figures are known",
        instead: "sweep a program",
    },
    Rule {
        flags: &["hosts"],
        is_met: |uses| uses.own,
        otherwise: "on a program whose workers are not known",
        instead: "sweep a command of paceline",
    },
];

/// Runs the cells that are left, and says what all of them tell.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let (recipe, mut settings) = args.resolve()?;
    args.check_names(&recipe)?;
    let cells = settings.cells(&recipe).map_err(explain)?;
    args.typed.check(&Uses::of(&recipe, &cells), RULES)?;
    let spark = args.engine.spark()?;
    let out = args.out.clone().unwrap_or_else(|| {
        let data = args.found_data(&recipe);
        Path::new("sweeps").join(settings.folder_name(&recipe, &cells, data.as_deref()))
    });
    let places = Places { data: args.data_set(&recipe, &out), out: out.clone() };
    own::check_cells(&cells, &places)?;
    if args.dry_run {
        return dry_run(&recipe, &places, &cells, terminal);
    }
    if spark.is_some() {
        refuse_for_tasks(&out)?;
    }
    let mut staging = Staging::default();
    let here = staging.results(&out)?;
    let places = Places { data: args.data_set(&recipe, &here), out: here };
    settings.found_data = places.data.clone().filter(|data| *data != places.out.join("data"));
    let plan = Plan { recipe: &recipe, settings: &settings, cells: &cells, places: &places };
    let outcome = sweep(args, &plan, spark.as_ref(), &staging, terminal);
    terminal.settle(staging, outcome)
}

/// What is to be run, with results in a folder of this machine.
struct Plan<'a> {
    recipe: &'a Recipe,
    settings: &'a SweepSettings,
    cells: &'a [Cell],
    places: &'a Places,
}

fn sweep(
    args: &Args,
    plan: &Plan<'_>,
    spark: Option<&Spark>,
    staging: &Staging,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let &Plan { recipe, settings, cells, places } = plan;
    let cancel = terminal.interrupt()?;
    let mut journal = Journal::open(&places.out).map_err(explain)?;
    journal.check(cells, &places.data_name()).map_err(explain)?;
    let timeout = timeout(args, recipe)?;
    if settings.hosts {
        check_hosts(&places.out).map_err(explain)?;
    }
    let runner = Runner {
        program: std::env::current_exe().context("cannot find the program itself")?,
        places,
        timeout,
        keep_all: args.keep_all,
        cancel: &cancel,
    };
    let set_up = runner.set_up(recipe, settings, |command| {
        terminal.note(format!("first: paceline {command}"));
    });
    match set_up {
        Err(SweepError::Interrupted) => {
            return Ok(terminal.signalled().unwrap_or(Exit::Interrupted));
        }
        other => other.map_err(explain)?,
    }
    let interrupted = match spark {
        Some(spark) => {
            spark::run_cells(args, spark, recipe, cells, &runner, &mut journal, terminal)?
        }
        None => run_cells(args, recipe, cells, &runner, &mut journal, terminal)?,
    };
    let found = analyse(recipe, settings, cells, journal.rows());
    let written = write(recipe, settings, places, &found, &hosts(cells, &journal))?;
    let files: Vec<PathBuf> = written.iter().map(|path| staging.there(path)).collect();
    show(&found, terminal)?;
    terminal.note(format!("page: {}", files[0].display()));
    terminal.json(&json!({
        "recipe": recipe.name,
        "scale": settings.scale,
        "data": places.data.as_ref().map(|data| staging.there(data)),
        "complete": found.done == found.cells,
        "findings": found,
        "files": files,
    }))?;
    Ok(conclude(&found, interrupted, terminal))
}

/// How long a cell may take: as asked for, else as the recipe says.
fn timeout(args: &Args, recipe: &Recipe) -> anyhow::Result<Option<Duration>> {
    let of_recipe = recipe.timeout.map(Duration::try_from_secs_f64).transpose();
    let of_recipe = of_recipe.with_context(|| {
        format!("recipe `{}`: the timeout must be a positive number of seconds", recipe.name)
    })?;
    Ok(args.timeout.map(Span::duration).or(of_recipe))
}

/// Says what is left to do, and how to exit.
fn conclude(found: &Findings, interrupted: bool, terminal: &Terminal) -> Exit {
    if interrupted {
        terminal.note(format!(
            "{} of {} cells are done; the same call continues",
            found.done, found.cells
        ));
        return terminal.signalled().unwrap_or(Exit::Interrupted);
    }
    if found.disturbed > 0 {
        terminal.note(format!(
            "others took cores from {} of {} cells; --retry-disturbed measures them again",
            found.disturbed, found.cells
        ));
    }
    if found.failures.is_empty() {
        return Exit::Done;
    }
    terminal.warn(format!(
        "{} of {} cells failed; --retry-failed runs them again",
        found.failures.len(),
        found.cells
    ));
    Exit::Failed
}

/// Runs the remaining cells; returns whether the user stopped the sweep.
fn run_cells(
    args: &Args,
    recipe: &Recipe,
    cells: &[Cell],
    runner: &Runner<'_>,
    journal: &mut Journal,
    terminal: &Terminal,
) -> anyhow::Result<bool> {
    let there = cells.iter().filter(|cell| args.is_done(journal, cell)).count();
    if there > 0 {
        terminal.note(format!("{there} of {} cells were there already", cells.len()));
    }
    let bar = terminal.progress("sweep", Some(cells.len() as u64), Unit::Items("cells"));
    let mut done = there as u64;
    bar.set(done);
    for cell in cells {
        if args.is_done(journal, cell) {
            continue;
        }
        bar.message(format!("· {}", cell.label()));
        if runner.cancel.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let Some(row) = runner.run(recipe, cell).map_err(explain)? else { return Ok(true) };
        tell_row(cell, &row, terminal);
        journal.add(row).map_err(explain)?;
        done += 1;
        bar.set(done);
    }
    Ok(false)
}

/// Says what became of a cell.
fn tell_row(cell: &Cell, row: &Row, terminal: &Terminal) {
    let place = row.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
    match &row.failure {
        Some(failure) => terminal.warn(format!("{}{place}: {}", cell.label(), failure.reason)),
        None => terminal.note(format!("{}{place}: {:.2} s", cell.label(), row.seconds)),
    }
}

impl Args {
    /// Whether a cell need not be run.
    fn is_done(&self, journal: &Journal, cell: &Cell) -> bool {
        journal.find(&cell.key).is_some_and(|row| {
            let failed = row.failure.is_some() && self.retry_failed;
            let disturbed = row.disturbed_by().is_some() && self.retry_disturbed;
            !failed && !disturbed
        })
    }

    fn resolve(&self) -> anyhow::Result<(Recipe, SweepSettings)> {
        let vary = self
            .vary
            .iter()
            .map(|text| parse_vary(text))
            .collect::<Result<Vec<_>, _>>()
            .map_err(explain)?;
        let (recipe, extra) = match &self.recipe {
            Some(name) => (find(name)?, self.swept()),
            None if vary.is_empty() || self.command.is_empty() => {
                return Err(usage(
                    "nothing to sweep",
                    "name a recipe (`paceline list recipes`), or give --vary FLAG=A,B and a command behind `--`",
                ));
            }
            None => match foreign::program(&self.swept()[0])? {
                Some(program) => {
                    let words = &self.command[1..];
                    (foreign::recipe(&program, words, &self.measure)?, words.to_vec())
                }
                None => (self.of_command(), self.swept()[1..].to_vec()),
            },
        };
        let settings = SweepSettings {
            scale: self.scale,
            repeats: self.repeats,
            seed: self.seed,
            vary,
            extra,
            found_data: None,
            hosts: self.hosts,
        };
        Ok((recipe, settings))
    }

    fn check_names(&self, recipe: &Recipe) -> anyhow::Result<()> {
        let varied = self.vary.iter().filter_map(|text| text.split_once('='));
        let names = varied.map(|(name, _)| name.trim().trim_start_matches("--"));
        if recipe.program.is_some() {
            return foreign::check_places(&self.command[1..], names, "--vary");
        }
        own::check_flags(recipe, names, "--vary")
    }

    /// The command that was typed, in the names of this version.
    fn swept(&self) -> Vec<String> {
        own::current_names(&self.command)
    }

    /// A recipe for it.
    fn of_command(&self) -> Recipe {
        let command = self.swept();
        let (name, rest) = (&command[0], &command[1..]);
        let recipe = Recipe::of_command(name, &rest.join(" "));
        if takes_seed(name, rest, &self.vary) { recipe.seeded() } else { recipe }
    }

    /// The data set of a recipe: the one named, else the real one where it is.
    fn found_data(&self, recipe: &Recipe) -> Option<PathBuf> {
        if let Some(data) = &self.data {
            return Some(data.clone());
        }
        let set = &recipe.data.as_ref()?.set;
        let roots = std::env::var_os("PACELINE_DATA").map(PathBuf::from).into_iter();
        let mut roots = roots.chain([PathBuf::from("data")]);
        roots.find_map(|root| Some(root.join(set)).filter(|path| path.is_dir()))
    }

    /// The same, else the place for a drawn one.
    fn data_set(&self, recipe: &Recipe, out: &Path) -> Option<PathBuf> {
        let drawn = || recipe.data.as_ref().map(|_| out.join("data"));
        self.found_data(recipe).or_else(drawn)
    }
}

/// Whether repeats of a command should differ in their seed: it has one, nothing was said about it, and no model is trained that
/// draws nothing at random.
fn takes_seed(name: &str, arguments: &[String], vary: &[String]) -> bool {
    let command = crate::command();
    let has_seed = command
        .find_subcommand(name)
        .is_some_and(|found| found.get_arguments().any(|flag| flag.get_long() == Some("seed")));
    let given = arguments.iter().any(|word| word == "--seed" || word.starts_with("--seed="));
    let words = arguments.iter().chain(vary).flat_map(|word| word.split([',', '=']));
    let is_sparse = |word: &str| matches!(registry::named(word), Ok(Named::Sparse));
    has_seed && !given && !words.into_iter().any(is_sparse)
}

/// A recipe by file, or by the name of one that comes with the program.
fn find(name: &str) -> anyhow::Result<Recipe> {
    let path = Path::new(name);
    if path.is_file() {
        return Recipe::read(path).map_err(explain);
    }
    match recipes::find(name) {
        Some(text) => Recipe::parse(name, text).map_err(explain),
        None => Err(usage(
            format!("there is no recipe `{name}`"),
            format!("a recipe is a TOML file, or one of: {}", recipes::names().join(", ")),
        )),
    }
}

fn dry_run(
    recipe: &Recipe,
    places: &Places,
    cells: &[Cell],
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    let mut shown = Table::new(["cell", "command"]);
    let mut documents = Vec::new();
    for cell in cells {
        let arguments = places.arguments(cell).map_err(explain)?;
        shown.row([cell.label(), cell.typed(&arguments)]);
        documents.push(json!({
            "cell": cell.label(), "key": cell.key, "program": cell.program, "arguments": arguments,
        }));
    }
    terminal.data(shown)?;
    terminal.json(&json!({ "recipe": recipe.name, "data": places.data, "cells": documents }))?;
    terminal.note(format!("{} cells", cells.len()));
    Ok(Exit::Done)
}

/// Hosts that an engine chose for these cells.
fn hosts<'a>(cells: &[Cell], journal: &'a Journal) -> BTreeSet<&'a str> {
    cells.iter().filter_map(|cell| journal.find(&cell.key)?.host.as_deref()).collect()
}

/// Page, Markdown, CSV and JSON, in that order.
fn write(
    recipe: &Recipe,
    settings: &SweepSettings,
    places: &Places,
    found: &Findings,
    hosts: &BTreeSet<&str>,
) -> anyhow::Result<Vec<PathBuf>> {
    let machine = Machine::detect();
    let measured = if hosts.is_empty() {
        let Machine { host, cpu, cores, kernel, .. } = machine;
        format!("Measured on {host}: {cpu}, {cores} cores, Linux {kernel}.")
    } else {
        let hosts: Vec<&str> = hosts.iter().copied().collect();
        format!("Measured by tasks of an engine on {}.", hosts.join(", "))
    };
    let footer = format!("{measured} Written by Paceline {}.", env!("CARGO_PKG_VERSION"));
    let mut files = Vec::new();
    for (ending, text) in [
        ("html", html(recipe, settings, found, &footer)),
        ("md", markdown(recipe, settings, found)),
        ("csv", csv(found)),
        ("json", serde_json::to_string_pretty(found)?),
    ] {
        let path = places.out.join(format!("sweep.{ending}"));
        write_atomically(&path, text.as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        files.push(path);
    }
    Ok(files)
}

fn show(found: &Findings, terminal: &Terminal) -> anyhow::Result<()> {
    for (title, page) in tables(found) {
        if let Some(title) = title {
            terminal.data(format!("\n{title}"))?;
        }
        let mut shown = Table::new(page.columns.iter().map(|column| match &column.unit {
            Some(unit) if !unit.is_empty() => format!("{} ({unit})", column.name),
            _ => column.name.clone(),
        }));
        page.rows.iter().for_each(|row| shown.row(row.clone()));
        terminal.data(shown)?;
    }
    for (cell, remark) in &found.remarks {
        terminal.data(format!("{cell}: {remark}"))?;
    }
    for series in &found.comparisons {
        terminal.data(format!("{} ({}): {}", series.title, series.source, series.shape.words))?;
    }
    for growth in &found.growth {
        terminal.data(growth_words(growth))?;
    }
    Ok(())
}

/// Adds what the user can do.
pub(super) fn explain(error: SweepError) -> anyhow::Error {
    let hint = match &error {
        SweepError::Busy { .. } => Some("wait for it, or choose another folder with --out"),
        SweepError::OtherSweep { .. } | SweepError::OtherData { .. } => Some(
            "choose another folder with --out; without --out every sweep gets a folder of its own",
        ),
        SweepError::Vary { .. } => Some("write --vary flag=a,b,c"),
        SweepError::Setting { .. } => Some(
            "name some of these; for other values sweep the command itself: --vary … -- train …",
        ),
        SweepError::Scale { .. } => Some("--scale 0.1 shrinks a recipe to a tenth"),
        SweepError::Placeholder { .. } => Some(
            "placeholders are {data}, {cell}, {out}, {repeat}, {cores}, the axes and the [scaled] numbers",
        ),
        SweepError::Hosts { .. } => Some("run it as root on Linux with `ip`, or leave --hosts out"),
        SweepError::Setup { .. } => Some("setup.log in the sweep's folder says more"),
        SweepError::Unseen { .. } => {
            Some("the sweep's folder must lie where every executor sees it under the same path")
        }
        SweepError::Unfinished { .. } => Some("the same command continues with them"),
        SweepError::OtherSearch { .. }
        | SweepError::DamagedQuestion { .. }
        | SweepError::StrangeRun { .. } => Some(
            "choose another folder with --out; without --out every search gets a folder of its own",
        ),
        SweepError::NeverMeasured { .. } => Some(
            "name one of them with --objective, or say where the figure is: --measure NAME='PATTERN (NUMBER)'",
        ),
        _ => None,
    };
    let exit = match &error {
        SweepError::Vary { .. }
        | SweepError::Setting { .. }
        | SweepError::OtherSweep { .. }
        | SweepError::OtherData { .. }
        | SweepError::Scale { .. }
        | SweepError::OtherSearch { .. }
        | SweepError::TooMany { .. }
        | SweepError::Placeholder { .. } => Exit::Usage,
        SweepError::Unfinished { .. } | SweepError::Busy { .. } => Exit::Retry,
        SweepError::Interrupted => Exit::Interrupted,
        _ => Exit::Failed,
    };
    let result: Result<(), SweepError> = Err(error);
    let result = match hint {
        Some(hint) => result.hint(hint).exit(exit),
        None => result.exit(exit),
    };
    result.expect_err("it was an error")
}
