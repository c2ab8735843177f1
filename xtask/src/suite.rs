//! Runs all of the tests, several programs at a time, and lists the failures at the end: one in the middle of a long log is
//! easily missed, and stopping at the first hides the others.
//!
//! cargo runs one test program after another. Most of ours wait, for a lost task to be noticed or for a server to start, so the
//! cores were idle half of the time; and what holds only alone would not hold on a user's machine either.

use anyhow::{Context, bail};
use serde_json::Value;
use std::{
    fs::OpenOptions,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Test programs that took longest, in the closing table.
const SLOWEST: usize = 8;
/// Programs that take long begin first, so that none is left over at the end.
const BEGIN_WITH: [&str; 8] = [
    "spark",
    "everything",
    "random_faults",
    "cluster",
    "rows_tasks",
    "servers",
    "learning",
    "documents",
];

/// One program to run, or one cargo command that runs several.
pub struct Job {
    name: String,
    command: Command,
}

impl Job {
    /// A cargo command.
    pub fn new(name: &str, command: Command) -> Job {
        Job { name: name.to_owned(), command }
    }
}

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

/// What all of them reported.
#[derive(Debug, Default)]
pub struct Tally {
    programs: Vec<Program>,
    failures: Vec<String>,
}

impl Tally {
    /// Takes all that one job printed. Cargo names the programs it runs; a program that is run directly says only what it counted.
    fn read(&mut self, job: &str, output: &str, took: Duration, succeeded: bool) {
        let (mut name, mut counted, before) = (job.to_owned(), true, self.failures.len());
        let mut found = 0;
        for line in output.lines().map(str::trim) {
            if let Some(started) = started(line) {
                (name, counted) = (started, false);
            } else if line.starts_with("error: test failed") && !counted {
                self.failures.push(format!("{name}: ended without a result"));
                counted = true;
            } else if let Some(result) = line.strip_prefix("test result: ") {
                let count = |what: &str| count_before(result, what);
                let [passed, failed, ignored] = ["passed", "failed", "ignored"].map(count);
                let took = finished_in(result).unwrap_or(took);
                self.programs.push(Program { name: name.clone(), passed, failed, ignored, took });
                counted = true;
                found += 1;
            } else if let Some(test) =
                line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
            {
                self.failures.push(format!("{name}: {test}"));
            }
        }
        // A program with its own harness counts nothing; one that crashed neither.
        let silent_failure = !succeeded && self.failures.len() == before;
        if silent_failure {
            self.failures.push(format!("{name}: ended without a result"));
        }
        if found == 0 || silent_failure {
            let (passed, failed) = (u64::from(succeeded), u64::from(!succeeded));
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

/// Seconds that a program says its tests took.
fn finished_in(result: &str) -> Option<Duration> {
    let seconds = result.rsplit_once("finished in ")?.1.trim_end_matches('s').parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The test programs that cargo has built, from what it says with `--message-format=json`.
pub fn built(messages: &[u8]) -> Vec<Job> {
    let messages = String::from_utf8_lossy(messages);
    let mut jobs: Vec<Job> = messages.lines().filter_map(built_program).collect();
    let rank = |job: &Job| {
        let slow = |name: &str| job.name.split(' ').next() == Some(name);
        BEGIN_WITH.iter().position(|name| slow(name)).unwrap_or(BEGIN_WITH.len())
    };
    jobs.sort_by_key(rank);
    jobs
}

fn built_program(message: &str) -> Option<Job> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let package = Path::new(message["manifest_path"].as_str()?).parent()?;
    let source = Path::new(message["target"]["src_path"].as_str()?);
    let source = source.strip_prefix(package).unwrap_or(source);
    let mut command = Command::new(message["executable"].as_str()?);
    // As cargo does it: in the package's folder, which the environment names too.
    command.current_dir(package).env("CARGO_MANIFEST_DIR", package).env("CARGO", env!("CARGO"));
    let name = message["target"]["name"].as_str()?.replace('-', "_");
    Some(Job { name: format!("{name} ({})", source.display()), command })
}

/// Runs everything to its end, a few at a time, what must run alone at the end, and fails then if anything failed. What a program
/// prints is shown when it has ended, in one piece; until then it is in `folder`.
#[expect(clippy::disallowed_methods, reason = "a guess is enough here")]
pub fn run_all(jobs: Vec<Job>, alone: Vec<Job>, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create `{}`", folder.display()))?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut suite = Suite { total: jobs.len() + alone.len(), ..Suite::new(folder) };
    suite.run(jobs, cores + 1)?;
    suite.run(alone, 1)?;
    let (tally, broken) =
        suite.results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!("{}", tally.summary());
    if !broken.is_empty() {
        bail!("{} of the tests failed: {}", tally.total(|p| p.failed), broken.join(", "));
    }
    Ok(())
}

/// A suite that is running.
struct Suite<'a> {
    folder: &'a Path,
    begun: Instant,
    total: usize,
    ended: AtomicUsize,
    /// What was counted, and the commands that failed.
    results: Mutex<(Tally, Vec<String>)>,
}

impl Suite<'_> {
    fn new(folder: &Path) -> Suite<'_> {
        let (begun, ended) = (Instant::now(), AtomicUsize::new(0));
        Suite { folder, begun, total: 0, ended, results: Mutex::default() }
    }

    /// Runs jobs, so many at a time.
    fn run(&mut self, jobs: Vec<Job>, at_once: usize) -> anyhow::Result<()> {
        let (suite, waiting) = (&*self, Mutex::new(jobs.into_iter()));
        let next = || lock(&waiting).next();
        let work = || std::iter::from_fn(next).try_for_each(|job| suite.run_job(job));
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    fn run_job(&self, Job { name, mut command }: Job) -> anyhow::Result<()> {
        println!("== {name} begins ({:.0} s)", self.begun.elapsed().as_secs_f64());
        let file = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let started = Instant::now();
        let (output, succeeded) = run_one(&mut command, &self.folder.join(file + ".log"))?;
        let took = started.elapsed();
        let mut results = lock(&self.results);
        results.0.read(&name, &String::from_utf8_lossy(&output), took, succeeded);
        if !succeeded {
            results.1.push(format!("{command:?}"));
        }
        let number = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let words = if succeeded { "ended" } else { "FAILED" };
        let mut out = std::io::stdout().lock();
        out.write_all(&output).context("cannot write")?;
        let (total, seconds) = (self.total, took.as_secs_f64());
        writeln!(out, "== [{number}/{total}] {name} {words} after {seconds:.1} s")
            .context("cannot write")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// All that a command prints, both streams in one file, so that their order stays, and no process that a test forgot can hold the
/// end up.
fn run_one(command: &mut Command, file: &Path) -> anyhow::Result<(Vec<u8>, bool)> {
    let opened = |options: &mut OpenOptions| {
        options.open(file).with_context(|| format!("cannot open `{}`", file.display()))
    };
    opened(OpenOptions::new().create(true).write(true).truncate(true))?;
    let [out, error] = [(); 2].map(|()| opened(OpenOptions::new().append(true)));
    let status = command
        .stdin(Stdio::null())
        .stdout(out?)
        .stderr(error?)
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    let output =
        std::fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    Ok((output, status.success()))
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
   Doc-tests paceline_stats
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s
";

    #[test]
    fn everything_that_failed_is_named_at_the_end() {
        let mut tally = Tally::default();
        tally.read("all", LOG, Duration::from_secs(20), false);
        tally.read("own (tests/own.rs)", "everything is fine\n", Duration::from_secs(1), true);
        let failed = "running 3 tests\nthread panicked while panicking\n";
        tally.read("train (tests/train.rs)", failed, Duration::from_secs(1), false);
        let summary = tally.summary();
        assert!(summary.contains("  sweep (tests/sweep.rs): a_sweep_resumes\n"), "{summary}");
        assert!(summary.contains("train (tests/train.rs): ended without a result"), "{summary}");
        assert!(summary.ends_with("\n8 passed, 2 failed, 2 skipped\n"), "{summary}");
        assert!(!summary.contains("own.rs): ended"), "{summary}");
        assert!(summary.contains("paceline_stats (documentation)"), "{summary}");
    }
}
