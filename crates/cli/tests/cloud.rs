//! `paceline cloud` with stand-ins for the providers' tools: scripts that replay answers as the services give them, errors included.
//! The stand-in for ssh runs what it is given on this machine, so that the job there is a real one.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod support;

use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use support::{CLOUD_JOB, command_in, document, json, said};

/// A folder with the job and an empty folder of tools, which is all of the PATH but the system's own.
fn site() -> tempfile::TempDir {
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("job.toml"), CLOUD_JOB).unwrap();
    fs::create_dir(site.path().join("bin")).unwrap();
    site
}

/// Writes a tool that does what the script says.
fn tool(site: &Path, name: &str, script: &str) {
    let path = site.join("bin").join(name);
    fs::write(
        &path,
        format!("#!/bin/bash\necho \"$0 $*\" >> {}/calls\n{script}\n", site.display()),
    )
    .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn cloud(site: &Path, words: &[&str]) -> Output {
    let path = format!("{}:/usr/bin:/bin", site.join("bin").display());
    let words: Vec<&str> = ["cloud"].iter().chain(words).copied().collect();
    command_in(site, &words).env("PATH", path).output().unwrap()
}

fn calls(site: &Path) -> String {
    fs::read_to_string(site.join("calls")).unwrap_or_default()
}

/// `gcloud` of an account with 8 vCPUs and 4 addresses, as its JSON has them.
const GCLOUD: &str = r#"case "$*" in
"auth list"*) echo '[{"account": "ann@example.org", "status": "ACTIVE"}]' ;;
"services list"*) echo '[{"config": {"name": "compute.googleapis.com"}}, {"name": "projects/1/services/storage.googleapis.com"}]' ;;
"compute regions describe"*) echo '{"name": "us-central1", "quotas": [{"metric": "CPUS", "limit": 8.0, "usage": CPUS_USED}, {"metric": "IN_USE_ADDRESSES", "limit": 4.0, "usage": 0.0}, {"metric": "DISKS_TOTAL_GB", "limit": 2048.0, "usage": 0.0}, {"metric": "NVIDIA_K80_GPUS", "limit": 0.0, "usage": 0.0}]}' ;;
"compute machine-types list"*) echo '[{"name": "n1-standard-2"}]' ;;
"dataproc clusters list"*) echo '[]' ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac"#;

#[test]
fn a_plan_keeps_the_quotas_and_says_what_bounds_it() {
    let site = site();
    let plan = json(&cloud(site.path(), &["plan", "job.toml", "--objective", "time", "--json"]));
    let chosen = &plan["shapes"][0];
    assert_eq!(
        (chosen["machine"].as_str(), chosen["nodes"].as_u64()),
        (Some("n1-standard-2"), Some(3))
    );
    assert!(chosen["demand"]["vcpus"].as_f64().unwrap() <= 8.0);
    assert!(chosen["demand"]["standard_disk_gb"].as_f64().unwrap() <= 716.0);
    let text = cloud(site.path(), &["plan", "job.toml", "--chart", "front.svg"]);
    let shown = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(shown.starts_with("flowers: ") && shown.contains("bound by"), "{shown}");
    assert!(fs::read_to_string(site.path().join("front.svg")).unwrap().starts_with("<svg"));
}

