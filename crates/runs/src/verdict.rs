//! Where the time of a run went, in words, with the evidence beside it.
//!
//! The rules are few and stated, and each looks at what was measured, never at what was asked for:
//!
//! 1. Tasks were lost, and a quarter of the time there were no steps. The run was stopped from outside, or has too few cores, because a quota, the hypervisor, other programs or its own number of
//!    threads is in the way: nothing else can be told before that is gone.
//! 2. A phase that is not compute takes a quarter of the time. What lies behind it is looked for: a disk, one slow worker, a
//!    link at its capacity, a server at its limit.
//! 3. Otherwise compute is the limit, and the question becomes whether the cores were really busy with it.
//!
//! What removing a limit would save is an upper bound (the rest would still take its time), and it is said to be one.

mod evidence;
mod words;

pub use evidence::{
    Evidence, Examples, Link, NodeLoad, ServerLoad, Stop, Surroundings, WorkerLoad,
};

use crate::PhaseTimes;
use serde::{Deserialize, Serialize};

/// A phase that takes at least this share of the steps is what holds them up.
const HOLDS_UP: f64 = 0.25;
/// Below this share of the threads' time the cores were not really computing.
const BUSY: f64 = 0.6;
/// Workers that keep less than this of a core busy each, and do not wait for one, are not computing, whatever their steps say.
const COMPUTES: f64 = 0.3;
/// Fewer steps than this say little.
const FEW_STEPS: u64 = 20;
/// Less time than this, in seconds, says little.
const SHORT_SECONDS: f64 = 0.2;
/// Handing anything from one thread to another takes about this long, in seconds: a phase that is shorter is a fixed cost of the
/// step, not something that is slow to come.
const HAND_OVER_SECONDS: f64 = 10e-6;
/// Steps shorter than this, in seconds, are dominated by fixed costs on any machine.
const TINY_STEP_SECONDS: f64 = 100e-6;
/// Other programs that take this share of the cores hold a run up, if no core is left idle.
const TAKEN: f64 = 0.25;
/// Cores are all in use when less than this share of them is idle.
const IDLE: f64 = 0.15;
/// A run whose threads were ready and had no core for this share of their time wants more than it gets.
const MISSED: f64 = 0.15;
/// A run that is stopped from outside for this share of the time is held up by it.
const STOPPED: f64 = 0.1;
/// A hypervisor that takes this share of the cores holds a run up.
const STOLEN: f64 = 0.1;
/// Own threads that wait for this share of their time, because there are more than cores, are too many.
const CROWDED: f64 = 0.25;
/// A cgroup that stops its processes for this share of the time holds them up.
const THROTTLED: f64 = 0.1;
/// A disk that is busy, or waited for, this share of the time is what input waits for.
const DISK_BUSY: f64 = 0.6;
/// Waiting for memory this share of the time is more than an accident.
const MEMORY_PRESSURE: f64 = 0.1;
/// A worker that costs a synchronous job this share of its time is a straggler; less cannot be told from the differences that
/// workers of equal speed have.
const COSTS: f64 = 0.1;
/// Pages a second that a run reads back from disk when its memory is too small.
const FAULTS: f64 = 10.0;
/// A link used to this share of its capacity is full.
const LINK_FULL: f64 = 0.7;
/// A server that keeps this share of its threads busy is at its limit.
const SERVER_FULL: f64 = 0.7;

/// All programs but this run.
const OTHERS: &str = "other programs";
/// What runs this machine beside others.
const HYPERVISOR: &str = "the hypervisor";

/// What limits a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Limit {
    /// Batches do not arrive in time.
    Input,
    /// The cores are busy with the model: nothing stands in their way.
    Compute,
    /// Steps are so short that fixed costs dominate.
    SmallSteps,
    /// The model does not keep its threads busy.
    IdleCores,
    /// Steps wait for something outside of what is measured: an accelerator, a lock, another machine.
    Idle,
    /// Other programs take the cores, or a limit does.
    TakenCores,
    /// The run has more threads than cores, and they wait for each other.
    TooManyThreads,
    /// The run's processes were stopped from outside.
    Stopped,
    /// Tasks were lost, and the others made no steps until the run went on.
    Recovery,
    /// Processes wait for memory.
    Memory,
    /// Gradients and weights take longer to move than to make; why is not known.
    Exchange,
    /// A link is at its capacity.
    Network,
    /// A parameter server is at its limit.
    Server,
    /// One worker holds all others up.
    Straggler,
    /// Workers wait for each other, none more than the rest.
    Synchronisation,
    /// Nothing was measured.
    #[default]
    Unknown,
}

