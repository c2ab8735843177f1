//! `versus data`: preparing photos, reading them back, and raw record reading, against tf.data, Pillow, OpenCV,
//! libvips, libjpeg-turbo and DALI.

use super::contest::{self, Outcome, Side};
use super::{DALI, MISC, TENSORFLOW, benchmarks, photos};
use crate::environment;
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Rounds of each comparison.
const ROUNDS: usize = 5;
/// Threads or processes of every side.
const THREADS: &str = "2";
/// Photos decoded per measurement of reading.
const TAKE: u64 = 9_600;

const CAVEATS: &[&str] = &[
    "Prepare: centre crop, 192 px, antialiased bilinear, JPEG quality 90, standard chroma subsampling, two shards; warm page cache. Ours is timed as a whole process (including start-up, listing, manifest and fsync), the peers without their start-up.",
    "`antialias off` filters less than we do: it is a reference point, not a like-for-like comparison.",
    "tf.data decodes at full size or, by `decode_jpeg(ratio=)`, at a power of two of it: a trial chose, with and without antialiasing.",
    "tf.data is timed up to the last element: with autotune on, destroying an iterator can stall for seconds.",
    "Raw reading verifies both checksums of every record. The limit is a plain read of the same files on two threads into a 1 MiB buffer.",
    "The fastest of OpenCV with reduced decoding, libvips' `thumbnail` and libjpeg-turbo was found by a trial just before; so was that of DALI on CPU and OpenCV for reading. OpenCV and libjpeg-turbo decode at a power of two of the size where that is still as large as the result.",
    "Quality on both sides: see the PSNR figures in the tests of `crates/photo`.",
];

/// Everything the comparisons share.
struct Setting {
    root: PathBuf,
    work: PathBuf,
    paceline: PathBuf,
    tensorflow: PathBuf,
    misc: PathBuf,
    dali: PathBuf,
}

/// Runs all comparisons of the area and writes its section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let setting = Setting::make(root)?;
    setting.check_records()?;
    let originals = photos::copies(root, &setting.work, "flowers-originals", 10)?;
    let small = photos::copies(root, &setting.work, "flowers-sample", 6)?;
    let records = setting.records(&small)?;
    let large = setting.raw_records()?;
    let outcomes = vec![
        setting.prepare("prepare 500 px originals to 192 px", &originals)?,
        setting.prepare("prepare 224 px photos to 192 px", &small)?,
        setting.read("records", "read + decode + batch 64 from records, 224 px", &records)?,
        setting.read("files", "read + decode + batch 64 from image files, 224 px", &small)?,
        setting.raw(&large)?,
    ];
    benchmarks::write(root, "data", CAVEATS, &outcomes)
}

impl Setting {
    fn make(root: &Path) -> anyhow::Result<Self> {
        environment::run(environment::cargo(root).args(["build", "--release", "-p", "paceline"]))?;
        environment::run(environment::cargo(root).args([
            "build",
            "--release",
            "-p",
            "paceline-tfrecord",
            "--examples",
        ]))?;
        let work = root.join("target/versus");
        fs::create_dir_all(&work)?;
        Ok(Self {
            root: root.to_owned(),
            work,
            paceline: root.join("target/release/paceline"),
            tensorflow: TENSORFLOW.ensure(root)?,
            misc: MISC.ensure(root)?,
            dali: DALI.ensure(root)?,
        })
    }

    /// Checks that TensorFlow reads what we write, before anything is timed.
    fn check_records(&self) -> anyhow::Result<()> {
        let samples = self.work.join("samples");
        fs::create_dir_all(&samples)?;
        environment::run(
            Command::new(self.root.join("target/release/examples/write_samples")).arg(&samples),
        )?;
        environment::run(
            Command::new(&self.tensorflow).arg(self.peer("check_tfrecord.py")).arg(&samples),
        )
    }

    fn peer(&self, script: &str) -> PathBuf {
        self.root.join("xtask/peers").join(script)
    }

    /// The photos as records of the same size, written by ourselves; both sides read them.
    fn records(&self, photos: &Path) -> anyhow::Result<PathBuf> {
        let out = self.work.join("records-224");
        environment::run(
            Command::new(&self.paceline)
                .args(["prepare", "--size", "224", "--quality", "90", "--shards", "8", "--quiet"])
                .arg(photos)
                .arg(&out),
        )?;
        Ok(out)
    }

    /// About a gigabyte of records of photo size.
    fn raw_records(&self) -> anyhow::Result<PathBuf> {
        let out = self.work.join("raw-records");
        if !out.join(".complete").exists() {
            fs::create_dir_all(&out)?;
            environment::run(
                Command::new(self.root.join("target/release/examples/read_speed"))
                    .arg(&out)
                    .args(["--make", "1"]),
            )?;
            fs::write(out.join(".complete"), "")?;
        }
        Ok(out)
    }

