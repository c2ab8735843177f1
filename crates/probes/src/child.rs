//! A command as a child process: ended on a timeout or an interruption, never left behind.
//!
//! A cell of a sweep, a side of a comparison, a job that an advisor tries and a provider's tool are all that. The time is taken
//! when the kernel says that the process has ended, not at the next poll: a comparison of short commands would see
//! nothing but the polls.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait before the flag that stops everything is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The same where the kernel does not tell of a process that ends.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    Exited,
    TimedOut,
    Interrupted,
}

/// Whom a signal to a command goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The process alone: our own program passes it on to its tasks.
    Process,
    /// All that it started, as a process group of its own: any program.
    Group,
}

/// Prepares a command so that it ends when this thread does: a killed sweep must not leave a cell behind that runs for hours and
/// disturbs the next one.
#[allow(unsafe_code)]
pub fn tie(command: &mut Command, reach: Reach) {
    if reach == Reach::Group {
        command.process_group(0);
    }
    let parent = rustix::process::getpid();
    let ask = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before this call.
        if rustix::process::getppid() != Some(parent) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec, two system calls that neither allocate nor take a lock.
    unsafe { command.pre_exec(ask) };
}

/// When a child process is to be ended, and how.
#[derive(Debug, Clone, Copy)]
pub struct ChildLimits<'a> {
    pub reach: Reach,
    /// A process that takes longer is ended.
    pub timeout: Option<Duration>,
    /// Time a process has to exit after SIGTERM before it is killed.
    pub grace: Duration,
    /// Raised by Ctrl-C.
    pub cancel: &'a AtomicBool,
}

/// How a child process ended.
#[derive(Debug, Clone, Copy)]
pub struct ChildEnd {
    pub status: ExitStatus,
    pub seconds: f64,
    pub reason: ExitReason,
}

impl ChildLimits<'_> {
    /// Waits for a process that began at `begin`, and ends it on a timeout or an interruption.
    ///
    /// # Errors
    /// When the process cannot be waited for.
    pub fn wait(&self, child: &mut Child, begin: Instant) -> io::Result<ChildEnd> {
        let Self { reach, timeout, grace, cancel } = *self;
        let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let told = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        let mut reason = ExitReason::Exited;
        let mut asked: Option<Instant> = None;
        loop {
            pause(told.as_ref());
            let seconds = begin.elapsed().as_secs_f64();
            if let Some(status) = child.try_wait()? {
                if let (Reach::Group, Some(process), false) =
                    (reach, process, reason == ExitReason::Exited)
                {
                    // What it started and did not end itself.
                    let _ = kill_process_group(process, Signal::KILL);
                }
                return Ok(ChildEnd { status, seconds, reason });
            }
            let late = timeout.is_some_and(|limit| begin.elapsed() > limit);
            let cancelled = cancel.load(Ordering::Relaxed);
            match asked {
                None if late || cancelled => {
                    reason = if cancelled { ExitReason::Interrupted } else { ExitReason::TimedOut };
                    asked = Some(Instant::now());
                    // Ctrl-C has reached our own program already, a SIGTERM to us alone has not; twice does no harm because
                    // a second one merely makes it end at once.
                    send(process, reach, Signal::TERM);
                }
                Some(since) if since.elapsed() > grace => send(process, reach, Signal::KILL),
                _ => {}
            }
        }
    }
}

fn send(process: Option<Pid>, reach: Reach, signal: Signal) {
    let Some(process) = process else { return };
    let _ = match reach {
        Reach::Process => kill_process(process, signal),
        Reach::Group => kill_process_group(process, signal),
    };
}

/// Sleeps until the process ends, but not long.
fn pause(told: Option<&OwnedFd>) {
    let Some(told) = told else {
        std::thread::sleep(POLL_EVERY);
        return;
    };
    let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_EVERY.subsec_nanos()) };
    // A signal ends the wait early, which is what it is for.
    let _ = poll(&mut [PollFd::new(told, PollFlags::IN)], Some(&wait));
}

/// Reads a pipe to its end on a thread of its own, and keeps the first `most` bytes.
pub fn read_pipe(mut pipe: impl Read + Send + 'static, most: u64) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read until an error is what there is to show; the exit code says the rest.
        let _ = pipe.by_ref().take(most).read_to_end(&mut bytes);
        let _ = io::copy(&mut pipe, &mut io::sink());
        bytes
    })
}

/// One word for a shell, quoted where it must be.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    #[test]
    fn a_shell_that_is_timed_out_takes_what_it_started_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let number = folder.path().join("number");
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("sleep 1000 & echo $! > {}; wait", number.display()));
        tie(&mut command, Reach::Group);
        let mut child = command.spawn().unwrap();
        let written = || fs::read_to_string(&number).ok().filter(|text| text.ends_with('\n'));
        while written().is_none() {
            std::thread::sleep(POLL_EVERY);
        }
        let cancel = AtomicBool::new(false);
        let limits = ChildLimits {
            reach: Reach::Group,
            timeout: Some(Duration::ZERO),
            grace: Duration::from_secs(20),
            cancel: &cancel,
        };
        let end = limits.wait(&mut child, Instant::now()).unwrap();
        assert_eq!(end.reason, ExitReason::TimedOut);
        let sleeper = Path::new("/proc").join(written().unwrap().trim()).join("stat");
        // Its new parent may take a moment to collect it.
        while fs::read_to_string(&sleeper).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::sleep(POLL_EVERY);
        }
    }
}
