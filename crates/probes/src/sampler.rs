//! Samples all probes at a steady pace on a thread of its own.

use crate::probe::{Detail, Roots, Target, columns, open_all};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Shortest useful interval: below, the kernel's own clock tick is coarser than the reading.
pub const SHORTEST: Duration = Duration::from_millis(50);

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
    Interval {
        /// What was asked.
        found: Duration,
    },
    /// No thread could be started.
    #[error("cannot start the sampling thread")]
    Thread(#[source] std::io::Error),
}

/// A running sampler; stops when told or dropped.
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
        let (stop, stopped) = channel();
        let mut take = move |since_last: Duration, since_start: Duration| {
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
            reading
        };
        let work = move || {
            let start = Instant::now();
            let mut last = start;
            take(Duration::ZERO, Duration::ZERO); // remembers the counters
            let mut due = start + interval;
            loop {
                let wait = due.saturating_duration_since(Instant::now());
                let ended = !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
                let now = Instant::now();
                // Counters move in clock ticks: a last sliver of an interval would show nonsense.
                if !ended || now - last >= SHORTEST {
                    each(take(now - last, now - start));
                    last = now;
                }
                if ended {
                    return own_time();
                }
                // Fixed grid; ticks that a stalled machine missed are skipped, not caught up.
                while due <= now {
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

/// Processor time of the calling thread.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Mean and peak of every column over a recording.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    sums: Vec<(f64, u64, f64)>,
}

impl Summary {
    /// Counts a reading in.
    pub fn add(&mut self, reading: &Reading) {
        self.sums.resize(reading.values.len(), (0.0, 0, f64::NEG_INFINITY));
        for ((sum, count, most), value) in self.sums.iter_mut().zip(&reading.values) {
            if let Some(value) = value {
                *sum += value;
                *count += 1;
                *most = most.max(*value);
            }
        }
    }

    /// Name, mean and peak of each column that was ever known.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, f64, f64)> {
        columns()
            .zip(&self.sums)
            .filter(|(_, (_, count, _))| *count > 0)
            .map(|(column, (sum, count, most))| (column.name, sum / *count as f64, *most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_sampler_reads_this_machine_and_stops_at_once() {
        let readings = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&readings);
        let sampler = Sampler::start(&Roots::default(), Target::own(), SHORTEST, move |reading| {
            sink.lock().unwrap().push(reading);
        })
        .unwrap();
        std::thread::sleep(Duration::from_millis(180));
        let cost = sampler.stop();
        assert!(cost > Duration::ZERO && cost < Duration::from_millis(180), "{cost:?}");
        let readings = readings.lock().unwrap();
        assert!(!readings.is_empty());
        let mut summary = Summary::default();
        for reading in readings.iter() {
            assert_eq!(reading.values.len(), columns().count());
            summary.add(reading);
        }
        assert!(summary.rows().any(|(name, mean, _)| name == "memory_used_bytes" && mean > 0.0));
    }

    #[test]
    fn too_short_an_interval_is_refused() {
        let found = Sampler::start(&Roots::default(), Target::own(), Duration::ZERO, |_| {});
        assert!(matches!(found, Err(SamplerError::Interval { .. })));
    }
}
