//! Everything a person reads, word for word, through the real binary: lists, descriptions of data, advice, results of runs,
//! tables, verdicts. Runs are stored or written here, never made: which words a live one ends with depends on the machine.
//!
//! Help is kept in `docs/commands.md` (see `docs.rs`), what is said of mistakes in `messages.txt` (see `messages.rs`);
//! the rest is in `snapshots/`, one file for each kind. `support/transcript.rs` says how to read and renew them.

#![allow(clippy::unwrap_used)]

mod support;
#[path = "support/transcript.rs"]
mod transcript;

use paceline_probes::{Detail, JobVerdict, Reading, columns, judge};
use paceline_runs::verdict::{
    Evidence, Examples, Limit, Link, NodeLoad, ServerLoad, Stop, Surroundings, WorkerLoad,
    judge_within,
};
use paceline_runs::{Evaluation, Event, EventLog, PhaseTimes, RunStarted, Step};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
use support::{run_in, said, train_as};
use transcript::{compare, kept, replay};

/// A call that must succeed.
#[track_caller]
fn works(folder: &Path, line: &str) {
    let output = run_in(folder, &line.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {}", said(&output));
}

#[test]
fn lists_are_what_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    replay("lists.txt", folder.path());
}

#[test]
fn data_and_shards_are_described_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    replay("data.txt", folder.path());
}

#[test]
fn advice_is_given_in_the_words_that_are_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    file(
        "machines.csv",
        "machine,count,cores,memory_gib,usd_per_hour\nsmall,1;2,2,4,0.1\nlarge,1;2,8,32,0.4\n",
    );
    // 10 s fixed, 1000 machine-seconds, half a second per machine.
    let curve = [1, 2, 4, 8, 16].map(|machines| {
        let machines = f64::from(machines);
        format!("{machines},{}\n", 10.0 + 1000.0 / machines + 0.5 * machines)
    });
    file("curve.csv", &format!("machines,seconds\n{}", curve.concat()));
    let layer = |name: &str, kernel: usize, side: usize, parameters: f64| {
        format!(
            r#"{{"name": "{name}", "input": [{side}, {side}, 8], "output": [{side}, {side}, 16], "kernel": {kernel},
            "parameters": {parameters}, "forward": 1e-4, "backward": 2e-4, "fixed": 1e-5, "update": 1e-5}}"#
        )
    };
    file(
        "layers.json",
        &format!(
            r#"{{"network": {{"name": "lenet", "layers": [{}, {}]}}, "sharing": [[1, 1.0]], "local": null}}"#,
            layer("conv1", 5, 28, 2e3),
            layer("dense1", 1, 1, 1e6)
        ),
    );
    let mut jobs = String::from("workload,machine,count,seconds,completed\n");
    for (job, work) in [("sort", 4000.0), ("join", 9000.0)] {
        for (machine, cores) in [("small", 2.0), ("large", 8.0)] {
            for count in [1.0, 2.0] {
                let seconds = 20.0 + work / (cores * count);
                jobs += &format!("{job},{machine},{count},{seconds},true\n");
            }
        }
    }
    file("jobs.csv", &jobs);
    train_as(folder, "dense", "--model softmax --data generated:digits?examples=100 --steps 30");
    replay("advice.txt", folder);
}

/// The settings of a program whose figures are the same everywhere, and of one that fails.
#[test]
fn a_search_of_settings_is_told_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let job = r#"awk -v x="$1" 'BEGIN { printf "{\"loss\": %.3f, \"size\": %.1f}\n", 1 + (x-0.2)^2, 1 + x }'"#;
    file("job.sh", job);
    file("broken.sh", "echo out of luck >&2; exit 3\n");
    replay("tune.txt", folder.path());
}

