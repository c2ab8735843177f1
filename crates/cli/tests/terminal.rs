//! The contract of the command line, through the real binary: streams, exit codes, colour.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::Stdio;
use support::{command, paceline, run};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_lists_the_commands_and_exits_with_zero() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for command in paceline_cli::command().get_subcommands() {
        assert!(help.contains(command.get_name()), "{} is not in --help", command.get_name());
    }
    assert!(output.stderr.is_empty());
}

#[test]
fn unknown_commands_and_flags_are_usage_errors_on_stderr() {
    for args in [&["fly"][..], &["man", "--moon"][..], &[][..]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn json_is_one_document_on_stdout() {
    let output = run(&["completions", "bash", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["shell"], "bash");
}

#[test]
fn failures_are_json_on_stdout_and_words_on_stderr() {
    // The pipe alone must be reason enough to leave colours out.
    let call = ["man", "--out", "/dev/null/x", "--json"];
    let output = command(&call).env_remove("NO_COLOR").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["exit"], 1);
    assert!(document["error"].as_str().unwrap().contains("/dev/null/x"));
    let talk = text(&output.stderr);
    assert!(talk.contains("error:") && talk.contains("/dev/null/x"), "{talk}");
    assert!(!talk.contains('\u{1b}'), "colour in a pipe: {talk:?}");
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = text(&run(&["completions", shell]).stdout);
        assert!(script.contains("completions"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["man", "--out", folder.path().to_str().unwrap()]);
    assert!(output.status.success());
    for command in paceline_cli::command().get_subcommands() {
        let page = folder.path().join(format!("paceline-{}.1", command.get_name()));
        assert!(page.exists(), "{}", page.display());
    }
}

#[test]
fn a_reader_that_stops_early_is_not_an_error() {
    let mut child = paceline()
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
