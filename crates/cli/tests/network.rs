//! Hosts that lose each other: every task in a network namespace of its own, cables cut with `tc`.
//!
//! Needs root. All traffic stays within the namespaces made here.

#![allow(clippy::unwrap_used)]

mod cluster_support;
#[path = "cluster_support/lab.rs"]
mod lab;
mod support;

use cluster_support::*;
use lab::Lab;
use std::time::{Duration, Instant};

/// What the tests here do with two hosts.
trait TwoHosts {
    fn start(&self, host: usize, task: (&str, u32), job: &Job) -> Run;
    fn pair(&self) -> (Run, Run);
}

impl TwoHosts for Lab {
    /// Starts a task of a job on a host.
    fn start(&self, host: usize, (role, index): (&str, u32), job: &Job) -> Run {
        let out = tempfile::tempdir().unwrap();
        let config =
            format!(r#"{{"cluster":{},"task":{{"type":"{role}","index":{index}}}}}"#, job.cluster);
        let mut command = self.paceline(host);
        command
            .args(["node", "--data", DIGITS, "--strategy", job.strategy])
            .args(["--steps", "100000000", "--no-tensorboard", "--json", "--threads", "1"])
            .args(["--join-timeout", JOINS])
            .arg("--no-shared-memory") // namespaces are of one machine
            .args(job.flags)
            .arg("--out")
            .arg(out.path())
            .env("TF_CONFIG", config);
        spawn(command, out)
    }

    /// The chief and another worker, each on its host.
    fn pair(&self) -> (Run, Run) {
        (self.start(0, ("worker", 0), &PAIR), self.start(1, ("worker", 1), &PAIR))
    }
}

/// What tasks on several hosts do together.
struct Job {
    cluster: &'static str,
    strategy: &'static str,
    flags: &'static [&'static str],
}

const PAIR: Job = Job {
    cluster: r#"{"worker":["10.77.0.1:7000","10.77.0.2:7000"]}"#,
    strategy: "multi-worker",
    flags: &["--model", "softmax"],
};

/// Waits until the chief has gone on by some steps.
fn goes_on(chief: &mut Run) {
    let now = steps(&chief.folder());
    chief.wait_for_step(now + 20);
}

/// Plays the same on labs of their own at the same time: most of it is waiting.
fn side_by_side<T: Sync>(cases: &[T], play: impl Fn(&Lab, &T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let play = &play;
            scope.spawn(move || Lab::new(2).iter().for_each(|lab| play(lab, case)));
        }
    });
}

/// A cut of three seconds is a short one; where this machine was late by more than one meanwhile, it may have been another.
fn short_cut(lab: &Lab, hosts: &[usize]) -> Option<(Run, Run)> {
    let (mut chief, other) = lab.pair();
    chief.wait_for_step(50);
    assert!(chief.talk().contains("encrypted"), "{}", chief.talk());
    let before = unix_seconds();
    lab.cut(hosts, true);
    std::thread::sleep(Duration::from_secs(3));
    lab.cut(hosts, false);
    let was_short = unix_seconds() - before < 4.0;
    std::thread::sleep(Duration::from_secs(5));
    let was_late = chief.lateness.late(before, unix_seconds()) > 1.0;
    if chief.talk().contains("lost worker/1") && (was_late || !was_short) {
        return None;
    }
    Some((chief, other))
}

#[test]
fn a_short_cut_is_survived() {
    side_by_side(&[&[0, 1][..], &[0], &[1]], |lab, hosts| {
        let begun = Instant::now();
        let (mut chief, other) = loop {
            if let Some(pair) = short_cut(lab, hosts) {
                break pair;
            }
            assert!(begun.elapsed() < PATIENCE, "{hosts:?}: this machine is always late");
        };
        goes_on(&mut chief);
        assert!(!chief.talk().contains("lost worker/1"), "{hosts:?}: {}", chief.talk());
        signal(chief.child.id(), "-INT");
        let ended = chief.end();
        assert_eq!(ended.json()["lost"].as_array().unwrap().len(), 0, "{hosts:?}: {}", ended.talk);
        let other = other.end();
        assert_eq!(other.code(), 0, "{hosts:?}: finished is not failed: {}", other.talk);
    });
}

/// The task that was cut off ends within a bound, by itself, and says why.
fn ends_alone(task: &str, cut_off: Run, cut: f64) {
    let folder = cut_off.folder();
    let ended = cut_off.end();
    assert_eq!(ended.code(), 75, "{task}: {}", ended.talk);
    let after = ended.ended_within(&folder, task, cut);
    assert!(after < 20.0, "{task}: {after:.1} s");
    let told = ended.talk.contains("worker/0") || ended.talk.contains("left behind");
    assert!(told, "{task}: {}", ended.talk);
}

