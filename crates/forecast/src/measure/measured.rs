//! A run folder as what a simulation rests on.

mod of_profile;

use super::stepping::{self, Stepper};
use super::{LOCAL_LATENCY, RunStart};
use crate::error::ForecastError;
use crate::oracle::Link;
use crate::simulate::{
    Bucket, Cluster, Collective, Plan, Workload, simulate,
    strategies::{self, SimulatedStrategy},
};
use paceline_batch::{Batch, FeatureKind, Features};
use paceline_runs::{Record, RecordedPlan, RunFolder, RunView, Step};
use std::time::Duration;

/// What a run was, as far as it says: that of another program has no plan.
struct Ground {
    strategy: String,
    batch: u64,
    /// Weights; nothing where the run does not say.
    parameters: Option<u64>,
    servers: usize,
    replicas: usize,
    threads: usize,
    split: u64,
    /// The plan, where the model is ours and can be timed here.
    plan: Option<RecordedPlan>,
}

impl Ground {
    fn read(folder: &RunFolder, records: &[Record]) -> Self {
        let plan = RecordedPlan::read(folder, records);
        let is_ours = !plan.whole.is_null();
        let threads = as_count(plan.threads).filter(|_| is_ours);
        Self {
            strategy: plan.strategy.clone().unwrap_or_default(),
            batch: plan.batch_size.unwrap_or(0),
            parameters: plan.parameters,
            servers: as_count(plan.servers).unwrap_or(0),
            replicas: as_count(plan.replicas).unwrap_or(1),
            threads: threads.unwrap_or_else(|| plan.threads_of_worker()),
            split: plan.split_parameters.unwrap_or(0),
            plan: is_ours.then_some(plan),
        }
    }

    /// What a simulation would like to know and is not told.
    fn missing(&self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if self.plan.is_none() {
            missing.push("the run was recorded by another program: its model cannot be timed here");
        }
        if self.parameters.is_none() {
            missing.push(
                "the run does not say how many parameters its model has (`parameters` of `run_started`), so gradients travel for free here: these rates are upper bounds",
            );
        }
        if self.batch == 0 {
            missing.push("the run does not say its batch size (`global_batch` of `run_started`): it is taken from the examples of its steps");
        }
        missing
    }

    /// Whether workers share each batch: ours by their strategy; other programs of several ranks do.
    fn in_lockstep(&self) -> bool {
        self.plan.is_none()
            || strategies::find(&self.strategy).is_ok_and(|entry| entry.shares_batch)
    }
}

/// What was read and measured.
pub struct Measured {
    /// The run's strategy.
    pub strategy: String,
    /// The job as it was measured.
    pub workload: Workload,
    /// The run's workers.
    pub workers: usize,
    /// The run's servers.
    pub servers: usize,
    /// Weights of layers that the run's workers shared out.
    split: u64,
    /// Cores of the machine it ran on.
    pub cores: f64,
    /// Examples of one update.
    pub batch: u64,
    /// Examples per second over all workers, once the run had started.
    pub examples_per_second: f64,
    /// Examples of the whole run; 0 where it does not say.
    pub examples: u64,
    /// What its first steps took beyond others: no rate contains it.
    pub start: RunStart,
    /// What a message costs inside a machine, as far as can be told beforehand.
    pub local: Link,
    /// Seconds of a worker's update that were exchange, without waiting for others.
    exchange: f64,
    /// Most steps that one event covers.
    covered: u64,
    events: usize,
    measured_here: bool,
    /// Whether the time of a server's update was said.
    timed_update: bool,
    /// What the run does not say and had to do without.
    missing: Vec<&'static str>,
}

/// How long the model is timed here, for what a run does not say.
const SPAN: Duration = Duration::from_millis(300);
/// Examples of the largest step that is timed here, but for one of twice as many.
const LARGEST: usize = 256;
/// The least and the most by which messages may be cheaper or dearer than first thought.
const FACTORS: (f64, f64) = (1e-3, 1e4);
/// The least and the most that waking a thread may take, in seconds.
const WAKES: (f64, f64) = (1e-7, 1e-2);
/// Workers that are timed at once at most: each needs memory for a model.
const MOST_AT_ONCE: usize = 4;

