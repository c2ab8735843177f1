//! What past runs took: the history an advisor may learn from.

use crate::catalogue::{Catalogue, MachineSize};
use crate::error::AdvisorError;
use paceline_forecast::table::{Row, Table, TableError, TablePlace, parse};
use paceline_stats::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// Longer than any run, in seconds: figures that follow from it stay readable.
const CENTURY: f64 = 3.2e9;

/// How a run ended. A run that did not complete was paid for all the same.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It finished.
    Completed {
        /// Wall time.
        seconds: f64,
    },
    /// It broke off by itself: out of memory, a lost machine.
    Failed {
        /// Wall time until then, 0 if unknown.
        seconds: f64,
    },
    /// It was stopped because it took too long.
    TimedOut {
        /// Wall time until then.
        seconds: f64,
    },
}

impl Outcome {
    /// Wall time that was paid for.
    #[must_use]
    pub fn seconds(self) -> f64 {
        match self {
            Self::Completed { seconds } | Self::Failed { seconds } | Self::TimedOut { seconds } => {
                seconds
            }
        }
    }

    /// The time, if the run completed.
    #[must_use]
    pub fn completed(self) -> Option<f64> {
        if let Self::Completed { seconds } = self { Some(seconds) } else { None }
    }

    /// The same run, so many times as long.
    pub(crate) fn stretched(self, by: f64) -> Self {
        match self {
            Self::Completed { seconds } => Self::Completed { seconds: seconds * by },
            Self::Failed { seconds } => Self::Failed { seconds: seconds * by },
            Self::TimedOut { seconds } => Self::TimedOut { seconds: seconds * by },
        }
    }

    /// Whether the time can be: above zero and less than a century. When a failed run broke off may be unknown; a time of
    /// zero says so.
    #[must_use]
    pub(crate) fn possible(self) -> bool {
        let seconds = self.seconds();
        let unknown = seconds == 0.0 && matches!(self, Self::Failed { .. });
        (seconds > 0.0 && seconds < CENTURY) || unknown
    }
}

/// One run of one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The job, with its input.
    pub workload: String,
    /// What the job computes, whatever the input and framework: what is left out together.
    pub application: String,
    /// Index into the catalogue.
    pub configuration: usize,
    /// Which repetition.
    pub run: u32,
    pub outcome: Outcome,
    /// Resource metrics, in the order of [`Measurements::metric_names`]; empty where none were taken.
    pub metrics: Vec<f64>,
    /// Whether it ran on machines outside the catalogue, of which this configuration is the most similar; the time is then what it
    /// would have taken on as many cores.
    pub stands_in: bool,
}

/// A history of runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measurements {
    metric_names: Vec<String>,
    rows: Vec<Measurement>,
    outside: OutsideRuns,
}

/// One entry of a JSON history.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRow {
    workload: String,
    application: Option<String>,
    machine: String,
    count: u32,
    cores: Option<f64>,
    memory_gib: Option<f64>,
    #[serde(default = "first_run")]
    run: u32,
    seconds: Option<f64>,
    #[serde(default = "yes")]
    completed: bool,
    #[serde(default)]
    timed_out: bool,
    #[serde(default)]
    metrics: BTreeMap<String, f64>,
}

fn first_run() -> u32 {
    1
}

fn yes() -> bool {
    true
}

const METRIC: &str = "metric.";
const COLUMNS: &[&str] = &[
    "workload",
    "application",
    "machine",
    "count",
    "cores",
    "memory_gib",
    "run",
    "seconds",
    "completed",
    "timed_out",
];

impl Measurements {
    /// Reads `*.csv`, `*.csv.gz` (`workload,machine,count,seconds,completed`, and where there are any
    /// `application`, `run`, `timed_out`, `cores`, `memory_gib`, `metric.NAME`) or `*.json` (a list of the same). Runs on machines
    /// outside the catalogue count for the configuration most like theirs, where their size is known, and are left out otherwise.
    pub fn read(path: &Path, catalogue: &Catalogue) -> Result<Self, AdvisorError> {
        let name = path.to_string_lossy();
        let measurements = if name.ends_with(".csv") || name.ends_with(".csv.gz") {
            Self::from_csv(path, catalogue)?
        } else if name.ends_with(".json") {
            Self::from_json(path, catalogue)?
        } else {
            let expected = ".csv, .csv.gz, .json";
            return Err(AdvisorError::Ending { path: path.to_path_buf(), expected });
        };
        if let (true, Some(machine)) =
            (measurements.rows.is_empty(), measurements.outside.machines.first())
        {
            let (path, machine) = (path.to_path_buf(), machine.clone());
            let runs = measurements.outside.skipped;
            return Err(AdvisorError::NothingComparable { path, runs, machine });
        }
        if measurements.rows.is_empty() {
            return Err(AdvisorError::EmptyHistory { path: path.to_path_buf() });
        }
        if measurements.rows.iter().all(|row| row.outcome.completed().is_none()) {
            let (path, runs) = (path.to_path_buf(), measurements.rows.len());
            return Err(AdvisorError::NeverMeasured { path, runs });
        }
        Ok(measurements)
    }

