//! No flag is taken and ignored: every flag of every command but `train` and `node`, which have a table of their own, either
//! always changes something or is refused where it would not, through the real binary.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};
use support::run_in;

/// Flags that have an effect in every call, by command.
const ALWAYS: &[(&str, &str)] = &[
    ("quickstart", "out no-open"),
    ("data synth digits", "train test seed gzip threads"),
    ("data synth photos", "per-class least-side most-side seed odd bad threads classes"),
    ("data synth clicks", "rows seed vw threads"),
    ("data fetch", "from"),
    // `--format` and `--bits` say that the source is rows.
    ("prepare", "shards max-rejects format bits engine"),
    // Another number of servers than the cluster lists is a finding of the check.
    ("check", "key listen insecure no-shared-memory ps evaluator join-timeout"),
    ("predict", "out"),
    ("export", "trace"),
    // A profile needs the other two; the first two are kept in the run.
    ("import", "out batch-size parameters profile"),
    (
        "matmul",
        "block memory workers threads no-verify state fresh save-every record placement node engine",
    ),
    ("monitor", "csv"),
    ("run", "name runs"),
    ("report", "format out"),
    ("serve", "listen token"),
    (
        "speedtest",
        "images records batch-size batches repeats cold measure-again seed threads size out fresh engine",
    ),
    ("sweep", "vary repeats seed out timeout retry-failed retry-disturbed keep-all dry-run engine"),
    ("compare", "budget warm-up measure fail-if timeout seed prove"),
    ("advise tune", "search space objective measure max-runs budget timeout seed out"),
    ("advise cloud", "catalog objective method exec state max-runs timeout"),
    ("advise ask", "catalog objective method state out"),
    ("advise tell", "catalog objective method state machine count seconds metric"),
    ("advise scale", "up-to"),
    ("advise batch", "model data runs sizes batch-size lr warm-up gradients memory seed"),
    (
        "advise parallel",
        "model batch-size examples workers memory local-network local-latency measured-step overlap chart",
    ),
    ("advise evaluate", "catalog history deadline out set data nodes seeds objective"),
    ("advise job", "data-size growth example delay epochs memory"),
    ("cloud plan", "objective top chart"),
    ("cloud check", "objective project region target"),
    ("cloud submit", "target objective dry-run jobs"),
    ("cloud status", "jobs run follow"),
    ("cloud logs", "jobs"),
    ("cloud stop", "jobs"),
    ("cloud fetch", "jobs out"),
    (
        "simulate",
        "workers against strategy batch-size steps cores threads local-network local-latency seed chart",
    ),
    ("man", "out"),
];

