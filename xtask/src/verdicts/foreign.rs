//! `cargo xtask verdicts foreign`: are verdicts on scripts of other frameworks correct?
//!
//! The scripts (`xtask/peers/foreign`) train with PyTorch, Keras and JAX as a user would and know nothing of Paceline: `paceline run` records
//! them. Those of PyTorch are also run under TraceML in turns, and both verdicts are kept, ours where it is wrong too. Jobs of two ranks are
//! PyTorch's alone: the scripts of the others have one process.

use super::injection::{self, Burners, Lab, LittleMemory, SlowDisk, Slowed};
use crate::environment::Environment;
use crate::versus::benchmarks;
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What the scripts import; PyTorch alone is some gigabytes.
const PACKAGES: Environment = Environment {
    folder: "verdicts-env",
    packages: &[
        "torch==2.15.0",
        "numpy==2.4.6",
        "keras==3.15.1",
        "jax==0.10.2",
        "traceml-ai==0.5.0",
    ],
};
const RUNS: usize = 20;
const RIGHT: f64 = 0.95;
/// Bytes of the file that is read from a slow disk, or does not fit into memory.
const FILE_BYTES: u64 = 1 << 30;

/// The scripts.
const FRAMEWORKS: &[&str] = &["torch", "keras", "jax"];

pub(super) struct Kind {
    name: &'static str,
    about: &'static str,
    /// Words for the script.
    script: Cow<'static, str>,
    /// Correct verdicts, and the culprit, where one must be named.
    limits: &'static [&'static str],
    culprit: Option<&'static str>,
    /// Words of TraceML's verdict that would be correct.
    traceml: &'static [&'static str],
    injection: Injection,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Injection {
    None,
    Burners,
    /// Reads from the disk are limited to so many bytes a second.
    Disk(u64),
    /// The job may use so much memory.
    Memory(u64),
    /// Two ranks, on this host.
    Ranks,
    /// Two ranks, the second stopped three quarters of the time.
    SlowWorker,
    /// Two ranks on two hosts; the rate of their link.
    Cable(Option<&'static str>),
}

impl Kind {
    /// A script with a bottleneck of its own.
    pub(super) fn of_script(words: String, injection: Injection) -> Self {
        Self {
            name: "",
            about: "",
            script: Cow::Owned(words),
            limits: &[],
            culprit: None,
            traceml: &[],
            injection,
        }
    }
}

impl Injection {
    fn ranks(self) -> bool {
        matches!(self, Self::Ranks | Self::SlowWorker | Self::Cable(_))
    }
}

const INPUT: &[&str] = &["INPUT", "DATA"];

const KINDS: &[Kind] = &[
    Kind {
        name: "healthy",
        about: "no bottleneck",
        script: Cow::Borrowed("healthy"),
        limits: &["compute", "idle-cores"],
        culprit: None,
        traceml: &["COMPUTE", "BALANCED", "HEALTHY"],
        injection: Injection::None,
    },
    Kind {
        name: "healthy-hosts",
        about: "two hosts with a link of several Gbit/s",
        script: Cow::Borrowed("healthy"),
        // Gradients of 16 MB a step are a quarter of it on any link.
        limits: &["compute", "idle-cores", "exchange"],
        culprit: None,
        traceml: &["COMPUTE", "BALANCED", "HEALTHY"],
        injection: Injection::Cable(None),
    },
    Kind {
        name: "burner",
        about: "other programs keep every core busy",
        script: Cow::Borrowed("healthy"),
        limits: &["taken-cores"],
        culprit: Some("other programs"),
        traceml: &["CPU", "CONTENTION"],
        injection: Injection::Burners,
    },
    Kind {
        name: "slow-input",
        about: "batches that take twice as long to come as to train on",
        script: Cow::Borrowed("slow-input"),
        limits: &["input"],
        culprit: None,
        traceml: INPUT,
        injection: Injection::None,
    },
    Kind {
        name: "slow-disk",
        about: "a file on a disk limited to 4 MB/s, with a cold page cache",
        script: Cow::Borrowed("slow-disk --steps 40"),
        limits: &["input"],
        culprit: Some("the disk"),
        traceml: INPUT,
        injection: Injection::Disk(4_000_000),
    },
    Kind {
        name: "small-batch",
        about: "a small model at batch 1",
        script: Cow::Borrowed("small-batch --steps 6000"),
        limits: &["small-steps"],
        culprit: None,
        traceml: &["OVERHEAD", "SMALL"],
        injection: Injection::None,
    },
    Kind {
        name: "slow-worker",
        about: "two ranks, the second stopped three quarters of the time",
        script: Cow::Borrowed("healthy --steps 60"),
        limits: &["straggler"],
        culprit: Some("worker/1"),
        traceml: &["STRAGGLER", "R1"],
        injection: Injection::SlowWorker,
    },
    Kind {
        name: "thin-cable",
        about: "two hosts with 100 Mbit/s between them",
        script: Cow::Borrowed("healthy --steps 20"),
        limits: &["network"],
        culprit: Some("worker/"),
        traceml: &["COMM", "NETWORK", "SYNC"],
        injection: Injection::Cable(Some("100mbit")),
    },
    Kind {
        name: "threads",
        about: "eight times as many threads as cores",
        script: Cow::Borrowed("threads"),
        limits: &["too-many-threads"],
        culprit: None,
        traceml: &["THREAD", "OVERSUBSCRI"],
        injection: Injection::None,
    },
    Kind {
        name: "slow-rank",
        about: "two ranks, the second twice as slow in its backward pass",
        script: Cow::Borrowed("slow-rank"),
        limits: &["straggler"],
        culprit: Some("worker/1"),
        traceml: &["STRAGGLER", "R1"],
        injection: Injection::Ranks,
    },
    Kind {
        name: "slow-loader-worker",
        about: "one of two data-loader workers is slow",
        script: Cow::Borrowed("slow-loader-worker --steps 60"),
        limits: &["input"],
        culprit: None,
        traceml: INPUT,
        injection: Injection::None,
    },
    Kind {
        name: "memory-hog",
        about: "a job whose file does not fit into the memory it may use",
        script: Cow::Borrowed("memory-hog --steps 160"),
        limits: &["memory"],
        culprit: None,
        traceml: &["MEMORY"],
        injection: Injection::Memory(900 << 20),
    },
];

/// One run and how it was judged.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct JudgedScript {
    kind: String,
    framework: String,
    right: bool,
    words: String,
    seconds: f64,
    /// TraceML's verdict, where it was asked.
    traceml: Option<String>,
    traceml_right: Option<bool>,
}

