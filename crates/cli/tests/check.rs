//! `paceline check` as real processes on loopback: what is wrong is named together with what to change, and exit code 1.

#![allow(clippy::unwrap_used)]

mod cluster_support;
#[path = "cluster_support/places.rs"]
mod places;
mod support;

use cluster_support::*;
use places::*;
use serde_json::Value;
use std::net::TcpListener;
use support::paceline;

/// A variable of the environment.
type Variable = (&'static str, String);

fn check(flags: &[&str], environment: &[Variable]) -> Run {
    let mut command = paceline();
    command.arg("check").args(flags).env_remove("PACELINE_KEY_FILE");
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    spawn(command, tempfile::tempdir().unwrap())
}

/// Everything that is wrong: which check, what was found, what to change.
fn wrong(ended: &Ended) -> Vec<[String; 3]> {
    assert_eq!(ended.code(), 1, "{}{}", ended.stdout, ended.talk);
    let report = ended.json();
    assert_eq!(report["ok"], false, "{report}");
    let findings = report["findings"].as_array().unwrap();
    let wrong = findings.iter().filter(|finding| finding["ok"] == false);
    let part = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
    wrong.map(|finding| ["check", "found", "change"].map(|name| part(finding, name))).collect()
}

/// Whether one of the findings is of that check and has these words in what was found and in what to change.
fn names(findings: &[[String; 3]], words: [&str; 3]) -> bool {
    findings.iter().any(|[check, found, change]| {
        check == words[0] && found.contains(words[1]) && change.contains(words[2])
    })
}

#[test]
fn what_one_host_sees_by_itself_is_named_with_what_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let key = key(&folder, "key");
    let list = |addresses: &[&str], index: usize| -> Vec<Variable> {
        let config = format!(
            r#"{{"cluster":{{"worker":{addresses:?}}},"task":{{"type":"worker","index":{index}}}}}"#
        );
        vec![("TF_CONFIG", config), ("PACELINE_KEY_FILE", key.clone())]
    };
    let ranks = |host: &str| -> Vec<Variable> {
        vec![
            ("RANK", "1".to_owned()),
            ("WORLD_SIZE", "2".to_owned()),
            ("MASTER_ADDR", host.to_owned()),
            ("MASTER_PORT", "7000".to_owned()),
            ("PACELINE_KEY_FILE", key.clone()),
        ]
    };
    let two = ["127.0.0.1:7000", "127.0.0.1:7001"];
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let occupied = taken.local_addr().unwrap().to_string();
    let broken = vec![("TF_CONFIG", "{\"cluster\":".to_owned())];
    let both = [ranks("127.0.0.1"), list(&two, 0)].concat();
    let keyless = vec![list(&two, 0).remove(0)];
    let cases: [(&[&str], Vec<Variable>, [&str; 3]); 8] = [
        (&[], broken, ["description", "not valid JSON", "correct the description"]),
        (
            &[],
            list(&["a:1", "a:1"], 0),
            ["description", "worker/0 and worker/1 have the same address `a:1`", "correct the"],
        ),
        (
            &[],
            list(&two, 2),
            ["description", "this process is worker/2, but the cluster lists only", "correct the"],
        ),
        (&[], both, ["description", "is worker/0 and rank 1", "unset the variables of the one"]),
        (&[], keyless, ["key", "no cluster key", "make one with `paceline key new"]),
        (
            &[],
            ranks("no-such-host.invalid"),
            ["names", "`no-such-host.invalid:7000`, which does not resolve", "/etc/hosts"],
        ),
        (
            &["--ps", "2"],
            ranks("127.0.0.1"),
            ["tasks", "--ps takes 2 of them", "at least one task must be left to train"],
        ),
        (&[], list(&[&occupied], 0), ["port", "cannot listen on 127.0.0.1:", "with --listen"]),
    ];
    for (flags, environment, words) in &cases {
        let found = wrong(&check(&[&["--json"], *flags].concat(), environment).end());
        assert_eq!(found.len(), 1, "{words:?}: {found:?}");
        assert!(names(&found, *words), "{words:?}: {found:?}");
    }
    // People are shown the same.
    let (_, environment, words) = &cases[5];
    let shown = check(&[], environment).end();
    assert_eq!(shown.code(), 1, "{}", shown.stdout);
    for text in ["WRONG", "-> ", words[1], words[2]] {
        assert!(shown.stdout.contains(text), "{text}: {}", shown.stdout);
    }
}

