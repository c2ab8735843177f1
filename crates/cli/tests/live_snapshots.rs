//! What people read while processes are at work, word for word: the tour, the page's address, a recorded script, tasks of a cluster.
//!
//! These are real runs, so what the machine decides is masked as well as figures: which verdict is given (its sentences are in
//! `snapshots/verdicts.txt`), how often a waiting task says so, and how far clocks are apart. `support/transcript.rs` says how to read
//! and renew the files.

#![allow(clippy::unwrap_used)]

mod cluster_support;
#[path = "cluster_support/places.rs"]
mod places;
mod support;
#[path = "support/transcript.rs"]
mod transcript;

use cluster_support::{Ended, Run, signal, spawn, wait_for};
use places::{key, ports};
use std::{fs, path::Path, process::Output};
use support::{command, run_in};
use transcript::{compare, entry, kept};

/// Behind each of these a line has a verdict, up to its end.
const BEFORE_VERDICTS: &[&str] =
    &["verdict  ", "examples a second; ", "rows a second; ", "LeNet on two workers is "];

/// A line without what the machine decides; nothing where it decides whether there is such a line.
fn steady(line: &str) -> Option<String> {
    let advice = line.starts_with("next  ") && !line.contains("paceline report");
    if advice || line.contains(" is slow: ") {
        return None;
    }
    for before in BEFORE_VERDICTS {
        if let Some(at) = line.find(before) {
            return Some(format!("{}VERDICT", &line[..at + before.len()]));
        }
    }
    if let Some((before, _)) = line.split_once("?token=") {
        return Some(format!("{before}?token=TOKEN"));
    }
    if let Some((before, _)) = line.split_once(", last error: ") {
        return Some(before.to_owned());
    }
    if line.contains(" is missing (") {
        // How a task is missed depends on what its address did meanwhile.
        let parts = line.split('(').map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
        return Some(parts.collect::<Vec<_>>().join("(REASON)"));
    }
    match line.split_once(" on ") {
        Some((before, after)) if before.contains(" joined at ") => {
            let (_, clock) = after.split_once(',')?;
            Some(format!("{before} on HOST,{}", clock.replace("clock -", "clock +")))
        }
        _ => Some(line.to_owned()),
    }
}

/// A call and what it said. A task says again and again that it waits: the first time is kept.
fn transcript(line: &str, output: &Output, folder: &Path) -> String {
    let mut said = Vec::new();
    for line in String::from_utf8_lossy(&output.stderr).lines().filter_map(steady) {
        let masked = transcript::masked(&line);
        let repeats = masked.contains("waiting for ") || masked.ends_with("tasks joined");
        if !repeats || !said.contains(&masked) {
            said.push(masked);
        }
    }
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stdout: Vec<String> = stdout.lines().filter_map(steady).collect();
    let steady = Output {
        status: output.status,
        stdout: stdout.join("\n").into_bytes(),
        stderr: said.join("\n").into_bytes(),
    };
    entry(line, &steady, folder)
}

fn transcript_of(line: &str, ended: Ended) -> String {
    let Ended { status, talk, stdout, out, .. } = ended;
    transcript(line, &Output { status, stdout: stdout.into(), stderr: talk.into() }, out.path())
}

/// Starts a call in a folder of its own.
fn start(line: &str, environment: &[(&str, String)]) -> Run {
    let out = tempfile::tempdir().unwrap();
    let words: Vec<&str> = line.split_whitespace().skip(2).collect();
    let mut command = command(&words);
    command.current_dir(out.path()).envs(environment.iter().map(|(name, value)| (name, value)));
    spawn(command, out)
}

/// The whole tour, as a newcomer sees it.
#[test]
fn the_tour_is_told_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &["quickstart", "--no-open"]);
    compare(
        &kept("quickstart.txt"),
        &transcript("$ paceline quickstart --no-open", &output, folder.path()),
    );
    // The report and the pages that it refers to are there.
    let tour = folder.path().join("quickstart");
    let report = fs::read_to_string(tour.join("report.html")).unwrap();
    for page in ["speedtest/speedtest.html", "sweep/sweep.html", "stream.html"] {
        assert!(report.contains(&format!("href=\"{page}\"")), "no link to {page}");
        assert!(tour.join(page).exists(), "{page}");
    }
    // A second tour replaces what the first made; that it would not touch anything else is in `quickstart.rs`.
    assert!(tour.join(".paceline-quickstart.json").exists());
}

