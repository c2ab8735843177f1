//! `paceline list`: everything there is to choose from, straight from the registries.

use crate::failure::Exit;
use crate::terminal::{Table, Terminal};
use paceline_models::{
    registry::{self, Defaults},
    sparse_logistic,
};
use paceline_sweep::{Recipe, recipes};
use serde_json::{Map, Value, json};

/// Arguments of `paceline list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One kind only
    kind: Option<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// What can be trained
    Models,
    /// How workers exchange gradients
    Strategies,
    /// Where data can come from
    Sources,
    /// Object stores that a URL may name
    Stores,
    /// Known data sets to download
    Datasets,
    /// What is recorded of a machine
    Probes,
    /// Methods that choose machines
    Advisors,
    /// Published experiments
    Recipes,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Models,
        Kind::Strategies,
        Kind::Sources,
        Kind::Stores,
        Kind::Datasets,
        Kind::Probes,
        Kind::Advisors,
        Kind::Recipes,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Models => "models",
            Kind::Strategies => "strategies",
            Kind::Sources => "sources",
            Kind::Stores => "stores",
            Kind::Datasets => "datasets",
            Kind::Probes => "probes",
            Kind::Advisors => "advisors",
            Kind::Recipes => "recipes",
        }
    }

    /// Names and a line about each.
    fn entries(self) -> Vec<(String, String)> {
        let pair = |name: &str, about: &str| (name.to_owned(), about.to_owned());
        match self {
            Kind::Models => registry::ALL
                .iter()
                .map(|entry| pair(entry.name, entry.about))
                .chain([pair(sparse_logistic::NAME, sparse_logistic::ABOUT)])
                .collect(),
            Kind::Strategies => {
                paceline_strategies::ALL.iter().map(|entry| pair(entry.name, entry.about)).collect()
            }
            Kind::Sources => paceline_data::sources::ALL
                .iter()
                .map(|entry| pair(entry.name, entry.about))
                .collect(),
            Kind::Stores => paceline_data::store::SERVICES
                .iter()
                .map(|entry| pair(entry.name, entry.about))
                .collect(),
            Kind::Datasets => paceline_prepare::fetch::datasets::ALL
                .iter()
                .map(|entry| pair(entry.name, entry.about))
                .collect(),
            // Columns are what people look up: `monitor --csv` and recipes name them.
            Kind::Probes => paceline_probes::ALL
                .iter()
                .flat_map(|entry| entry.columns)
                .map(|column| pair(column.name, column.about))
                .collect(),
            Kind::Advisors => paceline_advisor::methods::ALL
                .iter()
                .map(|entry| pair(entry.name, entry.about))
                .collect(),
            Kind::Recipes => recipes::ALL
                .iter()
                .filter_map(|(name, text)| {
                    let recipe = Recipe::parse(name, text).ok()?;
                    Some(((*name).to_owned(), recipe.title))
                })
                .collect(),
        }
    }
}

/// Optimiser and learning rate that a model has without being asked for others.
fn defaults_of(model: &str) -> Option<Defaults> {
    if model == sparse_logistic::NAME {
        return Some(sparse_logistic::DEFAULTS);
    }
    registry::find(model).ok().map(|entry| entry.defaults)
}

/// Lists.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let kinds: Vec<Kind> = args.kind.map_or_else(|| Kind::ALL.to_vec(), |kind| vec![kind]);
    let mut document = Map::new();
    let mut text = String::new();
    for kind in kinds {
        let entries = kind.entries();
        let of_models = kind == Kind::Models;
        let defaults = |name: &str| defaults_of(name).filter(|_| of_models);
        let mut table = if of_models {
            Table::new([kind.name(), "trains with", ""])
        } else {
            Table::new([kind.name(), ""])
        };
        for (name, about) in &entries {
            match defaults(name) {
                Some(Defaults { optimizer, rate }) => {
                    table.row([
                        format!("  {name}"),
                        format!("{optimizer} at {rate}"),
                        about.clone(),
                    ]);
                }
                None => table.row([format!("  {name}"), about.clone()]),
            }
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&table.to_string());
        let entries: Vec<Value> = entries
            .into_iter()
            .map(|(name, about)| match defaults(&name) {
                Some(Defaults { optimizer, rate }) => json!({
                    "name": name, "about": about, "optimizer": optimizer, "learning_rate": rate,
                }),
                None => json!({ "name": name, "about": about }),
            })
            .collect();
        document.insert(kind.name().to_owned(), Value::Array(entries));
    }
    terminal.data(text)?;
    terminal.json(&document)?;
    Ok(Exit::Done)
}
