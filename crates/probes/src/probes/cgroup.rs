//! The container's limits: time throttled by the CPU quota, memory charged.

use crate::counter::{growth, value_of};
use crate::kernel_file::KernelFile;
use crate::probe::{Column, Detail, Probe, ProbeEntry};
use std::time::Duration;

/// Registry entry.
pub(crate) const ENTRY: ProbeEntry = ProbeEntry {
    name: "cgroup",
    columns: &[
        Column {
            name: "cgroup_throttled_percent",
            about: "time in which the CPU quota throttled tasks",
        },
        Column { name: "cgroup_memory_bytes", about: "memory charged to the cgroup" },
    ],
    open: |roots, target| {
        let folder = roots.cgroup(target);
        Box::new(Cgroup {
            cpu: KernelFile::new(folder.join("cpu.stat")),
            memory: KernelFile::new(folder.join("memory.current")),
            text: String::new(),
            old: None,
        })
    },
};

struct Cgroup {
    cpu: KernelFile,
    memory: KernelFile,
    text: String,
    old: Option<u64>,
}

impl Probe for Cgroup {
    fn sample(&mut self, elapsed: Duration, values: &mut [Option<f64>], _: &mut Detail) {
        let throttled =
            self.cpu.read(&mut self.text).then(|| value_of(&self.text, "throttled_usec")).flatten();
        if let (Some(old), Some(new)) = (self.old, throttled) {
            let micros = elapsed.as_micros().max(1) as f64;
            // Several cores may be throttled at once; the share is capped at the whole time.
            values[0] = growth(old, new).map(|grown| (100.0 * grown as f64 / micros).min(100.0));
        }
        self.old = throttled;
        values[1] =
            self.memory.read(&mut self.text).then(|| self.text.trim().parse().ok()).flatten();
    }
}
