//! Vertex AI: a custom job of one image, `gcloud ai custom-jobs`.

use super::{JobNumber, JobState, JobSteps, SubmitRequest, Target, text};
use crate::error::CloudError;
use crate::tool::argv;

pub(super) struct Vertex;

/// The size of a boot disk where none is asked for.
const LEAST_DISK_GB: u32 = 100;

impl Target for Vertex {
    fn name(&self) -> &'static str {
        "vertex"
    }

    fn about(&self) -> &'static str {
        "a Vertex AI custom job, through gcloud"
    }

    fn services(&self) -> &'static [&'static str] {
        &["aiplatform.googleapis.com", "storage.googleapis.com"]
    }

    fn permissions(&self) -> &'static [&'static str] {
        &["aiplatform.customJobs.create", "aiplatform.customJobs.cancel"]
    }

    fn reads(&self) -> &'static [&'static str] {
        &["project", "region", "image", "key", "nodes", "machine", "time-limit"]
    }

    fn steps(&self, request: &SubmitRequest) -> Result<JobSteps, CloudError> {
        let region = SubmitRequest::needed(&request.region, "vertex", "--region")?;
        let image = SubmitRequest::needed(
            &request.image,
            "vertex",
            "--image: a container image of paceline",
        )?;
        let command: Vec<String> = request.task_command().iter().map(|word| text(word)).collect();
        let mut environment = String::new();
        if request.nodes > 1 {
            let key = SubmitRequest::needed(
                &request.key,
                "vertex",
                "--key: its path below /gcs, in a bucket that only the job's service account reads",
            )?;
            environment =
                format!("\n    env:\n    - {{name: PACELINE_KEY_FILE, value: {}}}", text(key));
        }
        let disk = request.disk.as_ref().map_or(String::new(), |(kind, gb)| {
            // It has hard disks and SSDs only, of 100 GB where nothing is said: a smaller one saves nothing worth a refusal.
            let kind = if kind == "pd-standard" { kind.as_str() } else { "pd-ssd" };
            let gb = (*gb).max(LEAST_DISK_GB);
            format!("\n    diskSpec: {{bootDiskType: {}, bootDiskSizeGb: {gb}}}", text(kind))
        });
        let gpu = request.attached_gpu("vertex")?.map_or(String::new(), |(gpu, count)| {
            // Vertex AI has the same names in capitals with underscores.
            let kind = gpu.to_uppercase().replace('-', "_");
            format!("\n      acceleratorType: {kind}\n      acceleratorCount: {count}")
        });
        let pool = |count: u32| {
            let mut lines = format!(
                "  - machineSpec:\n      machineType: {}{gpu}\n    replicaCount: {count}",
                text(&request.machine)
            );
            lines.push_str(&disk);
            let container = format!(
                "\n    containerSpec:\n      imageUri: {}\n      args: [{}]",
                text(image),
                command.join(", ")
            );
            lines.push_str(&container);
            lines.push_str(&environment.replace("\n    ", "\n      "));
            lines.push('\n');
            lines
        };
        let mut pools = pool(1);
        if request.nodes > 1 {
            pools.push_str(&pool(request.nodes - 1));
        }
        let limit = request
            .minutes
            .map(|minutes| format!("  timeout: {}s\n", u64::from(minutes) * 60))
            .unwrap_or_default();
        let file = format!(
            "# Written by `paceline cloud submit`.\nworkerPoolSpecs:\n{pools}scheduling:\n  restartJobOnWorkerRestart: true\n{limit}"
        );
        let region = format!("--region={region}");
        let call = |words: &[&str]| {
            let mut all = argv(["gcloud", "ai", "custom-jobs"].iter().chain(words));
            all.push(region.clone());
            all.extend(request.project_flag());
            all
        };
        let name = format!("--display-name={}", request.name);
        let labels = format!("--labels=paceline-submission={}", request.mark);
        let filter = format!("--filter=labels.paceline-submission={}", request.mark);
        Ok(JobSteps {
            files: vec![("job.yaml".to_owned(), file)],
            submit: vec![call(&[
                "create",
                &name,
                &labels,
                "--config={folder}/job.yaml",
                "--format=json",
            ])],
            preparing: 0,
            find: call(&["list", &filter, "--format=value(name)"]),
            id: JobNumber::JsonName,
            status: call(&["describe", "{id}", "--format=value(state)"]),
            logs: call(&["stream-logs", "{id}"]),
            stop: vec![call(&["cancel", "{id}"])],
            fetch: argv(["gcloud", "storage", "cp", "-r", "{from}", "{to}"]),
        })
    }

    fn state(&self, answer: &str) -> JobState {
        match answer.trim().trim_start_matches("JOB_STATE_") {
            "QUEUED" | "PENDING" => JobState::Waiting,
            "RUNNING" | "UPDATING" | "PAUSED" => JobState::Running,
            "SUCCEEDED" => JobState::Done,
            "CANCELLING" | "CANCELLED" => JobState::Stopped,
            "FAILED" | "EXPIRED" | "PARTIALLY_SUCCEEDED" => JobState::Failed,
            _ => JobState::Unknown,
        }
    }
}
