//! The kernel's pool of random bits.

use paceline_probes::{Column, Detail, Probe, ProbeEntry};
use std::{path::PathBuf, time::Duration};

pub static ENTRY: ProbeEntry = ProbeEntry {
    name: "entropy",
    columns: &[Column { name: "entropy_bits", about: "random bits the kernel has collected" }],
    open: |roots, _| Box::new(Entropy(roots.proc.join("sys/kernel/random/entropy_avail"))),
};

struct Entropy(PathBuf);

impl Probe for Entropy {
    fn sample(&mut self, _: Duration, values: &mut [Option<f64>], _: &mut Detail) {
        let text = std::fs::read_to_string(&self.0).ok();
        values[0] = text.and_then(|text| text.trim().parse().ok());
    }
}
