//! Whole lives of jobs on each target: submitted, asked about, followed, fetched, stopped, and a submission that breaks off half-way.
//!
//! Stand-ins for the sites' own tools keep their state in files and answer as the services do. The one for ssh runs what it is given
//! on this machine, so that the tasks there are real.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod cloud_support;
mod cluster_support;
mod support;

use cloud_support::{SCP, SSH, calls, cloud, cloud_command, job_of, site, tool};
use cluster_support::{signal, wait_for};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{document, json, said};

/// `gcloud` for Dataproc: a file `cluster` is the cluster, `code` what the job left on its master.
const DATAPROC: &str = r#"here=$(dirname "$0")/..
there() { if [ ! -e "$here/cluster" ]; then echo "ERROR: (gcloud.dataproc.clusters.describe) NOT_FOUND: Not found: Cluster projects/lab/regions/us-central1/clusters/flowers" >&2; exit 1; fi; }
case "$*" in
"dataproc clusters create flowers"*) CREATE; touch "$here/cluster" ;;
"dataproc clusters list"*"labels.paceline-submission = p"*) if [ -e "$here/cluster" ]; then echo flowers; fi ;;
"dataproc clusters describe flowers"*) there; echo us-central1-b ;;
"dataproc clusters delete flowers"*) there; rm "$here/cluster" ;;
"compute scp --recurse flowers-m:"*) cp -r "${4#flowers-m:}" "$5" ;;
"compute scp"*) COPY ;;
"compute ssh flowers-m"*"cat paceline.code"*) cat "$here/code" 2>/dev/null || echo running ;;
"compute ssh flowers-m"*"tail -n +1 -F paceline.log"*) echo "prepared 367000 images" ;;
"compute ssh flowers-m"*"./paceline prepare"*) ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac"#;

fn dataproc(site: &Path, create: &str, copy: &str) {
    tool(site, "gcloud", &DATAPROC.replace("CREATE", create).replace("COPY", copy));
}

const TO_DATAPROC: &[&str] =
    &["submit", "job.toml", "--target", "dataproc", "--binary", "paceline", "--project", "lab"];

