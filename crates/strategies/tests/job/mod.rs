//! A job of threads over in-process links, on a problem whose answer is known.
//!
//! Weight `i` of example `e` wants to be `target(e, i)`; the best weights are the mean over all
//! examples. Batches are 12 examples of 48, in order.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // every test file uses a part of it

pub mod gate;

use paceline_cluster::{
    JobMembership,
    membership::{ThreadMembership, ThreadedJob},
};
use paceline_models::{
    Layout, StepLoss,
    kernels::Buffer,
    optimizer::{self, Mask, Optimizer, OptimizerState},
};
use paceline_strategies::{
    Exchange, Origin, Server, Setup, Snapshot, StepInfo, StepReport, StrategyError,
    StrategyOptions, Tally, Ticket, find,
};
use paceline_wire::{Role, TaskId};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long a test waits before it calls something a hang: on a machine that is busy with other work everything takes longer.
pub const PATIENCE: Duration = Duration::from_secs(900);
pub const WEIGHTS: usize = 2_100;
pub const BATCH: u64 = 12;
pub const EXAMPLES: u64 = 48;
pub const RATE: f32 = 0.2;

pub fn layout() -> Layout {
    let mut layout = Layout::default();
    layout.push("a.weight", &[1_000], true);
    layout.push("a.running_mean", &[100], false);
    layout.push("b.weight", &[1_000], true);
    layout
}

pub fn target(example: u64, weight: usize) -> f32 {
    (((weight as u64 * 31 + example * 17) % 97) as f32 - 48.0) * 0.05
}

/// What all examples together want.
pub fn best(weight: usize) -> f32 {
    (0..EXAMPLES).map(|example| target(example, weight)).sum::<f32>() / EXAMPLES as f32
}

pub fn worker(index: u32) -> TaskId {
    TaskId::new(Role::Worker, index)
}

pub fn server(index: u32) -> TaskId {
    TaskId::new(Role::Ps, index)
}

/// What one worker is to do.
#[derive(Clone)]
pub struct Job {
    pub strategy: &'static str,
    pub optimizer: &'static str,
    pub workers: u32,
    pub servers: u32,
    pub steps: u64,
    pub options: StrategyOptions,
    pub origin: Origin,
    pub start: Vec<f32>,
    pub state: Option<OptimizerState>,
    /// Touches a tenth of the weights per batch.
    pub sparse: bool,
    pub table: Arc<ThreadedJob>,
    /// Batches that made an update, each with its worker.
    pub served: Arc<Mutex<Vec<(u64, usize)>>>,
    /// What each server counted, once it has ended.
    pub tallies: Arc<Mutex<Vec<Tally>>>,
}

/// How a worker fared.
pub struct Outcome {
    pub params: Vec<f32>,
    pub step: u64,
    pub examples: u64,
    pub counted: u64,
    pub snapshot: Option<Snapshot>,
    pub tally: Tally,
    pub most_stale: u64,
}

impl Job {
    pub fn new(strategy: &'static str, workers: u32, servers: u32, steps: u64) -> Self {
        Self {
            strategy,
            optimizer: "momentum",
            workers,
            servers,
            steps,
            options: StrategyOptions { patience: PATIENCE, ..StrategyOptions::default() },
            origin: Origin::default(),
            start: vec![0.5; WEIGHTS],
            state: None,
            sparse: false,
            table: ThreadedJob::new(workers, servers),
            served: Arc::default(),
            tallies: Arc::default(),
        }
    }

    pub fn optimizer(&self) -> Optimizer {
        let entry = optimizer::find(self.optimizer).unwrap();
        Optimizer::with_mask(entry, entry.defaults, &layout(), Mask::of(&layout())).unwrap()
    }

