//! From a job to the shapes that fit: time, cost, accuracy, and what bounds each.
//!
//! The model is small enough to be said in a sentence, and the plan says it: examples over the measured rate per core, times
//! the cores; data over what disks or network deliver; gradients over the network. The expected time lets reading hide behind
//! computing; the interval goes from everything overlapping at full efficiency to nothing overlapping at three quarters of it.
//!
//! ```
//! use paceline_cloud::{CloudCatalogue, Job, Objective, Plan, Provider};
//!
//! let job = "name = 'flowers'\n[data]\ngb = 0.22\nexamples = 3670\n[measured]\nexamples_per_second = 8\ncores = 2\n\
//!            [quota]\nvcpus = 8\naddresses = 4\n[shape]\nextra_nodes = 1\nmachines = ['n1-standard-2']";
//! let job = Job::parse("job.toml", job)?;
//! let plan = Plan::new(&job, &CloudCatalogue::shipped(Provider::Gcp)?, Objective::Time)?;
//! assert_eq!(plan.chosen().nodes, 3); // and a master: 4 machines, 8 vCPUs
//! # Ok::<(), paceline_cloud::CloudError>(())
//! ```

use crate::catalogue::{CloudCatalogue, Disk, DiskRate, MachineType};
use crate::error::CloudError;
use crate::job::{DataPlace, ExchangeStrategy, GradientExchange, Job};
use crate::quota::Demand;
use crate::reading::{NodeReading, ReadBound};
use serde::Serialize;
use std::collections::BTreeMap;

/// Space on a node's disk for the system and its image.
const SYSTEM_GB: f64 = 20.0;
/// Data on disk need this much room: shards beside originals, or a run folder.
const ROOM: f64 = 1.5;
/// Share of the measured rate per core that is left on other, more or remote cores: at worst, expected, at best.
const EFFICIENCY: [f64; 3] = [0.75, 0.9, 1.0];
/// Share of its nominal speed that a network delivers to one job.
const NETWORK_SHARE: f64 = 0.8;
/// Seconds for one message between machines of a region.
const LATENCY: f64 = 100e-6;
/// Hours of a month, as providers count.
const MONTH: f64 = 730.0;

/// What makes one shape better than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Cheapest.
    Cost,
    /// Soonest.
    Time,
    /// Most accurate; among equals the cheapest.
    Accuracy,
}

/// What takes most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// The cores.
    Compute,
    /// The disk, or the network to the bucket.
    Input,
    /// Gradients between machines.
    Exchange,
    /// Booting and fetching the image.
    Start,
}

impl Bound {
    /// In a sentence.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Input => "reading",
            Self::Exchange => "exchange",
            Self::Start => "start-up",
        }
    }
}

/// Some number of machines with a disk each, and what the job would do on them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shape {
    pub machine: String,
    /// Machines that work.
    pub nodes: u32,
    /// Machines beside them.
    pub extra_nodes: u32,
    pub disk: Disk,
    /// What the cores could use of each node's disk.
    pub disk_use: DiskRate,
    /// Which limit reading meets, whether or not reading bounds the job.
    pub read_bound: ReadBound,
    /// GPUs of all nodes that work.
    pub gpus: u32,
    /// Examples of one update, where nodes exchange gradients.
    pub batch_size: Option<f64>,
    pub accuracy: Option<f64>,
    pub seconds: f64,
    /// Everything overlaps, at full efficiency.
    pub low: f64,
    /// Nothing overlaps, at three quarters of it.
    pub high: f64,
    /// Without GPUs where their price is not known; see [`Plan::gpu_usd_per_hour`].
    pub usd: f64,
    pub bound: Bound,
    pub parts: Parts,
    pub demand: Demand,
    /// Not worse in every criterion than another shape.
    pub pareto: bool,
}

/// Seconds of each part, as if it were alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Parts {
    pub start: f64,
    pub compute: f64,
    pub input: f64,
    pub exchange: f64,
}

