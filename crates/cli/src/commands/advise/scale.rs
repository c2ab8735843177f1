//! `paceline advise scale`: how many machines.

use super::{
    super::staging::{Staging, without_weights},
    own_runs,
};
use crate::failure::{Exit, FailureExt, usage};
use crate::idle_flags::{Rule, Typed};
use crate::terminal::{Table, Terminal};
use crate::units::{self, show_seconds};
use paceline_forecast::scaling::design::design;
use paceline_forecast::scaling::{ScalingChoice, ScalingFit, ScalingRun};
use serde_json::json;
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
    let runs = match paths.as_slice() {
        [path] if !own_runs::are_runs(path) => ScalingRun::read(path)?,
        folders => {
            let (runs, work) = own_runs::scaling(folders)?;
            terminal.note(format!("{} runs; seconds are those of {work:.0} examples", runs.len()));
            runs
        }
    };
    let fit =
        ScalingFit::new(&runs).hint("`paceline advise scale --plan` says which runs to make")?;
    predict(args, &fit, terminal)
}

/// Powers of two, and the largest.
fn sizes(up_to: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = std::iter::successors(Some(1u32), |m| m.checked_mul(2))
        .take_while(|m| *m < up_to)
        .collect();
    sizes.push(up_to);
    sizes
}

fn plan(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    if !(args.budget.is_finite() && args.budget > 0.0) {
        return Err(usage("--budget must be above zero", "10 is usual"));
    }
    let candidates: Vec<(f64, f64)> = (1..=20)
        .flat_map(|part| {
            sizes(args.up_to).into_iter().map(move |m| (f64::from(part) / 20.0, f64::from(m)))
        })
        .collect();
    let mut chosen = design(&candidates, args.budget);
    chosen.sort_by(|&a, &b| candidates[a].1.total_cmp(&candidates[b].1));
    let mut table = Table::new(["machines", "share of the input"]);
    for &at in &chosen {
        table.row([candidates[at].1.to_string(), format!("{:.2}", candidates[at].0)]);
    }
    terminal.data(table)?;
    let rows: Vec<_> = chosen
        .iter()
        .map(|&at| json!({ "machines": candidates[at].1, "fraction": candidates[at].0 }))
        .collect();
    terminal.json(&json!({ "runs": rows }))?;
    Ok(Exit::Done)
}

fn predict(args: &Args, fit: &ScalingFit, terminal: &Terminal) -> anyhow::Result<Exit> {
    let price = args.usd_per_hour;
    let usd = |machines: u32, seconds: f64| {
        price.map(|price| price * f64::from(machines) * seconds / 3600.0)
    };
    let chosen = fit.choose(args.up_to, price, args.deadline);
    let mut shown = sizes(args.up_to);
    if let Some(chosen) = &chosen {
        shown.push(chosen.machines);
        shown.extend(chosen.settled_by.map(|run| run.machines));
    }
    shown.sort_unstable();
    shown.dedup();
    let mut table = Table::new(["machines", "seconds", "low", "high", "dollars", ""]);
    let mut rows = Vec::new();
    for machines in shown {
        let found = fit.estimate(1.0, f64::from(machines));
        let dollars = usd(machines, found.seconds);
        table.row([
            machines.to_string(),
            format!("{:.1}", found.seconds),
            format!("{:.1}", found.low),
            format!("{:.1}", found.high),
            dollars.map_or_else(|| "–".to_owned(), |usd| format!("{usd:.4}")),
            if found.extrapolated { "extrapolated" } else { "" }.to_owned(),
        ]);
        rows.push(json!({
            "machines": machines, "seconds": found.seconds, "low": found.low, "high": found.high,
            "extrapolated": found.extrapolated, "usd": dollars,
        }));
    }
    terminal.data(table)?;
    let (least, most) = fit.measured();
    terminal.data(format!(
        "low to high: 95 % interval of the expected time; measured were {least:.0} to {most:.0} machines"
    ))?;
    match &chosen {
        Some(chosen) => recommend(args, chosen, terminal)?,
        None => terminal.data("no number of machines is expected to keep the deadline")?,
    }
    terminal.json(&json!({
        "curve": fit.curve(),
        "measured": { "least": least, "most": most },
        "predictions": rows,
        "recommended": chosen.as_ref().map(|chosen| json!({
            "machines": chosen.machines, "seconds": chosen.estimate.seconds,
            "low": chosen.estimate.low, "high": chosen.estimate.high,
            "extrapolated": chosen.estimate.extrapolated,
            "keeps_deadline": args.deadline.map(|_| chosen.keeps_deadline),
            "usd": usd(chosen.machines, chosen.estimate.seconds),
            "settled_by": chosen.settled_by,
        })),
    }))?;
    Ok(if chosen.is_some() { Exit::Done } else { Exit::Failed })
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
