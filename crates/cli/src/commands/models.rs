//! `paceline models`: what can be trained.

use crate::{
    failure::Exit,
    terminal::{Table, Terminal},
};
use paceline_models::registry;
use serde_json::json;

/// Arguments of `paceline models`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Lists the models.
pub fn exec(_args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut table = Table::new(["model", "about"]);
    for entry in registry::ALL {
        table.row([entry.name, entry.about]);
    }
    terminal.data(table)?;
    let models: Vec<_> = registry::ALL
        .iter()
        .map(|entry| json!({ "name": entry.name, "about": entry.about }))
        .collect();
    terminal.json(&models)?;
    Ok(Exit::Done)
}
