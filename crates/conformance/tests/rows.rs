//! Rows of sparse features under every strategy with servers, over every transport. Their weights travel by number, so
//! they have servers and workers of their own; what is owed is the same as everywhere.

#![allow(clippy::unwrap_used)]

use paceline_batch::{Batch, Features};
use paceline_cluster::{
    JobMembership,
    membership::{Table as Seats, TableMembership},
};
use paceline_conformance::{TRANSPORTS, Transport};
use paceline_models::sparse_logistic::{Minibatch, SparseLogistic, loss, rules};
use paceline_strategies::{
    self as strategies, Combine, Transfer,
    sparse::{Beginning, Overseer, Push, SparseClient, SparseOptions, SparseServer},
};
use paceline_wire::{Role, TaskId};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const BITS: u32 = 9;
/// Batches of the whole run.
const BATCHES: usize = 24;

/// A batch of the run; the last one is short.
fn batch(number: usize) -> Batch {
    rows(number as u64 + 1, if number + 1 == BATCHES { 5 } else { 32 })
}

/// Rows whose label follows from one of their features.
fn rows(seed: u64, count: usize) -> Batch {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % most
    };
    let mut batch = Batch::sparse();
    let Features::Sparse { offsets, indices, .. } = &mut batch.features else { unreachable!() };
    for _ in 0..count {
        let kind = random(4) as u32;
        indices.push(kind);
        indices.extend((0..5).map(|_| 4 + random((1 << BITS) - 4) as u32));
        offsets.push(indices.len());
        batch.labels.push(u32::from(random(10) < if kind < 2 { 9 } else { 1 }));
    }
    batch
}

fn model(rule: &str) -> SparseLogistic {
    let mut settings = rules::find(rule).unwrap().defaults;
    settings.rate = 0.1;
    SparseLogistic::new(BITS, rule, settings).unwrap()
}

/// One worker without servers.
fn alone(rule: &str) -> SparseLogistic {
    let model = model(rule);
    let (mut mini, mut weights, mut logits) = (Minibatch::default(), Vec::new(), Vec::new());
    for batch in (0..BATCHES).map(batch) {
        let mean = 1.0 / batch.len() as f32;
        mini.learn(&model, &batch, 0..batch.len(), mean, &mut weights, &mut logits);
    }
    model
}

#[derive(Clone)]
struct Job {
    strategy: &'static strategies::Entry,
    transport: &'static Transport,
    rule: &'static str,
    transfer: Transfer,
    workers: u32,
    servers: u32,
    /// Batches until which it trains.
    until: usize,
    from: Option<Arc<Outcome>>,
}

/// How it went.
struct Outcome {
    model: SparseLogistic,
    beginning: Beginning,
    /// Rows each worker worked on.
    rows: Vec<u64>,
    /// Updates by others between a pull and its push, summed over all.
    stale: u64,
    /// Updates of the run, as each worker was told at the end.
    told: Vec<u64>,
    /// The sum of all gradients that the workers pushed, each the mean of its batch, by weight.
    pushed: BTreeMap<u32, f64>,
}

/// What a worker did.
#[derive(Default)]
struct Worked {
    rows: u64,
    stale: u64,
    told: u64,
    pushed: BTreeMap<u32, f64>,
}

impl Job {
    fn name(&self) -> String {
        let Self { strategy, transport, rule, transfer, .. } = self;
        format!("{}, {}, {rule}, {transfer}", strategy.name, transport.name)
    }

    fn options(&self) -> SparseOptions {
        let mut settings = rules::find(self.rule).unwrap().defaults;
        settings.rate = 0.1;
        SparseOptions {
            bits: BITS,
            rule: self.rule,
            settings,
            synchronous: self.strategy.synchronous,
            combine: Combine::Mean,
            transfer: self.transfer,
            returning: Duration::ZERO,
            patience: Duration::from_secs(120),
        }
    }

    /// A worker's work: its share of every batch if synchronous, else whole batches in turn.
    fn work(&self, rank: u32) -> Vec<(Batch, Range<usize>)> {
        let (rank, workers) = (rank as usize, self.workers as usize);
        let all = (0..self.until).map(|number| (number, batch(number)));
        if self.strategy.synchronous {
            let share = |n: usize| n * rank / workers..n * (rank + 1) / workers;
            return all
                .map(|(_, batch)| (share(batch.len()), batch))
                .map(|(s, b)| (b, s))
                .collect();
        }
        let own = all.filter(|(number, _)| number % workers == rank);
        own.map(|(_, batch)| (0..batch.len(), batch)).map(|(s, b)| (b, s)).collect()
    }

    fn run(&self) -> Outcome {
        let options = self.options();
        let memberships = Seats::over(self.transport.carrier(), self.workers, self.servers);
        let over = Over(AtomicBool::new(false));
        std::thread::scope(|scope| {
            for index in 0..self.servers {
                let (membership, over) =
                    (memberships.membership(TaskId::new(Role::Ps, index)), &over.0);
                scope.spawn(move || {
                    let server = SparseServer::new(membership, options).unwrap();
                    server.serve(&|| over.load(Ordering::Acquire), None).unwrap();
                });
            }
            let chief = memberships.membership(TaskId::new(Role::Worker, 0));
            let mut overseer = Overseer::connect(chief.clone(), &options).unwrap();
            let beginning = self.from.as_ref().map(|from| from.beginning.clone());
            let table = self.from.as_ref().map(|from| from.model.table());
            overseer.give(1, &beginning.unwrap_or_default(), table).unwrap();
            let workers: Vec<_> = (0..self.workers)
                .map(|index| {
                    let membership = match index {
                        0 => chief.clone(),
                        _ => memberships.membership(TaskId::new(Role::Worker, index)),
                    };
                    scope.spawn(move || self.worker(membership))
                })
                .collect();
            let worked: Vec<Worked> =
                workers.into_iter().map(|worker| worker.join().unwrap()).collect();
            let model = model(self.rule);
            let copied = overseer.copy(|number, slot| model.table().set(number, slot)).unwrap();
            over.0.store(true, Ordering::Release);
            Outcome {
                model,
                beginning: copied.unwrap(),
                rows: worked.iter().map(|worked| worked.rows).collect(),
                stale: worked.iter().map(|worked| worked.stale).sum(),
                told: worked.iter().map(|worked| worked.told).collect(),
                pushed: sum(worked.into_iter().map(|worked| worked.pushed)),
            }
        })
    }