/// All shapes that fit, best first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    pub job: String,
    pub objective: Objective,
    pub provider: &'static str,
    pub region: String,
    /// Of the prices.
    pub catalogue_date: String,
    pub catalogue_source: String,
    /// The GPU that was asked for, by the quota's name.
    pub gpu: Option<String>,
    /// Its price; `None` where the catalogue has none, and then no cost includes it.
    pub gpu_usd_per_hour: Option<f64>,
    /// Examples of all passes, by which a time becomes a rate.
    pub examples: f64,
    /// Shapes considered, those that fell out included.
    pub considered: usize,
    /// Why shapes fell out, and how many.
    pub refused: BTreeMap<String, usize>,
    pub shapes: Vec<Shape>,
}

impl Plan {
    /// Tries every machine type, number of nodes, batch size and kind of disk.
    pub fn new(
        job: &Job,
        catalogue: &CloudCatalogue,
        objective: Objective,
    ) -> Result<Self, CloudError> {
        if objective == Objective::Accuracy && job.accuracy.is_empty() {
            return Err(CloudError::Missing {
                target: "the objective accuracy",
                key: "[[accuracy]] in the job's file: which batch size reaches what",
            });
        }
        let machines = candidates(job, catalogue)?;
        let mut plan = Self {
            job: job.name.clone(),
            objective,
            provider: catalogue.provider.name(),
            region: catalogue.region.clone(),
            catalogue_date: catalogue.date.clone(),
            catalogue_source: catalogue.source.clone(),
            gpu: job.shape.gpu.clone(),
            gpu_usd_per_hour: gpu_price(job, catalogue),
            examples: job.data.examples * job.data.passes,
            considered: 0,
            refused: BTreeMap::new(),
            shapes: Vec::new(),
        };
        for machine in machines {
            for nodes in 1..=job.shape.max_nodes {
                for (batch, accuracy) in job.batches() {
                    plan.considered += 1;
                    match best_disk(job, catalogue, machine, nodes, (batch, accuracy), objective) {
                        Ok(shape) => plan.shapes.push(shape),
                        Err(reason) => *plan.refused.entry(reason).or_default() += 1,
                    }
                }
            }
        }
        if plan.shapes.is_empty() {
            let mut reasons: Vec<(String, usize)> = plan.refused.into_iter().collect();
            reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let words: Vec<String> = reasons
                .iter()
                .take(3)
                .map(|(reason, count)| format!("{reason} ({count} shapes)"))
                .collect();
            return Err(CloudError::NoShape { reasons: words.join("; ") });
        }
        mark_pareto(&mut plan.shapes);
        plan.shapes.sort_by(|a, b| rank(a, b, objective));
        Ok(plan)
    }

    /// The best by the objective.
    #[must_use]
    pub fn chosen(&self) -> &Shape {
        &self.shapes[0]
    }

    /// Those that no other beats in every criterion, best first.
    pub fn front(&self) -> impl Iterator<Item = &Shape> {
        self.shapes.iter().filter(|shape| shape.pareto)
    }
}

fn candidates<'a>(
    job: &Job,
    catalogue: &'a CloudCatalogue,
) -> Result<Vec<&'a MachineType>, CloudError> {
    if job.shape.machines.is_empty() {
        return Ok(catalogue.machines.iter().collect());
    }
    job.shape.machines.iter().map(|name| catalogue.machine(name)).collect()
}

fn rank(a: &Shape, b: &Shape, objective: Objective) -> std::cmp::Ordering {
    let money = a.usd.total_cmp(&b.usd);
    let time = a.seconds.total_cmp(&b.seconds);
    match objective {
        Objective::Cost => money.then(time),
        Objective::Time => time.then(money),
        Objective::Accuracy => {
            let of = |shape: &Shape| shape.accuracy.unwrap_or(0.0);
            of(b).total_cmp(&of(a)).then(money).then(time)
        }
    }
    .then_with(|| a.nodes.cmp(&b.nodes))
    .then_with(|| a.machine.cmp(&b.machine))
}

