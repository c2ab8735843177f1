//! Whole runs on generated click logs: quality, determinism, resuming, streams, damage.

#![allow(clippy::unwrap_used)]

use paceline_data::rows::Input;
use paceline_prepare::synth::{ClicksOptions, ClicksWritten, write_clicks};
use paceline_runs::{Event, RunFolder, Status};
use paceline_testing::lateness::LatenessWatch;
use paceline_training::{
    Start, TrainError,
    rows::{
        Control, DataSpec, Metrics, Observer, RowsReport, RowsSpec, Silent, Window, learn, load,
        load_model, predict, resolve,
    },
};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

fn clicks(path: &Path, rows: u64, seed: u64) -> ClicksWritten {
    let options = ClicksOptions { rows, seed, vw: None, threads: 2 };
    write_clicks(path, &options, &|_| ()).unwrap()
}

fn spec(data: &Path) -> RowsSpec {
    let mut spec =
        RowsSpec::new(DataSpec::Read(data.to_str().unwrap().to_owned()), "adagrad").unwrap();
    spec.hashing.bits = 20;
    spec.tensorboard = false;
    spec.threads = Some(2);
    spec
}

fn run(spec: &RowsSpec, out: &Path) -> Result<RowsReport, TrainError> {
    let cancel = AtomicBool::new(false);
    let start = Start::New { out: out.to_owned() };
    learn(spec, &start, &Control { cancel: &cancel, observer: &Silent })
}

fn weights(out: &Path, report: &RowsReport) -> Vec<u8> {
    fs::read(resolve(&out.join(&report.summary.run)).unwrap().join("weights.safetensors")).unwrap()
}

#[test]
fn one_pass_beats_knowing_nothing_and_leaves_all_records() {
    let folder = tempfile::tempdir().unwrap();
    let (train, test) = (folder.path().join("a.tsv"), folder.path().join("b.tsv"));
    let written = clicks(&train, 60_000, 1);
    clicks(&test, 10_000, 2);
    let spec = RowsSpec {
        test: Some(test.to_str().unwrap().to_owned()),
        tensorboard: true,
        ..spec(&train)
    };
    let report = run(&spec, folder.path()).unwrap();
    let progressive = report.progressive;
    assert_eq!(progressive.rows, 60_000);
    assert!(progressive.loss < written.constant_loss - 0.02, "{progressive:?} {written:?}");
    assert!(progressive.loss > written.best_loss, "no model beats the true one");
    assert!(progressive.auc > 0.65 && progressive.normalised_entropy < 0.97, "{progressive:?}");
    let held_out = report.held_out.unwrap();
    assert!(held_out.loss < progressive.loss, "later weights are better: {held_out:?}");
    let run = RunFolder::open(&folder.path().join(&report.summary.run)).unwrap();
    assert_eq!(run.summary().unwrap().unwrap().examples, 60_000);
    let (events, _) = run.events().unwrap();
    let learned: u64 = events
        .iter()
        .filter_map(|record| match &record.event {
            Some(Event::Step(step)) => Some(step.examples),
            _ => None,
        })
        .sum();
    assert_eq!(learned, 60_000);
    assert!(events.iter().any(|record| matches!(record.event, Some(Event::Evaluation(_)))));
    assert!(run.tensorboard_path("worker/0").is_dir());
    assert!(!run.path().join("rejects.jsonl").exists());
}

#[test]
fn deterministic_runs_agree_to_the_bit_whatever_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 30_000, 1);
    for batch_size in [1, 64] {
        let mut seen = Vec::new();
        for threads in [1, 2, 3] {
            let spec =
                RowsSpec { threads: Some(threads), deterministic: true, batch_size, ..spec(&data) };
            let report = run(&spec, folder.path()).unwrap();
            seen.push((weights(folder.path(), &report), report.progressive.loss));
        }
        assert!(seen[0] == seen[1] && seen[0] == seen[2], "batch {batch_size}");
    }
}

#[test]
fn every_rule_and_lock_free_threads_learn() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    let written = clicks(&data, 40_000, 1);
    for rule in ["sgd", "adagrad", "ftrl"] {
        let defaults = RowsSpec::new(DataSpec::Read(String::new()), rule).unwrap();
        let spec = RowsSpec {
            optimizer: rule.to_owned(),
            learning_rate: defaults.learning_rate,
            threads: Some(4),
            ..spec(&data)
        };
        let report = run(&spec, folder.path()).unwrap();
        assert!(report.progressive.loss < written.constant_loss - 0.01, "{rule}: {report:?}");
    }
}

/// Stops a run after some rows.
struct StopAfter<'a>(&'a AtomicBool, u64);

