//! `paceline data info`: counts, classes, sizes and a sample.

use super::Opening;
use crate::arguments::limits::parse_limit;
use crate::commands::prepare::warn_of_rejects;
use crate::terminal::failure::Exit;
use crate::terminal::{Table, Terminal, Unit};
use paceline_data::rejects::RejectLimit;
use paceline_data::{DataError, inspect};
use std::path::PathBuf;

/// Arguments of `paceline data info`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder or URL of photos, records or IDX files, or `generated:…`
    path: PathBuf,
    #[command(flatten)]
    opening: Opening,
    /// Fail if more than so many photos cannot be used, a number or a percentage such as 5%
    #[arg(long, value_parser = parse_limit, value_name = "N|P%")]
    max_rejects: Option<RejectLimit>,
}

/// Describes a data set.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    args.opening.check(&args.path)?;
    let bar = terminal.progress("counting", None, Unit::Items("examples"));
    let tell = |done, total| {
        bar.set_total(total);
        bar.set(done);
    };
    let info = inspect::info(&args.path, &args.opening.options()?, args.max_rejects, &tell);
    let info = match info {
        Err(DataError::Rows { .. }) => {
            drop(bar);
            return describe_rows(args, terminal);
        }
        info => info?,
    };
    drop(bar);
    terminal.json(&info)?;
    let mut text = format!(
        "{} ({}): {} examples of {}, {:.1} MB stored\n",
        info.path,
        info.kind,
        info.examples,
        info.shape,
        info.stored_bytes as f64 / 1e6
    );
    for split in &info.splits {
        text.push_str(&format!("  {}: {} examples\n", split.name, split.examples));
    }
    let mut classes = Table::new(["class", "examples", "share"]);
    for class in &info.classes {
        let share = 100.0 * class.examples as f64 / info.counted.max(1) as f64;
        classes.row([class.name.clone(), class.examples.to_string(), format!("{share:.1} %")]);
    }
    let mut samples = Table::new(["example", "class", "mean brightness", "from"]);
    for sample in &info.sample {
        samples.row([
            sample.index.to_string(),
            sample.class.clone(),
            format!("{:.3}", sample.mean),
            sample.origin.clone(),
        ]);
    }
    terminal.data(format!("{text}\n{classes}\n{samples}"))?;
    for remark in &info.remarks {
        terminal.note(format!("note: {remark}"));
    }
    if info.screened > 0 && info.screened < info.examples {
        terminal.note(format!(
            "note: {} of {} photos were decoded to find bad ones; `paceline data verify` reads all",
            info.screened, info.examples
        ));
    }
    warn_of_rejects(&info.rejects, info.photos, terminal);
    Ok(Exit::Done)
}

/// Describes a click log or other rows of sparse features.
fn describe_rows(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    let bar = terminal.progress("counting", None, Unit::Bytes);
    let info = inspect::rows(&args.path, &|done, _| bar.set(done))?;
    drop(bar);
    terminal.json(&info)?;
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    let hashed =
        info.bits.map_or_else(String::new, |bits| format!(", hashed into 2^{bits} weights"));
    terminal.data(format!(
        "{} ({} of sparse features, {}): {} rows in {} file{}, {:.1} MB stored{hashed}\n  {:.1} % with label 1, {:.1} features in a row",
        info.path,
        info.kind,
        info.formats.join(", "),
        info.rows,
        info.files,
        if info.files == 1 { "" } else { "s" },
        info.stored_bytes as f64 / 1e6,
        100.0 * share(info.positive, info.rows),
        share(info.features, info.rows)
    ))?;
    terminal.note("train on it with `paceline train --model sparse-logistic --data …`; `paceline prepare` hashes it once for many runs");
    if info.malformed > 0 {
        let first = info.first_malformed.join("\n  ");
        terminal.warn(format!("{} malformed lines; the first:\n  {first}", info.malformed));
    }
    let allowed = args.max_rejects.map(|limit| limit.count(info.rows + info.malformed));
    Ok(if allowed.is_some_and(|most| info.malformed > most) { Exit::Failed } else { Exit::Done })
}
