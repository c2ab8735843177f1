//! `paceline advise cloud`: the whole search, run by run.

use super::super::staging::local_path;
use super::answer;
use super::question::Question;
use crate::failure::{Exit, FailureExt, usage};
use crate::terminal::Terminal;
use crate::units::{self, show_dollars};
use anyhow::Context;
use paceline_advisor::Outcome;
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `paceline advise cloud`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  paceline advise cloud --catalog machines.csv --history runs.csv --objective cost \\\n    --exec './run-job.sh {machine} {count}'\n\nAn exit code other than 0 is a failed run: information, not the end of the search. Interrupted, the\nsame command goes on where it was."
)]
pub struct Args {
    #[command(flatten)]
    question: Question,
    /// Shell command that runs the job once; `{machine}` and `{count}` are replaced
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// The search is kept here, and goes on from here
    #[arg(long, value_name = "FILE", default_value = "advise.json", value_parser = local_path())]
    state: PathBuf,
    /// Most runs to make; fewer if the method finds that more are not worth it
    #[arg(long, default_value_t = 20)]
    max_runs: usize,
    /// Stop a run after this time, such as 90s, 10min or 2h; it counts as timed out
    #[arg(long, value_parser = units::positive_seconds, value_name = "TIME")]
    timeout: Option<f64>,
}

/// Runs the job until the method has enough, the budget is used up, or the user stops it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    if !args.exec.contains("{machine}") || !args.exec.contains("{count}") {
        return Err(usage(
            "--exec must say where the machine type and the number go",
            "as in --exec './run-job.sh {machine} {count}'",
        ));
    }
    // A limit beyond what a clock can count limits nothing.
    let limit = args.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let mut prepared = args.question.prepare(Some(&args.state))?;
    let catalogue = std::sync::Arc::clone(&prepared.problem.catalogue);
    // A state file that cannot be written should not cost a run.
    prepared.state.write(&args.state)?;
    let interrupt = terminal.interrupt()?;
    let mut search = prepared.search()?;
    let mut why = format!("{} runs were made", args.max_runs);
    while search.runs().len() < args.max_runs && !interrupt.load(Ordering::Relaxed) {
        let Some(proposal) = prepared.advisor.propose(&search) else {
            why = "everything has been tried".to_owned();
            break;
        };
        if let Some(stop) = proposal.stop {
            why = stop;
            break;
        }
        let at = proposal.configuration;
        let run = search.runs().len() + 1;
        terminal.note(format!("run {run}: {} ({})", catalogue.name(at), proposal.reason));
        let command = fill(&args.exec, &catalogue.machine(at).name, catalogue.count(at));
        let Some(outcome) = run_once(&command, limit, &interrupt)? else {
            why = "interrupted; the run under way was not counted".to_owned();
            break;
        };
        prepared.state.tell(&catalogue, at, outcome, BTreeMap::new());
        prepared.state.write(&args.state)?;
        search = prepared.search()?;
        let seconds = outcome.seconds();
        let ended = match outcome {
            Outcome::Completed { .. } => "completed",
            Outcome::Failed { .. } => "failed",
            Outcome::TimedOut { .. } => "stopped",
        };
        let usd = catalogue.cost(at, seconds);
        terminal.note(format!("run {run}: {ended} after {seconds:.1} s, {}", show_dollars(usd)));
    }
    let found = prepared.advisor.recommend(&search);
    terminal.data(format!("ended:       {why}"))?;
    answer::print(terminal, &catalogue, found.as_ref())?;
    terminal.json(&json!({
        "state": args.state,
        "method": prepared.state.method,
        "ended": why,
        "recommendation": answer::recommendation_json(&catalogue, found.as_ref()),
    }))?;
    // A search without any completed run has no answer.
    Ok(if found.is_some() { Exit::Done } else { Exit::Failed })
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

/// Runs a command to its end; `None` if the user interrupted it.
fn run_once(
    command: &str,
    limit: Option<Duration>,
    interrupt: &AtomicBool,
) -> anyhow::Result<Option<Outcome>> {
    let begin = Instant::now();
    // Its own group, so that whatever it started can be ended with it. Its words are talk: stderr.
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{command}`"))
        .hint("the command is run by `sh`")?;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
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
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            end(&mut child)?;
            return Ok(Some(Outcome::TimedOut { seconds: begin.elapsed().as_secs_f64() }));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the child's whole group: politely, then for good.
fn end(child: &mut Child) -> anyhow::Result<()> {
    let group = format!("-{}", child.id());
    for (signal, patience) in [("-TERM", Duration::from_secs(3)), ("-KILL", Duration::from_secs(3))]
    {
        // `kill` fails when no process of the group is left, which is the goal.
        let _ = Command::new("kill").args([signal, "--", &group]).stderr(Stdio::null()).status();
        let begin = Instant::now();
        while begin.elapsed() < patience {
            if child.try_wait().context("cannot wait for the command")?.is_some() {
                // The shell is gone; what it left behind goes too.
                let _ = Command::new("kill")
                    .args(["-KILL", "--", &group])
                    .stderr(Stdio::null())
                    .status();
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    child.wait().context("cannot wait for the command")?;
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
}
