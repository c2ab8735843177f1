//! A copy of the model in every process, gradients added up by all-reduce.
//!
//! Each worker works on its share of the global batch. Ranges of the gradient are sent as the
//! backward pass completes them; when all sums have arrived, every worker makes the same update from the
//! same bits, so the copies stay equal without being sent. Step reports ride along with the sums.
//!
//! Weights move only after the last sum has arrived. A worker that is lost in the middle of a step
//! therefore leaves every other worker with the weights of this step or of the next, never in between, and
//! [`Exchange::reform`] brings those behind up to date.
//!
//! Where the workers share out layers ([`paceline_models::split`]), each updates the parameters it owns in the
//! middle of the backward pass, as one device does, and they are not part of the all-reduce. Other workers get them
//! only when all are needed ([`Exchange::complete`]). The parameters of a lost worker are lost with it, so such a
//! group cannot be formed again.
//!
//! Changes of running statistics add up too: a model weighs them by its share of the batch.

use super::{Setup, StrategyEntry};
use crate::{
    Exchange, Pushed, Snapshot, StepInfo, StepReport, StrategyError, StrategyOptions, Traffic,
    Version, compress::Compressed, exchange::is_nonfinite, lockstep::UntrainedEntries,
};
use paceline_cluster::JobMembership;
use paceline_models::{
    StepLoss,
    kernels::Buffer,
    optimizer::{Optimizer, OptimizerState},
    split::{Interrupted, Peers, Split},
    threads::Pool,
};
use paceline_wire::{Channel, LinkError, Wait, collective::Group};
use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

pub(super) const ENTRY: StrategyEntry = StrategyEntry {
    name: "multi-worker",
    about: "a copy of the model in every process, gradients added up by all-reduce",
    synchronous: true,
    needs_servers: false,
    in_process: false,
    most_replicas: Some(1),
    shares_layers: true,
    connect,
};

/// How long the other workers may take to be there.
const CONNECT: Duration = Duration::from_secs(60);
/// Gradients up to so many values go in one piece at the end: nothing is gained by cutting 1 MiB. Where workers share memory,
/// the model writes them where the others read them.
const WORTH_CUTTING: usize = 256 << 10;

struct AllReduceWorker {
    membership: Arc<dyn JobMembership>,
    options: StrategyOptions,
    group: Group,
    optimizer: Optimizer,
    state: OptimizerState,
    pool: Pool,
    /// Running statistics.
    statistics: UntrainedEntries,
    step: StepInfo,
    version: Version,
    /// The ranges of the gradient in the order in which the model completes them, once all workers
    /// know it: then they are sent one by one. Before that, and if the gradient is small,
    /// it is sent in one piece at the end.
    order: Option<Vec<Range<usize>>>,
    /// Ranges completed in this step that are to be added up.
    seen: Vec<Range<usize>>,
    /// Places where the others of this machine read a small gradient: of two, the one that the model does not write to in this
    /// step. Nothing before they are tried, empty where they are not to be had.
    open: Option<Vec<Buffer>>,
    /// Whether a range of this step was looked at, and what it was like.
    looked: bool,
    nonfinite: bool,
    /// Parameters from here on belong to shared-out layers; those before are copies.
    copied: usize,
    shared_out: Option<SharedOut>,
    /// How gradients travel in fewer bytes, where that was asked for.
    compressed: Option<Compressed>,
    told: (u64, u64),
    /// When the last step ended: from then on this worker was busy by itself.
    free: Instant,
}

/// Layers that the workers share out.
struct SharedOut {
    split: Split,
    /// The version of which this worker has the parameters of all workers.
    complete: Version,
    /// Time spent with the others in the middle of the present step.
    spent: Duration,
    /// What went wrong there.
    failure: Option<LinkError>,
}

