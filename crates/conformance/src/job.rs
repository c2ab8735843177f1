//! One model trained under one strategy over one transport, all tasks threads of this process.

use crate::{Examples, Transport, batches};
use paceline_cluster::{
    JobMembership,
    membership::{ThreadMembership, ThreadedJob},
};
use paceline_models::{
    Layout, Model, Score, StepContext, StepLoss,
    kernels::Buffer,
    optimizer::{self, Optimizer},
    registry,
    split::{Split, Together},
};
use paceline_strategies::{
    self as strategies, Exchange, Origin, Server, Setup, Snapshot, StepInfo, StepReport,
    StrategyOptions, Tally,
};
use paceline_wire::{Role, TaskId};
use std::{
    sync::{Arc, Barrier},
    time::Duration,
};

/// Small steps: results stay comparable where rounding differs, and where updates come in another
/// order. Smaller ones where a layer divides by the deviation of a handful of values.
const RATE: f32 = 0.01;
const RATE_WITH_STATISTICS: f32 = 1e-4;
/// Seed of weights and dropout.
const SEED: u64 = 11;

/// What to train, how, and with how many.
#[derive(Debug, Clone)]
pub struct Job {
    pub model: &'static registry::ModelEntry,
    pub strategy: &'static strategies::StrategyEntry,
    /// The links, where there are processes to join.
    pub transport: Option<&'static Transport>,
    /// Workers, or replicas.
    pub workers: usize,
    /// Servers, where the strategy has them.
    pub servers: usize,
    /// Updates in all.
    pub steps: u64,
    /// Layers that the workers share out.
    pub split: Option<Split>,
    pub optimizer: &'static str,
    /// Whether the model keeps statistics of the batches it sees, which depend on how they are cut.
    pub has_statistics: bool,
    examples: Examples,
    layout: Layout,
    start: Arc<Vec<f32>>,
    from: Option<Arc<Snapshot>>,
}

/// How it went.
#[derive(Debug)]
pub struct Outcome {
    /// Final weights of every worker.
    pub params: Vec<Vec<f32>>,
    /// Examples each worker worked on.
    pub examples: Vec<u64>,
    /// Examples counted over all workers, as reported to each worker.
    pub told: Vec<u64>,
    /// Batches worked on, by all workers together, ascending; each share counts.
    pub batches: Vec<u64>,
    /// The state at the end.
    pub snapshot: Snapshot,
    /// What the servers counted.
    pub tally: Tally,
    /// The sum of all gradients that the workers pushed.
    pub pushed: Vec<f64>,
}

struct Worked {
    params: Vec<f32>,
    examples: u64,
    told: u64,
    batches: Vec<u64>,
    snapshot: Option<Snapshot>,
    tally: Tally,
    pushed: Vec<f64>,
}

impl Job {
    /// One device, to be put under another strategy.
    ///
    /// # Panics
    /// If there are no examples for the model.
    #[must_use]
    pub fn new(model: &'static registry::ModelEntry) -> Self {
        let examples = Examples::for_model(model);
        let built = examples.build(model);
        let layout = built.layout().clone();
        let mut start = vec![0.0; layout.len()];
        built.init(SEED, &mut start);
        Self {
            model,
            strategy: strategies::find("one-device").unwrap(),
            transport: None,
            workers: 1,
            servers: 0,
            steps: 5,
            split: None,
            optimizer: "momentum",
            has_statistics: layout.entries().iter().any(|entry| !entry.trained),
            examples,
            layout,
            start: Arc::new(start),
            from: None,
        }
    }

    /// The same under a strategy, with two workers where it has workers, and two servers where it has
    /// servers.
    #[must_use]
    pub fn under(mut self, strategy: &'static strategies::StrategyEntry) -> Self {
        self.strategy = strategy;
        self.workers = if strategy.in_process { strategy.most_replicas.unwrap_or(2) } else { 2 };
        self.servers = if strategy.needs_servers { 2 } else { 0 };
        // Momentum gives early batches more weight than late ones, so their order would matter.
        self.optimizer = if strategy.synchronous { "momentum" } else { "sgd" };
        self
    }

    /// The same with the layers shared out that the model can share out; nothing if it has none.
    #[must_use]
    pub fn shared_out(mut self) -> Option<Self> {
        self.split = Some(self.examples.build(self.model).split()?);
        Some(self)
    }

    /// The same over links of that kind.
    #[must_use]
    pub fn over(mut self, transport: &'static Transport) -> Self {
        self.transport = Some(transport);
        self
    }