impl Measured {
    /// Reads what a run says; with `measure`, its model is timed here for what it does not.
    pub fn read(folder: &RunFolder, measure: bool) -> Result<Self, ForecastError> {
        let (records, _) = folder.events()?;
        let ground = Ground::read(folder, &records);
        let summary = match &ground.plan {
            Some(_) => folder.summary()?,
            None => Some(RunView::read(folder.path())?.summary),
        };
        let cores = folder.machine().map_or(1, |machine| machine.cores.max(1)) as f64;
        // The first steps warm caches, pools and connections up, and may read and unpack all data.
        let (mut tasks, start) = RunStart::split(&records);
        if tasks.is_empty() {
            return Err(ForecastError::NoSteps { path: folder.path().to_path_buf() });
        }
        let servers = ground.servers;
        let workers = match &summary {
            Some(summary) if !summary.workers.is_empty() => summary.workers.len(),
            _ => tasks.len().max(ground.replicas),
        };
        // The chief's events stand for all replicas of its process.
        let mut samples = Vec::new();
        let mut means = Vec::new();
        let mut covered = 1;
        let mut examples = 0.0;
        // Synchronous workers each count all updates.
        let each = if ground.in_lockstep() { tasks.len() as f64 } else { 1.0 };
        let mut rate = 0.0;
        let (mut input, mut phases) = (0.0, f64::MIN_POSITIVE);
        let (mut exchange, mut made) = (0.0, f64::MIN_POSITIVE);
        for steps in tasks.values_mut() {
            steps.iter_mut().for_each(|step| *step = Self::whole(*step));
            let own: Vec<(f64, f64)> = steps
                .iter()
                .map(|step| {
                    (
                        (step.phases.input + step.phases.compute) / step.steps as f64,
                        step.steps as f64,
                    )
                })
                .filter(|(seconds, _)| *seconds > 0.0)
                .collect();
            // Other programs may say how long steps took, and not where the time went.
            if own.is_empty() {
                continue;
            }
            let count: f64 = own.iter().map(|(_, steps)| steps).sum();
            let mean = own.iter().map(|(seconds, steps)| seconds * steps).sum::<f64>() / count;
            samples.extend(own.iter().map(|(seconds, _)| *seconds));
            means.push(mean);
            covered = covered.max(steps.iter().map(|step| step.steps).max().unwrap_or(1));
            input += steps.iter().map(|step| step.phases.input).sum::<f64>();
            phases += steps.iter().map(|step| step.phases.input + step.phases.compute).sum::<f64>();
            let [done, updates, seconds] = steps.iter().fold([0.0; 3], |[e, n, s], step| {
                [e + step.examples as f64, n + step.steps as f64, s + step.seconds]
            });
            exchange += steps.iter().map(|step| step.phases.exchange).sum::<f64>();
            made += updates;
            examples += done / updates;
            rate += updates / seconds / each;
        }
        if samples.is_empty() {
            let what = "time of input and compute";
            return Err(ForecastError::Unsaid { path: folder.path().to_path_buf(), what });
        }
        let tasks_seen = means.len() as f64;
        let average = means.iter().sum::<f64>() / tasks_seen;
        let floats = ground.parameters.unwrap_or(0) as f64 * 4.0;
        let copying = stepping::copy_rate(floats as usize);
        // A program that does not say how large its batches are counted their examples.
        let counted = examples.round().max(1.0) as u64;
        let known = summary.as_ref().map_or(ground.batch, |summary| summary.global_batch);
        let batch = if known > 0 { known } else { counted };
        let mut workload = Workload {
            steps: samples,
            examples: examples / tasks_seen,
            input: input / phases,
            sizes: Vec::new(),
            threads: ground.threads.max(1) as f64,
            parallel: 1.0,
            neighbours: workers as f64,
            contended: 1.0,
            cold: 1.0,
            factors: means.iter().map(|mean| mean / average).collect(),
            gradient_bytes: floats,
            weight_bytes: floats,
            // An update reads weights and gradients and writes weights where a copy reads and writes.
            apply: 1.5 * floats / copying,
            buckets: Vec::new(),
        };
        if let Some(summary) = &summary {
            sparse_messages(&mut workload, summary);
            let [done, steps] = summary.workers.iter().fold([0.0; 2], |[e, n], worker| {
                [e + worker.examples as f64, n + worker.iterations as f64]
            });
            if done > 0.0 && steps > 0.0 {
                workload.examples = done / steps;
            }
        }
        let events = workload.steps.len();
        let measured_here =
            measure && ground.plan.as_ref().is_some_and(|plan| learn(&mut workload, plan));
        Ok(Self {
            missing: ground.missing(),
            strategy: ground.strategy,
            workers,
            servers,
            split: ground.split,
            cores,
            batch,
            examples_per_second: rate * batch as f64,
            examples: summary.as_ref().map_or(0, |summary| summary.examples),
            start,
            local: Link { latency: LOCAL_LATENCY, bandwidth: copying },
            exchange: exchange / made,
            covered,
            events,
            measured_here,
            timed_update: false,
            workload,
        })
    }

