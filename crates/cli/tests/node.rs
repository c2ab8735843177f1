//! `paceline node` and `paceline check` as real processes on loopback: every way of describing a
//! cluster ends in the same run, and a wrong one in words.

#![allow(clippy::unwrap_used)]

mod cluster_support;

use cluster_support::*;
use std::{net::TcpListener, path::PathBuf, process::Command};
use tempfile::TempDir;

/// Ports that were free a moment ago.
fn ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

fn key(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("key");
    paceline_cluster::ClusterKey::generate().unwrap().save(&path).unwrap();
    path
}

const FLAGS: &[&str] = &[
    "--model",
    "softmax",
    "--data",
    DIGITS,
    "--batch-size",
    "20",
    "--lr",
    "0.1",
    "--threads",
    "1",
    "--no-tensorboard",
    "--json",
];

fn node(flags: &[&str], environment: &[(&str, String)]) -> Run {
    node_in(tempfile::tempdir().unwrap(), &[FLAGS, flags].concat(), environment)
}

fn node_in(out: TempDir, flags: &[&str], environment: &[(&str, String)]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.arg("node").args(flags).arg("--out").arg(out.path());
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    spawn(command, out)
}

fn tf_config(ports: &[u16], role: &str, index: usize) -> String {
    format!(
        r#"{{"cluster":{{"chief":["127.0.0.1:{}"],"worker":["127.0.0.1:{}"],"ps":["127.0.0.1:{}"]}},"task":{{"type":"{role}","index":{index}}}}}"#,
        ports[0], ports[1], ports[2]
    )
}

#[test]
fn tf_config_describes_a_cluster_with_a_chief_and_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(3), key(&folder).display().to_string());
    let flags = ["--strategy", "ps-async", "--epochs", "3"];
    let runs: Vec<Run> = [("chief", 0), ("worker", 0), ("ps", 0)]
        .iter()
        .map(|(role, index)| {
            let config = tf_config(&ports, role, *index);
            node(&flags, &[("TF_CONFIG", config), ("PACELINE_KEY_FILE", key.clone())])
        })
        .collect();
    let ended: Vec<Ended> = runs.into_iter().map(Run::end).collect();
    for task in &ended {
        assert_eq!(task.code(), 0, "{}", task.talk);
    }
    assert!(ended[0].talk.contains("chief/0 of 3 tasks, as TF_CONFIG says"), "{}", ended[0].talk);
    let summary = ended[0].json();
    assert_eq!(summary["global_steps"], 90, "{summary}");
    let names: Vec<&str> = summary["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| worker["task"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["chief/0", "worker/0"]);
    assert_eq!(ended[1].json()["task"], "worker/0");
    assert_eq!(ended[2].json()["task"], "ps/0");
    // Without a shared disk, every host has its own records under the name the chief gave.
    let run = summary["run"].as_str().unwrap();
    assert!(ended[1].out.path().join(run).join("events-worker-0.jsonl").exists());
    assert!(!ended[1].out.path().join(run).join("summary.json").exists());
}

#[test]
fn torchrun_ranks_meet_at_one_address() {
    let folder = tempfile::tempdir().unwrap();
    let (port, key) = (ports(1)[0], key(&folder).display().to_string());
    let flags = ["--strategy", "multi-worker", "--epochs", "2"];
    let runs: Vec<Run> = (0..2)
        .map(|rank: u32| {
            node(
                &flags,
                &[
                    ("RANK", rank.to_string()),
                    ("WORLD_SIZE", "2".to_owned()),
                    ("MASTER_ADDR", "127.0.0.1".to_owned()),
                    ("MASTER_PORT", port.to_string()),
                    ("PACELINE_KEY_FILE", key.clone()),
                ],
            )
        })
        .collect();
    let ended: Vec<Ended> = runs.into_iter().map(Run::end).collect();
    assert_eq!((ended[0].code(), ended[1].code()), (0, 0), "{}\n{}", ended[0].talk, ended[1].talk);
    assert_eq!(ended[0].json()["examples"], 1200);
}

#[test]
fn a_task_that_never_starts_is_named_with_its_address_and_worth_retrying() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(3), key(&folder).display().to_string());
    let flags = ["--strategy", "ps-async", "--epochs", "3", "--join-timeout", "4"];
    let config = tf_config(&ports, "chief", 0);
    let ended = node(&flags, &[("TF_CONFIG", config), ("PACELINE_KEY_FILE", key)]).end();
    assert_eq!(ended.code(), 75, "{}", ended.talk);
    for (task, port) in [("worker/0", ports[1]), ("ps/0", ports[2])] {
        let missing = format!("{task} at 127.0.0.1:{port} is missing");
        assert!(ended.talk.contains(&missing), "{missing}: {}", ended.talk);
    }
    assert!(ended.talk.contains("connection refused"), "{}", ended.talk);
    assert!(ended.talk.contains("waiting for worker/0"), "a table while it waits: {}", ended.talk);
    let left = std::fs::read_dir(ended.out.path()).unwrap().count();
    assert_eq!(left, 0, "no empty run folder stays behind");
}

#[test]
fn different_settings_are_refused_and_both_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(2), key(&folder).display().to_string());
    let start = |index: usize, epochs: &str| {
        let config = format!(
            r#"{{"cluster":{{"worker":["127.0.0.1:{}","127.0.0.1:{}"]}},"task":{{"type":"worker","index":{index}}}}}"#,
            ports[0], ports[1]
        );
        let flags = ["--strategy", "multi-worker", "--join-timeout", "4", "--epochs", epochs];
        node(&flags, &[("TF_CONFIG", config), ("PACELINE_KEY_FILE", key.clone())])
    };
    let (chief, other) = (start(0, "3"), start(1, "5"));
    let (chief, other) = (chief.end(), other.end());
    assert_eq!(other.code(), 1, "{}", other.talk);
    let both = "\"epochs\":3.0";
    assert!(other.talk.contains(both) && other.talk.contains("\"epochs\":5.0"), "{}", other.talk);
    assert_eq!(chief.code(), 75, "{}", chief.talk);
    assert!(chief.talk.contains("worker/1") && chief.talk.contains("refused"), "{}", chief.talk);
}

