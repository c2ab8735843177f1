//! `paceline cloud` with stand-ins for the providers' tools: scripts that replay answers as the services give them, errors included.
//! The stand-in for ssh runs what it is given on this machine, so that the job there is a real one.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod cloud_support;
mod support;

use cloud_support::{SCP, SSH, calls, cloud, site, tool};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use support::{CLOUD_JOB, command_in, document, json, said};

/// `gcloud` of an account with 8 vCPUs and 4 addresses, as its JSON has them.
const GCLOUD: &str = r#"case "$*" in
"auth list"*) echo '[{"account": "ann@example.org", "status": "ACTIVE"}]' ;;
"policy-troubleshoot iam "*) echo "ERROR: (gcloud.policy-troubleshoot.iam) PERMISSION_DENIED: Policy Troubleshooter API has not been used in project lab before or it is disabled." >&2; exit 1 ;;
"projects get-ancestors-iam-policy lab"*) echo "ERROR: (gcloud.projects.get-ancestors-iam-policy) User is not permitted to access IAM policy for one or more of the ancestors" >&2; exit 1 ;;
"identity groups memberships check-transitive-membership"*) echo "ERROR: (gcloud.identity.groups.memberships.check-transitive-membership) PERMISSION_DENIED: Error(4001): Permission denied for membership resource" >&2; exit 1 ;;
"projects get-iam-policy lab"*) echo '{"bindings": [{"members": ["user:bob@example.org"], "role": "roles/owner"}, {"members": ["group:x@example.org", "user:ann@example.org"], "role": "ROLE"}], "etag": "BwX", "version": 1}' ;;
"iam roles describe roles/dataproc.editor"*) echo '{"includedPermissions": ["dataproc.clusters.create", "dataproc.clusters.delete"], "name": "roles/dataproc.editor"}' ;;
"iam roles describe roles/viewer"*) echo '{"includedPermissions": ["dataproc.clusters.list"], "name": "roles/viewer"}' ;;
"storage buckets describe gs://lab"*) echo '{"name": "lab", "location": "US"}' ;;
"storage buckets describe "*) echo "ERROR: (gcloud.storage.buckets.describe) $4 not found: 404." >&2; exit 1 ;;
"services list"*) echo '[{"config": {"name": "compute.googleapis.com"}}, {"name": "projects/1/services/storage.googleapis.com"}]' ;;
"compute regions describe"*) echo '{"name": "us-central1", "quotas": [{"metric": "CPUS", "limit": 8.0, "usage": CPUS_USED}, {"metric": "IN_USE_ADDRESSES", "limit": 4.0, "usage": 0.0}, {"metric": "DISKS_TOTAL_GB", "limit": 2048.0, "usage": 0.0}, {"metric": "NVIDIA_K80_GPUS", "limit": 0.0, "usage": 0.0}]}' ;;
"compute machine-types list"*) echo '[{"name": "n1-standard-2"}]' ;;
"dataproc clusters list"*) echo '[]' ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac"#;

/// What was found, each as `answer sentence`.
fn findings(answer: &Value) -> Vec<String> {
    let each = |finding: &Value| {
        format!("{} {}", finding["answer"].as_str().unwrap(), finding["what"].as_str().unwrap())
    };
    answer["findings"].as_array().unwrap().iter().map(each).collect()
}

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

    let gcloud = GCLOUD.replace("CPUS_USED", "6.0").replace("ROLE", "roles/dataproc.editor");
    tool(site.path(), "gcloud", &gcloud);
    let found = cloud(site.path(), &words);
    assert_eq!(found.status.code(), Some(1), "{}", said(&found));
    let answer = document(&found);
    let findings = findings(&answer);
    for expected in [
        "yes logged in as ann@example.org",
        "yes ann@example.org has dataproc.clusters.create by roles/dataproc.editor",
        "yes ann@example.org has dataproc.clusters.delete by roles/dataproc.editor",
        "yes the bucket gs://lab exists",
        "no dataproc.googleapis.com is not enabled",
        "yes compute.googleapis.com is enabled",
        "yes storage.googleapis.com is enabled",
        "yes n1-standard-2 is offered in us-central1",
        "yes the name flowers is free",
        "no you asked for 8 vCPUs, 2 are left in us-central1",
    ] {
        assert!(findings.iter().any(|finding| finding == expected), "{expected}: {findings:?}");
    }
    // To ask about the permission `dataproc.clusters.create` creates nothing.
    assert!(!calls(site.path()).contains(" create"), "{}", calls(site.path()));
}

