//! Bad photos are left out, counted and listed alike by every command that reads photos, and data of the wrong kind is called
//! what it is.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path, process::Output};
use support::{run_in, said};

fn in_words(folder: &Path, text: &str) -> Output {
    run_in(folder, &text.split_whitespace().collect::<Vec<_>>())
}

fn succeeds(folder: &Path, text: &str) -> Value {
    let output = in_words(folder, &format!("{text} --json"));
    assert!(output.status.success(), "{text}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn fails(folder: &Path, text: &str) -> String {
    let output = in_words(folder, text);
    assert_eq!(output.status.code(), Some(1), "{text}: {}", said(&output));
    said(&output)
}

/// The paths in a list of rejects.
fn paths(rejects: &Value) -> BTreeSet<String> {
    let list = rejects.as_array().unwrap();
    assert!(list.iter().all(|reject| !reject["reason"].as_str().unwrap().is_empty()), "{list:?}");
    list.iter().map(|reject| reject["path"].as_str().unwrap().to_owned()).collect()
}

/// The same from a file of one JSON object per line.
fn listed(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap();
    paths(&Value::Array(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()))
}

#[test]
fn every_command_leaves_out_the_same_photos() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    succeeds(here, "data synth photos flowers --per-class 8 --bad 2");
    let prepared = succeeds(here, "prepare flowers shards --size 16");
    assert_eq!((prepared["photos"].as_u64(), prepared["rejects"].as_u64()), (Some(42), Some(2)));
    let wanted = listed(&here.join("shards/rejects.jsonl"));
    assert_eq!(wanted.len(), 2);

    let info = succeeds(here, "data info flowers");
    assert_eq!((paths(&info["rejects"]), info["photos"].as_u64()), (wanted.clone(), Some(42)));
    let speed = "speedtest --images flowers --size 16 --batch-size 8 --batches 6 --repeat 1";
    assert_eq!(paths(&succeeds(here, &format!("{speed} --out speed"))["rejects"]), wanted);

    let train = "train --model softmax --data flowers --epochs 1 --lr 0.001 --batch-size 8 --no-tensorboard --threads 2";
    let mut losses = BTreeSet::new();
    for (number, strategy) in
        ["one-device", "one-device", "mirrored", "multi-worker"].iter().enumerate()
    {
        let summary = succeeds(here, &format!("{train} --strategy {strategy} --out runs{number}"));
        let run = here.join(format!("runs{number}")).join(summary["run"].as_str().unwrap());
        assert_eq!(listed(&run.join("rejects.jsonl")), wanted, "{strategy}");
        let warnings = summary["warnings"].to_string();
        assert!(warnings.contains("2 of 42 photos were rejected"), "{strategy}: {warnings}");
        if *strategy == "one-device" {
            losses.insert(summary["last"]["train_loss"].to_string());
        }
    }
    assert_eq!(losses.len(), 1, "the same seed, the same order, the same loss");

    for command in [
        "prepare flowers other --size 16",
        "data info flowers",
        train,
        &format!("{speed} --out other-speed"),
    ] {
        let message = fails(here, &format!("{command} --max-rejects 1"));
        assert!(
            message.contains("2 photos rejected, more than the 1 allowed"),
            "{command}: {message}"
        );
        let message = fails(here, &format!("{command} --max-rejects 3%"));
        assert!(message.contains("more than the 1 allowed"), "{command}: {message}");
    }
}

#[test]
fn a_class_whose_name_is_not_text_is_named_by_every_command() {
    use std::os::unix::ffi::OsStrExt;
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    succeeds(here, "data synth photos flowers --per-class 4");
    let odd = here.join("flowers").join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    fs::rename(here.join("flowers/daisy"), odd).unwrap();
    let info = succeeds(here, "data info flowers");
    assert_eq!((info["examples"].as_u64(), info["photos"].as_u64()), (Some(16), Some(20)));
    let rejects = paths(&info["rejects"]);
    assert!(
        rejects.len() == 4 && rejects.iter().all(|path| path.starts_with("caf\\xe9/")),
        "{rejects:?}"
    );
    let prepared = succeeds(here, "prepare flowers shards --size 16");
    assert_eq!((prepared["photos"].as_u64(), prepared["rejects"].as_u64()), (Some(20), Some(4)));
    assert_eq!(listed(&here.join("shards/rejects.jsonl")), rejects);
}

#[test]
fn splits_of_imagefolder_are_the_same_for_prepare_and_info() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    succeeds(here, "data synth photos flowers/train --per-class 4");
    succeeds(here, "data synth photos flowers/val --per-class 2 --seed 2");
    let prepared = succeeds(here, "prepare flowers shards --size 16");
    let (photos, records) =
        (succeeds(here, "data info flowers"), succeeds(here, "data info shards"));
    for key in ["splits", "examples", "classes"] {
        assert_eq!(photos[key], records[key], "{key}");
    }
    assert_eq!(prepared["classes"].as_array().unwrap().len(), 5);
    let output = in_words(here, "prepare flowers other --size 16 --split validation=0.5");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("name a validation split already"), "{}", said(&output));
}

#[test]
fn data_of_the_wrong_kind_is_called_what_it_is() {
    let here = tempfile::tempdir().unwrap();
    let here = here.path();
    succeeds(here, "data synth clicks clicks.tsv --rows 300");
    let info = succeeds(here, "data info clicks.tsv");
    assert_eq!((info["kind"].as_str(), info["rows"].as_u64()), (Some("rows"), Some(300)));
    let message = fails(here, "train --model softmax --data clicks.tsv --epochs 1");
    assert!(
        message.contains("`clicks.tsv` holds rows of sparse features (clicks), not images"),
        "{message}"
    );
    assert!(message.contains("hint: train on rows with `--model sparse-logistic`"), "{message}");

    succeeds(here, "data synth photos flowers --per-class 2");
    succeeds(here, "prepare flowers shards --size 16");
    let before = fs::read_dir(here.join("shards")).unwrap().count();
    let message = fails(here, "prepare clicks.tsv shards");
    assert!(message.contains("`shards` holds another data set: prepared photos"), "{message}");
    assert_eq!(fs::read_dir(here.join("shards")).unwrap().count(), before);
    succeeds(here, "prepare clicks.tsv rows");
    let message = fails(here, "prepare flowers rows --size 16");
    assert!(message.contains("holds another data set: prepared rows"), "{message}");
    assert_eq!(succeeds(here, "data info rows")["rows"], 300);

    fs::create_dir(here.join("flat")).unwrap();
    for (number, photo) in fs::read_dir(here.join("flowers/daisy")).unwrap().enumerate() {
        fs::copy(photo.unwrap().path(), here.join(format!("flat/{number}.jpg"))).unwrap();
    }
    for command in [
        "data info flat",
        "train --model softmax --data flat --epochs 1",
        "speedtest --images flat",
    ] {
        let message = fails(here, command);
        assert!(
            message.contains("its 2 photos lie outside of class folders"),
            "{command}: {message}"
        );
    }
}
