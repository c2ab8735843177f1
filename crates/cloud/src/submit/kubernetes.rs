//! Kubernetes: a JobSet with one pod per node, `kubectl`.

use super::{JobNumber, JobState, JobSteps, SubmitRequest, Target};
use crate::error::CloudError;
use crate::tool::argv;
use serde_json::{Value, json};

pub(super) struct Kubernetes;

/// Where the volume claim and the key are in the pods.
const DATA: &str = "/data";
const KEY: &str = "/key";
/// The label that tells one submission from others.
const MARK: &str = "paceline-submission";

impl Target for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn about(&self) -> &'static str {
        "a JobSet with one pod per node, through kubectl"
    }

    fn reads(&self) -> &'static [&'static str] {
        &["image", "key", "claim", "port", "nodes", "cores", "memory", "time-limit"]
    }

    fn steps(&self, request: &SubmitRequest) -> Result<JobSteps, CloudError> {
        let image = SubmitRequest::needed(
            &request.image,
            "kubernetes",
            "--image: a container image of paceline",
        )?;
        let claim = SubmitRequest::needed(
            &request.claim,
            "kubernetes",
            "--claim: a volume claim with the data, which all pods mount at /data",
        )?;
        let secret = (request.nodes > 1)
            .then(|| {
                SubmitRequest::needed(
                    &request.key,
                    "kubernetes",
                    "--key: the name of the secret that holds cluster.key",
                )
            })
            .transpose()?;
        let file = format!(
            "# Written by `paceline cloud submit`; JSON is YAML.\n{:#}\n",
            manifest(request, image, claim, secret)
        );
        let name = request.name.as_str();
        let selector = format!("jobset.sigs.k8s.io/jobset-name={name}");
        Ok(JobSteps {
            files: vec![("job.yaml".to_owned(), file)],
            // Not `apply`, which would change a JobSet of that name that is not ours.
            submit: vec![argv(["kubectl", "create", "-f", "{folder}/job.yaml"])],
            preparing: 0,
            find: argv([
                "kubectl",
                "get",
                "jobset",
                "-l",
                &format!("{MARK}={}", request.mark),
                "-o",
                "jsonpath={range .items[*]}{.metadata.name}{'\\n'}{end}",
            ]),
            id: JobNumber::Name,
            status: argv(["kubectl", "get", "jobset", name, "-o", "json"]),
            logs: argv([
                "kubectl",
                "logs",
                "-f",
                "--prefix",
                "--tail=-1",
                "--max-log-requests=100",
                "-l",
                &selector,
            ]),
            stop: vec![argv(["kubectl", "delete", "jobset", "{id}"])],
            fetch: argv(["sh", "-c", &copy_script(&selector), "sh", "{from}", "{to}"]),
        })
    }

    fn state(&self, answer: &str) -> JobState {
        let Ok(document) = serde_json::from_str::<Value>(answer) else { return JobState::Unknown };
        let condition = |kind: &str| {
            let list = document["status"]["conditions"].as_array();
            list.into_iter()
                .flatten()
                .any(|entry| entry["type"] == kind && entry["status"] == "True")
        };
        let active = document["status"]["replicatedJobsStatus"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|entry| entry["active"].as_u64().unwrap_or(0) > 0);
        if condition("Completed") {
            JobState::Done
        } else if condition("Failed") {
            JobState::Failed
        } else if active {
            JobState::Running
        } else {
            JobState::Waiting
        }
    }
}

/// Copies from the first pod, whose name ends in letters that Kubernetes chose.
fn copy_script(selector: &str) -> String {
    let first = format!("{selector},batch.kubernetes.io/job-completion-index=0");
    format!(
        "pod=$(kubectl get pods -l {first} -o 'jsonpath={{.items[0].metadata.name}}') && kubectl cp \"$pod:$1\" \"$2\""
    )
}

fn manifest(request: &SubmitRequest, image: &str, claim: &str, secret: Option<&str>) -> Value {
    let mut args = request.task_command();
    let mut mounts = vec![json!({"name": "data", "mountPath": DATA})];
    let mut volumes = vec![json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}})];
    let mut environment = Vec::new();
    if let Some(secret) = secret {
        args.extend(argv(["--key", &format!("{KEY}/cluster.key")]));
        mounts.push(json!({"name": "key", "mountPath": KEY, "readOnly": true}));
        volumes
            .push(json!({"name": "key", "secret": {"secretName": secret, "defaultMode": 0o400}}));
        let index = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
        environment = vec![
            json!({"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}}),
            json!({"name": "WORLD_SIZE", "value": request.nodes.to_string()}),
            json!({"name": "MASTER_ADDR", "value": format!("{0}-worker-0-0.{0}", request.name)}),
            json!({"name": "MASTER_PORT", "value": request.port.to_string()}),
        ];
    }
    let mut resources =
        json!({"cpu": request.vcpus.to_string(), "memory": format!("{}Gi", request.memory_gib)});
    if let Some((_, count)) = &request.gpu {
        // Which kind is for the cluster's nodes to say: labels for it differ between clusters.
        resources["nvidia.com/gpu"] = json!(count.to_string());
    }
    let pod = json!({
        "restartPolicy": "Never",
        "securityContext": {"fsGroup": 1000},
        "containers": [{
            "name": "paceline", "image": image, "args": args, "env": environment,
            "ports": [{"containerPort": request.port}],
            "resources": {"requests": resources, "limits": resources},
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    });
    let mut job = json!({
        "parallelism": request.nodes, "completions": request.nodes, "completionMode": "Indexed", "backoffLimit": 0,
        "template": {"spec": pod},
    });
    if let Some(minutes) = request.minutes {
        job["activeDeadlineSeconds"] = json!(u64::from(minutes) * 60);
    }
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": request.name, "labels": {MARK: request.mark}},
        "spec": {
            "failurePolicy": {"maxRestarts": 3},
            "network": {"enableDNSHostnames": true},
            "replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}],
        },
    })
}
