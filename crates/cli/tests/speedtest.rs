//! `paceline speedtest` through the real binary: results on disk, resumed after a kill, refused when settings change.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use std::time::Duration;
use support::{command, said};

fn photos(folder: &Path) -> String {
    let photos = folder.join("photos").to_str().unwrap().to_owned();
    let args = ["data", "synth", "photos", &photos, "--per-class", "3", "--threads", "1"];
    let output = command(&args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    photos
}

#[test]
fn a_small_test_leaves_page_tables_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let photos = photos(folder.path());
    let out = folder.path().join("out");
    let out_text = out.to_str().unwrap();
    let args = [
        "speedtest",
        "--images",
        &photos,
        "--batch-size",
        "1,2",
        "--batches",
        "1,2,3",
        "--repeats",
        "3",
        "--size",
        "32",
        "--out",
        out_text,
        "--json",
    ];
    let output = command(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["complete"], true);
    assert_eq!(document["samples"].as_array().unwrap().len(), 18);
    let group = &document["findings"]["groups"][0];
    assert_eq!(group["name"], "image files");
    assert_eq!(group["parameters"].as_array().unwrap().len(), 4);
    assert!(group["parameters"][0]["line"]["p"].is_number());
    assert!(group["parameters"][0]["words"].as_str().unwrap().contains("p = "));
    assert_eq!(group["parameters"][3]["doubts"][0]["kind"], "product");
    let page = std::fs::read_to_string(out.join("speedtest.html")).unwrap();
    assert!(page.matches("<script").count() == 1 && page.matches("<svg").count() == 4);
    let csv = std::fs::read_to_string(out.join("speedtest.csv")).unwrap();
    assert_eq!(csv.lines().count(), 19);
    for name in ["speedtest.json", "speedtest.md", "regressions.csv", "speedtest.jsonl"] {
        assert!(out.join(name).is_file(), "{name}");
    }

    let mut changed = args;
    changed[8] = "4";
    let output = command(&changed).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("another repeats") && said(&output).contains("hint:"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_killed_test_goes_on_and_measures_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let photos = photos(folder.path());
    let out = folder.path().join("out");
    let args = [
        "speedtest",
        "--images",
        &photos,
        "--batch-size",
        "2,4,8",
        "--batches",
        "3,6,9",
        "--repeats",
        "4",
        "--size",
        "32",
        "--out",
        out.to_str().unwrap(),
        "--json",
    ];
    let mut child = command(&args).stdout(std::process::Stdio::null()).spawn().unwrap();
    let journal = out.join("speedtest.jsonl");
    let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    let begun = std::time::Instant::now();
    while lines() < 4 && begun.elapsed() < paceline_testing::HANG {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = std::fs::read_to_string(&journal).unwrap();
    let whole = kept.rfind('\n').map_or(0, |end| end + 1);
    let output = command(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["samples"].as_array().unwrap().len(), 36);
    assert!(document["resumed"].as_u64().unwrap() >= 3);
    assert!(std::fs::read_to_string(&journal).unwrap().starts_with(&kept[..whole]));
}

/// What a test with `--measure-again` measured for each parameter.
fn journals_of(out: &Path) -> Vec<String> {
    ["", "again-batches", "again-repetition", "again-images"]
        .map(|folder| std::fs::read_to_string(out.join(folder).join("speedtest.jsonl")).unwrap())
        .into()
}

/// As an engine does that keeps no results: each of the four regressions has measurements of its own, and a second call finds all of them.
#[test]
fn measured_again_every_regression_has_its_own_measurements() {
    let folder = tempfile::tempdir().unwrap();
    let photos = photos(folder.path());
    let out = folder.path().join("out");
    let words = "--batch-size 1,2 --batches 1,2 --repeats 2 --size 32 --measure-again --json";
    let measure = || {
        let mut command = command(&["speedtest", "--images", &photos]);
        let output = command.args(words.split(' ')).arg("--out").arg(&out).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let document = measure();
    assert_eq!(document["measured_again"], true);
    let samples = document["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 8);
    let found = document["findings"]["groups"][0]["parameters"].as_array().unwrap();
    // Fastest and slowest measurement: of a journal, and of the averages per value.
    let ends = |speeds: Vec<f64>| {
        let (low, high) = (f64::INFINITY, f64::NEG_INFINITY);
        speeds.iter().fold((low, high), |(low, high), &speed| (low.min(speed), high.max(speed)))
    };
    let measured = |journal: &str| {
        let lines = journal.lines().filter_map(|line| serde_json::from_str(line).ok());
        let speeds: Vec<f64> = lines
            .filter_map(|line: serde_json::Value| line["images_per_second"].as_f64())
            .collect();
        assert_eq!(speeds.len(), 8, "{journal}");
        ends(speeds)
    };
    let keys = ["batch_size", "batches", "repetition", "images"];
    let mut journals = journals_of(&out);
    for ((finding, key), journal) in found.iter().zip(keys).zip(&journals) {
        assert_eq!(finding["parameter"], key);
        let levels = finding["levels"].as_array().unwrap().iter();
        let number = |level: &serde_json::Value, name: &str| level[name].as_f64().unwrap();
        let told = levels.flat_map(|level| [number(level, "min"), number(level, "max")]).collect();
        let ((low, high), (slowest, fastest)) = (ends(told), measured(journal));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
        assert!(near(low, slowest) && near(high, fastest), "{key}: {finding}");
    }
    journals.sort_unstable();
    journals.dedup();
    assert_eq!(journals.len(), 4, "each was measured by itself");
    let page = std::fs::read_to_string(out.join("speedtest.html")).unwrap();
    assert!(page.contains("measured again for each regression"));
    // Nothing is measured a third time.
    measure();
    for (journal, key) in journals_of(&out).iter().zip(keys) {
        assert!(journals.contains(journal), "{key}");
    }
}

#[test]
fn nothing_to_read_is_wrong_usage() {
    let output = command(&["speedtest"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("hint:"), "{}", said(&output));
    let here = tempfile::tempdir().unwrap();
    let mut missing = command(&["speedtest", "--records", "/no/such/folder"]);
    let output = missing.current_dir(here.path()).output().unwrap();
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0, "nothing is left behind");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/no/such/folder"), "{}", said(&output));
}
