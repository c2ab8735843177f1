//! Dataproc: a cluster made for the job, the job on its master as a Spark driver, the cluster deleted when idle.

use super::{JobNumber, JobState, JobSteps, SubmitRequest, Target};
use crate::error::CloudError;
use crate::tool::argv;
use paceline_probes::shell_word;

pub(super) struct Dataproc;

/// The cluster ends by itself when nothing has run on it for so long, even if this machine is gone.
const MOST_IDLE: &str = "--max-idle=30m";

impl Target for Dataproc {
    fn name(&self) -> &'static str {
        "dataproc"
    }

    fn about(&self) -> &'static str {
        "prepare or speedtest on a Spark cluster that is made for it, through gcloud"
    }

    fn services(&self) -> &'static [&'static str] {
        &["dataproc.googleapis.com", "compute.googleapis.com", "storage.googleapis.com"]
    }

    fn permissions(&self) -> &'static [&'static str] {
        &["dataproc.clusters.create", "dataproc.clusters.delete"]
    }

    fn reads(&self) -> &'static [&'static str] {
        &["project", "region", "binary", "nodes", "machine", "time-limit"]
    }

    fn steps(&self, request: &SubmitRequest) -> Result<JobSteps, CloudError> {
        let region = SubmitRequest::needed(&request.region, "dataproc", "--region")?;
        let binary = request.binary.as_ref().ok_or(CloudError::Missing {
            target: "dataproc",
            key: "--binary: a static build of paceline to copy to the cluster",
        })?;
        if !matches!(request.command.first().map(String::as_str), Some("prepare" | "speedtest")) {
            return Err(CloudError::Missing {
                target: "dataproc",
                key: "a command that Spark spreads: prepare or speedtest",
            });
        }
        let name = request.name.as_str();
        let master = format!("{name}-m");
        let region = format!("--region={region}");
        let common = |words: Vec<String>| {
            let mut all = words;
            all.push(region.clone());
            all.extend(request.project_flag());
            all
        };
        let mut create = argv([
            "gcloud",
            "dataproc",
            "clusters",
            "create",
            name,
            "--image-version=2.2-debian12",
            MOST_IDLE,
        ]);
        create.extend([
            format!("--num-workers={}", request.nodes),
            format!("--worker-machine-type={}", request.machine),
            format!("--master-machine-type={}", request.machine),
            "--scopes=storage-rw".to_owned(),
            format!("--labels=paceline-submission={}", request.mark),
        ]);
        if let Some((kind, gb)) = &request.disk {
            for role in ["worker", "master"] {
                create.push(format!("--{role}-boot-disk-type={kind}"));
                create.push(format!("--{role}-boot-disk-size={gb}GB"));
            }
        }
        if let Some((gpu, count)) = request.attached_gpu("dataproc")? {
            create.push(format!("--worker-accelerator=type={gpu},count={count}"));
        }
        if let Some(minutes) = request.minutes {
            create.push(format!("--max-age={minutes}m"));
        }
        // The zone is the service's choice: asked for by the script that runs here.
        let mut command: Vec<String> =
            request.command.iter().map(|word| shell_word(word)).collect();
        command.extend(argv(["--engine", "spark", "--spark-master", "yarn"]));
        let project: String =
            request.project_flag().iter().map(|flag| format!(" {}", shell_word(flag))).collect();
        let script = format!(
            "#!/usr/bin/env bash\n# Written by `paceline cloud submit`: {name} on its Dataproc cluster.\nset -euo pipefail\n\
             zone=$(gcloud dataproc clusters describe {name} {region}{project} --format='value(config.gceClusterConfig.zoneUri.basename())')\n\
             case ${{1:-start}} in\n\
             start)\n\
             \x20 gcloud compute scp {binary} {master}:paceline --zone=\"$zone\"{project}\n\
             \x20 gcloud compute ssh {master} --zone=\"$zone\"{project} --command={remote}\n  ;;\n\
             status) gcloud compute ssh {master} --zone=\"$zone\"{project} --command='cat paceline.code 2>/dev/null || echo running' ;;\n\
             logs) gcloud compute ssh {master} --zone=\"$zone\"{project} --command='tail -n +1 -F paceline.log' ;;\n\
             fetch) gcloud compute scp --recurse {master}:\"$2\" \"$3\" --zone=\"$zone\"{project} ;;\n\
             esac\n",
            binary = shell_word(&binary.display().to_string()),
            remote = shell_word(&format!(
                "chmod +x paceline && rm -f paceline.code && (nohup sh -c {} >/dev/null 2>&1 </dev/null &)",
                shell_word(&format!(
                    "./paceline {} >paceline.log 2>&1; echo $? >paceline.code",
                    command.join(" ")
                ))
            )),
        );
        let run = |words: &[&str]| argv(["bash", "{folder}/job.sh"].iter().chain(words));
        Ok(JobSteps {
            files: vec![("job.sh".to_owned(), script)],
            submit: vec![common(create), run(&["start"])],
            preparing: 0,
            find: common(argv([
                "gcloud",
                "dataproc",
                "clusters",
                "list",
                &format!("--filter=labels.paceline-submission = {}", request.mark),
                "--format=value(clusterName)",
            ])),
            id: JobNumber::Name,
            status: run(&["status"]),
            logs: run(&["logs"]),
            stop: vec![common(argv([
                "gcloud", "dataproc", "clusters", "delete", "{id}", "--quiet",
            ]))],
            fetch: run(&["fetch", "{from}", "{to}"]),
        })
    }

    fn state(&self, answer: &str) -> JobState {
        super::ssh::code_state(answer)
    }
}
