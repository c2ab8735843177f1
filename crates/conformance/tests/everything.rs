//! Every model under every strategy over every transport.

#![allow(clippy::unwrap_used)]

use paceline_conformance::{Job, Outcome, TRANSPORTS, batches};
use paceline_models::registry;
use paceline_strategies as strategies;

/// Models beyond this many weights take part with one step: what is tested does not depend on it, the
/// time does.
const LARGE: usize = 4 << 20;

fn model(name: &str) -> &'static registry::ModelEntry {
    registry::find(name).unwrap()
}

/// The same job under each strategy and, where there are processes to join, over each transport.
fn jobs(alone: &Job) -> Vec<(String, Job)> {
    let mut jobs = Vec::new();
    for strategy in &strategies::ALL {
        let job = alone.clone().under(strategy);
        let name = format!("{}, {}", job.model.name, strategy.name);
        if strategy.in_process {
            jobs.push((name, job));
            continue;
        }
        for transport in TRANSPORTS {
            let (name, job) = (format!("{name}, {}", transport.name), job.clone().over(transport));
            // Once within a machine and once between two: what differs beyond that is tested with the links.
            if strategy.shares_layers
                && ["shared memory", "tls"].contains(&transport.name)
                && let Some(shared_out) = job.clone().shared_out()
            {
                jobs.push((format!("{name}, layers shared out"), shared_out));
            }
            jobs.push((name, job));
        }
    }
    jobs
}

/// What a strategy must equal: one worker, or (where the model looks at the statistics of the batches
/// it sees) as many replicas in one process.
fn reference(job: &Job) -> Outcome {
    let mirrored = job.has_statistics && job.workers > 1 && job.strategy.synchronous;
    let name = if mirrored { "mirrored" } else { "one-device" };
    let mut reference = job.clone().under(strategies::find(name).unwrap());
    reference.optimizer = job.optimizer;
    reference.run()
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    norm(a.iter().zip(b).map(|(a, b)| a - b))
}

/// How far asynchronous training may end from one worker's weights, as a fraction of the distance those moved: its
/// updates come from older weights and in another order. Batch statistics follow the last batches any worker saw.
fn asynchronous_tolerance(job: &Job) -> f64 {
    if job.has_statistics { 0.5 } else { 0.25 }
}

fn check(model: &'static registry::ModelEntry) {
    let alone = Job::new(model);
    let alone = if alone.start().len() > LARGE { alone.steps(1) } else { alone };
    let mut references: Vec<(&str, usize, Outcome)> = Vec::new();
    for (name, job) in jobs(&alone) {
        let same =
            |known: &&(&str, usize, Outcome)| (known.0, known.1) == (job.optimizer, job.workers);
        if !references.iter().any(|known| same(&known)) {
            references.push((job.optimizer, job.workers, reference(&job)));
        }
        let wanted = &references.iter().find(same).unwrap().2.params[0];
        let way = distance(wanted, job.start());
        assert!(way > 0.0 && way.is_finite(), "{name}: the weights went {way}");
        let outcome = job.run();
        for params in &outcome.params {
            assert_eq!(*params, outcome.params[0], "{name}: the same bits for all workers");
        }
        let off = distance(&outcome.params[0], wanted) / way;
        let most = if job.strategy.synchronous { 1e-3 } else { asynchronous_tolerance(&job) };
        assert!(off < most, "{name}: {off:e} of the way off from one worker");
        check_updates(&name, &job, &outcome);
        let (before, after) = (job.loss(job.start()), job.loss(&outcome.params[0]));
        assert!(after < 1.1 * before, "{name}: the loss went from {before} to {after}");
        check_counts(&name, &job, &outcome, 0);
    }
}

/// How near asynchronous training comes to one worker depends on who is faster. What it must always be is the sum of
/// what the workers pushed: a lost or doubled update would be a fifth of the way off.
fn check_updates(name: &str, job: &Job, outcome: &Outcome) {
    if job.strategy.synchronous {
        return;
    }
    assert_eq!(job.optimizer, "sgd", "{name}: updates of other optimizers depend on their order");
    let wanted = job.replayed(outcome);
    let off = distance(&outcome.params[0], &wanted) / distance(&wanted, job.start());
    assert!(off < 1e-3, "{name}: {off:e} of the way off from the sum of all gradients");
}

/// All examples served are worked on, each batch once, and every worker is told the total.
fn check_counts(name: &str, job: &Job, outcome: &Outcome, first: u64) {
    let served: u64 = (first..job.steps).map(|number| batches(number).len()).sum();
    assert_eq!(outcome.examples.iter().sum::<u64>(), served, "{name}: worked on and served");
    assert_eq!(outcome.snapshot.version.0, job.steps, "{name}: one step, one update");
    assert!(outcome.snapshot.outstanding.is_empty(), "{name}: nothing left lying");
    let mut batches = outcome.batches.clone();
    batches.dedup();
    assert_eq!(batches, (first..job.steps).collect::<Vec<_>>(), "{name}: every batch");
    if job.strategy.synchronous {
        assert!(outcome.told.iter().all(|told| *told == served), "{name}: {:?}", outcome.told);
    }
    if job.strategy.needs_servers {
        assert_eq!(outcome.tally.examples, served, "{name}: counted by the servers");
        assert_eq!(outcome.tally.staleness.iter().sum::<u64>(), job.steps - first, "{name}");
        assert_eq!(outcome.tally.dropped, 0, "{name}");
    }
}

