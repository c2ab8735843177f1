//! Everything a person reads, word for word, through the real binary: lists, descriptions of data, advice, verdicts.
//!
//! Help is kept in `docs/commands.md` (see `docs.rs`), what is said of mistakes in `messages.txt` (see `messages.rs`);
//! the rest is in `snapshots/`, one file for each kind. `support/transcript.rs` says how to read and renew them.

#![allow(clippy::unwrap_used)]

mod support;
#[path = "support/transcript.rs"]
mod transcript;

use paceline_runs::PhaseTimes;
use paceline_runs::verdict::{
    Evidence, Examples, Limit, Link, NodeLoad, ServerLoad, Stop, Surroundings, WorkerLoad,
    judge_within,
};
use std::{fs, path::Path};
use support::{run_in, said};
use transcript::{compare, replay};

/// A call that must succeed.
#[track_caller]
fn works(folder: &Path, line: &str) {
    let output = run_in(folder, &line.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {}", said(&output));
}

/// Trains, and gives the one run folder a name that is always the same.
#[track_caller]
fn train(folder: &Path, name: &str, flags: &str) {
    works(folder, &format!("train --out new --no-tensorboard --quiet {flags}"));
    let made = fs::read_dir(folder.join("new")).unwrap().next().unwrap().unwrap().path();
    fs::create_dir_all(folder.join("runs")).unwrap();
    fs::rename(made, folder.join("runs").join(name)).unwrap();
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
    train(folder, "dense", "--model softmax --data generated:digits?examples=100 --steps 30");
    replay("advice.txt", folder);
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
        Limit::TakenCores,
        Limit::TooManyThreads,
        Limit::Stopped,
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
    compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/verdicts.txt"), &found);
}

type Case = (&'static str, Evidence, Surroundings);

fn verdicts() -> Vec<Case> {
    let run = Evidence {
        steps: 1000,
        seconds: 10.0,
        phases: PhaseTimes { input: 0.05, compute: 0.9, exchange: 0.03, wait: 0.02 },
        threads: 2,
        busy_cores: Some(1.9),
        examples: Examples::Any,
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
    };
    let on = |node: NodeLoad| Surroundings { nodes: vec![node], ..Surroundings::default() };
    let alone = Surroundings::default;
    let spent = |input, compute, exchange, wait| {
        let phases = PhaseTimes { input, compute, exchange, wait };
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
        ("other programs", idle, on(others)),
        ("a hypervisor", idle, on(stolen)),
        ("a quota", idle, on(NodeLoad { throttled: Some(0.5), ..quiet.clone() })),
        ("eight threads on two cores", Evidence { threads: 8, ..run }, on(crowded)),
        ("waiting for memory", run, on(NodeLoad { memory_pressure: Some(0.4), ..quiet })),
        ("a stopped process", run, Surroundings { stops: vec![stop], ..alone() }),
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
