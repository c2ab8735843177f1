//! `paceline prepare` and `paceline data fetch` as people call them.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod support;

use paceline_photo::{Colour, Encoder, Encoding, Pixels};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{document, paceline, run, said};

/// Two classes of `count` equal photos, and one file that is not a photo.
fn photos(root: &Path, count: usize, side: u32) -> (String, String) {
    let data = (0..side * side * 3).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let pixels = Pixels::from_data(side, side, Colour::Rgb, data).unwrap();
    let mut jpeg = Vec::new();
    Encoder::new().encode_into(&pixels, Encoding::Jpeg { quality: 90 }, &mut jpeg).unwrap();
    let first = root.join("first.bin");
    std::fs::write(&first, jpeg).unwrap();
    let src = root.join("src");
    for class in ["cat", "dog"] {
        std::fs::create_dir_all(src.join(class)).unwrap();
        for number in 0..count {
            // Links, so that thousands of photos cost nothing.
            std::fs::hard_link(&first, src.join(format!("{class}/{number}.jpg"))).unwrap();
        }
    }
    std::fs::write(src.join("dog/broken.jpg"), b"not a photo").unwrap();
    (text(src), text(root.join("dst")))
}

fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap()
}

#[test]
fn summary_is_one_json_document_and_a_second_run_finds_all_done() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = photos(dir.path(), 20, 50);
    let call = ["--json", "prepare", &src, &dst, "--size", "40x30", "--split", "validation=25%"];
    let output = run(&call);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let summary = document(&output);
    assert_eq!(summary["photos"], 41);
    assert_eq!((&summary["records"], &summary["rejects"]), (&40.into(), &1.into()));
    assert_eq!(summary["classes"], serde_json::json!(["cat", "dog"]));
    assert!(said(&output).contains("1 of 41 photos were rejected"), "{}", said(&output));
    let again = run(&call);
    assert_eq!((again.status.code(), &document(&again)["converted"]), (Some(0), &0.into()));
    let table = run(&["prepare", &src, &dst, "--size", "40x30", "--split", "validation=0.25"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.starts_with("split") && table.contains("validation"), "{table}");
}

#[test]
fn errors_have_their_exit_code_and_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = photos(dir.path(), 4, 50);
    let flat = text(dir.path().join("src/cat"));
    for (code, wanted, args) in [
        (2, "from 1 to 4096", vec![&*src, &dst, "--size", "0"]),
        (2, "invalid value", vec![&src, &dst, "--split", "validation"]),
        (2, "split name", vec![&src, &dst, "--split", "train=0.5"]),
        (2, "--encode jpeg", vec![&src, &dst, "--encode", "png", "--quality", "5"]),
        (1, "class folders", vec![&flat, &dst]),
        (1, "cannot list `/nowhere`", vec!["/nowhere", &dst]),
        (1, "hint: choose a target outside", vec![&src, &src]),
        (1, "broken.jpg: neither JPEG nor PNG", vec![&src, &dst, "--max-rejects", "0"]),
        (1, "hint: use the earlier settings", vec![&src, &dst, "--size", "77"]),
    ] {
        let output = run(&[&["prepare"], &args[..]].concat());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
    let output = run(&["prepare", &src, &dst, "--size", "77", "--fresh"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn interrupt_ends_cleanly_and_the_next_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = photos(dir.path(), 500, 400);
    let call = ["--json", "prepare", &src, &dst, "--shards", "50", "--size", "24"];
    let child =
        paceline().args(call).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let first = Path::new(&dst).join("train-00000-of-00050.tfrecord");
    while !first.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(document(&output)["hint"].as_str().unwrap().contains("same command"));
    let again = document(&run(&call));
    assert!(again["resumed_shards"].as_u64().unwrap() >= 1, "{again}");
    assert_eq!(again["records"], 1000);
}

#[test]
fn known_data_is_fetched_from_a_folder() {
    let Some(mnist) = paceline_testing::real_data("mnist") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (from, out) = (text(mnist), text(dir.path().join("mnist")));
    let output = run(&["data", "fetch", "mnist", &out, "--from", &from]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), out);
    let again = run(&["--json", "data", "fetch", "mnist", &out]);
    assert_eq!(document(&again)["was_complete"], true);
    let unknown = run(&["data", "fetch", "imagenet", &out]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("fashion-mnist"), "{}", said(&unknown));
    let closed = "http://127.0.0.1:9/";
    let away = text(dir.path().join("away"));
    let call = ["-q", "data", "fetch", "fashion-mnist", &away, "--from", closed, "--attempts", "1"];
    let refused = run(&call);
    assert_eq!(refused.status.code(), Some(75), "{}", said(&refused));
    assert!(said(&refused).contains("hint: run the same command again"), "{}", said(&refused));
}

/// Of PyTorch's files the name carries the beginning of the checksum, and another file is not taken for one.
#[test]
fn weights_are_fetched_by_the_name_of_their_model_and_must_be_the_published_ones() {
    let dir = tempfile::tempdir().unwrap();
    let from = text(dir.path().join("mobilenet_v2-b0353104.pth"));
    std::fs::write(&from, b"other weights").unwrap();
    let out = text(dir.path().join("weights"));
    let wrong = run(&["data", "fetch", "weights", "mobilenet_v2", &out, "--from", &from]);
    assert_eq!(wrong.status.code(), Some(1), "{}", said(&wrong));
    for needle in ["mobilenet_v2-b0353104.pth", "expected b0353104", "not the published one"] {
        assert!(said(&wrong).contains(needle), "{needle}: {}", said(&wrong));
    }
    for (words, needle) in [
        (&["weights"][..], "mobilenet-v2 and alexnet"),
        (&["weights", "resnet-20"], "no weights are known for `resnet-20`"),
        (&["mnist", "here", "there"], "one word too many"),
    ] {
        let output = run(&[&["data", "fetch"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(needle), "{needle}: {}", said(&output));
    }
}

/// Records of `--split holdout=0.5` were read back as training data.
#[test]
fn a_part_with_a_name_of_its_own_is_not_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let (src, dst) = photos(folder.path(), 20, 32);
    let done = run(&["prepare", &src, &dst, "--size", "16", "--split", "holdout=0.5", "--json"]);
    assert!(done.status.success(), "{}", said(&done));
    let manifest = std::fs::read(Path::new(&dst).join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let records = |split: &Value| -> u64 {
        split["shards"].as_array().unwrap().iter().map(|s| s["records"].as_u64().unwrap()).sum()
    };
    let splits = manifest["splits"].as_array().unwrap();
    let train = records(splits.iter().find(|split| split["name"] == "train").unwrap());
    assert!(train < 40, "{manifest}");
    let info = document(&run(&["data", "info", &dst, "--json"]));
    assert_eq!(info["splits"], serde_json::json!([{ "name": "train", "examples": train }]));
}
