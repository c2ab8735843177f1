//! `machine.json`: where a run happened, so that its figures can be judged years later.

use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// A machine as a process sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub host: String,
    /// Name of the processor.
    pub cpu: String,
    /// Logical processors of the host.
    pub host_cpus: usize,
    /// Cores this process may use.
    pub cores: usize,
    /// The limit that decided `cores`.
    pub cores_decided_by: String,
    /// Widest vector instructions: `avx512`, `avx2` or `portable`.
    pub isa: String,
    /// The process's own `cpu.max`, as the kernel writes it.
    pub cgroup_cpu_max: Option<String>,
    /// Memory limit of the process's control group, in bytes.
    pub cgroup_memory_max: Option<u64>,
    /// Memory of the host, in bytes.
    pub memory_bytes: u64,
    pub kernel: String,
    pub system: String,
    /// Version of this program.
    pub version: String,
    /// The command line that started the run; empty in runs that do not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl Machine {
    /// The name of this host.
    #[must_use]
    pub fn host_name() -> String {
        text("/proc/sys/kernel/hostname")
    }

    /// A command as a shell would take it.
    #[must_use]
    pub fn written(command: &[String]) -> String {
        command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    /// Reads what the kernel says about this machine; what it does not say stays empty.
    #[must_use]
    pub fn detect() -> Self {
        let cores = paceline_batch::cores();
        let cpuinfo = text("/proc/cpuinfo");
        let group = own_group(&text("/proc/self/cgroup"));
        let limit =
            |name: &str| group.as_ref().map(|group| text(format!("/sys/fs/cgroup/{group}/{name}")));
        Self {
            host: Self::host_name(),
            cpu: field(&cpuinfo, "model name").unwrap_or_default(),
            host_cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            cores: cores.count,
            cores_decided_by: cores.decided_by.to_string(),
            isa: isa().to_string(),
            cgroup_cpu_max: limit("cpu.max").filter(|text| !text.is_empty()),
            cgroup_memory_max: limit("memory.max").and_then(|text| text.parse().ok()),
            memory_bytes: field(&text("/proc/meminfo"), "MemTotal")
                .and_then(|value| value.strip_suffix(" kB")?.trim().parse::<u64>().ok())
                .map_or(0, |kib| kib * 1024),
            kernel: text("/proc/sys/kernel/osrelease"),
            system: text("/etc/os-release")
                .lines()
                .find_map(|line| line.strip_prefix("PRETTY_NAME="))
                .map(|name| name.trim_matches('"').to_string())
                .unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            command: started_by(),
        }
    }
}

/// What the user typed: this process's command line, or that of the process of the same program which started it as a task.
fn started_by() -> String {
    let program = |process: &str| fs::read_link(format!("/proc/{process}/exe")).ok();
    let parent = std::os::unix::process::parent_id().to_string();
    let launched = program("self").is_some() && program("self") == program(&parent);
    let process = if launched { parent.as_str() } else { "self" };
    command_line(&fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default())
}

/// One word as a shell would take it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,@+%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Arguments as the kernel keeps them, written as a shell would take them; what follows `--token` is a secret.
fn command_line(arguments: &[u8]) -> String {
    let mut secret = false;
    let mut words = Vec::new();
    let arguments = arguments.strip_suffix(&[0]).unwrap_or(arguments);
    for (at, argument) in arguments.split(|byte| *byte == 0).enumerate() {
        let text = String::from_utf8_lossy(argument);
        let name = text.rsplit('/').next().unwrap_or_default();
        words.push(match &*text {
            _ if secret => "***".to_owned(),
            text if text.starts_with("--token=") => "--token=***".to_owned(),
            _ if at == 0 => name.to_owned(),
            text => quoted(text),
        });
        secret = text == "--token";
    }
    words.join(" ")
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default()
}

/// Value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_string())
}

fn own_group(text: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix("0::")).map(|path| {
        // A group named `..` (as seen from a container) must not lead out of the tree.
        path.split('/').filter(|part| !matches!(*part, "" | "..")).collect::<Vec<_>>().join("/")
    })
}

#[cfg(target_arch = "x86_64")]
fn isa() -> &'static str {
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
        "avx512"
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        "avx2"
    } else {
        "portable"
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn isa() -> &'static str {
    "portable"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again_and_keeps_secrets() {
        let typed = b"/usr/bin/paceline\0train\0--data\0my photos\0--token\0abc\0--lr=0.1\0";
        assert_eq!(command_line(typed), "paceline train --data 'my photos' --token *** --lr=0.1");
        assert_eq!(command_line(b"p\0--token=abc\0it's"), "p --token=*** 'it'\\''s'");
    }

    #[test]
    fn this_machine_says_what_it_is() {
        let machine = Machine::detect();
        assert!(machine.cores >= 1 && machine.host_cpus >= 1, "{machine:?}");
        assert!(machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(!machine.kernel.is_empty() && !machine.isa.is_empty(), "{machine:?}");
        let json = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), machine);
    }

    #[test]
    fn group_names_cannot_climb_out() {
        assert_eq!(own_group("0::/../../etc\n").as_deref(), Some("etc"));
        assert_eq!(own_group("1:cpu:/x\n"), None);
        assert_eq!(field("a\t: 1\nmodel name : B C\n", "model name").as_deref(), Some("B C"));
    }
}