#[test]
fn a_served_page_is_announced_as_is_written_down() {
    let mut found = String::new();
    for (line, exit) in [
        ("$ paceline serve . --listen 127.0.0.1:0", "-INT"),
        ("$ paceline serve . --listen 127.0.0.1:0 --json", "-TERM"),
        ("$ paceline serve . --listen 0.0.0.0:0", "-INT"),
    ] {
        let page = start(line, &[]);
        // The warning about other machines comes after the address.
        let is_open = line.contains("0.0.0.0");
        wait_for("the address", || {
            page.printed().contains("http://") && (!is_open || page.talk().contains("encrypted"))
        });
        signal(page.child.id(), exit);
        found.push_str(&transcript_of(line, page.end()));
    }
    compare(&kept("serve.txt"), &found);
}

/// A script that records itself, without any framework.
const SCRIPT: &str = "
import paceline, sys
with paceline.Run('net', batch_size=8, data='digits') as run:
    for step in range(30):
        run.step(loss=1.0 / (step + 1))
print('trained')
sys.exit(int(sys.argv[1]))
";

#[test]
fn recorded_scripts_are_told_as_is_written_down() {
    let Some(python) = paceline_testing::python("json") else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("train.py"), SCRIPT).unwrap();
    fs::write(folder.join("other.py"), "print('nothing to train')\n").unwrap();
    let mut found = String::new();
    for line in [
        "$ paceline run -- python train.py 0",
        "$ paceline run --name resnet18 -- python train.py 3",
        "$ paceline run -- python other.py",
        "$ paceline run --quiet -- python train.py 0",
    ] {
        let words: Vec<&str> = line
            .split_whitespace()
            .skip(2)
            .map(|word| if word == "python" { python.to_str().unwrap() } else { word })
            .collect();
        found.push_str(&transcript(line, &run_in(folder, &words), folder));
    }
    compare(&kept("run.txt"), &found);
}

/// `TF_CONFIG` of one of three tasks.
fn config(ports: &[u16], role: &str) -> String {
    format!(
        r#"{{"cluster":{{"chief":["127.0.0.1:{}"],"ps":["127.0.0.1:{}"],"worker":["127.0.0.1:{}"]}},"task":{{"type":"{role}","index":0}}}}"#,
        ports[0], ports[1], ports[2]
    )
}

fn says(run: &mut Run, words: &str) {
    wait_for(words, || {
        assert!(run.child.try_wait().unwrap().is_none(), "ended early: {}", run.talk());
        run.talk().contains(words)
    });
}

/// Chief, server and worker of one job. Each starts when the chief says that it waits for that task alone or for it first.
fn tasks_of(line: &str, rows: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(3), key(&folder, "key"));
    let begin = |role: &str| {
        let environment = [("TF_CONFIG", config(&ports, role)), ("PACELINE_KEY_FILE", key.clone())];
        let out = tempfile::tempdir().unwrap();
        if let Some(rows) = rows {
            // One file for each worker.
            fs::write(out.path().join("a.svm"), rows).unwrap();
            fs::write(out.path().join("b.svm"), rows).unwrap();
        }
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        let mut command = command(&words);
        command.current_dir(out.path()).envs(environment);
        spawn(command, out)
    };
    let mut chief = begin("chief");
    says(&mut chief, "waiting for ps/0");
    let server = begin("ps");
    says(&mut chief, "ps/0 joined");
    let worker = begin("worker");
    let ended = [chief, server, worker].map(Run::end);
    let named = ["chief/0", "ps/0", "worker/0"].into_iter().zip(ended);
    named.map(|(task, ended)| format!("# {task}\n{}", transcript_of(line, ended))).collect()
}

#[test]
fn tasks_of_a_cluster_speak_as_is_written_down() {
    let mut found = tasks_of(
        "$ paceline node --model softmax --data generated:digits?examples=600 --strategy ps-sync --steps 30 --batch-size 20 --lr 0.1 --threads 1 --no-tensorboard --out runs",
        None,
    );
    let rows: String = (0..400).map(|at| format!("{} {}:1 5:0.5\n", at % 2, 1 + at % 2)).collect();
    found.push_str(&tasks_of(
        "$ paceline node --model sparse-logistic --data a.svm,b.svm --bits 10 --strategy ps-sync --batch-size 20 --epochs 1 --threads 1 --no-tensorboard --out runs",
        Some(&rows),
    ));
    // A task that never comes.
    let folder = tempfile::tempdir().unwrap();
    let line = "$ paceline node --model softmax --data generated:digits?examples=600 --strategy ps-sync --steps 30 --join-timeout 2s --out runs";
    let environment =
        [("TF_CONFIG", config(&ports(3), "chief")), ("PACELINE_KEY_FILE", key(&folder, "key"))];
    found.push_str(&transcript_of(line, start(line, &environment).end()));
    compare(&kept("node.txt"), &found);
}
