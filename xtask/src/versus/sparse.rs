//! `versus sparse`: one pass over a click log against Vowpal Wabbit, and learning alone against
//! scikit-learn. A speed without its loss says nothing, so every side's name ends with it.

use super::contest::{self, Outcome, Side};
use super::{MISC, benchmarks};
use crate::environment;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds of each comparison.
const ROUNDS: usize = 5;
/// Rows of the click log.
const ROWS: &str = "500000";

const CAVEATS: &[&str] = &[
    "500,000 rows of `paceline data synth clicks --seed 1`: 13 integers, 26 categories, 2^25 weights. Nobody can get below the log loss of the hidden truth, about 0.415; always predicting the mean costs about 0.515. Losses are progressive: every row is predicted before it is learned.",
    "Text: read, parse, hash and learn, warm page cache. Both sides read the same rows, each in its own format, integers as the category of their number of binary digits. No side writes its model inside the clock.",
    "Learning alone: rows hashed beforehand, in memory. scikit-learn's loss predicts blocks of 20,000 rows before learning them, which costs it a little.",
    "Vowpal Wabbit runs in process, its start-up outside the clock; more than one thread it has only for reading ahead.",
];

struct Setting {
    root: PathBuf,
    runs: PathBuf,
    paceline: PathBuf,
    clicks: PathBuf,
    vw: PathBuf,
    python: PathBuf,
}

/// What we need of a run's JSON.
#[derive(Deserialize)]
struct Report {
    examples_per_second: f64,
    progressive: Progressive,
}

#[derive(Deserialize)]
struct Progressive {
    loss: f64,
}

/// Runs all comparisons of the area and writes its section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let setting = Setting::make(root)?;
    let outcomes = vec![
        setting.text("1", "one pass over text, one thread")?,
        setting.text("2", "one pass over text, two threads (peers: one)")?,
        setting.learning()?,
    ];
    benchmarks::write(root, "sparse", CAVEATS, &outcomes)
}

impl Setting {
    fn make(root: &Path) -> anyhow::Result<Self> {
        let build = |words: &[&str]| {
            environment::run(
                Command::new(env!("CARGO"))
                    .current_dir(root)
                    .args(["build", "--release"])
                    .args(words),
            )
        };
        build(&["-p", "paceline"])?;
        build(&["-p", "paceline-stream", "--examples"])?;
        let work = root.join("target/versus");
        fs::create_dir_all(&work)?;
        let setting = Self {
            root: root.to_owned(),
            runs: work.join("sparse-runs"),
            paceline: root.join("target/release/paceline"),
            clicks: work.join("clicks.tsv"),
            vw: work.join("clicks.vw"),
            python: MISC.ensure(root)?,
        };
        if !setting.clicks.exists() || !setting.vw.exists() {
            environment::run(
                Command::new(&setting.paceline)
                    .args(["data", "synth", "clicks", "--rows", ROWS, "--seed", "1", "--vw"])
                    .args([&setting.vw, &setting.clicks]),
            )?;
        }
        Ok(setting)
    }

    fn peer(&self, script: &str, words: &[&std::ffi::OsStr]) -> anyhow::Result<Side> {
        let script = self.root.join("xtask/peers").join(script);
        Side::peer(Command::new(&self.python).arg(script).args(words))
    }

    /// The whole program on text: parsing, hashing and learning.
    fn text(&self, threads: &'static str, work: &str) -> anyhow::Result<Outcome> {
        let (_, loss) = train(&self.paceline, &self.clicks, &self.runs, threads)?;
        let (paceline, clicks, runs) =
            (self.paceline.clone(), self.clicks.clone(), self.runs.clone());
        let name = format!("Paceline, adagrad, threads {threads}, loss {loss:.4}");
        let own = Side::own(name, move || Ok(train(&paceline, &clicks, &runs, threads)?.0));
        let vw = self.vw.as_os_str();
        let sides = vec![
            own,
            self.peer("sparse_vw.py", &[vw, "default".as_ref()])?,
            self.peer("sparse_vw.py", &[vw, "sgd".as_ref()])?,
        ];
        contest::run(work, "rows/s", ROUNDS, sides)
    }

    /// Learning alone, rows hashed beforehand.
    fn learning(&self) -> anyhow::Result<Outcome> {
        let own = Side::peer(
            Command::new(self.root.join("target/release/examples/pass_speed"))
                .arg("--serve")
                .arg(&self.clicks),
        )?;
        let sides = vec![own, self.peer("sparse_sklearn.py", &[self.clicks.as_os_str()])?];
        contest::run("learning alone, rows hashed beforehand, one thread", "rows/s", ROUNDS, sides)
    }
}

/// One run of the program: rows per second and progressive loss.
fn train(paceline: &Path, clicks: &Path, runs: &Path, threads: &str) -> anyhow::Result<(f64, f64)> {
    let _ = fs::remove_dir_all(runs);
    let output = Command::new(paceline)
        .args(["train", "--model", "sparse-logistic", "--threads", threads])
        .args(["--no-tensorboard", "--quiet", "--json", "--data"])
        .arg(clicks)
        .arg("--out")
        .arg(runs)
        .output()
        .context("cannot start paceline")?;
    if !output.status.success() {
        bail!("paceline failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let report: Report = serde_json::from_slice(&output.stdout)?;
    Ok((report.examples_per_second, report.progressive.loss))
}
