//! What each target writes, and how answers are read.

use super::record::number;
use super::*;
use crate::tool::{Tool, command_line};
use std::{
    sync::{Barrier, atomic::AtomicBool},
    time::Duration,
};

fn request(command: &[&str]) -> SubmitRequest {
    SubmitRequest {
        name: "flowers".to_owned(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        nodes: 3,
        machine: "n1-standard-2".to_owned(),
        vcpus: 2,
        memory_gib: 7,
        disk: Some(("pd-standard".to_owned(), 238)),
        project: Some("lab".to_owned()),
        region: Some("us-central1".to_owned()),
        image: Some("reg/paceline:0.1.0".to_owned()),
        hosts: vec!["ann@a".to_owned(), "b".to_owned()],
        key: Some("cluster.key".to_owned()),
        binary: Some(PathBuf::from("bin/paceline")),
        claim: Some("data".to_owned()),
        port: 7000,
        minutes: Some(90),
        gpu: None,
        mark: "p1-2".to_owned(),
    }
}

const TRAIN: &[&str] = &["train", "--model", "lenet", "--data", "/data/dig its"];

#[test]
fn names_that_a_service_would_refuse_are_refused_here() {
    for good in ["a", "flowers-2", "a1"] {
        check_name(good).unwrap();
    }
    for bad in ["", "A", "1a", "a-", "a_b", "a b", &"a".repeat(41), "a;rm"] {
        assert!(check_name(bad).is_err(), "{bad}");
    }
}

#[test]
fn every_target_is_complete_and_its_scripts_are_shell() {
    for target in TARGETS {
        let command = if target.name() == "dataproc" {
            &["prepare", "gs://a b", "gs://c"][..]
        } else {
            TRAIN
        };
        let steps = target.steps(&request(command)).unwrap();
        let complete =
            [&steps.status, &steps.logs, &steps.fetch].iter().all(|argv| !argv.is_empty());
        assert!(
            complete && !steps.submit.is_empty() && !steps.stop.is_empty(),
            "{}",
            target.name()
        );
        for (name, content) in &steps.files {
            if name.ends_with(".sh") || name.ends_with(".sbatch") {
                let mut shell = std::process::Command::new("bash")
                    .args(["-n", "/dev/stdin"])
                    .stdin(std::process::Stdio::piped())
                    .spawn()
                    .unwrap();
                std::io::Write::write_all(&mut shell.stdin.take().unwrap(), content.as_bytes())
                    .unwrap();
                assert!(shell.wait().unwrap().success(), "{name}: {content}");
            }
        }
    }
}

#[test]
fn several_nodes_run_node_and_need_a_key_one_runs_train() {
    let several = request(TRAIN);
    assert_eq!(several.task_command()[0], "node");
    let alone = SubmitRequest { nodes: 1, ..request(TRAIN) };
    assert_eq!(alone.task_command()[0], "train");
    let product = request(&["matmul", "--size", "9"]);
    assert_eq!(product.task_command().last().unwrap(), "--node");
    let product = SubmitRequest { nodes: 1, ..product };
    assert_eq!(product.task_command().last().unwrap(), "9");
    let keyless = SubmitRequest { key: None, ..request(TRAIN) };
    for name in ["vertex", "kubernetes", "slurm", "ssh"] {
        let error = target(name).unwrap().steps(&keyless).unwrap_err().to_string();
        assert!(error.contains("--key"), "{name}: {error}");
    }
}

#[test]
fn dataproc_takes_only_what_spark_spreads_and_the_planned_disk() {
    let dataproc = target("dataproc").unwrap();
    assert!(dataproc.steps(&request(TRAIN)).is_err());
    let steps = dataproc.steps(&request(&["prepare", "gs://a", "gs://b"])).unwrap();
    let create = command_line(&steps.submit[0]);
    assert!(
        create.contains("--worker-boot-disk-size=238GB") && create.contains("--num-workers=3"),
        "{create}"
    );
    assert!(create.contains("--max-age=90m") && create.contains("--project=lab"), "{create}");
}

/// Its own description of a disk names `pd-ssd`, `pd-standard` and a kind for one series of machines.
#[test]
fn vertex_was_asked_for_a_balanced_disk_which_it_does_not_have() {
    let disk = |kind: &str, gb| {
        let request = SubmitRequest { disk: Some((kind.to_owned(), gb)), ..request(TRAIN) };
        let steps = target("vertex").unwrap().steps(&request).unwrap();
        let (_, rest) = steps.files[0].1.split_once("diskSpec: ").unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    assert_eq!(disk("pd-balanced", 23), "{bootDiskType: \"pd-ssd\", bootDiskSizeGb: 100}");
    assert_eq!(disk("pd-ssd", 400), "{bootDiskType: \"pd-ssd\", bootDiskSizeGb: 400}");
    assert_eq!(disk("pd-standard", 238), "{bootDiskType: \"pd-standard\", bootDiskSizeGb: 238}");
}

#[test]
fn the_gpus_that_were_checked_are_the_ones_asked_for() {
    let with = |gpu: &str| SubmitRequest { gpu: Some((gpu.to_owned(), 2)), ..request(TRAIN) };
    let files = |name: &str| {
        let steps = target(name).unwrap().steps(&with("T4")).unwrap();
        steps.files.into_iter().map(|(_, content)| content).collect::<String>()
    };
    assert!(
        files("vertex").contains("acceleratorType: NVIDIA_TESLA_T4\n      acceleratorCount: 2")
    );
    assert!(files("slurm").contains("#SBATCH --gres=gpu:T4:2\n"));
    assert!(files("kubernetes").contains(r#""nvidia.com/gpu": "2""#));
    let prepare = ["prepare", "gs://a", "gs://b"].map(str::to_owned).to_vec();
    let dataproc = |request: SubmitRequest| {
        target("dataproc").unwrap().steps(&SubmitRequest { command: prepare.clone(), ..request })
    };
    let create = command_line(&dataproc(with("T4")).unwrap().submit[0]);
    assert!(create.contains("--worker-accelerator=type=nvidia-tesla-t4,count=2"), "{create}");
    let other = SubmitRequest { machine: "e2-standard-4".to_owned(), ..with("T4") };
    assert!(dataproc(other).unwrap_err().to_string().contains("n1 machines only"));
    assert!(dataproc(with("A100")).unwrap_err().to_string().contains("machine types of their own"));
    let ssh = target("ssh").unwrap().steps(&with("T4")).unwrap_err();
    assert!(ssh.is_usage() && ssh.to_string().contains("the hosts have what they have"), "{ssh}");
}

#[test]
fn answers_of_every_service_become_one_of_six_states() {
    use JobState::{Done, Failed, Running, Stopped, Unknown, Waiting};
    let of = |name: &str, answer: &str| target(name).unwrap().state(answer);
    let slurm = [
        ("PENDING", Waiting),
        ("RUNNING\n", Running),
        ("COMPLETED", Done),
        ("CANCELLED by 0", Stopped),
        ("TIMEOUT", Failed),
        ("PREEMPTED", Failed),
        // The exit code that the script left.
        ("0\n", Done),
        ("1", Failed),
        ("143", Stopped),
        ("", Unknown),
    ];
    for (answer, state) in slurm {
        assert_eq!(of("slurm", answer), state, "{answer}");
    }
    let vertex = [
        ("JOB_STATE_PENDING", Waiting),
        ("JOB_STATE_SUCCEEDED\n", Done),
        ("JOB_STATE_FAILED", Failed),
        ("JOB_STATE_CANCELLED", Stopped),
    ];
    for (answer, state) in vertex {
        assert_eq!(of("vertex", answer), state, "{answer}");
    }
    let jobset = |kind: &str| {
        format!(r#"{{"status":{{"conditions":[{{"type":"{kind}","status":"True"}}]}}}}"#)
    };
    assert_eq!(of("kubernetes", &jobset("Completed")), Done);
    assert_eq!(of("kubernetes", &jobset("Failed")), Failed);
    assert_eq!(of("kubernetes", r#"{"status":{"replicatedJobsStatus":[{"active":1}]}}"#), Running);
    assert_eq!(of("kubernetes", "{}"), Waiting);
    assert_eq!(of("kubernetes", "error"), Unknown);
    for (answer, state) in [
        ("running\n0\n", Running),
        ("0\n0\n", Done),
        ("0\n1", Failed),
        ("130\n130", Stopped),
        ("lost", Failed),
        ("", Unknown),
    ] {
        assert_eq!(of("ssh", answer), state, "{answer}");
    }
}

#[test]
fn a_job_number_is_read_where_the_service_prints_it() {
    assert_eq!(number(&JobNumber::FirstWord, "x", "\n4711;cluster\n"), "4711");
    assert_eq!(
        number(&JobNumber::JsonName, "x", r#"{"name": "projects/1/customJobs/2"}"#),
        "projects/1/customJobs/2"
    );
    assert_eq!(number(&JobNumber::JsonName, "x", "not json"), "x");
}

/// The word that came first was taken for the number, whatever it was, and became part of a shell's command line.
#[test]
fn only_what_can_be_a_number_is_one() {
    let first = |printed: &str| number(&JobNumber::FirstWord, "flowers", printed);
    assert_eq!(first("Submitted batch job 4711\n"), "4711");
    assert_eq!(first("2 nodes are down today\n4711;lab2\n"), "4711");
    assert_eq!(first("47;11 $(touch x)\n"), "47");
    assert_eq!(first("4$(touch${IFS}x)\n"), "flowers");
    let name = |printed: &str| number(&JobNumber::JsonName, "flowers", printed);
    assert_eq!(name(r#"{"name": "a; touch x"}"#), "flowers");
    assert_eq!(name(r#"{"name": "-rf"}"#), "flowers");
}

#[test]
fn a_record_whose_number_is_a_command_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let submitted = SubmittedJob::submit(
        &Counting,
        request(TRAIN),
        folder.path(),
        None,
        Tool { interrupt: &AtomicBool::new(false), limit: Duration::from_secs(900) },
        &|_| (),
    );
    let path = folder.path().join("job.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let harmful = text.replacen(&submitted.unwrap().id, "1\\n touch x", 1);
    std::fs::write(&path, harmful).unwrap();
    let error = SubmittedJob::open(folder.path()).unwrap_err();
    let said = std::error::Error::source(&error).unwrap().to_string();
    assert!(said.contains("is not a job's number"), "{said}");
}

/// A service that counts what it starts.
struct Counting;

impl Target for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn about(&self) -> &'static str {
        ""
    }

    fn reads(&self) -> &'static [&'static str] {
        &[]
    }

    fn steps(&self, _request: &SubmitRequest) -> Result<JobSteps, CloudError> {
        let script = "echo begun >>\"$1\"; until [ -e \"$2\" ]; do sleep 0.01; done";
        let submit = ["sh", "-c", script, "sh", "{folder}/begun", "{folder}/job.json"];
        Ok(JobSteps { submit: vec![crate::tool::argv(submit)], ..JobSteps::default() })
    }

    fn state(&self, _answer: &str) -> JobState {
        JobState::Unknown
    }
}

/// Two that were submitted at the same moment under one name saw no record of each other, and both started machines.
#[test]
fn of_two_submissions_at_once_one_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let (calm, together) = (AtomicBool::new(false), Barrier::new(4));
    let submit = || {
        let tool = Tool { interrupt: &calm, limit: Duration::from_secs(900) };
        together.wait();
        SubmittedJob::submit(&Counting, request(TRAIN), folder.path(), None, tool, &|_| ())
    };
    let made = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(submit)).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results
            .filter(|result| match result {
                Ok(_) => true,
                Err(error) => {
                    assert!(matches!(error, CloudError::Exists { .. }), "{error}");
                    false
                }
            })
            .count()
    });
    let begun = std::fs::read_to_string(folder.path().join("begun")).unwrap();
    assert_eq!((made, begun.lines().count()), (1, 1));
}

/// `-oProxyCommand=touch x` was an option of ssh, which runs it here.
#[test]
fn hosts_that_are_more_than_a_name_are_refused() {
    let ssh = target("ssh").unwrap();
    let steps = |host: &str| {
        ssh.steps(&SubmitRequest { hosts: vec![host.to_owned(), "b".to_owned()], ..request(TRAIN) })
    };
    for good in ["a", "ann@node-1.lab_2", "10.0.0.7", "fe80::1", "::1"] {
        steps(good).unwrap();
    }
    for bad in ["-oProxyCommand=touch x", "ann@-x", "", "a b", "a\nb", "a;b", "$(b)", "@a", "a@b@c"]
    {
        assert!(matches!(steps(bad), Err(CloudError::Host { .. })), "{bad:?}");
    }
}
