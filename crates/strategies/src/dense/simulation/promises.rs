//! What servers promise, held against everything that happens in a simulated run.

use super::{STEPS, message::Copied, schedule::Schedule, servers::Checkpoint};
use crate::dense::tickets::{Done, Progress};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// What was seen so far.
pub(super) struct Book {
    synchronous: bool,
    /// Whether every step takes all workers' gradients.
    in_lockstep: bool,
    bound: Option<u64>,
    checkpoint: Rc<Checkpoint>,
    /// The lineage of the servers' weights in each generation.
    lineages: BTreeMap<u32, u32>,
    /// The generation in which servers were given weights last.
    begun: u32,
    /// Synchronous: who made each step, and the weights after it on each server.
    made: BTreeMap<u64, (u32, BTreeMap<usize, u32>)>,
    /// Synchronous: gradients of weights of different versions, by generation, step and rank.
    mixed: BTreeSet<(u32, u64, usize)>,
    /// What workers were told is made: steps up to one, or batches.
    completed: BTreeSet<u64>,
    /// The same when the present copy began.
    before_copy: BTreeSet<u64>,
    /// Batches that count as made on a server and need not be in its weights.
    lacking: BTreeMap<usize, BTreeSet<u64>>,
    /// Batches on their way, with their workers; those stay whose way was cut short.
    on_the_way: BTreeSet<(u64, usize)>,
    /// The weights that a batch's gradient is computed from, by worker and batch.
    pulled: BTreeMap<(usize, u64), Vec<f32>>,
    broken: Option<String>,
}

