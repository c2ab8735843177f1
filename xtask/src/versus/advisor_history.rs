//! `versus advisor/history`: the same searches with ever more past jobs to learn from.

use super::benchmarks;
use super::paceline::{Paceline, shared_data};
use anyhow::Context;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

/// Searches of each job; with part of the history each draws its own past jobs.
const SEEDS: &str = "20";
const STEPS: &str = "15";
/// Past jobs; all of them where nothing is said.
const PAST: [Option<&str>; 7] =
    [Some("0"), Some("1"), Some("2"), Some("4"), Some("8"), Some("12"), None];
const RUNS: [u64; 3] = [6, 10, 15];

/// Replays with each number of past jobs and writes the section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let paceline = Paceline::build(root)?;
    let data = shared_data(root).join("scout").to_string_lossy().into_owned();
    let mut rows = Vec::new();
    for past in PAST {
        println!("{} past jobs", past.unwrap_or("all"));
        let base = ["advise", "evaluate", "--data", &data, "--methods", "paceline"];
        let size = ["--seeds", SEEDS, "--steps", STEPS];
        let cut: Vec<&str> = past.into_iter().flat_map(|number| ["--past-jobs", number]).collect();
        let report = paceline.json(&[&base[..], &size[..], &cut[..]].concat())?;
        let label = past.unwrap_or("all, 14 to 16");
        let row = report["methods"][0].clone();
        rows.push((label, row));
    }
    benchmarks::write_body(root, "advisor/history", &body(&rows)?)
}

fn body(rows: &[(&str, Value)]) -> anyhow::Result<String> {
    let mut body = format!(
        "Searches by our method among 69 clusters for each of 18 recorded jobs (`oxhead/scout`, multi-node), {SEEDS} for each job, with so many past jobs of other applications, drawn again for each search: mean cost of the best completed run over the optimum, ± its standard error over searches. \"Stop\": runs after which a search ends by itself, and the cost it then has.\n\n"
    );
    let runs: Vec<String> = RUNS.iter().map(|runs| format!("{runs} runs")).collect();
    writeln!(body, "| past jobs | {} | stop |", runs.join(" | "))?;
    writeln!(body, "| --- |{}", " --- |".repeat(runs.len() + 1))?;
    for (label, report) in rows {
        let cells = RUNS.iter().map(|&runs| {
            let at = |name: &str| {
                let pairs = report[name].as_array()?;
                pairs.iter().find(|pair| pair[0] == runs).map(|pair| &pair[1])
            };
            let mean = at("regret").and_then(|spread| spread["mean"].as_f64());
            let error = at("standard_error").and_then(Value::as_f64);
            let both = mean.zip(error).with_context(|| format!("{label}: {runs} runs"));
            both.map(|(mean, error)| format!("{mean:.3} ±{error:.3}"))
        });
        let cells = cells.collect::<anyhow::Result<Vec<String>>>()?;
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let [runs, regret] = [0usize, 1].map(|at| number(&report["own_stop"][at]));
        writeln!(body, "| {label} | {} | {runs:.1}: {regret:.3} |", cells.join(" | "))?;
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_becomes_a_row() {
        let spread = |mean: f64| json!({ "mean": mean });
        let report = json!({
            "regret": [[3, spread(1.4)], [6, spread(1.09)], [10, spread(1.04)], [15, spread(1.02)]],
            "standard_error": [[6, 0.01], [10, 0.005], [15, 0.004]],
            "own_stop": [7.64, 1.066],
        });
        let row = "| 8 | 1.090 ±0.010 | 1.040 ±0.005 | 1.020 ±0.004 | 7.6: 1.066 |";
        assert!(body(&[("8", report.clone())]).unwrap().contains(row));
        assert!(body(&[("8", json!({ "regret": report["regret"] }))]).is_err());
    }
}
