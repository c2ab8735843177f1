//! `cargo xtask verdicts`: are verdicts correct? Counted over short real runs with an injected bottleneck.
//!
//! Each kind is injected from outside, as it would occur on a real machine: other programs on the cores, examples that are slow
//! to generate, a batch of one, a worker that is stopped three quarters of the time, a limited disk, a slow link. The program does
//! not know about it. Kinds without a bottleneck count false alarms.
//!
//! Needs an otherwise idle machine: other load is a bottleneck too, and the verdict rightly says so. Results accumulate over calls
//! (`target/verdicts/results.jsonl`), so that twenty runs need not be one long measurement.

mod curve;
mod foreign;
mod injection;
mod overhead;

use crate::versus::benchmarks;
use anyhow::{Context, bail, ensure};
use injection::{Burners, Lab, SlowDisk, Slowed};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

/// Runs per kind by default, and the share of them that must be judged correctly.
const RUNS: usize = 20;
const RIGHT: f64 = 0.95;
/// Cores that unrelated programs may take during a run before it is repeated.
const FOREIGN: f64 = 0.25;

/// Command and folder of a run on one host.
const ALONE: &[&str] = &["train", "here"];

/// A bottleneck and how it is injected.
struct Kind {
    name: &'static str,
    about: &'static str,
    /// The correct verdict, and the culprit, where one must be named.
    limit: &'static str,
    culprit: Option<&'static str>,
    /// Arguments of `paceline train` or `paceline node`; `{digits}` and `{shards}` are data.
    flags: &'static str,
    injection: Injection,
}

#[derive(Clone, Copy, PartialEq)]
enum Injection {
    /// Nothing: the setting itself is the bottleneck, or there is none.
    None,
    /// One busy loop per core.
    Burners,
    /// The second worker is stopped three quarters of the time.
    SlowWorker,
    /// Reads from the disk are limited to so many bytes a second.
    Disk(u64),
    /// Two hosts; the rate of their link.
    Cable(Option<&'static str>),
}

const KINDS: &[Kind] = &[
    Kind {
        name: "healthy",
        about: "LeNet at batch 128, no bottleneck",
        limit: "compute",
        culprit: None,
        flags: "--model lenet --data {digits} --batch-size 128 --steps 600",
        injection: Injection::None,
    },
    Kind {
        name: "healthy-hosts",
        about: "the same at batch 1024 on two hosts with a link of several Gbit/s",
        limit: "compute",
        culprit: None,
        flags: "--model lenet --data {digits} --batch-size 1024 --steps 60 --strategy multi-worker --threads 1",
        injection: Injection::Cable(None),
    },
    Kind {
        name: "burner",
        about: "LeNet at batch 128 while other programs keep every core busy",
        limit: "taken-cores",
        culprit: Some("other programs"),
        flags: "--model lenet --data {digits} --batch-size 128 --steps 400",
        injection: Injection::Burners,
    },
    Kind {
        name: "slow-input",
        about: "examples that take longer to generate than to train on",
        limit: "input",
        culprit: None,
        flags: "--model softmax --data generated:digits?examples=60000 --steps 6000",
        injection: Injection::None,
    },
    Kind {
        name: "slow-disk",
        about: "records on a disk limited to 1 MB/s (by a control group), with a cold page cache",
        limit: "input",
        culprit: Some("the disk"),
        flags: "--model softmax --data {shards} --batch-size 20 --steps 60",
        injection: Injection::Disk(1_000_000),
    },
    Kind {
        name: "small-batch",
        about: "softmax at batch 1",
        limit: "small-steps",
        culprit: None,
        flags: "--model softmax --data {digits} --batch-size 1 --steps 300000 --threads 1",
        injection: Injection::None,
    },
    Kind {
        name: "slow-worker",
        about: "two synchronous workers, the second stopped three quarters of the time",
        limit: "straggler",
        culprit: Some("worker/1"),
        flags: "--model lenet --data {digits} --batch-size 128 --steps 120 --strategy multi-worker --workers 2",
        injection: Injection::SlowWorker,
    },
    Kind {
        name: "thin-cable",
        about: "two hosts, 100 Mbit/s between them (a token bucket), encrypted",
        limit: "network",
        culprit: Some("worker/"),
        flags: "--model lenet --data {digits} --batch-size 128 --steps 40 --strategy multi-worker --threads 1",
        injection: Injection::Cable(Some("100mbit")),
    },
];

/// One run and how it was judged.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct JudgedRun {
    kind: String,
    right: bool,
    limit: String,
    words: String,
    seconds: f64,
}

