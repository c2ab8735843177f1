//! What held a job up, in one sentence, from what was recorded while it ran.
//!
//! Any program is judged, so nothing is known of its steps: only what the kernel counted of its processes and of the machine around
//! them. A cause is named by what the job lost to it, never by how busy the machine looks on the whole.

use crate::sampler::Summary;
use serde::Serialize;

/// A cause is named once the job lost this share of its time to it.
const NOTICEABLE: f64 = 0.1;
/// Cores below this are the noise of any machine.
const FEW_CORES: f64 = 0.1;
/// A job that computes less than this, in cores, has little work of its own.
const IDLE_CORES: f64 = 0.15;
/// Bytes a second that make a disk or a network worth naming.
const FLOW: f64 = 1e6;

/// What held a job up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Hold {
    /// Stopped by a signal, a frozen cgroup or a paused machine.
    Stopped,
    /// Its CPU quota was used up.
    Throttled,
    /// The hypervisor gave the cores to others.
    Stolen,
    /// Other programs had the cores.
    ShortOfCores,
    /// Its own threads had to take turns.
    TooManyThreads,
    Memory,
    Disk,
    Network,
    /// It waited for something that is not recorded here.
    Idle,
    /// It computed.
    Busy,
    /// Nothing was recorded.
    Unknown,
}

/// The verdict on a job of which only resources were recorded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobVerdict {
    pub hold: Hold,
    pub words: String,
    /// What to do about it; empty where there is nothing to do.
    pub next: String,
}

/// Means over the recording, absent values as zero.
#[derive(Debug, Clone, Copy, Default)]
struct Means {
    /// Cores it computed on, and cores its threads were ready for and did not get.
    used: f64,
    missed: f64,
    /// Cores that other programs computed on.
    others: f64,
    threads: f64,
    stopped: f64,
    throttled: f64,
    stolen: f64,
    memory_pressure: f64,
    major_faults: f64,
    disk_pressure: f64,
    disk_busiest: f64,
    disk_flow: f64,
    network_flow: f64,
}

impl Means {
    fn of(summary: &Summary, host_cpus: usize) -> Option<Self> {
        let mean = |wanted: &str| {
            summary.rows().find(|(name, ..)| *name == wanted).map(|(_, mean, _)| mean)
        };
        let or_zero = |name| mean(name).unwrap_or(0.0);
        let used = mean("process_cpu_percent")? / 100.0;
        let idle = or_zero("cpu_idle_percent") + or_zero("cpu_iowait_percent");
        let stolen = or_zero("cpu_steal_percent") / 100.0;
        let busy = (1.0 - idle / 100.0 - stolen).max(0.0) * host_cpus as f64;
        Some(Self {
            used,
            missed: or_zero("process_waiting_percent") / 100.0,
            others: (busy - used).max(0.0),
            threads: or_zero("process_threads"),
            stopped: or_zero("process_stopped_percent") / 100.0,
            throttled: or_zero("cgroup_throttled_percent") / 100.0,
            stolen,
            memory_pressure: or_zero("pressure_memory_percent") / 100.0,
            major_faults: or_zero("process_major_faults_per_second"),
            disk_pressure: or_zero("pressure_disk_percent") / 100.0,
            disk_busiest: or_zero("disk_busiest_percent") / 100.0,
            disk_flow: or_zero("process_read_bytes_per_second")
                + or_zero("process_written_bytes_per_second"),
            network_flow: or_zero("network_received_bytes_per_second")
                + or_zero("network_sent_bytes_per_second"),
        })
    }

    /// Share of the time in which it could have computed that its threads waited for a core.
    fn missed_share(&self) -> f64 {
        if self.missed < FEW_CORES { 0.0 } else { self.missed / (self.used + self.missed) }
    }
}

