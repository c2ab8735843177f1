//! A verdict in sentences.

use super::{
    COSTS, Evidence, Examples, Found, HOLDS_UP, HYPERVISOR, Limit, NodeLoad, OTHERS, Surroundings,
};
use paceline_stats::words::number;

/// Cores that other programs must keep busy to be worth a word where nothing points at them.
const NEIGHBOUR: f64 = 0.25;

/// No remedy saves a run its whole time, however little of it a measurement shows beside the limit.
const MOST_SAVED: f64 = 0.999;

/// A share of what would make it the limit, from which on something is worth a word.
const NOTEWORTHY: f64 = 0.3;

/// Whether a run has several tasks, so that one must be named.
fn has_several_tasks(around: &Surroundings) -> bool {
    around.workers.len() + around.servers.len() > 1 || around.stops.len() > 1
}

/// A share that is not quite all is never said to be all.
fn percent(share: f64) -> String {
    if (0.995..1.0).contains(&share) {
        return format!("{:.1} %", (1000.0 * share).floor() / 10.0);
    }
    format!("{:.0} %", 100.0 * share)
}

/// What limits the run, why that is believed, and what would help.
pub(super) fn verdict(found: &Found, evidence: &Evidence, around: &Surroundings) -> String {
    let name = found.limit.name();
    let culprit = found.culprit.as_deref().unwrap_or_default();
    let saving = percent(found.saving.min(MOST_SAVED));
    match found.limit {
        Limit::Input => {
            let waited = percent(evidence.phases.input);
            match (&found.culprit, found.measure) {
                (Some(_), Some(busy)) => format!(
                    "{name}: {waited} of the time the model waited for data, and {culprit} was busy {} of it; prepared shards, a cache or a faster \
                     disk would save at most {saving}",
                    percent(busy)
                ),
                _ => {
                    let help = match evidence.examples {
                        Examples::Images => "prepared shards, a cache or smaller images",
                        Examples::Rows => {
                            "rows prepared into shards, or more threads to parse them,"
                        }
                        Examples::Any => "more loader threads or a cache",
                    };
                    format!(
                        "{name}: {waited} of the time the model waited for data; {help} would save at most {saving}"
                    )
                }
            }
        }
        Limit::TakenCores if culprit.starts_with(OTHERS) => {
            let node = around.nodes.iter().find(|node| culprit.ends_with(&node.host));
            let cores = node.or(around.nodes.first()).and_then(|node| node.cores);
            format!(
                "{name}: {culprit} kept {:.1} of {:.0} cores busy while none was idle; without them the run would take at most {saving} less time",
                found.measure.unwrap_or_default(),
                cores.unwrap_or_default()
            )
        }
        Limit::TakenCores if culprit.starts_with(HYPERVISOR) => format!(
            "{name}: {culprit} gave {:.1} cores to other machines while this run wanted them; without that it would take at most {saving} less time",
            found.measure.unwrap_or_default()
        ),
        Limit::TooManyThreads => {
            let node = around.nodes.iter().find(|node| node.host == culprit);
            let (threads, cores) = node.map_or((0.0, 0.0), |node| {
                (node.own_threads(), node.allowed.or(node.cores).unwrap_or(0.0))
            });
            let on = if around.nodes.len() > 1 { format!(" on {culprit}") } else { String::new() };
            format!(
                "{name}{on}: {threads:.0} threads share {cores:.0} cores, and {:.1} of them on average were ready and waited for a core; fewer \
                 threads or workers would wait less, more cores would save at most {saving}",
                found.measure.unwrap_or_default()
            )
        }
        Limit::Stopped => {
            let who = if has_several_tasks(around) { culprit } else { "the process" };
            format!(
                "{name}: {who} was stopped {saving} of the time by a signal (SIGSTOP, Ctrl-Z), a frozen cgroup or a paused machine; without that \
                 the run would take at most {saving} less time"
            )
        }
        Limit::Recovery => {
            let who = if culprit.is_empty() { "a task" } else { culprit };
            let was = if culprit.contains(", ") { "were" } else { "was" };
            format!(
                "{name}: {who} {was} lost, and {saving} of the time passed without steps until the run continued; without losses it would take \
                 at most {saving} less time"
            )
        }
        Limit::TakenCores => format!(
            "{name}: {culprit} stopped the run {} of the time; a larger quota would save at most {saving}",
            percent(found.measure.unwrap_or_default())
        ),
        Limit::Memory => format!(
            "{name}: processes waited for memory {} of the time; a smaller batch or cache would save at most {saving}",
            percent(found.measure.unwrap_or_default())
        ),
        Limit::Network => {
            let link = around.links.iter().find(|link| link.task == culprit);
            let rate = link.map_or(0.0, |link| link.while_used);
            let used = match found.measure {
                // Measured in bursts of a few milliseconds; a little more than all is all.
                Some(share) => format!("{} of the link", percent(share.min(1.0))),
                None => "while most cores were idle; the link's capacity is not known".to_owned(),
            };
            format!(
                "{name} on {culprit}: {} MB/s, {used}; exchange and waiting took {saving} of the time, removing the exchange would save at most that much",
                number(rate / 1e6)
            )
        }
        Limit::Server => format!(
            "{name}: {culprit} kept {} of its threads busy while workers waited; a second server or a larger batch would save at most {saving}",
            percent(found.measure.unwrap_or_default())
        ),
        Limit::Straggler => {
            let stop = around.stops.iter().find(|stop| stop.task == culprit && stop.share >= 0.05);
            let stopped = stop.map_or_else(String::new, |stop| {
                format!(" (its process was stopped {} of the time)", percent(stop.share))
            });
            format!(
                "{name}: {culprit}{stopped} takes {} times as long as the others for its own work, and they wait for it; without it the run would \
                 take at most {saving} less time",
                number(found.measure.unwrap_or_default())
            )
        }
        Limit::Exchange => format!(
            "{name}: moving gradients and weights took {saving} of the time; removing the exchange would save at most that much, a larger batch makes \
             it rarer"
        ),
        Limit::Synchronisation => format!(
            "{name}: workers waited for each other {saving} of the time, none was much slower than the rest; asynchronous updates or backup workers \
             would save at most that much"
        ),
        Limit::IdleCores => format!(
            "{name}: only {:.1} of {} threads were busy; this model and batch size do not use more, a larger batch or fewer threads would serve better",
            evidence.busy_cores.unwrap_or(0.0),
            evidence.threads
        ),
        Limit::Idle => format!(
            "{name}: {} of the time went into the steps themselves, which kept only {:.2} cores busy and found no core, disk or memory short; they \
             waited for something outside (an accelerator, a lock, a timer, another machine)",
            percent(evidence.phases.compute),
            evidence.busy_cores.unwrap_or(0.0)
        ),
        Limit::SmallSteps => format!(
            "{name}: {:.0} µs each, so fixed costs weigh; a larger batch would do more work per step",
            1e6 * evidence.seconds / evidence.steps as f64
        ),
        Limit::Compute => {
            let spent = percent(evidence.phases.compute);
            // Caches and memory are shared with other programs, and nothing counts who uses how much of them.
            let others: f64 = around.nodes.iter().map(NodeLoad::others).fold(0.0, f64::max);
            if others >= NEIGHBOUR {
                format!(
                    "{name}: {spent} of the time went into the model itself; other programs kept {others:.1} cores busy beside it and may have slowed \
                     it through shared caches and memory, which is not measured: compare with a run on a quiet machine"
                )
            } else {
                format!(
                    "{name}: {spent} of the time went into the model itself; nothing else that was measured stands in the way, so only faster or \
                     more cores would help{}",
                    next(evidence, around).unwrap_or_default()
                )
            }
        }
        Limit::Unknown => String::new(),
    }
}

