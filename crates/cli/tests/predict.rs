//! `predict` and `evaluate`: what a trained model says of photos and of other data sets, through the real binary.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Stdio,
};
use support::{command_in, document, json, json_in, run_in, said};

/// Photos of five classes, records of them that were padded to 32 x 32 pixels, and a run on those.
fn trained() -> (tempfile::TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let works = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let output = run_in(here, &words);
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    };
    works("data synth photos photos --per-class 6 --seed 3");
    works("prepare photos shards --size 32 --fit pad --encode png --split validation=0.3");
    let summary = json_in(
        here,
        &["train", "--model", "softmax", "--data", "shards", "--steps", "40", "--batch-size", "8"]
            .into_iter()
            .chain(["--no-tensorboard", "--json"])
            .collect::<Vec<_>>(),
    );
    let made = fs::read_dir(here.join("runs")).unwrap().next().unwrap().unwrap().path();
    fs::rename(made, here.join("runs/padded")).unwrap();
    (folder, summary)
}

fn photos(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for class in fs::read_dir(folder).unwrap() {
        found.extend(fs::read_dir(class.unwrap().path()).unwrap().map(|file| file.unwrap().path()));
    }
    found
}

#[test]
fn photos_get_the_classes_that_evaluation_counts() {
    let (folder, summary) = trained();
    let here = folder.path();
    let plan: Value =
        serde_json::from_slice(&fs::read(here.join("runs/padded/plan.json")).unwrap()).unwrap();
    assert_eq!(plan["fit"], "pad", "how photos were made to fit is part of the run: {plan}");
    let told = json_in(here, &["predict", "padded", "photos", "--top", "9", "--json"]);
    let predictions = told["predictions"].as_array().unwrap();
    assert_eq!(predictions.len(), photos(&here.join("photos")).len());
    let mut hits = 0;
    for prediction in predictions {
        let classes = prediction["classes"].as_array().unwrap();
        let chances: Vec<f64> =
            classes.iter().map(|class| class["probability"].as_f64().unwrap()).collect();
        assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-4, "{prediction}");
        assert!(chances.is_sorted_by(|a, b| a >= b), "most probable first: {prediction}");
        let folder = Path::new(prediction["photo"].as_str().unwrap()).parent().unwrap();
        hits += usize::from(folder.ends_with(classes[0]["class"].as_str().unwrap()));
    }
    let score = json_in(here, &["evaluate", "runs/padded", "photos", "--json"]);
    assert_eq!(score["examples"], predictions.len());
    let accuracy = score["accuracy"].as_f64().unwrap();
    assert!((accuracy - hits as f64 / predictions.len() as f64).abs() < 1e-9, "{score}");
    let rows = score["confusion"].as_array().unwrap();
    let counted: u64 =
        rows.iter().flat_map(|row| row.as_array().unwrap()).map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(counted, predictions.len() as u64);
    for (class, row) in score["classes"].as_array().unwrap().iter().zip(rows) {
        let own: u64 = row.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(class["examples"], own);
    }
    // Of the data that it was trained on, the part that was held out; as the run itself found it.
    let own = json_in(here, &["evaluate", "runs/padded", "shards", "--latest", "--json"]);
    assert_eq!(own["split"], "validation");
    assert!(
        (own["loss"].as_f64().unwrap() - summary["final"]["test_loss"].as_f64().unwrap()).abs()
            < 1e-5,
        "{own} {summary}"
    );
    assert_eq!(own["accuracy"], summary["final"]["test_accuracy"]);
    let all = json_in(here, &["evaluate", "runs/padded", "shards", "--split", "train", "--json"]);
    assert_eq!(all["examples"].as_u64().unwrap() + own["examples"].as_u64().unwrap(), counted);
    let text = run_in(here, &["evaluate", "padded", "photos"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for word in ["accuracy", "calibration error", "precision", "recall", "label, prediction"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// Trains a model for a few steps on photos of that many pixels a side. What `predict` says of each photo must be what `evaluate` scores.
fn predicts_as_it_evaluates(side: &str, model: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for words in [
        "data synth photos photos --per-class 3 --seed 5 --threads 1".to_owned(),
        format!("prepare photos shards --size {side} --encode png --threads 1"),
    ] {
        let output = run_in(here, &words.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{words}: {}", said(&output));
    }
    let train = "--data shards --steps 3 --batch-size 4 --no-tensorboard --json --model";
    let train: Vec<&str> = ["train"].into_iter().chain(train.split(' ')).collect();
    json_in(here, &[&train[..], model].concat());
    let made = fs::read_dir(here.join("runs")).unwrap().next().unwrap().unwrap().path();
    let run = made.to_str().unwrap();
    let told = json_in(here, &["predict", run, "photos", "--top", "9", "--json"]);
    let predictions = told["predictions"].as_array().unwrap();
    assert_eq!(predictions.len(), 15, "{told}");
    let (mut hits, mut loss) = (0, 0.0);
    for prediction in predictions {
        let classes: Vec<(&str, f64)> = prediction["classes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["class"].as_str().unwrap(), one["probability"].as_f64().unwrap()))
            .collect();
        assert_eq!(classes.len(), 5, "{prediction}");
        assert!((classes.iter().map(|one| one.1).sum::<f64>() - 1.0).abs() < 1e-4, "{prediction}");
        assert!(classes.is_sorted_by(|a, b| a.1 >= b.1), "most probable first: {prediction}");
        let folder = Path::new(prediction["photo"].as_str().unwrap()).parent().unwrap();
        let own = classes.iter().find(|one| folder.ends_with(one.0)).unwrap();
        hits += usize::from(folder.ends_with(classes[0].0));
        loss -= own.1.max(1e-30).ln() / 15.0;
    }
    let score = json_in(here, &["evaluate", run, "photos", "--json"]);
    let figure = |name: &str| score[name].as_f64().unwrap();
    assert!((figure("accuracy") - hits as f64 / 15.0).abs() < 1e-9, "{hits} of 15: {score}");
    assert!((figure("loss") - loss).abs() < 1e-3 * loss.max(1.0), "{loss}: {score}");
    let photo = predictions[0]["photo"].as_str().unwrap();
    let output = run_in(here, &["predict", run, photo, "--top", "2"]);
    let line = String::from_utf8(output.stdout).unwrap();
    let cells: Vec<&str> = line.trim_end().split('\t').collect();
    assert_eq!((cells[0], cells.len()), (photo, 5), "two classes: {line}");
    assert_eq!(cells[1], predictions[0]["classes"][0]["class"].as_str().unwrap(), "{line}");
}

#[test]
fn lenet_predicts_as_it_evaluates() {
    predicts_as_it_evaluates("32", &["lenet"]);
}

#[test]
fn resnet_predicts_as_it_evaluates() {
    predicts_as_it_evaluates("32", &["resnet-20", "--lr", "0.01"]);
}

#[test]
fn mobilenet_predicts_as_it_evaluates() {
    predicts_as_it_evaluates("48", &["mobilenet-v2", "--width", "0.35"]);
}

#[test]
fn alexnet_predicts_as_it_evaluates() {
    predicts_as_it_evaluates("64", &["alexnet", "--optimizer", "sgd", "--lr", "0.001"]);
}

#[test]
fn a_bad_photo_is_named_and_the_others_are_predicted() {
    let (folder, _) = trained();
    let here = folder.path();
    let good = photos(&here.join("photos"));
    fs::write(here.join("torn.jpg"), &fs::read(&good[0]).unwrap()[..200]).unwrap();
    fs::write(here.join("note.jpg"), "not a photo").unwrap();
    let mut child = command_in(here, &["predict", "padded", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let list = format!("torn.jpg\n{}\n\nnote.jpg\nmissing.png\n", good[1].display());
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let lines = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let cells: Vec<&str> = lines.trim_end().split('\t').collect();
    assert_eq!((cells[0], cells.len()), (good[1].to_str().unwrap(), 7), "three classes: {lines}");
    let said = said(&output);
    for name in ["torn.jpg", "note.jpg", "missing.png", "3 of 4 photos could not be used"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    let output = run_in(here, &["predict", "padded", "torn.jpg", "--json"]);
    let told = document(&output);
    assert!(told["predictions"][0]["error"].as_str().unwrap().contains("torn.jpg"), "{told}");
    // Grey examples of a set of digits: a colour photo becomes one.
    let digits = "train --model softmax --data generated:digits?examples=200 --steps 2 --no-tensorboard --out grey";
    json(&run_in(here, &digits.split(' ').chain(["--json"]).collect::<Vec<_>>()));
    let run = fs::read_dir(here.join("grey")).unwrap().next().unwrap().unwrap().path();
    let photo = good[1].to_str().unwrap();
    let told = json_in(here, &["predict", run.to_str().unwrap(), photo, "--top", "1", "--json"]);
    assert_eq!(told["predictions"][0]["classes"].as_array().unwrap().len(), 1, "{told}");
}

/// The list ended silently at the first name that was not text, with exit code 0.
#[test]
fn a_list_goes_on_behind_a_name_that_is_not_text() {
    let (folder, _) = trained();
    let here = folder.path();
    let good = photos(&here.join("photos"));
    let odd = here.join(OsStr::from_bytes(b"caf\xe9.jpg"));
    fs::copy(&good[0], &odd).unwrap();
    let mut child = command_in(here, &["predict", "padded", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let list = [odd.as_os_str().as_bytes(), b"\r\n", good[1].as_os_str().as_bytes()].concat();
    child.stdin.take().unwrap().write_all(&list).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    let none = run_in(here, &["predict", "padded", "-"]);
    assert_eq!(none.status.code(), Some(0));
    assert!(said(&none).contains("no photo was named"), "{}", said(&none));
}

#[test]
fn data_of_other_classes_or_shape_are_refused_by_name() {
    let (folder, _) = trained();
    let here = folder.path();
    let class = fs::read_dir(here.join("photos")).unwrap().next().unwrap().unwrap().path();
    fs::rename(&class, here.join("photos/cactus")).unwrap();
    for (data, needle) in [("photos", "`cactus`"), ("generated:digits", "28x28x1")] {
        let output = run_in(here, &["evaluate", "padded", data]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(needle), "{}", said(&output));
    }
    // Fewer classes than the model knows are not other classes.
    fs::remove_dir_all(here.join("photos/cactus")).unwrap();
    let score = json_in(here, &["evaluate", "padded", "photos", "--json"]);
    let counts = score["classes"].as_array().unwrap().iter();
    assert_eq!(counts.filter(|class| class["examples"] == 0).count(), 1, "{score}");
    let output = run_in(here, &["evaluate", "nowhere", "photos"]);
    assert!(said(&output).contains("there is no run at `nowhere`"), "{}", said(&output));
}

#[test]
fn rows_of_a_sparse_run_are_scored_by_the_same_command() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (words, seed) in [
        ("data synth clicks train.tsv --rows 3000", "1"),
        ("data synth clicks other.tsv --rows 500", "2"),
    ] {
        let words: Vec<&str> = words.split(' ').chain(["--seed", seed]).collect();
        assert!(run_in(here, &words).status.success());
    }
    let train = "train --model sparse-logistic --data train.tsv --epochs 1 --no-tensorboard --json";
    json_in(here, &train.split(' ').collect::<Vec<_>>());
    let run = fs::read_dir(here.join("runs")).unwrap().next().unwrap().unwrap().path();
    let score = json_in(here, &["evaluate", run.to_str().unwrap(), "other.tsv", "--json"]);
    let metrics = &score["metrics"];
    assert_eq!(metrics["rows"], 500);
    assert!(metrics["auc"].as_f64().unwrap() > 0.5, "{score}");
    assert!(metrics["loss"].as_f64().unwrap() < 1.0 && metrics["accuracy"].as_f64().unwrap() > 0.5);
    let output = run_in(here, &["evaluate", run.to_str().unwrap(), "nowhere.tsv"]);
    assert!(!output.status.success() && said(&output).contains("nowhere.tsv"), "{}", said(&output));
}