#[test]
fn a_permission_that_is_missing_is_named_and_a_bucket_that_is_not_there() {
    let site = site();
    let gcloud = GCLOUD.replace("CPUS_USED", "0.0").replace("ROLE", "roles/viewer");
    let regions = r#""compute regions describe"*) echo "ERROR: (gcloud.compute.regions.describe) Could not fetch resource:" >&2; echo " - Required 'compute.regions.get' permission for 'projects/lab/regions/us-central1'" >&2; exit 1 ;;"#;
    let gcloud = gcloud.replace("case \"$*\" in\n", &format!("case \"$*\" in\n{regions}\n"));
    tool(site.path(), "gcloud", &gcloud);
    let job = CLOUD_JOB.replace("gs://lab/shards", "gs://elsewhere/shards");
    fs::write(site.path().join("job.toml"), job).unwrap();
    let words = ["check", "job.toml", "--project", "lab", "--target", "dataproc", "--json"];
    let found = cloud(site.path(), &words);
    assert_eq!(found.status.code(), Some(1), "{}", said(&found));
    let answer = document(&found);
    let findings = findings(&answer);
    for expected in [
        "denied quotas: the account lacks the permission compute.regions.get",
        "unknown not known whether ann@example.org has dataproc.clusters.create: no role in lab gives it; a folder or the organisation may",
        "yes the bucket gs://lab exists",
        "no the bucket gs://elsewhere does not exist",
    ] {
        assert!(findings.iter().any(|finding| finding == expected), "{expected}: {findings:?}");
    }
    let hints = answer["findings"].to_string();
    assert!(hints.contains("a role that has compute.regions.get"), "{hints}");
}

#[test]
fn what_the_account_may_not_look_at_is_not_a_refusal() {
    let site = site();
    let forbidden =
        "echo 'ERROR: (gcloud) PERMISSION_DENIED: Permission denied on resource (403)' >&2; exit 1";
    tool(site.path(), "gcloud", forbidden);
    let answer = json(&cloud(site.path(), &["check", "job.toml", "--json"]));
    assert_eq!(answer["passes"], Value::Bool(true));
    assert!(findings(&answer).iter().all(|finding| finding.starts_with("denied ")), "{answer}");
    let hint = answer["findings"][0]["hint"].as_str().unwrap();
    assert!(hint.contains("lacks a permission"), "{hint}");
    let disabled = "echo 'ERROR: (gcloud) API [compute.googleapis.com] not enabled on project [lab]. (403: SERVICE_DISABLED)' >&2; exit 1";
    tool(site.path(), "gcloud", disabled);
    let answer = json(&cloud(site.path(), &["check", "job.toml", "--json"]));
    assert!(findings(&answer).iter().all(|finding| finding.starts_with("unknown ")), "{answer}");
    let hint = answer["findings"][0]["hint"].as_str().unwrap();
    assert!(hint.contains("gcloud services enable"), "{hint}");
}

