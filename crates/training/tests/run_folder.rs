//! Runs whose folder is finished, owned by another, full, renamed or removed.

#![allow(clippy::unwrap_used)]

mod tiny;

use paceline_runs::{Ownership, RunFolder, RunState, RunsError, Status};
use paceline_testing::contents;
use paceline_training::{
    Control, Observer, Point, Progress, RunPlan, RunSpec, Silent, Start, Stop, TrainError, train,
};
use std::{
    fs,
    path::Path,
    sync::{Mutex, atomic::AtomicBool},
};
use tiny::{SessionObserver, parts, run, spec};

fn resume(spec: &RunSpec, run: &RunFolder) -> Result<paceline_runs::Summary, TrainError> {
    let cancel = AtomicBool::new(false);
    let control = Control { cancel: &cancel, observer: &Silent };
    train(spec, &parts(), &Start::Resume { run: run.clone() }, &control)
}

#[test]
fn resuming_a_finished_run_says_so_and_changes_nothing() {
    let out = tempfile::tempdir().unwrap();
    for stop in [
        Stop { steps: Some(60), ..Stop::default() },
        Stop { epochs: Some(2.0), ..Stop::default() },
        Stop { until_loss: Some(0.6), ..Stop::default() },
    ] {
        let spec = RunSpec { stop, ..spec() };
        let (summary, folder) = run(&spec, out.path());
        assert_eq!(summary.status, Status::Done);
        let before = contents(folder.path());
        let error = resume(&spec, &folder).unwrap_err();
        let step = summary.global_steps;
        assert!(
            matches!(error, TrainError::Finished { at, .. } if at == Point::Step(step)),
            "{error}"
        );
        assert!(contents(folder.path()) == before, "{stop:?}: something was changed");
    }
}

#[test]
fn figures_of_a_resumed_run_cover_all_of_its_legs() {
    let out = tempfile::tempdir().unwrap();
    let first = SessionObserver::stopping_at(20);
    let start = Start::New { out: out.path().to_path_buf() };
    let cancelled = train(&spec(), &parts(), &start, &first.control()).unwrap();
    assert_eq!((cancelled.status, cancelled.legs.len()), (Status::Cancelled, 1));
    let steps = cancelled.global_steps;
    assert_eq!((cancelled.legs[0].steps, cancelled.legs[0].examples), (steps, 20 * steps));
    let done = resume(&spec(), &first.run()).unwrap();
    let longer = RunSpec { stop: Stop { steps: Some(90), ..Stop::default() }, ..spec() };
    let extended = resume(&longer, &first.run()).unwrap();
    let seen: Vec<_> = extended.legs.iter().map(|leg| (leg.steps, leg.status)).collect();
    let (cancelled_as, done_as) = (Some(Status::Cancelled), Some(Status::Done));
    assert_eq!(seen, [(steps, cancelled_as), (60 - steps, done_as), (30, done_as)]);
    assert_eq!((extended.global_steps, extended.examples), (90, 90 * 20));
    assert_eq!(extended.started, cancelled.started);
    let seconds: f64 = extended.legs.iter().map(|leg| leg.seconds).sum();
    assert!((extended.seconds - seconds).abs() < 1e-9 && extended.seconds > done.seconds);
    let read = first.run().summary().unwrap().unwrap();
    assert_eq!(read.legs, extended.legs);
}

/// A process that is killed writes no summary: its leg is what its last checkpoint held.
#[test]
fn a_leg_that_was_killed_counts_as_far_as_its_last_checkpoint() {
    let out = tempfile::tempdir().unwrap();
    let first = SessionObserver::stopping_at(20);
    let start = Start::New { out: out.path().to_path_buf() };
    let killed = train(&spec(), &parts(), &start, &first.control()).unwrap();
    first.run().remove_summary().unwrap();
    let summary = resume(&spec(), &first.run()).unwrap();
    assert_eq!((summary.legs.len(), summary.legs[0].status), (2, None));
    assert_eq!(summary.legs[0].steps, killed.global_steps);
    assert_eq!((summary.global_steps, summary.examples), (60, 60 * 20));
}

/// Killed after its last checkpoint and before its summary, a run has only that left to write.
#[test]
fn a_run_that_died_before_its_summary_gets_one_without_nan() {
    let out = tempfile::tempdir().unwrap();
    let (whole, folder) = run(&spec(), out.path());
    folder.remove_summary().unwrap();
    let summary = resume(&spec(), &folder).unwrap();
    assert_eq!((summary.status, summary.global_steps), (Status::Done, 60));
    assert_eq!(summary.last, whole.last);
    assert_eq!(summary.examples, whole.examples);
    assert!(matches!(resume(&spec(), &folder), Err(TrainError::Finished { .. })));
}

#[test]
fn a_run_is_resumed_by_one_process_at_a_time() {
    let out = tempfile::tempdir().unwrap();
    let (_, folder) = run(&spec(), out.path());
    let before = contents(folder.path());
    let longer = RunSpec { stop: Stop { steps: Some(90), ..Stop::default() }, ..spec() };
    let held = Ownership::take(&folder).unwrap();
    let error = resume(&longer, &folder).unwrap_err();
    assert!(matches!(error, TrainError::Runs(RunsError::Owned { .. })), "{error}");
    drop(held);
    assert!(contents(folder.path()) == before, "the one that was refused changed something");
    assert_eq!(resume(&longer, &folder).unwrap().global_steps, 90);
}