impl Observer for StopAfter<'_> {
    fn progressed(&self, _: &Metrics, rows: u64, _: u64, _: f64) {
        if rows >= self.1 {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_run_that_was_stopped_goes_on_to_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..3).map(|n| folder.path().join(format!("{n}.tsv"))).collect();
    for (path, seed) in paths.iter().zip(1..) {
        clicks(path, 40_000, seed);
    }
    let list: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    let whole = RowsSpec {
        data: DataSpec::Read(list.join(",")),
        deterministic: true,
        epochs: 12, // long enough to be stopped in the middle, on any machine
        ..spec(&paths[0])
    };
    let straight = run(&whole, folder.path()).unwrap();
    assert_eq!(straight.summary.examples, 1_440_000);
    let cancel = AtomicBool::new(false);
    let observer = StopAfter(&cancel, 1);
    let start = Start::New { out: folder.path().to_owned() };
    let first = learn(&whole, &start, &Control { cancel: &cancel, observer: &observer }).unwrap();
    assert_eq!(first.summary.status, Status::Cancelled);
    assert!(first.summary.examples < 1_440_000, "stopped too late to show anything");
    let resumed = RunFolder::open(&folder.path().join(&first.summary.run)).unwrap();
    let cancel = AtomicBool::new(false);
    let control = Control { cancel: &cancel, observer: &Silent };
    let second = learn(&whole, &Start::Resume { run: resumed }, &control).unwrap();
    let legs: Vec<u64> = second.summary.legs.iter().map(|leg| leg.examples).collect();
    let rest = 1_440_000 - first.summary.examples;
    assert_eq!((second.summary.examples, legs), (1_440_000, vec![first.summary.examples, rest]));
    assert_eq!(second.summary.status, Status::Done);
    // Every row was judged once, whichever process learned from it.
    assert_eq!(second.progressive.rows, 1_440_000);
    assert!((second.progressive.loss - straight.progressive.loss).abs() < 1e-9);
    assert_eq!(second.progressive.auc, straight.progressive.auc);
    assert!(weights(folder.path(), &second) == weights(folder.path(), &straight));
    let checkpoint = load(&resolve(&folder.path().join(&second.summary.run)).unwrap()).unwrap();
    assert_eq!((checkpoint.rows, checkpoint.place.position.file), (1_440_000, 3));
}

#[test]
fn checkpoints_are_kept_pruned_and_refused_when_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 30_000, 1);
    let spec = RowsSpec { checkpoint_every: Some(5000), keep: 2, ..spec(&data) };
    let report = run(&spec, folder.path()).unwrap();
    let path = folder.path().join(&report.summary.run);
    let kept = paceline_training::rows::checkpoints(&path.join("checkpoints")).unwrap();
    assert_eq!(kept.len(), 2);
    assert_eq!(kept[1].step, 30_000);
    let (checkpoint, model) = load_model(&kept[1].path).unwrap();
    assert_eq!(checkpoint.rows, 30_000);
    assert!(
        (0..model.table().len()).filter(|&n| model.weight(n) != 0.0).count() as u64
            == report.nonzero
    );
    let file = kept[1].path.join("weights.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let error = load_model(&kept[1].path).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
    bytes.truncate(middle);
    fs::write(&file, &bytes).unwrap();
    assert!(load_model(&kept[1].path).unwrap_err().to_string().contains("bytes long"));
}

#[test]
fn predictions_are_one_line_for_each_line_in() {
    let folder = tempfile::tempdir().unwrap();
    let (train, test) = (folder.path().join("a.tsv"), folder.path().join("b.tsv"));
    clicks(&train, 20_000, 1);
    clicks(&test, 3_000, 2);
    let report = run(&spec(&train), folder.path()).unwrap();
    let path = resolve(&folder.path().join(&report.summary.run)).unwrap();
    let (checkpoint, model) = load_model(&path).unwrap();
    let text = fs::read_to_string(&test).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.insert(1000, "garbage");
    lines.insert(0, "garbage");
    lines.push("garbage");
    fs::write(&test, lines.join("\n")).unwrap();
    let mut out = Vec::new();
    let cancel = AtomicBool::new(false);
    let input = Input::Files(vec![test]);
    let predicted =
        predict(&model, input, None, checkpoint.spec.hashing, &mut out, &cancel).unwrap();
    assert_eq!((predicted.rows, predicted.rejected), (3000, 3));
    assert!(predicted.metrics.unwrap().auc > 0.6);
    let out = String::from_utf8(out).unwrap();
    let found: Vec<&str> = out.lines().collect();
    assert_eq!(found.len(), 3003);
    for (at, line) in found.iter().enumerate() {
        let value: f64 = line.parse().unwrap();
        assert_eq!(value.is_nan(), lines[at] == "garbage", "line {at}");
        assert!(value.is_nan() || (0.0..=1.0).contains(&value));
    }
}

#[test]
fn malformed_lines_are_counted_and_stop_the_run_past_a_budget() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 5_000, 1);
    let mut text = fs::read(&data).unwrap();
    for n in 0..20 {
        text.extend(format!("garbage {n}\n").into_bytes());
    }
    fs::write(&data, &text).unwrap();
    let report = run(&spec(&data), folder.path()).unwrap();
    assert_eq!((report.rejected, report.progressive.rows), (20, 5000));
    let rejects = folder.path().join(&report.summary.run).join("rejects.jsonl");
    assert_eq!(fs::read_to_string(rejects).unwrap().lines().count(), 20);
    let strict = RowsSpec { max_rejects: 0.001, ..spec(&data) };
    let error = run(&strict, folder.path()).unwrap_err().to_string();
    assert!(error.contains("20 of 5020 lines"), "{error}");
}

