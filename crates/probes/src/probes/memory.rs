//! Memory of the machine, and the effective limit (a container's is below the host's).

use crate::counter::value_of;
use crate::kernel_file::KernelFile;
use crate::probe::{Column, Detail, Probe, ProbeEntry};
use std::time::Duration;

/// Registry entry.
pub(crate) const ENTRY: ProbeEntry = ProbeEntry {
    name: "memory",
    columns: &[
        Column { name: "memory_used_bytes", about: "total minus available" },
        Column { name: "memory_free_bytes", about: "unused memory" },
        Column { name: "memory_cached_bytes", about: "page cache and buffers" },
        Column { name: "memory_available_bytes", about: "memory available to programs" },
        Column { name: "memory_limit_bytes", about: "cgroup limit, else the machine's memory" },
        Column { name: "swap_used_bytes", about: "swap in use" },
    ],
    open: |roots, target| {
        Box::new(Memory {
            file: KernelFile::new(roots.proc.join("meminfo")),
            limit: KernelFile::new(roots.cgroup(target).join("memory.max")),
            text: String::new(),
        })
    },
};

struct Memory {
    file: KernelFile,
    limit: KernelFile,
    text: String,
}

impl Probe for Memory {
    fn sample(&mut self, _: Duration, values: &mut [Option<f64>], _: &mut Detail) {
        if !self.file.read(&mut self.text) {
            return;
        }
        let bytes = |key| value_of(&self.text, key).map(|kib| kib as f64 * 1024.0);
        let total = bytes("MemTotal");
        let available = bytes("MemAvailable");
        values[0] = total.zip(available).map(|(total, available)| total - available);
        values[1] = bytes("MemFree");
        values[2] = bytes("Cached").zip(bytes("Buffers")).map(|(cached, buffers)| cached + buffers);
        values[3] = available;
        values[5] = bytes("SwapTotal").zip(bytes("SwapFree")).map(|(total, free)| total - free);
        let limited = self.limit.read(&mut self.text);
        let limit = limited.then(|| self.text.trim().parse::<f64>().ok()).flatten(); // "max" means none
        values[4] = match (limit, total) {
            (Some(limit), Some(total)) => Some(limit.min(total)),
            (limit, total) => limit.or(total),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Roots, Target};
    use std::fs;

    #[test]
    fn the_tighter_limit_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, sys) = (folder.path().join("proc"), folder.path().join("sys"));
        fs::create_dir_all(proc.join("7")).unwrap();
        fs::create_dir_all(sys.join("fs/cgroup/job")).unwrap();
        fs::write(proc.join("7/cgroup"), "0::/job\n").unwrap();
        fs::write(
            proc.join("meminfo"),
            "MemTotal: 1000 kB\nMemFree: 200 kB\nMemAvailable: 600 kB\nBuffers: 10 kB\nCached: 300 kB\n",
        )
        .unwrap();
        fs::write(sys.join("fs/cgroup/job/memory.max"), "512000\n").unwrap();
        let mut values = [None; 6];
        let mut probe = (ENTRY.open)(&Roots { proc, sys: sys.clone() }, Target::process(7));
        probe.sample(Duration::ZERO, &mut values, &mut Detail::new());
        assert_eq!(values[0], Some(400.0 * 1024.0));
        assert_eq!(values[4], Some(512_000.0));
        assert_eq!(values[5], None, "no swap lines");
        fs::write(sys.join("fs/cgroup/job/memory.max"), "max\n").unwrap();
        probe.sample(Duration::ZERO, &mut values, &mut Detail::new());
        assert_eq!(values[4], Some(1000.0 * 1024.0));
    }
}
