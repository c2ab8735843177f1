//! Resource use of one process.

use crate::counter::{growth, value_of, word};
use crate::kernel_file::KernelFile;
use crate::probe::{Column, Detail, Entry, Probe};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Registry entry.
pub(crate) const ENTRY: Entry = Entry {
    name: "process",
    columns: &[
        Column {
            name: "process_cpu_percent",
            about: "CPU time of all threads and reaped children, in percent of one core: 200 is two cores",
        },
        Column { name: "process_rss_bytes", about: "resident memory" },
        Column { name: "process_peak_rss_bytes", about: "peak resident memory" },
        Column { name: "process_threads", about: "threads" },
        Column { name: "process_minor_faults_per_second", about: "page faults served from memory" },
        Column { name: "process_major_faults_per_second", about: "page faults served from disk" },
        Column {
            name: "process_read_bytes_per_second",
            about: "bytes the process caused to be read from disks",
        },
        Column {
            name: "process_written_bytes_per_second",
            about: "bytes the process caused to be written",
        },
        Column {
            name: "process_waiting_percent",
            about: "time its threads were ready to run but had no core, in percent of one core: 200 is two cores missing",
        },
        Column {
            name: STOPPED,
            about: "time in which the whole process was stopped: by a signal, a frozen cgroup or a paused machine",
        },
    ],
    open: |roots, target| {
        let folder = roots.proc.join(target.0.to_string());
        Box::new(Process {
            stat: KernelFile::new(folder.join("stat")),
            io: KernelFile::new(folder.join("io")),
            status: KernelFile::new(folder.join("status")),
            tasks: folder.join("task"),
            ticks: ticks_per_second(),
            text: String::new(),
            old: None,
            threads: BTreeMap::new(),
        })
    },
};

/// The column of time in which the process was stopped. A process cannot observe itself while it is stopped; the sampler
/// infers it from its own lateness.
pub(crate) const STOPPED: &str = "process_stopped_percent";

/// Threads whose files stay open; the files of further threads are opened each time, because descriptors are scarce.
const KEPT: usize = 100;

/// CPU ticks, minor faults, major faults, bytes read, bytes written.
type Counts = [u64; 5];

struct Process {
    stat: KernelFile,
    io: KernelFile,
    status: KernelFile,
    tasks: PathBuf,
    ticks: f64,
    text: String,
    old: Option<Counts>,
    threads: BTreeMap<u32, Thread>,
}

struct Thread {
    times: KernelFile,
    /// Nanoseconds that it has waited for a core so far.
    waited: u64,
}

impl Probe for Process {
    fn sample(&mut self, elapsed: Duration, values: &mut [Option<f64>], _: &mut Detail) {
        values.fill(None);
        let Some((new, stopped)) = self.counts() else {
            self.old = None; // the process is gone
            self.threads.clear();
            return;
        };
        values[9] = self.old.is_some().then_some(if stopped { 100.0 } else { 0.0 });
        let seconds = elapsed.as_secs_f64();
        let waited = self.waiting();
        if let (Some(nanoseconds), true) = (waited, seconds > 0.0 && self.old.is_some()) {
            values[8] = Some(100.0 * nanoseconds as f64 * 1e-9 / seconds);
        }
        if let (Some(old), true) = (self.old, seconds > 0.0) {
            let rate =
                |index: usize| growth(old[index], new[index]).map(|grown| grown as f64 / seconds);
            values[0] = rate(0).map(|ticks| 100.0 * ticks / self.ticks);
            values[4] = rate(1);
            values[5] = rate(2);
            values[6] = rate(3);
            values[7] = rate(4);
        }
        self.old = Some(new);
        if self.status.read(&mut self.text) {
            let bytes = |key| value_of(&self.text, key).map(|kib| kib as f64 * 1024.0);
            values[1] = bytes("VmRSS");
            values[2] = bytes("VmHWM");
            values[3] = value_of(&self.text, "Threads").map(|threads| threads as f64);
        }
    }
}

