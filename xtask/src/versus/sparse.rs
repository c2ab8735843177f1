//! `versus sparse`: one pass over a click log against Vowpal Wabbit, learning alone against scikit-learn,
//! parameter servers against TensorFlow. A speed is meaningless without its loss, so the names include it.
//!
//! Each part has a section of its own, so that one can be measured again without the others.

use super::contest::{self, Outcome, Side};
use super::{MISC, TENSORFLOW, benchmarks};
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

/// About the rows, in every part.
const ROWS_ARE: &str = "500,000 rows of `paceline data synth clicks --seed 1`: 13 integers, 26 categories, 2^25 weights. The log loss of the true model, about 0.415, is a lower bound; always predicting the mean gives about 0.515. Losses are progressive: every row is predicted before it is trained on.";

const TEXT: &[&str] = &[
    ROWS_ARE,
    "Read, parse, hash and learn, warm page cache. Both sides read the same rows, each in its own format, integers as the category of their number of binary digits. Writing the model is not timed.",
    "Vowpal Wabbit runs in process, without its start-up; it uses further threads only for reading ahead.",
];

const LEARNING: &[&str] = &[
    ROWS_ARE,
    "Rows are hashed beforehand, in memory. scikit-learn's loss comes from predicting blocks of 20,000 rows before training on them, which makes it slightly worse.",
];

const SERVERS: &[&str] = &[
    ROWS_ARE,
    "Processes on this machine, f32 weights, asynchronous unless noted (synchronous: 512 rows over both workers). Paceline reads prepared records from files, which is timed, in eight epochs (its loss is over all of them); TensorFlow has 102,400 of the same rows in memory and iterates over them repeatedly. The ratio in the ps-sync row is between our own two strategies.",
];

struct Setting {
    root: PathBuf,
    runs: PathBuf,
    paceline: PathBuf,
    clicks: PathBuf,
    vw: PathBuf,
    /// The same rows, hashed beforehand, a shard for each worker.
    shards: PathBuf,
    examples: PathBuf,
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

/// The whole program on text, on one thread.
pub fn text(root: &Path) -> anyhow::Result<()> {
    let outcome = Setting::make(root)?.text("1", "one pass over text, one thread")?;
    benchmarks::write(root, "sparse/text", TEXT, &[outcome])
}

/// The whole program on text, on two threads.
pub fn threads(root: &Path) -> anyhow::Result<()> {
    let work = "one pass over text, two threads (peers: one)";
    let outcome = Setting::make(root)?.text("2", work)?;
    benchmarks::write(root, "sparse/threads", TEXT, &[outcome])
}

/// Learning alone.
pub fn learning(root: &Path) -> anyhow::Result<()> {
    let outcome = Setting::make(root)?.learning()?;
    benchmarks::write(root, "sparse/learning", LEARNING, &[outcome])
}

/// Parameter servers.
pub fn servers(root: &Path) -> anyhow::Result<()> {
    let outcome = Setting::make(root)?.servers()?;
    benchmarks::write(root, "sparse/servers", SERVERS, &[outcome])
}

impl Setting {
    fn make(root: &Path) -> anyhow::Result<Self> {
        let build = |words: &[&str]| {
            environment::run(environment::cargo(root).args(["build", "--release"]).args(words))
        };
        let release = match std::env::var_os("PACELINE_BIN") {
            // A program that is built already, with its examples beside it.
            Some(program) => {
                PathBuf::from(program).parent().map(Path::to_owned).unwrap_or_default()
            }
            None => {
                build(&["-p", "paceline"])?;
                build(&["-p", "paceline-training", "--examples"])?;
                root.join("target/release")
            }
        };
        let work = root.join("target/versus");
        fs::create_dir_all(&work)?;
        let setting = Self {
            root: root.to_owned(),
            runs: work.join("sparse-runs"),
            paceline: release.join("paceline"),
            examples: release.join("examples"),
            shards: work.join("clicks-shards"),
            clicks: work.join("clicks.tsv"),
            vw: work.join("clicks.vw"),
        };
        if !setting.clicks.exists() || !setting.vw.exists() {
            environment::run(
                Command::new(&setting.paceline)
                    .args(["data", "synth", "clicks", "--rows", ROWS, "--seed", "1", "--vw"])
                    .args([&setting.vw, &setting.clicks]),
            )?;
        }
        if !setting.shards.exists() {
            let mut prepare = Command::new(&setting.paceline);
            prepare.arg("prepare").args([&setting.clicks, &setting.shards]);
            environment::run(prepare.args(["--shards", "2"]))?;
        }
        Ok(setting)
    }

