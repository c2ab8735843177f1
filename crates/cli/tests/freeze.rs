//! `--freeze` freezes: after training every tensor of the trunk is what it was, running statistics included.

#![allow(clippy::unwrap_used)]

mod support;

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
