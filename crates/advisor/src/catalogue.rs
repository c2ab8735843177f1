//! What can be rented: machine types, how many of each, what they cost.
//!
//! The order of the file is kept; a configuration is named by its index everywhere inside the crate.

use crate::error::AdvisorError;
use crate::extra_columns::{self, ColumnKinds, ExtraColumns, ExtraValue};
use paceline_forecast::table::{Row, Table, TableError, TablePlace, parse};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// One machine type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The provider's name.
    pub name: String,
    /// Virtual cores.
    pub cores: f64,
    pub memory_gib: f64,
    /// Dollars per hour for one of them.
    pub usd_per_hour: f64,
    /// Clock or relative speed of a core, in any unit the whole catalogue shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Disk throughput in MB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb_per_s: Option<f64>,
    /// Network in Gbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_gbit: Option<f64>,
    /// Whatever else the catalogue says of it, by column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, ExtraValue>,
}

/// Some number of one machine type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Configuration {
    /// Index of the machine in the catalogue.
    pub machine: usize,
    pub count: u32,
}

/// How large a machine is, wherever it can be rented.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MachineSize {
    pub(crate) cores: f64,
    pub(crate) memory_gib: f64,
}

/// `ln` of the largest ratio of cores in all, or of memory per core, between clusters that can stand for each other: one half to two.
const ALIKE: f64 = 0.7;

/// The candidates of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalogue {
    machines: Vec<Machine>,
    configurations: Vec<Configuration>,
    index: HashMap<Configuration, usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlCatalogue {
    #[serde(default)]
    machine: Vec<TomlMachine>,
}

#[derive(Deserialize)]
struct TomlMachine {
    name: String,
    cores: f64,
    memory_gib: f64,
    usd_per_hour: Option<f64>,
    counts: Vec<u32>,
    speed: Option<f64>,
    disk_mb_per_s: Option<f64>,
    network_gbit: Option<f64>,
    #[serde(flatten)]
    extra: BTreeMap<String, toml::Value>,
}

const COLUMNS: &[&str] = &[
    "machine",
    "count",
    "cores",
    "memory_gib",
    "usd_per_hour",
    "speed",
    "disk_mb_per_s",
    "network_gbit",
];

