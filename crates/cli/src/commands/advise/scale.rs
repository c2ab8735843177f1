//! `paceline advise scale`: how many machines.

use crate::arguments::idle_flags::{Rule, Typed};
use crate::arguments::units;
use crate::terminal::failure::{Exit, forecast::explain, usage};
use crate::terminal::{Table, Terminal, show_seconds};
use paceline_data::store::{Staging, staging::without_weights};
use paceline_forecast::scaling::design::runs_to_make;
use paceline_forecast::scaling::{ScalingChoice, ScalingFit, ScalingForecast, ScalingRun};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments of `paceline advise scale`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline advise scale --plan --up-to 16\n  paceline advise scale runs.csv --up-to 64 --usd-per-hour 0.2 --deadline 10min"
)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// Measured runs: CSV with `machines`, `seconds` and, for runs on part of the input, `fraction`; or our
    /// own run folders, or folders of them
    #[arg(required_unless_present = "plan")]
    runs: Vec<PathBuf>,
    /// Say which small runs to make first, by optimal design, instead of predicting
    #[arg(long, conflicts_with = "runs")]
    plan: bool,
    /// Largest number of machines to consider
    #[arg(long, default_value_t = 64)]
    up_to: u32,
    /// With --plan: what the runs may cost, in units of the smallest one
    #[arg(long, default_value_t = 10.0)]
    budget: f64,
    /// What the runs count are workers, and so many share a host: leaving one host then has its own cost
    #[arg(long, value_name = "WORKERS", conflicts_with = "plan", value_parser = clap::value_parser!(u32).range(1..))]
    per_host: Option<u32>,
    /// Price of one machine
    #[arg(long, value_name = "DOLLARS", conflicts_with = "plan")]
    usd_per_hour: Option<f64>,
    /// Longest run allowed, such as 90s, 10min or 2h
    #[arg(long, value_parser = units::positive_seconds, value_name = "TIME", conflicts_with = "plan")]
    deadline: Option<f64>,
}

const RULES: &[Rule<Args>] = &[Rule {
    flags: &["budget"],
    is_met: |args| args.plan,
    otherwise: "on a prediction",
    instead: "plan the runs with `--plan`",
}];

/// Plans runs, or fits the curve and reads the answer from it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    args.typed.check(args, RULES)?;
    if args.up_to == 0 || args.up_to > 1_000_000 {
        return Err(usage("--up-to is out of range", "use a number of machines from 1 to 1000000"));
    }
    if args.plan {
        return plan(args, terminal);
    }
    let mut staging = Staging::default();
    let paths = args.runs.iter().map(|run| staging.input(run, &without_weights));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    let (runs, work) = ScalingRun::read_all(&paths).map_err(explain)?;
    if let Some(work) = work {
        terminal.note(format!("{} runs; seconds are those of {work:.0} examples", runs.len()));
    }
    let fit = ScalingFit::on_hosts(&runs, args.per_host).map_err(explain)?;
    let found = fit.forecast(args.up_to, args.usd_per_hour, args.deadline);
    print(args, &fit, &found, terminal)?;
    terminal.json(&document(args, &fit, &found))?;
    Ok(if found.chosen.is_some() { Exit::Done } else { Exit::Failed })
}

fn plan(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    if !(args.budget.is_finite() && args.budget > 0.0) {
        return Err(usage("--budget must be above zero", "10 is usual"));
    }
    let runs = runs_to_make(args.up_to, args.budget);
    let mut table = Table::new(["machines", "share of the input"]);
    for (fraction, machines) in &runs {
        table.row([machines.to_string(), format!("{fraction:.2}")]);
    }
    terminal.data(table)?;
    let row =
        |(fraction, machines): &(f64, f64)| json!({ "machines": machines, "fraction": fraction });
    terminal.json(&json!({ "runs": runs.iter().map(row).collect::<Vec<_>>() }))?;
    Ok(Exit::Done)
}