impl Limit {
    /// The word that programs use, as it is serialised.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Limit::Input => "input",
            Limit::Compute => "compute",
            Limit::SmallSteps => "small-steps",
            Limit::IdleCores => "idle-cores",
            Limit::Idle => "idle",
            Limit::TakenCores => "taken-cores",
            Limit::TooManyThreads => "too-many-threads",
            Limit::Stopped => "stopped",
            Limit::Recovery => "recovery",
            Limit::Memory => "memory",
            Limit::Exchange => "exchange",
            Limit::Network => "network",
            Limit::Server => "server",
            Limit::Straggler => "straggler",
            Limit::Synchronisation => "synchronisation",
            Limit::Unknown => "unknown",
        }
    }

    /// The name that people use, as in "network-bound".
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Limit::Input => "input-bound",
            Limit::Compute => "compute-bound",
            Limit::SmallSteps => "bound by small steps",
            Limit::IdleCores => "compute-bound on few cores",
            Limit::Idle => "idle",
            Limit::TakenCores => "short of cores",
            Limit::TooManyThreads => "more threads than cores",
            Limit::Stopped => "stopped from outside",
            Limit::Recovery => "held up by lost tasks",
            Limit::Memory => "memory-bound",
            Limit::Exchange => "exchange-bound",
            Limit::Network => "network-bound",
            Limit::Server => "server-bound",
            Limit::Straggler => "straggler-bound",
            Limit::Synchronisation => "synchronisation-bound",
            Limit::Unknown => "unknown",
        }
    }
}

/// The verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What limits the run.
    pub limit: Limit,
    /// The task, disk or link behind it, where one is.
    pub culprit: Option<String>,
    /// One or two sentences.
    pub words: String,
    /// Share of the time that removing the limit would save at most.
    pub saving: f64,
    /// Whether there is too little evidence to lean on.
    pub thin: bool,
    /// What it rests on, each in a sentence.
    pub evidence: Vec<String>,
}

/// A limit with what was found behind it.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    limit: Limit,
    culprit: Option<String>,
    /// Share of the time that removing it would save at most.
    saving: f64,
    /// Number that the words need: a share of a link, a factor of a straggler.
    measure: Option<f64>,
}

impl Found {
    fn new(limit: Limit, saving: f64) -> Found {
        Found { limit, culprit: None, saving, measure: None }
    }

    fn by(self, culprit: &str, measure: Option<f64>) -> Found {
        Found { culprit: Some(culprit.to_owned()), measure, ..self }
    }
}

/// Says what limits a run, from its phases alone.
#[must_use]
pub fn judge(evidence: &Evidence) -> Verdict {
    judge_within(evidence, &Surroundings::default())
}

/// Says what limits a run, from its phases and what happened around it.
#[must_use]
pub fn judge_within(evidence: &Evidence, around: &Surroundings) -> Verdict {
    if evidence.steps == 0 || evidence.seconds <= 0.0 {
        return Verdict {
            limit: Limit::Unknown,
            culprit: None,
            words: "no step was measured, so nothing can be said".to_owned(),
            saving: 0.0,
            thin: true,
            evidence: Vec::new(),
        };
    }
    let found = recovering(evidence, around)
        .or_else(|| stopped(evidence, around))
        .or_else(|| taken_cores(evidence, around))
        .or_else(|| crowded(around))
        .or_else(|| thrashes(around))
        .or_else(|| held_up(evidence, around))
        .or_else(|| straggler(evidence, around))
        .or_else(|| waits_for_memory(around))
        .unwrap_or_else(|| computing(evidence, around));
    let thin = evidence.steps < FEW_STEPS || evidence.seconds < SHORT_SECONDS;
    let mut words = words::verdict(&found, evidence, around);
    if thin {
        words = format!(
            "{words} (thin evidence: {} steps in {:.2} s)",
            evidence.steps, evidence.seconds
        );
    }
    Verdict {
        limit: found.limit,
        culprit: found.culprit,
        words,
        saving: found.saving,
        thin,
        evidence: words::evidence(evidence, around),
    }
}

/// Tasks were lost, and the others could not go on at once.
fn recovering(evidence: &Evidence, around: &Surroundings) -> Option<Found> {
    let share = evidence.phases.recovery;
    let found = Found::new(Limit::Recovery, share);
    let found = match &*around.lost {
        [] => found,
        lost => found.by(&lost.join(", "), None),
    };
    (share >= HOLDS_UP).then_some(found)
}

/// The run itself was stopped. Where one worker was and the others waited for it, it is a straggler.
fn stopped(evidence: &Evidence, around: &Surroundings) -> Option<Found> {
    let worst = around.stops.iter().max_by(|a, b| a.share.total_cmp(&b.share))?;
    let straggles = straggler(evidence, around).is_some();
    (worst.share >= STOPPED && !straggles)
        .then(|| Found::new(Limit::Stopped, worst.share).by(&worst.task, Some(worst.share)))
}