/// `aws` of an account with 16 vCPUs, of which an `m5.xlarge` runs, and 1 TiB of gp3; the GPU machine counts against another quota.
const AWS: &str = r#"case "$*" in
"sts get-caller-identity"*) echo '{"UserId": "AIDA", "Account": "111122223333", "Arn": "arn:aws:iam::111122223333:user/ann"}' ;;
"service-quotas list-service-quotas --service-code ec2"*) echo '{"Quotas": [{"ServiceCode": "ec2", "QuotaCode": "L-1216C47A", "QuotaName": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "Value": 16.0, "Unit": "None"}, {"ServiceCode": "ec2", "QuotaCode": "L-0263D0A3", "QuotaName": "EC2-VPC Elastic IPs", "Value": 5.0}]}' ;;
"service-quotas list-service-quotas --service-code ebs"*) echo '{"Quotas": [{"ServiceCode": "ebs", "QuotaCode": "L-7A658B76", "QuotaName": "Storage for General Purpose SSD (gp3) volumes, in TiB", "Value": 1.0}]}' ;;
"ec2 describe-instances"*) echo '{"Reservations": [{"Instances": [{"InstanceType": "m5.xlarge", "CpuOptions": {"CoreCount": 2, "ThreadsPerCore": 2}, "State": {"Code": 16, "Name": "running"}}, {"InstanceType": "g4dn.xlarge", "CpuOptions": {"CoreCount": 2, "ThreadsPerCore": 2}}]}]}' ;;
"ec2 describe-volumes"*) echo '{"Volumes": [{"VolumeType": "gp3", "Size": 24}, {"VolumeType": "gp2", "Size": 900}]}' ;;
"ec2 describe-instance-type-offerings"*) echo '{"InstanceTypeOfferings": OFFERED}' ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac"#;

#[test]
fn aws_quotas_are_what_running_machines_leave_of_them() {
    let site = site();
    let job = CLOUD_JOB
        .replace("n1-standard-2", "m5.2xlarge")
        .replace("extra_nodes = 1", "max_nodes = 1");
    fs::write(site.path().join("job.toml"), job).unwrap();
    tool(site.path(), "aws", &AWS.replace("OFFERED", r#"[{"InstanceType": "m5.2xlarge"}]"#));
    let words = ["check", "job.toml", "--provider", "aws", "--project", "lab", "--json"];
    let answer = json(&cloud(site.path(), &words));
    let left = &answer["left"];
    assert_eq!((left["vcpus"].as_f64(), left["ssd_disk_gb"].as_f64()), (Some(12.0), Some(1000.0)));
    let found = findings(&answer);
    for expected in [
        "yes logged in as arn:aws:iam::111122223333:user/ann",
        "yes m5.2xlarge is offered in us-east-1",
        "yes quotas hold the shape: 12 vCPUs, 1000 GB of SSD disk left",
    ] {
        assert!(found.iter().any(|finding| finding == expected), "{expected}: {found:?}");
    }
    let calls = calls(site.path());
    assert!(
        calls
            .lines()
            .all(|call| call.contains("--region us-east-1") && call.contains("--profile lab")),
        "{calls}"
    );

    let tight = AWS.replace("OFFERED", "[]").replace("16.0", "8.0");
    tool(site.path(), "aws", &tight);
    let refused = cloud(site.path(), &words);
    assert_eq!(refused.status.code(), Some(1));
    let found = findings(&document(&refused));
    for expected in [
        "no m5.2xlarge is not offered in us-east-1",
        "no you asked for 8 vCPUs, 4 are left in us-east-1",
    ] {
        assert!(found.iter().any(|finding| finding == expected), "{expected}: {found:?}");
    }

    let denied = "echo 'An error occurred (AccessDeniedException) when calling the operation: User: arn:aws:iam::1:user/ann is not authorized to perform: servicequotas:ListServiceQuotas because no identity-based policy allows it' >&2; exit 254";
    tool(site.path(), "aws", denied);
    let found = findings(&json(&cloud(site.path(), &words)));
    let expected =
        "denied quotas: the account lacks the permission servicequotas:ListServiceQuotas";
    assert!(found.iter().any(|finding| finding == expected), "{found:?}");
}

/// `az` of a subscription with 10 cores, 2 of them in use, and 3 addresses.
const AZ: &str = r#"case "$*" in
"account show"*) echo '{"id": "0000", "name": "lab", "user": {"name": "ann@example.org", "type": "user"}}' ;;
"provider list"*) echo '[]' ;;
"vm list-usage --location eastus"*) echo '[{"currentValue": "2", "limit": "10", "localName": "Total Regional vCPUs", "name": {"localizedValue": "Total Regional vCPUs", "value": "cores"}}]' ;;
"network list-usages --location eastus"*) echo '[{"currentValue": "0", "id": "/subscriptions/0000/providers/Microsoft.Network/locations/eastus/usages/PublicIPAddresses", "limit": "3", "localName": "Public IP Addresses", "name": {"localizedValue": "Public IP Addresses", "value": "PublicIPAddresses"}, "unit": "Count"}]' ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac"#;