    fn worker(&self, membership: Arc<TableMembership>) -> Worked {
        let work = self.work(membership.me().index);
        let (mut client, welcome) =
            SparseClient::connect(membership, self.options(), "ps").unwrap();
        let first = welcome.mark.map_or(0, |mark| mark[0] as usize);
        let mut worked = Worked::default();
        let (mut now, mut then) = (Minibatch::default(), Minibatch::default());
        let (mut weights, mut logits) = (Vec::new(), Vec::new());
        for (at, (batch, share)) in work.iter().enumerate().skip(first) {
            if at == first {
                now.prepare(batch, share.clone(), 1 << BITS);
                client.step(None, &now.touched, &mut weights, false).unwrap();
            }
            now.gradient(batch, share.clone(), &weights, 1.0, &mut logits);
            let mut pull = &[][..];
            if let Some((next, share)) = work.get(at + 1) {
                then.prepare(next, share.clone(), 1 << BITS);
                pull = &then.touched;
            }
            for (&index, &grad) in now.touched.iter().zip(&now.grads) {
                *worked.pushed.entry(index).or_default() += f64::from(grad) / share.len() as f64;
            }
            let push = Push {
                touched: &now.touched,
                grads: &now.grads,
                examples: share.len() as u64,
                mark: [at as u64 + 1, 0, 0, 0, 0, 0],
            };
            let answer = client.step(Some(push), pull, &mut weights, false).unwrap();
            worked.rows += share.len() as u64;
            worked.stale += answer.staleness;
            std::mem::swap(&mut now, &mut then);
        }
        worked.told = client.end().unwrap();
        worked
    }

    /// All rows served are worked on, each batch once, and every worker is told the total.
    fn check_counts(&self, outcome: &Outcome, first: usize) {
        let name = self.name();
        let served = |range: Range<usize>| range.map(|number| batch(number).len() as u64).sum();
        let (new, all): (u64, u64) = (served(first..self.until), served(0..self.until));
        assert_eq!(outcome.rows.iter().sum::<u64>(), new, "{name}: worked on and served");
        let Beginning { version, examples, marks } = &outcome.beginning;
        assert_eq!(*examples, all, "{name}: counted by the servers");
        assert_eq!(*version, self.until as u64, "{name}: one batch, one update");
        assert!(outcome.told.iter().all(|told| told == version), "{name}: {:?}", outcome.told);
        let wanted = (0..self.workers).map(|index| {
            let mark = [self.work(index).len() as u64, 0, 0, 0, 0, 0];
            (TaskId::new(Role::Worker, index), mark)
        });
        assert_eq!(*marks, wanted.collect::<Vec<_>>(), "{name}: how far each worker is");
        if self.strategy.synchronous {
            assert_eq!(outcome.stale, 0, "{name}: synchronous updates are never stale");
        }
    }
}

fn sum(parts: impl Iterator<Item = BTreeMap<u32, f64>>) -> BTreeMap<u32, f64> {
    let mut all = BTreeMap::new();
    for (index, value) in parts.flatten() {
        *all.entry(index).or_default() += value;
    }
    all
}

/// How near asynchronous training comes to one worker depends on which worker is faster. What it must always be is the
/// sum of what the workers pushed, in whichever order. Servers take the pushes of several workers at once and do not
/// lock a weight (as in Hogwild), so that two additions to one weight at the same moment may leave one of them: a few
/// thousandths of the way. A worker whose updates are lost or made twice would be a third.
fn check_updates(job: &Job, outcome: &Outcome) {
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

/// Raised at the end, however the test ends.
struct Over(AtomicBool);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
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
fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for strategy in strategies::ALL.iter().copied().filter(|strategy| strategy.needs_servers) {
        for transport in TRANSPORTS {
            for rule in rules::ALL.iter().map(|rule| rule.name) {
                for transfer in [Transfer::Sparse, Transfer::Dense] {
                    if rule == "sgd" || (strategy.synchronous && transfer == Transfer::Sparse) {
                        let (workers, servers, until, from) = (3, 2, BATCHES, None);
                        jobs.push(Job {
                            strategy,
                            transport,
                            rule,
                            transfer,
                            workers,
                            servers,
                            until,
                            from,
                        });
                    }
                }
            }
        }
    }
    jobs
}

/// How far a strategy may end from one worker's weights, as a fraction of the distance those moved. Asynchronous
/// updates are made from weights a few updates old, and in another order.
fn most(job: &Job) -> f64 {
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
        let first = Job { until: half, ..job.clone() };
        let stopped = first.run();
        first.check_counts(&stopped, 0);
        let second = Job { servers: 1, from: Some(Arc::new(stopped)), ..job.clone() };
        let outcome = second.run();
        second.check_counts(&outcome, half);
        check_updates(&second, &outcome);
        let off = off(&outcome.model, &alone(job.rule));
        assert!(off < most(&job), "{name}: {off:e} of the way off from one worker");
    }
}