struct Options {
    kinds: Vec<&'static Kind>,
    frameworks: Vec<&'static str>,
    runs: usize,
    append: bool,
    /// Without waiting for an idle machine: what is measured then is said to be so.
    hasty: bool,
    traceml: bool,
}

impl Options {
    fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let mut asked = Self {
            kinds: Vec::new(),
            frameworks: Vec::new(),
            runs: RUNS,
            append: false,
            hasty: false,
            traceml: true,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--append" => asked.append = true,
                "--hasty" => asked.hasty = true,
                "--no-traceml" => asked.traceml = false,
                "--runs" => {
                    let number = words.next().and_then(|number| number.parse().ok());
                    asked.runs = number.context("--runs needs a number")?;
                }
                name => {
                    if let Some(framework) = FRAMEWORKS.iter().find(|known| **known == name) {
                        asked.frameworks.push(framework);
                    } else if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
                        asked.kinds.push(kind);
                    } else {
                        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
                        bail!("no kind or framework `{name}`; kinds are {}", known.join(", "));
                    }
                }
            }
        }
        if asked.kinds.is_empty() {
            asked.kinds.extend(KINDS);
        }
        if asked.frameworks.is_empty() {
            asked.frameworks.extend(FRAMEWORKS);
        }
        Ok(asked)
    }
}

