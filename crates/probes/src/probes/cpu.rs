//! CPU time by mode and by core, and the length of the run queue.

use crate::counter::{growth, value_of, word};
use crate::kernel_file::KernelFile;
use crate::probe::{Column, Detail, Probe, ProbeEntry};
use std::time::Duration;

/// Registry entry.
pub(crate) const ENTRY: ProbeEntry = ProbeEntry {
    name: "cpu",
    columns: &[
        Column { name: "cpu_user_percent", about: "user and nice time, share of all cores" },
        Column { name: "cpu_system_percent", about: "kernel and interrupt time" },
        Column { name: "cpu_iowait_percent", about: "idle while waiting for a disk" },
        Column { name: "cpu_steal_percent", about: "taken by the hypervisor" },
        Column { name: "cpu_idle_percent", about: "idle time" },
        Column { name: "cpu_busiest_core_percent", about: "busy share of the busiest core" },
        Column { name: "run_queue_tasks", about: "tasks running or ready to run" },
        Column { name: "context_switches_per_second", about: "context switches" },
    ],
    open: |roots, _| {
        Box::new(Cpu { file: KernelFile::new(roots.proc.join("stat")), ..Cpu::default() })
    },
};

/// Jiffies in `/proc/stat`: user nice system idle iowait irq softirq steal.
type Times = [u64; 8];

#[derive(Default)]
struct Cpu {
    file: KernelFile,
    text: String,
    old: Vec<(String, Times)>,
    old_switches: Option<u64>,
}

impl Probe for Cpu {
    fn sample(&mut self, elapsed: Duration, values: &mut [Option<f64>], detail: &mut Detail) {
        if !self.file.read(&mut self.text) {
            return;
        }
        let new: Vec<(String, Times)> = self.text.lines().filter_map(parse_line).collect();
        let mut busiest: Option<f64> = None;
        for (name, times) in &new {
            let Some((_, old)) = self.old.iter().find(|(known, _)| known == name) else {
                continue; // a core that has just come online has no interval yet
            };
            let Some(shares) = shares(old, times) else { continue };
            if name == "cpu" {
                values[..5].copy_from_slice(&shares.map(Some));
            } else {
                let busy = 100.0 - shares[4] - shares[2];
                busiest = Some(busiest.map_or(busy, |most| most.max(busy)));
                let core = detail.entry(name.clone()).or_default();
                for (column, share) in ENTRY.columns.iter().zip(shares) {
                    core.insert(column.name, share);
                }
            }
        }
        values[5] = busiest;
        values[6] = value_of(&self.text, "procs_running").map(|tasks| tasks as f64);
        let switches = value_of(&self.text, "ctxt");
        if let (Some(old), Some(new)) = (self.old_switches, switches) {
            values[7] = growth(old, new).map(|grown| grown as f64 / elapsed.as_secs_f64());
        }
        self.old_switches = switches;
        self.old = new;
    }
}

fn parse_line(line: &str) -> Option<(String, Times)> {
    let name = line.split_ascii_whitespace().next()?;
    if !name.starts_with("cpu") {
        return None;
    }
    let mut times = Times::default();
    for (index, time) in times.iter_mut().enumerate() {
        *time = word(line, index + 1).unwrap_or(0);
    }
    Some((name.to_owned(), times))
}

/// User, system, iowait, steal and idle in percent of the interval.
fn shares(old: &Times, new: &Times) -> Option<[f64; 5]> {
    let mut grown = [0.0; 8];
    for (index, slot) in grown.iter_mut().enumerate() {
        // The kernel's iowait may decrease a little; that counts as zero growth.
        *slot = new[index].saturating_sub(old[index]) as f64;
    }
    let total: f64 = grown.iter().sum();
    if total <= 0.0 {
        return None; // sampled faster than the kernel's tick
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = grown;
    Some(
        [user + nice, system + irq + softirq, iowait, steal, idle].map(|part| 100.0 * part / total),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Roots, Target};

    #[test]
    fn shares_of_modes_and_the_busiest_core() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots { proc: folder.path().into(), ..Roots::default() };
        let mut probe = (ENTRY.open)(&roots, Target::process(1));
        let mut values = [None; 8];
        let file = folder.path().join("stat");
        std::fs::write(
            &file,
            "cpu 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\nctxt 100\nprocs_running 3\n",
        )
        .unwrap();
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        assert_eq!(values[0], None);
        std::fs::write(
            &file,
            "cpu 50 0 25 100 25 0 0 0\ncpu0 50 0 25 0 25 0 0 0\ncpu1 0 0 0 100 0 0 0 0\nctxt 300\nprocs_running 1\n",
        )
        .unwrap();
        let mut detail = Detail::new();
        probe.sample(Duration::from_secs(2), &mut values, &mut detail);
        assert_eq!(values[..5], [Some(25.0), Some(12.5), Some(12.5), Some(0.0), Some(50.0)]);
        assert_eq!(values[5], Some(75.0));
        assert_eq!(values[6], Some(1.0));
        assert_eq!(values[7], Some(100.0));
        assert!(detail.contains_key("cpu0") && !detail.contains_key("cpu1"), "{detail:?}");
    }

    #[test]
    fn a_missing_file_leaves_everything_unknown() {
        let roots = Roots { proc: "/nonexistent".into(), ..Roots::default() };
        let mut values = [None; 8];
        (ENTRY.open)(&roots, Target::process(1)).sample(
            Duration::ZERO,
            &mut values,
            &mut Detail::new(),
        );
        assert_eq!(values, [None; 8]);
    }
}
