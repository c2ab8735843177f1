//! `--engine spark` on a real Spark: the same bytes as one process, whatever dies, fails or runs twice.
#![allow(clippy::unwrap_used)] // also in functions that tests share

#[path = "support/spark.rs"]
mod spark;
mod support;

use serde_json::Value;
use spark::{Cluster, HOSTS, signal};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{json, paceline, program, said};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Photos in class folders, some of them broken.
fn photos(folder: &Path, bad: &str) -> PathBuf {
    let photos = folder.join("photos");
    let args = ["-q", "data", "synth", "photos", text(&photos), "--per-class", "10", "--bad", bad];
    let made = paceline().args(args).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    photos
}

/// What `--engine local` makes of them.
fn local(folder: &Path, photos: &Path) -> BTreeMap<String, Vec<u8>> {
    let dst = folder.join("local");
    let made = paceline().args(prepare(photos, &dst)).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    snapshot(&dst)
}

fn prepare<'a>(photos: &'a Path, dst: &'a Path) -> [&'a str; 11] {
    let (photos, dst) = (text(photos), text(dst));
    let split = "validation=0.2";
    [
        "--json", "prepare", photos, dst, "--shards", "8", "--size", "48", "--split", split,
        "--seed=3",
    ]
}

fn snapshot(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    files
        .map(|file| {
            (
                file.file_name().into_string().unwrap(),
                std::fs::read(file.path()).unwrap_or_default(),
            )
        })
        .collect()
}

fn assert_same(wanted: &BTreeMap<String, Vec<u8>>, dst: &Path) {
    let found = snapshot(dst);
    assert_eq!(wanted.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (name, bytes) in wanted {
        assert!(*bytes == found[name], "`{name}` differs");
    }
}

/// A script in place of the shipped binary, which it calls in its own way.
fn wrapper(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("wrapper.sh");
    let real = program();
    let script = format!("#!/bin/sh\nreal={real}\nnotes={}\n{script}", folder.display());
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_cluster_makes_the_same_bytes_whatever_dies_or_runs_twice() {
    let Some(cluster) = Cluster::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), "1");
    let wanted = local(dir.path(), &photos);
    undisturbed(&cluster, dir.path(), &photos, &wanted);
    first_attempt_fails_and_another_runs_twice(&cluster, dir.path(), &photos, &wanted);
    executor_is_killed(&cluster, dir.path(), &photos, &wanted);
    no_room(&cluster, dir.path(), &photos);
    cells_of_a_sweep(&cluster, dir.path());
    a_cell_ends_with_its_executor(&cluster, dir.path());
    training(&cluster, dir.path());
    a_member_that_fails_ends_training(&cluster, dir.path());
    more_members_than_slots(&cluster, dir.path());
    products_of_matrices(&cluster, dir.path());
}

