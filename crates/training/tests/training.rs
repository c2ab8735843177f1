//! Whole runs of a tiny model: what they leave behind, how they stop, what they refuse.

#![allow(clippy::unwrap_used)]

mod tiny;

use paceline_data::{Source, Split};
use paceline_runs::{Event, LearningOutcome, RunState, Status};
use paceline_training::{Parts, Point, RunSpec, Start, Stop, TrainError, train};
use std::{fs, sync::Arc};
use tiny::{SessionObserver, Toy, build, parts, run, spec, weights};

#[test]
fn a_run_learns_and_leaves_everything_behind() {
    let out = tempfile::tempdir().unwrap();
    let spec = RunSpec { stop: Stop { epochs: Some(4.0), ..Stop::default() }, ..spec() };
    let (summary, folder) = run(&spec, out.path());
    assert_eq!(summary.status, Status::Done);
    assert_eq!((summary.global_steps, summary.examples), (100, 2_000));
    assert!(summary.last.test_accuracy > 0.9, "{summary:?}");
    assert!(summary.last.train_loss < 0.5 && summary.examples_per_second > 0.0);
    let shares = summary.phases;
    let total = shares.input + shares.compute + shares.exchange + shares.wait;
    assert!((total - 1.0).abs() < 1e-9);
    assert!(!summary.verdict.is_empty());
    assert_eq!(summary.workers.len(), 1);
    assert_eq!((summary.workers[0].iterations, summary.workers[0].examples), (100, 2_000));
    for name in ["plan.json", "machine.json", "summary.json", "confusion.csv"] {
        assert!(folder.path().join(name).is_file(), "{name} is missing");
    }
    assert!(matches!(folder.state(), RunState::Ended(read) if *read == summary));
    let (events, broken) = folder.events().unwrap();
    assert_eq!(broken, 0);
    let kinds: Vec<&str> = events.iter().map(|record| record.kind.as_str()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("run_started", "run_ended"));
    let steps: u64 = events
        .iter()
        .filter_map(|record| match &record.event {
            Some(Event::Step(step)) => Some(step.steps),
            _ => None,
        })
        .sum();
    assert_eq!(steps, 100, "every step is in exactly one event");
    assert_eq!(kinds.iter().filter(|kind| **kind == "evaluation").count(), 4);
    let confusion = fs::read_to_string(folder.path().join("confusion.csv")).unwrap();
    let counted: u64 = confusion
        .lines()
        .skip(1)
        .flat_map(|line| line.split(',').skip(1).map(|count| count.parse::<u64>().unwrap()))
        .sum();
    assert_eq!(counted, 90);
    let board = folder.tensorboard_path("worker/0");
    let file = fs::read_dir(board).unwrap().next().unwrap().unwrap().path();
    let entries = paceline_runs::tensorboard::read(&file).unwrap();
    for tag in ["train/loss", "train/learning_rate", "test/accuracy", "dense.weight"] {
        assert!(entries.iter().any(|entry| entry.tag == tag), "{tag} is missing");
    }
}

#[test]
fn same_seed_same_bits_other_seed_other_bits() {
    let out = tempfile::tempdir().unwrap();
    let first = weights(&run(&spec(), out.path()).1);
    assert_eq!(weights(&run(&spec(), out.path()).1), first);
    assert_ne!(weights(&run(&RunSpec { seed: 6, ..spec() }, out.path()).1), first);
}

#[test]
fn mirrored_equals_one_device_at_the_same_global_batch() {
    let out = tempfile::tempdir().unwrap();
    let (alone, _) = run(&spec(), out.path());
    for replicas in [2, 3] {
        // 500 examples in batches of 32: the last batch of an epoch has 20, which 3 does not divide.
        let mirrored = RunSpec {
            strategy: "mirrored".into(),
            replicas: Some(replicas),
            threads: Some(replicas),
            ..spec()
        };
        let (summary, folder) = run(&mirrored, out.path());
        assert_eq!(summary.workers.len(), replicas);
        let examples: u64 = summary.workers.iter().map(|worker| worker.examples).sum();
        assert_eq!(examples, summary.examples, "examples add up");
        assert!((summary.last.test_loss - alone.last.test_loss).abs() < 1e-5);
        assert_eq!(summary.last.test_accuracy, alone.last.test_accuracy);
        let again = run(&mirrored, out.path());
        assert_eq!(weights(&again.1), weights(&folder), "same bits every time");
    }
}

