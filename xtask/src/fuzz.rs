//! `cargo xtask fuzz` and `cargo xtask faults random`: tests that look for what breaks, for longer than an ordinary test run may.
//!
//! Both are tests of `crates/cli` that take their length from the environment. What finds more, libFuzzer on the same bodies, needs a
//! nightly compiler: `fuzz/Cargo.toml`.

use anyhow::{Context, bail};
use std::path::Path;

/// Seconds for each parser.
const SECONDS: u64 = 30;
/// Schedules of faults.
const SCHEDULES: u64 = 20;

/// Tries every parser.
pub fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let seconds = number(words, SECONDS, "seconds for each parser")?;
    // One after the other, so that each has its time to itself.
    test(root, "parsers", &[("PACELINE_FUZZ_SECONDS", seconds)])
}

/// Tries schedules of faults, or one of them again.
pub fn random_faults(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let schedules = number(words, SCHEDULES, "a number of schedules")?;
    match words.get(1..).filter(|seeds| !seeds.is_empty()) {
        Some(seeds) => {
            let seed = number(seeds, 0, "the seed of a schedule")?;
            test(root, "random_faults", &[("PACELINE_SEED", seed)])
        }
        None => test(root, "random_faults", &[("PACELINE_SCHEDULES", schedules)]),
    }
}

fn number(words: &[&str], otherwise: u64, what: &'static str) -> anyhow::Result<u64> {
    words.first().map_or(Ok(otherwise), |word| word.parse().context(what))
}

fn test(root: &Path, name: &str, settings: &[(&str, u64)]) -> anyhow::Result<()> {
    let mut cargo = crate::environment::cargo(root);
    cargo.current_dir(root).args(["test", "--package", "paceline", "--test", name]);
    cargo.args(["--", "--nocapture", "--test-threads", "1"]);
    cargo.envs(settings.iter().map(|(key, value)| (key, value.to_string())));
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("{name}: something broke; its input or seed is printed above");
    }
    Ok(())
}
