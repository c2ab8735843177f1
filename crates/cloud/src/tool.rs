//! The provider's or site's own command-line tool: run to its end, with a deadline, its errors in words.
//!
//! Credentials stay where the tool keeps them. What it prints is read whole, up to a bound, and a tool that asks a question
//! gets the end of its input rather than an answer.

use crate::error::CloudError;
use paceline_probes::{ChildEnd, ChildLimits, ExitReason, Reach, read_pipe, shell_word};
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most that is read of a tool's output; the rest is dropped.
const MOST_OUTPUT: u64 = 16 << 20;
/// How long a tool has to end after a signal.
const GRACE: Duration = Duration::from_secs(3);
/// Lines of its output that an error repeats.
const LAST_LINES: usize = 6;

/// Runs tools; a flag ends the one that is running.
#[derive(Debug, Clone, Copy)]
pub struct Tool<'a> {
    /// Raised by Ctrl-C.
    pub interrupt: &'a AtomicBool,
    /// How long one call may take.
    pub limit: Duration,
}

impl Tool<'_> {
    /// Its stdout, where it ended well.
    pub fn output(&self, argv: &[String]) -> Result<String, CloudError> {
        let (status, out, err) = self.run(argv, Stdio::piped())?;
        if status.success() {
            return Ok(out);
        }
        let all = if err.trim().is_empty() { out } else { err };
        Err(CloudError::Tool {
            command: command_line(argv),
            how: how(status),
            said: last_lines(&all),
        })
    }

    /// Its stdout as JSON.
    pub fn json(&self, argv: &[String]) -> Result<serde_json::Value, CloudError> {
        let out = self.output(argv)?;
        serde_json::from_str(&out).map_err(|_| CloudError::Answer {
            command: command_line(argv),
            needed: "a JSON document",
        })
    }

    /// Runs with the user's own stdout and stderr, as long as it takes: logs that follow. Whether it ended well.
    pub fn follow(&self, argv: &[String]) -> Result<bool, CloudError> {
        let mut child = start(argv, Stdio::inherit(), Stdio::inherit())?;
        let ended = self.wait(&mut child, argv, None)?;
        Ok(ended.status.success() || ended.reason == ExitReason::Interrupted)
    }

    fn run(&self, argv: &[String], out: Stdio) -> Result<(ExitStatus, String, String), CloudError> {
        let mut child = start(argv, out, Stdio::piped())?;
        let out = child.stdout.take().map(|pipe| read_pipe(pipe, MOST_OUTPUT));
        let err = child.stderr.take().map(|pipe| read_pipe(pipe, MOST_OUTPUT));
        let ended = self.wait(&mut child, argv, Some(self.limit))?;
        let command = || command_line(argv);
        match ended.reason {
            ExitReason::Exited => {}
            ExitReason::Interrupted => return Err(CloudError::Interrupted { command: command() }),
            ExitReason::TimedOut => {
                let seconds = self.limit.as_secs();
                return Err(CloudError::Silent { command: command(), seconds });
            }
        }
        let text = |reader: Option<JoinHandle<Vec<u8>>>| {
            let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok((ended.status, text(out), text(err)))
    }

    fn wait(
        &self,
        child: &mut Child,
        argv: &[String],
        timeout: Option<Duration>,
    ) -> Result<ChildEnd, CloudError> {
        let (reach, cancel) = (Reach::Process, self.interrupt);
        let limits = ChildLimits { reach, timeout, grace: GRACE, cancel };
        limits.wait(child, Instant::now()).map_err(|source| CloudError::Tool {
            command: command_line(argv),
            how: "cannot be waited for".to_owned(),
            said: source.to_string(),
        })
    }
}