/// Of one machine type, number and batch size: the disk that serves the objective best, or why nothing fits.
fn best_disk(
    job: &Job,
    catalogue: &CloudCatalogue,
    machine: &MachineType,
    nodes: u32,
    batch: (Option<f64>, Option<f64>),
    objective: Objective,
) -> Result<Shape, String> {
    if job.measured.memory_gib > machine.memory_gib {
        return Err(format!("less memory than the {} GiB a node needs", job.measured.memory_gib));
    }
    if job.limits.accuracy.zip(batch.1).is_some_and(|(least, reached)| reached < least) {
        return Err("accuracy below the limit".to_owned());
    }
    let machines = nodes + job.shape.extra_nodes;
    let bare = demand(job, machine, nodes, None);
    if let Some(short) = job.quota.shortages(&bare).first() {
        return Err(format!("quota of {}", short.what));
    }
    let compute = compute_seconds(job, machine, nodes);
    let mut why = "no disk holds a node's data within the disk quota".to_owned();
    let mut best: Option<Shape> = None;
    for kind in &catalogue.disks {
        let most = job.quota.disk_gb_each(kind.quota, machines);
        let on_disk =
            if job.data.place == DataPlace::Disk { job.data.gb / f64::from(nodes) } else { 0.0 };
        // As fast as the cores can use, and as small as that allows.
        let reading = NodeReading::of(job, machine, nodes);
        let wanted = if on_disk > 0.0 { reading.within(compute) } else { DiskRate::default() };
        let Some(disk) = kind.choose(SYSTEM_GB + on_disk * ROOM, wanted, most) else { continue };
        let shape = estimate(job, catalogue, machine, nodes, (disk, wanted), batch);
        if job.limits.deadline_minutes.is_some_and(|limit| shape.seconds > limit * 60.0) {
            why = "later than the deadline".to_owned();
            continue;
        }
        if job.limits.budget_usd.is_some_and(|limit| shape.usd > limit) {
            why = "dearer than the budget".to_owned();
            continue;
        }
        if best.as_ref().is_none_or(|best| rank(&shape, best, objective).is_lt()) {
            best = Some(shape);
        }
    }
    best.ok_or(why)
}

fn demand(job: &Job, machine: &MachineType, nodes: u32, disk: Option<&Disk>) -> Demand {
    let mut demand = Demand::of(machine, nodes + job.shape.extra_nodes, disk);
    if let Some(gpu) = &job.shape.gpu {
        demand.gpus.insert(gpu.clone(), f64::from(nodes * job.shape.gpus_per_node));
    }
    demand
}

/// Seconds of computing at the measured rate per core.
fn compute_seconds(job: &Job, machine: &MachineType, nodes: u32) -> f64 {
    let per_core = job.measured.examples_per_second / job.measured.cores * machine.speed;
    job.data.examples * job.data.passes / (per_core * machine.vcpus * f64::from(nodes))
}

/// Dollars of one GPU for an hour, where the catalogue has it.
fn gpu_price(job: &Job, catalogue: &CloudCatalogue) -> Option<f64> {
    let name = job.shape.gpu.as_ref()?;
    catalogue.gpus.iter().find(|gpu| gpu.name == *name).map(|gpu| gpu.usd_per_hour)
}

/// Seconds that gradients are under way.
fn exchange_seconds(
    job: &Job,
    exchange: &GradientExchange,
    batch: f64,
    machine: &MachineType,
    nodes: u32,
) -> f64 {
    if nodes == 1 {
        return 0.0;
    }
    let updates = (job.data.examples * job.data.passes / batch).ceil();
    let mb_per_s = machine.network_gbit * 125.0 * NETWORK_SHARE;
    let count = f64::from(nodes);
    let once = exchange.gradient_mb / mb_per_s;
    updates
        * match exchange.strategy {
            // Each sends and receives its ring share twice, in 2 (n - 1) messages.
            ExchangeStrategy::MultiWorker => {
                2.0 * (count - 1.0) / count * once + 2.0 * (count - 1.0) * LATENCY
            }
            // The server's link carries every worker's gradient in and weights out, at the same time.
            ExchangeStrategy::PsSync => count * once + 2.0 * LATENCY,
            // An update is one worker's: the link carries one of each.
            ExchangeStrategy::PsAsync => once + 2.0 * LATENCY / count,
        }
}