/// Flags that are refused: the command, the rest of a call in which they have no effect, the flags with values, and a part of
/// what is said.
const REFUSED: &[(&str, &str, &[&str], &str)] = &[
    ("data fetch", "mnist there --from here", &["--stall 5s", "--attempts 2"], "of this machine"),
    ("data info", "generated:digits", &["--size 32", "--max-pixels 1M"], "not resized"),
    ("data info", "photos", &["--classes 3"], "names its classes"),
    ("monitor", "--duration 0.2", &["--all"], "has no effect"),
    ("monitor", "", &["--mark begun"], "--csv"),
    (
        "monitor",
        "--csv a.csv --mark begun",
        &["--every 1s", "--duration 1s", "--dstat d.csv", "--jsonl j.jsonl", "--all", "--pid 1"],
        "cannot be used with",
    ),
    ("data info", "clicks.tsv", &["--size 32", "--classes 3"], "has no effect"),
    ("data info", "generated:digits", &["--max-rejects 1%"], "nothing is rejected"),
    ("data verify", "generated:digits", &["--size 32", "--max-pixels 1M"], "not resized"),
    ("data verify", "photos", &["--classes 3"], "names its classes"),
    (
        "prepare",
        "clicks.tsv shards",
        &[
            "--size 32",
            "--fit pad",
            "--encode png",
            "--quality 50",
            "--split validation=0.1",
            "--seed 3",
            "--threads 2",
            "--max-pixels 1M",
            "--retry-failed",
        ],
        "has no effect on rows of sparse features",
    ),
    ("prepare", "photos shards --encode png", &["--quality 50"], "without loss"),
    ("prepare", "photos shards --retry-failed", &["--fresh"], "cannot be used with"),
    ("prepare", "clicks.tsv shards --format vw", &["--integers bins"], "in format `vw`"),
    ("prepare", "rows.svm shards", &["--integers bins"], "in format `libsvm`"),
    ("prepare", "photos shards", SPARK, "with engine `local`"),
    ("speedtest", "--images photos", SPARK, "with engine `local`"),
    ("speedtest", "--records shards", &["--max-rejects 1%", "--max-pixels 1M"], "on records"),
    ("speedtest", "--images photos --repeats 1", &["--cache"], "repetitions"),
    ("sweep", "softmax-batch --dry-run", SPARK, "with engine `local`"),
    ("sweep", "--vary lr=1,2 BEHIND", &["--scale 0.5"], "without a published size"),
    ("sweep", "--vary lr=1,2 BEHIND", &["--data photos"], "does not ask for it"),
    ("check", "", &["--cluster c.toml"], "--task"),
    ("check", "", &["--task worker/0"], "--cluster"),
    ("runs", "runs/dense", &["--runs elsewhere"], "given by their folders"),
    ("predict", "runs/dense", &["--format vw", "--unlabelled"], "on photos"),
    ("predict", "runs/sparse clicks.tsv", &["--top 2"], "on rows"),
    ("evaluate", "runs/dense generated:digits", &["--format vw"], "on examples"),
    ("evaluate", "runs/sparse clicks.tsv", &["--split test", "--latest"], "on rows"),
    ("export", "runs/dense file", &["--runs elsewhere"], "given by their folders"),
    ("export", "dense file --step 2", &["--latest"], "cannot be used with"),
    ("export", "dense file --latest", &["--step 2"], "cannot be used with"),
    ("sweep", "--vary lr=1,2 BEHIND", &["--measure loss=(.)"], "on a command of paceline"),
    ("sweep", "--vary lr=1,2 PROGRAM", &["--hosts"], "whose workers are not known"),
    ("compare", "--pairs 3 BEHIND", &["--until 2%"], "cannot be used with"),
    ("compare", "--until 2% BEHIND", &["--pairs 3"], "cannot be used with"),
    ("compare", "BEHIND", &["--steps 20"], "cannot be used with"),
    ("list", "strategies", &["--profile lenet"], "has no effect on a list"),
    ("list", "", &["--profile lenet"], "list models --profile"),
    (
        "list",
        "models",
        &["--batch-size 8", "--size 28", "--classes 3", "--steps 1", "--threads 1"],
        "--profile",
    ),
    ("matmul", "--a m.npy", &["--size 9", "--same", "--seed 2"], "cannot be used with"),
    ("matmul", "--size 9", &["--b m.npy"], "cannot be used with"),
    ("matmul", "--size 9", &["--a m.npy"], "cannot be used with"),
    ("matmul", "--size 9 --identity", &["--product", "--out p.npy"], "cannot be used with"),
    ("matmul", "--size 9 --product", &["--identity"], "cannot be used with"),
    ("matmul", "--size 9", SPARK, "with engine `local`"),
    (
        "matmul",
        "--size 9",
        &["--key k", "--listen a:1", "--insecure", "--no-shared-memory"],
        "on one machine",
    ),
    ("matmul", "--size 9", &["--join-timeout 5s", "--patience 9s"], "on one machine"),
    ("matmul", "--size 9", &["--cluster c.toml"], "--task"),
    ("matmul", "--size 9", &["--task worker/0"], "--cluster"),
    ("advise cloud", CLOUD, &["--deadline 5s"], "begun with another objective"),
    ("advise cloud", CLOUD, &["--seed 7"], "begun with another seed"),
    ("advise cloud", CLOUD, &["--history h.csv"], "learns nothing from other jobs"),
    ("advise ask", ASK, &["--deadline 5s"], "begun with another objective"),
    ("advise ask", ASK, &["--seed 7"], "begun with another seed"),
    ("advise ask", ASK, &["--history h.csv"], "learns nothing from other jobs"),
    ("advise tell", TELL, &["--deadline 5s"], "begun with another objective"),
    ("advise tell", TELL, &["--seed 7"], "begun with another seed"),
    ("advise tell", TELL, &["--history h.csv"], "learns nothing from other jobs"),
    ("advise tell", FAILED, &["--timed-out"], "cannot be used with"),
    ("advise tell", TIMED_OUT, &["--failed"], "cannot be used with"),
    ("advise scale", "h.csv", &["--budget 5"], "on a prediction"),
    ("advise scale", "h.csv", &["--plan"], "cannot be used with"),
    (
        "advise scale",
        "--plan",
        &["--usd-per-hour 1", "--deadline 5s", "--per-host 2"],
        "cannot be used with",
    ),
    (
        "advise parallel",
        "--model lenet --layers l.json",
        &["--size 28", "--classes 3", "--threads 1", "--measure-batch 4", "--save-layers m.json"],
        "cannot be used with",
    ),
    ("advise parallel", "--model lenet --size 28", &["--layers l.json"], "cannot be used with"),
    ("advise parallel", "--model lenet --cluster c.toml", &["--per-host 2"], "cannot be used"),
    ("advise parallel", "--model lenet --per-host 2", &["--cluster c.toml"], "cannot be used"),
    (
        "advise parallel",
        "--model lenet --check check.json",
        &["--network 1Gbit", "--latency 5us", "--network-share 0.5"],
        "cannot be used with",
    ),
    ("advise parallel", "--model lenet --latency 5us", &["--check check.json"], "cannot be used"),
    ("advise evaluate", "--data nowhere", &["--medians"], "ran every workload once"),
    ("advise evaluate", "--data d --methods random", &["--past-jobs 3"], "from other jobs"),
    (
        "advise evaluate",
        "--data d --nested 2",
        &["--steps 3", "--methods random"],
        "cannot be used",
    ),
    (
        "advise job",
        "--data-size 1GB --growth 1MB --example 1KB --delay 1h --rate 5",
        &["--run runs/dense"],
        "cannot be used with",
    ),
    (
        "advise job",
        "--data-size 1GB --growth 1MB --example 1KB --delay 1h --run runs/dense",
        &["--rate 5"],
        "cannot be used with",
    ),
    ("cloud plan", "job.toml --catalog c.toml", &["--provider aws"], "cannot be used with"),
    ("cloud plan", "job.toml --provider aws", &["--catalog c.toml"], "cannot be used with"),
    ("cloud check", "job.toml --catalog c.toml", &["--provider aws"], "cannot be used with"),
    ("cloud check", "job.toml --provider aws", &["--catalog c.toml"], "cannot be used with"),
    (
        "cloud submit",
        "job.toml --target slurm --dry-run --catalog c.toml",
        &["--provider aws"],
        "cannot be used with",
    ),
    (
        "cloud submit",
        "job.toml --target slurm --dry-run --provider aws",
        &["--catalog c.toml"],
        "cannot be used with",
    ),
    (
        "cloud submit",
        "job.toml --target slurm --dry-run",
        &[
            "--project p",
            "--region r",
            "--image i",
            "--hosts a",
            "--claim c",
            "--port 7",
            "--machine m",
        ],
        "on slurm",
    ),
    (
        "cloud submit",
        "job.toml --target ssh --dry-run",
        &["--nodes 2", "--cores 2", "--memory 1GiB", "--time-limit 1h"],
        "on ssh",
    ),
    ("cloud status", "flowers", &["--every 5s"], "--follow"),
    ("cloud submit", "job.toml --target dataproc --dry-run", &["--key k"], "on dataproc"),
    ("cloud submit", "job.toml --target vertex --dry-run", &["--binary b"], "on vertex"),
    ("advise evaluate", "--data d --steps 3", &["--nested 2"], "cannot be used"),
    ("simulate", "runs/dense --no-measure", &["--ps 1"], "without servers"),
    (
        "simulate",
        "runs/dense --no-measure --strategy ps-async",
        &["--backup-workers 1"],
        "waits for all workers",
    ),
    (
        "simulate",
        "runs/dense --one-machine",
        &[
            "--network 1Gbit",
            "--network-share 0.5",
            "--latency 5us",
            "--check check.json",
            "--measured-step 2=5ms",
            "--per-host 2",
        ],
        "cannot be used with",
    ),
    ("simulate", "runs/dense --per-host 2", &["--one-machine"], "cannot be used with"),
    ("simulate", "runs/dense", &["--profile p.json"], "cannot be used with"),
    ("simulate", "--profile p.json", &["--no-measure"], "cannot be used with"),
];