/// The state, whatever the exit code.
fn state(site: &Path) -> String {
    let found = cloud(site, &["status", "flowers", "--json"]);
    document(&found)["state"].as_str().unwrap_or_else(|| panic!("{}", said(&found))).to_owned()
}

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What `cloud logs` shows first; ended by Ctrl-C where it follows.
fn first_of_logs(site: &Path) -> String {
    let mut child =
        cloud_command(site, &["logs", "flowers"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if child.try_wait().unwrap().is_none() {
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    }
    child.wait().unwrap();
    line.trim().to_owned()
}

#[test]
fn a_job_on_dataproc_is_submitted_followed_fetched_and_its_cluster_deleted() {
    let site = site();
    let here = site.path();
    dataproc(here, "true", "true");
    done(&cloud(here, TO_DATAPROC));
    assert_eq!(state(here), "running");
    assert_eq!(first_of_logs(here), "prepared 367000 images");
    fs::write(here.join("code"), "0\n").unwrap();
    assert_eq!(state(here), "done");
    fs::write(here.join("code"), "3\n").unwrap();
    assert_eq!(state(here), "failed");
    fs::create_dir(here.join("there")).unwrap();
    fs::write(here.join("there/report.json"), "{}").unwrap();
    done(&cloud(here, &["fetch", "flowers", "there", "--out", "fetched"]));
    assert!(here.join("fetched/report.json").exists());
    done(&cloud(here, &["stop", "flowers"]));
    assert!(!here.join("cluster").exists());
    // A cluster that is gone was no answer, and an error.
    assert_eq!(state(here), "stopped");
    let calls = calls(here);
    assert!(calls.lines().all(|call| call.contains("--project=lab")), "{calls}");
}

/// The cluster bills from its creation on, whatever becomes of the commands behind it.
#[test]
fn a_cluster_is_ended_though_the_command_after_its_creation_failed() {
    let site = site();
    let here = site.path();
    let refused = r#"echo "ERROR: (gcloud.compute.scp) PERMISSION_DENIED: Required 'compute.instances.get' permission (403)" >&2; exit 1"#;
    dataproc(here, "true", refused);
    let submitted = cloud(here, TO_DATAPROC);
    assert_eq!(submitted.status.code(), Some(1));
    let told = said(&submitted);
    assert!(
        told.contains("1 of 2 commands succeeded") && told.contains("compute.instances.get"),
        "{told}"
    );
    assert!(told.contains("end what was begun: `paceline cloud stop flowers`"), "{told}");
    let status = cloud(here, &["status", "flowers", "--json"]);
    assert_eq!(status.status.code(), Some(1));
    let status = document(&status);
    assert_eq!(
        (status["state"].as_str(), status["unfinished"].as_u64()),
        (Some("submitting"), Some(1))
    );
    let again = cloud(here, TO_DATAPROC);
    assert!(said(&again).contains("already holds a job"), "{}", said(&again));
    assert!(here.join("cluster").exists());
    let stopped = done(&cloud(here, &["stop", "flowers"]));
    assert!(stopped.contains("what its submission had begun was ended"), "{stopped}");
    assert!(!here.join("cluster").exists() && !here.join("cloud/flowers/job.json").exists());
    // The name is free again.
    dataproc(here, "true", "true");
    done(&cloud(here, TO_DATAPROC));
}

#[test]
fn a_refused_creation_leaves_nothing_and_a_failed_one_what_the_service_made() {
    let site = site();
    let here = site.path();
    let quota = "echo \"ERROR: (gcloud.dataproc.clusters.create) RESOURCE_EXHAUSTED: Insufficient 'CPUS' quota. Requested 8.0, available 2.0. (429)\" >&2; exit 1";
    dataproc(here, quota, "true");
    let submitted = cloud(here, TO_DATAPROC);
    assert!(said(&submitted).contains("larger quota"), "{}", said(&submitted));
    assert!(!said(&submitted).contains("cloud stop"), "{}", said(&submitted));
    let status = cloud(here, &["status", "flowers"]);
    assert!(said(&status).contains("holds no job"), "{}", said(&status));

    // Made, and then found unfit: it stays until it is deleted.
    let unfit = "touch \"$here/cluster\"; echo 'ERROR: (gcloud.dataproc.clusters.create) Operation [projects/lab/regions/us-central1/operations/1] failed: Multiple Errors: Timeout waiting for instance flowers-w-0 to report in..' >&2; exit 1";
    dataproc(here, unfit, "true");
    let submitted = cloud(here, &[TO_DATAPROC, &["--jobs", "my jobs"]].concat());
    assert_eq!(submitted.status.code(), Some(1));
    let told = said(&submitted);
    assert!(told.contains("`paceline cloud stop flowers --jobs 'my jobs'`"), "{told}");
    done(&cloud(here, &["stop", "flowers", "--jobs", "my jobs"]));
    assert!(!here.join("cluster").exists());
}

/// Starts a submission whose cluster is being created, and gives it a signal in the middle.
fn broken_off_in_creation(site: &Path, name: &str) -> Output {
    // Creation goes on at the service when the tool that waits for it is gone.
    let slow = r#"touch "$here/cluster" "$here/waiting"; while [ -e "$here/waiting" ]; do sleep 0.05; done; exit 0"#;
    dataproc(site, slow, "true");
    let child = cloud_command(site, TO_DATAPROC).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the creation", || site.join("waiting").exists());
    signal(child.id(), name);
    if name == "-KILL" {
        wait_for("the end", || !cluster_support::exists(child.id()));
        fs::remove_file(site.join("waiting")).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let _ = fs::remove_file(site.join("waiting"));
    output
}

#[test]
fn ctrl_c_in_the_middle_of_a_submission_keeps_the_record_of_what_was_begun() {
    let site = site();
    let here = site.path();
    let submitted = broken_off_in_creation(here, "-INT");
    assert_eq!(submitted.status.code(), Some(130), "{}", said(&submitted));
    let told = said(&submitted);
    assert!(told.contains("0 of 2 commands succeeded"), "{told}");
    assert!(told.contains("`paceline cloud stop flowers`"), "{told}");
    assert_eq!(state(here), "submitting");
    done(&cloud(here, &["stop", "flowers"]));
    assert!(!here.join("cluster").exists());
}

#[test]
fn a_submission_that_was_killed_is_undone_by_stop() {
    let site = site();
    let here = site.path();
    broken_off_in_creation(here, "-KILL");
    assert_eq!(state(here), "submitting");
    done(&cloud(here, &["stop", "flowers"]));
    assert!(!here.join("cluster").exists());
    // Where the service has nothing of it, nothing is deleted.
    broken_off_in_creation(here, "-KILL");
    fs::remove_file(here.join("cluster")).unwrap();
    let before = calls(here).matches("clusters delete").count();
    let stopped = done(&cloud(here, &["stop", "flowers"]));
    assert!(stopped.contains("dataproc has nothing of it"), "{stopped}");
    assert_eq!(calls(here).matches("clusters delete").count(), before);
    let status = cloud(here, &["status", "flowers"]);
    assert!(said(&status).contains("holds no job"), "{}", said(&status));
}

#[test]
fn a_host_that_fails_leaves_the_task_before_it_to_stop() {
    let site = site();
    let here = site.path();
    assert!(support::run_in(here, &["key", "new", "cluster.key"]).status.success());
    let train = format!(
        r#"["train", "--model", "softmax", "--data", "generated:digits?examples=600", "--strategy", "multi-worker", "--steps", "5", "--out", "{}"]"#,
        here.join("out").display()
    );
    job_of(here, &train, &[]);
    let refused = r#"if [[ $1 == 127.0.0.2 && $2 == *setsid* ]]; then echo "ssh: connect to host 127.0.0.2 port 22: Connection refused" >&2; exit 255; fi"#;
    let (options, rest) = SSH.split_once('\n').unwrap();
    tool(here, "ssh", &format!("HOSTS={}/hosts\n{options}\n{refused}\n{rest}", here.display()));
    tool(here, "scp", &format!("HOSTS={}/hosts\n{SCP}", here.display()));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let words = ["submit", "job.toml", "--target", "ssh", "--hosts", "127.0.0.1,127.0.0.2"];
    let more = ["--port", &port, "--key", "cluster.key", "--binary", support::program()];
    let submitted = cloud(here, &words.into_iter().chain(more).collect::<Vec<_>>());
    assert_eq!(submitted.status.code(), Some(1));
    let told = said(&submitted);
    assert!(told.contains("2 of 3 commands succeeded"), "{told}");
    assert!(told.contains("Connection refused"), "{told}");
    assert!(told.contains("`paceline cloud stop flowers`"), "{told}");
    let first = here.join("hosts/127.0.0.1/.paceline/flowers");
    assert!(first.join("pid").exists() && !first.join("code").exists());
    assert!(!first_of_logs(here).is_empty());
    done(&cloud(here, &["stop", "flowers"]));
    wait_for("the first host's task to end", || first.join("code").exists());
    assert!(!here.join("cloud/flowers/job.json").exists());

    // A host that cannot even be copied to ends the submission before anything runs.
    let dead = r#"if [[ $1 == 127.0.0.2 ]]; then echo "ssh: connect to host 127.0.0.2 port 22: No route to host" >&2; exit 255; fi"#;
    tool(here, "ssh", &format!("HOSTS={}/hosts\n{options}\n{dead}\n{rest}", here.display()));
    let submitted = cloud(here, &words.into_iter().chain(more).collect::<Vec<_>>());
    assert!(said(&submitted).contains("No route to host"), "{}", said(&submitted));
    assert!(!here.join("cloud/flowers/job.json").exists());
}

const TRAIN: &str =
    r#"["train", "--model", "softmax", "--data", "/gcs/lab/digits", "--epochs", "1"]"#;

/// `gcloud ai custom-jobs`, of a job whose state is in a file.
const VERTEX: &str = r#"here=$(dirname "$0")/..
case "$*" in
"ai custom-jobs create"*) echo "Using endpoint [https://us-central1-aiplatform.googleapis.com/]" >&2; echo '{"name": "projects/1/locations/us-central1/customJobs/77", "state": "JOB_STATE_PENDING"}' ;;
"ai custom-jobs describe projects/1/locations/us-central1/customJobs/77"*) cat "$here/state" ;;
"ai custom-jobs stream-logs projects/1/locations/us-central1/customJobs/77"*) echo "INFO workerpool0-0 epoch 1" ;;
"ai custom-jobs cancel projects/1/locations/us-central1/customJobs/77"*) echo JOB_STATE_CANCELLED > "$here/state" ;;
"storage cp -r gs://lab/runs "*) mkdir "$5"; echo 1 > "$5/events" ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac"#;