fn connect(setup: &Setup<'_>) -> Result<Vec<Box<dyn Exchange>>, StrategyError> {
    super::one_replica(&ENTRY, setup)?;
    let membership = setup.membership.clone().ok_or(StrategyError::NoSeat)?;
    let group = join(&*membership)?;
    Ok(vec![Box::new(AllReduceWorker {
        options: setup.options,
        group,
        optimizer: setup.optimizer.clone(),
        state: setup.state.cloned().unwrap_or_else(|| setup.optimizer.state()),
        pool: setup.pools.first().cloned().unwrap_or_else(|| Pool::new(1)),
        statistics: UntrainedEntries::of(setup.layout),
        step: StepInfo::NONE,
        version: Version(setup.origin.version),
        order: None,
        seen: Vec::new(),
        open: None,
        looked: false,
        nonfinite: false,
        copied: setup.split.as_ref().map_or(setup.layout.len(), Split::start),
        shared_out: setup.split.clone().map(|split| SharedOut {
            split,
            complete: Version(setup.origin.version),
            spent: Duration::ZERO,
            failure: None,
        }),
        compressed: compressed(&setup.options),
        told: (0, 0),
        free: Instant::now(),
        membership,
    })])
}

/// Nothing is left out yet: where a group is formed again, parts and their owners are others.
fn compressed(options: &StrategyOptions) -> Option<Compressed> {
    (!options.compression.is_none()).then(|| Compressed::new(options.compression))
}

/// Links to all workers of the present generation.
fn join(membership: &dyn JobMembership) -> Result<Group, StrategyError> {
    let workers = membership.workers();
    let me = membership.me();
    let rank = workers.iter().position(|worker| *worker == me);
    let rank = rank.ok_or(StrategyError::NoWorker { task: me })?;
    let wait = Wait::within(CONNECT, "connecting to the other workers").unless(membership.alarm());
    let connect = |worker| membership.connect(worker, Channel::AllReduce, &wait);
    let accept = |worker| membership.accept(worker, Channel::AllReduce, &wait);
    Group::among(rank, &workers, connect, accept)
        .map_err(|error| StrategyError::explain(error, membership, 0))
}

impl AllReduceWorker {
    fn failed(&self, error: LinkError) -> StrategyError {
        StrategyError::explain(error, &*self.membership, self.step.step)
    }