/// A run folder that version 0.1 wrote, under another name, with some of its summary replaced.
fn stored(folder: &Path, from: &str, name: &str, replaced: &Value) {
    let testdata = paceline_testing::workspace().join("crates/training/testdata");
    let run = folder.join("runs").join(name);
    let from = testdata.join(from);
    for (path, bytes) in paceline_testing::contents(&from) {
        let path = run.join(path.strip_prefix(&from).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::copy(testdata.join("rows.svm"), folder.join("rows.svm")).unwrap();
    let path = run.join("summary.json");
    let mut summary: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (key, value) in replaced.as_object().unwrap() {
        summary[key] = value.clone();
    }
    fs::write(path, summary.to_string()).unwrap();
}

/// What a worker of several did.
fn worker(task: &str, wait: f64) -> Value {
    json!({
        "task": task, "iterations": 40, "examples": 640, "dropped": 1, "loss": 0.5, "accuracy": 0.75,
        "finished": 2.5, "seconds": 2.0,
        "phases": { "input": 0.1, "compute": 0.5, "exchange": 0.4 - wait, "wait": wait },
        "traffic": { "sent_bytes": 1_000_000, "received_bytes": 2_000_000 },
    })
}

/// The summary of `train` is that of a run which has nothing left to do: nothing is trained here.
#[test]
fn results_of_runs_are_shown_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    stored(folder, "examples-0.1", "dense", &json!({}));
    let leg = |steps: u64, status: &str| {
        json!({
            "started": 1.8e9, "seconds": 2.5, "steps": steps, "examples": 16 * steps,
            "examples_per_second": 256.0, "status": status,
        })
    };
    let several = json!({
        "legs": [leg(30, "cancelled"), leg(50, "done")],
        "workers": [worker("worker/0", 0.1), worker("worker/1", 0.3)],
        "staleness": [10, 60, 10],
        "dropped": 2, "dropped_examples": 32,
        "lost": ["worker/1 was silent for 8.0 s; back after 1.2 s"],
        "traffic": { "sent_bytes": 4_000_000, "received_bytes": 4_000_000 },
        "reached": { "loss": 0.5, "step": 35.0, "seconds": 1.5, "between": [30, 40] },
        "warnings": ["the loss rose in the last tenth of the steps"],
    });
    stored(folder, "examples-0.1", "dense-several", &several);
    stored(folder, "rows-0.1", "sparse", &json!({}));
    let several = json!({
        "workers": [worker("worker/0", 0.1), worker("worker/1", 0.3)],
        "staleness": [10, 60, 10],
        "rejected": 3,
        "held_out": {
            "rows": 20, "loss": 0.6, "accuracy": 0.7, "auc": 0.8, "normalised_entropy": 0.9, "positive_share": 0.5,
        },
        "exchange": {
            "transfer": "sparse", "bytes_per_iteration": 1e4, "sparse_bytes_per_iteration": 1e4,
            "dense_bytes_per_iteration": 1e6,
            "tasks": [
                { "task": "worker/0", "iterations": 40, "seconds_per_iteration": 0.05 },
                { "task": "worker/1", "iterations": 40, "seconds_per_iteration": 0.05 },
            ],
        },
    });
    stored(folder, "rows-0.1", "sparse-several", &several);
    write_events(&folder.join("scored/evaluated"));
    replay("results.txt", folder);
}

/// Predictions, scores and copies of weights, of stored runs, and the cluster's key. Figures of models are the same everywhere, but
/// masked like all others.
#[test]
fn what_is_done_with_weights_is_told_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    stored(folder, "examples-0.1", "dense", &json!({}));
    stored(folder, "rows-0.1", "sparse", &json!({}));
    let slice = |name: String, at: f64, long: f64| json!({ "ph": "X", "name": name, "ts": at, "dur": long, "pid": 1, "tid": 1 });
    let steps =
        (0..5).map(|step| slice(format!("ProfilerStep#{step}"), 1e4 * f64::from(step), 9e3));
    let trace = json!({ "traceEvents": steps.collect::<Vec<_>>() });
    fs::write(folder.join("rank0.json"), trace.to_string()).unwrap();
    let key = folder.join("short.key");
    fs::write(&key, "not a key\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    works(folder, "data synth photos photos --per-class 1 --seed 3 --quiet");
    replay("weights.txt", folder);
}

/// Which of two commands is faster must not depend on how busy this machine is: one sleeps thirty times as long.
#[test]
fn comparisons_are_told_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    replay("compare.txt", folder.path());
}

