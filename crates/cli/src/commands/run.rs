//! `paceline run`: a training script of any framework, unchanged, as a run with a verdict.

use crate::{
    terminal::failure::{Exit, FailureExt},
    terminal::{Terminal, one_line, typed_path},
};
use anyhow::Context;
use paceline_probes::{JobVerdict, WatchError, WatchOrder, WatchTarget, Watched, judge, watch};
use paceline_runs::{Machine, RunFolder, RunView};
use serde_json::json;
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Arguments of `paceline run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline run -- python train.py --epochs 3\n  paceline run --name resnet18 -- torchrun --nproc-per-node 2 train.py"
)]
pub struct Args {
    /// What is trained; shown as the model. By default the script's name
    #[arg(long)]
    name: Option<String>,
    /// Folder of run folders
    #[arg(long = "runs", value_name = "DIR", default_value = "runs")]
    folder: PathBuf,
    /// The command, with its arguments; runs made with PyTorch, Keras or JAX are recorded step by step
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Time between two readings of the job's processes.
const EVERY: Duration = Duration::from_millis(250);

/// The package that records, as the interpreter of the script will import it.
const PACKAGE: &[(&str, &str)] = &[
    ("sitecustomize.py", include_str!("../../python/paceline/_sitecustomize.py")),
    ("paceline/__init__.py", include_str!("../../python/paceline/__init__.py")),
    ("paceline/_auto.py", include_str!("../../python/paceline/_auto.py")),
    ("paceline/_callbacks.py", include_str!("../../python/paceline/_callbacks.py")),
    ("paceline/_jax.py", include_str!("../../python/paceline/_jax.py")),
    ("paceline/_keras.py", include_str!("../../python/paceline/_keras.py")),
    ("paceline/_loader.py", include_str!("../../python/paceline/_loader.py")),
    ("paceline/_profile.py", include_str!("../../python/paceline/_profile.py")),
    ("paceline/_read.py", include_str!("../../python/paceline/_read.py")),
    ("paceline/_resources.py", include_str!("../../python/paceline/_resources.py")),
    ("paceline/_run.py", include_str!("../../python/paceline/_run.py")),
    ("paceline/_torch.py", include_str!("../../python/paceline/_torch.py")),
];

/// Runs the command, and says what was seen of it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let name = args.name.clone().unwrap_or_else(|| script_name(&args.command));
    let run = RunFolder::create(&args.folder, &name, "foreign")?;
    let package = match Package::write(run.path()) {
        Ok(package) => package,
        Err(error) => {
            run.abandon();
            return Err(error);
        }
    };
    terminal.interrupt()?;
    let (program, arguments) = args.command.split_first().context("no command")?;
    let started = Command::new(program)
        .args(arguments)
        .env("PYTHONPATH", package.search_path())
        .env("PACELINE_RUN_FOLDER", absolute(run.path())?)
        .env("PACELINE_RUN_NAME", &name)
        .env("PACELINE_COMMAND", Machine::written(&args.command))
        .spawn()
        .with_context(|| format!("cannot start `{program}`"))
        .hint("write the command and its arguments behind `--`, as in a shell");
    let watched = match started {
        Ok(mut child) => {
            let forwarded = std::cell::Cell::new(false);
            let order = || {
                let signal = terminal.signal_to_pass_on(&forwarded);
                signal.map_or(WatchOrder::Continue, WatchOrder::PassOn)
            };
            watch::<WatchError>(WatchTarget::Command(&mut child), EVERY, &order, &mut |_| Ok(()))?
        }
        Err(error) => {
            drop(package);
            run.abandon();
            return Err(error);
        }
    };
    drop(package);
    let machine = Machine::detect();
    let job = judge(&watched.summary, machine.cores, machine.host_cpus);
    let exit = watched.status.map_or(Exit::Done, Exit::of_command);
    let view = RunView::read(run.path()).ok().filter(|view| view.summary.global_steps > 0);
    match &view {
        Some(view) => show(terminal, &run, view)?,
        None => {
            run.abandon();
            match exit.code() {
                0 => show_unrecorded(terminal, &job)?,
                // What it printed says why; what its resources were until then does not.
                code => terminal.warn(format!(
                    "`{program}` ended with exit code {code} before any training step was seen, so there is no run folder"
                )),
            }
        }
    }
    terminal.json(&document(view.is_some().then(|| run.path()), view.as_ref(), &job, &watched))?;
    Ok(exit)
}

fn show(terminal: &mut Terminal, run: &RunFolder, view: &RunView) -> anyhow::Result<()> {
    let summary = &view.summary;
    let mut line = format!("{} steps in {:.1} s", summary.global_steps, summary.seconds);
    if summary.examples_per_second > 0.0 {
        line.push_str(&format!(", {:.1} examples/s", summary.examples_per_second));
    }
    terminal.data(line)?;
    terminal.data(format!("verdict     {}", summary.verdict))?;
    terminal.note(format!(
        "run folder  {}\nnext        `paceline report {}` draws it; `paceline serve` shows it while it runs",
        one_line(&run.path().display().to_string()),
        typed_path(run.path())
    ));
    Ok(())
}

fn show_unrecorded(terminal: &mut Terminal, job: &JobVerdict) -> anyhow::Result<()> {
    terminal.data(format!("verdict     {}", job.words))?;
    if !job.next.is_empty() {
        terminal.note(format!("next        {}", job.next));
    }
    terminal.warn(
        "no training step was seen, so there is no run folder: scripts that train with PyTorch's optimisers, Keras's `fit` or a compiled step of JAX are \
         recorded by themselves, other loops with `paceline.Run` (docs/run-folder.md)",
    );
    Ok(())
}

fn document(
    run: Option<&Path>,
    view: Option<&RunView>,
    job: &JobVerdict,
    watched: &Watched,
) -> serde_json::Value {
    json!({
        "run": run,
        "summary": view.map(|view| &view.summary),
        "verdict": view.map_or(&job.words, |view| &view.summary.verdict),
        "job": job,
        "seconds": watched.took.as_secs_f64(),
        "exit": watched.status.and_then(|status| status.code()),
    })
}

/// `train` of `torchrun --nproc-per-node 2 train.py --epochs 3`.
fn script_name(command: &[String]) -> String {
    let script = command.iter().find(|word| word.ends_with(".py"));
    let name = script.or(command.first()).map(Path::new);
    let stem = name.and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    stem.unwrap_or_else(|| "script".to_owned())
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize().with_context(|| format!("cannot find `{}`", path.display()))
}

/// The recording package on disk, in front of everything else that the interpreter would import; gone when dropped.
struct Package {
    folder: PathBuf,
}

impl Package {
    fn write(run: &Path) -> anyhow::Result<Self> {
        let folder = absolute(run)?.join(".recorder");
        let package = Self { folder };
        for (name, text) in PACKAGE {
            let path = package.folder.join(name);
            let parent = path.parent().unwrap_or(&package.folder);
            fs::create_dir_all(parent)
                .and_then(|()| fs::write(&path, text))
                .with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        Ok(package)
    }

    fn search_path(&self) -> OsString {
        let mut path = self.folder.clone().into_os_string();
        if let Some(before) = env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
            path.push(":");
            path.push(before);
        }
        path
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        // Byte code that interpreters left beside it goes too.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The package lies inside the crate, so that `cargo package` takes it along, and all of it is compiled in.
    #[test]
    fn every_module_of_the_recording_package_is_in_the_binary() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/paceline");
        let mut found: Vec<String> = fs::read_dir(package)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".py"))
            .map(|name| match name.as_str() {
                "_sitecustomize.py" => "sitecustomize.py".to_owned(),
                _ => format!("paceline/{name}"),
            })
            .collect();
        found.sort();
        let mut packed: Vec<&str> = PACKAGE.iter().map(|(name, _)| *name).collect();
        packed.sort_unstable();
        assert_eq!(packed, found);
    }
}