#[test]
fn until_loss_stops_and_says_between_which_checks() {
    let out = tempfile::tempdir().unwrap();
    let stop = Stop { until_loss: Some(0.5), steps: Some(5_000), ..Stop::default() };
    let (summary, _) = run(&RunSpec { stop, eval_every: Some(7), ..spec() }, out.path());
    let reached = summary.reached.unwrap();
    assert_eq!(reached.loss, 0.5);
    assert_eq!(reached.between[1], summary.global_steps);
    assert_eq!(reached.between[1] - reached.between[0], 7);
    assert!(reached.step > reached.between[0] as f64 && reached.step <= reached.between[1] as f64);
    assert!(summary.last.test_loss <= 0.5);
    let stop = Stop { until_loss: Some(1e-9), steps: Some(20), ..Stop::default() };
    let (summary, _) = run(&RunSpec { stop, ..spec() }, out.path());
    assert_eq!((summary.reached, summary.global_steps), (None, 20));
}

#[test]
fn a_loss_that_is_not_finite_names_step_layer_and_rate() {
    let out = tempfile::tempdir().unwrap();
    // The decay alone makes the weights explode.
    let spec = RunSpec {
        learning_rate: Some(1e20),
        weight_decay: Some(1.0),
        optimizer: "sgd".into(),
        ..spec()
    };
    let watcher = SessionObserver::default();
    let start = Start::New { out: out.path().to_path_buf() };
    let error = train(&spec, &parts(), &start, &watcher.control()).unwrap_err();
    let TrainError::NotFinite { at: Point::Step(step), cause, rate, .. } = &error else {
        panic!("{error}")
    };
    assert!(*step < 60 && *rate == 1e20);
    assert!(cause.contains("dense."), "{cause}");
    let Some(summary) = watcher.run().summary().unwrap() else { panic!("no summary") };
    assert_eq!(summary.status, Status::Failed);
    assert!(summary.verdict.contains("not finite"), "{}", summary.verdict);
}

#[test]
fn a_growing_batch_does_fewer_steps() {
    let out = tempfile::tempdir().unwrap();
    let stop = Stop { epochs: Some(3.0), ..Stop::default() };
    let spec = RunSpec { schedule: "step:1:0.5".into(), stop, ..spec() };
    let decayed = run(&spec, out.path()).0;
    let grown = run(&RunSpec { grow_batch: true, ..spec }, out.path()).0;
    assert_eq!(decayed.global_steps, 75);
    assert_eq!(grown.global_steps, 25 + 13 + 10, "20, 40, then the limit of a tenth: 50");
    assert_eq!(grown.examples, decayed.examples);
    assert_eq!(grown.global_batch, 50);
}

