//! `paceline cloud check`: what the account allows, asked before anything is submitted.

use super::{MarketArgs, explained, plan::sentence, read_job, tool};
use crate::terminal::Terminal;
use crate::terminal::failure::Exit;
use paceline_cloud::{
    Plan,
    check::{Answer, CheckRequest, account, renting},
    submit,
};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `paceline cloud check`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Asks `gcloud`, `aws` or `az`, which must be installed and logged in; nothing is changed.\n\nExamples:\n  paceline cloud check flowers.toml --provider gcp --project lab --target dataproc"
)]
pub struct Args {
    /// The job
    job: PathBuf,
    #[command(flatten)]
    market: MarketArgs,
    /// Project (gcp), profile (aws) or subscription (azure) [default: the tool's own]
    #[arg(long)]
    project: Option<String>,
    /// Region [default: the catalogue's]
    #[arg(long)]
    region: Option<String>,
    /// Where it will be submitted: the services and permissions that needs are looked for, too
    #[arg(long, value_parser = super::submit::targets())]
    target: Option<String>,
}

/// Plans, then asks whether the account allows it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let job = read_job(&args.job)?;
    let catalogue = args.market.catalogue()?;
    let plan = explained(Plan::new(&job, &catalogue, args.market.objective()))?;
    terminal.note(sentence(&plan));
    let shape = plan.chosen();
    let target = args.target.as_deref().and_then(submit::target);
    let services = target.map_or(&[][..], |target| target.services());
    // Without a target the machines are rented by hand.
    let permissions = match target {
        Some(target) => target.permissions(),
        None => renting(catalogue.provider),
    };
    let request = CheckRequest {
        provider: catalogue.provider,
        project: args.project.clone(),
        region: args.region.clone().unwrap_or_else(|| catalogue.region.clone()),
        demand: shape.demand.clone(),
        machine: Some(shape.machine.clone()),
        name: job.name.clone(),
        services: services.iter().map(|service| (*service).to_owned()).collect(),
        permissions: permissions.iter().map(|name| (*name).to_owned()).collect(),
        buckets: buckets(&job.command),
    };
    let interrupt = terminal.interrupt()?;
    let found = explained(account(&request, tool(&interrupt)))?;
    for finding in &found.findings {
        let mark = match finding.answer {
            Answer::Yes => "ok     ",
            Answer::No => "missing",
            Answer::Denied => "denied ",
            Answer::Unknown => "unknown",
        };
        terminal.data(format!("{mark}  {}", finding.what))?;
        if let Some(hint) = &finding.hint {
            terminal.data(format!("         hint: {hint}"))?;
        }
    }
    terminal.json(&json!({ "passes": found.passes(), "findings": found.findings, "left": found.left, "shape": shape }))?;
    Ok(if found.passes() { Exit::Done } else { Exit::Failed })
}

/// Buckets that the words of a command name, by URL or as Vertex AI mounts them; each once.
fn buckets(command: &[String]) -> Vec<String> {
    let url = |word: &String| {
        let (scheme, rest) = match word.strip_prefix("/gcs/") {
            Some(rest) => ("gs", rest),
            None => word.split_once("://").filter(|(scheme, _)| ["gs", "s3"].contains(scheme))?,
        };
        let name = rest.split('/').next().filter(|name| !name.is_empty())?;
        Some(format!("{scheme}://{name}"))
    };
    let mut found: Vec<String> = command.iter().filter_map(url).collect();
    found.sort();
    found.dedup();
    found
}
