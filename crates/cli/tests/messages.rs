//! What people are told when something is wrong, word for word, through the real binary.
//!
//! `messages.txt` has a command line after each `$`, what it writes on stderr, and its exit code. `PACELINE_BLESS=1` writes
//! it again; read the difference before it is committed: would a colleague say it so?

#![allow(clippy::unwrap_used)]

mod support;

use std::{fs, path::Path};
use support::{run_in, said, train_as};

const DIGITS: &str = "generated:digits?examples=100";

fn told(folder: &Path, words: &[&str]) -> (String, i32) {
    let output = run_in(folder, words);
    (said(&output), output.status.code().unwrap_or(-1))
}

#[test]
fn people_are_told_what_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (said, code) = told(folder, &["data", "synth", "clicks", "clicks.tsv", "--rows", "200"]);
    assert_eq!(code, 0, "{said}");
    fs::write(folder.join("rows.svm"), "1 1:1 2:0.5\n0 3:1\n".repeat(20)).unwrap();
    train_as(folder, "dense", &format!("--model softmax --data {DIGITS} --steps 2"));
    train_as(folder, "sparse", "--model sparse-logistic --data clicks.tsv --bits 10");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages.txt");
    let written = fs::read_to_string(&path).unwrap();
    let mut found = String::new();
    for line in written.lines().filter(|line| line.starts_with('$')) {
        let words: Vec<String> =
            line.split_whitespace().skip(2).map(|word| word.replace("DIGITS", DIGITS)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (said, code) = told(folder, &words);
        let said = said.replace(folder.to_str().unwrap(), "FOLDER");
        found.push_str(&format!("{line}\n{}\n[exit {code}]\n\n", said.trim_end()));
    }
    if std::env::var_os("PACELINE_BLESS").is_some() {
        fs::write(&path, &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(&path).unwrap());
}

/// It was an abort with a backtrace, after the run had begun.
#[test]
fn a_batch_that_no_memory_holds_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let data = "generated:images?size=224&classes=10&examples=9000000";
    for model in ["alexnet", "mobilenet-v2"] {
        let call =
            ["train", "--model", model, "--data", data, "--steps", "1", "--batch-size", "9000000"];
        let (said, code) = told(folder.path(), &call);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("GB of memory") && said.contains("this process may use"), "{said}");
        assert!(said.contains("hint: `--batch-size "), "{said}");
        assert!(!folder.path().join("runs").exists(), "a run folder was made");
        let call = ["list", "models", "--profile", model, "--batch-size", "9000000"];
        let (said, code) = told(folder.path(), &call);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("GB of memory"), "{said}");
    }
}

/// The page beside a run is opened by `train`, whose flag has another name than that of `serve`.
#[test]
fn the_hint_for_a_port_in_use_names_the_flag_that_was_typed() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("runs")).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (said, _) = told(folder.path(), &["serve", "--listen", &address]);
    assert!(said.contains("`--listen 127.0.0.1:0`"), "{said}");
    let call =
        ["train", "--model", "softmax", "--data", DIGITS, "--steps", "2", "--serve", &address];
    let (said, _) = told(folder.path(), &call);
    assert!(said.contains("`--serve 127.0.0.1:0`") && !said.contains("--listen"), "{said}");
}