    fn prepare(&self, work: &str, photos: &Path) -> anyhow::Result<Outcome> {
        let count = photos::count(photos)? as f64;
        let out = self.work.join("prepared");
        let (paceline, source) = (self.paceline.clone(), photos.to_owned());
        let own = Side::own("Paceline, 2 threads", move || {
            let _ = fs::remove_dir_all(&out);
            let start = Instant::now();
            environment::run(
                Command::new(&paceline)
                    .args(["prepare", "--size", "192", "--quality", "90", "--shards", "2"])
                    .args(["--threads", THREADS, "--quiet"])
                    .arg(&source)
                    .arg(&out),
            )?;
            Ok(count / start.elapsed().as_secs_f64())
        });
        let pillow = |draft: bool| {
            let mut command = Command::new(&self.misc);
            command.arg(self.peer("prepare_pillow.py")).arg("--images").arg(photos);
            command.arg("--out").arg(self.work.join("pillow")).args(["--processes", THREADS]);
            if draft {
                command.arg("--draft");
            }
            Side::peer(&mut command)
        };
        let tensorflow = |antialias: bool, ratio: bool| {
            let mut command = Command::new(&self.tensorflow);
            command.arg(self.peer("data_tf.py")).args(["prepare", "--images"]).arg(photos);
            command.arg("--out").arg(self.work.join("tf")).args(["--calls", THREADS]);
            if antialias {
                command.arg("--antialias");
            }
            if ratio {
                command.arg("--ratio");
            }
            (command, "tf.data")
        };
        let fast = |way: &'static str| {
            let mut command = Command::new(&self.misc);
            command.arg(self.peer("prepare_fast.py")).arg(way).arg("--images").arg(photos);
            command.arg("--out").arg(self.work.join("fast")).args(["--processes", THREADS]);
            (command, way)
        };
        let mut sides = vec![own, pillow(true)?, pillow(false)?];
        let of_tensorflow = [true, false]
            .map(|antialias| vec![tensorflow(antialias, false), tensorflow(antialias, true)]);
        let ways = vec![fast("opencv"), fast("vips"), fast("turbo")];
        sides.extend(contest::best_of(work, of_tensorflow.into_iter().chain([ways]).collect())?);
        contest::run(work, "images/s", ROUNDS, sides)
    }

    fn read(&self, kind: &str, work: &str, path: &Path) -> anyhow::Result<Outcome> {
        let (paceline, source) = (self.paceline.clone(), path.to_owned());
        let flag = if kind == "records" { "--records" } else { "--images" };
        let out = self.work.join("speedtest");
        let own = Side::own("Paceline, 2 threads", move || {
            let _ = fs::remove_dir_all(&out);
            let output = Command::new(&paceline)
                .args(["speedtest", "--batch-size", "64", "--repeats", "1", "--quiet", "--json"])
                .args(["--threads", THREADS, "--batches", &(TAKE / 64).to_string()])
                .arg(flag)
                .arg(&source)
                .arg("--out")
                .arg(&out)
                .output()
                .context("cannot start paceline speedtest")?;
            if !output.status.success() {
                bail!("{}", String::from_utf8_lossy(&output.stderr));
            }
            let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
            document["samples"][0]["images_per_second"]
                .as_f64()
                .context("the speed test's document holds no rate")
        });
        let peer = |calls: &str| {
            let mut command = Command::new(&self.tensorflow);
            command.arg(self.peer("data_tf.py")).arg(kind).arg(format!("--{}", &flag[2..]));
            command.arg(path).args(["--calls", calls, "--take", &TAKE.to_string()]);
            Side::peer(&mut command)
        };
        let fast = |python: &Path, way: &'static str| {
            let mut command = Command::new(python);
            command.arg(self.peer("read_fast.py")).arg(way).arg(format!("--{}", &flag[2..]));
            command.arg(path).args(["--threads", THREADS, "--take", &TAKE.to_string()]);
            (command, way)
        };
        let mut ways = vec![fast(&self.dali, "dali")];
        if kind == "files" {
            ways.push(fast(&self.misc, "opencv")); // it knows no records
        }
        let mut sides = vec![own, peer(THREADS)?, peer("0")?];
        sides.extend(contest::best_of(work, vec![ways])?);
        contest::run(work, "images/s", ROUNDS, sides)
    }

    fn raw(&self, records: &Path) -> anyhow::Result<Outcome> {
        let reader = self.root.join("target/release/examples/read_speed");
        let measure = |what: &'static str| {
            let (reader, records) = (reader.clone(), records.to_owned());
            move || -> anyhow::Result<f64> {
                let output = Command::new(&reader)
                    .arg(&records)
                    .args(["--threads", THREADS, "--repeats", "3"])
                    .output()
                    .context("cannot start read_speed")?;
                let text = String::from_utf8_lossy(&output.stdout);
                text.lines()
                    .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
                    .find(|line| line["what"] == what)
                    .and_then(|line| line["gb_per_s"].as_f64())
                    .with_context(|| format!("no rate of `{what}` in: {text}"))
            }
        };
        let peer = |obvious: bool| {
            let mut command = Command::new(&self.tensorflow);
            command.arg(self.peer("data_tf.py")).args(["raw", "--records"]).arg(records);
            if obvious {
                command.arg("--obvious");
            }
            Side::peer(&mut command)
        };
        let sides = vec![
            Side::own("Paceline, 2 threads, checksums verified", measure("records, verified")),
            Side::own("plain read, 2 threads: the limit", measure("plain read, 1 MiB blocks")),
            peer(false)?,
            peer(true)?,
        ];
        contest::run("raw record reading, 1 GB", "GB/s", ROUNDS, sides)
    }
}
