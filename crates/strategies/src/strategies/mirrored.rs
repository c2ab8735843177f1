//! Replicas of the model on thread groups of one process.
//!
//! Each replica works on its share of the global batch with its own copy of the weights. At the end
//! of a step the gradients are added in shared memory: replica `r` adds up and updates the `r`-th part of
//! the weights (and holds that part of the optimiser's state), then every replica copies the other
//! parts. Gradients are added in the order of the replicas, so that the same seed gives the same
//! bits on every run, and all copies stay equal.
//!
//! Running statistics are averaged over the replicas: each sees only its own share of the batch.

use super::{Setup, StrategyEntry};
use crate::{
    Exchange, Pushed, Snapshot, StepInfo, StepReport, StrategyError, Version,
    barrier::{Barrier, Broken},
    exchange::is_nonfinite,
    lockstep::{LockstepSum, SumFactor},
};
use paceline_models::{
    kernels::Buffer,
    optimizer::{Optimizer, OptimizerState},
    threads::Pool,
};
use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Instant,
};

pub(super) const ENTRY: StrategyEntry = StrategyEntry {
    name: "mirrored",
    about: "replicas on groups of cores of this machine, gradients added in shared memory",
    synchronous: true,
    needs_servers: false,
    in_process: true,
    most_replicas: None,
    shares_layers: false,
    connect,
};

/// Parts are cut at multiples of a cache line, so that two replicas never write to the same one.
const LINE: usize = 16;

/// What the replicas share.
struct Group {
    barrier: Barrier,
    members: Vec<Member>,
}

/// What a replica shows the others. Locks are never contended for long: the barriers order who reads
/// and who writes, the locks only prove it to the compiler.
struct Member {
    /// The part of the weights this replica updates.
    part: Range<usize>,
    gradient: RwLock<Buffer>,
    step_report: Mutex<StepReport>,
    values: Mutex<Vec<f64>>,
    /// New weights of `part`.
    weights: RwLock<Vec<f32>>,
    state: Mutex<OptimizerState>,
}

struct Replica {
    group: Arc<Group>,
    rank: usize,
    optimizer: Optimizer,
    step: StepInfo,
    version: Version,
    begun: bool,
    nonfinite: bool,
    sum: LockstepSum,
    /// Every replica updates its own part on its own thread.
    alone: Pool,
}