/// What is wrong must be said before anything starts, and both sides named.
#[test]
fn bad_combinations_fail_before_a_run_folder_exists() {
    let out = tempfile::tempdir().unwrap();
    let other = |train: Toy| Parts { train: Arc::new(train), ..parts() };
    let source =
        |toy: Toy| -> Option<(Split, Arc<dyn Source>)> { Some((Split::Test, Arc::new(toy))) };
    let cases: Vec<(&str, RunSpec, Parts, &[&str])> = vec![
        ("batch", RunSpec { batch_size: 501, ..spec() }, parts(), &["501", "500", "toy"]),
        ("no batch", RunSpec { batch_size: 0, ..spec() }, parts(), &["batch size is 0"]),
        ("size", spec(), other(Toy::shaped(500, 0, 8, 3)), &["6x6x1", "8x8x1"]),
        (
            "model",
            spec(),
            Parts { test: None, ..other(Toy::shaped(500, 0, 8, 3)) },
            &["tiny", "6x6x1", "8x8x1"],
        ),
        ("classes", spec(), other(Toy::shaped(500, 0, 6, 0)), &["2 classes", "toy", "has 0"]),
        (
            "test classes",
            spec(),
            Parts { test: source(Toy::shaped(90, 0, 6, 4)), ..parts() },
            &["4 classes", "3 classes"],
        ),
        ("stop", RunSpec { stop: Stop::default(), ..spec() }, parts(), &["when to stop"]),
        (
            "no test",
            RunSpec { stop: Stop { until_loss: Some(0.3), ..Stop::default() }, ..spec() },
            Parts { test: None, ..parts() },
            &["loss", "toy"],
        ),
        (
            "cosine without end",
            RunSpec {
                stop: Stop { until_loss: Some(0.3), ..Stop::default() },
                schedule: "cosine".into(),
                ..spec()
            },
            parts(),
            &["cosine"],
        ),
        ("strategy", RunSpec { strategy: "telepathy".into(), ..spec() }, parts(), &["mirrored"]),
        ("replicas", RunSpec { replicas: Some(2), ..spec() }, parts(), &["replicas", "one-device"]),
        ("optimiser", RunSpec { optimizer: "sdg".into(), ..spec() }, parts(), &["sdg", "adam"]),
        ("rate", RunSpec { learning_rate: Some(f32::NAN), ..spec() }, parts(), &["learning rate"]),
        ("threads", RunSpec { threads: Some(0), ..spec() }, parts(), &["threads"]),
    ];
    for (what, spec, parts, parts_of_message) in cases {
        let start = Start::New { out: out.path().join("runs") };
        let error =
            train(&spec, &parts, &start, &SessionObserver::default().control()).unwrap_err();
        let text = error.to_string();
        for part in parts_of_message {
            assert!(text.contains(part), "{what}: {text}");
        }
        assert!(!out.path().join("runs").exists(), "{what}: a folder was made");
    }
    let empty = Parts {
        train: Arc::new(Toy::new(0, 0)),
        test: None,
        build,
        fingerprint: None,
        rejects: Arc::default(),
    };
    let start = Start::New { out: out.path().join("runs") };
    assert!(train(&spec(), &empty, &start, &SessionObserver::default().control()).is_err());
}

/// `6e9` with `status done` is what this looked like.
#[test]
fn a_loss_that_explodes_ends_the_run_and_the_last_good_checkpoint_stays() {
    let out = tempfile::tempdir().unwrap();
    // Each step makes the weights a tenth larger, with the other sign.
    let spec = RunSpec {
        learning_rate: Some(0.1),
        weight_decay: Some(21.0),
        optimizer: "sgd".into(),
        momentum: None,
        checkpoint_every: Some(10),
        stop: Stop { steps: Some(400), ..Stop::default() },
        ..spec()
    };
    let watcher = SessionObserver::default();
    let start = Start::New { out: out.path().to_path_buf() };
    let error = train(&spec, &parts(), &start, &watcher.control()).unwrap_err();
    let TrainError::Diverged { at: Point::Step(step), good: Some(good), .. } = &error else {
        panic!("{error}")
    };
    assert!(*step < 400, "noticed while the run goes on: {step}");
    assert!(good < step && *good > 0);
    assert_eq!(watcher.saved.lock().unwrap().last(), Some(good), "no exploded weights were saved");
    let Some(summary) = watcher.run().summary().unwrap() else { panic!("no summary") };
    assert_eq!(summary.status, Status::Failed);
    let learning = summary.learning.unwrap();
    assert_eq!(learning.outcome, LearningOutcome::Diverged);
    assert!(learning.advice[0].contains("--lr 0.01"), "{learning:?}");
}

#[test]
fn a_run_at_chance_level_says_that_it_did_not_learn() {
    let out = tempfile::tempdir().unwrap();
    let spec = RunSpec { learning_rate: Some(1e-9), ..spec() };
    let watcher = SessionObserver::default();
    let start = Start::New { out: out.path().to_path_buf() };
    let summary = train(&spec, &parts(), &start, &watcher.control()).unwrap();
    assert_eq!(summary.status, Status::Done);
    assert_eq!(
        summary.learning.as_ref().unwrap().outcome,
        LearningOutcome::DidNotLearn,
        "{summary:?}"
    );
    let said = watcher.warnings.lock().unwrap().join("\n");
    assert!(said.contains("the model did not learn: "), "{said}");
    assert_eq!(summary.warnings, *watcher.warnings.lock().unwrap());
    let (fine, _) = run(&tiny::spec(), out.path());
    assert_eq!(fine.learning.unwrap().outcome, LearningOutcome::Learned);
}
