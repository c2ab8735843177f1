//! Runs that stop and go on: to the bit, past damage, and not as something else.

#![allow(clippy::unwrap_used)]

mod tiny;

use paceline_runs::Status;
use paceline_training::{RunSpec, Start, Stop, TrainError, train};
use std::{fs, sync::atomic::Ordering};
use tiny::{SessionObserver, parts, run, spec, weights};

fn resume(
    spec: &RunSpec,
    watcher: &SessionObserver,
    from: &SessionObserver,
) -> Result<paceline_runs::Summary, TrainError> {
    train(spec, &parts(), &Start::Resume { run: from.run() }, &watcher.control())
}

#[test]
fn a_cancelled_run_goes_on_to_the_same_bits() {
    let out = tempfile::tempdir().unwrap();
    for optimizer in ["sgd", "momentum", "nesterov", "adagrad", "adam", "lars", "lamb"] {
        let spec = RunSpec {
            optimizer: optimizer.into(),
            learning_rate: Some(0.05),
            // Batches that do not divide the epoch, so that the position matters.
            batch_size: 33,
            schedule: "warmup:10steps+cosine".into(),
            ..spec()
        };
        let whole = run(&spec, out.path());
        for stop in [1, 17, 40] {
            let first = SessionObserver::stopping_at(stop);
            let start = Start::New { out: out.path().to_path_buf() };
            let summary = train(&spec, &parts(), &start, &first.control()).unwrap();
            assert_eq!(summary.status, Status::Cancelled);
            assert!(summary.global_steps < 60 && summary.global_steps >= stop);
            let second = SessionObserver::default();
            let summary = resume(&spec, &second, &first).unwrap();
            assert_eq!(
                second.first_step.load(Ordering::Relaxed),
                *first.saved.lock().unwrap().last().unwrap()
            );
            assert_eq!((summary.status, summary.global_steps), (Status::Done, 60));
            assert_eq!(weights(&second.run()), weights(&whole.1), "{optimizer}, stopped at {stop}");
            assert_eq!(summary.last.test_loss, whole.0.last.test_loss);
        }
    }
}

#[test]
fn mirrored_resumes_to_the_bit_too() {
    let out = tempfile::tempdir().unwrap();
    let spec = RunSpec {
        strategy: "mirrored".into(),
        replicas: Some(2),
        threads: Some(2),
        batch_size: 33,
        ..spec()
    };
    let whole = run(&spec, out.path());
    let first = SessionObserver::stopping_at(20);
    let start = Start::New { out: out.path().to_path_buf() };
    assert_eq!(train(&spec, &parts(), &start, &first.control()).unwrap().status, Status::Cancelled);
    let second = SessionObserver::default();
    resume(&spec, &second, &first).unwrap();
    assert_eq!(weights(&second.run()), weights(&whole.1));
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_said() {
    let out = tempfile::tempdir().unwrap();
    let spec = RunSpec { checkpoint_every: Some(10), keep: 3, ..spec() };
    let watcher = SessionObserver::default();
    let start = Start::New { out: out.path().to_path_buf() };
    train(&spec, &parts(), &start, &watcher.control()).unwrap();
    let whole = weights(&watcher.run());
    let folder = watcher.run().checkpoints_path();
    let latest = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    assert!(latest.ends_with("0000000060"));
    let file = latest.join("weights.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 5;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    let second = SessionObserver::default();
    resume(&spec, &second, &watcher).unwrap();
    assert_eq!(second.first_step.load(Ordering::Relaxed), 50);
    let warnings = second.warnings.lock().unwrap().join("\n");
    assert!(warnings.contains("step 60") && warnings.contains("checksum"), "{warnings}");
    assert_eq!(weights(&second.run()), whole, "the damaged one was replaced by a good one");
}

#[test]
fn a_finished_run_can_be_trained_longer() {
    let out = tempfile::tempdir().unwrap();
    let longer = RunSpec { stop: Stop { steps: Some(90), ..Stop::default() }, ..spec() };
    let whole = run(&longer, out.path());
    let first = SessionObserver::default();
    let start = Start::New { out: out.path().to_path_buf() };
    train(&spec(), &parts(), &start, &first.control()).unwrap();
    let second = SessionObserver::default();
    let summary = resume(&longer, &second, &first).unwrap();
    assert_eq!(summary.global_steps, 90);
    assert_eq!(weights(&second.run()), weights(&whole.1));
}

#[test]
fn another_run_is_not_continued() {
    let out = tempfile::tempdir().unwrap();
    let first = SessionObserver::default();
    let start = Start::New { out: out.path().to_path_buf() };
    train(&spec(), &parts(), &start, &first.control()).unwrap();
    for (changed, words) in [
        (RunSpec { batch_size: 25, ..spec() }, ["batch 20", "batch 25"]),
        (RunSpec { model: "other".into(), ..spec() }, ["tiny", "other"]),
        (RunSpec { optimizer: "adam".into(), ..spec() }, ["momentum at", "adam at"]),
    ] {
        let error = resume(&changed, &SessionObserver::default(), &first).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let folder = first.run().checkpoints_path();
    fs::remove_dir_all(folder).unwrap();
    let error = resume(&spec(), &SessionObserver::default(), &first).unwrap_err();
    assert!(matches!(error, TrainError::NothingToResume { .. }), "{error}");
}

#[test]
fn best_and_last_stay_the_rest_goes() {
    let out = tempfile::tempdir().unwrap();
    let spec = RunSpec { checkpoint_every: Some(5), eval_every: Some(5), keep: 2, ..spec() };
    let watcher = SessionObserver::default();
    let start = Start::New { out: out.path().to_path_buf() };
    train(&spec, &parts(), &start, &watcher.control()).unwrap();
    let evaluations = watcher.evaluations.lock().unwrap();
    let best = evaluations.iter().min_by(|a, b| a.loss.total_cmp(&b.loss)).unwrap().step;
    let mut steps: Vec<u64> = fs::read_dir(watcher.run().checkpoints_path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    steps.sort_unstable();
    let mut wanted = vec![55, 60, best];
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(steps, wanted);
}

/// Fast runs hold the best state in memory; it must be on disk in the end.
#[test]
fn the_best_state_of_a_fast_run_is_kept() {
    let out = tempfile::tempdir().unwrap();
    // A rate so high that the loss gets worse again.
    let spec = RunSpec { learning_rate: Some(3.0), eval_every: Some(3), ..spec() };
    let watcher = SessionObserver::default();
    let start = Start::New { out: out.path().to_path_buf() };
    train(&spec, &parts(), &start, &watcher.control()).unwrap();
    let evaluations = watcher.evaluations.lock().unwrap();
    let best = evaluations.iter().min_by(|a, b| a.loss.total_cmp(&b.loss)).unwrap().step;
    assert!(best < 60, "the test needs a best step before the last");
    assert!(watcher.run().checkpoints_path().join(format!("{best:010}")).is_dir());
}
