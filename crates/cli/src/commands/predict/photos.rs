//! The classes of photos: a line each, in the order in which they were named.

use super::Args;
use crate::terminal::{
    Terminal,
    failure::{Exit, FailureExt, training::explain},
};
use anyhow::Context;
use paceline_data::{expand_photos, store::durable::AtomicFile};
use paceline_runs::RunFolder;
use paceline_training::{Prediction, TrainError, Trained, Which};
use serde_json::json;
use std::{
    cell::Cell,
    ffi::OsString,
    io::{self, BufRead, Write},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    rc::Rc,
};

/// Classes that are printed where no number is asked for.
const TOP: u64 = 3;

/// Tells the classes of photos.
pub(super) fn predict(
    args: &Args,
    run: &RunFolder,
    out: Option<&Path>,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let unread = Rc::new(Cell::new(None));
    let photos = named(&args.data, &unread)?;
    let mut model = Trained::load(run, Which::Best).map_err(explain)?;
    terminal.note(format!(
        "weights of `{}`, step {}; {} classes",
        args.run.display(),
        model.step(),
        model.classes().len()
    ));
    let cannot = |path: &Path| format!("cannot write `{}`", path.display());
    let mut file = match out {
        Some(path) => Some(AtomicFile::create(path).with_context(|| cannot(path))?),
        None => None,
    };
    let top = usize::try_from(args.top.unwrap_or(TOP)).unwrap_or(usize::MAX);
    let (mut all, mut bad, mut told) = (0_u64, 0_u64, Vec::new());
    let keeps = terminal.wants_json();
    let predicted = model.predict(photos, top, &cancel, |prediction| -> Result<(), Trouble> {
        all += 1;
        match &prediction.error {
            Some(error) => {
                bad += 1;
                terminal.warn(error);
            }
            None => match &mut file {
                Some(file) => writeln!(file, "{}", line(&prediction)).map_err(Trouble::Write)?,
                None => terminal.data(line(&prediction)).map_err(Trouble::Told)?,
            },
        }
        if keeps {
            told.push(prediction);
        }
        Ok(())
    });
    predicted.map_err(|trouble| trouble.explain(out))?;
    if let Some(error) = unread.take() {
        return Err(error).context("cannot read the list of photos on standard input");
    }
    if let (Some(file), Some(path)) = (file, out) {
        file.commit().with_context(|| cannot(path))?;
    }
    terminal.json(&json!({
        "run": args.run,
        "model": model.model(),
        "step": model.step(),
        "photos": all,
        "rejected": bad,
        "predictions": told,
    }))?;
    Ok(conclude(bad, all, terminal))
}

/// Says what could not be predicted.
fn conclude(bad: u64, all: u64, terminal: &Terminal) -> Exit {
    let rest = if bad == all { "none was predicted" } else { "all others were predicted" };
    match (bad, all) {
        (0, 0) => terminal.warn("no photo was named, so none was predicted"),
        (0, _) => {}
        _ => terminal.warn(format!("{bad} of {all} photos could not be used; {rest}")),
    }
    if bad > 0 { Exit::Failed } else { Exit::Done }
}

/// Path, then class and probability by turns, with tabs between them.
fn line(prediction: &Prediction) -> String {
    let mut line = prediction.photo.display().to_string();
    for class in &prediction.classes {
        line.push_str(&format!("\t{}\t{:.4}", class.class, class.probability));
    }
    line
}

/// The photos that were named, in that order; those of standard input as they come. Names are bytes and need not be text.
fn named(
    data: &[String],
    unread: &Rc<Cell<Option<io::Error>>>,
) -> anyhow::Result<Box<dyn Iterator<Item = PathBuf>>> {
    if let [alone] = data
        && alone == "-"
    {
        let unread = Rc::clone(unread);
        let lines = io::stdin().lock().split(b'\n');
        let lines = lines.map_while(move |line| line.map_err(|error| unread.set(Some(error))).ok());
        let paths = lines.fuse().map(|mut line| {
            let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |at| at + 1);
            line.truncate(end);
            PathBuf::from(OsString::from_vec(line))
        });
        return Ok(Box::new(paths.filter(|path| !path.as_os_str().is_empty())));
    }
    let mut photos = Vec::new();
    for path in data {
        photos.extend(
            expand_photos(Path::new(path)).hint(
                "name photos, folders of them, or `-` for a list of paths on standard input",
            )?,
        );
    }
    Ok(Box::new(photos.into_iter()))
}

/// What went wrong between two photos.
enum Trouble {
    Train(TrainError),
    Write(io::Error),
    Told(anyhow::Error),
}

impl From<TrainError> for Trouble {
    fn from(error: TrainError) -> Self {
        Self::Train(error)
    }
}

impl Trouble {
    fn explain(self, out: Option<&Path>) -> anyhow::Error {
        match self {
            Self::Train(error) => explain(error),
            Self::Told(error) => error,
            Self::Write(error) => {
                let path = out.unwrap_or(Path::new("standard output"));
                anyhow::Error::from(error).context(format!("cannot write `{}`", path.display()))
            }
        }
    }
}