/// What comes after compute, where it is more than an accident and less than is named as the limit.
fn next(evidence: &Evidence, around: &Surroundings) -> Option<String> {
    let slow = super::slowest(evidence, around);
    let (worker, cost) = slow
        .map_or((String::new(), 0.0), |found| (found.culprit.unwrap_or_default(), found.saving));
    let others = [
        ("input".to_owned(), evidence.phases.input, HOLDS_UP),
        ("exchange and waiting".to_owned(), evidence.phases.together(), HOLDS_UP),
        (format!("{worker}, slower than the others,"), cost, COSTS),
    ];
    let most = others.into_iter().max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)))?;
    let (what, share, named) = most;
    (share >= NOTEWORTHY * named).then(|| {
        format!(
            "; next is {what} with {}, too little to be named as the limit (from {})",
            percent(share),
            percent(named)
        )
    })
}

/// What the verdict rests on.
pub(super) fn evidence(evidence: &Evidence, around: &Surroundings) -> Vec<String> {
    let recovery = match evidence.phases.recovery {
        0.0 => String::new(),
        share => format!(", recovery {}", percent(share)),
    };
    let mut lines = vec![format!(
        "{} steps in {} s: input {}, compute {}, exchange {}, wait {}{recovery}",
        evidence.steps,
        number(evidence.seconds),
        percent(evidence.phases.input),
        percent(evidence.phases.compute),
        percent(evidence.phases.exchange),
        percent(evidence.phases.wait)
    )];
    for node in &around.nodes {
        let on = if around.nodes.len() > 1 { format!("{}: ", node.host) } else { String::new() };
        if let (Some(own), Some(all), Some(cores)) = (node.own, node.busy, node.cores) {
            lines.push(format!(
                "{on}{own:.1} cores busy for this run, {all:.1} of {cores:.0} in all"
            ));
        }
        if let Some(cores) = node.allowed.or(node.cores).filter(|cores| node.threads > *cores) {
            let unit = if cores == 1.0 { "core" } else { "cores" };
            lines.push(format!("{on}{:.0} threads share {cores:.0} {unit}", node.threads));
        }
        if let Some(waiting) = node.waiting.filter(|waiting| *waiting >= 0.05) {
            lines.push(format!(
                "{on}CPU wait: threads were ready for {waiting:.1} more cores than they got"
            ));
        }
        if let Some(stolen) = node.stolen.filter(|stolen| *stolen >= 0.05) {
            lines.push(format!("{on}the hypervisor took {stolen:.1} cores"));
        }
        let shares = [
            ("the cgroup's quota stopped the processes", node.throttled),
            ("the busiest disk was busy", node.disk_busy),
            ("some task waited for a disk", node.disk_pressure),
            ("some task waited for memory", node.memory_pressure),
        ];
        for (what, share) in shares {
            if let Some(share) = share.filter(|share| *share >= 0.01) {
                lines.push(format!("{on}{what} {} of the time", percent(share)));
            }
        }
    }
    for stop in around.stops.iter().filter(|stop| stop.share >= 0.01) {
        lines.push(format!(
            "{}: its process was stopped {} of the time",
            stop.task,
            percent(stop.share)
        ));
    }
    for worker in &around.workers {
        lines.push(format!(
            "{}: {} ms of its own work a step",
            worker.task,
            number(1e3 * worker.own_seconds_per_step)
        ));
    }
    for server in &around.servers {
        lines.push(format!("{}: {:.1} cores busy", server.task, server.busy_cores));
    }
    for link in &around.links {
        let of = match (link.share(), link.capacity) {
            (Some(share), Some(capacity)) => format!(
                ", {} of the {} MB/s that its link carries",
                percent(share.min(1.0)),
                number(capacity / 1e6)
            ),
            _ => String::new(),
        };
        lines.push(format!(
            "{}: {} MB/s while exchanging{of}",
            link.task,
            number(link.while_used / 1e6)
        ));
    }
    lines
}
