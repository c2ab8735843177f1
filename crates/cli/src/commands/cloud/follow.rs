//! `paceline cloud status`, `logs`, `stop`, `fetch`: a job that was submitted from here.

use super::{explained, submit::JOBS, tool};
use crate::terminal::Terminal;
use crate::terminal::failure::{Exit, usage};
use paceline_cloud::{
    advice,
    submit::{JobState, SubmittedJob},
    words,
};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Which job.
#[derive(Debug, clap::Args)]
pub struct JobArgs {
    /// The job's name
    name: String,
    /// Folder with the records of submitted jobs
    #[arg(long, value_name = "DIR", default_value = JOBS)]
    jobs: PathBuf,
}

/// Arguments of `paceline cloud fetch`.
#[derive(Debug, clap::Args)]
pub struct FetchArgs {
    #[command(flatten)]
    job: JobArgs,
    /// The folder there: a path on the host or in the pod, or a bucket's URL
    from: String,
    /// A folder here; it must not exist
    #[arg(long)]
    out: PathBuf,
}

impl JobArgs {
    fn folder(&self) -> PathBuf {
        self.jobs.join(&self.name)
    }

    fn open(&self) -> anyhow::Result<SubmittedJob> {
        explained(SubmittedJob::open(&self.folder()))
    }
}

/// Asks the service, and compares the time with the plan's.
pub fn status(args: &JobArgs, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let job = args.open()?;
    let interrupt = terminal.interrupt()?;
    let state = explained(job.state(&args.folder(), tool(&interrupt)))?;
    let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(job.submitted);
    let elapsed = begin.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64());
    let state_words = state_words(state);
    terminal.data(format!("{}: {state_words} ({} {})", args.name, job.target, job.id))?;
    let late = job.expected.is_some_and(|[_, _, high]| elapsed > high);
    let open = matches!(state, JobState::Running | JobState::Waiting);
    if let Some([low, expected, high]) = job.expected.filter(|_| open) {
        let [low, expected, high] = [low, expected, high].map(words::time);
        terminal.data(format!(
            "submitted {} ago; the plan expected {expected} ({low} to {high}){}",
            words::time(elapsed),
            if late { ": later than its interval" } else { "" }
        ))?;
    }
    terminal.json(&json!({
        "name": args.name, "target": job.target, "id": job.id, "state": state,
        "seconds_since_submission": elapsed, "expected": job.expected, "late": open && late,
    }))?;
    Ok(if state == JobState::Failed { Exit::Failed } else { Exit::Done })
}

fn state_words(state: JobState) -> &'static str {
    match state {
        JobState::Waiting => "waiting",
        JobState::Running => "running",
        JobState::Done => "done",
        JobState::Failed => "failed",
        JobState::Stopped => "stopped",
        JobState::Unknown => "state not known",
    }
}

/// Shows logs until the job or the user ends them.
pub fn logs(args: &JobArgs, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let job = args.open()?;
    if terminal.wants_json() {
        return Err(usage("logs are the job's own text", "leave `--json` out"));
    }
    let interrupt = terminal.interrupt()?;
    let ended_well = explained(tool(&interrupt).follow(&job.logs_command(&args.folder())))?;
    Ok(if ended_well { Exit::Done } else { Exit::Failed })
}

/// Ends the job.
pub fn stop(args: &JobArgs, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let job = args.open()?;
    let interrupt = terminal.interrupt()?;
    explained(job.stop(&args.folder(), tool(&interrupt)))?;
    terminal.data(format!("{}: asked {} to stop it", args.name, job.target))?;
    terminal.json(&json!({ "name": args.name, "stopped": true }))?;
    Ok(Exit::Done)
}

/// Copies a folder here; nothing is overwritten.
pub fn fetch(args: &FetchArgs, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let job = args.job.open()?;
    refuse_existing(&args.out)?;
    let interrupt = terminal.interrupt()?;
    let command = job.fetch_command(&args.job.folder(), &args.from, &args.out);
    if let Err(error) = tool(&interrupt).output(&command) {
        let hint =
            advice(&error).unwrap_or("`paceline cloud logs` shows which folder the job wrote");
        return crate::terminal::failure::FailureExt::hint(Err(error), hint);
    }
    terminal.data(format!("`{}` is in `{}`", args.from, args.out.display()))?;
    terminal.json(&json!({ "from": args.from, "out": args.out }))?;
    Ok(Exit::Done)
}

fn refuse_existing(out: &Path) -> anyhow::Result<()> {
    if out.exists() {
        return Err(usage(
            format!("`{}` exists", out.display()),
            "give a folder that does not exist yet",
        ));
    }
    Ok(())
}
