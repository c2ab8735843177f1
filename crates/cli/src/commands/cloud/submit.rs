//! `paceline cloud submit`: the job file, shown, and handed to the site's own tool.

use super::{
    MarketArgs, explained,
    plan::{idle_gpu, sentence},
    read_job, tool,
};
use crate::arguments::idle_flags::Typed;
use crate::arguments::units;
use crate::terminal::Terminal;
use crate::terminal::failure::{Exit, usage};
use paceline_cloud::{
    Job, Plan, command_line,
    submit::{self, Expectation, SubmitRequest, SubmittedJob, TARGETS},
};
use serde_json::json;
use std::path::PathBuf;

const GIB: f64 = (1u64 << 30) as f64;

/// Where submitted jobs are kept unless told.
pub(super) const JOBS: &str = "cloud";

/// Arguments of `paceline cloud submit`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline cloud submit flowers.toml --target dataproc --project lab --region us-central1 --binary target/x86_64-unknown-linux-musl/release/paceline --dry-run\n  paceline cloud submit train.toml --target slurm --nodes 4 --cores 8 --memory 16GiB --key ~/cluster.key\n  paceline cloud submit train.toml --target ssh --hosts a,b,c --binary ~/bin/paceline --key cluster.key"
)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// The job; its `command` is what runs
    job: PathBuf,
    /// Where it runs
    #[arg(long, value_parser = targets())]
    target: String,
    #[command(flatten)]
    market: MarketArgs,
    /// Show the files and commands; submit nothing
    #[arg(long)]
    dry_run: bool,
    /// Machines that work [default: the plan's, or one per host]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: Option<u32>,
    /// Machine type [default: the plan's]
    #[arg(long)]
    machine: Option<String>,
    /// Cores of each node, where the target asks for them [default: the plan's machine]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Option<u32>,
    /// Memory of each node, such as 16GiB, where the target asks for it [default: the plan's machine]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    memory: Option<f64>,
    /// Project of the provider [default: its tool's own]
    #[arg(long)]
    project: Option<String>,
    /// Region [default: the catalogue's]
    #[arg(long)]
    region: Option<String>,
    /// Container image of paceline (vertex, kubernetes)
    #[arg(long)]
    image: Option<String>,
    /// Hosts for ssh, separated by commas
    #[arg(long, value_delimiter = ',')]
    hosts: Vec<String>,
    /// The cluster's key: a file (ssh, slurm), a path below /gcs (vertex), a secret's name (kubernetes)
    #[arg(long)]
    key: Option<String>,
    /// The paceline to copy to hosts or cluster (ssh, dataproc), or its path on the nodes (slurm)
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Volume claim with the data (kubernetes)
    #[arg(long)]
    claim: Option<String>,
    /// End the job after this time, such as 2h; not with ssh
    #[arg(long, value_name = "TIME", value_parser = units::positive_seconds)]
    time_limit: Option<f64>,
    /// Where each task listens (ssh, kubernetes)
    #[arg(long, default_value_t = 7000, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Folder for the records of submitted jobs
    #[arg(long, value_name = "DIR", default_value = JOBS)]
    jobs: PathBuf,
}

pub(super) fn targets() -> clap::builder::PossibleValuesParser {
    let values = TARGETS
        .iter()
        .map(|target| clap::builder::PossibleValue::new(target.name()).help(target.about()));
    clap::builder::PossibleValuesParser::new(values)
}

/// Submits, or shows what would be submitted.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let job = read_job(&args.job)?;
    if job.command.is_empty() {
        let hint = "for example: command = [\"train\", \"--model\", \"lenet\", \"--data\", \"/data/digits\"]";
        return Err(usage(format!("`{}` has no `command` to submit", args.job.display()), hint));
    }
    check_command(&job)?;
    let Some(target) = submit::target(&args.target) else {
        return Err(usage(
            format!("unknown target `{}`", args.target),
            "see `paceline cloud submit --help`",
        ));
    };
    refuse_idle(args, target)?;
    let plan = explained(Plan::new(&job, &args.market.catalogue()?, args.market.objective()))?;
    let planned = args.nodes.is_none() && args.machine.is_none() && args.hosts.is_empty();
    if planned {
        terminal.note(sentence(&plan));
    }
    let request = request(args, &job, &plan)?;
    idle_gpu(&job, &plan).into_iter().for_each(|warning| terminal.warn(warning));
    let shape = plan.chosen();
    let expected = planned.then_some(Expectation {
        seconds: [shape.low, shape.seconds, shape.high],
        rates: Some(shape.rates(plan.examples)),
    });
    let folder = args.jobs.join(&job.name);
    if args.dry_run {
        return dry_run(target, &request, &folder, terminal);
    }
    let interrupt = terminal.interrupt()?;
    let said = |command: &str| terminal.note(format!("$ {command}"));
    let found = SubmittedJob::submit(target, request, &folder, expected, tool(&interrupt), &said);
    let found = explained(found)?;
    terminal.data(format!("{}: submitted to {} as {}", job.name, found.target, found.id))?;
    terminal.note(format!(
        "`paceline cloud status {0}`, `logs {0}` and `stop {0}` follow it",
        job.name
    ));
    terminal.json(
        &json!({ "name": job.name, "target": found.target, "id": found.id, "folder": folder }),
    )?;
    Ok(Exit::Done)
}