/// Runs the kinds and frameworks named, or all, and writes the table of all results there are.
pub(super) fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let asked = Options::parse(words)?;
    let bench = Bench::prepare(root)?;
    let results = bench.folder.join("foreign.jsonl");
    let text = fs::read_to_string(&results).unwrap_or_default();
    let mut all: Vec<JudgedScript> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if !asked.append {
        all.retain(|one| {
            !(asked.kinds.iter().any(|kind| kind.name == one.kind)
                && asked.frameworks.contains(&&*one.framework))
        });
    }
    let lines: Vec<String> = all.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    fs::write(&results, lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    let mut file = fs::OpenOptions::new().append(true).open(&results)?;
    for kind in &asked.kinds {
        for framework in &asked.frameworks {
            if kind.injection.ranks() && *framework != "torch" {
                continue;
            }
            for _ in 0..asked.runs {
                if !asked.hasty {
                    injection::wait_for_quiet();
                }
                let judged = bench.once(kind, framework, asked.traceml)?;
                if !judged.right {
                    println!("  {} {framework}: {}", kind.name, judged.words);
                }
                writeln!(file, "{}", serde_json::to_string(&judged)?)?;
                all.push(judged);
            }
            println!("{}", line(kind, framework, &all));
        }
    }
    benchmarks::write_body(root, "verdicts on other frameworks", &table(&all, asked.hasty)?)?;
    let poor = KINDS.iter().flat_map(|kind| FRAMEWORKS.iter().map(move |name| (kind, name)));
    let poor: Vec<String> = poor
        .filter(|(kind, name)| {
            let (right, runs) = tally(kind, name, &all);
            (right as f64) < RIGHT * runs as f64
        })
        .map(|(kind, name)| format!("{} {name}", kind.name))
        .collect();
    ensure!(poor.is_empty(), "fewer than {:.0} % right: {}", 100.0 * RIGHT, poor.join(", "));
    Ok(())
}

fn of<'a>(
    kind: &'a Kind,
    framework: &'a str,
    all: &'a [JudgedScript],
) -> impl Iterator<Item = &'a JudgedScript> {
    all.iter().filter(move |one| one.kind == kind.name && one.framework == framework)
}

fn tally(kind: &Kind, framework: &str, all: &[JudgedScript]) -> (usize, usize) {
    let runs = of(kind, framework, all);
    runs.fold((0, 0), |(right, runs), one| (right + usize::from(one.right), runs + 1))
}

fn line(kind: &Kind, framework: &str, all: &[JudgedScript]) -> String {
    let (right, runs) = tally(kind, framework, all);
    format!("{:18} {framework:5} {right} of {runs} right ({})", kind.name, kind.about)
}

/// All results, with TraceML's beside those of PyTorch.
fn table(all: &[JudgedScript], hasty: bool) -> anyhow::Result<String> {
    let mut text = String::from(
        "Scripts of other frameworks (`xtask/peers/foreign`) with a bottleneck, recorded by `paceline run`, written by `cargo xtask verdicts foreign`: how many \
         runs were judged correctly. TraceML judged the PyTorch ones in turns.\n\n\
         | kind | bottleneck | expected | PyTorch | Keras | JAX | TraceML, PyTorch | its most frequent verdict | our other verdicts |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for kind in KINDS {
        let cell = |framework| match tally(kind, framework, all) {
            (_, 0) => "–".to_owned(),
            (right, runs) => format!("**{right} of {runs}**"),
        };
        let asked: Vec<&JudgedScript> =
            of(kind, "torch", all).filter(|one| one.traceml.is_some()).collect();
        let traceml = match asked.len() {
            0 => "–".to_owned(),
            runs => {
                let right = asked.iter().filter(|one| one.traceml_right == Some(true)).count();
                format!("{right} of {runs}")
            }
        };
        let said = most_frequent(asked.iter().filter_map(|one| one.traceml.as_deref()));
        let wrong = all.iter().filter(|one| one.kind == kind.name && !one.right);
        let wrong = most_frequent(wrong.map(|one| one.words.split(':').next().unwrap_or_default()));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {traceml} | {said} | {wrong} |",
            kind.name,
            kind.about,
            kind.limits.join(" or "),
            cell("torch"),
            cell("keras"),
            cell("jax"),
        )?;
    }
    text.push_str(
        "\n- A verdict is correct only if it names an expected limit and the right culprit: the second rank, the disk, other programs. The \
         verdicts of TraceML count as correct if they contain any word for the bottleneck.\n- Jobs of two ranks are PyTorch's alone (DistributedDataParallel over gloo).\n",
    );
    if hasty {
        text.push_str("- Some runs were made beside other programs (`--hasty`), which are a bottleneck of their own.\n");
    }
    Ok(text)
}

