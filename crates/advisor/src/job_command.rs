//! The shell command that runs a job once on a configuration.

use crate::error::AdvisorError;
use crate::measurements::Outcome;
use paceline_probes::{ChildLimits, ExitReason, Reach, shell_word};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long the command has to end after a signal.
const GRACE: Duration = Duration::from_secs(3);

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

    /// The same with a run ended after so many seconds, if that is sooner.
    pub(crate) fn ending_after(&self, seconds: Option<f64>) -> Self {
        let sooner = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let limit = match (self.limit, sooner) {
            (Some(own), Some(sooner)) => Some(own.min(sooner)),
            (own, sooner) => own.or(sooner),
        };
        Self { limit, ..self.clone() }
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
        let (reach, timeout) = (Reach::Group, self.limit);
        let limits = ChildLimits { reach, timeout, grace: GRACE, cancel: interrupt };
        let ended = limits.wait(&mut child, begin).map_err(AdvisorError::Wait)?;
        let seconds = ended.seconds;
        Ok(match ended.reason {
            ExitReason::Interrupted => None,
            ExitReason::TimedOut => Some(Outcome::TimedOut { seconds }),
            ExitReason::Exited if ended.status.success() => Some(Outcome::Completed { seconds }),
            ExitReason::Exited => Some(Outcome::Failed { seconds }),
        })
    }
}

/// Puts machine and count into the command; a name with unusual characters is quoted for the shell.
fn fill(command: &str, machine: &str, count: u32) -> String {
    command.replace("{machine}", &shell_word(machine)).replace("{count}", &count.to_string())
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
        // The method's own limit holds where it is the sooner one.
        let cut = of("sleep 600").ending_after(Some(0.0)).run("m", 2, &calm).unwrap();
        assert!(matches!(cut, Some(Outcome::TimedOut { .. })), "{cut:?}");
        let long = JobCommand { limit, ..of("") }.ending_after(Some(9.0));
        assert_eq!(long.limit, Some(Duration::ZERO));
        assert!(of("{machine} {count}").has_places() && !of("{machine}").has_places());
    }
}
