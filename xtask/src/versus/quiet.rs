//! Is the machine idle right now?
//!
//! On a shared machine another guest may take a third of a core for seconds. Synchronous processes then run at the speed
//! of the slower core, while a single process runs on the faster one: their ratio is meaningless. So a short computation
//! on all cores checks before and after a measurement that they run at full speed, and the measurement is repeated if
//! they did not.

use super::contest::median;
use anyhow::Context;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Duration of a check.
const LOOK: Duration = Duration::from_millis(30);
/// Checks of which the median counts.
const LOOKS: usize = 5;
/// Share of the best rate seen that counts as full speed. The best is a short peak that cannot be sustained; with another active
/// guest a core reaches about 0.7 of it.
const FULL: f64 = 0.88;
/// How long to wait for a quiet moment before each try, and how often to try.
const PATIENCE: Duration = Duration::from_secs(40);
const TRIES: usize = 5;

/// What is known about the machine.
pub struct Quiet {
    /// The cores that this process may use.
    cores: Vec<usize>,
    /// The best rate that the slowest core of a look has shown.
    best: f64,
    /// Measurements that were made again, and those that were kept although the machine was busy.
    pub repeated: usize,
    pub disturbed: usize,
}

impl Quiet {
    /// Checks for a second to learn what full speed is.
    pub fn new() -> Self {
        let mut quiet = Self { cores: allowed(), best: 0.0, repeated: 0, disturbed: 0 };
        for _ in 0..30 {
            quiet.look();
        }
        quiet
    }

    /// The slowest core's share of full speed.
    fn look(&mut self) -> f64 {
        let start = Barrier::new(self.cores.len());
        let look = |core: usize| {
            stay_on(core);
            start.wait();
            rate()
        };
        let slowest = thread::scope(|scope| {
            let look = &look;
            let threads: Vec<_> =
                self.cores.iter().map(|core| scope.spawn(move || look(*core))).collect();
            let rates = threads.into_iter().filter_map(|thread| thread.join().ok());
            rates.fold(f64::INFINITY, f64::min)
        });
        self.best = self.best.max(slowest);
        slowest / self.best
    }

    fn is_quiet(&mut self) -> bool {
        let looks: Vec<f64> = (0..LOOKS).map(|_| self.look()).collect();
        median(&looks) >= FULL
    }

    /// Measures when the machine is idle, and repeats the measurement if it did not stay so.
    pub fn measure(
        &mut self,
        mut measure: impl FnMut() -> anyhow::Result<f64>,
    ) -> anyhow::Result<f64> {
        let mut last = None;
        for _ in 0..TRIES {
            let started = Instant::now();
            while !self.is_quiet() && started.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(200));
            }
            let value = measure()?;
            if self.is_quiet() {
                return Ok(value);
            }
            eprintln!("  ({value:.4} does not count: another program was running)");
            self.repeated += 1;
            last = Some(value);
        }
        self.disturbed += 1;
        last.context("at least one try")
    }
}

/// The cores that this process may use.
#[allow(unsafe_code)]
fn allowed() -> Vec<usize> {
    // SAFETY: an empty set of cores is all zeros, it lives as long as the call, and all cores asked for are within it.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut cores);
        (0..libc::CPU_SETSIZE as usize).filter(|core| libc::CPU_ISSET(*core, &cores)).collect()
    }
}

/// Keeps this thread on one core: two that had just started would share one for a moment.
#[allow(unsafe_code)]
fn stay_on(core: usize) {
    // SAFETY: an empty set of cores is all zeros, the core is within it, and the set lives as long as the call. Where it fails,
    // the thread stays where it is.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut cores);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cores);
    }
}

/// Products per second of one thread, in registers.
fn rate() -> f64 {
    let started = Instant::now();
    let mut values = [0.5f32; 64];
    let mut rounds = 0u32;
    while started.elapsed() < LOOK {
        for _ in 0..2000 {
            for value in &mut values {
                *value = *value * 0.999 + 1e-3;
            }
        }
        black_box(&mut values);
        rounds += 1;
    }
    f64::from(rounds) / started.elapsed().as_secs_f64()
}
