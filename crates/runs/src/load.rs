//! What a task's machine did while it trained, in a few means.
//!
//! Recordings stay on the host that made them. These figures are small enough to travel to the chief, so that
//! the summary of a run over many hosts still knows where each of them was held up.

use crate::Machine;
use serde::{Deserialize, Serialize};

/// Means over a task's training. Whatever was not measured is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskLoad {
    /// Its name, such as `worker/0`.
    pub task: String,
    pub host: String,
    /// Where it takes connections; empty where it does not.
    pub address: String,
    /// Logical processors of its host.
    pub cores: usize,
    /// Cores that the task kept busy.
    pub process_cores: Option<f64>,
    /// Cores that the task was ready to use and did not get.
    pub waiting_cores: Option<f64>,
    /// Cores that the task may use.
    pub allowed_cores: usize,
    /// Cores of the host that the hypervisor gave to others while they were wanted.
    pub stolen_cores: Option<f64>,
    /// Share of the time in which the task's process was stopped from outside.
    pub stopped: Option<f64>,
    /// Cores of the host that any program kept busy.
    pub machine_cores: Option<f64>,
    /// Threads of the task.
    pub threads: Option<f64>,
    /// Share of the time in which a cgroup's quota stopped the task.
    pub throttled: Option<f64>,
    /// Share of the time in which the host's busiest disk had work.
    pub disk_busy: Option<f64>,
    /// Share of the time in which a process on the host waited for a disk.
    pub disk_pressure: Option<f64>,
    /// Bytes a second that the task caused to be read from disks.
    pub read_bytes_per_second: Option<f64>,
    /// Share of the time in which a process on the host waited for memory.
    pub memory_pressure: Option<f64>,
    /// Pages a second that the task had to wait for because they were not in memory.
    pub major_faults: Option<f64>,
    /// Bytes a second that the host's interfaces received, loopback left out.
    pub received_bytes_per_second: Option<f64>,
    /// Bytes a second that they sent.
    pub sent_bytes_per_second: Option<f64>,
    /// Bytes a second that the way from this host can carry, as measured when the task joined.
    pub send_capacity: Option<f64>,
    /// Bytes a second that the way to this host can carry.
    pub receive_capacity: Option<f64>,
}

impl TaskLoad {
    /// Picks the means out of a recording; `mean` knows its columns by name.
    #[must_use]
    pub fn from_means(task: &str, machine: &Machine, mean: impl Fn(&str) -> Option<f64>) -> Self {
        let share = |column: &str| mean(column).map(|percent| percent / 100.0);
        Self {
            task: task.to_owned(),
            host: machine.host.clone(),
            cores: machine.host_cpus,
            allowed_cores: machine.cores,
            stolen_cores: share("cpu_steal_percent")
                .map(|stolen| stolen * machine.host_cpus as f64),
            stopped: share("process_stopped_percent"),
            process_cores: share("process_cpu_percent"),
            waiting_cores: share("process_waiting_percent"),
            machine_cores: share("cpu_idle_percent").map(|idle| {
                // A core that waits for a disk is free for others.
                let free = idle + share("cpu_iowait_percent").unwrap_or(0.0);
                // What the hypervisor took, no program of this host had.
                let free = free + share("cpu_steal_percent").unwrap_or(0.0);
                (1.0 - free).max(0.0) * machine.host_cpus as f64
            }),
            threads: mean("process_threads"),
            throttled: share("cgroup_throttled_percent"),
            disk_busy: share("disk_busiest_percent"),
            disk_pressure: share("pressure_disk_percent"),
            read_bytes_per_second: mean("process_read_bytes_per_second"),
            memory_pressure: share("pressure_memory_percent"),
            major_faults: mean("process_major_faults_per_second"),
            received_bytes_per_second: mean("network_received_bytes_per_second"),
            sent_bytes_per_second: mean("network_sent_bytes_per_second"),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_recorded_is_absent_not_zero() {
        let machine = Machine { host: "a".to_owned(), host_cpus: 4, ..Machine::default() };
        let load = TaskLoad::from_means("ps/0", &machine, |column| match column {
            "cpu_idle_percent" => Some(15.0),
            "cpu_iowait_percent" => Some(5.0),
            "cpu_steal_percent" => Some(5.0),
            "process_cpu_percent" => Some(150.0),
            _ => None,
        });
        assert_eq!((load.machine_cores, load.process_cores), (Some(3.0), Some(1.5)));
        assert_eq!((load.stolen_cores, load.stopped), (Some(0.2), None));
        assert_eq!((load.disk_busy, load.send_capacity), (None, None));
        let text = serde_json::to_string(&load).unwrap();
        assert_eq!(serde_json::from_str::<TaskLoad>(&text).unwrap(), load);
    }
}