#[test]
fn azure_counts_cores_with_machines_and_addresses_with_networks() {
    let site = site();
    let job = CLOUD_JOB.replace("n1-standard-2", "Standard_D2s_v3");
    fs::write(site.path().join("job.toml"), &job).unwrap();
    tool(site.path(), "az", AZ);
    let words = ["check", "job.toml", "--provider", "azure", "--objective", "time", "--json"];
    let refused = cloud(site.path(), &words);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    let answer = document(&refused);
    assert_eq!(
        (answer["left"]["vcpus"].as_f64(), answer["left"]["addresses"].as_f64()),
        (Some(8.0), Some(3.0))
    );
    let found = findings(&answer);
    for expected in
        ["yes logged in as ann@example.org", "no you asked for 4 addresses, 3 are left in eastus"]
    {
        assert!(found.iter().any(|finding| finding == expected), "{expected}: {found:?}");
    }

    let denied = "echo \"ERROR: (AuthorizationFailed) The client 'ann' with object id '1' does not have authorization to perform action 'Microsoft.Compute/locations/usages/read' over scope '/subscriptions/0000'\" >&2; exit 1";
    tool(site.path(), "az", denied);
    let found = findings(&json(&cloud(site.path(), &words)));
    let expected = "denied quotas of machines: the account lacks the permission Microsoft.Compute/locations/usages/read";
    assert!(found.iter().any(|finding| finding == expected), "{found:?}");
    let login = "echo \"ERROR: Please run 'az login' to setup account.\" >&2; exit 1";
    tool(site.path(), "az", login);
    let answer = json(&cloud(site.path(), &words));
    assert!(answer["findings"][0]["hint"].as_str().unwrap().contains("log in again"), "{answer}");
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

#[test]
fn the_rate_of_a_run_decides_as_the_same_figure_typed_does() {
    let site = site();
    support::train_as(
        site.path(),
        "one",
        "--model softmax --data generated:digits?examples=600 --steps 20 --batch-size 32",
    );
    let runs = support::json_in(site.path(), &["runs", "runs/one", "--json"]);
    let rate =
        runs[0]["summary"]["examples_per_second"].as_f64().unwrap_or_else(|| panic!("{runs}"));
    let advise = |flag: &str, value: &str| {
        let words = "advise job --data-size 100GB --growth 10GB --example 300B --delay 24h --json";
        let words: Vec<&str> = words.split(' ').chain([flag, value]).collect();
        support::json_in(site.path(), &words)
    };
    let (of_run, typed) = (advise("--run", "runs/one"), advise("--rate", &rate.to_string()));
    assert_eq!(of_run, typed);
    assert!(of_run["whole_seconds"].as_f64().unwrap() > 0.0, "{of_run}");
    let missing = support::run_in(
        site.path(),
        &[
            "advise",
            "job",
            "--data-size",
            "1GB",
            "--growth",
            "0B",
            "--example",
            "1KB",
            "--delay",
            "1h",
            "--run",
            "runs/two",
        ],
    );
    assert_eq!(missing.status.code(), Some(1), "{}", said(&missing));
    assert!(
        said(&missing).contains("hint: `paceline runs` lists run folders"),
        "{}",
        said(&missing)
    );
}