#[test]
fn a_job_file_with_a_slip_ends_with_2_and_names_the_key() {
    let site = site();
    fs::write(site.path().join("job.toml"), CLOUD_JOB.replace("gb = 22", "gb = 0")).unwrap();
    let output = cloud(site.path(), &["plan", "job.toml"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("`job.toml`: data.gb is 0, must be above zero"),
        "{}",
        said(&output)
    );
    fs::write(site.path().join("job.toml"), CLOUD_JOB.replace("vcpus = 8", "vcpus = 1")).unwrap();
    let output = cloud(site.path(), &["plan", "job.toml"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(
        said(&output).contains("no shape satisfies the job: quota of vCPUs"),
        "{}",
        said(&output)
    );
}

#[test]
fn what_the_account_lacks_is_said_before_anything_is_submitted() {
    let site = site();
    let words = [
        "check",
        "job.toml",
        "--project",
        "lab",
        "--target",
        "dataproc",
        "--objective",
        "time",
        "--json",
    ];
    // Some machines have the real one.
    let all: Vec<&str> = ["cloud"].iter().chain(&words).copied().collect();
    let mut without = command_in(site.path(), &all);
    let missing = without.env("PATH", site.path().join("bin")).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        said(&missing).contains("`gcloud` is not installed")
            && said(&missing).contains("gcloud auth login"),
        "{}",
        said(&missing)
    );

    tool(site.path(), "gcloud", &GCLOUD.replace("CPUS_USED", "6.0"));
    let found = cloud(site.path(), &words);
    assert_eq!(found.status.code(), Some(1), "{}", said(&found));
    let answer = document(&found);
    let findings: Vec<String> = answer["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            format!("{} {}", finding["answer"].as_str().unwrap(), finding["what"].as_str().unwrap())
        })
        .collect();
    for expected in [
        "yes logged in as ann@example.org",
        "no dataproc.googleapis.com is not enabled",
        "yes compute.googleapis.com is enabled",
        "yes storage.googleapis.com is enabled",
        "yes n1-standard-2 is offered in us-central1",
        "yes the name flowers is free",
        "no you asked for 8 vCPUs, 2 are left in us-central1",
    ] {
        assert!(findings.iter().any(|finding| finding == expected), "{expected}: {findings:?}");
    }
    assert!(!calls(site.path()).contains("create"), "{}", calls(site.path()));
}

#[test]
fn what_the_tool_may_not_tell_is_unknown_and_not_a_refusal() {
    let site = site();
    let forbidden =
        "echo 'ERROR: (gcloud) PERMISSION_DENIED: Permission denied on resource (403)' >&2; exit 1";
    tool(site.path(), "gcloud", forbidden);
    let found = cloud(site.path(), &["check", "job.toml", "--json"]);
    let answer = json(&found);
    assert_eq!(answer["passes"], Value::Bool(true));
    let findings = answer["findings"].as_array().unwrap();
    assert!(findings.iter().all(|finding| finding["answer"] == "unknown"), "{findings:?}");
    assert!(findings[0]["hint"].as_str().unwrap().contains("lacks a permission"), "{findings:?}");
}

#[test]
fn a_gpu_beyond_the_limit_is_refused_in_the_words_of_the_limit() {
    let site = site();
    let job = CLOUD_JOB.replace(
        "extra_nodes = 1",
        "extra_nodes = 0\nmax_nodes = 1\ngpus_per_node = 1\ngpu = \"K80\"",
    );
    fs::write(site.path().join("job.toml"), job).unwrap();
    tool(site.path(), "gcloud", &GCLOUD.replace("CPUS_USED", "0.0"));
    let found = cloud(site.path(), &["check", "job.toml"]);
    assert_eq!(found.status.code(), Some(1), "{}", said(&found));
    let shown = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(shown.contains("you asked for 1 K80 GPUs, 0 are left in us-central1"), "{shown}");
}

#[test]
fn a_dry_run_shows_everything_and_runs_nothing() {
    let site = site();
    tool(site.path(), "gcloud", "exit 9");
    let words = [
        "submit",
        "job.toml",
        "--target",
        "dataproc",
        "--binary",
        "paceline",
        "--project",
        "lab",
        "--objective",
        "time",
        "--dry-run",
    ];
    let output = cloud(site.path(), &words);
    assert!(output.status.success(), "{}", said(&output));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("$ gcloud dataproc clusters create flowers"), "{shown}");
    assert!(shown.contains("--num-workers=3") && shown.contains("--engine spark"), "{shown}");
    assert!(calls(site.path()).is_empty() && !site.path().join("cloud").exists());
}

#[test]
fn a_refused_submission_leaves_no_job_and_says_what_to_do() {
    let site = site();
    let train = r#"["train", "--model", "softmax", "--data", "/gcs/lab/digits", "--epochs", "1"]"#;
    let job = CLOUD_JOB
        .replace(r#"["prepare", "gs://lab/photos", "gs://lab/shards", "--size", "192"]"#, train);
    fs::write(site.path().join("job.toml"), job).unwrap();
    let words =
        ["submit", "job.toml", "--target", "vertex", "--image", "x", "--key", "/gcs/k/cluster.key"];
    let answers = [
        (
            "ERROR: (gcloud.ai.custom-jobs.create) RESOURCE_EXHAUSTED: Quota failure: code 429",
            "larger quota",
        ),
        (
            "Vertex AI API has not been used in project 1 before or it is disabled (SERVICE_DISABLED)",
            "gcloud services enable",
        ),
    ];
    for (error, hint) in answers {
        tool(site.path(), "gcloud", &format!("echo '{error}' >&2; exit 1"));
        let output = cloud(site.path(), &words);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(error) && said(&output).contains(hint), "{}", said(&output));
        let status = cloud(site.path(), &["status", "flowers"]);
        assert!(said(&status).contains("holds no job"), "{}", said(&status));
    }
}

