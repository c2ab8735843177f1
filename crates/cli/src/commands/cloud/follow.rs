//! `paceline cloud status`, `logs`, `stop`, `fetch`: a job that was submitted from here.

use super::{explained, stop_command, submit::JOBS, tool};
use crate::terminal::Terminal;
use crate::terminal::failure::{Exit, usage};
use paceline_cloud::{
    advice,
    submit::{Ending, JobState, SubmittedJob},
    words,
};
use paceline_data::store::{Staging, staging::without_weights};
use paceline_runs::{RunFolder, RunView};
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

/// Arguments of `paceline cloud status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Its run folder, or the folder of its runs: a path here or a bucket's URL [default: what `cloud fetch` copied, or the
    /// command's `--out` on Slurm]
    #[arg(long)]
    run: Option<PathBuf>,
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

/// Asks the service, and compares the time and the rate with the plan's.
pub fn status(args: &StatusArgs, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let (name, folder) = (&args.job.name, args.job.folder());
    let job = args.job.open()?;
    let interrupt = terminal.interrupt()?;
    let state = explained(job.state(&folder, tool(&interrupt)))?;
    let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(job.submitted);
    let elapsed = begin.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64());
    terminal.data(format!("{name}: {} ({} {})", state_words(state), job.target, job.id))?;
    if let Some(succeeded) = job.unfinished {
        let commands = job.steps.submit.len();
        let stop = stop_command(&folder);
        terminal.data(format!("{succeeded} of {commands} commands of its submission have succeeded; unless it goes on elsewhere, end what was begun with `{stop}`"))?;
    }
    let open = matches!(state, JobState::Running | JobState::Waiting);
    let late = job.expected.is_some_and(|[_, _, high]| elapsed > high);
    if let Some([low, expected, high]) = job.expected.filter(|_| open) {
        let [low, expected, high] = [low, expected, high].map(words::time);
        terminal.data(format!(
            "submitted {} ago; the plan expected {expected} ({low} to {high}){}",
            words::time(elapsed),
            if late { ": later than its interval" } else { "" }
        ))?;
    }
    let measured = measured_rate(args.run.as_deref(), &job, terminal)?;
    let compared =
        measured.zip(job.expected_rates).map(|(rate, plan)| RateComparison::of(rate, plan));
    match (&compared, measured) {
        (Some(compared), _) => terminal.data(compared.sentence(open))?,
        (None, Some(rate)) => terminal.data(format!("measured {rate:.0} examples/s"))?,
        (None, None) => {}
    }
    terminal.json(&json!({
        "name": name, "target": job.target, "id": job.id, "state": state, "unfinished": job.unfinished,
        "seconds_since_submission": elapsed, "expected": job.expected, "late": open && late,
        "rate": measured, "expected_rate": job.expected_rates, "leaves_interval": compared.map(|compared| compared.leaves()),
    }))?;
    let wrong = matches!(state, JobState::Failed | JobState::Submitting);
    Ok(if wrong { Exit::Failed } else { Exit::Done })
}

/// Examples per second of the job's run as far as it came; `None` where no run folder is at hand.
fn measured_rate(
    given: Option<&Path>,
    job: &SubmittedJob,
    terminal: &Terminal,
) -> anyhow::Result<Option<f64>> {
    let mut staging = Staging::default();
    let Some(folder) = given.map(Path::to_owned).or_else(|| readable_runs(job)) else {
        return Ok(None);
    };
    let here = staging.input(&folder, &without_weights)?;
    let newest = RunFolder::open(&here).ok().or_else(|| {
        paceline_runs::list(&here)
            .ok()?
            .into_iter()
            .max_by_key(|run| std::fs::metadata(run.path()).and_then(|found| found.modified()).ok())
    });
    let view = newest.and_then(|run| RunView::read(run.path()).ok());
    let rate = view.map(|view| view.summary.examples_per_second).filter(|rate| *rate > 0.0);
    if rate.is_none() && given.is_some() {
        terminal.note(format!("no run in `{}` has measured a rate yet", folder.display()));
    }
    Ok(rate)
}

/// Where a run of it can be read without asking: what was fetched, or Slurm's own file system.
fn readable_runs(job: &SubmittedJob) -> Option<PathBuf> {
    let fetched = job.fetched.clone().filter(|folder| folder.exists());
    fetched.or_else(|| {
        let mut words = job.request.command.iter();
        let out = words.find(|word| *word == "--out").and_then(|_| words.next())?;
        Some(PathBuf::from(out)).filter(|out| job.target == "slurm" && out.exists())
    })
}

/// A measured rate beside the interval that was planned.
struct RateComparison {
    rate: f64,
    plan: [f64; 3],
}

impl RateComparison {
    fn of(rate: f64, plan: [f64; 3]) -> Self {
        Self { rate, plan }
    }

    /// Whether it is outside, and on which side.
    fn leaves(&self) -> Option<&'static str> {
        let [low, _, high] = self.plan;
        match self.rate {
            rate if rate < low => Some("below"),
            rate if rate > high => Some("above"),
            _ => None,
        }
    }

    fn sentence(&self, open: bool) -> String {
        let ([low, expected, high], rate) = (self.plan, self.rate);
        let side = match (self.leaves(), open) {
            (None, _) => String::new(),
            (Some("below"), true) => {
                ": slower than its interval; it will end later and cost more".to_owned()
            }
            (Some("below"), false) => ": slower than its interval".to_owned(),
            (Some(_), _) => ": faster than its interval".to_owned(),
        };
        format!(
            "measured {rate:.0} examples/s; the plan expected {expected:.0} ({low:.0} to {high:.0}){side}"
        )
    }
}

fn state_words(state: JobState) -> &'static str {
    match state {
        JobState::Submitting => "submission not finished",
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
    let name = &args.name;
    let ending = explained(job.stop(&args.folder(), tool(&interrupt)))?;
    terminal.data(match ending {
        Ending::Asked => format!("{name}: asked {} to stop it", job.target),
        Ending::Undone => {
            format!("{name}: what its submission had begun was ended, and its record removed")
        }
        Ending::Nothing => {
            format!("{name}: {} has nothing of it; its record was removed", job.target)
        }
    })?;
    terminal.json(&json!({ "name": args.name, "stopped": true }))?;
    Ok(Exit::Done)
}

/// Copies a folder here; nothing is overwritten.
pub fn fetch(args: &FetchArgs, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut job = args.job.open()?;
    refuse_existing(&args.out)?;
    let interrupt = terminal.interrupt()?;
    let command = job.fetch_command(&args.job.folder(), &args.from, &args.out);
    if let Err(error) = tool(&interrupt).output(&command) {
        let hint =
            advice(&error).unwrap_or("`paceline cloud logs` shows which folder the job wrote");
        return crate::terminal::failure::FailureExt::hint(Err(error), hint);
    }
    explained(job.note_fetched(&args.job.folder(), &args.out))?;
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