/// The parsed command line.
struct Options<'a> {
    kinds: Vec<&'a Kind>,
    runs: usize,
    append: bool,
}

impl Options<'_> {
    fn parse(words: &[&str]) -> anyhow::Result<Options<'static>> {
        let mut asked = Options { kinds: Vec::new(), runs: RUNS, append: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--append" => asked.append = true,
                "--runs" => {
                    let number = words.next().context("--runs needs a number")?;
                    asked.runs = number.parse().context("--runs needs a number")?;
                }
                name => match KINDS.iter().find(|kind| kind.name == name) {
                    Some(kind) => asked.kinds.push(kind),
                    None => {
                        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
                        bail!("no kind `{name}`; there are {}", known.join(", "));
                    }
                },
            }
        }
        if asked.kinds.is_empty() {
            asked.kinds.extend(KINDS);
        }
        Ok(asked)
    }
}

/// Runs the kinds named, or all, and writes the table of all results there are.
pub fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    match words.split_first() {
        Some((&"foreign", words)) => return foreign::run(root, words),
        Some((&"curve", words)) => return curve::run(root, words),
        Some((&"overhead", [])) => return overhead::run(root),
        _ => {}
    }
    let asked = Options::parse(words)?;
    let program = program(root)?;
    let place = Place::prepare(&program, &root.join("target/verdicts"))?;
    let results = place.folder.join("results.jsonl");
    let mut all = read(&results)?;
    if !asked.append {
        all.retain(|judged| !asked.kinds.iter().any(|kind| kind.name == judged.kind));
        let lines: Vec<String> = all.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        fs::write(&results, lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    }
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&results)?;
    for kind in &asked.kinds {
        let hindrance = ActiveInjection::new(kind, &place)?;
        for _ in 0..asked.runs {
            let seed = all.iter().filter(|judged| judged.kind == kind.name).count();
            let judged = loop {
                injection::wait_for_quiet();
                let before = injection::Cores::now();
                let judged = place.once(kind, &hindrance, seed)?;
                let foreign = before.foreign();
                // Unrelated load is a bottleneck too, but not the injected one.
                if kind.injection == Injection::Burners || foreign <= FOREIGN {
                    break judged;
                }
                println!(
                    "  {} #{seed}: repeated, other programs took {foreign:.2} cores",
                    kind.name
                );
            };
            if !judged.right {
                println!("  {} #{seed}: {}", kind.name, judged.words);
            }
            // At once: an interrupted call keeps its results.
            writeln!(file, "{}", serde_json::to_string(&judged)?)?;
            all.push(judged);
        }
        println!("{}", line(kind, &all));
    }
    benchmarks::write_body(root, "verdicts", &table(&all)?)?;
    let poor: Vec<&str> = asked
        .kinds
        .iter()
        .filter(|kind| {
            let (right, runs) = tally(kind, &all);
            (right as f64) < RIGHT * runs as f64
        })
        .map(|kind| kind.name)
        .collect();
    ensure!(poor.is_empty(), "fewer than {:.0} % right: {}", 100.0 * RIGHT, poor.join(", "));
    Ok(())
}

/// The program that is put to the test.
fn program(root: &Path) -> anyhow::Result<PathBuf> {
    let program = match std::env::var_os("PACELINE_PROGRAM") {
        Some(program) => PathBuf::from(program),
        None => root.join("target/release/paceline"),
    };
    ensure!(
        program.is_file(),
        "`{}` does not exist: run `cargo build --release`",
        program.display()
    );
    Ok(program)
}

