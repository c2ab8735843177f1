//! `cargo xtask verdicts curve`: from which strength on is a bottleneck named?
//!
//! Slow ranks, too many threads and slow input, from hardly any to far too much, in the PyTorch script of `xtask/peers/foreign`. What is named without
//! any of it is a false alarm.

use super::foreign::{Bench, Injection, Kind};
use super::injection;
use crate::versus::benchmarks;
use anyhow::Context;
use std::fmt::Write as _;
use std::path::Path;

/// Runs of each strength by default.
const RUNS: usize = 5;

/// A bottleneck that grows.
struct Growing {
    about: &'static str,
    script: &'static str,
    limit: &'static str,
    injection: Injection,
    /// In percent: of a step, of the cores, of a step.
    levels: &'static [u32],
    /// The script and its words without the bottleneck.
    without: &'static str,
}

const GROWING: &[Growing] = &[
    Growing {
        about: "the second of two ranks slower in its backward pass, by so many percent of a step",
        script: "slow-rank",
        limit: "straggler",
        injection: Injection::Ranks,
        levels: &[5, 10, 15, 25, 50, 100, 200, 300],
        without: "healthy",
    },
    Growing {
        about: "threads, in percent of the cores",
        script: "threads",
        limit: "too-many-threads",
        injection: Injection::None,
        levels: &[100, 150, 200, 400, 800],
        without: "healthy",
    },
    Growing {
        about: "input, in percent of a step",
        script: "slow-input",
        limit: "input",
        injection: Injection::None,
        levels: &[5, 10, 20, 30, 50, 70, 90],
        without: "healthy",
    },
];

/// Runs every strength and prints the curve.
pub(super) fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let mut words = words.iter();
    let (mut runs, mut hasty) = (RUNS, false);
    while let Some(word) = words.next() {
        match *word {
            "--hasty" => hasty = true,
            "--runs" => {
                let number = words.next().and_then(|number| number.parse().ok());
                runs = number.context("--runs needs a number")?;
            }
            other => anyhow::bail!(
                "usage: cargo xtask verdicts curve [--runs N] [--hasty], not `{other}`"
            ),
        }
    }
    let bench = Bench::prepare(root)?;
    let mut text = String::from(
        "How many runs of the PyTorch script named a bottleneck, by its strength (`cargo xtask verdicts curve`). The first row of each has no bottleneck: what is \
         named there is a false alarm.\n",
    );
    for growing in GROWING {
        write!(
            text,
            "\n{}:\n\n| percent | named | other verdicts |\n| --- | --- | --- |\n",
            growing.about
        )?;
        for level in std::iter::once(0).chain(growing.levels.iter().copied()) {
            let row = row(&bench, growing, level, runs, hasty)?;
            print!("{}: {row}", growing.script);
            text.push_str(&row);
        }
    }
    if hasty {
        text.push_str(
            "\n- Made beside other programs (`--hasty`), which are a bottleneck of their own.\n",
        );
    }
    benchmarks::write_body(root, "detection", &text)
}

fn row(
    bench: &Bench,
    growing: &Growing,
    level: u32,
    runs: usize,
    hasty: bool,
) -> anyhow::Result<String> {
    let script = match level {
        0 => format!("{} --steps 80", growing.without),
        level => format!("{} --steps 80 --percent {level}", growing.script),
    };
    let kind = Kind::of_script(script, growing.injection);
    let mut named = 0;
    let mut others: Vec<String> = Vec::new();
    for _ in 0..runs {
        if !hasty {
            injection::wait_for_quiet();
        }
        let said = bench.judged(&kind, "torch")?;
        let limit = said["summary"]["diagnosis"]["limit"].as_str().unwrap_or_default();
        if limit == growing.limit {
            named += 1;
        } else {
            let words = said["verdict"].as_str().unwrap_or_default();
            let too_little = if words.contains("too little") { ", \"too little\"" } else { "" };
            others.push(format!("{limit}{too_little}"));
        }
    }
    others.sort();
    others.dedup();
    let others = if others.is_empty() { "–".to_owned() } else { others.join("; ") };
    Ok(format!("| {level} | {named} of {runs} | {others} |\n"))
}
