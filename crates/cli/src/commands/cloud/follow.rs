//! `paceline cloud status`, `logs`, `stop`, `fetch`: a job that was submitted from here.

use super::{explained, stop_command, submit::JOBS, tool};
use crate::arguments::units;
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

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
    /// Look again until the job has ended, and say what has changed
    #[arg(long)]
    follow: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::positive_seconds, requires = "follow")]
    every: f64,
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

/// Says how the job is, once or until it has ended.
pub fn status(args: &StatusArgs, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let interrupt = terminal.interrupt()?;
    let mut said: Vec<String> = Vec::new();
    loop {
        let look = look(args, &interrupt)?;
        for line in look.lines.iter().filter(|line| !said.contains(line)) {
            terminal.data(line)?;
        }
        if let Some(note) = look.note.as_ref().filter(|note| !said.contains(note)) {
            terminal.note(note);
        }
        // What is said again later has changed in between.
        said = look.lines.into_iter().chain(look.note).collect();
        let over = !args.follow || !matches!(look.state, JobState::Running | JobState::Waiting);
        if over || wait(args.every, &interrupt) {
            terminal.json(&look.document)?;
            let wrong = matches!(look.state, JobState::Failed | JobState::Submitting);
            return Ok(if wrong { Exit::Failed } else { Exit::Done });
        }
    }
}

/// Waits so long, or until Ctrl-C; whether it was that.
fn wait(seconds: f64, interrupt: &AtomicBool) -> bool {
    let end = Instant::now() + Duration::from_secs_f64(seconds.min(86_400.0));
    while Instant::now() < end && !interrupt.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    interrupt.load(Ordering::Relaxed)
}

/// What the service, the clock and the run folder say at one moment.
struct JobLook {
    state: JobState,
    lines: Vec<String>,
    note: Option<String>,
    document: serde_json::Value,
}

/// Asks the service, and compares the time and the rate with the plan's.
fn look(args: &StatusArgs, interrupt: &AtomicBool) -> anyhow::Result<JobLook> {
    let (name, folder) = (&args.job.name, args.job.folder());
    let job = args.job.open()?;
    let state = explained(job.state(&folder, tool(interrupt)))?;
    let mut lines = Vec::new();
    let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(job.submitted);
    let elapsed = begin.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64());
    lines.push(format!("{name}: {} ({} {})", state_words(state), job.target, job.id));
    if let Some(succeeded) = job.unfinished {
        let commands = job.steps.submit.len();
        let stop = stop_command(&folder);
        lines.push(format!("{succeeded} of {commands} commands of its submission have succeeded; unless it goes on elsewhere, end what was begun with `{stop}`"));
    }
    let open = matches!(state, JobState::Running | JobState::Waiting);
    let late = job.expected.is_some_and(|[_, _, high]| elapsed > high);
    if let Some([low, expected, high]) = job.expected.filter(|_| open) {
        let [low, expected, high] = [low, expected, high].map(words::time);
        lines.push(format!(
            "submitted {} ago; the plan expected {expected} ({low} to {high}){}",
            words::time(elapsed),
            if late { ": later than its interval" } else { "" }
        ));
    }
    let (measured, note) = measured_rate(args.run.as_deref(), &job)?;
    let compared =
        measured.zip(job.expected_rates).map(|(rate, plan)| RateComparison::of(rate, plan));
    match (&compared, measured) {
        (Some(compared), _) => lines.push(compared.sentence(open)),
        (None, Some(rate)) => lines.push(format!("measured {rate:.0} examples/s")),
        (None, None) => {}
    }
    let document = json!({
        "name": name, "target": job.target, "id": job.id, "state": state, "unfinished": job.unfinished,
        "seconds_since_submission": elapsed, "expected": job.expected, "late": open && late,
        "rate": measured, "expected_rate": job.expected_rates, "leaves_interval": compared.map(|compared| compared.leaves()),
    });
    Ok(JobLook { state, lines, note, document })
}

/// Examples per second of the job's run as far as it came, `None` where no run folder is at hand; and what is to be said of that.
fn measured_rate(
    given: Option<&Path>,
    job: &SubmittedJob,
) -> anyhow::Result<(Option<f64>, Option<String>)> {
    let mut staging = Staging::default();
    let Some(folder) = given.map(Path::to_owned).or_else(|| readable_runs(job)) else {
        return Ok((None, None));
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
    let note = (rate.is_none() && given.is_some())
        .then(|| format!("no run in `{}` has measured a rate yet", folder.display()));
    Ok((rate, note))
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
