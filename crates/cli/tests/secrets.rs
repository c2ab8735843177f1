//! Keys, tokens and credentials stay where they belong: runs with known secrets are searched for them, in all that the program
//! says, all that it leaves on disk, and the command lines and environments of what it starts.

#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")] // reads /proc

mod cluster_support;
#[path = "cluster_support/places.rs"]
mod places;
mod support;

use cluster_support::*;
use places::*;
use std::{fs, path::Path, process::Output};

const CREDENTIAL: &str = "wJalrXUtnFEMIsecretK7MDENGbPxRfiCY";
const TOKEN: &str = "tokenThatNoPageAskedFor";
const PASSWORD: &str = "correcthorsebattery";

/// Every file under `folder` that holds one of `secrets`.
fn search(folder: &Path, secrets: &[&str], found: &mut Vec<String>) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += search(&path, secrets, found);
        } else if path.is_file() {
            files += 1;
            let bytes = fs::read(&path).unwrap();
            for secret in secrets {
                if bytes.windows(secret.len()).any(|window| window == secret.as_bytes()) {
                    found.push(format!("{} holds {secret}", path.display()));
                }
            }
        }
    }
    files
}

/// What `/proc` tells all users about a process.
fn command_line(process: u32) -> String {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn environment(process: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{process}/environ")).unwrap_or_default())
        .replace('\0', "\n")
}

fn silent(text: &str, secrets: &[&str]) {
    for secret in secrets {
        assert!(!text.contains(secret), "{secret} in: {text}");
    }
}

#[test]
fn the_key_of_a_cluster_and_credentials_of_its_user_stay_out_of_logs_and_run_folders() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(2), key(&folder, "key"));
    let text = fs::read_to_string(&key).unwrap();
    let secret = text.trim().rsplit('-').next().unwrap();
    assert!(secret.len() >= 32, "a key is long");
    let secrets = [&secret[..16], &secret[16..], CREDENTIAL, TOKEN];
    let flags =
        "--model softmax --batch-size 20 --lr 0.1 --threads 1 --strategy multi-worker --epochs 3";
    let start = |index: usize| {
        let out = tempfile::tempdir().unwrap();
        let mut command = support::paceline();
        command.arg("node").args(flags.split(' ')).args(["--data", DIGITS, "--key", &key]);
        command.args(["--join-timeout", JOINS, "--json", "--out"]).arg(out.path());
        command.env("TF_CONFIG", workers(&ports, "worker", index));
        command.env("AWS_SECRET_ACCESS_KEY", CREDENTIAL).env("PACELINE_TOKEN", TOKEN);
        spawn(command, out)
    };
    let runs = [start(0), start(1)];
    let ended = runs.map(Run::end);
    for task in &ended {
        assert_eq!(task.code(), 0, "{}", task.talk);
        silent(&task.talk, &secrets);
        silent(&task.json().to_string(), &secrets);
    }
    let mut found = Vec::new();
    let files: usize = ended.iter().map(|task| search(task.out.path(), &secrets, &mut found)).sum();
    assert!(files >= 3 && found.is_empty(), "{files} files; {found:?}");
}

/// The key of local tasks is drawn by the program: whatever looks like one is searched for.
#[test]
fn local_tasks_are_told_their_key_where_no_other_user_sees_it() {
    let mut run = train("multi-worker", &["--workers", "2", "--steps", "100000"]);
    run.wait_for_step(1);
    let folder = run.folder();
    for (task, process) in processes(&folder) {
        let line = command_line(process);
        assert!(line.contains("node"), "{task}: {line}");
        silent(&line, &["paceline-key"]);
        silent(&environment(process), &["paceline-key"]);
    }
    let mut found = Vec::new();
    let files = search(&folder, &["paceline-key"], &mut found);
    assert!(files >= 3 && found.is_empty(), "{found:?}");
    let (_, ended) = end_in_order(run);
    silent(&ended.talk, &["paceline-key"]);
}

fn fails(folder: &Path, command: &str) -> Output {
    let mut paceline = support::paceline();
    paceline.current_dir(folder).args(command.split(' '));
    let output = paceline.env("AWS_SECRET_ACCESS_KEY", CREDENTIAL).output().unwrap();
    assert!(!output.status.success(), "{command}");
    output
}

#[test]
fn a_password_in_an_address_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    // Port 1 of this machine: nothing listens there.
    let address = format!("http://me:{PASSWORD}@127.0.0.1:1/set");
    for command in ["data info", "train --model softmax --steps 1 --data"] {
        let output = fails(folder.path(), &format!("{command} {address}"));
        let said = [output.stdout, output.stderr].concat();
        silent(&String::from_utf8_lossy(&said), &[PASSWORD, CREDENTIAL]);
    }
    let mut found = Vec::new();
    search(folder.path(), &[PASSWORD], &mut found);
    assert!(found.is_empty(), "{found:?}");
}
