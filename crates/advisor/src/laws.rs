//! What any job may look like before one has run: laws of scaling instead of a history.
//!
//! Part of a job cannot be shared among cores (Amdahl), every machine costs some coordination, and a job whose
//! working set does not fit into the memory of the cluster is several times slower. Which shares and which working set
//! are a job's own is not known; each combination is a profile that its runs can confirm or refute.

use crate::catalogue::Catalogue;
use crate::search::Problem;

/// Share of the work that is not sped up by further cores, at the smallest configuration.
const SERIAL: [f64; 3] = [0.0, 0.05, 0.3];
/// Where the working set lies between the least and the largest memory of the catalogue, by ratio, and how likely that is.
const WORKING_SETS: [(f64, f64); 6] =
    [(0.0, 0.4), (0.2, 0.12), (0.4, 0.12), (0.6, 0.12), (0.8, 0.12), (0.95, 0.12)];
/// `ln` of how much slower a job is whose working set does not fit: three times.
const SPILL: f64 = 1.1;
/// Seconds for coordination of each machine, as a share of the job's time on the smallest configuration.
const COORDINATION: f64 = 0.002;

/// A law: how likely it is before any run, and `ln` of the objective under it, up to a constant.
#[derive(Debug, Clone)]
pub(crate) struct Law {
    pub(crate) weight: f64,
    pub(crate) profile: Vec<f64>,
}

/// Every law; their weights add up to one.
pub(crate) fn all(problem: &Problem) -> Vec<Law> {
    let catalogue = &problem.catalogue;
    let count = catalogue.len();
    let range = |values: &[f64]| {
        values.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &v| (low.min(v), high.max(v)))
    };
    let power: Vec<f64> = (0..count).map(|at| power(catalogue, at)).collect();
    let memory: Vec<f64> = (0..count).map(|at| catalogue.memory_gib(at)).collect();
    let (weakest, _) = range(&power);
    let (least, most) = range(&memory);
    let mut all = Vec::new();
    for serial in SERIAL {
        for (set, likely) in WORKING_SETS {
            let need = if set == 0.0 { 0.0 } else { least * (most / least).powf(set) };
            let law = |at: usize| {
                let shared = (1.0 - serial) * weakest / power[at];
                let together = COORDINATION * f64::from(catalogue.count(at));
                // A little too small is a little slower: the cliff is not where the catalogue's figures say.
                let missing = ((need / memory[at]).ln() / 0.5 + 0.5).clamp(0.0, 1.0);
                problem.value(at, serial + shared + together).ln() + SPILL * missing
            };
            let weight = likely / SERIAL.len() as f64;
            all.push(Law { weight, profile: (0..count).map(law).collect() });
        }
    }
    all
}

/// Mean `ln` distance of each configuration to the best, over laws.
pub(crate) fn mean_distance(laws: &[Law]) -> Vec<f64> {
    let Some(first) = laws.first() else { return Vec::new() };
    let mut sums = vec![0.0; first.profile.len()];
    for Law { weight, profile } in laws {
        let best = profile.iter().copied().fold(f64::INFINITY, f64::min);
        for (sum, value) in sums.iter_mut().zip(profile) {
            *sum += weight * (value - best);
        }
    }
    sums
}

/// Work that all cores of a configuration do in a second, in any unit.
fn power(catalogue: &Catalogue, at: usize) -> f64 {
    let machine = catalogue.machine(at);
    machine.cores * machine.speed.unwrap_or(1.0) * f64::from(catalogue.count(at))
}
