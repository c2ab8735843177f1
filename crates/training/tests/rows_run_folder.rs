//! Runs of sparse models whose folder is finished, owned by another, full, renamed or removed.

#![allow(clippy::unwrap_used)]

use paceline_prepare::synth::{ClicksOptions, write_clicks};
use paceline_runs::{Ownership, RunFolder, RunsError, Status};
use paceline_testing::contents;
use paceline_training::{
    Point, Start, TrainError,
    rows::{
        Control, DataSpec, Metrics, Observer, Plan, RowsReport, RowsSpec, Silent, checkpoints,
        learn, load_model, resolve,
    },
};
use std::{
    fs,
    path::Path,
    sync::{Mutex, atomic::AtomicBool},
};

fn clicks(path: &Path, rows: u64, seed: u64) {
    let options = ClicksOptions { rows, seed, vw: None, threads: 2 };
    write_clicks(path, &options, &|_| ()).unwrap();
}

fn spec(data: &Path) -> RowsSpec {
    let mut spec =
        RowsSpec::new(DataSpec::Read(data.to_str().unwrap().to_owned()), "adagrad").unwrap();
    spec.hashing.bits = 18;
    spec.tensorboard = false;
    spec.threads = Some(2);
    spec
}

fn go(spec: &RowsSpec, start: &Start, observer: &dyn Observer) -> Result<RowsReport, TrainError> {
    let cancel = AtomicBool::new(false);
    learn(spec, start, &Control { cancel: &cancel, observer })
}

fn run(spec: &RowsSpec, out: &Path) -> (RowsReport, RunFolder) {
    let report = go(spec, &Start::New { out: out.to_owned() }, &Silent).unwrap();
    let folder = RunFolder::open(&out.join(&report.summary.run)).unwrap();
    (report, folder)
}

fn resume(spec: &RowsSpec, run: &RunFolder) -> Result<RowsReport, TrainError> {
    go(spec, &Start::Resume { run: run.clone() }, &Silent)
}

#[test]
fn resuming_a_finished_run_says_so_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 5_000, 1);
    let (report, run) = run(&spec(&data), folder.path());
    let before = contents(run.path());
    let error = resume(&spec(&data), &run).unwrap_err();
    assert!(matches!(error, TrainError::Finished { at: Point::Rows(5_000), .. }), "{error}");
    assert!(contents(run.path()) == before, "something was changed");
    // More passes are something to do.
    let twice = RowsSpec { epochs: 2, ..spec(&data) };
    let longer = resume(&twice, &run).unwrap();
    assert_eq!((longer.summary.examples, longer.progressive.rows), (10_000, 10_000));
    assert_eq!(longer.summary.legs.len(), 2);
    assert_eq!(longer.summary.legs[0].examples, report.summary.examples);
    assert!(matches!(
        resume(&twice, &run),
        Err(TrainError::Finished { at: Point::Rows(10_000), .. })
    ));
}

#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl Observer for Warnings {
    fn warned(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

/// As runs on examples do; a damaged checkpoint used to end the run.
#[test]
fn a_damaged_checkpoint_is_passed_over_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 20_000, 1);
    let spec = RowsSpec { checkpoint_every: Some(5_000), deterministic: true, ..spec(&data) };
    let (whole, run) = run(&spec, folder.path());
    let kept = checkpoints(&run.checkpoints_path()).unwrap();
    let weights = kept[1].path.join("weights.safetensors");
    let good = fs::read(&weights).unwrap();
    let mut bytes = good.clone();
    let last = bytes.len() - 5;
    bytes[last] ^= 1;
    fs::write(&weights, bytes).unwrap();
    // What a process that was killed while it saved leaves behind.
    let half = run.checkpoints_path().join(".paceline-tmp-1-0123456789abcdef");
    fs::create_dir(&half).unwrap();
    run.remove_summary().unwrap();
    let observer = Warnings::default();
    let report = go(&spec, &Start::Resume { run }, &observer).unwrap();
    let warnings = observer.0.into_inner().unwrap().join("\n");
    assert!(warnings.contains(&format!("step {}", kept[1].step)), "{warnings}");
    assert!(warnings.contains("checksum"), "{warnings}");
    assert_eq!(report.progressive.rows, whole.progressive.rows, "every row once");
    assert!(fs::read(&weights).unwrap() == good, "the damaged one was replaced by a good one");
    assert!(!half.exists());
}

/// It was called damaged and passed over, so that the run went on from an older one.
#[test]
fn a_checkpoint_of_a_newer_format_ends_the_resume_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 20_000, 1);
    let spec = RowsSpec { checkpoint_every: Some(5_000), deterministic: true, ..spec(&data) };
    let (_, run) = run(&spec, folder.path());
    let kept = checkpoints(&run.checkpoints_path()).unwrap();
    assert!(kept.len() > 1, "there is an older one");
    run.remove_summary().unwrap();
    let manifest = kept.last().unwrap().path.join("manifest.json");
    let good = fs::read(&manifest).unwrap();
    fs::write(&manifest, r#"{"format": 3, "kind": "sparse", "program": "9.8.7"}"#).unwrap();
    let error = resume(&spec, &run).unwrap_err();
    assert!(matches!(error, TrainError::CheckpointNewer { found: 3, known: 1, .. }), "{error}");
    assert!(fs::read_to_string(&manifest).unwrap().contains("9.8.7"), "it was left alone");
    fs::write(&manifest, good).unwrap();
    resume(&spec, &run).unwrap();
}

