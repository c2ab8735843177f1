//! What is known about a run and what happened around it.

use crate::PhaseTimes;

/// What the steps of a run tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Evidence {
    /// Steps measured.
    pub steps: u64,
    /// Seconds spent in them, and without them after a task was lost.
    pub seconds: f64,
    /// Shares of this time.
    pub phases: PhaseTimes,
    /// Whether workers in lockstep wait for each other inside their exchange, so that waiting is not told apart: as all-reduces of other
    /// frameworks do.
    pub waits_in_exchange: bool,
    /// Seconds that the framework itself takes for a step, whatever is computed in it; 0 where steps are driven by this program.
    pub framework_seconds: f64,
    /// Threads the kernels could use.
    pub threads: usize,
    /// Cores that the run's processes kept busy on average, where it was measured.
    pub busy_cores: Option<f64>,
    /// What is read.
    pub examples: Examples,
}

/// What a run reads, as far as advice on reading depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Examples {
    /// Not known, or neither of the others.
    #[default]
    Any,
    /// Pictures that are decoded.
    Images,
    /// Lines of text that are parsed.
    Rows,
}

/// What probes and other tasks tell. Whatever was not measured is absent, and no rule leans on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Surroundings {
    pub nodes: Vec<NodeLoad>,
    /// The workers, where there are several.
    pub workers: Vec<WorkerLoad>,
    pub servers: Vec<ServerLoad>,
    /// What the tasks send and receive.
    pub links: Vec<Link>,
    /// Tasks whose processes were stopped from outside.
    pub stops: Vec<Stop>,
    /// Tasks that were lost on the way, each once.
    pub lost: Vec<String>,
}

/// A task whose process was stopped as a whole: by a signal, a frozen cgroup or a paused machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Stop {
    pub task: String,
    /// Share of the time.
    pub share: f64,
}

/// What one machine did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeLoad {
    pub host: String,
    pub cores: Option<f64>,
    /// Cores of them that the run may use.
    pub allowed: Option<f64>,
    /// Threads that the run computes with there.
    pub threads: f64,
    /// All threads of the run's processes there, those that only wait among them.
    pub all_threads: Option<f64>,
    /// Cores that programs of this machine kept busy on average, the run's own among them.
    pub busy: Option<f64>,
    /// Cores that the hypervisor gave to others while they were wanted here.
    pub stolen: Option<f64>,
    /// Cores that the run's processes kept busy there.
    pub own: Option<f64>,
    /// Cores that they were ready to use and did not get.
    pub waiting: Option<f64>,
    /// Share of the time that the cgroup's quota stopped the processes.
    pub throttled: Option<f64>,
    /// Share of the time that the busiest disk was busy.
    pub disk_busy: Option<f64>,
    /// Share of the time that a process waited for a disk.
    pub disk_pressure: Option<f64>,
    /// Bytes a second that the run's processes read from disks.
    pub read: Option<f64>,
    /// Share of the time that a process waited for memory.
    pub memory_pressure: Option<f64>,
    /// Pages a second that the run's processes had to wait for because they were not in memory any more, or not yet.
    pub major_faults: Option<f64>,
}

impl NodeLoad {
    /// Cores that other programs kept busy.
    #[must_use]
    pub fn others(&self) -> f64 {
        self.busy.zip(self.own).map_or(0.0, |(busy, own)| (busy - own).max(0.0))
    }

    /// Threads that can be in each other's way: those that compute, or all of them where their number is not known and no other program
    /// can be what they wait for.
    #[must_use]
    pub fn own_threads(&self) -> f64 {
        let cores = self.allowed.or(self.cores).unwrap_or(f64::INFINITY);
        let alone = self.busy.is_some() && self.others() < ALONE * cores;
        match self.all_threads {
            Some(all) if alone && self.threads <= cores => self.threads.max(all),
            _ => self.threads,
        }
    }

    /// Share of their time that the run's threads were ready and had no core.
    #[must_use]
    pub fn missed(&self) -> Option<f64> {
        let (waiting, own) = (self.waiting?, self.own?);
        Some(if waiting < LITTLE { 0.0 } else { waiting / (waiting + own) })
    }

    /// Share of the time that the disk was busy or waited for, if the run reads from one at all.
    #[must_use]
    pub fn disk(&self) -> f64 {
        if self.read.is_some_and(|read| read < READS) {
            return 0.0;
        }
        self.disk_busy.into_iter().chain(self.disk_pressure).fold(0.0, f64::max)
    }
}

/// Other programs that use less than this share of the cores are not what a run waits for.
const ALONE: f64 = 0.1;
/// Fewer cores than this are not missed.
const LITTLE: f64 = 0.1;
/// Bytes a second below which a run does not read from disks to speak of: whatever they do, it is for others.
const READS: f64 = 1e4;

/// What one worker does in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerLoad {
    /// Its name, such as `worker/1`.
    pub task: String,
    /// Seconds of its own work in a step: input and compute, without exchange and waiting.
    pub own_seconds_per_step: f64,
}

/// How busy a parameter server is.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerLoad {
    /// Its name, such as `ps/0`.
    pub task: String,
    /// Cores that it kept busy on average.
    pub busy_cores: f64,
    /// Threads that it serves with.
    pub threads: usize,
}

impl ServerLoad {
    /// Share of its threads that it kept busy.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.busy_cores / self.threads.max(1) as f64
    }
}

/// What a task sends and receives, in the direction that is fuller.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    pub task: String,
    /// Bytes a second over the whole run.
    pub bytes_per_second: f64,
    /// Bytes a second while the task exchanged: a link that rests during compute can still be full.
    pub while_used: f64,
    /// Bytes a second that the link can carry, where it was measured.
    pub capacity: Option<f64>,
}

impl Link {
    /// Share of the capacity that was used while it was used at all.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        Some(self.while_used / self.capacity.filter(|capacity| *capacity > 0.0)?)
    }
}