fn print(
    args: &Args,
    fit: &ScalingFit,
    found: &ScalingForecast,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let mut table = Table::new(["machines", "seconds", "low", "high", "dollars", ""]);
    for row in &found.sizes {
        table.row([
            row.machines.to_string(),
            format!("{:.1}", row.estimate.seconds),
            format!("{:.1}", row.estimate.run_low),
            format!("{:.1}", row.estimate.run_high),
            row.usd.map_or_else(|| "–".to_owned(), |usd| format!("{usd:.4}")),
            match (row.estimate.beyond_border, row.estimate.extrapolated) {
                (true, _) => "beyond the border of a host",
                (false, true) => "extrapolated",
                (false, false) => "",
            }
            .to_owned(),
        ]);
    }
    terminal.data(table)?;
    let (least, most) = fit.measured();
    terminal.data(format!(
        "low to high: a further run lies between them nine times in ten; measured were {least:.0} to {most:.0} machines"
    ))?;
    let curve = fit.curve();
    if curve.per_host.is_some() {
        terminal.data(format!("leaving one host costs {}", show_seconds(curve.across)))?;
    } else if let Some(room) = args.per_host.filter(|room| *room > 1) {
        let side = if most > f64::from(room) { "several hosts" } else { "one host" };
        terminal.data(format!(
            "all runs were on {side} of {room} workers: what leaving one costs is not measured"
        ))?;
    }
    match &found.chosen {
        Some(chosen) => recommend(args, chosen, terminal),
        None => terminal.data("no number of machines is expected to keep the deadline"),
    }
}

fn document(args: &Args, fit: &ScalingFit, found: &ScalingForecast) -> Value {
    let (least, most) = fit.measured();
    let rows = found.sizes.iter().map(|row| {
        json!({
            "machines": row.machines, "seconds": row.estimate.seconds, "low": row.estimate.low,
            "high": row.estimate.high, "run_low": row.estimate.run_low,
            "run_high": row.estimate.run_high, "extrapolated": row.estimate.extrapolated,
            "beyond_border": row.estimate.beyond_border, "usd": row.usd,
        })
    });
    json!({
        "curve": fit.curve(),
        "measured": { "least": least, "most": most },
        "predictions": rows.collect::<Vec<_>>(),
        "recommended": found.chosen.as_ref().map(|chosen| json!({
            "machines": chosen.machines, "seconds": chosen.estimate.seconds,
            "low": chosen.estimate.low, "high": chosen.estimate.high,
            "extrapolated": chosen.estimate.extrapolated,
            "keeps_deadline": args.deadline.map(|_| chosen.keeps_deadline),
            "usd": args.usd_per_hour.map(|price| chosen.usd(price)),
            "settled_by": chosen.settled_by,
        })),
    })
}

/// The answer in words: what to take, how sure that is, and which run would make it surer.
fn recommend(args: &Args, chosen: &ScalingChoice, terminal: &Terminal) -> anyhow::Result<()> {
    let found = &chosen.estimate;
    let better = if args.usd_per_hour.is_some() { "cheaper" } else { "faster" };
    terminal.data(format!(
        "recommended: {} machines, {} ({} to {}){}; {}",
        chosen.machines,
        show_seconds(found.seconds),
        show_seconds(found.low),
        show_seconds(found.high),
        if found.extrapolated { ", extrapolated" } else { "" },
        match (args.usd_per_hour, args.deadline) {
            (Some(_), Some(_)) => "cheapest within the deadline",
            (Some(_), None) => "cheapest",
            (None, _) => "fastest; add --usd-per-hour for the cheapest",
        }
    ))?;
    if let Some(deadline) = args.deadline.filter(|_| !chosen.keeps_deadline) {
        terminal.data(format!(
            "not certain: the interval reaches beyond the deadline of {}",
            show_seconds(deadline)
        ))?;
    }
    if let Some(run) = &chosen.settled_by {
        let reach = if run.farthest > chosen.machines { "up to" } else { "as few as" };
        terminal.data(format!(
            "not settled: {reach} {} machines could be {better}; measure a run on {} machines ({} to {} expected) to find out",
            run.farthest,
            run.machines,
            show_seconds(run.estimate.low),
            show_seconds(run.estimate.high),
        ))?;
    }
    Ok(())
}