#[test]
fn an_unreachable_task_is_named_and_so_is_loopback_among_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let key = key(&folder, "key");
    let port = ports(1)[0];
    let config = format!(
        r#"{{"cluster":{{"worker":["127.0.0.1:{port}","192.0.2.1:7000","no-such-host.invalid:7000"]}},"task":{{"type":"worker","index":0}}}}"#
    );
    let environment = vec![("TF_CONFIG", config), ("PACELINE_KEY_FILE", key)];
    let found = wrong(&check(&["--json", "--join-timeout", "1"], &environment).end());
    let loopback = "a loopback address in a cluster of several hosts";
    for words in [
        ["names", "worker/2: `no-such-host.invalid:7000` does not", "correct the name of worker/2"],
        ["addresses", loopback, "the address that the other hosts reach it by"],
        ["tasks", "worker/1 at 192.0.2.1:7000 is missing", "open the ports between them"],
    ] {
        assert!(names(&found, words), "{words:?}: {found:?}");
    }
}

/// What two tasks find that do not go together, the chief first. Its patience decides how long it takes, so the other is there before it.
fn at_odds(chief: &[Variable], other: &[Variable]) -> [Vec<[String; 3]>; 2] {
    let ports = ports(2);
    let start = |index: usize, patience: &str, more: &[Variable]| {
        let own = vec![("TF_CONFIG", workers(&ports, "worker", index))];
        check(&["--json", "--join-timeout", patience], &[own, more.to_vec()].concat())
    };
    let play = |patience: &str| {
        let other = start(1, JOINS, other);
        wait_for("worker/1 to listen", || listens(ports[1]));
        [start(0, patience, chief), other].map(|run| wrong(&run.end()))
    };
    let heard = |found: &[Vec<[String; 3]>; 2]| {
        found[0].iter().any(|[check, ..]| ["key", "version"].contains(&&**check))
    };
    let found = with_patience(play, heard);
    assert!(names(&found[0], ["tasks", "worker/1", "on every host"]), "{:?}", found[0]);
    found
}

#[test]
fn hosts_with_different_keys_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, theirs] =
        ["ours", "theirs"].map(|name| vec![("PACELINE_KEY_FILE", key(&folder, name))]);
    for found in at_odds(&ours, &theirs) {
        let words = ["key", "the cluster keys differ", "copy one key to every host"];
        assert!(names(&found, words), "{found:?}");
    }
}

#[test]
#[cfg(debug_assertions)] // a program that was built for use cannot pretend
fn hosts_with_different_versions_are_told_both() {
    let folder = tempfile::tempdir().unwrap();
    let ours = vec![("PACELINE_KEY_FILE", key(&folder, "key"))];
    let mut theirs = ours.clone();
    theirs.push(("PACELINE_PRETEND_VERSION", "99.1.7".to_owned()));
    for found in at_odds(&ours, &theirs) {
        for version in ["99.1.7", env!("CARGO_PKG_VERSION")] {
            let words = ["version", version, "install the same version of the program"];
            assert!(names(&found, words), "{found:?}");
        }
    }
}

#[test]
fn every_pair_of_tasks_is_measured_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(3), key(&folder, "key"));
    let start = |index: usize, flags: &[&str]| {
        let config = workers(&ports, "worker", index);
        let environment = vec![("TF_CONFIG", config), ("PACELINE_KEY_FILE", key.clone())];
        check(&[&["--join-timeout", JOINS], flags].concat(), &environment)
    };
    let runs = [start(0, &[]), start(1, &["--json"]), start(2, &["--json"])];
    let ended = runs.map(Run::end);
    for task in &ended {
        assert_eq!(task.code(), 0, "{}{}", task.stdout, task.talk);
    }
    let table = &ended[0].stdout;
    for (from, to) in [("worker/0", "worker/1"), ("worker/0", "worker/2"), ("worker/1", "worker/2")]
    {
        let pair = |line: &str| {
            line.starts_with(from)
                && line.contains(to)
                && line.contains(" ms")
                && line.contains("MiB/s")
        };
        assert!(table.lines().any(pair), "{from} {to}: {table}");
    }
    for words in ["all 3 are there", "clocks", "clock offset", "fingerprint"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let pair = &ended[1].json()["pairs"][0];
    assert_eq!((&pair["from"], &pair["to"]), (&"worker/1".into(), &"worker/2".into()), "{pair}");
    for figure in ["round_trip_ms", "mib_per_second"] {
        assert!(pair[figure].as_f64().unwrap() > 0.0, "{pair}");
    }
}

#[test]
fn a_check_without_a_key_says_what_that_means() {
    let environment = vec![("TF_CONFIG", workers(&ports(1), "worker", 0))];
    let open = check(&["--insecure"], &environment).end();
    assert_eq!(open.code(), 0, "{}{}", open.stdout, open.talk);
    assert!(open.talk.contains("warning: --insecure: anyone on the network"), "{}", open.talk);
}
