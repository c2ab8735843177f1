//! Hosts that lose each other: every task in a network namespace of its own, cables cut with `tc`.
//!
//! Needs root. All traffic stays within the namespaces made here.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod cluster_support;

use cluster_support::*;
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Two hosts on one cable.
struct Lab {
    names: [String; 2],
    folder: tempfile::TempDir,
}

fn ip(words: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Lab {
    /// Nothing where namespaces cannot be made, said aloud.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let names = [0, 1].map(|host| format!("pl{}-{number}-{host}", std::process::id()));
        let lab = Self { folder: tempfile::tempdir().unwrap(), names };
        let [a, b] = &lab.names;
        let (near, far) = (format!("v{a}"), format!("v{b}"));
        // Interface names have 15 letters at most.
        let (near, far) = (&near[..near.len().min(15)], &far[far.len().saturating_sub(14)..]);
        let made = ip(&["netns", "add", a])
            && ip(&["netns", "add", b])
            && ip(&["-n", a, "link", "add", near, "type", "veth", "peer", "name", far, "netns", b])
            && ip(&["-n", a, "link", "set", near, "name", "cable"])
            && ip(&["-n", b, "link", "set", far, "name", "cable"])
            && [(a, "10.77.0.1/24"), (b, "10.77.0.2/24")].iter().all(|(name, address)| {
                ip(&["-n", name, "addr", "add", address, "dev", "cable"])
                    && ip(&["-n", name, "link", "set", "cable", "up"])
                    && ip(&["-n", name, "link", "set", "lo", "up"])
            })
            && [0, 1].iter().all(|host| lab.sends(*host, false) && lab.sends(*host, true));
        if !made {
            eprintln!("skipped: network namespaces need root, `ip` and `tc`");
            return None;
        }
        Some(lab)
    }

    /// Whether what a host sends arrives. A bucket of ten bytes is smaller than any packet, so nothing
    /// passes it; that queue is in every kernel, unlike `netem`.
    fn sends(&self, host: usize, arrives: bool) -> bool {
        let mut words = vec!["netns", "exec", &self.names[host], "tc", "qdisc"];
        words.extend([if arrives { "del" } else { "add" }, "dev", "cable", "root"]);
        if !arrives {
            words.extend(["tbf", "rate", "1kbit", "burst", "10b", "limit", "10b"]);
        }
        ip(&words)
    }

    fn key(&self) -> PathBuf {
        let path = self.folder.path().join("key");
        if !path.exists() {
            paceline_cluster::ClusterKey::generate().unwrap().save(&path).unwrap();
        }
        path
    }

    /// Starts a worker on a host.
    fn start(&self, host: usize, flags: &[&str]) -> Run {
        let out = tempfile::tempdir().unwrap();
        let cluster = format!(
            r#"{{"cluster":{{"worker":["10.77.0.1:7000","10.77.0.2:7000"]}},"task":{{"type":"worker","index":{host}}}}}"#
        );
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.names[host], env!("CARGO_BIN_EXE_paceline"), "node"])
            .args(["--model", "softmax", "--data", DIGITS, "--strategy", "multi-worker"])
            .args(["--steps", "100000000", "--no-tensorboard", "--json", "--threads", "1"])
            .arg("--no-shared-memory") // namespaces are of one machine
            .args(flags)
            .arg("--out")
            .arg(out.path())
            .env("TF_CONFIG", cluster)
            .env("PACELINE_KEY_FILE", self.key());
        spawn(command, out)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}

/// Waits until the chief has gone on by some steps.
fn goes_on(chief: &mut Run) {
    let now = steps(&chief.folder());
    chief.wait_for_step(now + 20);
}

#[test]
fn a_short_cut_is_survived() {
    let Some(lab) = Lab::new() else { return };
    let (mut chief, other) = (lab.start(0, &[]), lab.start(1, &[]));
    chief.wait_for_step(50);
    assert!(chief.talk().contains("encrypted"), "{}", chief.talk());
    for host in [0, 1] {
        assert!(lab.sends(host, false));
    }
    std::thread::sleep(Duration::from_secs(3));
    for host in [0, 1] {
        assert!(lab.sends(host, true));
    }
    std::thread::sleep(Duration::from_secs(5));
    goes_on(&mut chief);
    assert!(!chief.talk().contains("lost worker/1"), "{}", chief.talk());
    signal(chief.child.id(), "-INT");
    let ended = chief.end();
    assert_eq!(ended.json()["lost"].as_array().unwrap().len(), 0, "{}", ended.talk);
    let other = other.end();
    assert_eq!(other.code(), 0, "finished is not failed: {}", other.talk);
}

/// Cuts what `hosts` send for good: one side goes on, the other ends, within a bound.
fn cut_for_good(hosts: &[usize]) {
    let Some(lab) = Lab::new() else { return };
    let (mut chief, other) = (lab.start(0, &[]), lab.start(1, &[]));
    chief.wait_for_step(50);
    for host in hosts {
        assert!(lab.sends(*host, false));
    }
    let (cut, folder) = (unix_seconds(), other.folder());
    let ended = other.end();
    assert_eq!(ended.code(), 75, "{hosts:?}: {}", ended.talk);
    let after = ended_at(&folder, "worker/1") - cut;
    assert!(after < 20.0, "{after:.1} s");
    assert!(
        ended.talk.contains("worker/0") || ended.talk.contains("left behind"),
        "{}",
        ended.talk
    );
    wait_for("the chief to name it", || chief.talk().contains("lost worker/1"));
    goes_on(&mut chief);
    signal(chief.child.id(), "-INT");
    let ended = chief.end();
    assert_eq!(ended.json()["lost"].as_array().unwrap().len(), 1, "{}", ended.talk);
}

#[test]
fn a_long_cut_is_a_death_and_nobody_trains_alone() {
    cut_for_good(&[0, 1]);
}

#[test]
fn a_cut_of_one_direction_is_a_death_too() {
    cut_for_good(&[0]);
    cut_for_good(&[1]);
}

#[test]
fn check_measures_every_pair_and_names_what_is_wrong() {
    let Some(lab) = Lab::new() else { return };
    let check = |host: usize| {
        let cluster = format!(
            r#"{{"cluster":{{"worker":["10.77.0.1:7000","10.77.0.2:7000"]}},"task":{{"type":"worker","index":{host}}}}}"#
        );
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &lab.names[host], env!("CARGO_BIN_EXE_paceline"), "check"])
            .args(["--json", "--join-timeout", "5", "--no-shared-memory"])
            .env("TF_CONFIG", cluster)
            .env("PACELINE_KEY_FILE", lab.key());
        spawn(command, tempfile::tempdir().unwrap())
    };
    let (first, second) = (check(0), check(1));
    let (first, second) = (first.end(), second.end());
    assert_eq!((first.code(), second.code()), (0, 0), "{}\n{}", first.stdout, second.stdout);
    let report = first.json();
    let pair = &report["pairs"][0];
    assert_eq!(pair["carrier"], "tls", "{report}");
    assert!(pair["mib_per_second"].as_f64().unwrap() > 1.0, "{report}");
    let alone = check(0).end();
    assert_eq!(alone.code(), 1, "{}", alone.talk);
    let text = alone.json().to_string();
    assert!(text.contains("worker/1 at 10.77.0.2:7000") && text.contains("refused"), "{text}");
}
