//! `versus spark`: photos → shards on the same kind of Spark cluster, our binary in its tasks against Pillow in Python.

use super::contest::{self, Outcome, Side, median};
use super::paceline::Paceline;
use super::{benchmarks, photos};
use crate::environment::{self, SPARK};
use anyhow::{Context, bail};
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// Rounds of each comparison; every one of ours starts a Spark of its own.
const ROUNDS: usize = 4;
/// Two executors with one core each.
const MASTER: &str = "local-cluster[2,1,1024]";
/// Tasks of both sides.
const TASKS: &str = "8";

const CAVEATS: &[&str] = &[
    "Both sides: `local-cluster[2,1,1024]`, two executors with one core each, 8 tasks, 192 px, JPEG quality 90, warm page cache; photos read and shards written by the tasks.",
    "Ours is `paceline prepare --engine spark` as a user calls it, with a new Spark every time, timed from the start of the first task to the end of the last, including an fsync of every shard. The peer keeps one warm session with its Python workers and Pillow loaded, and writes without fsync.",
    "6,000 photos per side: the same photos copied 30 and 12 times, because a few hundred would be done before a fresh JVM has compiled its code.",
];

struct Setting {
    root: PathBuf,
    work: PathBuf,
    paceline: PathBuf,
    python: PathBuf,
}

/// Runs the comparisons and writes their section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let paceline = Paceline::build(root)?.program().to_owned();
    environment::ensure_java()?;
    let work = root.join("target/versus");
    fs::create_dir_all(&work)?;
    let setting = Setting {
        root: root.to_owned(),
        work: work.clone(),
        paceline,
        python: SPARK.ensure(root)?,
    };
    let originals = photos::copies(root, &work, "flowers-originals", 30)?;
    let small = photos::copies(root, &work, "flowers-sample", 12)?;
    let startups = Rc::new(RefCell::new(Vec::new()));
    let outcomes = vec![
        setting.prepare("500 px originals to 192 px", &originals, &startups)?,
        setting.prepare("224 px photos to 192 px", &small, &startups)?,
    ];
    let startups = startups.borrow();
    let startup = format!(
        "Start-up of the engine, not included above: {:.1} s (median of {} runs, from `spark-submit` to the first task).",
        median(&startups),
        startups.len()
    );
    let caveats: Vec<&str> = CAVEATS.iter().copied().chain([startup.as_str()]).collect();
    benchmarks::write(root, "spark", &caveats, &outcomes)
}

impl Setting {
    fn prepare(
        &self,
        work: &str,
        photos: &Path,
        startups: &Rc<RefCell<Vec<f64>>>,
    ) -> anyhow::Result<Outcome> {
        let out = self.work.join("spark-shards");
        let submit = self.python.with_file_name("spark-submit");
        let (paceline, python) = (self.paceline.clone(), self.python.clone());
        let (source, startups) = (photos.to_owned(), Rc::clone(startups));
        let own = Side::own("Paceline in Spark tasks", move || {
            let _ = fs::remove_dir_all(&out);
            let output = Command::new(&paceline)
                .args(["--json", "--quiet", "prepare", "--size", "192", "--quality", "90"])
                .args(["--shards", TASKS, "--partitions", TASKS, "--engine", "spark"])
                .args(["--spark-master", MASTER, "--spark-conf", "spark.executor.memory=512m"])
                .args([
                    "--spark-conf",
                    "spark.ui.enabled=false",
                    "--spark-conf",
                    "spark.cores.max=2",
                ])
                // Both executors are there before the first task, as they are for the peer.
                .args(["--spark-conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"])
                .arg("--spark-submit")
                .arg(&submit)
                .env("PYSPARK_PYTHON", &python)
                .env("SPARK_LOCAL_IP", "127.0.0.1")
                .arg(&source)
                .arg(&out)
                .output()
                .context("cannot start paceline prepare")?;
            if !output.status.success() {
                bail!("{}", String::from_utf8_lossy(&output.stderr));
            }
            let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
            let engine = &document["engine"];
            startups.borrow_mut().extend(engine["startup_seconds"].as_f64());
            engine["photos_per_second"].as_f64().context("the document holds no rate")
        });
        let mut peer = Command::new(&self.python);
        peer.arg(self.root.join("xtask/peers/spark_pillow.py"));
        peer.arg("--images").arg(photos).arg("--out").arg(self.work.join("spark-pillow"));
        peer.args(["--master", MASTER, "--tasks", TASKS]);
        peer.env("PYSPARK_PYTHON", &self.python).env("SPARK_LOCAL_IP", "127.0.0.1");
        let name = format!("{work}, {} photos", photos::count(photos)?);
        contest::run(&name, "images/s", ROUNDS, vec![own, Side::peer(&mut peer)?])
    }
}
