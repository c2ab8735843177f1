//! `paceline list`: everything there is to choose from, straight from the registries.

mod models;

use crate::terminal::failure::{Exit, usage};
use crate::terminal::{Table, Terminal};
use models::ProfileArgs;
use paceline_models::{
    registry::{self, ModelDefaults, Named},
    sparse_logistic,
};
use paceline_sweep::{Recipe, recipes};
use serde_json::{Map, Value, json};

/// Arguments of `paceline list`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One kind only
    kind: Option<Kind>,
    #[command(flatten)]
    profile: ProfileArgs,
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

/// What a model has beside its name.
struct ModelFacts {
    defaults: ModelDefaults,
    parameters: u64,
    schema: Value,
}

impl ModelFacts {
    fn of(model: &str) -> anyhow::Result<Self> {
        let defaults = match registry::named(model)? {
            Named::Dense(entry) => entry.defaults,
            Named::Sparse => sparse_logistic::DEFAULTS,
        };
        let (parameters, schema) = models::shape(model)?;
        Ok(Self { defaults, parameters, schema })
    }
}

/// Lists.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    match (&args.profile.profile, args.kind) {
        (Some(model), Some(Kind::Models)) => {
            return models::profile(model, &args.profile, terminal);
        }
        (Some(model), _) => {
            return Err(usage(
                "`--profile` has no effect on a list",
                format!("leave it out, or use `paceline list models --profile {model}`"),
            ));
        }
        (None, _) => {}
    }
    let kinds: Vec<Kind> = args.kind.map_or_else(|| Kind::ALL.to_vec(), |kind| vec![kind]);
    let mut document = Map::new();
    let mut tables = Vec::new();
    for kind in kinds {
        let (table, entries) =
            if kind == Kind::Models { of_models(kind)? } else { of_others(kind) };
        tables.push(table.to_string());
        document.insert(kind.name().to_owned(), Value::Array(entries));
    }
    terminal.data(tables.join("\n"))?;
    terminal.json(&document)?;
    Ok(Exit::Done)
}

fn of_models(kind: Kind) -> anyhow::Result<(Table, Vec<Value>)> {
    let mut table = Table::new([kind.name(), "parameters", "trains with", ""]);
    let mut rows = Vec::new();
    for (name, about) in kind.entries() {
        let ModelFacts { defaults: ModelDefaults { optimizer, rate }, parameters, schema } =
            ModelFacts::of(&name)?;
        table.row([
            format!("  {name}"),
            parameters.to_string(),
            format!("{optimizer} at {rate}"),
            about.clone(),
        ]);
        rows.push(json!({
            "name": name, "about": about, "optimizer": optimizer, "learning_rate": rate,
            "parameters": parameters, "schema": schema,
        }));
    }
    Ok((table, rows))
}

fn of_others(kind: Kind) -> (Table, Vec<Value>) {
    let mut table = Table::new([kind.name(), ""]);
    let mut rows = Vec::new();
    for (name, about) in kind.entries() {
        table.row([format!("  {name}"), about.clone()]);
        rows.push(json!({ "name": name, "about": about }));
    }
    (table, rows)
}
