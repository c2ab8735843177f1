//! A job or this machine, recorded reading by reading until it ends: the one loop under `paceline run` and `paceline monitor`.

use crate::probe::{Roots, Target, columns};
use crate::process_tree::end_all;
use crate::sampler::{Reading, Sampler, SamplerError, Summary};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time between two looks whether the job has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is recorded.
#[derive(Debug)]
pub enum WatchTarget<'a> {
    /// A command that was started here, and everything it starts, until it ends.
    Command(&'a mut Child),
    /// A process that already runs, and everything it starts, until it ends.
    Process(u32),
    /// This machine, until it is enough.
    Machine,
}

/// What becomes of a recording; asked at least every 20 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchOrder {
    Continue,
    /// Sends a signal to the command, and goes on.
    PassOn(i32),
    /// Enough was seen. A command is ended, with everything it started.
    End,
}

/// What was recorded.
#[derive(Debug)]
pub struct Watched {
    /// How the command ended; absent where there was none.
    pub status: Option<ExitStatus>,
    pub summary: Summary,
    pub took: Duration,
    /// Processor time that recording itself took.
    pub cost: Duration,
}

/// Why a job could not be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// It could not be waited for.
    #[error("cannot wait for the command")]
    Wait(#[source] std::io::Error),
    /// It could not be ended when the time was up.
    #[error("cannot end the command")]
    End(#[source] std::io::Error),
}

/// Records `target` every `interval` until it has ended or `order` says that it is enough. `each` gets every reading, on the
/// thread of the caller; an error of it ends the recording, and leaves a command as it is.
///
/// # Errors
/// When sampling cannot begin, a command cannot be waited for or ended, and what `each` says.
pub fn watch<E: From<WatchError>>(
    mut target: WatchTarget<'_>,
    interval: Duration,
    order: &dyn Fn() -> WatchOrder,
    each: &mut dyn FnMut(&Reading) -> Result<(), E>,
) -> Result<Watched, E> {
    let begun = Instant::now();
    let probed = match &target {
        WatchTarget::Command(child) => Target::tree(child.id()),
        WatchTarget::Process(process) => Target::tree(*process),
        WatchTarget::Machine => Target::own(),
    };
    let (send, readings) = channel();
    let of_job = !matches!(target, WatchTarget::Machine);
    let sampler = Sampler::start(&Roots::default(), probed, interval, move |mut reading| {
        if !of_job {
            forget_process(&mut reading);
        }
        let _ = send.send(reading); // the other end is gone only when we are ending anyway
    })
    .map_err(WatchError::from)?;
    let mut summary = Summary::default();
    let mut status = None;
    loop {
        match readings.recv_timeout(LOOK_EVERY) {
            Ok(reading) => {
                summary.add(&reading);
                each(&reading)?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The sampling thread is gone; a job is still waited for.
            Err(RecvTimeoutError::Disconnected) if matches!(target, WatchTarget::Machine) => break,
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
        }
        let has_ended = match &mut target {
            WatchTarget::Command(child) => {
                status = child.try_wait().map_err(WatchError::Wait)?;
                status.is_some()
            }
            WatchTarget::Process(process) => !is_running(*process),
            WatchTarget::Machine => false,
        };
        if has_ended {
            break;
        }
        match (order(), &target) {
            (WatchOrder::End, _) => break,
            (WatchOrder::PassOn(signal), WatchTarget::Command(child)) => send_signal(child, signal),
            _ => {}
        }
    }
    let took = begun.elapsed();
    let cost = sampler.stop();
    for reading in readings.try_iter() {
        summary.add(&reading);
        each(&reading)?;
    }
    if let (WatchTarget::Command(child), None) = (target, status) {
        status = Some(end_all(child).map_err(WatchError::End)?);
    }
    Ok(Watched { status, summary, took, cost })
}

/// Where no process is watched, the recorder's own figures would be taken for a job's.
fn forget_process(reading: &mut Reading) {
    for (column, value) in columns().zip(&mut reading.values) {
        if column.name.starts_with("process_") {
            *value = None;
        }
    }
}

/// Whether a process runs; one that has ended and was not waited for does not.
#[must_use]
pub fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].split_ascii_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

#[allow(unsafe_code)] // no safe interface in std
fn send_signal(child: &Child, signal: i32) {
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
        let (readings, sent) = (Cell::new(0), Cell::new(false));
        let pass_on = || {
            let due = !sent.get() && readings.get() >= 5;
            sent.set(sent.get() || due);
            if due { WatchOrder::PassOn(libc::SIGTERM) } else { WatchOrder::Continue }
        };
        let each = &mut |_: &Reading| -> Result<(), WatchError> {
            readings.set(readings.get() + 1);
            Ok(())
        };
        let target = WatchTarget::Command(&mut child);
        let watched = watch(target, Duration::from_millis(100), &pass_on, each).unwrap();
        let status = watched.status.unwrap();
        assert_eq!((status.code(), status.signal()), (Some(3), None));
        assert!(readings.get() >= 5);
        let mean = |wanted| {
            let mut rows = watched.summary.rows();
            rows.find(|(name, ..)| *name == wanted).map(|(_, mean, _)| mean)
        };
        assert!(mean("process_cpu_percent").unwrap() > 0.0);
        assert!(mean("process_count").unwrap() > 1.0);
    }

    #[test]
    fn a_command_is_ended_when_enough_was_seen_and_a_process_when_it_is_gone() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = child.id();
        assert!(is_running(process));
        let seen = Cell::new(0);
        let each = &mut |_: &Reading| -> Result<(), WatchError> {
            seen.set(seen.get() + 1);
            Ok(())
        };
        let enough = || if seen.get() > 0 { WatchOrder::End } else { WatchOrder::Continue };
        let target = WatchTarget::Command(&mut child);
        let watched = watch(target, Duration::from_millis(50), &enough, each).unwrap();
        assert_eq!(watched.status.unwrap().signal(), Some(libc::SIGTERM));
        assert!(!is_running(process));
        // One that is gone has ended before it is looked at a second time.
        let each = &mut |_: &Reading| -> Result<(), WatchError> { Ok(()) };
        let never = || WatchOrder::Continue;
        let target = WatchTarget::Process(process);
        let watched = watch(target, Duration::from_millis(50), &never, each).unwrap();
        assert!(watched.status.is_none());
    }

    /// Only the shell was killed, and what it had put into the background went on for ever.
    #[test]
    fn what_a_command_put_into_the_background_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let number = folder.path().join("number");
        let script = format!("sleep 1000 & echo $! > {}; wait", number.display());
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let written = || std::fs::read_to_string(&number).ok().filter(|text| text.ends_with('\n'));
        let each = &mut |_: &Reading| -> Result<(), WatchError> { Ok(()) };
        let enough = || written().map_or(WatchOrder::Continue, |_| WatchOrder::End);
        let target = WatchTarget::Command(&mut child);
        watch(target, Duration::from_millis(50), &enough, each).unwrap();
        let sleeper = written().unwrap().trim().parse().unwrap();
        assert!(!is_running(sleeper));
    }

    #[test]
    fn what_cannot_be_written_ends_a_recording() {
        let each = &mut |_: &Reading| Err(WatchError::Wait(std::io::Error::other("disk full")));
        let never = || WatchOrder::Continue;
        let ended = watch(WatchTarget::Machine, Duration::from_millis(50), &never, each);
        assert!(ended.is_err());
    }
}
