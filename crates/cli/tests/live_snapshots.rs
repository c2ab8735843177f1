//! What people read while processes are at work, word for word: the tour, the page's address, a recorded script, local runs, tasks
//! of a cluster, a job that a site's tools run.
//!
//! These are real runs, so what the machine decides is masked as well as figures: which verdict is given (its sentences are in
//! `snapshots/verdicts.txt`), how often a waiting task says so, and how far clocks are apart. `support/transcript.rs` says how to read
//! and renew the files.

#![allow(clippy::unwrap_used)]

mod cloud_support;
mod cluster_support;
#[path = "cluster_support/places.rs"]
mod places;
mod support;
#[path = "support/transcript.rs"]
mod transcript;

use cloud_support::{cloud, job_of, site, tool};
use cluster_support::{Ended, Run, signal, spawn, wait_for};
use places::{key, ports, workers};
use std::{fs, path::Path, process::Output};
use support::{command, json_in, run_in};
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

#[test]
fn local_runs_are_told_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..400).map(|at| format!("{} {}:1 5:0.5\n", at % 2, 1 + at % 2)).collect();
    fs::write(folder.path().join("rows.svm"), rows).unwrap();
    let dense = "train --model softmax --data generated:digits?examples=600 --steps 30 --batch-size 20 --lr 0.1 --threads 2 --no-tensorboard";
    let sparse = "train --model sparse-logistic --data rows.svm --bits 10 --batch-size 20 --epochs 1 --threads 1 --no-tensorboard";
    let mut found = String::new();
    for call in [
        dense.to_owned(),
        format!("{dense} --strategy mirrored --replicas 2"),
        format!("{dense} --strategy multi-worker --workers 2"),
        format!("{dense} --strategy ps-sync --workers 2 --ps 1"),
        format!("{dense} --quiet"),
        sparse.to_owned(),
        format!("{sparse} --test rows.svm --quiet"),
    ] {
        let words: Vec<&str> = call.split_whitespace().collect();
        let output = run_in(folder.path(), &words);
        found.push_str(&transcript(&format!("$ paceline {call}"), &output, folder.path()));
    }
    compare(&kept("train.txt"), &found);
}

/// What a task did is in a row of its own: the machine's name differs, and a short product ends before its processor time was read.
fn steady_nodes(text: &str) -> String {
    let rows = text.lines().map(|line| {
        let mut cells: Vec<&str> =
            line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect();
        match cells.as_mut_slice() {
            [task, host, _, _, _, _, _, cpu, _] if task.starts_with("worker/") => {
                (*host, *cpu) = ("HOST", "N %");
                cells.join("  ")
            }
            _ => line.to_owned(),
        }
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_product_of_several_tasks_is_told_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(2), key(&folder, "key"));
    let line = "$ paceline matmul --node --size 300 --block 70 --placement grid --threads 1";
    let begin = |number: usize| {
        let environment =
            [("TF_CONFIG", workers(&ports, "worker", number)), ("PACELINE_KEY_FILE", key.clone())];
        start(line, &environment)
    };
    let mut chief = begin(0);
    says(&mut chief, "waiting for worker/1");
    let other = begin(1);
    let mut found = String::new();
    for (task, run) in [("worker/0", chief), ("worker/1", other)] {
        let ended = run.end();
        let stdout = steady_nodes(&ended.stdout);
        found.push_str(&format!("# {task}\n{}", transcript_of(line, Ended { stdout, ..ended })));
    }
    compare(&kept("matmul.txt"), &found);
}

/// A site's tools are stand-ins here; what becomes of a job on each service is in `cloud.rs`, `cloud_services.rs` and `cloud_sites.rs`.
#[test]
fn a_job_on_a_cluster_is_followed_as_is_written_down() {
    let site = site();
    let here = site.path();
    let train = r#"["train", "--model", "softmax", "--data", "/data/digits", "--epochs", "1"]"#;
    job_of(here, train, &[("extra_nodes = 1", "max_nodes = 1")]);
    tool(here, "sbatch", "echo 4711");
    tool(here, "scontrol", "exit 1");
    tool(here, "squeue", "cat state 2>/dev/null");
    tool(here, "sacct", "echo COMPLETED");
    tool(here, "scancel", "echo CANCELLED > state");
    let mut found = String::new();
    let mut say = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut output = cloud(here, &words);
        // Each submission has a number of its own, by which it is found again.
        let talk = support::said(&output);
        let steady =
            |word| if str::starts_with(word, "--comment=") { "--comment=SUBMISSION" } else { word };
        let talk = talk.split(' ').map(steady);
        output.stderr = talk.collect::<Vec<_>>().join(" ").into();
        found.push_str(&transcript(&format!("$ paceline cloud {line}"), &output, here));
    };
    let submit =
        "submit job.toml --target slurm --nodes 2 --cores 8 --memory 16GiB --time-limit 2h --key k";
    say(submit);
    say(submit);
    for state in ["PENDING", "RUNNING", "FAILED"] {
        fs::write(here.join("state"), format!("{state}\n")).unwrap();
        say("status flowers");
    }
    say("fetch flowers runs --out here");
    fs::write(here.join("state"), "RUNNING\n").unwrap();
    say("stop flowers");
    say("status flowers");
    say("status nowhere");
    compare(&kept("cloud_jobs.txt"), &found);
}

/// The fingerprint is another each time.
#[test]
fn keys_are_told_as_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = String::new();
    for line in ["$ paceline key new", "$ paceline key check", "$ paceline key new"] {
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        let mut output = run_in(folder.path(), &words);
        let checked = json_in(folder.path(), &["key", "check", "--json"]);
        let fingerprint = checked["fingerprint"].as_str().unwrap();
        output.stdout =
            String::from_utf8(output.stdout).unwrap().replace(fingerprint, "FINGERPRINT").into();
        found.push_str(&transcript(line, &output, folder.path()));
    }
    compare(&kept("keys.txt"), &found);
}