    fn from_csv(path: &Path, catalogue: &Catalogue) -> Result<Self, AdvisorError> {
        let mut table = Table::open(path)?;
        let known = |name: &str| COLUMNS.contains(&name) || name.starts_with(METRIC);
        if let Some(column) = table.header().iter().find(|name| !known(name)) {
            let column = column.clone();
            return Err(TableError::UnknownColumn { path: path.to_path_buf(), column }.into());
        }
        let workload = table.column("workload")?;
        let machine = table.column("machine")?;
        let count = table.column("count")?;
        let seconds = table.column("seconds")?;
        let [application, run, completed, timed_out] =
            ["application", "run", "completed", "timed_out"].map(|name| table.find(name));
        let sizes = ["cores", "memory_gib"].map(|name| (name, table.find(name)));
        let metric_columns: Vec<usize> = (0..table.header().len())
            .filter(|&column| table.header()[column].starts_with(METRIC))
            .collect();
        let names = metric_columns.iter().map(|&at| table.header()[at][METRIC.len()..].to_owned());
        let mut builder = Builder::new(catalogue, names.collect());
        while let Some(row) = table.next_row()? {
            let whole = |value: f64| value >= 1.0 && value.fract() == 0.0 && value < 1e9;
            let machines = row.number(count, "count", "a whole number above zero", whole)? as u32;
            let mut size = [None; 2];
            for (slot, (name, column)) in size.iter_mut().zip(sizes) {
                if let (Some(at), Some(_)) = (column, row.optional(column)) {
                    *slot = Some(row.number(at, name, "a number above zero", |v| v > 0.0)?);
                }
            }
            let on = RanOn::new(row.text(machine), machines, size);
            let run = match (run, row.optional(run)) {
                (Some(at), Some(_)) => row.number(at, "run", "a whole number above zero", whole)?,
                _ => 1.0,
            };
            let flag = |column: Option<usize>, name: &str, default: bool| {
                row.optional(column).map_or(Ok(default), |text| boolean(&row.place, name, text))
            };
            let taken = row
                .optional(Some(seconds))
                .map(|_| row.number(seconds, "seconds", "a time in seconds", |_| true))
                .transpose()?;
            let outcome = outcome(
                &row.place,
                taken,
                flag(completed, "completed", true)?,
                flag(timed_out, "timed_out", false)?,
            )?;
            let mut metrics = Vec::new();
            // All or nothing: a half-filled fingerprint cannot be compared.
            if metric_columns.iter().all(|&at| !row.text(at).is_empty()) {
                for (&at, name) in metric_columns.iter().zip(&builder.metric_names) {
                    let column = format!("{METRIC}{name}");
                    metrics.push(row.number(at, &column, "a number", |_| true)?);
                }
            }
            let workload = row.text(workload).to_owned();
            let application = row.optional(application).unwrap_or(&workload).to_owned();
            let run = run as u32;
            builder.add(NewRun { workload, application, on, run, outcome, metrics }, &row.place)?;
        }
        Ok(builder.finish())
    }

