//! Runs all of cargo's tests and lists the failures at the end: one in the middle of a long log is easily missed, and
//! stopping at the first hides the others.

use anyhow::{Context, bail};
use std::{
    io::{BufRead, BufReader, Write},
    process::Command,
    time::{Duration, Instant},
};

/// Test programs that took longest, in the closing table.
const SLOWEST: usize = 8;

/// What one test program reported.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    name: String,
    passed: u64,
    failed: u64,
    ignored: u64,
    /// From the line that says it starts to its result.
    took: Duration,
}

/// What all of them reported, read line by line from what cargo prints.
#[derive(Debug, Default)]
pub struct Tally {
    programs: Vec<Program>,
    failures: Vec<String>,
    running: Option<(String, Instant)>,
}

impl Tally {
    /// Takes one line of output.
    fn read(&mut self, line: &str) {
        let words = line.trim_start();
        if let Some(name) = started(words) {
            self.close_without_result(false);
            self.running = Some((name, Instant::now()));
        } else if words.starts_with("error: test failed") {
            self.close_without_result(true);
        } else if let Some(result) = words.strip_prefix("test result: ") {
            let (name, since) =
                self.running.take().unwrap_or_else(|| ("tests".to_owned(), Instant::now()));
            let count = |what: &str| count_before(result, what);
            self.programs.push(Program {
                name,
                passed: count("passed"),
                failed: count("failed"),
                ignored: count("ignored"),
                took: since.elapsed(),
            });
        } else if let Some(test) =
            words.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            let program = self.running.as_ref().map_or("tests", |(name, _)| name);
            self.failures.push(format!("{program}: {test}"));
        }
    }

    /// A program that ends without counting its tests has its own harness, or crashed: then cargo says so.
    fn close_without_result(&mut self, crashed: bool) {
        if let Some((name, since)) = self.running.take() {
            if crashed {
                self.failures.push(format!("{name}: ended without a result"));
            }
            let (passed, failed) = (u64::from(!crashed), u64::from(crashed));
            let took = since.elapsed();
            self.programs.push(Program { name, passed, failed, ignored: 0, took });
        }
    }

    fn total(&self, of: impl Fn(&Program) -> u64) -> u64 {
        self.programs.iter().map(of).sum()
    }

    /// The slowest programs, every failure, and the counts alone on the last line.
    fn summary(&self) -> String {
        let mut text = String::from("\n== slowest test programs\n");
        let mut by_time: Vec<_> = self.programs.iter().collect();
        by_time.sort_by_key(|program| std::cmp::Reverse(program.took));
        for program in by_time.into_iter().take(SLOWEST) {
            text += &format!("{:>8.1} s  {}\n", program.took.as_secs_f64(), program.name);
        }
        if !self.failures.is_empty() {
            text += "\n== failed\n";
            for failure in &self.failures {
                text += &format!("  {failure}\n");
            }
        }
        let [passed, failed, ignored] =
            [self.total(|p| p.passed), self.total(|p| p.failed), self.total(|p| p.ignored)];
        text += &format!("\n{passed} passed, {failed} failed, {ignored} skipped\n");
        text
    }
}

/// The test program that a line of cargo's announces: by its source, or the crate of documentation tests.
fn started(line: &str) -> Option<String> {
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{name} (documentation)"));
    }
    let (source, program) = line.strip_prefix("Running ")?.split_once(" (")?;
    let program = program.rsplit('/').next().unwrap_or(program);
    let krate = program.rsplit_once('-').map_or(program, |(name, _)| name);
    Some(format!("{krate} ({})", source.trim_start_matches("unittests ")))
}

fn count_before(result: &str, what: &str) -> u64 {
    let parts = result.split([';', '.']).map(str::trim);
    let number = |part: &str| part.strip_suffix(what).and_then(|n| n.trim().parse().ok());
    parts.filter_map(number).next().unwrap_or(0)
}

/// Runs `cargo test` commands one after another, each to its end, and fails at the end if anything failed.
pub fn run_all(commands: Vec<Command>) -> anyhow::Result<()> {
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    for mut command in commands {
        if !run_one(&mut command, &mut tally)? {
            broken.push(format!("{command:?}"));
        }
    }
    println!("{}", tally.summary());
    if !broken.is_empty() {
        bail!("{} of the tests failed: {}", tally.total(|p| p.failed), broken.join(", "));
    }
    Ok(())
}

/// Passes the output on as it comes; both streams through one pipe, so that their order stays.
fn run_one(command: &mut Command, tally: &mut Tally) -> anyhow::Result<bool> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    let mut child = command
        .stdout(writer.try_clone().context("cannot share a pipe")?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    // The command keeps its ends of the pipe open until it is given others.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut out = std::io::stdout().lock();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).context("cannot read what the tests print")? > 0 {
        out.write_all(&line).context("cannot write")?;
        tally.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let status = child.wait().context("cannot wait for the tests")?;
    tally.close_without_result(!status.success());
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
     Running unittests src/lib.rs (target/debug/deps/paceline_runs-0a1b2c)
running 2 tests
test event::tests::round_trip ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
     Running tests/sweep.rs (target/debug/deps/sweep-3d4e5f)
test a_sweep_resumes ... FAILED
test result: FAILED. 4 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 9.99s
error: test failed, to rerun pass `-p paceline --test sweep`
     Running tests/own.rs (target/debug/deps/own-777777)
everything is fine
     Running tests/train.rs (target/debug/deps/train-6a7b8c)
running 3 tests
error: test failed, to rerun pass `-p paceline --test train`
   Doc-tests paceline_stats
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s
";

    #[test]
    fn everything_that_failed_is_named_at_the_end() {
        let mut tally = Tally::default();
        LOG.lines().for_each(|line| tally.read(line));
        let summary = tally.summary();
        assert!(summary.contains("  sweep (tests/sweep.rs): a_sweep_resumes\n"), "{summary}");
        assert!(summary.contains("train (tests/train.rs): ended without a result"), "{summary}");
        assert!(summary.ends_with("\n8 passed, 2 failed, 2 skipped\n"), "{summary}");
        assert!(!summary.contains("own.rs): ended"), "{summary}");
        assert!(summary.contains("paceline_stats (documentation)"), "{summary}");
    }
}
