//! `paceline train --model sparse-logistic --strategy ps-…`: rows learned from by several tasks.

use super::{learn, learn::explain, train_flags::Flags};
use crate::failure::job;
use paceline_jobs::TaskPlacement;
use paceline_runs::{RecordedPlan, RunFolder, Summary};
use paceline_strategies::find;
use paceline_training::rows::{Exchanged, Spec, Tasks};

/// Rows of an update where weights travel for it, unless the flags say otherwise. One process learns from each row
/// as it comes; few enough here that the rows of an update hardly notice that they are learned from together.
const SHARED_BATCH: u64 = 32;

/// Adds the tasks that the flags ask for, or that a cluster has, to what is to be learned.
pub(super) fn share_out(
    flags: &Flags,
    sizes: Option<(usize, usize)>,
    spec: &mut Spec,
) -> anyhow::Result<()> {
    spec.tasks = asked(flags, sizes)?;
    if let (Some(tasks), None) = (&spec.tasks, flags.batch_size) {
        spec.batch_size = SHARED_BATCH.max(tasks.workers as u64);
    }
    Ok(())
}

/// The tasks; nothing for one process.
fn asked(flags: &Flags, sizes: Option<(usize, usize)>) -> anyhow::Result<Option<Tasks>> {
    let name = flags.strategy.as_deref().unwrap_or("one-device");
    let strategy = find(name).map_err(|error| explain(error.into()))?;
    if strategy.in_process {
        return Ok(None);
    }
    let (workers, servers) = sizes.unwrap_or((flags.workers.unwrap_or(2), flags.ps.unwrap_or(1)));
    Ok(Some(Tasks {
        strategy: strategy.name.to_owned(),
        workers,
        servers,
        transfer: flags.transfer.unwrap_or_default(),
        on_loss: flags.on_loss.unwrap_or_default(),
        steps: flags.steps,
        evaluator: flags.evaluator,
    }))
}

/// How many servers a run had.
pub(super) fn servers_of(run: &RunFolder) -> usize {
    let servers = RecordedPlan::open(run).ok().and_then(|plan| plan.servers);
    servers.and_then(|servers| usize::try_from(servers).ok()).unwrap_or(0)
}

/// What a task of a cluster shall learn, where the flags speak of rows.
pub(super) fn in_cluster(
    placement: &TaskPlacement,
    flags: &Flags,
    resumed: Option<&RunFolder>,
) -> anyhow::Result<Spec> {
    let sizes = placement.sizes(flags.workers, flags.ps).map_err(job::of_placement)?;
    let mut spec = match resumed {
        Some(run) => learn::resumed(run, flags)?,
        None => learn::specification(flags)?,
    };
    if spec.tasks.is_none() {
        share_out(flags, Some(sizes), &mut spec)?;
    }
    Ok(spec)
}

/// Adds lines about what went between tasks.
pub(super) fn describe(summary: &Summary, exchange: &Exchanged, row: &mut dyn FnMut(&str, String)) {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let phases = &summary.phases;
    row(
        "step time",
        format!(
            "input {}, compute {}, exchange {}, wait {}",
            percent(phases.input),
            percent(phases.compute),
            percent(phases.exchange),
            percent(phases.wait)
        ),
    );
    let kilo = |bytes: f64| format!("{:.1} kB", bytes / 1e3);
    row(
        "traffic",
        format!(
            "{} an iteration ({} transfer); sparse takes {}, dense {}",
            kilo(exchange.bytes_per_iteration),
            exchange.transfer,
            kilo(exchange.sparse_bytes_per_iteration),
            kilo(exchange.dense_bytes_per_iteration)
        ),
    );
    for (worker, pace) in summary.workers.iter().zip(&exchange.tasks) {
        row(
            &worker.task,
            format!(
                "{} iterations of {:.3} ms, {} rows, finished after {:.2} s, waited {}",
                worker.iterations,
                1e3 * pace.seconds_per_iteration,
                worker.examples,
                worker.finished,
                percent(worker.phases.wait)
            ),
        );
    }
    let updates: u64 = summary.staleness.iter().sum();
    if summary.staleness.len() > 1 {
        let staleness = summary.staleness.iter().zip(0_u64..).map(|(count, at)| count * at);
        let mean = staleness.sum::<u64>() as f64 / updates.max(1) as f64;
        row("staleness", format!("{mean:.2} updates by others on average"));
    }
    for lost in &summary.lost {
        row("lost", lost.clone());
    }
}