fn estimate(
    job: &Job,
    catalogue: &CloudCatalogue,
    machine: &MachineType,
    nodes: u32,
    (disk, disk_use): (Disk, DiskRate),
    (batch, accuracy): (Option<f64>, Option<f64>),
) -> Shape {
    let compute = compute_seconds(job, machine, nodes);
    let reading = NodeReading::of(job, machine, nodes);
    let (input, read_bound) = match job.data.place {
        DataPlace::Disk => reading.on_disk(&disk),
        DataPlace::Bucket => reading.over_network(machine.network_gbit * 125.0 * NETWORK_SHARE),
    };
    let exchange = match (&job.exchange, batch) {
        (Some(exchange), Some(batch)) => exchange_seconds(job, exchange, batch, machine, nodes),
        _ => 0.0,
    };
    let start = job.shape.start_seconds;
    let [worst, usual, best] = EFFICIENCY;
    let seconds = start + (compute / usual).max(input) + exchange;
    let parts = Parts { start, compute, input, exchange };
    let machines = f64::from(nodes + job.shape.extra_nodes);
    let gpus = nodes * job.shape.gpus_per_node;
    let usd_per_hour = machines * (machine.usd_per_hour + disk.usd_per_month / MONTH)
        + f64::from(gpus) * gpu_price(job, catalogue).unwrap_or(0.0);
    Shape {
        machine: machine.name.clone(),
        nodes,
        extra_nodes: job.shape.extra_nodes,
        batch_size: batch,
        accuracy,
        seconds,
        low: start + (compute / best).max(input).max(exchange),
        high: start + compute / worst + input + exchange,
        usd: usd_per_hour * seconds / 3600.0,
        bound: parts.bound(),
        parts,
        demand: demand(job, machine, nodes, Some(&disk)),
        disk,
        disk_use,
        read_bound,
        gpus,
        pareto: false,
    }
}

impl Shape {
    /// Examples per second while it works that the plan expects of all nodes: low, expected, high.
    #[must_use]
    pub fn rates(&self, examples: f64) -> [f64; 3] {
        [self.high, self.seconds, self.low].map(|seconds| examples / (seconds - self.parts.start))
    }
}

impl Parts {
    fn bound(&self) -> Bound {
        let all = [
            (self.compute, Bound::Compute),
            (self.input, Bound::Input),
            (self.exchange, Bound::Exchange),
            (self.start, Bound::Start),
        ];
        let longest =
            |best: (f64, Bound), next: (f64, Bound)| if next.0 > best.0 { next } else { best };
        all.into_iter().fold((f64::NEG_INFINITY, Bound::Compute), longest).1
    }
}

