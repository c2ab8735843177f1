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

/// Names of files and classes come from data, and a terminal obeys what it is sent.
#[test]
fn names_from_data_do_not_command_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let draw = "data synth photos photos --per-class 2 --least-side 16 --most-side 24";
    let draw = command(&draw.split(' ').collect::<Vec<_>>()).current_dir(folder.path()).output();
    assert!(draw.unwrap().status.success());
    let class = folder.path().join("photos/da\u{1b}[2Jisy");
    std::fs::create_dir_all(&class).unwrap();
    std::fs::write(class.join("bad\u{1b}]0;gone\u{7}.jpg"), "no photo").unwrap();
    let output = command(&["data", "info", "photos"])
        .current_dir(folder.path())
        .env_remove("NO_COLOR")
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    let shown = text(&output.stdout) + &text(&output.stderr);
    assert!(shown.contains(r"bad\u{1b}]0;gone\u{7}.jpg"), "{shown:?}");
    assert!(!shown.contains('\u{7}') && !shown.contains("\u{1b}[2J"), "{shown:?}");
}

/// The program was ended by the system, without a checkpoint, when its terminal went away.
#[test]
fn a_closed_terminal_ends_a_run_with_a_checkpoint_unless_it_is_ignored() {
    for (prefix, signal, code) in [("", "HUP", 129), ("trap '' HUP; ", "HUP TERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let words = "train --model softmax --data generated:digits?examples=200 --epochs 100000 --no-tensorboard";
        let script = format!("{prefix}exec \"$0\" {}", words.replace('?', "'?'"));
        // Under `nohup` all that is started ignores SIGHUP.
        let mut child = std::process::Command::new("env")
            .args(["--default-signal=HUP", "sh", "-c", &script, support::program()])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let events = || {
            let runs = std::fs::read_dir(folder.path().join("runs")).ok()?;
            let run = runs.flatten().next()?.path();
            std::fs::metadata(run.join("events-worker-0.jsonl"))
                .ok()
                .filter(|file| file.len() > 4096)
        };
        while events().is_none() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for signal in signal.split(' ') {
            let number = child.id().to_string();
            let mut kill = std::process::Command::new("kill");
            let sent = kill.args(["-s", signal, &number]).status().unwrap();
            assert!(sent.success());
        }
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        let runs = std::fs::read_dir(folder.path().join("runs")).unwrap();
        let run = runs.flatten().next().unwrap().path();
        let checkpoints = std::fs::read_dir(run.join("checkpoints")).unwrap().count();
        assert!(checkpoints > 0, "{signal}");
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
