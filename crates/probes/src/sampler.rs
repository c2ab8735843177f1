//! Samples all probes at a fixed interval on a dedicated thread.

use crate::counter::word;
use crate::kernel_file::KernelFile;
use crate::probe::{Detail, Roots, Target, columns, open_all};
use crate::probes::process::STOPPED;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Shortest useful interval: below, the kernel's own clock tick is coarser than the reading.
pub const SHORTEST: Duration = Duration::from_millis(50);

/// A reading that is late by less than this is not evidence of a stopped process.
const LATE: Duration = Duration::from_millis(100);

/// All values at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Seconds since 1970.
    pub time: f64,
    /// Seconds since sampling began.
    pub elapsed: f64,
    /// One value per [`columns`]; absent where not known.
    pub values: Vec<Option<f64>>,
    /// Per core, disk and interface.
    pub detail: Detail,
}

/// Why sampling cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// The interval is too short.
    #[error("interval {found:?} is too short: the shortest is {SHORTEST:?}")]
    Interval { found: Duration },
    /// No thread could be started.
    #[error("cannot start the sampling thread")]
    Thread(#[source] std::io::Error),
}

/// A running sampler; stops on request or when dropped.
#[derive(Debug)]
pub struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Duration>>,
}

impl Sampler {
    /// Samples every `interval` until stopped; one last reading is taken at the end, so that short
    /// jobs leave one too. `each` runs on the sampling thread.
    pub fn start(
        roots: &Roots,
        target: Target,
        interval: Duration,
        mut each: impl FnMut(Reading) + Send + 'static,
    ) -> Result<Self, SamplerError> {
        if interval < SHORTEST {
            return Err(SamplerError::Interval { found: interval });
        }
        let mut probes = open_all(roots, target);
        let width = columns().count();
        let stops = columns().position(|column| column.name == STOPPED);
        let stops = stops.filter(|_| target == Target::own());
        let (stop, stop_requested) = channel();
        let own_times = roots.proc.join("thread-self/schedstat");
        let mut take = move |since_last: Duration, since_start: Duration, stopped: Duration| {
            let mut reading = Reading {
                time: SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_secs_f64(),
                elapsed: since_start.as_secs_f64(),
                values: vec![None; width],
                detail: Detail::new(),
            };
            let mut rest = &mut reading.values[..];
            for (entry, probe) in &mut probes {
                let (own, others) = rest.split_at_mut(entry.columns.len());
                probe.sample(since_last, own, &mut reading.detail);
                rest = others;
            }
            if let Some(at) = stops.filter(|_| !since_last.is_zero()) {
                let share = stopped.as_secs_f64() / since_last.as_secs_f64();
                reading.values[at] = Some(100.0 * share.min(1.0));
            }
            reading
        };
        // Remembers the counters before the caller goes on: on a busy machine the thread may begin only when a short job is half done.
        let start = Instant::now();
        take(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let work = move || {
            let mut last = start;
            let mut waiting = Waiting::new(own_times);
            let mut stopped = Duration::ZERO;
            let mut due = start + interval;
            loop {
                let asleep = Instant::now();
                let wait = due.saturating_duration_since(asleep);
                waiting.since_last();
                let ended =
                    !matches!(stop_requested.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
                let now = Instant::now();
                // This thread sleeps nearly all of the time: if it wakes late without having waited for a core, the
                // whole process was stopped.
                let late = now.saturating_duration_since(due.max(asleep));
                let late = late.saturating_sub(waiting.since_last());
                stopped += if late >= LATE { late } else { Duration::ZERO };
                // Counters move in clock ticks: a last sliver of an interval would show nonsense.
                if !ended || now - last >= SHORTEST {
                    each(take(now - last, now - start, std::mem::take(&mut stopped)));
                    last = now;
                }
                if ended {
                    return own_time();
                }
                // Fixed grid; ticks that a stalled machine missed are skipped, not caught up, and so is one that follows at once: the counters
                // of a core may not have moved since.
                while due < now + interval / 2 {
                    due += interval;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("paceline-probes".to_owned())
            .spawn(work)
            .map_err(SamplerError::Thread)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Takes the last reading, waits for the thread, and says how much processor time sampling took, `each` included.
    pub fn stop(mut self) -> Duration {
        self.end()
    }

    fn end(&mut self) -> Duration {
        drop(self.stop.take());
        // A panic in `each` has been printed by then.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// How long the calling thread has waited for a core.
struct Waiting {
    times: KernelFile,
    text: String,
    waited: u64,
}

impl Waiting {
    fn new(path: std::path::PathBuf) -> Self {
        Self { times: KernelFile::new(path), text: String::new(), waited: 0 }
    }

    /// Since the last call; nothing where the kernel does not count it.
    fn since_last(&mut self) -> Duration {
        let now = if self.times.read(&mut self.text) { word(&self.text, 1) } else { None };
        let now = now.unwrap_or(self.waited);
        Duration::from_nanos(now.saturating_sub(std::mem::replace(&mut self.waited, now)))
    }
}

/// Processor time of the calling thread.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Mean and peak of every column over a recording. Readings count by the time they cover: one may cover a long stop.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Weighted sum, weight and peak of each column.
    sums: Vec<(f64, f64, f64)>,
    last: f64,
}

impl Summary {
    /// Counts a reading in.
    pub fn add(&mut self, reading: &Reading) {
        self.sums.resize(reading.values.len(), (0.0, 0.0, f64::NEG_INFINITY));
        let covers = (reading.elapsed - self.last).max(1e-9);
        self.last = reading.elapsed;
        for ((sum, weight, most), value) in self.sums.iter_mut().zip(&reading.values) {
            if let Some(value) = value {
                *sum += covers * value;
                *weight += covers;
                *most = most.max(*value);
            }
        }
    }

    /// Name, mean and peak of each column that was ever known.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, f64, f64)> {
        columns()
            .zip(&self.sums)
            .filter(|(_, (_, weight, _))| *weight > 0.0)
            .map(|(column, (sum, weight, most))| (column.name, sum / weight, *most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_sampler_reads_this_machine_and_stops_at_once() {
        let readings = Arc::new(Mutex::new(Vec::new()));
        let (sink, begun) = (Arc::clone(&readings), Instant::now());
        let sampler = Sampler::start(&Roots::default(), Target::own(), SHORTEST, move |reading| {
            sink.lock().unwrap().push(reading);
        })
        .unwrap();
        while readings.lock().unwrap().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(900), "no reading comes");
            std::thread::sleep(Duration::from_millis(5));
        }
        let cost = sampler.stop();
        assert!(cost > Duration::ZERO && cost < begun.elapsed(), "{cost:?}");
        let readings = readings.lock().unwrap();
        let mut summary = Summary::default();
        for reading in readings.iter() {
            assert_eq!(reading.values.len(), columns().count());
            summary.add(reading);
        }
        assert!(summary.rows().any(|(name, mean, _)| name == "memory_used_bytes" && mean > 0.0));
    }

    #[test]
    fn what_moves_before_the_thread_begins_is_in_the_first_reading() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("net")).unwrap();
        let received = |bytes: u64| {
            let text = format!("head\nhead\neth0: {bytes} 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n");
            std::fs::write(folder.path().join("net/dev"), text).unwrap();
        };
        received(1_000);
        let roots = Roots { proc: folder.path().into(), ..Roots::default() };
        let (sink, readings) = channel();
        let sampler = Sampler::start(&roots, Target::own(), SHORTEST, move |reading| {
            let _ = sink.send(reading);
        })
        .unwrap();
        received(5_000_000);
        let first = readings.recv_timeout(Duration::from_secs(900)).expect("no reading comes");
        sampler.stop();
        let at = columns().position(|c| c.name == "network_received_bytes_per_second").unwrap();
        let bytes = first.values[at].expect("the interface is there") * first.elapsed;
        assert!((bytes - 4_999_000.0).abs() < 1.0, "{bytes} bytes");
    }

    #[test]
    fn a_reading_counts_by_the_time_it_covers() {
        let reading = |elapsed, value| Reading {
            time: elapsed,
            elapsed,
            values: vec![Some(value); columns().count()],
            detail: Detail::new(),
        };
        let mut summary = Summary::default();
        for (elapsed, value) in [(1.0, 0.0), (2.0, 0.0), (10.0, 100.0)] {
            summary.add(&reading(elapsed, value));
        }
        let (_, mean, peak) = summary.rows().next().unwrap();
        assert_eq!((mean, peak), (80.0, 100.0));
    }

    #[test]
    fn too_short_an_interval_is_refused() {
        let found = Sampler::start(&Roots::default(), Target::own(), Duration::ZERO, |_| {});
        assert!(matches!(found, Err(SamplerError::Interval { .. })));
    }
}