/// More threads than cores: they wait for each other, and no other program is to blame.
fn crowded(around: &Surroundings) -> Option<Found> {
    let nodes = around.nodes.iter().filter_map(|node| {
        let cores = node.allowed.or(node.cores)?;
        let missed = node.missed()?;
        (node.own_threads() > cores && missed >= CROWDED).then_some((node, missed))
    });
    let (node, missed) = nodes.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Found::new(Limit::TooManyThreads, missed).by(&node.host, node.waiting))
}

/// Cores that this run wanted and did not get, on the machine where it lacked most.
fn taken_cores(evidence: &Evidence, around: &Surroundings) -> Option<Found> {
    let place = |node: &NodeLoad| match around.nodes.len() {
        1 => String::new(),
        _ => format!(" on {}", node.host),
    };
    let throttled = around.nodes.iter().filter_map(|node| Some((node, node.throttled?)));
    let worst = throttled.max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((node, share)) = worst.filter(|(_, share)| *share >= THROTTLED) {
        let culprit = format!("the cgroup's quota{}", place(node));
        return Some(Found::new(Limit::TakenCores, share).by(&culprit, Some(share)));
    }
    let stolen = around.nodes.iter().filter_map(|node| {
        // Where other programs are told apart is not known on hosts of one name; their cores are.
        Some((node, node.stolen?, node.cores.or(node.allowed)?))
    });
    let worst = stolen.max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((node, stolen, _)) = worst.filter(|(_, stolen, cores)| *stolen >= STOLEN * cores) {
        let saving = stolen / (stolen + node.own.unwrap_or(0.0)).max(stolen);
        let culprit = format!("{HYPERVISOR}{}", place(node));
        return Some(Found::new(Limit::TakenCores, saving).by(&culprit, Some(stolen)));
    }
    // Where waiting was not counted, a run that mostly waits for others is taken not to want those cores.
    let wants = evidence.phases.own() >= 0.5;
    let PhaseTimes { input, exchange, wait, .. } = evidence.phases;
    let held_up = input.max(exchange).max(wait);
    let taken = around.nodes.iter().filter_map(|node| {
        let (cores, busy, _) = (node.cores?, node.busy?, node.own?);
        let taken = node.others() / cores;
        let idle = (cores - busy) / cores;
        // Cores that a run does not ask for are not taken from it: it may wait for a disk. Those that it asks for in the middle of an exchange
        // are, whatever the phase is called.
        let missed = match node.missed() {
            Some(missed) => missed,
            None if wants => taken,
            None => 0.0,
        };
        // No run gains more than the time its threads waited for a core. One that sleeps through its input and has to wait a little
        // whenever it wakes up is slow for what is left of the input.
        let waited = node.waiting.map_or(missed, |waiting| waiting.min(1.0));
        let explains = waited >= held_up - waited;
        let lacks = taken >= TAKEN && idle <= IDLE && missed >= MISSED && explains;
        lacks.then_some((node, taken, cores, missed.min(waited)))
    });
    let (node, taken, cores, missed) = taken.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let culprit = format!("{OTHERS}{}", place(node));
    Some(Found::new(Limit::TakenCores, taken.min(missed)).by(&culprit, Some(taken * cores)))
}

/// The phase that holds the steps up, and what lies behind it.
fn held_up(evidence: &Evidence, around: &Surroundings) -> Option<Found> {
    let PhaseTimes { input, exchange, wait, .. } = evidence.phases;
    let together = evidence.phases.together();
    let largest = input.max(exchange).max(wait);
    if largest < HOLDS_UP && together < HOLDS_UP {
        return None;
    }
    let step = evidence.seconds / evidence.steps as f64;
    if largest.max(together) * step < HAND_OVER_SECONDS {
        return None;
    }
    let slow = straggler(evidence, around);
    let cost = slow.as_ref().map_or(0.0, |found| found.saving);
    if input >= HOLDS_UP && input >= together && input >= cost {
        let found = Found::new(Limit::Input, input);
        let worst = around.nodes.iter().max_by(|a, b| a.disk().total_cmp(&b.disk()));
        return Some(match worst.filter(|node| node.disk() >= DISK_BUSY) {
            Some(node) if around.nodes.len() > 1 => {
                found.by(&format!("the disk of {}", node.host), Some(node.disk()))
            }
            Some(node) => found.by("the disk", Some(node.disk())),
            None => found,
        });
    }
    if slow.is_some() {
        return slow;
    }
    if let Some(link) = fullest(&around.links) {
        return Some(Found::new(Limit::Network, together).by(&link.0, Some(link.1)));
    }
    let busiest = around.servers.iter().max_by(|a, b| a.load().total_cmp(&b.load()));
    if let Some(server) = busiest.filter(|server| server.load() >= SERVER_FULL) {
        return Some(Found::new(Limit::Server, together).by(&server.task, Some(server.load())));
    }
    // All machines are idle and bytes are in flight: the network, even if its capacity is unknown. If it is known and
    // not used up, the cause is something else: round trips, or the protocol.
    let idle = !around.nodes.is_empty()
        && around
            .nodes
            .iter()
            .all(|node| node.cores.zip(node.busy).is_some_and(|(cores, busy)| busy < 0.5 * cores));
    let moving =
        around.links.iter().max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second));
    let unknown = |link: &&Link| link.capacity.is_none() && link.bytes_per_second >= 1e6;
    if let Some(link) = moving.filter(|link| idle && unknown(link)) {
        return Some(Found::new(Limit::Network, together).by(&link.task, None));
    }
    Some(if wait > exchange {
        Found::new(Limit::Synchronisation, wait)
    } else {
        Found::new(Limit::Exchange, exchange)
    })
}