#[test]
fn a_long_cut_is_a_death_and_no_worker_trains_alone() {
    side_by_side(&[&[0, 1][..], &[0], &[1]], |lab, hosts| {
        let (mut chief, other) = lab.pair();
        chief.wait_for_step(50);
        lab.cut(hosts, true);
        ends_alone("worker/1", other, unix_seconds());
        wait_for("the chief to name it", || chief.talk().contains("lost worker/1"));
        goes_on(&mut chief);
        // Whatever was under way in the cable comes too late to disturb anybody.
        lab.cut(hosts, false);
        goes_on(&mut chief);
        signal(chief.child.id(), "-INT");
        let ended = chief.end();
        assert_eq!(ended.json()["lost"].as_array().unwrap().len(), 1, "{hosts:?}: {}", ended.talk);
    });
}

/// Weights of 13 MB are more than socket buffers hold, so the cut comes in the middle of a message. Neither the worker
/// that is cut off nor the server's thread for it may wait for the rest.
#[test]
fn no_task_waits_for_a_worker_cut_off_in_the_middle_of_a_large_message() {
    let job = |strategy| Job {
        cluster: r#"{"worker":["10.77.0.1:7000","10.77.0.2:7000"],"ps":["10.77.0.1:7001"]}"#,
        strategy,
        flags: &["--model", "lenet", "--batch-size", "4"],
    };
    side_by_side(&[job("ps-async"), job("ps-sync")], |lab, job| {
        let (mut chief, server) = (lab.start(0, ("worker", 0), job), lab.start(0, ("ps", 0), job));
        let other = lab.start(1, ("worker", 1), job);
        chief.wait_for_step(5);
        lab.cut(&[0, 1], true);
        ends_alone("worker/1", other, unix_seconds());
        wait_for("the chief to name it", || chief.talk().contains("lost worker/1"));
        lab.cut(&[0, 1], false);
        goes_on(&mut chief);
        signal(chief.child.id(), "-INT");
        let ended = chief.end();
        let strategy = job.strategy;
        assert_eq!(ended.code(), 130, "{strategy}: {}", ended.talk);
        assert_eq!(ended.json()["lost"].as_array().unwrap().len(), 1, "{strategy}: {}", ended.talk);
        let server = server.end();
        assert_eq!(server.code(), 0, "{strategy}: {}", server.talk);
    });
}

#[test]
fn a_server_that_was_cut_off_is_replaced_and_the_workers_go_on() {
    let Some(lab) = Lab::new(2) else { return };
    let job = Job {
        cluster: r#"{"worker":["10.77.0.1:7000","10.77.0.1:7001"],"ps":["10.77.0.2:7000"]}"#,
        strategy: "ps-async",
        flags: &["--model", "softmax", "--checkpoint-every", "20"],
    };
    let (mut chief, other) = (lab.start(0, ("worker", 0), &job), lab.start(0, ("worker", 1), &job));
    let server = lab.start(1, ("ps", 0), &job);
    let folder = chief.folder();
    wait_for("a checkpoint", || has_checkpoint(&folder));
    lab.cut(&[0, 1], true);
    let ended = server.end();
    assert_eq!(ended.code(), 75, "{}", ended.talk);
    assert!(ended.talk.contains("worker/0"), "{}", ended.talk);
    wait_for("the chief to name it", || chief.talk().contains("lost ps/0"));
    lab.cut(&[0, 1], false);
    let server = lab.start(1, ("ps", 0), &job);
    goes_on(&mut chief);
    signal(chief.child.id(), "-INT");
    assert_eq!(chief.end().code(), 130);
    assert_eq!((other.end().code(), server.end().code()), (0, 0));
}

#[test]
fn check_measures_every_pair_and_names_what_is_wrong() {
    let Some(lab) = Lab::new(2) else { return };
    let check = |host: usize, join_timeout: &str| {
        let cluster = format!(
            r#"{{"cluster":{{"worker":["10.77.0.1:7000","10.77.0.2:7000"]}},"task":{{"type":"worker","index":{host}}}}}"#
        );
        let mut command = lab.paceline(host);
        command
            .args(["check", "--json", "--join-timeout", join_timeout, "--no-shared-memory"])
            .env("TF_CONFIG", cluster);
        spawn(command, tempfile::tempdir().unwrap())
    };
    let (first, second) = (check(0, JOINS), check(1, JOINS));
    let (first, second) = (first.end(), second.end());
    assert_eq!((first.code(), second.code()), (0, 0), "{}\n{}", first.stdout, second.stdout);
    let report = first.json();
    let pair = &report["pairs"][0];
    assert_eq!(pair["carrier"], "tls", "{report}");
    assert!(pair["mib_per_second"].as_f64().unwrap() > 1.0, "{report}");
    let alone = check(0, "5s").end();
    assert_eq!(alone.code(), 1, "{}", alone.talk);
    let text = alone.json().to_string();
    assert!(text.contains("worker/1 at 10.77.0.2:7000") && text.contains("refused"), "{text}");
}