fn connect(setup: &Setup<'_>) -> Result<Vec<Box<dyn Exchange>>, StrategyError> {
    if setup.replicas == 0 {
        return Err(StrategyError::Replicas {
            strategy: ENTRY.name,
            found: 0,
            wanted: "1 or more",
        });
    }
    let (length, replicas) = (setup.layout.len(), setup.replicas);
    let cut = |at: usize| {
        setup.optimizer.cut((length * at / replicas).next_multiple_of(LINE).min(length))
    };
    let members = (0..replicas)
        .map(|rank| {
            let part = cut(rank)..if rank + 1 == replicas { length } else { cut(rank + 1) };
            let mut state = setup.optimizer.state();
            if let Some(old) = setup.state {
                for (new, old) in state.buffers_mut().iter_mut().zip(old.buffers()) {
                    if !new.is_empty() {
                        new[part.clone()].copy_from_slice(&old[part.clone()]);
                    }
                }
            }
            Member {
                gradient: RwLock::new(Buffer::zeroed(length)),
                step_report: Mutex::default(),
                values: Mutex::default(),
                weights: RwLock::new(vec![0.0; part.len()]),
                state: Mutex::new(state),
                part,
            }
        })
        .collect();
    let group = Arc::new(Group { barrier: Barrier::new(replicas), members });
    Ok((0..replicas)
        .map(|rank| {
            Box::new(Replica {
                group: Arc::clone(&group),
                rank,
                optimizer: setup.optimizer.clone(),
                step: StepInfo::NONE,
                version: Version(setup.origin.version),
                begun: false,
                nonfinite: false,
                sum: LockstepSum::new(setup.layout),
                alone: Pool::new(1),
            }) as Box<dyn Exchange>
        })
        .collect())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A replica that panicked breaks the barrier; its numbers are never used.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replica {
    fn lost(&self, _: Broken) -> StrategyError {
        StrategyError::ReplicaLost {
            replica: self.rank,
            replicas: self.group.members.len(),
            step: self.step.step,
        }
    }

    fn meet(&self) -> Result<(), StrategyError> {
        self.group.barrier.wait().map_err(|broken| self.lost(broken))
    }

    /// Adds up this replica's part over all gradients and applies the update to it.
    fn reduce_and_update(&mut self, params: &mut [f32]) {
        let Self { group, rank, optimizer, step, sum, alone, .. } = self;
        let own = &group.members[*rank];
        let gradients: Vec<_> = group
            .members
            .iter()
            .map(|member| member.gradient.read().unwrap_or_else(PoisonError::into_inner))
            .collect();
        let mut weights = own.weights.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = locked(&own.state);
        let gradients: Vec<&[f32]> =
            gradients.iter().map(|gradient| &gradient[own.part.clone()]).collect();
        sum.each_block(&own.part, &gradients, SumFactor::NONE, |range, sums| {
            let params = &mut params[range.clone()];
            optimizer.update(range.clone(), params, sums, &mut state, step.rate, step.step);
            let place = range.start - own.part.start..range.end - own.part.start;
            weights[place].copy_from_slice(params);
        });
        if optimizer.entry().whole_tensors() {
            let params = &mut params[own.part.clone()];
            optimizer.finish(alone, own.part.clone(), params, &mut state, step.rate, step.step);
            weights.copy_from_slice(params);
        }
    }

    /// Copies the parts that the others updated.
    fn copy_others(&self, params: &mut [f32]) {
        for (rank, member) in self.group.members.iter().enumerate() {
            if rank != self.rank {
                let weights = member.weights.read().unwrap_or_else(PoisonError::into_inner);
                params[member.part.clone()].copy_from_slice(&weights);
            }
        }
    }
}

impl Exchange for Replica {
    fn place(&self) -> (usize, usize) {
        (self.rank, self.group.members.len())
    }

    fn pull(&mut self, step: StepInfo, _params: &mut [f32]) -> Result<Version, StrategyError> {
        self.step = step;
        self.begun = false;
        self.nonfinite = false;
        Ok(Version(step.step))
    }

    fn ready(&mut self, _range: Range<usize>, _params: &mut [f32], grad: &mut [f32]) {
        // All cores compute until the end of the backward pass, so there is nothing to overlap with.
        if !self.begun {
            self.begun = true;
            self.nonfinite = is_nonfinite(grad);
        }
    }

    fn push(
        &mut self,
        mut step_report: StepReport,
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<Pushed, StrategyError> {
        let begun = Instant::now();
        let group = Arc::clone(&self.group);
        let own = &group.members[self.rank];
        step_report.nonfinite |= self.nonfinite;
        *locked(&own.step_report) = step_report;
        let swap = |grad: &mut Buffer| {
            let mut shown = own.gradient.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(grad, &mut *shown);
        };
        swap(grad);
        let arrived = Instant::now();
        self.meet()?;
        let met = Instant::now();
        let mut together = StepReport::default();
        for member in &group.members {
            together.add(&locked(&member.step_report));
        }
        if !together.nonfinite {
            self.reduce_and_update(params);
        }
        let updated = Instant::now();
        self.meet()?;
        let met_again = Instant::now();
        if !together.nonfinite {
            self.copy_others(params);
        }
        swap(grad);
        self.version = Version(self.step.step + 1);
        let wait = (met - arrived) + (met_again - updated);
        let exchange = begun.elapsed().saturating_sub(wait);
        Ok(Pushed {
            step_report: together,
            version: self.version,
            exchange: exchange.as_nanos() as u64,
            wait: wait.as_nanos() as u64,
            ..Pushed::default()
        })
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<(), StrategyError> {
        let group = Arc::clone(&self.group);
        *locked(&group.members[self.rank].values) = values.to_vec();
        self.meet()?;
        values.fill(0.0);
        for member in &group.members {
            for (sum, value) in values.iter_mut().zip(locked(&member.values).iter()) {
                *sum += value;
            }
        }
        // No replica may write the next values before all have read these.
        self.meet()
    }

    fn snapshot(&mut self) -> Result<Option<Snapshot>, StrategyError> {
        self.meet()?;
        let gathered = (self.rank == 0).then(|| {
            let mut whole = self.optimizer.state();
            for member in &self.group.members {
                let state = locked(&member.state);
                for (to, from) in whole.buffers_mut().iter_mut().zip(state.buffers()) {
                    if !to.is_empty() {
                        to[member.part.clone()].copy_from_slice(&from[member.part.clone()]);
                    }
                }
            }
            Snapshot { version: self.version, params: None, state: whole, outstanding: Vec::new() }
        });
        self.meet()?;
        Ok(gathered)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.group.barrier.break_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find;
    use paceline_models::{
        Layout,
        optimizer::{self, Mask},
    };

    /// 5,000 weights, of which 100 in the middle are running statistics.
    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.push("a.weight", &[3_000], true);
        layout.push("a.running_mean", &[100], false);
        layout.push("b.weight", &[1_900], true);
        layout
    }

    fn optimizer(layout: &Layout) -> Optimizer {
        named("momentum", layout)
    }

    fn named(name: &str, layout: &Layout) -> Optimizer {
        let entry = optimizer::find(name).unwrap();
        Optimizer::with_mask(entry, entry.defaults, layout, Mask::of(layout)).unwrap()
    }

    /// A made-up gradient that depends on the weights, so that errors grow.
    fn gradient(params: &[f32], step: u64, example: u64) -> Vec<f32> {
        params
            .iter()
            .enumerate()
            .map(|(i, p)| {
                (((i as u64 * 31 + example * 17 + step * 7) % 97) as f32 - 48.0) * 0.01 + p * 0.1
            })
            .collect()
    }

    /// Trains on 12 examples a step, cut over `replicas`; returns weights and state.
    fn train(strategy: &str, replicas: usize, steps: u64) -> (Vec<f32>, OptimizerState) {
        train_by("momentum", strategy, replicas, steps)
    }

    fn train_by(
        rule: &str,
        strategy: &str,
        replicas: usize,
        steps: u64,
    ) -> (Vec<f32>, OptimizerState) {
        let layout = layout();
        let optimizer = named(rule, &layout);
        let setup = Setup::alone(replicas, &layout, &optimizer);
        let exchanges = (find(strategy).unwrap().connect)(&setup).unwrap();
        let mut results: Vec<(Vec<f32>, Option<OptimizerState>)> = std::thread::scope(|scope| {
            let workers: Vec<_> = exchanges
                .into_iter()
                .map(|mut exchange| {
                    scope.spawn(move || {
                        let (rank, of) = exchange.place();
                        let mut params = vec![0.5f32; 5_000];
                        let mut grad = Buffer::zeroed(5_000);
                        for step in 0..steps {
                            exchange
                                .pull(StepInfo { step, rate: 0.05, examples: 12 }, &mut params)
                                .unwrap();
                            grad.fill(0.0);
                            for example in (rank * 12 / of)..((rank + 1) * 12 / of) {
                                for (sum, value) in
                                    grad.iter_mut().zip(gradient(&params, step, example as u64))
                                {
                                    *sum += value / 12.0;
                                }
                            }
                            // As models do: the change that a replica sees, weighed by its share of the batch.
                            grad[3_000..3_100].fill(0.25 / of as f32);
                            exchange.ready(0..5_000, &mut params, &mut grad);
                            let step_report = StepReport {
                                loss: paceline_models::StepLoss {
                                    examples: 12 / of as u64,
                                    ..Default::default()
                                },
                                ..StepReport::default()
                            };
                            let pushed =
                                exchange.push(step_report, &mut params, &mut grad).unwrap();
                            assert_eq!(pushed.step_report.loss.examples, 12);
                            assert_eq!(pushed.version, Version(step + 1));
                        }
                        let snapshot = exchange.snapshot().unwrap();
                        (params, snapshot.map(|snapshot| snapshot.state))
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        for pair in results.windows(2) {
            assert_eq!(pair[0].0, pair[1].0, "replicas must hold the same bits");
        }
        let (params, state) = results.swap_remove(0);
        (params, state.unwrap())
    }

    #[test]
    fn replicas_equal_one_device_at_the_same_global_batch() {
        let (alone, alone_state) = train("one-device", 1, 20);
        for replicas in [1, 2, 3, 4] {
            let (shared, state) = train("mirrored", replicas, 20);
            for (a, b) in alone.iter().zip(&shared) {
                assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{a} against {b}");
            }
            for (a, b) in alone_state.buffers()[0].iter().zip(state.buffers()[0].iter()) {
                assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{a} against {b}");
            }
            let off = shared[3_050] - (0.5 + 20.0 * 0.25);
            assert!(off.abs() < 1e-5, "statistics are off by {off}");
            assert_eq!(train("mirrored", replicas, 20).0, shared, "same bits every time");
        }
    }

    #[test]
    fn optimisers_that_need_whole_tensors_equal_one_device_too() {
        for rule in ["lars", "lamb"] {
            let (alone, _) = train_by(rule, "one-device", 1, 10);
            for replicas in [2, 3] {
                let (shared, _) = train_by(rule, "mirrored", replicas, 10);
                for (a, b) in alone.iter().zip(&shared) {
                    assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{rule}: {a} against {b}");
                }
            }
        }
    }

    #[test]
    fn a_nonfinite_gradient_leaves_all_weights_alone() {
        let layout = layout();
        let optimizer = optimizer(&layout);
        let setup = Setup::alone(2, &layout, &optimizer);
        let exchanges = connect(&setup).unwrap();
        std::thread::scope(|scope| {
            for (rank, mut exchange) in exchanges.into_iter().enumerate() {
                scope.spawn(move || {
                    let mut params = vec![1.0f32; 5_000];
                    let mut grad = Buffer::zeroed(5_000);
                    grad.fill(if rank == 1 { f32::NAN } else { 1.0 });
                    let step = StepInfo { rate: 0.1, ..StepInfo::NONE };
                    exchange.pull(step, &mut params).unwrap();
                    exchange.ready(0..5_000, &mut params, &mut grad);
                    let pushed =
                        exchange.push(StepReport::default(), &mut params, &mut grad).unwrap();
                    assert!(pushed.step_report.nonfinite);
                    assert_eq!(params, [1.0; 5_000]);
                    assert_eq!(grad[0].is_nan(), rank == 1, "the own gradient comes back");
                });
            }
        });
    }

    #[test]
    fn a_replica_that_leaves_does_not_hang_the_others() {
        let layout = layout();
        let optimizer = optimizer(&layout);
        let setup = Setup::alone(2, &layout, &optimizer);
        let mut exchanges = connect(&setup).unwrap();
        drop(exchanges.pop());
        let mut alone = exchanges.pop().unwrap();
        let (mut params, mut grad) = (vec![0.0; 5_000], Buffer::zeroed(5_000));
        let error = alone.push(StepReport::default(), &mut params, &mut grad).unwrap_err();
        assert!(matches!(error, StrategyError::ReplicaLost { replica: 0, replicas: 2, .. }));
    }

    #[test]
    fn sums_reach_all_replicas() {
        let layout = layout();
        let optimizer = optimizer(&layout);
        let setup = Setup::alone(3, &layout, &optimizer);
        std::thread::scope(|scope| {
            for (rank, mut exchange) in connect(&setup).unwrap().into_iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..50 {
                        let mut values = [rank as f64, 1.0, f64::from(round)];
                        exchange.sum(&mut values).unwrap();
                        assert_eq!(values, [3.0, 3.0, 3.0 * f64::from(round)]);
                    }
                    // Leave together: who goes first would break the last meeting of the others.
                    exchange.snapshot().unwrap();
                });
            }
        });
    }
}