    /// A step whose time goes into compute where it does not say where it went.
    fn whole(mut step: Step) -> Step {
        if step.phases.input + step.phases.compute <= 0.0 {
            step.phases.compute = (step.seconds - step.phases.exchange - step.phases.wait).max(0.0);
        }
        step
    }

    /// Makes the simulation of the measured run itself come out right, where the run had an exchange:
    /// what messages and updates cost on its machine follows from that. Answers the factor on what was
    /// first thought.
    pub fn calibrate(&mut self, cluster: &mut Cluster) -> Result<Option<f64>, ForecastError> {
        let Ok(entry) = strategies::find(&self.strategy) else { return Ok(None) };
        if self.workers + self.servers < 2 || self.examples_per_second <= 0.0 {
            return Ok(None);
        }
        let share = if entry.shares_batch {
            self.batch as f64 / self.workers as f64
        } else {
            self.batch as f64
        };
        let plan = Plan {
            steps: 1000.max(50 * self.workers as u64),
            threads: Some(self.workload.threads),
            collective: Collective::BySize {
                tree_up_to: paceline_wire::collective::TREE_BYTES as f64,
            },
            ..Plan::even(self.workers, self.servers.max(1), share)
        };
        let mut measured = self.workload.clone();
        let with = |measured: &Workload, factor: f64| {
            let mut local = cluster.local;
            (local.latency, local.bandwidth) = (local.latency * factor, local.bandwidth / factor);
            let workload = Workload { apply: measured.apply * factor, ..measured.clone() };
            let own = Cluster { cores: self.cores, per_host: usize::MAX, local, ..cluster.clone() };
            (workload, own)
        };
        let rate = |factor: f64| -> Result<f64, ForecastError> {
            let (workload, own) = with(&measured, factor);
            Ok(simulate(entry.name, &workload, &own, &plan)?.examples_per_second)
        };
        // Where workers wait for each other at servers, two figures tell two causes apart: messages cost what the
        // exchange took, and waking those that slept the rest.
        if entry.servers && entry.shares_batch && self.workers > 1 && self.exchange > 0.0 {
            let (workload, own) = with(&measured, 1.0);
            let first = simulate(entry.name, &workload, &own, &plan)?;
            let thought = first.shares.exchange / first.updates_per_second;
            let factor =
                (self.exchange / thought.max(f64::MIN_POSITIVE)).clamp(FACTORS.0, FACTORS.1);
            let (workload, own) = with(&measured, factor);
            let rate = |wake: f64| -> Result<f64, ForecastError> {
                let own = Cluster { wake, ..own.clone() };
                Ok(simulate(entry.name, &workload, &own, &plan)?.examples_per_second)
            };
            let too_fast = |wake: f64| Ok(rate(wake)? > self.examples_per_second);
            if too_fast(WAKES.0)? && rate(WAKES.1)? < self.examples_per_second {
                (cluster.local, cluster.wake) = (own.local, between(WAKES, 1.01, too_fast)?);
                self.workload = workload;
                return Ok(Some(factor));
            }
        }
        let fastest = rate(FACTORS.0)?;
        let factor = if fastest < self.examples_per_second {
            // Faster than free messages allow: the steps were measured while cores were shared.
            let factor = fastest / self.examples_per_second;
            measured.steps.iter_mut().for_each(|seconds| *seconds *= factor);
            FACTORS.0
        } else {
            between(FACTORS, 1.001, |factor| Ok(rate(factor)? > self.examples_per_second))?
        };
        let (workload, own) = with(&measured, factor);
        (self.workload, cluster.local) = (workload, own.local);
        Ok(Some(factor))
    }