const SPARK: &[&str] = &[
    "--spark-master local",
    "--spark-conf spark.a=b",
    "--spark-submit s",
    "--spark-binary b",
    "--spark-wait 5s",
    "--partitions 3",
];
const CLOUD: &str = "--state s.json --catalog c.csv --max-runs 0 --exec {machine}{count}";
const ASK: &str = "--state s.json --catalog c.csv";
const TELL: &str = "--state s.json --catalog c.csv --machine m --count 1 --seconds 5";
const FAILED: &str = "--state s.json --catalog c.csv --machine m --count 1 --failed";
const TIMED_OUT: &str =
    "--state s.json --catalog c.csv --machine m --count 1 --seconds 5 --timed-out";

/// What the calls name.
fn prepare(folder: &Path) {
    let works = |words: &str| {
        let output = run_in(folder, &words.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    };
    works("data synth clicks clicks.tsv --rows 200");
    works("data synth photos photos --per-class 2");
    works(
        "train --model softmax --data generated:digits?examples=100 --steps 2 --no-tensorboard --out new",
    );
    let made = fs::read_dir(folder.join("new")).unwrap().next().unwrap().unwrap().path();
    fs::create_dir(folder.join("runs")).unwrap();
    fs::rename(made, folder.join("runs/dense")).unwrap();
    works("train --model sparse-logistic --data clicks.tsv --epochs 1 --no-tensorboard --out rows");
    let made = fs::read_dir(folder.join("rows")).unwrap().next().unwrap().unwrap().path();
    fs::rename(made, folder.join("runs/sparse")).unwrap();
    fs::write(folder.join("rows.svm"), "1 1:1 2:0.5\n0 3:1\n".repeat(20)).unwrap();
    let catalog = "machine,count,cores,memory_gib,usd_per_hour\nm,1,2,4,0.1\nm,2,2,4,0.1\n";
    fs::write(folder.join("c.csv"), catalog).unwrap();
    let history = "workload,machine,count,seconds,completed\nw,m,1,5,true\nw,m,2,4,true\n";
    fs::write(folder.join("h.csv"), history).unwrap();
    let job = "name = 'j'\ncommand = ['train', '--model', 'softmax', '--data', 'd', '--steps', '1']\n[data]\ngb = 1\nexamples = 10\n[measured]\nexamples_per_second = 1\ncores = 1\n";
    fs::write(folder.join("job.toml"), job).unwrap();
    works("advise ask --state s.json --catalog c.csv --method random --seed 5");
}

#[test]
fn a_flag_without_effect_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    for (command, rest, flags, needle) in REFUSED {
        for flag in *flags {
            let behind = "-- train --model softmax --data d --steps 1";
            let program = rest.strip_suffix("PROGRAM").map(|front| (front, "-- echo {lr}"));
            let own = rest.strip_suffix("BEHIND").map(|front| (front, behind));
            let (front, back) = program.or(own).unwrap_or((*rest, ""));
            let words = format!("{command} {front} {flag} {back}");
            let words: Vec<&str> = words.split_whitespace().collect();
            let output = run_in(folder.path(), &words);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
            let name = flag.split(' ').next().unwrap();
            assert!(said.contains(name) && said.contains(needle), "{words:?}: {said}");
        }
    }
}

