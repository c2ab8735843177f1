//! `paceline train` as a real process: results, signals, `kill -9`, full disks, hints.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_testing::SmallDisk;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::{command, json, program, run, run_in, said};

const DIGITS: &str = "generated:digits?examples=600";

/// The one run folder under `out`, once it is there.
fn only_run(out: &Path) -> Option<PathBuf> {
    let mut runs = fs::read_dir(out).ok()?.map(|entry| entry.unwrap().path());
    let first = runs.next()?;
    assert!(runs.next().is_none(), "more than one run");
    first.join("plan.json").exists().then_some(first)
}

/// Step of the latest committed checkpoint.
fn committed(run: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(run.join("checkpoints")) else { return 0 };
    let names = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    names.max().unwrap_or(0)
}

fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < paceline_testing::HANG, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn json_is_the_contract_and_nothing_else_is_on_stdout() {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().to_str().unwrap();
    let summary = json(&run(&[
        "train",
        "--model",
        "softmax",
        "--data",
        DIGITS,
        "--epochs",
        "3",
        "--batch-size",
        "20",
        "--lr",
        "0.1",
        "--seed",
        "3",
        "--out",
        out,
        "--json",
    ]));
    assert_eq!(
        (&summary["model"], &summary["strategy"]),
        (&"softmax".into(), &"one-device".into())
    );
    assert_eq!((&summary["global_steps"], &summary["examples"]), (&90.into(), &1800.into()));
    assert!(summary["final"]["test_accuracy"].as_f64().unwrap() > 0.5, "{summary}");
    let shares: f64 = ["input", "compute", "exchange", "wait"]
        .iter()
        .map(|phase| summary["phases"][phase].as_f64().unwrap())
        .sum();
    assert!((shares - 1.0).abs() < 1e-6);
    let listed = json(&run(&["runs", "--runs", out, "--json"]));
    assert_eq!(listed[0]["run"], summary["run"]);
    assert_eq!(listed[0]["status"], "done");
    let name = summary["run"].as_str().unwrap();
    let compared = run(&["runs", name, name, "--runs", out]);
    let text = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(text.contains("(1.00x)") && text.contains("verdict"), "{text}");
    let file = Path::new(out).join("weights.safetensors");
    let exported = json(&run(&["export", name, file.to_str().unwrap(), "--runs", out, "--json"]));
    assert_eq!(exported["model"], "softmax");
    assert!(file.metadata().unwrap().len() > 4 * 7_850);
    // What was exported can be started from.
    let again = run(&[
        "train",
        "--model",
        "softmax",
        "--data",
        DIGITS,
        "--steps",
        "1",
        "--lr",
        "0.000001",
        "--init",
        file.to_str().unwrap(),
        "--out",
        out,
        "--json",
    ]);
    let accuracy = |summary: &Value| summary["final"]["test_accuracy"].as_f64().unwrap();
    assert!((accuracy(&json(&again)) - accuracy(&summary)).abs() < 0.05);
}

#[test]
fn mirrored_agrees_with_one_device() {
    let out = tempfile::tempdir().unwrap();
    let train = |strategy: &str| {
        json(&run(&[
            "train",
            "--model",
            "softmax",
            "--data",
            DIGITS,
            "--epochs",
            "2",
            "--batch-size",
            "30",
            "--lr",
            "0.1",
            "--threads",
            "2",
            "--strategy",
            strategy,
            "--json",
            "--out",
            out.path().to_str().unwrap(),
        ]))
    };
    let (alone, mirrored) = (train("one-device"), train("mirrored"));
    let loss = |summary: &Value| summary["final"]["test_loss"].as_f64().unwrap();
    assert!((loss(&alone) - loss(&mirrored)).abs() < 1e-4, "{alone} {mirrored}");
    assert_eq!(mirrored["workers"].as_array().unwrap().len(), 2);
}