/// Environment of one of two torchrun ranks that meet at a port.
fn rank(rank: u32, port: u16, key: &str) -> Vec<(&'static str, String)> {
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "2".to_owned()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
        ("PACELINE_KEY_FILE", key.to_owned()),
    ]
}

#[test]
fn another_version_of_the_program_is_refused_and_both_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (port, key) = (ports(1)[0], key(&folder).display().to_string());
    let flags = ["--strategy", "multi-worker", "--epochs", "2", "--join-timeout", "4"];
    let chief = node(&flags, &rank(0, port, &key));
    let mut pretender = rank(1, port, &key);
    pretender.push(("PACELINE_PRETEND_VERSION", "99.1.7".to_owned()));
    let other = node(&flags, &pretender).end();
    let chief = chief.end();
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(other.code(), 1, "{}", other.talk);
    assert!(other.talk.contains("99.1.7") && other.talk.contains(own), "{}", other.talk);
    // The chief says it too, and that this task is still missing.
    assert_eq!(chief.code(), 75, "{}", chief.talk);
    assert!(chief.talk.contains("99.1.7") && chief.talk.contains(own), "{}", chief.talk);
    assert!(chief.talk.contains("worker/1"), "{}", chief.talk);
}

#[test]
fn tasks_of_a_cluster_resume_where_their_checkpoint_was() {
    let folder = tempfile::tempdir().unwrap();
    let key = key(&folder).display().to_string();
    for strategy in ["multi-worker", "ps-async"] {
        let servers = if strategy == "ps-async" { &["--ps", "1"][..] } else { &[] };
        let world = if strategy == "ps-async" { "3" } else { "2" };
        let start = |outs: Vec<TempDir>, flags: &[&str]| -> Vec<Ended> {
            let port = ports(1)[0];
            let runs = outs.into_iter().enumerate().map(|(number, out)| {
                let mut environment = rank(number as u32, port, &key);
                environment[1].1 = world.to_owned();
                node_in(out, flags, &environment)
            });
            runs.collect::<Vec<Run>>().into_iter().map(Run::end).collect()
        };
        let count: usize = world.parse().unwrap();
        let outs = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let first = ["--strategy", strategy, "--steps", "60"];
        let ended = start(outs, &[FLAGS, &first, servers].concat());
        for task in &ended {
            assert_eq!(task.code(), 0, "{strategy}: {}", task.talk);
        }
        let name = ended[0].json()["run"].as_str().unwrap().to_owned();
        let outs: Vec<TempDir> = ended.into_iter().map(|task| task.out).collect();
        let again = ["--resume", &name, "--steps", "90", "--json", "--no-tensorboard"];
        let ended = start(outs, &again);
        for task in &ended {
            assert_eq!(task.code(), 0, "{strategy}: {}", task.talk);
        }
        assert!(ended[0].talk.contains("going on at step 60"), "{strategy}: {}", ended[0].talk);
        assert_eq!(ended[0].json()["global_steps"], 90, "{strategy}");
    }
}

#[test]
fn without_key_or_cluster_the_hint_says_what_to_do() {
    let nothing = node(&["--epochs", "1"], &[]).end();
    assert_eq!(nothing.code(), 2, "{}", nothing.talk);
    assert!(nothing.talk.contains("hint: set TF_CONFIG"), "{}", nothing.talk);
    let config = tf_config(&ports(3), "chief", 0);
    let keyless = node(&["--epochs", "1"], &[("TF_CONFIG", config)]).end();
    assert_eq!(keyless.code(), 2, "{}", keyless.talk);
    assert!(keyless.talk.contains("paceline key new"), "{}", keyless.talk);
}

#[test]
fn a_socket_that_was_promised_and_does_not_listen_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let key = key(&folder).display().to_string();
    for promised in ["nonsense", "0", "987654"] {
        let mut environment = rank(0, ports(1)[0], &key);
        environment.push(("PACELINE_LISTEN_FD", promised.to_owned()));
        let flags = ["--strategy", "multi-worker", "--epochs", "1"];
        let ended = node(&flags, &environment).end();
        assert_eq!(ended.code(), 1, "{promised}: {}", ended.talk);
        assert!(ended.talk.contains(&format!("PACELINE_LISTEN_FD={promised}")), "{}", ended.talk);
    }
}

#[test]
fn check_names_a_broken_description_and_loopback_among_hosts() {
    let check = |config: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        command.args(["check", "--json", "--join-timeout", "1"]);
        command.env("TF_CONFIG", config).env("PACELINE_KEY_FILE", key(&folder));
        spawn(command, folder).end()
    };
    let broken = check("{\"cluster\":");
    assert_eq!(broken.code(), 1, "{}", broken.talk);
    assert!(broken.json().to_string().contains("not valid JSON"), "{}", broken.stdout);
    let port = ports(1)[0];
    let mixed = check(&format!(
        r#"{{"cluster":{{"worker":["127.0.0.1:{port}","192.0.2.1:7000"]}},"task":{{"type":"worker","index":0}}}}"#
    ));
    assert_eq!(mixed.code(), 1, "{}", mixed.talk);
    let text = mixed.json().to_string();
    assert!(text.contains("loopback address in a cluster of several hosts"), "{text}");
    assert!(text.contains("worker/1 at 192.0.2.1:7000"), "{text}");
}