#[test]
fn a_run_that_died_before_its_summary_gets_one_without_nan() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 5_000, 1);
    let (whole, run) = run(&spec(&data), folder.path());
    run.remove_summary().unwrap();
    let again = resume(&spec(&data), &run).unwrap();
    assert_eq!(again.progressive, whole.progressive);
    assert_eq!((again.summary.status, again.summary.examples), (Status::Done, 5_000));
    assert_eq!(again.summary.legs[0].status, None, "the first leg died");
}

#[test]
fn a_run_is_resumed_by_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 5_000, 1);
    let (_, run) = run(&spec(&data), folder.path());
    let twice = RowsSpec { epochs: 2, ..spec(&data) };
    let held = Ownership::take(&run).unwrap();
    let error = resume(&twice, &run).unwrap_err();
    assert!(matches!(error, TrainError::Runs(RunsError::Owned { .. })), "{error}");
    drop(held);
    assert_eq!(resume(&twice, &run).unwrap().summary.examples, 10_000);
}

/// Does something to the run's folder once, at the start or when rows have been learned from.
struct Hand<F: Fn(&Path)> {
    at_start: bool,
    act: F,
    run: Mutex<Option<RunFolder>>,
    acted: AtomicBool,
}

impl<F: Fn(&Path)> Hand<F> {
    fn new(at_start: bool, act: F) -> Self {
        Self { at_start, act, run: Mutex::default(), acted: AtomicBool::new(false) }
    }
}

impl<F: Fn(&Path) + Sync> Observer for Hand<F> {
    fn started(&self, _: &Plan, run: &RunFolder, _: u64) {
        *self.run.lock().unwrap() = Some(run.clone());
        if self.at_start {
            (self.act)(run.path());
        }
    }

    fn progressed(&self, _: &Metrics, _: u64, _: u64, _: f64) {
        if !self.at_start && !self.acted.swap(true, std::sync::atomic::Ordering::Relaxed) {
            (self.act)(self.run.lock().unwrap().as_ref().unwrap().path());
        }
    }
}

fn rescued(error: &TrainError) -> RunFolder {
    let TrainError::Runs(RunsError::FinalWeights { rescued: Some(place), .. }) = error else {
        panic!("{error}");
    };
    RunFolder::open(place).unwrap()
}

#[test]
fn a_run_whose_final_weights_cannot_be_written_fails_and_saves_them_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 5_000, 1);
    let start = Start::New { out: folder.path().join("runs") };
    let hand = Hand::new(true, |run: &Path| fs::write(run.join("checkpoints"), "").unwrap());
    let error = go(&spec(&data), &start, &hand).unwrap_err();
    assert!(error.to_string().contains("checkpoints/0000005000"), "{error}");
    let summary = hand.run.lock().unwrap().as_ref().unwrap().summary().unwrap().unwrap();
    assert_eq!(summary.status, Status::Failed);
    let place = rescued(&error);
    let (checkpoint, _) = load_model(&resolve(place.path()).unwrap()).unwrap();
    assert_eq!(checkpoint.rows, 5_000);
    let longer = resume(&RowsSpec { epochs: 2, ..spec(&data) }, &place).unwrap();
    assert_eq!(longer.summary.examples, 10_000);
}

#[test]
fn a_run_whose_folder_is_removed_ends_at_once_and_its_weights_are_saved_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 20_000, 1);
    let start = Start::New { out: folder.path().join("runs") };
    let hand = Hand::new(false, |run: &Path| fs::remove_dir_all(run).unwrap());
    // So many passes that only the removed folder ends it.
    let error = go(&RowsSpec { epochs: 1 << 40, ..spec(&data) }, &start, &hand).unwrap_err();
    assert!(error.to_string().contains("was removed while the run was writing"), "{error}");
    assert!(!hand.run.lock().unwrap().as_ref().unwrap().path().exists());
    assert!(rescued(&error).is_resumable());
}

#[test]
fn a_run_folder_that_is_renamed_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.tsv");
    clicks(&data, 20_000, 1);
    let runs = folder.path().join("runs");
    let hand = Hand::new(true, |run: &Path| {
        fs::rename(run, run.with_file_name("renamed")).unwrap();
    });
    let report = go(&spec(&data), &Start::New { out: runs.clone() }, &hand).unwrap();
    assert_eq!(report.summary.run, "renamed");
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 1, "nothing is left under the old name");
    let moved = RunFolder::open(&runs.join("renamed")).unwrap();
    assert_eq!(moved.summary().unwrap().unwrap().examples, 20_000);
    assert!(matches!(resume(&spec(&data), &moved), Err(TrainError::Finished { .. })));
}
