//! A profile as what a simulation rests on.

use super::{LOCAL_LATENCY, Measured, stepping};
use crate::measure::{RunStart, StepProfile};
use crate::oracle::Link;
use crate::simulate::{Bucket, Workload};

impl Measured {
    /// What a profile says, for updates of a batch size of which each worker has so many examples: the nearest profiled size is the
    /// ground, the others say how its time changes.
    #[must_use]
    pub fn of_profile(profile: &StepProfile, examples: f64) -> Self {
        let bytes = profile.parameters * profile.value_bytes;
        let weights = profile.parameters * 4.0;
        let copying = stepping::copy_rate(weights.min(1e9) as usize);
        let distance = |size: u64| (size as f64 / examples).ln().abs();
        let steps = profile
            .steps
            .iter()
            .min_by(|a, b| distance(a.batch_size).total_cmp(&distance(b.batch_size)));
        let (size, samples) =
            steps.map_or((1, vec![f64::NAN]), |steps| (steps.batch_size, steps.seconds.clone()));
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let threads = profile.threads as f64;
        let workload = Workload {
            examples: size as f64,
            input: profile.input_share,
            sizes: profile
                .steps
                .iter()
                .map(|steps| (steps.batch_size as f64, steps.median()))
                .collect(),
            threads,
            parallel: 1.0,
            neighbours: 1.0,
            contended: 1.0,
            cold: 1.0,
            factors: vec![1.0],
            gradient_bytes: bytes,
            weight_bytes: weights,
            apply: profile.update_seconds.unwrap_or(1.5 * weights / copying),
            buckets: profile
                .messages
                .iter()
                .map(|part| Bucket { at: part.at, share: part.parameters / profile.parameters })
                .collect(),
            steps: samples,
        };
        Self {
            strategy: String::new(),
            workers: 1,
            servers: 0,
            split: 0,
            cores: profile.cores.unwrap_or(threads),
            batch: size,
            examples_per_second: size as f64 / mean,
            examples: 0,
            start: RunStart::default(),
            local: Link { latency: LOCAL_LATENCY, bandwidth: copying },
            exchange: 0.0,
            covered: 1,
            events: workload.steps.len(),
            measured_here: false,
            timed_update: profile.update_seconds.is_some(),
            missing: Vec::new(),
            workload,
        }
    }
}