impl Catalogue {
    /// Reads `*.csv` (one row per machine type; `count` is one number or several, as `4;8;16`) or
    /// `*.toml` (`[[machine]]` with `counts = [4, 8, 16]`). Columns and keys of any other name are dimensions of the search.
    pub fn read(path: &Path) -> Result<Self, AdvisorError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
        let catalogue = match ending {
            "csv" => Self::from_csv(path)?,
            "toml" => Self::from_toml(path)?,
            _ => {
                return Err(AdvisorError::Ending {
                    path: path.to_path_buf(),
                    expected: ".csv, .toml",
                });
            }
        };
        if catalogue.is_empty() {
            return Err(AdvisorError::EmptyCatalogue { path: path.to_path_buf() });
        }
        Ok(catalogue)
    }

    fn from_csv(path: &Path) -> Result<Self, AdvisorError> {
        let mut table = Table::open(path)?;
        let [machine, count, cores, memory] = [
            table.column("machine")?,
            table.column("count")?,
            table.column("cores")?,
            table.column("memory_gib")?,
        ];
        let price = table.column("usd_per_hour")?;
        let known = ["speed", "disk_mb_per_s", "network_gbit"].map(|name| (name, table.find(name)));
        let others: Vec<(usize, String)> = table
            .header()
            .iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty() && !COLUMNS.contains(&name.as_str()))
            .map(|(at, name)| (at, name.clone()))
            .collect();
        let mut builder = Builder::default();
        while let Some(row) = table.next_row()? {
            let name = row.text(machine).to_owned();
            if row.text(price).is_empty() {
                return Err(AdvisorError::NoPrice { place: row.place, machine: name });
            }
            let above = |value: f64| value > 0.0;
            let mut optional = [None; 3];
            for (slot, (name, column)) in optional.iter_mut().zip(known) {
                if let Some(text) = row.optional(column) {
                    *slot = Some(parse(&row.place, name, text, "a number above zero", above)?);
                }
            }
            let counts = row
                .text(count)
                .split([';', ' '])
                .filter(|text| !text.is_empty())
                .map(|text| count_of(&row.place, text))
                .collect::<Result<Vec<_>, _>>()?;
            let mut extra = BTreeMap::new();
            for (at, name) in &others {
                if let Some(value) = ExtraValue::read(&row.place, name, row.text(*at))? {
                    extra.insert(name.clone(), value);
                }
            }
            let [speed, disk_mb_per_s, network_gbit] = optional;
            let found = Machine {
                cores: row.number(cores, "cores", "a number above zero", above)?,
                memory_gib: row.number(memory, "memory_gib", "a number above zero", above)?,
                usd_per_hour: row.number(price, "usd_per_hour", "a price above zero", above)?,
                name,
                speed,
                disk_mb_per_s,
                network_gbit,
                extra,
            };
            builder.add(found, &counts, row.place)?;
        }
        Ok(builder.finish())
    }

    fn from_toml(path: &Path) -> Result<Self, AdvisorError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| AdvisorError::Read { path: path.to_path_buf(), source })?;
        let parsed: TomlCatalogue = toml::from_str(&text)
            .map_err(|source| AdvisorError::Toml { path: path.to_path_buf(), source })?;
        let mut builder = Builder::default();
        for (entry, machine) in parsed.machine.into_iter().enumerate() {
            let place = TablePlace::new(path, Row::Entry(entry + 1));
            let TomlMachine { name, cores, memory_gib, usd_per_hour, counts, .. } = machine;
            let Some(usd_per_hour) = usd_per_hour else {
                return Err(AdvisorError::NoPrice { place, machine: name });
            };
            let checked = [
                ("cores", Some(cores)),
                ("memory_gib", Some(memory_gib)),
                ("usd_per_hour", Some(usd_per_hour)),
                ("speed", machine.speed),
                ("disk_mb_per_s", machine.disk_mb_per_s),
                ("network_gbit", machine.network_gbit),
            ];
            for (column, value) in checked {
                if let Some(value) = value {
                    parse(&place, column, &value.to_string(), "a number above zero", |v| v > 0.0)?;
                }
            }
            if counts.contains(&0) {
                count_of(&place, "0")?;
            }
            let mut extra = BTreeMap::new();
            for (key, value) in &machine.extra {
                if let Some(value) = ExtraValue::from_toml(&place, key, value)? {
                    extra.insert(key.clone(), value);
                }
            }
            let found = Machine {
                name,
                cores,
                memory_gib,
                usd_per_hour,
                speed: machine.speed,
                disk_mb_per_s: machine.disk_mb_per_s,
                network_gbit: machine.network_gbit,
                extra,
            };
            builder.add(found, &counts, place)?;
        }
        Ok(builder.finish())
    }

    /// A catalogue from parts that are known to be sound; a repeated configuration is kept once.
    #[must_use]
    pub fn from_parts(parts: impl IntoIterator<Item = (Machine, Vec<u32>)>) -> Self {
        let mut catalogue =
            Self { machines: Vec::new(), configurations: Vec::new(), index: HashMap::new() };
        for (machine, counts) in parts {
            let at = catalogue.machines.len();
            catalogue.machines.push(machine);
            for count in counts {
                let configuration = Configuration { machine: at, count };
                if !catalogue.index.contains_key(&configuration) {
                    catalogue.index.insert(configuration, catalogue.configurations.len());
                    catalogue.configurations.push(configuration);
                }
            }
        }
        catalogue
    }

    /// How many configurations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.configurations.len()
    }

    /// Whether there is nothing to choose from.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.configurations.is_empty()
    }

    /// The machine types.
    #[must_use]
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// All configurations; their positions are their names.
    #[must_use]
    pub fn configurations(&self) -> &[Configuration] {
        &self.configurations
    }

    /// The machine type of a configuration.
    #[must_use]
    pub fn machine(&self, configuration: usize) -> &Machine {
        &self.machines[self.configurations[configuration].machine]
    }

    /// How many machines a configuration has.
    #[must_use]
    pub fn count(&self, configuration: usize) -> u32 {
        self.configurations[configuration].count
    }

    /// Dollars per hour of the whole configuration.
    #[must_use]
    pub fn usd_per_hour(&self, configuration: usize) -> f64 {
        self.machine(configuration).usd_per_hour * f64::from(self.count(configuration))
    }

    /// Dollars for `seconds` on a configuration.
    #[must_use]
    pub fn cost(&self, configuration: usize, seconds: f64) -> f64 {
        self.usd_per_hour(configuration) * seconds / 3600.0
    }

    /// Memory of the whole configuration in GiB.
    #[must_use]
    pub fn memory_gib(&self, configuration: usize) -> f64 {
        self.machine(configuration).memory_gib * f64::from(self.count(configuration))
    }

    /// Such as `4 x m4.large`.
    #[must_use]
    pub fn name(&self, configuration: usize) -> String {
        format!("{} x {}", self.count(configuration), self.machine(configuration).name)
    }

    /// The index of a configuration.
    #[must_use]
    pub fn find(&self, machine: &str, count: u32) -> Option<usize> {
        let machine = self.machines.iter().position(|found| found.name == machine)?;
        self.index.get(&Configuration { machine, count }).copied()
    }

    /// The configuration that is most like so many machines of a size, if any is like it at all, and how many times as many cores
    /// those have: what ran elsewhere can stand for a run there.
    pub(crate) fn most_like(&self, size: MachineSize, count: u32) -> Option<(usize, f64)> {
        let MachineSize { cores, memory_gib } = size;
        let ratios = |at: usize| {
            let machine = self.machine(at);
            let counts = f64::from(count) / f64::from(self.count(at));
            let power = cores / machine.cores * counts;
            let per_core = memory_gib / cores / (machine.memory_gib / machine.cores);
            [power, per_core, counts]
        };
        (0..self.len())
            .map(|at| (at, ratios(at)))
            .filter(|(_, [power, per_core, _])| {
                power.ln().abs() <= ALIKE && per_core.ln().abs() <= ALIKE
            })
            .min_by(|a, b| {
                let off = |[power, per_core, counts]: [f64; 3]| {
                    power.ln().powi(2) + per_core.ln().powi(2) + 0.25 * counts.ln().powi(2)
                };
                off(a.1).total_cmp(&off(b.1))
            })
            .map(|(at, [power, ..])| (at, power))
    }

    /// What a run tells of: its own configuration, or the one most like it with how many times as many cores the run had.
    pub(crate) fn stand_in(
        &self,
        machine: &str,
        count: u32,
        size: Option<MachineSize>,
    ) -> Option<(usize, Option<f64>)> {
        if let Some(at) = self.find(machine, count) {
            return Some((at, None));
        }
        let known = self.machines.iter().find(|found| found.name == machine);
        let known =
            known.map(|found| MachineSize { cores: found.cores, memory_gib: found.memory_gib });
        let (at, power) = self.most_like(known.or(size)?, count)?;
        Some((at, Some(power)))
    }

    /// What became of the catalogue's columns that nothing here knows.
    #[must_use]
    pub fn extra_columns(&self) -> ExtraColumns {
        extra_columns::coordinates(&self.machines).1
    }

    /// Coordinates of the catalogue's own columns, one row per column, a value for every configuration.
    fn extra_values(&self) -> Vec<Vec<f64>> {
        let of_machines = extra_columns::coordinates(&self.machines).0;
        let spread = |column: Vec<f64>| {
            self.configurations.iter().map(|found| column[found.machine]).collect()
        };
        of_machines.into_iter().map(spread).collect()
    }

    /// Properties that a failure may hang on, each with its value for every configuration.
    pub(crate) fn properties(&self) -> Vec<Vec<f64>> {
        let column = |of: &dyn Fn(&Machine, f64) -> f64| -> Vec<f64> {
            let value = |at: usize| of(self.machine(at), f64::from(self.count(at)));
            (0..self.len()).map(value).collect()
        };
        let known = vec![
            column(&|_, count| count),
            column(&|machine, _| machine.cores),
            column(&|machine, count| machine.cores * count),
            column(&|machine, _| machine.memory_gib),
            column(&|machine, _| machine.memory_gib / machine.cores),
            column(&|machine, count| machine.memory_gib * count),
            column(&|machine, _| machine.speed.unwrap_or(0.0)),
            column(&|machine, _| machine.disk_mb_per_s.unwrap_or(0.0)),
            column(&|machine, _| machine.network_gbit.unwrap_or(0.0)),
        ];
        known.into_iter().chain(self.extra_values()).collect()
    }

    /// Coordinates in the unit cube, one row per configuration: number of machines, cores, memory per
    /// core, speed, disk, network, and the catalogue's own columns. Amounts that multiply are taken as logarithms; columns that
    /// do not vary, or that some machine lacks, are left out.
    #[must_use]
    pub fn features(&self) -> Vec<Vec<f64>> {
        type Column = fn(&Machine, f64) -> Option<f64>;
        let columns: [Column; 6] = [
            |_, count| Some(count.ln()),
            |machine, _| Some(machine.cores.ln()),
            |machine, _| Some((machine.memory_gib / machine.cores).ln()),
            |machine, _| machine.speed,
            |machine, _| machine.disk_mb_per_s.map(f64::ln),
            |machine, _| machine.network_gbit.map(f64::ln),
        ];
        let known = columns.into_iter().filter_map(|column| {
            let of = |at| column(self.machine(at), f64::from(self.count(at)));
            (0..self.len()).map(of).collect::<Option<Vec<f64>>>()
        });
        let mut rows = vec![Vec::new(); self.len()];
        for values in known.chain(self.extra_values()) {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if high - low > 1e-9 {
                for (row, value) in rows.iter_mut().zip(values) {
                    row.push((value - low) / (high - low));
                }
            }
        }
        rows
    }
}