/// Settings that some targets read and others do not.
const SETTINGS: &[&str] = &[
    "project",
    "region",
    "image",
    "hosts",
    "key",
    "binary",
    "claim",
    "port",
    "nodes",
    "machine",
    "cores",
    "memory",
    "time-limit",
];

fn refuse_idle(args: &Args, target: &dyn submit::Target) -> anyhow::Result<()> {
    let idle = |flag: &&&str| args.typed.has(flag) && !target.reads().contains(*flag);
    let Some(flag) = SETTINGS.iter().find(idle) else { return Ok(()) };
    let readers: Vec<&str> = TARGETS
        .iter()
        .filter(|other| other.reads().contains(flag))
        .map(|other| other.name())
        .collect();
    Err(usage(
        format!("`--{flag}` has no effect on {}", target.name()),
        format!("leave it out; it is for {}", readers.join(", ")),
    ))
}

/// The job's command line must be one of this program's: nothing is worse than a cluster that starts and cannot read it.
fn check_command(job: &Job) -> anyhow::Result<()> {
    let line = std::iter::once("paceline".to_owned()).chain(job.command.iter().cloned());
    crate::command().try_get_matches_from(line).map(drop).map_err(|error| {
        let first = error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ")
            .to_owned();
        usage(
            format!("`command` of the job is not a paceline command line: {first}"),
            "try it here first, with `--help` at its end",
        )
    })
}

fn request(args: &Args, job: &Job, plan: &Plan) -> anyhow::Result<SubmitRequest> {
    let shape = plan.chosen();
    let catalogue = args.market.catalogue()?;
    let name = args.machine.clone().unwrap_or_else(|| shape.machine.clone());
    let machine = explained(catalogue.machine(&name))?;
    let hosts = u32::try_from(args.hosts.len()).unwrap_or(u32::MAX);
    if args.nodes.is_some_and(|nodes| hosts > 0 && nodes != hosts) {
        return Err(usage(
            "`--nodes` and the number of `--hosts` differ",
            "leave `--nodes` out: each host is a node",
        ));
    }
    Ok(SubmitRequest {
        name: job.name.clone(),
        command: job.command.clone(),
        nodes: args.nodes.unwrap_or(if hosts > 0 { hosts } else { shape.nodes }),
        machine: name,
        vcpus: args.cores.unwrap_or(machine.vcpus as u32).max(1),
        memory_gib: args.memory.map_or(machine.memory_gib, |bytes| bytes / GIB).max(1.0) as u32,
        disk: Some((shape.disk.kind.clone(), shape.disk.gb as u32)),
        project: args.project.clone(),
        region: Some(args.region.clone().unwrap_or(catalogue.region)),
        image: args.image.clone(),
        hosts: args.hosts.clone(),
        key: args.key.clone(),
        binary: args.binary.clone(),
        claim: args.claim.clone(),
        port: args.port,
        minutes: args.time_limit.map(|seconds| (seconds / 60.0).ceil() as u32),
        gpu: shape.gpu.clone().map(|gpu| (gpu, shape.gpus / shape.nodes.max(1))),
        mark: submit::new_mark(),
    })
}

fn dry_run(
    target: &dyn submit::Target,
    request: &SubmitRequest,
    folder: &std::path::Path,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    explained(submit::check_name(&request.name))?;
    let steps = explained(target.steps(request))?;
    for (name, content) in &steps.files {
        terminal.data(format!("# {}", folder.join(name).display()))?;
        terminal.data(content)?;
    }
    for argv in &steps.submit {
        let here = folder.display().to_string();
        let argv: Vec<String> = argv.iter().map(|word| word.replace("{folder}", &here)).collect();
        terminal.data(format!("$ {}", command_line(&argv)))?;
    }
    terminal.note("nothing was submitted");
    terminal.json(&json!({ "files": steps.files, "commands": steps.submit }))?;
    Ok(Exit::Done)
}
