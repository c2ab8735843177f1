//! `--freeze` freezes: after training every tensor of the trunk is what it was, running statistics included.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_testing::{hdf5::keras_weights, workspace};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};
use support::{run_in, said};

const IMAGES: &str = "generated:images?size=32&classes=3&examples=48";

fn works(folder: &Path, words: &[&str]) -> Vec<u8> {
    let output = run_in(folder, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    output.stdout
}

/// Trains and exports the last weights to `to`.
fn train(folder: &Path, words: &[&str], to: &str) -> String {
    let rest = ["train", "--model", "mobilenet-v2", "--width", "0.35", "--data", IMAGES];
    go(folder, &[&rest, words].concat(), to)
}

fn go(folder: &Path, words: &[&str], to: &str) -> String {
    let words = [words, &["--json", "--no-tensorboard", "--threads", "1"]].concat();
    let report: Value = serde_json::from_slice(&works(folder, &words)).unwrap();
    let name = format!("runs/{}", report["run"].as_str().unwrap());
    works(folder, &["export", &name, to, "--latest"]);
    name
}

/// Bytes of each tensor of a safetensors file.
fn tensors(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let data = &bytes[8 + length..];
    let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    tensors
        .map(|(name, entry)| {
            let place = |at: usize| entry["data_offsets"][at].as_u64().unwrap() as usize;
            (name, data[place(0)..place(1)].to_vec())
        })
        .collect()
}

#[test]
fn batch_norm_statistics_of_a_frozen_trunk_stay_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    train(here, &["--steps", "3", "--batch-size", "16"], "start.safetensors");
    let before = tensors(&here.join("start.safetensors"));
    assert!(before.keys().any(|name| name.ends_with("running_var")));
    for (strategy, batch) in
        [(&["--strategy", "one-device"][..], "4"), (&["--strategy", "ps-sync"], "16")]
    {
        let words =
            ["--init", "start.safetensors", "--freeze", "--steps", "5", "--batch-size", batch];
        train(here, &[&words, strategy].concat(), "end.safetensors");
        let after = tensors(&here.join("end.safetensors"));
        assert_eq!(before.len(), after.len());
        for (name, bytes) in &before {
            let head = name.starts_with("classifier");
            assert_eq!(bytes != &after[name], head, "{strategy:?}: {name}");
        }
    }
}

/// Head first, then the whole network: three steps are an epoch here.
#[test]
fn layers_are_unfrozen_after_the_epochs_asked_for_and_a_resumed_run_does_the_same_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    train(here, &["--steps", "3", "--batch-size", "16"], "start.safetensors");
    let start = tensors(&here.join("start.safetensors"));
    let words = ["--init", "start.safetensors", "--batch-size", "16", "--optimizer", "adam"];
    let words = [&words[..], &["--freeze", "--unfreeze-after", "1"]].concat();
    train(here, &[&words[..], &["--epochs", "2"]].concat(), "whole.safetensors");
    let whole = tensors(&here.join("whole.safetensors"));
    assert!(start.iter().all(|(name, bytes)| *bytes != whole[name]), "all were trained");

    let run = train(here, &[&words[..], &["--steps", "3"]].concat(), "half.safetensors");
    let half = tensors(&here.join("half.safetensors"));
    for (name, bytes) in &start {
        assert_eq!(*bytes != half[name], name.starts_with("classifier"), "{name}");
    }
    go(here, &["train", "--resume", &run, "--steps", "6"], "end.safetensors");
    assert!(tensors(&here.join("end.safetensors")) == whole, "resumed to the same bits");

    for (words, said_of_it) in [
        (vec!["--init", "start.safetensors", "--unfreeze-after", "1"], "--freeze"),
        ([&words[..], &["--epochs", "1"]].concat(), "has no effect in a run of 1 epochs"),
    ] {
        let rest = ["train", "--model", "mobilenet-v2", "--width", "0.35", "--data", IMAGES];
        let output = run_in(here, &[&rest, &words[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(said_of_it), "{}", said(&output));
    }
}

/// A file of Keras is trained on, continued, exported and taken up again, and its pixels go with it.
#[test]
fn weights_of_keras_bring_their_pixels_through_resume_and_export() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let stored = workspace().join("crates/models/tests/reference/keras.json");
    let stored: Value = serde_json::from_slice(&fs::read(stored).unwrap()).unwrap();
    let values = |name: &str, shape: &[usize]| -> Vec<f32> {
        let count = shape.iter().product::<usize>();
        let wave = (0..count).map(|at| ((at * 7 + name.len()) % 13) as f32 / 13.0 - 0.5);
        let shift = if name.ends_with("variance") || name.ends_with("gamma") { 1.0 } else { 0.0 };
        wave.map(|value| value * 0.2 + shift).collect()
    };
    for (file, counted, head) in [("m.h5", false, true), ("m.weights.h5", true, false)] {
        fs::write(here.join(file), keras_weights(&stored[0], &values, counted, head)).unwrap();
        let words = ["--init", file, "--freeze", "--steps", "2", "--batch-size", "16"];
        let run = train(here, &words, "one.safetensors");
        let plan = |run: &str| -> Value {
            serde_json::from_slice(&fs::read(here.join(run).join("plan.json")).unwrap()).unwrap()
        };
        assert_eq!(plan(&run)["spec"]["keras_input"], true, "{}", plan(&run));
        let frozen = tensors(&here.join("one.safetensors"));
        let kernel = &frozen["features.0.0.weight"][..4];
        // The last tap of the first input and output comes first.
        let last = values("Conv1/kernel", &[3, 3, 3, 16])[8 * 3 * 16];
        assert_eq!(kernel, last.to_le_bytes(), "the first kernel is turned");
        go(here, &["train", "--resume", &run, "--steps", "3"], "two.safetensors");
        assert_eq!(plan(&run)["spec"]["keras_input"], true);
        let again = ["--init", "two.safetensors", "--freeze", "--steps", "1", "--batch-size", "16"];
        let taken_up = train(here, &again, "three.safetensors");
        assert_eq!(plan(&taken_up)["spec"]["keras_input"], true);
        let mut three = tensors(&here.join("three.safetensors"));
        three.retain(|name, _| !name.starts_with("classifier"));
        assert!(three.iter().all(|(name, bytes)| frozen[name] == *bytes));
        let scores = works(here, &["evaluate", &run, IMAGES, "--latest", "--json"]);
        let scores: Value = serde_json::from_slice(&scores).unwrap();
        let summary = fs::read(here.join(&run).join("summary.json")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        let (found, told) = (scores["loss"].as_f64(), summary["final"]["test_loss"].as_f64());
        assert!((found.unwrap() - told.unwrap()).abs() < 1e-6, "{found:?} {told:?}");
        for (init, pixels) in [(file, "unit"), (file, "imagenet"), ("two.safetensors", "unit")] {
            let rest = ["train", "--model", "mobilenet-v2", "--width", "0.35", "--data", IMAGES];
            let words = [&rest[..], &["--steps", "1", "--init", init, "--pixels", pixels]].concat();
            let output = run_in(here, &words);
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(said(&output).contains("turned by 180 degrees"), "{}", said(&output));
        }
    }
}
