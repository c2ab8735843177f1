//! The Scout set: recorded runs of Hadoop and Spark jobs on AWS machines (oxhead/scout, MIT).
//!
//! Multi-node: 18 workloads on 69 configurations, once each. Single-node: 117 workloads on 18 machine
//! types, up to six times. Columns that give the result away (`throughput_*`, time stamps,
//! instance ids) are never read.

use crate::catalogue::{Catalogue, Machine};
use crate::error::AdvisorError;
use crate::measurements::{Measurement, Measurements, Outcome};
use paceline_forecast::table::Table;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Which half of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Clusters of 4 to 48 machines.
    MultiNode,
    /// One machine.
    SingleNode,
}

/// Which prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prices {
    /// On-demand prices of us-east-1, from the set's own table.
    OnDemand,
    /// The rounded prices behind Crispy's published figures; c4, m4 and r4 only.
    Rounded,
}

/// Recorded runs and the catalogue they belong to.
#[derive(Debug, Clone)]
pub struct RecordedSet {
    /// What could be rented.
    pub catalogue: Arc<Catalogue>,
    /// What it took.
    pub runs: Arc<Measurements>,
}

/// Runs longer than this were stopped by the people who recorded them, in seconds.
const LIMIT: f64 = 7200.0;

/// Low-level metrics that Arrow uses, all means over the run.
pub(crate) const METRICS: [&str; 6] =
    ["cpu.%usr", "cpu.%iowait", "load.plist-sz", "memory.%commit", "disk.%util", "disk.await"];

/// Cores, memory in GiB per core of each family (large has two cores), clock in GHz.
const FAMILIES: [(&str, f64, f64); 6] = [
    ("c3", 1.875, 2.8),
    ("c4", 1.875, 2.9),
    ("m3", 3.75, 2.5),
    ("m4", 4.0, 2.4),
    ("r3", 7.625, 2.5),
    ("r4", 7.625, 2.3),
];
const SIZES: [(&str, f64); 3] = [("large", 2.0), ("xlarge", 4.0), ("2xlarge", 8.0)];

impl RecordedSet {
    /// Reads any catalogue and runs of several jobs on it, in the formats that a search reads.
    pub fn from_files(catalogue: &Path, history: &Path) -> Result<Self, AdvisorError> {
        let catalogue = Catalogue::read(catalogue)?;
        let runs = Measurements::read(history, &catalogue)?;
        let set = Self { catalogue: Arc::new(catalogue), runs: Arc::new(runs) };
        match set.jobs() {
            0 | 1 => {
                Err(AdvisorError::TooFewJobs { path: history.to_path_buf(), jobs: set.jobs() })
            }
            _ => Ok(set),
        }
    }