#[test]
fn a_job_on_vertex_is_submitted_followed_fetched_and_stopped() {
    let site = site();
    let here = site.path();
    job_of(here, TRAIN, &[]);
    tool(here, "gcloud", VERTEX);
    let words = ["submit", "job.toml", "--target", "vertex", "--image", "reg/paceline:1", "--json"];
    let more = ["--key", "/gcs/k/cluster.key", "--region", "us-central1"];
    let found = json(&cloud(here, &words.into_iter().chain(more).collect::<Vec<_>>()));
    assert_eq!(found["id"], "projects/1/locations/us-central1/customJobs/77");
    let states = [
        ("PENDING", "waiting"),
        ("RUNNING", "running"),
        ("SUCCEEDED", "done"),
        ("FAILED", "failed"),
        ("EXPIRED", "failed"),
    ];
    for (answer, expected) in states {
        fs::write(here.join("state"), format!("JOB_STATE_{answer}\n")).unwrap();
        assert_eq!(state(here), expected);
    }
    assert_eq!(first_of_logs(here), "INFO workerpool0-0 epoch 1");
    done(&cloud(here, &["fetch", "flowers", "gs://lab/runs", "--out", "fetched"]));
    assert!(here.join("fetched/events").exists());
    done(&cloud(here, &["stop", "flowers"]));
    assert_eq!(state(here), "stopped");
}

