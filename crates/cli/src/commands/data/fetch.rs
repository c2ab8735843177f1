//! `paceline data fetch`: known data sets, downloaded once, by one process, verified.

use crate::arguments::idle_flags::{Rule, Typed};
use crate::arguments::units::{Span, span};
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::{Terminal, Unit};
use clap::builder::PossibleValuesParser;
use paceline_data::store::Staging;
use paceline_prepare::fetch::{
    Dataset, Event, FetchError, FetchOptions, Fetched, datasets, fetch, weights,
};
use std::path::{Path, PathBuf};

/// Arguments of `paceline data fetch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Any number of processes may fetch into one folder at once: one downloads, the others wait.\n\
                  Interrupted, run the same command again: it continues where it was."
)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// The data set, or `weights` with a model after it
    #[arg(value_parser = known_names())]
    name: String,
    /// Folder for it [default: data/NAME]; after `weights`, the model: mobilenet-v2 or alexnet
    out: Option<PathBuf>,
    /// After `weights MODEL`, the folder for the file [default: data/weights/MODEL]
    #[arg(value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// Take the files from this address or path, of the file itself or of its folder
    #[arg(long, value_name = "URL|PATH")]
    from: Option<String>,
    /// Give a connection up that delivers nothing for so long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span)]
    stall: Span,
    /// Give a mirror up after so many attempts in a row without a new byte
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: u32,
}

fn known_names() -> PossibleValuesParser {
    datasets::ALL
        .iter()
        .map(|dataset| clap::builder::PossibleValue::new(dataset.name).help(dataset.about))
        .chain([clap::builder::PossibleValue::new(WEIGHTS)
            .help("Weights to start from (`weights mobilenet-v2`), as torchvision publishes them")])
        .collect::<Vec<_>>()
        .into()
}

/// Stands before the name of a model.
const WEIGHTS: &str = "weights";

const RULES: &[Rule<Args>] = &[Rule {
    flags: &["stall", "attempts"],
    is_met: |args| args.from.as_ref().is_none_or(|from| from.starts_with("http")),
    otherwise: "on files of this machine",
    instead: "give `--from` an address",
}];

/// Fetches.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    args.typed.check(args, RULES)?;
    let mut staging = Staging::default();
    let (what, out) = asked(args)?;
    let out = out.map(|out| staging.output(out)).transpose()?;
    let outcome = fetch_to(args, what, out, &staging, terminal);
    terminal.settle(staging, outcome)
}

/// What to fetch, and the folder for it where one was named.
fn asked(args: &Args) -> anyhow::Result<(&'static Dataset, Option<&Path>)> {
    if args.name != WEIGHTS {
        if let Some(more) = &args.into {
            return Err(usage(
                format!("`{}` is one word too many", more.display()),
                "only `weights` has a model before the folder",
            ));
        }
        let dataset = datasets::find(&args.name).expect("the parser knows the registered names");
        return Ok((dataset, args.out.as_deref()));
    }
    let model = args.out.as_deref().map(|model| model.to_string_lossy()).unwrap_or_default();
    let Some(found) = weights::find(&model) else {
        let known: Vec<&str> = weights::ALL.iter().map(|weights| weights.name).collect();
        let message = if model.is_empty() {
            "`weights` needs the name of a model".to_owned()
        } else {
            format!("no weights are known for `{model}`")
        };
        return Err(usage(message, format!("weights are known for {}", known.join(" and "))));
    };
    Ok((found, args.into.as_deref()))
}

/// Fetches into a folder of this machine.
fn fetch_to(
    args: &Args,
    dataset: &Dataset,
    out: Option<PathBuf>,
    staging: &Staging,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let is_weights = args.name == WEIGHTS;
    let data = Path::new(if is_weights { "data/weights" } else { "data" });
    let out = out.unwrap_or_else(|| data.join(dataset.name));
    let options = FetchOptions {
        from: args.from.clone(),
        stall: args.stall.duration(),
        attempts: args.attempts,
        ..FetchOptions::default()
    };
    let cancel = terminal.interrupt()?;
    let mut bar = None;
    let mut shown = String::new();
    let outcome = fetch(dataset, &out, &options, &cancel, &mut |event| match event {
        Event::Waiting { pid } => {
            let who = pid.map_or_else(String::new, |pid| format!(" ({pid})"));
            terminal.note(format!("waiting for another process{who} that fetches the same"));
        }
        Event::Progress { file, bytes, total } => {
            if shown != file {
                file.clone_into(&mut shown);
                bar = Some(terminal.progress(file, Some(total), Unit::Bytes));
            }
            if let Some(bar) = &bar {
                bar.set(bytes);
            }
        }
        Event::Retry { error, wait } => {
            terminal.warn(format!("{error}; again in {:.1} s", wait.as_secs_f64()));
        }
        Event::Unpacking { files } => {
            if shown != "unpacking" {
                shown = "unpacking".into();
                let total = dataset.archive.as_ref().map(|archive| archive.files);
                bar = Some(terminal.progress("unpacking", total, Unit::Items("files")));
            }
            if let Some(bar) = &bar {
                bar.set(files);
            }
        }
        _ => {}
    });
    drop(bar);
    let fetched = outcome.or_else(with_hint)?;
    let state = if fetched.was_complete { "was complete already" } else { "complete, verified" };
    terminal.note(format!("{}: {state}; {}", dataset.name, dataset.licence));
    // A file is what `--init` takes.
    let file = is_weights.then(|| fetched.folder.join(dataset.files[0].name));
    terminal.data(staging.there(file.as_deref().unwrap_or(&fetched.folder)).display())?;
    terminal.json(&fetched)?;
    Ok(Exit::Done)
}

/// Gives an error its hint and exit code.
fn with_hint(error: FetchError) -> anyhow::Result<Fetched> {
    let exit = match &error {
        FetchError::Cancelled => Exit::Interrupted,
        error if error.is_transient() => Exit::Retry,
        _ => Exit::Failed,
    };
    let hint = error.hint();
    Err(error).exit(exit).hint_if_any(hint)
}