/// Marks those that no other shape beats in time, cost and accuracy at once.
fn mark_pareto(shapes: &mut [Shape]) {
    let of = |shape: &Shape| [shape.seconds, shape.usd, -shape.accuracy.unwrap_or(0.0)];
    let all: Vec<[f64; 3]> = shapes.iter().map(of).collect();
    for (at, shape) in shapes.iter_mut().enumerate() {
        let own = all[at];
        let beaten = all.iter().enumerate().any(|(other, values)| {
            let no_worse = values.iter().zip(own).all(|(value, own)| *value <= own);
            // Of two that are equal in everything the first stays.
            no_worse && (*values != own || other < at)
        });
        shape.pareto = !beaten;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Provider;
    use crate::job::JobData;
    use crate::quota::Limits;
    use proptest::prelude::*;

    fn gcp() -> CloudCatalogue {
        CloudCatalogue::shipped(Provider::Gcp).unwrap()
    }

    fn flowers(more: &str) -> Job {
        let text = format!(
            "name = 'flowers'\n[data]\ngb = 22\nexamples = 367000\n[measured]\nexamples_per_second = 400\ncores = 2\n{more}"
        );
        Job::parse("job.toml", &text).unwrap()
    }

    #[test]
    fn every_shape_stays_within_the_quotas_and_the_limits() {
        let job = flowers(
            "[quota]\nvcpus = 8\naddresses = 4\nstandard_disk_gb = 716\nssd_disk_gb = 100\n[limits]\ndeadline_minutes = 30\nbudget_usd = 1\n[shape]\nextra_nodes = 1\n",
        );
        let plan = Plan::new(&job, &gcp(), Objective::Cost).unwrap();
        for shape in &plan.shapes {
            assert!(job.quota.shortages(&shape.demand).is_empty(), "{shape:?}");
            assert!(shape.seconds <= 1800.0 && shape.usd <= 1.0, "{shape:?}");
            assert!(shape.low <= shape.seconds && shape.seconds <= shape.high, "{shape:?}");
        }
        assert!(plan.refused.contains_key("quota of vCPUs"), "{:?}", plan.refused);
    }

    #[test]
    fn a_standard_disk_grows_until_it_no_longer_bounds_and_the_quota_ends_that() {
        let free = "[shape]\nmachines = ['n1-standard-8']\nmax_nodes = 1\n";
        let fast = Plan::new(&flowers(free), &gcp(), Objective::Time).unwrap();
        assert_eq!(fast.chosen().bound, Bound::Compute, "{:?}", fast.chosen());
        let tight = format!("{free}[quota]\nstandard_disk_gb = 100\nssd_disk_gb = 0\n");
        let slow = Plan::new(&flowers(&tight), &gcp(), Objective::Time).unwrap();
        let chosen = slow.chosen();
        assert_eq!((chosen.disk.kind.as_str(), chosen.disk.gb), ("pd-standard", 100.0));
        assert_eq!(chosen.bound, Bound::Input);
        assert!(chosen.seconds > fast.chosen().seconds);
    }

    #[test]
    fn four_small_machines_and_one_large_one_compute_alike() {
        let job =
            flowers("[shape]\nmachines = ['n1-standard-2', 'n1-standard-8']\nmax_nodes = 4\n");
        let plan = Plan::new(&job, &gcp(), Objective::Time).unwrap();
        let of = |machine: &str, nodes| {
            plan.shapes
                .iter()
                .find(|shape| shape.machine == machine && shape.nodes == nodes)
                .unwrap()
        };
        let [small, large] = [of("n1-standard-2", 4), of("n1-standard-8", 1)];
        assert!((small.parts.compute - large.parts.compute).abs() < 1e-9);
    }

    #[test]
    fn accuracy_may_be_the_objective_or_a_limit() {
        let more = "[exchange]\ngradient_mb = 14\nbatch_size = 64\n[[accuracy]]\nbatch_size = 64\naccuracy = 0.88\n[[accuracy]]\nbatch_size = 512\naccuracy = 0.66\n";
        let best = Plan::new(&flowers(more), &gcp(), Objective::Accuracy).unwrap();
        assert_eq!(best.chosen().accuracy, Some(0.88));
        let limited = format!("{more}[limits]\naccuracy = 0.8\n");
        let plan = Plan::new(&flowers(&limited), &gcp(), Objective::Time).unwrap();
        assert!(plan.shapes.iter().all(|shape| shape.accuracy == Some(0.88)));
        let without = Plan::new(&flowers(""), &gcp(), Objective::Accuracy).unwrap_err();
        assert!(without.to_string().contains("[[accuracy]]"), "{without}");
    }

    #[test]
    fn more_workers_on_a_slow_link_are_bound_by_the_exchange() {
        let more = "[exchange]\ngradient_mb = 240\nbatch_size = 32\nstrategy = 'ps-sync'\n[shape]\nmachines = ['e2-standard-2']\n";
        let plan = Plan::new(&flowers(more), &gcp(), Objective::Time).unwrap();
        let sixteen = plan.shapes.iter().find(|shape| shape.nodes == 16).unwrap();
        assert_eq!(sixteen.bound, Bound::Exchange);
        assert_eq!(plan.chosen().nodes, 1, "{:?}", plan.chosen());
    }

    #[test]
    fn a_disk_grows_for_the_operations_that_single_files_ask() {
        let more =
            "[shape]\nmachines = ['n1-standard-2']\nmax_nodes = 1\n[quota]\nssd_disk_gb = 0\n";
        let shards = flowers(more);
        let photos = Job {
            data: JobData { files: Some(367_000.0), ..shards.data.clone() },
            ..shards.clone()
        };
        let of = |job: &Job| Plan::new(job, &gcp(), Objective::Time).unwrap().chosen().clone();
        let (large_blocks, single) = (of(&shards), of(&photos));
        // 400 photos a second are 800 operations, of 0.75 for each GB.
        assert_eq!((single.disk.kind.as_str(), single.disk.gb), ("pd-standard", 1067.0));
        assert!(large_blocks.disk.gb < 300.0, "{large_blocks:?}");
        let tight = Job {
            quota: Limits { standard_disk_gb: Some(238.0), ..photos.quota.clone() },
            ..photos
        };
        let tight = of(&tight);
        assert_eq!((tight.bound, tight.read_bound), (Bound::Input, ReadBound::Operations));
    }

    #[test]
    fn gpus_cost_what_the_catalogue_says_and_their_price_is_missing_where_it_says_nothing() {
        let with = |gpu: &str| {
            let shape = "[shape]\nmachines = ['n1-standard-2']\nmax_nodes = 2\n";
            let job = flowers(&format!("{shape}gpus_per_node = 1\ngpu = '{gpu}'\n"));
            Plan::new(&job, &gcp(), Objective::Time).unwrap()
        };
        // K80 are not rented any more, so that the shipped catalogue has no price of them.
        let without = with("K80");
        assert_eq!((without.gpu_usd_per_hour, without.chosen().gpus), (None, 2));
        for gpu in gcp().gpus {
            let plan = with(&gpu.name);
            assert_eq!(plan.gpu_usd_per_hour, Some(gpu.usd_per_hour));
            let more = plan.chosen().usd - without.chosen().usd;
            let gpus = 2.0 * gpu.usd_per_hour * plan.chosen().seconds / 3600.0;
            assert!((more - gpus).abs() < 1e-9, "{}: {more}", gpu.name);
        }
    }

    #[test]
    fn what_excludes_every_shape_is_said() {
        let error =
            Plan::new(&flowers("[quota]\nvcpus = 0\n"), &gcp(), Objective::Cost).unwrap_err();
        assert!(error.to_string().contains("quota of vCPUs"), "{error}");
    }

    proptest! {
        #[test]
        fn no_shape_off_the_front_is_best_at_anything_and_the_front_is_consistent(
            gb in 0.1f64..500.0, rate in 1.0f64..1e5, nodes in 1u32..8,
        ) {
            let text = format!("name = 'x'\n[data]\ngb = {gb}\nexamples = 1e6\n[measured]\nexamples_per_second = {rate}\ncores = 2\n[shape]\nmax_nodes = {nodes}\n");
            let plan = Plan::new(&Job::parse("x", &text).unwrap(), &gcp(), Objective::Time).unwrap();
            let front: Vec<&Shape> = plan.front().collect();
            prop_assert!(!front.is_empty());
            for shape in &plan.shapes {
                prop_assert!(shape.low <= shape.seconds && shape.seconds <= shape.high);
                prop_assert!(front.iter().any(|best| best.seconds <= shape.seconds && best.usd <= shape.usd));
            }
            for (a, b) in front.iter().zip(front.iter().skip(1)) {
                prop_assert!(a.seconds <= b.seconds && a.usd >= b.usd);
            }
        }
    }
}