#[test]
fn a_job_is_submitted_followed_and_stopped_through_the_services_tool() {
    let site = site();
    let train = r#"["train", "--model", "softmax", "--data", "/data/digits", "--epochs", "1"]"#;
    let job = CLOUD_JOB
        .replace(r#"["prepare", "gs://lab/photos", "gs://lab/shards", "--size", "192"]"#, train);
    fs::write(site.path().join("job.toml"), job).unwrap();
    tool(site.path(), "sbatch", "bash -n \"${@: -2:1}\" || exit 1; echo '4711;lab'");
    tool(site.path(), "scontrol", "exit 1");
    tool(site.path(), "squeue", "cat state 2>/dev/null");
    tool(site.path(), "sacct", "echo COMPLETED");
    tool(site.path(), "scancel", "echo CANCELLED > state");
    let words =
        ["submit", "job.toml", "--target", "slurm", "--nodes", "2", "--cores", "8", "--key", "k"];
    let words: Vec<&str> =
        words.into_iter().chain(["--memory", "16GiB", "--time-limit", "2h", "--json"]).collect();
    let found = json(&cloud(site.path(), &words));
    assert_eq!(found["id"], "4711");
    let script = fs::read_to_string(site.path().join("cloud/flowers/job.sbatch")).unwrap();
    assert!(
        script.contains("paceline node --model softmax")
            && script.contains("--mem=16G")
            && script.contains("--time=120"),
        "{script}"
    );
    let again = cloud(site.path(), &words);
    assert!(
        !again.status.success() && said(&again).contains("already holds a job"),
        "{}",
        said(&again)
    );
    let state = |expected: &str| {
        let found = document(&cloud(site.path(), &["status", "flowers", "--json"]));
        assert_eq!(found["state"], expected, "{found}");
    };
    fs::write(site.path().join("state"), "PENDING\n").unwrap();
    state("waiting");
    fs::write(site.path().join("state"), "RUNNING\n").unwrap();
    state("running");
    assert!(cloud(site.path(), &["stop", "flowers"]).status.success());
    state("stopped");
    fs::remove_file(site.path().join("state")).unwrap();
    state("done");
}

#[test]
fn a_command_that_paceline_would_not_take_is_refused_here() {
    let site = site();
    fs::write(site.path().join("job.toml"), CLOUD_JOB.replace("--size", "--sizes")).unwrap();
    let words = ["submit", "job.toml", "--target", "dataproc", "--binary", "x", "--dry-run"];
    let output = cloud(site.path(), &words);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("is not a paceline command line")
            && said(&output).contains("--sizes"),
        "{}",
        said(&output)
    );
}

/// `ssh HOST COMMAND` and `scp FROM HOST:TO` on this machine: every host is a folder.
const SSH: &str = r#"while [[ $1 == -* ]]; do [[ $1 == -o ]] && shift; shift; done
home=$HOSTS/$1; mkdir -p "$home"; cd "$home" && HOME=$home exec bash -c "$2""#;
const SCP: &str = r#"words=(); while [[ $# -gt 0 ]]; do case $1 in -o) shift ;; -*) ;; *) words+=("$1") ;; esac; shift; done
place() { case $1 in *:/*) echo "${1#*:}" ;; *:*) echo "$HOSTS/${1%%:*}/${1#*:}" ;; *) echo "$1" ;; esac; }
cp -r "$(place "${words[0]}")" "$(place "${words[1]}")""#;

#[test]
fn two_hosts_train_together_over_ssh_and_their_run_is_fetched() {
    let site = site();
    let folder = site.path();
    let key = support::run_in(folder, &["key", "new", "cluster.key"]);
    assert!(key.status.success(), "{}", said(&key));
    let out = folder.join("out");
    let train = format!(
        r#"["train", "--model", "softmax", "--data", "generated:digits?examples=600", "--strategy", "multi-worker", "--steps", "5", "--batch-size", "32", "--out", "{}"]"#,
        out.display()
    );
    let job = CLOUD_JOB
        .replace(r#"["prepare", "gs://lab/photos", "gs://lab/shards", "--size", "192"]"#, &train);
    fs::write(folder.join("job.toml"), job).unwrap();
    tool(folder, "ssh", &format!("HOSTS={}/hosts\n{SSH}", folder.display()));
    tool(folder, "scp", &format!("HOSTS={}/hosts\n{SCP}", folder.display()));
    // Two loopback addresses stand for two hosts, with the same port on each.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let words = [
        "submit",
        "job.toml",
        "--target",
        "ssh",
        "--hosts",
        "127.0.0.1,127.0.0.2",
        "--port",
        &port,
    ];
    let words: Vec<&str> =
        words.into_iter().chain(["--key", "cluster.key", "--binary", support::program()]).collect();
    let submitted = cloud(folder, &words);
    assert!(submitted.status.success(), "{}", said(&submitted));
    let log = || {
        fs::read_to_string(folder.join("hosts/127.0.0.1/.paceline/flowers/log")).unwrap_or_default()
    };
    let state = loop {
        let found = document(&cloud(folder, &["status", "flowers", "--json"]));
        let state = found["state"].as_str().unwrap().to_owned();
        if state != "running" {
            break state;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    assert_eq!(state, "done", "{}", log());
    let there = out.display().to_string();
    let fetched = cloud(folder, &["fetch", "flowers", &there, "--out", "here"]);
    assert!(fetched.status.success(), "{}", said(&fetched));
    let runs = support::json_in(folder, &["runs", "--runs", "here", "--json"]);
    assert!(runs.to_string().contains("multi-worker"), "{runs}");
}

#[test]
fn data_that_keep_arriving_are_batch_online_or_streaming_by_the_delay_allowed() {
    let advise = |delay: &str| {
        let words = [
            "advise",
            "job",
            "--data-size",
            "100GB",
            "--growth",
            "10GB",
            "--example",
            "300B",
            "--delay",
            delay,
        ];
        let words: Vec<&str> = words.into_iter().chain(["--rate", "500000", "--json"]).collect();
        json(&support::run(&words))["mode"].as_str().unwrap().to_owned()
    };
    assert_eq!([advise("24h"), advise("15min"), advise("10s")], ["batch", "online", "streaming"]);
}