/// `kubectl` of a cluster with JobSet, whose answer is in a file.
const KUBECTL: &str = r#"here=$(dirname "$0")/..
case "$*" in
"create -f "*) if [ -e "$here/jobset" ]; then echo 'Error from server (AlreadyExists): error when creating "job.yaml": jobsets.jobset.x-k8s.io "flowers" already exists' >&2; exit 1; fi; cp "$3" "$here/jobset"; echo jobset.jobset.x-k8s.io/flowers created ;;
"get jobset flowers -o json") cat "$here/answer" ;;
"get jobset -l paceline-submission="*) ;;
"logs -f --prefix"*"jobset.sigs.k8s.io/jobset-name=flowers"*) echo "[pod/flowers-worker-0-0-x/paceline] epoch 1" ;;
"delete jobset flowers") rm "$here/jobset"; echo 'jobset.jobset.x-k8s.io "flowers" deleted' ;;
"get pods -l jobset.sigs.k8s.io/jobset-name=flowers,batch.kubernetes.io/job-completion-index=0 "*) echo flowers-worker-0-0-x7k2p ;;
"cp flowers-worker-0-0-x7k2p:/data/runs "*) mkdir "$3"; echo 1 > "$3/events" ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac"#;

const TO_KUBERNETES: &[&str] = &[
    "submit",
    "job.toml",
    "--target",
    "kubernetes",
    "--image",
    "reg/paceline:1",
    "--claim",
    "data",
    "--key",
    "cluster-key",
    "--nodes",
    "3",
    "--time-limit",
    "2h",
];

