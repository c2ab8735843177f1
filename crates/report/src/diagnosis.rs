//! The verdict on a run, from everything its folder holds: the steps of all tasks, and what their machines did meanwhile.

use crate::training::RunView;
use paceline_analysis::verdict::{
    Evidence, Link, ServerLoad, Surroundings, Verdict, WorkerLoad, judge_within,
};
use paceline_runs::{Event, Resources};
use std::collections::BTreeMap;

/// Steps and seconds of one task.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    steps: u64,
    seconds: f64,
    input: f64,
    compute: f64,
    exchange: f64,
    wait: f64,
}

/// Judges a run.
#[must_use]
pub fn diagnose(run: &RunView) -> Verdict {
    let work = work_by_task(run);
    let total = work.values().fold(Work::default(), |sum, one| Work {
        steps: sum.steps.max(one.steps),
        seconds: sum.seconds.max(one.seconds),
        input: sum.input + one.input,
        compute: sum.compute + one.compute,
        exchange: sum.exchange + one.exchange,
        wait: sum.wait + one.wait,
    });
    let all = total.input + total.compute + total.exchange + total.wait;
    let share = |part: f64| if all > 0.0 { part / all } else { 0.0 };
    let busy = |resources: &Resources| resources.mean("process_cpu_percent").map(|cpu| cpu / 100.0);
    let own: Option<f64> = run.resources.iter().map(|(_, resources)| busy(resources)).sum();
    let evidence = Evidence {
        steps: total.steps,
        seconds: total.seconds,
        input: share(total.input),
        compute: share(total.compute),
        exchange: share(total.exchange),
        wait: share(total.wait),
        threads: run.threads,
        busy_cores: own.filter(|_| !run.resources.is_empty()),
    };
    judge_within(&evidence, &surroundings(run, &work, own))
}

fn work_by_task(run: &RunView) -> BTreeMap<&str, Work> {
    let mut work: BTreeMap<&str, Work> = BTreeMap::new();
    for record in &run.records {
        if let Some(Event::Step(step)) = &record.event {
            let of = work.entry(&record.task).or_default();
            of.steps += step.steps;
            of.seconds += step.seconds;
            of.input += step.phases.input;
            of.compute += step.phases.compute;
            of.exchange += step.phases.exchange;
            of.wait += step.phases.wait;
        }
    }
    work
}

fn surroundings(run: &RunView, work: &BTreeMap<&str, Work>, own: Option<f64>) -> Surroundings {
    // The machine's own columns are the same in the recordings of all its tasks.
    let first = run.resources.first().map(|(_, resources)| resources);
    let mean = |column: &str| first.and_then(|resources| resources.mean(column));
    let share = |column: &str| mean(column).map(|percent| percent / 100.0);
    let cores = run.machine.as_ref().map(|machine| machine.host_cpus as f64);
    let machine_busy =
        cores.zip(share("cpu_idle_percent")).map(|(cores, idle)| cores * (1.0 - idle));
    // More than the machine has: the tasks run on several machines, and what others took cannot be told.
    let one_machine = own.zip(machine_busy).is_some_and(|(own, all)| own <= all * 1.1 + 0.1);
    let workers: Vec<WorkerLoad> = work
        .iter()
        .filter(|(_, work)| work.steps > 0)
        .map(|(task, work)| WorkerLoad {
            task: (*task).to_owned(),
            own_seconds_per_step: (work.input + work.compute) / work.steps as f64,
        })
        .collect();
    let servers = run
        .resources
        .iter()
        .filter(|(task, _)| task.starts_with("ps"))
        .filter_map(|(task, resources)| {
            let busy_cores = resources.mean("process_cpu_percent")? / 100.0;
            let threads = resources.mean("process_threads").unwrap_or(1.0);
            // A server has a thread per connection; beyond the cores they only wait.
            let threads = threads.min(cores.unwrap_or(threads)).max(1.0) as usize;
            Some(ServerLoad { task: task.clone(), busy_cores, threads })
        })
        .collect();
    Surroundings {
        cores: cores.filter(|_| one_machine),
        machine_busy: machine_busy.filter(|_| one_machine),
        throttled: share("cgroup_throttled_percent"),
        disk_busy: share("disk_busiest_percent"),
        disk_pressure: share("pressure_disk_percent"),
        memory_pressure: share("pressure_memory_percent"),
        links: if workers.len() > 1 || !run.summary.workers.is_empty() {
            links(run)
        } else {
            Vec::new()
        },
        workers: if workers.len() > 1 { workers } else { Vec::new() },
        servers,
    }
}

/// What the tasks exchange: what the interfaces carried, or what the workers counted.
fn links(run: &RunView) -> Vec<Link> {
    let seconds = run.summary.seconds.max(1e-9);
    let counted = run.summary.traffic.sent_bytes.max(run.summary.traffic.received_bytes) as f64;
    let mut links: Vec<Link> = run
        .resources
        .iter()
        .filter_map(|(task, resources)| {
            let received = resources.mean("network_received_bytes_per_second").unwrap_or(0.0);
            let sent = resources.mean("network_sent_bytes_per_second").unwrap_or(0.0);
            let rate = received.max(sent);
            (rate >= 1e5).then(|| Link {
                task: task.clone(),
                bytes_per_second: rate,
                capacity: None,
            })
        })
        .collect();
    if links.is_empty() && counted / seconds >= 1e5 {
        let task = "the workers' links".to_owned();
        links.push(Link { task, bytes_per_second: counted / seconds, capacity: None });
    }
    links
}
