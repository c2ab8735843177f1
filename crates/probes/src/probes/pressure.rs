//! Pressure stall information (PSI): the share of time in which some task waited for CPU, memory or disk.

use crate::counter::growth;
use crate::kernel_file::KernelFile;
use crate::probe::{Column, Detail, Probe, ProbeEntry};
use std::time::Duration;

/// Registry entry.
pub(crate) const ENTRY: ProbeEntry = ProbeEntry {
    name: "pressure",
    columns: &[
        Column { name: "pressure_cpu_percent", about: "time in which some task waited for a core" },
        Column {
            name: "pressure_memory_percent",
            about: "time in which some task waited for memory",
        },
        Column {
            name: "pressure_disk_percent",
            about: "time in which some task waited for a disk",
        },
    ],
    open: |roots, _| {
        let file = |name: &str| (KernelFile::new(roots.proc.join("pressure").join(name)), None);
        Box::new(Pressure { files: [file("cpu"), file("memory"), file("io")], text: String::new() })
    },
};

struct Pressure {
    /// Each file and the microseconds it showed last.
    files: [(KernelFile, Option<u64>); 3],
    text: String,
}

impl Probe for Pressure {
    fn sample(&mut self, elapsed: Duration, values: &mut [Option<f64>], _: &mut Detail) {
        for ((file, old), slot) in self.files.iter_mut().zip(values) {
            *slot = None;
            let new = if file.read(&mut self.text) { stalled(&self.text) } else { None };
            if let (Some(old), Some(new)) = (*old, new) {
                let micros = elapsed.as_micros().max(1) as f64;
                *slot = growth(old, new).map(|grown| (100.0 * grown as f64 / micros).min(100.0));
            }
            *old = new;
        }
    }
}

fn stalled(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some"))?;
    line.split_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_microseconds_are_read_from_the_some_line() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\nfull avg10=0.00 total=99\n";
        assert_eq!(stalled(text), Some(1234));
        assert_eq!(stalled(""), None);
    }
}
