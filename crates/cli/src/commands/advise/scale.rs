//! `paceline advise scale`: how many machines.

use super::{
    super::staging::{Staging, without_weights},
    own_runs,
};
use crate::failure::{Exit, FailureExt, usage};
use crate::terminal::{Table, Terminal};
use paceline_advisor::methods::{Scaling, ScalingRun, scaling_design};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `paceline advise scale`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline advise scale --plan --up-to 16\n  paceline advise scale runs.csv --up-to 64 --usd-per-hour 0.2 --deadline 600"
)]
pub struct Args {
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
    #[arg(long, value_name = "DOLLARS")]
    usd_per_hour: Option<f64>,
    /// Longest run allowed
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<f64>,
}

/// Plans runs, or fits the curve and reads the answer from it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    if args.up_to == 0 || args.up_to > 1_000_000 {
        return Err(usage("--up-to is out of range", "use a number of machines from 1 to 1000000"));
    }
    if args.plan {
        return plan(args, terminal);
    }
    let mut staging = Staging::default();
    let paths = args.runs.iter().map(|run| staging.input(run, &without_weights));
    let paths = paths.collect::<anyhow::Result<Vec<_>>>()?;
    let runs = match paths.as_slice() {
        [path] if !own_runs::are_runs(path) => ScalingRun::read(path)?,
        folders => {
            let (runs, work) = own_runs::scaling(folders)?;
            terminal.note(format!("{} runs; seconds are those of {work:.0} examples", runs.len()));
            runs
        }
    };
    let curve =
        Scaling::fit(&runs).hint("`paceline advise scale --plan` says which runs to make")?;
    predict(args, &curve, terminal)
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
    let mut chosen = scaling_design(&candidates, args.budget);
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

fn predict(args: &Args, curve: &Scaling, terminal: &Terminal) -> anyhow::Result<Exit> {
    let price = args.usd_per_hour;
    let usd = |machines: u32, seconds: f64| {
        price.map(|price| price * f64::from(machines) * seconds / 3600.0)
    };
    let deadline = args.deadline.unwrap_or(f64::INFINITY);
    // Every number of machines is a candidate; the table shows some of them.
    let best = (1..=args.up_to)
        .map(|machines| (machines, curve.predict(1.0, f64::from(machines))))
        .filter(|(_, seconds)| *seconds <= deadline)
        .min_by(|a, b| {
            let key = |(machines, seconds): (u32, f64)| usd(machines, seconds).unwrap_or(seconds);
            key(*a).total_cmp(&key(*b))
        });
    let mut shown = sizes(args.up_to);
    shown.extend(best.map(|(machines, _)| machines));
    shown.sort_unstable();
    shown.dedup();
    let mut table = Table::new(["machines", "seconds", "low", "high", "dollars"]);
    let mut rows = Vec::new();
    // The fit's own spread, nine times in ten; a perfect fit to few runs proves little.
    let width = 1.645 * curve.spread.max(0.05);
    for machines in shown {
        let seconds = curve.predict(1.0, f64::from(machines));
        let (low, high) = (seconds * (1.0 - width).max(0.0), seconds * (1.0 + width));
        let dollars = usd(machines, seconds);
        table.row([
            machines.to_string(),
            format!("{seconds:.1}"),
            format!("{low:.1}"),
            format!("{high:.1}"),
            dollars.map_or_else(|| "–".to_owned(), |usd| format!("{usd:.4}")),
        ]);
        rows.push(json!({
            "machines": machines, "seconds": seconds, "low": low, "high": high, "usd": dollars,
        }));
    }
    terminal.data(table)?;
    match best {
        Some((machines, seconds)) => terminal.data(format!(
            "recommended: {machines} machines, {seconds:.1} s; {}",
            if price.is_some() {
                "cheapest in time"
            } else {
                "fastest; add --usd-per-hour for the cheapest"
            }
        ))?,
        None => terminal.data("no number of machines keeps the deadline")?,
    }
    terminal.json(&json!({
        "curve": curve,
        "predictions": rows,
        "recommended": best.map(|(machines, seconds)| json!({
            "machines": machines, "seconds": seconds, "usd": usd(machines, seconds),
        })),
    }))?;
    Ok(if best.is_some() { Exit::Done } else { Exit::Failed })
}
