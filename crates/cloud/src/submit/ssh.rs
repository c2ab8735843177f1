//! Plain ssh: the binary, the key and a cluster file on every host, one task each, left running when the connection ends.

use super::{JobNumber, JobState, JobSteps, SubmitRequest, Target, text};
use crate::error::CloudError;
use crate::tool::argv;
use paceline_probes::shell_word;

pub(super) struct Ssh;

impl Target for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn about(&self) -> &'static str {
        "one task on each of --hosts, through ssh and scp"
    }

    fn reads(&self) -> &'static [&'static str] {
        &["hosts", "key", "binary", "port"]
    }

    fn steps(&self, request: &SubmitRequest) -> Result<JobSteps, CloudError> {
        let binary = request.binary.as_ref().ok_or(CloudError::Missing {
            target: "ssh",
            key: "--binary: the paceline to copy to the hosts",
        })?;
        if request.hosts.is_empty() {
            return Err(CloudError::Missing { target: "ssh", key: "--hosts a,b,c" });
        }
        if let Some(host) = request.hosts.iter().find(|host| !is_host(host)) {
            return Err(CloudError::Host { host: host.clone() });
        }
        if let Some((gpu, _)) = &request.gpu {
            let why = "the hosts have what they have; leave shape.gpu out";
            return Err(CloudError::Gpu { target: "ssh", gpu: gpu.clone(), why });
        }
        let key = (request.hosts.len() > 1)
            .then(|| SubmitRequest::needed(&request.key, "ssh", "--key: the cluster's key file"))
            .transpose()?;
        let files = vec![
            ("cluster.toml".to_owned(), cluster(&request.hosts, request.port)),
            ("job.sh".to_owned(), script(request, &binary.display().to_string(), key)),
        ];
        let run = |words: &[&str]| argv(["bash", "{folder}/job.sh"].iter().chain(words));
        let mut submit = vec![run(&["copy"])];
        submit.extend((0..request.hosts.len()).map(|task| run(&["start", &task.to_string()])));
        Ok(JobSteps {
            files,
            submit,
            preparing: 1,
            // The hosts know a task by the file with its number, which `stop` reads.
            find: Vec::new(),
            id: JobNumber::Name,
            status: run(&["status"]),
            logs: run(&["logs"]),
            stop: vec![run(&["stop"])],
            fetch: run(&["fetch", "{from}", "{to}"]),
        })
    }

    fn state(&self, answer: &str) -> JobState {
        code_state(answer)
    }
}

/// Of the lines that all tasks gave: `running`, or the exit code each left behind.
pub(super) fn code_state(answer: &str) -> JobState {
    let codes: Vec<&str> = answer.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if codes.is_empty() {
        JobState::Unknown
    } else if codes.contains(&"running") {
        JobState::Running
    } else if codes.iter().all(|code| *code == "0") {
        JobState::Done
    } else if codes.iter().any(|code| ["130", "143"].contains(code)) {
        JobState::Stopped
    } else {
        JobState::Failed
    }
}

/// Whether it is a host for certain: a name that begins with a hyphen would be an option of ssh, which may run commands here.
fn is_host(host: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || ".:-_".contains(c))
    };
    match host.split_once('@') {
        Some((user, host)) => is_name(user) && is_name(host),
        None => is_name(host),
    }
}

/// A host may be `user@name`; tasks reach each other by the name alone.
fn cluster(hosts: &[String], port: u16) -> String {
    let address =
        |host: &String| text(&format!("{}:{port}", host.rsplit('@').next().unwrap_or(host)));
    let workers: Vec<String> = hosts.iter().map(address).collect();
    format!("# Written by `paceline cloud submit`.\nworkers = [{}]\n", workers.join(", "))
}

fn script(request: &SubmitRequest, binary: &str, key: Option<&str>) -> String {
    let folder = format!(".paceline/{}", request.name);
    let mut command: Vec<String> =
        request.task_command().iter().map(|word| shell_word(word)).collect();
    let several = request.hosts.len() > 1;
    if several {
        command.extend(argv(["--cluster", "cluster.toml", "--key", "cluster.key", "--task"]));
    }
    let hosts: Vec<String> = request.hosts.iter().map(|host| shell_word(host)).collect();
    let copy_key = key.map_or(String::new(), |key| {
        format!("    scp $options -q {} \"$host:{folder}/cluster.key\"\n", shell_word(key))
    });
    let task = if several { " worker/$task" } else { "" };
    format!(
        "#!/usr/bin/env bash\n# Written by `paceline cloud submit`: one task on each host.\nset -euo pipefail\n\
         hosts=({hosts})\nhere=$(cd \"$(dirname \"$0\")\" && pwd)\noptions=\"${{SSH_OPTIONS:--o BatchMode=yes}}\"\n\
         case ${{1:-status}} in\n\
         copy)\n\
         \x20 for host in \"${{hosts[@]}}\"; do\n\
         \x20   ssh $options \"$host\" 'umask 077 && mkdir -p {folder} && rm -f {folder}/code {folder}/pid'\n\
         \x20   scp $options -q {binary} \"$host:{folder}/paceline\"\n\
         \x20   scp $options -q \"$here/cluster.toml\" \"$host:{folder}/cluster.toml\"\n{copy_key}\
         \x20 done ;;\n\
         start)\n\
         \x20 task=$2\n\
         \x20 # Returns when the task has left its number, by which it can be ended.\n\
         \x20 ssh $options \"${{hosts[$task]}}\" \"cd {folder} && chmod 700 paceline && {{ [ ! -e cluster.key ] || chmod 600 cluster.key; }} && \
         {{ (setsid nohup sh -c 'echo \\$\\$ >pid; ./paceline {command}{task} >log 2>&1; echo \\$? >code' >/dev/null 2>&1 </dev/null &) ; \
         n=0; until [ -s pid ] || [ \\$n -gt 100 ]; do n=\\$((n + 1)); sleep 0.1; done; [ -s pid ]; }}\" ;;\n\
         status)\n\
         \x20 for host in \"${{hosts[@]}}\"; do\n\
         \x20   ssh $options \"$host\" 'cat {folder}/code 2>/dev/null || {{ [ -d /proc/$(cat {folder}/pid) ] && echo running || echo lost; }}'\n\
         \x20 done ;;\n\
         logs) exec ssh $options \"${{hosts[0]}}\" 'tail -n +1 -F {folder}/log' ;;\n\
         stop)\n\
         \x20 missed=0\n\
         \x20 for host in \"${{hosts[@]}}\"; do\n\
         \x20   ssh $options \"$host\" 'if [ -s {folder}/pid ]; then pkill -INT -s $(cat {folder}/pid) paceline || true; fi' ||\n\
         \x20     {{ echo \"$host was not reached: its task may still run\" >&2; missed=1; }}\n\
         \x20 done\n\
         \x20 exit $missed ;;\n\
         fetch) exec scp $options -q -r \"${{hosts[0]}}:$2\" \"$3\" ;;\n\
         esac\n",
        hosts = hosts.join(" "),
        binary = shell_word(binary),
        command = command.join(" ").replace('\'', r"'\''"),
    )
}
