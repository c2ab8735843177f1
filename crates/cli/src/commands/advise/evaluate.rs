//! `paceline advise evaluate`: how good is the advice.

use crate::arguments::idle_flags::{Rule, Typed};
use crate::arguments::paths::local_path;
use crate::arguments::units;
use crate::terminal::failure::{Exit, forecast::explain_search, usage};
use crate::terminal::{Table, Terminal, Unit, show_count};
use paceline_advisor::Objective;
use paceline_advisor::evaluate::{
    Check, Half, ReplaySettings, Study, StudyExtras, StudyQuestion, StudySource, Summary,
    acceptance,
};
use paceline_advisor::methods::{self, AdvisorMethod};
use paceline_runs::write_atomically;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `paceline advise evaluate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline advise evaluate --catalog machines.csv --history runs.csv --deadline 30min --seeds 20 --out advice.html\n  paceline advise evaluate --set scout --data ../shared/data/scout --methods paceline,cherrypick,random"
)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// What could be rented, for recorded runs of your own: CSV or TOML, as for a search
    #[arg(long, value_name = "FILE", value_parser = local_path(), requires = "history", conflicts_with_all = ["set", "data", "nodes", "medians", "nested"])]
    catalog: Option<PathBuf>,
    /// Recorded runs of several jobs on it: CSV or JSON, as for a search. Jobs with the same `application` are never each other's past
    #[arg(long, value_name = "FILE", value_parser = local_path(), requires = "catalog")]
    history: Option<PathBuf>,
    /// Longest run allowed, such as 90s, 10min or 2h: the cheapest in time is then the optimum
    #[arg(long, value_parser = units::positive_seconds, value_name = "TIME", conflicts_with_all = ["nested", "objective"])]
    deadline: Option<f64>,
    /// Write a page with curves by runs and by money
    #[arg(long, value_name = "FILE", value_parser = local_path(), conflicts_with = "nested")]
    out: Option<PathBuf>,
    /// Which recorded set
    #[arg(long, value_enum, default_value_t = Set::Scout)]
    set: Set,
    /// Its folder; else the set's name under `PACELINE_DATA`
    #[arg(long, value_name = "DIR", value_parser = local_path())]
    data: Option<PathBuf>,
    /// Clusters of many machines, or single machines
    #[arg(long, value_enum, default_value_t = Nodes::Multi)]
    nodes: Nodes,
    /// Methods to replay; all that fit by default
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    methods: Vec<String>,
    /// Searches per job and method
    #[arg(long, default_value_t = 50)]
    seeds: u64,
    /// Runs per search
    #[arg(long, conflicts_with = "nested")]
    steps: Option<usize>,
    /// A run shows the median of all repeats, as in the published studies, instead of one repeat
    #[arg(long)]
    medians: bool,
    /// Cut the history to so many past jobs, drawn again for every search; 0 is a cold start [default: all]
    #[arg(long, value_name = "JOBS")]
    past_jobs: Option<usize>,
    /// What is to be small
    #[arg(long, value_enum, default_value_t = Recorded::Cost)]
    objective: Recorded,
    /// Instead: choose our own method's constants on one half of the applications and report on the other,
    /// for so many ways of halving them
    #[arg(long, value_name = "SPLITS", conflicts_with = "methods")]
    nested: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Set {
    /// Hadoop and Spark jobs on AWS machines
    Scout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Nodes {
    /// 18 workloads on 69 clusters
    Multi,
    /// 107 workloads on 18 machine types, with repeats
    Single,
}

/// What recorded jobs are judged by: they had no deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Recorded {
    /// Dollars per run
    Cost,
    /// Seconds per run
    Time,
}

/// What is replayed.
struct Replayed {
    nodes: Nodes,
    uses_history: bool,
}

const RULES: &[Rule<Replayed>] = &[
    Rule {
        flags: &["medians"],
        is_met: |replayed| replayed.nodes == Nodes::Single,
        otherwise: "on clusters, which ran every workload once",
        instead: "replay single machines with `--nodes single`",
    },
    Rule {
        flags: &["past-jobs"],
        is_met: |replayed| replayed.uses_history,
        otherwise: "with methods that learn nothing from other jobs",
        instead: "use `--methods paceline`, `scout`, `paris` or `micky`",
    },
];

/// Checks the published figures first, where it is the public set, then replays.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let source = source(args)?;
    let objective = match (args.objective, args.deadline) {
        (_, Some(deadline)) => Objective::CostUnderDeadline { deadline },
        (Recorded::Cost, None) => Objective::Cost,
        (Recorded::Time, None) => Objective::Time,
    };
    let entries = entries(&args.methods)?;
    let uses_history = entries.iter().any(|entry| entry.uses_history);
    args.typed.check(&Replayed { nodes: args.nodes, uses_history }, RULES)?;
    let single = args.catalog.is_none() && args.nodes == Nodes::Single;
    let question = StudyQuestion {
        source,
        settings: ReplaySettings {
            seeds: args.seeds.max(1),
            steps: args.steps.unwrap_or(if single { 12 } else { 30 }).max(1),
            threads: paceline_batch::cores().count,
            objective,
            medians: args.medians,
            past_jobs: args.past_jobs,
            complete_jobs_only: single,
        },
    };
    let checks = match &question.source {
        StudySource::Scout { folder, .. } => published(terminal, folder)?,
        StudySource::Files { .. } => Vec::new(),
    };
    if let Some(splits) = args.nested {
        return nested(terminal, &question, splits.max(1));
    }
    let set = question.read().map_err(|error| match &args.catalog {
        Some(catalog) => explain_search(error, catalog),
        None => error.into(),
    })?;
    set.runs.outside().words().into_iter().for_each(|words| terminal.note(words));
    let (stages, jobs) = (terminal.stages(), set.jobs() as u64);
    let study = question.replay(&set, &entries, &|method, done| {
        stages.set(method, done, Some(jobs), Unit::Items("jobs"));
    });
    drop(stages);
    let study = study?;
    regrets(terminal, &study.summaries)?;
    money(terminal, &study.summaries)?;
    searches(terminal, &study.summaries)?;
    differences(terminal, &study)?;
    if let Some(found) = &study.extras {
        extras(terminal, found)?;
    }
    if let Some(path) = &args.out {
        write_atomically(path, super::evaluation_page::html(&study.summaries).as_bytes())?;
        terminal.note(format!("page in `{}`", path.display()));
    }
    let holds = checks.iter().all(Check::holds);
    terminal.json(&json!({
        "acceptance": checks, "methods": study.summaries, "differences": study.differences,
        "studies": study.extras,
    }))?;
    Ok(if holds { Exit::Done } else { Exit::Failed })
}

/// Files of one's own, or the public set.
fn source(args: &Args) -> anyhow::Result<StudySource> {
    if let (Some(catalogue), Some(history)) = (&args.catalog, &args.history) {
        return Ok(StudySource::Files { catalogue: catalogue.clone(), history: history.clone() });
    }
    let folder = match (&args.data, std::env::var_os("PACELINE_DATA")) {
        (Some(folder), _) => folder.clone(),
        (None, Some(root)) => PathBuf::from(root).join("scout"),
        (None, None) => {
            return Err(usage(
                "where is the recorded set?",
                "add `--catalog FILE --history FILE` for your own, or `--data DIR` or PACELINE_DATA for the public one",
            ));
        }
    };
    let half = if args.nodes == Nodes::Single { Half::SingleNode } else { Half::MultiNode };
    Ok(StudySource::Scout { folder, half })
}

/// The published figures, which must be met before anything else is believed.
fn published(terminal: &Terminal, folder: &Path) -> anyhow::Result<Vec<Check>> {
    let checks = acceptance(folder)?;
    let mut table = Table::new(["published figure", "published", "here"]);
    for check in &checks {
        let digits = if check.published.fract() == 0.0 { 0 } else { 6 };
        table.row([
            check.what.to_owned(),
            format!("{:.digits$}", check.published),
            format!("{:.digits$}", check.found),
        ]);
    }
    terminal.data(table)?;
    if !checks.iter().all(Check::holds) {
        terminal.warn("a published figure is not met: nothing below can be believed");
    }
    Ok(checks)
}

/// Figures of our own method with constants chosen blindly.
fn nested(terminal: &Terminal, question: &StudyQuestion, splits: usize) -> anyhow::Result<Exit> {
    let bar = terminal.progress("tunings", None, Unit::Items("replays"));
    let found = question.nested(splits, &|done| bar.set(done))?;
    drop(bar);
    terminal.data(format!(
        "\nour own method, {}, {} of halving the applications, {}",
        show_count(found.tunings, "tuning"),
        show_count(found.splits, "way"),
        show_count(question.settings.seeds, "seed")
    ))?;
    let mut table = Table::new(["constants", "n=6", "n=15", "total 10"]);
    for (name, figures) in [
        ("chosen on the other half", found.chosen),
        ("chosen on the other set", found.chosen_elsewhere),
        ("in use", found.in_use),
        ("best by looking", found.best_by_looking),
        ("worst", found.worst),
    ] {
        let cells = figures.map(|value| format!("{value:.3}"));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    }
    terminal.data(table)?;
    terminal
        .data(format!("halves that chose the constants in use: {:.0} %", found.agreed * 100.0))?;
    terminal.json(&json!({ "nested": found }))?;
    Ok(Exit::Done)
}

fn entries(names: &[String]) -> anyhow::Result<Vec<&'static AdvisorMethod>> {
    if names.is_empty() {
        return Ok(methods::ALL
            .iter()
            .copied()
            .filter(|entry| entry.name != "exhaustive")
            .collect());
    }
    names.iter().map(|name| Ok(methods::find(name)?)).collect()
}

/// Mean regret after so many runs.
fn regrets(terminal: &Terminal, summaries: &[Summary]) -> anyhow::Result<()> {
    let Some(first) = summaries.first() else { return Ok(()) };
    let header = first.regret.iter().map(|(runs, _)| format!("n={runs}"));
    terminal.data(format!(
        "\nmean value over the optimum after n runs, {}, {}, leave-one-application-out",
        show_count(first.jobs, "job"),
        show_count(first.seeds, "seed")
    ))?;
    let mut table = Table::new(std::iter::once("method".to_owned()).chain(header.clone()));
    for summary in summaries {
        let cells = summary.regret.iter().map(|(_, spread)| format!("{:.3}", spread.mean));
        table.row(std::iter::once(summary.method.clone()).chain(cells));
    }
    terminal.data(table)?;
    terminal.data("median / nine in ten / worst")?;
    let mut table = Table::new(std::iter::once("method".to_owned()).chain(header));
    for summary in summaries {
        let cells = summary
            .regret
            .iter()
            .map(|(_, s)| format!("{:.2} / {:.2} / {:.2}", s.median, s.p90, s.max));
        table.row(std::iter::once(summary.method.clone()).chain(cells));
    }
    terminal.data(table)
}

/// Mean regret by money.
fn money(terminal: &Terminal, summaries: &[Summary]) -> anyhow::Result<()> {
    let Some(first) = summaries.first() else { return Ok(()) };
    terminal.data("the same by dollars spent, failed runs included, in units of a run at the optimum; ± standard error over seeds")?;
    let header = first.by_money.iter().map(|(budget, ..)| format!("{budget:.0}"));
    let mut table = Table::new(std::iter::once("method".to_owned()).chain(header));
    for summary in summaries {
        let cells =
            summary.by_money.iter().map(|(_, mean, error)| format!("{mean:.3} ± {error:.3}"));
        table.row(std::iter::once(summary.method.clone()).chain(cells));
    }
    terminal.data(table)
}

/// What the searches took.
fn searches(terminal: &Terminal, summaries: &[Summary]) -> anyhow::Result<()> {
    terminal.data("steps and costs; costs in units of the optimum")?;
    let mut table = Table::new([
        "method",
        "to 1.2",
        "to 1.1",
        "optimum",
        "found",
        "failing %",
        "own stop",
        "its regret",
        "spent at 6",
        "total 10",
        "total 100",
        "rmse %",
    ]);
    for summary in summaries {
        let [near, nearer, optimum] = summary.steps;
        let spent = summary.spent.iter().find(|(runs, _)| *runs == 6);
        let found = summary.found.last().map_or(f64::NAN, |found| found.1);
        let error = summary.prediction_error;
        table.row([
            summary.method.clone(),
            format!("{near:.1}"),
            format!("{nearer:.1}"),
            format!("{optimum:.1}"),
            format!("{:.0} %", found * 100.0),
            format!("{:.1}", summary.failing * 100.0),
            format!("{:.1}", summary.own_stop[0]),
            format!("{:.3}", summary.own_stop[1]),
            spent.map_or_else(|| "–".to_owned(), |(_, spent)| format!("{spent:.1}")),
            format!("{:.2}", summary.total[1]),
            format!("{:.2}", summary.total[2]),
            error.map_or_else(|| "–".to_owned(), |error| format!("{:.0}", error * 100.0)),
        ]);
    }
    terminal.data(table)
}

/// Each method against the first, job by job.
fn differences(terminal: &Terminal, study: &Study) -> anyhow::Result<()> {
    let Some(first) = study.summaries.first().filter(|_| !study.differences.is_empty()) else {
        return Ok(());
    };
    terminal.data(format!("against {}: Wilcoxon's p after Holm, Cliff's delta", first.method))?;
    let mut table = Table::new(["method", "p, n=6", "delta", "p, n=15", "delta"]);
    for found in &study.differences {
        table.row([
            found.method.clone(),
            format!("{:.4}", found.p_6),
            format!("{:+.2}", found.delta_6),
            format!("{:.4}", found.p_15),
            format!("{:+.2}", found.delta_15),
        ]);
    }
    terminal.data(table)
}

/// Studies that do not fit the one-job search: scaling curves, one configuration for a batch.
fn extras(terminal: &Terminal, extras: &StudyExtras) -> anyhow::Result<()> {
    match extras {
        StudyExtras::Batch(batch) => terminal.data(format!(
            "micky, one machine for {} jobs: {:.0} runs in all, mean {:.3}, median {:.3}, within 20 % {:.0} %, mostly {}; best possible {:.3}",
            batch.jobs, batch.pulls, batch.mean, batch.median, batch.within_20 * 100.0, batch.choice, batch.ceiling
        )),
        StudyExtras::Scaling(studies) => studies.iter().try_for_each(|study| {
            terminal.data(format!(
                "ernest, curves on {} sizes: {} predictions, mean error {:.1} %, median {:.1} %, within 20 % {:.0} %",
                study.fitted_on, study.predictions, study.mean_percent, study.median_percent, study.within_20 * 100.0
            ))
        }),
    }
}