    /// Examples per second of a run of as many examples as the measured one that begins as it did and then has this rate; nothing
    /// where the start is too short to matter or the run does not say how long it was.
    #[must_use]
    pub fn rate_with_start(&self, rate: f64) -> Option<f64> {
        let examples = self.examples as f64;
        let said = self.start.is_notable() && examples > 0.0 && rate > 0.0;
        said.then(|| examples / (self.start.seconds + examples / rate))
    }

    /// Where the simulation leaves what was measured.
    pub fn doubts(
        &self,
        entry: &SimulatedStrategy,
        cluster: &Cluster,
        workers: usize,
        batch: u64,
    ) -> Vec<String> {
        let mut doubts: Vec<String> = self.missing.iter().map(|what| (*what).to_owned()).collect();
        if self.split > 0 {
            doubts.push(format!(
                "the run's workers shared out dense layers of {} weights, which is not simulated: its step times are taken for those of workers with a copy of everything, which are slower and exchange more",
                self.split
            ));
        }
        if workers > 4 * self.workers {
            doubts.push(format!(
                "{workers} workers from a run of {}: who is slow, and how slow, is guessed from so few",
                self.workers
            ));
        }
        if self.events < 30 {
            doubts.push(format!(
                "only {} measurements of step times: rare slow steps are not among them",
                self.events
            ));
        }
        if self.covered > 1 {
            doubts.push(format!(
                "an event of the run covers up to {} steps: single steps spread wider than their means",
                self.covered
            ));
        }
        let share = if entry.shares_batch { batch as f64 / workers as f64 } else { batch as f64 };
        if !(0.5..=2.0).contains(&(share / self.workload.examples)) {
            let how = if self.measured_here {
                "scaled by timings of the model here"
            } else if self.workload.sizes.len() > 1 {
                "scaled by the sizes that were profiled"
            } else {
                "scaled in proportion"
            };
            doubts.push(format!(
                "{share:.1} examples a worker and step, measured were {:.1}: {how}",
                self.workload.examples
            ));
        }
        if (self.workers + self.servers) as f64 > self.cores && self.workers > 1 {
            doubts.push(format!(
                "the run had {} tasks on {} cores: its step times contain waiting for a core",
                self.workers + self.servers,
                self.cores
            ));
        }
        // A profile of no strategy says nothing of neighbours on its host.
        if cluster.cores != self.cores && !self.strategy.is_empty() {
            doubts.push(format!(
                "hosts of {} cores, measured was one of {}",
                cluster.cores, self.cores
            ));
        }
        if entry.name != self.strategy && entry.servers && !self.timed_update {
            doubts.push("the time of an update is estimated from the memory's speed".to_owned());
        }
        doubts
    }
}

/// A number of a plan as one of things in memory.
fn as_count(said: Option<u64>) -> Option<usize> {
    said.and_then(|number| usize::try_from(number).ok())
}

