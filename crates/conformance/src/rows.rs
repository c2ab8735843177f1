//! A sparse model trained on drawn rows under one strategy with servers over one transport, all tasks threads of this
//! process: what [`crate::Job`] is for models that learn from batches of examples.

use crate::{TRANSPORTS, Transport};
use paceline_batch::{Batch, Features};
use paceline_cluster::{
    JobMembership,
    membership::{ThreadMembership, ThreadedJob},
};
use paceline_models::sparse_logistic::{Minibatch, RowLoss, SparseLogistic, rules};
use paceline_strategies::{
    self as strategies, Combine, Transfer,
    sparse::{Answer, Beginning, Overseer, Push, SparseClient, SparseOptions, SparseServer},
};
use paceline_wire::{Role, TaskId};
use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Weights are 2 to this power, and the bias.
const BITS: u32 = 9;
/// Batches of a whole run.
pub const BATCHES: usize = 24;

/// Rows whose label follows from their first feature, followed by others drawn from `width` numbers after it.
///
/// # Panics
/// Never: a sparse batch has sparse features.
#[must_use]
pub fn drawn_rows(seed: u64, count: usize, others: usize, width: u64) -> Batch {
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
        indices.extend((0..others).map(|_| 4 + random(width) as u32));
        offsets.push(indices.len());
        batch.labels.push(u32::from(random(10) < if kind < 2 { 9 } else { 1 }));
    }
    batch
}

/// Rows for the models of this module.
#[must_use]
pub fn rows(seed: u64, count: usize) -> Batch {
    drawn_rows(seed, count, 5, (1 << BITS) - 4)
}

/// A batch of the run; the last one is short.
fn batch(number: usize) -> Batch {
    rows(number as u64 + 1, if number + 1 == BATCHES { 5 } else { 32 })
}

/// A model that has learnt nothing.
#[must_use]
pub fn model(rule: &str) -> SparseLogistic {
    let mut settings = rules::find(rule).unwrap().defaults;
    settings.rate = 0.1;
    SparseLogistic::new(BITS, rule, settings).unwrap()
}

/// One worker without servers.
#[must_use]
pub fn alone(rule: &str) -> SparseLogistic {
    let model = model(rule);
    let (mut mini, mut weights, mut logits) = (Minibatch::default(), Vec::new(), Vec::new());
    for batch in (0..BATCHES).map(batch) {
        let mean = 1.0 / batch.len() as f32;
        mini.learn(&model, &batch, 0..batch.len(), mean, &mut weights, &mut logits);
    }
    model
}

/// What to train, how, and with how many.
#[derive(Debug, Clone)]
pub struct RowsJob {
    pub strategy: &'static strategies::StrategyEntry,
    pub transport: &'static Transport,
    pub rule: &'static str,
    pub transfer: Transfer,
    pub workers: u32,
    pub servers: u32,
    /// Batches until which it trains.
    pub until: usize,
    /// The job it continues.
    pub from: Option<Arc<RowsOutcome>>,
}

/// How it went.
#[derive(Debug)]
pub struct RowsOutcome {
    pub model: SparseLogistic,
    pub beginning: Beginning,
    /// Rows each worker worked on.
    pub rows: Vec<u64>,
    /// Updates by others between a pull and its push, summed over all.
    pub stale: u64,
    /// Updates of the run, as each worker was told at the end.
    pub told: Vec<u64>,
    /// The sum of all gradients that the workers pushed, each the mean of its batch, by weight.
    pub pushed: BTreeMap<u32, f64>,
}

/// What a worker did.
#[derive(Default)]
struct Worked {
    rows: u64,
    stale: u64,
    told: u64,
    pushed: BTreeMap<u32, f64>,
}

/// Set at the end, even after a panic: servers that keep running would hide what went wrong.
#[derive(Debug, Default)]
pub struct Over(AtomicBool);

impl Over {
    /// Whether the job is over.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Sets it when the returned value is dropped.
    pub fn at_the_end(&self) -> impl Drop + use<'_> {
        struct AtTheEnd<'a>(&'a Over);
        impl Drop for AtTheEnd<'_> {
            fn drop(&mut self) {
                self.0.0.store(true, Ordering::Release);
            }
        }
        AtTheEnd(self)
    }
}