/// Judges a job that could use `cores` of the machine's `host_cpus`.
#[must_use]
pub fn judge(summary: &Summary, cores: usize, host_cpus: usize) -> JobVerdict {
    let Some(means) = Means::of(summary, host_cpus) else {
        return verdict(Hold::Unknown, "it ended before anything could be measured", "");
    };
    taken_away(&means, cores)
        .or_else(|| waiting(&means))
        .unwrap_or_else(|| its_own_doing(&means, cores))
}

/// Time in which it was ready to compute and could not.
fn taken_away(means: &Means, cores: usize) -> Option<JobVerdict> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    if means.stopped >= NOTICEABLE {
        let words = format!("stopped for {} of the time, not slow", percent(means.stopped));
        return Some(verdict(
            Hold::Stopped,
            &words,
            "see what sent SIGSTOP, froze its cgroup or paused the machine",
        ));
    }
    if means.throttled >= NOTICEABLE {
        let words =
            format!("throttled by its CPU quota for {} of the time", percent(means.throttled));
        return Some(verdict(
            Hold::Throttled,
            &words,
            "raise the quota (cpu.max), or use fewer threads",
        ));
    }
    let share = means.missed_share();
    // A job that sleeps loses nothing to the hypervisor.
    if means.stolen >= NOTICEABLE && means.used + means.missed >= IDLE_CORES {
        let words = format!(
            "short of cores: the hypervisor gave {} of the machine's time to others",
            percent(means.stolen)
        );
        return Some(verdict(Hold::Stolen, &words, "use another machine, or a dedicated one"));
    }
    if share < NOTICEABLE {
        return None;
    }
    // With no other program on the machine, what its threads wait for is each other.
    if means.others < means.missed.min(FEW_CORES.max(0.15 * cores as f64)) {
        let words = format!(
            "more threads than cores: {:.0} threads take turns on {cores} {}, each waiting {} of its time",
            means.threads,
            plural(cores, "core"),
            percent(share)
        );
        let next = format!(
            "run {cores} computing {} (OMP_NUM_THREADS={cores}, torch.set_num_threads({cores}), fewer data-loader workers)",
            plural(cores, "thread")
        );
        return Some(verdict(Hold::TooManyThreads, &words, &next));
    }
    let words = format!(
        "short of cores: other programs used {:.1} of them, and its threads waited {} of the time for one",
        means.others,
        percent(share)
    );
    Some(verdict(Hold::ShortOfCores, &words, "end the other programs, or use cores of its own"))
}

/// Time in which it waited for a device.
fn waiting(means: &Means) -> Option<JobVerdict> {
    let used = means.used;
    // Pressure is the whole machine's: the job's own page faults show that it is among those that wait.
    if means.major_faults >= 10.0 && means.memory_pressure >= NOTICEABLE {
        let words = format!(
            "short of memory: tasks waited {:.0} % of the time for memory, with {:.0} pages a second read back from disk",
            100.0 * means.memory_pressure,
            means.major_faults
        );
        return Some(verdict(
            Hold::Memory,
            &words,
            "use a smaller batch or fewer workers, or a machine with more memory",
        ));
    }
    let little = used < 0.8;
    if little && means.disk_pressure >= 2.0 * NOTICEABLE && means.disk_flow >= FLOW {
        let words = format!(
            "waiting for the disk: {:.1} MB/s, the busiest disk at work {:.0} % of the time, {used:.1} cores used",
            means.disk_flow / 1e6,
            100.0 * means.disk_busiest
        );
        return Some(verdict(
            Hold::Disk,
            &words,
            "read larger records, read ahead with more workers, or use a faster disk",
        ));
    }
    if little && means.network_flow >= 10.0 * FLOW {
        let words = format!(
            "waiting, perhaps for the network: this machine moved {:.1} MB/s while the job used {used:.1} cores",
            means.network_flow / 1e6
        );
        return Some(verdict(
            Hold::Network,
            &words,
            "compare with the link's speed; move less, or move it while computing",
        ));
    }
    None
}

