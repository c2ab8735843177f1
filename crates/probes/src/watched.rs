//! A command that is recorded, with everything it starts, until it ends.

use crate::probe::{Roots, Target};
use crate::sampler::{Sampler, SamplerError, Summary};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two looks whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a command did.
#[derive(Debug)]
pub struct Watched {
    pub status: ExitStatus,
    pub summary: Summary,
    pub took: Duration,
}

/// Why a command could not be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// It could not be waited for.
    #[error("cannot wait for the command")]
    Wait(#[source] std::io::Error),
}

/// Records a command every `interval` until it ends. A signal that `pass_on` names is sent to it, once each time.
///
/// # Errors
/// When sampling cannot begin or the command cannot be waited for.
pub fn watch(
    child: &mut Child,
    interval: Duration,
    pass_on: &dyn Fn() -> Option<i32>,
) -> Result<Watched, WatchError> {
    let begun = Instant::now();
    let summary = Arc::new(Mutex::new(Summary::default()));
    let sink = Arc::clone(&summary);
    let target = Target::tree(child.id());
    let sampler = Sampler::start(&Roots::default(), target, interval, move |reading| {
        sink.lock().unwrap_or_else(PoisonError::into_inner).add(&reading);
    })?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(WatchError::Wait)? {
            break status;
        }
        if let Some(signal) = pass_on() {
            send(child, signal);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let took = begun.elapsed();
    sampler.stop();
    let summary = summary.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Watched { status, summary, took })
}

#[allow(unsafe_code)] // no safe interface in std
fn send(child: &Child, signal: i32) {
    let Ok(process) = libc::pid_t::try_from(child.id()) else { return };
    // SAFETY: kill takes no pointers; the child was not waited for yet, so that its number is its own.
    unsafe { libc::kill(process, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn a_signal_is_passed_on_and_children_are_counted() {
        // A shell whose child spins; the shell itself does nothing.
        let script = "while :; do :; done & trap 'kill $!; exit 3' TERM; wait";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let begun = Instant::now();
        let sent = Cell::new(false);
        let pass_on = || {
            let due = !sent.get() && begun.elapsed() >= Duration::from_millis(600);
            sent.set(sent.get() || due);
            due.then_some(libc::SIGTERM)
        };
        let watched = watch(&mut child, Duration::from_millis(100), &pass_on).unwrap();
        assert_eq!((watched.status.code(), watched.status.signal()), (Some(3), None));
        let mean = |wanted| {
            let mut rows = watched.summary.rows();
            rows.find(|(name, ..)| *name == wanted).map(|(_, mean, _)| mean)
        };
        assert!(mean("process_cpu_percent").unwrap() > 0.0);
        assert!(mean("process_count").unwrap() > 1.0);
    }
}