#[test]
fn a_jobset_is_submitted_followed_fetched_and_deleted() {
    let site = site();
    let here = site.path();
    job_of(here, TRAIN, &[]);
    tool(here, "kubectl", KUBECTL);
    done(&cloud(here, TO_KUBERNETES));
    let active = |count: u32| {
        format!(
            r#"{{"kind": "JobSet", "status": {{"replicatedJobsStatus": [{{"name": "worker", "active": {count}, "ready": 0, "failed": 0, "succeeded": 0}}]}}}}"#
        )
    };
    let ended = |kind: &str| {
        format!(
            r#"{{"kind": "JobSet", "status": {{"conditions": [{{"type": "StartupPolicyCompleted", "status": "False"}}, {{"type": "{kind}", "status": "True", "reason": "AllJobsCompleted"}}], "restarts": 1}}}}"#
        )
    };
    let answers = [
        (r#"{"kind": "JobSet"}"#.to_owned(), "waiting"),
        (active(1), "running"),
        (ended("Completed"), "done"),
        (ended("Failed"), "failed"),
    ];
    for (answer, expected) in answers {
        fs::write(here.join("answer"), answer).unwrap();
        assert_eq!(state(here), expected);
    }
    assert_eq!(first_of_logs(here), "[pod/flowers-worker-0-0-x/paceline] epoch 1");
    done(&cloud(here, &["fetch", "flowers", "/data/runs", "--out", "fetched"]));
    assert!(here.join("fetched/events").exists());
    // Another record, the same name there: what is there is not ours, and stays.
    let again = cloud(here, &[TO_KUBERNETES, &["--jobs", "others"]].concat());
    assert!(said(&again).contains("already exists"), "{}", said(&again));
    assert!(here.join("jobset").exists() && !here.join("others/flowers/job.json").exists());
    done(&cloud(here, &["stop", "flowers"]));
    assert!(!here.join("jobset").exists());
}

/// The same question as for the files in `deploy`.
#[test]
fn kubernetes_own_models_and_strict_schemas_accept_the_file_that_is_submitted() {
    let needed = "kubeflow_trainer_api, kubernetes_validate, yaml";
    let Some(python) = paceline_testing::python(needed) else { return };
    let site = site();
    let here = site.path();
    tool(here, "kubectl", "exit 0");
    let gpu = ("extra_nodes = 1", "max_nodes = 1\ngpus_per_node = 1\ngpu = \"T4\"");
    let nodes = TO_KUBERNETES.iter().position(|word| *word == "--nodes").unwrap() + 1;
    for (count, more) in [("1", &[][..]), ("3", &[gpu][..])] {
        job_of(here, TRAIN, more);
        let mut words = [TO_KUBERNETES, &["--jobs", count]].concat();
        words[nodes] = count;
        done(&cloud(here, &words));
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/kubernetes_schema.py");
        let file = here.join(count).join("flowers/job.yaml");
        let output = Command::new(&python).arg(script).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    }
}

#[test]
fn errors_of_every_service_say_what_to_do_and_leave_no_job() {
    let errors = [
        (
            "ERROR: (gcloud.ai.custom-jobs.create) RESOURCE_EXHAUSTED: The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_nvidia_k80_gpus (429)",
            "larger quota",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) PERMISSION_DENIED: Permission 'aiplatform.customJobs.create' denied on resource '//aiplatform.googleapis.com/projects/lab/locations/us-central1' (or it may not exist). (403)",
            "lacks a permission",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) PERMISSION_DENIED: Vertex AI API has not been used in project lab before or it is disabled. reason: SERVICE_DISABLED",
            "gcloud services enable",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) UNAVAILABLE: the machine was preempted",
            "submit again",
        ),
    ];
    let site = site();
    let here = site.path();
    job_of(here, TRAIN, &[]);
    let words = ["submit", "job.toml", "--target", "vertex", "--image", "x", "--key", "/gcs/k/k"];
    for (error, hint) in errors {
        tool(here, "gcloud", &format!("cat >&2 <<'END'\n{error}\nEND\nexit 1"));
        let output = cloud(here, &words);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(error) && said(&output).contains(hint), "{}", said(&output));
        assert!(!here.join("cloud/flowers/job.json").exists(), "{error}");
    }
    tool(
        here,
        "kubectl",
        "echo 'Error from server (Forbidden): jobsets.jobset.x-k8s.io is forbidden: User \"ann\" cannot create resource \"jobsets\"' >&2; exit 1",
    );
    let output = cloud(here, TO_KUBERNETES);
    assert!(said(&output).contains("lacks a permission"), "{}", said(&output));
}