/// Workers of a product are tasks of Spark, and their sum has the bits of one process.
fn products_of_matrices(cluster: &Cluster, folder: &Path) {
    let state = folder.join("product.json");
    let flags = ["--json", "matmul", "--size", "400", "--block", "100", "--state", text(&state)];
    let alone = json(&paceline().args(flags).output().unwrap());
    let mut spread = cluster.paceline(&flags);
    let spread = spread.args(["--workers", "2", "--placement", "columns"]).output().unwrap();
    let found = json(&spread);
    assert_eq!(found["trace"], alone["trace"], "{}", said(&spread));
    assert_eq!(found["moved_bytes"], found["moved_bytes_by_placement"]["columns"], "{found}");
    let hosts: BTreeSet<&str> = found["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["task"].as_str().unwrap())
        .collect();
    assert_eq!(hosts.len(), 2, "{found}");
    assert!(said(&spread).contains("worker/1 ran on"), "{}", said(&spread));
}

/// Every cell is a task, a failure is a row like any other, and nothing is run twice.
fn cells_of_a_sweep(cluster: &Cluster, folder: &Path) {
    let out = folder.join("sweep");
    let flags = ["--json", "sweep", "--out", text(&out), "--vary", "batch-size=10,20,100000"];
    let data = "generated:digits?examples=300";
    let train = ["--", "train", "--model", "softmax", "--no-tensorboard", "--steps", "2"];
    let command = [&train[..], &["--data", data]].concat();
    let first = cluster.paceline(&flags).args(&command).output().unwrap();
    let words = said(&first);
    assert_eq!(first.status.code(), Some(1), "a cell failed: {words}");
    assert!(words.contains("3 pieces of work in 3 tasks on"), "{words}");
    let rows = || -> Vec<Value> {
        let journal = std::fs::read_to_string(out.join("sweep.jsonl")).unwrap();
        journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(rows().len(), 3);
    for row in rows() {
        assert!(!row["host"].as_str().unwrap().is_empty(), "{row}");
        // More than there are examples, which only the cell finds out.
        let bad = row["settings"][0][1].to_string().contains("100000");
        assert_eq!(row["failure"].is_object(), bad, "{row}");
        assert!(bad || row["output"]["status"] == "done", "{row}");
    }
    let page = std::fs::read_to_string(out.join("sweep.html")).unwrap();
    assert!(page.contains("Measured by tasks of an engine on"), "the page says where");
    // The journal has everything: Spark is not even looked for.
    let mut again = paceline();
    again.args(flags).args(["--engine", "spark", "--spark-submit", "/nowhere"]).args(&command);
    let again = again.output().unwrap();
    assert!(said(&again).contains("3 of 3 cells were there already"), "{}", said(&again));
    assert_eq!(rows().len(), 3);
}

/// Processes whose command line names a path, Spark's own aside.
fn processes_with(path: &Path) -> BTreeSet<u32> {
    let folders = std::fs::read_dir("/proc").unwrap().flatten();
    let named = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text(path))
    };
    folders.filter(named).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn comes_true(mut done: impl FnMut() -> bool) -> bool {
    let since = Instant::now();
    while !done() {
        if since.elapsed() > paceline_testing::HANG {
            return false;
        }
        sleep(Duration::from_millis(20));
    }
    true
}

/// What a task has started ends when Spark ends the task: it would disturb the next attempt, for hours.
fn a_cell_ends_with_its_executor(cluster: &Cluster, folder: &Path) {
    let out = folder.join("sweep-killed");
    let flags = ["--json", "sweep", "--out", text(&out), "--vary", "strategy=multi-worker"];
    let data = "generated:digits?examples=300";
    let command = ["--", "train", "--model", "softmax", "--no-tensorboard", "--data", data];
    let mut sweep = cluster.paceline(&flags);
    sweep.args(command).args(["--workers", "2", "--steps", "1000000000"]);
    let mut sweep = sweep.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let cells = || -> BTreeSet<u32> {
        processes_with(&out.join("cells")).into_iter().filter(|pid| *pid != sweep.id()).collect()
    };
    assert!(comes_true(|| !cells().is_empty()), "no cell was begun");
    let begun = cells();
    for executor in HOSTS.iter().flat_map(|host| cluster.executors(host)) {
        signal(executor, "KILL");
    }
    assert!(comes_true(|| cells().is_disjoint(&begun)), "a cell goes on without its task");
    signal(sweep.id(), "TERM");
    assert!(!sweep.wait().unwrap().success());
    assert!(comes_true(|| processes_with(&out.join("cells")).is_empty()), "a cell goes on");
}

const TRAIN: [&str; 15] = [
    "--json",
    "train",
    "--model",
    "softmax",
    "--data",
    "generated:digits?examples=600",
    "--strategy",
    "multi-worker",
    "--steps",
    "20",
    "--batch-size",
    "20",
    "--seed=5",
    "--no-tensorboard",
    "--out",
];

/// A barrier stage trains what local processes train.
fn training(cluster: &Cluster, folder: &Path) {
    let (spark, local) = (folder.join("runs-spark"), folder.join("runs-local"));
    let here = paceline().args(TRAIN).arg(&local).args(["--workers", "2"]).output().unwrap();
    let args = [&TRAIN[..], &[text(&spark), "--workers", "2"]].concat();
    let there = cluster.paceline(&args).output().unwrap();
    let (here, there) = (json(&here), json(&there));
    assert_eq!(there["status"], "done", "{there}");
    assert_eq!(there["workers"].as_array().unwrap().len(), 2);
    for part in ["global_steps", "examples", "final"] {
        assert_eq!(here[part], there[part], "{part}: the same steps on the same examples");
    }
    assert!(spark.join(there["run"].as_str().unwrap()).join("summary.json").is_file());
}

fn a_member_that_fails_ends_training(cluster: &Cluster, folder: &Path) {
    let notes = folder.join("member");
    std::fs::create_dir(&notes).unwrap();
    let failure = r#"{"error": "worker 1 does not feel well", "exit": 1}"#;
    let script = format!(
        "case \"$TF_CONFIG\" in *'\"index\": 1'*) echo '{failure}'; exit 1;; esac\nexec \"$real\" \"$@\"\n"
    );
    let binary = wrapper(&notes, &script);
    let out = folder.join("runs-failed");
    let args = [&TRAIN[..], &[text(&out), "--workers", "2"]].concat();
    let output = cluster.paceline(&args).arg("--spark-binary").arg(&binary).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("(worker/1) failed: worker 1 does not feel well"), "{said}");
    assert!(!said.contains("Traceback") && !said.contains("\tat "), "{said}");
}

