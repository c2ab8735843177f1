//! `paceline sweep --engine spark`: every cell is a task of Spark.

use super::{Args, explain};
use crate::terminal::failure::{Exit, Failure};
use crate::terminal::{Terminal, Unit, spark_job};
use paceline_cluster::launch::spark::{MEASURING, Spark, Work, WorkKind};
use paceline_sweep::{Cell, Distributed, Journal, Recipe, Runner, SweepError};
use std::time::{Duration, Instant};

/// Time between two looks for finished cells; one looks at every open cell.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs the remaining cells on Spark; returns whether the user stopped the sweep.
pub(super) fn run_cells(
    args: &Args,
    spark: &Spark,
    recipe: &Recipe,
    cells: &[Cell],
    runner: &Runner<'_>,
    journal: &mut Journal,
    terminal: &mut Terminal,
) -> anyhow::Result<bool> {
    let cancel = terminal.interrupt()?;
    let sweep = Distributed::new(recipe, runner.places, runner.timeout, runner.keep_all)
        .map_err(explain)?;
    // A sweep that was killed may not have taken over all that its tasks had done.
    let unknown: Vec<&Cell> =
        cells.iter().filter(|cell| journal.find(&cell.key).is_none()).collect();
    take_over(&sweep, &unknown, journal, terminal).map_err(explain)?;
    let open: Vec<&Cell> = cells.iter().filter(|cell| !args.is_done(journal, cell)).collect();
    if open.len() < cells.len() {
        let there = cells.len() - open.len();
        terminal.note(format!("{there} of {} cells were there already", cells.len()));
    }
    if open.is_empty() {
        return Ok(false);
    }
    let work = work(&sweep, recipe, &open)?;
    let spark = spark.with_partitions(open.len());
    let bar = terminal.progress("sweep", Some(cells.len() as u64), Unit::Items("cells"));
    let mut left = open.clone();
    let mut last = Instant::now();
    let outcome = spark_job::run(&spark, &work, &cancel, terminal, &mut || {
        if last.elapsed() >= LOOK_EVERY {
            last = Instant::now();
            // A failed check does not fail the job: only the last one, below, counts.
            if let Ok(rest) = take_over(&sweep, &left, journal, terminal) {
                left = rest;
            }
            bar.set((cells.len() - left.len()) as u64);
        }
    });
    drop(bar);
    let left = take_over(&sweep, &left, journal, terminal).map_err(explain)?;
    sweep.sweep_up().map_err(explain)?;
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            let stopped = error.downcast_ref::<Failure>().and_then(|failure| failure.exit);
            return if stopped == Some(Exit::Interrupted) { Ok(true) } else { Err(error) };
        }
    };
    spark_job::tell_outcome(&outcome, terminal);
    match left.first() {
        Some(first) => {
            let first = first.label();
            Err(explain(SweepError::Unfinished { cells: left.len(), first }))
        }
        None => Ok(false),
    }
}

/// What Spark is asked to do: a slice for each cell.
fn work(sweep: &Distributed, recipe: &Recipe, open: &[&Cell]) -> anyhow::Result<Work> {
    let mut lines = sweep.hand_out(open).map_err(explain)?.into_iter();
    let heading = lines.next().unwrap_or_default();
    Ok(Work {
        name: format!("paceline sweep {}", recipe.name),
        arguments: ["--json", "--quiet", "task", "sweep"].map(str::to_owned).to_vec(),
        settings: MEASURING,
        kind: WorkKind::Slices { heading, slices: lines.collect() },
    })
}

/// Puts finished cells into the journal; returns those that are not.
fn take_over<'a>(
    sweep: &Distributed,
    cells: &[&'a Cell],
    journal: &mut Journal,
    terminal: &Terminal,
) -> Result<Vec<&'a Cell>, SweepError> {
    let mut left = Vec::new();
    for cell in cells {
        let Some(row) = sweep.row(cell)? else {
            left.push(*cell);
            continue;
        };
        super::tell_row(cell, &row, terminal);
        journal.add(row)?;
    }
    Ok(left)
}