fn its_own_doing(means: &Means, cores: usize) -> JobVerdict {
    let used = means.used;
    if used < IDLE_CORES {
        let words = format!(
            "idle: {used:.2} cores used, nothing on this machine held it up; it waited for something outside (a lock, a timer, \
             another machine, an accelerator)"
        );
        return verdict(Hold::Idle, &words, "");
    }
    let of = format!("{used:.1} of {cores} {}", plural(cores, "core"));
    if used < 0.75 * cores as f64 {
        let words = format!("busy with its own work on {of}; the rest was free");
        return verdict(Hold::Busy, &words, "more threads or processes could use the free cores");
    }
    verdict(
        Hold::Busy,
        &format!("busy with its own work on {of}; nothing recorded stood in its way"),
        "",
    )
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

fn verdict(hold: Hold, words: &str, next: &str) -> JobVerdict {
    JobVerdict { hold, words: words.to_owned(), next: next.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Detail, columns};
    use crate::sampler::Reading;

    fn recorded(values: &[(&str, f64)]) -> Summary {
        let mut summary = Summary::default();
        let value = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, v)| *v);
        let values: Vec<_> = columns().map(|column| value(column.name)).collect();
        summary.add(&Reading { time: 0.0, elapsed: 1.0, values, detail: Detail::new() });
        summary
    }

    fn hold(values: &[(&str, f64)]) -> Hold {
        judge(&recorded(values), 2, 2).hold
    }

    #[test]
    fn each_cause_is_told_from_the_others() {
        let cpu = "process_cpu_percent";
        let (waiting, idle) = ("process_waiting_percent", "cpu_idle_percent");
        assert_eq!(hold(&[]), Hold::Unknown);
        assert_eq!(hold(&[(cpu, 195.0), (idle, 1.0)]), Hold::Busy);
        assert_eq!(hold(&[(cpu, 2.0), (idle, 98.0)]), Hold::Idle);
        // The same busy machine: others took the cores, or its own threads did.
        assert_eq!(hold(&[(cpu, 90.0), (waiting, 90.0), (idle, 0.0)]), Hold::ShortOfCores);
        assert_eq!(hold(&[(cpu, 199.0), (waiting, 600.0), (idle, 0.0)]), Hold::TooManyThreads);
        assert_eq!(
            hold(&[(cpu, 100.0), ("cgroup_throttled_percent", 40.0), (idle, 50.0)]),
            Hold::Throttled
        );
        assert_eq!(hold(&[(cpu, 90.0), ("cpu_steal_percent", 50.0)]), Hold::Stolen);
        assert_eq!(hold(&[(cpu, 90.0), ("process_stopped_percent", 50.0)]), Hold::Stopped);
        assert_eq!(
            hold(&[
                (cpu, 20.0),
                ("pressure_memory_percent", 60.0),
                ("process_major_faults_per_second", 500.0)
            ]),
            Hold::Memory
        );
        // What only other programs suffer is not this job's.
        assert_eq!(
            hold(&[(cpu, 1.0), ("pressure_memory_percent", 60.0), ("cpu_steal_percent", 40.0)]),
            Hold::Idle
        );
        assert_eq!(
            hold(&[
                (cpu, 20.0),
                ("pressure_disk_percent", 80.0),
                ("process_read_bytes_per_second", 5e7),
                (idle, 80.0)
            ]),
            Hold::Disk
        );
        assert_eq!(
            hold(&[(cpu, 30.0), ("network_sent_bytes_per_second", 1e8), (idle, 80.0)]),
            Hold::Network
        );
    }

    #[test]
    fn the_number_of_threads_to_set_is_said() {
        let many = recorded(&[
            ("process_cpu_percent", 199.0),
            ("process_waiting_percent", 600.0),
            ("process_threads", 16.0),
        ]);
        let found = judge(&many, 2, 2);
        assert!(found.words.contains("16 threads take turns on 2 cores"), "{}", found.words);
        assert!(found.next.contains("OMP_NUM_THREADS=2"), "{}", found.next);
    }
}