fn start(argv: &[String], out: Stdio, err: Stdio) -> Result<Child, CloudError> {
    let tool = argv.first().cloned().unwrap_or_default();
    let spawned =
        Command::new(&tool).args(&argv[1..]).stdin(Stdio::null()).stdout(out).stderr(err).spawn();
    spawned.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => CloudError::NoTool { tool },
        _ => CloudError::Tool {
            command: command_line(argv),
            how: "cannot be started".to_owned(),
            said: source.to_string(),
        },
    })
}

fn how(status: ExitStatus) -> String {
    status.code().map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit code {code}"))
}

/// The last lines, or the error and what follows it where a line says that it is one: advice behind it may be long.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let error = lines.iter().rposition(|line| line.starts_with("ERROR:"));
    let from = error.unwrap_or_else(|| lines.len().saturating_sub(LAST_LINES));
    let most = lines.len().min(from + LAST_LINES);
    lines[from..most].join(" | ")
}

/// The command as one would type it.
#[must_use]
pub fn command_line(argv: &[String]) -> String {
    argv.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

/// Strings of a command.
pub(crate) fn argv<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Vec<String> {
    words.into_iter().map(|word| word.as_ref().to_owned()).collect()
}

/// What to do about a failed call, where its words are known.
#[must_use]
pub fn advice(error: &CloudError) -> Option<&'static str> {
    let said = match error {
        CloudError::NoTool { tool } => {
            return Some(match tool.as_str() {
                "gcloud" => "install the Google Cloud CLI and run `gcloud auth login`",
                "aws" => "install the AWS CLI and run `aws configure`",
                "az" => "install the Azure CLI and run `az login`",
                "kubectl" => {
                    "install kubectl and select a context with `kubectl config use-context`"
                }
                "sbatch" | "squeue" | "scancel" => "run this on a login node of the Slurm cluster",
                _ => "install it, or put it on the PATH",
            });
        }
        // The name of an operation does not say why it failed.
        CloudError::Tool { said, .. } => said.to_lowercase().replace("listservicequotas", ""),
        CloudError::Unfinished { source, .. } => return advice(source),
        _ => return None,
    };
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["429", "resource_exhausted", "quota", "limitexceeded"]) {
        Some(
            "ask for a larger quota, or choose a smaller shape: `paceline cloud plan` with [quota] in the job's file",
        )
    } else if has(&[
        "service_disabled",
        "is disabled",
        "has not been used in project",
        "api not enabled",
    ]) {
        Some(
            "enable the service it names (`gcloud services enable NAME`), wait a minute, and try again",
        )
    } else if has(&["403", "permission_denied", "accessdenied", "authorizationfailed", "forbidden"])
    {
        Some(
            "the account lacks a permission: ask the project's owner for the role the message names",
        )
    } else if has(&[
        "401",
        "reauthentication",
        "could not automatically determine credentials",
        "active account selected",
        "az login",
        "unable to locate credentials",
        "session associated with this profile has expired",
        "expiredtoken",
    ]) {
        Some("log in again with the provider's own tool; no credential is kept here")
    } else if has(&["alreadyexists", "already_exists"]) {
        Some("something of that name is there: choose another `name` in the job's file")
    } else if has(&["notfound", "not_found"]) {
        Some(
            "the service has nothing of that name, or no longer: it was deleted, or its idle time ended",
        )
    } else if has(&["preempted", "preemption"]) {
        Some("the provider reclaimed the machine: submit again, with `--resume RUN` in the command")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(interrupt: &AtomicBool) -> Tool<'_> {
        Tool { interrupt, limit: Duration::from_secs(60) }
    }

    #[test]
    fn a_missing_tool_and_a_failing_one_are_told_apart() {
        let calm = AtomicBool::new(false);
        let missing = tool(&calm).output(&argv(["paceline-no-such-tool"])).unwrap_err();
        assert!(matches!(&missing, CloudError::NoTool { .. }), "{missing}");
        let failed = argv(["sh", "-c", "echo one; echo 'quota exceeded' >&2; exit 3"]);
        let error = tool(&calm).output(&failed).unwrap_err();
        let CloudError::Tool { how, said, .. } = &error else { panic!("{error}") };
        assert_eq!((how.as_str(), said.as_str()), ("exit code 3", "quota exceeded"));
        assert!(advice(&error).unwrap().contains("larger quota"));
    }

    #[test]
    fn a_tool_that_never_ends_is_ended_at_the_deadline_or_by_ctrl_c() {
        let sleep = argv(["sleep", "600"]);
        let calm = AtomicBool::new(false);
        let hasty = Tool { interrupt: &calm, limit: Duration::from_millis(50) };
        assert!(matches!(hasty.output(&sleep), Err(CloudError::Silent { .. })));
        let raised = AtomicBool::new(true);
        assert!(matches!(tool(&raised).output(&sleep), Err(CloudError::Interrupted { .. })));
    }

    #[test]
    fn a_failure_to_list_quotas_was_taken_for_an_exceeded_one() {
        let with = |said: &str| {
            let (command, how) = (String::new(), String::new());
            advice(&CloudError::Tool { command, how, said: said.to_owned() })
        };
        let failed = "An error occurred (500) when calling the ListServiceQuotas operation (reached max retries: 4): Internal Server Error";
        assert_eq!(with(failed), None);
        let denied = "An error occurred (AccessDeniedException) when calling the ListServiceQuotas operation: not allowed";
        assert!(with(denied).is_some_and(|hint| hint.contains("lacks a permission")));
        let exceeded = "An error occurred (VcpuLimitExceeded) when calling the RunInstances operation: You have requested more vCPU capacity than your current vCPU limit of 8 allows";
        assert!(with(exceeded).is_some_and(|hint| hint.contains("larger quota")));
    }

    #[test]
    fn the_error_was_cut_off_where_advice_of_many_lines_followed_it() {
        let printed = "WARNING: old\nERROR: (gcloud.services.list) You do not currently have an active account selected.\nPlease run:\n\n  $ gcloud auth login\n\nto obtain new credentials.\n\nIf you have already logged in with a different account, run:\n\n  $ gcloud config set account ACCOUNT\n\nto select an already authenticated account to use.\n";
        let said = last_lines(printed);
        assert!(said.starts_with("ERROR: (gcloud.services.list) You do not"), "{said}");
        assert!(said.ends_with("$ gcloud config set account ACCOUNT"), "{said}");
        assert_eq!(last_lines("1\n2\n3\n4\n5\n6\n7\n"), "2 | 3 | 4 | 5 | 6 | 7");
    }

    /// As `gcloud` 528, `aws` 1.45 and `az` 2.91 print it.
    #[test]
    fn who_is_not_logged_in_is_told_to_log_in_whatever_the_tools_words() {
        let words = [
            "ERROR: (gcloud.services.list) You do not currently have an active account selected. | Please run: | $ gcloud auth login",
            "Unable to locate credentials. You can configure credentials by running \"aws configure\".",
            "An error occurred (ExpiredToken) when calling the GetCallerIdentity operation: The security token included in the request is expired",
            "ERROR: Please run 'az login' to setup account.",
        ];
        for said in words {
            let (command, how) = (String::new(), String::new());
            let error = CloudError::Tool { command, how, said: said.to_owned() };
            assert!(advice(&error).is_some_and(|hint| hint.contains("log in again")), "{said}");
        }
    }

    #[test]
    fn much_output_does_not_block_the_tool() {
        let calm = AtomicBool::new(false);
        let much = argv(["sh", "-c", "head -c 40000000 /dev/zero | tr '\\0' x"]);
        assert_eq!(tool(&calm).output(&much).unwrap().len() as u64, MOST_OUTPUT);
    }

    #[test]
    fn words_are_quoted_only_where_they_must_be() {
        assert_eq!(command_line(&argv(["a", "b c", "it's", ""])), r"a 'b c' 'it'\''s' ''");
    }
}