fn more_members_than_slots(cluster: &Cluster, folder: &Path) {
    let out = folder.join("runs-none");
    let args = [&TRAIN[..], &[text(&out), "--workers", "3", "--spark-wait", "45"]].concat();
    let output = cluster.paceline(&args).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(said.contains("3 tasks must run at the same time, and Spark has room for"), "{said}");
    assert!(!out.exists(), "no run is begun");
}

fn undisturbed(
    cluster: &Cluster,
    folder: &Path,
    photos: &Path,
    wanted: &BTreeMap<String, Vec<u8>>,
) {
    let dst = folder.join("undisturbed");
    let output = cluster.paceline(&prepare(photos, &dst)).output().unwrap();
    let document = json(&output);
    assert_same(wanted, &dst);
    assert!(said(&output).contains("tasks (chosen from the cores"), "{}", said(&output));
    let engine = &document["engine"];
    assert_eq!((&engine["name"], &engine["cores"]), (&"spark".into(), &2.into()));
    let tasks = engine["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 6, "three for each of two cores");
    let executors: BTreeSet<_> = tasks.iter().map(|task| task["executor"].as_str()).collect();
    assert_eq!(executors.len(), 2, "{engine}");
    assert!(tasks.iter().all(|task| !task["host"].as_str().unwrap().is_empty()));
    assert!(engine["startup_seconds"].as_f64().unwrap() > 0.0);
    // All done: no Spark is started for nothing.
    let again = cluster.paceline(&prepare(photos, &dst)).output().unwrap();
    assert_eq!(json(&again)["converted"], 0);
}

/// The first call fails. The second hangs, so that Spark starts its task once more, and a detached copy of it goes on
/// behind Spark's back: it tries to commit the same shards at some moment later.
fn first_attempt_fails_and_another_runs_twice(
    cluster: &Cluster,
    folder: &Path,
    photos: &Path,
    wanted: &BTreeMap<String, Vec<u8>>,
) {
    let notes = folder.join("twice");
    std::fs::create_dir(&notes).unwrap();
    let script = r#"
mktemp "$notes/call-XXXXXX" > "$notes/latest"
if mkdir "$notes/failed" 2> "$notes/ignored"; then
    echo '{"error": "an injected failure"}'; exit 1
fi
if mkdir "$notes/slow" 2> "$notes/ignored"; then
    cat > "$notes/input"
    (setsid sh -c 'sleep 2; "$0" "$@" < "$input" > "$output" 2>&1; echo $? > "$output.code"' "$real" "$@" &)
    exec sleep 300
fi
exec "$real" "$@"
"#;
    let script = script.replace("(setsid", "(input=\"$notes/input\" output=\"$notes/late\" setsid");
    let binary = wrapper(&notes, &script);
    let dst = folder.join("target-twice");
    let mut command = cluster.paceline(&prepare(photos, &dst));
    command.arg("--spark-binary").arg(&binary).args(["--partitions", "8"]);
    for conf in [
        "spark.speculation=true",
        "spark.speculation.interval=100ms",
        "spark.speculation.quantile=0.3",
        "spark.speculation.multiplier=1.1",
        "spark.speculation.minTaskRuntime=100ms",
    ] {
        command.args(["--spark-conf", conf]);
    }
    let output = command.output().unwrap();
    let document = json(&output);
    assert_same(wanted, &dst);
    assert!(said(&output).contains("more than one attempt"), "{}", said(&output));
    let calls = std::fs::read_dir(&notes).unwrap().flatten();
    let calls =
        calls.filter(|file| file.file_name().to_str().unwrap().starts_with("call-")).count();
    assert!(calls >= 10, "8 tasks, a failure and a duplicate: {calls} calls");
    let late = notes.join("late.code");
    let since = Instant::now();
    while !late.exists() && since.elapsed() < paceline_testing::HANG {
        sleep(Duration::from_millis(50));
    }
    assert!(late.exists(), "the detached attempt never ended; {document}");
    assert_same(wanted, &dst);
}

fn executor_is_killed(
    cluster: &Cluster,
    folder: &Path,
    photos: &Path,
    wanted: &BTreeMap<String, Vec<u8>>,
) {
    let notes = folder.join("killed");
    std::fs::create_dir(&notes).unwrap();
    // Slow enough to be hit.
    let binary = wrapper(&notes, "sleep 1\nexec \"$real\" \"$@\"\n");
    let dst = folder.join("target-killed");
    let child = cluster
        .paceline(&prepare(photos, &dst))
        .arg("--spark-binary")
        .arg(&binary)
        .args(["--partitions", "8"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let since = Instant::now();
    let reported = || {
        let notes = std::fs::read_dir(dst.join(".prepare")).into_iter().flatten().flatten();
        notes.filter(|note| note.file_name().to_str().unwrap().contains("-of-")).count()
    };
    while reported() == 0 && since.elapsed() < paceline_testing::HANG {
        sleep(Duration::from_millis(20));
    }
    let victims = cluster.executors(HOSTS[1]);
    assert_eq!(victims.len(), 1, "one executor on each worker");
    signal(victims[0], "KILL");
    let output = child.wait_with_output().unwrap();
    json(&output);
    assert_same(wanted, &dst);
}

fn no_room(cluster: &Cluster, folder: &Path, photos: &Path) {
    let dst = folder.join("target-none");
    let mut command = cluster.paceline(&prepare(photos, &dst));
    command.args(["--spark-wait", "2", "--spark-conf", "spark.executor.memory=512g"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(75), "{}", said(&output));
    assert!(said(&output).contains("gave no executor within 2 s"), "{}", said(&output));
    assert!(said(&output).contains("hint:"), "{}", said(&output));
}

#[test]
fn a_task_that_fails_for_good_speaks_in_our_words() {
    let Some(environment) = paceline_testing::spark() else { return };
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), "1");
    let failure = r#"{"error": "no `photo` here", "causes": ["the disk is gone"], "hint": "buy one", "exit": 1}"#;
    let binary = wrapper(dir.path(), &format!("cat > \"$notes/in\"\necho '{failure}'\nexit 1\n"));
    let dst = dir.path().join("dst");
    let mut command = spark::paceline(&environment, &prepare(&photos, &dst));
    command.args(["--spark-master", "local[1]"]).arg("--spark-binary").arg(&binary);
    let output = command.output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("failed: no `photo` here: the disk is gone"), "{said}");
    assert!(said.contains("hint: buy one"), "{said}");
    assert!(!said.contains("Traceback") && !said.contains("\tat "), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["hint"], "buy one");
    // What was begun can be finished without Spark.
    let finished = paceline().args(prepare(&photos, &dst)).output().unwrap();
    json(&finished);
    assert_same(&local(dir.path(), &photos), &dst);
}

#[test]
fn speed_is_measured_by_tasks_once_and_reported_as_usual() {
    let Some(environment) = paceline_testing::spark() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (photos, out) = (photos(dir.path(), "0"), dir.path().join("speed"));
    let args = ["--json", "speedtest", "--images", text(&photos), "--out", text(&out), "--size=32"];
    let args = [&args[..], &["--batch-size=1,2", "--batches=2,3", "--repeats=2"]].concat();
    let mut command = spark::paceline(&environment, &args);
    let output = command.args(["--spark-master", "local[2]"]).output().unwrap();
    let document = json(&output);
    assert!(said(&output).contains("4 pieces of work in 4 tasks"), "{}", said(&output));
    let samples = document["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 8);
    assert!(samples.iter().all(|sample| !sample["host"].as_str().unwrap().is_empty()));
    let orders: Vec<_> = samples.iter().map(|sample| sample["order"].as_u64().unwrap()).collect();
    assert_eq!(orders, (0..8).collect::<Vec<_>>());
    assert!(out.join("speedtest.html").is_file() && !out.join("cells").exists());
    // All is measured: the same call reports, and does not even start Spark.
    let again = paceline()
        .args(&args)
        .args(["--engine", "spark", "--spark-submit", "/nowhere"])
        .output()
        .unwrap();
    assert_eq!(json(&again)["samples"], document["samples"]);
}

#[test]
fn a_spark_that_cannot_be_started_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let photos = photos(dir.path(), "1");
    let dst = dir.path().join("dst");
    let call = |args: &[&str]| {
        let mut command = paceline();
        command.args(prepare(&photos, &dst)).args(args).output().unwrap()
    };
    let nowhere = call(&["--engine", "spark", "--spark-submit", "/nowhere/spark-submit"]);
    assert_eq!(nowhere.status.code(), Some(1), "{}", said(&nowhere));
    assert!(said(&nowhere).contains("cannot start `/nowhere/spark-submit`"), "{}", said(&nowhere));
    assert!(said(&nowhere).contains("--spark-submit"), "{}", said(&nowhere));
    let silent = call(&["--engine", "spark", "--spark-submit", "/bin/false"]);
    assert_eq!(silent.status.code(), Some(1));
    assert!(said(&silent).contains("ended (exit status: 1)"), "{}", said(&silent));
    let local = call(&["--partitions", "4"]);
    assert_eq!(local.status.code(), Some(2));
    assert!(said(&local).contains("add `--engine spark`"), "{}", said(&local));
}
