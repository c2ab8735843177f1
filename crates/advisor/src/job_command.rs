//! The shell command that runs a job once on a configuration.

use crate::error::AdvisorError;
use crate::measurements::Outcome;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the command has to end after a signal.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(20);

/// A command with places for the machine and the number of them.
#[derive(Debug, Clone)]
pub struct JobCommand {
    /// For `sh`; `{machine}` and `{count}` are replaced.
    pub template: String,
    /// A run that takes longer is ended, and counts as timed out.
    pub limit: Option<Duration>,
}

impl JobCommand {
    /// Whether it says where the machine and the number go.
    #[must_use]
    pub fn has_places(&self) -> bool {
        self.template.contains("{machine}") && self.template.contains("{count}")
    }

    /// Runs it to its end; `None` if it was interrupted.
    pub(crate) fn run(
        &self,
        machine: &str,
        count: u32,
        interrupt: &AtomicBool,
    ) -> Result<Option<Outcome>, AdvisorError> {
        let command = fill(&self.template, machine, count);
        let begin = Instant::now();
        // Its own group, so that all that it started can be ended with it. Its words are talk: stderr.
        let mut child = Command::new("sh")
            .args(["-c", &command])
            .stdin(Stdio::null())
            .stdout(Stdio::from(std::io::stderr()))
            .process_group(0)
            .spawn()
            .map_err(|source| AdvisorError::Start { command, source })?;
        loop {
            if let Some(status) = child.try_wait().map_err(AdvisorError::Wait)? {
                let seconds = begin.elapsed().as_secs_f64();
                return Ok(Some(if status.success() {
                    Outcome::Completed { seconds }
                } else {
                    Outcome::Failed { seconds }
                }));
            }
            if interrupt.load(Ordering::Relaxed) {
                end(&mut child)?;
                return Ok(None);
            }
            if self.limit.is_some_and(|limit| begin.elapsed() >= limit) {
                end(&mut child)?;
                return Ok(Some(Outcome::TimedOut { seconds: begin.elapsed().as_secs_f64() }));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Puts machine and count into the command; a name with unusual characters is quoted for the shell.
fn fill(command: &str, machine: &str, count: u32) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let machine = if machine.chars().all(plain) {
        machine.to_owned()
    } else {
        format!("'{}'", machine.replace('\'', r"'\''"))
    };
    command.replace("{machine}", &machine).replace("{count}", &count.to_string())
}

/// Ends the child's whole group: politely, then for good.
fn end(child: &mut Child) -> Result<(), AdvisorError> {
    let group = format!("-{}", child.id());
    for signal in ["-TERM", "-KILL"] {
        // `kill` fails when no process of the group is left, which is the goal.
        let _ = Command::new("kill").args([signal, "--", &group]).stderr(Stdio::null()).status();
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if child.try_wait().map_err(AdvisorError::Wait)?.is_some() {
                // The shell is gone; what it left behind goes too.
                let _ = Command::new("kill")
                    .args(["-KILL", "--", &group])
                    .stderr(Stdio::null())
                    .status();
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }
    child.wait().map_err(AdvisorError::Wait)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_machine_names_cannot_become_commands() {
        assert_eq!(fill("run {machine} {count}", "m4.large", 4), "run m4.large 4");
        assert_eq!(fill("run {machine} {count}", "a; rm 'x'", 1), r"run 'a; rm '\''x'\''' 1");
    }

    #[test]
    fn the_exit_code_decides_and_an_interrupt_ends_it() {
        let of = |template: &str| JobCommand { template: template.to_owned(), limit: None };
        let calm = AtomicBool::new(false);
        let passed = of("test {machine}-{count} = m-2").run("m", 2, &calm).unwrap();
        assert!(matches!(passed, Some(Outcome::Completed { .. })), "{passed:?}");
        let failed = of("exit 3").run("m", 2, &calm).unwrap();
        assert!(matches!(failed, Some(Outcome::Failed { .. })), "{failed:?}");
        assert_eq!(of("sleep 600").run("m", 2, &AtomicBool::new(true)).unwrap(), None);
        let limit = Some(Duration::ZERO);
        let stopped = JobCommand { limit, ..of("sleep 600") }.run("m", 2, &calm).unwrap();
        assert!(matches!(stopped, Some(Outcome::TimedOut { .. })), "{stopped:?}");
        assert!(of("{machine} {count}").has_places() && !of("{machine}").has_places());
    }
}
