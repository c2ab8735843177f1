//! The verdict on a run, from everything its folder holds: the steps of all tasks, and what their machines did meanwhile.
//!
//! A run over several hosts leaves most of its records on the others. What the chief was told (`summary.json`: workers, tasks)
//! stands in for what is not here.

use crate::verdict::{
    Evidence, Link, NodeLoad, ServerLoad, Stop, Surroundings, WorkerLoad, judge_within,
};
pub use crate::verdict::{Examples, Limit, Verdict};
use crate::{
    Diagnosis, Event, Machine, PhaseTimes, RunFolder, RunState, RunView, RunsError, Status,
    Summary, TaskJoined, TaskLoad, WorkerSummary,
};
use std::collections::{BTreeMap, BTreeSet};

/// Interfaces that carry less than this, in bytes a second, carry no exchange.
const TALKS: f64 = 1e5;
/// Shares of the time below this are too short to divide by.
const SHORTEST_SHARE: f64 = 0.05;

/// The verdict on steps that another program timed and did not split.
const NO_PHASES: &str = "the steps do not say how their time divides into input, compute, exchange and wait, \
                         so what limits the run cannot be told";

/// Rows of a block.
const BLOCK: u64 = 1000;

/// About what a framework's calls take in a step, in seconds.
fn framework_seconds(framework: &str) -> f64 {
    // `fit` calls its callbacks and sums up its metrics after every batch.
    if framework.starts_with("Keras") { 2e-3 } else { 1e-3 }
}

/// Steps and seconds of one task.
#[derive(Debug, Clone, Copy, Default)]
struct TaskWork {
    steps: u64,
    seconds: f64,
    phases: PhaseTimes,
}

/// Judges a run.
#[must_use]
pub fn diagnose(run: &RunView) -> Verdict {
    let work = work_by_task(run);
    let steps = work.values().map(|one| one.steps).max().unwrap_or(0);
    let seconds = work.values().map(|one| one.seconds).fold(0.0, f64::max);
    let phases = work.values().map(|one| one.phases).sum::<PhaseTimes>().shares();
    let together = phases.together();
    let loads = loads(run);
    let working = loads.iter().filter(|load| is_worker(&load.task));
    let busy: Vec<f64> = working.filter_map(|load| load.process_cores).collect();
    // A process that learns from rows one by one hands them on in blocks: single rows would all be "small steps".
    let alone = run.examples == Examples::Rows && together == 0.0;
    let steps = if alone { run.summary.examples.div_ceil(BLOCK) } else { steps };
    let evidence = Evidence {
        steps,
        seconds,
        phases,
        waits_in_exchange: phases.wait == 0.0 && in_lockstep(&work),
        framework_seconds: run.framework().map_or(0.0, framework_seconds),
        // Replicas of one process share its count.
        threads: run.threads * busy.len().max(1),
        busy_cores: (!busy.is_empty()).then(|| busy.iter().sum()),
        examples: run.examples,
    };
    let around = Surroundings {
        nodes: nodes(&loads, run.threads),
        stops: stops(&loads),
        workers: if work.len() > 1 { worker_loads(&work) } else { Vec::new() },
        servers: servers(&loads),
        links: links(&loads, &run.summary.workers, together),
        lost: lost(run),
    };
    let mut verdict = judge_within(&evidence, &around);
    if verdict.limit == Limit::Unknown && run.summary.global_steps > 0 {
        verdict.words = NO_PHASES.to_owned();
    }
    verdict
}

/// Judges a run that has just ended, from its folder, and writes the verdict into its summary, there and here: all tasks' records
/// are written by now. A run that failed keeps the reason it gave.
///
/// # Errors
/// When the folder cannot be read or the summary not be written.
pub fn conclude(folder: &RunFolder, summary: &mut Summary) -> Result<(), RunsError> {
    if summary.status == Status::Failed {
        return Ok(());
    }
    let state = RunState::Ended(Box::new(summary.clone()));
    let mut view = RunView::gather(folder, &state)?;
    view.judge(&state);
    *summary = view.summary;
    folder.amend_summary(summary)
}

/// The verdict from what workers did alone, before their machines' records are at hand.
#[must_use]
pub fn first_words(summary: &Summary, threads: usize, examples: Examples) -> String {
    let view = RunView { summary: summary.clone(), threads, examples, ..RunView::default() };
    diagnose(&view).words
}