/// Every photo is read once; then the journal gets figures that are the same on every machine, and the test is looked at.
#[test]
fn a_speed_test_is_shown_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    works(folder, "data synth photos photos --per-class 4 --seed 3");
    works(folder, "prepare photos shards --size 16 --fit pad --encode png --quiet");
    let call = "speedtest --images photos --records shards --batch-size 2,4 --batches 2,4 --repeats 2 --out speed";
    works(folder, call);
    let path = folder.join("speed/speedtest.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut row: Value = serde_json::from_str(line).unwrap();
        if let Some(images) = row["images"].as_f64() {
            let slow = if row["source"] == "records" { 1.0 } else { 3.0 };
            let seconds = slow * (0.01 + 0.001 * images) * (1.0 + number as f64 / 1000.0);
            row["seconds"] = seconds.into();
            row["images_per_second"] = (images / seconds).into();
        }
        rows.push(format!("{row}\n"));
    }
    fs::write(&path, rows.concat()).unwrap();
    replay("speedtest.txt", folder);
}

/// What a job would take and cost, without any provider's tool; what those say is in `cloud.rs`.
#[test]
fn plans_of_cloud_jobs_are_told_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let job = support::CLOUD_JOB;
    fs::write(folder.path().join("job.toml"), job).unwrap();
    fs::write(folder.path().join("tight.toml"), job.replace("vcpus = 8", "vcpus = 1")).unwrap();
    fs::write(folder.path().join("slip.toml"), job.replace("gb = 22", "gb = 0")).unwrap();
    replay("cloud.txt", folder.path());
}

/// A run as another program records it: one worker, so that nothing is calibrated by how fast this machine is.
fn write_events(run: &Path) {
    fs::create_dir_all(run).unwrap();
    let mut log = EventLog::append(&run.join("events-worker-0.jsonl"), "worker/0").unwrap();
    let started = RunStarted {
        model: "resnet18".to_owned(),
        strategy: "multi-worker".to_owned(),
        parameters: 1000,
        global_batch: 64,
        ..RunStarted::default()
    };
    log.write(0.0, &Event::RunStarted(started)).unwrap();
    let phases = PhaseTimes { input: 0.1, compute: 0.4, ..PhaseTimes::default() };
    for step in 1..=40 {
        let event = Step {
            step,
            steps: 1,
            examples: 64,
            seconds: 0.5,
            loss: 1.0 / step as f64,
            phases,
            global_batch: 64,
            ..Step::default()
        };
        log.write(0.5 * step as f64, &Event::Step(event)).unwrap();
        if step % 20 == 0 {
            let epochs = step as f64 / 20.0;
            let score = Evaluation {
                step,
                epochs,
                loss: 1.0 / epochs,
                accuracy: 0.5,
                ..Evaluation::default()
            };
            log.write(0.5 * step as f64, &Event::Evaluation(score)).unwrap();
        }
    }
    log.flush().unwrap();
}

#[test]
fn simulations_speak_in_the_words_that_are_written_down() {
    let folder = tempfile::tempdir().unwrap();
    write_events(&folder.path().join("runs/written"));
    replay("simulate.txt", folder.path());
}

/// What a host sees by itself; what tasks see of each other is in `check.rs`.
#[test]
fn what_a_check_finds_is_said_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    file("cluster.toml", "chief = \"127.0.0.1:7000\"\nworkers = [\"127.0.0.1:7001\"]\n");
    file("twice.toml", "chief = \"127.0.0.1:7000\"\nworkers = [\"127.0.0.1:7000\"]\n");
    replay("check.txt", folder.path());
}

/// The cells are run once; then their journal gets figures that are the same on every machine, and the sweep is looked at.
#[test]
fn a_sweep_is_shown_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let call = "sweep --out grid --repeats 2 --vary batch-size=10,50 --vary seed=1,2 -- train --model softmax --data generated:digits?examples=100 --steps 3";
    works(folder, &format!("{call} --no-tensorboard"));
    let path = folder.join("grid/sweep.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let rows = text.lines().zip(1..).map(|(line, number)| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        let seconds = 1.0 + f64::from(number) / 100.0;
        row["seconds"] = seconds.into();
        (row["machine"], row["tasks"]) = (json!({}), json!({}));
        row["output"]["diagnosis"] = Value::Null;
        row["output"]["seconds"] = seconds.into();
        row["output"]["step_seconds"] = seconds.into();
        row["output"]["examples_per_second"] = (100.0 * seconds).into();
        format!("{row}\n")
    });
    let rows: String = rows.collect();
    fs::write(&path, rows).unwrap();
    replay("sweep.txt", folder);
}