    pub fn with_setup<T>(
        &self,
        membership: Option<Arc<ThreadMembership>>,
        then: impl FnOnce(&Setup<'_>) -> T,
    ) -> T {
        let (layout, optimizer) = (layout(), self.optimizer());
        let mut setup = Setup::alone(1, &layout, &optimizer);
        setup.membership = membership.map(|membership| membership as Arc<dyn JobMembership>);
        setup.options = self.options;
        setup.origin = self.origin.clone();
        setup.steps = Some(self.steps);
        setup.state = self.state.as_ref();
        then(&setup)
    }

    pub fn server(&self, index: u32) -> Server {
        self.server_at(self.table.membership(server(index)))
    }

    pub fn server_at(&self, membership: Arc<ThreadMembership>) -> Server {
        let synchronous = find(self.strategy).unwrap().synchronous;
        self.with_setup(Some(membership), |setup| {
            Server::new(setup, synchronous, &self.start).unwrap()
        })
    }

    pub fn exchange(
        &self,
        membership: Option<Arc<ThreadMembership>>,
    ) -> Result<Box<dyn Exchange>, StrategyError> {
        self.with_setup(membership, |setup| {
            Ok((find(self.strategy).unwrap().connect)(setup)?.swap_remove(0))
        })
    }

    /// The weights that a batch has a gradient of.
    fn touched(&self, batch: u64) -> Vec<usize> {
        if !self.sparse {
            return (0..WEIGHTS).collect();
        }
        let trained = (0..1_000).chain(1_100..WEIGHTS);
        trained.filter(|weight| (*weight as u64 + batch).is_multiple_of(10)).collect()
    }

    /// The gradient of a share; only what is touched where the job is sparse.
    pub fn gradient(&self, ticket: Ticket, params: &[f32], grad: &mut [f32]) -> StepLoss {
        let (rank, of) = (ticket.share.0 as u64, ticket.share.1 as u64);
        let examples = rank * BATCH / of..(rank + 1) * BATCH / of;
        grad.fill(0.0);
        let touched = self.touched(ticket.batch);
        for place in examples.clone() {
            let example = (ticket.batch * BATCH + place) % EXAMPLES;
            for &weight in &touched {
                grad[weight] += (params[weight] - target(example, weight)) / BATCH as f32;
            }
        }
        if !self.sparse {
            // As models do: the change that a worker sees, weighed by its share of the batch.
            let share = (examples.end - examples.start) as f32 / BATCH as f32;
            grad[1_000..1_100].fill(0.25 * share);
        }
        let count = examples.end - examples.start;
        StepLoss { loss_sum: count as f64, correct: 0, examples: count }
    }

    /// One step; says how it ended.
    pub fn step(
        &self,
        exchange: &mut dyn Exchange,
        ticket: Ticket,
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<paceline_strategies::Pushed, StrategyError> {
        let info = StepInfo { step: ticket.batch, rate: RATE / 4.0, examples: BATCH };
        exchange.pull(info, params)?;
        let loss = self.gradient(ticket, params, grad);
        exchange.ready(0..WEIGHTS, params, grad);
        exchange.push(StepReport { loss, ..StepReport::default() }, params, grad)
    }

    /// Trains as the trainer does. `pause` is called before each push.
    pub fn work(
        &self,
        mut exchange: Box<dyn Exchange>,
        mut each: impl FnMut(u64),
    ) -> Result<Outcome, StrategyError> {
        let mut params = self.start.clone();
        let mut grad = Buffer::zeroed(WEIGHTS);
        let mut step = self.origin.version;
        let (mut examples, mut counted, mut most_stale) = (0, 0, 0);
        while step < self.steps || !exchange.in_lockstep() {
            let Some(ticket) = exchange.deal(step)? else { break };
            each(ticket.batch);
            let pushed = self.step(&mut *exchange, ticket, &mut params, &mut grad)?;
            let (rank, of) = (ticket.share.0 as u64, ticket.share.1 as u64);
            examples += (rank + 1) * BATCH / of - rank * BATCH / of;
            counted += pushed.step_report.loss.examples;
            most_stale = most_stale.max(pushed.staleness);
            if !pushed.dropped {
                self.served.lock().unwrap().push((ticket.batch, exchange.place().0));
            }
            step = pushed.version.0;
        }
        let last = StepInfo { step, rate: 0.0, examples: BATCH };
        exchange.pull(last, &mut params)?;
        exchange.sum(&mut [1.0])?;
        let snapshot = exchange.snapshot()?;
        let tally = exchange.tally()?;
        exchange.leave()?;
        if let Some(snapshot) = &snapshot {
            step = snapshot.version.0;
        }
        Ok(Outcome { params, step, examples, counted, snapshot, tally, most_stale })
    }

    /// Runs all tasks; every worker sleeps by `pace(rank, batch)` before each step.
    pub fn run(&self, pace: impl Fn(u32, u64) -> Duration + Sync) -> Vec<Outcome> {
        std::thread::scope(|scope| {
            let servers: Vec<_> = (0..self.servers)
                .map(|index| {
                    let server = self.server(index);
                    scope.spawn(move || server.serve())
                })
                .collect();
            let workers: Vec<_> = (0..self.workers)
                .map(|index| {
                    let membership = self.table.membership(worker(index));
                    let pace = &pace;
                    scope.spawn(move || {
                        let exchange = self.exchange(Some(membership)).unwrap();
                        self.work(exchange, |batch| std::thread::sleep(pace(index, batch))).unwrap()
                    })
                })
                .collect();
            let outcomes = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
            for server in servers {
                let tally = server.join().unwrap().unwrap();
                self.tallies.lock().unwrap().push(tally);
            }
            outcomes
        })
    }

    /// The same on one device.
    pub fn alone(&self) -> Outcome {
        let job = Self { strategy: "one-device", ..self.clone() };
        job.work(job.exchange(None).unwrap(), |_| ()).unwrap()
    }
}

pub fn no_pause(_: u32, _: u64) -> Duration {
    Duration::ZERO
}

pub fn assert_close(a: &[f32], b: &[f32], tolerance: f32, what: &str) {
    assert_eq!(a.len(), b.len());
    for (at, (a, b)) in a.iter().zip(b).enumerate() {
        assert!(
            (a - b).abs() <= tolerance * a.abs().max(1.0),
            "{what}: weight {at}: {a} against {b}"
        );
    }
}
