//! `versus before BINARY`: this program against an earlier build of itself, in turns.
//!
//! Settings are given explicitly, in the spelling of version 0.1, because defaults and names have changed since.

use super::contest::{self, Outcome, Side};
use super::paceline::{Paceline, shared_data};
use super::{benchmarks, photos};
use anyhow::{Context, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Turns of each side, where `PACELINE_ROUNDS` does not say otherwise.
const ROUNDS: usize = 9;

const CAVEATS: &[&str] = &[
    "The ratio is this build over the earlier one. Rates are those that the programs print (`--json`), so start-up counts only in the rows that say so; every measurement is a process of its own.",
    "Settings are the same on both sides and explicit. Data were made by the earlier build: photos are 20 copies of 500 px originals, records hold them at 128 px, rows are 200,000 of `data synth clicks --seed 1`.",
];

/// How a rate is taken from a call.
#[derive(Clone, Copy)]
enum Rate {
    /// A number in the document that is printed.
    Printed(&'static str),
    /// The median of the samples of a speed test.
    Samples,
    /// Calls in a second, of so many one after the other.
    Calls(u32),
}

/// Something that both programs do: its name, the unit of its rate, where the rate is, and the call. In a call, `CLICKS`,
/// `PHOTOS`, `RECORDS`, `MNIST` and `OUT` stand for folders and files.
type Work = (&'static str, &'static str, Rate, &'static str);

const EXAMPLES: Rate = Rate::Printed("/examples_per_second");

const WORK: &[Work] = &[
    (
        "softmax, MNIST, batch 100, 1 thread",
        "images/s",
        EXAMPLES,
        "train --model softmax --data MNIST --steps 20000 --batch-size 100 --optimizer sgd --lr 0.1 --threads 1 --eval-every 20000 --checkpoint-every 20000 --no-tensorboard --out OUT",
    ),
    (
        "lenet, MNIST, batch 128, 2 threads",
        "images/s",
        EXAMPLES,
        "train --model lenet --data MNIST --steps 500 --batch-size 128 --optimizer momentum --momentum 0.9 --lr 0.01 --threads 2 --eval-every 500 --checkpoint-every 500 --no-tensorboard --out OUT",
    ),
    (
        "alexnet, 10 classes, batch 32, 2 threads",
        "images/s",
        EXAMPLES,
        "train --model alexnet --data generated:images?size=224&classes=10&examples=320 --steps 8 --batch-size 32 --optimizer momentum --momentum 0.9 --lr 0.001 --threads 2 --eval-every 8 --checkpoint-every 8 --no-tensorboard --out OUT",
    ),
    (
        "mobilenet-v2, 64 px, 10 classes, batch 32, 2 threads",
        "images/s",
        EXAMPLES,
        "train --model mobilenet_v2 --data generated:images?size=64&classes=10&examples=640 --steps 20 --batch-size 32 --optimizer momentum --momentum 0.9 --lr 0.01 --threads 2 --eval-every 20 --checkpoint-every 20 --no-tensorboard --out OUT",
    ),
    (
        "sparse-logistic from text, 1 thread",
        "rows/s",
        EXAMPLES,
        "train --model sparse-logistic --data CLICKS --epochs 1 --batch-size 1 --optimizer adagrad --lr 0.05 --bits 25 --threads 1 --no-tensorboard --out OUT",
    ),
    (
        "sparse-logistic from text, 2 threads",
        "rows/s",
        EXAMPLES,
        "train --model sparse-logistic --data CLICKS --epochs 1 --batch-size 1 --optimizer adagrad --lr 0.05 --bits 25 --threads 2 --no-tensorboard --out OUT",
    ),
    (
        "sparse-logistic, ps-async, 2 workers, 1 server",
        "rows/s",
        EXAMPLES,
        "train --model sparse-logistic --data CLICKS,CLICKS2 --epochs 1 --batch-size 512 --optimizer sgd --lr 0.1 --bits 22 --strategy ps-async --workers 2 --ps 1 --transfer sparse --threads 2 --no-tensorboard --out OUT",
    ),
    (
        "lenet, mirrored, 2 replicas",
        "images/s",
        EXAMPLES,
        "train --model lenet --data MNIST --steps 500 --batch-size 128 --optimizer momentum --momentum 0.9 --lr 0.01 --strategy mirrored --replicas 2 --threads 2 --eval-every 500 --checkpoint-every 500 --no-tensorboard --out OUT",
    ),
    (
        "lenet, multi-worker, 2 processes",
        "images/s",
        EXAMPLES,
        "train --model lenet --data MNIST --steps 500 --batch-size 128 --optimizer momentum --momentum 0.9 --lr 0.01 --strategy multi-worker --workers 2 --threads 2 --eval-every 500 --checkpoint-every 500 --no-tensorboard --out OUT",
    ),
    (
        "lenet, ps-sync, 2 workers, 1 server",
        "images/s",
        EXAMPLES,
        "train --model lenet --data MNIST --steps 500 --batch-size 128 --optimizer momentum --momentum 0.9 --lr 0.01 --strategy ps-sync --workers 2 --ps 1 --threads 2 --eval-every 500 --checkpoint-every 500 --no-tensorboard --out OUT",
    ),
    (
        "lenet, ps-async, 2 workers, 1 server",
        "images/s",
        EXAMPLES,
        "train --model lenet --data MNIST --steps 500 --batch-size 128 --optimizer momentum --momentum 0.9 --lr 0.01 --strategy ps-async --workers 2 --ps 1 --threads 2 --eval-every 500 --checkpoint-every 500 --no-tensorboard --out OUT",
    ),
    (
        "prepare photos, 500 px to 192 px, 2 threads",
        "photos/s",
        Rate::Printed("/photos_per_second"),
        "prepare PHOTOS OUT --size 192 --fit crop --encode jpeg --quality 90 --shards 2 --threads 2",
    ),
    (
        "read and decode records, 128 px, batch 64, 2 threads",
        "images/s",
        Rate::Samples,
        "speedtest --records RECORDS --batch-size 64 --batches 40 --repeats 3 --threads 2 --out OUT",
    ),
    (
        "matmul, trace of 4,096, blocks of 1,024, 1 worker",
        "flop/s",
        Rate::Printed("/flops_per_second"),
        "matmul --size 4096 --block 1024 --workers 1 --threads 1 --state OUT/state.json --fresh",
    ),
    ("start of `paceline --version`", "starts/s", Rate::Calls(20), "--version"),
    (
        "start and end of a run: softmax, MNIST, 1 step",
        "runs/s",
        Rate::Calls(2),
        "train --model softmax --data MNIST --steps 1 --batch-size 100 --optimizer sgd --lr 0.1 --threads 2 --no-tensorboard --quiet --out OUT",
    ),
];

/// Measures every work whose name has one of `wanted` in it; all of them are written to a section.
pub fn run(root: &Path, binary: &str, wanted: &[&str]) -> anyhow::Result<()> {
    let now = Paceline::build(root)?.program().to_owned();
    let before = fs::canonicalize(binary).with_context(|| format!("no program at {binary}"))?;
    let setting = Setting::make(root, &before)?;
    let rounds = match std::env::var("PACELINE_ROUNDS") {
        Ok(rounds) => rounds.parse().context("PACELINE_ROUNDS is a number")?,
        Err(_) => ROUNDS,
    };
    let mut outcomes = Vec::new();
    for work in WORK {
        if wanted.is_empty() || wanted.iter().any(|word| work.0.contains(word)) {
            outcomes.push(setting.compare(work, &now, &before, rounds)?);
        }
    }
    if outcomes.is_empty() {
        bail!("nothing that is measured is called {}", wanted.join(" or "));
    }
    for outcome in &outcomes {
        let mut ratios = outcome.ratios(1);
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        println!("{}: {:.3} ({least:.3}–{most:.3})", outcome.work, contest::median(&ratios));
    }
    // A part is to look at, and does not replace the table of all.
    if wanted.is_empty() { benchmarks::write(root, "before", CAVEATS, &outcomes) } else { Ok(()) }
}

struct Setting {
    work: PathBuf,
    mnist: PathBuf,
    photos: PathBuf,
}

impl Setting {
    fn make(root: &Path, before: &Path) -> anyhow::Result<Self> {
        let work = root.join("target/versus/before");
        fs::create_dir_all(&work)?;
        let photos = photos::copies(root, &work, "flowers-originals", 20)?;
        let setting = Self { mnist: shared_data(root).join("mnist"), photos, work };
        let made = setting.work.join("made");
        if !made.exists() {
            for call in [
                "data synth clicks CLICKS --rows 200000 --seed 1 --quiet",
                "data synth clicks CLICKS2 --rows 200000 --seed 2 --quiet",
                "prepare PHOTOS RECORDS --size 128 --fit crop --encode jpeg --quality 90 --shards 4 --quiet",
            ] {
                output(before, &setting.words(call, &setting.work.join("out")))?;
            }
            fs::write(made, "")?;
        }
        Ok(setting)
    }

    /// The words of a call, with names of files and folders in their places.
    fn words(&self, call: &str, out: &Path) -> Vec<String> {
        let places = [
            ("CLICKS2", self.work.join("clicks2.tsv")),
            ("CLICKS", self.work.join("clicks.tsv")),
            ("PHOTOS", self.photos.clone()),
            ("RECORDS", self.work.join("records")),
            ("MNIST", self.mnist.clone()),
            ("OUT", out.to_owned()),
        ];
        let place = |word: &str| {
            places.iter().fold(word.to_owned(), |word, (name, path)| {
                word.replace(name, &path.display().to_string())
            })
        };
        call.split_whitespace().map(place).collect()
    }

    fn compare(
        &self,
        (name, unit, rate, call): &Work,
        now: &Path,
        before: &Path,
        rounds: usize,
    ) -> anyhow::Result<Outcome> {
        let side = |label: &str, program: &Path| {
            let out = self.work.join("out");
            let (program, words, rate) = (program.to_owned(), self.words(call, &out), *rate);
            Side::own(label, move || {
                let _ = fs::remove_dir_all(&out);
                fs::create_dir_all(&out)?;
                if words[0] == "prepare" {
                    fs::remove_dir(&out)?;
                }
                rate.of(&program, &words)
            })
        };
        contest::run(name, unit, rounds, vec![side("this build", now), side("before", before)])
    }
}

fn output(program: &Path, words: &[String]) -> anyhow::Result<Vec<u8>> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} {} failed: {}", program.display(), words.join(" "), said.trim());
    }
    Ok(output.stdout)
}

impl Rate {
    fn of(self, program: &Path, words: &[String]) -> anyhow::Result<f64> {
        if let Self::Calls(calls) = self {
            let start = Instant::now();
            for _ in 0..calls {
                output(program, words)?;
            }
            return Ok(f64::from(calls) / start.elapsed().as_secs_f64());
        }
        let words: Vec<String> =
            words.iter().cloned().chain(["--json".to_owned(), "--quiet".to_owned()]).collect();
        let document: Value = serde_json::from_slice(&output(program, &words)?)?;
        let found = match self {
            Self::Printed(pointer) => document.pointer(pointer).and_then(Value::as_f64),
            _ => {
                let samples = document["samples"].as_array().map_or(&[][..], Vec::as_slice);
                let rates =
                    samples.iter().filter_map(|sample| sample["images_per_second"].as_f64());
                Some(contest::median(&rates.collect::<Vec<_>>())).filter(|rate| rate.is_finite())
            }
        };
        found.with_context(|| format!("{} {} printed no rate", program.display(), words.join(" ")))
    }
}
