//! A command and everything it started, for ending all of it: what a shell put into the background outlives the shell.

use crate::probes::process::descendants;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time that processes have to exit after SIGTERM before they are killed.
const GRACE: Duration = Duration::from_secs(20);

/// Time between two looks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Processes below a command, with the clock tick at which each began: a number may be given to another one later.
#[derive(Default)]
struct ProcessTree {
    members: BTreeMap<u32, u64>,
}

impl ProcessTree {
    /// Adds what has come since the last look, below the command and below members whose parents have ended.
    fn look(&mut self, command: u32) {
        self.members.retain(|process, began| began_at(*process) == Some(*began));
        let roots = self.members.keys().copied().chain([command]).collect();
        for process in descendants(Path::new("/proc"), roots) {
            if let Some(began) = began_at(process) {
                self.members.entry(process).or_insert(began);
            }
        }
    }

    fn send(&self, signal: Signal) {
        for process in self.members.keys() {
            if let Some(process) = i32::try_from(*process).ok().and_then(Pid::from_raw) {
                let _ = kill_process(process, signal); // it may have ended by itself
            }
        }
    }
}

/// When a process began; nothing where it has ended.
fn began_at(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut words = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = words.next()?;
    (state != "Z" && state != "X").then(|| words.nth(18)?.parse().ok()).flatten()
}

/// Ends a command with everything it started: asks first, and kills what does not end.
pub(crate) fn end_all(command: &mut Child) -> io::Result<ExitStatus> {
    let number = command.id();
    let own = i32::try_from(number).ok().and_then(Pid::from_raw);
    let mut below = ProcessTree::default();
    below.look(number);
    // Until it is waited for, the number is the command's own.
    if let (Some(own), None) = (own, command.try_wait()?) {
        let _ = kill_process(own, Signal::TERM);
    }
    below.send(Signal::TERM);
    let asked = Instant::now();
    loop {
        let ended = command.try_wait()?;
        below.look(number);
        match ended {
            Some(status) if below.members.is_empty() => return Ok(status),
            _ if asked.elapsed() < GRACE => std::thread::sleep(LOOK_EVERY),
            _ => {
                below.send(Signal::KILL);
                if ended.is_none() {
                    command.kill()?;
                }
                return command.wait();
            }
        }
    }
}
