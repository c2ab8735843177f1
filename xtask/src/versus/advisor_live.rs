//! `versus advisor/live`: `advise tune` and the optimisers that people install, on trainings that really run.
//!
//! Every search may spend the same seconds of runs. The searches of one job and seed follow each other in rotating order; the
//! script keeps each as a line under `target/advisor/live`, so that an interrupted comparison continues.

use super::advisor_peers::OPTIMIZERS;
use super::benchmarks;
use super::paceline::{Paceline, shared_data};
use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seconds of runs of a search.
const BUDGET: f64 = 12.0;
/// Seconds after which searches are compared.
const MONEY: [f64; 3] = [4.0, 8.0, 12.0];
const SEEDS: &str = "6";
/// Runs after which they are compared: under load a run takes longer for one search than for another.
const RUNS: [usize; 3] = [6, 10, 15];
/// How near the best known loss a search has to come: within five per cent.
const NEAR: f64 = 1.05;
/// What the script calls the methods, and what they are.
const METHODS: [(&str, &str); 5] = [
    ("paceline", "`paceline advise tune`"),
    ("tpe", "Optuna, TPE (multivariate)"),
    ("gp", "Optuna, Gaussian process"),
    ("skopt", "scikit-optimize, Gaussian process with expected improvement"),
    ("random", "random"),
];

/// A search as the script tells it.
#[derive(Debug, Clone, Deserialize)]
struct LiveSearch {
    job: String,
    method: String,
    budget: f64,
    /// One-minute load of the machine when it began.
    load: f64,
    /// Seconds of each run, and the loss that it reached.
    runs: Vec<(f64, Option<f64>)>,
    /// Seconds of the method itself.
    thought: f64,
}

impl LiveSearch {
    /// The lowest loss for this money. A search that could not pay its first run has what that run showed, or nothing.
    fn after(&self, money: f64) -> Option<f64> {
        let mut spent = 0.0;
        let mut best: Option<f64> = None;
        for (at, (seconds, loss)) in self.runs.iter().enumerate() {
            spent += seconds;
            if spent > money && at > 0 {
                break;
            }
            best = [best, *loss].into_iter().flatten().reduce(f64::min);
        }
        best
    }

    /// The lowest loss of the first runs. A search that ended by itself keeps what it had.
    fn after_runs(&self, runs: usize) -> Option<f64> {
        self.runs.iter().take(runs).filter_map(|(_, loss)| *loss).reduce(f64::min)
    }

    /// Seconds of runs until a loss was reached; all of them where it never was.
    fn money_to(&self, loss: f64) -> f64 {
        let mut spent = 0.0;
        for (seconds, found) in &self.runs {
            spent += seconds;
            if found.is_some_and(|found| found <= loss) {
                break;
            }
        }
        spent
    }
}