#[test]
fn signals_end_a_run_with_checkpoint_summary_and_the_right_code() {
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let out = tempfile::tempdir().unwrap();
        let mut child = command(&[
            "train",
            "--model",
            "softmax",
            "--data",
            DIGITS,
            "--steps",
            "100000000",
            "--quiet",
            "--out",
            out.path().to_str().unwrap(),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
        wait_for("the first event", || {
            only_run(out.path()).is_some_and(|run| {
                fs::read_to_string(run.join("events-worker-0.jsonl"))
                    .is_ok_and(|text| text.contains("\"step\""))
            })
        });
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let run = only_run(out.path()).unwrap();
        let summary: Value =
            serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
        assert_eq!(summary["status"], "cancelled");
        assert_eq!(summary["global_steps"], committed(&run));
    }
}

/// A hundred times killed and resumed, the run must end with the very bits of one that was left in
/// peace, and never start from before a checkpoint that was seen committed.
#[test]
fn kill_nine_at_a_hundred_moments_loses_no_committed_checkpoint() {
    let out = tempfile::tempdir().unwrap();
    let killed = out.path().join("killed");
    let new = [
        "train",
        "--model",
        "softmax",
        "--data",
        "generated:digits?examples=100",
        "--batch-size",
        "7",
        "--lr",
        "0.01",
        "--optimizer",
        "momentum",
        "--threads",
        "1",
        "--eval-every",
        "1000000",
        "--checkpoint-every",
        "5",
        "--keep",
        "2",
        "--quiet",
        "--steps",
        "1000000000",
        "--out",
    ];
    let mut rng = 0x2545_f491_4f6c_dd1d_u64;
    let mut kills = 0;
    let mut most_seen = 0;
    let mut log = 0;
    while kills < 100 {
        let existing = only_run(&killed);
        let mut child = match &existing {
            None => command(&new).arg(&killed).stderr(Stdio::piped()).spawn().unwrap(),
            Some(run) => {
                let resume = ["train", "--quiet", "--resume", run.to_str().unwrap()];
                command(&resume).stderr(Stdio::piped()).spawn().unwrap()
            }
        };
        // The process is under way once its log has grown; then some random microseconds.
        let grown = |run: Option<PathBuf>| {
            let size = run.and_then(|run| fs::metadata(run.join("events-worker-0.jsonl")).ok());
            size.map_or(0, |file| file.len())
        };
        wait_for("the run to start", || {
            grown(only_run(&killed)) > log || child.try_wait().unwrap().is_some()
        });
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        // Until there is a first checkpoint to lose, the moments reach further.
        let latest = if most_seen == 0 { 400_000 } else { 40_000 };
        std::thread::sleep(Duration::from_micros(rng % latest));
        let run = only_run(&killed).unwrap();
        let seen = committed(&run);
        child.kill().unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!said.contains("damaged"), "after {kills} kills: {said}");
        // A run killed before its first checkpoint has nothing to resume; it restarts from the beginning.
        if said.contains("no usable checkpoint") {
            assert_eq!(most_seen, 0, "a committed checkpoint was lost: {said}");
            fs::remove_dir_all(&killed).unwrap();
            log = 0;
            continue;
        }
        let after = committed(&run);
        assert!(after >= seen && seen >= most_seen, "{after} after {seen} after {most_seen}");
        most_seen = after;
        log = fs::metadata(run.join("events-worker-0.jsonl")).unwrap().len();
        kills += 1;
    }
    assert!(most_seen > 0, "no checkpoint in a hundred starts");
    let run = only_run(&killed).unwrap();
    let steps = (most_seen + 10).to_string();
    let resumed = command(&["train", "--quiet", "--resume"])
        .arg(&run)
        .args(["--steps", &steps])
        .output()
        .unwrap();
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    let peace = out.path().join("peace");
    let mut undisturbed = new.to_vec();
    undisturbed[21] = &steps;
    assert_eq!(new[20], "--steps");
    assert!(command(&undisturbed).arg(&peace).status().unwrap().success());
    let weights = |run: &Path| {
        let folder = run.join(format!("checkpoints/{:010}", steps.parse::<u64>().unwrap()));
        ["weights.safetensors", "optimizer.safetensors"]
            .map(|name| fs::read(folder.join(name)).unwrap())
    };
    assert!(weights(&run) == weights(&only_run(&peace).unwrap()), "the bits differ");
}