impl From<Verdict> for Diagnosis {
    fn from(verdict: Verdict) -> Self {
        Self {
            limit: verdict.limit.word().to_owned(),
            culprit: verdict.culprit,
            saving: verdict.saving,
            thin: verdict.thin,
            evidence: verdict.evidence,
        }
    }
}

fn is_worker(task: &str) -> bool {
    task.starts_with("worker") || task.starts_with("chief")
}

fn is_server(task: &str) -> bool {
    task.starts_with("ps")
}

/// What each worker did.
fn work_by_task(run: &RunView) -> BTreeMap<&str, TaskWork> {
    let workers = run.summary.workers.iter();
    workers.filter_map(|worker| Some((&*worker.task, counted(worker)?))).collect()
}

fn counted(worker: &WorkerSummary) -> Option<TaskWork> {
    (worker.phases.total() > 0.0).then(|| TaskWork {
        steps: worker.iterations,
        seconds: worker.seconds,
        phases: worker.phases.seconds_of(worker.seconds),
    })
}

/// What every task's machine did during its steps.
pub(crate) fn loads(run: &RunView) -> Vec<TaskLoad> {
    let known = |task: &str| run.summary.tasks.iter().find(|load| load.task == task);
    let unnamed = Machine::default();
    let machine = run.machine.as_ref().unwrap_or(&unnamed);
    let mut loads: Vec<TaskLoad> = run
        .resources
        .iter()
        .map(|(task, recording)| {
            let (from, to) = stepping(run, task);
            let mut load = TaskLoad::from_means(task, machine, |column| {
                recording.mean_between(column, from, to)
            });
            if let Some(known) = known(task) {
                load.host.clone_from(&known.host);
                load.address.clone_from(&known.address);
                load.send_capacity = known.send_capacity;
                load.receive_capacity = known.receive_capacity;
            } else if let Some(joined) = joined(run, task) {
                // A short run may be over before a task tells of its machine; where it is was said when it joined.
                load.host.clone_from(&joined.host);
                load.address = joined.address.clone().unwrap_or_default();
            }
            load
        })
        .collect();
    let here: BTreeSet<String> = loads.iter().map(|load| load.task.clone()).collect();
    loads.extend(run.summary.tasks.iter().filter(|load| !here.contains(&load.task)).cloned());
    loads.sort_by(|a, b| a.task.cmp(&b.task));
    loads
}

/// How a task joined last, by the chief's log.
fn joined<'a>(run: &'a RunView, task: &str) -> Option<&'a TaskJoined> {
    run.records.iter().rev().find_map(|record| match &record.event {
        Some(Event::TaskJoined(joined)) if joined.role == task && !joined.host.is_empty() => {
            Some(joined)
        }
        _ => None,
    })
}

/// From a task's first step to its last, or from anybody's where it takes none: servers do not.
fn stepping(run: &RunView, task: &str) -> (f64, f64) {
    let span = |only: Option<&str>| {
        let mut span = (f64::INFINITY, f64::NEG_INFINITY);
        for record in
            run.records.iter().filter(|record| only.is_none_or(|task| record.task == task))
        {
            if let Some(Event::Step(step)) = &record.event {
                span = (span.0.min(record.time - step.seconds), span.1.max(record.time));
            }
        }
        (span.0 < span.1).then_some(span)
    };
    span(Some(task)).or_else(|| span(None)).unwrap_or((f64::NEG_INFINITY, f64::INFINITY))
}

/// Tasks of one host see the same machine; what they use of it adds up.
fn nodes(loads: &[TaskLoad], threads: usize) -> Vec<NodeLoad> {
    let mut hosts: BTreeMap<&str, Vec<&TaskLoad>> = BTreeMap::new();
    for load in loads {
        hosts.entry(&load.host).or_default().push(load);
    }
    hosts
        .into_iter()
        .map(|(host, tasks)| {
            let most = |of: fn(&TaskLoad) -> Option<f64>| {
                tasks.iter().filter_map(|load| of(load)).max_by(f64::total_cmp)
            };
            let sum = |of: fn(&TaskLoad) -> Option<f64>| -> Option<f64> {
                tasks.iter().map(|load| of(load)).sum()
            };
            let own = sum(|load| load.process_cores);
            let busy = most(|load| load.machine_cores);
            // More than the machine has: hosts of one name, and what others took cannot be told.
            let told_apart = own.zip(busy).is_some_and(|(own, busy)| own <= busy * 1.1 + 0.1);
            let workers = tasks.iter().filter(|load| is_worker(&load.task)).count();
            let allowed = tasks.iter().map(|load| load.allowed_cores).max().unwrap_or(0);
            NodeLoad {
                host: host.to_owned(),
                threads: (workers * threads) as f64,
                all_threads: sum(|load| load.threads),
                allowed: Some(allowed as f64).filter(|cores| *cores > 0.0),
                stolen: most(|load| load.stolen_cores),
                cores: Some(tasks[0].cores as f64).filter(|cores| told_apart && *cores > 0.0),
                busy: busy.filter(|_| told_apart),
                own,
                waiting: sum(|load| load.waiting_cores),
                throttled: most(|load| load.throttled),
                disk_busy: most(|load| load.disk_busy),
                disk_pressure: most(|load| load.disk_pressure),
                read: sum(|load| load.read_bytes_per_second),
                memory_pressure: most(|load| load.memory_pressure),
                major_faults: sum(|load| load.major_faults),
            }
        })
        .collect()
}