/// Bytes per step where only a part of the weights travels.
fn sparse_messages(workload: &mut Workload, summary: &paceline_runs::Summary) {
    let iterations: u64 = summary.workers.iter().map(|worker| worker.iterations).sum();
    let sent = summary.traffic.sent_bytes as f64 / iterations.max(1) as f64;
    let received = summary.traffic.received_bytes as f64 / iterations.max(1) as f64;
    if summary.strategy.starts_with("ps") && sent > 0.0 && sent < 0.5 * workload.gradient_bytes {
        workload.apply *= sent / workload.gradient_bytes;
        (workload.gradient_bytes, workload.weight_bytes) = (sent, received);
    }
}

/// The number between two at which `below` ceases to hold, to that ratio.
fn between(
    (mut low, mut high): (f64, f64),
    ratio: f64,
    below: impl Fn(f64) -> Result<bool, ForecastError>,
) -> Result<f64, ForecastError> {
    while high / low > ratio {
        let middle = (low * high).sqrt();
        if below(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(high)
}

/// Times the run's model here for what no run says: what steps of other sizes take, what threads bring, what
/// busy neighbours and cold caches cost, in which order gradients become final. Only ratios are used, so another
/// machine will do.
fn learn(workload: &mut Workload, plan: &RecordedPlan) -> bool {
    let Some((model, schema)) = plan.model.as_deref().zip(plan.schema()) else { return false };
    let stepper = |examples: usize, threads: usize| -> Result<Stepper, ForecastError> {
        let FeatureKind::Image(image) = schema.features else {
            return Err(ForecastError::ImagesOnly);
        };
        let classes = schema.labels.classes().max(1);
        let batch = Batch {
            features: Features::Pixels {
                values: (0..image.len() * examples).map(|at| (at * 7 % 251) as u8).collect(),
                width: image.len(),
            },
            labels: (0..examples).map(|at| (at % classes) as u32).collect(),
        };
        Stepper::with(model, &schema, batch, threads)
    };
    let mut timed = || -> Result<(), ForecastError> {
        let large = (workload.examples as usize).clamp(2, LARGEST);
        let threads = as_count(plan.threads).unwrap_or(1).max(1);
        let many = stepper(large, threads)?.time(SPAN)?;
        for size in [large / 4, large / 2, large, 2 * large] {
            let known = workload.sizes.last().map_or(0.0, |timed| timed.0);
            // A larger one is not worth waiting for.
            if size as f64 > known && (size <= large || many.whole < SPAN.as_secs_f64()) {
                let seconds = stepper(size, threads)?.time(SPAN)?.whole;
                workload.sizes.push((size as f64, seconds));
            }
        }
        let cores = paceline_batch::cores().count;
        if cores > 1 {
            let one = stepper(large, 1)?.time(SPAN)?.whole;
            let all = stepper(large, cores)?.time(SPAN)?.whole;
            // one/all = 1 / ((1−f) + f/cores)
            let gain = (one / all).max(1.0);
            workload.parallel = ((1.0 - 1.0 / gain) / (1.0 - 1.0 / cores as f64)).clamp(0.0, 1.0);
            let mut several = (0..cores.min(MOST_AT_ONCE))
                .map(|_| stepper(large, 1))
                .collect::<Result<Vec<_>, ForecastError>>()?;
            workload.contended = stepping::contention(&mut several, SPAN)?;
        }
        workload.cold =
            stepping::cold(&mut [stepper(large, threads)?, stepper(large, threads)?], SPAN)?;
        workload.buckets = buckets(&many.ready, many.whole - many.update);
        Ok(())
    };
    timed().is_ok()
}

/// Ranges as they become final, gathered into messages as the production exchange does.
fn buckets(ready: &[(usize, f64)], passes: f64) -> Vec<Bucket> {
    let all: usize = ready.iter().map(|(numbers, _)| numbers).sum();
    let mut buckets = Vec::new();
    let mut open = 0;
    for (place, &(numbers, at)) in ready.iter().enumerate() {
        open += numbers;
        let last = place + 1 == ready.len();
        if open >= paceline_wire::collective::BUCKET_NUMBERS || last {
            let share = open as f64 / all.max(1) as f64;
            let at = if last { 1.0 } else { (at / passes).clamp(0.0, 1.0) };
            buckets.push(Bucket { at, share });
            open = 0;
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Event, EventLog, PhaseTimes, RunStarted};

    /// A run that another program recorded: events and no `plan.json`.
    fn foreign(parameters: u64, phases: PhaseTimes) -> (tempfile::TempDir, RunFolder) {
        let folder = tempfile::tempdir().unwrap();
        let mut log =
            EventLog::append(&folder.path().join("events-worker-0.jsonl"), "worker/0").unwrap();
        let started = RunStarted {
            model: "resnet18".to_owned(),
            strategy: "multi-worker".to_owned(),
            parameters,
            global_batch: 64,
            ..RunStarted::default()
        };
        log.write(0.0, &Event::RunStarted(started)).unwrap();
        for step in 1..=20 {
            let event =
                Step { step, steps: 1, examples: 64, seconds: 0.5, phases, ..Step::default() };
            log.write(step as f64, &Event::Step(event)).unwrap();
        }
        log.flush().unwrap();
        let run = RunFolder::open(folder.path()).unwrap();
        (folder, run)
    }

    /// `plan.json` used to be read field by field, so that such a run opened in `report` and failed here.
    #[test]
    fn a_run_without_a_plan_is_simulated_from_what_its_log_says() {
        let phases =
            PhaseTimes { input: 0.1, compute: 0.3, exchange: 0.1, ..PhaseTimes::default() };
        let (_folder, run) = foreign(1000, phases);
        let measured = Measured::read(&run, true).unwrap();
        assert_eq!((measured.strategy.as_str(), measured.workers), ("multi-worker", 1));
        assert_eq!((measured.batch, measured.servers), (64, 0));
        assert_eq!(measured.workload.gradient_bytes, 4000.0);
        assert!((measured.workload.steps[0] - 0.4).abs() < 1e-9);
        assert!(!measured.measured_here, "a model of another program cannot be timed");
    }

    /// One worker was promised 27 times the rate of a run that had spent 91 % of its time reading its data before the first update.
    #[test]
    fn time_spent_reading_before_the_first_update_is_not_lost() {
        let phases = PhaseTimes { input: 0.1, compute: 0.3, ..PhaseTimes::default() };
        let (folder, run) = foreign(1000, phases);
        let path = folder.path().join("events-worker-0.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        let slow = text.replacen(r#""seconds":0.5"#, r#""seconds":90.5"#, 1);
        assert_ne!(slow, text);
        std::fs::write(&path, slow).unwrap();
        let measured = Measured::read(&run, false).unwrap();
        assert!((measured.examples_per_second - 128.0).abs() < 1e-6);
        let start = measured.start;
        assert!((start.seconds - 90.0).abs() < 1e-9 && start.is_notable(), "{start:?}");
        // 20 updates of 64 examples: 10 s at full speed, 100 s in all.
        assert_eq!(measured.examples, 1280);
        let rate = measured.rate_with_start(measured.examples_per_second).unwrap();
        assert!((rate - 12.8).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn what_a_run_does_not_say_is_named() {
        let phases = PhaseTimes { compute: 0.4, ..PhaseTimes::default() };
        let (_folder, run) = foreign(0, phases);
        let missing = Measured::read(&run, false).unwrap().missing.join("; ");
        assert!(missing.contains("does not say how many parameters its model has"), "{missing}");
        let (_folder, run) = foreign(1000, PhaseTimes::default());
        // Where its time went is not said either: all of a step is taken for computing.
        let measured = Measured::read(&run, false).unwrap();
        assert!((measured.workload.steps[0] - 0.5).abs() < 1e-9, "{:?}", measured.workload);
    }
}