fn most_frequent<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map_or_else(|| "–".to_owned(), |(word, count)| format!("{word} ({count})"))
}

/// Program, interpreter and data.
pub(super) struct Bench {
    program: PathBuf,
    python: PathBuf,
    scripts: PathBuf,
    folder: PathBuf,
    file: PathBuf,
}

impl Bench {
    pub(super) fn prepare(root: &Path) -> anyhow::Result<Self> {
        let folder = root.join("target/verdicts");
        let file = folder.join("file/pixels.bin");
        fs::create_dir_all(folder.join("file"))?;
        if fs::metadata(&file).map_or(0, |found| found.len()) != FILE_BYTES {
            let mut out = fs::File::create(&file)?;
            let block = vec![93_u8; 1 << 20];
            for _ in 0..FILE_BYTES >> 20 {
                out.write_all(&block)?;
            }
            out.sync_all()?;
        }
        Ok(Self {
            program: super::program(root)?,
            python: match std::env::var_os("PACELINE_VERDICTS_PYTHON") {
                Some(python) => PathBuf::from(python),
                None => PACKAGES.ensure(root)?,
            },
            scripts: root.join("xtask/peers/foreign"),
            folder,
            file,
        })
    }

    /// One run with its bottleneck, by us and, for PyTorch, by TraceML.
    fn once(&self, kind: &Kind, framework: &str, traceml: bool) -> anyhow::Result<JudgedScript> {
        let around = Around::new(kind, self)?;
        let begun = Instant::now();
        let said = self.ours(kind, framework, &around)?;
        let seconds = begun.elapsed().as_secs_f64();
        let diagnosis = &said["summary"]["diagnosis"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (limit, culprit) = (text(&diagnosis["limit"]), text(&diagnosis["culprit"]));
        let named = kind.culprit.is_none_or(|name| culprit.starts_with(name));
        // Two hosts need two launchers, which TraceML starts in a way of its own.
        let asked =
            traceml && framework == "torch" && !matches!(kind.injection, Injection::Cable(_));
        let rival = if asked { Some(self.traceml(kind, &around)?) } else { None };
        Ok(JudgedScript {
            kind: kind.name.to_owned(),
            framework: framework.to_owned(),
            right: kind.limits.contains(&&*limit) && named,
            words: text(&said["verdict"]),
            seconds,
            traceml_right: rival
                .as_ref()
                .map(|words| kind.traceml.iter().any(|word| words.contains(word))),
            traceml: rival,
        })
    }

    /// What `paceline run` says about one run of a kind.
    pub(super) fn judged(&self, kind: &Kind, framework: &str) -> anyhow::Result<Value> {
        self.ours(kind, framework, &Around::new(kind, self)?)
    }

    fn script(&self, kind: &Kind, framework: &str) -> Vec<String> {
        let script = self.scripts.join(format!("{framework}_train.py"));
        let mut words = vec![script.display().to_string()];
        words.extend(kind.script.split_whitespace().map(str::to_owned));
        words.extend(["--data".to_owned(), self.file.display().to_string()]);
        words
    }

    fn ours(&self, kind: &Kind, framework: &str, around: &Around) -> anyhow::Result<Value> {
        let runs = self.folder.join("foreign-runs");
        let mut command = around.command(&self.program);
        command.args(["run", "--json", "--runs"]).arg(&runs).arg("--");
        let script = self.script(kind, framework);
        let python = self.python.display().to_string();
        match &around.lab {
            Some(lab) => {
                // One launcher for both hosts, so that their ranks record into one folder.
                let rank = |number: usize| {
                    let on = lab.on(number).join(" ");
                    let master = lab.address(0, "");
                    format!(
                        "{on} env RANK={number} WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR={master} MASTER_PORT=29400 GLOO_SOCKET_IFNAME=cable {python} {}",
                        script.join(" ")
                    )
                };
                command.args(["sh", "-c", &format!("{} & {}; wait", rank(1), rank(0))]);
            }
            None if kind.injection.ranks() => {
                command.args([&python, "-m", "torch.distributed.run", "--nproc-per-node", "2"]);
                command.args(&script);
            }
            None => {
                command.arg(&python).args(&script);
            }
        }
        command
            .env("KERAS_BACKEND", "torch")
            .env("OMP_NUM_THREADS", injection::host_cores().to_string());
        if kind.name == "threads" && framework == "jax" {
            command.env("NPROC", (8 * injection::host_cores()).to_string());
        }
        let output = around.run(command, kind)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let at = text.find('{').with_context(|| {
            format!(
                "{} {framework} printed no JSON: {}",
                kind.name,
                String::from_utf8_lossy(&output.stderr)
            )
        })?;
        Ok(serde_json::from_str(&text[at..])?)
    }

    /// The verdict of TraceML on the same script.
    fn traceml(&self, kind: &Kind, around: &Around) -> anyhow::Result<String> {
        let tool = self.python.with_file_name("traceml");
        let mut command = around.command(&tool);
        command.arg("run");
        if kind.injection.ranks() {
            command.args(["--nproc-per-node", "2"]);
        }
        command.arg("--logs-dir").arg(self.folder.join("traceml"));
        let script = self.script(kind, "torch");
        command.arg(&script[0]).arg("--args").args(&script[1..]).arg("--traceml");
        command.env("OMP_NUM_THREADS", injection::host_cores().to_string());
        let output = around.run(command, kind)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let verdict = text.lines().find_map(|line| line.split_once("Verdict:"));
        let words = verdict.map(|(_, words)| words.trim_matches(&[' ', '|'][..]).to_owned());
        Ok(words.unwrap_or_else(|| "none".to_owned()))
    }
}

/// What a run happens in, for as long as it lasts.
struct Around {
    disk: Option<SlowDisk>,
    memory: Option<LittleMemory>,
    lab: Option<Lab>,
}

impl Around {
    fn new(kind: &Kind, bench: &Bench) -> anyhow::Result<Self> {
        let data = bench.file.parent().context("the file lies in a folder")?;
        let mut around = Self { disk: None, memory: None, lab: None };
        match kind.injection {
            Injection::Disk(rate) => {
                let disk = SlowDisk::new(data, rate)?;
                disk.forget()?;
                around.disk = Some(disk);
            }
            Injection::Memory(bytes) => around.memory = Some(LittleMemory::new(bytes)?),
            Injection::Cable(rate) => around.lab = Some(Lab::new(rate)?),
            _ => {}
        }
        Ok(around)
    }

    /// A program inside of it.
    fn command(&self, program: &Path) -> Command {
        let within = self.disk.as_ref().map(SlowDisk::within);
        let within = within.or_else(|| self.memory.as_ref().map(LittleMemory::within));
        let mut words = within.unwrap_or_default();
        words.push(program.display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    fn run(&self, mut command: Command, kind: &Kind) -> anyhow::Result<std::process::Output> {
        if let Some(disk) = &self.disk {
            disk.forget()?;
        }
        let burners = (kind.injection == Injection::Burners).then(Burners::start);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn()?;
        let slowed = (kind.injection == Injection::SlowWorker)
            .then(|| Slowed::below(child.id(), "torch_train.py"));
        let output = child.wait_with_output()?;
        drop((burners, slowed));
        Ok(output)
    }
}