/// One case for each thing that may hold any job up, which `monitor` and `run` name.
#[test]
fn verdicts_on_any_job_are_the_sentences_that_are_written_down() {
    let (cpu, idle) = ("process_cpu_percent", "cpu_idle_percent");
    let waiting = "process_waiting_percent";
    let cases: [(&str, &[(&str, f64)]); 12] = [
        ("nothing measured", &[]),
        ("all cores", &[(cpu, 195.0), (idle, 1.0)]),
        ("one core of two", &[(cpu, 99.0), (idle, 50.0)]),
        ("asleep", &[(cpu, 2.0), (idle, 98.0)]),
        ("other programs", &[(cpu, 90.0), (waiting, 90.0), (idle, 0.0)]),
        (
            "its own threads",
            &[(cpu, 199.0), (waiting, 600.0), (idle, 0.0), ("process_threads", 8.0)],
        ),
        ("a quota", &[(cpu, 100.0), ("cgroup_throttled_percent", 40.0), (idle, 50.0)]),
        ("a hypervisor", &[(cpu, 90.0), ("cpu_steal_percent", 50.0)]),
        ("a stop", &[(cpu, 90.0), ("process_stopped_percent", 50.0)]),
        (
            "memory",
            &[
                (cpu, 20.0),
                ("pressure_memory_percent", 60.0),
                ("process_major_faults_per_second", 500.0),
            ],
        ),
        (
            "a disk",
            &[
                (cpu, 20.0),
                ("pressure_disk_percent", 80.0),
                ("process_read_bytes_per_second", 5e7),
                (idle, 80.0),
            ],
        ),
        ("a network", &[(cpu, 30.0), ("network_sent_bytes_per_second", 1e8), (idle, 80.0)]),
    ];
    let mut found = String::new();
    for (name, values) in cases {
        let mut summary = paceline_probes::Summary::default();
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, it)| *it);
        let values: Vec<_> = columns().map(|column| value(column.name)).collect();
        summary.add(&Reading { time: 0.0, elapsed: 1.0, values, detail: Detail::new() });
        let JobVerdict { words, next, .. } = judge(&summary, 2, 2);
        found.push_str(&format!("# {name}\n{words}\n{next}\n\n"));
    }
    compare(&kept("job_verdicts.txt"), &found);
}

/// One case for each limit that a verdict may name, and for each who or what may be behind it.
#[test]
fn verdicts_are_the_sentences_that_are_written_down() {
    let mut found = String::new();
    for (name, evidence, around) in verdicts() {
        let verdict = judge_within(&evidence, &around);
        found.push_str(&format!("# {name}: {}\n{}\n", verdict.limit.name(), verdict.words));
        for line in &verdict.evidence {
            found.push_str(&format!("- {line}\n"));
        }
        found.push('\n');
    }
    for limit in [
        Limit::Input,
        Limit::Compute,
        Limit::SmallSteps,
        Limit::IdleCores,
        Limit::Idle,
        Limit::TakenCores,
        Limit::TooManyThreads,
        Limit::Stopped,
        Limit::Recovery,
        Limit::Memory,
        Limit::Exchange,
        Limit::Network,
        Limit::Server,
        Limit::Straggler,
        Limit::Synchronisation,
        Limit::Unknown,
    ] {
        assert!(found.contains(&format!(": {}\n", limit.name())), "no case is {}", limit.name());
    }
    compare(&kept("verdicts.txt"), &found);
}

