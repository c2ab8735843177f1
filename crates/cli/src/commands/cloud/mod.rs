//! `paceline cloud`: plan a job's machines, check the account, submit, watch and stop.

mod check;
mod follow;
mod plan;
mod submit;

use crate::terminal::Terminal;
use crate::terminal::failure::{Exit, FailureExt};
use paceline_cloud::{
    CloudCatalogue, CloudError, Job, Objective, Provider, Tool, advice, command_line,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Arguments of `paceline cloud`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Which machines, how many, which disks: time, cost and what bounds each shape that fits the quotas
    Plan(plan::Args),
    /// Whether the account allows what the plan asks for, before anything is submitted
    Check(check::Args),
    /// Write the job file, show it, and hand it to the site's own tool
    Submit(Box<submit::Args>),
    /// How a submitted job is, and how its time and rate compare with the plan's
    Status(follow::StatusArgs),
    /// Show a submitted job's logs and follow them
    Logs(follow::JobArgs),
    /// End a submitted job
    Stop(follow::JobArgs),
    /// Copy a folder of a submitted job, such as its run folder, from there to here
    Fetch(follow::FetchArgs),
}

/// Runs the chosen action.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    match &args.action {
        Action::Plan(args) => plan::exec(args, terminal),
        Action::Check(args) => check::exec(args, terminal),
        Action::Submit(args) => submit::exec(args, terminal),
        Action::Status(args) => follow::status(args, terminal),
        Action::Logs(args) => follow::logs(args, terminal),
        Action::Stop(args) => follow::stop(args, terminal),
        Action::Fetch(args) => follow::fetch(args, terminal),
    }
}

/// Whose machines, at which prices, by which criterion.
#[derive(Debug, Clone, clap::Args)]
struct MarketArgs {
    /// Whose machines and prices
    #[arg(long, value_enum, default_value_t = ProviderName::Gcp)]
    provider: ProviderName,
    /// A catalogue of your own instead of the shipped one [default: the provider's]
    #[arg(long, value_name = "FILE", conflicts_with = "provider")]
    catalog: Option<PathBuf>,
    /// What makes one shape better than another; the job's limits hold in any case
    #[arg(long, value_enum, default_value_t = Criterion::Cost)]
    objective: Criterion,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ProviderName {
    Gcp,
    Aws,
    Azure,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Criterion {
    Cost,
    Time,
    Accuracy,
}

impl MarketArgs {
    fn provider(&self) -> Provider {
        match self.provider {
            ProviderName::Gcp => Provider::Gcp,
            ProviderName::Aws => Provider::Aws,
            ProviderName::Azure => Provider::Azure,
        }
    }

    fn catalogue(&self) -> anyhow::Result<CloudCatalogue> {
        let found = match &self.catalog {
            Some(path) => CloudCatalogue::read(path),
            None => CloudCatalogue::shipped(self.provider()),
        };
        explained(found)
    }

    fn objective(&self) -> Objective {
        match self.objective {
            Criterion::Cost => Objective::Cost,
            Criterion::Time => Objective::Time,
            Criterion::Accuracy => Objective::Accuracy,
        }
    }
}

fn read_job(path: &Path) -> anyhow::Result<Job> {
    explained(Job::read(path))
}

/// With what to do about it, and exit code 2 where the call was wrong.
fn explained<T>(result: Result<T, CloudError>) -> anyhow::Result<T> {
    let (hint, usage) = match &result {
        Ok(_) => (None, false),
        Err(error) => (hint(error), error.is_usage()),
    };
    let result = match hint {
        Some(hint) => result.hint(hint),
        None => result.map_err(Into::into),
    };
    if usage { result.exit(Exit::Usage) } else { result }
}

fn hint(error: &CloudError) -> Option<String> {
    let words = match error {
        CloudError::NoShape { .. } => {
            "loosen [limits] or [quota] in the job's file, or allow other machines in [shape]"
        }
        CloudError::Toml { what: "job file", .. } => {
            "`paceline cloud plan --help` has an example of a job file"
        }
        CloudError::Toml { .. } => {
            "a catalogue has provider, region, date, source, [[machine]] with name, vcpus, memory_gib, usd_per_hour and network_gbit, and [[disk]]; leave `--catalog` out for the shipped one"
        }
        CloudError::Exists { .. } => {
            "choose another name, or remove the folder once that job has ended"
        }
        CloudError::NoJob { .. } => {
            "`paceline cloud submit` makes one; `--jobs` says where it was made"
        }
        CloudError::Unfinished { folder, .. } => {
            let stop = format!("end what was begun: `{}`", stop_command(folder));
            return Some(match advice(error) {
                Some(advice) => format!("{stop}; then {advice}"),
                None => stop,
            });
        }
        other => return advice(other).map(str::to_owned),
    };
    Some(words.to_owned())
}

/// The command that ends a job, given the folder of its record.
fn stop_command(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut argv = ["paceline", "cloud", "stop", &name].map(str::to_owned).to_vec();
    if let Some(jobs) = folder.parent().filter(|jobs| *jobs != Path::new(submit::JOBS)) {
        argv.extend(["--jobs".to_owned(), jobs.display().to_string()]);
    }
    command_line(&argv)
}

/// How long one call of a provider's tool may take.
const TOOL_LIMIT: Duration = Duration::from_secs(900);

fn tool(interrupt: &AtomicBool) -> Tool<'_> {
    Tool { interrupt, limit: TOOL_LIMIT }
}
