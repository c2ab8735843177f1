//! `paceline train --model sparse-logistic --strategy ps-…`: the tasks that flags ask for, or that a cluster has.

use super::{rows_flags, train_flags::Flags};
use crate::terminal::failure::{job, rows::explain};
use paceline_jobs::TaskPlacement;
use paceline_runs::{RecordedPlan, RunFolder};
use paceline_strategies::find;
use paceline_training::rows::{RowsSpec, Tasks};

/// What a new run on this machine shall learn, tasks included.
pub(crate) fn fresh(flags: &Flags) -> anyhow::Result<RowsSpec> {
    let mut spec = rows_flags::specification(flags)?;
    share_out(flags, None, &mut spec)?;
    if flags.lr.is_none() {
        spec.suit_features().map_err(explain)?;
    }
    Ok(spec)
}

/// Adds the tasks that the flags ask for, or that a cluster has, to what is to be learned.
pub(crate) fn share_out(
    flags: &Flags,
    sizes: Option<(usize, usize)>,
    spec: &mut RowsSpec,
) -> anyhow::Result<()> {
    spec.share_out(asked(flags, sizes)?, flags.batch_size);
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
pub(crate) fn servers_of(run: &RunFolder) -> usize {
    let servers = RecordedPlan::open(run).ok().and_then(|plan| plan.servers);
    servers.and_then(|servers| usize::try_from(servers).ok()).unwrap_or(0)
}

/// What a task of a cluster shall learn, where the flags speak of rows.
pub(crate) fn in_cluster(
    placement: &TaskPlacement,
    flags: &Flags,
    resumed: Option<&RunFolder>,
) -> anyhow::Result<RowsSpec> {
    let sizes = placement.sizes(flags.workers, flags.ps).map_err(job::of_placement)?;
    let mut spec = match resumed {
        Some(run) => rows_flags::resumed(run, flags)?,
        None => rows_flags::specification(flags)?,
    };
    if spec.tasks.is_none() {
        share_out(flags, Some(sizes), &mut spec)?;
    }
    Ok(spec)
}
