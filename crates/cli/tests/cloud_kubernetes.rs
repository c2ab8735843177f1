//! The real `kubectl` with a stand-in for Kubernetes' API server: the commands that `paceline cloud` runs, their answers and their refusals.
//!
//! The stand-in takes a JobSet only if the published models and the strict schemas of Kubernetes do (`tests/support/kubernetes_api.py`). There are no
//! nodes, so that nothing runs and nothing can be copied.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod cluster_support;
mod support;

use cluster_support::wait_for;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use support::{CLOUD_JOB, command_in, document, said};
use tempfile::TempDir;

/// The server, which ends with the test.
struct ApiServer(Child);

impl Drop for ApiServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with a job, and with a server that `kubectl` finds; `None` where the tools are missing.
fn site() -> Option<(TempDir, ApiServer)> {
    let python = paceline_testing::python("kubeflow_trainer_api, kubernetes_validate, yaml")?;
    let client = Command::new("kubectl").args(["version", "--client"]).output();
    if !client.is_ok_and(|output| output.status.success()) {
        return paceline_testing::missing("kubectl");
    }
    let site = tempfile::tempdir().unwrap();
    let here = site.path();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/kubernetes_api.py");
    let mut server = Command::new(python);
    server.arg(script).arg(here).stdin(Stdio::null()).env("PYTHONDONTWRITEBYTECODE", "1");
    let server = ApiServer(server.spawn().unwrap());
    wait_for("the API server", || here.join("port").exists());
    let port = fs::read_to_string(here.join("port")).unwrap();
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "ann"}}],
        "users": [{"name": "ann", "user": {}}],
    });
    fs::write(here.join("kubeconfig"), config.to_string()).unwrap();
    let prepare = r#"["prepare", "gs://lab/photos", "gs://lab/shards", "--size", "192"]"#;
    let train = r#"["train", "--model", "softmax", "--data", "/data/digits", "--epochs", "1"]"#;
    assert!(CLOUD_JOB.contains(prepare));
    fs::write(here.join("job.toml"), CLOUD_JOB.replace(prepare, train)).unwrap();
    Some((site, server))
}

fn cloud(site: &Path, words: &[&str]) -> Output {
    let words: Vec<&str> = ["cloud"].iter().chain(words).copied().collect();
    let mut command = command_in(site, &words);
    command.env("KUBECONFIG", site.join("kubeconfig")).env("HOME", site).output().unwrap()
}

/// Submits with the records in a folder of their own.
fn submit(site: &Path, jobs: &str) -> Output {
    let words = ["submit", "job.toml", "--target", "kubernetes", "--image", "reg/paceline:1"];
    let more = ["--claim", "data", "--key", "cluster-key", "--nodes", "3", "--time-limit", "2h"];
    cloud(site, &[&words[..], &more, &["--jobs", jobs]].concat())
}

fn state(site: &Path) -> String {
    let found = cloud(site, &["status", "flowers", "--json"]);
    document(&found)["state"].as_str().unwrap_or_else(|| panic!("{}", said(&found))).to_owned()
}

#[test]
fn kubectl_itself_submits_a_jobset_asks_follows_and_deletes_it() {
    let Some((site, _server)) = site() else { return };
    let here = site.path();
    let submitted = submit(here, "cloud");
    assert!(submitted.status.success(), "{}", said(&submitted));
    assert_eq!(state(here), "waiting");
    let states = [
        (
            r#"{"replicatedJobsStatus": [{"name": "worker", "active": 1, "ready": 3, "failed": 0, "succeeded": 0}]}"#,
            "running",
        ),
        (
            r#"{"conditions": [{"type": "Completed", "status": "True", "reason": "AllJobsCompleted"}]}"#,
            "done",
        ),
        (
            r#"{"conditions": [{"type": "Failed", "status": "True", "reason": "FailedJobs"}]}"#,
            "failed",
        ),
    ];
    for (status, expected) in states {
        fs::write(here.join("status"), status).unwrap();
        assert_eq!(state(here), expected);
    }
    fs::write(here.join("log"), "epoch 1\n").unwrap();
    let logs = cloud(here, &["logs", "flowers"]);
    let shown = String::from_utf8_lossy(&logs.stdout).into_owned();
    let mut lines: Vec<&str> = shown.lines().collect();
    lines.sort_unstable();
    let pod = |index: u32| format!("[pod/flowers-worker-0-{index}-x7k2p/paceline] epoch 1");
    assert_eq!(lines, [pod(0), pod(1), pod(2)], "{}", said(&logs));

    // Another record and the same name: what is there is not ours.
    let again = submit(here, "others");
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("Error from server (AlreadyExists)"), "{}", said(&again));
    assert!(said(&again).contains("choose another `name`"), "{}", said(&again));
    assert!(!here.join("others/flowers/job.json").exists());

    let stopped = cloud(here, &["stop", "flowers"]);
    assert!(stopped.status.success(), "{}", said(&stopped));
    assert_eq!(state(here), "stopped");
}

#[test]
fn what_the_api_server_refuses_is_told_in_its_words_and_leaves_no_job() {
    let Some((site, _server)) = site() else { return };
    let here = site.path();
    fs::write(here.join("forbidden"), "ann").unwrap();
    let refused = submit(here, "cloud");
    assert_eq!(refused.status.code(), Some(1));
    let told = said(&refused);
    assert!(told.contains("Error from server (Forbidden)"), "{told}");
    assert!(told.contains("lacks a permission"), "{told}");
    assert!(!here.join("cloud/flowers/job.json").exists());
    // Deleted by someone else: an error, since its end was not asked for here.
    fs::remove_file(here.join("forbidden")).unwrap();
    assert!(submit(here, "cloud").status.success());
    let mut delete = Command::new("kubectl");
    delete.args(["delete", "jobset", "flowers"]).env("KUBECONFIG", here.join("kubeconfig"));
    assert!(delete.env("HOME", here).output().unwrap().status.success());
    let gone = cloud(here, &["status", "flowers"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(said(&gone).contains("nothing of that name"), "{}", said(&gone));
}