#[test]
fn a_full_disk_is_said_and_training_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let Some(_mount) = SmallDisk::mount(&disk, "1m") else { return };
    let out = disk.join("runs");
    let mut child = command(&[
        "train",
        "--model",
        "softmax",
        "--data",
        DIGITS,
        "--steps",
        "20000",
        "--checkpoint-every",
        "50",
        "--eval-every",
        "1000000",
        "--no-tensorboard",
        "--json",
        "--out",
        out.to_str().unwrap(),
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    wait_for("a checkpoint", || only_run(&out).is_some_and(|run| committed(&run) > 0));
    let filler = disk.join("filler");
    // Writes until nothing fits any more.
    let full = fs::write(&filler, vec![0u8; 1 << 20]).is_err();
    assert!(full);
    let run = only_run(&out).unwrap();
    let before = committed(&run);
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let refused = talk.find(|line| line.contains("cannot write checkpoint"));
    assert!(committed(&run) > 0, "the old checkpoint is still there, {before}");
    fs::remove_file(&filler).unwrap();
    let rest = std::thread::spawn(move || talk.collect::<Vec<String>>());
    let output = child.wait_with_output().unwrap();
    let summary = json(&output);
    assert_eq!(summary["global_steps"], 20_000);
    let refused = refused.expect("a word about it");
    let rest = rest.join().unwrap();
    assert!(refused.contains("No space left"), "{refused}\n{rest:?}");
    assert_eq!(committed(&run), 20_000);
}

/// It was known from made-up evidence only. Which program the waiting is blamed on depends on what else the machine does; that
/// there are more threads than cores does not.
#[test]
fn more_threads_than_cores_are_said() {
    let out = tempfile::tempdir().unwrap();
    let words = ["train", "--model", "lenet", "--data", DIGITS, "--threads", "8", "--steps"];
    let mut command = Command::new("taskset");
    command.args(["-c", "0", program()]).args(words);
    command.args(["100000000", "--batch-size", "256", "--no-tensorboard", "--json", "--out"]);
    command.arg(out.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let limits = ["more threads than cores", "short of cores"];
    wait_for("the verdict to say so", || {
        let listed = run(&["runs", "--runs", out.path().to_str().unwrap(), "--json"]);
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        limits.iter().any(|limit| text.contains(limit))
    });
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let evidence = summary["diagnosis"]["evidence"].to_string();
    let verdict = summary["verdict"].as_str().unwrap();
    assert!(evidence.contains("8 threads share 1 core\""), "{summary}");
    assert!(limits.iter().any(|limit| verdict.contains(limit)), "{summary}");
}

#[test]
fn wrong_calls_get_a_hint_and_exit_2() {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().to_str().unwrap();
    for (args, words) in [
        (vec!["train", "--model", "softmax", "--data", DIGITS], vec!["when to stop", "--epochs"]),
        (
            vec!["train", "--resume", "--lr", "0.1"],
            vec!["`--lr` cannot change when a run is resumed", "start a new run"],
        ),
        (vec!["train", "--model", "softmax"], vec!["--data"]),
    ] {
        let output = run(&[&args[..], &["--out", out]].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    for (args, code, words) in [
        (vec!["--model", "softmx", "--data", DIGITS, "--steps", "1"], 2, vec!["softmx", "softmax"]),
        (
            vec![
                "--model",
                "lenet",
                "--data",
                "generated:images?size=8&classes=3&examples=9",
                "--batch-size",
                "3",
                "--steps",
                "1",
            ],
            2,
            vec!["lenet", "8x8x3"],
        ),
        (
            vec!["--model", "softmax", "--data", DIGITS, "--steps", "1", "--batch-size", "601"],
            2,
            vec!["601", "600", "hint"],
        ),
        (vec!["--model", "softmax", "--data", "/nowhere", "--steps", "1"], 1, vec!["/nowhere"]),
        (vec!["--resume"], 1, vec!["no run", "hint"]),
    ] {
        let output = run(&[&["train"], &args[..], &["--out", out]].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

/// The well-known accuracy on the real digits.
#[test]
fn softmax_reaches_90_percent_on_mnist_in_ten_epochs() {
    let Some(mnist) = paceline_testing::real_data("mnist") else { return };
    let out = tempfile::tempdir().unwrap();
    let summary = json(&run(&[
        "train",
        "--model",
        "softmax",
        "--data",
        mnist.to_str().unwrap(),
        "--epochs",
        "10",
        "--batch-size",
        "100",
        "--lr",
        "0.01",
        "--json",
        "--out",
        out.path().to_str().unwrap(),
    ]));
    let accuracy = summary["final"]["test_accuracy"].as_f64().unwrap();
    assert!(accuracy >= 0.9, "{accuracy}");
    assert_eq!(summary["global_steps"], 6_000);
}

#[test]
fn data_that_cannot_be_generated_is_wrong_usage() {
    for data in ["generated:digits?examples=0", "generated:digits?colour=1", "generated:nothing"] {
        let call = ["train", "--model", "softmax", "--data", data, "--steps", "1"];
        let folder = tempfile::tempdir().unwrap();
        let output = run_in(folder.path(), &call);
        assert_eq!(output.status.code(), Some(2), "{data}: {}", said(&output));
        assert!(!folder.path().join("runs").exists());
    }
}