impl Process {
    /// Nanoseconds that all threads together have waited for a core since the last call, where the kernel counts them.
    fn waiting(&mut self) -> Option<u64> {
        let mut now = BTreeMap::new();
        let mut sum = 0;
        for entry in std::fs::read_dir(&self.tasks).ok()?.flatten() {
            let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A new thread has waited only since it started.
            let mut known = self.threads.remove(&thread).unwrap_or_else(|| Thread {
                times: KernelFile::new(entry.path().join("schedstat")),
                waited: 0,
            });
            // A thread that ends in between takes its last few milliseconds with it.
            if !known.times.read(&mut self.text) {
                continue;
            }
            let waited = word(&self.text, 1)?;
            sum += waited.saturating_sub(known.waited);
            known.waited = waited;
            if now.len() >= KEPT {
                known.times.close();
            }
            now.insert(thread, known);
        }
        self.threads = now;
        (!self.threads.is_empty()).then_some(sum)
    }

    /// Counters, and whether the process is stopped at this moment.
    fn counts(&mut self) -> Option<(Counts, bool)> {
        if !self.stat.read(&mut self.text) {
            return None;
        }
        let (ticks, minor, major) = parse_stat(&self.text)?;
        let stopped = is_stopped(&self.text);
        let io = self.io.read(&mut self.text);
        let of = |key| io.then(|| value_of(&self.text, key)).flatten().unwrap_or(0);
        Some(([ticks, minor, major, of("read_bytes"), of("write_bytes")], stopped))
    }
}

/// The command's name stands in brackets and may hold spaces and brackets itself.
fn parse_stat(text: &str) -> Option<(u64, u64, u64)> {
    let rest = &text[text.rfind(')')? + 1..];
    let at = |index| word(rest, index);
    // utime, stime, and the same of children that were waited for.
    Some((at(11)? + at(12)? + at(13)? + at(14)?, at(7)?, at(9)?))
}

/// Whether the state behind the command's name is that of a stopped process.
fn is_stopped(text: &str) -> bool {
    let state = text.rfind(')').and_then(|at| text[at + 1..].split_ascii_whitespace().next());
    state == Some("T")
}

#[allow(unsafe_code)] // no safe interface in std
fn ticks_per_second() -> f64 {
    // SAFETY: sysconf takes no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Roots, Target};

    #[test]
    fn names_with_brackets_and_spaces_do_not_shift_the_fields() {
        let stat = "7 (a) b) c) S 1 1 1 0 -1 0 11 0 22 0 100 50 5 2 20 0 3 0 0 0 0";
        assert_eq!(parse_stat(stat), Some((157, 11, 22)));
        assert!(!is_stopped(stat) && is_stopped("7 (a) b) T 1 1"));
    }

    #[test]
    fn our_own_process_has_memory_and_threads() {
        let mut probe = (ENTRY.open)(&Roots::default(), Target::own());
        let mut values = [None; 10];
        probe.sample(Duration::ZERO, &mut values, &mut Detail::new());
        assert!(values[1].is_some_and(|rss| rss > 100_000.0), "{values:?}");
        assert!(values[3].is_some_and(|threads| threads >= 1.0));
    }

    #[test]
    fn waiting_for_a_core_adds_up_over_threads_that_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("7");
        let thread = |number: u32, waited: u64| {
            let path = own.join(format!("task/{number}"));
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("schedstat"), format!("1 {waited} 3")).unwrap();
        };
        thread(7, 5_000_000_000);
        thread(8, 1_000_000_000);
        std::fs::write(own.join("stat"), "7 (a) S 1 1 1 0 -1 0 1 0 2 0 10 5 0 0 20 0 3 0 0")
            .unwrap();
        let roots = Roots { proc: folder.path().into(), ..Roots::default() };
        let mut probe = (ENTRY.open)(&roots, Target(7));
        let mut values = [None; 10];
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        assert_eq!(values[8], None, "no interval yet");
        thread(7, 5_250_000_000);
        std::fs::remove_dir_all(own.join("task/8")).unwrap();
        thread(9, 500_000_000);
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        assert_eq!(values[8], Some(75.0));
    }

    #[test]
    fn a_process_that_ended_is_unknown_not_zero() {
        let mut probe = (ENTRY.open)(&Roots::default(), Target(u32::MAX));
        let mut values = [Some(1.0); 10];
        probe.sample(Duration::ZERO, &mut values, &mut Detail::new());
        assert_eq!(values, [None; 10]);
    }
}