fn count_of(place: &TablePlace, text: &str) -> Result<u32, AdvisorError> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| {
        TableError::Value {
            place: place.clone(),
            column: "count".to_owned(),
            text: text.to_owned(),
            expected: "a whole number of machines above zero",
        }
        .into()
    })
}

/// Collects machines and refuses repetitions.
#[derive(Default)]
struct Builder {
    parts: Vec<(Machine, Vec<u32>)>,
    seen: HashMap<(String, u32), Row>,
    kinds: ColumnKinds,
}

impl Builder {
    fn add(
        &mut self,
        machine: Machine,
        counts: &[u32],
        place: TablePlace,
    ) -> Result<(), AdvisorError> {
        if machine.name.is_empty() {
            return Err(TableError::Value {
                place,
                column: "machine".to_owned(),
                text: String::new(),
                expected: "a name",
            }
            .into());
        }
        if counts.is_empty() {
            count_of(&place, "")?;
        }
        self.kinds.check(&place, &machine.extra)?;
        for &count in counts {
            if let Some(&first) = self.seen.get(&(machine.name.clone(), count)) {
                let machine = machine.name;
                return Err(AdvisorError::DuplicateConfiguration { place, machine, count, first });
            }
            self.seen.insert((machine.name.clone(), count), place.row);
        }
        // One machine type may be spread over several rows, one count each.
        match self.parts.iter_mut().find(|(known, _)| known.name == machine.name) {
            Some((known, all)) => {
                if *known != machine {
                    return Err(TableError::Value {
                        place,
                        column: "machine".to_owned(),
                        text: machine.name,
                        expected: "the same machine as in an earlier row, with the same properties",
                    }
                    .into());
                }
                all.extend_from_slice(counts);
            }
            None => self.parts.push((machine, counts.to_vec())),
        }
        Ok(())
    }

    fn finish(self) -> Catalogue {
        Catalogue::from_parts(self.parts)
    }
}
