//! What every probe can do.

use crate::probes;
use paceline_registry::Named;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// One column of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name with its unit at the end, as the CSV header shows it.
    pub name: &'static str,
    pub about: &'static str,
}

/// Values that exist once per core, device or interface: name → column → value.
pub type Detail = BTreeMap<String, BTreeMap<&'static str, f64>>;

/// Reads one family of counters.
pub trait Probe: Send {
    /// Reads the counters and writes one value per column of its entry; `None` where it is not known.
    /// `elapsed` is the time since the last call; the first call only remembers the counters.
    fn sample(&mut self, elapsed: Duration, values: &mut [Option<f64>], detail: &mut Detail);
}

/// A probe as the registry knows it.
pub struct ProbeEntry {
    pub name: &'static str,
    /// The columns it fills, in order.
    pub columns: &'static [Column],
    pub open: fn(&Roots, Target) -> Box<dyn Probe>,
}

impl Named for ProbeEntry {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Where the kernel's files are; tests put their own tree there.
#[derive(Debug, Clone)]
pub struct Roots {
    /// Usually `/proc`.
    pub proc: PathBuf,
    /// Usually `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

impl Roots {
    /// Folder of the cgroup (version 2) that `target` runs in.
    #[must_use]
    pub fn cgroup(&self, target: Target) -> PathBuf {
        let file = self.proc.join(target.process.to_string()).join("cgroup");
        let own = std::fs::read_to_string(file).unwrap_or_default();
        let group = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
        self.sys.join("fs/cgroup").join(group.trim_start_matches('/'))
    }
}

/// The process whose own use is recorded beside the machine's, alone or with everything it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Target {
    pub process: u32,
    /// Its descendants count too.
    pub tree: bool,
}

impl Target {
    /// This very process.
    #[must_use]
    pub fn own() -> Self {
        Self::process(std::process::id())
    }

    /// One process without its children.
    #[must_use]
    pub const fn process(process: u32) -> Self {
        Self { process, tree: false }
    }

    /// A job: a process and all that it starts.
    #[must_use]
    pub const fn tree(process: u32) -> Self {
        Self { process, tree: true }
    }
}

/// All columns of all probes, in recording order.
pub fn columns() -> impl Iterator<Item = &'static Column> {
    probes::ALL.iter().flat_map(|entry| entry.columns)
}

/// Opens every probe.
#[must_use]
pub fn open_all(roots: &Roots, target: Target) -> Vec<(&'static ProbeEntry, Box<dyn Probe>)> {
    probes::ALL.iter().map(|entry| (*entry, (entry.open)(roots, target))).collect()
}
