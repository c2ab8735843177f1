//! `paceline man`: manual pages, made from the same definitions as the parser.

use crate::{Cli, terminal::Terminal, terminal::failure::Exit};
use anyhow::Context;
use clap::CommandFactory;
use std::path::PathBuf;

/// Arguments of `paceline man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write one page per command into this folder instead of printing the main page
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints or writes the pages.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let Some(folder) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        let page = String::from_utf8(page)?;
        terminal.data(&page)?;
        terminal.json(&serde_json::json!({ "page": page }))?;
        return Ok(Exit::Done);
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create folder `{}`", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("cannot write manual pages into `{}`", folder.display()))?;
    terminal.note(format!("wrote manual pages into `{}`", folder.display()));
    terminal.json(&serde_json::json!({ "folder": folder }))?;
    Ok(Exit::Done)
}