    fn peer(&self, script: &str, words: &[&std::ffi::OsStr]) -> anyhow::Result<Side> {
        let script = self.root.join("xtask/peers").join(script);
        Side::peer(Command::new(MISC.ensure(&self.root)?).arg(script).args(words))
    }

    /// Parameter servers: the whole program on prepared rows, against TensorFlow on rows in memory.
    fn servers(&self) -> anyhow::Result<Outcome> {
        let own = |strategy: &'static str, transfer: &'static str| -> anyhow::Result<Side> {
            let (paceline, shards, runs) =
                (self.paceline.clone(), self.shards.clone(), self.runs.clone());
            let flags = ["--optimizer", "sgd", "--lr", "0.1", "--strategy", strategy];
            let more = ["--transfer", transfer, "--workers", "2", "--ps", "1", "--epochs", "8"];
            let words: Vec<&'static str> = [&flags[..], &more, &["--batch-size", "512"]].concat();
            let (_, loss) = train(&paceline, &shards, &runs, &words)?;
            let name = format!("Paceline {strategy}, sgd, loss {loss:.4}");
            Ok(Side::own(name, move || Ok(train(&paceline, &shards, &runs, &words)?.0)))
        };
        let python = TENSORFLOW.ensure(&self.root)?;
        let script = self.root.join("xtask/peers/sparse_ps_tf.py");
        // Its server listens on every interface: it gets its own network namespace.
        let alone = "ip link set lo up && exec \"$0\" \"$@\"";
        let mut tensorflow = Command::new("unshare");
        tensorflow.args(["--net", "sh", "-c", alone]).arg(python).arg(script).arg(&self.clicks);
        let sides = vec![
            own("ps-async", "sparse")?,
            Side::peer(&mut tensorflow)?,
            own("ps-sync", "sparse")?,
        ];
        let work = "parameter server, sparse pull and push, batch 512, 2 workers and 1 server";
        contest::run(work, "rows/s", ROUNDS, sides)
    }

    /// The whole program on text: parsing, hashing and learning.
    fn text(&self, threads: &'static str, work: &str) -> anyhow::Result<Outcome> {
        let words = ["--threads", threads];
        let (_, loss) = train(&self.paceline, &self.clicks, &self.runs, &words)?;
        let (paceline, clicks, runs) =
            (self.paceline.clone(), self.clicks.clone(), self.runs.clone());
        let name = format!("Paceline, scaled-adagrad, threads {threads}, loss {loss:.4}");
        let own = Side::own(name, move || Ok(train(&paceline, &clicks, &runs, &words)?.0));
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
            Command::new(self.examples.join("pass_speed")).arg("--serve").arg(&self.clicks),
        )?;
        let sides = vec![own, self.peer("sparse_sklearn.py", &[self.clicks.as_os_str()])?];
        contest::run("learning alone, rows hashed beforehand, one thread", "rows/s", ROUNDS, sides)
    }
}

/// One run of the program: rows per second and progressive loss.
pub fn train(
    paceline: &Path,
    rows: &Path,
    runs: &Path,
    words: &[&str],
) -> anyhow::Result<(f64, f64)> {
    let _ = fs::remove_dir_all(runs);
    let output = Command::new(paceline)
        .args(["train", "--model", "sparse-logistic"])
        .args(words)
        .args(["--no-tensorboard", "--quiet", "--json", "--data"])
        .arg(rows)
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