    /// Jobs that completed somewhere.
    #[must_use]
    pub fn jobs(&self) -> usize {
        let own = self.runs.rows().iter().filter(|row| !row.stands_in);
        let completed = own.filter(|row| row.outcome.completed().is_some());
        let mut names: Vec<&str> = completed.map(|row| row.workload.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }

    /// Reads one half of the set from its folder.
    pub fn read(folder: &Path, half: Half, prices: Prices) -> Result<Self, AdvisorError> {
        let stem = match half {
            Half::MultiNode => "osr_multiple_nodes",
            Half::SingleNode => "osr_single_node",
        };
        let usd = read_prices(folder, prices)?;
        let metrics = read_metrics(&folder.join(format!("{stem}_sar_mean.csv.gz")))?;
        let path = folder.join(format!("{stem}_runs.csv.gz"));
        let mut table = Table::open(&path)?;
        let id = table.column("id")?;
        let nodes = table.column("n_nodes")?;
        let machine = table.column("vm_type")?;
        let [workload, framework, size] =
            [table.column("workload")?, table.column("framework")?, table.column("datasize")?];
        let completed = table.column("completed")?;
        let elapsed = table.column("elapsed_s")?;
        let mut raw = Vec::new();
        let mut counts: HashMap<String, Vec<u32>> = HashMap::new();
        while let Some(row) = table.next_row()? {
            let whole = |value: f64| value >= 1.0 && value.fract() == 0.0;
            let count = row.number(nodes, "n_nodes", "a whole number", whole)? as u32;
            let name = row.text(machine).to_owned();
            let known = counts.entry(name.clone()).or_default();
            if !known.contains(&count) {
                known.push(count);
            }
            let seconds = match row.optional(Some(elapsed)) {
                Some(_) => row.number(elapsed, "elapsed_s", "a time", |value| value > 0.0)?,
                None => 0.0,
            };
            let outcome = match (row.text(completed) == "True", seconds) {
                (true, seconds) if seconds > 0.0 => Outcome::Completed { seconds },
                (_, seconds) if seconds >= LIMIT => Outcome::TimedOut { seconds },
                (_, seconds) => Outcome::Failed { seconds },
            };
            let found = metrics.get(row.text(id)).cloned().unwrap_or_default();
            let job = [workload, framework, size].map(|column| row.text(column).to_owned());
            raw.push((job, name, count, outcome, found));
        }
        let catalogue = catalogue(folder, &usd, counts)?;
        let mut repeats: HashMap<(String, usize), u32> = HashMap::new();
        let rows = raw
            .into_iter()
            .filter_map(|(job, machine, count, outcome, metrics)| {
                let configuration = catalogue.find(&machine, count)?;
                let [application, framework, size] = &job;
                let workload = format!("{application}_{framework}_{size}");
                let run = repeats.entry((workload.clone(), configuration)).or_default();
                *run += 1;
                let application = group(application).to_owned();
                Some(Measurement {
                    workload,
                    application,
                    configuration,
                    run: *run,
                    outcome,
                    metrics,
                    stands_in: false,
                })
            })
            .collect();
        let names = METRICS.map(str::to_owned).to_vec();
        let runs = Arc::new(Measurements::from_parts(names, rows));
        Ok(Self { catalogue: Arc::new(catalogue), runs })
    }
}

/// One name for what computes the same under another: these must be left out together.
fn group(application: &str) -> &str {
    match application {
        "bayes" => "naive-bayes",
        "classification" => "lr", // both are logistic regression
        other => other,
    }
}

fn catalogue(
    folder: &Path,
    usd: &HashMap<String, f64>,
    mut counts: HashMap<String, Vec<u32>>,
) -> Result<Catalogue, AdvisorError> {
    let mut parts = Vec::new();
    for (family, memory_per_core, speed) in FAMILIES {
        for (size, cores) in SIZES {
            let name = format!("{family}.{size}");
            let Some(mut counts) = counts.remove(&name) else { continue };
            counts.sort_unstable();
            let &usd_per_hour = usd.get(&name).ok_or_else(|| AdvisorError::IncompleteSet {
                path: folder.to_path_buf(),
                what: "a machine of the runs has no price",
            })?;
            let machine = Machine {
                name,
                cores,
                memory_gib: memory_per_core * cores,
                usd_per_hour,
                speed: Some(speed),
                disk_mb_per_s: None,
                network_gbit: None,
                extra: BTreeMap::new(),
            };
            parts.push((machine, counts));
        }
    }
    if !counts.is_empty() {
        return Err(AdvisorError::IncompleteSet {
            path: folder.to_path_buf(),
            what: "the runs name a machine type that is not known",
        });
    }
    Ok(Catalogue::from_parts(parts))
}

fn read_prices(folder: &Path, prices: Prices) -> Result<HashMap<String, f64>, AdvisorError> {
    let mut found = HashMap::new();
    match prices {
        Prices::OnDemand => {
            let mut table = Table::open(&folder.join("aws_prices.csv"))?;
            let machine = table.column("vm_type")?;
            let price = table.column("usd_per_hour")?;
            while let Some(row) = table.next_row()? {
                let usd = row.number(price, "usd_per_hour", "a price above zero", |v| v > 0.0)?;
                found.insert(row.text(machine).to_owned(), usd);
            }
        }
        Prices::Rounded => {
            let families = [
                ("c4", [0.10, 0.20, 0.40]),
                ("m4", [0.10, 0.20, 0.40]),
                ("r4", [0.13, 0.27, 0.54]),
            ];
            for (family, usd) in families {
                for ((size, _), usd) in SIZES.iter().zip(usd) {
                    found.insert(format!("{family}.{size}"), usd);
                }
            }
        }
    }
    Ok(found)
}

fn read_metrics(path: &Path) -> Result<HashMap<String, Vec<f64>>, AdvisorError> {
    let mut table = Table::open(path)?;
    let id = table.column("id")?;
    let mut columns = Vec::new();
    for name in METRICS {
        columns.push(table.column(name)?);
    }
    let mut found = HashMap::new();
    while let Some(row) = table.next_row()? {
        let values: Option<Vec<f64>> =
            columns.iter().map(|&column| row.text(column).parse().ok()).collect();
        if let Some(values) = values {
            found.insert(row.text(id).to_owned(), values);
        }
    }
    Ok(found)
}