/// The loop of a worker: the gradient of each of `work` from number `first` on is pushed while the weights of the next
/// are pulled; `bias` is the number of its weight. `pushed` is told of each, with its number of rows, and may end the loop.
///
/// # Panics
/// If a server cannot be reached.
pub fn push_all(
    client: &mut SparseClient,
    work: &[(Batch, Range<usize>)],
    first: usize,
    bias: u32,
    mut pushed: impl FnMut(&Minibatch, usize, &Answer) -> ControlFlow<()>,
) {
    let (mut now, mut then) = (Minibatch::default(), Minibatch::default());
    let (mut weights, mut logits) = (Vec::new(), Vec::new());
    for (at, (batch, share)) in work.iter().enumerate().skip(first) {
        if at == first {
            now.prepare(batch, share.clone(), bias);
            client.step(None, &now.touched, &mut weights, false).unwrap();
        }
        now.gradient(batch, share.clone(), &weights, (RowLoss::Logistic, 1.0), &mut logits);
        let mut pull = &[][..];
        if let Some((next, share)) = work.get(at + 1) {
            then.prepare(next, share.clone(), bias);
            pull = &then.touched;
        }
        let push = Push {
            touched: &now.touched,
            grads: &now.grads,
            sizes: &now.sizes,
            examples: share.len() as u64,
            mark: [at as u64 + 1, 0, 0, 0, 0, 0],
        };
        let answer = client.step(Some(push), pull, &mut weights, false).unwrap();
        if pushed(&now, share.len(), &answer).is_break() {
            return;
        }
        std::mem::swap(&mut now, &mut then);
    }
}

impl RowsJob {
    /// Three workers and two servers over the first kind of link.
    #[must_use]
    pub fn under(
        strategy: &'static strategies::StrategyEntry,
        rule: &'static str,
        transfer: Transfer,
    ) -> Self {
        let transport = &TRANSPORTS[0];
        let (workers, servers, until, from) = (3, 2, BATCHES, None);
        Self { strategy, transport, rule, transfer, workers, servers, until, from }
    }

    /// For messages.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { strategy, transport, rule, transfer, .. } = self;
        format!("{}, {}, {rule}, {transfer}", strategy.name, transport.name)
    }

    /// What servers and workers agree on.
    #[must_use]
    pub fn options(&self) -> SparseOptions {
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

    /// Trains.
    #[must_use]
    pub fn run(&self) -> RowsOutcome {
        let options = self.options();
        let memberships = ThreadedJob::over(self.transport.carrier(), self.workers, self.servers);
        let over = Over::default();
        std::thread::scope(|scope| {
            let at_the_end = over.at_the_end();
            for index in 0..self.servers {
                let (membership, over) =
                    (memberships.membership(TaskId::new(Role::Ps, index)), &over);
                scope.spawn(move || {
                    let server = SparseServer::new(membership, options).unwrap();
                    server.serve(&|| over.is_set(), None).unwrap();
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
            drop(at_the_end);
            RowsOutcome {
                model,
                beginning: copied.unwrap(),
                rows: worked.iter().map(|worked| worked.rows).collect(),
                stale: worked.iter().map(|worked| worked.stale).sum(),
                told: worked.iter().map(|worked| worked.told).collect(),
                pushed: sum(worked.into_iter().map(|worked| worked.pushed)),
            }
        })
    }

    fn worker(&self, membership: Arc<ThreadMembership>) -> Worked {
        let work = self.work(membership.me().index);
        let (mut client, welcome) =
            SparseClient::connect(membership, self.options(), "ps").unwrap();
        let first = welcome.mark.map_or(0, |mark| mark[0] as usize);
        let mut worked = Worked::default();
        push_all(&mut client, &work, first, 1 << BITS, |mini, rows, answer| {
            for (&index, &grad) in mini.touched.iter().zip(&mini.grads) {
                *worked.pushed.entry(index).or_default() += f64::from(grad) / rows as f64;
            }
            worked.rows += rows as u64;
            worked.stale += answer.staleness;
            ControlFlow::Continue(())
        });
        worked.told = client.end().unwrap();
        worked
    }

    /// All rows served are worked on, each batch once, and every worker is told the total.
    ///
    /// # Panics
    /// If not.
    pub fn check_counts(&self, outcome: &RowsOutcome, first: usize) {
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