    fn from_json(path: &Path, catalogue: &Catalogue) -> Result<Self, AdvisorError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| AdvisorError::Read { path: path.to_path_buf(), source })?;
        let rows: Vec<JsonRow> = serde_json::from_str(&text)
            .map_err(|source| AdvisorError::Json { path: path.to_path_buf(), source })?;
        // Only metrics that every run with metrics has can be compared.
        let mut with_metrics = rows.iter().filter(|row| !row.metrics.is_empty());
        let mut names: Vec<String> = with_metrics
            .next()
            .map(|row| row.metrics.keys().cloned().collect())
            .unwrap_or_default();
        for row in with_metrics {
            names.retain(|name| row.metrics.contains_key(name));
        }
        let mut builder = Builder::new(catalogue, names);
        for (entry, row) in rows.into_iter().enumerate() {
            let place = TablePlace::new(path, Row::Entry(entry + 1));
            let size = [row.cores, row.memory_gib];
            for (name, value) in ["cores", "memory_gib"].into_iter().zip(size) {
                if let Some(value) = value {
                    parse(&place, name, &value.to_string(), "a number above zero", |v| v > 0.0)?;
                }
            }
            let on = RanOn::new(&row.machine, row.count, size);
            let outcome = outcome(&place, row.seconds, row.completed, row.timed_out)?;
            let metrics = builder
                .metric_names
                .iter()
                .filter_map(|name| row.metrics.get(name).copied())
                .collect();
            let application = row.application.unwrap_or_else(|| row.workload.clone());
            let (workload, run) = (row.workload, row.run);
            builder.add(NewRun { workload, application, on, run, outcome, metrics }, &place)?;
        }
        Ok(builder.finish())
    }

    /// A history from parts known to be sound.
    #[must_use]
    pub fn from_parts(metric_names: Vec<String>, rows: Vec<Measurement>) -> Self {
        Self { metric_names, rows, outside: OutsideRuns::default() }
    }

    /// The same, with what became of runs on other machines.
    pub(crate) fn with_outside(self, outside: OutsideRuns) -> Self {
        Self { outside, ..self }
    }

    /// What became of runs on machines outside the catalogue.
    #[must_use]
    pub fn outside(&self) -> &OutsideRuns {
        &self.outside
    }

    /// Every run.
    #[must_use]
    pub fn rows(&self) -> &[Measurement] {
        &self.rows
    }

    /// What the metrics are called.
    #[must_use]
    pub fn metric_names(&self) -> &[String] {
        &self.metric_names
    }

    /// The names of all workloads, sorted.
    #[must_use]
    pub fn workloads(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.rows.iter().map(|row| row.workload.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The history without one application: what may be known before its first run.
    #[must_use]
    pub fn without_application(&self, application: &str) -> Self {
        let rows = self.rows.iter().filter(|row| row.application != application).cloned().collect();
        Self::from_parts(self.metric_names.clone(), rows)
    }

    /// So many jobs, drawn at random; all if there are fewer.
    pub(crate) fn some_jobs(&self, most: usize, random: &mut Random) -> Self {
        let mut names = self.workloads();
        if most >= names.len() {
            return self.clone();
        }
        random.shuffle(&mut names);
        names.truncate(most);
        let kept = |row: &&Measurement| names.contains(&row.workload.as_str());
        let rows = self.rows.iter().filter(kept).cloned().collect();
        Self::from_parts(self.metric_names.clone(), rows)
    }
}

fn boolean(place: &TablePlace, column: &str, text: &str) -> Result<bool, AdvisorError> {
    match text {
        "true" | "True" | "1" | "yes" => Ok(true),
        "false" | "False" | "0" | "no" => Ok(false),
        _ => Err(TableError::Value {
            place: place.clone(),
            column: column.to_owned(),
            text: text.to_owned(),
            expected: "true or false",
        }
        .into()),
    }
}

fn outcome(
    place: &TablePlace,
    seconds: Option<f64>,
    completed: bool,
    timed_out: bool,
) -> Result<Outcome, AdvisorError> {
    let time = |seconds: f64| {
        if seconds.is_finite() && seconds > 0.0 {
            Ok(seconds)
        } else {
            Err(AdvisorError::BadTime { place: place.clone(), seconds })
        }
    };
    match (completed, seconds) {
        (true, Some(_)) if timed_out => Err(TableError::Value {
            place: place.clone(),
            column: "timed_out".to_owned(),
            text: "true".to_owned(),
            expected: "false for a completed run",
        }
        .into()),
        (true, Some(seconds)) => Ok(Outcome::Completed { seconds: time(seconds)? }),
        (true, None) => Err(AdvisorError::NoTime { place: place.clone() }),
        (false, Some(seconds)) if timed_out => Ok(Outcome::TimedOut { seconds: time(seconds)? }),
        (false, Some(seconds)) => Ok(Outcome::Failed { seconds: time(seconds)? }),
        (false, None) => Ok(Outcome::Failed { seconds: 0.0 }),
    }
}

/// What became of runs on machines that the catalogue does not hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutsideRuns {
    /// Runs that count for the most similar configuration.
    pub kept: usize,
    /// Runs that say nothing of the catalogue: nothing in it is like theirs, or their size is not known.
    pub skipped: usize,
    /// The machines of those, sorted.
    pub machines: Vec<String>,
}

