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
use crate::gpu::{GpuSpeed, NodeType, node_types};
use crate::job::{DataPlace, ExchangeStrategy, GradientExchange, Job, JobLimits};
use crate::quota::Demand;
use crate::reading::{NodeReading, ReadBound};
use crate::words::{dollars, time};
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
    pub gpu: Option<String>,
    /// How fast they are beside those that were measured; absent where cores were, and GPUs make nothing faster.
    pub gpu_speed: Option<GpuSpeed>,
    /// Examples of one update, where nodes exchange gradients.
    pub batch_size: Option<f64>,
    pub accuracy: Option<f64>,
    pub seconds: f64,
    /// Everything overlaps, at full efficiency.
    pub low: f64,
    /// Nothing overlaps, at three quarters of it.
    pub high: f64,
    /// Without GPUs where their price is not known; see [`Plan::gpu_price_known`].
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
    /// Whether every cost includes the GPUs of its shape; of the one that was asked for the catalogue may have no price.
    pub gpu_price_known: bool,
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
        let types = node_types(job, catalogue)?;
        let mut plan = Self {
            job: job.name.clone(),
            objective,
            provider: catalogue.provider.name(),
            region: catalogue.region.clone(),
            catalogue_date: catalogue.date.clone(),
            catalogue_source: catalogue.source.clone(),
            gpu_price_known: types
                .iter()
                .filter_map(|node| node.gpus)
                .all(|gpus| gpus.usd_per_hour.is_some()),
            examples: job.data.examples * job.data.passes,
            considered: 0,
            refused: BTreeMap::new(),
            shapes: Vec::new(),
        };
        for node in types {
            for nodes in 1..=job.shape.max_nodes {
                for (batch, accuracy) in job.batches() {
                    plan.considered += 1;
                    match best_disk(job, catalogue, node, nodes, (batch, accuracy), objective) {
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
            let reasons = words.join("; ") + &without_limits(job, catalogue);
            return Err(CloudError::NoShape { reasons });
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

/// What would be possible if it were allowed.
fn without_limits(job: &Job, catalogue: &CloudCatalogue) -> String {
    let free = Job { limits: JobLimits::default(), ..job.clone() };
    if free.limits == job.limits {
        return String::new();
    }
    let best = |objective| Some(Plan::new(&free, catalogue, objective).ok()?.chosen().clone());
    best(Objective::Time).zip(best(Objective::Cost)).map_or_else(
        String::new,
        |(soonest, cheapest)| {
            format!(
                "; without [limits] the soonest takes {} for ${}, the cheapest {} for ${}",
                time(soonest.seconds),
                dollars(soonest.usd),
                time(cheapest.seconds),
                dollars(cheapest.usd)
            )
        },
    )
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
    node: NodeType<'_>,
    nodes: u32,
    batch: (Option<f64>, Option<f64>),
    objective: Objective,
) -> Result<Shape, String> {
    let machine = node.machine;
    if job.measured.memory_gib > machine.memory_gib {
        return Err(format!("less memory than the {} GiB a node needs", job.measured.memory_gib));
    }
    if job.limits.accuracy.zip(batch.1).is_some_and(|(least, reached)| reached < least) {
        return Err("accuracy below the limit".to_owned());
    }
    let machines = nodes + job.shape.extra_nodes;
    let bare = demand(job, node, nodes, None);
    if let Some(short) = job.quota.shortages(&bare).first() {
        return Err(format!("quota of {}", short.what));
    }
    let speed = node.speed(job, catalogue)?;
    let compute = compute_seconds(job, node, nodes, speed.map_or(1.0, |speed| speed.expected));
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
        let shape = estimate(job, (node, speed), nodes, (disk, wanted), batch);
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

fn demand(job: &Job, node: NodeType<'_>, nodes: u32, disk: Option<&Disk>) -> Demand {
    let machines = nodes + job.shape.extra_nodes;
    let mut demand = Demand::of(node.machine, machines, disk);
    if let Some(gpus) = node.gpus {
        let having = if gpus.built_in { machines } else { nodes };
        demand.gpus.insert(gpus.name.to_owned(), f64::from(having * gpus.count));
    }
    demand
}

/// Seconds of computing at the measured rate per core or, where a GPU was measured, per GPU that is so many times as fast.
fn compute_seconds(job: &Job, node: NodeType<'_>, nodes: u32, gpu_speed: f64) -> f64 {
    let (measured, rate) = (&job.measured, job.measured.examples_per_second);
    let one = match (measured.cores, node.gpus) {
        (None, Some(gpus)) => {
            rate / measured.gpus.unwrap_or(1.0) * gpu_speed * f64::from(gpus.count)
        }
        (cores, _) => rate / cores.unwrap_or(1.0) * node.machine.speed * node.machine.vcpus,
    };
    job.data.examples * job.data.passes / (one * f64::from(nodes))
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
    (node, speed): (NodeType<'_>, Option<GpuSpeed>),
    nodes: u32,
    (disk, disk_use): (Disk, DiskRate),
    (batch, accuracy): (Option<f64>, Option<f64>),
) -> Shape {
    let machine = node.machine;
    let compute_at = |speed: f64| compute_seconds(job, node, nodes, speed);
    let GpuSpeed { low: slow, expected, high: fast } = speed.unwrap_or(GpuSpeed::SAME);
    let compute = compute_at(expected);
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
    let gpu_usd = node.gpus.and_then(|gpus| gpus.usd_per_hour).unwrap_or(0.0);
    let usd_per_hour =
        machines * (machine.usd_per_hour + disk.usd_per_month / MONTH) + f64::from(nodes) * gpu_usd;
    Shape {
        machine: machine.name.clone(),
        nodes,
        extra_nodes: job.shape.extra_nodes,
        batch_size: batch,
        accuracy,
        seconds,
        low: start + (compute_at(fast) / best).max(input).max(exchange),
        high: start + compute_at(slow) / worst + input + exchange,
        usd: usd_per_hour * seconds / 3600.0,
        bound: parts.bound(),
        parts,
        demand: demand(job, node, nodes, Some(&disk)),
        disk,
        disk_use,
        read_bound,
        gpus: node.gpus.map_or(0, |gpus| gpus.count * nodes),
        gpu: node.gpus.map(|gpus| gpus.name.to_owned()),
        gpu_speed: speed,
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
    fn a_deadline_that_no_shape_keeps_is_told_what_would_be_possible() {
        let late = flowers("[limits]\ndeadline_minutes = 0.1\n");
        let error = Plan::new(&late, &gcp(), Objective::Cost).unwrap_err().to_string();
        let soonest = Plan::new(&flowers(""), &gcp(), Objective::Time).unwrap();
        let expected =
            format!("without [limits] the soonest takes {}", time(soonest.chosen().seconds));
        assert!(error.contains("later than the deadline") && error.contains(&expected), "{error}");
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