    /// The same until that many updates.
    #[must_use]
    pub fn steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    /// Goes on where another job ended.
    #[must_use]
    pub fn from(mut self, outcome: Outcome) -> Self {
        let params = outcome.snapshot.params.as_ref();
        let params = params.map_or_else(|| outcome.params[0].clone(), |params| params.to_vec());
        self.start = Arc::new(params);
        self.from = Some(Arc::new(outcome.snapshot));
        self
    }

    /// Where which weights lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Weights before the first step.
    #[must_use]
    pub fn start(&self) -> &[f32] {
        &self.start
    }

    fn rate(&self) -> f32 {
        if self.has_statistics { RATE_WITH_STATISTICS } else { RATE }
    }

    /// Plain gradient descent made of what the workers pushed: where the weights must end, in whichever order the
    /// updates were made and however old the weights were that the gradients came from. An update that was lost, made
    /// twice or made of half a gradient shows.
    #[must_use]
    pub fn replayed(&self, outcome: &Outcome) -> Vec<f32> {
        let mut params = self.start.to_vec();
        for entry in self.layout.entries() {
            // Running statistics travel as the change that is to be added.
            let factor = if entry.trained { -f64::from(self.rate()) } else { 1.0 };
            for at in entry.range() {
                params[at] = (f64::from(params[at]) + factor * outcome.pushed[at]) as f32;
            }
        }
        params
    }

    /// Mean loss over the first few batches.
    #[must_use]
    pub fn loss(&self, params: &[f32]) -> f64 {
        let mut model = self.examples.build(self.model);
        let mut score = Score::default();
        for number in 0..4 {
            model.score(params, &self.examples.batch(&batches(number)), &mut score).unwrap();
        }
        score.total.loss_sum / score.total.examples as f64
    }