/// One worker whose own work takes longer than that of the others, which wait for it meanwhile, if that costs the job enough.
fn straggler(evidence: &Evidence, around: &Surroundings) -> Option<Found> {
    slowest(evidence, around).filter(|found| found.saving >= COSTS)
}

/// The worker that the others wait for, and the share of the time that it costs: at best it becomes as fast as they are.
fn slowest(evidence: &Evidence, around: &Surroundings) -> Option<Found> {
    let mut workers: Vec<&WorkerLoad> =
        around.workers.iter().filter(|worker| worker.own_seconds_per_step > 0.0).collect();
    workers.sort_by(|a, b| a.own_seconds_per_step.total_cmp(&b.own_seconds_per_step));
    let (slowest, others) = workers.split_last()?;
    let usual = others.get(others.len() / 2)?.own_seconds_per_step;
    // Waited for is the share of those who wait: the straggler itself never does. A job in lockstep that does not tell waiting from exchange
    // waits inside its exchange.
    let count = around.workers.len() as f64;
    let PhaseTimes { exchange, wait, .. } = evidence.phases;
    let waited = if evidence.waits_in_exchange { wait + exchange } else { wait };
    let waited = waited * count / (count - 1.0);
    let step = evidence.seconds * (1.0 - evidence.phases.recovery) / evidence.steps as f64;
    let cost = ((slowest.own_seconds_per_step - usual) / step).min(waited);
    let factor = slowest.own_seconds_per_step / usual;
    Some(Found::new(Limit::Straggler, cost.max(0.0)).by(&slowest.task, Some(factor)))
}

/// The link that is used most, if it is full.
fn fullest(links: &[Link]) -> Option<(String, f64)> {
    links
        .iter()
        .filter_map(|link| Some((link.task.clone(), link.share()?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, share)| *share >= LINK_FULL)
}

/// Memory that the run itself reads back from disk all the time: whatever phase that is in, more memory is what it lacks.
fn thrashes(around: &Surroundings) -> Option<Found> {
    let own = around.nodes.iter().any(|node| node.major_faults.is_some_and(|rate| rate >= FAULTS));
    waits_for_memory(around).filter(|_| own)
}

fn waits_for_memory(around: &Surroundings) -> Option<Found> {
    let pressure = around.nodes.iter().filter_map(|node| node.memory_pressure);
    let pressure = pressure.max_by(f64::total_cmp).filter(|share| *share >= MEMORY_PRESSURE)?;
    Some(Found::new(Limit::Memory, pressure).by("memory", Some(pressure)))
}

/// Compute is the limit; whether it uses what there is.
fn computing(evidence: &Evidence, around: &Surroundings) -> Found {
    let waited: f64 = around.nodes.iter().filter_map(|node| node.waiting).sum();
    let workers = around.workers.len().max(1) as f64;
    let waits = evidence.busy_cores.is_some_and(|busy| busy + waited < COMPUTES * workers);
    let idle = evidence
        .busy_cores
        .is_some_and(|busy| evidence.threads > 1 && busy < BUSY * evidence.threads as f64);
    let stepping = evidence.seconds * (1.0 - evidence.phases.recovery);
    let step = stepping / evidence.steps as f64;
    let limit = if step < TINY_STEP_SECONDS.max(evidence.framework_seconds) {
        Limit::SmallSteps
    } else if waits {
        Limit::Idle
    } else if idle {
        Limit::IdleCores
    } else {
        Limit::Compute
    };
    Found::new(limit, 0.0)
}

#[cfg(test)]
mod tests;