#[test]
fn a_slurm_jobs_log_is_followed_and_a_preempted_job_has_failed() {
    let site = site();
    let here = site.path();
    job_of(here, TRAIN, &[("extra_nodes = 1", "max_nodes = 1\ngpus_per_node = 2\ngpu = \"a100\"")]);
    tool(here, "sbatch", "echo 4711");
    tool(here, "squeue", "echo PREEMPTED");
    let submitted = cloud(here, &["submit", "job.toml", "--target", "slurm"]);
    assert!(
        said(&submitted).contains("the a100 would cost money and idle"),
        "{}",
        said(&submitted)
    );
    let script = fs::read_to_string(here.join("cloud/flowers/job.sbatch")).unwrap();
    assert!(script.contains("#SBATCH --gres=gpu:a100:2\n"), "{script}");
    fs::write(here.join("cloud/flowers/4711.log"), "epoch 1\n").unwrap();
    assert_eq!(first_of_logs(here), "epoch 1");
    assert_eq!(state(here), "failed");
}

#[test]
fn a_running_jobs_rate_is_compared_with_the_plans_while_it_runs() {
    let site = site();
    let here = site.path();
    tool(here, "sbatch", "echo 4711");
    tool(here, "squeue", "echo RUNNING");
    let train = r#"["train", "--model", "softmax", "--data", "generated:digits?examples=600", "--out", "runs"]"#;
    let planned = |name: &str, rate: &str| {
        let rate = format!("examples_per_second = {rate}");
        job_of(
            here,
            train,
            &[
                ("gb = 22", "gb = 0.001"),
                ("extra_nodes = 1", "max_nodes = 1"),
                ("examples_per_second = 40", &rate),
            ],
        );
        done(&cloud(here, &["submit", "job.toml", "--target", "slurm", "--jobs", name]));
    };
    planned("hopeful", "1e12");
    planned("careful", "0.001");
    let words = "train --model softmax --data generated:digits?examples=600 --epochs 1000000 --out runs --no-tensorboard --quiet";
    let mut run = support::command_in(here, &words.split(' ').collect::<Vec<_>>()).spawn().unwrap();
    let status =
        |jobs: &str| document(&cloud(here, &["status", "flowers", "--jobs", jobs, "--json"]));
    wait_for("a rate", || status("hopeful")["rate"].is_number());
    assert!(run.try_wait().unwrap().is_none());
    let leaves = |jobs: &str| status(jobs)["leaves_interval"].clone();
    assert_eq!(
        [leaves("hopeful"), leaves("careful")],
        [Value::from("below"), Value::from("above")]
    );
    let shown = done(&cloud(here, &["status", "flowers", "--jobs", "hopeful"]));
    assert!(shown.contains("slower than its interval; it will end later and cost more"), "{shown}");
    signal(run.id(), "-INT");
    run.wait().unwrap();
    // What was fetched is read as well, wherever it was put.
    done(&cloud(here, &["fetch", "flowers", "runs", "--out", "here", "--jobs", "careful"]));
    fs::remove_dir_all(here.join("runs")).unwrap();
    assert_eq!([leaves("hopeful"), leaves("careful")], [Value::Null, Value::from("above")]);
}

#[test]
fn a_followed_job_is_looked_at_until_it_has_ended_and_what_changes_is_said() {
    let site = site();
    let here = site.path();
    tool(here, "sbatch", "echo 4711");
    let train = r#"["train", "--model", "softmax", "--data", "generated:digits?examples=600", "--out", "runs"]"#;
    job_of(here, train, &[("gb = 22", "gb = 0.001"), ("extra_nodes = 1", "max_nodes = 1")]);
    done(&cloud(here, &["submit", "job.toml", "--target", "slurm"]));
    let asked = format!("asked=$(grep -c squeue {}/calls)", here.display());
    let squeue = format!(
        "{asked}\nif [ $asked -lt 3 ]; then echo PENDING; elif [ $asked -lt 6 ]; then echo RUNNING; else echo COMPLETED; fi"
    );
    tool(here, "squeue", &squeue);
    let shown = done(&cloud(here, &["status", "flowers", "--follow", "--every", "5ms"]));
    let states: Vec<&str> = shown.lines().filter(|line| line.starts_with("flowers: ")).collect();
    let expected =
        ["waiting", "running", "done"].map(|state| format!("flowers: {state} (slurm 4711)"));
    assert_eq!(states, expected, "{shown}");
    assert!(shown.contains("; the plan expected "), "{shown}");
}
