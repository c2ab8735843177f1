//! `paceline serve` and `train --serve` as real processes.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::command;

fn get(address: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The address in a line such as "runs of `x` at http://127.0.0.1:4711/".
fn address(line: &str) -> Option<String> {
    let rest = line.split("http://").nth(1)?;
    Some(rest.split('/').next()?.to_owned())
}

#[test]
fn a_served_folder_ends_with_its_signal() {
    let root = tempfile::tempdir().unwrap();
    let mut child = command(&["serve", root.path().to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = address(&line).unwrap();
    assert!(get(&address, "/api/runs").contains("\"runs\":[]"));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_run_serves_its_own_folder_and_takes_the_page_with_it() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().to_str().unwrap();
    let mut child = command(&[
        "train",
        "--model",
        "softmax",
        "--data",
        "generated:digits?examples=300",
        "--epochs",
        "1e6",
        "--out",
        out,
        "--serve",
        "127.0.0.1:0",
    ])
    .stdout(Stdio::null())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| address(&line.unwrap())).expect("the address is said");
    let begun = Instant::now();
    let seen = loop {
        let answer = get(&address, "/api/runs");
        if answer.contains("\"state\":\"running\"") {
            break answer;
        }
        assert!(begun.elapsed() < paceline_testing::HANG, "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(seen.contains("softmax"), "{seen}");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
    assert!(TcpStream::connect(&address).is_err(), "the page outlived its run");
}

/// The page has the authority of Ctrl-C in the launcher's terminal: the run writes a checkpoint and ends.
#[test]
fn a_run_is_stopped_from_the_page_and_can_be_resumed() {
    let root = tempfile::tempdir().unwrap();
    let out = root.path().to_str().unwrap();
    let flags = "train --model softmax --data generated:digits?examples=300 --epochs 1e6 --serve 127.0.0.1:0 --out";
    let mut child = command(&flags.split(' ').collect::<Vec<_>>())
        .arg(out)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| address(&line.unwrap())).expect("the address is said");
    let mut run = only_run(&address, "running");
    while run["step"] == 0 {
        run = only_run(&address, "running");
    }
    let session = get(&address, "/api/session");
    let csrf = session.split("\"csrf\":\"").nth(1).unwrap().split('"').next().unwrap();
    let body = serde_json::json!({ "name": run["name"] }).to_string();
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(
        stream,
        "POST /api/run/stop HTTP/1.1\r\nHost: {address}\r\nX-Paceline-Csrf: {csrf}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let folder = root.path().join(run["name"].as_str().unwrap());
    let summary = std::fs::read_to_string(folder.join("summary.json")).unwrap();
    assert!(summary.contains("\"status\": \"cancelled\""), "{summary}");
    assert!(paceline_runs::RunFolder::open(&folder).unwrap().is_resumable());
}

/// The line of the only run there is.
fn only_run(address: &str, wanted: &str) -> serde_json::Value {
    let begun = Instant::now();
    loop {
        let answer = get(address, "/api/runs");
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let found: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        if found["runs"][0]["state"] == wanted {
            return found["runs"][0].clone();
        }
        assert!(begun.elapsed() < paceline_testing::HANG, "never {wanted}: {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sparse models are seen while they learn, like others.
#[test]
fn a_run_on_rows_serves_its_own_folder_too() {
    let root = tempfile::tempdir().unwrap();
    let rows = root.path().join("rows.svm");
    let row = |at: usize| format!("{} {}:1 {}:0.5\n", at % 2, 1 + at % 2, 3 + at % 7);
    std::fs::write(&rows, (0..2000).map(row).collect::<String>()).unwrap();
    let (out, rows) = (root.path().join("runs"), rows.to_str().unwrap().to_owned());
    let flags = ["--data", &rows, "--test", &rows, "--epochs", "1000000", "--bits", "10"];
    let place = ["--out", out.to_str().unwrap(), "--serve", "127.0.0.1:0"];
    let words = [&["train", "--model", "sparse-logistic"][..], &flags, &place].concat();
    let mut child = command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| address(&line.unwrap())).expect("the address is said");
    // What it says afterwards must not fill the pipe.
    let rest = std::thread::spawn(move || lines.count());
    let begun = Instant::now();
    let seen = loop {
        let seen = only_run(&address, "running");
        if seen["step"].as_u64() > Some(0) && seen["test_loss"].is_number() {
            break seen;
        }
        assert!(begun.elapsed() < paceline_testing::HANG, "{seen}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(seen["model"], "sparse-logistic", "{seen}");
    assert!(seen["train_loss"].is_number() && seen["rate"].is_number(), "{seen}");
    let name = seen["name"].as_str().unwrap();
    let page = get(&address, &format!("/api/run?name={name}"));
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
    rest.join().unwrap();
    assert!(TcpStream::connect(&address).is_err(), "the page outlived its run");
}

#[test]
fn a_cluster_that_forms_is_seen_before_it_has_a_plan() {
    let root = tempfile::tempdir().unwrap();
    let key = root.path().join("key");
    paceline_wire::ClusterKey::generate().unwrap().save(&key).unwrap();
    let ports: Vec<u16> = (0..2)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .map(|listener| listener.local_addr().unwrap().port())
        .collect();
    let node = |index: usize, out: &str| {
        let cluster = format!(
            r#"{{"cluster":{{"worker":["127.0.0.1:{}","127.0.0.1:{}"]}},"task":{{"type":"worker","index":{index}}}}}"#,
            ports[0], ports[1]
        );
        let flags = "node --model softmax --data generated:digits?examples=300 --strategy multi-worker --steps 20 --no-tensorboard";
        command(&flags.split(' ').collect::<Vec<_>>())
            .arg("--out")
            .arg(root.path().join(out))
            .env("TF_CONFIG", cluster)
            .env("PACELINE_KEY_FILE", &key)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let runs = root.path().join("chief");
    std::fs::create_dir(&runs).unwrap();
    let mut page = command(&["serve", runs.to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(page.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = address(&line).unwrap();
    let mut chief = node(0, "chief");
    let forming = only_run(&address, "forming");
    assert_eq!(forming["model"], "softmax", "{forming}");
    assert_eq!(forming["verdict"], "waiting for worker/1", "{forming}");
    let mut other = node(1, "other");
    let done = only_run(&address, "done");
    assert_eq!(done["workers"], 2, "{done}");
    assert!(chief.wait().unwrap().success() && other.wait().unwrap().success());
    // What both machines did is in the chief's summary, though the other's records lie elsewhere.
    let name = done["name"].as_str().unwrap();
    let text = std::fs::read_to_string(runs.join(name).join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(summary["diagnosis"]["limit"].is_string(), "{text}");
    Command::new("kill").args(["-INT", &page.id().to_string()]).status().unwrap();
    page.wait().unwrap();
}

#[test]
fn a_page_for_others_wants_a_token_worth_its_name() {
    let output =
        command(&["serve", "/tmp", "--listen", "127.0.0.1:0", "--token", "1234"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = command(&["serve", "/tmp", "--listen", "nonsense"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// `paceline serve typo` once made the folder and showed an empty page.
#[test]
fn a_mistyped_folder_is_refused_and_not_made() {
    let root = tempfile::tempdir().unwrap();
    for folder in [&["typo"][..], &[]] {
        let output = command(&["serve", "--listen", "127.0.0.1:0"])
            .args(folder)
            .current_dir(root.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let name = folder.first().unwrap_or(&"runs");
        assert!(said.contains(&format!("`{name}`")) && said.contains("hint:"), "{said}");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