/// Searches with every method and writes the section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let paceline = Paceline::build(root)?;
    let python = OPTIMIZERS.ensure(root)?;
    let mut command = Command::new(&python);
    command.arg(root.join("xtask/peers/advisors_live.py")).arg(paceline.program());
    command.arg(root.join("target/advisor/live"));
    command.arg("--mnist").arg(shared_data(root).join("mnist"));
    command.args(["--seeds", SEEDS, "--budget", &BUDGET.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot search")?;
    anyhow::ensure!(output.status.success(), "the searches failed");
    let searches: Vec<LiveSearch> = serde_json::from_slice(&output.stdout)?;
    benchmarks::write_body(root, "advisor/live", &body(&searches)?)
}

fn body(searches: &[LiveSearch]) -> anyhow::Result<String> {
    let searches: Vec<&LiveSearch> = searches.iter().filter(|one| one.budget == BUDGET).collect();
    let mut jobs: BTreeMap<&str, f64> = BTreeMap::new();
    for search in &searches {
        let lowest = jobs.entry(&search.job).or_insert(f64::INFINITY);
        *lowest = search.after(f64::INFINITY).unwrap_or(f64::INFINITY).min(*lowest);
    }
    let count = searches.len() / (METHODS.len() * jobs.len().max(1));
    let mut body = format!(
        "Searches for settings of trainings that ran for it, {count} for each job and method, each with {BUDGET:.0} s of runs, in turns. The lowest loss on the test examples after as many seconds of runs, and after as many runs, over the lowest that any search of that job found: geometric mean ± standard error over searches. \"To {NEAR}\": seconds of runs until a search was that near (all it spent where it never was). \"Thinking\" is the method's own time for each run, its start included.\n\n"
    );
    let money = MONEY.iter().map(|money| format!("{money:.0} s"));
    let runs = RUNS.iter().map(|runs| format!("{runs} runs"));
    let head: Vec<String> = money.chain(runs).collect();
    writeln!(body, "| job | searches by | runs | {} | to {NEAR} | thinking |", head.join(" | "))?;
    writeln!(body, "| --- | --- |{}", " --- |".repeat(head.len() + 3))?;
    for (job, lowest) in &jobs {
        for (at, (method, label)) in METHODS.iter().enumerate() {
            let own = searches.iter().filter(|one| one.job == **job && one.method == *method);
            let own: Vec<&LiveSearch> = own.copied().collect();
            if own.is_empty() {
                continue;
            }
            writeln!(
                body,
                "| {} | {label} | {} |",
                if at == 0 { *job } else { "" },
                cells(&own, |_| *lowest).join(" | ")
            )?;
        }
    }
    for (at, (method, label)) in METHODS.iter().enumerate() {
        let own = searches.iter().filter(|one| one.method == *method);
        let own: Vec<&LiveSearch> = own.copied().collect();
        if own.is_empty() {
            continue;
        }
        let cells = cells(&own, |search| jobs[search.job.as_str()]);
        let job = if at == 0 { "**all**" } else { "" };
        writeln!(body, "| {job} | {label} | {} |", cells.join(" | "))?;
    }
    let loads = searches.iter().map(|search| search.load);
    let (least, most) =
        loads.fold((f64::INFINITY, 0.0f64), |(low, high), load| (low.min(load), high.max(load)));
    writeln!(
        body,
        "\n- Settings: learning rate 0.0001 to 1 and batch size 8 to 512, both logarithmic; for LeNet the optimiser (sgd, momentum, adam); with strategies (one-device, multi-worker, ps-sync, ps-async) 1 to 4 workers. Theirs see the number of workers with one device too, where it changes nothing. They are told the loss's logarithm; a run that failed counts as the worst so far; 3 runs before their model is asked.\n- Load of the machine while it was measured: {least:.0} to {most:.0} on two cores, so a run may take several times what another of the same settings does; all searches of a job and seed follow each other within minutes. Ours ends by itself where no further run is worth it."
    )?;
    Ok(body)
}

/// Figures of some searches, each against the lowest loss of its job.
fn cells(searches: &[&LiveSearch], lowest: impl Fn(&LiveSearch) -> f64) -> Vec<String> {
    let runs = searches.iter().copied().map(|one| one.runs.len() as f64);
    let mut cells = vec![format!("{:.0}", mean_and_error(runs).0)];
    cells.extend(MONEY.map(|money| ratio(searches, &lowest, |one| one.after(money))));
    cells.extend(RUNS.map(|runs| ratio(searches, &lowest, |one| one.after_runs(runs))));
    let to = searches.iter().copied().map(|one| one.money_to(NEAR * lowest(one)));
    let (mean, error) = mean_and_error(to);
    cells.push(format!("{mean:.1} ±{error:.1} s"));
    let thought =
        searches.iter().copied().map(|one| one.thought.max(0.0) / one.runs.len().max(1) as f64);
    cells.push(format!("{:.2} s", mean_and_error(thought).0));
    cells
}

/// Losses over the lowest ones: geometric mean and its standard error in per cent.
fn ratio(
    searches: &[&LiveSearch],
    lowest: &impl Fn(&LiveSearch) -> f64,
    loss: impl Fn(&LiveSearch) -> Option<f64>,
) -> String {
    // A search without any loss so far has nothing to compare.
    let found = searches.iter().copied().filter_map(|one| Some((loss(one)? / lowest(one)).ln()));
    let found: Vec<f64> = found.collect();
    let rest = match searches.len() - found.len() {
        0 => String::new(),
        none => format!(", {none} without"),
    };
    let (mean, error) = mean_and_error(found.into_iter());
    format!("{:.3} ±{:.1} %{rest}", mean.exp(), 100.0 * error.exp_m1())
}

/// Mean and its standard error.
fn mean_and_error(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(method: &str, runs: &[(f64, Option<f64>)]) -> LiveSearch {
        LiveSearch {
            job: "softmax".to_owned(),
            method: method.to_owned(),
            budget: BUDGET,
            load: 3.0,
            runs: runs.to_vec(),
            thought: 1.0,
        }
    }

    #[test]
    fn searches_are_compared_by_what_their_runs_cost() {
        let ours = search("paceline", &[(1.0, None), (2.0, Some(0.5)), (2.0, Some(0.4))]);
        assert_eq!([4.0, 8.0].map(|money| ours.after(money)), [Some(0.5), Some(0.4)]);
        assert_eq!([0.5, 0.1].map(|loss| ours.money_to(loss)), [3.0, 5.0]);
        assert_eq!(search("gp", &[(9.0, Some(0.7))]).after(4.0), Some(0.7));
        let body = body(&[ours, search("random", &[(3.0, Some(0.8)), (6.0, Some(0.6))])]).unwrap();
        let row = "| softmax | `paceline advise tune` | 3 | 1.250 ±0.0 % | 1.000 ±0.0 % | 1.000 ±0.0 % | 1.000 ±0.0 % | 1.000 ±0.0 % | 1.000 ±0.0 % | 5.0 ±0.0 s | 0.33 s |";
        assert!(body.contains(row), "{body}");
        assert!(body.contains("|  | random | 2 | 2.000 ±0.0 % | 2.000 ±0.0 % | 1.500"), "{body}");
    }
}
