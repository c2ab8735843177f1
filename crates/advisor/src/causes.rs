//! Failures that have nothing to do with memory.
//!
//! A job may fail above a number of machines, on slow disks, or on one machine type that lacks a library. Which it is cannot be known
//! beforehand, so every simple *cause* that could separate what fails from what completes is weighed by how well
//! it explains the job's own runs, against no cause at all but a job that fails at some rate everywhere.

use crate::catalogue::Catalogue;

/// Weight of all causes together, before any run.
const BELIEVED: f64 = 0.05;
/// How surely a run fails where a cause says so, and how rarely elsewhere.
const SURELY: f64 = 0.95;
const RARELY: f64 = 0.05;
/// Failures of a job without a cause: one in thirty, worth one run.
const RATE: (f64, f64) = (0.033, 1.0);

/// What may make runs fail: below or above a value of one property, or on one machine type.
#[derive(Debug)]
pub(crate) struct Causes {
    /// Which configurations each makes fail.
    fails: Vec<Vec<bool>>,
}

impl Causes {
    pub(crate) fn new(catalogue: &Catalogue) -> Self {
        let count = catalogue.len();
        let mut fails: Vec<Vec<bool>> = Vec::new();
        for values in catalogue.properties() {
            let mut steps = values.clone();
            steps.sort_by(f64::total_cmp);
            steps.dedup();
            for &step in steps.iter().skip(1) {
                fails.push(values.iter().map(|&value| value < step).collect());
                fails.push(values.iter().map(|&value| value >= step).collect());
            }
        }
        for machine in 0..catalogue.machines().len() {
            let all = catalogue.configurations().iter();
            fails.push(all.map(|found| found.machine == machine).collect());
        }
        fails.sort_unstable();
        fails.dedup();
        fails.retain(|fails| fails.iter().any(|fails| *fails) && !fails.iter().all(|fails| *fails));
        debug_assert!(fails.iter().all(|fails| fails.len() == count));
        Self { fails }
    }

    /// Probability that some cause makes a run fail on each configuration, after runs: configuration, and whether it failed.
    pub(crate) fn probabilities(&self, seen: &[(usize, bool)], count: usize) -> Vec<f64> {
        let failures = seen.iter().filter(|(_, failed)| *failed).count();
        // One failure is as likely bad luck, or memory, as anything else.
        if failures < 2 || self.fails.is_empty() {
            return vec![0.0; count];
        }
        // Without a cause: each run in turn, given those before it.
        let (mut failed_before, mut none) = (0.0, (1.0 - BELIEVED).ln());
        for (before, &(_, failed)) in seen.iter().enumerate() {
            let rate = (RATE.0 * RATE.1 + failed_before) / (RATE.1 + before as f64);
            none += if failed { rate.ln() } else { (1.0 - rate).max(1e-9).ln() };
            failed_before += f64::from(failed);
        }
        let each = BELIEVED / self.fails.len() as f64;
        let mut logs: Vec<f64> = self
            .fails
            .iter()
            .map(|fails| {
                let fits = |&(at, failed): &(usize, bool)| {
                    let rate = if fails[at] { SURELY } else { RARELY };
                    if failed { rate.ln() } else { (1.0 - rate).ln() }
                };
                each.ln() + seen.iter().map(fits).sum::<f64>()
            })
            .collect();
        let top = logs.iter().copied().fold(none, f64::max);
        logs.iter_mut().for_each(|log| *log = (*log - top).exp());
        let total: f64 = logs.iter().sum::<f64>() + (none - top).exp();
        (0..count)
            .map(|at| {
                let causes = self.fails.iter().zip(&logs).filter(|(fails, _)| fails[at]);
                SURELY * causes.map(|(_, weight)| weight).sum::<f64>() / total
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Machine;

    fn catalogue() -> Catalogue {
        let machine = |name: &str, cores: f64| Machine {
            name: name.to_owned(),
            cores,
            memory_gib: 16.0,
            usd_per_hour: 0.1 * cores,
            speed: None,
            disk_mb_per_s: None,
            network_gbit: None,
            extra: Default::default(),
        };
        let counts = vec![1, 2, 4, 8, 16];
        Catalogue::from_parts(["a", "b", "c"].map(|name| (machine(name, 4.0), counts.clone())))
    }

    /// Seven picks in a row once failed on a job that fails on most machines, because only memory was thought of.
    #[test]
    fn two_failures_on_many_machines_speak_against_many_machines() {
        let catalogue = catalogue();
        let causes = Causes::new(&catalogue);
        let at = |name, count| catalogue.find(name, count).unwrap();
        let seen = [(at("a", 16), true), (at("b", 8), true), (at("a", 1), false)];
        let found = causes.probabilities(&seen, catalogue.len());
        assert!(found[at("c", 16)] > 0.5, "{found:?}");
        assert!(found[at("c", 1)] < 0.2, "{found:?}");
    }

    #[test]
    fn failures_on_one_machine_type_speak_against_it_alone() {
        let catalogue = catalogue();
        let causes = Causes::new(&catalogue);
        let at = |name, count| catalogue.find(name, count).unwrap();
        let seen = [
            (at("b", 2), true),
            (at("b", 16), true),
            (at("b", 1), true),
            (at("a", 1), false),
            (at("c", 16), false),
            (at("a", 4), false),
        ];
        let found = causes.probabilities(&seen, catalogue.len());
        assert!(found[at("b", 4)] > 0.7, "{found:?}");
        assert!(found[at("a", 8)] < 0.2 && found[at("c", 2)] < 0.2, "{found:?}");
    }
}