    /// Trains.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let entry = optimizer::find(self.optimizer).unwrap();
        let optimizer = Optimizer::new(entry, entry.defaults, &self.layout).unwrap();
        let worked = if self.strategy.in_process {
            let exchanges = self.connect(&optimizer, None, self.workers);
            self.work_together(exchanges)
        } else {
            self.run_tasks(&optimizer)
        };
        let mut outcome = Outcome {
            params: Vec::new(),
            examples: Vec::new(),
            told: Vec::new(),
            batches: Vec::new(),
            snapshot: worked.iter().find_map(|worked| worked.snapshot.clone()).unwrap(),
            tally: worked[0].tally.clone(),
            pushed: vec![0.0; self.start.len()],
        };
        for worker in worked {
            for (sum, pushed) in outcome.pushed.iter_mut().zip(&worker.pushed) {
                *sum += pushed;
            }
            outcome.params.push(worker.params);
            outcome.examples.push(worker.examples);
            outcome.told.push(worker.told);
            outcome.batches.extend(worker.batches);
        }
        outcome.batches.sort_unstable();
        outcome
    }

    fn setup<'a>(
        &'a self,
        optimizer: &'a Optimizer,
        membership: Option<Arc<ThreadMembership>>,
        replicas: usize,
    ) -> Setup<'a> {
        let mut setup = Setup::alone(replicas, &self.layout, optimizer);
        setup.membership = membership.map(|membership| membership as Arc<dyn JobMembership>);
        setup.steps = Some(self.steps);
        setup.split = self.split.clone();
        setup.options =
            StrategyOptions { patience: Duration::from_secs(120), ..StrategyOptions::default() };
        if let Some(from) = &self.from {
            let Snapshot { version, outstanding, state, .. } = &**from;
            setup.origin = Origin { version: version.0, outstanding: outstanding.clone() };
            setup.state = Some(state);
        }
        setup
    }

    fn connect(
        &self,
        optimizer: &Optimizer,
        membership: Option<Arc<ThreadMembership>>,
        replicas: usize,
    ) -> Vec<Box<dyn Exchange>> {
        (self.strategy.connect)(&self.setup(optimizer, membership, replicas)).unwrap()
    }

    fn work_together(&self, exchanges: Vec<Box<dyn Exchange>>) -> Vec<Worked> {
        let end = Barrier::new(exchanges.len());
        std::thread::scope(|scope| {
            let threads: Vec<_> = exchanges
                .into_iter()
                .map(|exchange| scope.spawn(|| self.work(exchange, &end)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn run_tasks(&self, optimizer: &Optimizer) -> Vec<Worked> {
        let carrier =
            self.transport.expect("a strategy of several processes needs links").carrier();
        let count = |n: usize| u32::try_from(n).unwrap();
        let table = ThreadedJob::over(carrier, count(self.workers), count(self.servers));
        let end = Barrier::new(self.workers);
        std::thread::scope(|scope| {
            let servers: Vec<_> = (0..count(self.servers))
                .map(|index| {
                    let membership = table.membership(TaskId::new(Role::Ps, index));
                    let setup = self.setup(optimizer, Some(membership), 1);
                    let server =
                        Server::new(&setup, self.strategy.synchronous, &self.start).unwrap();
                    scope.spawn(move || server.serve().unwrap())
                })
                .collect();
            let workers: Vec<_> = (0..count(self.workers))
                .map(|index| {
                    let (membership, end) =
                        (table.membership(TaskId::new(Role::Worker, index)), &end);
                    scope.spawn(move || {
                        let mut exchanges = self.connect(optimizer, Some(membership), 1);
                        self.work(exchanges.swap_remove(0), end)
                    })
                })
                .collect();
            let worked = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
            servers.into_iter().for_each(|server| drop(server.join().unwrap()));
            worked
        })
    }

    /// The loop of the trainer, without clock and files.
    fn work(&self, mut exchange: Box<dyn Exchange>, end: &Barrier) -> Worked {
        let mut model = self.examples.build(self.model);
        let mut params = Buffer::zeroed(self.start.len());
        params.copy_from_slice(&self.start);
        let mut grad = Buffer::zeroed(self.start.len());
        let mut worked = Worked {
            params: Vec::new(),
            examples: 0,
            told: 0,
            batches: Vec::new(),
            snapshot: None,
            tally: Tally::default(),
            pushed: vec![0.0; self.start.len()],
        };
        let mut step = self.from.as_ref().map_or(0, |from| from.version.0);
        while step < self.steps || !exchange.in_lockstep() {
            let Some(ticket) = exchange.deal(step).unwrap() else { break };
            let loss = self.step(&mut *model, &mut *exchange, ticket, &mut params, &mut grad);
            for (sum, grad) in worked.pushed.iter_mut().zip(grad.iter()) {
                *sum += f64::from(*grad);
            }
            let step_report = StepReport { loss, ..StepReport::default() };
            let pushed = exchange.push(step_report, &mut params, &mut grad).unwrap();
            assert!(!pushed.step_report.nonfinite && !pushed.dropped);
            worked.examples += loss.examples;
            worked.told += pushed.step_report.loss.examples;
            worked.batches.push(ticket.batch);
            step = pushed.version.0;
        }
        let last = StepInfo { step, rate: 0.0, examples: 1 };
        exchange.pull(last, &mut params).unwrap();
        let mut sums = [1.0];
        exchange.sum(&mut sums).unwrap();
        assert_eq!(sums[0], self.workers as f64, "all workers are there at the end");
        exchange.complete(&mut params).unwrap();
        worked.snapshot = exchange.snapshot().unwrap();
        worked.tally = exchange.tally().unwrap();
        exchange.leave().unwrap();
        worked.params = params.to_vec();
        end.wait(); // no worker closes its links while others still use them
        worked
    }

    fn step(
        &self,
        model: &mut dyn Model,
        exchange: &mut dyn Exchange,
        ticket: strategies::Ticket,
        params: &mut [f32],
        grad: &mut [f32],
    ) -> StepLoss {
        let global = batches(ticket.batch);
        let share = global.share(ticket.share.0 as u64, ticket.share.1 as u64);
        let batch = self.examples.batch(&share);
        let info = StepInfo { step: ticket.batch, rate: self.rate(), examples: global.len() };
        exchange.pull(info, params).unwrap();
        let context = StepContext {
            seed: SEED,
            step: ticket.batch,
            first_example: share.places.start - global.places.start,
            scale: 1.0 / global.len() as f32,
            keeps_gradient: exchange.keeps_gradient(),
        };
        if let Some(peers) = exchange.peers() {
            let (rank, of) = ticket.share;
            let counts = |worker| global.share(worker as u64, of as u64).len() as usize;
            let counts: Vec<usize> = (0..of).map(counts).collect();
            let mut together = Together { place: (rank, of), examples: &counts, peers };
            return model
                .loss_and_grad_together(params, &batch, &context, grad, &mut together)
                .unwrap();
        }
        if batch.is_empty() {
            grad.fill(0.0);
            return StepLoss::default();
        }
        model
            .loss_and_grad(params, &batch, &context, grad, &mut |range, params, grad| {
                exchange.ready(range, params, grad);
            })
            .unwrap()
    }
}
