//! Signals that ask the program to end: Ctrl-C, SIGTERM, and SIGHUP when the terminal or the connection behind it is gone.
//!
//! The first asks, so that a checkpoint is written and children are ended; a second, a moment later, ends at once.

use super::failure::Exit;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::cell::Cell;
use std::ffi::c_int;
use std::fs;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Signals this close together are one request: `timeout` signals its child and then the child's whole
/// group, a terminal and a launcher may both pass on one Ctrl-C.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// What a signal has asked for so far.
#[derive(Clone)]
pub(super) struct Interrupt {
    pub(super) flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// From now on signals raise the flag instead of ending the process.
    pub(super) fn listen() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let signal = Arc::new(AtomicUsize::new(0));
        let mut numbers = vec![SIGINT, SIGTERM];
        // Under `nohup` the end of a terminal is to be survived.
        if !is_ignored(SIGHUP) {
            numbers.push(SIGHUP);
        }
        for number in &numbers {
            let told = number.unsigned_abs() as usize;
            signal_hook::flag::register_usize(*number, Arc::clone(&signal), told)?;
            signal_hook::flag::register(*number, Arc::clone(&flag))?;
        }
        let signals = Signals::new(&numbers)?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || end_at_the_second(signals))?;
        Ok(Self { flag, signal })
    }

    /// The exit that a received signal asks for.
    pub(super) fn exit(&self) -> Option<Exit> {
        exit_of_signal(c_int::try_from(self.signal.load(Ordering::Relaxed)).ok()?)
    }

    /// A signal that reached this process and may not have reached the command it runs, once. One that a terminal sends for a
    /// key reaches both.
    pub(super) fn to_pass_on(&self, passed_on: &Cell<bool>) -> Option<c_int> {
        let exit = self.exit().filter(|_| !passed_on.get())?;
        passed_on.set(true);
        match exit {
            Exit::Terminated => Some(SIGTERM),
            Exit::HungUp => Some(SIGHUP),
            _ => (!io::stdin().is_terminal()).then_some(SIGINT),
        }
    }
}

fn exit_of_signal(number: c_int) -> Option<Exit> {
    match number {
        SIGINT => Some(Exit::Interrupted),
        SIGTERM => Some(Exit::Terminated),
        SIGHUP => Some(Exit::HungUp),
        _ => None,
    }
}

/// Ends the process when the user asks a second time.
fn end_at_the_second(mut signals: Signals) {
    let mut first: Option<Instant> = None;
    for number in signals.forever() {
        let asked = *first.get_or_insert_with(Instant::now);
        if asked.elapsed() >= SAME_SIGNAL {
            let exit = exit_of_signal(number).unwrap_or(Exit::Interrupted);
            signal_hook::low_level::exit(i32::from(exit.code()));
        }
    }
}

/// Whether the process was started with a signal ignored.
fn is_ignored(signal: c_int) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores(&status, signal))
}

fn ignores(status: &str, signal: c_int) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_read_from_the_mask() {
        let status = "Name:\tpaceline\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(ignores(status, SIGHUP) && !ignores(status, SIGINT) && !ignores(status, SIGTERM));
        assert!(!ignores("", SIGHUP));
    }
}