impl OutsideRuns {
    pub(crate) fn skip(&mut self, machine: &str) {
        self.skipped += 1;
        if let Err(at) = self.machines.binary_search_by(|known| known.as_str().cmp(machine)) {
            self.machines.insert(at, machine.to_owned());
        }
    }

    /// In words; nothing where every run was on a machine of the catalogue.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let runs =
            |count: usize| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
        let kept = (self.kept > 0).then(|| {
            let kept = runs(self.kept);
            format!("{kept} on machines outside the catalogue for the most similar one in it")
        });
        let skipped = (self.skipped > 0).then(|| {
            let mut names: Vec<&str> = self.machines.iter().take(3).map(String::as_str).collect();
            if self.machines.len() > 3 {
                names.push("others");
            }
            let (skipped, names) = (runs(self.skipped), names.join(", "));
            format!("not {skipped} on machines unlike any in it, or of unknown size ({names})")
        });
        let parts: Vec<String> = kept.into_iter().chain(skipped).collect();
        (!parts.is_empty()).then(|| format!("the history counts {}", parts.join("; ")))
    }
}

/// Where a run of a history was made.
struct RanOn {
    machine: String,
    count: u32,
    size: Option<MachineSize>,
}

impl RanOn {
    fn new(machine: &str, count: u32, [cores, memory_gib]: [Option<f64>; 2]) -> Self {
        let size = cores.zip(memory_gib);
        let size = size.map(|(cores, memory_gib)| MachineSize { cores, memory_gib });
        Self { machine: machine.to_owned(), count, size }
    }
}

/// A row of a history before it is known what it stands for.
struct NewRun {
    workload: String,
    application: String,
    on: RanOn,
    run: u32,
    outcome: Outcome,
    metrics: Vec<f64>,
}

/// Collects rows and refuses repetitions.
struct Builder<'a> {
    catalogue: &'a Catalogue,
    metric_names: Vec<String>,
    rows: Vec<Measurement>,
    /// Job, machine, how many, which run: where it stood and what came of it.
    seen: HashMap<(String, String, u32, u32), (Row, Outcome)>,
    outside: OutsideRuns,
}

impl<'a> Builder<'a> {
    fn new(catalogue: &'a Catalogue, metric_names: Vec<String>) -> Self {
        let (rows, seen) = (Vec::new(), HashMap::new());
        Self { catalogue, metric_names, rows, seen, outside: OutsideRuns::default() }
    }

    fn add(&mut self, new: NewRun, place: &TablePlace) -> Result<(), AdvisorError> {
        let NewRun { workload, application, on, run, outcome, metrics } = new;
        if workload.is_empty() {
            return Err(TableError::Value {
                place: place.clone(),
                column: "workload".to_owned(),
                text: String::new(),
                expected: "a name",
            }
            .into());
        }
        let key = (workload.clone(), on.machine.clone(), on.count, run);
        if let Some(&(first, known)) = self.seen.get(&key) {
            let place = place.clone();
            return Err(if known == outcome {
                AdvisorError::DuplicateMeasurement { place, first }
            } else {
                AdvisorError::Contradiction { place, first }
            });
        }
        self.seen.insert(key, (place.row, outcome));
        let Some((configuration, power)) = self.catalogue.stand_in(&on.machine, on.count, on.size)
        else {
            self.outside.skip(&on.machine);
            return Ok(());
        };
        let stands_in = power.is_some();
        let outcome = outcome.stretched(power.unwrap_or(1.0));
        self.rows.push(Measurement {
            workload,
            application,
            configuration,
            run,
            outcome,
            metrics,
            stands_in,
        });
        Ok(())
    }

    fn finish(self) -> Measurements {
        let Self { metric_names, rows, mut outside, .. } = self;
        let rows = without_needless(rows);
        outside.kept = rows.iter().filter(|row| row.stands_in).count();
        Measurements { metric_names, rows, outside }
    }
}

/// What a job took on a configuration needs no stand-in.
pub(crate) fn without_needless(rows: Vec<Measurement>) -> Vec<Measurement> {
    let measured: HashSet<(String, usize)> = rows
        .iter()
        .filter(|row| !row.stands_in)
        .map(|row| (row.workload.clone(), row.configuration))
        .collect();
    let needed = |row: &Measurement| {
        !row.stands_in || !measured.contains(&(row.workload.clone(), row.configuration))
    };
    rows.into_iter().filter(needed).collect()
}
