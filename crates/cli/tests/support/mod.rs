//! The program itself, for tests that call it as people do.
//!
//! Every test through the binary starts it here, so that none of them depends on variables of the shell it is run from.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of it

use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

/// A job for `paceline cloud`.
pub const CLOUD_JOB: &str = include_str!("cloud_job.toml");

/// Variables that would make the program belong to a cluster, or find data of its own.
const SURROUNDINGS: &[&str] =
    &["PACELINE_DATA", "PACELINE_KEY_FILE", "TF_CONFIG", "CLUSTER_SPEC", "RANK", "WORLD_SIZE"];

/// Where the program is.
pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_paceline")
}

/// The program: nothing to read, no colours, no cluster.
pub fn paceline() -> Command {
    let mut command = Command::new(program());
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    SURROUNDINGS.iter().for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// The program with these words.
pub fn command(words: &[&str]) -> Command {
    let mut command = paceline();
    command.args(words);
    command
}

/// The same in a folder.
pub fn command_in(folder: &Path, words: &[&str]) -> Command {
    let mut command = command(words);
    command.current_dir(folder);
    command
}

/// Runs it to its end.
pub fn run(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

/// The same in a folder.
pub fn run_in(folder: &Path, words: &[&str]) -> Output {
    command_in(folder, words).output().unwrap()
}

/// What was said on stderr.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The JSON of a call that succeeded.
#[track_caller]
pub fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{:?}: {}", output.status, said(output));
    document(output)
}

/// The JSON of a call, whatever its exit code.
#[track_caller]
pub fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("stdout is not one JSON document: {error}: {}", said(output))
    })
}

/// Runs it in a folder; it must succeed and write JSON.
#[track_caller]
pub fn json_in(folder: &Path, words: &[&str]) -> Value {
    let output = run_in(folder, words);
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    document(&output)
}

/// Trains in a folder, and calls the run folder `runs/NAME`.
#[track_caller]
pub fn train_as(folder: &Path, name: &str, flags: &str) {
    let line = format!("train --out new --no-tensorboard --quiet {flags}");
    let output = run_in(folder, &line.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {}", said(&output));
    let made = fs::read_dir(folder.join("new")).unwrap().next().unwrap().unwrap().path();
    fs::create_dir_all(folder.join("runs")).unwrap();
    fs::rename(made, folder.join("runs").join(name)).unwrap();
}