#[test]
fn a_log_that_grows_is_learned_from_until_it_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let (full, log) = (folder.path().join("full.tsv"), folder.path().join("x.log"));
    clicks(&full, 4_000, 1);
    let text = fs::read_to_string(&full).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for window in [Window::None, Window::Rows(500), Window::Seconds(0.05)] {
        let _ = fs::remove_file(&log);
        let follow = RowsSpec { data: DataSpec::Follow(log.clone()), window, ..spec(&full) };
        let cancel = AtomicBool::new(false);
        let seen = std::sync::atomic::AtomicU64::new(0);
        let watcher = Seen(&seen);
        let lateness = LatenessWatch::start();
        let report = std::thread::scope(|scope| {
            let start = Start::New { out: folder.path().to_owned() };
            let (follow, cancel, watcher) = (&follow, &cancel, &watcher);
            let learner =
                scope.spawn(move || learn(follow, &start, &Control { cancel, observer: watcher }));
            for (number, chunk) in (1..).zip(lines.chunks(1000)) {
                let mut file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
                writeln!(file, "{}", chunk.join("\n")).unwrap();
                let begun = Instant::now();
                while seen.load(Ordering::Relaxed) < 1000 * number {
                    assert!(begun.elapsed() < paceline_testing::HANG, "{window:?}: no rows come");
                    std::thread::sleep(Duration::from_millis(5));
                }
                fs::rename(&log, folder.path().join("x.log.1")).unwrap(); // rotated each time
            }
            cancel.store(true, Ordering::Relaxed);
            learner.join().unwrap().unwrap()
        });
        assert_eq!(report.progressive.rows, 4000, "{window:?}");
        assert_eq!(report.summary.status, Status::Cancelled);
        // From a row's arrival until it was learned from, in the mean.
        assert!(report.delay[0] < 10.0 + lateness.late(0.0, f64::MAX), "{:?}", report.delay);
    }
}

struct Seen<'a>(&'a std::sync::atomic::AtomicU64);

impl Observer for Seen<'_> {
    fn progressed(&self, _: &Metrics, rows: u64, _: u64, _: f64) {
        self.0.store(rows, Ordering::Relaxed);
    }
}

#[test]
fn training_stops_at_the_loss_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (train, test) = (folder.path().join("a.tsv"), folder.path().join("b.tsv"));
    clicks(&train, 50_000, 1);
    clicks(&test, 500, 2);
    let spec = RowsSpec {
        test: Some(test.to_str().unwrap().to_owned()),
        until_loss: Some(0.53),
        eval_every: Some(1000),
        epochs: 50,
        ..spec(&train)
    };
    let report = run(&spec, folder.path()).unwrap();
    assert!(report.summary.examples < 2_500_000, "it went on to the end");
    let reached = report.summary.reached.unwrap();
    assert_eq!(reached.loss, 0.53);
}

#[test]
fn other_formats_and_packed_files_are_learned_from_alike() {
    let Some(folder) = paceline_testing::real_data("libsvm") else { return };
    let out = tempfile::tempdir().unwrap();
    let mut spec = spec(&folder.join("a9a.gz"));
    spec.test = Some(folder.join("a9a.t.gz").to_str().unwrap().to_owned());
    spec.hashing.bits = 10;
    spec.epochs = 2;
    let report = run(&spec, out.path()).unwrap();
    let held_out = report.held_out.unwrap();
    // Logistic regression reaches 0.32 nats and 85 % on this set.
    assert!(held_out.loss < 0.34 && held_out.accuracy > 0.84, "{held_out:?}");
    assert!(held_out.auc > 0.89, "{held_out:?}");
}

#[test]
fn wrong_settings_and_missing_files_are_named_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 100, 1);
    let out = folder.path().join("runs");
    for (bad, word) in [
        (RowsSpec { batch_size: 0, ..spec(&data) }, "batch size"),
        (RowsSpec { learning_rate: f32::NAN, ..spec(&data) }, "learning rate"),
        (RowsSpec { test: Some("/nowhere".to_owned()), ..spec(&data) }, "/nowhere"),
        (RowsSpec { data: DataSpec::Read("/nowhere".to_owned()), ..spec(&data) }, "/nowhere"),
        (RowsSpec { max_rejects: 2.0, ..spec(&data) }, "rejects"),
        (RowsSpec { until_loss: Some(0.1), ..spec(&data) }, "held-out"),
        (RowsSpec { window: Window::Seconds(-1.0), ..spec(&data) }, "window"),
        (RowsSpec { epochs: 2, data: DataSpec::Read("-".to_owned()), ..spec(&data) }, "epochs"),
    ] {
        let error = run(&bad, &out).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(!out.exists());
    let mut bits = spec(&data);
    bits.hashing.bits = 40;
    assert!(run(&bits, &out).is_err());
    fs::write(&data, "").unwrap();
    assert!(run(&spec(&data), &out).unwrap_err().to_string().contains("no row"));
}