impl Book {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let part = Copied {
            version: 0,
            progress: Progress::default(),
            outstanding: Vec::new(),
            value: 0.0,
            slot: 0.0,
            lacks: BTreeSet::new(),
        };
        Self {
            synchronous: schedule.cast.synchronous,
            in_lockstep: schedule.backup_workers == 0,
            bound: schedule.max_staleness,
            checkpoint: Rc::new(Checkpoint { parts: vec![part; schedule.cast.servers] }),
            lineages: BTreeMap::new(),
            begun: 0,
            made: BTreeMap::new(),
            mixed: BTreeSet::new(),
            completed: BTreeSet::new(),
            before_copy: BTreeSet::new(),
            lacking: BTreeMap::new(),
            on_the_way: BTreeSet::new(),
            pulled: BTreeMap::new(),
            broken: None,
        }
    }

    pub(super) fn verdict(&self) -> Result<(), String> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// A promise is broken; the first counts.
    pub(super) fn breaks(&mut self, promise: String) {
        self.broken.get_or_insert(promise);
    }

    /// Updates in the last checkpoint.
    pub(super) fn saved(&self) -> u64 {
        self.checkpoint.parts[0].version
    }

    /// What servers are given that hold nothing.
    pub(super) fn beginning(&self) -> Rc<Checkpoint> {
        Rc::clone(&self.checkpoint)
    }

    /// All servers are given the last checkpoint; what was made since is lost.
    pub(super) fn begins(&mut self, generation: u32) {
        self.begun = generation;
        let saved = &self.checkpoint.parts[0];
        self.made.retain(|version, _| *version <= saved.version);
        if self.synchronous {
            self.completed.retain(|version| *version <= saved.version);
        } else {
            let mut done = Done::default();
            done.add(&saved.progress.done);
            self.completed.retain(|batch| done.contains(*batch));
        }
    }

    /// The chief is sure that all servers of a generation hold weights of a lineage, or will.
    pub(super) fn supplies(&mut self, generation: u32, lineage: u32) {
        self.lineages.insert(generation, lineage);
    }

    /// A server has taken the weights of a checkpoint.
    pub(super) fn takes(&mut self, server: usize, _lineage: u32, part: &Copied) {
        self.lacking.insert(server, part.lacks.clone());
    }

    fn is_of(&mut self, generation: u32, lineage: u32) {
        let present = self.lineages.get(&generation).copied();
        if present != Some(lineage) {
            self.breaks(format!(
                "generation {generation} updates weights of lineage {lineage}, not {present:?}"
            ));
        }
    }

    /// Synchronous: a server has made a step.
    pub(super) fn makes(
        &mut self,
        server: usize,
        (generation, lineage, version): (u32, u32, u64),
        value: f32,
    ) {
        self.is_of(generation, lineage);
        let committed = self.completed.contains(&version);
        let made = self.made.entry(version).or_insert_with(|| (generation, BTreeMap::new()));
        let mut wrong = None;
        if made.0 > generation {
            wrong = Some(format!("generation {generation} makes step {version} after {}", made.0));
        } else if made.0 < generation {
            if committed {
                wrong = Some(format!("step {version} was told to be made, and is made again"));
            }
            *made = (generation, BTreeMap::new());
        }
        if let Some((other, there)) = made.1.iter().next()
            && *there != value.to_bits()
        {
            wrong = Some(format!(
                "step {version} is made of different versions on servers {other} and {server}"
            ));
        }
        if made.1.insert(server, value.to_bits()).is_some() {
            wrong = Some(format!("server {server} makes step {version} twice"));
        }
        if let Some(wrong) = wrong {
            self.breaks(wrong);
        }
    }

    /// Synchronous: a worker has the weights of all servers. A backup worker may be late, so that they are of different versions:
    /// then its gradient must not count.
    pub(super) fn reads(&mut self, versions: &[u64], values: &[f32]) {
        let same = versions.iter().all(|version| *version == versions[0]);
        let equal = values.iter().all(|value| value.to_bits() == values[0].to_bits());
        if !same && self.in_lockstep || same && !equal {
            self.breaks(format!(
                "servers hold parts of different versions: {versions:?}, weights {values:?}"
            ));
        }
    }

    /// Synchronous: a worker sends the gradient of a step.
    pub(super) fn pushes(&mut self, generation: u32, (step, rank): (u64, usize), versions: &[u64]) {
        if versions.iter().any(|version| *version != versions[0]) {
            self.mixed.insert((generation, step, rank));
        }
    }

    /// Synchronous: a gradient is part of a step.
    pub(super) fn counts(&mut self, generation: u32, (step, rank): (u64, usize)) {
        if self.mixed.contains(&(generation, step, rank)) {
            self.breaks(format!(
                "step {step} has a gradient of rank {rank} that comes from different versions"
            ));
        }
    }

    /// A worker is told by all servers that a step or batch is made.
    pub(super) fn completes(&mut self, generation: u32, number: u64) {
        // An answer of the time before may come after servers were given a checkpoint.
        if generation >= self.begun {
            self.completed.insert(number);
        }
    }

    /// Synchronous: workers form again at a version.
    pub(super) fn continues(&mut self, generation: u32, version: u64) {
        if generation >= self.begun
            && let Some(last) = self.completed.last().filter(|last| **last > version)
        {
            self.breaks(format!("step {last} was told to be made, and all go on from {version}"));
        }
    }

    /// Asynchronous: a worker's process sends a batch to all servers, computed from these weights.
    pub(super) fn sends(&mut self, (process, task): (usize, usize), batch: u64, weights: &[f32]) {
        self.on_the_way.insert((batch, process));
        self.pulled.insert((task, batch), weights.to_vec());
    }

    /// All servers have answered.
    pub(super) fn arrives(&mut self, worker: usize, batch: u64) {
        self.on_the_way.remove(&(batch, worker));
    }

    /// Asynchronous: a server has made an update of a worker's batch, and told how stale it is.
    pub(super) fn updates(
        &mut self,
        (server, index): (usize, usize),
        (generation, lineage): (u32, u32),
        (task, batch): (usize, u64),
        (before, staleness): (f32, u64),
    ) {
        self.is_of(generation, lineage);
        if self.lacking.get(&server).is_some_and(|lacking| lacking.contains(&batch)) {
            self.breaks(format!("batch {batch} counted as made on server {server} and is made"));
        }
        let pulled = self.pulled.get(&(task, batch)).map_or(0.0, |weights| weights[index]);
        let made = bits(before) & !bits(pulled);
        let others = u64::from(made.count_ones());
        if self.bound.is_some_and(|bound| others.max(staleness) > bound) {
            self.breaks(format!("an update is stale by {others}, and told to be by {staleness}"));
        }
    }

    /// Asynchronous: what a server holds, and which batches count as made without being in its weights.
    pub(super) fn holds(&mut self, server: usize, done: &Done, value: f32) -> BTreeSet<u64> {
        let held = bits(value);
        if value > 0.0 || (held as f32 + value).abs() > 0.0 {
            self.breaks(format!("server {server} has weights {value}"));
        }
        let is_in = |batch: &u64| held & (1 << batch) != 0;
        for batch in 0..2 * STEPS {
            if is_in(&batch) && !done.contains(batch) {
                self.breaks(format!("batch {batch} is in the weights of {server} unaccounted for"));
            }
        }
        let lacks: BTreeSet<u64> =
            (0..STEPS).filter(|batch| done.contains(*batch) && !is_in(batch)).collect();
        let before = self.lacking.get(&server);
        let lost = lacks.iter().find(|batch| {
            let cut = self.on_the_way.range((**batch, 0)..=(**batch, usize::MAX)).next();
            cut.is_none() && before.is_none_or(|before| !before.contains(batch))
        });
        if let Some(batch) = lost {
            self.broken.get_or_insert(format!("batch {batch} is lost on server {server}"));
        }
        self.lacking.insert(server, lacks.clone());
        lacks
    }

    /// The chief begins a copy; what is made from here on may be in it or not.
    pub(super) fn copies(&mut self) {
        self.before_copy = self.completed.clone();
    }

    /// The chief has saved a copy of all servers.
    pub(super) fn saves(&mut self, checkpoint: Checkpoint) {
        let first = &checkpoint.parts[0];
        for part in &checkpoint.parts {
            let same = part.version == first.version && part.progress.done == first.progress.done;
            let level = !self.synchronous
                || (part.value.to_bits(), part.slot.to_bits())
                    == (first.value.to_bits(), first.slot.to_bits());
            if !same || !level {
                self.broken.get_or_insert(format!(
                    "a checkpoint has parts of different versions: {:?}",
                    checkpoint
                        .parts
                        .iter()
                        .map(|part| (part.version, part.value))
                        .collect::<Vec<_>>()
                ));
            }
        }
        if first.version < self.saved() {
            self.broken.get_or_insert(format!(
                "a checkpoint of {} follows one of {}",
                first.version,
                self.saved()
            ));
        }
        let forgotten = self.before_copy.iter().find(|number| {
            if self.synchronous {
                **number > first.version
            } else {
                !first.progress.done.contains(**number)
            }
        });
        if let Some(number) = forgotten {
            self.broken.get_or_insert(format!(
                "{number} was told to be made and is not in the checkpoint of {}",
                first.version
            ));
        }
        self.checkpoint = Rc::new(checkpoint);
    }

    /// When the run has ended, because its chief did its part or because it `failed`.
    pub(super) fn close(&self, failed: bool) -> Result<(), String> {
        let saved = self.saved();
        if failed || saved == STEPS {
            return Ok(());
        }
        Err(format!("the run is done after {saved} of {STEPS} updates"))
    }
}

/// Asynchronous: the batches in a weight.
fn bits(value: f32) -> u64 {
    (-value) as u64
}
