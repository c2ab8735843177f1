//! `paceline data info`: counts, classes, sizes and a sample.

use super::Opening;
use crate::failure::Exit;
use crate::terminal::{Table, Terminal, Unit};
use paceline_data::inspect;
use std::path::PathBuf;

/// Arguments of `paceline data info`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder or URL of photos, records or IDX files, or `generated:…`
    path: PathBuf,
    #[command(flatten)]
    opening: Opening,
}

/// Describes a data set.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let bar = terminal.progress("counting", None, Unit::Items("examples"));
    let info = inspect::info(&args.path, &args.opening.options()?, &|done, total| {
        bar.set_total(total);
        bar.set(done);
    })?;
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
    Ok(Exit::Done)
}
