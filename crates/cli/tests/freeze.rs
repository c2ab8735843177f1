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
fn train(folder: &Path, words: &[&str], to: &str) {
    let rest = ["train", "--model", "mobilenet-v2", "--width", "0.35", "--data", IMAGES, "--json"];
    let words = [&rest, words, &["--no-tensorboard", "--threads", "1"]].concat();
    let report: Value = serde_json::from_slice(&works(folder, &words)).unwrap();
    let name = format!("runs/{}", report["run"].as_str().unwrap());
    works(folder, &["export", &name, to, "--latest"]);
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