/// Every command without subcommands, with its flags; global and hidden flags are left out.
fn commands(command: &clap::Command, name: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    let mut is_group = false;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        is_group = true;
        commands(inner, format!("{name} {}", inner.get_name()).trim_start(), found);
    }
    if is_group {
        return;
    }
    let flags = command.get_arguments().filter(|flag| !flag.is_global_set() && !flag.is_hide_set());
    let names =
        flags.filter_map(clap::Arg::get_long).filter(|name| !["help", "version"].contains(name));
    found.insert(name.to_owned(), names.map(str::to_owned).collect());
}

/// A new flag is thought about: it goes into one of the two lists.
#[test]
fn every_flag_is_known_to_have_an_effect_or_to_be_refused() {
    let mut program = paceline_cli::command();
    program.build();
    let mut known = BTreeMap::new();
    commands(&program, "", &mut known);
    // With a table of their own, or for engines.
    known.retain(|name, _| !["train", "node"].contains(&&**name) && !name.starts_with("task"));
    let mut listed: BTreeMap<String, BTreeSet<String>> =
        known.keys().map(|name| (name.clone(), BTreeSet::new())).collect();
    for (command, flags) in ALWAYS {
        listed.get_mut(*command).unwrap().extend(flags.split(' ').map(str::to_owned));
    }
    for (command, _, flags, _) in REFUSED {
        let names = flags.iter().filter_map(|flag| flag.split(' ').next()?.strip_prefix("--"));
        let refused: Vec<&str> = names.collect();
        let always = ALWAYS.iter().filter(|(name, _)| name == command);
        for (_, always) in always {
            assert!(!always.split(' ').any(|flag| refused.contains(&flag)), "{command}: both");
        }
        listed.get_mut(*command).unwrap().extend(refused.into_iter().map(str::to_owned));
    }
    assert_eq!(listed, known);
}
