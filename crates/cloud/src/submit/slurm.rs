//! Slurm: a batch script with one task per node, `sbatch`, `squeue` and `sacct`, `scancel`.

use super::{JobNumber, JobState, JobSteps, SubmitRequest, Target};
use crate::error::CloudError;
use crate::tool::argv;
use paceline_probes::shell_word;

pub(super) struct Slurm;

/// The queue knows a job while it is there; then what its script left, what the controller still remembers, and the accounts, which
/// many sites do not keep.
const STATUS: &str = "squeue -h -t all -j \"$1\" -o %T 2>/dev/null | grep . || cat \"$2/$1.code\" 2>/dev/null || \
    { scontrol -o show job \"$1\" 2>/dev/null | grep -o 'JobState=[A-Z_]*' | cut -d= -f2 | grep .; } || \
    sacct -n -X -P -j \"$1\" -o State";

/// Numbers of the user's jobs with this comment.
fn find_script(mark: &str) -> String {
    format!(
        "jobs=$(squeue -h -u \"$(id -un)\" -o '%i %k') || exit 1; printf '%s\\n' \"$jobs\" | sed -n 's/ {mark}$//p'"
    )
}

impl Target for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn about(&self) -> &'static str {
        "a batch script for sbatch, one task per node"
    }

    fn reads(&self) -> &'static [&'static str] {
        &["nodes", "cores", "memory", "key", "binary", "time-limit"]
    }

    fn steps(&self, request: &SubmitRequest) -> Result<JobSteps, CloudError> {
        let key = (request.nodes > 1)
            .then(|| {
                SubmitRequest::needed(
                    &request.key,
                    "slurm",
                    "--key: a key file that all nodes can read",
                )
            })
            .transpose()?;
        let mut command: Vec<String> =
            request.task_command().iter().map(|word| shell_word(word)).collect();
        command.extend(key.into_iter().flat_map(|key| argv(["--key", &shell_word(key)])));
        let binary = request
            .binary
            .as_ref()
            .map_or("paceline".to_owned(), |path| path.display().to_string());
        let limit = request
            .minutes
            .map(|minutes| format!("#SBATCH --time={minutes}\n"))
            .unwrap_or_default();
        let gpus = request.gpu.as_ref().map_or(String::new(), |(gpu, count)| {
            format!("#SBATCH --gres=gpu:{}:{count}\n", shell_word(gpu))
        });
        let script = format!(
            "#!/usr/bin/env bash\n# Written by `paceline cloud submit`.\n\
             #SBATCH --job-name={name}\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node=1\n\
             #SBATCH --cpus-per-task={vcpus}\n#SBATCH --mem={memory}G\n{gpus}{limit}#SBATCH --requeue\n\
             set -uo pipefail\n\
             srun --kill-on-bad-exit=1 {binary} {command}\ncode=$?\n\
             # 75: a task was lost; worth another try.\n\
             if [[ $code -eq 75 ]]; then scontrol requeue \"$SLURM_JOB_ID\"; fi\n\
             # For sites that keep no accounts: the queue forgets a job minutes after its end.\n\
             if [[ -n ${{1:-}} ]]; then echo \"$code\" >\"$1/$SLURM_JOB_ID.code\"; fi\nexit \"$code\"\n",
            name = request.name,
            nodes = request.nodes,
            vcpus = request.vcpus,
            memory = request.memory_gib,
            binary = shell_word(&binary),
            command = command.join(" "),
        );
        Ok(JobSteps {
            files: vec![("job.sbatch".to_owned(), script)],
            submit: vec![argv([
                "sbatch",
                "--parsable",
                &format!("--comment={}", request.mark),
                "--output={folder}/%j.log",
                "{folder}/job.sbatch",
                "{folder}",
            ])],
            preparing: 0,
            find: argv(["sh", "-c", &find_script(&request.mark)]),
            id: JobNumber::FirstWord,
            status: argv(["sh", "-c", STATUS, "sh", "{id}", "{folder}"]),
            logs: argv(["tail", "-n", "+1", "-F", "{folder}/{id}.log"]),
            stop: vec![argv(["scancel", "{id}"])],
            fetch: argv(["cp", "-r", "{from}", "{to}"]),
        })
    }

    fn state(&self, answer: &str) -> JobState {
        match answer.split_whitespace().next().unwrap_or_default().trim_end_matches('+') {
            "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "SUSPENDED" => {
                JobState::Waiting
            }
            "RUNNING" | "COMPLETING" | "STAGE_OUT" => JobState::Running,
            "COMPLETED" | "0" => JobState::Done,
            "CANCELLED" | "130" | "143" => JobState::Stopped,
            code if code.parse::<u8>().is_ok() => JobState::Failed,
            "FAILED" | "TIMEOUT" | "NODE_FAIL" | "OUT_OF_MEMORY" | "PREEMPTED" | "BOOT_FAIL"
            | "DEADLINE" => JobState::Failed,
            _ => JobState::Unknown,
        }
    }
}
