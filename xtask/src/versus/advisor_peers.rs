//! `versus advisor/peers`: our advisor, CherryPick's and random choice, and the optimisers that people install, on the same recorded
//! jobs.
//!
//! A recorded run costs the same for every method, so nothing is timed and nothing need be in turns: searches differ by their
//! seeds alone.

use super::benchmarks;
use super::paceline::shared_data;
use crate::environment::{self, Environment};
use anyhow::Context;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Optuna's process needs PyTorch.
pub(super) const OPTIMIZERS: Environment = Environment {
    folder: "peers/advisors",
    packages: &[
        "optuna==5.0.0",
        "scikit-optimize==0.10.2",
        "scikit-learn==1.9.1",
        "scipy==1.17.1",
        "torch==2.15.0",
        "numpy==2.4.6",
    ],
};

/// Runs of each search.
const STEPS: &str = "15";
/// Numbers of runs, and of units of the optimum's money, that are shown.
const RUNS: [u64; 3] = [6, 10, 15];
const MONEY: [f64; 4] = [6.0, 8.0, 12.0, 16.0];

/// Ours: the words of the example `replay`: method and past jobs. Searches are cheap.
const OURS: [(&str, &str, &str); 4] = [
    ("paceline, no past jobs", "paceline", "0"),
    ("paceline, all past jobs", "paceline", "all"),
    ("CherryPick, our implementation", "cherrypick", "0"),
    ("random", "random", "0"),
];
/// Theirs: the words of `advisors.py`, searches, and runs before the model is asked: of 3, 5 and 10, Optuna's default, 3 served the
/// sampler of trees best, as it does CherryPick.
const THEIRS: [(&str, &str, &str); 3] = [
    ("Optuna, TPE (multivariate)", "tpe", "20"),
    ("Optuna, Gaussian process", "gp", "5"),
    ("scikit-optimize, Gaussian process with expected improvement", "skopt", "5"),
];
const SEEDS: &str = "20";

/// Replays all of them and writes the section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let folder = root.join("target/advisor");
    fs::create_dir_all(&folder)?;
    let table = folder.join("recorded.json");
    fs::write(&table, example(root, "recorded_table", &[])?)?;
    let mut rows: Vec<(&str, Value)> = Vec::new();
    for (label, method, past) in OURS {
        let words = [method, "multi", SEEDS, STEPS, "cost", "repeat", past, "json"];
        rows.push((label, serde_json::from_str(&example(root, "replay", &words)?)?));
    }
    let python = OPTIMIZERS.ensure(root)?;
    for (label, method, seeds) in THEIRS {
        println!("{label}");
        let mut command = Command::new(&python);
        command.arg(root.join("xtask/peers/advisors.py")).arg(&table);
        command.args(["--method", method, "--seeds", seeds, "--steps", STEPS, "--start", "3"]);
        rows.push((label, serde_json::from_str(&said(&mut command)?)?));
    }
    benchmarks::write_body(root, "advisor/peers", &body(&rows)?)
}

fn body(rows: &[(&str, Value)]) -> anyhow::Result<String> {
    let mut body = String::from(
        "Searches among 69 clusters for each of 18 recorded jobs (`oxhead/scout`, multi-node): mean cost of the best completed run over the optimum, ± its standard error over seeds, after as many runs and after as much money (in units of the optimum's cost, failed runs included; a search that could not pay its first run has the worst choice). Last, money spent until a search was within 10 % of the optimum (all it spent where it never was within its 15 runs).\n\n",
    );
    let runs = RUNS.iter().map(|runs| format!("{runs} runs"));
    let money = MONEY.iter().map(|money| format!("money {money}"));
    let head: Vec<String> = runs.chain(money).collect();
    writeln!(body, "| searches by | n | {} | money to 1.1 |", head.join(" | "))?;
    writeln!(body, "| --- |{}", " --- |".repeat(head.len() + 2))?;
    for (label, report) in rows {
        let mut cells = vec![report["seeds"].to_string()];
        for runs in RUNS {
            cells.push(after_runs(report, runs).with_context(|| format!("{label}: {runs} runs"))?);
        }
        for money in MONEY {
            let found = at(&report["by_money"], money);
            cells.push(found.map_or_else(|| "–".to_owned(), |row| shown(&row[1], &row[2])));
        }
        let [near, error] = [&report["money_to"][1][0], &report["money_to"][1][1]];
        cells.push(shown(near, error));
        writeln!(body, "| {label} | {} |", cells.join(" | "))?;
    }
    writeln!(
        body,
        "\n- Theirs are asked for a point and told what the untried cluster nearest to it cost: cores and memory of a machine and the number of machines, as logarithms, the latter's `ln` cost as ours; 3 runs before the model is asked (Optuna's default of 10 is worse here). A run that failed is told as the worst so far.\n- Ours ends a run that has cost 1.5 times the best and pays for what it ran; theirs have no such call and pay whole runs."
    )?;
    Ok(body)
}

/// The row of a list that is of such a number.
fn at(list: &Value, number: f64) -> Option<&Value> {
    list.as_array()?.iter().find(|row| row[0].as_f64() == Some(number))
}

/// Ours keep regrets and their errors apart, theirs together.
fn after_runs(report: &Value, runs: u64) -> Option<String> {
    let row = at(&report["regret"], runs as f64)?;
    if row[1].is_number() {
        return Some(shown(&row[1], &row[2]));
    }
    let error = at(&report["standard_error"], runs as f64)?;
    Some(shown(&row[1]["mean"], &error[1]))
}

fn shown(value: &Value, error: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let (value, error) = (number(value), number(error));
    if value < 10.0 {
        format!("{value:.3} ±{error:.3}")
    } else {
        format!("{value:.1} ±{error:.1}")
    }
}

/// What an example of the advisor prints.
fn example(root: &Path, name: &str, words: &[&str]) -> anyhow::Result<String> {
    let mut command = environment::cargo(root);
    command.current_dir(root).args(["run", "--release", "--quiet", "-p", "paceline-advisor"]);
    command.args(["--example", name, "--"]).args(words);
    said(command.env("PACELINE_DATA", shared_data(root)))
}

fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().context("cannot run a search")?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reports_of_both_kinds_become_rows() {
        let by_money =
            json!([[6.0, 2.0, 0.1], [8.0, 1.9, 0.1], [12.0, 1.5, 0.05], [16.0, 1.2, 0.02]]);
        let money_to = json!([[9.0, 0.5], [12.34, 0.5]]);
        let spread = |mean: f64| json!({ "mean": mean });
        let ours = json!({
            "seeds": 20, "regret": [[6, spread(1.09)], [10, spread(1.04)], [15, spread(1.02)]],
            "standard_error": [[6, 0.01], [10, 0.005], [15, 0.004]], "by_money": by_money, "money_to": money_to,
        });
        let theirs = json!({
            "seeds": 5, "regret": [[6, 1.24, 0.02], [10, 1.14, 0.01], [15, 1.07, 0.01]],
            "by_money": by_money, "money_to": money_to,
        });
        let body = body(&[("ours", ours), ("theirs", theirs)]).unwrap();
        let row = "| ours | 20 | 1.090 ±0.010 | 1.040 ±0.005 | 1.020 ±0.004 | 2.000 ±0.100 | 1.900 ±0.100 | 1.500 ±0.050 | 1.200 ±0.020 | 12.3 ±0.5 |";
        assert!(body.contains(row), "{body}");
        assert!(body.contains("| theirs | 5 | 1.240 ±0.020 |"), "{body}");
    }
}
