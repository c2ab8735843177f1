//! `machine.json`: where a run happened, so that its figures can be judged years later.

use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// A machine as a process sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Host name.
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
    /// Kernel release.
    pub kernel: String,
    /// Operating system's name.
    pub system: String,
    /// Version of this program.
    pub version: String,
}

impl Machine {
    /// The name of this host.
    #[must_use]
    pub fn host_name() -> String {
        text("/proc/sys/kernel/hostname")
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
        }
    }
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