/// The tasks that were lost on the way, each once.
fn lost(run: &RunView) -> Vec<String> {
    let said = run.summary.lost.iter().filter_map(|loss| loss.split_whitespace().next());
    let seen = run.records.iter().filter_map(|record| match record.event.as_ref()? {
        Event::TaskLost(loss) => Some(&*loss.lost),
        _ => None,
    });
    let names: BTreeSet<&str> = said.chain(seen).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Tasks whose processes were stopped from outside.
fn stops(loads: &[TaskLoad]) -> Vec<Stop> {
    let stops = loads.iter().filter_map(|load| Some((load, load.stopped?)));
    stops
        .filter(|(_, share)| *share > 0.0)
        .map(|(load, share)| Stop { task: load.task.clone(), share })
        .collect()
}

/// Whether all workers made the same number of steps, up to those of the last event that one of them wrote.
fn in_lockstep(work: &BTreeMap<&str, TaskWork>) -> bool {
    let steps = || work.values().map(|one| one.steps);
    let (least, most) = (steps().min().unwrap_or(0), steps().max().unwrap_or(0));
    work.len() > 1 && (most - least) as f64 <= 0.05 * most as f64
}

fn worker_loads(work: &BTreeMap<&str, TaskWork>) -> Vec<WorkerLoad> {
    work.iter()
        .filter(|(_, work)| work.steps > 0)
        .map(|(task, work)| WorkerLoad {
            task: (*task).to_owned(),
            own_seconds_per_step: work.phases.own() / work.steps as f64,
        })
        .collect()
}

fn servers(loads: &[TaskLoad]) -> Vec<ServerLoad> {
    let servers = loads.iter().filter(|load| is_server(&load.task));
    servers
        .filter_map(|load| {
            // A server has a thread per connection; beyond the cores they only wait.
            let threads = load.threads.unwrap_or(1.0);
            let threads = if load.cores > 0 { threads.min(load.cores as f64) } else { threads };
            Some(ServerLoad {
                task: load.task.clone(),
                busy_cores: load.process_cores?,
                threads: threads.max(1.0) as usize,
            })
        })
        .collect()
}

/// What the tasks exchange over a network: what workers counted, and what the interfaces of the others carried.
fn links(loads: &[TaskLoad], workers: &[WorkerSummary], together: f64) -> Vec<Link> {
    let host = |load: &TaskLoad| load.address.rsplit_once(':').map(|(host, _)| host.to_owned());
    loads
        .iter()
        .filter_map(|load| {
            let carried = [load.sent_bytes_per_second, load.received_bytes_per_second];
            // One task of a host measures its link for all of them.
            let measured = loads.iter().find(|other| {
                other.send_capacity.is_some() && host(other).is_some() && host(other) == host(load)
            });
            let measured = measured.unwrap_or(load);
            let capacities = [measured.send_capacity, measured.receive_capacity];
            let crosses = carried.iter().flatten().any(|rate| *rate >= TALKS);
            if !crosses && capacities.iter().all(Option::is_none) {
                return None; // its exchange does not leave the machine
            }
            let worker = workers.iter().find(|worker| worker.task == load.task);
            let directions = (0..2).filter_map(|way| {
                let (rate, share) = match worker.filter(|worker| worker.seconds > 0.0) {
                    Some(worker) => {
                        let traffic = [worker.traffic.sent_bytes, worker.traffic.received_bytes];
                        (traffic[way] as f64 / worker.seconds, worker.phases.together())
                    }
                    None => (carried[way]?, together),
                };
                Some(Link {
                    task: load.task.clone(),
                    bytes_per_second: rate,
                    while_used: rate / share.clamp(SHORTEST_SHARE, 1.0),
                    capacity: capacities[way],
                })
            });
            let fuller = |link: &Link| (link.share().unwrap_or(0.0), link.bytes_per_second);
            directions
                .max_by(|a, b| {
                    let (a, b) = (fuller(a), fuller(b));
                    a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
                })
                .filter(|link| link.bytes_per_second >= TALKS)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Traffic;

    fn worker(task: &str, exchange: f64, megabytes: u64) -> WorkerSummary {
        WorkerSummary {
            task: task.to_owned(),
            iterations: 100,
            seconds: 2.0,
            phases: PhaseTimes {
                input: 0.0,
                compute: 1.0 - exchange,
                exchange,
                wait: 0.0,
                ..PhaseTimes::default()
            },
            traffic: Traffic {
                sent_bytes: megabytes * 1_000_000,
                received_bytes: megabytes * 1_000_000,
            },
            ..WorkerSummary::default()
        }
    }

    fn load(task: &str, host: &str) -> TaskLoad {
        TaskLoad {
            task: task.to_owned(),
            host: host.to_owned(),
            address: format!("{host}:7000"),
            cores: 4,
            process_cores: Some(1.0),
            machine_cores: Some(1.2),
            threads: Some(6.0),
            sent_bytes_per_second: Some(8e6),
            received_bytes_per_second: Some(8e6),
            ..TaskLoad::default()
        }
    }

    fn run(summary: Summary) -> RunView {
        RunView { summary, threads: 2, ..RunView::default() }
    }

    /// What other hosts told stands in for their records.
    #[test]
    fn a_thin_link_of_another_host_is_found_in_the_summary() {
        let narrow = TaskLoad {
            send_capacity: Some(12.5e6),
            receive_capacity: Some(400e6),
            ..load("worker/1", "b")
        };
        let wide = TaskLoad {
            send_capacity: Some(400e6),
            receive_capacity: Some(400e6),
            ..load("worker/0", "a")
        };
        let summary = Summary {
            workers: vec![worker("worker/0", 0.8, 19), worker("worker/1", 0.8, 19)],
            tasks: vec![wide, narrow],
            ..Summary::default()
        };
        let verdict = diagnose(&run(summary.clone()));
        assert_eq!((verdict.limit, verdict.culprit.as_deref()), (Limit::Network, Some("worker/1")));
        let mut view = run(summary);
        view.judge(&RunState::Ended(Box::default()));
        let written = view.summary;
        let diagnosis = written.diagnosis.unwrap();
        assert_eq!(diagnosis.limit, "network");
        assert_eq!(written.tasks.len(), 2, "the evidence stays");
        assert!(
            diagnosis.evidence.iter().any(|line| line.contains("95 % of the 12.5 MB/s")),
            "{diagnosis:?}"
        );
    }

    /// Shared memory carries gigabytes a second and is not a network link.
    #[test]
    fn an_exchange_that_stays_on_the_machine_has_no_link() {
        let local = |task: &str| TaskLoad {
            sent_bytes_per_second: Some(0.0),
            received_bytes_per_second: Some(20.0),
            ..load(task, "a")
        };
        let summary = Summary {
            workers: vec![worker("worker/0", 0.6, 900), worker("worker/1", 0.6, 900)],
            tasks: vec![local("worker/0"), local("worker/1")],
            ..Summary::default()
        };
        assert_eq!(diagnose(&run(summary)).limit, Limit::Exchange);
    }

    #[test]
    fn tasks_of_one_host_share_its_machine_and_its_link() {
        let first = TaskLoad { send_capacity: Some(5e6), ..load("worker/0", "a") };
        let loads = [first, load("worker/1", "a"), load("ps/0", "b")];
        let found = nodes(&loads, 2);
        assert_eq!((found[0].threads, found[1].threads), (4.0, 0.0));
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].own, found[0].cores),
            (Some(2.0), None),
            "more than the machine was busy"
        );
        assert_eq!((found[1].own, found[1].cores), (Some(1.0), Some(4.0)));
        let carried = links(&loads, &[], 0.5);
        assert_eq!(carried[2].task, "ps/0");
        assert_eq!((carried[1].capacity, carried[1].while_used), (Some(5e6), 16e6));
        assert_eq!(servers(&loads)[0].threads, 4, "beyond the cores threads only wait");
    }
}
