//! Rows of sparse features under every strategy with servers, over every transport. Their weights travel by number, so
//! they have servers and workers of their own; what is owed is the same as everywhere.

#![allow(clippy::unwrap_used)]

use paceline_conformance::{
    TRANSPORTS,
    rows::{BATCHES, RowsJob, RowsOutcome, alone, model, rows},
};
use paceline_models::sparse_logistic::{SparseLogistic, loss, rules};
use paceline_strategies::{self as strategies, Transfer};
use std::sync::Arc;

/// How near asynchronous training comes to one worker depends on which worker is faster. What it must always be is the
/// sum of what the workers pushed, in whichever order. Servers take the pushes of several workers at once and do not
/// lock a weight (as in Hogwild), so that two additions to one weight at the same moment may leave one of them: a few
/// thousandths of the way. A worker whose updates are lost or made twice would be a third.
fn check_updates(job: &RowsJob, outcome: &RowsOutcome) {
    if job.strategy.synchronous {
        return;
    }
    let name = job.name();
    assert_eq!(job.rule, "sgd", "{name}: updates of other rules depend on their order");
    let rate = f64::from(job.options().settings.rate);
    let (mut off, mut way) = (0.0, 0.0);
    for at in 0..outcome.model.table().len() {
        let start = job.from.as_ref().map_or(0.0, |from| f64::from(from.model.weight(at)));
        let moved = -rate * outcome.pushed.get(&(at as u32)).copied().unwrap_or(0.0);
        off += (f64::from(outcome.model.weight(at)) - start - moved).powi(2);
        way += moved.powi(2);
    }
    let off = (off / way).sqrt();
    assert!(off < 0.1, "{name}: {off:e} of the way off from the sum of all gradients");
}

/// The distance of the weights of `model` from others, as a part of the way those went.
fn off(model: &SparseLogistic, wanted: &SparseLogistic) -> f64 {
    let numbers = 0..model.table().len();
    let norm = |of: &dyn Fn(usize) -> f32| {
        numbers.clone().map(|at| f64::from(of(at)).powi(2)).sum::<f64>().sqrt()
    };
    norm(&|at| model.weight(at) - wanted.weight(at)) / norm(&|at| wanted.weight(at))
}

/// Mean loss on held-out rows.
fn test_loss(model: &SparseLogistic) -> f64 {
    let (test, mut logits) = (rows(4_242, 1_000), Vec::new());
    model.score(&test, &mut logits);
    loss(&logits, &test.labels).loss_sum / 1_000.0
}

/// Every strategy with servers over every transport, with every rule where the order of updates does not matter.
fn jobs() -> Vec<RowsJob> {
    let mut jobs = Vec::new();
    for strategy in strategies::ALL.iter().copied().filter(|strategy| strategy.needs_servers) {
        for transport in TRANSPORTS {
            for rule in rules::ALL.iter().map(|rule| rule.name) {
                for transfer in [Transfer::Sparse, Transfer::Dense] {
                    if rule == "sgd" || (strategy.synchronous && transfer == Transfer::Sparse) {
                        let job = RowsJob::under(strategy, rule, transfer);
                        jobs.push(RowsJob { transport, ..job });
                    }
                }
            }
        }
    }
    jobs
}

/// How far a strategy may end from one worker's weights, as a fraction of the distance those moved. Asynchronous
/// updates are made from weights a few updates old, and in another order.
fn most(job: &RowsJob) -> f64 {
    if job.strategy.synchronous { 1e-3 } else { 0.3 }
}

#[test]
fn every_strategy_ends_like_one_worker_over_every_transport() {
    let knows_nothing = test_loss(&model("sgd"));
    for job in jobs() {
        let name = job.name();
        let wanted = alone(job.rule);
        let outcome = job.run();
        let off = off(&outcome.model, &wanted);
        assert!(off < most(&job), "{name}: {off:e} of the way off from one worker");
        let found = test_loss(&outcome.model);
        assert!(found < knows_nothing, "{name}: the loss went from {knows_nothing} to {found}");
        job.check_counts(&outcome, 0);
        check_updates(&job, &outcome);
    }
}

/// Half of the batches and then the rest, with another number of servers.
#[test]
fn a_run_of_rows_goes_on_where_it_stopped() {
    for job in jobs() {
        let name = job.name();
        let half = BATCHES / 2;
        let first = RowsJob { until: half, ..job.clone() };
        let stopped = first.run();
        first.check_counts(&stopped, 0);
        let second = RowsJob { servers: 1, from: Some(Arc::new(stopped)), ..job.clone() };
        let outcome = second.run();
        second.check_counts(&outcome, half);
        check_updates(&second, &outcome);
        let off = off(&outcome.model, &alone(job.rule));
        assert!(off < most(&job), "{name}: {off:e} of the way off from one worker");
    }
}