#[test]
fn every_model_is_tested_below() {
    let tested = ["softmax", "lenet", "alexnet", "mobilenet-v2", "resnet-20"];
    for entry in &registry::ALL {
        assert!(tested.contains(&entry.name), "add a test for `{}`", entry.name);
    }
}

/// With two workers they moved at half of their speed: what each adds is weighed by its share of the batch, and was divided again.
#[test]
fn running_statistics_move_as_far_with_several_workers_as_with_one() {
    for name in ["mobilenet-v2", "resnet-20"] {
        let alone = Job::new(model(name)).steps(1);
        let layout = alone.layout();
        // Of the first layer, whose input is the same whatever the others do: the mean over shares is the mean of the batch.
        let first = layout.entries().iter().find(|entry| entry.name.ends_with("running_mean"));
        let first = first.unwrap().range();
        let one = alone.clone().under(strategies::find("one-device").unwrap()).run();
        let wanted = &one.params[0][first.clone()];
        let way = distance(wanted, &alone.start()[first.clone()]);
        for strategy in strategies::ALL.iter().filter(|strategy| strategy.synchronous) {
            let job = alone.clone().under(strategy);
            let job = if strategy.in_process { job } else { job.over(&TRANSPORTS[0]) };
            let found = job.run();
            let off = distance(&found.params[0][first.clone()], wanted) / way;
            assert!(off < 1e-3, "{name}, {}: {off:e} of the way off", strategy.name);
        }
    }
}

#[test]
fn softmax() {
    check(model("softmax"));
}

#[test]
fn lenet() {
    check(model("lenet"));
}

#[test]
fn mobilenet_v2() {
    check(model("mobilenet-v2"));
}

#[test]
fn resnet_20() {
    check(model("resnet-20"));
}

#[test]
fn alexnet() {
    check(model("alexnet"));
}

/// Shares of different sizes, one of them empty, and optimiser state of layers that no worker holds whole.
#[test]
fn layers_shared_out_end_like_one_worker_with_empty_shares_too() {
    let alone = Job::new(model("alexnet")).steps(4);
    let wanted = alone.run();
    assert!(batches(3).len() < 3, "three workers cannot all have an example of the last batch");
    let strategy = strategies::ALL.iter().find(|strategy| strategy.shares_layers).unwrap();
    let transport = TRANSPORTS.iter().find(|transport| transport.name == "shared memory").unwrap();
    let mut job = alone.clone().under(strategy).over(transport).shared_out().unwrap();
    job.workers = 3;
    // In two goes, so that a checkpoint of parts is also read again.
    let first = job.clone().steps(2).run();
    let second = job.clone().from(first).steps(4);
    let outcome = second.run();
    check_counts("three workers", &second, &outcome, 2);
    for params in &outcome.params {
        assert_eq!(*params, outcome.params[0], "the same bits for all workers");
    }
    let way = distance(&wanted.params[0], alone.start());
    let off = distance(&outcome.params[0], &wanted.params[0]) / way;
    assert!(off < 1e-3, "{off:e} of the way off from one worker");
    let states = outcome.snapshot.state.buffers().iter().zip(wanted.snapshot.state.buffers());
    let used: Vec<_> = states.filter(|(_, wanted)| !wanted.is_empty()).collect();
    assert!(!used.is_empty(), "momentum has a state");
    for (state, wanted) in used {
        let off = distance(state, wanted) / norm(wanted.iter().copied());
        assert!(off < 1e-3, "{off:e} of the state's length off");
    }
}

/// Three steps and then four equal seven, with other links and another number of servers.
#[test]
fn a_run_goes_on_where_it_stopped() {
    for strategy in &strategies::ALL {
        let mut job = Job::new(model("softmax")).under(strategy);
        if !strategy.synchronous {
            job.workers = 1; // alone, it makes every update from the newest weights, and must equal itself
        }
        let transports = if strategy.in_process { &TRANSPORTS[..1] } else { TRANSPORTS };
        for transport in transports {
            let name = format!("{}, {}", strategy.name, transport.name);
            let job = job.clone().over(transport);
            let whole = job.clone().steps(7).run();
            let first = job.clone().steps(3).run();
            let mut second = job.clone().from(first).steps(7);
            second.servers = second.servers.min(1);
            let outcome = second.run();
            check_counts(&name, &second, &outcome, 3);
            let way = distance(&whole.params[0], job.start());
            let off = distance(&outcome.params[0], &whole.params[0]) / way;
            assert!(off < 1e-3, "{name}: {off:e} of the way off from an unbroken run");
        }
    }
}

/// The same without step and with several workers, who may take other batches: every batch once.
#[test]
fn several_workers_without_step_go_on_where_they_stopped() {
    for strategy in strategies::ALL.iter().filter(|strategy| !strategy.synchronous) {
        let job = Job::new(model("softmax")).under(strategy).over(&TRANSPORTS[0]);
        let second = job.clone().from(job.clone().steps(3).run()).steps(7);
        let outcome = second.run();
        check_counts(strategy.name, &second, &outcome, 3);
        check_updates(strategy.name, &second, &outcome);
    }
}