type Case = (&'static str, Evidence, Surroundings);

fn verdicts() -> Vec<Case> {
    let run = Evidence {
        steps: 1000,
        seconds: 10.0,
        phases: PhaseTimes {
            input: 0.05,
            compute: 0.9,
            exchange: 0.03,
            wait: 0.02,
            ..PhaseTimes::default()
        },
        threads: 2,
        busy_cores: Some(1.9),
        examples: Examples::Any,
        ..Evidence::default()
    };
    let quiet = NodeLoad {
        host: "node-1".to_owned(),
        cores: Some(2.0),
        allowed: Some(2.0),
        threads: 2.0,
        busy: Some(1.9),
        stolen: Some(0.0),
        own: Some(1.9),
        waiting: Some(0.0),
        throttled: Some(0.0),
        disk_busy: Some(0.0),
        disk_pressure: Some(0.0),
        read: Some(0.0),
        memory_pressure: Some(0.0),
        ..NodeLoad::default()
    };
    let on = |node: NodeLoad| Surroundings { nodes: vec![node], ..Surroundings::default() };
    let alone = Surroundings::default;
    let spent = |input, compute, exchange, wait| {
        let phases = PhaseTimes { input, compute, exchange, wait, ..PhaseTimes::default() };
        Evidence { phases, ..run }
    };
    let input = spent(0.5, 0.45, 0.03, 0.02);
    let exchange = spent(0.0, 0.5, 0.4, 0.1);
    let wait = spent(0.0, 0.6, 0.1, 0.3);
    let idle = Evidence { busy_cores: Some(1.0), ..run };
    let task = |name: &str| name.to_owned();
    let worker = |at: usize, seconds: f64| WorkerLoad {
        task: format!("worker/{at}"),
        own_seconds_per_step: seconds,
    };
    let link = Link {
        task: task("worker/0"),
        bytes_per_second: 5e8,
        while_used: 1.2e9,
        capacity: Some(1.25e9),
    };
    let server = ServerLoad { task: task("ps/0"), busy_cores: 1.9, threads: 2 };
    let disk = NodeLoad { disk_busy: Some(0.9), read: Some(1e8), ..quiet.clone() };
    let others = NodeLoad { busy: Some(2.0), own: Some(1.0), waiting: Some(1.0), ..quiet.clone() };
    let stolen = NodeLoad { stolen: Some(1.0), own: Some(1.0), busy: Some(1.0), ..quiet.clone() };
    let crowded = NodeLoad {
        threads: 8.0,
        own: Some(2.0),
        busy: Some(2.0),
        waiting: Some(6.0),
        ..quiet.clone()
    };
    let stop = Stop { task: task("worker/1"), share: 0.4 };
    vec![
        ("nothing measured", Evidence::default(), alone()),
        ("a few steps", Evidence { steps: 5, ..run }, alone()),
        ("busy cores", run, alone()),
        ("slow input", input, alone()),
        ("slow input of images", Evidence { examples: Examples::Images, ..input }, alone()),
        ("slow input of rows", Evidence { examples: Examples::Rows, ..input }, alone()),
        ("slow input from a busy disk", input, on(disk)),
        ("steps of ten microseconds", Evidence { steps: 1_000_000, ..run }, alone()),
        ("threads without work", idle, on(quiet.clone())),
        (
            "steps that wait for something outside",
            Evidence { busy_cores: Some(0.05), threads: 1, ..run },
            alone(),
        ),
        ("other programs", idle, on(others)),
        ("a hypervisor", idle, on(stolen)),
        ("a quota", idle, on(NodeLoad { throttled: Some(0.5), ..quiet.clone() })),
        ("eight threads on two cores", Evidence { threads: 8, ..run }, on(crowded)),
        ("waiting for memory", run, on(NodeLoad { memory_pressure: Some(0.4), ..quiet })),
        ("a stopped process", run, Surroundings { stops: vec![stop], ..alone() }),
        (
            "two lost workers",
            Evidence {
                phases: PhaseTimes { compute: 0.3, recovery: 0.7, ..PhaseTimes::default() },
                ..run
            },
            Surroundings { lost: vec![task("worker/1"), task("worker/2")], ..alone() },
        ),
        ("exchange of unknown cause", exchange, alone()),
        ("a full link", exchange, Surroundings { links: vec![link], ..alone() }),
        ("a busy server", exchange, Surroundings { servers: vec![server], ..alone() }),
        (
            "one slow worker",
            wait,
            Surroundings {
                workers: vec![worker(0, 0.01), worker(1, 0.01), worker(2, 0.04)],
                ..alone()
            },
        ),
        (
            "workers that wait for each other",
            wait,
            Surroundings { workers: vec![worker(0, 0.01), worker(1, 0.01)], ..alone() },
        ),
    ]
}