/// Does something to the run's folder once, at the start or at the first progress.
struct Hand<F: Fn(&Path)> {
    at_start: bool,
    act: F,
    run: Mutex<Option<RunFolder>>,
    moved: Mutex<Option<RunFolder>>,
    acted: AtomicBool,
}

impl<F: Fn(&Path)> Hand<F> {
    fn new(at_start: bool, act: F) -> Self {
        let (run, moved) = (Mutex::default(), Mutex::default());
        Self { at_start, act, run, moved, acted: AtomicBool::new(false) }
    }
}

impl<F: Fn(&Path) + Sync> Observer for Hand<F> {
    fn started(&self, _: &RunPlan, run: &RunFolder, _: u64) {
        *self.run.lock().unwrap() = Some(run.clone());
        if self.at_start {
            (self.act)(run.path());
        }
    }

    fn progressed(&self, _: &Progress) {
        if !self.at_start && !self.acted.swap(true, std::sync::atomic::Ordering::Relaxed) {
            (self.act)(self.run.lock().unwrap().as_ref().unwrap().path());
        }
    }

    fn moved(&self, run: &RunFolder) {
        *self.moved.lock().unwrap() = Some(run.clone());
    }
}

fn train_with<F: Fn(&Path) + Sync>(
    spec: &RunSpec,
    out: &Path,
    hand: &Hand<F>,
) -> Result<paceline_runs::Summary, TrainError> {
    let cancel = AtomicBool::new(false);
    let control = Control { cancel: &cancel, observer: hand };
    train(spec, &parts(), &Start::New { out: out.to_path_buf() }, &control)
}

fn rescued(error: &TrainError) -> RunFolder {
    let TrainError::Runs(RunsError::FinalWeights { rescued: Some(place), .. }) = error else {
        panic!("{error}");
    };
    assert!(error.to_string().contains(&place.display().to_string()), "{error}");
    RunFolder::open(place).unwrap()
}

#[test]
fn a_run_whose_final_weights_cannot_be_written_fails_and_saves_them_elsewhere() {
    for (strategy, replicas) in [("one-device", 1), ("mirrored", 2)] {
        let out = tempfile::tempdir().unwrap();
        let spec = RunSpec {
            strategy: strategy.into(),
            replicas: Some(replicas),
            threads: Some(replicas),
            ..spec()
        };
        let hand = Hand::new(false, |run: &Path| fs::write(run.join("checkpoints"), "").unwrap());
        let error = train_with(&spec, &out.path().join("runs"), &hand).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("checkpoints/0000000060") && text.contains("exists"), "{text}");
        let folder = hand.run.lock().unwrap().clone().unwrap();
        let RunState::Ended(summary) = folder.state() else { panic!("no summary") };
        assert_eq!((summary.status, summary.global_steps), (Status::Failed, 60));
        assert!(summary.verdict.contains("final weights"), "{}", summary.verdict);
        // What was saved elsewhere is a run that can be trained on.
        let longer = RunSpec { stop: Stop { steps: Some(90), ..Stop::default() }, ..spec };
        assert_eq!(resume(&longer, &rescued(&error)).unwrap().global_steps, 90);
    }
}

/// Long enough that only a removed folder ends it.
fn endless() -> RunSpec {
    RunSpec { stop: Stop { steps: Some(1 << 40), ..Stop::default() }, ..spec() }
}

#[test]
fn a_run_whose_folder_is_removed_ends_at_once_and_its_weights_are_saved_elsewhere() {
    let out = tempfile::tempdir().unwrap();
    let hand = Hand::new(false, |run: &Path| fs::remove_dir_all(run).unwrap());
    let error = train_with(&endless(), &out.path().join("runs"), &hand).unwrap_err();
    assert!(error.to_string().contains("was removed while the run was writing"), "{error}");
    let gone = hand.run.lock().unwrap().clone().unwrap();
    assert!(!gone.path().exists(), "a removed folder does not come back half");
    assert!(rescued(&error).is_resumable());
}

#[test]
fn a_run_folder_that_is_renamed_is_followed() {
    let out = tempfile::tempdir().unwrap();
    let runs = out.path().join("runs");
    let hand = Hand::new(false, |run: &Path| {
        fs::rename(run, run.with_file_name("renamed")).unwrap();
    });
    let summary = train_with(&spec(), &runs, &hand).unwrap();
    assert_eq!((summary.status, summary.run.as_str()), (Status::Done, "renamed"));
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 1, "nothing is left under the old name");
    let folder = RunFolder::open(&runs.join("renamed")).unwrap();
    assert_eq!(hand.moved.lock().unwrap().as_ref().unwrap().name(), "renamed");
    assert!(matches!(folder.state(), RunState::Ended(read) if *read == summary));
    assert!(folder.checkpoints_path().join("0000000060").is_dir());
    assert!(matches!(resume(&spec(), &folder), Err(TrainError::Finished { .. })));
}