fn read(path: &Path) -> anyhow::Result<Vec<JudgedRun>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // A killed call may have left a partial line.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn tally(kind: &Kind, all: &[JudgedRun]) -> (usize, usize) {
    let of: Vec<&JudgedRun> = all.iter().filter(|judged| judged.kind == kind.name).collect();
    (of.iter().filter(|judged| judged.right).count(), of.len())
}

fn line(kind: &Kind, all: &[JudgedRun]) -> String {
    let (right, runs) = tally(kind, all);
    format!("{:13} {right} of {runs} right ({}; wanted {})", kind.name, kind.about, kind.limit)
}

/// All kinds that were ever run, with the wrong verdicts.
fn table(all: &[JudgedRun]) -> anyhow::Result<String> {
    let mut text = String::from(
        "Short real runs with a bottleneck injected from outside, written by `cargo xtask verdicts`: how many of them the \
         program, which does not know about it, judged correctly.\n\n\
         | kind | injected bottleneck | expected verdict | correct | other verdicts | median run |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for kind in KINDS {
        let (right, runs) = tally(kind, all);
        if runs == 0 {
            continue;
        }
        let mut wrong: BTreeMap<&str, usize> = BTreeMap::new();
        let of = all.iter().filter(|judged| judged.kind == kind.name);
        for judged in of.clone().filter(|judged| !judged.right) {
            *wrong.entry(&judged.limit).or_default() += 1;
        }
        let wrong: Vec<String> =
            wrong.iter().map(|(limit, count)| format!("{limit} {count}")).collect();
        let mut seconds: Vec<f64> = of.map(|judged| judged.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let culprit = kind.culprit.map_or_else(String::new, |name| match kind.injection {
            Injection::Cable(_) => ", either end".to_owned(),
            _ => format!(", {name}"),
        });
        writeln!(
            text,
            "| {} | {} | {}{culprit} | **{right} of {runs}** | {} | {:.1} s |",
            kind.name,
            kind.about,
            kind.limit,
            if wrong.is_empty() { "–".to_owned() } else { wrong.join(", ") },
            seconds[seconds.len() / 2]
        )?;
    }
    text.push_str(
        "\n- A verdict is correct only if it names the right limit and, where the table names one, the right culprit. The two healthy kinds \
         count false alarms.\n- One machine with two cores; a pair of network namespaces stands for two hosts, a control group's limit for a slow \
         disk. Runs during which unrelated programs took more than a quarter of a core were repeated, whatever their verdict.\n",
    );
    Ok(text)
}

/// The bottleneck of the runs of one kind, for as long as they last.
struct ActiveInjection {
    disk: Option<SlowDisk>,
    lab: Option<Lab>,
}

impl ActiveInjection {
    fn new(kind: &Kind, place: &Place) -> anyhow::Result<ActiveInjection> {
        Ok(match kind.injection {
            Injection::Disk(rate) => {
                ActiveInjection { disk: Some(SlowDisk::new(&place.shards, rate)?), lab: None }
            }
            Injection::Cable(rate) => ActiveInjection { disk: None, lab: Some(Lab::new(rate)?) },
            _ => ActiveInjection { disk: None, lab: None },
        })
    }
}

/// Program and data.
struct Place {
    program: PathBuf,
    folder: PathBuf,
    digits: PathBuf,
    shards: PathBuf,
    key: PathBuf,
}

impl Place {
    fn prepare(program: &Path, folder: &Path) -> anyhow::Result<Place> {
        let place = Place {
            program: program.to_owned(),
            folder: folder.to_owned(),
            digits: folder.join("digits"),
            shards: folder.join("shards"),
            key: folder.join("cluster.key"),
        };
        fs::create_dir_all(folder)?;
        let at = |path: &Path| path.display().to_string();
        if !place.digits.is_dir() {
            let made = ["data", "synth", "digits", &at(&place.digits), "--train", "12000"];
            place.make(&made, &["--test", "1000"])?;
        }
        if !place.shards.is_dir() {
            let photos = folder.join("photos");
            place.make(&["data", "synth", "photos", &at(&photos)], &["--per-class", "400"])?;
            let made = ["prepare", &at(&photos), &at(&place.shards), "--size", "64"];
            place.make(&made, &["--shards", "4", "--split", "validation=0.05"])?;
        }
        if !place.key.exists() {
            place.make(&["key", "new"], &[&at(&place.key)])?;
        }
        Ok(place)
    }

    fn make(&self, words: &[&str], more: &[&str]) -> anyhow::Result<()> {
        let made = Command::new(&self.program).args(words).args(more).arg("--quiet").output()?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "`paceline {}` failed: {said}", words.join(" "));
        Ok(())
    }

    /// A command of the program inside its bottleneck.
    fn command(&self, around: &[String], task: &[&str], kind: &Kind, seed: usize) -> Command {
        let program = self.program.display().to_string();
        let mut words = around.iter().chain([&program]);
        let mut started = Command::new(words.next().expect("the program is a word"));
        started.args(words).arg(task[0]);
        for word in kind.flags.split_whitespace() {
            let word = word.replace("{digits}", &self.digits.to_string_lossy());
            started.arg(word.replace("{shards}", &self.shards.to_string_lossy()));
        }
        started
            .args(["--no-tensorboard", "--json", "--seed", &seed.to_string(), "--out"])
            .arg(self.folder.join("runs").join(kind.name).join(task[1]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        started
    }

    /// One run with its bottleneck, and how it was judged.
    fn once(
        &self,
        kind: &Kind,
        hindrance: &ActiveInjection,
        seed: usize,
    ) -> anyhow::Result<JudgedRun> {
        let begun = Instant::now();
        let output = match (&hindrance.disk, &hindrance.lab) {
            (Some(disk), _) => {
                disk.forget()?;
                self.command(&disk.within(), ALONE, kind, seed).output()?
            }
            (_, Some(lab)) => self.on_two_hosts(lab, kind, seed)?,
            _ => {
                let burners = (kind.injection == Injection::Burners).then(Burners::start);
                let child = self.command(&[], ALONE, kind, seed).spawn()?;
                let slowed =
                    (kind.injection == Injection::SlowWorker).then(|| Slowed::start(child.id()));
                let output = child.wait_with_output()?;
                drop((burners, slowed));
                output
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(
            output.status.success(),
            "a run of kind {} failed: {}",
            kind.name,
            String::from_utf8_lossy(&output.stderr)
        );
        let summary: Value = serde_json::from_slice(&output.stdout).context("a run's JSON")?;
        let diagnosis = &summary["diagnosis"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (limit, culprit) = (text(&diagnosis["limit"]), text(&diagnosis["culprit"]));
        let named = match kind.culprit {
            Some(name) => culprit.starts_with(name),
            None => culprit.is_empty(),
        };
        Ok(JudgedRun {
            kind: kind.name.to_owned(),
            right: limit == kind.limit && named,
            limit,
            words: text(&summary["verdict"]),
            seconds,
        })
    }

    /// A worker on each host; returns the chief's output.
    fn on_two_hosts(&self, lab: &Lab, kind: &Kind, seed: usize) -> anyhow::Result<Output> {
        let cluster = |host: usize| {
            let [a, b] = [0, 1].map(|host| lab.address(host, ":7000"));
            format!(
                r#"{{"cluster":{{"worker":["{a}","{b}"]}},"task":{{"type":"worker","index":{host}}}}}"#
            )
        };
        let start = |host: usize| -> anyhow::Result<Child> {
            // Each with a folder of its own: hosts share no disk either.
            let task = ["node", ["first", "second"][host]];
            let mut command = self.command(&lab.on(host), &task, kind, seed);
            // The hosts are one machine; their tasks must not notice.
            command.arg("--no-shared-memory");
            command.env("TF_CONFIG", cluster(host)).env("PACELINE_KEY_FILE", &self.key);
            Ok(command.spawn()?)
        };
        let (chief, other) = (start(0)?, start(1)?);
        let output = chief.wait_with_output()?;
        other.wait_with_output()?;
        Ok(output)
    }
}