    /// Adds up the gradient and `numbers` over all workers and makes the update, unless the gradient
    /// is NaN or infinite. Weights move only when nothing can fail any more.
    fn reduce_and_update(
        &mut self,
        numbers: &mut [f64],
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<(), LinkError> {
        if self.compressed.is_some() {
            self.reduce_compressed(numbers, params, grad)?;
        } else {
            self.reduce(numbers, params, grad)?;
        }
        if numbers[NONFINITE] == 0.0 {
            let Self { optimizer, state, pool, step, copied, .. } = self;
            let params = &mut params[..*copied];
            optimizer.finish(pool, 0..*copied, params, state, step.rate, step.step);
        }
        Ok(())
    }

    /// The same, except for optimisers that need whole tensors.
    fn reduce(
        &mut self,
        numbers: &mut [f64],
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<(), LinkError> {
        let open = self.copied <= WORTH_CUTTING && self.prepare_open(grad)?;
        let Self { membership, options, group, optimizer, state, pool, step, .. } = self;
        let update = Update { optimizer, pool, rate: step.rate, step: step.step };
        let wait = Wait::within(options.patience, "adding up gradients").unless(membership.alarm());
        let copied = self.copied;
        if open {
            let Some(other) = self.open.iter_mut().flatten().next() else {
                unreachable!("places come in twos, and the gradient has one of them")
            };
            group.sum_open(&grad[..copied], numbers, &wait, |range, sums, numbers| {
                if numbers[NONFINITE] == 0.0 {
                    update.apply(range.clone(), &mut params[range], sums, state);
                } else {
                    other[range].copy_from_slice(sums); // for those who look for the cause
                }
            })?;
            // The others may still read this one.
            std::mem::swap(grad, other);
            return Ok(());
        }
        let (params, grad) = (&mut params[..copied], &mut grad[..copied]);
        let Some(order) = &self.order else {
            group.all_reduce_with(grad, numbers, &wait)?;
            if numbers[NONFINITE] == 0.0 {
                update.apply(0..copied, params, grad, state);
            }
            return Ok(());
        };
        if self.seen.is_empty() {
            // The share was empty, so the model completed nothing.
            for range in order {
                group.begin(range.clone(), &grad[range.clone()]);
            }
        }
        if group.shares_memory() {
            // All sums are there before the first is handed out. A value that is not finite in one
            // worker's gradient is one in the sum, so all workers see it in the first range.
            // With shared-out layers all workers have seen the gradient of all examples' losses already.
            let mut nonfinite = self.shared_out.as_ref().map(|_| self.nonfinite);
            return group.finish(numbers, &wait, |range, sums| {
                if !*nonfinite.get_or_insert_with(|| is_nonfinite(sums)) {
                    update.apply(range.clone(), &mut params[range], sums, state);
                }
            });
        }
        group.finish(numbers, &wait, |range, sums| grad[range].copy_from_slice(sums))?;
        if numbers[NONFINITE] == 0.0 {
            update.apply(0..copied, params, grad, state);
        }
        Ok(())
    }
}

impl AllReduceWorker {
    /// As [`Self::reduce`], with fewer bytes. Running statistics travel as they are.
    fn reduce_compressed(
        &mut self,
        numbers: &mut [f64],
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<(), LinkError> {
        let Self { membership, options, group, optimizer, state, pool, statistics, step, .. } =
            self;
        let Some(compressed) = &mut self.compressed else {
            unreachable!("only where gradients are compressed")
        };
        let wait = Wait::within(options.patience, "adding up gradients").unless(membership.alarm());
        let mut changes = statistics.take(grad);
        group.all_reduce_with(&mut changes, numbers, &wait)?;
        if numbers[NONFINITE] != 0.0 {
            return Ok(());
        }
        compressed.sum(group, grad, &wait)?;
        statistics.put(&changes, grad);
        let update = Update { optimizer, pool, rate: step.rate, step: step.step };
        update.apply(0..grad.len(), params, grad, state);
        Ok(())
    }

    /// Sees to it that a small gradient lies where the others can read it; false where they cannot. All workers come to the
    /// same answer.
    fn prepare_open(&mut self, grad: &mut Buffer) -> Result<bool, LinkError> {
        let Self { membership, options, group, open, .. } = self;
        if !group.shares_memory() || group.size() < 2 {
            return Ok(false);
        }
        if open.is_none() {
            let wait = Wait::within(options.patience, "sharing memory").unless(membership.alarm());
            let mut places = Vec::new();
            for _ in 0..2 {
                let place = group.buffer(grad.len(), &wait)?;
                places.extend(place.is_shared().then(|| Buffer::lent(place)));
            }
            *open = Some(if places.len() == 2 { places } else { Vec::new() });
        }
        let open = open.get_or_insert_default();
        if !group.is_open(grad) {
            let Some(mut place) = open.pop() else { return Ok(false) };
            place.copy_from_slice(grad);
            *grad = place;
        }
        Ok(true)
    }

    /// A meeting in the middle of a step.
    fn meet(
        &mut self,
        phase: &'static str,
        work: impl FnOnce(&mut Group, &Wait<'_>) -> Result<(), LinkError>,
    ) -> Result<(), Interrupted> {
        let Self { membership, options, group, shared_out: Some(shared_out), .. } = self else {
            return Err(Interrupted);
        };
        if shared_out.failure.is_some() {
            return Err(Interrupted);
        }
        let begun = Instant::now();
        let wait = Wait::within(options.patience, phase).unless(membership.alarm());
        let done = work(group, &wait);
        shared_out.spent += begun.elapsed();
        done.map_err(|error| {
            shared_out.failure = Some(error);
            Interrupted
        })
    }

    /// Gathers each worker's part of a buffer that is laid out like the parameters, for all workers.
    fn gather_parts(
        group: &mut Group,
        split: &Split,
        values: &mut [f32],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let parts = split.parts(group.size());
        parts
            .into_iter()
            .try_for_each(|(range, lengths)| group.all_gather(&mut values[range], &lengths, wait))
    }
}

impl Peers for AllReduceWorker {
    fn gather(&mut self, values: &mut [f32], lengths: &[usize]) -> Result<(), Interrupted> {
        self.meet("gathering activations", |group, wait| group.all_gather(values, lengths, wait))
    }

    fn sum(&mut self, values: &mut [f32]) -> Result<(), Interrupted> {
        self.meet("adding up activations' gradients", |group, wait| group.all_reduce(values, wait))
    }

    fn ready(&mut self, range: Range<usize>, params: &mut [f32], grad: &mut [f32]) {
        Exchange::ready(self, range, params, grad);
    }
}

/// One update, as far as it is the same for all ranges.
struct Update<'a> {
    optimizer: &'a Optimizer,
    pool: &'a Pool,
    rate: f32,
    step: u64,
}

impl Update<'_> {
    /// `params` and `sums` are those of `range`.
    fn apply(
        &self,
        range: Range<usize>,
        params: &mut [f32],
        sums: &[f32],
        state: &mut OptimizerState,
    ) {
        let (rate, step) = (self.rate, self.step);
        self.optimizer.update_on(self.pool, range, params, sums, state, rate, step);
    }
}

/// Numbers that ride along: the step report, whether the order of ranges is known, and how long each worker
/// was busy.
const NONFINITE: usize = 4;
const KNOWS: usize = 5;
const FIXED: usize = 6;
/// Workers whose times ride along; with more, waiting counts as exchange.
const MOST_TIMED: usize = 10;

fn written(step_report: &StepReport) -> [f64; FIXED] {
    let flag = |set: bool| f64::from(u8::from(set));
    let StepLoss { loss_sum, correct, examples } = step_report.loss;
    [
        loss_sum,
        correct as f64,
        examples as f64,
        flag(step_report.stop),
        flag(step_report.nonfinite),
        0.0,
    ]
}

fn read(sums: &[f64]) -> StepReport {
    StepReport {
        loss: StepLoss { loss_sum: sums[0], correct: sums[1] as u64, examples: sums[2] as u64 },
        stop: sums[3] > 0.0,
        nonfinite: sums[NONFINITE] > 0.0,
    }
}

impl Exchange for AllReduceWorker {
    fn place(&self) -> (usize, usize) {
        (self.group.rank(), self.group.size())
    }

    fn pull(&mut self, step: StepInfo, _params: &mut [f32]) -> Result<Version, StrategyError> {
        self.step = step;
        self.seen.clear();
        (self.looked, self.nonfinite) = (false, false);
        Ok(self.version)
    }

    fn ready(&mut self, range: Range<usize>, params: &mut [f32], grad: &mut [f32]) {
        if !self.looked {
            self.looked = true;
            self.nonfinite = is_nonfinite(grad);
        }
        if range.start >= self.copied {
            if !self.nonfinite {
                let StepInfo { step, rate, .. } = self.step;
                let Self { optimizer, state, pool, .. } = self;
                optimizer.update_on(pool, range, params, grad, state, rate, step);
            }
            return;
        }
        if self.order.is_some() {
            self.group.begin(range.clone(), grad);
        }
        self.seen.push(range);
    }

    fn push(
        &mut self,
        mut step_report: StepReport,
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<Pushed, StrategyError> {
        let begun = Instant::now();
        let mut amid = Duration::ZERO;
        if let Some(shared_out) = &mut self.shared_out {
            amid = std::mem::take(&mut shared_out.spent);
            if let Some(error) = shared_out.failure.take() {
                return Err(self.failed(error));
            }
        }
        step_report.nonfinite |= self.nonfinite;
        let (rank, size) = self.place();
        let timed = if size <= MOST_TIMED { size } else { 0 };
        let mut numbers = [0.0; FIXED + MOST_TIMED];
        numbers[..FIXED].copy_from_slice(&written(&step_report));
        let in_pieces = self.copied > WORTH_CUTTING && self.compressed.is_none();
        let known = in_pieces && !self.seen.is_empty();
        numbers[KNOWS] = f64::from(u8::from(known));
        let busy = (begun - self.free).saturating_sub(amid).as_secs_f64();
        if timed > 0 {
            numbers[FIXED + rank] = busy;
        }
        let numbers = &mut numbers[..FIXED + timed];
        self.reduce_and_update(numbers, params, grad).map_err(|error| self.failed(error))?;
        if self.order.is_none() && numbers[KNOWS] as usize == size {
            self.order = Some(self.seen.clone());
        }
        self.version = Version(self.step.step + 1);
        self.free = Instant::now();
        // All began together, when the last step ended: who was busy less than the slowest waited.
        let spent = self.free - begun + amid;
        let slowest = numbers[FIXED..].iter().copied().fold(busy, f64::max);
        let wait = Duration::from_secs_f64((slowest - busy).max(0.0)).min(spent);
        let (sent, received) = self.group.traffic();
        let traffic = Traffic { sent: sent - self.told.0, received: received - self.told.1 };
        self.told = (sent, received);
        Ok(Pushed {
            step_report: read(numbers),
            version: self.version,
            traffic,
            exchange: (spent - wait).as_nanos() as u64,
            wait: wait.as_nanos() as u64,
            ..Pushed::default()
        })
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<(), StrategyError> {
        let wait = Wait::within(self.options.patience, "adding up with the other workers");
        let wait = wait.unless(self.membership.alarm());
        let done = self.group.all_reduce(values, &wait);
        done.map_err(|error| self.failed(error))
    }

    fn peers(&mut self) -> Option<&mut dyn Peers> {
        if self.shared_out.is_some() { Some(self) } else { None }
    }

    fn complete(&mut self, params: &mut [f32]) -> Result<(), StrategyError> {
        let Self { membership, options, group, version, shared_out: Some(shared_out), .. } = self
        else {
            return Ok(());
        };
        if shared_out.complete == *version {
            return Ok(());
        }
        let wait = Wait::within(options.patience, "gathering weights").unless(membership.alarm());
        let done = Self::gather_parts(group, &shared_out.split, params, &wait);
        shared_out.complete = *version;
        self.free = Instant::now();
        done.map_err(|error| self.failed(error))
    }

    fn snapshot(&mut self) -> Result<Option<Snapshot>, StrategyError> {
        let Self { membership, options, group, state, shared_out, .. } = self;
        if let Some(SharedOut { split, .. }) = shared_out {
            let wait = Wait::within(options.patience, "gathering the optimiser's state");
            let wait = wait.unless(membership.alarm());
            let mut buffers = state.buffers_mut().iter_mut().filter(|buffer| !buffer.is_empty());
            let done =
                buffers.try_for_each(|buffer| Self::gather_parts(group, split, buffer, &wait));
            done.map_err(|error| self.failed(error))?;
        }
        // Every worker has everything; only one needs to write it.
        Ok((self.group.rank() == 0).then(|| Snapshot {
            version: self.version,
            params: None,
            state: self.state.clone(),
            outstanding: Vec::new(),
        }))
    }

    fn reform(&mut self, params: &mut [f32]) -> Result<Version, StrategyError> {
        if self.shared_out.is_some() {
            return Err(StrategyError::NoReform);
        }
        self.group = join(&*self.membership)?;
        (self.order, self.open) = (None, None);
        self.compressed = compressed(&self.options);
        self.seen.clear();
        self.told = (0, 0);
        self.align(params)
    }

    fn align(&mut self, params: &mut [f32]) -> Result<Version, StrategyError> {
        let (rank, size) = self.place();
        let mut versions = vec![0.0; size];
        versions[rank] = self.version.0 as f64;
        Exchange::sum(self, &mut versions)?;
        let latest = versions.iter().copied().fold(0.0, f64::max);
        let ahead = versions.iter().position(|version| *version == latest).unwrap_or(0);
        if versions.iter().any(|version| *version < latest) {
            let wait = Wait::within(self.options.patience, "taking over the latest weights");
            let wait = wait.unless(self.membership.alarm());
            let failed = |error| StrategyError::explain(error, &*self.membership, latest as u64);
            self.group.broadcast(ahead, params, &wait).map_err(failed)?;
            for buffer in self.state.buffers_mut().iter_mut().filter(|buffer| !buffer.is_empty()) {
                self.group.broadcast(ahead, buffer, &wait).map_err(failed)?;
            }
        }
        self.version = Version(latest as u64);
        if let Some(shared_out) = &mut self.shared_out {
            // Only whole weights were broadcast, and only right after connecting.
            shared_out.complete = self.version;
        }
        self.free = Instant::now();
        Ok(self.version)
    }
}
