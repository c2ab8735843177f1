//! From what workers did to the run's summary.

use crate::{RunPlan, TrainError, course::Done, plan::Prepared};
use paceline_analysis::verdict::{Evidence, judge};
use paceline_batch::LabelKind;
use paceline_runs::{
    self as runs, Final, PhaseShares, RunFolder, Status, Summary, Traffic, write_atomically,
};

/// What one worker did.
pub(crate) fn worker(task: String, done: &Done) -> runs::Worker {
    let phases = done.total.phases();
    let examples = done.own_last.examples as f64;
    runs::Worker {
        task,
        iterations: done.total.steps,
        examples: done.own_examples,
        seconds: phases.total(),
        finished: done.finished,
        loss: done.own_last.loss_sum / examples,
        accuracy: done.own_last.correct as f64 / examples,
        dropped: done.dropped,
        phases: PhaseShares::from(phases),
        traffic: traffic(done),
    }
}

fn traffic(done: &Done) -> Traffic {
    Traffic { sent_bytes: done.total.traffic.sent, received_bytes: done.total.traffic.received }
}

/// Fills in what the chief and all workers did.
pub(crate) fn fill(
    summary: &mut Summary,
    prepared: &Prepared,
    chief: &Done,
    workers: Vec<runs::Worker>,
) {
    let phases = chief.total.phases();
    summary.status = if chief.cancelled { Status::Cancelled } else { Status::Done };
    summary.global_steps = chief.step;
    summary.global_batch = chief.batch;
    // Where workers do not keep step, the chief has not seen the last votes; the server counted all.
    summary.examples = chief.examples.max(chief.tally.examples);
    if chief.went_back {
        // The server that counted is gone with its counts; steps that were made again count again.
        let own: u64 = workers.iter().map(|worker| worker.examples).sum();
        let used = own.saturating_sub(chief.tally.dropped_examples);
        summary.examples = summary.examples.max(used);
    }
    // Another worker may have made the last step.
    summary.seconds = workers.iter().map(|one| one.finished).fold(summary.seconds, f64::max);
    let seconds = workers.iter().map(|worker| worker.seconds).fold(phases.total(), f64::max);
    summary.examples_per_second = summary.examples as f64 / seconds.max(1e-9);
    summary.last = Final {
        train_loss: chief.train_loss,
        test_loss: chief.evaluated.as_ref().map_or(f64::NAN, |score| score.loss),
        test_accuracy: chief.evaluated.as_ref().map_or(f64::NAN, |score| score.accuracy),
    };
    summary.reached = chief.reached;
    summary.staleness = chief.tally.staleness.clone();
    summary.dropped = chief.tally.dropped;
    summary.dropped_examples = chief.tally.dropped_examples;
    summary.lost = chief.lost.clone();
    summary.traffic = Traffic {
        sent_bytes: workers.iter().map(|worker| worker.traffic.sent_bytes).sum(),
        received_bytes: workers.iter().map(|worker| worker.traffic.received_bytes).sum(),
    };
    summary.phases = shares(&workers);
    summary.workers = workers;
    summary.verdict = judge(&Evidence {
        steps: chief.total.steps,
        seconds: phases.total(),
        input: summary.phases.input,
        compute: summary.phases.compute,
        exchange: summary.phases.exchange,
        wait: summary.phases.wait,
        threads: prepared.plan.threads * prepared.plan.replicas,
        ..Evidence::default()
    })
    .words;
    summary.warnings.extend(chief.warnings.iter().cloned());
}

/// Shares of all workers' time together.
fn shares(workers: &[runs::Worker]) -> PhaseShares {
    let total: f64 = workers.iter().map(|worker| worker.seconds).sum();
    if total <= 0.0 {
        return PhaseShares::default();
    }
    let share = |of: fn(&PhaseShares) -> f64| {
        workers.iter().map(|worker| worker.seconds * of(&worker.phases)).sum::<f64>() / total
    };
    PhaseShares {
        input: share(|phases| phases.input),
        compute: share(|phases| phases.compute),
        exchange: share(|phases| phases.exchange),
        wait: share(|phases| phases.wait),
    }
}

/// `confusion.csv`: one row per label, one column per prediction.
pub(crate) fn write_confusion(
    run: &RunFolder,
    plan: &RunPlan,
    chief: &Done,
) -> Result<(), TrainError> {
    let Some(score) = chief.evaluated.as_ref().filter(|score| !score.confusion.is_empty()) else {
        return Ok(());
    };
    let names: Vec<String> = match &plan.schema.labels {
        LabelKind::Classes { names } => names.iter().map(|name| quoted(name)).collect(),
        LabelKind::Binary => vec!["0".to_string(), "1".to_string()],
    };
    let mut text = format!("label \\ prediction,{}\n", names.join(","));
    for (name, row) in names.iter().zip(score.confusion.chunks(names.len())) {
        let counts: Vec<String> = row.iter().map(ToString::to_string).collect();
        text.push_str(&format!("{name},{}\n", counts.join(",")));
    }
    write_atomically(&run.path().join("confusion.csv"), text.as_bytes())?;
    Ok(())
}

fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_string()
    }
}
